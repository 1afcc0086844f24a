//! The control API without sockets: each call, and what it says to mistakes.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use mock_portal::agent_api::HttpCounters;
use mock_portal::clock::Clock;
use mock_portal::control_api::calls::{self, CALLS};
use mock_portal::control_api::{BASE_PATH, ControlApi, LabToken, router};
use mock_portal::journal::{Capacity, Journal};
use mock_portal::keys;
use mock_portal::latency::Latencies;
use portal_core::Portal;
use serde_json::{Value, json};
use tower::ServiceExt as _;

fn lab(token: Option<LabToken>) -> Router {
    router(Arc::new(ControlApi {
        portal: Arc::new(Portal::new(keys::settings_of_seed(7))),
        clock: Clock::start(),
        token,
        journal: Arc::new(Journal::new(Capacity::default())),
        latencies: Arc::new(Latencies::default()),
        http: Arc::new(HttpCounters::default()),
        connections: Arc::default(),
        store: None,
    }))
}

/// Calls and reads status, `Allow` and JSON.
async fn call(lab: &Router, method: &str, path: &str, body: &str) -> (StatusCode, String, Value) {
    let request = Request::builder()
        .method(method)
        .uri(format!("{BASE_PATH}{path}"))
        .header("Host", "127.0.0.1:8471");
    let response = lab
        .clone()
        .oneshot(request.body(Body::from(body.to_owned())).unwrap())
        .await
        .unwrap();
    let (head, body) = response.into_parts();
    let allow = head
        .headers
        .get("allow")
        .map(|allow| allow.to_str().unwrap().to_owned())
        .unwrap_or_default();
    let body = body.collect().await.unwrap().to_bytes();
    assert!(
        body.ends_with(b"\n"),
        "{method} {path}: no line for a terminal"
    );
    let kind = if head.status == 200 {
        "application/json"
    } else {
        "application/problem+json"
    };
    assert_eq!(head.headers["content-type"], kind, "{method} {path}");
    (head.status, allow, serde_json::from_slice(&body).unwrap())
}

async fn good(lab: &Router, method: &str, path: &str, body: Value) -> Value {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let (status, _, answer) = call(lab, method, path, &body).await;
    assert_eq!(status, 200, "{method} {path}: {answer}");
    answer
}

/// The example that the list of calls shows.
fn example(method: &str, path: &str) -> Value {
    let call = CALLS
        .iter()
        .find(|call| call.verb.as_str() == method && call.path == path)
        .unwrap();
    match call.body {
        calls::Body::None => Value::Null,
        calls::Body::Json { example, .. } => serde_json::from_str(example).unwrap(),
    }
}

