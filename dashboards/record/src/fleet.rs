//! What the fleet as a whole went through, as sums that add up exactly over shards.
//!
//! A world fills it in while it watches its agents; [`figures`](crate::figures) says what it comes to. A request's
//! durations are not here: those are [`samples`](crate::samples).

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use protocol::pbx::operation::OperationKind;
use protocol::pbx::sync::OperationState;

use crate::histogram::Histogram;
use crate::label::{ByLabel, Label, as_name, labels};
use crate::micros::Micros;

/// What the fleet went through.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Fleet {
    /// Agents that the scenario has.
    pub agents: u64,
    /// Agents that hold an identity at the end.
    pub enrolled: u64,
    /// Agents that sent nothing any more at the end: revoked, or given up.
    pub idle: u64,
    /// Agents that crashed and booted again.
    pub crashes: u64,
    /// How old the fleet's knowledge got.
    pub staleness: Staleness,
    /// How the fleet followed the documents that were set.
    pub convergence: Convergence,
    /// Syncs that healthy agents would have made inside the window, in millionths of a sync: each agent's time of being
    /// enrolled, up and neither idle nor told to wait, over its mean interval.
    pub syncs_expected_millionths: u64,
    /// Calls made before the wait that their agent owed was over.
    pub early_retries: u64,
    /// Requests that the portal had seen before (400 `replayed`).
    pub replays: u64,
    /// Updates of the program that an agent began.
    pub update_attempts: u64,
    /// Identities beyond one an agent, and agents beyond one an identity.
    pub duplicate_identities: u64,
    /// Operations handed out, by kind and by how they stand at the end.
    pub operations: ByLabel<Kind, ByLabel<OperationEnd, u64>>,
    /// Results of finished operations, by how often the portal has them.
    pub results: Results,
}

/// How old the fleet's knowledge got.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Staleness {
    /// Spans between two successful syncs of an agent, and from its last one to the end.
    gaps: Histogram,
    /// The longest of them, to the microsecond and beyond an hour.
    longest: Micros,
}

/// How the fleet followed the documents that were set: each document is owed by each agent of its cluster once.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Convergence {
    /// Agents, once for each document that was set for them.
    pub owed: u64,
    /// From the document's being set to an agent's report that it (or a later one) is applied.
    pub reached: Histogram,
}

/// Results of finished operations, by how often the portal has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// Exactly once, as it should be.
    pub once: u64,
    /// Finished at the agent, unknown at the portal.
    pub missing: u64,
    /// More than once, or with another content.
    pub repeated: u64,
}

labels! {
    /// How an operation stands at the end of a run.
    pub enum OperationEnd as "operation state" {
        /// Done.
        Succeeded = "succeeded",
        /// A step failed.
        Failed = "failed",
        /// The agent refused it.
        Refused = "refused",
        /// The agent does not know its kind.
        Unsupported = "unsupported",
        /// No final event is at the portal.
        Unfinished = "unfinished",
    }
}

impl From<OperationState> for OperationEnd {
    fn from(state: OperationState) -> Self {
        match state {
            OperationState::Running => OperationEnd::Unfinished,
            OperationState::Succeeded => OperationEnd::Succeeded,
            OperationState::Failed => OperationEnd::Failed,
            OperationState::Unsupported => OperationEnd::Unsupported,
            OperationState::Refused => OperationEnd::Refused,
        }
    }
}

/// A kind of operation as a label: the protocol's kinds, and one for all that it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(u8);

impl Kind {
    const COUNT: usize = OperationKind::KNOWN.len() + 1;

    const ALL: [Kind; Self::COUNT] = {
        let mut all = [Kind(0); Self::COUNT];
        let mut at = 0;
        while at < Self::COUNT {
            all[at] = Kind(at as u8);
            at += 1;
        }
        all
    };
}

impl From<&OperationKind> for Kind {
    fn from(kind: &OperationKind) -> Self {
        let known = OperationKind::KNOWN.iter().position(|k| k == kind);
        Self::ALL[known.unwrap_or(OperationKind::KNOWN.len())]
    }
}

impl Label for Kind {
    const WHAT: &'static str = "operation kind";

    fn all() -> &'static [Self] {
        &Self::ALL
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }

    fn label(self) -> &'static str {
        OperationKind::KNOWN
            .get(self.index())
            .map_or("unknown", OperationKind::as_str)
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_name::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_name::deserialize(deserializer)
    }
}

impl JsonSchema for Kind {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Kind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let labels: Vec<&str> = Self::ALL.iter().map(|kind| kind.label()).collect();
        json_schema!({ "enum": labels })
    }
}

impl Fleet {
    /// Counts an operation that was handed out, by how it stands at the end.
    pub fn operation(&mut self, kind: &OperationKind, end: OperationEnd) {
        self.operations[Kind::from(kind)][end] += 1;
    }

    /// Adds what another shard went through, exactly.
    pub fn add(&mut self, other: &Fleet) {
        let Fleet {
            agents,
            enrolled,
            idle,
            crashes,
            staleness,
            convergence,
            syncs_expected_millionths,
            early_retries,
            replays,
            update_attempts,
            duplicate_identities,
            operations,
            results,
        } = other;
        self.agents += agents;
        self.enrolled += enrolled;
        self.idle += idle;
        self.crashes += crashes;
        self.staleness.add(staleness);
        self.convergence.add(convergence);
        self.syncs_expected_millionths += syncs_expected_millionths;
        self.early_retries += early_retries;
        self.replays += replays;
        self.update_attempts += update_attempts;
        self.duplicate_identities += duplicate_identities;
        for (kind, theirs) in operations.iter() {
            self.operations[kind].add(theirs);
        }
        self.results.add(results);
    }
}

