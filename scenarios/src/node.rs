//! What a simulated node costs, and how it fails.
//!
//! All of it is data: a cost is a distribution, and a draw from 0 to 1 picks from it, so the world that draws can repeat
//! itself. Every duration here is in the node's own time; a population's tempo scales it when it is paid.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use toml::de::DeValue;

use protocol::pbx::operation::Step;

use crate::form::leaf::{Count, Span, duration_text};
use crate::form::{At, Node, Reader, Slot, Written};
use crate::mistake::Suggestion;
use crate::share::Share;
use crate::written;

/// The model of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeModel {
    /// From power on, or from a crash, to the agent's start.
    pub boot_time: Cost,
    /// A task of the host that is no step of an operation: making keys, reading a file, starting k3s at enrollment.
    pub task_cost: Cost,
    /// Steps of operations that the scenario gives a cost of its own; [`step_cost`](Self::step_cost) knows the rest.
    pub step_cost: BTreeMap<Step, Cost>,
    /// The part of the runs of a step that fail; none for a step that is not here.
    pub failure_share: BTreeMap<Step, Share>,
    /// How far the node's clock is off, in milliseconds; positive is fast.
    pub clock_offset_ms: Spread,
    /// How fast it drifts, in millionths; positive gets ahead.
    pub clock_drift_ppm: Spread,
    /// The part of the population whose agents crash once, at a moment spread evenly over the run.
    pub crash_share: Share,
}

/// How long something takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// Always the same.
    Fixed(Duration),
    /// Spread evenly between two durations.
    Uniform {
        /// The shortest.
        from: Duration,
        /// The longest.
        to: Duration,
    },
}

/// A number that is not the same for every node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// The same for every node.
    Fixed(i64),
    /// Spread evenly between two numbers.
    Uniform {
        /// The lowest.
        from: i64,
        /// The highest.
        to: i64,
    },
}

impl Default for NodeModel {
    fn default() -> Self {
        NodeModel {
            boot_time: Cost::seconds(10, 30),
            task_cost: Cost::Uniform {
                from: Duration::from_millis(20),
                to: Duration::from_millis(200),
            },
            step_cost: BTreeMap::new(),
            failure_share: BTreeMap::new(),
            clock_offset_ms: Spread::Fixed(0),
            clock_drift_ppm: Spread::Fixed(0),
            crash_share: Share::NONE,
        }
    }
}

impl NodeModel {
    /// How long a step takes: what the scenario says, else what a small node needs for it.
    pub fn step_cost(&self, step: Step) -> Cost {
        self.step_cost
            .get(&step)
            .copied()
            .unwrap_or_else(|| usual_cost(step))
    }

    /// The part of the runs of a step that fail.
    pub fn failure_share(&self, step: Step) -> Share {
        self.failure_share
            .get(&step)
            .copied()
            .unwrap_or(Share::NONE)
    }

    pub(crate) fn from_written(written: written::NodeModel, reader: &mut Reader) -> Option<Self> {
        let usual = NodeModel::default();
        if let Some(drift) = written.clock_drift_ppm.good()
            && drift.value.least() <= STANDS_STILL_PPM
        {
            let what = "lets the clock stand still or run backwards: -1000000 takes a second from each second";
            reader.unfit(drift, what, None);
        }
        Some(NodeModel {
            boot_time: written.boot_time.or(usual.boot_time)?,
            task_cost: written.task_cost.or(usual.task_cost)?,
            step_cost: written
                .step_cost
                .optional()?
                .map_or_else(BTreeMap::new, |m| m.0),
            failure_share: written
                .failure_share
                .optional()?
                .map_or_else(BTreeMap::new, |m| m.0),
            clock_offset_ms: written.clock_offset_ms.or(usual.clock_offset_ms)?,
            clock_drift_ppm: written.clock_drift_ppm.or(usual.clock_drift_ppm)?,
            crash_share: written.crash_share.or(usual.crash_share)?,
        })
    }
}

/// What a node of two cores and a small cluster needs for a step.
fn usual_cost(step: Step) -> Cost {
    match step {
        Step::Generate
        | Step::Register
        | Step::Confirm
        | Step::Report
        | Step::Seal
        | Step::Token
        | Step::EnsureSa
        | Step::DeleteSa
        | Step::Cordon
        | Step::DeleteNode
        | Step::Preflight
        | Step::Commit
        | Step::ConfirmGone => Cost::Uniform {
            from: Duration::from_millis(20),
            to: Duration::from_millis(200),
        },
        Step::ConfirmS3 | Step::ListBucket | Step::ClearDatastore => Cost::Uniform {
            from: Duration::from_millis(200),
            to: Duration::from_secs(1),
        },
        Step::Save | Step::PreSnapshot | Step::Collect | Step::StopK3s => Cost::seconds(1, 4),
        Step::StartK3s | Step::WaitApi | Step::ForgetStaleNodes | Step::StageSlot => {
            Cost::seconds(3, 12)
        }
        Step::ResetRestore | Step::Evict => Cost::seconds(8, 25),
        Step::FetchImage | Step::Reboot | Step::HealthGate => Cost::seconds(30, 90),
    }
}

