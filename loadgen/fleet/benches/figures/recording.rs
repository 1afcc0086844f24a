//! What it takes to record a request with its labels: all that a tally tells its recorder and its second, from "it is due"
//! to "it has ended".

use std::hint::black_box;

use anyhow::{Result, ensure};
use protocol::endpoint::Endpoint;
use protocol::problem::ProblemCode;
use record::micros::Window;
use record::snapshot::Recent;
use record::{Micros, Outcome, Recorder, Sample};

use crate::Figures;
use crate::machine::thread_cpu_seconds;

/// Different requests, told again and again: more than a processor foresees, fewer than would measure their memory.
const SAMPLES: usize = 4_096;
const ROUNDS: usize = 1_000;
/// What the run spans, and how much of it a round of the samples does.
const RUN: Micros = Micros::from_seconds(600);
/// A second's percentiles are read and emptied as often as a run does at 10,000 requests a second.
const ROUNDS_A_SECOND: usize = 2;

pub(crate) fn measure() -> Result<Figures> {
    let samples = samples();
    let mut recorder = Recorder::new(Window {
        from: Micros::ZERO,
        until: RUN,
    });
    let mut recent = Recent::new();
    // The first round takes the memory of each cell.
    record(&mut recorder, &mut recent, &samples);
    let mut seconds = 0.0;
    for round in 0..ROUNDS {
        let before = thread_cpu_seconds();
        record(&mut recorder, &mut recent, black_box(&samples));
        seconds += thread_cpu_seconds() - before;
        if round % ROUNDS_A_SECOND == 0 {
            black_box(recent.take());
        }
    }
    let recorded = recorder.account.total().started;
    ensure!(
        recorded == (SAMPLES * (ROUNDS + 1)) as u64,
        "{recorded} requests were recorded"
    );
    let requests = (SAMPLES * ROUNDS) as f64;
    Ok([("record_ns", seconds * 1e9 / requests)].into())
}

fn record(recorder: &mut Recorder, recent: &mut Recent, samples: &[Sample]) {
    for sample in samples {
        recorder.planned(sample.endpoint, sample.intended);
        recent.planned(sample.endpoint);
        recorder.started(sample.endpoint, sample.started);
        recent.started(sample.endpoint);
        recorder.ended(sample);
        recent.ended(sample);
    }
}

/// Requests as they are mixed in a run: most are syncs that succeed, in a few to some hundred milliseconds, one after the
/// other in its seconds.
fn samples() -> Vec<Sample> {
    // A linear congruence (Knuth, MMIX): the same samples each time.
    let mut state: u64 = 1;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let each = RUN.0 / SAMPLES as u64;
    let sample = |at: u64| {
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
        let intended = at * each;
        let started = intended + draw(3_000);
        let first_byte_out = started + 20 + draw(300);
        // A few hundred microseconds to a third of a second, the short ones more often.
        let ended = first_byte_out + (200 << draw(10)) + draw(2_000);
        Sample {
            endpoint,
            outcome,
            intended: Micros(intended),
            started: Micros(started),
            first_byte_out: Some(Micros(first_byte_out)),
            ended: Micros(ended),
            connect: None,
        }
    };
    (0..SAMPLES as u64).map(sample).collect()
}
