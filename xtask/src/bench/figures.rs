//! What is measured, in words for people, with its bounds. The measurements themselves are programs of the product
//! (`loadgen/fleet/benches/figures/`); a figure is known by its measurement and its name there.

use crate::tools::Peer;

/// One measurement: a process that prints its figures.
#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) name: &'static str,
    /// How often it is made; the long ones less often.
    pub(super) runs: usize,
    /// About how long one takes, for the plan of the whole.
    pub(super) seconds: u64,
    /// The program that is measured, where it is another one than the one that measures.
    pub(super) program: Option<Program>,
    /// How it is done, for the page.
    pub(super) how: &'static str,
    pub(super) figures: &'static [Figure],
}

/// A program that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// The product's, as it is released.
    Loadgen,
    /// One that others make. Where there is none, its figures are missing, and the page says why.
    Peer(Peer),
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
        matches!(self.unit, "ns" | "µs" | "s")
    }
}

/// What a figure is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Is {
    /// It must not be higher.
    AtMost(f64),
    /// Something to hold the others against.
    Peer,
    /// What a program takes to post a report's bytes to a route that does nothing; ours is held against each.
    Posting,
    /// Good to know.
    Beside,
}

/// The figure by which a process tells how much of all processors others took meanwhile, in percent.
pub(super) const OTHERS: &str = "others_percent";

/// The measurement that is ours among the peers.
pub(super) const OURS: &str = "unsigned";
/// A signed sync, and what it costs its generator.
pub(super) const SYNC: (&str, &str) = ("sync", "generator_us");
/// What a simulated node's signature takes.
pub(super) const SIGN: (&str, &str) = ("signatures", "fleet_sign_us");
/// The processor time that a program takes to post a report's bytes.
pub(super) const POST: &str = "client_us";
/// What a connection takes of memory there.
pub(super) const CONNECTION: &str = "connection_kib";
/// How many it posts.
pub(super) const RATE: &str = "requests_per_second";
/// Connections that it opened while it was looked at, instead of keeping those that it had.
pub(super) const HANDSHAKES: &str = "handshakes";

const fn posting(name: &'static str, what: &'static str, unit: &'static str) -> Figure {
    Figure {
        name,
        what,
        unit,
        is: Is::Posting,
    }
}

const CLIENT: Figure = posting(POST, "processor time a request", "µs");
const MEMORY: Figure = posting(CONNECTION, "memory a connection", "KiB");
const REQUESTS: Figure = posting(RATE, "requests (passed time)", "/s");
const OPENED: Figure = posting(HANDSHAKES, "connections opened meanwhile", "");

const fn peer(name: &'static str, peer: Peer, how: &'static str) -> Measurement {
    Measurement {
        name,
        runs: 3,
        seconds: 13,
        program: Some(Program::Peer(peer)),
        how,
        figures: &[CLIENT, MEMORY, REQUESTS, OPENED],
    }
}

