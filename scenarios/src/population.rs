//! Who the agents are, and when each of them begins.

use std::collections::BTreeMap;
use std::time::Duration;

use record::result::Protocol;

use crate::form::leaf::{Count, duration_text};
use crate::form::{At, Reader};
use crate::mistake::Suggestion;
use crate::node::NodeModel;
use crate::share::Share;
use crate::written;

/// The most agents in a population, and in all of them together.
pub const AGENTS_MAX: u64 = 1_000_000;

/// Agents of one kind. An agent is known by its index, from 0: keys, seeds and names come from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Population {
    /// Its name, unique in the scenario.
    pub name: String,
    /// What its agents speak.
    pub protocol: Protocol,
    /// How many agents it has.
    pub count: u64,
    /// Words by which faults and reports can pick it.
    pub labels: BTreeMap<String, String>,
    /// Servers that share one cluster and its simulated API; the last cluster may have fewer.
    pub servers_per_cluster: u64,
    /// When its agents begin.
    pub arrival: Arrival,
    /// Scales every agent-side duration, backoffs and costs of steps included, never the wire's limits: 1 is the real
    /// pace, 0.2 five times faster.
    pub tempo: f64,
    /// The nodes under its agents.
    pub node: NodeModel,
}

/// When agents begin: a function of the index, without chance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// All at the start.
    AllAtOnce,
    /// One after the other, evenly.
    Ramp {
        /// How long until all have begun.
        over: Duration,
    },
    /// Stage after stage, evenly within each. Their counts add up to the population's.
    Stages(Vec<Stage>),
}

/// A stage of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// How many agents begin in it.
    pub count: u64,
    /// How long it takes; zero for all of them at once.
    pub over: Duration,
}

impl Population {
    /// How many clusters it has.
    pub fn clusters(&self) -> u64 {
        self.count.div_ceil(self.servers_per_cluster)
    }

    /// The cluster that an agent belongs to, from 0.
    pub fn cluster_of(&self, index: u64) -> u64 {
        index / self.servers_per_cluster
    }

    /// When an agent begins, from the start of the run.
    pub fn start_of(&self, index: u64) -> Duration {
        self.arrival.start_of(index, self.count)
    }

    pub(crate) fn from_written(
        written: written::Population,
        place: &At<()>,
        reader: &mut Reader,
    ) -> Option<Self> {
        let count = written.count.good().map(|at| at.value.get());
        let arrival = match written.arrival.or(written::Arrival::AllAtOnce) {
            None => None,
            Some(written::Arrival::AllAtOnce) => Some(Arrival::AllAtOnce),
            Some(written::Arrival::Ramp(ramp)) => {
                ramp.over.value().map(|over| Arrival::Ramp { over: over.0 })
            }
            Some(written::Arrival::Stages(stages)) => {
                count.and_then(|count| stages_of(stages, count, place, reader))
            }
        };
        let node = match written.node.optional()? {
            None => Some(NodeModel::default()),
            Some(node) => NodeModel::from_written(node, reader),
        };
        Some(Population {
            name: written.name.value()?.0,
            protocol: written.protocol.or(Protocol::Pbx)?,
            count: count?,
            labels: written
                .labels
                .optional()?
                .map_or_else(BTreeMap::new, |m| m.0),
            servers_per_cluster: written.servers_per_cluster.or(Count(1))?.get(),
            arrival: arrival?,
            tempo: written.tempo.optional()?.map_or(1.0, |ratio| ratio.0),
            node: node?,
        })
    }
}

impl Arrival {
    /// When agent `index` of `count` begins, from the start of the run. Within a ramp or a stage agents are spread evenly,
    /// the first at its beginning and none at its end, so stages do not meet.
    pub fn start_of(&self, index: u64, count: u64) -> Duration {
        match self {
            Arrival::AllAtOnce => Duration::ZERO,
            Arrival::Ramp { over } => part(*over, index, count),
            Arrival::Stages(stages) => {
                let mut begin = Duration::ZERO;
                let mut first = 0;
                for stage in stages {
                    if index < first + stage.count {
                        return begin + part(stage.over, index - first, stage.count);
                    }
                    first += stage.count;
                    begin += stage.over;
                }
                begin
            }
        }
    }

    /// How long until all have begun.
    pub fn length(&self) -> Duration {
        match self {
            Arrival::AllAtOnce => Duration::ZERO,
            Arrival::Ramp { over } => *over,
            Arrival::Stages(stages) => stages.iter().map(|stage| stage.over).sum(),
        }
    }
}

