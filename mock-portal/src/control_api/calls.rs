//! All calls of the control API, and what each does: reads what is asked, calls the portal's verb, shows what it says.

use std::sync::atomic::Ordering::Relaxed;

use axum::routing::MethodFilter;
use portal_core::ControlError;
use portal_core::control::{
    AgentDetail, AgentSummary, AgentsPage, AgentsQuery, AgentsState, ClockInput, ClockView,
    Counters, DesiredInput, DesiredSet, DesiredView, HetznerServer, OperationInput,
    OperationPosted, OperationView, ReleaseKeyView, ReleasePublished, ReleaseView, TokensInput,
    TokensMade,
};
use protocol::endpoint::Endpoint;
use protocol::id::{AgentId, ClusterId, OperationId, ServerId};
use protocol::pbx::release::Manifest;
use record::ByLabel;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::reading::{self, Inside, Members};
use super::{Asked, BASE_PATH, ControlApi, Done, Refusal, changed, done};
use crate::journal::{CodeFilter, Filter, Page};
use crate::latency::LatencyLine;
use crate::openapi::{self, Api};

/// A call of the control API.
pub struct Call {
    /// Its method.
    pub verb: Verb,
    /// Its path below [`BASE_PATH`]; `{id}` stands for an ID.
    pub path: &'static str,
    /// What `{id}` must be, where the path has one.
    pub id: Option<SchemaOf>,
    /// What its query may have.
    pub query: &'static [Parameter],
    /// What its body is.
    pub body: Body,
    /// What it does, in a line.
    pub does: &'static str,
    /// What it answers.
    pub answer: SchemaOf,
    pub(super) run: fn(&ControlApi, &Asked) -> Result<Done, Refusal>,
}

/// Makes the JSON Schema of a type, and of what it is made of.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A member of a query.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it must be.
    pub schema: SchemaOf,
    /// What it does.
    pub does: &'static str,
}

const fn parameter<T: JsonSchema>(name: &'static str, does: &'static str) -> Parameter {
    Parameter {
        name,
        schema: schema_of::<T>,
        does,
    }
}

const AGENTS_QUERY: &[Parameter] = &[
    parameter::<AgentsState>("state", "Only agents in that state."),
    parameter::<ClusterId>("cluster", "Only agents of that cluster."),
    Parameter {
        name: "limit",
        schema: |_| json_schema!({"type": "integer", "minimum": 1, "maximum": 1000}),
        does: "At most so many; without, 100.",
    },
    parameter::<AgentId>(
        "cursor",
        "Only agents behind that one: next_cursor of the page before.",
    ),
];

const JOURNAL_QUERY: &[Parameter] = &[
    parameter::<AgentId>("agent", "Only requests that said they are of that agent."),
    parameter::<Endpoint>("endpoint", "Only requests to that endpoint."),
    parameter::<CodeFilter>(
        "code",
        "Only requests that were answered so: a problem's code, ok or refused.",
    ),
    parameter::<u64>(
        "since",
        "Only entries with a higher number: next of the page before.",
    ),
    Parameter {
        name: "limit",
        schema: |_| json_schema!({"type": "integer", "minimum": 1, "maximum": JOURNAL_LIMIT_MAX}),
        does: "At most so many; without, 100.",
    },
    parameter::<bool>("bodies", "With what is kept of their bodies."),
];

const OPENAPI_QUERY: &[Parameter] = &[parameter::<Api>(
    "api",
    "Of which API; without, of this one.",
)];

/// A method of the control API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Asks.
    Get,
    /// Does something once more.
    Post,
    /// Sets something.
    Put,
}

/// What a call's body is.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// There is none.
    None,
    /// A JSON object.
    Json {
        /// One that is taken.
        example: &'static str,
        /// What it must be.
        schema: SchemaOf,
    },
}

impl Verb {
    /// The method's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }

    pub(super) const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
        }
    }
}

