//! Portals that lose answers, lie, forget everything or fall silent while a fleet calls them: all of it ends in a verdict.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use protocol::endpoint::Endpoint;
use protocol::problem::ProblemCode;
use record::Outcome;
use record::series::Gauge;

use super::foreign::{DOCUMENT, clusters};
use super::portal::{Between, Fate, Message, Portal, call_lab};
use super::program::{ENROLLED, Place, adds_up, expecting, small};

// case L39: whose answer was lost asks again, and is nobody new.
// case L21: and what was lost fails nothing, since nothing is expected of it.
#[test]
fn a_lost_answer_of_each_endpoint_ends_well() {
    let portal = Portal::plain();
    let tokens = portal.tokens(5);
    let lab = |method: &str, path: &str, body: &str| {
        let answer = call_lab(&portal.running.lab_url, method, path, body);
        assert_eq!(answer.0, 200, "{path}: {answer:?}");
    };
    for cluster in clusters(&tokens) {
        let operations = format!("/clusters/{cluster}/operations");
        lab("PUT", &format!("/clusters/{cluster}/desired"), DOCUMENT);
        lab(
            "POST",
            &operations,
            r#"{"kind": "snapshot.save", "params": {"name": "nightly"}}"#,
        );
        lab(
            "POST",
            &operations,
            r#"{"kind": "agent.rotate_key", "params": {}}"#,
        );
    }
    // The first answers of each endpoint, as many as there are agents, and later each seventh sync's.
    let counts = Mutex::new(BTreeMap::<String, u64>::new());
    let between = Between::stand(portal.address(), move |_, request| {
        let endpoint = request.endpoint().to_owned();
        let mut counts = counts.lock().unwrap();
        let count = counts.entry(endpoint).or_default();
        *count += 1;
        match *count <= 5 || count.is_multiple_of(7) && request.endpoint() == "sync" {
            true if request.first.starts_with("GET / ") => Fate::Honest,
            true => Fate::Lost,
            false => Fate::Honest,
        }
    });
    let all = |kind| {
        format!(
            "[[expect]]\noperations = {{ kind = \"{kind}\", state = \"succeeded\", exactly = \"all\" }}\n"
        )
    };
    let scenario = small(&format!(
        "[[expect]]\n{ENROLLED}\n[[expect]]\nduplicate_identities = {{ at_most = 0 }}\n{}{}",
        all("snapshot.save"),
        all("agent.rotate_key"),
    ));
    let place = Place::with(&scenario.replace("\"2s\"", "\"6s\""));
    place.write("tokens", &tokens);
    place.write("keys", portal.running.release_keys[0].public.to_string());
    let arguments = [
        "--portal",
        &between.url,
        "--tokens",
        "tokens",
        "--release-key",
        "keys",
    ];
    let done = place.run(&arguments);
    let last = done.ended(0, "PASS");
    assert_eq!(last, "PASS 4 expectations held");
    let result = place.result();
    adds_up(&result);
    for endpoint in [
        Endpoint::Enroll,
        Endpoint::Sync,
        Endpoint::Events,
        Endpoint::Manifest,
        Endpoint::RotateKey,
    ] {
        let line = result.account.line(endpoint);
        assert!(
            line.ended[Outcome::ClosedEarly] + line.ended[Outcome::StaleConnection] >= 5,
            "{endpoint}: {line:?}"
        );
    }
    let agents = portal.agents();
    assert_eq!(agents.len(), 5);
    for agent in agents {
        assert_eq!(
            (
                agent["applied_generation"].as_u64(),
                agent["state"].as_str()
            ),
            (Some(1), Some("active"))
        );
    }
}

