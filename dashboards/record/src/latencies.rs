//! What calls took by the second, in bounded memory: what the curves of a finished run are drawn from.
//!
//! For each bucket of time and each kind of duration, counts by size. Sizes are log-linear, eight to an octave, so what is
//! read from them is within 6.25 % of what was measured; what a screen shows of a second is read from the same. After 512 buckets of time their width doubles. As everywhere in
//! a series, a bucket is a sum: parts add up exactly, in any order and of any width. What is judged comes from the
//! [`samples`](crate::samples).

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use protocol::endpoint::Endpoint;

use crate::histogram::LONGEST;
use crate::label::{ByLabel, counted};
use crate::micros::Micros;
use crate::second::Second;
use crate::series::Width;
use crate::snapshot::Percentiles;

/// How many buckets of time are kept before their width doubles.
pub const BUCKETS_MAX: usize = 512;

/// What calls took, by the second in which they ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Latencies {
    /// Seconds that one bucket of time spans: a power of two.
    width_seconds: Width,
    /// Intended → started, of all requests.
    lateness: Row,
    /// Intended → last byte in, of requests that got what they asked for.
    response: ByLabel<Endpoint, Row>,
    /// First byte out → last byte in, of the same.
    service: ByLabel<Endpoint, Row>,
}

/// One kind of duration, bucket of time by bucket of time. Buckets behind its end are empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct Row(Vec<Sizes>);

/// How many durations of each size there were: from the shortest to the longest, both of which there were.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub(crate) struct Sizes {
    first: usize,
    counts: Vec<u32>,
}

/// The same with a counter for every size, to count into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counters(Box<[u32; SIZES]>);

impl Latencies {
    /// Adds what the requests took that ended in a second.
    pub(crate) fn add_second(&mut self, second: &Second) {
        let bucket = self.bucket(second.from());
        self.lateness.add_counted(bucket, &second.lateness);
        for endpoint in second.succeeded() {
            self.response[endpoint].add_counted(bucket, &second.response[endpoint]);
            self.service[endpoint].add_counted(bucket, &second.service[endpoint]);
        }
    }

    /// Adds what the other one counted, exactly. The result is as coarse in time as the coarser of the two.
    pub fn add(&mut self, other: &Latencies) {
        let mut other = other.clone();
        while self.width_seconds < other.width_seconds {
            self.widen();
        }
        while other.width_seconds < self.width_seconds {
            other.widen();
        }
        let theirs: Vec<&Row> = other.rows().collect();
        for (mine, theirs) in self.rows_mut().zip(theirs) {
            mine.add(theirs);
        }
    }

    /// How many seconds one bucket of time spans.
    pub fn width_seconds(&self) -> u64 {
        self.width_seconds.seconds()
    }

    /// How late requests were started around a moment; none without any.
    pub fn lateness(&self, at: Micros) -> Option<Percentiles> {
        self.of(&self.lateness, at)
    }

    /// Response around a moment; none without any.
    pub fn response(&self, endpoint: Endpoint, at: Micros) -> Option<Percentiles> {
        self.of(&self.response[endpoint], at)
    }

    /// Service around a moment; none without any.
    pub fn service(&self, endpoint: Endpoint, at: Micros) -> Option<Percentiles> {
        self.of(&self.service[endpoint], at)
    }

    fn of(&self, row: &Row, at: Micros) -> Option<Percentiles> {
        row.0.get(self.width_seconds.bucket_of(at))?.percentiles()
    }

    /// The bucket of a moment, made to fit.
    fn bucket(&mut self, at: Micros) -> usize {
        loop {
            let bucket = self.width_seconds.bucket_of(at);
            if bucket < BUCKETS_MAX {
                return bucket;
            }
            self.widen();
        }
    }

    fn widen(&mut self) {
        self.width_seconds.double();
        self.rows_mut().for_each(Row::halve);
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        let by_endpoint = self.response.values().chain(self.service.values());
        std::iter::once(&self.lateness).chain(by_endpoint)
    }

    fn rows_mut(&mut self) -> impl Iterator<Item = &mut Row> {
        let response = self.response.iter_mut().map(|(_, row)| row);
        let service = self.service.iter_mut().map(|(_, row)| row);
        std::iter::once(&mut self.lateness)
            .chain(response)
            .chain(service)
    }
}

impl Row {
    fn add_counted(&mut self, bucket: usize, counted: &Counters) {
        if counted.counted().next().is_some() {
            self.at_mut(bucket).add_counted(counted);
        }
    }

    fn at_mut(&mut self, bucket: usize) -> &mut Sizes {
        if self.0.len() <= bucket {
            self.0.resize_with(bucket + 1, Sizes::default);
        }
        &mut self.0[bucket]
    }

