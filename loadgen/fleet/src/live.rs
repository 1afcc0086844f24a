//! The life of one member: it begins when its arrival says so, runs its agent over its simulated node, crashes if it is to
//! crash, boots again, and ends with the run.
//!
//! The agent is the engine that runs on nodes, the way to the portal the one transport. Only the node is a model.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::limits::Limits;
use agent_core::pbx::Agent;
use agent_core::pbx::facts::{BootFacts, Config};
use agent_core::port::Clock as _;
use agent_core::seed::Seed;
use agent_core::time::Monotonic;
use agent_drive::{Driver, Ended, HttpPortal, Spoken, SystemClock, Transport, World};
use fleet_sim::cluster::SimCluster;
use fleet_sim::disk::InFlight;
use fleet_sim::host::{Costs, Fall, Leftover, Server, SimHost};
use protocol::id::{AgentVersion, Arch, ClusterId, EntryName, ReleaseVersion};
use protocol::pbx::sync::BootReport;
use protocol::verified::ReleaseKeys;
use record::series::Gauge;
use scenario::Population;
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::node::{CrashLeaves, Node};
use crate::population::{Lineage, Member, Purpose};
use crate::shelf::{Shelf, Shelved};
use crate::tally::Place;

/// The k3s on simulated nodes.
pub(crate) const K3S_VERSION: &str = "v1.34.1+k3s1";

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Agents live.
    Running,
    /// Nothing new is begun; calls under way end.
    Ending,
}

/// Whether arrivals go on, and by how much they are later than planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrivals {
    /// Since when they are held, from the start of the run; none while they go on.
    pub held_since: Option<Duration>,
    /// How long they were held before.
    pub shift: Duration,
}

