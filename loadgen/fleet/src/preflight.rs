//! What a run needs of its machine, told before it starts; a run that cannot get it does not start.
//!
//! Open files, source ports, memory, processors. A generator that hits its own limits in the middle measures itself. Where
//! one process may not hold all connections, the fleet is split into shards: processes of their own, each with a portal
//! process of its own where the portal is the run's.

use std::net::{IpAddr, Ipv4Addr};

use crate::usage;

/// Open files for everything that is no agent's connection.
const FILES_SPARE: u64 = 200;
/// Memory of a connected agent: engine, node model, HTTP and TLS (measured, docs/benchmarks.md).
const AGENT_BYTES: u64 = 45 * 1024;
/// Memory of a connection at the embedded portal, its agent's records included.
const PORTAL_BYTES: u64 = 45 * 1024;
/// Memory of a process itself: histograms, series, code.
const PROCESS_BYTES: u64 = 96 * 1024 * 1024;
/// Processor time of a sync at least, when there is nothing else to do: the generator's and the portal's (measured,
/// docs/benchmarks.md).
const SYNC_US: u64 = 60;
const PORTAL_SYNC_US: u64 = 70;
/// Connections from one address to one port above which the kernel's search for a free source port gets dear.
const PORTS_A_SOURCE: u64 = 14_000;
/// Loopback addresses that connections can be spread over at most.
const SOURCES_MAX: u64 = 250;
/// The most agents that one process is given where there are several.
const AGENTS_A_SHARD: u64 = 15_000;
/// The most shards.
pub const SHARDS_MAX: u64 = 64;

/// What a run is about to need.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Agents, each with a connection of its own.
    pub agents: u64,
    /// Clusters: a shard never splits one.
    pub clusters: u64,
    /// Syncs a second once all agents are there, at their pace.
    pub syncs_a_second: f64,
    /// Whether the portal is the run's own.
    pub embedded: bool,
    /// Whether the portal is reached over loopback.
    pub loopback: bool,
    /// How many processes the fleet is to be split into.
    pub split: Split,
}

/// Whether a fleet is split into processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// It cannot be.
    Never,
    /// Where one process may not hold all connections.
    AsNeeded,
    /// Into so many.
    Into(u64),
}

/// What the machine offers.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    /// Open files that a process may have.
    pub files: u64,
    /// Memory that is free; none if the kernel does not say.
    pub memory_bytes: Option<u64>,
    /// Processors.
    pub cpus: u64,
}

/// How the run fits into its machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fit {
    /// What is told before the start.
    pub told: Vec<String>,
    /// What is missing; empty if the run can start.
    pub missing: Vec<String>,
    /// Processes that the agents are split into; 0 for the run's own process.
    pub shards: u64,
    /// Addresses that the connections of each shard leave from in turn, none for the system's choice. One shard, where the
    /// fleet is not split.
    pub sources: Vec<Vec<IpAddr>>,
}

/// Raises this process's limits as far as it may, and says what the machine offers.
pub fn offer() -> Offer {
    Offer {
        files: usage::raise_files_limit(),
        memory_bytes: usage::memory_bytes_available(),
        cpus: usage::host_info().cpus.into(),
    }
}

/// Says whether a run fits, and how.
pub fn fit(need: Need, offer: Offer) -> Fit {
    let mut fit = Fit::default();
    fit.processes(need, offer);
    fit.ports(need);
    fit.memory(need, offer);
    fit.processors(need, offer);
    fit
}

impl Need {
    /// Open files of a process that holds so many agents: at the portal, too, if that is in it.
    fn files(self, agents: u64, portal: bool) -> u64 {
        agents * if portal { 2 } else { 1 } + FILES_SPARE
    }

    /// The agents of the largest of so many shards, if clusters are alike.
    fn agents_a_shard(self, shards: u64) -> u64 {
        let servers = self.agents.div_ceil(self.clusters.max(1));
        (self.clusters.div_ceil(shards.max(1)) * servers).min(self.agents)
    }
}

