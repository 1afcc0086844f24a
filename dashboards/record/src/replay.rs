//! A finished run as the snapshots of its seconds: what a live screen has shown, as far as the result keeps it.
//!
//! What a result does not keep is not made up. Expectations and the verdict are there at the end alone; last syncs and
//! what the generator took by the second are nowhere. Latencies are as coarse as [`latencies`](crate::latencies), and
//! where the series is told in buckets of several seconds, so is the run.

use std::sync::Arc;

use protocol::endpoint::Endpoint;

use crate::account::Account;
use crate::label::{ByLabel, Label as _};
use crate::micros::Micros;
use crate::result::RunResult;
use crate::series::{BUCKETS_MAX, Gauge, Series};
use crate::snapshot::{Arrivals, End, Rate, Snapshot};
use crate::timeline::Step;

/// The seconds of a run, or its buckets where they are wider; the last one is the run at its end. Of a result that does
/// not say when requests ended, the end alone.
pub fn snapshots(result: &RunResult) -> Vec<Snapshot> {
    let series = &result.series;
    let until = result.run.window.until;
    let agents = result.fleet.agents;
    let timeline: Arc<[Step]> = result.timeline.clone().into();
    let mut account = Account::default();
    let mut gauges = ByLabel::default();
    let mut snapshots = Vec::new();
    for bucket in 0..series.len().clamp(1, BUCKETS_MAX) {
        let begins = series.begins(bucket);
        let ends = series.begins(bucket + 1).min(until);
        account.add(&series.account_in(bucket));
        // A reading is taken when a second is over; a mean is of its bucket.
        let read_in = match series.width_seconds() {
            1 => bucket + 1,
            _ => bucket,
        };
        gauges = readings(series, read_in, agents).unwrap_or(gauges);
        snapshots.push(Snapshot {
            at: ends,
            duration: until,
            agents,
            gauges: gauges.clone(),
            account: account.clone(),
            last_second: rates(series, bucket, begins, ends),
            lateness: series.latencies().lateness(begins),
            timeline: Arc::clone(&timeline),
            arrivals: arrivals(&gauges),
            ..Snapshot::default()
        });
        if ends == until {
            break;
        }
    }
    if !series.knows_ends() {
        snapshots.drain(..snapshots.len() - 1);
    }
    if let Some(last) = snapshots.last_mut() {
        last.at = until;
        last.account = result.account.clone();
        last.gauges[Gauge::Enrolled] = result.fleet.enrolled;
        last.judged_at = Some(until);
        last.judgements.clone_from(&result.expectations);
        last.end = Some(End {
            verdict: result.verdict,
            reason: result.reason.clone(),
        });
    }
    snapshots
}

/// Whether anybody was still to come; that they were held back by hand is in no second of a result.
fn arrivals(gauges: &ByLabel<Gauge, u64>) -> Arrivals {
    match gauges[Gauge::Waiting] {
        0 => Arrivals::Over,
        _ => Arrivals::GoOn,
    }
}

/// What gauges were in a bucket; none without a reading in it. How many readings it has follows from the states: in each
/// reading they are all agents.
fn readings(series: &Series, bucket: usize, agents: u64) -> Option<ByLabel<Gauge, u64>> {
    let all: f64 = Gauge::STATES
        .iter()
        .map(|state| series.gauge_in(bucket, *state))
        .sum();
    (all > 0.0).then(|| {
        let share = agents as f64 / all;
        let of = |gauge: Gauge| (series.gauge_in(bucket, gauge) * share).round() as u64;
        Gauge::all()
            .iter()
            .map(|gauge| (*gauge, of(*gauge)))
            .collect()
    })
}

