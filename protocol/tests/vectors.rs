//! Every published vector (`vectors/README.md`) through the public face of this crate.
//!
//! [`outcome`] sees only the `input` of a vector and says what this crate makes of it; one place compares that with
//! `expect`. A kind without an arm there has no outcome, so no vector can be published that nobody checks here. The same
//! files are checked by `vectors/check.py`, which knows nothing of this crate.
//!
//! Rules: SIGN-1 to SIGN-3, SIGN-5 to SIGN-8, KEY-1 to KEY-3, SEAL-1 to SEAL-3, SEAL-5, SEAL-6, WIRE-5, WIRE-6, FILE-8,
//! FILE-18, UPD-4, UPD-6, OPS-8; each vector names its own.

use std::convert::Infallible;
use std::fmt::Debug;
use std::path::PathBuf;
use std::str::FromStr;

use protocol::dialect::Dialect;
use protocol::endpoint::{Endpoint, Route, RouteRefusal, route};
use protocol::hash::Sha256Hex;
use protocol::id::{
    AddonName, AgentId, AgentVersion, ClusterId, EntryName, ManifestName, NodeName, OperationId,
    ReleaseVersion,
};
use protocol::json;
use protocol::pbx::enroll::EnrollRequest;
use protocol::pbx::operation::OperationEvents;
use protocol::pbx::rotate::RotateKeyRequest;
use protocol::seal::{Sealed, SealingPublicKey, SealingSecretKey, seal};
use protocol::sign::{
    Signature, SigningKey, SigningPublicKey, VerifyingKey, canonical, rotation_proof_bytes,
};
use protocol::time::{Timestamp, UnixSeconds};
use protocol::verified::{ReleaseKeys, SignedManifest, pae};
use rand_core::{TryCryptoRng, TryRng};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const TOPICS: [&str; 8] = [
    "ed25519", "json", "keys", "manifest", "routes", "sealing", "signing", "text",
];

#[test]
fn ed25519_verification_is_strict_sign_7() {
    check("ed25519");
}

#[test]
fn json_is_refused_at_the_right_step_key_2_sign_6() {
    check("json");
}

#[test]
fn weak_keys_and_wrong_proofs_are_refused_key_1() {
    check("keys");
}

#[test]
fn only_manifests_of_a_release_key_count_upd_4_upd_6() {
    check("manifest");
}

#[test]
fn requests_find_their_endpoint_sign_2_sign_6() {
    check("routes");
}

#[test]
fn sealed_boxes_are_libsodiums_seal_5_seal_6() {
    check("sealing");
}

// rule SIGN-8: keys, request, canonical bytes and signature, as another language made them.
#[test]
fn requests_are_signed_and_verified_sign_2_sign_3_key_3() {
    check("signing");
}

#[test]
fn values_have_one_spelling_key_2_wire_6() {
    check("text");
}

// rule SIGN-8: all that is published counts, and most of it is not this crate's own word.
#[test]
fn every_file_is_checked_and_most_vectors_come_from_elsewhere() {
    let mut on_disk: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder of the vectors")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .map(|path| {
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    on_disk.sort();
    assert_eq!(on_disk, TOPICS);

    let vectors: Vec<Value> = TOPICS.into_iter().flat_map(vectors).collect();
    let from_elsewhere = vectors
        .iter()
        .filter(|vector| text(vector, "origin") != "rule")
        .count();
    assert!(vectors.len() >= 60, "{} vectors", vectors.len());
    assert!(
        from_elsewhere >= 40,
        "{from_elsewhere} vectors from libsodium or published kinds"
    );
}

#[test]
fn a_kind_that_nobody_checks_has_no_outcome() {
    assert_eq!(outcome("no such kind", &json!({})), None);
}

