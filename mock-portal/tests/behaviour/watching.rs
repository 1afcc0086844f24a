//! What scrapers and starters read: `/metrics` and `/healthz`. A parser of somebody else's reads the same text in
//! `e2e/python/client.py`.

use std::collections::{BTreeMap, BTreeSet};

use mock_portal::control_api::metrics::{HEALTH_PATH, METRICS_PATH};
use portal_core::control::HetznerServer;
use protocol::id::ServerId;
use record::Metric;
use serde_json::json;
use tokio::net::TcpStream;

use crate::client::*;

/// A series, as it is written, and its value.
type Series = BTreeMap<String, f64>;

async fn get(url: &str, path: &str, headers: &str) -> (Answer, String) {
    use tokio::io::AsyncWriteExt as _;
    let mut stream = TcpStream::connect(address(url)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_answer(&mut stream).await.unwrap();
    let text = String::from_utf8(answer.body.clone()).unwrap();
    (answer, text)
}

fn series(text: &str) -> Series {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[tokio::test]
async fn the_metrics_say_what_happened_in_the_words_of_the_catalogue() {
    let running = server(|_| {}).await;
    let mut stream = TcpStream::connect(address(&running.agents_url))
        .await
        .unwrap();
    let mut agent = Agent::new("n1");
    let token = token(&running.portal, "n1");
    // A server that cannot be asked about, then an agent, then a sync and its replay, and a path that is none.
    let put = |reachable| {
        let server: HetznerServer =
            serde_json::from_value(json!({"reachable": reachable})).unwrap();
        let control = running.control();
        control.put_hetzner_server(ServerId(42), server).unwrap();
    };
    put(false);
    let answer = exchange(&mut stream, &agent.enrollment(&token))
        .await
        .unwrap();
    assert_eq!(answer.refusal(), (503, "internal".to_owned()));
    put(true);
    let answer = exchange(&mut stream, &agent.enrollment(&token))
        .await
        .unwrap();
    agent.id = answer.json()["agent_id"].as_str().unwrap().to_owned();
    let sync = agent.sync();
    for (message, status) in [
        (sync.clone(), 200),
        (sync, 400),
        (post("/agent/v1/nowhere", b"{}"), 404),
    ] {
        let answer = exchange(&mut stream, &message).await.unwrap();
        assert_eq!(answer.status, status);
    }
    for kind in ["snapshot.save", "made.up", "made.up.too"] {
        let input = json!({"kind": kind, "params": {"name": "x"}}).to_string();
        let input = serde_json::from_str(&input).unwrap();
        let cluster = "c1".parse().unwrap();
        running.control().post_operation(&cluster, input).unwrap();
    }

    let (answer, text) = get(&running.lab_url, METRICS_PATH, "Host: localhost\r\n").await;
    assert_eq!(answer.status, 200, "{text}");
    assert_eq!(
        answer.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let found = series(&text);
    for (name, value) in [
        (r#"mock_portal_requests_total{endpoint="enroll"}"#, 2.0),
        (r#"mock_portal_requests_total{endpoint="sync"}"#, 2.0),
        (r#"mock_portal_requests_total{endpoint="none"}"#, 1.0),
        (r#"mock_portal_requests_total{endpoint="rotate-key"}"#, 0.0),
        (
            r#"mock_portal_answers_total{endpoint="sync",outcome="replayed"}"#,
            1.0,
        ),
        (
            r#"mock_portal_answers_total{endpoint="enroll",outcome="internal"}"#,
            1.0,
        ),
        (
            r#"mock_portal_answer_seconds_count{endpoint="enroll"}"#,
            2.0,
        ),
        (
            r#"mock_portal_answer_seconds_bucket{endpoint="enroll",le="+Inf"}"#,
            2.0,
        ),
        ("mock_portal_connections", 1.0),
        ("mock_portal_clusters", 1.0),
        (r#"mock_portal_agents{state="active"}"#, 1.0),
        (r#"mock_portal_agents{state="revoked"}"#, 0.0),
        ("mock_portal_tokens", 0.0),
        ("mock_portal_replay_memory_entries", 1.0),
        ("mock_portal_replay_memory_capacity_entries", 1_000_000.0),
        ("mock_portal_seals_total", 5.0),
        (
            r#"mock_portal_operations{kind="snapshot.save",state="queued"}"#,
            1.0,
        ),
        (
            r#"mock_portal_operations{kind="unknown",state="queued"}"#,
            2.0,
        ),
        ("mock_portal_events_repeated_total", 0.0),
    ] {
        assert_eq!(found.get(name), Some(&value), "{name} in\n{text}");
    }
    // Every metric of the portal in the catalogue is there, with its help, and no other.
    let named: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next())
        .collect();
    let catalogue = Metric::ALL.iter().map(|metric| metric.name());
    let ours: BTreeSet<&str> = catalogue
        .filter(|name| name.starts_with("mock_portal_"))
        .collect();
    assert_eq!(named, ours);
    running.shutdown().await;
}

#[tokio::test]
async fn health_is_for_everybody_and_metrics_are_for_those_who_may_call() {
    let token = "correct-horse".parse().unwrap();
    let running = server(|config| config.lab_token = Some(token)).await;
    let rows: &[(&str, &str, u16)] = &[
        (HEALTH_PATH, "Host: portal.example\r\n", 200),
        (METRICS_PATH, "Host: portal.example\r\n", 401),
        (
            METRICS_PATH,
            "Host: portal.example\r\nAuthorization: Bearer correct-horse\r\n",
            200,
        ),
    ];
    for (path, headers, status) in rows {
        let (answer, text) = get(&running.lab_url, path, headers).await;
        assert_eq!(answer.status, *status, "{path} {headers:?}: {text}");
    }
    let (_, text) = get(&running.lab_url, HEALTH_PATH, "Host: x\r\n").await;
    assert_eq!(text, "{\"status\":\"ok\"}\n");
    running.shutdown().await;
}
