//! The verdict on a whole run: a result, changed in one way, and the exit code and last line that come of it.

#![expect(
    clippy::panic,
    reason = "a helper that panics fails its test with the line that was wrong"
)]

use std::collections::{BTreeMap, BTreeSet};

use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::time::Timestamp;
use record::fleet::Fleet;
use record::micros::Micros;
use record::outcome::Outcome;
use record::recorder::Recorder;
use record::result::{IndexRange, PopulationPart, Protocol, RefereeReport, RunInfo, RunResult};
use record::samples::Sample;
use record::verdict::Verdict;
use scenario::{Evidence, Scenario};

const TEXT: &str = r#"
name = "small"
duration = "100s"
warm_up = "10s"
referees = [6]

[[population]]
name = "nodes"
count = 10

[[expect]]
enrolled = { exactly = "all" }

[[expect]]
share = { endpoint = "sync", outcome = "ok", at_least = 0.99 }

[[expect]]
convergence = { share = 1.0, within = "30s", allow_empty = true }
"#;

fn scenario() -> Scenario {
    Scenario::parse("small.toml", TEXT).unwrap_or_else(|e| panic!("{e}"))
}

/// A request that is due at `second`, started `late_ms` after that, and ends so.
fn request(recorder: &mut Recorder, second: u64, late_ms: u64, outcome: Outcome) {
    let intended = Micros::from_seconds(second);
    let started = intended + Micros::from_ms(late_ms);
    recorder.planned(Endpoint::Sync, intended);
    recorder.started(Endpoint::Sync, started);
    recorder.ended(&Sample {
        endpoint: Endpoint::Sync,
        outcome,
        intended,
        started,
        first_byte_out: Some(started),
        ended: started + Micros::from_ms(5),
        connect: None,
    });
}

/// A run in which all is well: ten agents, a hundred syncs, these of them with another end or late.
fn run(change: impl Fn(u64) -> (u64, Outcome)) -> RunResult {
    let scenario = scenario();
    let info = RunInfo {
        scenario: scenario.name.clone(),
        scenario_toml: scenario.text.clone(),
        scenario_sha256: Sha256Hex::of(TEXT.as_bytes()),
        overrides: scenario.overrides.given(),
        seed: scenario.seed,
        window: scenario.window(),
        portal: None,
        versions: BTreeMap::new(),
        commit: None,
        started_at: Timestamp::from_unix_ms(0),
        ended_at: Timestamp::from_unix_ms(100_000),
        hosts: BTreeSet::new(),
    };
    let nodes = PopulationPart {
        name: "nodes".to_owned(),
        protocol: Protocol::Pbx,
        count: 10,
        ranges: vec![IndexRange {
            first: 0,
            count: 10,
        }],
    };
    let mut result = RunResult::new(info, vec![nodes]);
    let mut recorder = Recorder::new(scenario.window());
    for second in 0..100 {
        let (late_ms, outcome) = change(second);
        request(&mut recorder, second, late_ms, outcome);
    }
    let fleet = Fleet {
        agents: 10,
        enrolled: 10,
        ..Fleet::default()
    };
    result.fill(recorder.recorded().clone(), fleet);
    result.referees = vec![RefereeReport {
        number: 6,
        name: "pace".to_owned(),
        owed: true,
        judged: 90,
        breaches: 0,
        broken: BTreeSet::new(),
    }];
    result
}

fn well(_: u64) -> (u64, Outcome) {
    (1, Outcome::Ok)
}

/// Judges a run and checks the last line, the exit code, and that the result says the same.
fn check(result: &mut RunResult, code: u8, line: &str) {
    let decision = scenario().judge(result);
    assert_eq!(decision.line().as_deref(), Some(line));
    assert_eq!(decision.exit.code(), code, "{line}");
    assert_eq!(result.exit_code, code, "{line}");
    assert_eq!(
        format!("{} {}", result.verdict.capitals(), result.reason),
        line
    );
    assert_eq!(result.expectations.len(), 3);
}

#[test]
fn a_run_in_which_all_is_well_passes() {
    let mut result = run(well);
    check(&mut result, 0, "PASS 2 expectations held");
    // What may be empty is told as what it is, and is no fault.
    assert_eq!(result.expectations[2].verdict, Verdict::NoData);
    // Judging again changes nothing.
    let before = result.clone();
    check(&mut result, 0, "PASS 2 expectations held");
    assert_eq!(result, before);
}

