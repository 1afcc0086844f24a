//! Durations of requests, per endpoint and outcome, in memory that is bounded before the run begins.
//!
//! Four times, never mixed: *lateness* (intended → started) is the generator's; *connect* (DNS, TCP, TLS, told apart,
//! full and resumed handshakes apart) is the network's; *service* (first byte out → end) and *response* (intended → end)
//! are the portal's. Verdicts use response: a portal that stalls its callers cannot hide behind requests they did not
//! send (no coordinated omission). Each outcome has cells of its own, so a request that timed out counts with its whole
//! wait and never brightens the successes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use protocol::endpoint::Endpoint;

use crate::histogram::Histogram;
use crate::label::ByLabel;
use crate::micros::Micros;
use crate::outcome::Outcome;

/// One request that ended, and when. All moments count from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// What was called.
    pub endpoint: Endpoint,
    /// How it ended.
    pub outcome: Outcome,
    /// When it was due.
    pub intended: Micros,
    /// When the generator got to it.
    pub started: Micros,
    /// When the first byte of the request left; none if it never came to that.
    pub first_byte_out: Option<Micros>,
    /// When it ended: the last byte of the answer, the failure, or the end of the wait.
    pub ended: Micros,
    /// The connection that was made for it; none on a kept one, and none where it could not be made.
    pub connect: Option<ConnectTimes>,
}

/// How long it took to make a connection, by phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectTimes {
    /// From the first phase to the end of the last.
    pub total: Micros,
    /// Resolving the name; none for an address.
    pub dns: Option<Micros>,
    /// The TCP handshake.
    pub tcp: Option<Micros>,
    /// The TLS handshake; none for plain HTTP.
    pub tls: Option<TlsTimes>,
}

/// A TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsTimes {
    /// How long it took.
    pub took: Micros,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
}

/// Durations of requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Samples {
    /// A cell for each endpoint and outcome that came.
    cells: ByLabel<Endpoint, ByLabel<Outcome, Option<Box<Cell>>>>,
    /// Intended → started, of every request that ended, whatever came of it.
    pub lateness: Histogram,
    /// Connections made.
    pub connections: Connections,
}

/// The durations of one outcome at one endpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// How many ended so.
    pub count: u64,
    /// First byte out → end; of those that came to send one.
    pub service: Histogram,
    /// Intended → end. Empty for `aborted`: what was cut off has no duration.
    pub response: Histogram,
}

/// Connections made, by phase and kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Whole time of those with a full TLS handshake, and of those without TLS.
    pub full: Histogram,
    /// Whole time of those that resumed a TLS session.
    pub resumed: Histogram,
    /// Resolving the portal's name.
    pub dns: Histogram,
    /// TCP handshakes.
    pub tcp: Histogram,
    /// Full TLS handshakes.
    pub tls_full: Histogram,
    /// Resumed TLS handshakes.
    pub tls_resumed: Histogram,
}

impl Samples {
    /// Counts a request that ended.
    #[inline]
    pub fn record(&mut self, sample: &Sample) {
        self.lateness.record(sample.started.since(sample.intended));
        if let Some(times) = &sample.connect {
            self.connections.record(times);
        }
        let cell = self.cells[sample.endpoint][sample.outcome].get_or_insert_default();
        cell.count += 1;
        if sample.outcome == Outcome::Aborted {
            return;
        }
        cell.response.record(sample.ended.since(sample.intended));
        if let Some(first_byte_out) = sample.first_byte_out {
            cell.service.record(sample.ended.since(first_byte_out));
        }
    }

    /// Adds what the other one counted, exactly.
    pub fn add(&mut self, other: &Samples) {
        for (endpoint, theirs) in other.cells.iter() {
            for (outcome, theirs) in theirs.iter() {
                if let Some(theirs) = theirs {
                    self.cells[endpoint][outcome]
                        .get_or_insert_default()
                        .add(theirs);
                }
            }
        }
        self.lateness.add(&other.lateness);
        self.connections.add(&other.connections);
    }

