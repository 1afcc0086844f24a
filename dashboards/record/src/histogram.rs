//! One distribution of durations: HDR, 1 µs to 1 h, three significant digits.
//!
//! Every histogram has the same shape, so adding two is adding their counters: exact, in any order. Recording touches
//! one counter; nothing grows. A longer value counts as an hour. It corrects nothing: what a stalled caller did not
//! send is seen in lateness and in the sync deficit, not made up here.
//!
//! Counting is ours, since every request does it three times; whatever is read of the counters, and how they are
//! written to a file, is HdrHistogram's.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{
    Deserializer as HdrReader, Serializer as _, V2DeflateSerializer,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{self, Serialize, Serializer};

use crate::label::counted;
use crate::micros::Micros;

/// A distribution of durations.
///
/// In a file it is the base64 of HDR's V2 form, deflated: what HdrHistogram of any language reads. Unit: µs.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram(Box<[u64]>);

/// The longest duration that is told apart from a longer one: an hour.
pub const LONGEST: Micros = Micros::from_seconds(3_600);

const DIGITS: u8 = 3;

/// Up to so many microseconds each duration has a counter of its own; from there on each octave has half as many.
const TOLD_APART: u64 = 2_048;

/// How many counters there are.
const PLACES: usize = place(LONGEST) + 1;

/// The counter of a duration, as HDR lays them out for three digits: octave by octave. Longer than [`LONGEST`] counts as
/// that.
#[inline]
const fn place(duration: Micros) -> usize {
    let us = if duration.0 < LONGEST.0 {
        duration.0
    } else {
        LONGEST.0
    };
    let octave = (us | (TOLD_APART - 1)).ilog2() + 1 - TOLD_APART.ilog2();
    octave as usize * (TOLD_APART as usize / 2) + (us >> octave) as usize
}

/// The shortest duration of a counter, in µs.
const fn shortest(place: usize) -> u64 {
    let half = TOLD_APART as usize / 2;
    match place / half {
        0 => place as u64,
        octaves => ((half + place % half) as u64) << (octaves - 1),
    }
}

impl Histogram {
    /// An empty one. Takes about 180 KiB, for good.
    pub fn new() -> Self {
        Histogram(vec![0; PLACES].into())
    }

    /// Counts one duration. Longer than [`LONGEST`] counts as that.
    #[inline]
    pub fn record(&mut self, value: Micros) {
        let counter = &mut self.0[place(value)];
        *counter = counter.saturating_add(1);
    }

    /// Adds what the other one counted, exactly.
    pub fn add(&mut self, other: &Histogram) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// Each counter that has counted, from the shortest duration, with its count.
    fn counted(&self) -> impl Iterator<Item = (usize, u64)> {
        counted(&self.0)
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.counted().next().is_none()
    }

    /// The duration that the share `quantile` (0 to 1) of all did not exceed; none if none was counted.
    pub fn quantile(&self, quantile: f64) -> Option<Micros> {
        let [figure] = self.quantiles([quantile])?;
        Some(figure)
    }

    /// Several of them, in one reading.
    pub fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> Option<[Micros; N]> {
        let hdr = self.read()?;
        Some(quantiles.map(|quantile| Micros(hdr.value_at_quantile(quantile.clamp(0.0, 1.0)))))
    }

    /// The duration of the `rank`-th fastest, counted from 1; none if fewer were counted.
    pub fn at_rank(&self, rank: u64) -> Option<Micros> {
        if rank == 0 {
            return None;
        }
        let hdr = self.read()?;
        let mut seen = 0;
        hdr.iter_recorded()
            .find(|step| {
                seen += step.count_at_value();
                seen >= rank
            })
            .map(|step| Micros(hdr.highest_equivalent(step.value_iterated_to())))
    }

    /// How many took at most `limit` (within the three digits).
    pub fn count_within(&self, limit: Micros) -> u64 {
        let within = &self.0[..=place(limit)];
        within.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The longest; none if none was counted.
    pub fn max(&self) -> Option<Micros> {
        Some(Micros(self.read()?.max()))
    }

    /// Counts nothing any more, keeping its memory.
    pub fn clear(&mut self) {
        self.0.fill(0);
    }

    /// As the library reads it; none if nothing was counted.
    fn read(&self) -> Option<Hdr<u64>> {
        (!self.is_empty()).then(|| self.to_hdr())
    }

    fn to_hdr(&self) -> Hdr<u64> {
        let mut hdr = Hdr::new_with_bounds(1, LONGEST.0, DIGITS)
            .expect("the bounds are constants that the constructor accepts");
        for (place, count) in self.counted() {
            hdr.saturating_record_n(shortest(place), count);
        }
        hdr
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let read: Hdr<u64> = from_text(text)?;
        // Counters of another shape would still add, but no longer exactly.
        if (read.low(), read.high(), read.sigfig()) != (1, LONGEST.0, DIGITS) {
            return Err(format!(
                "its range is {} to {} with {} digits; this version keeps 1 to {} µs with {DIGITS}",
                read.low(),
                read.high(),
                read.sigfig(),
                LONGEST.0
            ));
        }
        let mut histogram = Histogram::new();
        for step in read.iter_recorded() {
            histogram.0[place(Micros(step.value_iterated_to()))] = step.count_at_value();
        }
        Ok(histogram)
    }
}

/// Base64 of HDR's V2 form, deflated.
fn to_text(histogram: &Hdr<u64>) -> Result<String, String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|e| e.to_string())?;
    Ok(STANDARD.encode(bytes))
}

