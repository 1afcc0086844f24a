//! Release manifests: a DSSE envelope (SYNC-4, UPD-4), and the proof that a release key signed what is inside.
//!
//! DSSE is the public "Dead Simple Signing Envelope" v1; what is signed is its pre-authentication encoding ([`pae`]).
//! [`Verified`] has no constructor but [`ReleaseKeys::verify`], so code that takes one cannot be given anything else.
//! The floor and the agent's version (the rest of UPD-6) need to know what came before, and are the agent's.

use std::ops::Deref;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{KeyId, ReleaseVersion};
use crate::json::{self, JsonRefusal};
use crate::limits::{MANIFEST_SIGNATURES_MAX, RELEASE_KEYS_MAX};
use crate::pbx::release::Manifest;
use crate::sign::{Signature, SigningKey, VerifyingKey};

/// The payload type of a release manifest.
pub const PAYLOAD_TYPE: &str = "application/vnd.pbx.release+json";

/// A DSSE envelope as it travels: nothing in it is to be believed before [`ReleaseKeys::verify`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SignedManifest {
    /// The manifest's bytes, in base64 on the wire.
    #[serde(with = "base64_text")]
    pub payload: Arc<[u8]>,
    /// What the payload claims to be.
    #[serde(rename = "payloadType")]
    pub payload_type: String,
    /// The signatures; one that counts is enough.
    pub signatures: Vec<ManifestSignature>,
}

/// One signature of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ManifestSignature {
    /// A hint at the key, which nobody has signed: every key is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyid: Option<String>,
    /// The signature's bytes; of another length than 64 they are some other algorithm's and count for nothing.
    #[serde(with = "base64_text")]
    pub sig: Arc<[u8]>,
}

/// The release keys built into an agent: none, one or two (UPD-4). Built without, it refuses every manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReleaseKeys(Vec<VerifyingKey>);

/// More release keys than an agent may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} release keys; an agent has at most {RELEASE_KEYS_MAX}")]
pub struct TooManyKeys(pub usize);

/// Why a manifest counts for nothing: `manifest_rejected` (SYNC-4, UPD-4, UPD-6).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestRejected {
    /// No release key is built in.
    #[error("no release key is built into this agent, so it refuses every manifest")]
    NoReleaseKeys,
    /// The envelope says that it holds something else.
    #[error("the envelope holds {0:?}, not {PAYLOAD_TYPE}")]
    PayloadType(String),
    /// More signatures than are looked at.
    #[error("the envelope has {0} signatures; at most {MANIFEST_SIGNATURES_MAX} are looked at")]
    TooManySignatures(usize),
    /// No signature is a release key's.
    #[error("no signature is of a release key built into this agent")]
    Signature,
    /// Signed, but not a manifest.
    #[error("the signed payload is no manifest: {0}")]
    Payload(JsonRefusal),
    /// Signed, but of another release (UPD-6).
    #[error("the manifest of release {expected} names release {named}")]
    OtherRelease {
        /// The release that was asked for.
        expected: ReleaseVersion,
        /// The release that the manifest names.
        named: ReleaseVersion,
    },
}

impl ReleaseKeys {
    /// No keys: every manifest is refused.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// These keys, at most [`RELEASE_KEYS_MAX`].
    pub fn new(keys: impl IntoIterator<Item = VerifyingKey>) -> Result<Self, TooManyKeys> {
        let keys: Vec<_> = keys.into_iter().collect();
        if keys.len() > RELEASE_KEYS_MAX { Err(TooManyKeys(keys.len())) } else { Ok(Self(keys)) }
    }

    /// The IDs of the keys, in their order (CMD-4).
    pub fn ids(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.0.iter().map(VerifyingKey::key_id)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The manifest in an envelope, if a release key signed it and it names the release that was asked for. Nothing of
    /// the payload is looked at before its signature.
    pub fn verify(
        &self,
        signed: &SignedManifest,
        expected: &ReleaseVersion,
    ) -> Result<Verified<Manifest>, ManifestRejected> {
        if self.is_empty() {
            return Err(ManifestRejected::NoReleaseKeys);
        }
        if signed.payload_type != PAYLOAD_TYPE {
            return Err(ManifestRejected::PayloadType(crate::id::shown(&signed.payload_type).to_owned()));
        }
        if signed.signatures.len() > MANIFEST_SIGNATURES_MAX {
            return Err(ManifestRejected::TooManySignatures(signed.signatures.len()));
        }
        let bytes = pae(&signed.payload_type, &signed.payload);
        let mut signatures = signed.signatures.iter().filter_map(|signature| <[u8; 64]>::try_from(&*signature.sig).ok());
        if !signatures.any(|signature| self.0.iter().any(|key| key.verify(&bytes, &Signature(signature)))) {
            return Err(ManifestRejected::Signature);
        }
        let manifest: Manifest = json::parse(&signed.payload).map_err(ManifestRejected::Payload)?;
        if manifest.version != *expected {
            return Err(ManifestRejected::OtherRelease { expected: expected.clone(), named: manifest.version });
        }
        Ok(Verified(Arc::new(manifest)))
    }
}

/// Something that a release key has signed. Only [`ReleaseKeys::verify`] makes one; a clone is a counter.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified<T>(Arc<T>);

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for Verified<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Puts a payload into an envelope with one signature. What the payload says is not looked at: a portal under test also
/// signs what it should not.
pub fn sign_manifest(key: &SigningKey, payload: impl Into<Arc<[u8]>>) -> SignedManifest {
    let payload = payload.into();
    let signature = key.sign(&pae(PAYLOAD_TYPE, &payload));
    SignedManifest {
        payload,
        payload_type: PAYLOAD_TYPE.to_owned(),
        signatures: vec![ManifestSignature {
            keyid: Some(key.public().key_id().to_string()),
            sig: Arc::from(signature.0),
        }],
    }
}

/// DSSE's pre-authentication encoding: `DSSEv1 SP len(type) SP type SP len(payload) SP payload`, lengths in bytes as
/// decimal.
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// Bytes as standard base64 with padding, canonical (WIRE-6, KEY-2).
pub(crate) mod base64_text {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(bytes: &Arc<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[u8]>, D::Error> {
        deserializer.deserialize_str(crate::words::WordVisitor {
            expecting: "standard base64 with padding",
            read: |text: &str| {
                BASE64.decode(text).map(Arc::from).map_err(|_| "not standard base64 with padding, canonical")
            },
        })
    }
}