// case L21: errors that nothing is expected of are told, and fail nothing.
#[test]
fn an_error_without_an_expectation_fails_nothing() {
    let mut result = run(|second| match second {
        5 | 50 => (1, Outcome::Reset),
        _ => well(second),
    });
    let fewer = TEXT.replacen("at_least = 0.99", "at_least = 0.5", 1);
    let lenient = Scenario::parse("small.toml", &fewer).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(lenient.judge(&mut result).exit.code(), 0);
    assert_eq!(result.account.total().ended[Outcome::Reset], 2);
}

// case L37: a fleet that is smaller than it was to be is not a pass.
#[test]
fn an_expectation_that_does_not_hold_fails_the_run() {
    let mut result = run(well);
    result.fleet.enrolled = 9;
    check(
        &mut result,
        1,
        "FAIL all agents are enrolled: 9 of 10 (at the end)",
    );

    let mut result = run(|second| match second {
        50 => (1, Outcome::TimedOutAnswer),
        _ => well(second),
    });
    check(
        &mut result,
        1,
        "FAIL at least 99 % of sync requests end `ok`: 98.89 % (10 s to 100 s)",
    );
}

#[test]
fn a_generator_that_cannot_keep_up_judges_nothing() {
    let mut late = run(|_| (150, Outcome::TimedOutAnswer));
    late.account.started(Endpoint::Enroll);
    late.account.planned(Endpoint::Enroll);
    late.account.ended(Endpoint::Enroll, Outcome::Ok);
    check(
        &mut late,
        3,
        "OVERLOADED the generator could not keep up: 99 % of requests started at most 150 ms late, 100 ms is allowed",
    );

    let mut dropped = run(well);
    dropped.account.planned(Endpoint::Sync);
    dropped.account.dropped(Endpoint::Sync);
    check(
        &mut dropped,
        3,
        "OVERLOADED the generator could not keep up: it left 1 of 101 requests undone, 0.1 % is allowed",
    );

    // case L30, L31: the generator's own limits are never the portal's fault.
    for (outcome, what) in [
        (Outcome::ClientPorts, "source ports"),
        (Outcome::ClientFiles, "file descriptors"),
    ] {
        let mut short = run(|second| match second {
            5 => (1, outcome),
            _ => well(second),
        });
        check(
            &mut short,
            3,
            &format!("OVERLOADED the generator ran out of {what}: 1 requests were not sent"),
        );
    }
}

#[test]
fn a_portal_that_never_answers_is_not_there() {
    let mut result = run(|second| match second {
        0..3 => (1, Outcome::TimedOutConnect),
        _ => (1, Outcome::ConnectRefused),
    });
    check(
        &mut result,
        4,
        "ABORTED the portal never answered: 100 requests were sent, most often `connect_refused` (97)",
    );
}

#[test]
fn without_data_there_is_no_verdict() {
    let mut result = run(well);
    result.fleet.agents = 0;
    check(
        &mut result,
        5,
        "NO_DATA all agents are enrolled: no data (at the end)",
    );

    // A referee that is owed and saw nothing, or is not there at all.
    for referees in [
        vec![RefereeReport {
            judged: 0,
            ..run(well).referees.remove(0)
        }],
        Vec::new(),
    ] {
        let mut result = run(well);
        result.referees = referees;
        check(
            &mut result,
            5,
            "NO_DATA referee 6 had nothing to judge, and `referees` names it: it needs agents that speak `pbx`; or leave it \
             out: `referees = []`",
        );
    }
    // One that nobody has named says so.
    let by_default = TEXT.replacen("referees = [6]\n", "", 1);
    let by_default = Scenario::parse("small.toml", &by_default).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        by_default.judge(&mut run(well)).line().as_deref(),
        Some(
            "NO_DATA referee 12 had nothing to judge, and this scenario owes it by default: it needs agents that speak \
             `pbx`, and time for it; or name the others: `referees = [6]`"
        )
    );
}

