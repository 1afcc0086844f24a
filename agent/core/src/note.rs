//! Things worth knowing, in a closed enum: a world turns each into a log event with fields and into a counter of the
//! metric that it names, so that logs, metrics and dashboards cannot disagree.
//!
//! No note holds a secret. Calls and their outcomes are counted by the postman, which sees them whole.

use std::borrow::Cow;

use protocol::endpoint::Endpoint;
use protocol::id::{
    AgentId, AgentVersion, Generation, KeyId, NodeName, OperationId, ReleaseVersion,
};
use protocol::pbx::operation::{OperationKind, Reason, Step};
use protocol::pbx::sync::{AddonReport, AddonState, DocumentResult, OperationState};
use protocol::problem::ProblemCode;
use record::Metric;

use crate::journal::Work;
use crate::machine::FieldPath;
use crate::pbx::durable::{BanReason, IdleReason};

/// Something worth knowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A start, with what it found.
    Booted {
        /// Whether an identity was on disk.
        enrolled: bool,
        /// The operation that was found running.
        operation: Option<OperationId>,
    },
    /// A call failed, and the agent waits (ANS-8, and all that backs off like it).
    BackedOff {
        /// The call.
        endpoint: Endpoint,
        /// The status; none where nothing came back.
        status: Option<u16>,
        /// What was wrong: the code, the detail, the transport's words.
        why: Cow<'static, str>,
        /// Failures in a row.
        failures: u32,
        /// The wait, in milliseconds.
        wait_ms: u64,
    },
    /// The portal said how long to wait (ANS-7).
    PortalWait {
        /// The call.
        endpoint: Endpoint,
        /// The status.
        status: u16,
        /// What it asked for in seconds, before any bound.
        raw_seconds: u64,
        /// The wait, in milliseconds.
        wait_ms: u64,
    },
    /// The portal asked for a wait in words that cannot be read (ANS-7).
    UnreadableRetryAfter {
        /// The words.
        raw: String,
    },
    /// A request was refused with 400 (ANS-2).
    RequestRefused {
        /// The call.
        endpoint: Endpoint,
        /// The code, or the status where there was none.
        code: String,
        /// The portal's explanation.
        detail: Option<String>,
        /// How often this same request was refused.
        times: u32,
    },
    /// A request is signed once more, with the next second (ANS-3).
    SignedAgain {
        /// The call.
        endpoint: Endpoint,
    },
    /// The clock offset was corrected (ANS-5).
    ClockCorrected {
        /// The offset from the raw clock, in milliseconds.
        offset_ms: i64,
    },
    /// The key in use was refused while another is on disk, which is tried (ANS-4).
    OtherKeyTried,
    /// The identity is taken as revoked (ANS-4).
    Revoked {
        /// The portal's code, if it gave one.
        code: Option<ProblemCode>,
    },
    /// A revoked agent asked at its start, and the portal knows it again (ANS-4).
    RevocationLifted,
    /// The portal finds the protocol too old (ANS-6).
    ProtocolTooOld {
        /// The call.
        endpoint: Endpoint,
        /// The release to go to, if it named one.
        release: Option<ReleaseVersion>,
    },
    /// The agent is enrolled, and its node is set up.
    Enrolled {
        /// Its ID.
        agent: AgentId,
    },
    /// The enrollment is given up (ENR-7, ENR-8, ANS-2).
    EnrollmentGivenUp {
        /// Why.
        reason: IdleReason,
    },
    /// There is neither an identity nor a token to get one with.
    NoToken,
    /// A secret in the answer to the enrollment does not open; the portal is asked again.
    BootstrapUnopenable {
        /// Its member.
        field: FieldPath,
    },
    /// What became of a document.
    Document {
        /// The document; none where it could not be read.
        generation: Option<Generation>,
        /// What became of it.
        result: DocumentResult,
        /// Why.
        message: Option<String>,
    },
    /// The document names another agent program than the one that runs.
    AgentVersionWanted {
        /// The one named.
        wanted: AgentVersion,
    },
    /// The state of an add-on is another one (ADD-7).
    Addon(AddonReport),
    /// An operation was taken.
    OperationAccepted {
        /// Its ID.
        operation: OperationId,
        /// Its kind.
        kind: OperationKind,
    },
    /// An operation has ended, or was not begun.
    OperationEnded {
        /// Its ID.
        operation: OperationId,
        /// Its kind.
        kind: OperationKind,
        /// How.
        state: OperationState,
        /// Why.
        reason: Option<Reason>,
        /// Why, in words.
        message: Option<String>,
    },
    /// An operation that has ended was asked for again and is answered with what was recorded (OPS-7).
    OperationAnsweredAgain {
        /// Its ID.
        operation: OperationId,
    },
    /// An operation came again with other content; what was recorded counts (OPS-9).
    OperationChanged {
        /// Its ID.
        operation: OperationId,
    },
    /// An operation came that is another node's (OPS-10).
    OperationForAnother {
        /// Its ID.
        operation: OperationId,
        /// The node that it names.
        target: NodeName,
    },
    /// A step has ended.
    StepEnded {
        /// The operation.
        operation: OperationId,
        /// The step.
        step: Step,
        /// Whether it succeeded.
        succeeded: bool,
    },
    /// The keys were rotated (OP-9).
    KeysRotated {
        /// The signing key in use.
        key: KeyId,
    },
    /// The portal does not know an operation whose events it was sent; they are dropped (OPS-8).
    EventsDropped {
        /// The operation.
        operation: OperationId,
        /// How many.
        count: u64,
    },
    /// The portal does not take an event; it is given up (ANS-2).
    EventUndeliverable {
        /// The operation.
        operation: OperationId,
        /// The event.
        sequence: u64,
    },
    /// The record could not be written (FAIL-7).
    StoreFailed {
        /// Which file and why.
        message: String,
        /// Failures in a row.
        failures: u32,
        /// The wait before the next try, in milliseconds.
        wait_ms: u64,
    },
    /// The record can be written again (FAIL-7).
    StoreRecovered,
    /// The agent's own update begins (UPD-1).
    UpdateBegun {
        /// The version that it goes to.
        wanted: AgentVersion,
    },
    /// The new program stays (UPD-2).
    Updated {
        /// Its version.
        version: AgentVersion,
    },
    /// The agent's own update came to nothing, and that version is left alone (UPD-3).
    UpdateFailed {
        /// The version.
        version: AgentVersion,
        /// Why.
        reason: BanReason,
    },
    /// A release that a 426 has named is not taken (ANS-6).
    UpdateRefused {
        /// The release.
        release: ReleaseVersion,
        /// Why.
        why: String,
    },
    /// This agent leads its cluster from now on, or no longer does (SYNC-6).
    Leadership {
        /// Whether it leads.
        leads: bool,
    },
    /// k3s was restarted in the maintenance window, for a drop-in (SYNC-5).
    K3sRestarted,
    /// A task of the host failed.
    TaskFailed {
        /// What it was a step of.
        work: Work,
        /// Why.
        message: String,
    },
    /// A task of the host has not ended by its deadline; it is waited for.
    TaskOverdue {
        /// What it is a step of.
        work: Work,
    },
}

