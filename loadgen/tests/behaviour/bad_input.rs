//! Input that cannot be meant: one clear line each, exit code 2, and nothing written.

use std::fs;

use super::program::{ENROLLED, Going, Place, expecting};

/// Checks that `run` and `check` refuse what lies in a place as `input.toml`, in one line, and leave nothing behind.
fn refused(place: &Place, says: &str) {
    let before = place.names();
    for arguments in [
        &["run", "input.toml", "--out", "out"][..],
        &["run", "input.toml"],
        &["check", "input.toml"],
    ] {
        place.call(arguments).refused(&[says]);
        assert_eq!(place.names(), before, "{arguments:?}");
    }
}

#[test]
fn a_text_that_is_no_scenario() {
    let right = expecting(ENROLLED);
    let rows = [
        // An unknown key.
        (
            right.replace("count = 5", "count = 5\ncuont = 5"),
            "input.toml:10:1: population[0].cuont: unknown key; did you mean `count`?",
        ),
        // A negative count.
        (
            right.replace("count = 5", "count = -5"),
            "input.toml:9:9: population[0].count: expected a whole number from 1 to 1000000, found the number -5",
        ),
        // A duration of zero.
        (
            right.replace("duration = \"2s\"", "duration = \"0s\""),
            "input.toml:3:12: duration: must be longer than zero",
        ),
        // A file without anything in it.
        (String::new(), "input.toml:1:1: "),
        // No scenario at all.
        ("Dear portal,".to_owned(), "input.toml:1:"),
    ];
    for (text, says) in rows {
        let place = Place::new();
        place.write("input.toml", text);
        refused(&place, says);
    }
}

#[test]
fn a_file_that_is_no_text() {
    let place = Place::new();
    refused(&place, "input.toml: it cannot be read: No such file");

    let place = Place::new();
    fs::create_dir(place.path("input.toml")).unwrap();
    refused(
        &place,
        "input.toml: it is a directory; expected a scenario file",
    );

    let place = Place::new();
    place.write("input.toml", b"name = \"\xff\xfe\"");
    refused(&place, "input.toml: it is no UTF-8 from byte 8 on");

    // 100 MB, and the first bytes of it are a scenario.
    let place = Place::new();
    place.write("input.toml", expecting(ENROLLED));
    let file = fs::File::options()
        .write(true)
        .open(place.path("input.toml"))
        .unwrap();
    file.set_len(100_000_000).unwrap();
    refused(&place, "input.toml: it is larger than ");
}

#[test]
fn what_may_have_no_end_is_not_read() {
    let place = Place::new();
    let made = place.shell("mkfifo input.toml result").status().unwrap();
    assert!(made.success());
    refused(
        &place,
        "input.toml: it is a named pipe; expected a scenario file, or a pipe as /dev/stdin or <(…)",
    );
    for (file, what) in [("result", "a named pipe"), ("/dev/zero", "a device")] {
        let says = format!(
            "{file}: it is {what}; expected a result file, or a pipe as /dev/stdin or <(…)"
        );
        place.call(&["view", file]).refused(&[&says]);
    }
}

#[test]
fn a_pipe_that_is_open_already_is_read_to_its_end() {
    let place = Place::with(&expecting(ENROLLED));
    place.run(&[]).ended(0, "PASS");
    let program = env!("CARGO_BIN_EXE_loadgen");
    for line in [
        format!("cat out/result.json | {program} view /dev/stdin"),
        format!("{program} view /dev/stdin < out/result.json"),
        format!("exec bash -c '{program} view <(cat out/result.json)'"),
        format!("cat s.toml | {program} run /dev/stdin --out again"),
    ] {
        let done = Going::start(&mut place.shell(&line)).end();
        done.ended(0, "PASS");
    }
}

