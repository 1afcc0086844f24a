//! What a real portal may name otherwise than this protocol does, in one value that client and mock take.
//!
//! Header names, base path, a prefix of the signed bytes and three members of a problem. The sealed wrapper and the
//! shapes of the messages are fixed.

use serde::{Deserialize, Serialize};

/// Names that a portal may choose. `Default` is this protocol; a file states only what differs.
///
/// A value that cannot be meant (a base path without `/`, a header name with a blank) is refused while it is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, remote = "Self")]
pub struct Dialect {
    base_path: String,
    header_agent_id: String,
    header_timestamp: String,
    header_signature: String,
    signed_prefix: String,
    member_code: String,
    member_portal_time: String,
    member_retry_after_seconds: String,
}

/// A dialect that no portal can speak; says which member and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{member} = {value:?} is refused: {why}")]
pub struct DialectRefused {
    /// The member of the dialect.
    pub member: &'static str,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub why: &'static str,
}

impl Dialect {
    /// What every path begins with (SIGN-2): `/agent/v1`. Empty, or begins with `/` and does not end with one.
    pub fn base_path(&self) -> &str {
        &self.base_path
    }

    /// The header with the agent's ID: `Pbx-Agent-Id` (SIGN-3). Header names are compared without case.
    pub fn header_agent_id(&self) -> &str {
        &self.header_agent_id
    }

    /// The header with the signature's timestamp: `Pbx-Timestamp` (SIGN-3).
    pub fn header_timestamp(&self) -> &str {
        &self.header_timestamp
    }

    /// The header with the signature: `Pbx-Signature` (SIGN-3).
    pub fn header_signature(&self) -> &str {
        &self.header_signature
    }

    /// What stands before the method in the signed bytes: nothing here (SIGN-2).
    pub fn signed_prefix(&self) -> &str {
        &self.signed_prefix
    }

    /// The member of a problem with its code: `code` (WIRE-4).
    pub fn member_code(&self) -> &str {
        &self.member_code
    }

    /// The member of a problem with the portal's time: `portal_time` (WIRE-4).
    pub fn member_portal_time(&self) -> &str {
        &self.member_portal_time
    }

    /// The member of a problem with the seconds to wait: `retry_after_seconds` (WIRE-4).
    pub fn member_retry_after_seconds(&self) -> &str {
        &self.member_retry_after_seconds
    }
}

impl Default for Dialect {
    fn default() -> Self {
        Self {
            base_path: "/agent/v1".to_owned(),
            header_agent_id: "Pbx-Agent-Id".to_owned(),
            header_timestamp: "Pbx-Timestamp".to_owned(),
            header_signature: "Pbx-Signature".to_owned(),
            signed_prefix: String::new(),
            member_code: "code".to_owned(),
            member_portal_time: "portal_time".to_owned(),
            member_retry_after_seconds: "retry_after_seconds".to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for Dialect {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dialect = Self::deserialize(deserializer)?; // the derived one, by `remote`
        match dialect.refusal() {
            None => Ok(dialect),
            Some(refused) => Err(serde::de::Error::custom(refused)),
        }
    }
}

impl Serialize for Dialect {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer) // the derived one, by `remote`
    }
}

/// Members of a problem whose names are not for a portal to choose.
const FIXED_MEMBERS: [&str; 5] = ["type", "title", "status", "detail", "release"];

impl Dialect {
    /// Why no portal can speak this, if so.
    fn refusal(&self) -> Option<DialectRefused> {
        let headers = [
            ("header_agent_id", &self.header_agent_id),
            ("header_timestamp", &self.header_timestamp),
            ("header_signature", &self.header_signature),
        ];
        let members = [
            ("member_code", &self.member_code),
            ("member_portal_time", &self.member_portal_time),
            (
                "member_retry_after_seconds",
                &self.member_retry_after_seconds,
            ),
        ];
        let refused = |member, value: &str, why| {
            Some(DialectRefused {
                member,
                value: value.to_owned(),
                why,
            })
        };
        if !is_base_path(&self.base_path) {
            return refused(
                "base_path",
                &self.base_path,
                "it must begin with / and not end with it, without ? and #",
            );
        }
        for (at, (member, name)) in headers.into_iter().enumerate() {
            if !is_header_name(name) {
                return refused(member, name, "it must be a header name");
            }
            if headers[..at]
                .iter()
                .any(|(_, before)| before.eq_ignore_ascii_case(name))
            {
                return refused(member, name, "another header has that name");
            }
        }
        for (at, (member, name)) in members.into_iter().enumerate() {
            if name.is_empty() || FIXED_MEMBERS.contains(&name.as_str()) {
                return refused(
                    member,
                    name,
                    "it must not be empty, nor type, title, status, detail or release",
                );
            }
            if members[..at].iter().any(|(_, before)| *before == name) {
                return refused(member, name, "another member has that name");
            }
        }
        None
    }
}

fn is_base_path(path: &str) -> bool {
    let plain = path
        .bytes()
        .all(|b| b.is_ascii_graphic() && b != b'?' && b != b'#');
    path.is_empty() || (plain && path.starts_with('/') && !path.ends_with('/'))
}

/// RFC 9110, 5.6.2: a token.
fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Dialect, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_file_leaves_out_is_this_protocol() {
        assert_eq!(read("{}").unwrap(), Dialect::default());
        let other = read(r#"{"base_path": "", "header_signature": "X-Sig"}"#).unwrap();
        assert_eq!((other.base_path(), other.header_signature()), ("", "X-Sig"));
        assert_eq!(other.header_timestamp(), "Pbx-Timestamp");
        assert_eq!(
            read(&serde_json::to_string(&other).unwrap()).unwrap(),
            other
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        for (json, says) in [
            (r#"{"base_pth": "/x"}"#, "base_pth"),
            (r#"{"base_path": "agent"}"#, "base_path"),
            (r#"{"base_path": "/agent/"}"#, "base_path"),
            (r#"{"base_path": "/agent?x"}"#, "base_path"),
            (
                r#"{"header_timestamp": "Pbx Timestamp"}"#,
                "header_timestamp",
            ),
            (r#"{"header_timestamp": "pbx-signature"}"#, "another header"),
            (r#"{"member_code": "detail"}"#, "member_code"),
            (r#"{"member_code": "portal_time"}"#, "another member"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(says), "{json}: {error}");
        }
    }
}
