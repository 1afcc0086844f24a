//! What is written where: stdout for answers, stderr for whoever looks on, `result.json` for everything else.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;

use record::RunResult;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::portal::{Between, Portal};
use super::program::{ENROLLED, Going, Place, expecting};

// case L19: the word in the file, the exit code in it, and the last line say the same.
#[test]
fn the_last_line_is_the_verdict_and_the_file_says_the_same() {
    let place = Place::with(&expecting(ENROLLED));
    let done = place.run(&["--seed", "7", "--agents", "3"]);
    let last = done.ended(0, "PASS");
    let mut result = place.result();
    assert_eq!(last, format!("PASS {}", result.reason));
    assert_eq!(
        (result.verdict, result.exit_code),
        (record::Verdict::Pass, 0)
    );
    assert!(!result.interrupted);
    // What was judged stands on stdout, what is only worth knowing on stderr.
    assert_eq!(
        done.answered.lines().next(),
        Some("pass    all agents are enrolled: 3 of 3 (at the end)")
    );
    assert!(done.told.contains("open files: "), "{done:#?}");
    assert!(done.told.contains("result: out/result.json"), "{done:#?}");
    // The file says what was run, and can be judged again.
    assert_eq!(
        (result.run.seed, result.run.scenario.as_str()),
        (7, "small")
    );
    assert_eq!(result.run.overrides["--agents"], "3");
    let scenario = scenario::Scenario::parse("result", &result.run.scenario_toml).unwrap();
    assert_eq!(scenario.judge(&mut result).exit.code(), 0);
}

#[test]
fn a_result_is_whole_and_the_one_from_before_is_set_aside() {
    let place = Place::with(&expecting(ENROLLED));
    place.run(&["--seed", "1"]).ended(0, "PASS");
    let file = place.path("out/result.json");
    let inode = |file: &Path| fs::metadata(file).unwrap().ino();
    let before = inode(&file);

    place.run(&["--seed", "2"]).ended(0, "PASS");
    assert_eq!(place.result().run.seed, 2);
    // It was not written over: whoever had it open has the old one, all of it.
    let aside = place.path("out/result-before.json");
    assert_eq!((inode(&aside), inode(&file) != before), (before, true));
    let old = RunResult::read(&fs::read(aside).unwrap()).unwrap();
    assert_eq!(old.run.seed, 1);
    let left = [
        "out/".to_owned(),
        "out/result-before.json".to_owned(),
        "out/result.json".to_owned(),
        "s.toml".to_owned(),
    ];
    assert_eq!(place.names(), left.into());
}

#[test]
fn without_a_word_where_each_run_has_its_own_folder() {
    let place = Place::with(&expecting(ENROLLED));
    let start = || Going::start(&mut place.loadgen(&["run", "s.toml"]));
    let together = [start(), start()];
    for going in together {
        going.end().ended(0, "PASS");
    }
    let results: Vec<String> = place
        .names()
        .into_iter()
        .filter(|name| name.ends_with(".json"))
        .collect();
    assert_eq!(
        results,
        [
            "loadgen-results/small-1/result.json",
            "loadgen-results/small-2/result.json"
        ]
    );
}

#[test]
fn a_place_that_cannot_be_written_is_told_before_the_run() {
    let place = Place::with(&expecting(ENROLLED));
    place.write("file", "");
    fs::create_dir_all(place.path("taken/result.json")).unwrap();
    let before = place.names();
    for (out, says) in [
        ("file", "--out file: it cannot be made: "),
        ("file/out", "--out file/out: it cannot be made: "),
        ("taken", "taken/result.json: it cannot be written: "),
    ] {
        let done = place.call(&["run", "s.toml", "--out", out]);
        let last = done.ended(4, "ABORTED");
        assert!(last.starts_with(&format!("ABORTED {says}")), "{last}");
        // Nothing else was begun.
        assert!(!done.told.contains("portal: "), "{done:#?}");
        assert_eq!(place.names(), before);
    }
    // Nor is it made for a run that cannot be had.
    let none = ["--portal", "http://127.0.0.1:1", "--tokens", "none"];
    let arguments = [&["run", "s.toml", "--out", "deep/er"][..], &none].concat();
    place.call(&arguments).ended(4, "ABORTED");
    assert_eq!(place.names(), before);
}