    fn add(&mut self, other: &Row) {
        for (bucket, theirs) in other.0.iter().enumerate() {
            self.at_mut(bucket).add_all(theirs);
        }
    }

    /// Each bucket becomes the sum of two.
    fn halve(&mut self) {
        let pairs = self.0.chunks_mut(2).map(|pair| match pair {
            [one, other] => {
                one.add_all(other);
                std::mem::take(one)
            }
            rest => rest
                .iter_mut()
                .map(std::mem::take)
                .next()
                .unwrap_or_default(),
        });
        self.0 = pairs.collect();
    }
}

impl Counters {
    /// Counts one duration.
    #[inline]
    pub(crate) fn count(&mut self, duration: Micros) {
        let counter = &mut self.0[size(duration)];
        *counter = counter.saturating_add(1);
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Each size that was counted, and how often, from the shortest.
    fn counted(&self) -> impl DoubleEndedIterator<Item = (usize, u32)> {
        counted(&self.0[..])
    }
}

impl Default for Counters {
    fn default() -> Self {
        Counters(Box::new([0; SIZES]))
    }
}

impl Sizes {
    /// Counts one duration.
    pub(crate) fn count(&mut self, duration: Micros) {
        self.add(size(duration), 1);
    }

    fn add(&mut self, size: usize, count: u32) {
        self.reach(size);
        let counter = &mut self.counts[size - self.first];
        *counter = counter.saturating_add(count);
    }

    /// Makes a counter for a size that there is.
    fn reach(&mut self, size: usize) {
        if self.counts.is_empty() {
            self.first = size;
        }
        if size < self.first {
            let more = self.first - size;
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = size;
        }
        let place = size - self.first;
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
    }

    /// Adds what the other one counted, exactly.
    pub(crate) fn add_all(&mut self, other: &Sizes) {
        for (place, count) in other.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            self.add(other.first + place, *count);
        }
    }

    /// Adds what was counted, exactly.
    pub(crate) fn add_counted(&mut self, counted: &Counters) {
        let ends = (counted.counted().next(), counted.counted().next_back());
        let (Some((shortest, _)), Some((longest, _))) = ends else {
            return;
        };
        self.reach(shortest);
        self.reach(longest);
        let mine = &mut self.counts[shortest - self.first..];
        for (mine, theirs) in mine.iter_mut().zip(&counted.0[shortest..=longest]) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// What they come to; none without any.
    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        let total: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let at = |quantile: f64| {
            let rank = ((quantile * total as f64).ceil() as u64).max(1);
            let mut seen = 0;
            let place = self.counts.iter().position(|count| {
                seen += u64::from(*count);
                seen >= rank
            })?;
            Some(middle(self.first + place))
        };
        Some(Percentiles {
            p50: at(0.5)?,
            p95: at(0.95)?,
            p99: at(0.99)?,
        })
    }
}

/// An octave has so many sizes; below eight microseconds each is a size of its own.
const SIZES_AN_OCTAVE: usize = 8;
/// How many bits of a duration its size within an octave takes.
const BITS: u32 = SIZES_AN_OCTAVE.ilog2();
/// How many sizes there are up to the longest duration.
const SIZES: usize = size(LONGEST) + 1;

/// The size of a duration. Longer than [`LONGEST`] counts as that.
const fn size(duration: Micros) -> usize {
    let us = if duration.0 < LONGEST.0 {
        duration.0
    } else {
        LONGEST.0
    };
    if us < SIZES_AN_OCTAVE as u64 {
        return us as usize;
    }
    let octave = us.ilog2() - BITS;
    // The highest bit is there in all of an octave; the three behind it are the size.
    octave as usize * SIZES_AN_OCTAVE + (us >> octave) as usize
}

/// The middle of a size.
const fn middle(size: usize) -> Micros {
    if size < SIZES_AN_OCTAVE {
        return Micros(size as u64);
    }
    let octave = size / SIZES_AN_OCTAVE - 1;
    let shortest = ((SIZES_AN_OCTAVE + size % SIZES_AN_OCTAVE) as u64) << octave;
    Micros(shortest + ((1 << octave) - 1) / 2)
}

impl From<Sizes> for Vec<u64> {
    fn from(sizes: Sizes) -> Self {
        match sizes.counts.is_empty() {
            true => Vec::new(),
            false => std::iter::once(sizes.first as u64)
                .chain(sizes.counts.into_iter().map(u64::from))
                .collect(),
        }
    }
}

impl TryFrom<Vec<u64>> for Sizes {
    type Error = String;

    fn try_from(numbers: Vec<u64>) -> Result<Self, Self::Error> {
        let Some((first, counts)) = numbers.split_first() else {
            return Ok(Sizes::default());
        };
        let first = usize::try_from(*first).unwrap_or(SIZES);
        if counts.len() > SIZES || first > SIZES - counts.len() {
            return Err(format!(
                "durations of a size beyond the last one, {}",
                SIZES - 1
            ));
        }
        // Whoever wrote zeros at either end meant the same.
        let mut sizes = Sizes::default();
        for (place, count) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            let count =
                u32::try_from(*count).map_err(|_| format!("{count} durations of one size"))?;
            sizes.add(first + place, count);
        }
        Ok(sizes)
    }
}

