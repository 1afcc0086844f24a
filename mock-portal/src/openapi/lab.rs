//! The control API: the table of its calls, and what lies beside it at its address.

use protocol::problem::Problem;
use schemars::{SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::{content, generator, head, in_path};
use crate::control_api::calls::{Body, CALLS, Call};
use crate::control_api::metrics::{HEALTH_PATH, METRICS_PATH, health_schema};
use crate::control_api::{BASE_PATH, BODY_BYTES_MAX, Code, refusal_schema};

const DESCRIPTION: &str = "\
What whoever tests agents asks of the mock portal and sets in it. Without a token it is for this machine alone, and `Host` \
must name its loopback; a browser's writes must come from the same origin. Names that are not known, in a body or in a \
query, are refused, all at once, and so is a fraction for a whole number (`12.0`). A path outside this document is 404, another method 405 with `Allow`.";

/// The document.
pub fn document() -> Map<String, Value> {
    let mut generator = generator();
    let mut paths = Map::new();
    for call in CALLS {
        let path = paths
            .entry(format!("{BASE_PATH}{}", call.path))
            .or_insert_with(|| json!({}));
        path[call.verb.as_str().to_ascii_lowercase()] = operation(call, &mut generator);
    }
    paths.insert(
        HEALTH_PATH.to_owned(),
        json!({"get": health(&mut generator)}),
    );
    paths.insert(
        METRICS_PATH.to_owned(),
        json!({"get": metrics(&mut generator)}),
    );

    let mut document = head(
        "Control API of the mock portal",
        DESCRIPTION,
        "http://127.0.0.1:8471",
    );
    document.insert("paths".to_owned(), paths.into());
    document.insert(
        "components".to_owned(),
        json!({
            "schemas": generator.take_definitions(true),
            "securitySchemes": {"lab_token": {
                "type": "http", "scheme": "bearer", "description": "The token of `--lab-token`, where there is one.",
            }},
        }),
    );
    document
}

fn operation(call: &Call, generator: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = call
        .id
        .iter()
        .map(|schema| in_path("id", "Which one.", &schema(generator)))
        .collect();
    parameters.extend(call.query.iter().map(|parameter| {
        json!({
            "name": parameter.name, "in": "query", "description": parameter.does,
            "schema": (parameter.schema)(generator),
        })
    }));
    let answer = (call.answer)(generator);
    let done = json!({"description": "Done.", "content": content("application/json", &answer)});
    let mut codes = vec![
        Code::InvalidRequest,
        Code::Unauthorized,
        Code::Forbidden,
        Code::TooLarge,
        Code::Internal,
    ];
    codes.extend(call.id.map(|_| Code::NotFound));
    let mut operation = json!({
        "operationId": format!("{}{}", call.verb.as_str().to_ascii_lowercase(), call.path.replace(['/', '{', '}'], "-")),
        "summary": call.does, "parameters": parameters, "security": [{}, {"lab_token": []}],
        "responses": responses(done, &codes, generator),
    });
    if let Body::Json { example, schema } = call.body {
        let mut content = content("application/json", &schema(generator));
        content["application/json"]["example"] =
            serde_json::from_str(example).expect("the examples are JSON");
        operation["requestBody"] = json!({
            "required": true, "description": format!("At most {BODY_BYTES_MAX} bytes."), "content": content,
        });
    }
    operation
}

fn responses(done: Value, codes: &[Code], generator: &mut SchemaGenerator) -> Value {
    let refusal = refusal_schema(generator);
    let mut responses = json!({ "200": done });
    for code in codes {
        let status = code.status().as_u16();
        let schema = json_schema!({
            "allOf": [refusal, {"properties": {"status": {"const": status}, "code": {"const": code}}}],
        });
        let mut response = json!({
            "description": code.status().canonical_reason().unwrap_or_default(),
            "content": content(Problem::CONTENT_TYPE, &schema),
        });
        if *code == Code::Unauthorized {
            response["headers"] =
                json!({"WWW-Authenticate": {"required": true, "schema": {"const": "Bearer"}}});
        }
        responses[status.to_string()] = response;
    }
    responses
}

fn health(generator: &mut SchemaGenerator) -> Value {
    let health = health_schema(generator);
    let done =
        json!({"description": "It is well.", "content": content("application/json", &health)});
    let failed = json!({"description": "It can promise nothing.", "content": content("application/json", &health)});
    json!({
        "operationId": "health", "summary": "tells whether the portal is well; asks for no token",
        "security": [{}], "responses": {"200": done, "503": failed},
    })
}

fn metrics(generator: &mut SchemaGenerator) -> Value {
    let text = json_schema!({"type": "string"});
    let done = json!({"description": "The Prometheus text format.", "content": content("text/plain", &text)});
    let codes = [
        Code::InvalidRequest,
        Code::Unauthorized,
        Code::Forbidden,
        Code::TooLarge,
    ];
    json!({
        "operationId": "metrics", "summary": "what a scraper reads", "security": [{}, {"lab_token": []}],
        "responses": responses(done, &codes, generator),
    })
}
