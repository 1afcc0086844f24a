//! How much is asked at once: a thousand agents, ten times the pace, any number of threads, a generator that is held up
//! while its agents are to begin; and the shipped scenario that is about it.

use std::time::Duration;

use protocol::endpoint::Endpoint;
use record::{Histogram, Micros, Outcome};

use super::portal::{Between, Fate, Portal};
use super::program::{DOCUMENT, ENROLLED, Going, Place, adds_up, expecting, small};

/// They boot in one moment, so they enroll together and fetch the manifest of their first document together: two that ask
/// in the same second sign the same bytes, and neither is a replay.
#[test]
fn a_thousand_agents_that_fetch_one_manifest_together_all_get_it() {
    let scenario = small(&format!(
        "{DOCUMENT}\n[[expect]]\n{ENROLLED}\n[[expect]]\n\
         count = {{ endpoint = \"manifest\", outcome = \"ok\", exactly = 1000 }}\n[[expect]]\n\
         share = {{ endpoint = \"manifest\", outcome = \"ok\", at_least = 1.0 }}\n"
    ));
    let scenario = scenario
        .replace("count = 5", "count = 1000")
        .replace("tempo = 0.01", "tempo = 0.05")
        .replace("\"2s\"", "\"12s\"");
    let place = Place::with(&scenario);
    let done = place.run(&[]);
    done.ended(0, "PASS");
    let result = place.result();
    adds_up(&result);
    let fetched = |second| result.series.started_in(second, Endpoint::Manifest);
    let most = (0..result.series.len()).map(fetched).max();
    assert!(most >= Some(200), "{most:?}");
}

// What is shipped comes to a verdict as it is: 20 s are enough for the first syncs of the storm.
#[test]
fn the_shipped_storm_passes() {
    let place = Place::new();
    let arguments = [
        "run",
        "enrollment-storm",
        "--agents",
        "50",
        "--duration",
        "20s",
    ];
    let done = place.call(&arguments);
    done.ended(0, "PASS");
}

// case L4, L8: what the generator itself was held up by while its agents were to begin is lateness, and not the portal's.
#[test]
fn agents_that_begin_late_are_late() {
    const HELD_UP: Duration = Duration::from_secs(2);
    let (place, portal) = (Place::new(), Portal::plain());
    let arrival = "count = 5\narrival = { ramp = { over = \"1500ms\" } }";
    let scenario = expecting(ENROLLED)
        .replace("count = 5", arrival)
        .replace("\"2s\"", "\"5s\"");
    place.write("s.toml", scenario);
    place.write("tokens", portal.tokens(5));
    let (between, requests) = Between::watching(portal.address());
    let going = place.start(&["--portal", &between.url, "--tokens", "tokens"]);
    // The first has come; the others are to begin before it goes on.
    assert!(requests.iter().any(|endpoint| endpoint == "enroll"));
    going.signal("-STOP");
    while requests.recv_timeout(HELD_UP).is_ok() {}
    going.signal("-CONT");
    going.end().ended(0, "PASS");
    let result = place.result();
    adds_up(&result);
    let long = |times: &Histogram| times.count() - times.count_within(Micros::from_ms(500));
    let enrolled = result.samples.cell(Endpoint::Enroll, Outcome::Ok).unwrap();
    // The one that was under way meanwhile could not be read.
    assert!(long(&enrolled.service) <= 1, "{enrolled:?}");
    assert!(long(&enrolled.response) >= 3, "{enrolled:?}");
    assert!(long(&result.samples.lateness) >= 3, "{:?}", result.figures);
}

// case L14: how many threads there are is in no figure.
#[test]
fn any_number_of_threads_asks_as_often() {
    const AGENTS: u64 = 5;
    let scenario = expecting(ENROLLED).replace("\"2s\"", "\"4s\"");
    let going = ["1", "2", "16"].map(|threads| {
        let place = Place::with(&scenario);
        let mut command = place.loadgen(&["run", "s.toml", "--out", "out"]);
        command.env("TOKIO_WORKER_THREADS", threads);
        (Going::start(&mut command), place, threads)
    });
    for (going, place, threads) in going {
        going.end().ended(0, "PASS");
        let result = place.result();
        adds_up(&result);
        // Every 250 to 350 ms, and the first at once. How much less often a busy machine asks is not said here.
        let most = AGENTS * (4_000 / 250 + 1);
        let asked = result.account.line(Endpoint::Sync).started;
        let range = 2 * AGENTS..=most;
        assert!(range.contains(&asked), "{threads} threads: {asked} syncs");
    }
}

// case L16: agents that ask ten times as often as they can be answered are answered no less often for that.
#[test]
fn who_asks_for_far_too_much_gets_no_less() {
    // A sync takes most of the interval at one pace, and eight of them at the other.
    let answered_after = Duration::from_millis(250);
    let going = ["0.01", "0.001"].map(|tempo| {
        let (place, portal) = (Place::new(), Portal::plain());
        let tempo = format!("tempo = {tempo}");
        let scenario = expecting(ENROLLED)
            .replace("tempo = 0.01", &tempo)
            .replace("\"2s\"", "\"5s\"");
        place.write("s.toml", scenario);
        place.write("tokens", portal.tokens(5));
        let between = Between::stand(portal.address(), move |_, request| {
            match request.endpoint() {
                "sync" => Fate::Late(answered_after),
                _ => Fate::Honest,
            }
        });
        let going = place.start(&["--portal", &between.url, "--tokens", "tokens"]);
        (going, place, portal, between)
    });
    let [calm, greedy] = going.map(|(going, place, _portal, _between)| {
        going.end().ended(0, "PASS");
        let result = place.result();
        adds_up(&result);
        let missing = result.figures.sync_deficit.unwrap().share;
        (result.samples.count(Endpoint::Sync, Outcome::Ok), missing)
    });
    assert!(greedy.0 * 10 >= calm.0 * 9, "{greedy:?} after {calm:?}");
    // And what is missing of what was asked for is told.
    assert!(greedy.1 > 0.5, "{greedy:?}");
}
