//! The commands beside `run` and `check`: what they answer, and that what is committed of it is current.

use std::fs;
use std::path::Path;

use jsonschema::Validator;
use record::Micros;
use record::timeline::Became;
use serde_json::Value;

use super::program::{DOCUMENT, Done, ENROLLED, Place, expecting, small};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");

fn answered(arguments: &[&str]) -> String {
    let done = Place::new().call(arguments);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert_eq!(done.told, "", "{done:#?}");
    done.answered
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&answered(arguments)).unwrap()
}

fn schema(of: &str) -> Validator {
    jsonschema::validator_for(&json(&["schema", of])).unwrap()
}

/// What is wrong with a scenario by its schema.
fn wrong(schema: &Validator, scenario: &str) -> Vec<String> {
    let scenario: Value = toml::from_str(scenario).unwrap();
    let errors = schema.iter_errors(&scenario);
    errors.map(|error| error.to_string()).collect()
}

#[test]
fn shipped_scenarios_are_listed_as_their_files_describe_them() {
    let listed = json(&["list", "--json"]);
    let listed = listed.as_array().unwrap();
    let text = answered(&["list"]);
    assert_eq!(listed.len(), scenario::shipped::shipped().len());
    for (one, shipped) in listed.iter().zip(scenario::shipped::shipped()) {
        let scenario = scenario::Scenario::parse(shipped.name, shipped.text).unwrap();
        assert_eq!(one["name"], shipped.name);
        assert_eq!(one["agents"], scenario.agents());
        assert_eq!(one["duration_seconds"], scenario.duration.as_secs_f64());
        assert_eq!(one["about"], scenario.about);
        let is_told =
            |line: &str| line.starts_with(shipped.name) && line.ends_with(&scenario.about);
        assert!(text.lines().any(is_told), "{text}");
    }
}