/// What was done in a bucket, a second.
fn rates(series: &Series, bucket: usize, begins: Micros, ends: Micros) -> ByLabel<Endpoint, Rate> {
    let seconds = ends.since(begins).as_seconds().max(1.0);
    let a_second = |count: u64| (count as f64 / seconds).round() as u64;
    let latencies = series.latencies();
    let account = series.account_in(bucket);
    let rate = |endpoint: Endpoint| {
        let line = account.line(endpoint);
        Rate {
            planned: a_second(line.planned),
            started: a_second(line.started),
            successes: series.knows_ends().then(|| a_second(line.successes())),
            response: latencies.response(endpoint, begins),
            service: latencies.service(endpoint, begins),
        }
    };
    Endpoint::ALL
        .iter()
        .map(|endpoint| (*endpoint, rate(*endpoint)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micros::Window;
    use crate::outcome::Outcome;
    use crate::recorder::Recorder;
    use crate::result::tests::part;
    use crate::samples::Sample;
    use crate::timeline::{Became, Done};
    use crate::verdict::Verdict;

    /// A run of so many seconds of ten agents: each second ten syncs, of which one is reset.
    fn run_of(seconds: u64) -> RunResult {
        let mut result = part(0, 10, &[]);
        let window = Window {
            from: Micros::ZERO,
            until: Micros::from_seconds(seconds),
        };
        let mut recorder = Recorder::new(window);
        for second in 0..seconds {
            let at = Micros::from_seconds(second);
            if second > 0 {
                recorder.gauge(Gauge::Waiting, at, 3);
                recorder.gauge(Gauge::Healthy, at, 7);
            }
            for agent in 0..10 {
                let sample = Sample {
                    endpoint: Endpoint::Sync,
                    outcome: if agent == 0 {
                        Outcome::Reset
                    } else {
                        Outcome::Ok
                    },
                    intended: at,
                    started: at + Micros::from_ms(1),
                    first_byte_out: Some(at + Micros::from_ms(2)),
                    ended: at + Micros::from_ms(10),
                    connect: None,
                };
                recorder.planned(sample.endpoint, sample.intended);
                recorder.started(sample.endpoint, sample.started);
                recorder.ended(&sample);
            }
        }
        result.run.window = window;
        let fleet = result.fleet.clone();
        result.fill(recorder.recorded().clone(), fleet);
        result.fleet.agents = 10;
        result.fleet.enrolled = 9;
        result
    }

    #[test]
    fn a_second_is_what_happened_until_then() {
        let run = run_of(30);
        let seconds = snapshots(&run);
        assert_eq!(seconds.len(), 30);
        let third = &seconds[2];
        assert_eq!(third.at, Micros::from_seconds(3));
        assert_eq!(third.account.total().ended[Outcome::Reset], 3);
        assert_eq!(
            (third.gauges[Gauge::Waiting], third.gauges[Gauge::Healthy]),
            (3, 7)
        );
        let sync = third.last_second[Endpoint::Sync];
        assert_eq!((sync.planned, sync.successes), (10, Some(9)));
        let response = sync.response.unwrap().p50.0;
        assert!(response.abs_diff(10_000) <= 10_000 / 16, "{response}");
        assert!(third.lateness.is_some());
        // Nobody knows these any more.
        assert_eq!((third.last_sync, third.generator), (None, None));
        assert!(third.judgements.is_empty() && third.end.is_none());
    }

    #[test]
    fn a_step_of_the_time_line_is_done_from_its_moment_on() {
        let mut run = run_of(30);
        let done = Done::new(Micros::from_ms(10_300), 5, []);
        run.timeline = vec![Step {
            due: Micros::from_seconds(10),
            what: "it happens".to_owned(),
            became: Became::Done(done.clone()),
        }];
        let text = run.to_text();
        let run = RunResult::read(text.as_bytes()).unwrap();
        let seconds = snapshots(&run);
        for (second, expected) in [(9, None), (10, Some(&done)), (29, Some(&done))] {
            let second = &seconds[second];
            let seen = second.timeline[0].done_until(second.at);
            assert_eq!(seen, expected, "{:?}", second.at);
        }
        // One from before steps were kept has none.
        let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
        file.as_object_mut().unwrap().remove("timeline");
        let old = RunResult::read(file.to_string().as_bytes()).unwrap();
        assert!(snapshots(&old)[0].timeline.is_empty());
    }

    #[test]
    fn the_end_is_as_it_was_judged() {
        let mut run = run_of(30);
        run.verdict = Verdict::Fail;
        run.expectations = part(0, 10, &[]).expectations;
        let last = snapshots(&run).pop().unwrap();
        assert_eq!(last.at, last.duration);
        assert_eq!(last.account, run.account);
        assert_eq!(last.judgements, run.expectations);
        assert_eq!(last.judged_at, Some(last.at));
        assert_eq!(last.gauges[Gauge::Enrolled], 9);
        assert_eq!(last.end.unwrap().verdict, Verdict::Fail);
    }

    #[test]
    fn a_long_run_is_told_in_wider_steps_and_by_the_same_figures() {
        let seconds = snapshots(&run_of(9_000));
        assert_eq!(seconds.len(), 4_500);
        for second in [&seconds[0], &seconds[2_000], &seconds[4_499]] {
            assert_eq!(second.last_second[Endpoint::Sync].planned, 10);
            assert_eq!(second.gauges[Gauge::Healthy], 7);
        }
    }

    #[test]
    fn a_run_that_ended_within_a_second_has_that_part_of_it() {
        let mut run = run_of(3);
        run.run.window.until = Micros::from_ms(2_400);
        let seconds = snapshots(&run);
        assert_eq!(seconds.len(), 3);
        assert_eq!(seconds[2].at, Micros::from_ms(2_400));
        run.run.window.until = Micros::ZERO;
        assert_eq!(snapshots(&run).len(), 1);
    }

    #[test]
    fn a_result_without_its_seconds_has_its_end() {
        let run = run_of(3);
        let mut file: serde_json::Value = serde_json::from_str(&run.to_text()).unwrap();
        for member in ["ended", "latencies"] {
            file["series"].as_object_mut().unwrap().remove(member);
        }
        let old = RunResult::read(file.to_string().as_bytes()).unwrap();
        let seconds = snapshots(&old);
        assert_eq!(seconds.len(), 1);
        assert_eq!(seconds[0].account, run.account);
        let sync = seconds[0].last_second[Endpoint::Sync];
        assert_eq!(
            (sync.planned, sync.successes, sync.response),
            (10, None, None)
        );
    }
}
