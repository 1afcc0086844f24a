//! A fleet that is split into processes: the same fleet, the same counts, the same verdict; and what becomes of it when a
//! part is lost.

use std::collections::BTreeSet;
use std::process::Command;

use protocol::endpoint::Endpoint;
use record::result::IndexRange;
use record::series::Gauge;
use record::{Outcome, RunResult};

use super::portal::{Between, Portal};
use super::program::{DOCUMENT, ENROLLED, Going, Place, adds_up, expecting, small};

/// Seven agents in four clusters, with all that a time line can do to them.
fn eventful() -> String {
    let timeline = r#"
[[timeline]]
at = "500ms"
do = { operation = { kind = "agent.rotate_key", share = 0.5 } }

[[timeline]]
at = "1s"
do = { restart_portal = { with_data = true } }

[[timeline]]
at = "1500ms"
do = { revoke = { share = 0.3 } }

[[expect]]
"#;
    small(&format!("{DOCUMENT}{timeline}{ENROLLED}\n"))
        .replace("count = 5", "count = 7\nservers_per_cluster = 2")
        .replace("\"2s\"", "\"3s\"")
}

/// What does not hang on the moment of a sync.
fn counts(result: &RunResult) -> impl PartialEq + std::fmt::Debug + use<> {
    let ended = |endpoint| result.account.line(endpoint).ended.clone();
    let rotated = (&result.fleet.operations, &result.fleet.results);
    (
        [Endpoint::Enroll, Endpoint::RotateKey].map(ended),
        format!("{rotated:?}"),
        (result.fleet.enrolled, result.fleet.idle),
        result.populations.clone(),
        result.fleet.duplicate_identities,
    )
}

// case L14: as many agents at the same pace in however many processes.
// case L23: shards merge exactly, and the sum agrees with what all portals counted.
#[test]
fn a_fleet_is_the_same_however_it_is_split() {
    let run = |shards: &[&str]| {
        let place = Place::with(&eventful());
        let done = place.run(shards);
        done.ended(0, "PASS");
        let result = place.result();
        adds_up(&result);
        assert!(result.portal.is_some());
        (done, result)
    };
    let (whole, split) = std::thread::scope(|scope| {
        let whole = scope.spawn(|| run(&[]));
        let split = [1, 3].map(|shards: u64| {
            let run = &run;
            let shards = shards.to_string();
            scope.spawn(move || run(&["--shards", &shards]))
        });
        (
            whole.join().unwrap().1,
            split.map(|split| split.join().unwrap()),
        )
    });
    assert_eq!(whole.generator.processes, 1);
    assert_eq!(
        whole.fleet.idle, 2,
        "a share of all agents, not of each shard"
    );
    for ((done, result), shards) in split.iter().zip([1, 3]) {
        assert_eq!(counts(result), counts(&whole), "{shards} shards");
        assert_eq!(result.generator.processes, shards + 1);
        let portals: BTreeSet<&str> = done
            .told
            .lines()
            .filter(|line| line.starts_with("portal: embedded, "))
            .collect();
        assert_eq!(portals.len() as u64, shards, "a portal each: {}", done.told);
        let syncs = |result: &RunResult| result.account.line(Endpoint::Sync).planned;
        let (here, there) = (syncs(result), syncs(&whole));
        // Three runs share this machine, so what each is given of it differs; a shard counted twice would be more than that.
        assert!(here.abs_diff(there) * 2 < there, "{here} and {there} syncs");
        let most = (0..result.series.len())
            .map(|second| result.series.gauge_in(second, Gauge::Connected))
            .fold(0.0, f64::max);
        assert_eq!(most, 7.0, "gauges add up");
    }
}

#[test]
fn no_cluster_is_split_4() {
    let place = Place::with(&eventful());
    let done = place.run(&["--shards", "5"]);
    let last = done.ended(4, "ABORTED");
    assert_eq!(
        last,
        "ABORTED 5 shards for 4 clusters: a cluster is never split; ask for fewer (`--shards 4`)"
    );
    assert!(!place.path("out").exists());
}

// case L31: connections that one process may not have are spread over several.
#[test]
fn what_one_process_may_not_hold_is_split_by_itself_0() {
    let place = Place::with(&expecting(ENROLLED).replace("\"2s\"", "\"6s\""));
    let program = env!("CARGO_BIN_EXE_loadgen");
    let script = format!("ulimit -n 300; exec '{program}' run s.toml --out out --agents 150");
    let done = Going::start(&mut place.shell(&script)).end();
    done.ended(0, "PASS");
    let told =
        "open files: 275 needed in each process (2 for agents, 2 for their portals), 300 allowed";
    assert!(done.told.contains(told), "{done:#?}");
    let result = place.result();
    adds_up(&result);
    assert_eq!(
        (result.fleet.enrolled, result.generator.processes),
        (150, 3)
    );
}

