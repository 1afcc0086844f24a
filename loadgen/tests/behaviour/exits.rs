//! Every exit code, made to happen.

use std::time::Duration;

use protocol::endpoint::Endpoint;

use super::portal::{Between, Fate, Message, Portal, nobody, uninvited};
use super::program::{DOCUMENT, ENROLLED, Going, Place, adds_up, expecting, small};

/// An operation, so that with a document every kind of expectation has something to judge.
const SAVES: &str = r#"
[[timeline]]
at = "800ms"
do.operation = { kind = "snapshot.save", params = { name = "nightly" } }
"#;

/// What holds of a run that goes well, a row a kind.
const HOLDS: &[&str] = &[
    r#"latency = { of = "lateness", quantile = 99, at_most = "30s" }"#,
    r#"latency = { of = "connect", quantile = 99, at_most = "30s" }"#,
    r#"latency = { of = "service", endpoint = "sync", quantile = 99, at_most = "30s" }"#,
    r#"latency = { of = "response", endpoint = "sync", quantile = 50, at_most = "30s" }"#,
    r#"count = { endpoint = "sync", outcome = "ok", at_least = 5 }"#,
    r#"share = { endpoint = "sync", outcome = "ok", at_least = 1.0 }"#,
    r#"throughput = { endpoint = "sync", at_least = 1 }"#,
    r#"enrolled = { exactly = "all" }"#,
    r#"convergence = { share = 1.0, within = "30s" }"#,
    r#"staleness = { at_most = "30s" }"#,
    r#"sync_deficit = { at_most = 1.0 }"#,
    r#"operations = { kind = "snapshot.save", state = "succeeded", exactly = "all" }"#,
    r#"peak = { at_most = 100 }"#,
    r#"duplicate_identities = { at_most = 0 }"#,
];

/// What cannot hold of it, a row a kind, and how the reason begins. An identity too many breaks an invariant first
/// (below), and a deficit needs a portal that is slower than its agents (below).
const CANNOT_HOLD: &[(&str, &str)] = &[
    (
        r#"latency = { of = "lateness", quantile = 99, at_most = "1us" }"#,
        "99 % of requests start at most 1 µs late: ",
    ),
    (
        r#"latency = { of = "connect", quantile = 99, at_most = "1us" }"#,
        "99 % of connections are made within 1 µs: ",
    ),
    (
        r#"latency = { of = "service", endpoint = "sync", quantile = 99, at_most = "1us" }"#,
        "99 % of sync requests end `ok` within 1 µs of being sent: ",
    ),
    (
        r#"latency = { of = "response", endpoint = "sync", quantile = 50, at_most = "1us" }"#,
        "50 % of sync requests that end `ok` do within 1 µs of being due: ",
    ),
    (
        r#"count = { endpoint = "sync", outcome = "ok", exactly = 0 }"#,
        "exactly 0 sync requests end `ok`: ",
    ),
    (
        r#"share = { endpoint = "sync", outcome = "ok", at_most = 0.5 }"#,
        "at most 50 % of sync requests end `ok`: 100 %",
    ),
    (
        r#"throughput = { endpoint = "sync", at_least = 1000000 }"#,
        "at least 1000000/s of sync requests succeed: ",
    ),
    (
        r#"enrolled = { exactly = 4 }"#,
        "exactly 4 agents are enrolled: 5",
    ),
    (
        r#"convergence = { share = 1.0, within = "1us" }"#,
        "100 % of the agents have a new document within 1 µs: 0 %",
    ),
    (
        r#"staleness = { at_most = "1us" }"#,
        "no agent is longer than 1 µs without a successful sync: ",
    ),
    (
        r#"operations = { kind = "snapshot.save", state = "failed", exactly = "all" }"#,
        "all `snapshot.save` operations end as `failed`: 0",
    ),
    (
        r#"peak = { at_most = 0.5 }"#,
        "the busiest second is at most 0.5 times the mean one: ",
    ),
];

