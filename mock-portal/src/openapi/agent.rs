//! The agents' side: one path for each endpoint of the table, with every refusal that it can answer.

use protocol::dialect::Dialect;
use protocol::endpoint::{Authentication, Endpoint};
use protocol::id::{AgentId, OperationId, ReleaseVersion};
use protocol::limits::{BODY_BYTES_MAX, CLOCK_SKEW_SECONDS_MAX};
use protocol::pbx::enroll::{EnrollAnswer, EnrollRequest};
use protocol::pbx::operation::{
    AccessIssueParams, AccessIssueResult, AccessRevokeParams, AccessRevokeResult,
    AgentRotateKeyResult, ClusterRestoreParams, ClusterRestoreResult, ClusterUpgradeParams,
    ClusterUpgradeResult, DiagCollectResult, EventsAnswer, NoParams, NodeDrainResult,
    NodeForgetResult, NodeParams, OperationEvents, OperationKind, S3VerifyResult,
    ServerRejoinParams, ServerRejoinResult, SnapshotSaveParams, SnapshotSaveResult,
};
use protocol::pbx::release::Manifest;
use protocol::pbx::rotate::{RotateKeyAnswer, RotateKeyRequest};
use protocol::pbx::sync::{SyncAnswer, SyncReport};
use protocol::problem::{Problem, ProblemCode};
use protocol::sign::Signature;
use protocol::time::Timestamp;
use protocol::verified::SignedManifest;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::{content, generator, head, in_path};

const DESCRIPTION: &str = "\
What agents ask of their portal. Every request after the enrollment is signed (SIGN-1 to SIGN-8): three headers carry \
the agent's ID, a timestamp and an Ed25519 signature over `METHOD LF PATH LF TIMESTAMP LF HEX(SHA-256(BODY))`. Checks are \
made in one order (SIGN-6), the first that fails is the answer. Members that nobody knows are ignored, in both directions; \
a member twice, nesting over 32 levels, an array for an object and a fraction for a whole number (`12.0`) are refused. A path outside this document is 404 \
`not_found`, another method 405 `method_not_allowed` with `Allow`, both as `application/problem+json`. HTTP that some proxy \
may refuse is 400 `invalid_request` under the profile `strict`.";

/// The document of a portal that speaks this dialect.
pub fn document(dialect: &Dialect) -> Map<String, Value> {
    let mut generator = generator();
    let mut paths = Map::new();
    for endpoint in served() {
        let path = path_of(endpoint, dialect);
        let method = endpoint.method().to_ascii_lowercase();
        paths.insert(
            path,
            json!({ method: operation(endpoint, dialect, &mut generator) }),
        );
    }
    let kinds = kinds(&mut generator);
    generator.subschema_for::<Manifest>();
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Problem".to_owned(), problem(dialect, &mut generator));
    if let Some(Value::Object(offer)) = schemas.get_mut("OperationOffer") {
        offer.insert("allOf".to_owned(), kinds);
    }
    schemas.extend(generator.take_definitions(true));

    let mut document = head(
        "Portal protocol, the agents' side",
        DESCRIPTION,
        "http://127.0.0.1:8470",
    );
    document.insert("paths".to_owned(), paths.into());
    document.insert("components".to_owned(), json!({ "schemas": schemas }));
    document
}

/// The endpoints of this protocol: the check-in protocol has a server of its own.
fn served() -> impl Iterator<Item = Endpoint> {
    let all = Endpoint::ALL.iter().copied();
    all.filter(|endpoint| *endpoint != Endpoint::CheckIn)
}

fn path_of(endpoint: Endpoint, dialect: &Dialect) -> String {
    format!(
        "{}{}",
        dialect.base_path(),
        match endpoint {
            Endpoint::Enroll => "/enroll",
            Endpoint::Sync => "/sync",
            Endpoint::Events => "/operations/{id}/events",
            Endpoint::Manifest => "/releases/{version}/manifest",
            Endpoint::RotateKey => "/rotate-key",
            Endpoint::CheckIn => protocol::checkin::PATH,
        }
    )
}

/// Every refusal that an endpoint can answer, in the order of SIGN-6; 405 belongs to the path and not to the endpoint.
fn refusals(endpoint: Endpoint) -> Vec<ProblemCode> {
    use ProblemCode as Code;
    let names_something = matches!(endpoint, Endpoint::Events | Endpoint::Manifest);
    let has_protocol = matches!(endpoint, Endpoint::Enroll | Endpoint::Sync);
    let has_body = endpoint.method() == "POST";
    let of_enrollment = matches!(endpoint.authentication(), Authentication::Token);
    let mut codes = vec![];
    let mut when = |applies: bool, more: &[Code]| {
        if applies {
            codes.extend_from_slice(more);
        }
    };
    when(names_something, &[Code::NotFound]);
    when(true, &[Code::BodyTooLarge]);
    when(has_body, &[Code::UnsupportedMediaType]);
    when(
        !of_enrollment,
        &[
            Code::BadSignature,
            Code::UnknownAgent,
            Code::Revoked,
            Code::ClockSkew,
            Code::Replayed,
        ],
    );
    when(true, &[Code::TooManyRequests, Code::InvalidRequest]);
    when(has_protocol, &[Code::ProtocolTooOld]);
    when(
        of_enrollment || endpoint == Endpoint::RotateKey,
        &[Code::InvalidKey],
    );
    when(
        of_enrollment,
        &[
            Code::InvalidToken,
            Code::ServerMismatch,
            Code::TokenUsed,
            Code::TokenExpired,
            Code::Conflict,
            Code::ImageMismatch,
        ],
    );
    when(true, &[Code::Internal]);
    codes
}

