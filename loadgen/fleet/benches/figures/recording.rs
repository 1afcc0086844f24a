//! What it takes to record a request with its labels: all that a tally tells its recorder, from "it is due" to "it has
//! ended".

use std::hint::black_box;

use anyhow::{Result, ensure};
use protocol::endpoint::Endpoint;
use protocol::problem::ProblemCode;
use record::micros::Window;
use record::{Micros, Outcome, Recorder, Sample};

use crate::Figures;
use crate::machine::thread_cpu_seconds;

/// Different requests, told again and again: more than a processor foresees, fewer than would measure their memory.
const REQUESTS: usize = 4_096;
const ROUNDS: usize = 2_000;
/// How many a second: what a worker of a fleet of tens of thousands has at their real pace.
const A_SECOND: usize = 1_024;
const SECOND: Micros = Micros::from_seconds(1);
/// What a round of the requests spans.
const ROUND: Micros = Micros(SECOND.0 * (REQUESTS / A_SECOND) as u64);

/// A request. Small, so that reading it is not what is measured: in a run what is told was just made.
#[derive(Clone, Copy)]
struct Request {
    endpoint: Endpoint,
    outcome: Outcome,
    /// When it is due, in µs from the begin of its round; the others from there.
    intended: u32,
    started: u32,
    first_byte_out: u32,
    ended: u32,
}

/// The end of a request of this round or of one before.
#[derive(Clone, Copy)]
struct End {
    request: u16,
    rounds_ago: u16,
}

pub(crate) fn measure() -> Result<Figures> {
    let requests = requests();
    let ends = ends(&requests);
    let mut recorder = Recorder::new(Window {
        from: Micros::ZERO,
        until: Micros(ROUND.0 * (ROUNDS as u64 + 2)),
    });
    let (mut beginnings, mut endings) = (0.0, 0.0);
    for round in 1..=ROUNDS as u64 + 1 {
        let seconds_of_it = black_box(&requests).chunks(A_SECOND).zip(black_box(&ends));
        for (begun, ended) in seconds_of_it {
            let before = thread_cpu_seconds();
            for request in begun {
                let intended = request.intended(round);
                recorder.planned(request.endpoint, intended);
                recorder.started(request.endpoint, after(intended, request.started));
            }
            let between = thread_cpu_seconds();
            for end in ended {
                let ended = &requests[usize::from(end.request)];
                recorder.ended(&ended.sample(round - u64::from(end.rounds_ago)));
            }
            // As a screen does.
            black_box(recorder.recent());
            let after = thread_cpu_seconds();
            // The first round takes the memory of each cell.
            if round > 1 {
                beginnings += between - before;
                endings += after - between;
            }
        }
    }
    let recorded = recorder.recorded().account.total();
    let told = (REQUESTS * (ROUNDS + 1)) as u64;
    ensure!(
        (recorded.started, recorded.ended.total()) == (told, told),
        "{} of {told} requests were recorded",
        recorded.started
    );
    let each_ns = |seconds: f64| seconds * 1e9 / (REQUESTS * ROUNDS) as f64;
    Ok([
        ("record_ns", each_ns(endings)),
        ("begin_ns", each_ns(beginnings)),
    ]
    .into())
}

/// The ends of each second of a round: as many as begin in it.
fn ends(requests: &[Request]) -> Vec<Vec<End>> {
    let mut seconds = vec![Vec::new(); requests.len() / A_SECOND];
    for (request, ended) in (0..).zip(requests) {
        let at = u64::from(ended.intended + ended.ended);
        let second = at % ROUND.0 / SECOND.0;
        seconds[second as usize].push(End {
            request,
            rounds_ago: (at / ROUND.0) as u16,
        });
    }
    seconds
}

fn after(intended: Micros, span: u32) -> Micros {
    intended + Micros(span.into())
}

impl Request {
    fn intended(&self, round: u64) -> Micros {
        Micros(ROUND.0 * round + u64::from(self.intended))
    }

    fn sample(&self, round: u64) -> Sample {
        let intended = self.intended(round);
        Sample {
            endpoint: self.endpoint,
            outcome: self.outcome,
            intended,
            started: after(intended, self.started),
            first_byte_out: Some(after(intended, self.first_byte_out)),
            ended: after(intended, self.ended),
            connect: None,
        }
    }
}

/// Requests as they are mixed in a run: most are syncs that succeed, in a few to some hundred milliseconds, one after the
/// other in its seconds.
fn requests() -> Vec<Request> {
    // A linear congruence (Knuth, MMIX): the same requests each time.
    let mut state: u64 = 1;
    let mut draw = |below: u32| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(below)) as u32
    };
    let each = (ROUND.0 / REQUESTS as u64) as u32;
    let request = |number: u32| {
        let endpoint = match draw(100) {
            0..5 => Endpoint::Events,
            5..7 => Endpoint::Enroll,
            _ => Endpoint::Sync,
        };
        let outcome = match draw(100) {
            0..2 => Outcome::Problem(ProblemCode::TooManyRequests),
            2..4 => Outcome::Reset,
            _ => Outcome::Ok,
        };
        let started = draw(3_000);
        let first_byte_out = started + 20 + draw(300);
        Request {
            endpoint,
            outcome,
            intended: number * each,
            started,
            first_byte_out,
            // A few hundred microseconds to a third of a second, the short ones more often.
            ended: first_byte_out + (200 << draw(10)) + draw(2_000),
        }
    };
    (0..REQUESTS as u32).map(request).collect()
}
