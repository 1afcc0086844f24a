//! The one table of endpoints, closed over both protocols.
//!
//! The client builds its paths from it, the portal routes by it, matchers and results name endpoints by it. It decides
//! the route and the method of a request (the first two steps of SIGN-6) and nothing after them.

use std::str::FromStr;

use crate::dialect::Dialect;
use crate::id::{OperationId, ReleaseVersion};
use crate::words::closed_words;

closed_words! {
    /// An endpoint of either protocol; the words are the labels of metrics, matchers and results.
    pub enum Endpoint ("endpoint") {
        /// `POST …/enroll`: an enrollment token for an identity.
        Enroll = "enroll",
        /// `POST …/sync`: a report for the desired state and at most one operation.
        Sync = "sync",
        /// `POST …/operations/{id}/events`: progress and result of an operation.
        Events = "events",
        /// `GET …/releases/{version}/manifest`: a signed release manifest.
        Manifest = "manifest",
        /// `POST …/rotate-key`: new public keys, signed with the old one.
        RotateKey = "rotate-key",
        /// `POST /api/v1/agents`: the check-in protocol's only call.
        CheckIn = "check-in",
    }
}

/// What a request of an endpoint proves itself with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Authentication {
    /// The enrollment token in the body.
    Token,
    /// The agent's signature (SIGN-1).
    Signature,
    /// An API key in a header, or none from the Manager's own machine.
    ApiKey,
}

impl Endpoint {
    /// The label: `rotate-key`.
    pub const fn label(self) -> &'static str {
        self.as_str()
    }

    /// The one method that it takes.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Manifest => "GET",
            Self::Enroll | Self::Sync | Self::Events | Self::RotateKey | Self::CheckIn => "POST",
        }
    }

    /// What its requests prove themselves with.
    pub const fn authentication(self) -> Authentication {
        match self {
            Self::Enroll => Authentication::Token,
            Self::Sync | Self::Events | Self::Manifest | Self::RotateKey => {
                Authentication::Signature
            }
            Self::CheckIn => Authentication::ApiKey,
        }
    }

    /// The path below the base path, `{}` where an ID or a version stands.
    const fn template(self) -> &'static str {
        match self {
            Self::Enroll => "/enroll",
            Self::Sync => "/sync",
            Self::Events => "/operations/{}/events",
            Self::Manifest => "/releases/{}/manifest",
            Self::RotateKey => "/rotate-key",
            Self::CheckIn => crate::checkin::PATH,
        }
    }

    /// What stands before the template: a check-in hangs off the root.
    fn base(self, dialect: &Dialect) -> &str {
        match self {
            Self::CheckIn => "",
            _ => dialect.base_path(),
        }
    }
}

/// Where a request goes: an endpoint with what its path names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The operation, of [`Endpoint::Events`] only.
    pub operation: Option<OperationId>,
    /// The release, of [`Endpoint::Manifest`] only.
    pub release: Option<ReleaseVersion>,
    /// Whether a query followed the path, a bare `?` included. This protocol has none: the portal answers
    /// `invalid_request` in the place of the JSON syntax, not here (SIGN-2, SIGN-6).
    pub has_query: bool,
}

impl Route {
    /// A route to an endpoint whose path names nothing.
    pub fn plain(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            operation: None,
            release: None,
            has_query: false,
        }
    }

    /// The route to an operation's events.
    pub fn events(operation: OperationId) -> Self {
        Self {
            operation: Some(operation),
            ..Self::plain(Endpoint::Events)
        }
    }

    /// The route to a release's manifest.
    pub fn manifest(release: ReleaseVersion) -> Self {
        Self {
            release: Some(release),
            ..Self::plain(Endpoint::Manifest)
        }
    }

    /// The path to ask for and to sign: what follows the configured base URL (SIGN-2), without a query.
    pub fn path(&self, dialect: &Dialect) -> String {
        let (base, template) = (self.endpoint.base(dialect), self.endpoint.template());
        let named = match self.endpoint {
            Endpoint::Events => self.operation.as_ref().map_or("", OperationId::as_str),
            Endpoint::Manifest => self.release.as_ref().map_or("", ReleaseVersion::as_str),
            Endpoint::Enroll | Endpoint::Sync | Endpoint::RotateKey | Endpoint::CheckIn => "",
        };
        let (before, after) = template.split_once("{}").unwrap_or((template, ""));
        let mut path = String::with_capacity(base.len() + template.len() + named.len());
        for part in [base, before, named, after] {
            path.push_str(part);
        }
        path
    }
}

