//! The control API: what whoever tests agents asks of the portal and sets in it, under `/_lab/v1`.
//!
//! A map: [`calls`] is the table of all calls, this file turns it into a router, `guard` says who may call, `reading`
//! reads bodies and queries, `refusal` says how a call is refused. What a call does stands in `portal-core`.

pub mod calls;
mod guard;
pub mod metrics;
mod reading;
mod refusal;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequest, FromRequestParts as _, RawPathParams, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, on};
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use portal_core::{Changes, Portal};
use serde::Serialize;

use crate::agent_api::HttpCounters;
use crate::clock::Clock;
use crate::journal::Journal;
use crate::latency::Latencies;
use crate::serve::Connections;
use crate::store::{NotKept, Store};

pub use guard::{LabToken, LabTokenRefused};
pub(crate) use refusal::schema as refusal_schema;
pub use refusal::{Code, Refusal};

use calls::{CALLS, Call};
use reading::Query;
use refusal::suggestion;

/// What every path of the control API begins with.
pub const BASE_PATH: &str = "/_lab/v1";
/// Bytes of a control call's body; a document with all its secrets in clear is far below it.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;

/// What the control API is about.
pub struct ControlApi {
    /// Whose verbs they are.
    pub portal: Arc<Portal>,
    /// The time at which they are asked.
    pub clock: Clock,
    /// The token that every call must bring; none where only this machine can call.
    pub token: Option<LabToken>,
    /// What came to the agents' address.
    pub journal: Arc<Journal>,
    /// How long it took.
    pub latencies: Arc<Latencies>,
    /// What came to the agents' address and not to the portal.
    pub http: Arc<HttpCounters>,
    /// The agents' connections.
    pub connections: Arc<Connections>,
    /// Keeps what calls change.
    pub store: Option<Arc<Store>>,
}

/// The control API as a service; to be called without a socket, too.
pub fn router(api: Arc<ControlApi>) -> Router {
    let mut router = Router::new();
    for call in CALLS {
        let answer = async move |State(api): State<Arc<ControlApi>>,
                                 asked: Result<Asked, Refusal>| {
            let asked = asked?;
            call.takes(&asked)?;
            let done = (call.run)(&api, &asked);
            api.kept(done).await
        };
        let path = format!("{BASE_PATH}{}", call.path);
        router = router.route(&path, on(call.verb.filter(), answer));
    }
    // Whoever watches over the process has no token, and learns nothing but that it answers.
    let health = async |State(api): State<Arc<ControlApi>>| metrics::health(&api);
    router = router.route(metrics::HEALTH_PATH, get(health));
    router = router.route(
        metrics::METRICS_PATH,
        get(
            async |State(api): State<Arc<ControlApi>>, asked: Result<Asked, Refusal>| {
                asked.map(|_| metrics::metrics(&api))
            },
        ),
    );
    router
        .fallback(async |asked: Result<Asked, Refusal>| {
            asked.map_or_else(|refusal| refusal, no_such_call)
        })
        .method_not_allowed_fallback(async |asked: Result<Asked, Refusal>| match asked {
            Ok(asked) => no_such_method(&asked),
            Err(refusal) => refusal.into_response(),
        })
        .with_state(api)
}

/// A call that may be answered: whoever sent it was let in, and it is there as a whole.
#[derive(Debug)]
struct Asked {
    method: Method,
    path: String,
    /// What stands for `{id}` in the path; empty where the path has none.
    id: String,
    query: Query,
    body: Bytes,
}

impl FromRequest<Arc<ControlApi>> for Asked {
    type Rejection = Refusal;

