//! A portal that somebody else runs: tokens from anywhere, release keys, and what is refused before the first request.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use protocol::endpoint::Endpoint;
use record::Outcome;

use super::portal::{Between, Fate, Portal, call_lab, page};
use super::program::{Done, ENROLLED, Going, Place, adds_up, expecting, small};

/// What a cluster's nodes should be, as a control API takes it.
pub(crate) const DOCUMENT: &str = r#"{
  "release": "2026.11.1", "agent_version": "1.4.0",
  "host": {"snapshot_schedule": "0 */6 * * *", "snapshot_retention": 14, "ingress_mode": "bundled"},
  "maintenance_window": {"days": ["sun"], "start": "02:00", "duration_minutes": 120, "time_zone": "Europe/Berlin"},
  "secrets": {"hcloud_token": "canary-hcloud", "s3": {"endpoint": "https://s3.example", "region": "r", "bucket": "b",
              "folder": "f", "access_key": "canary-access", "secret_key": "canary-secret"}},
  "addons": []
}"#;

#[test]
fn tokens_come_from_a_file_a_command_or_a_url() {
    let portal = Portal::plain();
    let more = [portal.tokens(5), portal.tokens(5), portal.tokens(5)];
    let url = page(200, &more[2]);
    let sources = ["tokens", "cmd:cat tokens", url.as_str()];
    let seeds = ["1", "2", "3"];
    let going: Vec<_> = sources
        .iter()
        .zip(&more)
        .zip(seeds)
        .map(|((source, tokens), seed)| {
            let place = Place::with(&expecting(ENROLLED));
            place.write("tokens", tokens);
            // The base URL, or what agents are configured with: the base path may be on it.
            let at = &portal.running.agents_url;
            let going = place.start(&["--portal", at, "--tokens", source, "--seed", seed]);
            (going, place)
        })
        .collect();
    for (going, place) in going {
        let done = going.end();
        done.ended(0, "PASS");
        let result = place.result();
        adds_up(&result);
        assert_eq!(
            result.run.portal.as_deref(),
            Some(portal.running.agents_url.as_str())
        );
        assert!(result.portal.is_none(), "its counters are its own");
        assert!(!done.told.contains("pbxe_") && !result.to_text().contains("pbxe_"));
    }
    assert_eq!(portal.agents().len(), 15);
}

/// What an expectation cannot say stands in the notes: why agents are not enrolled, and that they refuse what they get.
#[test]
fn a_result_says_what_the_agents_complained_of() {
    let portal = Portal::plain();
    let tokens = [portal.tokens(5), portal.tokens(5)];
    for cluster in clusters(&tokens[0]) {
        let path = format!("/clusters/{cluster}/desired");
        call_lab(&portal.running.lab_url, "PUT", &path, DOCUMENT);
    }
    let at = portal.running.agents_url.as_str();
    // No release key, so that no document is believed; and then the keys of the same seed once more.
    let rows = [
        (
            0,
            "PASS",
            "5 agents say `manifest_rejected` of their last document; the first: ",
        ),
        (
            1,
            "FAIL",
            "enrollments were refused with `conflict`: the portal knows these keys",
        ),
    ];
    for ((code, word, note), tokens) in rows.into_iter().zip(tokens) {
        let place = Place::with(&expecting(ENROLLED));
        place.write("tokens", tokens);
        let done = place.run(&["--portal", at, "--tokens", "tokens"]);
        done.ended(code, word);
        let notes = place.result().notes;
        assert!(notes.iter().any(|it| it.contains(note)), "{notes:#?}");
        assert!(done.told.contains(note), "{done:#?}");
    }
}

/// Runs once at a portal that is not reached, or has no tokens for it.
fn not_started(more: &[&str], reason: &str) {
    let place = Place::with(&expecting(ENROLLED));
    place.write("empty", "");
    place.write(
        "broken",
        "{\"token\": \"pbxe_secret\", \"cluster_id\": 7}\n",
    );
    place.write("few", Portal::plain().tokens(2));
    place.write("enough", Portal::plain().tokens(5));
    place.write("keys", "AAAA\n");
    let before = place.names();
    let done = place.run(more);
    let last = done.ended(4, "ABORTED");
    assert!(last.contains(reason), "{more:?}: {last}");
    assert!(!done.told.contains("secret"), "{done:#?}");
    assert_eq!(place.names(), before, "{more:?}");
}