fn operation(endpoint: Endpoint, dialect: &Dialect, generator: &mut SchemaGenerator) -> Value {
    let (summary, request, answer) = match endpoint {
        Endpoint::Enroll => (
            "A token and public keys, for an identity and the node's configuration",
            Some(generator.subschema_for::<EnrollRequest>()),
            generator.subschema_for::<EnrollAnswer>(),
        ),
        Endpoint::Sync => (
            "A report, for the desired state and at most one operation",
            Some(generator.subschema_for::<SyncReport>()),
            generator.subschema_for::<SyncAnswer>(),
        ),
        Endpoint::Events => (
            "Progress and result of an operation",
            Some(generator.subschema_for::<OperationEvents>()),
            generator.subschema_for::<EventsAnswer>(),
        ),
        Endpoint::Manifest => (
            "A signed release manifest: a DSSE envelope whose payload is a Manifest",
            None,
            generator.subschema_for::<SignedManifest>(),
        ),
        Endpoint::RotateKey => (
            "New public keys, signed with the old one",
            Some(generator.subschema_for::<RotateKeyRequest>()),
            generator.subschema_for::<RotateKeyAnswer>(),
        ),
        Endpoint::CheckIn => ("", None, json_schema!(true)),
    };
    let mut parameters = vec![];
    match endpoint {
        Endpoint::Events => {
            let schema = generator.subschema_for::<OperationId>();
            parameters.push(in_path("id", "The operation's ID.", &schema));
        }
        Endpoint::Manifest => {
            let schema = generator.subschema_for::<ReleaseVersion>();
            parameters.push(in_path("version", "The release.", &schema));
        }
        _ => {}
    }
    if endpoint.authentication() == Authentication::Signature {
        parameters.extend(signature_headers(dialect, generator));
    }

    let mut responses = Map::new();
    responses.insert(
        "200".to_owned(),
        json!({"description": "Done.", "content": content("application/json", &answer)}),
    );
    let mut by_status = std::collections::BTreeMap::<u16, Vec<ProblemCode>>::new();
    for code in refusals(endpoint) {
        by_status.entry(code.status()).or_default().push(code);
    }
    for (status, codes) in by_status {
        responses.insert(status.to_string(), refused(status, &codes, dialect));
    }

    let mut operation = json!({
        "operationId": endpoint.label(), "summary": summary, "parameters": parameters, "responses": responses,
    });
    if let Some(request) = request {
        operation["requestBody"] = json!({
            "required": true, "description": format!("At most {BODY_BYTES_MAX} bytes (WIRE-2)."),
            "content": content("application/json", &request),
        });
    }
    operation
}

/// The three headers of a signature (SIGN-3).
fn signature_headers(dialect: &Dialect, generator: &mut SchemaGenerator) -> Vec<Value> {
    let at = json_schema!({"type": "string", "pattern": "^(0|[1-9][0-9]{0,9})$"});
    let headers = [
        (
            dialect.header_agent_id(),
            "The agent's ID.".to_owned(),
            generator.subschema_for::<AgentId>(),
        ),
        (
            dialect.header_timestamp(),
            format!(
                "Unix seconds; at most {CLOCK_SKEW_SECONDS_MAX} off the portal's time (SIGN-4), never twice (SIGN-5)."
            ),
            at,
        ),
        (
            dialect.header_signature(),
            "The signature (SIGN-2).".to_owned(),
            generator.subschema_for::<Signature>(),
        ),
    ];
    let header = |(name, does, schema): (&str, String, Schema)| json!({"name": name, "in": "header", "required": true, "description": does, "schema": schema});
    headers.into_iter().map(header).collect()
}