impl Staleness {
    /// Counts the span between two successful syncs of an agent, or from the last one to the end.
    pub fn gap(&mut self, span: Micros) {
        self.gaps.record(span);
        self.longest = self.longest.max(span);
    }

    /// The span that the share `quantile` (0 to 1) of all did not exceed; none without any.
    pub fn quantile(&self, quantile: f64) -> Option<Micros> {
        // The histogram cannot tell durations beyond an hour apart, and rounds up; the longest is known exactly.
        match self.gaps.quantile(quantile) {
            Some(span) if quantile < 1.0 => Some(span.min(self.longest)),
            Some(_) => Some(self.longest),
            None => None,
        }
    }

    /// How many spans there are.
    pub fn count(&self) -> u64 {
        self.gaps.count()
    }

    fn add(&mut self, other: &Staleness) {
        self.gaps.add(&other.gaps);
        self.longest = self.longest.max(other.longest);
    }
}

impl Convergence {
    /// The share of what is owed that was reached within `limit`; none if nothing was owed.
    pub fn share_within(&self, limit: Micros) -> Option<f64> {
        (self.owed > 0).then(|| self.reached.count_within(limit) as f64 / self.owed as f64)
    }

    /// How long it took until the share `quantile` (0 to 1) of all that is owed was reached; none if it never was.
    pub fn time_to(&self, quantile: f64) -> Option<Micros> {
        let rank = (quantile.clamp(0.0, 1.0) * self.owed as f64).ceil() as u64;
        self.reached.at_rank(rank.max(1))
    }

    fn add(&mut self, other: &Convergence) {
        self.owed += other.owed;
        self.reached.add(&other.reached);
    }
}

impl Results {
    fn add(&mut self, other: &Results) {
        self.once += other.once;
        self.missing += other.missing;
        self.repeated += other.repeated;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn seconds(s: u64) -> Micros {
        Micros::from_seconds(s)
    }

    /// A fleet in which every member is a different number, made from `seed`.
    pub(crate) fn some_fleet(seed: u64) -> Fleet {
        let mut fleet = Fleet {
            agents: seed + 1,
            enrolled: seed,
            idle: seed + 2,
            crashes: seed + 3,
            syncs_expected_millionths: seed * 1_000,
            early_retries: seed + 4,
            replays: seed + 5,
            update_attempts: seed + 6,
            duplicate_identities: seed + 7,
            results: Results {
                once: seed,
                missing: seed + 8,
                repeated: seed + 9,
            },
            ..Fleet::default()
        };
        for span in 0..seed {
            fleet.staleness.gap(seconds(span));
            fleet.convergence.reached.record(seconds(span));
        }
        fleet.convergence.owed = seed;
        fleet.operation(&OperationKind::SnapshotSave, OperationEnd::Succeeded);
        fleet
    }

    #[test]
    fn every_member_adds_up() {
        let mut sum = some_fleet(10);
        sum.add(&some_fleet(20));
        let mut reversed = some_fleet(20);
        reversed.add(&some_fleet(10));
        assert_eq!(sum, reversed);
        assert_eq!(
            (sum.agents, sum.enrolled, sum.idle, sum.crashes),
            (32, 30, 34, 36)
        );
        assert_eq!(
            (sum.early_retries, sum.replays, sum.update_attempts),
            (38, 40, 42)
        );
        assert_eq!(sum.duplicate_identities, 44);
        assert_eq!(sum.syncs_expected_millionths, 30_000);
        assert_eq!(
            (sum.results.once, sum.results.missing, sum.results.repeated),
            (30, 46, 48)
        );
        assert_eq!(
            (sum.convergence.owed, sum.convergence.reached.count()),
            (30, 30)
        );
        assert_eq!(sum.staleness.count(), 30);
        let kind = Kind::from(&OperationKind::SnapshotSave);
        assert_eq!(sum.operations[kind][OperationEnd::Succeeded], 2);
    }

    #[test]
    fn staleness_beyond_an_hour_is_known_exactly() {
        let mut staleness = Staleness::default();
        assert_eq!(staleness.quantile(1.0), None);
        staleness.gap(seconds(30));
        staleness.gap(seconds(86_399));
        assert_eq!(staleness.quantile(1.0), Some(seconds(86_399)));
        let half = staleness.quantile(0.5).unwrap().as_seconds();
        assert!((half - 30.0).abs() < 0.1, "{half}");
    }

    #[test]
    fn convergence_counts_those_that_never_got_there() {
        let mut convergence = Convergence {
            owed: 4,
            ..Convergence::default()
        };
        assert_eq!(Convergence::default().share_within(seconds(1)), None);
        for s in [1, 2, 30] {
            convergence.reached.record(seconds(s));
        }
        assert_eq!(convergence.share_within(seconds(10)), Some(0.5));
        assert_eq!(convergence.share_within(seconds(60)), Some(0.75));
        let half = convergence.time_to(0.5).unwrap().as_seconds();
        assert!((half - 2.0).abs() < 0.01, "{half}");
        assert_eq!(convergence.time_to(1.0), None);
    }

    #[test]
    fn a_kind_that_the_protocol_does_not_know_has_one_label() {
        let unknown = Kind::from(&OperationKind::Unknown("disk.wipe".to_owned()));
        assert_eq!(unknown.label(), "unknown");
        for kind in Kind::ALL {
            assert_eq!(Kind::from_label(kind.label()), Some(kind));
            assert_eq!(Kind::ALL[kind.index()], kind);
        }
    }
}