#[test]
fn without_tokens_or_keys_that_can_be_used_nothing_runs_4() {
    let portal = Portal::plain();
    let at = portal.running.manager_url.as_str();
    let gone = page(404, "");
    let rows: &[(&[&str], &str)] = &[
        (&["--tokens", "nowhere"], "--tokens: nowhere: No such file"),
        (&["--tokens", "empty"], "--tokens: empty: it holds no token"),
        (&["--tokens", "broken"], "--tokens: broken: line 1, column "),
        (
            &["--tokens", "few"],
            "2 tokens for 5 agents: make more, or run fewer (--agents 2)",
        ),
        (
            &["--tokens", "cmd:exit 3"],
            "--tokens: cmd:exit 3: it ended with exit status: 3",
        ),
        (&["--tokens", &gone], "it answered 404, expected 200"),
        (
            &["--tokens", "http://me:secret@127.0.0.1:1/t?key=secret"],
            "--tokens: http://…@127.0.0.1:1/t?…: error sending request: client error (Connect): tcp connect error: ",
        ),
        // 64 MiB, and 512 bytes for each of the five.
        (
            &["--tokens", "cmd:yes"],
            "--tokens: cmd:yes: it is larger than 65538 KiB",
        ),
        (
            &["--tokens", "enough", "--release-key", "/dev/zero"],
            "--release-key: /dev/zero: it is larger than 64 KiB",
        ),
        (
            &["--tokens", "enough", "--release-key", "keys"],
            "--release-key: keys: line 1 is no key",
        ),
        (
            &["--tokens", "enough", "--release-key", "nowhere"],
            "--release-key: nowhere: No such file",
        ),
    ];
    for (more, reason) in rows {
        not_started(&[&["--portal", at], *more].concat(), reason);
    }
    let counters = portal.counters();
    assert_eq!(counters.received.total(), 0, "{counters:?}");
}

#[test]
fn documents_are_believed_with_the_release_key_alone() {
    let portal = Portal::plain();
    let expected = small(&format!(
        "[[expect]]\n{ENROLLED}\n[[expect]]\nshare = {{ endpoint = \"manifest\", outcome = \"ok\", at_least = 1.0, allow_empty = true }}\n"
    ));
    let keys = portal.running.release_keys[0].public.to_string();
    for (with_key, generation) in [(true, 1), (false, 0)] {
        let place = Place::with(&expected);
        let tokens = portal.tokens(5);
        place.write("tokens", &tokens);
        place.write("keys", format!("# of the mock\n{keys}\n"));
        for cluster in clusters(&tokens) {
            let set = call_lab(
                &portal.running.lab_url,
                "PUT",
                &format!("/clusters/{cluster}/desired"),
                DOCUMENT,
            );
            assert_eq!(set.0, 200, "{set:?}");
        }
        let mut arguments = vec![
            "--portal",
            &portal.running.manager_url,
            "--tokens",
            "tokens",
        ];
        if with_key {
            arguments.extend(["--release-key", "keys"]);
        }
        let done = place.run(&arguments);
        done.ended(0, "PASS");
        let warned = done
            .told
            .contains("so every document will be manifest_rejected (--release-key)");
        assert_eq!(warned, !with_key, "{done:#?}");
        let fetched = place.result().account.line(Endpoint::Manifest).started;
        assert_eq!(fetched, 5 * u64::from(with_key));
        let agents = portal.agents();
        let newest: Vec<u64> = agents
            .iter()
            .filter(|agent| clusters(&tokens).contains(agent["cluster_id"].as_str().unwrap()))
            .map(|agent| agent["applied_generation"].as_u64().unwrap())
            .collect();
        assert_eq!(newest, [generation; 5], "{with_key}");
        // The next one begins with clusters that nobody knows.
        assert_eq!(portal.lab("POST", "/reset").0, 200);
    }
}

/// The clusters that tokens are for.
pub(crate) fn clusters(tokens: &str) -> BTreeSet<String> {
    tokens
        .lines()
        .map(|line| {
            let token: serde_json::Value = serde_json::from_str(line).unwrap();
            token["cluster_id"].as_str().unwrap().to_owned()
        })
        .collect()
}