    /// The durations of one outcome at one endpoint; none if none ended so.
    pub fn cell(&self, endpoint: Endpoint, outcome: Outcome) -> Option<&Cell> {
        self.cells[endpoint][outcome].as_deref()
    }

    /// Every cell that counted something.
    pub fn cells(&self) -> impl Iterator<Item = (Endpoint, Outcome, &Cell)> {
        self.cells.iter().flat_map(|(endpoint, row)| {
            row.iter()
                .filter_map(move |(outcome, cell)| Some((endpoint, outcome, cell.as_deref()?)))
        })
    }

    /// How many ended so.
    pub fn count(&self, endpoint: Endpoint, outcome: Outcome) -> u64 {
        self.cell(endpoint, outcome).map_or(0, |cell| cell.count)
    }
}

impl Cell {
    fn add(&mut self, other: &Cell) {
        self.count += other.count;
        self.service.add(&other.service);
        self.response.add(&other.response);
    }
}

impl Connections {
    /// Most requests make none.
    #[cold]
    fn record(&mut self, times: &ConnectTimes) {
        let resumed = times.tls.is_some_and(|tls| tls.resumed);
        match resumed {
            true => self.resumed.record(times.total),
            false => self.full.record(times.total),
        }
        if let Some(dns) = times.dns {
            self.dns.record(dns);
        }
        if let Some(tcp) = times.tcp {
            self.tcp.record(tcp);
        }
        match times.tls {
            Some(tls) if tls.resumed => self.tls_resumed.record(tls.took),
            Some(tls) => self.tls_full.record(tls.took),
            None => {}
        }
    }

    fn add(&mut self, other: &Connections) {
        let Connections {
            full,
            resumed,
            dns,
            tcp,
            tls_full,
            tls_resumed,
        } = other;
        self.full.add(full);
        self.resumed.add(resumed);
        self.dns.add(dns);
        self.tcp.add(tcp);
        self.tls_full.add(tls_full);
        self.tls_resumed.add(tls_resumed);
    }

