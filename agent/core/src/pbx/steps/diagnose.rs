//! `diag.collect`: what helps to find a fault, if somebody has agreed to this very request (OP-11). What may be in it is
//! [`diagnostics`](crate::pbx::diagnostics)'.

use protocol::pbx::operation::{DiagCollectResult, OperationOffer, Reason, Step};

use super::{Doing, Failure, Progress, other_answer};
use crate::pbx::durable::StepData;
use crate::pbx::events::End;
use crate::pbx::task::{Done, Task};

pub(super) fn begin(offer: &OperationOffer) -> Result<StepData, End> {
    match offer.consent {
        Some(_) => Ok(StepData::DiagCollect { collected: None }),
        None => {
            let why = "nobody has consented to this request".to_owned();
            Err(End::refused(why, Reason::NoConsent))
        }
    }
}

pub(super) fn doing(step: Step) -> Option<Doing> {
    (step == Step::Collect).then_some(Doing::Task(Task::CollectDiagnostics))
}

pub(super) fn done(
    collected: &mut Option<DiagCollectResult>,
    done: Done,
) -> Result<Progress, Failure> {
    match done {
        Done::Collected(result) => *collected = Some(result),
        done => return Err(other_answer(&done)),
    }
    Ok(Progress::Over)
}