impl Arrivals {
    /// They are held from a moment on, or go on where they stood.
    pub fn hold(&mut self, are_held: bool, at: Duration) {
        match (are_held, self.held_since) {
            (true, None) => self.held_since = Some(at),
            (false, Some(since)) => {
                self.shift += at.saturating_sub(since);
                self.held_since = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Waits for an arrival, for which time stands still while arrivals do; tells when it was due.
    async fn wait(
        mut arrivals: watch::Receiver<Self>,
        clock: SystemClock,
        planned: Duration,
    ) -> Duration {
        loop {
            let Arrivals { held_since, shift } = *arrivals.borrow_and_update();
            tokio::select! {
                biased;
                Ok(()) = arrivals.changed() => {}
                () = at(clock, planned + shift), if held_since.is_none() => return planned + shift,
                else => pending().await,
            }
        }
    }
}

/// Waits for a moment, from the start of the run.
async fn at(clock: SystemClock, moment: Duration) {
    let ms = u64::try_from(moment.as_millis()).unwrap_or(u64::MAX);
    clock.sleep_until(Monotonic::from_ms(ms)).await;
}

/// What the members of a population share.
#[derive(Debug, Clone)]
pub struct Home {
    /// The population.
    pub population: Arc<Population>,
    /// How long the run is.
    pub duration: Duration,
    /// The numbers of its agents' behaviour, at its tempo.
    pub limits: Arc<Limits>,
    /// What its nodes cost, at its tempo.
    pub costs: Arc<Costs>,
    /// The way to the portal.
    pub transport: Transport,
    /// The names that it speaks by.
    pub spoken: Spoken,
    /// The run's clock.
    pub clock: SystemClock,
    /// The keys that count for releases.
    pub release_keys: Arc<ReleaseKeys>,
    /// The manifests that its agents hold.
    pub shelf: Shelf,
    /// What its agents say they are.
    pub agent_version: AgentVersion,
    /// The release that its nodes have booted.
    pub release: ReleaseVersion,
    /// How far the run is.
    pub stage: watch::Receiver<Stage>,
    /// Whether arrivals go on.
    pub arrivals: watch::Receiver<Arrivals>,
}

/// The simulated clusters, each made when its first server comes.
#[derive(Debug, Default)]
pub struct Clusters(HashMap<ClusterId, Arc<Mutex<SimCluster>>>);

impl Clusters {
    /// A cluster.
    pub fn of(&mut self, id: &ClusterId) -> Arc<Mutex<SimCluster>> {
        Arc::clone(self.0.entry(id.clone()).or_default())
    }
}

impl Home {
    /// A clock as wrong as this member's node has it.
    fn clock_of(&self, member: &Member) -> SystemClock {
        let node = &self.population.node;
        let drift = member.lineage.derive(Purpose::ClockDrift).fraction();
        self.clock.with_wall(
            offset_ms(&member.lineage, &self.population),
            node.clock_drift_ppm.at(drift),
        )
    }

    /// How long it takes from power on to the agent's start.
    fn boot_time(&self, member: &Member, boot: u32) -> Duration {
        let draw = member.lineage.derive(Purpose::BootTime(boot)).fraction();
        let real = self.population.node.boot_time.at(draw);
        real.mul_f64(self.population.tempo)
    }

    /// When the member crashes, if it does: spread over what is left of the run when it begins.
    fn crash_moment(&self, member: &Member) -> Option<Duration> {
        let crashes = self.population.node.crash_share.takes(member.index);
        let begins = self.population.start_of(member.index);
        crashes.then(|| {
            let draw = member.lineage.derive(Purpose::CrashMoment).fraction();
            begins + self.duration.saturating_sub(begins).mul_f64(draw)
        })
    }

    fn node(&self, member: &Arc<Member>, cluster: Arc<Mutex<SimCluster>>) -> Node {
        let server = Server {
            node: member.node.clone(),
            id: member.server_id,
            boot: BootReport {
                image_sha256: member.boot_image,
                entry: boot_entry(&self.release),
            },
            k3s_version: K3S_VERSION.to_owned(),
            costs: Arc::clone(&self.costs),
            key_seed: member.key_seed,
            agent_version: self.agent_version.clone(),
            quirks: Arc::default(),
        };
        let clock = self.clock_of(member);
        let mut host = SimHost::new(server, cluster);
        if let Some(kept) = &member.kept {
            kept.furnish(&mut host, clock.now().monotonic)
                .expect("it was tried on another node before the run");
        }
        Node::new(host, Arc::clone(member), clock, self.costs.file_ms)
    }

    fn facts(&self, member: &Member, node: &Node) -> BootFacts {
        let token = match node.has_dropped_token() {
            true => None,
            false => member.token.clone(),
        };
        BootFacts {
            config: Config {
                cluster_id: member.cluster.clone(),
                node_name: member.node.clone(),
                token,
            },
            agent_version: node.agent_version(),
            rolled_back_from: node.rolled_back_from(),
            arch: Arch::Amd64,
            limits: Arc::clone(&self.limits),
            release_keys: Arc::clone(&self.release_keys),
        }
    }

    async fn ending(&self) {
        let mut stage = self.stage.clone();
        // Whoever could say so being gone is the end as well.
        let _ = stage.wait_for(|stage| *stage == Stage::Ending).await;
    }

    async fn at(&self, moment: Duration) {
        at(self.clock, moment).await;
    }

    /// Waits for a moment; tells whether the run has not ended before.
    async fn lives_until(&self, moment: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.ending() => false,
            () = self.at(moment) => true,
        }
    }

    /// Waits for a member's arrival; tells when it was due, and nothing if the run has ended before.
    async fn arrives(&self, planned: Duration) -> Option<Duration> {
        tokio::select! {
            biased;
            () = self.ending() => None,
            due = Arrivals::wait(self.arrivals.clone(), self.clock, planned) => Some(due),
        }
    }

    fn since_start(&self) -> Duration {
        Duration::from_millis(self.clock.now().monotonic.as_ms())
    }
}

/// How far the clock of a member's node is off at the start.
pub(crate) fn clock_offset_ms(seed: u64, population: &Population, index: u64) -> i64 {
    offset_ms(&Lineage::new(seed, &population.name, index), population)
}

fn offset_ms(lineage: &Lineage, population: &Population) -> i64 {
    let draw = lineage.derive(Purpose::ClockOffset).fraction();
    population.node.clock_offset_ms.at(draw)
}

/// Waits for a member's arrival and lives its life, to the end of the run. Whoever has not arrived takes little memory.
#[expect(
    clippy::manual_async_fn,
    reason = "what an `async fn` is given takes memory twice, for as long as it runs"
)]
pub fn live(
    home: Arc<Home>,
    member: Arc<Member>,
    cluster: Arc<Mutex<SimCluster>>,
    place: Place,
) -> impl Future<Output = ()> {
    async move {
        let planned = home.population.start_of(member.index);
        if let Some(at) = home.arrives(planned).await {
            place.began();
            Box::pin(life(&home, &member, cluster, &place, at)).await;
        }
    }
}

