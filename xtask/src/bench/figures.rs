//! What is measured, in words for people, with its bounds. The measurements themselves are programs of the product
//! (`loadgen/fleet/benches/figures/`); a figure is known by its measurement and its name there.

/// One measurement: a process that prints its figures.
#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) name: &'static str,
    /// About how long one takes, for the plan of the whole.
    pub(super) seconds: u64,
    /// How it is done, for the page.
    pub(super) how: &'static str,
    pub(super) figures: &'static [Figure],
}

/// One figure.
#[derive(Debug)]
pub(super) struct Figure {
    /// Its member in what the measurement prints.
    pub(super) name: &'static str,
    /// What it is.
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    pub(super) is: Is,
}

impl Figure {
    /// Whether a profile of processor time says something about it.
    pub(super) fn is_processor_time(&self) -> bool {
        matches!(self.unit, "µs" | "s")
    }
}

/// What a figure is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Is {
    /// It must not be higher.
    AtMost(f64),
    /// Something to hold the others against.
    Peer,
    /// Good to know.
    Beside,
}

/// The figure by which a process tells how much of all processors others took meanwhile, in percent.
pub(super) const OTHERS: &str = "others_percent";

/// All of them, in the order in which they are made.
pub(super) const MEASUREMENTS: &[Measurement] = &[
    Measurement {
        name: "signatures",
        seconds: 2,
        how: "`ed25519-dalek` alone, 20,000 times, over the 95 bytes that are signed for a request.",
        figures: &[
            Figure {
                name: "sign_us",
                what: "Ed25519: sign",
                unit: "µs",
                is: Is::Peer,
            },
            Figure {
                name: "verify_strict_us",
                what: "Ed25519: verify strictly, the key parsed",
                unit: "µs",
                is: Is::Peer,
            },
        ],
    },
    Measurement {
        name: "unsigned",
        seconds: 7,
        how: "1,000 connections of the agents' transport, over TLS, post the bytes of a report in a closed loop to a route \
              that reads them and answers with the bytes of a sync's answer. Nothing is signed, checked, parsed or counted.",
        figures: &[
            Figure {
                name: "client_us",
                what: "unsigned POST over the same transport: client",
                unit: "µs",
                is: Is::Peer,
            },
            Figure {
                name: "server_us",
                what: "unsigned POST over the same transport: server",
                unit: "µs",
                is: Is::Peer,
            },
        ],
    },
    Measurement {
        name: "sync",
        seconds: 14,
        how: "1,000 agents of `loadgen` against its embedded portal, over TLS, in a closed loop: the tempo makes a sync due \
              about when the one before has ended. Everything of a run is in it: engine, node model, referees, counting; \
              and every 20 syncs the cluster's configuration is applied again.",
        figures: &[
            Figure {
                name: "generator_us",
                what: "generator, for a signed keep-alive sync over TLS",
                unit: "µs",
                is: Is::AtMost(60.0),
            },
            Figure {
                name: "portal_us",
                what: "portal, for a signed keep-alive sync over TLS",
                unit: "µs",
                is: Is::AtMost(100.0),
            },
            Figure {
                name: "syncs_per_second",
                what: "signed syncs over TLS, both ends on this machine (passed time)",
                unit: "/s",
                is: Is::Beside,
            },
        ],
    },
    Measurement {
        name: "pace",
        seconds: 62,
        how: "1,000 agents at their real pace, 30 s and 5 s to either side, over TLS. Lateness is from when a request was \
              due to when it was started. At this pace each sync finds cold caches and sleeping threads.",
        figures: &[
            Figure {
                name: "lateness_p99_ms",
                what: "lateness of 1,000 agents at 30 s, 99 % (passed time)",
                unit: "ms",
                is: Is::AtMost(5.0),
            },
            Figure {
                name: "lateness_p50_ms",
                what: "lateness of 1,000 agents at 30 s, half (passed time)",
                unit: "ms",
                is: Is::Beside,
            },
            Figure {
                name: "generator_us",
                what: "generator, for a sync at 30 s",
                unit: "µs",
                is: Is::Beside,
            },
            Figure {
                name: "portal_us",
                what: "portal, for a sync at 30 s",
                unit: "µs",
                is: Is::Beside,
            },
        ],
    },
    Measurement {
        name: "memory",
        seconds: 20,
        how: "The growth of resident memory while 1,000 agents come to 200 that are there, fleet and portal in a process \
              each, over TLS.",
        figures: &[
            Figure {
                name: "agent_kib",
                what: "memory of a connected agent, its node model included",
                unit: "KiB",
                is: Is::AtMost(33.0),
            },
            Figure {
                name: "portal_kib",
                what: "memory of its connection and records at the portal",
                unit: "KiB",
                is: Is::Beside,
            },
        ],
    },
    Measurement {
        name: "engine",
        seconds: 1,
        how: "The growth of resident memory by 20,000 engines that are enrolled, have the document in force and have synced, \
              with nothing around them. The document is one for all, and so is what is recorded of the objects that were applied \
              for its three add-ons: 20,000 more that have this for themselves show what that takes.",
        figures: &[
            Figure {
                name: "engine_kib",
                what: "memory of an engine beside the shared document",
                unit: "KiB",
                is: Is::AtMost(2.0),
            },
            Figure {
                name: "addons_kib",
                what: "memory of its record of what was applied for three add-ons",
                unit: "KiB",
                is: Is::Beside,
            },
        ],
    },
    Measurement {
        name: "day",
        seconds: 20,
        how: "24 hours of 1,000 agents in virtual time, typed (no bytes, no signatures), one thread.",
        figures: &[
            Figure {
                name: "cpu_s",
                what: "1,000 agents for 24 h in virtual time, typed",
                unit: "s",
                is: Is::AtMost(20.0),
            },
            Figure {
                name: "sync_us",
                what: "a sync in virtual time, both sides",
                unit: "µs",
                is: Is::Beside,
            },
        ],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn figures_have_names_of_their_own() {
        let names: BTreeSet<&str> = MEASUREMENTS.iter().map(|m| m.name).collect();
        assert_eq!(names.len(), MEASUREMENTS.len());
        for measurement in MEASUREMENTS {
            let figures: BTreeSet<&str> = measurement.figures.iter().map(|f| f.name).collect();
            assert_eq!(
                figures.len(),
                measurement.figures.len(),
                "{}",
                measurement.name
            );
            assert!(!figures.contains(OTHERS));
        }
    }
}