/// All of them.
pub const CALLS: &[Call] = &[
    Call {
        verb: Verb::Get,
        path: "",
        id: None,
        query: &[],
        body: Body::None,
        does: "lists all calls",
        answer: schema_of::<Index>,
        run: index,
    },
    Call {
        verb: Verb::Post,
        path: "/tokens",
        id: None,
        query: &[],
        body: Body::Json {
            example: r#"{"cluster_id": "c1", "node_name": "n1", "server_id": null, "boot_image_sha256": null, "expires_in_seconds": null, "count": null, "first": null, "servers_per_cluster": null}"#,
            schema: schema_of::<TokensInput>,
        },
        does: "makes enrollment tokens; with count the nodes are n1-1, n1-2 …, with servers_per_cluster the clusters c1-1, c1-2 …",
        answer: schema_of::<TokensMade>,
        run: make_tokens,
    },
    Call {
        verb: Verb::Get,
        path: "/agents",
        id: None,
        query: AGENTS_QUERY,
        body: Body::None,
        does: "lists the fleet; state is active, rotating or revoked; the next page begins at cursor=next_cursor",
        answer: schema_of::<AgentsPage>,
        run: agents,
    },
    Call {
        verb: Verb::Get,
        path: "/agents/{id}",
        id: Some(schema_of::<AgentId>),
        query: &[],
        body: Body::None,
        does: "shows one agent with its keys and its last report",
        answer: schema_of::<AgentDetail>,
        run: agent,
    },
    Call {
        verb: Verb::Post,
        path: "/agents/{id}/revoke",
        id: Some(schema_of::<AgentId>),
        query: &[],
        body: Body::None,
        does: "revokes an agent",
        answer: schema_of::<AgentSummary>,
        run: revoke,
    },
    Call {
        verb: Verb::Put,
        path: "/clusters/{id}/desired",
        id: Some(schema_of::<ClusterId>),
        query: &[],
        body: Body::Json {
            example: r#"{"release": "2026.11.1", "agent_version": "1.4.0", "host": {"snapshot_schedule": "0 */6 * * *", "snapshot_retention": 14, "ingress_mode": "bundled"}, "maintenance_window": {"days": ["sun"], "start": "02:00", "duration_minutes": 120, "time_zone": "Europe/Berlin"}, "secrets": {"hcloud_token": "in clear", "s3": {"endpoint": "https://s3.example", "region": "r", "bucket": "b", "folder": "c1", "access_key": "in clear", "secret_key": "in clear"}}, "addons": [{"name": "cert-manager", "enabled": true, "options": {}, "secret_options": {}}]}"#,
            schema: schema_of::<DesiredInput>,
        },
        does: "sets a cluster's document; its secrets are given in clear and sealed for each agent",
        answer: schema_of::<DesiredSet>,
        run: set_desired,
    },
    Call {
        verb: Verb::Get,
        path: "/clusters/{id}/desired",
        id: Some(schema_of::<ClusterId>),
        query: &[],
        body: Body::None,
        does: "shows a cluster's document without its secrets",
        answer: schema_of::<DesiredView>,
        run: desired,
    },
    Call {
        verb: Verb::Post,
        path: "/clusters/{id}/operations",
        id: Some(schema_of::<ClusterId>),
        query: &[],
        body: Body::Json {
            example: r#"{"kind": "snapshot.save", "target": null, "params": {"name": "nightly"}, "consent": null}"#,
            schema: schema_of::<OperationInput>,
        },
        does: "queues an operation; secrets in clear, without target the portal chooses the node",
        answer: schema_of::<OperationPosted>,
        run: post_operation,
    },
    Call {
        verb: Verb::Put,
        path: "/hetzner/servers/{id}",
        id: Some(schema_of::<ServerId>),
        query: &[],
        body: Body::Json {
            example: r#"{"label": "c1", "name": "n1", "reachable": true}"#,
            schema: schema_of::<HetznerServer>,
        },
        does: "sets what the simulated Hetzner API says of a server when one enrolls; a member that is left out is as it should be",
        answer: schema_of::<HetznerServer>,
        run: put_hetzner_server,
    },
    Call {
        verb: Verb::Get,
        path: "/operations/{id}",
        id: Some(schema_of::<OperationId>),
        query: &[],
        body: Body::None,
        does: "shows an operation with its events",
        answer: schema_of::<OperationView>,
        run: operation,
    },
    Call {
        verb: Verb::Post,
        path: "/releases",
        id: None,
        query: &[],
        body: Body::Json {
            example: r#"{"version": "2026.12.1", "created_at": "2026-12-01T00:00:00Z", "floor": 13, "template_engine": "minijinja", "agent": {"version": "1.5.0", "artifacts": []}, "image": {"k3s_version": "v1.34.2+k3s1", "artifacts": []}, "addons": []}"#,
            schema: schema_of::<Manifest>,
        },
        does: "signs a release's manifest as it stands and publishes it",
        answer: schema_of::<ReleasePublished>,
        run: publish_release,
    },
    Call {
        verb: Verb::Get,
        path: "/releases",
        id: None,
        query: &[],
        body: Body::None,
        does: "lists the releases and the keys that sign them",
        answer: schema_of::<ReleasesView>,
        run: releases,
    },
    Call {
        verb: Verb::Put,
        path: "/clock",
        id: None,
        query: &[],
        body: Body::Json {
            example: r#"{"offset_ms": -90000, "drift_ppm": 0}"#,
            schema: schema_of::<ClockInput>,
        },
        does: "sets the portal's clock off the machine's",
        answer: schema_of::<ClockView>,
        run: set_clock,
    },
    Call {
        verb: Verb::Get,
        path: "/clock",
        id: None,
        query: &[],
        body: Body::None,
        does: "shows the portal's clock",
        answer: schema_of::<ClockView>,
        run: clock,
    },
    Call {
        verb: Verb::Get,
        path: "/counters",
        id: None,
        query: &[],
        body: Body::None,
        does: "shows what was answered, by endpoint, status and code; latencies; connections",
        answer: schema_of::<CountersView>,
        run: counters,
    },
    Call {
        verb: Verb::Get,
        path: "/journal",
        id: None,
        query: JOURNAL_QUERY,
        body: Body::None,
        does: "shows requests as they came and why they were refused: the newest limit (100), or those after since=next; code is a problem's, ok or refused",
        answer: schema_of::<Page>,
        run: journal,
    },
    Call {
        verb: Verb::Get,
        path: "/openapi.json",
        id: None,
        query: OPENAPI_QUERY,
        body: Body::None,
        does: "describes this API, or with api=agent the agents' one, in OpenAPI 3.1",
        answer: schema_of::<Map<String, Value>>,
        run: openapi,
    },
    Call {
        verb: Verb::Post,
        path: "/reset",
        id: None,
        query: &[],
        body: Body::None,
        does: "forgets everything but addresses and release keys; answers the counters until then",
        answer: schema_of::<CountersView>,
        run: reset,
    },
];