impl Fit {
    /// How many processes, by the connections that one may hold.
    fn processes(&mut self, need: Need, offer: Offer) {
        let whole = need.files(need.agents, need.embedded);
        let most = offer
            .files
            .saturating_sub(FILES_SPARE)
            .clamp(1, AGENTS_A_SHARD);
        let shards = match need.split {
            Split::Never => 0,
            Split::AsNeeded if whole <= offer.files => 0,
            Split::AsNeeded => need
                .agents
                .div_ceil(most)
                .min(need.clusters.min(SHARDS_MAX)),
            Split::Into(shards) => shards,
        };
        let largest = need.agents_a_shard(shards);
        let files = match shards {
            0 => whole,
            _ => need.files(largest, false),
        };
        self.shards = shards;
        self.told.push(match shards {
            0 => format!("open files: {files} needed, {} allowed", offer.files),
            _ => format!(
                "open files: {files} needed in each process ({}), {} allowed",
                processes(shards, need.embedded),
                offer.files
            ),
        });
        if shards > need.clusters {
            self.missing.push(format!(
                "{shards} shards for {} clusters: a cluster is never split; ask for fewer (`--shards {}`)",
                need.clusters,
                need.clusters.min(SHARDS_MAX)
            ));
        } else if shards > SHARDS_MAX {
            self.missing
                .push(format!("{shards} shards: at most {SHARDS_MAX} are started"));
        } else if files > offer.files {
            let ends = need.files(1, need.embedded && shards == 0) - FILES_SPARE;
            let fewer = match offer.files.saturating_sub(FILES_SPARE) / ends * shards.max(1) {
                0 => String::new(),
                most => format!(", or run at most {most} agents (`--agents {most}`)"),
            };
            let more = match need.split {
                Split::Into(_) if !fewer.is_empty() => ", or leave `--shards` out".to_owned(),
                _ => fewer,
            };
            self.missing.push(format!(
                "{} agents need {files} open files and {} may have {}: raise the hard limit (`ulimit -Hn {files}`){more}",
                if shards == 0 { need.agents } else { largest },
                if shards == 0 { "this process" } else { "a process" },
                offer.files
            ));
        }
    }

    /// Where connections leave from. Each shard of the run's own portals has a port of its own to go to, and addresses of
    /// its own all the same, so that the kernel never searches long.
    fn ports(&mut self, need: Need) {
        let shards = self.shards.max(1);
        let each = need.agents_a_shard(shards).div_ceil(PORTS_A_SOURCE);
        let all = each * shards;
        self.sources = vec![Vec::new(); usize::try_from(shards.min(SHARDS_MAX)).unwrap_or(0)];
        if all <= 1 {
            return;
        }
        if !need.loopback {
            self.told.push(format!(
                "source ports: {} connections from one address to one port; above 28,000 there may be none left, and each \
                 that is not there makes the run overloaded",
                need.agents
            ));
            return;
        }
        if all > SOURCES_MAX {
            let most = SOURCES_MAX * PORTS_A_SOURCE;
            self.missing.push(format!(
                "more than {most} agents cannot be spread over loopback addresses"
            ));
            return;
        }
        let mut last = 0;
        for sources in &mut self.sources {
            for _ in 0..each {
                last += 1;
                sources.push(Ipv4Addr::new(127, 0, 0, last).into());
            }
        }
        self.told.push(format!(
            "source addresses: connections leave from {all} loopback addresses"
        ));
    }

