//! Herds: what a fleet asks of its portal in the seconds after everybody was kept away from it at once.
//!
//! The bounds follow from the agents' published pace (SYNC-1, SYNC-10, ANS-8) and from how many agents there are, not from
//! what was seen: a peak is what a second brings that waits of that length spread over, and as much above it as chance does
//! with so few agents.

use agent_core::machine::{Action, Input};
use agent_core::pbx::Agent;
use agent_core::port::Watch;
use agent_core::time::{Monotonic, Now};
use fleet_sim::simulation::{Nodes, Settings, Simulation, Spread, Trouble, Troubles};
use protocol::pbx::call::{AnswerBody, Reply, Request};

const AGENTS: u32 = 600;
/// Syncs a second of a fleet that nobody disturbs.
const CALM: f64 = AGENTS as f64 / 30.0;
/// Everybody has enrolled and syncs by then, each at its own time.
const SETTLED_SECONDS: u64 = 300;
/// The busiest second of minutes that are calm, as a multiple of the mean one: the rest is chance.
const CALM_MAX: f64 = 2.5;
/// How long a call may go on that nobody answers.
const CALL_SECONDS_MAX: i32 = 10;

/// When an agent has asked for a sync, and when one came back, in milliseconds.
#[derive(Default)]
struct Syncs {
    asked: Vec<u64>,
    answered: Vec<u64>,
}

impl Watch<Agent> for Syncs {
    fn action(&mut self, now: Now, action: &Action<Agent>) {
        if let Action::Call(_, call) = action
            && let Request::Sync(_) = &call.request
        {
            self.asked.push(now.monotonic.as_ms());
        }
    }

    fn input(&mut self, now: Now, input: &Input<Agent>) {
        if let Input::Reply(_, Ok(Reply::Done(AnswerBody::Sync(_)))) = input {
            self.answered.push(now.monotonic.as_ms());
        }
    }
}

/// A fleet, and when it was let go.
struct Fleet {
    simulation: Simulation<Syncs>,
    freed: u64,
}

impl Fleet {
    /// One that nobody has disturbed yet.
    fn settled() -> Self {
        let settings = Settings {
            boot_ms: Spread::new(3_000, 4_000),
            ..Settings::new(1)
        };
        let portal = settings.portal();
        let mut simulation = Simulation::new(settings, portal);
        let nodes = Nodes::new(AGENTS);
        nodes
            .join(&mut simulation, |_, _| Syncs::default())
            .unwrap();
        let mut fleet = Self {
            simulation,
            freed: SETTLED_SECONDS,
        };
        fleet.run_until(SETTLED_SECONDS);
        fleet
    }

    fn run_until(&mut self, second: u64) {
        let moment = Monotonic::from_ms(second * 1_000);
        self.simulation.run_until(moment).unwrap();
    }

    /// Nobody reaches the portal for so long.
    fn outage(&mut self, seconds: u64) {
        self.freed += seconds;
        let end = Monotonic::from_ms(self.freed * 1_000);
        let nobody = Troubles::until(end).with(Trouble::Unreachable, 1_000_000);
        self.simulation.set_troubles(nobody);
        self.run_until(self.freed);
    }

    /// The power of all of them is cut, and comes back within one second.
    fn power_cut(&mut self) {
        for member in 0..self.simulation.members() {
            self.simulation.crash(member);
        }
        self.freed += 4;
        self.run_until(self.freed);
    }

    fn all(&self) -> impl Iterator<Item = &Syncs> {
        (0..self.simulation.members()).map(|member| self.simulation.watch(member))
    }

    /// The busiest of these seconds after it was let go, as a multiple of a calm one.
    fn peak(&self, seconds: std::ops::Range<u64>) -> f64 {
        let mut counts = vec![0_u32; usize::try_from(seconds.end - seconds.start).unwrap()];
        let first = self.freed + seconds.start;
        for asked in self.all().flat_map(|syncs| &syncs.asked) {
            let second = (asked / 1_000).checked_sub(first).map(usize::try_from);
            if let Some(count) = second.and_then(|at| counts.get_mut(at.unwrap())) {
                *count += 1;
            }
        }
        f64::from(counts.into_iter().max().unwrap()) / CALM
    }

    /// How long after it was let go each agent synced, in seconds, the last of them last.
    fn recovery(&self) -> Vec<f64> {
        let freed = self.freed * 1_000;
        let mut waits: Vec<f64> = self
            .all()
            .map(|syncs| {
                let next = syncs.answered.iter().find(|at| **at >= freed);
                (next.expect("each of them syncs again") - freed) as f64 / 1_000.0
            })
            .collect();
        waits.sort_by(f64::total_cmp);
        waits
    }
}

// case L38: an outage brings no herd back: the longer it was, the wider is what the agents wait, and so their return.
#[test]
fn after_an_outage_nobody_comes_back_together() {
    // How long it was; the highest peak of the minute after it; the backoff that failures of that length come to (10 s,
    // doubled with each, at most 5 min). After a short outage all are back within half a minute, and their syncs are on top.
    let rows = [(30, 3.5, 40), (300, 1.0, 300), (3_600, 1.0, 300)];
    std::thread::scope(|scope| {
        for (outage_seconds, peak_max, backoff_seconds) in rows {
            scope.spawn(move || {
                let mut fleet = Fleet::settled();
                fleet.outage(outage_seconds);
                fleet.run_until(fleet.freed + 600);
                let peak = fleet.peak(0..60);
                assert!(peak <= peak_max, "{outage_seconds} s: {peak}");
                let echo = fleet.peak(120..600);
                assert!(echo <= CALM_MAX, "{outage_seconds} s: {echo}");
                // Who has not failed yet by the end of it may do so once more, in a call that nobody answers.
                let longest = fleet.recovery().pop().unwrap();
                let most = f64::from(backoff_seconds + CALL_SECONDS_MAX);
                assert!(longest <= most, "{outage_seconds} s: {longest} s");
            });
        }
    });
}

// case L38: nor does a power cut, although all of them start within one second.
#[test]
fn when_the_power_returns_nobody_comes_back_together() {
    let mut fleet = Fleet::settled();
    fleet.power_cut();
    fleet.run_until(fleet.freed + 600);
    for seconds in [0..30, 30..60, 60..600] {
        let peak = fleet.peak(seconds.clone());
        assert!(peak <= CALM_MAX, "{seconds:?}: {peak}");
    }
}
