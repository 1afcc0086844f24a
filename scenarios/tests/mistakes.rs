//! What a person is told who made mistakes in a scenario: all of them, where they are, and what to write instead.

#![expect(
    clippy::panic,
    reason = "a helper that panics fails its test with the line that was wrong"
)]

use scenario::scenario::BYTES_MAX;
use scenario::{Overrides, Scenario};

/// A scenario with one of everything that a mistake can be made in, and none made.
const RIGHT: &str = r#"# Everything, and right.
name = "right"
duration = "2m"
warm_up = "10s"
referees = [6, 9, 12]

[[population]]
name = "nodes"
count = 10
arrival = { stages = [{ share = 0.5, over = "5s" }, { share = 0.5, over = "0s" }] }
tempo = 0.2
labels = { site = "fsn1" }
node.boot_time = "3s"
node.task_cost = { uniform = ["20ms", "200ms"] }
node.step_cost = { save = "2s" }
node.failure_share = { confirm_s3 = 0.1 }
node.clock_offset_ms = { uniform = [-500, 500] }
node.crash_share = 0.1

[portal]
profile = "strict"

[[timeline]]
at = "30s"
do.operation = { kind = "snapshot.save", params = { name = "nightly" }, share = 0.5, population = "nodes" }

[[timeline]]
at = "40s"
do = "reset_portal"

[[expect]]
latency = { of = "response", endpoint = "sync", quantile = 99, at_most = "250ms" }

[[expect]]
count = { outcome = "replayed", exactly = 0 }

[[expect]]
enrolled = { exactly = "all" }
"#;

/// What is told about a text.
fn told(text: &str) -> String {
    match Scenario::parse("s.toml", text) {
        Ok(_) => "nothing".to_owned(),
        Err(mistakes) => mistakes.to_string(),
    }
}

#[test]
fn a_right_scenario_has_none() {
    assert_eq!(told(RIGHT), "nothing");
}

