//! Referees: rules that hold in every run, whatever happens in it, judged from outside the machine.
//!
//! Each looks at [`Event`]s, keeps a few words of fixed size for each agent, and counts what it has judged: a referee that
//! judged nothing has shown nothing. [`Referees`] holds them for a part of a fleet; a cluster's agents belong in one part,
//! since one rule is about clusters. What a referee knows, it works out again by itself where it can: bounds come from the
//! numbers of the behaviour ([`Limits`]), not from the machine that is judged.
//!
//! Two need more than a trace shows, and are told once a run is over: 10 when the last fault was ([`Referees::at_peace`]),
//! 11 what the portal has ([`Referees::stored_at_portal`]).

mod convergence;
mod disk;
mod leaders;
mod operations;
mod pace;
mod secrets;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use agent_core::limits::Limits;
use agent_core::machine::{Action, Input, Wake};
use agent_core::pbx::Agent;
use agent_core::pbx::durable::Durable;
use agent_core::time::Now;
use protocol::id::{NodeName, OperationId};
use protocol::verified::ReleaseKeys;
use record::result::{BREACHES_KEPT, RefereeReport};

pub use self::convergence::Peace;
use crate::trace::{Event, Tap};

/// The referees that are here: their numbers, and what each watches over.
pub const NAMES: &[(u8, &str)] = &[
    (1, "no step is performed that is not recorded"),
    (2, "a destructive step starts twice only after NotStarted"),
    (3, "one operation per cluster"),
    (4, "no request is sent again after its third 400"),
    (
        5,
        "a revoked agent sends one probe per boot, a refused token is not sent again",
    ),
    (6, "syncs and waits keep their bounds"),
    (7, "an unverified manifest is followed by no task"),
    (
        8,
        "k3s is stopped and started by operations, and else outside of them and inside the window",
    ),
    (9, "no secret is in any text"),
    (
        10,
        "once nothing goes wrong any more, the document is reached in time",
    ),
    (
        11,
        "the result of an operation that ended reaches the portal",
    ),
    (12, "no signature is used twice within a boot"),
    (
        13,
        "nobody changes a cluster's configuration while another may lead it",
    ),
];

/// What the referees are told about a run.
#[derive(Debug, Clone)]
pub struct Context {
    /// The release keys built into the agents (UPD-4).
    pub release_keys: Arc<ReleaseKeys>,
    /// Secrets in clear that are in the run, to be found in no text.
    pub canaries: Arc<[String]>,
}

impl Context {
    /// A run without agents.
    pub fn of_nobody() -> Self {
        Self {
            release_keys: Arc::new(ReleaseKeys::none()),
            canaries: Arc::from([]),
        }
    }
}

/// The referees of a part of a fleet.
#[derive(Debug, Clone)]
pub struct Referees {
    context: Context,
    agents: Vec<Watched>,
    clusters: operations::Clusters,
    leaders: leaders::Leaders,
    tallies: BTreeMap<u8, Seen>,
}

/// One agent, as the referees know it.
#[derive(Debug, Clone)]
struct Watched {
    node: NodeName,
    cluster: usize,
    disk: disk::Disk,
    pace: pace::Pace,
    convergence: convergence::Convergence,
    results: operations::Results,
    window: window::Window,
}

/// What one referee has seen.
#[derive(Debug, Clone, Default)]
struct Seen {
    judged: u64,
    breaches: u64,
    broken: BTreeSet<String>,
}

/// Where referees put what they find about one event.
struct Bench<'a> {
    /// Where it happened, as a breach says it.
    place: &'a dyn fmt::Display,
    now: Now,
    tallies: &'a mut BTreeMap<u8, Seen>,
}

impl Bench<'_> {
    /// A referee has judged something; `breach` says what is wrong with it, if anything.
    fn judge(&mut self, referee: u8, breach: Option<String>) {
        let seen = self.tallies.entry(referee).or_default();
        seen.judged += 1;
        let Some(breach) = breach else { return };
        seen.breaches += 1;
        if seen.broken.len() < BREACHES_KEPT {
            let at_ms = self.now.monotonic.as_ms();
            seen.broken
                .insert(format!("{} at {at_ms} ms: {breach}", self.place));
        }
    }
}

impl Referees {
    /// Referees of a part of a fleet that has no agents yet.
    pub fn new(context: Context) -> Self {
        Self {
            context,
            agents: Vec::new(),
            clusters: operations::Clusters::default(),
            leaders: leaders::Leaders::default(),
            tallies: BTreeMap::new(),
        }
    }