/// A member's life from its arrival on: one boot after the other.
async fn life(
    home: &Home,
    member: &Arc<Member>,
    cluster: Arc<Mutex<SimCluster>>,
    place: &Place,
    arrived_at: Duration,
) {
    let mut down_at = arrived_at;
    let node = home.node(member, cluster);
    let mut crash = home.crash_moment(member);
    for boot in 0.. {
        let up_at = down_at + home.boot_time(member, boot);
        if !home.lives_until(up_at).await {
            return;
        }
        let place = place.begun_late(home.since_start().saturating_sub(up_at));
        let world = World {
            portal: Shelved {
                portal: HttpPortal::new(
                    &home.transport,
                    home.spoken.clone(),
                    node.clone(),
                    place.clone(),
                ),
                shelf: home.shelf.clone(),
            },
            host: node.clone(),
            store: node.clone(),
            clock: home.clock_of(member),
            watch: place.clone(),
        };
        let seed = Seed(member.lineage.derive(Purpose::Boot(boot)).number());
        let driver = Driver::<Agent, _, _, _, _, _>::boot(
            node.durable(),
            home.facts(member, &node),
            seed,
            world,
        );
        // What it notes is seen with its name, where it is logged at all.
        let span = tracing::error_span!(target: "agent_drive", "agent", node = %member.node);
        let running = Box::pin(driver.run(home.ending()).instrument(span));
        let crashes = async {
            match crash {
                Some(moment) => home.at(moment).await,
                None => pending().await,
            }
        };
        // Dropping what runs is the crash.
        tokio::select! {
            biased;
            ended = running => match ended {
                Ended::Stopped => return,
                Ended::Exited => {}
            },
            () = crashes => {
                crash = None;
                node.crash(crash_leaves(member));
            }
            () = node.goes_down() => {}
            () = node.rolls_back() => {}
        }
        place.moved(Gauge::Down);
        down_at = home.since_start();
    }
}

fn crash_leaves(member: &Member) -> CrashLeaves {
    let draw = member.lineage.derive(Purpose::CrashLeaves).number();
    CrashLeaves {
        task: Leftover {
            effects: match draw % 5 {
                4 => u32::MAX,
                effects => effects as u32,
            },
            fall: Fall::Power,
        },
        write: match draw >> 32 & 1 {
            0 => InFlight::Lost,
            _ => InFlight::Kept,
        },
    }
}

/// The boot entry of a release's image.
pub(crate) fn boot_entry(release: &ReleaseVersion) -> EntryName {
    EntryName::new(format!("pbx-{release}-amd64.efi"))
        .unwrap_or_else(|_| EntryName::new("pbx-amd64.efi").expect("a name of plain letters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn arrivals_that_were_held_go_on_where_they_stood() {
        let seconds = Duration::from_secs;
        let clock = SystemClock::start();
        let (arrivals, _) = watch::channel(Arrivals::default());
        let holds = async {
            for (moment, are_held) in [(2, true), (3, true), (5, false), (20, true)] {
                at(clock, seconds(moment)).await;
                arrivals.send_modify(|arrivals| arrivals.hold(are_held, seconds(moment)));
            }
        };
        let arrived = |planned| {
            let waiting = Arrivals::wait(arrivals.subscribe(), clock, seconds(planned));
            async move {
                let due = waiting.await;
                assert_eq!(clock.now().monotonic.as_ms(), due.as_millis() as u64);
                due.as_secs()
            }
        };
        // Held from 2 to 5: whoever was to come at 1 came, the others come 3 seconds later.
        let (_, first, second, third) = tokio::join!(holds, arrived(1), arrived(3), arrived(10));
        assert_eq!((first, second, third), (1, 6, 13));
        let never = tokio::time::timeout(seconds(1_000), arrived(18));
        assert!(never.await.is_err(), "they are held");
    }
}