/// Reads what [`to_text`] has written.
fn from_text(text: &str) -> Result<Hdr<u64>, String> {
    let bytes = STANDARD.decode(text).map_err(|e| e.to_string())?;
    HdrReader::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|e| e.to_string())
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_text(&self.to_hdr()).map_err(ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Histogram::from_text(&text)
            .map_err(|why| de::Error::custom(format_args!("not a histogram of this tool: {why}")))
    }
}

impl JsonSchema for Histogram {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Histogram".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "contentEncoding": "base64",
            "description": "HDR histogram in µs, V2 compressed form, 1 µs to 1 h with three significant digits",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for value in values {
            histogram.record(Micros(*value));
        }
        histogram
    }

    #[test]
    fn an_empty_one_has_no_figure() {
        let empty = Histogram::new();
        assert_eq!(empty.quantile(0.99), None);
        assert_eq!(empty.max(), None);
        assert_eq!(empty.at_rank(1), None);
        assert_eq!(empty.count_within(LONGEST), 0);
    }

    #[test]
    fn quantiles_are_within_three_digits() {
        let thousand: Vec<u64> = (1..=1_000).map(|ms| ms * 1_000).collect();
        let histogram = of(&thousand);
        for (quantile, ms) in [(0.0, 1), (0.5, 500), (0.95, 950), (0.99, 990), (1.0, 1_000)] {
            let figure = histogram.quantile(quantile).unwrap().0 as f64;
            let due = f64::from(ms) * 1_000.0;
            assert!(
                (figure - due).abs() <= due / 1_000.0,
                "p{quantile}: {figure} instead of {due}"
            );
        }
        assert_eq!(histogram.at_rank(1_000), histogram.max());
        assert_eq!(histogram.at_rank(1_001), None);
        assert_eq!(histogram.count_within(Micros::from_ms(250)), 250);
    }

    #[test]
    fn more_than_an_hour_counts_as_an_hour() {
        let histogram = of(&[u64::MAX, 0]);
        assert_eq!(histogram.count(), 2);
        let longest = histogram.max().unwrap().0 as f64;
        assert!((longest - LONGEST.0 as f64).abs() <= LONGEST.0 as f64 / 1_000.0);
        assert_eq!(histogram.quantile(0.0), Some(Micros(0)));
    }

    // case L3, L7: nothing is interpolated, a long wait counts once.
    #[test]
    fn one_recording_is_one_sample() {
        let mut histogram = of(&[10; 99]);
        histogram.record(Micros::from_seconds(30));
        assert_eq!(histogram.count(), 100);
        assert_eq!(histogram.quantile(0.99), Some(Micros(10)));
    }

    #[test]
    fn another_shape_is_refused() {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(
                &Hdr::<u64>::new_with_bounds(1, 1_000, 2).unwrap(),
                &mut bytes,
            )
            .unwrap();
        let text = serde_json::to_string(&STANDARD.encode(bytes)).unwrap();
        let error = serde_json::from_str::<Histogram>(&text).unwrap_err();
        assert!(error.to_string().contains("with 2 digits"), "{error}");
        for broken in ["\"\"", "\"%\"", "\"AAAA\"", "7"] {
            assert!(
                serde_json::from_str::<Histogram>(broken).is_err(),
                "{broken}"
            );
        }
    }

    proptest! {
        #[test]
        fn counters_are_laid_out_as_hdrs_are(bits in 0..32_u32, noise in any::<u64>()) {
            let hdr = Histogram::new().to_hdr();
            let us = ((1 << bits) + noise % (1 << bits)).min(LONGEST.0);
            prop_assert_eq!(shortest(place(Micros(us))), hdr.lowest_equivalent(us));
            prop_assert_eq!(place(Micros(hdr.lowest_equivalent(us))), place(Micros(us)));
        }

        #[test]
        fn what_is_written_is_read_again(values in prop::collection::vec(0..4_000_000_000_u64, 0..200)) {
            let histogram = of(&values);
            let text = serde_json::to_string(&histogram).unwrap();
            let read: Histogram = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read, &histogram);
            prop_assert_eq!(read.max(), histogram.max());
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }

        #[test]
        fn two_halves_added_are_the_whole(
            values in prop::collection::vec((0..4_000_000_000_u64, any::<bool>()), 0..200),
        ) {
            let side = |left: bool| -> Vec<u64> {
                values.iter().filter(|(_, l)| *l == left).map(|(v, _)| *v).collect()
            };
            let whole = of(&values.iter().map(|(v, _)| *v).collect::<Vec<_>>());
            let (mut one, mut other) = (of(&side(true)), of(&side(false)));
            let reversed = {
                let mut sum = other.clone();
                sum.add(&one);
                sum
            };
            one.add(&other);
            prop_assert_eq!(&one, &whole);
            prop_assert_eq!(&reversed, &whole);
            other.clear();
            prop_assert_eq!(other, Histogram::new());
        }
    }
}
