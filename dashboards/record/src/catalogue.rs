//! The metric catalogue: every metric once, with its name, kind, unit, labels and help.
//!
//! Programs that expose metrics and machines that note things name them here, so that logs, metrics and dashboards
//! cannot disagree, and a dashboard can be drawn from the catalogue. Names follow Prometheus: units last, in base units,
//! counters end in `_total`. Labels are closed sets; an ID is never one.

use crate::label::{Label, labels};

labels! {
    /// A metric.
    pub enum Metric as "metric" {
        /// Requests that were due.
        LoadgenRequestsPlanned = "loadgen_requests_planned_total",
        /// Requests that were due and never started.
        LoadgenRequestsDropped = "loadgen_requests_dropped_total",
        /// Requests that were started.
        LoadgenRequestsStarted = "loadgen_requests_started_total",
        /// Requests that ended.
        LoadgenRequestsEnded = "loadgen_requests_ended_total",
        /// Intended → started.
        LoadgenLateness = "loadgen_lateness_seconds",
        /// First byte out → end.
        LoadgenService = "loadgen_service_seconds",
        /// Intended → end.
        LoadgenResponse = "loadgen_response_seconds",
        /// A connection, from the name to the end of TLS.
        LoadgenConnect = "loadgen_connect_seconds",
        /// Agents by what they are at the moment.
        LoadgenAgents = "loadgen_agents",

        /// Starts of an agent.
        AgentBoots = "agent_boots_total",
        /// Calls that ended.
        AgentCalls = "agent_calls_total",
        /// Waits after a failure.
        AgentBackoffs = "agent_backoffs_total",
        /// Waits that the portal asked for.
        AgentPortalWaits = "agent_portal_waits_total",
        /// Corrections of the clock offset.
        AgentClockCorrections = "agent_clock_corrections_total",
        /// Requests signed once more with the next second.
        AgentResigns = "agent_resigns_total",
        /// Times that an agent took itself as revoked.
        AgentRevocations = "agent_revocations_total",
        /// Times that an agent gave up its enrollment.
        AgentEnrollmentsGivenUp = "agent_enrollments_given_up_total",
        /// Enrollments completed.
        AgentEnrollments = "agent_enrollments_total",
        /// Answers that said that the protocol is too old.
        AgentProtocolTooOld = "agent_protocol_too_old_total",
        /// Documents that were dealt with.
        AgentDocuments = "agent_documents_total",
        /// Operations that ended.
        AgentOperations = "agent_operations_total",
        /// Steps that ended.
        AgentSteps = "agent_steps_total",
        /// Rotations of the keys completed.
        AgentKeyRotations = "agent_key_rotations_total",
        /// Events given up because the portal does not take them.
        AgentEventsUndeliverable = "agent_events_undeliverable_total",
        /// Durable records that could not be written.
        AgentStoreFailures = "agent_store_failures_total",
        /// Tasks of the host that failed.
        AgentTaskFailures = "agent_task_failures_total",

        /// Requests that reached the portal.
        PortalRequests = "mock_portal_requests_total",
        /// Answers that the portal gave.
        PortalAnswers = "mock_portal_answers_total",
        /// From the whole request to the answer.
        PortalAnswer = "mock_portal_answer_seconds",
        /// Agents by their state at the portal.
        PortalAgents = "mock_portal_agents",
        /// Clusters that tokens have named.
        PortalClusters = "mock_portal_clusters",
        /// Tokens that were made and not used yet.
        PortalTokens = "mock_portal_tokens",
        /// Signatures in the replay memory.
        PortalReplayMemory = "mock_portal_replay_memory_entries",
        /// Signatures for which the replay memory has room.
        PortalReplayCapacity = "mock_portal_replay_memory_capacity_entries",
        /// Agents' connections that are open.
        PortalConnections = "mock_portal_connections",
        /// Secrets that were sealed.
        PortalSeals = "mock_portal_seals_total",
        /// Operations by kind and state.
        PortalOperations = "mock_portal_operations",
        /// Events that came again.
        PortalEventsRepeated = "mock_portal_events_repeated_total",
    }
}