/// Why a request has no route: the first two steps of SIGN-6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteRefusal {
    /// 404 `not_found`: no endpoint has that path.
    NotFound,
    /// 405 `method_not_allowed`: the path has an endpoint, but of another method.
    MethodNotAllowed {
        /// What the `Allow` header says.
        allow: &'static str,
    },
}

/// Finds the route of a request. `path` is what follows the configured base URL, query included, as it came: nothing is
/// decoded, and an ID or a version outside its alphabet names no path (FILE-8, FILE-18).
pub fn route(dialect: &Dialect, method: &str, path: &str) -> Result<Route, RouteRefusal> {
    let (path, has_query) = match path.split_once('?') {
        Some((path, _)) => (path, true),
        None => (path, false),
    };
    let mut route = Endpoint::ALL
        .iter()
        .find_map(|endpoint| endpoint.matches(path.strip_prefix(endpoint.base(dialect))?))
        .ok_or(RouteRefusal::NotFound)?;
    route.has_query = has_query;
    match route.endpoint.method() {
        allowed if allowed == method => Ok(route),
        allow => Err(RouteRefusal::MethodNotAllowed { allow }),
    }
}

impl Endpoint {
    fn matches(self, path: &str) -> Option<Route> {
        let Some((before, after)) = self.template().split_once("{}") else {
            return (path == self.template()).then(|| Route::plain(self));
        };
        let named = path.strip_prefix(before)?.strip_suffix(after)?;
        match self {
            Self::Events => OperationId::from_str(named).ok().map(Route::events),
            Self::Manifest => ReleaseVersion::from_str(named).ok().map(Route::manifest),
            Self::Enroll | Self::Sync | Self::RotateKey | Self::CheckIn => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialects() -> [Dialect; 3] {
        [
            r#"{}"#,
            r#"{"base_path": ""}"#,
            r#"{"base_path": "/x/agents/v9"}"#,
        ]
        .map(|json| serde_json::from_str(json).expect("a dialect"))
    }

    #[test]
    fn every_path_leads_back_to_its_endpoint() {
        for dialect in dialects() {
            for endpoint in Endpoint::ALL {
                let to = match endpoint {
                    Endpoint::Events => Route::events("op_1".parse().unwrap()),
                    Endpoint::Manifest => Route::manifest("2026.11.1".parse().unwrap()),
                    _ => Route::plain(*endpoint),
                };
                let path = to.path(&dialect);
                assert_eq!(
                    route(&dialect, endpoint.method(), &path),
                    Ok(to.clone()),
                    "{path}"
                );
                // A query does not lose the route: the portal refuses it later (SIGN-2, SIGN-6).
                let queried = Route {
                    has_query: true,
                    ..to
                };
                assert_eq!(
                    route(&dialect, endpoint.method(), &format!("{path}?")),
                    Ok(queried),
                    "{path}?"
                );
                let allow = endpoint.method();
                let other = if allow == "GET" { "POST" } else { "GET" };
                for method in [other, "HEAD", "post", ""] {
                    assert_eq!(
                        route(&dialect, method, &path),
                        Err(RouteRefusal::MethodNotAllowed { allow })
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_no_path_has_no_route_sign_6_file_8_file_18() {
        for path in [
            "",
            "/",
            "/agent/v1",
            "/agent/v1/",
            "/agent/v1/sync/",
            "/agent/v1//sync",
            "/agent/v1/Sync",
            "/agent/v1/sync%20",
            "/agent/v2/sync",
            "/sync",
            "/agent/v1/operations//events",
            "/agent/v1/operations/a/b/events",
            "/agent/v1/operations/../events",
            "/agent/v1/operations/a%2Fb/events",
            "/agent/v1/operations/events",
            "/agent/v1/releases/../manifest",
            "/agent/v1/releases/.1/manifest",
            "/agent/v1/releases/1/manifest/",
            "/agent/v1/api/v1/agents",
            "https://example/agent/v1/sync",
        ] {
            assert_eq!(
                route(&Dialect::default(), "POST", path),
                Err(RouteRefusal::NotFound),
                "{path}"
            );
        }
    }

    #[test]
    fn each_endpoint_proves_itself_in_its_way() {
        let proofs: Vec<_> = Endpoint::ALL
            .iter()
            .map(|endpoint| (endpoint.label(), endpoint.authentication()))
            .collect();
        use Authentication::{ApiKey, Signature, Token};
        assert_eq!(
            proofs,
            [
                ("enroll", Token),
                ("sync", Signature),
                ("events", Signature),
                ("manifest", Signature),
                ("rotate-key", Signature),
                ("check-in", ApiKey),
            ]
        );
    }
}
