//! A scenario as it is written: the form of the file, key by key.
//!
//! The comments here are what the JSON Schema says to an editor. What the values mean for a run, the modules of the valid
//! types say.

use protocol::endpoint::Endpoint;
use protocol::id::{AddonName, AgentVersion, ReleaseVersion};
use protocol::pbx::operation::{OperationKind, Step};
use protocol::pbx::sync::{IngressMode, TimeOfDay, Weekday};
use record::fleet::OperationEnd;
use record::outcome::Outcome;
use record::result::Protocol;

use crate::expect::{Headcount, Time};
use crate::form::leaf::{
    ByName, ByWord, Count, JsonTable, Name, Percentile, Positive, Rate, Ratio, Span,
};
use crate::form::{At, choice, form};
use crate::node::{Cost, Spread};
use crate::portal::{ClearText, Profile};
use crate::share::Share;
use crate::timeline::ServerOf;

/// How many there may be of something that a run counts.
pub(crate) type Number = Count<0, { i64::MAX }>;

form! {
    /// A scenario: what a run does, and what is expected of it.
    pub(crate) struct Scenario {
        /// Its name.
        name: Name, required;
        /// What it shows, in a sentence.
        about: String, optional;
        /// Where all chance comes from. Default 1.
        seed: Number, optional;
        /// How long it runs.
        duration: Positive, required;
        /// How long from the start nothing is judged, but for counts and the fleet's figures. Default 0s.
        warm_up: Span, optional;
        /// The referees that it owes: one that judges nothing leaves the run without data. Default: of 6, 9 and 12 those that
        /// the scenario gives something to judge (`loadgen explain` tells which).
        referees: Vec<At<Count<1, 13>>>, optional;
        /// Who the agents are.
        population: Vec<At<Population>>, required;
        /// The portal that the run starts itself.
        portal: Portal, optional;
        /// What happens when.
        timeline: Vec<At<Entry>>, optional;
        /// What is expected. Without it there would be nothing to judge.
        expect: Vec<At<Expect>>, required;
        /// What the generator itself must keep, or the run is overloaded and nothing is judged.
        generator: Generator, optional;
    }
}

form! {
    /// Agents of one kind.
    pub(crate) struct Population {
        /// Its name, unique in the scenario.
        name: Name, required;
        /// What its agents speak. Default pbx.
        protocol: Protocol, optional;
        /// How many agents it has.
        count: Count<1, 1_000_000>, required;
        /// Servers that share one cluster. Default 1.
        servers_per_cluster: Count<1, 100>, optional;
        /// Words by which it can be picked.
        labels: ByName<String>, optional;
        /// When its agents begin. Default all at once.
        arrival: Arrival, optional;
        /// Scales every agent-side duration, never the wire's limits: 0.2 is five times the real pace. Default 1.
        tempo: Ratio, optional;
        /// The simulated nodes under its agents.
        node: NodeModel, optional;
    }
}

choice! {
    /// When agents begin.
    pub(crate) enum Arrival {
        words {
            /// All at the start.
            AllAtOnce = "all_at_once";
        }
        tables {
            /// One after the other, evenly.
            Ramp(Ramp) = "ramp";
            /// Stage after stage; the counts add up to the population's, or the shares to 1.
            Stages(Vec<At<Stage>>) = "stages";
        }
    }
}

form! {
    /// One after the other, evenly.
    pub(crate) struct Ramp {
        /// How long until all have begun.
        over: Positive, required;
    }
}

form! {
    /// A stage of an arrival.
    pub(crate) struct Stage {
        /// How many agents begin in it.
        count: Count<1, 1_000_000>, optional;
        /// Which share of the population's agents begins in it.
        share: Share, optional;
        /// How long it takes; 0s for all at once.
        over: Span, required;
    }
}

