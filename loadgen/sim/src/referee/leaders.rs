//! Referee 13: nobody changes a cluster's configuration while another agent may lead it (SYNC-6).
//!
//! What counts is when an agent asked to write the Lease, of those writes that it was told of. From then on it may begin
//! something for as long as a renewal is good, and must have ended it when the Lease is over; no other may do anything
//! before. All agents of a cluster are judged by one monotonic clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_core::limits::Limits;
use agent_core::time::Monotonic;

use super::Bench;
use crate::trace::Event;

/// Who has held the Lease of each cluster, and since when as they know it.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaders {
    asked: BTreeMap<usize, Monotonic>,
    held: BTreeMap<usize, BTreeMap<usize, Monotonic>>,
    /// Under which renewal an agent has begun what it is at. It cannot be cancelled; a Lease that is lost meanwhile (a
    /// cluster that was restored has another one) does not shorten the time for it.
    begun_under: BTreeMap<usize, Monotonic>,
}

impl Leaders {
    pub(super) fn see(
        &mut self,
        (cluster, agent): (usize, usize),
        limits: &Arc<Limits>,
        event: &Event,
        bench: &mut Bench<'_>,
    ) {
        let now = bench.now.monotonic;
        match event {
            Event::LeaseAsked { writes: true } => {
                self.asked.insert(agent, now);
            }
            Event::LeaseWritten => {
                if let Some(asked) = self.asked.remove(&agent) {
                    self.held.entry(cluster).or_default().insert(agent, asked);
                }
            }
            Event::LeaseLost | Event::Booted(_) => {
                self.asked.remove(&agent);
                self.held.entry(cluster).or_default().remove(&agent);
            }
            Event::Began(began) if began.changes_cluster => {
                let own = self.held.get(&cluster).and_then(|held| held.get(&agent));
                let own = own.copied();
                match own {
                    Some(since) => self.begun_under.insert(agent, since),
                    None => self.begun_under.remove(&agent),
                };
                let breach = self.breach(cluster, agent, own, limits, now).or_else(|| {
                    let since = own?;
                    let ends = since.plus_ms(limits.lease_renew_ms_max);
                    (now >= ends).then(|| {
                        let work = &began.record.work;
                        format!("{work} begins, and the last renewal began longer ago than it may")
                    })
                });
                bench.judge(13, breach);
            }
            Event::Ended {
                began,
                succeeded: true,
            } if began.changes_cluster => {
                let own = self.begun_under.remove(&agent);
                let breach = self.breach(cluster, agent, own, limits, now);
                bench.judge(13, breach);
            }
            _ => {}
        }
    }

    fn breach(
        &self,
        cluster: usize,
        agent: usize,
        own: Option<Monotonic>,
        limits: &Limits,
        now: Monotonic,
    ) -> Option<String> {
        let none = BTreeMap::new();
        let held = self.held.get(&cluster).unwrap_or(&none);
        let lasts = |since: &Monotonic| now < since.plus_ms(limits.lease_ms);
        let Some(own) = own else {
            return Some("changes the cluster, and does not hold the Lease".to_owned());
        };
        if !lasts(&own) {
            return Some("changes the cluster after the end of its own Lease".to_owned());
        }
        let another = held
            .iter()
            .find(|(other, since)| **other != agent && lasts(since));
        another.map(|_| "changes the cluster while the Lease of another agent lasts".to_owned())
    }
}
