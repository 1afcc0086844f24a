//! How the control API refuses: what was wrong, why, and what to do.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use protocol::problem::Problem;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

/// Why a control call was refused; the words are the member `code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RefusalCode")]
pub enum Code {
    /// The request's syntax, shape or values.
    InvalidRequest,
    /// No token, or another one than the server was started with.
    Unauthorized,
    /// A browser was talked into this call by a page from somewhere else.
    Forbidden,
    /// No such call, agent, cluster, operation or release.
    NotFound,
    /// The call exists with another method.
    MethodNotAllowed,
    /// The request is right and does not fit what is there.
    Conflict,
    /// The request's body is too large.
    TooLarge,
    /// The portal can promise nothing.
    Internal,
}

impl Code {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Internal => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// A refused control call. It changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub code: Code,
    /// What was wrong and why.
    pub detail: String,
    /// What to do.
    pub hint: String,
}

impl Refusal {
    /// A refusal with its reason and the way out.
    pub fn new(code: Code, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            hint: hint.into(),
        }
    }

    /// The request's syntax, shape or values.
    pub fn invalid(detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, detail, hint)
    }

    /// What the path names is not there.
    pub fn not_found(detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Code::NotFound, detail, hint)
    }
}

/// Why a call was refused (RFC 9457); nothing was changed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Refusal")]
struct Body<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    code: Code,
    /// What was wrong and why.
    detail: &'a str,
    /// What to do.
    hint: &'a str,
}

/// The JSON Schema of a refusal's body.
pub(crate) fn schema(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<Body<'static>>()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let body = Body {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            code: self.code,
            detail: &self.detail,
            hint: &self.hint,
        };
        let mut response = (status, super::line(&body)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(Problem::CONTENT_TYPE),
        );
        if self.code == Code::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// `; did you mean …?` for the known word that is nearest to `word`, if one is near.
pub(super) fn suggestion<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let distance = |name: &str| {
        strsim::damerau_levenshtein(&word.to_ascii_lowercase(), &name.to_ascii_lowercase())
    };
    let near = |name: &str| 1 + name.len() / 4;
    known
        .into_iter()
        .map(|name| (distance(name), name))
        .filter(|(distance, name)| *distance <= near(name))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        let known = ["cluster_id", "node_name", "count", "limit"];
        for (word, suggested) in [
            ("clusterid", Some("cluster_id")),
            ("node-name", Some("node_name")),
            ("Count", Some("count")),
            ("limti", Some("limit")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(suggestion(word, known), suggested, "{word}");
        }
    }
}