form! {
    /// The simulated nodes of a population. A cost is a duration, or {uniform = ["1s", "3s"]}.
    pub(crate) struct NodeModel {
        /// From power on, or from a crash, to the agent's start.
        boot_time: Cost, optional;
        /// A task of the host that is no step of an operation.
        task_cost: Cost, optional;
        /// Steps of operations, by name.
        step_cost: ByWord<Step, Cost>, optional;
        /// The part of a step's runs, in all operations together, that fail; by the step's name.
        failure_share: ByWord<Step, Share>, optional;
        /// How far the clock is off, in milliseconds, or {uniform = [-500, 500]}.
        clock_offset_ms: Spread, optional;
        /// How fast the clock drifts, in microseconds a second.
        clock_drift_ppm: Spread, optional;
        /// The part of the agents that crash once during the run.
        crash_share: Share, optional;
    }
}

form! {
    /// The portal that the run starts itself.
    pub(crate) struct Portal {
        /// How it treats what a real portal may refuse. Default strict.
        profile: Profile, optional;
        /// The document that every cluster has from the start.
        document: Document, optional;
    }
}

form! {
    /// A document: the state that nodes should have. Secrets in clear; the portal seals them.
    pub(crate) struct Document {
        /// The release that the nodes are to run.
        release: ReleaseVersion, required;
        /// The agent's version in that release.
        agent_version: AgentVersion, required;
        /// Settings of the host.
        host: Host, required;
        /// When k3s may be restarted.
        maintenance_window: MaintenanceWindow, required;
        /// Secrets of the cluster.
        secrets: Secrets, required;
        /// Add-ons. Default none.
        addons: Vec<At<Addon>>, optional;
    }
}

form! {
    /// Settings of the host.
    pub(crate) struct Host {
        /// When snapshots are taken, as cron says it.
        snapshot_schedule: String, required;
        /// How many snapshots are kept.
        snapshot_retention: Count<1, 1_000>, required;
        /// Who answers the cluster's ingress.
        ingress_mode: IngressMode, required;
    }
}

form! {
    /// When k3s may be restarted.
    pub(crate) struct MaintenanceWindow {
        /// The days on which it begins.
        days: Vec<At<Weekday>>, required;
        /// When it begins, as HH:MM.
        start: TimeOfDay, required;
        /// How long it is, in minutes.
        duration_minutes: Count<1, 1_440>, required;
        /// The IANA time zone of its start.
        time_zone: String, required;
    }
}

form! {
    /// Secrets of the cluster.
    pub(crate) struct Secrets {
        /// The Hetzner token.
        hcloud_token: ClearText, required;
        /// The bucket for snapshots.
        s3: S3, required;
    }
}

form! {
    /// A bucket and its keys.
    pub(crate) struct S3 {
        /// Its URL.
        endpoint: String, required;
        /// Its region.
        region: String, required;
        /// Its name.
        bucket: String, required;
        /// The folder in it.
        folder: String, required;
        /// The access key.
        access_key: ClearText, required;
        /// The secret key.
        secret_key: ClearText, required;
    }
}

form! {
    /// An add-on.
    pub(crate) struct Addon {
        /// Its name in the release.
        name: AddonName, required;
        /// Whether it is on. Default true.
        enabled: bool, optional;
        /// What its template is rendered with.
        options: JsonTable, optional;
        /// What its chart reads from a Secret.
        secret_options: ByName<ClearText>, optional;
    }
}

/// A moment and what happens then. Not a [`form!`]: its key `do` is a word of Rust.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) at: crate::form::Slot<Span>,
    pub(crate) action: crate::form::Slot<Action>,
}

choice! {
    /// What happens.
    pub(crate) enum Action {
        words {
            /// The portal forgets everything but its addresses and keys.
            ResetPortal = "reset_portal";
        }
        tables {
            /// Every cluster gets this document.
            SetDocument(Box<Document>) = "set_document";
            /// A share of the clusters gets an operation.
            Operation(Box<Operation>) = "operation";
            /// A share of the agents is revoked.
            Revoke(Revoke) = "revoke";
            /// The portal ends and starts again.
            RestartPortal(Restart) = "restart_portal";
            /// A release is published.
            Release(Release) = "release";
        }
    }
}

