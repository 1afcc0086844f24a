//! `snapshot.save`: a snapshot, and the proof that it is in the bucket (OP-1).

use protocol::pbx::operation::{SnapshotSaveParams, SnapshotSaveResult, Step};

use super::{Doing, Failure, Progress, bucket, other_answer};
use crate::pbx::durable::{Durable, StepData};
use crate::pbx::task::{Done, Task};

pub(super) fn doing(
    durable: &Durable,
    step: Step,
    params: SnapshotSaveParams,
    data: &StepData,
) -> Option<Doing> {
    let StepData::SnapshotSave { saved, .. } = data else {
        return None;
    };
    match (step, saved) {
        (Step::Save, _) => Some(Doing::Task(Task::SaveSnapshot { name: params.name })),
        (Step::ConfirmS3, Some(name)) => Some(Doing::Task(Task::ConfirmSnapshot {
            name: name.clone(),
            s3: bucket(durable),
        })),
        (Step::Report, _) => Some(Doing::Nothing),
        _ => None,
    }
}

pub(super) fn done(step: Step, data: &mut StepData, done: Done) -> Result<Progress, Failure> {
    let StepData::SnapshotSave { saved, confirmed } = data else {
        return Err(other_answer(&done));
    };
    match (step, saved, done) {
        (Step::Save, saved, Done::SnapshotSaved { name }) => *saved = Some(name),
        (Step::ConfirmS3, Some(name), done) => *confirmed = Some(confirmation(name.clone(), done)?),
        (_, _, done) => return Err(other_answer(&done)),
    }
    Ok(Progress::Over)
}

/// What the bucket says of a snapshot; an object without content is none (R46).
pub(super) fn confirmation(
    name: protocol::id::SnapshotName,
    done: Done,
) -> Result<SnapshotSaveResult, Failure> {
    let Done::SnapshotConfirmed {
        size,
        sha256,
        location,
    } = done
    else {
        return Err(other_answer(&done));
    };
    if size == 0 {
        return Err(format!("{location} is empty").into());
    }
    Ok(SnapshotSaveResult {
        name,
        size,
        sha256,
        location,
    })
}