#[derive(Serialize, JsonSchema)]
struct Index {
    /// All of them.
    calls: Vec<IndexLine>,
}

/// A call.
#[derive(Serialize, JsonSchema)]
struct IndexLine {
    /// Method and path.
    call: String,
    /// The names that its query may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    query: Vec<&'static str>,
    /// A body that it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
    /// What it does.
    does: &'static str,
}

fn index(_: &ControlApi, _: &Asked) -> Result<Done, Refusal> {
    let line = |call: &Call| IndexLine {
        call: format!("{} {BASE_PATH}{}", call.verb.as_str(), call.path),
        query: call.query_names(),
        body: match call.body {
            Body::None => None,
            Body::Json { example, .. } => RawValue::from_string(example.to_owned()).ok(),
        },
        does: call.does,
    };
    done(&Index {
        calls: CALLS.iter().map(line).collect(),
    })
}

const TOKENS: Members = Members(&[
    ("cluster_id", Inside::Free),
    ("node_name", Inside::Free),
    ("server_id", Inside::Free),
    ("boot_image_sha256", Inside::Free),
    ("expires_in_seconds", Inside::Free),
    ("count", Inside::Free),
    ("first", Inside::Free),
    ("servers_per_cluster", Inside::Free),
]);

fn make_tokens(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    let input: TokensInput = reading::body(&asked.body, &TOKENS)?;
    let (made, changes) = api.control().make_tokens(&input)?;
    tracing::info!(tokens = made.tokens.len(), cluster = %input.cluster_id, "tokens made");
    changed(&made, changes)
}

fn agents(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    let query = AgentsQuery {
        state: asked.query.word::<AgentsState>("state")?,
        cluster: asked.query.get("cluster")?,
        limit: asked.query.get("limit")?,
        cursor: asked.query.get("cursor")?,
    };
    done(&api.control().agents(&query)?)
}

fn agent(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    done(&api.control().agent(&asked.id()?)?)
}

fn revoke(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    let (agent, changes) = api.control().revoke(&asked.id()?)?;
    tracing::info!(agent = %agent.id, node = %agent.node_name, "agent revoked");
    changed(&agent, changes)
}