/// The answer of a status: the codes that it can have here, and what goes with them.
fn refused(status: u16, codes: &[ProblemCode], dialect: &Dialect) -> Value {
    let mut required = vec![];
    let mut headers = Map::new();
    for code in codes {
        match code {
            ProblemCode::ProtocolTooOld => required.push("release"),
            ProblemCode::TooManyRequests => required.push(dialect.member_retry_after_seconds()),
            _ => {}
        }
    }
    let mut header = |name: &str, does: &str, schema: Value| {
        let header = json!({"description": does, "required": true, "schema": schema});
        headers.insert(name.to_owned(), header);
    };
    match status {
        401 => header(
            "WWW-Authenticate",
            "The scheme of this protocol.",
            json!({"const": "Pbx"}),
        ),
        426 => header(
            "Upgrade",
            "The protocol to upgrade to (RFC 9110).",
            json!({"type": "string"}),
        ),
        429 => header(
            "Retry-After",
            "Seconds to wait (ANS-7).",
            json!({"type": "string", "pattern": "^[0-9]+$"}),
        ),
        _ => {}
    }
    let code = dialect.member_code();
    let mut narrowed = json!({
        "properties": {"status": {"const": status}, code: {"enum": codes}}, "required": required,
    });
    if codes.contains(&ProblemCode::ClockSkew) {
        // The other codes of its status come without the time.
        narrowed["if"] = json!({"properties": {code: {"const": ProblemCode::ClockSkew}}});
        narrowed["then"] = json!({"required": [dialect.member_portal_time()]});
    }
    let schema = json_schema!({"allOf": [{"$ref": "#/components/schemas/Problem"}, narrowed]});
    let titles: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
    let mut response = json!({
        "description": titles.join(", "), "content": content(Problem::CONTENT_TYPE, &schema),
    });
    if !headers.is_empty() {
        response["headers"] = headers.into();
    }
    response
}

/// What [`Problem::encode`] writes.
fn problem(dialect: &Dialect, generator: &mut SchemaGenerator) -> Value {
    json!({
        "description": "A refusal (RFC 9457, WIRE-4).", "type": "object",
        "properties": {
            "type": {"const": "about:blank"},
            "title": {"type": "string", "description": "The code, for people."},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "What was wrong with this very request: the rule, what it expects, what came."},
            dialect.member_code(): generator.subschema_for::<ProblemCode>(),
            dialect.member_portal_time(): generator.subschema_for::<Timestamp>(),
            "release": generator.subschema_for::<ReleaseVersion>(),
            dialect.member_retry_after_seconds(): {"type": "integer", "minimum": 1},
        },
        "required": ["type", "title", "status", "detail", dialect.member_code()],
    })
}

/// What the parameters of an offered operation must be, by its kind; the results stand beside them for whoever reads
/// them out of an event.
fn kinds(generator: &mut SchemaGenerator) -> Value {
    use protocol::pbx::enroll::S3Access;
    let conditions = OperationKind::KNOWN.iter().filter_map(|kind| {
        let (params, _result) = match kind {
            OperationKind::SnapshotSave => (
                generator.subschema_for::<SnapshotSaveParams>(),
                generator.subschema_for::<SnapshotSaveResult>(),
            ),
            OperationKind::ClusterRestore => (
                generator.subschema_for::<ClusterRestoreParams>(),
                generator.subschema_for::<ClusterRestoreResult>(),
            ),
            OperationKind::ClusterUpgrade => (
                generator.subschema_for::<ClusterUpgradeParams>(),
                generator.subschema_for::<ClusterUpgradeResult>(),
            ),
            OperationKind::AccessIssue => (
                generator.subschema_for::<AccessIssueParams>(),
                generator.subschema_for::<AccessIssueResult>(),
            ),
            OperationKind::AccessRevoke => (
                generator.subschema_for::<AccessRevokeParams>(),
                generator.subschema_for::<AccessRevokeResult>(),
            ),
            OperationKind::AgentRotateKey => (
                generator.subschema_for::<NoParams>(),
                generator.subschema_for::<AgentRotateKeyResult>(),
            ),
            OperationKind::S3Verify => (
                generator.subschema_for::<S3Access>(),
                generator.subschema_for::<S3VerifyResult>(),
            ),
            OperationKind::DiagCollect => (
                generator.subschema_for::<NoParams>(),
                generator.subschema_for::<DiagCollectResult>(),
            ),
            OperationKind::ServerRejoin => (
                generator.subschema_for::<ServerRejoinParams>(),
                generator.subschema_for::<ServerRejoinResult>(),
            ),
            OperationKind::NodeDrain => (
                generator.subschema_for::<NodeParams>(),
                generator.subschema_for::<NodeDrainResult>(),
            ),
            OperationKind::NodeForget => (
                generator.subschema_for::<NodeParams>(),
                generator.subschema_for::<NodeForgetResult>(),
            ),
            OperationKind::Unknown(_) => return None,
        };
        Some(json!({
            "if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": {"params": params}},
        }))
    });
    conditions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_answered_by_some_endpoint_or_by_a_path() {
        let mut codes: Vec<ProblemCode> = served().flat_map(refusals).collect();
        codes.push(ProblemCode::MethodNotAllowed);
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes, ProblemCode::ALL.to_vec());
    }

    #[test]
    fn the_paths_are_those_that_are_routed() {
        let dialect = Dialect::default();
        for endpoint in served() {
            let path = path_of(endpoint, &dialect)
                .replace("{id}", "op_1")
                .replace("{version}", "1.0");
            let route = protocol::endpoint::route(&dialect, endpoint.method(), &path);
            assert_eq!(route.map(|route| route.endpoint), Ok(endpoint), "{path}");
        }
    }
}