// case L33, L40: every agent comes, once, with keys and a connection of its own; and comes back as who it was.
#[test]
fn every_agent_is_somebody_and_stays_it() {
    let portal = Portal::plain();
    let tokens = portal.tokens(5);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let between = Between::stand(portal.address(), move |_, request| {
        log.lock().unwrap().push(request.clone());
        Fate::Honest
    });
    let run = |seed: &str| -> (Done, Place) {
        let place = Place::with(&expecting(ENROLLED));
        place.write("tokens", &tokens);
        let done = place.run(&[
            "--portal",
            &between.url,
            "--tokens",
            "tokens",
            "--seed",
            seed,
        ]);
        (done, place)
    };
    run("1").0.ended(0, "PASS");
    let requests = std::mem::take(&mut *seen.lock().unwrap());
    let (mut nodes, mut keys) = (Vec::new(), BTreeSet::new());
    for request in requests
        .iter()
        .filter(|request| request.endpoint() == "enroll")
    {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        nodes.push(body["node_name"].as_str().unwrap().to_owned());
        keys.insert(body["signing_key"].to_string());
        keys.insert(body["sealing_key"].to_string());
    }
    nodes.sort();
    assert_eq!(nodes, ["n-1", "n-2", "n-3", "n-4", "n-5"]);
    assert_eq!(keys.len(), 10, "two of its own each");
    // One more connection asked whether there is a portal.
    assert_eq!(between.connections(), 5 + 1);

    // The same seed makes the same keys, so the same tokens give the same identities (ENR-10).
    let before = portal.agents();
    run("1").0.ended(0, "PASS");
    let ids = |agents: &[serde_json::Value]| -> Vec<String> {
        agents.iter().map(|agent| agent["id"].to_string()).collect()
    };
    assert_eq!(ids(&portal.agents()), ids(&before));
    // With another one they are others, and their tokens were used by somebody.
    let (done, place) = run("2");
    let last = done.ended(1, "FAIL").to_owned();
    assert_eq!(last, "FAIL all agents are enrolled: 0 of 5 (at the end)");
    let line = place.result().account.line(Endpoint::Enroll).clone();
    let used = Outcome::Problem(protocol::problem::ProblemCode::TokenUsed);
    assert_eq!(line.ended[used], line.started, "{line:?}");
    assert_eq!(portal.agents().len(), 5);
}

#[test]
fn identities_outlive_a_run_its_seed_and_its_tokens() {
    let portal = Portal::plain();
    let tokens = portal.tokens(5);
    let of = |cluster: &str| format!("/clusters/{cluster}/operations");
    let rotate = || {
        for cluster in clusters(&tokens) {
            let order = r#"{"kind": "agent.rotate_key", "params": {}}"#;
            let posted = call_lab(&portal.running.lab_url, "POST", &of(&cluster), order);
            assert_eq!(posted.0, 200, "{posted:?}");
        }
    };
    let rotated = "[[expect]]\noperations = { kind = \"agent.rotate_key\", state = \"succeeded\", exactly = \"all\" }\n";
    // A node that boots again needs a while until it can lead its cluster: k3s is up before its agent.
    let scenario = format!("{}{rotated}", expecting(ENROLLED));
    let place = Place::with(&scenario.replace("boot_time = \"0s\"", "boot_time = \"20s\""));
    place.write("tokens", &tokens);
    let run = |more: &[&str]| place.run_keeping(&portal, more);

    rotate();
    run(&["--tokens", "tokens", "--seed", "1"]).ended(0, "PASS");
    let files: Vec<String> = place
        .names()
        .into_iter()
        .filter(|name| name.starts_with("kept/"))
        .collect();
    let named = |index| format!("kept/nodes-{index}.json");
    let mut expected = vec!["kept/".to_owned()];
    expected.extend((0..5).map(named));
    assert_eq!(files, expected);
    for file in files {
        let mode = fs::metadata(place.path(&file))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{file}");
    }

    // Another seed, no token, keys that were rotated: nobody enrolls, everybody is who it was, and rotates again.
    let before = portal.agents();
    rotate();
    run(&["--seed", "2"]).ended(0, "PASS");
    let result = place.result();
    adds_up(&result);
    assert_eq!(result.account.line(Endpoint::Enroll).started, 0);
    let syncs = result.account.line(Endpoint::Sync);
    assert_eq!(syncs.ended[Outcome::Ok], syncs.started, "{syncs:?}");
    let id = |agents: &[serde_json::Value]| -> Vec<String> {
        agents.iter().map(|agent| agent["id"].to_string()).collect()
    };
    assert_eq!(id(&portal.agents()), id(&before));

    // Those that are new need a token each.
    let last = run(&["--agents", "7", "--tokens", "cmd:head -1 tokens"]);
    let reason =
        "ABORTED 1 tokens and 5 identities for 7 agents: make more, or run fewer (--agents 6)";
    assert_eq!(last.ended(4, "ABORTED"), reason);

    // A file that is none is named, and not quoted.
    for spoiled in [
        "{\"token\": \"pbxe_secret".to_owned(),
        fs::read_to_string(place.path(&named(3)))
            .unwrap()
            .replace("\"key_seed\":", "\"key_seed\":1"),
    ] {
        place.write(&named(3), spoiled);
        let done = run(&[]);
        let last = done.ended(4, "ABORTED");
        let begins = "ABORTED --identities: kept/nodes-3.json: ";
        assert!(
            last.starts_with(begins) && !last.contains("secret"),
            "{last}"
        );
    }
}