const DESIRED: Members = Members(&[
    ("release", Inside::Free),
    ("agent_version", Inside::Free),
    ("host", Inside::Object(&HOST)),
    ("maintenance_window", Inside::Object(&WINDOW)),
    ("secrets", Inside::Object(&SECRETS)),
    ("addons", Inside::Each(&ADDON)),
]);
const HOST: Members = Members(&[
    ("snapshot_schedule", Inside::Free),
    ("snapshot_retention", Inside::Free),
    ("ingress_mode", Inside::Free),
]);
const WINDOW: Members = Members(&[
    ("days", Inside::Free),
    ("start", Inside::Free),
    ("duration_minutes", Inside::Free),
    ("time_zone", Inside::Free),
]);
const SECRETS: Members = Members(&[("hcloud_token", Inside::Free), ("s3", Inside::Object(&S3))]);
const S3: Members = Members(&[
    ("endpoint", Inside::Free),
    ("region", Inside::Free),
    ("bucket", Inside::Free),
    ("folder", Inside::Free),
    ("access_key", Inside::Free),
    ("secret_key", Inside::Free),
]);
const ADDON: Members = Members(&[
    ("name", Inside::Free),
    ("enabled", Inside::Free),
    ("options", Inside::Free),
    ("secret_options", Inside::Free),
]);

fn set_desired(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    let cluster = asked.id()?;
    let input: DesiredInput = reading::body(&asked.body, &DESIRED)?;
    let (set, changes) = api.control().set_desired(&cluster, input)?;
    tracing::info!(%cluster, generation = %set.generation, "document set");
    changed(&set, changes)
}

fn desired(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    done(&api.control().desired(&asked.id()?)?)
}

const OPERATION: Members = Members(&[
    ("kind", Inside::Free),
    ("target", Inside::Free),
    ("params", Inside::Free),
    ("consent", Inside::Object(&CONSENT)),
]);
const CONSENT: Members = Members(&[
    ("by", Inside::Free),
    ("at", Inside::Free),
    ("text", Inside::Free),
]);

fn post_operation(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    let cluster = asked.id()?;
    let input: OperationInput = reading::body(&asked.body, &OPERATION)?;
    let kind = input.kind.clone();
    let (posted, changes) = api.control().post_operation(&cluster, input)?;
    tracing::info!(%cluster, operation = %posted.id, %kind, "operation queued");
    changed(&posted, changes)
}

const HETZNER_SERVER: Members = Members(&[
    ("label", Inside::Free),
    ("name", Inside::Free),
    ("reachable", Inside::Free),
]);

fn put_hetzner_server(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    let server_id = ServerId(asked.id()?);
    let input: HetznerServer = reading::body(&asked.body, &HETZNER_SERVER)?;
    let (server, changes) = api.control().put_hetzner_server(server_id, input)?;
    tracing::info!(server = %server_id, reachable = server.reachable, "server put into the Hetzner API");
    changed(&server, changes)
}

fn operation(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    done(&api.control().operation(&asked.id()?)?)
}

fn publish_release(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    let (published, changes) = api.control().publish_release(&asked.body)?;
    tracing::info!(release = %published.version, "release published");
    changed(&published, changes)
}

/// What `GET /releases` shows.
#[derive(Serialize, JsonSchema)]
struct ReleasesView {
    /// The releases.
    releases: Vec<ReleaseView>,
    /// The keys that sign them.
    release_keys: Vec<ReleaseKeyView>,
}

fn releases(api: &ControlApi, _: &Asked) -> Result<Done, Refusal> {
    let control = api.control();
    done(&ReleasesView {
        releases: control.releases(),
        release_keys: control.release_keys(),
    })
}

const CLOCK: Members = Members(&[("offset_ms", Inside::Free), ("drift_ppm", Inside::Free)]);

fn set_clock(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    let input: ClockInput = reading::body(&asked.body, &CLOCK)?;
    let (clock, changes) = api.control().set_clock(input);
    tracing::info!(
        offset_ms = clock.offset_ms,
        drift_ppm = clock.drift_ppm,
        "clock set"
    );
    changed(&clock, changes)
}

fn clock(api: &ControlApi, _: &Asked) -> Result<Done, Refusal> {
    done(&api.control().clock())
}