/// How much a note matters to whoever reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// For whoever looks for a fault.
    Debug,
    /// A change that a user would notice.
    Info,
    /// Somebody should look, during the day.
    Warn,
    /// It stops the agent.
    Error,
}

impl Note {
    /// The metric that counts it, if one does.
    pub fn metric(&self) -> Option<Metric> {
        match self {
            Self::Booted { .. } => Some(Metric::AgentBoots),
            Self::BackedOff { .. } => Some(Metric::AgentBackoffs),
            Self::PortalWait { .. } => Some(Metric::AgentPortalWaits),
            Self::SignedAgain { .. } => Some(Metric::AgentResigns),
            Self::ClockCorrected { .. } => Some(Metric::AgentClockCorrections),
            Self::Revoked { .. } => Some(Metric::AgentRevocations),
            Self::ProtocolTooOld { .. } => Some(Metric::AgentProtocolTooOld),
            Self::Enrolled { .. } => Some(Metric::AgentEnrollments),
            Self::EnrollmentGivenUp { .. } => Some(Metric::AgentEnrollmentsGivenUp),
            Self::Document { .. } => Some(Metric::AgentDocuments),
            Self::OperationEnded { .. } => Some(Metric::AgentOperations),
            Self::StepEnded { .. } => Some(Metric::AgentSteps),
            Self::KeysRotated { .. } => Some(Metric::AgentKeyRotations),
            Self::EventUndeliverable { .. } => Some(Metric::AgentEventsUndeliverable),
            Self::StoreFailed { .. } => Some(Metric::AgentStoreFailures),
            Self::TaskFailed { .. } => Some(Metric::AgentTaskFailures),
            Self::UnreadableRetryAfter { .. }
            | Self::RequestRefused { .. }
            | Self::OtherKeyTried
            | Self::RevocationLifted
            | Self::NoToken
            | Self::BootstrapUnopenable { .. }
            | Self::AgentVersionWanted { .. }
            | Self::Addon(_)
            | Self::OperationAccepted { .. }
            | Self::OperationAnsweredAgain { .. }
            | Self::OperationChanged { .. }
            | Self::OperationForAnother { .. }
            | Self::EventsDropped { .. }
            | Self::StoreRecovered
            | Self::UpdateBegun { .. }
            | Self::Updated { .. }
            | Self::UpdateFailed { .. }
            | Self::UpdateRefused { .. }
            | Self::Leadership { .. }
            | Self::K3sRestarted
            | Self::TaskOverdue { .. } => None,
        }
    }