/// `index` of `count` equal parts of a duration, exact to the nanosecond.
fn part(whole: Duration, index: u64, count: u64) -> Duration {
    let nanos = whole.as_nanos() * u128::from(index) / u128::from(count.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Stages either say how many agents begin in each, and these add up to the population's, or which share, and these add up
/// to 1; what rounding leaves over goes to the last one that takes any.
fn stages_of(
    written: Vec<At<written::Stage>>,
    count: u64,
    place: &At<()>,
    reader: &mut Reader,
) -> Option<Arrival> {
    let mut counts = Vec::new();
    let mut shares = Vec::new();
    let mut lengths = Vec::new();
    let mut whole = true;
    for stage in written {
        let stage_place = stage.place();
        let stage = stage.value;
        match (stage.count.optional(), stage.share.optional()) {
            (Some(Some(count)), Some(None)) => counts.push(count.get()),
            (Some(None), Some(Some(share))) => shares.push(share),
            (Some(None), Some(None)) => {
                reader.unfit(&stage_place, "needs `count` or `share`", None);
                whole = false;
            }
            (Some(Some(_)), Some(Some(_))) => {
                reader.unfit(
                    &stage_place,
                    "has `count` and `share` at once: one of them is due",
                    None,
                );
                whole = false;
            }
            (None, _) | (_, None) => whole = false,
        }
        match stage.over.value() {
            Some(over) => lengths.push(over.0),
            None => whole = false,
        }
    }
    if !whole {
        return None;
    }
    let arrival = At {
        path: format!("{}.arrival.stages", place.path),
        ..place.clone()
    };
    let counts = match (counts.is_empty(), shares.is_empty()) {
        (true, true) => {
            reader.unfit(&arrival, "is empty: a stage is due", None);
            return None;
        }
        (false, false) => {
            reader.unfit(
                &arrival,
                "has stages with `count` and stages with `share`: all of them say the same",
                None,
            );
            return None;
        }
        (false, true) => {
            let sum: u64 = counts.iter().sum();
            if sum != count {
                let what = format!("adds up to {sum} agents, the population has {count}");
                let suggestion = Suggestion::Write(
                    "`share` in place of `count`, which fits every count".to_owned(),
                );
                reader.unfit(&arrival, what, Some(suggestion));
                return None;
            }
            counts
        }
        (true, false) => {
            let sum: f64 = shares.iter().map(|share| share.get()).sum();
            if (sum - 1.0).abs() > 1e-6 {
                let what = format!("has shares that add up to {sum}, not to 1");
                reader.unfit(&arrival, what, None);
                return None;
            }
            shared_out(&shares, count)
        }
    };
    let stages = counts.into_iter().zip(lengths);
    Some(Arrival::Stages(
        stages.map(|(count, over)| Stage { count, over }).collect(),
    ))
}

/// `count` by shares that add up to 1: each cumulative share rounded, so that the parts add up exactly.
pub(crate) fn shared_out(shares: &[Share], count: u64) -> Vec<u64> {
    let mut so_far = 0.0;
    let mut given = 0;
    let last = shares.iter().rposition(|share| share.get() > 0.0);
    shares
        .iter()
        .enumerate()
        .map(|(at, share)| {
            so_far += share.get();
            let until = match last.is_some_and(|last| at >= last) {
                true => count,
                false => ((so_far * count as f64).round() as u64).min(count),
            };
            let part = until - given;
            given = until;
            part
        })
        .collect()
}

/// Tells an arrival that takes longer than the run.
pub(crate) fn check_arrival(
    population: &Population,
    duration: &At<Duration>,
    place: &At<()>,
    reader: &mut Reader,
) {
    let length = population.arrival.length();
    if length > duration.value {
        let arrival = At {
            path: format!("{}.arrival", place.path),
            ..place.clone()
        };
        let what = format!(
            "takes {}, the run ends after {}",
            duration_text(length),
            duration_text(duration.value)
        );
        reader.unfit(&arrival.set_with(duration), what, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_ramp_is_even_and_ends_before_its_end() {
        let ramp = Arrival::Ramp { over: seconds(20) };
        assert_eq!(ramp.start_of(0, 1_000), Duration::ZERO);
        assert_eq!(ramp.start_of(1, 1_000), Duration::from_millis(20));
        assert_eq!(ramp.start_of(999, 1_000), Duration::from_millis(19_980));
        assert_eq!(ramp.start_of(0, 1), Duration::ZERO);
        assert_eq!(Arrival::AllAtOnce.start_of(999, 1_000), Duration::ZERO);
    }

    #[test]
    fn stages_hold_exactly_their_agents_one_after_the_other() {
        let stage = |count, over| Stage {
            count,
            over: seconds(over),
        };
        let stages = [stage(10, 5), stage(0, 10), stage(700, 0), stage(290, 29)];
        let arrival = Arrival::Stages(stages.to_vec());
        let starts: Vec<Duration> = (0..1_000).map(|i| arrival.start_of(i, 1_000)).collect();
        assert!(starts.is_sorted());
        let within = |from: u64, to: u64| {
            let inside = starts
                .iter()
                .filter(|s| (seconds(from)..seconds(to)).contains(s));
            inside.count()
        };
        assert_eq!((within(0, 5), within(5, 15), within(15, 16)), (10, 0, 710));
        assert_eq!(within(15, 44), 990);
        assert_eq!(arrival.length(), seconds(44));
        assert!(starts[999] < arrival.length());
    }

    #[test]
    fn shares_are_given_out_without_a_rest() {
        let shares =
            |list: &[f64]| -> Vec<Share> { list.iter().map(|s| Share::new(*s).unwrap()).collect() };
        let rows: &[(&[f64], u64, &[u64])] = &[
            (&[0.5, 0.5], 3, &[2, 1]),
            (&[0.333, 0.333, 0.334], 1_000, &[333, 333, 334]),
            (&[1.0], 7, &[7]),
            (&[0.1, 0.9, 0.0], 1, &[0, 1, 0]),
            (&[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0], 100, &[33, 34, 33]),
        ];
        for (list, count, parts) in rows {
            assert_eq!(&shared_out(&shares(list), *count), parts, "{list:?}");
        }
    }
}
