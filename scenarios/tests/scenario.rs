//! What a scenario means: its defaults, what the command line changes in it, its documents, its schema.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that unwraps fails with the line that was wrong"
)]

use std::time::Duration;

use protocol::pbx::sync::DesiredState;
use protocol::seal::Sealed;
use record::micros::Micros;
use scenario::shipped::{find, shipped};
use scenario::{Action, Arrival, Host, Overrides, Profile, RefereeNumber, Scenario, schema};
use serde_json::{Map, Value};

fn parse(text: &str) -> Scenario {
    Scenario::parse("s.toml", text).unwrap_or_else(|e| panic!("{e}"))
}

fn parse_with(text: &str, overrides: Overrides) -> Scenario {
    Scenario::parse_with("s.toml", text, overrides).unwrap_or_else(|e| panic!("{e}"))
}

fn steady() -> Scenario {
    parse(find("steady").unwrap().text)
}

#[test]
fn what_is_left_out_has_its_default() {
    let scenario = parse(
        r#"
        name = "least"
        duration = "1m30s"
        population = [{ name = "nodes", count = 3 }]
        expect = [{ enrolled = { at_least = 1 } }]
        "#,
    );
    assert_eq!(
        (scenario.seed, scenario.duration),
        (1, Duration::from_secs(90))
    );
    assert_eq!(scenario.window().from, Micros::ZERO);
    assert_eq!(scenario.window().until, Micros::from_seconds(90));
    assert_eq!(owed(&scenario, Host::Embedded), [6, 12]);
    assert_eq!(scenario.portal.profile, Profile::Strict);
    assert_eq!(
        (scenario.portal.document, scenario.timeline),
        (None, vec![])
    );
    let nodes = &scenario.populations[0];
    assert_eq!((nodes.tempo, nodes.servers_per_cluster), (1.0, 1));
    assert_eq!(nodes.arrival, Arrival::AllAtOnce);
    assert!(!scenario.expect[0].allow_empty);
}

fn owed(scenario: &Scenario, host: Host) -> Vec<u8> {
    let owed = scenario.owed(host);
    owed.into_iter().map(RefereeNumber::get).collect()
}

// Nobody who has named no referee ends without data for want of a document, an operation or a revocation.
#[test]
fn by_default_those_referees_are_owed_that_are_given_something() {
    let text = find("steady").unwrap().text;
    let named: String = text
        .lines()
        .filter(|line| !line.starts_with("referees"))
        .fold(String::new(), |text, line| text + line + "\n");
    let (before, rest) = named.split_once("[portal.document]").unwrap();
    let (_, behind) = rest.split_once("[[timeline]]").unwrap();
    let (_, expected) = behind.split_once("[[expect]]").unwrap();
    let plain = format!("{before}[[expect]]{expected}");
    let documented = named.replace("[[timeline]]", "[[ignored]]");
    let documented = documented.split("[[ignored]]").next().unwrap().to_owned()
        + &format!("[[expect]]{expected}");
    let revoking = plain.clone() + "[[timeline]]\nat = \"9s\"\ndo.revoke = { share = 0.1 }\n";
    let rows = [
        (&named, Host::Embedded, &[6, 9, 12][..]),
        (&documented, Host::Embedded, &[6, 9, 12]),
        (&plain, Host::Embedded, &[6, 12]),
        (&revoking, Host::Embedded, &[6, 12]),
        // Document and time line are for the embedded portal.
        (&named, Host::Foreign, &[6, 12]),
    ];
    for (text, host, expected) in rows {
        assert_eq!(owed(&parse(text), host), expected, "{host:?} {text}");
    }
    // One that is named is owed wherever it is, and it is known before what it will lack.
    let named = format!("referees = [1, 9, 12]\n{plain}");
    assert_eq!(owed(&parse(&named), Host::Foreign), [1, 9, 12]);
    assert_eq!(
        parse(&named).without_data(Host::Embedded),
        [
            "referee 9 will have nothing to judge, and `referees` names it: it needs a document, whose secrets it looks for; \
             or leave it out: `referees = [1, 12]`"
        ]
    );
    for shipped in shipped() {
        assert_eq!(parse(shipped.text).without_data(Host::Embedded), [""; 0]);
    }
}

// `--agents` changes how many there are, and nobody may be told two numbers.
#[test]
fn no_shipped_scenario_says_a_number_of_agents_in_words() {
    for shipped in shipped() {
        let about = parse(shipped.text).about;
        assert!(!about.contains(|c: char| c.is_ascii_digit()), "{about}");
    }
}

