//! The run by the second, in bounded memory.
//!
//! One column for each thing counted, one bucket for each second. After 7,200 buckets their width doubles, as often as
//! it takes: a day is told in buckets of 16 s. Every column is a *sum* over its bucket, gauges too (one reading a
//! second, added up), so widening a bucket and adding a shard are the same operation in any order, and both are exact.
//! A gauge's value is that sum over the width.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use protocol::endpoint::Endpoint;

use crate::account::{Account, Line};
use crate::label::{ByLabel, labels};
use crate::latencies::Latencies;
use crate::micros::Micros;
use crate::outcome::Outcome;
use crate::second::Second;

/// How many buckets are kept before their width doubles.
pub const BUCKETS_MAX: usize = 7_200;

labels! {
    /// What the fleet is at a moment: each agent is in exactly one of [`Gauge::STATES`].
    pub enum Gauge as "gauge" {
        /// Not started yet.
        Waiting = "waiting",
        /// Started, not yet enrolled.
        Enrolling = "enrolling",
        /// Enrolled, and its last call succeeded.
        Healthy = "healthy",
        /// As healthy, with its own update under way (UPD-1).
        Updating = "updating",
        /// Waits after a failure.
        BackingOff = "backing_off",
        /// Waits because the portal has said for how long (ANS-7).
        ToldToWait = "told_to_wait",
        /// Revoked or given up: sends nothing.
        Idle = "idle",
        /// Crashed or stopped by the scenario.
        Down = "down",
        /// Agents with an open connection.
        Connected = "connected",
        /// Agents with a request under way.
        InFlight = "in_flight",
        /// Agents with an operation that runs.
        Operating = "operating",
        /// Agents that have applied the newest document.
        Converged = "converged",
        /// Agents that hold an identity.
        Enrolled = "enrolled",
    }
}

/// The run by the second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Seconds that one bucket spans: a power of two.
    width_seconds: Width,
    /// Buckets begun.
    len: usize,
    /// Requests by the second in which they were due.
    planned: ByLabel<Endpoint, Column>,
    /// Requests by the second in which they were started.
    started: ByLabel<Endpoint, Column>,
    /// Requests by the second in which they ended, and how. Empty in files of versions that did not keep it.
    #[serde(default)]
    ended: ByLabel<Endpoint, ByLabel<Outcome, Column>>,
    /// Readings of each gauge, one a second, added up over the bucket and over the shards.
    gauges: ByLabel<Gauge, Column>,
    /// What calls took, by the second. Empty in files of versions that did not keep it.
    #[serde(default)]
    latencies: Latencies,
}

/// One column. Buckets behind its end are zero.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct Column(Vec<u64>);

/// The width of a bucket in seconds, kept a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub(crate) struct Width(u64);

impl Series {
    /// An empty one, in buckets of one second.
    pub fn new() -> Self {
        Series {
            width_seconds: Width::default(),
            len: 0,
            planned: ByLabel::default(),
            started: ByLabel::default(),
            ended: ByLabel::default(),
            gauges: ByLabel::default(),
            latencies: Latencies::default(),
        }
    }

    /// Counts a request as due at `at`.
    pub fn planned(&mut self, endpoint: Endpoint, at: Micros) {
        let bucket = self.bucket(at);
        self.planned[endpoint].add_at(bucket, 1);
    }

    /// Adds what was counted of a second.
    pub(crate) fn add_second(&mut self, second: &Second) {
        if second.account.is_empty() {
            return;
        }
        let bucket = self.bucket(second.from());
        for (endpoint, line) in second.account.lines() {
            self.planned[endpoint].add_at(bucket, line.planned);
            self.started[endpoint].add_at(bucket, line.started);
            for (outcome, count) in line.ended.counted() {
                self.ended[endpoint][outcome].add_at(bucket, count);
            }
        }
        self.latencies.add_second(second);
    }