#[test]
fn an_option_that_cannot_be_meant() {
    let place = Place::with(&expecting(ENROLLED));
    let run = |more: &[&'static str]| [&["run", "s.toml"], more].concat();
    let rows = [
        (
            vec!["run", "stedy"],
            "there is no scenario `stedy`; did you mean `steady`?",
        ),
        (
            run(&["--duration", "0s"]),
            "--duration: must be longer than zero",
        ),
        (
            run(&["--duration", "90"]),
            "--duration: `90` is no duration",
        ),
        (
            run(&["--duration", "-5s"]),
            "--duration: `-5s` is no duration: it is negative",
        ),
        (run(&["--agents", "0"]), "--agents: "),
        (run(&["--log", "loud=="]), "--log \"loud==\" is no filter"),
        (
            run(&["--portal", "ftp://127.0.0.1", "--tokens", "t"]),
            "--portal: ",
        ),
        (
            run(&["--portal", "http://me:pw@127.0.0.1", "--tokens", "t"]),
            "--portal: ",
        ),
        (
            run(&["--portal", "http://127.0.0.1:1"]),
            "--portal: a portal of your own needs tokens to enroll with (--tokens), or agents that are enrolled \
             (--identities)",
        ),
        // Plain HTTP leaves this machine for nobody.
        (
            run(&[
                "--portal",
                "http://portal.example",
                "--i-own-this-target",
                "--tokens",
                "t",
            ]),
            "--portal: ",
        ),
        (
            run(&["--portal", "https://portal.example", "--tokens", "t"]),
            "--portal: https://portal.example is not on this machine; a load test of somebody else's portal is an attack. \
             If it is yours, say so with --i-own-this-target",
        ),
    ];
    let before = place.names();
    for (arguments, says) in rows {
        place.call(&arguments).refused(&[says]);
        assert_eq!(place.names(), before, "{arguments:?}");
    }
}

/// What clap refuses takes a few lines: the mistake, and how it is meant.
#[test]
fn arguments_that_are_none() {
    let place = Place::with(&expecting(ENROLLED));
    let rows: &[(&[&str], &str)] = &[
        (&[], "Usage: loadgen [OPTIONS] <COMMAND>"),
        (&[], "Lists the scenarios that come with the program"),
        (
            &["--no-color"],
            "Lists the scenarios that come with the program",
        ),
        (&["sail"], "unrecognized subcommand 'sail'"),
        (&["run"], "<FILE|NAME>"),
        (&["run", "s.toml", "--seed", "-1"], "-1"),
        (
            &["run", "s.toml", "--agents", "many"],
            "invalid value 'many'",
        ),
        (&["run", "s.toml", "--agnets", "5"], "'--agents'"),
        (&["run", "s.toml", "--tokens", "t"], "--portal <URL>"),
        (&["run", "s.toml", "--i-own-this-target"], "--portal <URL>"),
        (
            &[
                "run",
                "s.toml",
                "--portal",
                "http://127.0.0.1",
                "--tokens",
                "cmd: ",
            ],
            "the command after `cmd:` is missing",
        ),
    ];
    for (arguments, says) in rows {
        let done = place.call(arguments);
        assert_eq!(done.status.code(), Some(2), "{done:#?}");
        assert_eq!(done.answered, "", "{done:#?}");
        assert!(done.told.contains(says), "{done:#?}");
        // Nobody is to call it.
        assert!(!done.told.contains("worker"), "{done:#?}");
        assert_eq!(place.names(), ["s.toml".to_owned()].into());
    }
}

#[test]
fn what_a_check_has_to_say() {
    let place = Place::with(&expecting(ENROLLED));
    let right = place.call(&["check", "s.toml"]);
    assert_eq!(right.status.code(), Some(0), "{right:#?}");
    assert_eq!(
        right.answered,
        "s.toml: no mistake: 5 agents, 1 expectation\n"
    );
    assert_eq!(place.call(&["check", "s.toml", "--json"]).answered, "[]\n");

    for (name, what) in [
        (
            "stedy",
            "there is no scenario `stedy`; did you mean `steady`?",
        ),
        ("none.toml", "none.toml: it cannot be read: No such file"),
    ] {
        for command in ["check", "explain"] {
            let none = place.call(&[command, name, "--json"]);
            assert_eq!((none.status.code(), none.told.as_str()), (Some(2), ""));
            let mistakes: serde_json::Value = serde_json::from_str(&none.answered).unwrap();
            assert_eq!(mistakes[0]["file"], name);
            let told = mistakes[0]["what"].as_str().unwrap();
            assert!(told.starts_with(what), "{told}");
        }
    }

    let wrong = place.call(&["check", "s.toml", "--json", "--agents", "0"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:#?}");
    let mistakes: serde_json::Value = serde_json::from_str(&wrong.answered).unwrap();
    assert_eq!(mistakes[0]["option"], "--agents");
    assert_eq!(
        (mistakes.as_array().unwrap().len(), wrong.told.as_str()),
        (1, "")
    );
}
