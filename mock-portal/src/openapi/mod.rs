//! Both APIs in OpenAPI 3.1, made from what they are made of: the types that are read and written, the table of endpoints
//! and their refusals, the table of control calls.
//!
//! [`agent`] is the agents' side, [`lab`] the control API. `mock-portal openapi` prints them, `GET /_lab/v1/openapi.json`
//! serves them, `docs/openapi/` holds a copy of each that a test compares, and a generator of hostile requests looks
//! whether the portal answers anything that they do not describe (`e2e/python/hostile.py`).

mod agent;
mod lab;

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub use agent::document as agent;
pub use lab::document as lab;

/// Which of the two APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// The agents' side.
    Agent,
    /// The control API.
    Lab,
}

/// The dialect of JSON Schema that OpenAPI 3.1 speaks, with its definitions where OpenAPI has them.
fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
            settings.transforms.push(Box::new(bounded));
        })
        .into_generator()
}

/// Says of every whole number how large it can be: the format alone binds nobody.
fn bounded(schema: &mut Schema) {
    let bounds = match schema.get("format").and_then(Value::as_str) {
        Some("uint16") => Some((json!(0), json!(u16::MAX))),
        Some("uint32") => Some((json!(0), json!(u32::MAX))),
        Some("uint64") => Some((json!(0), json!(u64::MAX))),
        Some("int64") => Some((json!(i64::MIN), json!(i64::MAX))),
        _ => None,
    };
    if let Some((least, most)) = bounds {
        for (name, bound) in [("minimum", least), ("maximum", most)] {
            if schema.get(name).is_none() {
                schema.insert(name.to_owned(), bound);
            }
        }
    }
    transform_subschemas(&mut bounded, schema);
}

/// What both documents begin with.
fn head(title: &str, description: &str, server: &str) -> Map<String, Value> {
    let head = json!({
        "openapi": "3.1.0",
        "info": {
            "title": title, "description": description, "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "servers": [{"url": server, "description": "Where `mock-portal serve` listens unless it is told otherwise."}],
    });
    match head {
        Value::Object(head) => head,
        _ => Map::new(),
    }
}

/// A body of JSON.
fn content(kind: &str, schema: &Schema) -> Value {
    json!({ kind: {"schema": schema} })
}

/// A member of a path, in the order in which it stands there.
fn in_path(name: &str, does: &str, schema: &Schema) -> Value {
    json!({"name": name, "in": "path", "required": true, "description": does, "schema": schema})
}