/// What `GET /counters` shows, and `POST /reset` of the time until it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CountersView {
    /// What the portal answered.
    #[serde(flatten)]
    pub counters: Counters,
    /// Requests that came in part and were never answered, by endpoint.
    pub aborted: ByLabel<Endpoint, u64>,
    /// The same of requests without a route.
    pub aborted_elsewhere: u64,
    /// Requests that a strict profile refused for their HTTP, before the portal saw them.
    pub http_refused: u64,
    /// How long answers took here.
    pub latencies: Vec<LatencyLine>,
    /// The agents' connections, from the start of the server.
    pub connections: ConnectionsView,
}

/// What happened to connections; see [`crate::serve::Connections`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "each is the field of that name there")]
pub struct ConnectionsView {
    pub accepted: u64,
    pub open: u64,
    pub tls_full: u64,
    pub tls_resumed: u64,
    pub tls_failed: u64,
    pub broken: u64,
    pub out_of_descriptors: u64,
}

impl CountersView {
    /// What stands beside the portal's own counters now.
    fn of(api: &ControlApi, counters: Counters) -> Self {
        let connections = &api.connections;
        Self {
            counters,
            aborted: api.http.aborted(),
            aborted_elsewhere: api.http.aborted_elsewhere(),
            http_refused: api.http.refused(),
            latencies: api.latencies.lines(),
            connections: ConnectionsView {
                accepted: connections.accepted.load(Relaxed),
                open: connections.open.load(Relaxed),
                tls_full: connections.tls_full.load(Relaxed),
                tls_resumed: connections.tls_resumed.load(Relaxed),
                tls_failed: connections.tls_failed.load(Relaxed),
                broken: connections.broken.load(Relaxed),
                out_of_descriptors: connections.out_of_descriptors.load(Relaxed),
            },
        }
    }
}

fn counters(api: &ControlApi, _: &Asked) -> Result<Done, Refusal> {
    done(&CountersView::of(api, api.control().counters()))
}

/// Entries of the journal in an answer, where nobody says how many.
const JOURNAL_LIMIT: usize = 100;
/// Entries of the journal in an answer at most.
const JOURNAL_LIMIT_MAX: usize = 1000;

fn journal(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    let limit = asked.query.get("limit")?.unwrap_or(JOURNAL_LIMIT);
    if !(1..=JOURNAL_LIMIT_MAX).contains(&limit) {
        return Err(Refusal::invalid(
            format!("the query's limit={limit} is refused: it must be 1 to {JOURNAL_LIMIT_MAX}"),
            "ask for the next page with since=next",
        ));
    }
    let filter = Filter {
        agent: asked.query.get("agent")?,
        endpoint: asked.query.get("endpoint")?,
        code: asked.query.get::<CodeFilter>("code")?,
        since: asked.query.get("since")?,
        limit,
        bodies: asked.query.get("bodies")?.unwrap_or(false),
    };
    done(&api.journal.page(&filter))
}

fn openapi(api: &ControlApi, asked: &Asked) -> Result<Done, Refusal> {
    let document = match asked.query.word::<Api>("api")?.unwrap_or(Api::Lab) {
        Api::Lab => openapi::lab(),
        Api::Agent => openapi::agent(&api.portal.settings().dialect),
    };
    done(&document)
}

fn reset(api: &ControlApi, _: &Asked) -> Result<Done, Refusal> {
    let (counters, changes) = api.control().reset();
    let view = CountersView::of(api, counters);
    api.journal.clear();
    api.latencies.clear();
    api.http.clear();
    tracing::info!("reset");
    changed(&view, changes)
}

impl ControlApi {
    /// The portal's verbs, now.
    pub(super) fn control(&self) -> portal_core::Control<'_> {
        self.portal.control(self.clock.now())
    }
}

impl Asked {
    /// The ID in the path.
    fn id<T>(&self) -> Result<T, Refusal>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        self.id.parse().map_err(|error| {
            Refusal::invalid(format!("the path: {error}"), "correct the ID in the path")
        })
    }
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Self {
        let text = error.to_string();
        let (detail, hint) = text
            .split_once("; ")
            .unwrap_or((&text, "nothing was changed; correct it and send it again"));
        match error.status() {
            404 => Self::not_found(detail, hint),
            _ => Self::invalid(detail, hint),
        }
    }
}