form! {
    /// An operation for a share of the clusters.
    pub(crate) struct Operation {
        /// What is to be done.
        kind: OperationKind, required;
        /// Its parameters, secrets in clear. Default none.
        params: JsonTable, optional;
        /// Which share of the clusters. Default 1.
        share: Share, optional;
        /// The clusters of this population. Default all.
        population: Name, optional;
        /// The server of each cluster that is to run it: first or last. Default the portal's choice.
        target: ServerOf, optional;
        /// The server of each cluster that it is about, for a kind with a parameter `node`: first or last.
        node: ServerOf, optional;
        /// Who agreed to it.
        consent: Consent, optional;
    }
}

form! {
    /// Who agreed to an operation.
    pub(crate) struct Consent {
        /// The person.
        by: String, required;
        /// What the person agreed to.
        text: String, required;
    }
}

form! {
    /// A share of the agents is revoked.
    pub(crate) struct Revoke {
        /// Which share of all agents.
        share: Share, required;
    }
}

form! {
    /// The portal ends and starts again.
    pub(crate) struct Restart {
        /// Whether it still knows what it knew.
        with_data: bool, required;
    }
}

form! {
    /// A release to publish.
    pub(crate) struct Release {
        /// Its version.
        version: ReleaseVersion, required;
        /// The agent's version in it.
        agent_version: AgentVersion, required;
        /// Its floor. Default 0.
        floor: Number, optional;
        /// The add-ons that it has. Default none.
        addons: Vec<At<AddonName>>, optional;
    }
}

form! {
    /// What the generator itself must keep, or the run is overloaded and nothing is judged.
    pub(crate) struct Generator {
        /// How late 99 % of the requests may be started. Default 100ms.
        lateness_p99_at_most: Positive, optional;
        /// Which share of all requests that are due may be left undone. Default 0.001.
        dropped_share_at_most: Share, optional;
    }
}

choice! {
    /// Something that is expected.
    pub(crate) enum Expect {
        words {}
        tables {
            /// A percentile of a duration.
            Latency(Box<Latency>) = "latency";
            /// How many requests ended in some way, over the whole run.
            Count(CountOf) = "count";
            /// Which share of an endpoint's requests ended in some way.
            Share(ShareOf) = "share";
            /// Successes per second.
            Throughput(Throughput) = "throughput";
            /// How many agents are enrolled at the end.
            Enrolled(Enrolled) = "enrolled";
            /// How fast documents reach the fleet.
            Convergence(Convergence) = "convergence";
            /// How long agents are without a successful sync.
            Staleness(Staleness) = "staleness";
            /// Which part of the expected syncs is missing.
            SyncDeficit(SyncDeficit) = "sync_deficit";
            /// How operations of a kind stand at the end.
            Operations(Box<Operations>) = "operations";
            /// The busiest second against the mean one.
            Peak(Peak) = "peak";
            /// Identities beyond one an agent.
            DuplicateIdentities(DuplicateIdentities) = "duplicate_identities";
        }
    }
}

form! {
    /// A percentile of a duration.
    pub(crate) struct Latency {
        /// Which of the four times: lateness, connect, service, response.
        of: Time, required;
        /// Of service and response: whose. Default all.
        endpoint: Endpoint, optional;
        /// Of service and response: of requests that ended so. Default ok.
        outcome: Outcome, optional;
        /// The percentile, as 99 or 99.9.
        quantile: Percentile, required;
        /// The longest it may be.
        at_most: Positive, required;
        /// Whether it holds when there is nothing to judge. Default false.
        allow_empty: bool, optional;
    }
}

form! {
    /// How many requests ended in some way, over the whole run.
    pub(crate) struct CountOf {
        /// Whose. Default all.
        endpoint: Endpoint, optional;
        /// How they ended.
        outcome: Outcome, required;
        /// No fewer requests, of all agents together.
        at_least: Number, optional;
        /// No more requests, of all agents together.
        at_most: Number, optional;
        /// So many requests, of all agents together.
        exactly: Number, optional;
        /// Whether it holds when there is nothing to judge. Default false.
        allow_empty: bool, optional;
    }
}