// What only the end can tell is neither failed nor held before: more may come. What would be too much stays so.
#[test]
fn what_is_of_the_end_is_open_until_then() {
    let expected = r#"
        enrolled = { exactly = "all" }
        convergence = { share = 1.0, within = "30s" }
        count = { endpoint = "sync", outcome = "ok", at_least = 1000 }
        operations = { kind = "snapshot.save", state = "succeeded", exactly = "all" }
        count = { endpoint = "sync", outcome = "ok", at_most = 5 }
        operations = { kind = "snapshot.save", state = "failed", at_most = 0 }
        duplicate_identities = { at_most = 0 }
        share = { endpoint = "sync", outcome = "ok", at_least = 0.99 }
    "#;
    let (head, _) = TEXT.split_once("[[expect]]").unwrap_or_else(|| panic!());
    let expected = expected.trim().lines().map(str::trim);
    let text: String = expected.fold(head.to_owned(), |text, one| {
        format!("{text}[[expect]]\n{one}\n")
    });
    let scenario = Scenario::parse("small.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let mut result = run(well);
    result.fleet.enrolled = 3;
    let evidence = Evidence::from(&result);
    let so_far: Vec<Verdict> = scenario
        .expect
        .iter()
        .map(|expected| expected.judge_so_far(&evidence).verdict)
        .collect();
    use Verdict::{Fail, NoData, Pass, SoFar};
    assert_eq!(
        so_far,
        [SoFar, SoFar, SoFar, SoFar, Fail, NoData, Pass, Pass]
    );
    let enrolled = scenario.expect[0].judge_so_far(&evidence);
    assert_eq!(
        enrolled.to_string(),
        "so_far  all agents are enrolled: 3 of 10 (so far)"
    );
    // Nothing is at the end yet; what is judged after a warm-up says until when.
    let place = |at: usize| scenario.expect[at].judge_so_far(&evidence).place;
    assert_eq!([6, 7].map(place), ["so far", "10 s to 100 s"]);
    scenario.judge(&mut result);
    assert_eq!(result.expectations[0].verdict, Fail);
}

#[test]
fn an_invariant_that_broke_outweighs_what_held() {
    let mut vanished = run(well);
    vanished.account.planned(Endpoint::Events);
    check(
        &mut vanished,
        6,
        "FAIL the account does not add up: events: 1 planned, but 0 started and 0 dropped",
    );

    let mut breached = run(well);
    breached.referees[0].breaches = 2;
    breached.referees[0]
        .broken
        .insert("agent 7 came 3 s early".to_owned());
    check(
        &mut breached,
        6,
        "FAIL referee 6 (pace) saw 2 breaches: agent 7 came 3 s early",
    );

    let mut doubled = run(well);
    doubled.fleet.duplicate_identities = 1;
    check(&mut doubled, 6, "FAIL 1 identities are not one an agent");
}

// case L46: an interrupted run has a report, and says that it was.
#[test]
fn an_interrupted_run_is_judged_so_far_and_never_passes() {
    let mut result = run(well);
    result.interrupted = true;
    result.fleet.enrolled = 3;
    check(
        &mut result,
        130,
        "ABORTED interrupted; this is the report so far",
    );
    assert_eq!(result.expectations[0].verdict, Verdict::Fail);
    assert_eq!(result.expectations[1].verdict, Verdict::Pass);
    let read = RunResult::read(result.to_text().as_bytes()).unwrap();
    assert!(read.interrupted);
}

// case L26: a merged result is judged anew, from the scenario that it carries.
#[test]
fn a_result_carries_the_scenario_that_it_can_be_judged_by() {
    let mut result = run(well);
    let kept =
        Scenario::parse("result", &result.run.scenario_toml).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(kept.judge(&mut result).exit.code(), 0);
}

// case L20: in which order things are expected changes neither the verdict nor what is said of each.
#[test]
fn the_order_of_what_is_expected_changes_no_verdict() {
    let (head, expected) = TEXT.split_once("[[expect]]").unwrap_or_else(|| panic!());
    let expected: Vec<&str> = expected.split("[[expect]]").collect();
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    // All holds; one fails; one has no data, and another fails or does not.
    let rows = [
        (10, "allow_empty = true", 0),
        (9, "allow_empty = true", 1),
        (9, "allow_empty = false", 1),
        (10, "allow_empty = false", 5),
    ];
    for (enrolled, allowed, code) in rows {
        for order in orders {
            let shuffled = order
                .map(|at| format!("[[expect]]{}", expected[at]))
                .concat();
            let text = format!("{head}{shuffled}").replace("allow_empty = true", allowed);
            let shuffled = Scenario::parse("small.toml", &text).unwrap_or_else(|e| panic!("{e}"));
            let mut result = run(well);
            result.fleet.enrolled = enrolled;
            let decision = shuffled.judge(&mut result);
            assert_eq!(decision.exit.code(), code, "{order:?} {allowed}");
            let mut said: Vec<String> = result
                .expectations
                .iter()
                .map(|it| it.to_string())
                .collect();
            said.sort();
            let mut in_order = run(well);
            in_order.fleet.enrolled = enrolled;
            let text = TEXT.replace("allow_empty = true", allowed);
            let first = Scenario::parse("small.toml", &text).unwrap_or_else(|e| panic!("{e}"));
            first.judge(&mut in_order);
            let mut due: Vec<String> = in_order
                .expectations
                .iter()
                .map(|it| it.to_string())
                .collect();
            due.sort();
            assert_eq!(said, due, "{order:?} {allowed}");
        }
    }
}