#[test]
fn answers_that_are_none_fail_a_run_and_break_nothing() {
    let rows = [
        (
            Message::answer(200, "text/html", "<h1>Welcome</h1>"),
            Outcome::BrokenAnswer,
        ),
        (
            Message::answer(200, "application/json", "{\"portal_time\": 7}"),
            Outcome::BrokenAnswer,
        ),
        (
            Message::answer(502, "text/html", "<h1>Bad gateway</h1>"),
            Outcome::Status5xx,
        ),
        (Message::answer(302, "text/html", ""), Outcome::Status3xx),
        (
            Message::answer(200, "application/json", &" ".repeat(300_000)),
            Outcome::AnswerTooLarge,
        ),
    ];
    let going: Vec<_> = rows
        .into_iter()
        .map(|(answer, outcome)| {
            let portal = Portal::plain();
            let place = Place::with(&expecting(
                "share = { endpoint = \"sync\", outcome = \"ok\", at_least = 0.5 }",
            ));
            place.write("tokens", portal.tokens(5));
            let between = Between::stand(portal.address(), move |_, request| {
                match request.endpoint() {
                    "sync" => Fate::Instead(answer.clone()),
                    _ => Fate::Honest,
                }
            });
            let going = place.start(&["--portal", &between.url, "--tokens", "tokens"]);
            (going, place, portal, outcome)
        })
        .collect();
    for (going, place, _portal, outcome) in going {
        let done = going.end();
        let last = done.ended(1, "FAIL");
        assert_eq!(
            last,
            "FAIL at least 50 % of sync requests end `ok`: 0 % (0 s to 2 s)"
        );
        let result = place.result();
        adds_up(&result);
        let line = result.account.line(Endpoint::Sync);
        assert_eq!(line.ended[outcome], line.started, "{outcome:?}: {line:?}");
        assert!(line.started >= 5, "{line:?}");
    }
}

#[test]
fn a_portal_that_falls_silent_under_load_hangs_no_run() {
    let portal = Portal::plain();
    let between = Between::stand(portal.address(), |count, _| match count < 30 {
        true => Fate::Honest,
        false => Fate::Silence,
    });
    let place = Place::with(&expecting(ENROLLED));
    place.write("tokens", portal.tokens(5));
    let done = place.run(&["--portal", &between.url, "--tokens", "tokens"]);
    done.ended(0, "PASS");
    let result = place.result();
    adds_up(&result);
    assert_eq!(result.account.total().ended[Outcome::Aborted], 5);
    let told = "without an answer 10 s after the end: 5 agents; ";
    let notes = |note: &String| note.starts_with(told);
    assert!(result.notes.iter().any(notes), "{:?}", result.notes);
}

/// The calls under way at the end get their time, and what they bring is not made part of a run that is over.
#[test]
fn what_comes_after_the_end_is_not_the_runs() {
    let portal = Portal::plain();
    let between = Between::stand(portal.address(), |_, request| match request.endpoint() {
        "enroll" => Fate::Late(Duration::from_secs(4)),
        _ => Fate::Honest,
    });
    let place = Place::with(&expecting(ENROLLED).replace("[6, 12]", "[]"));
    place.write("tokens", portal.tokens(5));
    let done = place.run(&["--portal", &between.url, "--tokens", "tokens"]);
    let last = done.ended(1, "FAIL");
    assert_eq!(last, "FAIL all agents are enrolled: 0 of 5 (at the end)");
    let result = place.result();
    adds_up(&result);
    assert_eq!(result.account.line(Endpoint::Enroll).ended[Outcome::Ok], 5);
}

/// One agent's call keeps the run open for its grace. The others are not without a sync for that.
#[test]
fn nobody_owes_a_sync_once_the_run_has_ended() {
    let portal = Portal::plain();
    let between = Between::stand(portal.address(), |count, request| {
        match request.endpoint() == "sync" && count >= 20 {
            true => Fate::Silence,
            false => Fate::Honest,
        }
    });
    let place = Place::with(&expecting("staleness = { at_most = \"2s\" }"));
    place.write("tokens", portal.tokens(5));
    let done = place.run(&["--portal", &between.url, "--tokens", "tokens"]);
    done.ended(0, "PASS");
    let result = place.result();
    adds_up(&result);
    assert!(result.account.total().ended[Outcome::Aborted] > 0);
}

/// The scenario of an embedded portal that loses everything in the middle of a run.
fn losing(action: &str) -> String {
    small(&format!(
        "[[timeline]]\nat = \"2s\"\n{action}\n[[expect]]\n{ENROLLED}\n[[expect]]\n\
         count = {{ endpoint = \"sync\", outcome = \"unknown_agent\", at_least = 5 }}\n"
    ))
    .replace("\"2s\"\nreferees", "\"4s\"\nreferees")
}