#[test]
fn what_was_expected_held_0() {
    let expected: String = HOLDS
        .iter()
        .map(|line| format!("[[expect]]\n{line}\n"))
        .collect();
    let place = Place::with(&small(&format!("{DOCUMENT}{SAVES}{expected}")));
    let done = place.run(&[]);
    let last = done.ended(0, "PASS");
    assert_eq!(last, "PASS 14 expectations held");
    let passed = done
        .answered
        .lines()
        .filter(|line| line.starts_with("pass "));
    assert_eq!(passed.count(), 14, "{done:#?}");
    let result = place.result();
    adds_up(&result);
    let text = format!("{done:?}{}", result.to_text());
    assert!(!text.contains("canary-"), "a secret is in {text}");
}

#[test]
fn what_was_expected_did_not_hold_1() {
    let going: Vec<_> = CANNOT_HOLD
        .iter()
        .map(|(expected, begins)| {
            let place = Place::with(&small(&format!(
                "{DOCUMENT}{SAVES}[[expect]]\n{expected}\n"
            )));
            (place.start(&[]), place, begins)
        })
        .collect();
    for (going, place, begins) in going {
        let done = going.end();
        let last = done.ended(1, "FAIL");
        assert!(last.starts_with(&format!("FAIL {begins}")), "{last}");
        let result = place.result();
        assert_eq!((result.exit_code, result.expectations.len()), (1, 1));
        adds_up(&result);
    }
}

// case L13: agents are due a sync each 300 ms, and the portal takes a second for one: what is missing is a figure.
#[test]
fn syncs_that_are_missing_fail_a_run_1() {
    let portal = Portal::plain();
    let slow = Between::stand(portal.address(), |_, request| match request.endpoint() {
        "sync" => Fate::Late(Duration::from_secs(1)),
        _ => Fate::Honest,
    });
    let place = Place::with(&expecting("sync_deficit = { at_most = 0.1 }"));
    place.write("tokens", portal.tokens(5));
    let done = place.run(&["--portal", &slow.url, "--tokens", "tokens"]);
    let last = done.ended(1, "FAIL");
    let begins = "FAIL at most 10 % of the expected syncs are missing: ";
    assert!(last.starts_with(begins), "{last}");
    adds_up(&place.result());
}

#[test]
fn five_mistakes_in_one_file_are_all_named_2() {
    let place = Place::with(
        r#"# Five mistakes.
name = "five"
duration = 120

[[population]]
name = "nodes"
cuont = 1000
count = -5

[[expect]]
share = { endpoint = "synk", outcome = "ok", at_least = 1.5 }
"#,
    );
    let told = [
        "s.toml:3:12: duration: ",
        "s.toml:7:1: population[0].cuont: unknown key; did you mean `count`?",
        "s.toml:8:9: population[0].count: ",
        "s.toml:11:22: expect[0].share.endpoint: unknown endpoint `synk`; did you mean `sync`?",
        "s.toml:11:57: expect[0].share.at_least: ",
    ];
    place.run(&[]).refused(&told);
    place.call(&["check", "s.toml"]).refused(&told);
    assert_eq!(place.names(), ["s.toml".to_owned()].into());
}

// case L12: a generator that was stopped for a while does not make up for it in a burst, and judges nothing.
#[test]
fn a_generator_that_cannot_keep_up_judges_nothing_3() {
    const STOPPED: Duration = Duration::from_secs(2);
    let scenario = expecting(ENROLLED)
        .replace("duration = \"2s\"", "duration = \"5s\"")
        .replace("p99_at_most = \"30s\"", "p99_at_most = \"900ms\"");
    let place = Place::with(&scenario);
    let portal = Portal::plain();
    place.write("tokens", portal.tokens(5));
    let (between, requests) = Between::watching(portal.address());
    let going = place.start(&["--portal", &between.url, "--tokens", "tokens"]);
    let syncs = requests.iter().filter(|endpoint| endpoint == "sync");
    assert_eq!(syncs.take(20).count(), 20);
    going.signal("-STOP");
    while requests.recv_timeout(STOPPED).is_ok() {}
    going.signal("-CONT");
    let done = going.end();
    let last = done.ended(3, "OVERLOADED");
    let begins = "OVERLOADED the generator could not keep up: 99 % of requests started at most ";
    assert!(last.starts_with(begins), "{last}");
    let result = place.result();
    adds_up(&result);
    // Each is due a sync every 250 to 350 ms, and one at once: not one for each that it has missed.
    let syncs: Vec<u64> = (0..result.series.len())
        .map(|second| result.series.started_in(second, Endpoint::Sync))
        .collect();
    assert!(syncs.iter().all(|count| *count <= 5 * 5), "{syncs:?}");
}