    /// Takes this second's reading of a gauge. One reading a second and shard: two would count as twice as many.
    pub fn gauge(&mut self, gauge: Gauge, at: Micros, reading: u64) {
        let bucket = self.bucket(at);
        self.gauges[gauge].add_at(bucket, reading);
    }

    /// Adds what the other one counted, exactly. The result is as coarse as the coarser of the two.
    pub fn add(&mut self, other: &Series) {
        let mut other = other.clone();
        while self.width_seconds < other.width_seconds {
            self.widen();
        }
        while other.width_seconds < self.width_seconds {
            other.widen();
        }
        self.len = self.len.max(other.len);
        let theirs: Vec<&Column> = other.columns().collect();
        for (mine, theirs) in self.columns_mut().zip(theirs) {
            mine.add(theirs);
        }
        self.latencies.add(&other.latencies);
    }

    /// How many seconds one bucket spans.
    pub fn width_seconds(&self) -> u64 {
        self.width_seconds.0
    }

    /// How many buckets have begun.
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many buckets are kept: none behind those that have begun, unless a file says otherwise.
    pub(crate) fn kept(&self) -> usize {
        let columns = self.columns().map(|column| column.0.len());
        columns.max().unwrap_or(0)
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The moment at which a bucket begins.
    pub fn begins(&self, bucket: usize) -> Micros {
        Micros::from_seconds((bucket as u64).saturating_mul(self.width_seconds.0))
    }

    /// Requests that were due in a bucket.
    pub fn planned_in(&self, bucket: usize, endpoint: Endpoint) -> u64 {
        self.planned[endpoint].at(bucket)
    }

    /// Requests that were started in a bucket.
    pub fn started_in(&self, bucket: usize, endpoint: Endpoint) -> u64 {
        self.started[endpoint].at(bucket)
    }

    /// Requests that ended so in a bucket.
    pub fn ended_in(&self, bucket: usize, endpoint: Endpoint, outcome: Outcome) -> u64 {
        self.ended[endpoint][outcome].at(bucket)
    }

    /// What happened to requests in a bucket, but for those that were dropped: when that was is not kept.
    pub fn account_in(&self, bucket: usize) -> Account {
        let line = |endpoint: Endpoint| Line {
            planned: self.planned_in(bucket, endpoint),
            started: self.started_in(bucket, endpoint),
            dropped: 0,
            ended: self.ended[endpoint]
                .iter()
                .map(|(outcome, column)| (outcome, column.at(bucket)))
                .collect(),
        };
        Endpoint::ALL
            .iter()
            .map(|endpoint| (*endpoint, line(*endpoint)))
            .collect()
    }

    /// Whether it is known when requests ended: whatever was started has ended at the latest with the run.
    pub fn knows_ends(&self) -> bool {
        let is_used = |column: &Column| !column.0.is_empty();
        let mut ended = self.ended.values().flat_map(ByLabel::values);
        ended.any(is_used) || !self.started.values().any(is_used)
    }

    /// What calls took.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// A gauge over a bucket: the mean of its readings, all shards together.
    pub fn gauge_in(&self, bucket: usize, gauge: Gauge) -> f64 {
        self.gauges[gauge].at(bucket) as f64 / self.width_seconds.0 as f64
    }

    /// Requests of all endpoints that were started in a bucket.
    pub fn all_started_in(&self, bucket: usize) -> u64 {
        self.started.values().map(|column| column.at(bucket)).sum()
    }

    /// The bucket of a moment, made to exist.
    fn bucket(&mut self, at: Micros) -> usize {
        loop {
            let bucket = self.width_seconds.bucket_of(at);
            if bucket < BUCKETS_MAX {
                self.len = self.len.max(bucket + 1);
                return bucket;
            }
            self.widen();
        }
    }

    fn widen(&mut self) {
        self.width_seconds.double();
        self.len = self.len.div_ceil(2);
        self.columns_mut().for_each(Column::halve);
    }

    fn columns(&self) -> impl Iterator<Item = &Column> {
        let ended = self.ended.values().flat_map(ByLabel::values);
        self.planned
            .values()
            .chain(self.started.values())
            .chain(ended)
            .chain(self.gauges.values())
    }

    fn columns_mut(&mut self) -> impl Iterator<Item = &mut Column> {
        let ended = self
            .ended
            .iter_mut()
            .flat_map(|(_, outcomes)| outcomes.iter_mut().map(|(_, column)| column));
        let planned = self.planned.iter_mut().map(|(_, column)| column);
        let started = self.started.iter_mut().map(|(_, column)| column);
        let gauges = self.gauges.iter_mut().map(|(_, column)| column);
        planned.chain(started).chain(ended).chain(gauges)
    }
}

impl Gauge {
    /// Where an agent can be: in exactly one of these.
    pub const STATES: [Gauge; 8] = [
        Gauge::Waiting,
        Gauge::Enrolling,
        Gauge::Healthy,
        Gauge::Updating,
        Gauge::BackingOff,
        Gauge::ToldToWait,
        Gauge::Idle,
        Gauge::Down,
    ];
}

impl Default for Series {
    fn default() -> Self {
        Series::new()
    }
}

impl Column {
    fn at(&self, bucket: usize) -> u64 {
        self.0.get(bucket).copied().unwrap_or(0)
    }

