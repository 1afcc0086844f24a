//! Release manifests: a DSSE envelope (SYNC-4, UPD-4), and the proof that a release key signed what is inside.
//!
//! DSSE is the public "Dead Simple Signing Envelope" v1; what is signed is its pre-authentication encoding ([`pae`]).
//! [`Verified`] has no constructor but [`ReleaseKeys::verify`], so code that takes one cannot be given anything else.
//! The floor and the agent's version (the rest of UPD-6) need to know what came before, and are the agent's.

use std::ops::Deref;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{KeyId, ReleaseVersion};
use crate::json::{self, JsonRefusal};
use crate::limits::{MANIFEST_SIGNATURES_MAX, RELEASE_KEYS_MAX};
use crate::pbx::release::Manifest;
use crate::sign::{Signature, SigningKey, VerifyingKey};

/// The payload type of a release manifest.
pub const PAYLOAD_TYPE: &str = "application/vnd.pbx.release+json";

/// A DSSE envelope as it travels: nothing in it is to be believed before [`ReleaseKeys::verify`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SignedManifest {
    /// The manifest's bytes, in base64 on the wire.
    #[serde(with = "base64_text")]
    #[schemars(schema_with = "crate::words::base64_schema")]
    pub payload: Arc<[u8]>,
    /// What the payload claims to be.
    #[serde(rename = "payloadType")]
    pub payload_type: String,
    /// The signatures; one that counts is enough.
    pub signatures: Vec<ManifestSignature>,
}