/// The processes that a program has started: the number of each, and what part it is.
fn workers(going: &Going) -> Vec<(u32, String)> {
    let listed = Command::new("ps")
        .args(["-o", "pid=,args=", "--ppid", &going.id().to_string()])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let worker = |line: &str| {
        let (number, arguments) = line.trim().split_once(' ')?;
        let (_, part) = arguments.rsplit_once(" worker ")?;
        Some((number.parse().ok()?, part.trim().to_owned()))
    };
    listed.lines().filter_map(worker).collect()
}

fn kill(process: u32) {
    signal("-KILL", process);
}

fn signal(signal: &str, process: u32) {
    let killed = Command::new("kill")
        .args([signal, &process.to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
}

/// Two shards that go on for ten minutes.
fn long() -> (Place, Going) {
    let place = Place::with(&expecting(ENROLLED).replace("\"2s\"", "\"10m\""));
    let mut going = place.start(&["--shards", "2"]);
    going.tells("5s/600s 5/5 enrolled");
    (place, going)
}

#[test]
fn a_shard_that_is_lost_ends_the_run_and_nothing_is_judged_3() {
    let check = |part: &str, note: &str| {
        let (place, going) = long();
        let workers = workers(&going);
        let parts: Vec<&str> = workers.iter().map(|(_, part)| part.as_str()).collect();
        assert_eq!(parts, ["portal", "agents", "portal", "agents"]);
        let first = workers.iter().find(|(_, is)| is == part);
        kill(first.unwrap().0);
        let done = going.end();
        let last = done.ended(3, "OVERLOADED");
        assert_eq!(
            last,
            "OVERLOADED 2 of 5 agents of `nodes` are not in this result, so it cannot be judged"
        );
        let result = place.result();
        assert!(result.notes.contains(note), "{:?}", result.notes);
        // What the other shard has counted is there, and agrees with its portal.
        adds_up(&result);
        let rest = IndexRange { first: 2, count: 3 };
        assert_eq!(result.populations[0].ranges, [rest]);
        assert_eq!(result.fleet.enrolled, 3);
    };
    let killed = "its process has ended (killed, perhaps for want of memory)";
    std::thread::scope(|scope| {
        for part in ["agents", "portal"] {
            scope.spawn(move || {
                check(part, &format!("the {part} of shard 0 is lost: {killed}"));
            });
        }
    });
}

#[test]
fn workers_do_not_outlive_the_run_that_started_them() {
    let (_place, going) = long();
    let workers = workers(&going);
    assert_eq!(workers.len(), 4);
    kill(going.id());
    drop(going);
    for (process, part) in workers {
        // Without an end the wait is cut off, and fails.
        let ended = Command::new("timeout")
            .args([
                "60",
                "tail",
                "-f",
                "/dev/null",
                "--pid",
                &process.to_string(),
            ])
            .status()
            .unwrap();
        assert!(ended.success(), "{part} goes on");
    }
}

#[test]
fn an_interrupt_ends_all_shards_with_their_report_130() {
    let (place, going) = long();
    going.signal("-INT");
    going.end().ended(130, "ABORTED");
    let result = place.result();
    adds_up(&result);
    assert!(result.interrupted);
    assert_eq!(result.populations[0].here(), 5);
    assert_eq!(result.fleet.enrolled, 5);
}

// A process that stands still cannot keep the others' report back.
#[test]
fn at_once_does_not_wait_for_a_shard_that_does_not_answer_130() {
    let (place, mut going) = long();
    let workers = workers(&going);
    let agents = workers.iter().find(|(_, part)| part == "agents").unwrap();
    signal("-STOP", agents.0);
    going.signal("-INT");
    going.tells("interrupted: calls under way may end");
    going.signal("-INT");
    going.end().ended(130, "ABORTED");
    let result = place.result();
    let note = "the shard 0 is lost: it did not answer at once";
    assert!(result.notes.contains(note), "{:?}", result.notes);
    adds_up(&result);
    assert_eq!(result.populations[0].here(), 3);
}

// Identities are the agents', not the shards': another number of them takes the same ones up.
#[test]
fn identities_are_taken_up_in_however_many_shards() {
    let portal = Portal::plain();
    let place = Place::with(&expecting(ENROLLED));
    place.write("tokens", portal.tokens(5));
    let run = |more: &[&str]| {
        place.run_keeping(&portal, more).ended(0, "PASS");
        let result = place.result();
        adds_up(&result);
        result.account.line(Endpoint::Enroll).ended[Outcome::Ok]
    };
    assert_eq!(run(&["--tokens", "tokens", "--shards", "2"]), 5);
    assert_eq!(run(&["--seed", "2", "--shards", "5"]), 0);
    assert_eq!(run(&["--seed", "3"]), 0);
    assert_eq!(portal.agents().len(), 5);
}

#[test]
fn one_identity_in_two_shards_is_seen_6() {
    let portal = Portal::plain();
    let liar = Between::enrolling_all_as_one(portal.address());
    let place = Place::with(&expecting(ENROLLED));
    place.write("tokens", portal.tokens(5));
    let with = ["--portal", &liar.url, "--tokens", "tokens"];
    let done = place.run(&[&with[..], &["--shards", "5"]].concat());
    let last = done.ended(6, "FAIL");
    assert_eq!(last, "FAIL 4 identities are not one an agent");
}