labels! {
    /// What a metric is.
    pub enum Type as "metric type" {
        /// It only grows.
        Counter = "counter",
        /// It goes up and down.
        Gauge = "gauge",
        /// A distribution.
        Histogram = "histogram",
    }
}

labels! {
    /// By what a metric is told apart.
    pub enum Dimension as "dimension" {
        /// [`protocol::endpoint::Endpoint`].
        Endpoint = "endpoint",
        /// [`crate::Outcome`].
        Outcome = "outcome",
        /// `full` or `resumed`.
        Handshake = "handshake",
        /// A state of what is counted: closed where it is defined.
        State = "state",
        /// [`protocol::pbx::sync::DocumentResult`].
        Result = "result",
        /// [`crate::fleet::Kind`].
        Kind = "kind",
        /// [`protocol::pbx::operation::Step`].
        Step = "step",
    }
}

impl Metric {
    /// The name, as it is scraped.
    pub fn name(self) -> &'static str {
        self.label()
    }

    /// What it is.
    pub fn kind(self) -> Type {
        match self {
            Metric::LoadgenAgents
            | Metric::PortalAgents
            | Metric::PortalClusters
            | Metric::PortalTokens
            | Metric::PortalReplayMemory
            | Metric::PortalReplayCapacity
            | Metric::PortalConnections
            | Metric::PortalOperations => Type::Gauge,
            Metric::LoadgenLateness
            | Metric::LoadgenService
            | Metric::LoadgenResponse
            | Metric::LoadgenConnect
            | Metric::PortalAnswer => Type::Histogram,
            Metric::LoadgenRequestsPlanned
            | Metric::LoadgenRequestsDropped
            | Metric::LoadgenRequestsStarted
            | Metric::LoadgenRequestsEnded
            | Metric::AgentBoots
            | Metric::AgentCalls
            | Metric::AgentBackoffs
            | Metric::AgentPortalWaits
            | Metric::AgentClockCorrections
            | Metric::AgentResigns
            | Metric::AgentRevocations
            | Metric::AgentEnrollmentsGivenUp
            | Metric::AgentEnrollments
            | Metric::AgentProtocolTooOld
            | Metric::AgentDocuments
            | Metric::AgentOperations
            | Metric::AgentSteps
            | Metric::AgentKeyRotations
            | Metric::AgentEventsUndeliverable
            | Metric::AgentStoreFailures
            | Metric::AgentTaskFailures
            | Metric::PortalRequests
            | Metric::PortalAnswers
            | Metric::PortalSeals
            | Metric::PortalEventsRepeated => Type::Counter,
        }
    }

    /// By what it is told apart.
    pub fn dimensions(self) -> &'static [Dimension] {
        use Dimension::{Endpoint, Handshake, Kind, Outcome, Result, State, Step};
        match self {
            Metric::LoadgenRequestsPlanned
            | Metric::LoadgenRequestsDropped
            | Metric::LoadgenRequestsStarted
            | Metric::PortalRequests
            | Metric::PortalAnswer => &[Endpoint],
            Metric::LoadgenRequestsEnded
            | Metric::LoadgenService
            | Metric::LoadgenResponse
            | Metric::AgentCalls
            | Metric::PortalAnswers => &[Endpoint, Outcome],
            Metric::LoadgenConnect => &[Handshake],
            Metric::LoadgenAgents | Metric::PortalAgents => &[State],
            Metric::AgentDocuments => &[Result],
            Metric::AgentOperations | Metric::PortalOperations => &[Kind, State],
            Metric::AgentSteps => &[Step, State],
            Metric::LoadgenLateness
            | Metric::AgentBoots
            | Metric::AgentBackoffs
            | Metric::AgentPortalWaits
            | Metric::AgentClockCorrections
            | Metric::AgentResigns
            | Metric::AgentRevocations
            | Metric::AgentEnrollmentsGivenUp
            | Metric::AgentEnrollments
            | Metric::AgentProtocolTooOld
            | Metric::AgentKeyRotations
            | Metric::AgentEventsUndeliverable
            | Metric::AgentStoreFailures
            | Metric::AgentTaskFailures
            | Metric::PortalClusters
            | Metric::PortalTokens
            | Metric::PortalReplayMemory
            | Metric::PortalReplayCapacity
            | Metric::PortalConnections
            | Metric::PortalSeals
            | Metric::PortalEventsRepeated => &[],
        }
    }

    /// What it says, in one sentence.
    pub fn help(self) -> &'static str {
        match self {
            Metric::LoadgenRequestsPlanned => "Requests that were due.",
            Metric::LoadgenRequestsDropped => "Requests that were due and never started.",
            Metric::LoadgenRequestsStarted => "Requests that were started.",
            Metric::LoadgenRequestsEnded => "Requests that ended, by how.",
            Metric::LoadgenLateness => "How late the generator started what was due.",
            Metric::LoadgenService => "From the first byte of a request to the end of its answer.",
            Metric::LoadgenResponse => "From when a request was due to the end of its answer.",
            Metric::LoadgenConnect => "Making a connection, names, TCP and TLS together.",
            Metric::LoadgenAgents => "Agents by what they are at the moment.",
            Metric::AgentBoots => "Starts of an agent.",
            Metric::AgentCalls => "Calls to the portal that ended, by how.",
            Metric::AgentBackoffs => "Waits after a failure.",
            Metric::AgentPortalWaits => "Waits that the portal asked for.",
            Metric::AgentClockCorrections => "Corrections of the clock offset.",
            Metric::AgentResigns => "Requests signed once more with the next second.",
            Metric::AgentRevocations => "Times that an agent took itself as revoked.",
            Metric::AgentEnrollmentsGivenUp => "Times that an agent gave up its enrollment.",
            Metric::AgentEnrollments => "Enrollments completed.",
            Metric::AgentProtocolTooOld => "Answers that said that the protocol is too old.",
            Metric::AgentDocuments => "Documents that were dealt with, by the result reported.",
            Metric::AgentOperations => "Operations that ended, by kind and how.",
            Metric::AgentSteps => "Steps of operations that ended, by how.",
            Metric::AgentKeyRotations => "Rotations of the keys completed.",
            Metric::AgentEventsUndeliverable => {
                "Events given up because the portal does not take them."
            }
            Metric::AgentStoreFailures => "Durable records that could not be written.",
            Metric::AgentTaskFailures => "Tasks of the host that failed.",
            Metric::PortalRequests => "Requests that reached the portal.",
            Metric::PortalAnswers => "Answers that the portal gave, by what they said.",
            Metric::PortalAnswer => "From the whole request to the answer.",
            Metric::PortalAgents => "Agents by their state at the portal.",
            Metric::PortalClusters => "Clusters that tokens have named.",
            Metric::PortalTokens => "Tokens that were made and not used yet.",
            Metric::PortalReplayMemory => "Signatures in the replay memory.",
            Metric::PortalReplayCapacity => "Signatures for which the replay memory has room.",
            Metric::PortalConnections => "Agents' connections that are open.",
            Metric::PortalSeals => "Secrets that were sealed.",
            Metric::PortalOperations => "Operations by kind and state.",
            Metric::PortalEventsRepeated => "Events that came again.",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_say_kind_and_unit() {
        let names: BTreeSet<&str> = Metric::ALL.iter().map(|m| m.name()).collect();
        assert_eq!(names.len(), Metric::ALL.len());
        for metric in Metric::ALL {
            let name = metric.name();
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            let (total, seconds) = (name.ends_with("_total"), name.ends_with("_seconds"));
            match metric.kind() {
                Type::Counter => assert!(total, "{name}"),
                Type::Histogram => assert!(seconds, "{name}"),
                Type::Gauge => assert!(!total && !seconds, "{name}"),
            }
            assert!(metric.help().ends_with('.'), "{name}");
        }
    }

    #[test]
    fn no_metric_has_a_dimension_twice() {
        for metric in Metric::ALL {
            let dimensions: BTreeSet<&Dimension> = metric.dimensions().iter().collect();
            assert_eq!(dimensions.len(), metric.dimensions().len(), "{metric}");
        }
    }
}
