//! The messages of the portal protocol, version 1.
//!
//! | Module | What it says |
//! |---|---|
//! | [`enroll`] | a token and public keys for an identity and the node's configuration |
//! | [`sync`] | a report for the desired state, whose raw text is read in a second stage |
//! | [`operation`] | what a portal can ask of a node, step by step, and the events that answer it |
//! | [`release`] | what a release manifest says |
//! | [`rotate`] | new keys for old |
//! | [`call`] | all requests and answers, both ways, and reading what came back |
//!
//! Members that are unknown are ignored (WIRE-5), after the syntax step has looked at them. A member that may be null may
//! be left out when read and is written as null; every other one must be there.

pub mod call;
pub mod enroll;
pub mod operation;
pub mod release;
pub mod rotate;
pub mod sync;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version of the protocol that a message speaks. Only versions that this crate speaks are values of it; one that is
/// too low is found before the shape ([`crate::json::Json::protocol_below`]), one that is too high is of the wrong shape
/// (SIGN-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u32")]
pub struct ProtocolVersion(u32);

crate::words::schema!(
    ProtocolVersion,
    schemars::json_schema!({
        "description": "The version of the protocol.", "type": "integer",
        "minimum": ProtocolVersion::LOWEST.0, "maximum": ProtocolVersion::CURRENT.0,
    })
);

impl ProtocolVersion {
    /// The lowest version that is spoken here.
    pub const LOWEST: Self = Self(1);
    /// The version that is spoken here.
    pub const CURRENT: Self = Self(1);

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl Default for ProtocolVersion {
    fn default() -> Self {
        Self::CURRENT
    }
}

/// A version of the protocol that is not spoken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("protocol {0} is not spoken here; {current} is", current = ProtocolVersion::CURRENT.0)]
pub struct UnspokenProtocol(pub u64);

impl TryFrom<u64> for ProtocolVersion {
    type Error = UnspokenProtocol;

    fn try_from(number: u64) -> Result<Self, UnspokenProtocol> {
        match u32::try_from(number) {
            Ok(version) if (Self::LOWEST.0..=Self::CURRENT.0).contains(&version) => {
                Ok(Self(version))
            }
            _ => Err(UnspokenProtocol(number)),
        }
    }
}

impl From<ProtocolVersion> for u32 {
    fn from(version: ProtocolVersion) -> Self {
        version.0
    }
}

/// A value as raw JSON, as it is kept for its second stage.
pub(crate) fn raw<T: Serialize>(value: &T) -> Arc<RawValue> {
    serde_json::value::to_raw_value(value)
        .map(Arc::from)
        .expect("the types of the wire always encode")
}

/// Whether two raw texts are the same, byte for byte.
pub(crate) fn same_raw(one: &Option<Arc<RawValue>>, other: &Option<Arc<RawValue>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.get() == other.get(),
        (None, None) => true,
        _ => false,
    }
}