    /// Takes in the agent of a node; answers its number here. Clusters are numbered by the caller.
    pub fn admit(&mut self, node: NodeName, cluster: usize, limits: Arc<Limits>) -> usize {
        self.agents.push(Watched {
            node,
            cluster,
            disk: disk::Disk::default(),
            pace: pace::Pace::new(Arc::clone(&limits)),
            convergence: convergence::Convergence::new(limits),
            results: operations::Results::default(),
            window: window::Window::default(),
        });
        self.agents.len() - 1
    }

    /// Looks at an event of an agent.
    pub fn see(&mut self, agent: usize, now: Now, event: &Event) {
        let Watched {
            node,
            cluster,
            disk,
            pace,
            convergence,
            results,
            window,
        } = &mut self.agents[agent];
        let mut bench = Bench {
            place: node,
            now,
            tallies: &mut self.tallies,
        };
        disk.see(event, &self.context.release_keys, &mut bench);
        pace.see(event, &mut bench);
        convergence.see(event, now.monotonic);
        results.see(event, &mut bench);
        window.see(event, &mut bench);
        self.clusters.see(*cluster, agent, event, &mut bench);
        let place = (*cluster, agent);
        self.leaders.see(place, pace.limits(), event, &mut bench);
        secrets::see(event, &self.context.canaries, &mut bench);
    }

    /// What is expected of an agent since nothing goes wrong at it any more (referee 10); said once a run is over, of each
    /// agent that is reachable and whose node is well.
    pub fn at_peace(&mut self, agent: usize, now: Now, peace: &Peace) {
        let Watched {
            node, convergence, ..
        } = &self.agents[agent];
        let mut bench = Bench {
            place: node,
            now,
            tallies: &mut self.tallies,
        };
        convergence.judge(peace, &mut bench);
    }

    /// How many final results of an operation the portal has stored; said once for each operation that ended at an agent
    /// whose portal can be asked (referee 11). One whose result is still on its way is not judged.
    pub fn stored_at_portal(&mut self, now: Now, operation: &OperationId, results: u64) {
        if self
            .agents
            .iter()
            .any(|agent| agent.results.wait_for(operation))
        {
            return;
        }
        let mut bench = Bench {
            place: &"the portal",
            now,
            tallies: &mut self.tallies,
        };
        operations::stored_at_portal(operation, results, &mut bench);
    }

    /// Takes over agents and findings of another part of the fleet. No cluster may be in both.
    pub fn append(&mut self, other: Self) {
        self.agents.extend(other.agents);
        for (referee, found) in other.tallies {
            let seen = self.tallies.entry(referee).or_default();
            seen.judged += found.judged;
            seen.breaches += found.breaches;
            seen.broken.extend(found.broken);
            while seen.broken.len() > BREACHES_KEPT {
                seen.broken.pop_last();
            }
        }
    }

    /// What they have seen so far, a report for each referee that is here; `owed` are those that the scenario owes.
    pub fn reports(&self, owed: &BTreeSet<u8>) -> Vec<RefereeReport> {
        let report = |&(number, name): &(u8, &str)| {
            let seen = self.tallies.get(&number).cloned().unwrap_or_default();
            RefereeReport {
                number,
                name: name.to_owned(),
                owed: owed.contains(&number),
                judged: seen.judged,
                breaches: seen.breaches,
                broken: seen.broken,
            }
        };
        NAMES.iter().map(report).collect()
    }
}

/// One agent's way to its referees: a tap that shows them what goes through its machine.
#[derive(Debug, Clone, Default)]
pub struct Seat {
    tap: Tap,
    agent: usize,
}

impl Seat {
    /// The seat of an agent that was admitted.
    pub fn new(agent: usize) -> Self {
        Self {
            tap: Tap::default(),
            agent,
        }
    }

    /// The machine starts from this record.
    pub fn boot(&mut self, now: Now, durable: &Durable, referees: &mut Referees) {
        self.tap
            .boot(durable, |event| referees.see(self.agent, now, &event));
    }

    /// The machine is about to be told this.
    pub fn input(&mut self, now: Now, input: &Input<Agent>, referees: &mut Referees) {
        self.tap
            .input(input, |event| referees.see(self.agent, now, &event));
    }

    /// The machine wants this done.
    pub fn action(&mut self, now: Now, action: &Action<Agent>, referees: &mut Referees) {
        self.tap
            .action(action, |event| referees.see(self.agent, now, &event));
    }

    /// The machine waits for this.
    pub fn wake(&mut self, now: Now, wake: Option<Wake>, referees: &mut Referees) {
        referees.see(self.agent, now, &Event::Waits(wake));
    }
}

#[cfg(test)]
mod tests;