// case L34: an agent's first handshake is a full one, whoever was there before it.
#[test]
fn a_portal_of_its_own_that_restarts_with_its_data_knows_its_agents() {
    let scenario = small(&format!(
        "[[timeline]]\nat = \"2s\"\ndo.restart_portal = {{ with_data = true }}\n[[expect]]\n{ENROLLED}\n"
    ))
    .replace("\"2s\"\nreferees", "\"4s\"\nreferees");
    let place = Place::with(&scenario);
    place.run(&[]).ended(0, "PASS");
    let result = place.result();
    adds_up(&result);
    assert_eq!(result.fleet.idle, 0);
    assert_eq!(result.account.line(Endpoint::Enroll).ended[Outcome::Ok], 5);
    let made = &result.samples.connections;
    assert!(made.tls_full.count() >= 5 && made.made() >= 10, "{made:?}");
}

#[test]
fn a_portal_of_its_own_that_forgets_under_load_ends_in_a_verdict() {
    let rows = [
        "do = \"reset_portal\"",
        "do.restart_portal = { with_data = false }",
    ];
    let going = rows.map(|action| {
        let place = Place::with(&losing(action));
        (place.start(&[]), place, action)
    });
    for (going, place, action) in going {
        let done = going.end();
        done.ended(0, "PASS");
        let result = place.result();
        // Counters of both of its lives agree with the account.
        adds_up(&result);
        assert!(result.portal.is_some());
        // Five agents that are told to be nobody are a figure, and no five lines.
        assert!(!done.told.contains("ERROR"), "{done:#?}");
        assert_eq!(
            result.fleet.idle, 5,
            "{action}: who is unknown sends nothing more"
        );
    }
}

#[test]
fn a_foreign_portal_that_forgets_under_load_ends_in_a_verdict() {
    let going = [false, true].map(|restarted| {
        let portal = Portal::plain();
        let (reached, under_load) = channel();
        let between = Between::stand(portal.address(), move |count, _| {
            if count == 30 {
                let _ = reached.send(());
            }
            Fate::Honest
        });
        let place = Place::with(&losing("do = \"reset_portal\""));
        place.write("tokens", portal.tokens(5));
        let going = place.start(&["--portal", &between.url, "--tokens", "tokens"]);
        (going, place, portal, under_load, restarted)
    });
    let going = going.map(|(going, place, mut portal, under_load, restarted)| {
        under_load.recv().unwrap();
        match restarted {
            true => portal.restart(),
            false => assert_eq!(portal.lab("POST", "/reset").0, 200),
        }
        (going, place, portal, restarted)
    });
    for (going, place, _portal, restarted) in going {
        let done = going.end();
        done.ended(0, "PASS");
        let told = "time line of the scenario are for the embedded portal";
        assert!(done.told.contains(told), "{done:#?}");
        let result = place.result();
        adds_up(&result);
        assert_eq!(result.fleet.idle, 5, "restarted: {restarted}");
        let unknown = Outcome::Problem(ProblemCode::UnknownAgent);
        assert!(result.account.line(Endpoint::Sync).ended[unknown] >= 5);
    }
}

/// Who is told how long to wait is not one who backs off: what the fleet is by the second tells the two apart.
#[test]
fn agents_that_are_told_to_wait_are_counted_apart_from_those_that_back_off() {
    let waits = "text/plain\r\nretry-after: 60";
    let rows = [
        (Message::answer(429, waits, ""), Gauge::ToldToWait),
        (Message::answer(500, "text/plain", ""), Gauge::BackingOff),
    ];
    for (answer, where_they_are) in rows {
        let (place, portal) = (Place::with(&expecting(ENROLLED)), Portal::plain());
        place.write("tokens", portal.tokens(5));
        let between = Between::stand(portal.address(), move |_, request| {
            match request.endpoint() {
                "sync" => Fate::Instead(answer.clone()),
                _ => Fate::Honest,
            }
        });
        place.run(&["--portal", &between.url, "--tokens", "tokens"]);
        let series = place.result().series;
        for gauge in [Gauge::ToldToWait, Gauge::BackingOff] {
            let agents = (0..series.len()).map(|second| series.gauge_in(second, gauge));
            let most = agents.fold(0.0, f64::max);
            assert_eq!(most > 0.0, gauge == where_they_are, "{gauge}: {most}");
        }
    }
}