/// What the portal's published description says of a request: the schema of its body, if it has one, and its headers.
fn described(first: &str) -> (Option<serde_json::Value>, Vec<String>) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi/agent.json");
    let document: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let (method, path) = first.split_once(' ').unwrap();
    let parts: Vec<&str> = path.split(' ').next().unwrap().split('/').collect();
    let is_path = |template: &&String| {
        let template: Vec<&str> = template.split('/').collect();
        let fits = |(due, part): (&&str, &&str)| due == part || due.starts_with('{');
        template.len() == parts.len() && template.iter().zip(&parts).all(fits)
    };
    let paths = document["paths"].as_object().unwrap();
    let template = paths.keys().find(is_path);
    let template = template.unwrap_or_else(|| panic!("{first} is not described"));
    let operation = &paths[template][method.to_lowercase()];
    assert!(operation.is_object(), "{first} is not described");
    let parameters = operation["parameters"].as_array();
    let headers = parameters.into_iter().flatten().filter_map(|parameter| {
        let name = parameter["name"].as_str().unwrap().to_lowercase();
        (parameter["in"] == "header").then_some(name)
    });
    let body = operation.get("requestBody").map(|body| {
        let mut schema = body["content"]["application/json"]["schema"].clone();
        schema["components"] = document["components"].clone();
        schema
    });
    (body, headers.collect())
}

// case L41: what simulated nodes have to say is what a real agent may say, by the portal's description and a reader of it
// that is not ours.
#[test]
fn agents_send_what_the_portal_describes() {
    let portal = Portal::plain();
    let tokens = portal.tokens(5);
    for cluster in clusters(&tokens) {
        let lab = |method, path: &str, body| {
            let path = format!("/clusters/{cluster}/{path}");
            let done = call_lab(&portal.running.lab_url, method, &path, body);
            assert_eq!(done.0, 200, "{done:?}");
        };
        lab("PUT", "desired", DOCUMENT);
        let save = r#"{"kind": "snapshot.save", "params": {"name": "nightly"}}"#;
        lab("POST", "operations", save);
        // It says `failed`, with a message: the node has no such snapshot.
        let restore =
            r#"{"kind": "cluster.restore", "params": {"snapshot": "none", "source": "local"}}"#;
        lab("POST", "operations", restore);
        let rotate = r#"{"kind": "agent.rotate_key", "params": {}}"#;
        lab("POST", "operations", rotate);
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let between = Between::stand(portal.address(), move |_, request| {
        log.lock().unwrap().push(request.clone());
        Fate::Honest
    });
    let place = Place::with(&expecting(ENROLLED).replace("\"2s\"", "\"5s\""));
    place.write("tokens", &tokens);
    place.write("keys", portal.running.release_keys[0].public.to_string());
    let with = ["--tokens", "tokens", "--release-key", "keys"];
    let done = place.run(&[&["--portal", between.url.as_str()][..], &with].concat());
    done.ended(0, "PASS");
    let requests = std::mem::take(&mut *seen.lock().unwrap());
    let mut endpoints = BTreeSet::new();
    // The very first asked whether there is a portal.
    for request in &requests[1..] {
        let (schema, headers) = described(&request.first);
        for name in headers {
            assert!(
                request.header(&name).is_some(),
                "{request:?} without {name}"
            );
        }
        let Some(schema) = schema else {
            assert!(request.body.is_empty(), "{request:?}");
            endpoints.insert(request.endpoint().to_owned());
            continue;
        };
        let schema = jsonschema::validator_for(&schema).unwrap();
        let mut body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        let errors: Vec<String> = schema.iter_errors(&body).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}: {body}", request.first);
        // A member less, and it is none.
        let members = body.as_object_mut().unwrap();
        let first = members.keys().next().unwrap().clone();
        members.remove(&first);
        if endpoints.insert(request.endpoint().to_owned()) {
            assert!(!schema.is_valid(&body), "without {first}: {body}");
        }
    }
    let all = ["enroll", "events", "manifest", "rotate-key", "sync"];
    assert_eq!(endpoints, all.map(str::to_owned).into());
}