    fn memory(&mut self, need: Need, offer: Offer) {
        let per_agent = AGENT_BYTES + if need.embedded { PORTAL_BYTES } else { 0 };
        let own = if need.embedded { 2 } else { 1 };
        let bytes = PROCESS_BYTES * (1 + self.shards * own) + need.agents * per_agent;
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let Some(free) = offer.memory_bytes else {
            self.told
                .push(format!("memory: about {} MiB needed", mib(bytes)));
            return;
        };
        self.told.push(format!(
            "memory: about {} MiB needed, {} MiB free",
            mib(bytes),
            mib(free)
        ));
        if bytes > free {
            self.missing.push(format!(
                "{} agents need about {} MiB of memory and {} MiB are free: run fewer (`--agents N`)",
                need.agents,
                mib(bytes),
                mib(free)
            ));
        }
    }

    fn processors(&mut self, need: Need, offer: Offer) {
        let sync_us = SYNC_US + if need.embedded { PORTAL_SYNC_US } else { 0 };
        let cores = need.syncs_a_second * sync_us as f64 / 1e6;
        let late = match cores > offer.cpus as f64 {
            true => ": it will be late; run fewer agents, or a slower tempo",
            false => "",
        };
        self.told.push(format!(
            "processors: at least {:.0} % of a core for {:.0} syncs a second, {} cores{late}",
            cores * 100.0,
            need.syncs_a_second,
            offer.cpus
        ));
    }
}