    async fn from_request(request: Request, api: &Arc<ControlApi>) -> Result<Self, Refusal> {
        let (mut head, body) = request.into_parts();
        guard::check(api.token.as_ref(), &head)?;
        let id = match RawPathParams::from_request_parts(&mut head, api).await {
            Ok(params) => params
                .iter()
                .next()
                .map(|(_, value)| value.to_owned())
                .unwrap_or_default(),
            Err(_) => {
                return Err(Refusal::invalid(
                    "the path is no UTF-8",
                    "correct the ID in it",
                ));
            }
        };
        let query = Query::read(head.uri.query())?;
        let body = Limited::new(body, BODY_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| {
                if error.is::<LengthLimitError>() {
                    let detail = format!("the body is larger than {BODY_BYTES_MAX} bytes");
                    Refusal::new(Code::TooLarge, detail, "send less")
                } else {
                    Refusal::invalid("the body ended before its end", "send it again")
                }
            })?;
        Ok(Self {
            method: head.method,
            path: head.uri.path().to_owned(),
            id,
            query,
            body: body.to_bytes(),
        })
    }
}

impl Call {
    fn query_names(&self) -> Vec<&'static str> {
        self.query.iter().map(|parameter| parameter.name).collect()
    }

    /// Whether a call takes what came with it; nothing was changed when it does not.
    fn takes(&self, asked: &Asked) -> Result<(), Refusal> {
        asked.query.only(&self.query_names())?;
        let nothing = matches!(asked.body.trim_ascii(), b"" | b"{}");
        if matches!(self.body, calls::Body::None) && !nothing {
            let detail = format!(
                "{} {} takes no body and one came",
                self.verb.as_str(),
                self.path
            );
            return Err(Refusal::invalid(
                detail,
                "nothing was changed; leave the body out",
            ));
        }
        Ok(())
    }
}

fn no_such_call(asked: Asked) -> Refusal {
    let detail = format!("there is no call {} {}", asked.method, asked.path);
    let paths = || {
        CALLS
            .iter()
            .map(|call| format!("{BASE_PATH}{}", call.path))
            .collect::<Vec<_>>()
    };
    let hint = match suggestion(&asked.path, paths().iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near}? GET {BASE_PATH} lists all calls"),
        None => format!("GET {BASE_PATH} lists all calls"),
    };
    Refusal::not_found(detail, hint)
}

fn no_such_method(asked: &Asked) -> Response {
    let segments = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let given = segments(asked.path.strip_prefix(BASE_PATH).unwrap_or_default());
    let fits = |call: &&Call| {
        let known = segments(call.path);
        known.len() == given.len()
            && known
                .iter()
                .zip(&given)
                .all(|(a, b)| a == b || a.starts_with('{'))
    };
    let allow = CALLS
        .iter()
        .filter(fits)
        .map(|call| call.verb.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    let detail = format!("there is no call {} {}", asked.method, asked.path);
    let refusal = Refusal::new(
        Code::MethodNotAllowed,
        detail,
        format!("this path takes {allow}"),
    );
    let mut response = refusal.into_response();
    if let Ok(allow) = HeaderValue::from_str(&allow) {
        response.headers_mut().insert(ALLOW, allow);
    }
    response
}

/// What a call came to: its answer, and what it changed.
struct Done {
    response: Response,
    changes: Changes,
}

impl ControlApi {
    /// The answer of a call, once what it tells of is kept; of a refused one, too, which may tell of what others changed.
    async fn kept(&self, done: Result<Done, Refusal>) -> Result<Response, Refusal> {
        if let Some(store) = &self.store {
            let nothing = Changes::default();
            let changes = done.as_ref().map_or(&nothing, |done| &done.changes);
            store.keep(&self.portal, changes).await?;
        }
        done.map(|done| done.response)
    }
}

impl From<NotKept> for Refusal {
    fn from(why: NotKept) -> Self {
        Self::new(
            Code::Internal,
            why.to_string(),
            "look into the portal's log; it ends when this happens",
        )
    }
}

/// 200 with a JSON body, of a call that changed nothing.
fn done(value: &impl Serialize) -> Result<Done, Refusal> {
    changed(value, Changes::default())
}

/// 200 with a JSON body, and what the call changed.
fn changed(value: &impl Serialize, changes: Changes) -> Result<Done, Refusal> {
    let mut response = line(value).into_response();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(Done { response, changes })
}

/// JSON with a line break at its end, for terminals.
fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value)
        .expect("views are made of strings, numbers, lists and maps by name");
    line.push(b'\n');
    line
}
