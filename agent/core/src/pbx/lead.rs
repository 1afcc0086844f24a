//! The lead lane: which of a cluster's agents may change its configuration (SYNC-6).
//!
//! The holder of the Lease leads, and what others think of the time counts for nothing (client-go's rule):
//!
//! - A renewal is a write over the version that was written last; if somebody else has written, the Lease is lost.
//! - Who does not hold it remembers what it saw and since when that has not changed *by its own monotonic clock*, and takes
//!   it only once that is as long as the Lease lasts. An absent Lease is seen for that long as well. A look that failed
//!   begins the time anew, and so does every stop and start of this node's k3s: the cluster may have been restored
//!   meanwhile, for which no server's k3s runs, and what it shows then is what it showed before, whoever has written in
//!   between.
//! - A holder leads until its last write that succeeded *began* longer ago than the deadline of a renewal, which is shorter
//!   than the Lease lasts: it has stopped before another may begin, whatever was slow between the two.
//! - Alone, the only server of its cluster, an agent need not wait for a Lease that is absent or its own of an earlier life.
//!   It holds and renews it all the same, so that a server that joins finds it, but less often: nobody could take over.
//! - What it holds it knows by what it wrote in this life. A Lease that names it and that it did not write is from the past
//!   (a restored cluster's) and expires as anybody's.

use std::sync::Arc;

use protocol::time::Timestamp;

use super::lease::{Holder, Lease, LeaseCall, LeaseReply, ResourceVersion, Servers};
use super::shared::Shared;
use crate::machine::{Deadline, LeaseFailure, Ticket, Wake, WakeReason};
use crate::seed::{Purpose, Seed};
use crate::time::Monotonic;

/// The Lease, as far as this agent knows it.
#[derive(Debug)]
pub(super) struct Lead {
    /// Names this life of the program.
    boot: u64,
    due: Monotonic,
    standing: Standing,
    out: Option<Box<Out>>,
    /// A write that was not answered: it may have been done.
    unanswered: Option<Box<Attempt>>,
    /// The last call failed.
    is_failing: bool,
}

#[derive(Debug)]
enum Standing {
    /// Nothing was seen in this life.
    Unknown,
    /// It is somebody else's, or nobody's; unchanged since.
    Follows {
        seen: Option<Arc<Lease>>,
        since: Monotonic,
    },
    /// It was seen long enough, and is to be taken now.
    Takes {
        seen: Option<Arc<Lease>>,
        since: Monotonic,
    },
    /// It was written, by a call that began then; what tells it from any other is all that is kept of it.
    Holds {
        version: ResourceVersion,
        renewed_at: Timestamp,
        since: Monotonic,
    },
}

/// A call that is out.
#[derive(Debug)]
struct Out {
    ticket: Ticket,
    began: Monotonic,
    /// What it writes, if it does.
    writes: Option<Timestamp>,
}

#[derive(Debug)]
struct Attempt {
    renewed_at: Timestamp,
    began: Monotonic,
}

/// Whether this agent leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leadership {
    /// The Lease was not seen yet.
    Unknown,
    Leads,
    Follows,
}

impl Lead {
    pub(super) fn boot(seed: Seed, shared: &Shared) -> Self {
        Self {
            boot: seed.child(Purpose::Life).draw(),
            due: shared.now.monotonic,
            standing: Standing::Unknown,
            out: None,
            unanswered: None,
            is_failing: false,
        }
    }

    /// Whether this agent leads at this moment.
    pub(super) fn leadership(&self, shared: &Shared) -> Leadership {
        match &self.standing {
            Standing::Unknown => Leadership::Unknown,
            Standing::Holds { since, .. } => {
                let ends = since.plus_ms(shared.facts.limits.lease_renew_ms_max);
                if shared.now.monotonic < ends {
                    Leadership::Leads
                } else {
                    Leadership::Follows
                }
            }
            // What will be known in a moment is not known yet.
            Standing::Takes { .. } if self.is_failing => Leadership::Follows,
            Standing::Takes { .. } => Leadership::Unknown,
            Standing::Follows { .. } => Leadership::Follows,
        }
    }

    /// By when whatever this agent changes as the leader must be done: no other takes the Lease before.
    pub(super) fn must_end(&self, shared: &Shared) -> Option<Deadline> {
        match &self.standing {
            Standing::Holds { since, .. } => {
                Some(Deadline(since.plus_ms(shared.facts.limits.lease_ms)))
            }
            Standing::Unknown | Standing::Follows { .. } | Standing::Takes { .. } => None,
        }
    }

    /// When the Lease is to be asked for again.
    pub(super) fn wake(&self) -> Option<Wake> {
        self.out.is_none().then_some(Wake {
            at: self.due,
            why: WakeReason::Lease,
        })
    }

    /// The API was seen to be up: what it could not answer is asked again.
    pub(super) fn api_is_up(&mut self, shared: &Shared) {
        if self.is_failing && self.out.is_none() {
            self.due = self.due.min(shared.now.monotonic);
        }
    }