impl JsonSchema for Sizes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Sizes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "array",
            "items": { "type": "integer", "minimum": 0 },
            "description": "The first size, then how many durations there were of it, of the next one, and so on; empty \
                without any. Sizes in µs: 0 to 7 themselves; from there on each octave has eight, so that size 8·o + s \
                (o from 1, s from 0 to 7) begins at (8 + s)·2^(o - 1).",
        })
    }
}

impl fmt::Debug for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:?}", self.first, self.counts)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::outcome::Outcome;
    use crate::samples::Sample;
    use crate::samples::tests::any_sample;

    impl Latencies {
        fn record(&mut self, sample: &Sample) {
            self.add_second(&Second::of(sample));
        }
    }

    /// A sync that was due, started and answered at these milliseconds.
    fn sync(outcome: Outcome, due: u64, started: u64, ended: u64) -> Sample {
        Sample {
            endpoint: Endpoint::Sync,
            outcome,
            intended: Micros::from_ms(due),
            started: Micros::from_ms(started),
            first_byte_out: Some(Micros::from_ms(started)),
            ended: Micros::from_ms(ended),
            connect: None,
        }
    }

    #[test]
    fn a_second_has_the_latencies_of_what_ended_in_it() {
        let mut latencies = Latencies::default();
        latencies.record(&sync(Outcome::Ok, 900, 910, 1_010));
        latencies.record(&sync(Outcome::Reset, 1_000, 1_500, 1_600));
        let ms = |percentiles: Option<Percentiles>| {
            percentiles.map(|all| (all.p50.0 as f64 / 1_000.0).round() as u64)
        };
        let (before, within) = (Micros::from_ms(900), Micros::from_ms(1_999));
        assert_eq!(latencies.response(Endpoint::Sync, before), None);
        assert_eq!(ms(latencies.response(Endpoint::Sync, within)), Some(111));
        assert_eq!(ms(latencies.service(Endpoint::Sync, within)), Some(102));
        let late = latencies.lateness(within).unwrap();
        assert_eq!((late.p50.0 / 1_000, late.p99.0 / 1_000), (9, 507));
    }

    #[test]
    fn a_day_is_told_in_few_buckets() {
        let mut latencies = Latencies::default();
        for second in 0..86_400 {
            let at = second * 1_000;
            latencies.record(&sync(Outcome::Ok, at, at + 1, at + 3 + second % 40));
        }
        assert_eq!(latencies.width_seconds(), 256);
        assert!(latencies.rows().all(|row| row.0.len() <= BUCKETS_MAX));
        let text = serde_json::to_string(&latencies).unwrap();
        assert!(text.len() < 100_000, "{} bytes", text.len());
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (text, ok) in [
            ("[]", true),
            ("[237,1]", true),
            ("[238,1]", false),
            ("[237,1,1]", false),
            ("[3,4294967296]", false),
            ("[18446744073709551615,1]", false),
        ] {
            let read = serde_json::from_str::<Sizes>(text);
            assert_eq!(read.is_ok(), ok, "{text}: {read:?}");
        }
    }

    proptest! {
        #[test]
        fn a_duration_is_told_within_a_sixteenth(bits in 0..32_u32, noise in any::<u64>()) {
            let us = ((1 << bits) + noise % (1 << bits)).min(LONGEST.0);
            let told = middle(size(Micros(us))).0;
            prop_assert!(told.abs_diff(us) as f64 <= us as f64 / 16.0, "{us} told as {told}");
            prop_assert!(size(Micros(us)) <= size(Micros(us + 1)));
        }

        #[test]
        fn parts_of_any_width_add_up_to_the_whole(
            rows in prop::collection::vec((any_sample(), 0..3_usize, 0..3_000_u64), 0..60),
        ) {
            let mut whole = Latencies::default();
            let mut parts = vec![Latencies::default(); 3];
            for (sample, part, seconds) in &rows {
                let mut sample = *sample;
                sample.ended = sample.ended + Micros::from_seconds(*seconds);
                whole.record(&sample);
                parts[*part].record(&sample);
            }
            let mut forwards = Latencies::default();
            parts.iter().for_each(|part| forwards.add(part));
            let mut backwards = Latencies::default();
            parts.iter().rev().for_each(|part| backwards.add(part));
            prop_assert_eq!(&forwards, &whole);
            prop_assert_eq!(&backwards, &whole);

            let text = serde_json::to_string(&whole).unwrap();
            let read: Latencies = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read, whole);
        }
    }
}
