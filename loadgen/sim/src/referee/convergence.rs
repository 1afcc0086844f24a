//! Referee 10: once nothing goes wrong any more, an agent reaches the document that the portal wants.
//!
//! When that was, and what the portal wants, only the world knows, and says it once the run is over ([`Peace`]). What is kept
//! of an agent is when it reached its generation, until when it waits for the portal's word, and whether it is idle.

use std::sync::Arc;

use agent_core::limits::Limits;
use agent_core::machine::{Wake, WakeReason};
use agent_core::pbx::durable::Durable;
use agent_core::time::Monotonic;
use protocol::id::Generation;

use super::Bench;
use crate::trace::Event;

/// What is expected of an agent that is reachable and whose node is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peace {
    /// Since when nothing goes wrong at it and the portal wants this generation.
    pub since: Monotonic,
    /// The generation that the portal wants.
    pub wanted: Generation,
    /// How long what its node is at, and what it has to do first, may take by the model, in milliseconds.
    pub modelled_ms: u64,
}

/// How far one agent has come.
#[derive(Debug, Clone)]
pub(super) struct Convergence {
    limits: Arc<Limits>,
    /// The generation that was in force last, and since when.
    reached: Option<(Generation, Monotonic)>,
    /// The latest moment until which the portal has told it to wait (ANS-7).
    told_until: Monotonic,
    is_idle: bool,
}

impl Convergence {
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        Self {
            limits,
            reached: None,
            told_until: Monotonic::default(),
            is_idle: false,
        }
    }

    pub(super) fn see(&mut self, event: &Event, now: Monotonic) {
        match event {
            Event::Booted(durable) => {
                // A new start knows nothing of what the one before was told.
                self.told_until = now;
                self.stored(durable, now);
            }
            Event::Stored(durable) => self.stored(durable, now),
            Event::Waits(Some(Wake {
                at,
                why: WakeReason::PortalsWord { .. },
            })) => self.told_until = *at,
            _ => {}
        }
    }

    fn stored(&mut self, durable: &Durable, now: Monotonic) {
        self.is_idle = durable.idle.is_some();
        let generation = durable.applied_generation;
        let is_new = self.reached.is_none_or(|(before, _)| before != generation);
        if durable.in_force && is_new {
            self.reached = Some((generation, now));
        }
    }

    /// The verdict at the end of a run. One whose time is not over yet is not judged, nor is one that is idle.
    pub(super) fn judge(&self, peace: &Peace, bench: &mut Bench<'_>) {
        let Peace {
            since,
            wanted,
            modelled_ms,
        } = *peace;
        if self.is_idle {
            return;
        }
        // 330 s: a call may have failed just before, and after the longest backoff the next sync may be an interval away.
        let limits = &self.limits;
        let due = (since.max(self.told_until))
            .plus_ms(limits.backoff_ms_max + limits.sync_interval_ms + modelled_ms);
        let reached = self.reached.filter(|(generation, _)| *generation >= wanted);
        let breach = match reached {
            Some((_, at)) => (at > due).then(|| format!("was reached at {}", at.as_ms())),
            None if bench.now.monotonic > due => Some("is not reached".to_owned()),
            None => return,
        };
        bench.judge(
            10,
            breach.map(|what| {
                format!(
                    "generation {wanted} {what}, and nothing has stood in its way since {}",
                    since.as_ms()
                )
            }),
        );
    }
}