    /// The call that is due.
    pub(super) fn call(
        &mut self,
        shared: &Shared,
        ticket: Ticket,
    ) -> Option<(LeaseCall, Deadline)> {
        let (now, limits) = (shared.now.monotonic, &shared.facts.limits);
        if self.out.is_some() || self.due > now {
            return None;
        }
        let over = match &self.standing {
            // What became of an unanswered write is to be seen first.
            _ if self.unanswered.is_some() => None,
            Standing::Unknown | Standing::Follows { .. } => None,
            Standing::Takes { seen, .. } => Some(seen.as_ref().map(|lease| lease.version.clone())),
            // Versions come again in a cluster that was restored, so a Lease of long ago is looked at whole.
            Standing::Holds { .. } if self.leadership(shared) != Leadership::Leads => None,
            Standing::Holds { version, .. } => Some(Some(version.clone())),
        };
        let writes = over.is_some().then(|| shared.time());
        let call = match over {
            None => LeaseCall::Read,
            Some(over) => LeaseCall::Write {
                holder: self.holder(shared)?,
                renewed_at: shared.time(),
                duration_ms: limits.lease_ms,
                over,
            },
        };
        self.out = Some(Box::new(Out {
            ticket,
            began: now,
            writes,
        }));
        Some((call, Deadline(now.plus_ms(limits.lease_call_ms_max))))
    }

    fn holder(&self, shared: &Shared) -> Option<Holder> {
        let identity = shared.journal.identity.as_ref()?;
        Some(Holder {
            agent: identity.agent_id.clone(),
            boot: self.boot,
        })
    }

    /// What the API has said.
    pub(super) fn replied(
        &mut self,
        shared: &Shared,
        ticket: Ticket,
        reply: Result<LeaseReply, LeaseFailure>,
    ) {
        let Some(out) = self.out.take_if(|out| out.ticket == ticket) else {
            return;
        };
        let (now, limits) = (shared.now.monotonic, &shared.facts.limits);
        let wait_ms = match reply {
            Ok(LeaseReply::Written {
                servers: Servers::OnlyThis,
                ..
            }) => limits.lease_alone_ms,
            _ => limits.lease_retry_ms,
        };
        self.due = now.plus_ms(wait_ms);
        let has_failed = std::mem::replace(&mut self.is_failing, reply.is_err());
        match reply {
            Ok(LeaseReply::Read { lease, servers }) => {
                if has_failed {
                    self.see_anew(now);
                }
                self.read(shared, &out, lease, servers);
            }
            Ok(LeaseReply::Written { lease, .. }) => self.hold(&lease, out.began),
            Ok(LeaseReply::Conflict) => {
                // Whose it is now, the next look says; until then it was never seen.
                self.standing = Standing::Follows {
                    seen: None,
                    since: now,
                };
            }
            Err(_) => {
                if let Some(renewed_at) = out.writes {
                    let began = out.began;
                    self.unanswered = Some(Box::new(Attempt { renewed_at, began }));
                }
            }
        }
    }

    /// What was seen before counts no longer: there was a time in which nothing was.
    pub(super) fn see_anew(&mut self, now: Monotonic) {
        if let Standing::Follows { since, .. } | Standing::Takes { since, .. } = &mut self.standing
        {
            *since = now;
        }
    }

    fn hold(&mut self, lease: &Lease, since: Monotonic) {
        self.standing = Standing::Holds {
            version: lease.version.clone(),
            renewed_at: lease.renewed_at,
            since,
        };
    }

    fn read(&mut self, shared: &Shared, out: &Out, lease: Option<Arc<Lease>>, servers: Servers) {
        let now = shared.now.monotonic;
        let attempt = self.unanswered.take();
        let Some(own) = self.holder(shared) else {
            return;
        };
        // The write that was not answered was done: it is this life's own.
        if let (Some(attempt), Some(lease)) = (attempt, &lease)
            && *lease.holder == *own.to_string()
            && lease.renewed_at == attempt.renewed_at
        {
            self.hold(lease, attempt.began);
            return;
        }
        let since = match &self.standing {
            // The last renewal was not done, and nobody else has written either: once more.
            Standing::Holds {
                version,
                renewed_at,
                ..
            } if lease.as_ref().is_some_and(|lease| {
                (&lease.version, lease.renewed_at) == (version, *renewed_at)
                    && *lease.holder == *own.to_string()
            }) =>
            {
                self.due = now;
                if self.leadership(shared) != Leadership::Leads {
                    self.standing = Standing::Takes {
                        seen: lease,
                        since: now,
                    };
                }
                return;
            }
            Standing::Follows { seen, since } | Standing::Takes { seen, since }
                if *seen == lease =>
            {
                *since
            }
            Standing::Unknown
            | Standing::Holds { .. }
            | Standing::Follows { .. }
            | Standing::Takes { .. } => now,
        };
        let unchanged_ms = out.began.since(since).as_millis();
        let has_expired = unchanged_ms >= u128::from(shared.facts.limits.lease_ms);
        let is_nobody_elses = (lease.as_ref()).is_none_or(|lease| own.is_of_same_agent(lease));
        let seen = lease;
        self.standing = if has_expired || servers == Servers::OnlyThis && is_nobody_elses {
            self.due = now;
            Standing::Takes { seen, since }
        } else {
            Standing::Follows { seen, since }
        };
    }
}
