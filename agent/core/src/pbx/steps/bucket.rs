//! `s3.verify`: keys to the bucket are tried before they are used (OP-10).

use protocol::pbx::enroll::S3Access;
use protocol::pbx::operation::{OperationResult, S3VerifyResult, Step};

use super::{Doing, Failure, Progress, other_answer};
use crate::pbx::task::{Done, Task};

pub(super) fn doing(step: Step, s3: S3Access) -> Option<Doing> {
    (step == Step::ListBucket).then(|| Doing::Task(Task::ListBucket(Box::new(s3))))
}

pub(super) fn done(objects_seen: &mut Option<u64>, done: Done) -> Result<Progress, Failure> {
    match done {
        Done::BucketListed { objects } => *objects_seen = Some(objects),
        done => return Err(other_answer(&done)),
    }
    Ok(Progress::Over)
}

pub(super) fn result(objects_seen: u64) -> OperationResult {
    OperationResult::S3Verify(S3VerifyResult { objects_seen })
}