fn processes(shards: u64, embedded: bool) -> String {
    match embedded {
        true => format!("{shards} for agents, {shards} for their portals"),
        false => format!("{shards} for agents"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THOUSAND: Need = Need {
        agents: 1_000,
        clusters: 1_000,
        syncs_a_second: 33.3,
        embedded: true,
        loopback: true,
        split: Split::Never,
    };
    const PLENTY: Offer = Offer {
        files: 20_000,
        memory_bytes: Some(8 << 30),
        cpus: 2,
    };

    #[test]
    fn a_thousand_agents_fit_into_a_small_machine() {
        for split in [Split::Never, Split::AsNeeded] {
            let fit = fit(Need { split, ..THOUSAND }, PLENTY);
            assert_eq!(fit.missing, Vec::<String>::new());
            assert_eq!(
                fit.told,
                [
                    "open files: 2200 needed, 20000 allowed",
                    "memory: about 184 MiB needed, 8192 MiB free",
                    "processors: at least 0 % of a core for 33 syncs a second, 2 cores",
                ]
            );
            assert_eq!((fit.shards, fit.sources), (0, vec![Vec::new()]));
        }
    }

    // case L31: the limit is told before, with what to do, and does not cap the fleet silently.
    #[test]
    fn too_few_files_are_missing_before_the_start() {
        for (embedded, files, most) in [(true, 1_024, 412), (false, 1_024, 824), (true, 2_199, 999)]
        {
            let missing = fit(
                Need {
                    embedded,
                    ..THOUSAND
                },
                Offer { files, ..PLENTY },
            )
            .missing;
            assert_eq!(missing.len(), 1, "{files}");
            assert!(
                missing[0].contains(&format!("--agents {most}")),
                "{}",
                missing[0]
            );
        }
        assert!(
            fit(
                THOUSAND,
                Offer {
                    files: 2_200,
                    ..PLENTY
                }
            )
            .missing
            .is_empty()
        );
    }

    #[test]
    fn where_not_one_agent_fits_none_is_suggested() {
        let few = Offer {
            files: 201,
            ..PLENTY
        };
        let missing = fit(THOUSAND, few).missing;
        assert!(missing[0].ends_with("(`ulimit -Hn 2200`)"), "{missing:?}");
    }

    #[test]
    fn what_one_process_may_not_hold_is_split() {
        // Agents, clusters, own portal, files a process may have, asked: shards, or what is missing.
        let needed = Split::AsNeeded;
        let rows = [
            (9_900, 9_900, true, 20_000, needed, Ok(0)),
            (9_901, 9_901, true, 20_000, needed, Ok(1)),
            (19_800, 19_800, false, 20_000, needed, Ok(0)),
            (30_000, 30_000, true, 20_000, needed, Ok(2)),
            (30_000, 10_000, false, 20_000, needed, Ok(2)),
            (100_000, 100_000, true, 20_000, needed, Ok(7)),
            (1_000, 1_000, true, 1_024, needed, Ok(2)),
            (10, 10, true, 20_000, Split::Into(3), Ok(3)),
            (10, 2, true, 20_000, Split::Into(3), Err("`--shards 2`")),
            (
                900,
                900,
                true,
                1_024,
                Split::Into(1),
                Err(", or leave `--shards` out"),
            ),
            (
                30_000,
                2,
                true,
                10_000,
                needed,
                Err("`ulimit -Hn 15200`), or run at most 19600"),
            ),
            // Where not even the smallest shard fits, nothing but the limit helps.
            (40, 20, true, 100, needed, Err("(`ulimit -Hn 202`)")),
            (
                40,
                20,
                true,
                100,
                Split::Into(20),
                Err("(`ulimit -Hn 202`)"),
            ),
            (90_000, 90_000, true, 1_024, needed, Err("--agents 52736")),
        ];
        for (agents, clusters, embedded, files, split, expected) in rows {
            let need = Need {
                agents,
                clusters,
                embedded,
                split,
                ..THOUSAND
            };
            let offer = Offer {
                files,
                memory_bytes: None,
                ..PLENTY
            };
            let fit = fit(need, offer);
            match expected {
                Ok(shards) => {
                    assert_eq!(fit.missing, [""; 0], "{need:?}");
                    assert_eq!(fit.shards, shards, "{need:?}");
                    assert_eq!(fit.sources.len() as u64, shards.max(1));
                }
                Err(why) => {
                    let missing = &fit.missing[0];
                    assert!(missing.contains(why), "{need:?}: {missing}");
                    assert_eq!(missing.contains("--"), !why.ends_with(')'), "{missing}");
                }
            }
        }
    }

    // case L30: connections are spread before a port is dear.
    #[test]
    fn many_agents_leave_from_many_addresses() {
        let offer = Offer {
            files: u64::MAX,
            memory_bytes: None,
            cpus: 2,
        };
        for (agents, loopback, shards, sources) in [
            (14_000, true, 1, 0),
            (14_001, true, 1, 2),
            (100_000, true, 1, 8),
            (100_000, false, 1, 0),
            (28_000, true, 2, 1),
            (30_000, true, 2, 2),
        ] {
            let split = match shards {
                1 => Split::Never,
                shards => Split::Into(shards),
            };
            let fit = fit(
                Need {
                    agents,
                    clusters: agents,
                    loopback,
                    split,
                    embedded: false,
                    ..THOUSAND
                },
                offer,
            );
            assert_eq!(fit.sources[0].len(), sources, "{agents}");
            let all: std::collections::BTreeSet<_> = fit.sources.iter().flatten().collect();
            assert_eq!(all.len() as u64, sources as u64 * shards, "each its own");
            assert!(fit.missing.is_empty());
        }
        let need = Need {
            agents: 10_000_000,
            embedded: false,
            ..THOUSAND
        };
        assert!(!fit(need, offer).missing.is_empty());
    }

    #[test]
    fn too_little_memory_is_missing_before_the_start() {
        let missing = fit(
            THOUSAND,
            Offer {
                memory_bytes: Some(64 << 20),
                ..PLENTY
            },
        )
        .missing;
        assert!(missing[0].contains("64 MiB are free"), "{missing:?}");
    }

    #[test]
    fn a_pace_that_the_processors_cannot_keep_is_told() {
        let need = Need {
            syncs_a_second: 20_000.0,
            ..THOUSAND
        };
        let told = fit(need, PLENTY).told;
        let processors = told.last().unwrap();
        assert!(
            processors.starts_with("processors: at least 260 % of a core for 20000 syncs a second, 2 cores: it will be late"),
            "{processors}"
        );
    }
}