/// All of them, in the order in which they are made.
pub(super) const MEASUREMENTS: &[Measurement] = &[
    Measurement {
        name: "signatures",
        runs: 5,
        seconds: 2,
        program: None,
        how: "`ed25519-dalek` alone, which nodes and the portal use, and `aws-lc`, with which simulated nodes sign the same: \
              20,000 times, over the 95 bytes that are signed for a request.",
        figures: &[
            Figure {
                name: "fleet_sign_us",
                what: "Ed25519: sign, as simulated nodes do",
                unit: "µs",
                is: Is::Peer,
            },
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
        name: OURS,
        runs: 5,
        seconds: 13,
        program: None,
        how: "1,000 connections of the agents' transport, over TLS, post the bytes of a report in a closed loop to a route \
              that reads them and answers with the bytes of a sync's answer, in a process of its own. Nothing is signed, \
              checked, parsed or counted. The client is looked at from outside, its children included, between two moments \
              4 s apart when all connections have been open for a second: its start and end are in no figure. The memory of \
              a connection is what the client takes with 1,000 more than with 100, by each of the 900. The route says how \
              many requests came. It shares the two processors with the client, so requests a second say little.",
        figures: &[
            CLIENT,
            MEMORY,
            REQUESTS,
            OPENED,
            Figure {
                name: "server_us",
                what: "unsigned POST over the same transport: server",
                unit: "µs",
                is: Is::Peer,
            },
        ],
    },
    peer(
        "wrk",
        Peer::Wrk,
        "the same by `wrk`, two threads; it checks no certificate.",
    ),
    peer(
        "oha",
        Peer::Oha,
        "the same by `oha`, told to accept the certificate.",
    ),
    peer(
        "hey",
        Peer::Hey,
        "the same by `hey`, which checks no certificate.",
    ),
    peer(
        "k6",
        Peer::K6,
        "the same by `k6`, a virtual user for each connection, told to accept the certificate.",
    ),
    peer(
        "locust",
        Peer::Locust,
        "the same by Locust, one process, a user with its faster client for each connection; that checks no certificate.",
    ),
    peer(
        "goose",
        Peer::Goose,
        "the same by goose, a user for each connection, told to accept the certificate.",
    ),
    Measurement {
        name: "sync",
        runs: 5,
        seconds: 14,
        program: None,
        how: "1,000 agents of `loadgen` against its embedded portal, over TLS, in a closed loop: the tempo makes a sync due \
              about when the one before has ended. Everything of a run is in it: engine, node model, referees, counting; \
              and every 20 syncs the cluster's configuration is applied again.",
        figures: &[
            Figure {
                name: "generator_us",
                what: "generator, for a signed keep-alive sync over TLS",
                unit: "µs",
                is: Is::AtMost(45.0),
            },
            Figure {
                name: "portal_us",
                what: "portal, for a signed keep-alive sync over TLS",
                unit: "µs",
                is: Is::AtMost(80.0),
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
        name: "connect",
        runs: 5,
        seconds: 8,
        program: None,
        how: "10,000 connections are opened, 100 at a time, each with one unsigned POST, and kept; then each posts once more. \
              What the second time took is taken off. They leave from two loopback addresses, as the preflight has so many \
              leave.",
        figures: &[
            Figure {
                name: "generator_us",
                what: "generator, for opening a connection with a full TLS handshake",
                unit: "µs",
                is: Is::AtMost(220.0),
            },
            Figure {
                name: "portal_us",
                what: "portal, for taking such a connection",
                unit: "µs",
                is: Is::Beside,
            },
        ],
    },
    Measurement {
        name: "recording",
        runs: 5,
        seconds: 2,
        program: None,
        how: "4,096 requests of mixed endpoints, outcomes and durations are told to a recorder, a thousand a second, 2,000 \
              times: that they are due and started, and then the sample of how they ended, with its endpoint and its \
              outcome. What a second takes as it ends and as a screen looks at it is shared by its samples.",
        figures: &[
            Figure {
                name: "record_ns",
                what: "recording a sample with its labels",
                unit: "ns",
                is: Is::AtMost(20.0),
            },
            Figure {
                name: "begin_ns",
                what: "recording before that a request is due and started",
                unit: "ns",
                is: Is::Beside,
            },
        ],
    },
    Measurement {
        name: "pace",
        runs: 3,
        seconds: 62,
        program: None,
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
        runs: 3,
        seconds: 40,
        program: None,
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
        name: "ten-thousand",
        runs: 3,
        seconds: 162,
        program: Some(Program::Loadgen),
        how: "`loadgen run` with 10,000 agents at 30 s, over TLS, portals and all on this machine, its live screen on a \
              terminal of 200 columns and 60 rows. They arrive in 40 s; 90 s after the start is when looking begins, for 50 s. \
              Memory is what the processes have grown by since before they came; what is made for each before that (a token, a \
              place where it is counted and watched, a task that waits) is told beside, against as many processes with 16 \
              agents.",
        figures: &[
            Figure {
                name: "lateness_p99_ms",
                what: "10,000 agents: lateness, 99 % (passed time)",
                unit: "ms",
                is: Is::AtMost(10.0),
            },
            Figure {
                name: "agent_kib",
                what: "10,000 agents: memory of the fleet by connected agent",
                unit: "KiB",
                is: Is::AtMost(33.0),
            },
            Figure {
                name: "errors",
                what: "10,000 agents: calls that did not end with what they asked for",
                unit: "",
                is: Is::AtMost(0.0),
            },
            Figure {
                name: "account_errors",
                what: "10,000 agents: sums of the account that are not exact",
                unit: "",
                is: Is::AtMost(0.0),
            },
            Figure {
                name: "screen_percent",
                what: "10,000 agents: the thread of the screen, of one core",
                unit: "%",
                is: Is::AtMost(2.0),
            },
            Figure {
                name: "portal_kib",
                what: "10,000 agents: memory of the portals by connected agent",
                unit: "KiB",
                is: Is::Beside,
            },
            Figure {
                name: "waiting_kib",
                what: "10,000 agents: memory of the fleet by agent before it comes, which is not in the figure above",
                unit: "KiB",
                is: Is::Beside,
            },
            Figure {
                name: "cores",
                what: "10,000 agents: processors, all processes together",
                unit: "",
                is: Is::Beside,
            },
            Figure {
                name: "processes",
                what: "10,000 agents: processes",
                unit: "",
                is: Is::Beside,
            },
        ],
    },
    Measurement {
        name: "requests",
        runs: 1,
        seconds: 75,
        program: None,
        how: "100 agents in virtual time, typed, one thread, whose calls are recorded as a run records them: resident memory \
              when 10 million requests have ended, beside that after the first million, which is three days for each agent, \
              so that what is kept up to a limit has reached it.",
        figures: &[
            Figure {
                name: "growth_mib",
                what: "growth of memory from 1 to 10 million virtual requests",
                unit: "MiB",
                is: Is::AtMost(1.0),
            },
            Figure {
                name: "resident_mib",
                what: "memory after 10 million virtual requests, 100 agents",
                unit: "MiB",
                is: Is::Beside,
            },
        ],
    },
    Measurement {
        name: "engine",
        runs: 5,
        seconds: 1,
        program: None,
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
        runs: 3,
        seconds: 20,
        program: None,
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