    /// How many connections were made, full and resumed together.
    pub fn made(&self) -> u64 {
        self.full.count() + self.resumed.count()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use protocol::problem::ProblemCode;

    use super::*;

    /// A request of the sync endpoint: due at 0, begun after 2 ms, sent after 3 ms, ended after `ended_ms`.
    fn sync(outcome: Outcome, ended_ms: u64) -> Sample {
        Sample {
            endpoint: Endpoint::Sync,
            outcome,
            intended: Micros::ZERO,
            started: Micros::from_ms(2),
            first_byte_out: Some(Micros::from_ms(3)),
            ended: Micros::from_ms(ended_ms),
            connect: None,
        }
    }

    fn ms(micros: Option<Micros>) -> u64 {
        (micros.unwrap().0 + 500) / 1_000
    }

    /// Any sample, with times that need not make sense.
    pub(crate) fn any_sample() -> impl Strategy<Value = Sample> {
        let micros = || (0..4_000_000_000_u64).prop_map(Micros);
        let connect = (
            micros(),
            prop::option::of(micros()),
            prop::option::of(micros()),
            prop::option::of((micros(), any::<bool>())),
        )
            .prop_map(|(total, dns, tcp, tls)| ConnectTimes {
                total,
                dns,
                tcp,
                tls: tls.map(|(took, resumed)| TlsTimes { took, resumed }),
            });
        (
            prop::sample::select(Endpoint::ALL.to_vec()),
            prop::sample::select(Outcome::ALL[..].to_vec()),
            (micros(), micros(), prop::option::of(micros()), micros()),
            prop::option::of(connect),
        )
            .prop_map(
                |(endpoint, outcome, (intended, started, first_byte_out, ended), connect)| Sample {
                    endpoint,
                    outcome,
                    intended,
                    started,
                    first_byte_out,
                    ended,
                    connect,
                },
            )
    }

    // case L2, L4, L11: lateness is a figure of its own; response begins where the request was due.
    #[test]
    fn the_four_times_are_never_mixed() {
        let mut samples = Samples::default();
        samples.record(&Sample {
            connect: Some(ConnectTimes {
                total: Micros::from_ms(1),
                dns: None,
                tcp: Some(Micros(300)),
                tls: Some(TlsTimes {
                    took: Micros(700),
                    resumed: false,
                }),
            }),
            ..sync(Outcome::Ok, 13)
        });
        let cell = samples.cell(Endpoint::Sync, Outcome::Ok).unwrap();
        assert_eq!(ms(samples.lateness.max()), 2);
        assert_eq!(ms(samples.connections.full.max()), 1);
        assert_eq!(ms(cell.service.max()), 10);
        assert_eq!(ms(cell.response.max()), 13);
    }

    // case L10: a time-out counts with its whole wait, in its own series.
    #[test]
    fn a_time_out_never_brightens_the_successes() {
        let mut samples = Samples::default();
        samples.record(&sync(Outcome::Ok, 13));
        samples.record(&sync(Outcome::TimedOutAnswer, 30_003));
        let ok = samples.cell(Endpoint::Sync, Outcome::Ok).unwrap();
        assert_eq!((ok.count, ms(ok.response.max())), (1, 13));
        let late = samples
            .cell(Endpoint::Sync, Outcome::TimedOutAnswer)
            .unwrap();
        assert_eq!(late.count, 1);
        assert_eq!(late.response.max().unwrap().as_seconds().round(), 30.0);
        assert_eq!(late.service.max().unwrap().as_seconds().round(), 30.0);
    }

    #[test]
    fn what_was_cut_off_is_counted_but_has_no_duration() {
        let mut samples = Samples::default();
        samples.record(&sync(Outcome::Aborted, 1));
        let cell = samples.cell(Endpoint::Sync, Outcome::Aborted).unwrap();
        assert_eq!((cell.count, cell.response.count()), (1, 0));
    }

    // case L34: full and resumed handshakes are counted apart.
    #[test]
    fn a_resumed_session_is_not_a_full_handshake() {
        let mut samples = Samples::default();
        for resumed in [false, true, true] {
            samples.record(&Sample {
                connect: Some(ConnectTimes {
                    total: Micros(900),
                    dns: Some(Micros(100)),
                    tcp: Some(Micros(100)),
                    tls: Some(TlsTimes {
                        took: Micros(700),
                        resumed,
                    }),
                }),
                ..sync(Outcome::Ok, 13)
            });
        }
        let made = &samples.connections;
        assert_eq!(
            (made.full.count(), made.resumed.count(), made.made()),
            (1, 2, 3)
        );
        assert_eq!(
            (
                made.tls_full.count(),
                made.tls_resumed.count(),
                made.dns.count()
            ),
            (1, 2, 3)
        );
    }

    // case L28, L29: memory does not grow with requests, and no ID is a label.
    #[test]
    fn a_hundred_thousand_requests_take_the_cells_of_the_first() {
        let mut samples = Samples::default();
        for at in 0..100_000_u64 {
            let outcome = match at % 3 {
                0 => Outcome::Ok,
                1 => Outcome::Problem(ProblemCode::Replayed),
                _ => Outcome::Reset,
            };
            samples.record(&sync(outcome, 3 + at));
        }
        assert_eq!(samples.cells().count(), 3);
        assert_eq!(samples.count(Endpoint::Sync, Outcome::Ok), 33_334);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        // case L23, L24: parts that were counted apart come to the same as one that counted all.
        #[test]
        fn parts_add_up_to_the_whole(
            rows in prop::collection::vec((any_sample(), 0..3_usize), 0..60),
        ) {
            let mut whole = Samples::default();
            let mut parts = vec![Samples::default(); 3];
            for (sample, part) in &rows {
                whole.record(sample);
                parts[*part].record(sample);
            }
            let mut forwards = Samples::default();
            parts.iter().for_each(|part| forwards.add(part));
            let mut backwards = Samples::default();
            parts.iter().rev().for_each(|part| backwards.add(part));
            prop_assert_eq!(&forwards, &whole);
            prop_assert_eq!(&backwards, &whole);

            let text = serde_json::to_string(&whole).unwrap();
            let read: Samples = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read, &whole);
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
    }
}