#[test]
fn without_a_portal_nothing_runs_4() {
    let closes = Between::stand(([127, 0, 0, 1], 1).into(), |_, _| Fate::Lost).url;
    let silent = Between::stand(([127, 0, 0, 1], 1).into(), |_, _| Fate::Silence).url;
    let rows = [
        (nobody(), "refused"),
        (closes, ""),
        (silent, ""),
        ("https://portal.invalid".to_owned(), "portal.invalid"),
    ];
    let going: Vec<_> = rows
        .iter()
        .map(|(url, says)| {
            let place = Place::with(&expecting(ENROLLED));
            place.write("tokens", Portal::plain().tokens(5));
            let going =
                place.start(&["--portal", url, "--tokens", "tokens", "--i-own-this-target"]);
            (going, place, url, says)
        })
        .collect();
    for (going, place, url, says) in going {
        let done = going.end();
        let last = done.ended(4, "ABORTED");
        let begins = format!("ABORTED the portal at {url}");
        assert!(last.starts_with(&begins) && last.contains(says), "{last}");
        assert!(done.took < Duration::from_secs(30), "{done:#?}");
        assert!(!place.path("out/result.json").exists());
    }
}

// case L31: a limit of open files is told before, with what can be done, and caps no fleet in silence.
#[test]
fn what_the_machine_cannot_give_is_told_before_the_run_4() {
    let place = Place::with(&expecting(ENROLLED));
    let program = env!("CARGO_BIN_EXE_loadgen");
    let script =
        format!("ulimit -n 300; exec '{program}' run s.toml --out out --agents 101 --shards 1");
    let mut limited = place.shell(&script);
    let done = Going::start(&mut limited).end();
    let last = done.ended(4, "ABORTED");
    let expected = "ABORTED 101 agents need 301 open files and a process may have 300: raise the hard limit (`ulimit -Hn 301`), or \
                    leave `--shards` out";
    assert_eq!(last, expected);
    assert!(!place.path("out").exists());
}

#[test]
fn a_portal_that_leaves_before_the_first_agent_comes_never_answered_4() {
    // Whoever asks whether there is a portal is answered; agents are not.
    let url = Between::stand(([127, 0, 0, 1], 1).into(), |_, request| {
        match request.first.starts_with("GET") {
            true => Fate::Instead(Message::answer(404, "text/plain", "")),
            false => Fate::Lost,
        }
    })
    .url;
    let place = Place::with(&expecting(ENROLLED));
    place.write("tokens", Portal::plain().tokens(5));
    let done = place.run(&["--portal", &url, "--tokens", "tokens"]);
    let last = done.ended(4, "ABORTED");
    assert!(
        last.starts_with("ABORTED the portal never answered: "),
        "{last}"
    );
    adds_up(&place.result());
}