#[test]
fn a_scenario_is_explained_and_nothing_is_run() {
    let place = Place::with(&small(&format!(
        "{DOCUMENT}[[timeline]]\nat = \"1s\"\ndo.operation = {{ kind = \"snapshot.save\", params = {{ name = \"n\" }} }}\n\
         [[expect]]\n{ENROLLED}\n"
    )));
    let done = place.call(&["explain", "s.toml", "--agents", "50", "--seed", "9"]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    for line in [
        "  50 agents in 50 clusters, all chance from seed 9",
        "  nodes: 50 agents, 1 server a cluster, a sync every 0.3 s",
        "  2 s long, judged from 0 s to 2 s",
        "  once all are there, 167/s syncs; operations add calls as their steps come",
        "  1 s         operation `snapshot.save` for 100 % of the clusters",
        "  all agents are enrolled",
        "  6  syncs and waits keep their bounds",
        "  3   1 % of the requests start more than 30 s late, or more than 100 % never",
    ] {
        assert!(
            done.answered.lines().any(|told| told == line),
            "{line}\n{}",
            done.answered
        );
    }
    assert!(
        done.answered.contains("  open files: 300 needed, "),
        "{}",
        done.answered
    );
    assert_eq!(place.names(), ["s.toml".to_owned()].into());

    let done = place.call(&["explain", "s.toml", "--duration", "1h", "--json"]);
    let explained: Value = serde_json::from_str(&done.answered).unwrap();
    assert_eq!(explained["duration_seconds"], 3_600.0);
    assert_eq!(explained["forecast"]["agents"], 5);
    assert_eq!(explained["referees"][1]["number"], 12);
    // One for the agents and their portal, as the words beside it say.
    assert_eq!(explained["preflight"]["processes"], 1);
}

// Who is owed, who is not and why, and what is sure to end without data, are known before anything runs.
#[test]
fn what_referees_need_is_told_before_a_run() {
    let plain = expecting(ENROLLED);
    let by_default = plain.replace("referees = [6, 12]\n", "");
    let named = plain.replace("[6, 12]", "[6, 9]");
    let lacks = "referee 9 will have nothing to judge, and `referees` names it: it needs a document, whose secrets it looks \
                 for; or leave it out: `referees = [6]`";
    for (scenario, ahead) in [(&plain, None), (&by_default, None), (&named, Some(lacks))] {
        let place = Place::with(scenario);
        for command in ["check", "explain", "run"] {
            let mut arguments = vec![command, "s.toml"];
            if command == "run" {
                arguments.extend(["--out", "out"]);
            }
            let done = place.call(&arguments);
            let code = match (command, ahead) {
                ("run", Some(_)) => 5,
                _ => 0,
            };
            assert_eq!(done.status.code(), Some(code), "{done:#?}");
            let told = done.answered + &done.told;
            assert_eq!(told.contains(lacks), ahead.is_some(), "{command}: {told}");
        }
    }
    let explained = Place::with(&by_default)
        .call(&["explain", "s.toml"])
        .answered;
    let (_, not_owed) = explained
        .split_once("Referees that watch, and are not owed")
        .unwrap();
    for needs in [
        "  9  no secret is in any text: needs a document, whose secrets it looks for\n",
        "  3  one operation per cluster: needs an operation in the time line\n",
    ] {
        assert!(not_owed.contains(needs), "{explained}");
    }
}

// What happens is told when it does, and kept.
#[test]
fn each_step_of_the_time_line_is_told_and_is_in_the_result() {
    let place = Place::with(&small(&format!(
        "{DOCUMENT}[[timeline]]\nat = \"500ms\"\ndo.operation = {{ kind = \"snapshot.save\", params = {{ name = \"n\" }} }}\n\
         [[timeline]]\nat = \"1s\"\ndo.operation = {{ kind = \"cluster.restore\", params = {{ snapshot = \"n\", source = \
         \"local\" }}, consent = {{ by = \"me\", text = \"\" }} }}\n[[expect]]\n{ENROLLED}\n"
    )));
    let done = place.run(&[]);
    done.ended(0, "PASS");
    let save =
        "time line, 500 ms: operation `snapshot.save` for 100 % of the clusters: done to all 5";
    assert_eq!(
        done.told.lines().filter(|line| *line == save).count(),
        1,
        "{done:#?}"
    );
    let timeline = place.result().timeline;
    assert_eq!(timeline.len(), 2);
    for (step, ms) in timeline.iter().zip([500, 1_000]) {
        let Became::Done(how) = &step.became else {
            panic!("{step:?}");
        };
        assert_eq!((step.due, how.meant), (Micros::from_ms(ms), 5));
        assert!(how.at >= step.due, "{step:?}");
    }
}

#[test]
fn what_cannot_be_explained_is_told_as_check_tells_it() {
    let place = Place::with(&expecting("enroled = { exactly = \"all\" }"));
    for json in [&[][..], &["--json"]] {
        let told = |command: &str| {
            let done = place.call(&[&[command, "s.toml"], json].concat());
            (done.status.code(), done.answered, done.told)
        };
        assert_eq!(told("explain"), told("check"));
        assert_eq!(told("explain").0, Some(2));
    }
}

#[test]
fn the_committed_schemas_are_the_generated_ones() {
    for of in ["scenario", "result"] {
        let path = Path::new(DOCS).join(format!("schema/{of}.json"));
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == answered(&["schema", of]),
            "{} is old: cargo run -p loadgen -- schema {of} > docs/schema/{of}.json",
            path.display()
        );
    }
}

#[test]
fn every_shipped_scenario_keeps_to_the_schema() {
    let schema = schema("scenario");
    for shipped in scenario::shipped::shipped() {
        assert_eq!(wrong(&schema, shipped.text), [""; 0], "{}", shipped.name);
    }
    assert_eq!(wrong(&schema, &expecting(ENROLLED)), [""; 0]);
}

#[test]
fn what_an_editor_should_mark_does_not_keep_to_the_schema() {
    let schema = schema("scenario");
    let good = expecting(ENROLLED);
    let rows = [
        ("duration = \"2s\"", "duraton = \"2s\""),
        ("duration = \"2s\"", "duration = \"2 weeks\""),
        ("count = 5", "count = \"5\""),
        ("count = 5", "count = 0"),
        ("enrolled", "enroled"),
        ("\"all\"", "\"most\""),
        ("count = 5", "count = 5\nprotocol = \"check-in\""),
        ("referees = [6, 12]", "referees = [14]"),
        ("name = \"small\"", ""),
    ];
    for (part, typo) in rows {
        let scenario = good.replacen(part, typo, 1);
        assert_ne!(scenario, good, "{part}");
        assert_ne!(wrong(&schema, &scenario), [""; 0], "{typo}");
        assert!(
            scenario::Scenario::parse("s.toml", &scenario).is_err(),
            "{typo}"
        );
    }
}

