//! Who the agents are: everything about a member that comes from the seed, its population and its index.
//!
//! The same seed and index give the same keys, numbers and draws in every run and in every shard, so a second run with the
//! same tokens gets the same identities (ENR-10), and a part of a fleet is the same part wherever it runs.

use std::sync::Arc;

use portal_core::control::TokenLine;
use protocol::hash::Sha256Hex;
use protocol::id::{ClusterId, EnrollmentToken, NodeName, ServerId};
use record::result::IndexRange;
use scenario::Population;

use crate::identities::Kept;

/// Where the chance of one member comes from.
#[derive(Debug, Clone)]
pub struct Lineage {
    seed: u64,
    population: Arc<str>,
    index: u64,
}

/// What is derived; each purpose has its own value, so that one more of them changes no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The engine's seed at its so many-th start, from 0.
    Boot(u32),
    /// What the node's keys are made from.
    Keys,
    /// The server's number at its provider.
    ServerId,
    /// The hash of the boot image.
    BootImage,
    /// Which steps fail, and what they cost.
    Node,
    /// How far the clock is off.
    ClockOffset,
    /// How fast it drifts.
    ClockDrift,
    /// How long it takes from power on to the agent's so many-th start.
    BootTime(u32),
    /// When it crashes.
    CrashMoment,
    /// What a crash leaves of what was under way.
    CrashLeaves,
}

/// 32 derived bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Derived(Sha256Hex);

impl Lineage {
    /// Of member `index` of a population.
    pub fn new(seed: u64, population: &str, index: u64) -> Self {
        Self {
            seed,
            population: population.into(),
            index,
        }
    }

    /// The value of a purpose: SHA-256 over seed, population, index and purpose as text, a line each.
    pub fn derive(&self, purpose: Purpose) -> Derived {
        let purpose = match purpose {
            Purpose::Boot(boot) => format!("boot {boot}"),
            Purpose::Keys => "keys".to_owned(),
            Purpose::ServerId => "server id".to_owned(),
            Purpose::BootImage => "boot image".to_owned(),
            Purpose::Node => "node".to_owned(),
            Purpose::ClockOffset => "clock offset".to_owned(),
            Purpose::ClockDrift => "clock drift".to_owned(),
            Purpose::BootTime(boot) => format!("boot time {boot}"),
            Purpose::CrashMoment => "crash moment".to_owned(),
            Purpose::CrashLeaves => "crash leaves".to_owned(),
        };
        let Self {
            seed,
            population,
            index,
        } = self;
        let text = format!("fleet member\n{seed}\n{population}\n{index}\n{purpose}\n");
        Derived(Sha256Hex::of(text.as_bytes()))
    }
}

impl Derived {
    /// As a number.
    pub fn number(&self) -> u64 {
        let bytes = self.0.as_bytes();
        u64::from_be_bytes(std::array::from_fn(|at| bytes[at]))
    }

