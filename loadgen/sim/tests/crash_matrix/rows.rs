//! What a crash at a point of an operation must come to: a row for each step of each kind.
//!
//! Nearly everywhere it is the operation's success. The exceptions are what OPS-4 says of destructive steps, and an entry
//! that is tried for one boot: a power cut before it is committed boots the old one (OP-6).

use fleet_sim::host::Fall;
use fleet_sim::simulation::Site;
use portal_core::control::{OperationStatus, OperationView};
use protocol::pbx::operation::{OperationKind, Reason, Step};

/// The point that a crash has hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) site: Site,
    pub(crate) step: Step,
    /// How many durable effects of the occasion were done.
    pub(crate) effects: u32,
    /// How many it has.
    pub(crate) all: u32,
    pub(crate) fall: Fall,
    /// A task of the step that changes something had run before.
    pub(crate) behind_task: bool,
    /// It is the write of the operation itself: lost, the agent knows nothing of it.
    pub(crate) is_first: bool,
}

/// How an operation ended at the portal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    Failed(Option<Reason>),
    Refused(Option<Reason>),
    Other,
}

impl End {
    pub(crate) fn of(view: &OperationView) -> Self {
        match view.state {
            OperationStatus::Succeeded => Self::Succeeded,
            OperationStatus::Failed => Self::Failed(view.reason.clone()),
            OperationStatus::Refused => Self::Refused(view.reason.clone()),
            _ => Self::Other,
        }
    }

    fn unclear() -> Self {
        Self::Failed(Some(Reason::Unclear))
    }

    fn returned() -> Self {
        Self::Failed(Some(Reason::Returned))
    }
}

/// The ends that one crash may have.
fn row(kind: &OperationKind, hit: &Hit) -> Vec<End> {
    use OperationKind as Kind;
    let succeeds = || vec![End::Succeeded];
    let is_power = hit.fall == Fall::Power;
    if hit.is_first && hit.effects == 0 && is_power && !kind.runs_without_api() {
        // It is handed out again, perhaps before k3s is back (OPS-6); another server may serve the API.
        return vec![End::Refused(Some(Reason::ApiDown)), End::Succeeded];
    }
    match (kind, hit.step) {
        (Kind::SnapshotSave, Step::Save | Step::ConfirmS3 | Step::Report)
        | (Kind::AccessIssue, Step::EnsureSa | Step::Token | Step::Seal)
        | (Kind::AccessRevoke, Step::DeleteSa)
        | (Kind::AgentRotateKey, Step::Generate | Step::Register | Step::Confirm)
        | (Kind::S3Verify, Step::ListBucket)
        | (Kind::DiagCollect, Step::Collect)
        | (Kind::NodeDrain, Step::Cordon | Step::Evict | Step::Report)
        | (Kind::NodeForget, Step::ConfirmGone | Step::DeleteNode)
        // What was set aside is the evidence: there is no point at which it is unclear.
        | (
            Kind::ServerRejoin,
            Step::StopK3s | Step::ClearDatastore | Step::StartK3s | Step::WaitApi,
        )
        | (
            Kind::ClusterRestore,
            Step::StopK3s | Step::StartK3s | Step::WaitApi | Step::ForgetStaleNodes,
        )
        | (
            Kind::ClusterUpgrade,
            Step::Preflight | Step::PreSnapshot | Step::FetchImage | Step::StageSlot,
        ) => succeeds(),
        // The unit has run, and there is no result of it.
        (Kind::ClusterRestore, Step::ResetRestore) => match (hit.site, hit.effects) {
            (Site::Task, 1) => vec![End::unclear()],
            _ => succeeds(),
        },
        (Kind::ClusterUpgrade, Step::Reboot) => match (hit.site, hit.effects) {
            // The mark is there, and the entry is not set: in the same boot it is unclear; in another the old one runs.
            (Site::Task, 2) if is_power => vec![End::returned()],
            (Site::Task, 2) => vec![End::unclear()],
            // A call goes on beside the reboot: before it or after it.
            (Site::Call, _) if is_power => vec![End::Succeeded, End::returned()],
            (Site::Store, _) if is_power && hit.behind_task => vec![End::returned()],
            _ => succeeds(),
        },
        (Kind::ClusterUpgrade, Step::HealthGate) if is_power => vec![End::returned()],
        (Kind::ClusterUpgrade, Step::HealthGate) => succeeds(),
        (Kind::ClusterUpgrade, Step::Commit) if is_power => {
            match (hit.site, hit.effects, hit.behind_task) {
                (Site::Task, 0, _) | (Site::Store, _, false) => vec![End::returned()],
                (Site::Call, ..) => vec![End::Succeeded, End::returned()],
                _ => succeeds(),
            }
        }
        (Kind::ClusterUpgrade, Step::Commit) => succeeds(),
        (kind, step) => panic!("{kind} has no row for {step}"),
    }
}

/// The ends that these crashes may have, in their order.
pub(crate) fn ends(kind: &OperationKind, hits: &[Hit]) -> Vec<End> {
    let [first, rest @ ..] = hits else {
        return vec![End::Succeeded];
    };
    let mut ends = row(kind, first);
    let Some(second) = rest.first() else {
        return ends;
    };
    let mut second = *second;
    // The task was done, and nobody was told.
    let is_done = first.effects == first.all
        || (first.step, first.effects, first.fall) == (Step::Reboot, 3, Fall::Power);
    second.behind_task |= first.site == Site::Task && first.step == second.step && is_done;
    let after = row(kind, &second);
    let is_upgrade = *kind == OperationKind::ClusterUpgrade;
    let is_kept = first.step == Step::Commit
        && match first.site {
            Site::Task => first.effects > 0,
            Site::Store => first.behind_task,
            Site::Call | Site::Lease => false,
        };
    if is_upgrade && is_kept {
        // The new entry is the default already.
        return ends;
    }
    let is_set = (first.step, first.site, first.effects, first.fall)
        == (Step::Reboot, Site::Task, 3, Fall::Program);
    if is_upgrade && is_set && (second.step, second.site) == (Step::Reboot, Site::Task) {
        // The entry is set for one boot already, whatever of it is done again.
        return ends;
    }
    if is_upgrade && (first.step, first.site) == (Step::Commit, Site::Call) {
        // It goes on beside the task: the entry is kept by then, or it is not.
        return vec![End::Succeeded, End::returned()];
    }
    let succeeds = |ends: &[End]| ends.contains(&End::Succeeded);
    match (succeeds(&ends), succeeds(&after)) {
        (true, _) if first.is_first => {
            ends.extend(after);
            ends
        }
        // What the first has not decided, the second may.
        (true, _) if ends.len() == 1 => after,
        (true, _) => {
            ends.extend(after);
            ends
        }
        // What has failed has failed; but whether it is unclear is seen once more if the power is cut meanwhile.
        (false, _) if is_upgrade && second.fall == Fall::Power => {
            vec![ends.remove(0), End::returned()]
        }
        (false, _) => ends,
    }
}
