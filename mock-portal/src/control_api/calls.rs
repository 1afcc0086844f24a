//! All calls of the control API, and what each does: reads what is asked, calls the portal's verb, shows what it says.

use std::sync::atomic::Ordering::Relaxed;

use axum::response::Response;
use axum::routing::MethodFilter;
use portal_core::ControlError;
use portal_core::control::{
    AgentsQuery, AgentsState, ClockInput, Counters, DesiredInput, HetznerServer, OperationInput,
    TokensInput,
};
use protocol::endpoint::Endpoint;
use protocol::id::ServerId;
use record::ByLabel;
use serde::Serialize;
use serde_json::value::RawValue;

use super::reading::{self, Inside, Members};
use super::{Asked, BASE_PATH, ControlApi, Refusal, done};
use crate::journal::{CodeFilter, Filter};
use crate::latency::LatencyLine;

/// A call of the control API.
pub struct Call {
    /// Its method.
    pub verb: Verb,
    /// Its path below [`BASE_PATH`]; `{id}` stands for an ID.
    pub path: &'static str,
    /// The names that its query may have.
    pub query: &'static [&'static str],
    /// What its body is.
    pub body: Body,
    /// What it does, in a line.
    pub does: &'static str,
    pub(super) run: fn(&ControlApi, &Asked) -> Result<Response, Refusal>,
}

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// There is none.
    None,
    /// A JSON object, described by this example.
    Json(&'static str),
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
        query: &[],
        body: Body::None,
        does: "lists all calls",
        run: index,
    },
    Call {
        verb: Verb::Post,
        path: "/tokens",
        query: &[],
        body: Body::Json(
            r#"{"cluster_id": "c1", "node_name": "n1", "server_id": null, "boot_image_sha256": null, "expires_in_seconds": null, "count": null, "servers_per_cluster": null}"#,
        ),
        does: "makes enrollment tokens; with count the nodes are n1-1, n1-2 …, with servers_per_cluster the clusters c1-1, c1-2 …",
        run: make_tokens,
    },
    Call {
        verb: Verb::Get,
        path: "/agents",
        query: &["state", "cluster", "limit", "cursor"],
        body: Body::None,
        does: "lists the fleet; state is active, rotating or revoked; the next page begins at cursor=next_cursor",
        run: agents,
    },
    Call {
        verb: Verb::Get,
        path: "/agents/{id}",
        query: &[],
        body: Body::None,
        does: "shows one agent with its keys and its last report",
        run: agent,
    },
    Call {
        verb: Verb::Post,
        path: "/agents/{id}/revoke",
        query: &[],
        body: Body::None,
        does: "revokes an agent",
        run: revoke,
    },
    Call {
        verb: Verb::Put,
        path: "/clusters/{id}/desired",
        query: &[],
        body: Body::Json(
            r#"{"release": "2026.11.1", "agent_version": "1.4.0", "host": {"snapshot_schedule": "0 */6 * * *", "snapshot_retention": 14, "ingress_mode": "bundled"}, "maintenance_window": {"days": ["sun"], "start": "02:00", "duration_minutes": 120, "time_zone": "Europe/Berlin"}, "secrets": {"hcloud_token": "in clear", "s3": {"endpoint": "https://s3.example", "region": "r", "bucket": "b", "folder": "c1", "access_key": "in clear", "secret_key": "in clear"}}, "addons": [{"name": "cert-manager", "enabled": true, "options": {}, "secret_options": {}}]}"#,
        ),
        does: "sets a cluster's document; its secrets are given in clear and sealed for each agent",
        run: set_desired,
    },
    Call {
        verb: Verb::Get,
        path: "/clusters/{id}/desired",
        query: &[],
        body: Body::None,
        does: "shows a cluster's document without its secrets",
        run: desired,
    },
    Call {
        verb: Verb::Post,
        path: "/clusters/{id}/operations",
        query: &[],
        body: Body::Json(
            r#"{"kind": "snapshot.save", "target": null, "params": {"name": "nightly"}, "consent": null}"#,
        ),
        does: "queues an operation; secrets in clear, without target the portal chooses the node",
        run: post_operation,
    },
    Call {
        verb: Verb::Put,
        path: "/hetzner/servers/{id}",
        query: &[],
        body: Body::Json(r#"{"label": "c1", "name": "n1", "reachable": true}"#),
        does: "sets what the simulated Hetzner API says of a server when one enrolls; a member that is left out is as it should be",
        run: put_hetzner_server,
    },
    Call {
        verb: Verb::Get,
        path: "/operations/{id}",
        query: &[],
        body: Body::None,
        does: "shows an operation with its events",
        run: operation,
    },
    Call {
        verb: Verb::Post,
        path: "/releases",
        query: &[],
        body: Body::Json(r#""a manifest: the payload that is signed""#),
        does: "signs a release's manifest as it stands and publishes it",
        run: publish_release,
    },
    Call {
        verb: Verb::Get,
        path: "/releases",
        query: &[],
        body: Body::None,
        does: "lists the releases and the keys that sign them",
        run: releases,
    },
    Call {
        verb: Verb::Put,
        path: "/clock",
        query: &[],
        body: Body::Json(r#"{"offset_ms": -90000, "drift_ppm": 0}"#),
        does: "sets the portal's clock off the machine's",
        run: set_clock,
    },
    Call {
        verb: Verb::Get,
        path: "/clock",
        query: &[],
        body: Body::None,
        does: "shows the portal's clock",
        run: clock,
    },
    Call {
        verb: Verb::Get,
        path: "/counters",
        query: &[],
        body: Body::None,
        does: "shows what was answered, by endpoint, status and code; latencies; connections",
        run: counters,
    },
    Call {
        verb: Verb::Get,
        path: "/journal",
        query: &["agent", "endpoint", "code", "since", "limit", "bodies"],
        body: Body::None,
        does: "shows requests as they came and why they were refused: the newest limit (100), or those after since=next; code is a problem's, ok or refused",
        run: journal,
    },
    Call {
        verb: Verb::Post,
        path: "/reset",
        query: &[],
        body: Body::None,
        does: "forgets everything but addresses and release keys; answers the counters until then",
        run: reset,
    },
];

#[derive(Serialize)]
struct Index {
    calls: Vec<IndexLine>,
}

#[derive(Serialize)]
struct IndexLine {
    call: String,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    query: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
    does: &'static str,
}

fn index(_: &ControlApi, _: &Asked) -> Result<Response, Refusal> {
    let line = |call: &Call| IndexLine {
        call: format!("{} {BASE_PATH}{}", call.verb.as_str(), call.path),
        query: call.query,
        body: match call.body {
            Body::None => None,
            Body::Json(example) => RawValue::from_string(example.to_owned()).ok(),
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
    ("servers_per_cluster", Inside::Free),
]);

fn make_tokens(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
    let input: TokensInput = reading::body(&asked.body, &TOKENS)?;
    let (made, _) = api.control().make_tokens(&input)?;
    tracing::info!(tokens = made.tokens.len(), cluster = %input.cluster_id, "tokens made");
    done(&made)
}

fn agents(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
    let query = AgentsQuery {
        state: asked.query.word::<AgentsState>("state")?,
        cluster: asked.query.get("cluster")?,
        limit: asked.query.get("limit")?,
        cursor: asked.query.get("cursor")?,
    };
    done(&api.control().agents(&query)?)
}

fn agent(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
    done(&api.control().agent(&asked.id()?)?)
}

fn revoke(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
    let (agent, _) = api.control().revoke(&asked.id()?)?;
    tracing::info!(agent = %agent.id, node = %agent.node_name, "agent revoked");
    done(&agent)
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

fn set_desired(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
    let cluster = asked.id()?;
    let input: DesiredInput = reading::body(&asked.body, &DESIRED)?;
    let (set, _) = api.control().set_desired(&cluster, input)?;
    tracing::info!(%cluster, generation = %set.generation, "document set");
    done(&set)
}

fn desired(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
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

fn post_operation(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
    let cluster = asked.id()?;
    let input: OperationInput = reading::body(&asked.body, &OPERATION)?;
    let kind = input.kind.clone();
    let (posted, _) = api.control().post_operation(&cluster, input)?;
    tracing::info!(%cluster, operation = %posted.id, %kind, "operation queued");
    done(&posted)
}

const HETZNER_SERVER: Members = Members(&[
    ("label", Inside::Free),
    ("name", Inside::Free),
    ("reachable", Inside::Free),
]);

fn put_hetzner_server(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
    let server_id = ServerId(asked.id()?);
    let input: HetznerServer = reading::body(&asked.body, &HETZNER_SERVER)?;
    let (server, _) = api.control().put_hetzner_server(server_id, input)?;
    tracing::info!(server = %server_id, reachable = server.reachable, "server put into the Hetzner API");
    done(&server)
}

fn operation(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
    done(&api.control().operation(&asked.id()?)?)
}

fn publish_release(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
    let (published, _) = api.control().publish_release(&asked.body)?;
    tracing::info!(release = %published.version, "release published");
    done(&published)
}

fn releases(api: &ControlApi, _: &Asked) -> Result<Response, Refusal> {
    let control = api.control();
    done(
        &serde_json::json!({ "releases": control.releases(), "release_keys": control.release_keys() }),
    )
}

const CLOCK: Members = Members(&[("offset_ms", Inside::Free), ("drift_ppm", Inside::Free)]);

fn set_clock(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
    let input: ClockInput = reading::body(&asked.body, &CLOCK)?;
    let (clock, _) = api.control().set_clock(input);
    tracing::info!(
        offset_ms = clock.offset_ms,
        drift_ppm = clock.drift_ppm,
        "clock set"
    );
    done(&clock)
}

fn clock(api: &ControlApi, _: &Asked) -> Result<Response, Refusal> {
    done(&api.control().clock())
}

/// What `GET /counters` shows, and `POST /reset` of the time until it.
#[derive(Debug, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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

fn counters(api: &ControlApi, _: &Asked) -> Result<Response, Refusal> {
    done(&CountersView::of(api, api.control().counters()))
}

/// Entries of the journal in an answer, where nobody says how many.
const JOURNAL_LIMIT: usize = 100;
/// Entries of the journal in an answer at most.
const JOURNAL_LIMIT_MAX: usize = 1000;

fn journal(api: &ControlApi, asked: &Asked) -> Result<Response, Refusal> {
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

fn reset(api: &ControlApi, _: &Asked) -> Result<Response, Refusal> {
    let (counters, _) = api.control().reset();
    let view = CountersView::of(api, counters);
    api.journal.clear();
    api.latencies.clear();
    api.http.clear();
    tracing::info!("reset");
    done(&view)
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
