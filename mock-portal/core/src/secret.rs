//! Secrets that whoever runs the portal gave in clear, until they are sealed for an agent.
//!
//! `Debug` shows nothing of one, nothing that answers a request can hold one, and there is no `Serialize`: the one
//! place that writes them down, a [`Change`](crate::Change) for the portal's own disk, says so with [`in_clear`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use protocol::seal::Sealed;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// A secret in clear; wiped when the last clone is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct ClearSecret(Arc<Zeroizing<String>>);

impl ClearSecret {
    /// The secret, for sealing it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for ClearSecret {
    fn from(secret: String) -> Self {
        Self(Arc::new(Zeroizing::new(secret)))
    }
}

impl From<&str> for ClearSecret {
    fn from(secret: &str) -> Self {
        secret.to_owned().into()
    }
}

impl fmt::Debug for ClearSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClearSecret(redacted)")
    }
}

/// A secret as the control API takes it: in clear, to be sealed for each agent, or `{"sealed": "<base64>"}`, to be passed
/// on as it is.
#[derive(Clone, PartialEq, Eq)]
pub enum ClearOrSealed {
    /// To be sealed.
    Clear(ClearSecret),
    /// Sealed by somebody else.
    Sealed(Sealed),
}

impl From<&str> for ClearOrSealed {
    fn from(secret: &str) -> Self {
        Self::Clear(secret.into())
    }
}

impl fmt::Debug for ClearOrSealed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clear(secret) => secret.fmt(formatter),
            Self::Sealed(sealed) => sealed.fmt(formatter),
        }
    }
}

impl JsonSchema for ClearOrSealed {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ClearOrSealed".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A secret in clear, which is sealed for each agent; or one that somebody else has sealed.",
            "anyOf": [{"type": "string"}, generator.subschema_for::<Sealed>()],
        })
    }
}

impl<'de> Deserialize<'de> for ClearOrSealed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ClearOrSealedVisitor)
    }
}

struct ClearOrSealedVisitor;

impl<'de> Visitor<'de> for ClearOrSealedVisitor {
    type Value = ClearOrSealed;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(r#"a secret in clear as a string, or {"sealed": "<base64>"}"#)
    }

    fn visit_str<E: serde::de::Error>(self, secret: &str) -> Result<ClearOrSealed, E> {
        Ok(secret.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<ClearOrSealed, A::Error> {
        Sealed::deserialize(MapAccessDeserializer::new(members)).map(ClearOrSealed::Sealed)
    }
}

/// Writes a secret in clear: for the portal's own disk, and for nothing else.
pub(crate) fn in_clear<S: Serializer>(
    secret: &ClearOrSealed,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    InClear(secret).serialize(serializer)
}

/// The same for secrets by name.
pub(crate) fn all_in_clear<S: Serializer>(
    secrets: &BTreeMap<String, ClearOrSealed>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(secrets.iter().map(|(name, secret)| (name, InClear(secret))))
}

struct InClear<'a>(&'a ClearOrSealed);

impl Serialize for InClear<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            ClearOrSealed::Clear(secret) => serializer.serialize_str(secret.expose()),
            ClearOrSealed::Sealed(sealed) => sealed.serialize(serializer),
        }
    }
}