#[test]
fn a_pass_without_its_result_is_none() {
    let place = Place::with(&expecting(ENROLLED));
    let portal = Portal::plain();
    place.write("tokens", portal.tokens(5));
    let (between, requests) = Between::watching(portal.address());
    let going = place.start(&["--portal", &between.url, "--tokens", "tokens"]);
    assert!(requests.iter().any(|endpoint| endpoint == "sync"));
    fs::remove_dir(place.path("out")).unwrap();
    let done = going.end();
    let last = done.ended(4, "ABORTED");
    assert!(
        last.starts_with("ABORTED out/result.json: the result was not written: ")
            && last.ends_with("; 1 expectation held"),
        "{last}"
    );
}

#[test]
fn a_pass_that_cannot_be_told_is_none() {
    let place = Place::with(&expecting(ENROLLED));
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let rows: [&[&str]; 10] = [
        &["run", "s.toml", "--out", "out"],
        &["check", "s.toml"],
        &["explain", "s.toml"],
        &["list"],
        &["schema", "result"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["help", "run"],
        &["--version"],
    ];
    for arguments in rows {
        let done = place.loadgen(arguments).stdout(full()).output().unwrap();
        assert_eq!(done.status.code(), Some(4), "{arguments:?}: {done:#?}");
        let told = String::from_utf8(done.stderr).unwrap();
        let says = "standard output cannot be written: No space left on device";
        assert!(told.contains(says), "{arguments:?}: {told}");
    }
}

#[test]
fn a_reader_that_has_gone_has_read_enough() {
    let place = Place::new();
    let rows: [&[&str]; 4] = [&["--help"], &["list"], &["man"], &["schema", "result"]];
    for arguments in rows {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = place.loadgen(arguments).stdout(writer).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{arguments:?}: {done:#?}");
        assert_eq!(done.stderr, b"", "{arguments:?}");
    }
}

// Whoever reads along may leave: `loadgen run … | head -1` is a run like any other.
#[test]
fn a_reader_that_has_gone_ends_no_run() {
    let place = Place::with(&expecting(ENROLLED));
    let mut child = place
        .loadgen(&["run", "s.toml", "--out", "out"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(place.result().exit_code, 0);
}

/// What a terminal gets of a program whose stdout and stderr it is.
fn shown(place: &Place, arguments: &[&str], no_color: Option<&str>) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let end = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let mut command = place.loadgen(arguments);
    command.env("TERM", "xterm-256color");
    if let Some(value) = no_color {
        command.env("NO_COLOR", value);
    }
    let mut child = command
        .stdout(Stdio::from(end.try_clone().unwrap()))
        .stderr(Stdio::from(end))
        .spawn()
        .unwrap();
    // It holds the other end too.
    drop(command);
    let mut text = Vec::new();
    // A terminal whose other end nobody holds any more is an error to read from, not an end.
    let _ = File::from(terminal).read_to_end(&mut text);
    child.wait().unwrap();
    String::from_utf8(text).unwrap()
}

// case L43: any word in NO_COLOR means no colour; an empty one says nothing.
#[test]
fn a_terminal_gets_colours_unless_it_wants_none() {
    let rows = [
        (None, true),
        (Some(""), true),
        (Some("0"), false),
        (Some("1"), false),
    ];
    let check = |(no_color, coloured): (Option<&str>, bool)| {
        let place = Place::with(&expecting(ENROLLED));
        let run = ["run", "s.toml", "--duration", "1s", "--log", "info"];
        for (arguments, says) in [(&run[..], "enrolled as"), (&["--help"], "Usage:")] {
            let text = shown(&place, arguments, no_color);
            assert!(text.contains(says), "{text}");
            let has = text.contains('\u{1b}');
            assert_eq!(has, coloured, "NO_COLOR={no_color:?}: {text}");
        }
    };
    std::thread::scope(|scope| {
        for row in rows {
            scope.spawn(move || check(row));
        }
    });
}

#[test]
fn logs_are_lines_of_json_on_request() {
    let place = Place::with(&expecting(ENROLLED));
    let done = place.run(&["--duration", "1s", "--log", "info", "--log-format", "json"]);
    let logged: Vec<&str> = done
        .told
        .lines()
        .filter(|line| line.starts_with('{'))
        .collect();
    assert!(!logged.is_empty(), "{done:#?}");
    for line in logged {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(
            line["fields"].is_object() && line["level"] == "INFO",
            "{line}"
        );
        assert!(line["span"]["node"].is_string(), "whose note: {line}");
    }
    // Canary: whatever is logged, secrets are not in it.
    assert!(!done.told.contains("pbxe_"), "{done:#?}");
}