#[test]
fn every_member_of_the_schemas_is_described() {
    let properties = |of: &'static str| {
        let schema = json(&["schema", of]);
        let members = schema["properties"].as_object().unwrap().clone();
        members
            .into_iter()
            .map(move |(name, member)| (format!("{of} {name}"), member))
    };
    for (name, member) in properties("scenario").chain(properties("result")) {
        assert!(member["description"].is_string(), "{name}");
    }
}

/// A run of its own, as its result and as `view` tells it.
fn viewed(more: &[&str]) -> (Place, Done) {
    let place = Place::with(&expecting(ENROLLED));
    place.run(&[]).ended(0, "PASS");
    let view = place.call(&[&["view"], more].concat());
    (place, view)
}

#[test]
fn a_result_keeps_to_the_schema_and_is_told_again_without_a_terminal() {
    let (place, view) = viewed(&["out/result.json"]);
    let result = fs::read(place.path("out/result.json")).unwrap();
    let result: Value = serde_json::from_slice(&result).unwrap();
    let schema = schema("result");
    let errors: Vec<String> = schema
        .iter_errors(&result)
        .map(|error| error.to_string())
        .collect();
    assert_eq!(errors, [""; 0]);
    let mut torn = result;
    torn["series"]["latencies"]["lateness"][0] = "none".into();
    assert!(!schema.is_valid(&torn));

    let last = view.ended(0, "PASS");
    assert_eq!(last, format!("PASS {}", place.result().reason));
    assert_eq!(view.told, "");
    for line in [
        "run     small",
        "portal  mock portal",
        " 5 of 5 enrolled",
        "pass    all agents are enrolled: 5 of 5 (at the end)",
    ] {
        assert!(
            view.answered.lines().any(|told| told == line),
            "{line}\n{}",
            view.answered
        );
    }
}

// A result can come from anybody: it says what it says, and does nothing to the terminal.
#[test]
fn what_a_result_says_is_text() {
    let (place, _) = viewed(&["out/result.json"]);
    let mut result: Value =
        serde_json::from_slice(&fs::read(place.path("out/result.json")).unwrap()).unwrap();
    result["run"]["scenario"] = "\u{1b}]0;other\u{7}name".into();
    result["notes"] = serde_json::json!(["\u{9b}31m\nPASS everything"]);
    result["reason"] = "\u{1b}[31mred".into();
    place.write("out/result.json", result.to_string());
    let view = place.call(&["view", "out/result.json"]);
    assert_eq!(view.ended(0, "PASS"), "PASS \u{fffd}[31mred");
    let controls = |char: &char| char.is_control() && *char != '\n';
    assert_eq!(view.answered.chars().find(controls), None);
    assert!(
        view.answered
            .contains("\nnote: \u{fffd}31m\u{fffd}PASS everything\n")
    );
}

// And it is believed only if it agrees with itself.
#[test]
fn a_result_that_contradicts_itself_is_told_by_field() {
    let (place, _) = viewed(&["out/result.json"]);
    let file = fs::read(place.path("out/result.json")).unwrap();
    let view = |member: &str, value: Value| {
        let mut result: Value = serde_json::from_slice(&file).unwrap();
        *result.pointer_mut(member).unwrap() = value;
        place.write("other.json", result.to_string());
        place.call(&["view", "other.json"])
    };
    let changed = "other.json: it contradicts itself, so it was changed or damaged after its run:";
    view("/exit_code", 1.into()).refused(&[
        changed,
        "  verdict: it says `pass`, but exit code 1 is `fail`",
    ]);
    view("/account/sync/ended/ok", u64::MAX.into()).refused(&[
        changed,
        "  account.sync.ended.ok: 18446744073709551615 is more than any run counts",
    ]);
    view("/fleet/agents", "five".into())
        .refused(&["other.json: not a result file: fleet.agents: invalid type: string \"five\""]);
}