impl Cost {
    const fn seconds(from: u64, to: u64) -> Self {
        Cost::Uniform {
            from: Duration::from_secs(from),
            to: Duration::from_secs(to),
        }
    }

    /// The cost that a draw from 0 to 1 picks.
    pub fn at(&self, draw: f64) -> Duration {
        match self {
            Cost::Fixed(duration) => *duration,
            Cost::Uniform { from, to } => {
                *from + to.saturating_sub(*from).mul_f64(draw.clamp(0.0, 1.0))
            }
        }
    }
}

impl Spread {
    fn least(&self) -> i64 {
        match self {
            Spread::Fixed(number) => *number,
            Spread::Uniform { from, .. } => *from,
        }
    }

    /// The number that a draw from 0 to 1 picks.
    pub fn at(&self, draw: f64) -> i64 {
        match self {
            Spread::Fixed(number) => *number,
            Spread::Uniform { from, to } => {
                let wide = (*to as f64 - *from as f64) * draw.clamp(0.0, 1.0);
                (*from).saturating_add(wide.round() as i64).min(*to)
            }
        }
    }
}

crate::form::form! {
    /// Two durations to pick between.
    struct Picked {
        /// The shortest and the longest.
        uniform: Vec<At<Span>>, required;
    }
}

crate::form::form! {
    /// Two numbers to pick between.
    struct PickedNumber {
        /// The lowest and the highest.
        uniform: Vec<At<Offset>>, required;
    }
}

/// A day in milliseconds either way, or as many millionths.
type Offset = Count<-86_400_000, 86_400_000>;

/// The drift of a clock that shows the same time for ever.
const STANDS_STILL_PPM: i64 = -1_000_000;

impl Written for Cost {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        match node.value {
            DeValue::Table(_) => {
                let pair = between(Picked::read(node, reader)?.uniform, reader)?;
                let [from, to] = pair.map(|span| span.0);
                if from > to {
                    let swapped =
                        format!("[\"{}\", \"{}\"]", duration_text(to), duration_text(from));
                    reader.wrong(
                        node,
                        "begins with the longer duration",
                        Some(Suggestion::Write(swapped)),
                    );
                    return None;
                }
                Some(Cost::Uniform { from, to })
            }
            _ => Span::read(node, reader).map(|span| Cost::Fixed(span.0)),
        }
    }

    fn schema() -> Value {
        json!({ "oneOf": [Span::schema(), Picked::schema()] })
    }
}

impl Written for Spread {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        match node.value {
            DeValue::Table(_) => {
                let pair = between(PickedNumber::read(node, reader)?.uniform, reader)?;
                let [from, to] = pair.map(|number| number.0);
                if from > to {
                    reader.wrong(
                        node,
                        "begins with the higher number",
                        Some(Suggestion::Write(format!("[{to}, {from}]"))),
                    );
                    return None;
                }
                Some(Spread::Uniform { from, to })
            }
            _ => Offset::read(node, reader).map(|number| Spread::Fixed(number.0)),
        }
    }

    fn schema() -> Value {
        json!({ "oneOf": [Offset::schema(), PickedNumber::schema()] })
    }
}

/// Exactly two values.
fn between<T>(slot: Slot<Vec<At<T>>>, reader: &mut Reader) -> Option<[T; 2]> {
    let Slot::Good(at) = slot else {
        return None;
    };
    let place = at.place();
    let values: Vec<T> = at.value.into_iter().map(|element| element.value).collect();
    match <[T; 2]>::try_from(values) {
        Ok(pair) => Some(pair),
        Err(values) => {
            let what = format!("has {} values, two are due", values.len());
            reader.unfit(&place, what, None);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_picks_from_end_to_end() {
        let cost = Cost::seconds(2, 4);
        for (draw, ms) in [
            (0.0, 2_000),
            (0.5, 3_000),
            (1.0, 4_000),
            (-1.0, 2_000),
            (9.0, 4_000),
        ] {
            assert_eq!(cost.at(draw), Duration::from_millis(ms), "{draw}");
        }
        assert_eq!(
            Cost::Fixed(Duration::from_secs(1)).at(0.9),
            Duration::from_secs(1)
        );
        let spread = Spread::Uniform {
            from: -500,
            to: 500,
        };
        for (draw, number) in [(0.0, -500), (0.5, 0), (1.0, 500)] {
            assert_eq!(spread.at(draw), number, "{draw}");
        }
        assert_eq!(Spread::Fixed(-3).at(0.5), -3);
    }

    #[test]
    fn every_step_costs_something_and_a_scenario_may_say_otherwise() {
        let mut model = NodeModel::default();
        for step in Step::ALL {
            assert!(model.step_cost(*step).at(0.0) > Duration::ZERO, "{step}");
        }
        model
            .step_cost
            .insert(Step::Save, Cost::Fixed(Duration::ZERO));
        assert_eq!(model.step_cost(Step::Save).at(0.5), Duration::ZERO);
    }
}
