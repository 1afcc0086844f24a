//! Things worth knowing, in a closed enum: a world turns each into a log event with fields and into a counter of the
//! metric that it names, so that logs, metrics and dashboards cannot disagree.
//!
//! No note holds a secret. Calls and their outcomes are counted by the postman, which sees them whole.

use std::borrow::Cow;
use std::fmt;

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

/// What follows a note's first words, where somebody said more.
struct Why<'a>(Option<&'a str>);

impl fmt::Display for Why<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(why) => write!(formatter, ": {why}"),
            None => Ok(()),
        }
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

impl fmt::Display for Note {
    /// As a person reads it in a log: `operation op_1 is taken: snapshot.save`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = |text: &Option<String>| Why(text.as_deref()).to_string();
        let text = match self {
            Self::Booted {
                enrolled,
                operation,
            } => {
                let identity = if *enrolled {
                    "enrolled"
                } else {
                    "not enrolled yet"
                };
                match operation {
                    Some(operation) => {
                        format!("starts, {identity}, with operation {operation} under way")
                    }
                    None => format!("starts, {identity}"),
                }
            }
            Self::BackedOff {
                endpoint,
                status,
                why,
                failures,
                wait_ms,
            } => {
                let status = status
                    .map(|status| format!(" {status}"))
                    .unwrap_or_default();
                let wait = seconds(*wait_ms);
                format!(
                    "{endpoint} failed{status}: {why}; waits {wait} s after {failures} in a row"
                )
            }
            Self::PortalWait {
                endpoint,
                status,
                raw_seconds,
                wait_ms,
            } => format!(
                "{endpoint} {status}: the portal says to wait {raw_seconds} s; waits {} s",
                seconds(*wait_ms)
            ),
            Self::UnreadableRetryAfter { raw } => {
                format!("the portal asks for a wait that cannot be read: {raw:?}")
            }
            Self::RequestRefused {
                endpoint,
                code,
                detail,
                times,
            } => {
                let detail = why(detail);
                format!("{endpoint} was refused, {times} times by now: {code}{detail}")
            }
            Self::SignedAgain { endpoint } => {
                format!("{endpoint} is signed again, with the next second")
            }
            Self::ClockCorrected { offset_ms } => {
                format!("the portal's clock is taken as {offset_ms} ms from this node's")
            }
            Self::OtherKeyTried => {
                "the key in use is refused; the other one on disk is tried".into()
            }
            Self::Revoked { code: Some(code) } => format!("the identity is revoked ({code}); idle"),
            Self::Revoked { code: None } => "the identity is revoked; idle".into(),
            Self::RevocationLifted => "the portal knows the identity again".into(),
            Self::ProtocolTooOld {
                endpoint,
                release: Some(release),
            } => {
                format!("{endpoint}: the protocol is too old; the portal names release {release}")
            }
            Self::ProtocolTooOld {
                endpoint,
                release: None,
            } => {
                format!("{endpoint}: the protocol is too old; the portal names no release")
            }
            Self::Enrolled { agent } => format!("enrolled as {agent}"),
            Self::EnrollmentGivenUp { reason } => format!("enrollment given up: {reason}; idle"),
            Self::NoToken => "neither an identity nor a token; idle".into(),
            Self::BootstrapUnopenable { field } => {
                format!("{field} of the enrollment's answer does not open; asks again")
            }
            Self::Document {
                generation,
                result,
                message,
            } => {
                let which = generation.map(|generation| format!(" {generation}"));
                format!(
                    "document{}: {result}{}",
                    which.unwrap_or_default(),
                    why(message)
                )
            }
            Self::AgentVersionWanted { wanted } => format!("the document wants agent {wanted}"),
            Self::Addon(AddonReport {
                name,
                state,
                message,
            }) => {
                format!("add-on {name}: {state}{}", why(message))
            }
            Self::OperationAccepted { operation, kind } => {
                format!("operation {operation} is taken: {kind}")
            }
            Self::OperationEnded {
                operation,
                kind,
                state,
                reason,
                message,
            } => {
                let reason = reason.as_ref().map(|reason| format!(" ({reason})"));
                let reason = reason.unwrap_or_default();
                format!(
                    "operation {operation}, {kind}: {state}{reason}{}",
                    why(message)
                )
            }
            Self::OperationAnsweredAgain { operation } => {
                format!("operation {operation} has ended before, and is answered as it was then")
            }
            Self::OperationChanged { operation } => {
                format!("operation {operation} came again with other content; the first one counts")
            }
            Self::OperationForAnother { operation, target } => {
                format!("operation {operation} is for {target}; left alone")
            }
            Self::StepEnded {
                operation,
                step,
                succeeded,
            } => {
                let how = if *succeeded { "succeeded" } else { "failed" };
                format!("operation {operation}: step {step} {how}")
            }
            Self::KeysRotated { key } => format!("keys are rotated; signs with {key}"),
            Self::EventsDropped { operation, count } => {
                format!(
                    "the portal does not know operation {operation}; {count} events are dropped"
                )
            }
            Self::EventUndeliverable {
                operation,
                sequence,
            } => {
                format!(
                    "the portal does not take event {sequence} of operation {operation}; given up"
                )
            }
            Self::StoreFailed {
                message,
                failures,
                wait_ms,
            } => format!(
                "the record cannot be written, {failures} times by now: {message}; tries again in {} s",
                seconds(*wait_ms)
            ),
            Self::StoreRecovered => "the record can be written again".into(),
            Self::UpdateBegun { wanted } => format!("updates itself to {wanted}"),
            Self::Updated { version } => format!("agent {version} stays"),
            Self::UpdateFailed { version, reason } => {
                format!("update to {version} failed: {reason}")
            }
            Self::UpdateRefused { release, why } => {
                format!("release {release} of the portal's 426 is not taken: {why}")
            }
            Self::Leadership { leads: true } => "leads its cluster".into(),
            Self::Leadership { leads: false } => "no longer leads its cluster".into(),
            Self::K3sRestarted => "k3s was restarted, in the maintenance window".into(),
            Self::TaskFailed { work, message } => format!("{work} failed: {message}"),
            Self::TaskOverdue { work } => format!("{work} is overdue; waited for"),
        };
        formatter.write_str(&text)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_as_a_sentence() {
        let operation = OperationId::new("op_1").unwrap();
        let rows = [
            (
                Note::Booted {
                    enrolled: true,
                    operation: Some(operation.clone()),
                },
                "starts, enrolled, with operation op_1 under way",
            ),
            (
                Note::BackedOff {
                    endpoint: Endpoint::Sync,
                    status: Some(503),
                    why: "unavailable".into(),
                    failures: 2,
                    wait_ms: 4_500,
                },
                "sync failed 503: unavailable; waits 4.5 s after 2 in a row",
            ),
            (
                Note::Document {
                    generation: Some(Generation(18)),
                    result: DocumentResult::Failed,
                    message: Some("no room".to_owned()),
                },
                "document 18: failed: no room",
            ),
            (
                Note::OperationEnded {
                    operation,
                    kind: OperationKind::SnapshotSave,
                    state: OperationState::Succeeded,
                    reason: None,
                    message: None,
                },
                "operation op_1, snapshot.save: succeeded",
            ),
            (
                Note::EnrollmentGivenUp {
                    reason: IdleReason::TokenRefused { code: None },
                },
                "enrollment given up: its token was refused three times; idle",
            ),
        ];
        for (note, text) in rows {
            assert_eq!(note.to_string(), text);
        }
    }
}