#[test]
fn servers_share_clusters_and_the_last_one_may_have_fewer() {
    let mut nodes = steady().populations.remove(0);
    nodes.servers_per_cluster = 3;
    assert_eq!(nodes.clusters(), 334);
    assert_eq!(
        (
            nodes.cluster_of(2),
            nodes.cluster_of(3),
            nodes.cluster_of(999)
        ),
        (0, 1, 333)
    );
}

#[test]
fn the_command_line_wins_and_what_it_said_is_kept() {
    let overrides = Overrides {
        agents: Some(100),
        duration: Some("3m".to_owned()),
        seed: Some(9),
    };
    let scenario = parse_with(find("steady").unwrap().text, overrides);
    assert_eq!(scenario.agents(), 100);
    assert_eq!(
        (scenario.duration, scenario.seed),
        (Duration::from_secs(180), 9)
    );
    let given: Vec<(String, String)> = scenario.overrides.given().into_iter().collect();
    let rows = [("--agents", "100"), ("--duration", "3m"), ("--seed", "9")];
    assert_eq!(given, rows.map(|(o, v)| (o.to_owned(), v.to_owned())));
    assert_eq!(steady().overrides.given().len(), 0);
}

// case L15: a number of agents on the command line is of all populations together.
#[test]
fn agents_are_shared_out_as_the_file_has_them() {
    let text = r#"
        name = "three"
        duration = "60s"
        population = [
            { name = "large", count = 700 },
            { name = "small", count = 299, arrival = { stages = [{ share = 0.5, over = "3s" }, { share = 0.5, over = "0s" }] } },
            { name = "one", count = 1 },
        ]
        expect = [{ enrolled = { exactly = "all" } }]
        "#;
    for (agents, counts) in [
        (1_000, [700, 299, 1]),
        (10_000, [6_999, 2_991, 10]),
        (100, [69, 30, 1]),
        (3, [1, 1, 1]),
    ] {
        let overrides = Overrides {
            agents: Some(agents),
            ..Overrides::default()
        };
        let scenario = parse_with(text, overrides);
        let shared: Vec<u64> = scenario.populations.iter().map(|p| p.count).collect();
        assert_eq!(shared.iter().sum::<u64>(), agents);
        for (count, due) in shared.iter().zip(counts) {
            assert!(count.abs_diff(due) <= 1, "{shared:?} for {agents}");
        }
        let Arrival::Stages(stages) = &scenario.populations[1].arrival else {
            panic!("stages were written");
        };
        assert_eq!(stages.iter().map(|s| s.count).sum::<u64>(), shared[1]);
    }
}

#[test]
fn the_time_line_is_in_the_order_of_time_and_takes_its_share() {
    let mut text = find("steady").unwrap().text.to_owned();
    text.push_str("\n[[timeline]]\nat = \"5s\"\ndo.restart_portal = { with_data = true }\n");
    let scenario = parse(&text);
    let moments: Vec<u64> = scenario.timeline.iter().map(|e| e.at.as_secs()).collect();
    assert_eq!(moments, [5, 25, 45, 60]);
    assert_eq!(
        scenario.timeline[0].action,
        Action::RestartPortal { with_data: true }
    );
    let Action::Operation(restore) = &scenario.timeline[3].action else {
        panic!("an operation was written");
    };
    let nodes = &scenario.populations[0];
    let taken = (0..nodes.clusters())
        .filter(|c| restore.takes(nodes, *c))
        .count();
    assert_eq!(taken, 100);
}

#[test]
fn a_document_is_the_wires_but_for_its_seals_and_its_generation() {
    let document = steady().portal.document.unwrap();
    let mut wire = serde_json::to_value(&document).unwrap();
    let sealed: Sealed = Sealed::from_bytes(vec![0; 64]);
    let sealed = serde_json::to_value(&sealed).unwrap();
    let secrets = [
        "/secrets/hcloud_token",
        "/secrets/s3/access_key",
        "/secrets/s3/secret_key",
        "/addons/0/secret_options/acme_key",
    ];
    for pointer in secrets {
        let secret = wire.pointer_mut(pointer).unwrap();
        assert!(secret.as_str().unwrap().starts_with("canary-"), "{pointer}");
        *secret = sealed.clone();
    }
    wire["generation"] = 1.into();
    let raw = serde_json::value::to_raw_value(&wire).unwrap();
    let read = DesiredState::read(&raw).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(read.sealed_values().len(), secrets.len());
    assert_eq!(read.addons.len(), 3);
}

#[test]
fn a_secret_is_not_printed_nor_kept() {
    let scenario = steady();
    assert!(!format!("{:?}", scenario.portal).contains("canary"));
    assert!(!scenario.text.contains("canary"), "{}", scenario.text);
    assert!(scenario.text.contains("hcloud_token = \"redacted\""));
}