#[tokio::test]
async fn every_call_does_what_the_list_says() {
    let lab = lab(None);
    let listed = good(&lab, "GET", "", Value::Null).await["calls"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(listed, CALLS.len());

    let tokens = good(&lab, "POST", "/tokens", example("POST", "/tokens")).await;
    assert_eq!(tokens["tokens"][0]["node_name"], "n1");
    assert!(tokens["tokens"][0]["server_id"].is_null(), "{tokens}");
    assert_eq!(
        good(&lab, "GET", "/agents", Value::Null).await,
        json!({"agents": [], "next_cursor": null})
    );
    assert_eq!(
        good(&lab, "GET", "/clusters/c1/desired", Value::Null).await["desired"],
        Value::Null
    );
    let set = good(
        &lab,
        "PUT",
        "/clusters/c1/desired",
        example("PUT", "/clusters/{id}/desired"),
    )
    .await;
    assert_eq!(
        set,
        json!({"generation": 1, "warnings": []}),
        "the example is a good document"
    );
    let shown = good(&lab, "GET", "/clusters/c1/desired", Value::Null).await;
    assert_eq!(
        (&shown["generation"], &shown["desired"]["release"]),
        (&json!(1), &json!("2026.11.1"))
    );
    assert!(
        !shown.to_string().contains("in clear"),
        "a secret is shown: {shown}"
    );

    let posted = good(
        &lab,
        "POST",
        "/clusters/c1/operations",
        example("POST", "/clusters/{id}/operations"),
    )
    .await;
    assert_eq!(posted["warnings"], json!([]));
    let operation = good(
        &lab,
        "GET",
        &format!("/operations/{}", posted["id"].as_str().unwrap()),
        Value::Null,
    )
    .await;
    assert_eq!(
        (&operation["kind"], &operation["state"]),
        (&json!("snapshot.save"), &json!("queued"))
    );

    let server = example("PUT", "/hetzner/servers/{id}");
    assert_eq!(
        good(&lab, "PUT", "/hetzner/servers/42", server.clone()).await,
        server
    );

    let releases = good(&lab, "GET", "/releases", Value::Null).await;
    assert_eq!(releases["releases"][0]["version"], "2026.11.1");
    let manifest = json!({
        "version": "2026.12.1", "created_at": "2026-12-01T00:00:00Z", "floor": 13, "template_engine": "minijinja",
        "agent": {"version": "1.5.0", "artifacts": []}, "image": {"k3s_version": "v1.34.2+k3s1", "artifacts": []},
        "addons": [],
    });
    assert_eq!(
        good(&lab, "POST", "/releases", manifest).await["version"],
        "2026.12.1"
    );
    assert_eq!(
        good(&lab, "GET", "/releases", Value::Null).await["releases"]
            .as_array()
            .unwrap()
            .len(),
        2
    );

    let clock = good(&lab, "PUT", "/clock", example("PUT", "/clock")).await;
    assert_eq!(clock["offset_ms"], -90_000);
    assert_eq!(
        good(&lab, "GET", "/clock", Value::Null).await["offset_ms"],
        -90_000
    );
    assert_eq!(
        good(&lab, "GET", "/counters", Value::Null).await["answers"],
        json!([])
    );
    assert_eq!(
        good(&lab, "GET", "/journal", Value::Null).await,
        json!({"entries": [], "next": 0, "dropped": 0})
    );

    assert_eq!(
        good(&lab, "POST", "/reset", Value::Null).await["answers"],
        json!([])
    );
    assert_eq!(
        good(&lab, "GET", "/clock", Value::Null).await["offset_ms"],
        0
    );
    assert_eq!(
        good(&lab, "GET", "/releases", Value::Null).await["releases"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let (status, ..) = call(&lab, "GET", "/clusters/c1/desired", "").await;
    assert_eq!(status, 404, "the cluster is gone");
}

#[tokio::test]
async fn a_mistake_is_told_with_its_place_and_the_way_out() {
    let lab = lab(None);
    good(&lab, "POST", "/tokens", example("POST", "/tokens")).await;
    let many = format!("{{\"cluster_id\": \"{}\"}}", "x".repeat(1 << 20));
    /// Method, path, body; status, code, and what the detail and the hint say.
    type Row<'a> = (&'a str, &'a str, &'a str, u16, &'a str, &'a [&'a str]);
    let rows: &[Row<'_>] = &[
        (
            "GET",
            "/token",
            "",
            404,
            "not_found",
            &["GET /_lab/v1/token", "did you mean /_lab/v1/tokens?"],
        ),
        ("GET", "/../etc", "", 404, "not_found", &["lists all calls"]),
        (
            "DELETE",
            "/tokens",
            "",
            405,
            "method_not_allowed",
            &["DELETE /_lab/v1/tokens", "takes POST"],
        ),
        (
            "POST",
            "/clusters/c1/desired",
            "",
            405,
            "method_not_allowed",
            &["takes PUT, GET"],
        ),
        (
            "POST",
            "/tokens",
            "",
            400,
            "invalid_request",
            &["empty", "cluster_id, node_name"],
        ),
        ("POST", "/tokens", "{", 400, "invalid_request", &["no JSON"]),
        (
            "PUT",
            "/hetzner/servers/x",
            "{}",
            400,
            "invalid_request",
            &["the path", "invalid digit"],
        ),
        (
            "PUT",
            "/hetzner/servers/42",
            r#"{"lable": "c1"}"#,
            400,
            "invalid_request",
            &["did you mean \"label\"?"],
        ),
        (
            "PUT",
            "/hetzner/servers/42",
            &format!(r#"{{"name": "{}"}}"#, "n".repeat(256)),
            400,
            "invalid_request",
            &["name", "at most 255"],
        ),
        ("POST", "/tokens", "[]", 400, "invalid_request", &["shape"]),
        (
            "POST",
            "/tokens",
            &many,
            413,
            "too_large",
            &["1048576 bytes"],
        ),
        (
            "POST",
            "/tokens",
            r#"{"cluster": "c", "node_name": 1}"#,
            400,
            "invalid_request",
            &["did you mean \"cluster_id\"?"],
        ),
        (
            "POST",
            "/tokens",
            r#"{"cluster_id": "c", "node_name": 1}"#,
            400,
            "invalid_request",
            &["node_name"],
        ),
        (
            "POST",
            "/tokens",
            r#"{"cluster_id": "c/d", "node_name": "n"}"#,
            400,
            "invalid_request",
            &["cluster_id", "c/d"],
        ),
        (
            "POST",
            "/tokens",
            r#"{"cluster_id": "c", "node_name": "n", "count": 0}"#,
            400,
            "invalid_request",
            &["count", "1 to"],
        ),
        (
            "GET",
            "/agents?sate=active",
            "",
            400,
            "invalid_request",
            &["did you mean \"state\"?"],
        ),
        (
            "GET",
            "/agents?state=gone",
            "",
            400,
            "invalid_request",
            &["gone", "revoked"],
        ),
        (
            "GET",
            "/agents?limit=0",
            "",
            400,
            "invalid_request",
            &["limit", "1 to 1000"],
        ),
        (
            "GET",
            "/agents?cluster=a%20b",
            "",
            400,
            "invalid_request",
            &["cluster ID \"a b\""],
        ),
        (
            "GET",
            "/agents/agt_none",
            "",
            404,
            "not_found",
            &["no agent agt_none", "GET /agents"],
        ),
        (
            "GET",
            "/agents/a%2Fb",
            "",
            400,
            "invalid_request",
            &["agent ID \"a/b\""],
        ),
        ("GET", "/agents/%ff", "", 400, "invalid_request", &["UTF-8"]),
        (
            "POST",
            "/agents/agt_none/revoke",
            "",
            404,
            "not_found",
            &["no agent agt_none"],
        ),
        (
            "POST",
            "/agents/agt_none/revoke?force=1",
            "",
            400,
            "invalid_request",
            &["\"force\"", "takes no query"],
        ),
        (
            "PUT",
            "/clusters/none/desired",
            r#"{"release": "1"}"#,
            400,
            "invalid_request",
            &["agent_version"],
        ),
        (
            "PUT",
            "/clusters/c1/desired",
            r#"{"host": {"snapshot_retentoin": 1}}"#,
            400,
            "invalid_request",
            &[
                "host.snapshot_retentoin",
                "did you mean \"snapshot_retention\"?",
            ],
        ),
        (
            "GET",
            "/clusters/none/desired",
            "",
            404,
            "not_found",
            &["no cluster none", "POST /tokens"],
        ),
        (
            "POST",
            "/clusters/none/operations",
            r#"{"kind": "snapshot.save", "params": {"name": "n"}}"#,
            404,
            "not_found",
            &["none"],
        ),
        (
            "POST",
            "/clusters/c1/operations",
            r#"{"kind": "snapshot.save"}"#,
            400,
            "invalid_request",
            &["params", "name"],
        ),
        (
            "POST",
            "/clusters/c1/operations",
            r#"{"kin": "snapshot.save"}"#,
            400,
            "invalid_request",
            &["did you mean \"kind\"?"],
        ),
        (
            "GET",
            "/operations/op_none",
            "",
            404,
            "not_found",
            &["no operation op_none"],
        ),
        (
            "POST",
            "/releases",
            r#"{"version": "2026.12.1"}"#,
            400,
            "invalid_request",
            &["manifest", "created_at"],
        ),
        (
            "PUT",
            "/clock",
            r#"{"offset": 1}"#,
            400,
            "invalid_request",
            &["did you mean \"offset_ms\"?"],
        ),
        (
            "PUT",
            "/clock",
            r#"{"offset_ms": 1.5}"#,
            400,
            "invalid_request",
            &["offset_ms"],
        ),
        (
            "GET",
            "/journal?limit=1001",
            "",
            400,
            "invalid_request",
            &["limit=1001", "1 to 1000"],
        ),
        (
            "GET",
            "/journal?code=nonsense",
            "",
            400,
            "invalid_request",
            &["nonsense", "clock_skew"],
        ),
        (
            "GET",
            "/journal?limit=1&limit=2",
            "",
            400,
            "invalid_request",
            &["more than once"],
        ),
        (
            "GET",
            "/counters",
            r#"{"x": 1}"#,
            400,
            "invalid_request",
            &["takes no body"],
        ),
        (
            "POST",
            "/reset",
            "x=1",
            400,
            "invalid_request",
            &["takes no body"],
        ),
    ];
    for (method, path, body, status, code, says) in rows {
        let (got, allow, answer) = call(&lab, method, path, body).await;
        assert_eq!(
            (got.as_u16(), answer["code"].as_str()),
            (*status, Some(*code)),
            "{method} {path}: {answer}"
        );
        assert_eq!(answer["status"], *status);
        let text = format!(
            "{} {}",
            answer["detail"].as_str().unwrap(),
            answer["hint"].as_str().unwrap()
        );
        for part in *says {
            assert!(
                text.contains(part),
                "{method} {path}: {part:?} is not in {text:?}"
            );
        }
        assert_eq!(
            allow.is_empty(),
            *status != 405,
            "{method} {path}: Allow {allow:?}"
        );
    }
    let (_, _, answer) = call(&lab, "GET", "/clusters/c1/desired", "").await;
    assert_eq!(answer["generation"], 0, "a refused call changed something");
}

#[tokio::test]
async fn whoever_may_not_call_learns_nothing() {
    let open = lab(None);
    let locked = lab(Some("correct-horse".parse().unwrap()));
    for (lab, name, value, status) in [
        (&open, "Host", "evil.example", 403),
        (&open, "Origin", "http://evil.example", 403),
        (&locked, "Authorization", "Bearer wrong-horse", 401),
        (&locked, "Authorization", "Bearer correct-horse", 200),
    ] {
        for path in ["/reset", "/nowhere"] {
            let mut request = Request::post(format!("{BASE_PATH}{path}"));
            if name != "Host" {
                request = request.header("Host", "127.0.0.1:8471");
            }
            let request = request.header(name, value).body(Body::empty()).unwrap();
            let response = lab.clone().oneshot(request).await.unwrap();
            let expected = if path == "/nowhere" && status == 200 {
                404
            } else {
                status
            };
            assert_eq!(response.status(), expected, "{path} {name}: {value}");
            assert_eq!(
                response.headers().contains_key("www-authenticate"),
                status == 401
            );
        }
    }
}
