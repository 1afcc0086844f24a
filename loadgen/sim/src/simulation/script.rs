//! Crashes that are not drawn but planned: at an occasion that is counted, with so many of its durable effects done.
//!
//! Whoever wants to crash an agent at every point of something runs it once and looks at the occasions that there were
//! ([`Occasion`]), and then again for each of them with a [`Planned`] crash: up to there it is the same run.

use std::collections::BTreeMap;

use agent_core::pbx::durable::Durable;
use protocol::pbx::operation::{EventState, Step};

use super::trouble::Site;
use crate::host::Leftover;

/// Something during which an agent can crash: a write, a task, a call other than a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occasion {
    /// What it is.
    pub site: Site,
    /// The step that the agent's operation is at; none where it has none.
    pub step: Option<Step>,
    /// How many durable effects it has, between any two of which a crash can come: a write and a call have one.
    pub effects: u32,
}

/// The step that a record has the operation at: the running one's, or the last of one that has just succeeded, since what
/// does nothing by itself is in one write with what is before it.
pub(super) fn step_of(durable: &Durable) -> Option<Step> {
    let running = durable.operation.as_ref().map(|running| running.step);
    let ended = durable.finished.last();
    running.or_else(|| {
        let succeeded = ended.filter(|ended| ended.end.state == EventState::Succeeded)?;
        succeeded.kind.steps().last().copied()
    })
}

/// A crash that is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Planned {
    /// The number of its occasion, from 0.
    pub occasion: usize,
    /// How much of that is done, and what crashes.
    pub leftover: Leftover,
}

/// The occasions of a member that were counted so far, and the crashes that are planned at later ones.
#[derive(Debug, Default)]
pub(super) struct Script {
    planned: BTreeMap<usize, Leftover>,
    pub(super) seen: Vec<Occasion>,
    /// The last step that the operation was at.
    step: Option<Step>,
    /// The task under way.
    task: Option<usize>,
}

impl Script {
    pub(super) fn new(planned: impl IntoIterator<Item = Planned>) -> Self {
        let planned = planned.into_iter();
        Self {
            planned: planned.map(|it| (it.occasion, it.leftover)).collect(),
            ..Self::default()
        }
    }

    /// An occasion has come; the crash that is planned at it.
    pub(super) fn comes(&mut self, site: Site, step: Option<Step>) -> Option<Leftover> {
        self.step = step.or(self.step);
        let number = self.seen.len();
        if site == Site::Task {
            self.task = Some(number);
        }
        self.seen.push(Occasion {
            site,
            step: self.step,
            effects: u32::from(site != Site::Task),
        });
        self.planned.get(&number).copied()
    }

    /// The task under way has ended, with so many durable effects.
    pub(super) fn task_ended(&mut self, effects: u32) {
        if let Some(task) = self.task.take() {
            self.seen[task].effects = effects;
        }
    }
}