// The exit code of `view` is about the file: the verdict was the run's.
#[test]
fn a_run_that_failed_is_seen_without_failing_again() {
    let place = Place::with(&expecting("enrolled = { exactly = 4 }"));
    place.run(&[]).ended(1, "FAIL");
    place.call(&["view", "out"]).ended(0, "FAIL");
}

#[test]
fn a_result_from_before_the_seconds_were_kept_is_seen_as_far_as_it_goes() {
    let (place, _) = viewed(&["out"]);
    let file = place.path("out/result.json");
    let mut result: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for member in ["ended", "latencies"] {
        result["series"]
            .as_object_mut()
            .unwrap()
            .remove(member)
            .unwrap();
    }
    fs::write(&file, result.to_string()).unwrap();
    let view = place.call(&["view", "out"]);
    view.ended(0, "PASS");
    assert!(view.answered.contains(" 5 of 5 enrolled"), "{view:#?}");
}

#[test]
fn what_is_no_result_is_told() {
    let place = Place::with(&expecting(ENROLLED));
    place.write("newer.json", "{\"schema\": 2}");
    for (file, told) in [
        ("none.json", "none.json: it cannot be read: "),
        (".", "./result.json: it cannot be read: "),
        ("s.toml", "s.toml: not a result file: "),
        (
            "newer.json",
            "newer.json: result file of schema 2, this version reads 1",
        ),
    ] {
        place.call(&["view", file]).refused(&[told]);
    }
}

#[test]
fn shells_take_their_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = answered(&["completions", shell]);
        for command in [
            "run",
            "check",
            "explain",
            "list",
            "view",
            "schema",
            "completions",
            "man",
        ] {
            assert!(script.contains(command), "{shell}: {command}");
        }
        // A part of a run is started by the run alone.
        assert!(!script.contains("worker"), "{shell}");
    }
    let place = Place::new();
    place.write("loadgen.bash", answered(&["completions", "bash"]));
    // What a person gets who types this and Tab.
    for (typed, offered) in [
        ("ru", "run"),
        ("run st", "steady"),
        ("explain two", "two-servers"),
        ("check my.to", ""),
    ] {
        let words = typed.split(' ').count();
        let last = typed.split(' ').next_back().unwrap();
        let asked = format!(
            "set -e; bash -n loadgen.bash; exec bash -c 'source ./loadgen.bash; COMP_WORDS=(loadgen {typed}); \
             COMP_CWORD={words}; _loadgen loadgen {last} loadgen; echo \"${{COMPREPLY[@]}}\"'"
        );
        let done = super::program::Going::start(&mut place.shell(&asked)).end();
        assert_eq!((done.answered.trim(), done.told.as_str()), (offered, ""));
    }
}

#[test]
fn every_command_has_a_manual_page_with_its_examples() {
    let place = Place::new();
    let done = place.call(&["man", "pages"]);
    let mut pages = 0;
    for file in done.answered.lines() {
        let page = fs::read_to_string(place.path(file)).unwrap();
        assert!(page.contains("\n.TH loadgen"), "{file}: {page}");
        assert!(
            page.contains("\n.SH EXAMPLES\n.nf\n  loadgen "),
            "{file}: {page}"
        );
        assert!(
            page.contains("\\fBNO_COLOR\\fR environment variable"),
            "{file}: {page}"
        );
        pages += 1;
    }
    assert_eq!(pages, 9, "{done:#?}");
    let main = answered(&["man"]);
    assert_eq!(
        main,
        fs::read_to_string(place.path("pages/loadgen.1")).unwrap()
    );
    let run = fs::read_to_string(place.path("pages/loadgen-run.1")).unwrap();
    for page in [&main, &run] {
        assert!(
            page.contains(
                "\n.SH \"EXIT STATUS\"\n.nf\n  0    what was expected held\n  1    it did not\n"
            ),
            "{page}"
        );
    }
    assert!(
        run.contains("\\fBLOADGEN_TOKENS\\fR environment variable"),
        "{run}"
    );
    for command in ["run", "view", "man"] {
        assert!(
            main.contains(&format!("loadgen\\-{command}(1)")),
            "{command}: {main}"
        );
    }
    place.write("file", "");
    place
        .call(&["man", "file/pages"])
        .refused(&["file/pages: pages cannot be written: "]);
}