    /// As a fraction: at least 0, below 1.
    pub fn fraction(&self) -> f64 {
        // 53 bits are what a double holds exactly.
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// As a hash.
    pub fn hash(&self) -> Sha256Hex {
        self.0
    }
}

/// One agent and its node, before anything has happened to them.
#[derive(Debug, Clone)]
pub struct Member {
    /// Where its chance comes from.
    pub lineage: Lineage,
    /// Its place in the population.
    pub index: u64,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its name.
    pub node: NodeName,
    /// Its server's number.
    pub server_id: ServerId,
    /// What its server booted.
    pub boot_image: Sha256Hex,
    /// What it may enroll with; none where it has an identity.
    pub token: Option<EnrollmentToken>,
    /// What its keys are made from.
    pub key_seed: u64,
    /// Where its identity is kept; none where it ends with the run.
    pub kept: Option<Arc<Kept>>,
}

impl Member {
    /// Member `index` of a population, as its token says.
    pub fn new(seed: u64, population: &Population, index: u64, token: TokenLine) -> Self {
        let lineage = Lineage::new(seed, &population.name, index);
        // Numbers of servers that JSON readers of every kind can hold.
        let server_id = || ServerId((lineage.derive(Purpose::ServerId).number() >> 24) + 1);
        let boot_image = || lineage.derive(Purpose::BootImage).hash();
        Self {
            index,
            cluster: token.cluster_id,
            node: token.node_name,
            server_id: token.server_id.unwrap_or_else(server_id),
            boot_image: token.boot_image_sha256.unwrap_or_else(boot_image),
            token: Some(token.token),
            key_seed: lineage.derive(Purpose::Keys).number(),
            kept: None,
            lineage,
        }
    }
}

/// The agents of part `part` of `parts` of a fleet, by population: its clusters, in the order of the scenario, are split
/// evenly, and none of them is.
pub fn split(populations: &[Population], part: u64, parts: u64) -> Vec<IndexRange> {
    let all: u64 = populations.iter().map(Population::clusters).sum();
    let border = |part: u64| all * part / parts.max(1);
    let mut before = 0;
    let mut ranges = Vec::new();
    for population in populations {
        let clusters = population.clusters();
        let index = |border: u64| {
            let cluster = border.saturating_sub(before).min(clusters);
            (cluster * population.servers_per_cluster).min(population.count)
        };
        let (first, end) = (index(border(part)), index(border(part + 1)));
        ranges.push(IndexRange {
            first,
            count: end - first,
        });
        before += clusters;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_seed_population_index_and_purpose_has_its_own_value() {
        let mut seen = BTreeSet::new();
        let purposes = [
            Purpose::Boot(0),
            Purpose::Boot(1),
            Purpose::Keys,
            Purpose::ServerId,
            Purpose::BootImage,
            Purpose::Node,
            Purpose::ClockOffset,
            Purpose::ClockDrift,
            Purpose::BootTime(0),
            Purpose::BootTime(1),
            Purpose::CrashMoment,
            Purpose::CrashLeaves,
        ];
        for seed in [1, 2] {
            for population in ["nodes", "others"] {
                for index in [0, 1, 11] {
                    for purpose in purposes {
                        let derived = Lineage::new(seed, population, index).derive(purpose);
                        assert!(
                            seen.insert(derived.number()),
                            "{seed} {population} {index} {purpose:?}"
                        );
                        assert_eq!(
                            Lineage::new(seed, population, index).derive(purpose),
                            derived
                        );
                    }
                }
            }
        }
    }

    // A change of the derivation is a change of every fleet that was ever run: its identities would be lost.
    #[test]
    fn the_derivation_does_not_change() {
        let derived = Lineage::new(1, "nodes", 7).derive(Purpose::Keys);
        let expected = Sha256Hex::of(b"fleet member\n1\nnodes\n7\nkeys\n");
        assert_eq!(derived.hash(), expected);
    }

    #[test]
    fn fractions_are_spread_over_the_whole_range() {
        let fractions: Vec<f64> = (0..1000)
            .map(|index| {
                Lineage::new(1, "nodes", index)
                    .derive(Purpose::CrashMoment)
                    .fraction()
            })
            .collect();
        assert!(fractions.iter().all(|f| (0.0..1.0).contains(f)));
        for tenth in 0..10 {
            let low = f64::from(tenth) / 10.0;
            let count = fractions
                .iter()
                .filter(|f| (low..low + 0.1).contains(f))
                .count();
            assert!(
                (60..140).contains(&count),
                "{count} of 1000 in [{low}, +0.1)"
            );
        }
    }

    // Whole clusters, each agent once, and no part larger than another by more than a cluster.
    #[test]
    fn parts_of_a_fleet_are_whole_clusters_and_all_of_it() {
        let text = "name = \"s\"\nduration = \"2s\"\n[[population]]\nname = \"a\"\ncount = 7\nservers_per_cluster = 3\n\
                    [[population]]\nname = \"b\"\ncount = 8\n[[expect]]\nenrolled = { exactly = \"all\" }\n";
        let populations = scenario::Scenario::parse("s.toml", text)
            .unwrap()
            .populations;
        let shown = |part, parts| {
            let ranges = split(&populations, part, parts);
            ranges
                .iter()
                .map(|r| (r.first, r.count))
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(0, 1), [(0, 7), (0, 8)]);
        assert_eq!(shown(0, 2), [(0, 7), (0, 2)]);
        assert_eq!(shown(1, 2), [(7, 0), (2, 6)]);
        for parts in 1..=11 {
            let mut next = [0, 0];
            for part in 0..parts {
                let ranges = split(&populations, part, parts);
                let clusters: u64 = populations
                    .iter()
                    .zip(&ranges)
                    .map(|(population, range)| range.count.div_ceil(population.servers_per_cluster))
                    .sum();
                assert!(clusters.abs_diff(11 / parts) <= 1, "{parts}: {clusters}");
                for (next, range) in next.iter_mut().zip(ranges) {
                    assert_eq!(range.first, *next);
                    *next = range.end();
                }
            }
            assert_eq!(next, [7, 8], "{parts}");
        }
    }
}