    fn add_at(&mut self, bucket: usize, count: u64) {
        if count == 0 {
            return;
        }
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] = self.0[bucket].saturating_add(count);
    }

    fn add(&mut self, other: &Column) {
        for (bucket, count) in other.0.iter().enumerate() {
            self.add_at(bucket, *count);
        }
    }

    /// Each bucket becomes the sum of two.
    fn halve(&mut self) {
        self.0 = self
            .0
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)))
            .collect();
    }
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Width {
    /// In seconds.
    pub(crate) const fn seconds(self) -> u64 {
        self.0
    }

    /// The bucket that a moment falls into.
    pub(crate) const fn bucket_of(self, at: Micros) -> usize {
        ((at.0 / 1_000_000) >> self.0.trailing_zeros()) as usize
    }

    pub(crate) const fn double(&mut self) {
        self.0 *= 2;
    }
}

impl Default for Width {
    fn default() -> Self {
        Width(1)
    }
}

impl TryFrom<u64> for Width {
    type Error = String;

    fn try_from(seconds: u64) -> Result<Self, Self::Error> {
        match seconds.is_power_of_two() {
            true => Ok(Width(seconds)),
            false => Err(format!(
                "a bucket of {seconds} s: its width is a power of two"
            )),
        }
    }
}

impl From<Width> for u64 {
    fn from(width: Width) -> u64 {
        width.0
    }
}

impl JsonSchema for Width {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Width".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "description": "a power of two" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::Sample;

    impl Series {
        fn started(&mut self, endpoint: Endpoint, at: Micros) {
            let mut second = Second::default();
            second.become_that_of(at);
            second.account.started(endpoint);
            self.add_second(&second);
        }

        fn ended(&mut self, sample: &Sample) {
            self.add_second(&Second::of(sample));
        }
    }

    fn seconds(s: u64) -> Micros {
        Micros::from_seconds(s)
    }

    fn ended(endpoint: Endpoint, outcome: Outcome, at: Micros) -> Sample {
        Sample {
            endpoint,
            outcome,
            intended: at,
            started: at,
            first_byte_out: None,
            ended: at,
            connect: None,
        }
    }

    #[test]
    fn a_file_that_does_not_say_when_requests_ended_is_known_for_it() {
        let mut series = Series::new();
        assert!(series.knows_ends());
        series.started(Endpoint::Sync, seconds(1));
        assert!(!series.knows_ends());
        let mut file = serde_json::to_value(&series).unwrap();
        file.as_object_mut().unwrap().remove("latencies");
        file.as_object_mut().unwrap().remove("ended");
        // What versions before this one wrote in its place.
        file["done"] = serde_json::json!({ "sync": { "refused": [0, 1] } });
        let old: Series = serde_json::from_value(file).unwrap();
        assert_eq!(old, series);
        series.ended(&ended(Endpoint::Sync, Outcome::Aborted, seconds(2)));
        assert!(series.knows_ends());
    }