    /// How much it matters.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Revoked { .. } | Self::EnrollmentGivenUp { .. } | Self::NoToken => {
                Severity::Error
            }
            Self::Document { result, .. } => match result {
                DocumentResult::Applied => Severity::Info,
                DocumentResult::Pending => Severity::Debug,
                DocumentResult::ManifestRejected
                | DocumentResult::UnsealedSecret
                | DocumentResult::UnopenableSecret
                | DocumentResult::StaleDocument
                | DocumentResult::Failed => Severity::Warn,
            },
            Self::Addon(report) => match report.state {
                AddonState::Applied | AddonState::Removed => Severity::Info,
                AddonState::Pending => Severity::Debug,
                AddonState::Failed | AddonState::Unknown(_) => Severity::Warn,
            },
            Self::OperationEnded { state, .. } => match state {
                OperationState::Running | OperationState::Succeeded => Severity::Info,
                OperationState::Failed | OperationState::Unsupported | OperationState::Refused => {
                    Severity::Warn
                }
            },
            Self::Booted { .. }
            | Self::RevocationLifted
            | Self::Enrolled { .. }
            | Self::AgentVersionWanted { .. }
            | Self::OperationAccepted { .. }
            | Self::OperationAnsweredAgain { .. }
            | Self::KeysRotated { .. }
            | Self::StoreRecovered
            | Self::UpdateBegun { .. }
            | Self::Updated { .. }
            | Self::Leadership { .. }
            | Self::K3sRestarted => Severity::Info,
            Self::SignedAgain { .. } | Self::StepEnded { .. } => Severity::Debug,
            Self::BackedOff { .. }
            | Self::PortalWait { .. }
            | Self::UnreadableRetryAfter { .. }
            | Self::RequestRefused { .. }
            | Self::ClockCorrected { .. }
            | Self::OtherKeyTried
            | Self::ProtocolTooOld { .. }
            | Self::BootstrapUnopenable { .. }
            | Self::OperationChanged { .. }
            | Self::OperationForAnother { .. }
            | Self::EventsDropped { .. }
            | Self::EventUndeliverable { .. }
            | Self::StoreFailed { .. }
            | Self::TaskFailed { .. }
            | Self::UpdateFailed { .. }
            | Self::UpdateRefused { .. }
            | Self::TaskOverdue { .. } => Severity::Warn,
        }
    }
}