/// One signature of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ManifestSignature {
    /// A hint at the key, which nobody has signed: every key is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyid: Option<String>,
    /// The signature's bytes; of another length than 64 they are some other algorithm's and count for nothing.
    #[serde(with = "base64_text")]
    #[schemars(schema_with = "crate::words::base64_schema")]
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
        if keys.len() > RELEASE_KEYS_MAX {
            Err(TooManyKeys(keys.len()))
        } else {
            Ok(Self(keys))
        }
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
            return Err(ManifestRejected::PayloadType(
                crate::id::shown(&signed.payload_type).to_owned(),
            ));
        }
        if signed.signatures.len() > MANIFEST_SIGNATURES_MAX {
            return Err(ManifestRejected::TooManySignatures(signed.signatures.len()));
        }
        let bytes = pae(&signed.payload_type, &signed.payload);
        let mut signatures = signed
            .signatures
            .iter()
            .filter_map(|signature| <[u8; 64]>::try_from(&*signature.sig).ok());
        if !signatures.any(|signature| {
            self.0
                .iter()
                .any(|key| key.verify(&bytes, &Signature(signature)))
        }) {
            return Err(ManifestRejected::Signature);
        }
        let manifest: Manifest = json::parse(&signed.payload).map_err(ManifestRejected::Payload)?;
        if manifest.version != *expected {
            return Err(ManifestRejected::OtherRelease {
                expected: expected.clone(),
                named: manifest.version,
            });
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
    let mut bytes = format!(
        "DSSEv1 {} {payload_type} {} ",
        payload_type.len(),
        payload.len()
    )
    .into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// Bytes as standard base64 with padding, canonical (WIRE-6, KEY-2).
pub(crate) mod base64_text {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        bytes: &Arc<[u8]>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<[u8]>, D::Error> {
        deserializer.deserialize_str(crate::words::WordVisitor {
            expecting: "standard base64 with padding",
            read: |text: &str| {
                BASE64
                    .decode(text)
                    .map(Arc::from)
                    .map_err(|_| "not standard base64 with padding, canonical")
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed([seed; 32])
    }

    fn keys(seeds: &[u8]) -> ReleaseKeys {
        let keys = seeds
            .iter()
            .map(|seed| VerifyingKey::parse(&key(*seed).public()).unwrap());
        ReleaseKeys::new(keys).unwrap()
    }

    fn payload(version: &str) -> Vec<u8> {
        let manifest = json!({
            "version": version, "created_at": "2026-11-30T01:02:03Z", "floor": 12, "template_engine": "minijinja",
            "agent": {"version": "1.4.0", "artifacts": []}, "image": {"k3s_version": "v1.34.1+k3s1", "artifacts": []},
            "addons": [],
        });
        serde_json::to_vec(&manifest).unwrap()
    }

    fn release() -> ReleaseVersion {
        "2026.11.1".parse().unwrap()
    }

    #[test]
    fn a_manifest_counts_only_as_a_release_keys_word_upd_4_upd_6_sync_4() {
        let right = sign_manifest(&key(1), payload("2026.11.1"));
        let changed = |change: fn(&mut SignedManifest)| {
            let mut signed = right.clone();
            change(&mut signed);
            signed
        };
        use ManifestRejected::{
            NoReleaseKeys, OtherRelease, Payload, PayloadType, Signature, TooManySignatures,
        };
        type Rejected = fn(&ManifestRejected) -> bool;
        let rows: &[(&str, &[u8], SignedManifest, Option<Rejected>)] = &[
            ("by the first key", &[1, 2], right.clone(), None),
            ("by the second key", &[2, 1], right.clone(), None),
            (
                "no key built in",
                &[],
                right.clone(),
                Some(|why| *why == NoReleaseKeys),
            ),
            (
                "by another key",
                &[2, 3],
                right.clone(),
                Some(|why| *why == Signature),
            ),
            (
                "the hint names nobody",
                &[1],
                changed(|signed| signed.signatures[0].keyid = Some("0000000000000000".into())),
                None,
            ),
            (
                "without a hint",
                &[1],
                changed(|signed| signed.signatures[0].keyid = None),
                None,
            ),
            (
                "a signature of another algorithm beside it",
                &[1],
                changed(|signed| {
                    signed.signatures.insert(
                        0,
                        ManifestSignature {
                            keyid: None,
                            sig: Arc::from([1, 2, 3]),
                        },
                    );
                }),
                None,
            ),
            (
                "no signature",
                &[1],
                changed(|signed| signed.signatures.clear()),
                Some(|why| *why == Signature),
            ),
            (
                "too many signatures",
                &[1],
                changed(|signed| signed.signatures = vec![signed.signatures[0].clone(); 17]),
                Some(|why| *why == TooManySignatures(17)),
            ),
            (
                "another payload type",
                &[1],
                changed(|signed| signed.payload_type = "application/json".into()),
                Some(|why| matches!(why, PayloadType(_))),
            ),
            (
                "one byte of the payload",
                &[1],
                changed(|signed| {
                    let mut payload = signed.payload.to_vec();
                    payload.push(b' ');
                    signed.payload = payload.into();
                }),
                Some(|why| *why == Signature),
            ),
            (
                "signed nonsense",
                &[1],
                sign_manifest(&key(1), *b"{\"version\": \"2026.11.1\"}"),
                Some(|why| matches!(why, Payload(JsonRefusal::Shape { .. }))),
            ),
            (
                "a signed member twice",
                &[1],
                sign_manifest(&key(1), *b"{\"floor\": 1, \"floor\": 2}"),
                Some(|why| matches!(why, Payload(JsonRefusal::Syntax(_)))),
            ),
            (
                "signed, of another release",
                &[1],
                sign_manifest(&key(1), payload("2026.10.9")),
                Some(|why| matches!(why, OtherRelease { .. })),
            ),
        ];
        for (row, built_in, signed, rejected) in rows {
            match (keys(built_in).verify(signed, &release()), rejected) {
                (Ok(manifest), None) => assert_eq!(manifest.floor, 12, "{row}"),
                (Err(why), Some(is)) => assert!(is(&why), "{row}: {why}"),
                (found, _) => panic!("{row}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_signature_is_over_the_type_too() {
        let bare = key(1).sign(&payload("2026.11.1"));
        let mut signed = sign_manifest(&key(1), payload("2026.11.1"));
        signed.signatures[0].sig = Arc::from(bare.0);
        assert_eq!(
            keys(&[1]).verify(&signed, &release()),
            Err(ManifestRejected::Signature)
        );
        // The example of DSSE's own specification.
        assert_eq!(
            pae("http://example.com/HelloWorld", b"hello world"),
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
    }

    #[test]
    fn an_agent_has_at_most_two_release_keys_upd_4() {
        let three = [1, 2, 3].map(|seed| VerifyingKey::parse(&key(seed).public()).unwrap());
        assert_eq!(ReleaseKeys::new(three), Err(TooManyKeys(3)));
        let ids: Vec<_> = keys(&[2, 1]).ids().collect();
        assert_eq!(ids, [key(2).public().key_id(), key(1).public().key_id()]);
        assert!(ReleaseKeys::none().is_empty());
    }
}