    #[test]
    fn a_second_is_told_by_what_fell_into_it() {
        let mut series = Series::new();
        series.planned(Endpoint::Sync, Micros(999_999));
        series.started(Endpoint::Sync, seconds(1));
        series.ended(&ended(Endpoint::Sync, Outcome::Ok, seconds(1)));
        series.ended(&ended(Endpoint::Sync, Outcome::BrokenAnswer, seconds(2)));
        series.gauge(Gauge::Connected, seconds(2), 7);
        assert_eq!(series.len(), 3);
        assert_eq!(series.planned_in(0, Endpoint::Sync), 1);
        assert_eq!(series.started_in(1, Endpoint::Sync), 1);
        assert_eq!(series.all_started_in(1), 1);
        assert_eq!(series.ended_in(1, Endpoint::Sync, Outcome::Ok), 1);
        assert_eq!(series.ended_in(2, Endpoint::Sync, Outcome::BrokenAnswer), 1);
        assert_eq!(series.gauge_in(2, Gauge::Connected), 7.0);
        assert_eq!(series.gauge_in(9, Gauge::Connected), 0.0);
    }

    #[test]
    fn a_day_fits_in_wider_buckets_and_loses_nothing() {
        let mut series = Series::new();
        for second in 0..86_400 {
            series.started(Endpoint::Sync, seconds(second));
            series.gauge(Gauge::Healthy, seconds(second), 1_000);
        }
        assert_eq!(series.width_seconds(), 16);
        assert_eq!(series.len(), 5_400);
        let started: u64 = (0..series.len()).map(|b| series.all_started_in(b)).sum();
        assert_eq!(started, 86_400);
        assert!((0..series.len()).all(|b| series.gauge_in(b, Gauge::Healthy) == 1_000.0));
        assert_eq!(series.begins(5_399), seconds(86_384));
    }

    #[test]
    fn a_moment_at_the_end_of_time_is_a_bucket_too() {
        let mut series = Series::new();
        series.started(Endpoint::Sync, Micros(u64::MAX));
        assert!(series.len() <= BUCKETS_MAX);
    }

    #[test]
    fn a_width_that_is_no_power_of_two_is_refused() {
        let text = serde_json::to_string(&Series::new())
            .unwrap()
            .replace("\"width_seconds\":1", "\"width_seconds\":3");
        let error = serde_json::from_str::<Series>(&text).unwrap_err();
        assert!(error.to_string().contains("power of two"), "{error}");
    }

    /// One event: which column, when (up to four widths beyond the first), and which shard saw it.
    type Event = (usize, u64, usize);

    fn see(series: &mut Series, (kind, second, _): &Event) {
        let at = seconds(*second);
        match kind {
            0 => series.planned(Endpoint::Sync, at),
            1 => series.started(Endpoint::Enroll, at),
            2 => series.ended(&ended(Endpoint::Sync, Outcome::Ok, at)),
            3 => series.ended(&ended(Endpoint::Events, Outcome::TimedOutAnswer, at)),
            _ => series.gauge(Gauge::BackingOff, at, 3),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn shards_of_any_width_add_up_to_the_whole(
            events in prop::collection::vec((0..5_usize, 0..40_000_u64, 0..3_usize), 0..60),
        ) {
            let mut whole = Series::new();
            let mut shards = vec![Series::new(); 3];
            for event in &events {
                see(&mut whole, event);
                see(&mut shards[event.2], event);
            }
            let mut forwards = Series::new();
            shards.iter().for_each(|shard| forwards.add(shard));
            let mut backwards = Series::new();
            shards.iter().rev().for_each(|shard| backwards.add(shard));
            prop_assert_eq!(&forwards, &whole);
            prop_assert_eq!(&backwards, &whole);

            let text = serde_json::to_string(&whole).unwrap();
            let read: Series = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read, whole);
        }
    }
}
