//! Nodes by the dozen: a population that differs only in what is drawn for each node.

use std::ops::Range;
use std::sync::Arc;

use agent_core::limits::Limits;
use agent_core::pbx::Agent;
use agent_core::pbx::facts::{BootFacts, Config};
use agent_core::port::Watch;
use agent_core::time::Monotonic;
use portal_core::ControlError;
use portal_core::control::TokensInput;
use protocol::hash::Sha256Hex;
use protocol::id::{AgentVersion, Arch, ClusterId, EntryName, NodeName, ServerId};
use protocol::pbx::sync::BootReport;
use protocol::sign::VerifyingKey;
use protocol::verified::ReleaseKeys;

use super::chance::{Chance, Purpose, Spread};
use super::{NewMember, Simulation};
use crate::clock::NodeClock;
use crate::host::{Costs, Quirks, Server};

/// Nodes that are alike.
#[derive(Debug, Clone)]
pub struct Nodes {
    /// What their clusters and they are called: letters and digits, another for each population of a simulation.
    pub name: &'static str,
    /// How many.
    pub count: u32,
    /// How many share a cluster.
    pub servers_per_cluster: u32,
    /// Over how long their first starts are spread, in milliseconds.
    pub arrival_ms: u64,
    /// How far their wall clocks are off at most, in milliseconds, to either side.
    pub clock_offset_ms_max: u64,
    /// How fast their wall clocks drift at most, in millionths, to either side.
    pub clock_drift_ppm_max: u64,
    /// The numbers of their agents' behaviour.
    pub limits: Arc<Limits>,
    /// How long things take on them.
    pub costs: Arc<Costs>,
    /// What is wrong with them.
    pub quirks: Arc<Quirks>,
}

impl Nodes {
    /// So many nodes, each a cluster of its own, with right clocks, that arrive within their first half minute.
    pub fn new(count: u32) -> Self {
        Self {
            name: "sim",
            count,
            servers_per_cluster: 1,
            arrival_ms: 30_000,
            clock_offset_ms_max: 0,
            clock_drift_ppm_max: 0,
            limits: Arc::new(Limits::REAL),
            costs: Arc::default(),
            quirks: Arc::default(),
        }
    }

    /// Brings them into a simulation, each with a token of its portal; answers their numbers there.
    ///
    /// # Errors
    /// What the portal says when it makes no tokens for them.
    pub fn join<W: Watch<Agent>>(
        &self,
        simulation: &mut Simulation<W>,
        mut watch: impl FnMut(usize, &NewMember) -> W,
    ) -> Result<Range<usize>, ControlError> {
        let (made, _) = simulation.control().make_tokens(&TokensInput {
            cluster_id: ClusterId::new(format!("clu_{}", self.name))
                .expect("letters, digits and an underscore are an ID"),
            node_name: NodeName::new(format!("{}-node", self.name))
                .expect("letters, digits and a hyphen are a name"),
            server_id: None,
            boot_image_sha256: None,
            expires_in_seconds: None,
            count: Some(self.count),
            first: None,
            servers_per_cluster: Some(self.servers_per_cluster),
        })?;
        let release_keys = Arc::new(release_keys(simulation));
        let first = simulation.members();
        for token in made.tokens {
            let config = Config {
                cluster_id: token.cluster_id,
                node_name: token.node_name,
                token: Some(token.token),
            };
            let member = self.member(simulation, config, &release_keys);
            let watch = watch(simulation.members(), &member);
            simulation.add(member, watch);
        }
        Ok(first..simulation.members())
    }

    fn member<W>(
        &self,
        simulation: &Simulation<W>,
        config: Config,
        release_keys: &Arc<ReleaseKeys>,
    ) -> NewMember {
        let settings = &simulation.settings;
        let number = simulation.lives.len() as u64;
        let mut chance = Chance::new(settings.seed, number, Purpose::Node);
        let mut off = |most: u64| {
            let drawn = chance.within(Spread::new(0, 2 * most));
            drawn.cast_signed() - most.cast_signed()
        };
        let (offset_ms, drift_ppm) = (off(self.clock_offset_ms_max), off(self.clock_drift_ppm_max));
        let agent_version = AgentVersion::new("1.4.0").expect("digits and dots are a version");
        let server = Server {
            node: config.node_name.clone(),
            id: ServerId(number + 1),
            boot: BootReport {
                image_sha256: Sha256Hex::of(b"the image of every simulated node"),
                entry: EntryName::new("pbx-2026.11.1-amd64.efi").expect("a name of plain letters"),
            },
            k3s_version: "v1.34.1+k3s1".to_owned(),
            costs: Arc::clone(&self.costs),
            key_seed: chance.draw(),
            agent_version: agent_version.clone(),
            quirks: Arc::clone(&self.quirks),
        };
        NewMember {
            facts: BootFacts {
                config,
                agent_version,
                rolled_back_from: None,
                arch: Arch::Amd64,
                limits: Arc::clone(&self.limits),
                release_keys: Arc::clone(release_keys),
            },
            server,
            clock: NodeClock::wrong(settings.started_at, offset_ms, drift_ppm),
            starts_at: Monotonic::from_ms(chance.within(Spread::new(0, self.arrival_ms))),
        }
    }
}

/// The keys that the portal signs its releases with.
fn release_keys<W>(simulation: &Simulation<W>) -> ReleaseKeys {
    let public = simulation.portal.settings().release_key.public();
    let key = VerifyingKey::parse(&public).expect("a key that was made from a seed is not weak");
    ReleaseKeys::new([key]).expect("one key is not too many")
}