form! {
    /// Which share of an endpoint's requests ended in some way.
    pub(crate) struct ShareOf {
        /// Whose.
        endpoint: Endpoint, required;
        /// How they ended.
        outcome: Outcome, required;
        /// No less of all agents' requests.
        at_least: Share, optional;
        /// No more of all agents' requests.
        at_most: Share, optional;
        /// Whether it holds when there is nothing to judge. Default false.
        allow_empty: bool, optional;
    }
}

form! {
    /// Successes per second.
    pub(crate) struct Throughput {
        /// Whose.
        endpoint: Endpoint, required;
        /// No fewer a second, of all agents together.
        at_least: Rate, optional;
        /// No more a second, of all agents together.
        at_most: Rate, optional;
        /// Whether it holds when there is nothing to judge. Default false.
        allow_empty: bool, optional;
    }
}

form! {
    /// How many agents are enrolled at the end.
    pub(crate) struct Enrolled {
        /// No fewer agents: a number, or "all".
        at_least: Headcount, optional;
        /// So many agents: a number, or "all".
        exactly: Headcount, optional;
        /// Whether it holds when there is nothing to judge. Default false.
        allow_empty: bool, optional;
    }
}

form! {
    /// How fast documents reach the fleet.
    pub(crate) struct Convergence {
        /// Which share of the agents.
        share: Share, required;
        /// Within which time of the document's being set.
        within: Positive, required;
        /// Whether it holds when there is nothing to judge. Default false.
        allow_empty: bool, optional;
    }
}

form! {
    /// How long agents are without a successful sync.
    pub(crate) struct Staleness {
        /// The percentile of the gaps. Default 100: every one of them.
        quantile: Percentile, optional;
        /// The longest it may be.
        at_most: Positive, required;
        /// Whether it holds when there is nothing to judge. Default false.
        allow_empty: bool, optional;
    }
}

form! {
    /// Which part of the expected syncs is missing.
    pub(crate) struct SyncDeficit {
        /// No more of the syncs that all agents together owe.
        at_most: Share, required;
        /// Whether it holds when there is nothing to judge. Default false.
        allow_empty: bool, optional;
    }
}

form! {
    /// How operations of a kind stand at the end.
    pub(crate) struct Operations {
        /// Which kind.
        kind: OperationKind, required;
        /// In which state.
        state: OperationEnd, required;
        /// No fewer operations, of all clusters together: a number, or "all" of that kind.
        at_least: Headcount, optional;
        /// No more operations, of all clusters together.
        at_most: Headcount, optional;
        /// So many operations, of all clusters together: a number, or "all" of that kind.
        exactly: Headcount, optional;
        /// Whether it holds when there is nothing to judge. Default false.
        allow_empty: bool, optional;
    }
}

form! {
    /// The busiest second against the mean one.
    pub(crate) struct Peak {
        /// How many times the mean it may be.
        at_most: Ratio, required;
        /// Whether it holds when there is nothing to judge. Default false.
        allow_empty: bool, optional;
    }
}

form! {
    /// Identities beyond one an agent.
    pub(crate) struct DuplicateIdentities {
        /// No more identities, of all agents together.
        at_most: Number, required;
        /// Whether it holds when there is nothing to judge. Default false.
        allow_empty: bool, optional;
    }
}

impl crate::form::Written for Entry {
    fn read(node: &crate::form::Node<'_>, reader: &mut crate::form::Reader) -> Option<Self> {
        let table = crate::form::Table::open(node, &["at", "do"], reader)?;
        Some(Entry {
            at: table.required("at", reader),
            action: table.required("do", reader),
        })
    }

    fn schema() -> serde_json::Value {
        crate::form::table_schema(
            "A moment and what happens then.",
            vec![
                (
                    "at",
                    Span::schema(),
                    "When, from the start of the run.",
                    true,
                ),
                ("do", Action::schema(), "What happens.", true),
            ],
        )
    }
}