/// Compares every vector of a file.
fn check(topic: &str) {
    let wrong: Vec<String> = vectors(topic)
        .iter()
        .filter_map(|vector| {
            let found = outcome(text(vector, "kind"), &vector["input"]);
            let same = found.as_ref() == Some(&vector["expect"]);
            (!same).then(|| {
                let (id, kind, comment) = (
                    text(vector, "id"),
                    text(vector, "kind"),
                    text(vector, "comment"),
                );
                format!(
                    "{id} ({kind}: {comment}): expected {}, found {found:?}",
                    vector["expect"]
                )
            })
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {topic}.json differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

fn vectors(topic: &str) -> Vec<Value> {
    let file = std::fs::read(folder().join(format!("{topic}.json"))).expect("a file of vectors");
    let document: Value = serde_json::from_slice(&file).expect("JSON");
    assert_eq!(document["format"], 1);
    document["vectors"]
        .as_array()
        .expect("a list of vectors")
        .clone()
}

/// What this crate makes of an input; `None` for a kind that it does not know.
fn outcome(kind: &str, input: &Value) -> Option<Value> {
    Some(match kind {
        "sign_request" => sign_request(input),
        "verify_request" => json!({"valid": verified_request(input).is_some()}),
        "replay" => {
            let (first, second) = (
                verified_request(&input["first"]),
                verified_request(&input["second"]),
            );
            json!({"both_valid": first.is_some() && second.is_some(), "replay": first == second})
        }
        "sign" => {
            let key = SigningKey::from_seed(bytes_32(input, "seed_hex"));
            let signature = key.sign(&hex(text(input, "message_hex")));
            json!({"public_hex": to_hex(&key.public().0), "signature_hex": to_hex(&signature.0)})
        }
        "verify" => json!({"valid": verifies(input)}),
        "signing_key_pair" => {
            let public = SigningKey::from_seed(bytes_32(input, "seed_hex")).public();
            json!({"public_b64": public.to_string(), "key_id": public.key_id().to_string()})
        }
        "sealing_key_pair" => {
            let secret = SealingSecretKey::from_seed(bytes_32(input, "secret_hex"));
            json!({"public_b64": secret.public().to_string()})
        }
        "signing_key" => {
            json!({"accepted": VerifyingKey::parse(&value(input, "public_b64")).is_ok()})
        }
        "sealing_key" => {
            json!({"accepted": value::<SealingPublicKey>(input, "public_b64").checked().is_ok()})
        }
        "rotation_proof" => {
            let new = SigningKey::from_seed(bytes_32(input, "new_seed_hex"));
            let signed = rotation_proof_bytes(&value(input, "old_public_b64"), &new.public());
            json!({"signed_hex": to_hex(&signed), "proof_b64": new.sign(&signed).to_string()})
        }
        "rotation_check" => {
            let (old, new) = (
                value(input, "old_public_b64"),
                value(input, "new_public_b64"),
            );
            let (signed, proof) = (rotation_proof_bytes(&old, &new), value(input, "proof_b64"));
            json!({"valid": VerifyingKey::parse(&new).is_ok_and(|new| new.verify(&signed, &proof))})
        }
        "seal" => {
            let mut ephemeral = Given(hex(text(input, "ephemeral_secret_hex")));
            let plaintext = boxed(input, "plaintext_b64");
            let sealed: Sealed = seal(
                &value(input, "recipient_b64"),
                plaintext.as_bytes(),
                &mut ephemeral,
            );
            json!({"box_b64": base64_of(&sealed)})
        }
        "open" => {
            let secret = SealingSecretKey::from_seed(bytes_32(input, "secret_hex"));
            let opened = secret.open(&boxed(input, "box_b64")).ok();
            json!({"plaintext_b64": opened.map(|opened| base64_of(&Sealed::from_bytes(opened.expose())))})
        }
        "seal_refused" => {
            json!({"refused": value::<SealingPublicKey>(input, "recipient_b64").checked().is_err()})
        }
        "sealed_member" => {
            json!({"sealed": json::parse::<Sealed>(text(input, "text").as_bytes()).is_ok()})
        }
        "pae" => {
            let payload = boxed(input, "payload_b64");
            json!({"pae_hex": to_hex(&pae(text(input, "payload_type"), payload.as_bytes()))})
        }
        "manifest" => json!({"verified": verified_manifest(input)}),
        "timestamp" => json!({"seconds": UnixSeconds::parse(text(input, "text")).map(|at| at.0)}),
        "base64" => base64(text(input, "text"), &input["length"]),
        "sha256" => json!({"valid": text(input, "text").parse::<Sha256Hex>().is_ok()}),
        "time" => {
            json!({"unix_ms": text(input, "text").parse::<Timestamp>().ok().map(Timestamp::unix_ms)})
        }
        "agent_id" => {
            let id = text(input, "text");
            all_agree([
                AgentId::new(id).is_ok(),
                OperationId::new(id).is_ok(),
                ClusterId::new(id).is_ok(),
            ])
        }
        "name" => {
            let name = text(input, "text");
            all_agree([
                NodeName::new(name).is_ok(),
                ReleaseVersion::new(name).is_ok(),
                AgentVersion::new(name).is_ok(),
                AddonName::new(name).is_ok(),
                EntryName::new(name).is_ok(),
                ManifestName::new(name).is_ok(),
            ])
        }
        "json" => json!({"step": step(input)}),
        "route" => routed(input),
        _ => return None,
    })
}

// --- signing ---------------------------------------------------------------------------------------------------------

fn sign_request(input: &Value) -> Value {
    let dialect: Dialect = match input.get("dialect") {
        Some(dialect) => serde_json::from_value(dialect.clone()).expect("a dialect"),
        None => Dialect::default(),
    };
    let route = match value::<Endpoint>(input, "endpoint") {
        Endpoint::Events => Route::events(value(input, "operation")),
        Endpoint::Manifest => Route::manifest(value(input, "release")),
        plain => Route::plain(plain),
    };
    let query = input
        .get("query")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let (method, path) = (route.endpoint.method(), route.path(&dialect) + query);
    let at = UnixSeconds(input["timestamp"].as_u64().expect("seconds"));
    let body_hash = Sha256Hex::of(text(input, "body").as_bytes());
    let signed = canonical(&dialect, method, &path, at, &body_hash);
    let signature = SigningKey::from_seed(bytes_32(input, "seed_hex")).sign(&signed);
    let base = text(input, "base");
    let base = base.strip_suffix(dialect.base_path()).unwrap_or(base); // FILE-15
    json!({
        "url": format!("{base}{path}"), "method": method, "path": path, "body_sha256": body_hash.to_string(),
        "signed": String::from_utf8(signed).expect("ASCII"),
        "headers": {
            dialect.header_agent_id(): input["agent_id"],
            dialect.header_timestamp(): at.to_string(),
            dialect.header_signature(): signature.to_string(),
        },
    })
}

/// What the replay memory is keyed by (KEY-3), of a request whose signature is right.
fn verified_request(input: &Value) -> Option<(SigningPublicKey, Vec<u8>)> {
    let public: SigningPublicKey = value(input, "public_b64");
    let at = UnixSeconds::parse(text(input, "timestamp"))?;
    let signature = Signature::from_str(text(input, "signature")).ok()?;
    let body_hash = Sha256Hex::of(text(input, "body").as_bytes());
    let signed = canonical(
        &Dialect::default(),
        text(input, "method"),
        text(input, "path"),
        at,
        &body_hash,
    );
    VerifyingKey::parse(&public)
        .ok()?
        .verify(&signed, &signature)
        .then_some((public, signed))
}

fn verifies(input: &Value) -> bool {
    let Ok(signature) = <[u8; 64]>::try_from(hex(text(input, "signature_hex"))) else {
        return false; // another length is no `Signature`
    };
    let public = SigningPublicKey(bytes_32(input, "public_hex"));
    VerifyingKey::parse(&public)
        .is_ok_and(|key| key.verify(&hex(text(input, "message_hex")), &Signature(signature)))
}

// --- sealing ---------------------------------------------------------------------------------------------------------

/// A random source that gives these bytes once, and nothing after them.
struct Given(Vec<u8>);

impl TryRng for Given {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        panic!("an ephemeral key is drawn as bytes");
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        panic!("an ephemeral key is drawn as bytes");
    }

    fn try_fill_bytes(&mut self, into: &mut [u8]) -> Result<(), Infallible> {
        let rest = self.0.split_off(into.len());
        into.copy_from_slice(&std::mem::replace(&mut self.0, rest));
        Ok(())
    }
}

impl TryCryptoRng for Given {}

/// Base64 of any length is read and written by the wrapper of sealed boxes alone, so it serves for other bytes, too.
fn boxed(input: &Value, name: &str) -> Sealed {
    serde_json::from_value(json!({"sealed": input[name]})).expect("base64")
}

fn base64_of(sealed: &Sealed) -> Value {
    serde_json::to_value(sealed).expect("JSON")["sealed"].clone()
}

// --- the rest --------------------------------------------------------------------------------------------------------

fn verified_manifest(input: &Value) -> bool {
    let keys = input["release_keys_b64"]
        .as_array()
        .expect("keys")
        .iter()
        .map(|key| {
            let public: SigningPublicKey = key.as_str().expect("text").parse().expect("a key");
            VerifyingKey::parse(&public).expect("a good key")
        });
    let keys = ReleaseKeys::new(keys).expect("at most two keys");
    json::parse::<SignedManifest>(text(input, "envelope").as_bytes())
        .is_ok_and(|envelope| keys.verify(&envelope, &value(input, "release")).is_ok())
}

fn base64(text: &str, length: &Value) -> Value {
    let bytes = match length.as_u64() {
        Some(32) => {
            let signing = text.parse::<SigningPublicKey>().ok().map(|key| key.0);
            assert_eq!(
                signing,
                text.parse::<SealingPublicKey>().ok().map(|key| key.0),
                "both keys are spelled alike"
            );
            signing.map(|key| key.to_vec())
        }
        Some(64) => text
            .parse::<Signature>()
            .ok()
            .map(|signature| signature.0.to_vec()),
        _ => panic!("no type of this crate has {length} bytes"),
    };
    json!({"hex": bytes.map(|bytes| to_hex(&bytes))})
}

fn all_agree<const N: usize>(valid: [bool; N]) -> Value {
    assert!(
        valid.iter().all(|v| *v == valid[0]),
        "types with the same alphabet disagree: {valid:?}"
    );
    json!({"valid": valid[0]})
}

fn step(input: &Value) -> &'static str {
    let body = match input.get("bytes_hex") {
        Some(bytes) => hex(bytes.as_str().expect("hex")),
        None => text(input, "text").as_bytes().to_vec(),
    };
    fn shape<T: DeserializeOwned>(json: &json::Json<'_>) -> &'static str {
        if json.read::<T>().is_ok() {
            "ok"
        } else {
            "shape"
        }
    }
    let Ok(json) = json::scan(&body) else {
        return "syntax";
    };
    match text(input, "shape") {
        "EnrollRequest" if json.protocol_below(1) => "protocol",
        "EnrollRequest" => shape::<EnrollRequest>(&json),
        "OperationEvents" => shape::<OperationEvents>(&json),
        "RotateKeyRequest" => shape::<RotateKeyRequest>(&json),
        unknown => panic!("no shape {unknown}"),
    }
}

fn routed(input: &Value) -> Value {
    match route(
        &Dialect::default(),
        text(input, "method"),
        text(input, "target"),
    ) {
        Err(RouteRefusal::NotFound) => json!({"refusal": "not_found"}),
        Err(RouteRefusal::MethodNotAllowed { .. }) => json!({"refusal": "method_not_allowed"}),
        Ok(route) if route.has_query => json!({"refusal": "query"}),
        Ok(route) => {
            let mut found = json!({"endpoint": route.endpoint.label()});
            if let Some(operation) = route.operation {
                found["operation"] = json!(operation.as_str());
            }
            if let Some(release) = route.release {
                found["release"] = json!(release.as_str());
            }
            found
        }
    }
}

// --- reading an input ------------------------------------------------------------------------------------------------

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} is no text in {value}"))
}

fn value<T: FromStr<Err: Debug>>(input: &Value, name: &str) -> T {
    text(input, name)
        .parse()
        .unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

fn bytes_32(input: &Value, name: &str) -> [u8; 32] {
    hex(text(input, name)).try_into().expect("32 bytes")
}

fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "half a byte");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits"))
        .collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