// case L47: what it takes to get ready is in no figure.
#[test]
fn the_clock_of_a_run_starts_when_everything_is_there() {
    let portal = Portal::plain();
    let place = Place::with(&expecting(ENROLLED));
    place.write("tokens", portal.tokens(5));
    let slow = "cmd:sleep 3; cat tokens";
    let done = place.run(&["--portal", &portal.running.manager_url, "--tokens", slow]);
    done.ended(0, "PASS");
    let result = place.result();
    let took_ms = result.run.ended_at.unix_ms() - result.run.started_at.unix_ms();
    assert!((2_000..4_000).contains(&took_ms), "{took_ms}");
    let latest = result.figures.lateness.unwrap().max;
    assert!(latest < record::Micros::from_seconds(3), "{latest}");
}

#[test]
fn a_private_authority_is_trusted_where_the_machine_trusts_it() {
    let portal = Portal::tls();
    let place = Place::with(&expecting(ENROLLED));
    place.write("tokens", portal.tokens(5));
    place.write("ca.pem", portal.running.ca_pem.as_ref().unwrap());
    let arguments = [
        "run",
        "s.toml",
        "--out",
        "out",
        "--portal",
        &portal.running.agents_url,
        "--tokens",
        "tokens",
    ];
    let mut trusting = place.loadgen(&arguments);
    trusting.env("SSL_CERT_FILE", place.path("ca.pem"));
    Going::start(&mut trusting).end().ended(0, "PASS");
    let connections = place.result().samples.connections;
    assert_eq!(connections.full.count(), 5, "each has its own session");

    let last = place.call(&arguments);
    let last = last.ended(4, "ABORTED");
    assert!(last.contains("certificate"), "{last}");
    assert!(last.contains("SSL_CERT_FILE names"), "{last}");
}

// Every option is an environment variable too.
#[test]
fn the_environment_says_what_options_say() {
    let portal = Portal::plain();
    let place = Place::with(&expecting(ENROLLED));
    place.write("tokens", portal.tokens(2));
    place.write("keys", portal.running.release_keys[0].public.to_string());
    let mut command = place.loadgen(&["run", "s.toml"]);
    command
        .env("LOADGEN_PORTAL", &portal.running.manager_url)
        .env("LOADGEN_TOKENS", "tokens")
        .env("LOADGEN_RELEASE_KEY", "keys")
        .env("LOADGEN_AGENTS", "2")
        .env("LOADGEN_DURATION", "1s")
        .env("LOADGEN_SEED", "9")
        .env("LOADGEN_OUT", "out")
        .env("LOADGEN_LOG", "info")
        .env("LOADGEN_LOG_FORMAT", "json")
        .env("LOADGEN_I_OWN_THIS_TARGET", "1");
    let done = Going::start(&mut command).end();
    done.ended(0, "PASS");
    assert!(done.told.contains("\"level\":\"INFO\""), "{done:#?}");
    assert!(!done.told.contains("release keys: none"), "{done:#?}");
    let result = place.result();
    assert_eq!((result.run.seed, result.fleet.agents), (9, 2));
    assert_eq!(result.run.overrides["--duration"], "1s");

    // No is no.
    let mut command = place.loadgen(&[
        "run",
        "s.toml",
        "--portal",
        "https://portal.example",
        "--tokens",
        "tokens",
    ]);
    command.env("LOADGEN_I_OWN_THIS_TARGET", "0");
    Going::start(&mut command)
        .end()
        .refused(&["say so with --i-own-this-target"]);
}