/// Whether every table of `value` has only keys that `schema` has, following the one alternative that has them.
fn fits(value: &Value, schema: &Value) -> bool {
    if let Some(alternatives) = schema.get("oneOf").and_then(Value::as_array) {
        return alternatives.iter().filter(|s| fits(value, s)).count() == 1;
    }
    if let Some(word) = schema.get("const") {
        return value == word;
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return words.contains(value);
    }
    match (value, schema.get("type").and_then(Value::as_str)) {
        (Value::Object(members), Some("object")) => fits_table(members, schema),
        (Value::Array(items), Some("array")) => items.iter().all(|i| fits(i, &schema["items"])),
        (Value::String(_), Some("string"))
        | (Value::Bool(_), Some("boolean"))
        | (Value::Number(_), Some("number")) => true,
        (Value::Number(number), Some("integer")) => number.is_i64(),
        _ => false,
    }
}

fn fits_table(members: &Map<String, Value>, schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    let all_there = required.is_none_or(|names| {
        names
            .iter()
            .all(|name| members.contains_key(name.as_str().unwrap()))
    });
    let all_known = members.iter().all(|(key, value)| {
        match (
            properties.and_then(|p| p.get(key)),
            schema.get("additionalProperties"),
        ) {
            (Some(schema), _) => fits(value, schema),
            (None, Some(Value::Bool(false))) => false,
            (None, Some(schema)) => fits(value, schema),
            (None, None) => true,
        }
    });
    all_there && all_known
}

#[test]
fn the_schema_accepts_what_is_shipped_and_not_what_is_mistyped() {
    let schema = schema();
    for shipped in shipped() {
        let value: Value = toml::from_str(shipped.text).unwrap();
        assert!(fits(&value, &schema), "{}", shipped.name);
        for (right, wrong) in [
            ("duration = ", "durashun = "),
            ("enrolled = ", "enroled = "),
            ("\ncount = ", "\ncount = \"many\" # "),
            ("outcome = \"ok\"", "outcome = \"okay\""),
        ] {
            assert!(shipped.text.contains(right), "{}: {right}", shipped.name);
            let value: Value = toml::from_str(&shipped.text.replacen(right, wrong, 1)).unwrap();
            assert!(!fits(&value, &schema), "{}: {wrong}", shipped.name);
        }
    }
}

#[test]
fn the_schema_says_what_each_key_is() {
    fn walk(schema: &Value, path: &str) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (key, schema) in properties {
                let path = format!("{path}.{key}");
                let said = schema["description"].as_str().unwrap_or_default();
                assert!(said.ends_with('.'), "{path}: {said:?}");
                walk(schema, &path);
            }
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get(inner) {
                walk(inner, path);
            }
        }
        for alternative in schema
            .get("oneOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            walk(alternative, path);
        }
    }
    walk(&schema(), "");
}

// case L15: a number that counts or measures something says what, so that nobody takes a total for one agent's part.
#[test]
fn the_schema_says_of_each_number_what_it_is_a_number_of() {
    const SAID: [&str; 13] = [
        "agents",
        "servers",
        "clusters",
        "requests",
        "operations",
        "identities",
        "syncs",
        "snapshots",
        "percentile",
        "second",
        "times",
        "minutes",
        "milli",
    ];
    // Numbers that are names, not quantities; and a pair of bounds, which is of what its key is.
    const NAMES: [&str; 4] = ["seed", "referees", "floor", "uniform"];
    fn is_number(schema: &Value) -> bool {
        let kind = schema.get("type").and_then(Value::as_str);
        let alternatives = schema.get("oneOf").and_then(Value::as_array);
        matches!(kind, Some("number" | "integer"))
            || alternatives.into_iter().flatten().any(is_number)
            || ["items", "additionalProperties"]
                .iter()
                .any(|inner| schema.get(*inner).is_some_and(is_number))
    }
    fn walk(schema: &Value, path: &str, judged: &mut u32) {
        for (key, schema) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let path = format!("{path}.{key}");
            if is_number(schema) && !NAMES.contains(&key.as_str()) {
                let said = schema["description"]
                    .as_str()
                    .unwrap_or_default()
                    .to_lowercase();
                assert!(
                    SAID.iter().any(|word| said.contains(word)),
                    "{path}: {said:?}"
                );
                *judged += 1;
            }
            walk(schema, &path, judged);
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get(inner) {
                walk(inner, path, judged);
            }
        }
        for alternative in schema
            .get("oneOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            walk(alternative, path, judged);
        }
    }
    let mut judged = 0;
    walk(&schema(), "", &mut judged);
    assert!(judged >= 30, "{judged}");
}
