//! Both APIs described: the committed copies are what is generated, and what is served. Whether the portal keeps to them
//! is asked by `e2e/python/hostile.py`.

use std::path::Path;

use mock_portal::openapi;
use protocol::dialect::Dialect;
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;

use crate::client::*;

#[test]
fn the_committed_descriptions_are_the_generated_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi");
    for (api, generated) in [
        ("agent", openapi::agent(&Dialect::default())),
        ("lab", openapi::lab()),
    ] {
        let path = folder.join(format!("{api}.json"));
        let committed: Map<String, Value> =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(
            committed == generated,
            "{} is old: cargo run -p mock-portal -- openapi {api} > docs/openapi/{api}.json",
            path.display()
        );
    }
}

/// Every reference in a document, and whether it leads anywhere.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(to)) = members.get("$ref") {
                found.push(to);
            }
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn references_lead_somewhere_and_names_are_what_openapi_allows() {
    for document in [openapi::agent(&Dialect::default()), openapi::lab()] {
        let document = Value::Object(document);
        let mut found = vec![];
        references(&document, &mut found);
        assert!(found.len() > 20, "{}", found.len());
        for to in found {
            let target = document.pointer(to.strip_prefix('#').unwrap());
            assert!(target.is_some(), "{to} leads nowhere");
        }
        for name in document["components"]["schemas"]
            .as_object()
            .unwrap()
            .keys()
        {
            let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            assert!(name.chars().all(fits), "{name:?} is no name of a component");
        }
    }
}

#[test]
fn the_names_of_a_dialect_are_those_of_its_description() {
    let dialect: Dialect = serde_json::from_value(
        json!({"base_path": "/api/v9", "header_agent_id": "X-Agent", "member_code": "err"}),
    )
    .unwrap();
    let document = Value::Object(openapi::agent(&dialect));
    let sync = &document["paths"]["/api/v9/sync"]["post"];
    assert_eq!(sync["parameters"][0]["name"], "X-Agent", "{document}");
    let problem = &document["components"]["schemas"]["Problem"];
    assert!(problem["properties"]["err"].is_object(), "{problem}");
}

#[tokio::test]
async fn a_running_portal_describes_itself() {
    use tokio::io::AsyncWriteExt as _;
    let running = server(|_| {}).await;
    for (query, described) in [
        ("", Value::Object(openapi::lab())),
        ("?api=lab", Value::Object(openapi::lab())),
        (
            "?api=agent",
            Value::Object(openapi::agent(&Dialect::default())),
        ),
    ] {
        let mut stream = TcpStream::connect(address(&running.lab_url)).await.unwrap();
        let request =
            format!("GET /_lab/v1/openapi.json{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_answer(&mut stream).await.unwrap();
        assert_eq!((answer.status, answer.json()), (200, described), "{query}");
    }
    running.shutdown().await;
}
