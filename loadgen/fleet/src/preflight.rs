//! What a run needs of its machine, told before it starts; a run that cannot get it does not start.
//!
//! Open files, source ports, memory. A generator that hits its own limits in the middle measures itself.

use std::net::{IpAddr, Ipv4Addr};

use crate::usage;

/// Open files for everything that is no agent's connection.
const FILES_SPARE: u64 = 200;
/// Memory of a connected agent: engine, node model, HTTP and TLS (measured, docs/benchmarks.md).
const AGENT_BYTES: u64 = 40 * 1024;
/// Memory of a connection at the embedded portal, its agent's records included.
const PORTAL_BYTES: u64 = 32 * 1024;
/// Memory of the run itself: histograms, series, code.
const RUN_BYTES: u64 = 96 * 1024 * 1024;
/// Connections from one address to one port above which the kernel's search for a free source port gets dear.
const PORTS_A_SOURCE: u64 = 14_000;
/// Loopback addresses that connections can be spread over at most.
const SOURCES_MAX: u64 = 64;

/// What a run is about to need.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Agents, each with a connection of its own.
    pub agents: u64,
    /// Whether the portal runs in this process.
    pub embedded: bool,
    /// Whether the portal is reached over loopback.
    pub loopback: bool,
}

/// What the machine offers.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    /// Open files that this process may have.
    pub files: u64,
    /// Memory that is free; none if the kernel does not say.
    pub memory_bytes: Option<u64>,
}

/// How the run fits into its machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fit {
    /// What is told before the start.
    pub told: Vec<String>,
    /// What is missing; empty if the run can start.
    pub missing: Vec<String>,
    /// Addresses that connections leave from in turn; empty for the system's choice.
    pub sources: Vec<IpAddr>,
}

/// Raises this process's limits as far as it may, and says what the machine offers.
pub fn offer() -> Offer {
    Offer {
        files: usage::raise_files_limit(),
        memory_bytes: usage::memory_bytes_available(),
    }
}

/// Weighs what is needed against what is offered.
pub fn fit(need: Need, offer: Offer) -> Fit {
    let mut fit = Fit::default();
    let ends = if need.embedded { 2 } else { 1 };
    let files = need.agents * ends + FILES_SPARE;
    fit.told.push(format!(
        "open files: {files} needed, {} allowed",
        offer.files
    ));
    if files > offer.files {
        let fewer = match offer.files.saturating_sub(FILES_SPARE) / ends {
            0 => String::new(),
            most => format!(", or run at most {most} agents (`--agents {most}`)"),
        };
        fit.missing.push(format!(
            "{} agents need {files} open files and this process may have {}: raise the hard limit (`ulimit -Hn {files}`)\
             {fewer}",
            need.agents, offer.files
        ));
    }

    let sources = need.agents.div_ceil(PORTS_A_SOURCE);
    if sources > 1 && need.loopback {
        if sources > SOURCES_MAX {
            let most = SOURCES_MAX * PORTS_A_SOURCE;
            fit.missing.push(format!(
                "more than {most} agents cannot be spread over loopback addresses"
            ));
        }
        fit.sources = (1..=sources.min(SOURCES_MAX))
            .map(|last| Ipv4Addr::new(127, 0, 0, last as u8).into())
            .collect();
        fit.told.push(format!(
            "source addresses: connections leave from {sources} loopback addresses"
        ));
    } else if sources > 1 {
        fit.told.push(format!(
            "source ports: {} connections from one address to one port; above 28,000 there may be none left, and each \
             that is not there makes the run overloaded",
            need.agents
        ));
    }

    let per_agent = AGENT_BYTES + if need.embedded { PORTAL_BYTES } else { 0 };
    let bytes = RUN_BYTES + need.agents * per_agent;
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    match offer.memory_bytes {
        None => fit
            .told
            .push(format!("memory: about {} MiB needed", mib(bytes))),
        Some(free) => {
            fit.told.push(format!(
                "memory: about {} MiB needed, {} MiB free",
                mib(bytes),
                mib(free)
            ));
            if bytes > free {
                fit.missing.push(format!(
                    "{} agents need about {} MiB of memory and {} MiB are free: run fewer (`--agents N`)",
                    need.agents,
                    mib(bytes),
                    mib(free)
                ));
            }
        }
    }
    fit
}

#[cfg(test)]
mod tests {
    use super::*;

    const THOUSAND: Need = Need {
        agents: 1_000,
        embedded: true,
        loopback: true,
    };
    const PLENTY: Offer = Offer {
        files: 20_000,
        memory_bytes: Some(8 << 30),
    };

    #[test]
    fn a_thousand_agents_fit_into_a_small_machine() {
        let fit = fit(THOUSAND, PLENTY);
        assert_eq!(fit.missing, Vec::<String>::new());
        assert_eq!(fit.told.len(), 2, "{:?}", fit.told);
        assert!(fit.sources.is_empty());
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

    // case L30: connections are spread before a port is dear.
    #[test]
    fn many_agents_leave_from_many_addresses() {
        let offer = Offer {
            files: u64::MAX,
            memory_bytes: None,
        };
        for (agents, loopback, sources) in [
            (14_000, true, 0),
            (14_001, true, 2),
            (100_000, true, 8),
            (100_000, false, 0),
        ] {
            let fit = fit(
                Need {
                    agents,
                    embedded: false,
                    loopback,
                },
                offer,
            );
            assert_eq!(fit.sources.len(), sources, "{agents}");
            assert!(fit.missing.is_empty());
        }
        let need = Need {
            agents: 1_000_000,
            embedded: false,
            loopback: true,
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
}