#[test]
fn five_mistakes_are_all_named_with_place_and_suggestion() {
    let text = r#"# Five mistakes.
name = "five"
duration = 120
warm_up = "25s"

[[population]]
name = "nodes"
cuont = 1000
count = -5

[[expect]]
share = { endpoint = "synk", outcome = "ok", at_least = 1.5 }
"#;
    insta::assert_snapshot!(told(text), @r#"
    s.toml:3:12: duration: expected a duration with its unit (us, ms, s, m, h, d), found the number 120; write "120s"
    s.toml:8:1: population[0].cuont: unknown key; did you mean `count`?
    s.toml:9:9: population[0].count: expected a whole number from 1 to 1000000, found the number -5
    s.toml:12:22: expect[0].share.endpoint: unknown endpoint `synk`; did you mean `sync`?
    s.toml:12:57: expect[0].share.at_least: expected a share from 0 to 1, found the number 1.5
    "#);
}

/// One mistake each, made by writing the second text in place of the first, and the one line that is told.
const ONE_EACH: &[(&str, &str, &str)] = &[
    // Durations.
    (
        "duration = \"2m\"",
        "duration = \"0s\"",
        "3:12: duration: must be longer than zero",
    ),
    (
        "duration = \"2m\"",
        "duration = \"32d\"",
        "3:12: duration: `32d` is longer than 31 days",
    ),
    (
        "duration = \"2m\"",
        "duration = \"-5s\"",
        "3:12: duration: `-5s` is no duration: it is negative",
    ),
    (
        "duration = \"2m\"",
        "duration = \"90\"",
        "3:12: duration: `90` is no duration: it has no unit (us, ms, s, m, h, d); write \"90s\"",
    ),
    (
        "duration = \"2m\"",
        "duration = -7",
        "3:12: duration: expected a duration with its unit (us, ms, s, m, h, d), found the number -7",
    ),
    (
        "duration = \"2m\"",
        "duration = \"2 min\"",
        "3:12: duration: `2 min` is no duration: its unit is none of us, ms, s, m, h, d",
    ),
    (
        "duration = \"2m\"",
        "duration = true",
        "3:12: duration: expected a duration with its unit (us, ms, s, m, h, d), found true",
    ),
    ("duration = \"2m\"\n", "", "1:1: duration: is missing"),
    (
        "warm_up = \"10s\"",
        "warm_up = \"2m\"",
        "4:11: warm_up: leaves nothing to judge: the warm-up is 2m, the run 2m",
    ),
    // Keys and types.
    (
        "referees = [6",
        "refere = [6",
        "5:1: refere: unknown key; did you mean `referees`?",
    ),
    (
        "tempo = 0.2",
        "colour = \"red\"",
        "11:1: population[0].colour: unknown key; it is one of name, protocol, count, servers_per_cluster, labels, arrival, \
         tempo, node",
    ),
    (
        "count = 10",
        "count = \"10\"",
        "9:9: population[0].count: expected a whole number from 1 to 1000000, found a string",
    ),
    (
        "count = 10",
        "count = 1000001",
        "9:9: population[0].count: expected a whole number from 1 to 1000000, found the number 1000001",
    ),
    (
        "count = 10",
        "count = 10\nprotocol = \"check-in\"",
        "10:12: population[0].protocol: unknown protocol `check-in`; it is one of pbx",
    ),
    (
        "name = \"nodes\"",
        "name = \"No des\"",
        "8:8: population[0].name: `No des` is no name: 1 to 40 of a-z 0-9 -, not beginning with -",
    ),
    (
        "tempo = 0.2",
        "tempo = 0",
        "11:9: population[0].tempo: expected a number from 0.001 to 1000, found the number 0",
    ),
    (
        "tempo = 0.2",
        "tempo = nan",
        "11:9: population[0].tempo: expected a number from 0.001 to 1000, found the number nan",
    ),
    (
        "[portal]",
        "[portal]\nport = 1",
        "21:1: portal.port: unknown key; it is one of profile, document",
    ),
    (
        "referees = [6, 9, 12]",
        "referees = [6, 14]",
        "5:16: referees[1]: expected a whole number from 1 to 13, found the number 14",
    ),
    (
        "profile = \"strict\"",
        "profile = \"hostile\"",
        "21:11: portal.profile: unknown profile `hostile`; it is one of strict, friendly",
    ),
    // Populations and arrival.
    (
        "[[timeline]]\nat = \"30s\"",
        "[[population]]\nname = \"nodes\"\ncount = 1\n\n[[timeline]]\nat = \"30s\"",
        "24:8: population[1].name: there are two populations `nodes`",
    ),
    (
        "over = \"5s\"",
        "over = \"121s\"",
        "7:1: population[0].arrival: takes 2m1s, the run ends after 2m",
    ),
    (
        "share = 0.5, over = \"0s\"",
        "share = 0.4, over = \"0s\"",
        "7:1: population[0].arrival.stages: has shares that add up to 0.9, not to 1",
    ),
    (
        "{ share = 0.5, over = \"5s\" }, { share = 0.5, over = \"0s\" }",
        "{ count = 4, over = \"5s\" }, { count = 5, over = \"0s\" }",
        "7:1: population[0].arrival.stages: adds up to 9 agents, the population has 10; write `share` in place of `count`, \
         which fits every count",
    ),
    (
        "{ share = 0.5, over = \"0s\" }",
        "{ count = 5, over = \"0s\" }",
        "7:1: population[0].arrival.stages: has stages with `count` and stages with `share`: all of them say the same",
    ),
    (
        "{ share = 0.5, over = \"0s\" }",
        "{ over = \"0s\" }",
        "10:53: population[0].arrival.stages[1]: needs `count` or `share`",
    ),
    (
        "{ share = 0.5, over = \"0s\" }",
        "{ share = 0.5, count = 5, over = \"0s\" }",
        "10:53: population[0].arrival.stages[1]: has `count` and `share` at once: one of them is due",
    ),
    (
        "arrival = { stages",
        "arrival = { ramp = { over = \"1s\" }, stages",
        "10:11: population[0].arrival: has ramp and stages at once: one of them is due",
    ),
    (
        "arrival = { stages = [{ share = 0.5, over = \"5s\" }, { share = 0.5, over = \"0s\" }] }",
        "arrival = \"ramp\"",
        "10:11: population[0].arrival: `ramp` says too little alone; write { ramp = … }",
    ),
    (
        "arrival = { stages = [{ share = 0.5, over = \"5s\" }, { share = 0.5, over = \"0s\" }] }",
        "arrival = { all_at_once = {} }",
        "10:13: population[0].arrival.all_at_once: is a word that stands alone; write \"all_at_once\" in place of the table",
    ),
    (
        "arrival = { stages = [{ share = 0.5, over = \"5s\" }, { share = 0.5, over = \"0s\" }] }",
        "arrival = \"all_at_one\"",
        "10:11: population[0].arrival: unknown word `all_at_one`; did you mean `all_at_once`?",
    ),
    // Nodes.
    (
        "[\"20ms\", \"200ms\"]",
        "[\"200ms\", \"20ms\"]",
        "14:18: population[0].node.task_cost: begins with the longer duration; write [\"20ms\", \"200ms\"]",
    ),
    (
        "[\"20ms\", \"200ms\"]",
        "[\"20ms\"]",
        "14:30: population[0].node.task_cost.uniform: has 1 values, two are due",
    ),
    (
        "[-500, 500]",
        "[500, -500]",
        "17:24: population[0].node.clock_offset_ms: begins with the higher number; write [-500, 500]",
    ),
    (
        "node.crash_share = 0.1",
        "node.clock_drift_ppm = { uniform = [-1000000, 0] }",
        "18:24: population[0].node.clock_drift_ppm: lets the clock stand still or run backwards: -1000000 takes a second \
         from each second",
    ),
    // A number beyond what TOML has is told the largest.
    (
        "exactly = 0 }",
        "exactly = 9223372036854775808 }",
        "35:43: expect[1].count.exactly: expected a whole number from 0 to 9223372036854775807, found the number \
         9223372036854775808",
    ),
    (
        "exactly = 0 }",
        "exactly = -1 }",
        "35:43: expect[1].count.exactly: expected a whole number from 0, found the number -1",
    ),
    (
        "{ save = \"2s\" }",
        "{ safe = \"2s\" }",
        "15:20: population[0].node.step_cost.safe: unknown step; did you mean `save`?",
    ),
    (
        "confirm_s3 = 0.1",
        "confirm_s3 = -0.1",
        "16:37: population[0].node.failure_share.confirm_s3: expected a share from 0 to 1, found the number -0.1",
    ),
    // Time line.
    (
        "at = \"30s\"",
        "at = \"2m\"",
        "24:6: timeline[0].at: 2m is not before the end of the run, 2m",
    ),
    (
        "kind = \"snapshot.save\"",
        "kind = \"snapshot.safe\"",
        "25:25: timeline[0].do.operation.kind: unknown operation kind `snapshot.safe`; did you mean `snapshot.save`?",
    ),
    (
        "params = { name = \"nightly\" }",
        "params = { name = 7 }",
        "25:60: timeline[0].do.operation.params.name: does not fit `snapshot.save`: invalid type: integer `7`, expected snapshot \
         name",
    ),
    (
        "params = { name = \"nightly\" }",
        "params = { name = \"nightly\", nmae = 1 }",
        "25:78: timeline[0].do.operation.params.nmae: is no parameter of `snapshot.save`, or says nothing beside the others; \
         did you mean `name`?",
    ),
    (
        "population = \"nodes\"",
        "population = \"node\"",
        "25:99: timeline[0].do.operation.population: there is no population `node`; did you mean `nodes`?",
    ),
    (
        "do = \"reset_portal\"",
        "do = \"reset_portl\"",
        "29:6: timeline[1].do: unknown word `reset_portl`; did you mean `reset_portal`?",
    ),
    // Expectations.
    (
        "outcome = \"replayed\"",
        "outcome = \"replay\"",
        "35:21: expect[1].count.outcome: unknown outcome `replay`; did you mean `replayed`?",
    ),
    (
        "quantile = 99",
        "quantile = 0",
        "32:60: expect[0].latency.quantile: expected a percentile above 0 and at most 100, found the number 0",
    ),
    (
        "quantile = 99",
        "quantile = 100.1",
        "32:60: expect[0].latency.quantile: expected a percentile above 0 and at most 100, found the number 100.1",
    ),
    (
        "of = \"response\"",
        "of = \"lateness\"",
        "32:41: expect[0].latency.endpoint: says nothing here: lateness is the generator's, a connection is made for no \
         endpoint",
    ),
    (
        ", exactly = 0 }",
        " }",
        "34:1: expect[1]: has no limit: `at_least`, `at_most` or `exactly` is due",
    ),
    // What is due is what there is: the two have no key for every limit.
    (
        "enrolled = { exactly = \"all\" }",
        "enrolled = {}",
        "37:1: expect[2]: has no limit: `at_least` or `exactly` is due",
    ),
    (
        "enrolled = { exactly = \"all\" }",
        "share = { endpoint = \"sync\", outcome = \"ok\" }",
        "37:1: expect[2]: has no limit: `at_least` or `at_most` is due",
    ),
    (
        ", exactly = 0 }",
        ", exactly = 0, at_most = 2 }",
        "34:1: expect[1]: has several limits: write an expectation for each",
    ),
    (
        "exactly = \"all\"",
        "exactly = \"every\"",
        "38:24: expect[2].enrolled.exactly: unknown word `every`; it is one of all",
    ),
    (
        "enrolled = { exactly = \"all\" }",
        "enroled = { exactly = \"all\" }",
        "38:1: expect[2].enroled: unknown key; did you mean `enrolled`?",
    ),
];

#[test]
fn each_mistake_is_told_once_at_its_place() {
    let mut surprises = Vec::new();
    for (right, wrong, line) in ONE_EACH {
        assert!(RIGHT.contains(right), "{right}");
        let told = told(&RIGHT.replacen(right, wrong, 1));
        if told != format!("s.toml:{line}") {
            surprises.push(format!("{wrong}\n  due  s.toml:{line}\n  told {told}"));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[test]
fn mistakes_in_different_parts_are_told_together() {
    let alone: Vec<_> = ONE_EACH
        .iter()
        .filter(|(right, _, _)| {
            ["tempo", "referees = [6,", "outcome", "kind", "quantile"]
                .iter()
                .any(|part| right.starts_with(part))
        })
        .collect();
    let mut text = RIGHT.to_owned();
    let mut kinds = 0;
    for (right, wrong, _) in alone {
        if text.contains(right) {
            text = text.replacen(right, wrong, 1);
            kinds += 1;
        }
    }
    assert_eq!(kinds, 5);
    assert_eq!(told(&text).lines().count(), 5, "{}", told(&text));
}

#[test]
fn a_file_that_is_no_scenario_at_all_gets_one_clear_line() {
    let rows = [
        ("", "is empty: a scenario has at least"),
        ("# only a comment\n\n", "is empty: a scenario has at least"),
        ("\u{feff}", "is empty"),
        ("name = ", "not TOML: "),
        ("just words", "not TOML: "),
    ];
    for (text, begin) in rows {
        let told = told(text);
        assert_eq!(told.lines().count(), 1, "{text:?}: {told}");
        assert!(told.contains(begin), "{text:?}: {told}");
    }
    let large = format!("# {}\n", "x".repeat(BYTES_MAX));
    assert!(
        told(&large).contains("bytes long; a scenario has at most"),
        "{}",
        told(&large)
    );
}

#[test]
fn what_is_no_toml_is_told_as_often_as_it_is_found_and_what_is_doubled_hides_nothing() {
    let broken = "name = \"a\"\nduration = \"20s\nwarm_up = \n[population\nx = 1\n";
    insta::assert_snapshot!(told(broken), @r#"
    s.toml:2:16: not TOML: invalid basic string, expected `"`
    s.toml:3:11: not TOML: string values must be quoted, expected literal string
    s.toml:4:12: not TOML: unclosed table, expected `]`
    "#);
    let doubled = RIGHT
        .replacen("tempo = 0.2", "tempo = 0.2\ntempo = 0.3", 1)
        .replacen("quantile = 99", "quantile = 101", 1);
    insta::assert_snapshot!(told(&doubled), @r"
    s.toml:12:1: not TOML: duplicate key
    s.toml:33:60: expect[0].latency.quantile: expected a percentile above 0 and at most 100, found the number 101
    ");
}

#[test]
fn what_the_command_line_says_is_checked_like_what_is_written() {
    let overrides = |agents, duration: Option<&str>, seed| Overrides {
        agents,
        duration: duration.map(ToOwned::to_owned),
        seed,
    };
    let rows = [
        (
            overrides(Some(0), None, None),
            "--agents: 0 is not from 1 to 1000000",
        ),
        (
            overrides(Some(1_000_001), None, None),
            "--agents: 1000001 is not from 1 to 1000000",
        ),
        (
            overrides(None, Some("0s"), None),
            "--duration: must be longer than zero",
        ),
        (
            overrides(None, Some("90"), None),
            "--duration: `90` is no duration: it has no unit (us, ms, s, m, h, d); write it with its unit, as 90s or 1h30m",
        ),
        (
            overrides(None, None, Some(u64::MAX)),
            "--seed: 18446744073709551615 is more than 9223372036854775807",
        ),
    ];
    for (overrides, line) in rows {
        let mistakes = Scenario::parse_with("s.toml", RIGHT, overrides).unwrap_err();
        assert_eq!(mistakes.to_string(), line);
    }
    // A run that is made shorter: the option is what to change, and says for what.
    let short = Scenario::parse_with("s.toml", RIGHT, overrides(None, Some("4s"), None));
    insta::assert_snapshot!(short.unwrap_err().to_string(), @r"
    --duration: leaves nothing to judge: the warm-up is 10s, the run 4s
    --duration: population[0].arrival: takes 5s, the run ends after 4s
    --duration: timeline[0].at: 30s is not before the end of the run, 4s
    --duration: timeline[1].at: 40s is not before the end of the run, 4s
    ");
}

#[test]
fn all_that_is_wrong_with_parameters_is_told_at_once() {
    let rows: &[(&str, &str, &[&str])] = &[
        (
            "cluster.restore",
            r#"snapshot = 7, sorce = "local", token_hash = 8"#,
            &[
                "params.source: does not fit `cluster.restore`: missing field `source`",
                "params.snapshot: does not fit `cluster.restore`: invalid type: integer `7`, expected snapshot name",
                "params.sorce: is no parameter of `cluster.restore`",
                "params.token_hash: does not fit `cluster.restore`: invalid type: integer `8`",
            ],
        ),
        (
            "access.issue",
            r#"role = "king", lifetime_seconds = "long", recipient_key = "k""#,
            &[
                "missing field `subject`",
                "params.role: ",
                "params.lifetime_seconds: ",
                "params.recipient_key: ",
            ],
        ),
        (
            "server.rejoin",
            "token = 5, url = 6",
            &[
                "missing field `server_url`",
                "params.token: ",
                "params.url: ",
            ],
        ),
        (
            "s3.verify",
            r#"access_key = "a", bucket = 5"#,
            &[
                "missing field `endpoint`",
                "missing field `region`",
                "missing field `folder`",
                "missing field `secret_key`",
                "params.bucket: ",
            ],
        ),
        (
            "cluster.upgrade",
            "release = 7, to = 8",
            &["params.release: ", "params.to: "],
        ),
        (
            "node.drain",
            "nodes = 8",
            &["missing field `node`", "params.nodes: "],
        ),
        (
            "access.revoke",
            "subject = 8, all = true",
            &["params.subject: ", "params.all: "],
        ),
        (
            "access.revoke",
            "",
            &["either subject, or everyone with the value true"],
        ),
    ];
    for (kind, params, says) in rows {
        let text = RIGHT.replacen(
            r#"kind = "snapshot.save", params = { name = "nightly" }"#,
            &format!("kind = \"{kind}\", params = {{ {params} }}"),
            1,
        );
        let told = told(&text);
        for part in *says {
            assert!(told.contains(part), "{kind}: {part} is not in {told}");
        }
        assert_eq!(told.lines().count(), says.len(), "{kind}: {told}");
    }
}

#[test]
fn a_program_gets_the_same_as_a_person() {
    let text = RIGHT.replacen("count = 10", "cuont = 10", 1);
    let mistakes = Scenario::parse("s.toml", &text).unwrap_err();
    assert_eq!(mistakes.len(), 2);
    assert_eq!(
        mistakes.to_json()[1],
        serde_json::json!({
            "file": "s.toml",
            "line": 9,
            "column": 1,
            "key": "population[0].cuont",
            "what": "unknown key",
            "suggestion": { "did_you_mean": "count" },
        })
    );
    let overrides = Overrides {
        agents: Some(0),
        ..Overrides::default()
    };
    let mistakes = Scenario::parse_with("s.toml", RIGHT, overrides).unwrap_err();
    assert_eq!(mistakes.to_json()[0]["option"], "--agents");
}

#[test]
fn a_secret_is_in_no_mistake_and_in_no_kept_text() {
    let with_rejoin = RIGHT.replacen(
        "do = \"reset_portal\"",
        "do.operation = { kind = \"server.rejoin\", params = { server_url = \"https://a\", token = \"canary-1\" } }",
        1,
    );
    let scenario = Scenario::parse("s.toml", &with_rejoin).unwrap_or_else(|e| panic!("{e}"));
    assert!(!scenario.text.contains("canary-1"), "{}", scenario.text);
    let kept = Scenario::parse("s.toml", &scenario.text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(kept.populations, scenario.populations);

    let wrong = with_rejoin.replacen(
        "server_url = \"https://a\"",
        "server_url = 7, other = \"canary-2\"",
        1,
    );
    assert!(!told(&wrong).contains("canary"), "{}", told(&wrong));
}

#[test]
fn no_text_makes_it_panic_and_every_place_is_in_the_file() {
    let lines = RIGHT.lines().count();
    let check = |text: &str| {
        let Err(mistakes) = Scenario::parse("s.toml", text) else {
            return;
        };
        for mistake in mistakes.iter() {
            if let scenario::mistake::Place::File { line, column } = mistake.place {
                assert!(
                    (1..=lines + 2).contains(&line),
                    "{mistake} at {line}:{column}"
                );
                assert!((1..=200).contains(&column), "{mistake} at {line}:{column}");
            }
        }
    };
    for (at, _) in RIGHT.char_indices() {
        // Cut off, one character left out, one put in.
        check(&RIGHT[..at]);
        check(&format!("{}{}", &RIGHT[..at], &RIGHT[at + 1..]));
        for strange in ["\"", "[", "{", "=", "\0", "ß", "\n"] {
            check(&format!("{}{strange}{}", &RIGHT[..at], &RIGHT[at..]));
        }
    }
}
