//! How a run is ended from outside: once gently, twice at once, and before it has begun.

use std::fs;
use std::sync::mpsc::{Receiver, channel};

use protocol::endpoint::Endpoint;
use record::RunResult;

use super::portal::{Between, Fate, Portal};
use super::program::{Done, ENROLLED, Going, Place, adds_up, expecting};

/// A fleet that would run for ten minutes, at a portal that answers syncs or keeps silent; and every endpoint that is
/// called.
fn long(place: &Place, portal: &Portal, silent: bool) -> (Going, Receiver<String>, Between) {
    place.write("s.toml", expecting(ENROLLED).replace("\"2s\"", "\"10m\""));
    place.write("tokens", portal.tokens(5));
    let (seen, requests) = channel();
    let between = Between::stand(portal.address(), move |_, request| {
        let _ = seen.send(request.endpoint().to_owned());
        match request.endpoint() {
            "sync" if silent => Fate::Silence,
            _ => Fate::Honest,
        }
    });
    let going = place.start(&["--portal", &between.url, "--tokens", "tokens"]);
    (going, requests, between)
}

fn wait_for_syncs(requests: &Receiver<String>, count: usize) {
    let syncs = requests.iter().filter(|endpoint| endpoint == "sync");
    assert_eq!(syncs.take(count).count(), count);
}

/// Checks the end of an interrupted run, and gives its report.
fn interrupted(place: &Place, done: &Done) -> RunResult {
    let last = done.ended(130, "ABORTED");
    assert_eq!(last, "ABORTED interrupted; this is the report so far");
    let result = place.result();
    assert!(result.interrupted);
    assert_eq!(
        (result.verdict, result.exit_code),
        (record::Verdict::Aborted, 130)
    );
    adds_up(&result);
    result
}

// case L46: Ctrl-C keeps what was counted so far, and what was expected is judged on it.
#[test]
fn an_interrupted_run_has_its_report_130() {
    let going = ["-INT", "-TERM"].map(|signal| {
        let (place, portal) = (Place::new(), Portal::plain());
        (long(&place, &portal, false), place, portal, signal)
    });
    for ((mut going, requests, _between), place, _portal, signal) in going {
        wait_for_syncs(&requests, 10);
        going.signal(signal);
        going.tells("interrupted: calls under way may end; once more to report at once");
        let done = going.end();
        let result = interrupted(&place, &done);
        assert!(result.account.total().successes() >= 10, "{signal}");
        // What did not come to be due has no part in a rate.
        let judged = result.run.window.length().as_seconds();
        assert!(judged < 600.0, "{signal}: {judged} s");
        let sync = &result.figures.endpoints[Endpoint::Sync];
        assert_eq!(
            sync.successes_per_second,
            Some(sync.successes as f64 / judged)
        );
        let judged = "pass    all agents are enrolled: 5 of 5 (at the end)";
        assert!(done.answered.contains(judged), "{done:#?}");
    }
}

// case L46: with an answer that never comes the first Ctrl-C waits a little, and the second one does not.
#[test]
fn a_second_interrupt_reports_at_once_130() {
    let (place, portal) = (Place::new(), Portal::plain());
    let (mut going, requests, _between) = long(&place, &portal, true);
    wait_for_syncs(&requests, 5);
    going.signal("-INT");
    going.tells("interrupted: calls under way may end");
    going.signal("-INT");
    going.tells("interrupted: reporting at once");
    let done = going.end();
    let result = interrupted(&place, &done);
    // Cut off, not waited for until they time out.
    assert_eq!(result.account.total().ended[record::Outcome::Aborted], 5);
}

// `timeout` tells its program, and then its whole group.
#[test]
fn to_be_terminated_twice_is_to_be_terminated_130() {
    let (place, portal) = (Place::new(), Portal::plain());
    let (mut going, requests, _between) = long(&place, &portal, true);
    wait_for_syncs(&requests, 5);
    going.signal("-TERM");
    going.signal("-TERM");
    going.tells("interrupted: calls under way may end");
    let done = going.end();
    assert!(!done.told.contains("reporting at once"), "{done:#?}");
    interrupted(&place, &done);
}

// What a run before has left is not what came of this one, however it ends.
#[test]
fn a_result_from_before_is_set_aside() {
    let (place, portal) = (Place::new(), Portal::plain());
    fs::create_dir(place.path("out")).unwrap();
    place.write("out/result.json", "of the run before");
    let (mut going, requests, _between) = long(&place, &portal, false);
    wait_for_syncs(&requests, 5);
    assert!(!place.path("out/result.json").exists());
    let before = fs::read_to_string(place.path("out/result-before.json")).unwrap();
    assert_eq!(before, "of the run before");
    going.signal("-INT");
    going.tells("interrupted");
    interrupted(&place, &going.end());
}

// case L46: nor does the first one wait for ever.
#[test]
fn one_interrupt_is_enough_130() {
    let (place, portal) = (Place::new(), Portal::plain());
    let (mut going, requests, _between) = long(&place, &portal, true);
    wait_for_syncs(&requests, 5);
    going.signal("-INT");
    going.tells("interrupted: calls under way may end");
    let done = going.end();
    let result = interrupted(&place, &done);
    assert_eq!(result.account.total().ended[record::Outcome::Aborted], 5);
}

#[test]
fn before_the_run_there_is_nothing_to_report_130() {
    let (seen, requests) = channel();
    let silent = Between::stand(([127, 0, 0, 1], 1).into(), move |_, _| {
        let _ = seen.send(());
        Fate::Silence
    });
    let place = Place::with(&expecting(ENROLLED));
    place.write("tokens", Portal::plain().tokens(5));
    let before = place.names();
    let going = place.start(&["--portal", &silent.url, "--tokens", "tokens"]);
    requests.recv().unwrap();
    going.signal("-INT");
    let done = going.end();
    let last = done.ended(130, "ABORTED");
    assert_eq!(last, "ABORTED interrupted before the run had begun");
    assert_eq!(place.names(), before);
}

// What makes the tokens is the run's, with all that it has started itself.
#[test]
fn a_command_for_tokens_ends_with_its_run_130() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let place = Place::with(&expecting(ENROLLED));
        let making = "cmd:echo making >&2; sleep 600; cat tokens";
        let mut going = place.start(&["--portal", "http://127.0.0.1:1", "--tokens", making]);
        going.tells("making");
        going.signal(signal);
        let done = going.end();
        let last = done.ended(130, "ABORTED");
        assert_eq!(last, "ABORTED interrupted before the run had begun");
    }
}

// case L42: on the way there is a line every five seconds, plain text of a width that every terminal has.
#[test]
fn a_run_of_its_own_portal_tells_how_far_it_is_and_is_interrupted_like_any_other_130() {
    let place = Place::with(&expecting(ENROLLED).replace("\"2s\"", "\"10m\""));
    let mut going = place.start(&[]);
    let line = going.tells("5s/600s");
    assert!(line.starts_with("5s/600s 5/5 enrolled | "), "{line}");
    assert!(line.contains("0 of 1 hold, 1 SO FAR"), "{line}");
    assert!(line.chars().count() <= 120, "{line}");
    going.signal("-INT");
    let done = going.end();
    assert_eq!(done.told.matches(" enrolled | ").count(), 1, "{done:#?}");
    let result = interrupted(&place, &done);
    assert!(result.portal.is_some());
    assert_eq!(result.fleet.enrolled, 5);
}