// case L18: what nobody saw is no pass.
#[test]
fn without_a_sample_there_is_nothing_to_judge_5() {
    let rows = [
        // Nobody rotates keys.
        (
            expecting(
                r#"latency = { of = "response", endpoint = "rotate-key", quantile = 99, at_most = "1h" }"#,
            ),
            "99 % of rotate-key requests",
        ),
        // Nobody even begins.
        (
            expecting(r#"share = { endpoint = "sync", outcome = "ok", at_least = 0.0 }"#)
                .replace("boot_time = \"0s\"", "boot_time = \"10h\""),
            "at least 0 % of sync requests end `ok`: no data",
        ),
        (
            expecting(r#"convergence = { share = 0.0, within = "1h" }"#),
            "0 % of the agents",
        ),
        // A referee that is owed sees nobody either.
        (
            expecting(r#"duplicate_identities = { at_most = 0, allow_empty = true }"#)
                .replace("[6, 12]", "[9]")
                .replace("boot_time = \"0s\"", "boot_time = \"10h\""),
            "referee 9 had nothing to judge, and `referees` names it: it needs a document, whose secrets it looks for; or leave \
             it out: `referees = []`",
        ),
    ];
    let going: Vec<_> = rows
        .iter()
        .map(|(scenario, begins)| {
            let place = Place::with(&scenario.replace("[6, 12]", "[]"));
            (place.start(&[]), place, begins)
        })
        .collect();
    // Nobody has to rotate keys for ever: what may be empty fails nothing.
    let allowed = rows[0].0.replace("\"1h\"", "\"1h\", allow_empty = true");
    let allowed = Place::with(&format!("{allowed}[[expect]]\n{ENROLLED}\n")).run(&[]);
    assert_eq!(allowed.ended(0, "PASS"), "PASS 1 expectation held");
    for (going, place, begins) in going {
        let done = going.end();
        let last = done.ended(5, "NO_DATA");
        assert!(last.starts_with(&format!("NO_DATA {begins}")), "{last}");
        assert_eq!(place.result().exit_code, 5);
    }
}

// case L5: a second in which one agent comes, or nobody: a rate of what was there, or none.
#[test]
fn a_run_of_a_second_has_sane_figures() {
    // A node is up too late to sync in that second, or comes tomorrow.
    let expected = r#"count = { endpoint = "enroll", outcome = "ok", exactly = 1 }"#;
    for (boot_time, code, word) in [("0s", 0, "PASS"), ("10h", 5, "NO_DATA")] {
        let boots = format!("boot_time = \"{boot_time}\"");
        let scenario = expecting(expected)
            .replace("boot_time = \"0s\"", &boots)
            .replace("tempo = 0.01", "tempo = 0.2")
            .replace("[6, 12]", "[]");
        let place = Place::with(&scenario);
        let done = place.run(&["--agents", "1", "--duration", "1s"]);
        done.ended(code, word);
        let result = place.result();
        adds_up(&result);
        let came = u64::from(code == 0);
        assert_eq!(result.account.total().started, came);
        let figures = &result.figures;
        let enroll = &figures.endpoints[Endpoint::Enroll];
        assert_eq!(enroll.successes_per_second, (came == 1).then_some(1.0));
        assert_eq!(figures.lateness.map_or(0, |late| late.count), came);
        let sync = &figures.endpoints[Endpoint::Sync];
        assert_eq!((sync.successes_per_second, sync.error_share), (None, None));
        assert_eq!(figures.sync_deficit, None);
    }
}

// case L6: a portal that received what no agent has sent does not agree with the account.
#[test]
fn an_account_that_does_not_agree_with_the_portals_6() {
    let place = Place::with(&expecting(ENROLLED));
    let mut going = place.start(&[]);
    let url = going.own_portal();
    uninvited(&url);
    let done = going.end();
    let last = done.ended(6, "FAIL");
    assert!(
        last.starts_with("FAIL the account does not add up: sync: the portal "),
        "{last}"
    );
    assert!(!place.result().account_errors().is_empty());
}

#[test]
fn two_agents_with_one_identity_6() {
    let portal = Portal::plain();
    let liar = Between::enrolling_all_as_one(portal.address());
    // What is expected holds: four of the five are somebody else.
    let place = Place::with(&expecting(ENROLLED));
    place.write("tokens", portal.tokens(5));
    let done = place.run(&["--portal", &liar.url, "--tokens", "tokens"]);
    let last = done.ended(6, "FAIL");
    assert_eq!(last, "FAIL 4 identities are not one an agent");
    assert!(
        done.answered.contains("pass    all agents are enrolled: 5"),
        "{done:#?}"
    );
}
