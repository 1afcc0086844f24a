//! Sealing: a secret travels as a libsodium sealed box, on the wire `{"sealed": "<base64>"}` (SEAL-1).
//!
//! A secret field has the type [`Sealed`], and that type cannot be read from anything but the wrapper, so a secret in
//! clear never becomes a value (SEAL-2); who reads a document is told which field it was.
//! An opened secret is a [`Secret`]: wiped when dropped, without `Serialize`, without a telling `Debug` (SEAL-4).

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use curve25519_dalek::MontgomeryPoint;
use rand_core::CryptoRng;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::sign::{Base64Refused, WeakKey, base64_bytes, read_base64};
use crate::words::serde_by_text;

/// What is in a box: a text for the agent itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SecretText {}

/// What is in a box: a kubeconfig for whoever asked for access (OP-7). Nobody but they opens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kubeconfig {}

/// A sealed box, unopened; may be printed, stored and passed on. `T` says what is inside.
pub struct Sealed<T = SecretText> {
    ciphertext: Arc<[u8]>,
    inside: PhantomData<fn() -> T>,
}

impl<T> Sealed<T> {
    /// Takes the bytes of a box: ephemeral public key, tag, ciphertext.
    pub fn from_bytes(ciphertext: impl Into<Arc<[u8]>>) -> Self {
        Self {
            ciphertext: ciphertext.into(),
            inside: PhantomData,
        }
    }

    /// The bytes of the box.
    pub fn as_bytes(&self) -> &[u8] {
        &self.ciphertext
    }
}

/// Bytes by which a box is longer than what is in it: an ephemeral key of 32 and a tag of 16.
pub const OVERHEAD_BYTES: usize = 48;

/// Seals to a public key that was checked; the caller brings the random source.
pub fn seal<T>(recipient: &SealingPublicKey, secret: &[u8], rng: &mut impl CryptoRng) -> Sealed<T> {
    let ciphertext = crypto_box::PublicKey::from_bytes(recipient.0)
        .seal(&mut Draw(rng), secret)
        .expect("the cipher takes every length that fits into memory");
    Sealed::from_bytes(ciphertext)
}

/// An X25519 private key. Wiped when dropped; `Debug` shows the ID of its public key and nothing else.
#[derive(Clone)]
pub struct SealingSecretKey(Zeroizing<[u8; 32]>);

/// A box that does not open (SEAL-3), with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unopenable {
    /// Shorter than an empty box.
    #[error("the box is shorter than an empty one")]
    TooShort,
    /// Its ephemeral key is of low order, so everybody knows the shared secret (SEAL-6).
    #[error("the box's ephemeral key is of low order")]
    LowOrder,
    /// Sealed to another key, or changed on the way.
    #[error("the box was sealed to another key or was changed")]
    Authentication,
}

impl SealingSecretKey {
    /// The key of 32 secret bytes, as libsodium and PyNaCl keep them (clamped when used, not before).
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(Zeroizing::new(seed))
    }

    /// The 32 secret bytes, for the file that keeps them (FILE-5).
    pub fn seed(&self) -> &[u8; 32] {
        &self.0
    }

    /// The public half.
    pub fn public(&self) -> SealingPublicKey {
        SealingPublicKey(self.secret().public_key().to_bytes())
    }

    /// Opens a box that was sealed to this key.
    pub fn open<T>(&self, sealed: &Sealed<T>) -> Result<Secret, Unopenable> {
        let ciphertext = sealed.as_bytes();
        if ciphertext.len() < OVERHEAD_BYTES {
            return Err(Unopenable::TooShort);
        }
        let ephemeral = ciphertext.first_chunk().ok_or(Unopenable::TooShort)?;
        if is_low_order(ephemeral) {
            return Err(Unopenable::LowOrder);
        }
        match self.secret().unseal(ciphertext) {
            Ok(secret) => Ok(Secret(Zeroizing::new(secret))),
            Err(_) => Err(Unopenable::Authentication),
        }
    }

    fn secret(&self) -> crypto_box::SecretKey {
        crypto_box::SecretKey::from_bytes(*self.0)
    }
}

impl fmt::Debug for SealingSecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "SealingSecretKey({}, private half redacted)",
            self.public().key_id()
        )
    }
}

/// The 32 bytes of an X25519 public key as they travel; a portal asks [`SealingPublicKey::checked`] before it registers
/// one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SealingPublicKey(pub [u8; 32]);

impl SealingPublicKey {
    /// Refuses a weak key (KEY-1): of low order, where the shared secret is zero and the box open to everybody; not the
    /// canonical encoding; no point of the curve (but of its twist).
    pub fn checked(self) -> Result<Self, WeakKey> {
        if is_low_order(&self.0) {
            return Err(WeakKey::SmallOrder);
        }
        if !is_canonical(&self.0) {
            return Err(WeakKey::NotCanonical);
        }
        match MontgomeryPoint(self.0).to_edwards(0) {
            Some(_) => Ok(self),
            None => Err(WeakKey::NotOnCurve),
        }
    }

    /// The key's ID.
    pub fn key_id(&self) -> crate::id::KeyId {
        crate::id::KeyId::of(&self.0)
    }
}

base64_bytes!(
    SealingPublicKey,
    32,
    "a sealing key as base64 of 32 bytes",
    "^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$"
);

/// An opened secret (SEAL-4).
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// The secret bytes, for the one place that needs them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The secret as text, if it is UTF-8.
    pub fn expose_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl From<Vec<u8>> for Secret {
    fn from(secret: Vec<u8>) -> Self {
        Self(Zeroizing::new(secret))
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        secret.into_bytes().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(redacted)")
    }
}

impl<T> Clone for Sealed<T> {
    fn clone(&self) -> Self {
        Self {
            ciphertext: Arc::clone(&self.ciphertext),
            inside: PhantomData,
        }
    }
}

impl<T> PartialEq for Sealed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.ciphertext == other.ciphertext
    }
}

impl<T> Eq for Sealed<T> {}

impl<T> std::hash::Hash for Sealed<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.ciphertext.hash(state);
    }
}

impl<T> fmt::Debug for Sealed<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sealed, {} bytes", self.ciphertext.len())
    }
}

/// The wrapper's only member.
const MEMBER: &str = "sealed";

impl<T> Serialize for Sealed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut wrapper = serializer.serialize_map(Some(1))?;
        wrapper.serialize_entry(MEMBER, &BASE64.encode(&self.ciphertext))?;
        wrapper.end()
    }
}

impl<'de, T> Deserialize<'de> for Sealed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Wrapper).map(Self::from_bytes)
    }
}

impl<T> JsonSchema for Sealed<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Sealed".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A secret, sealed to an X25519 key (SEAL-1).", "type": "object",
            "properties": {MEMBER: {"type": "string", "pattern": crate::words::BASE64_PATTERN}},
            "required": [MEMBER], "additionalProperties": false,
        })
    }
}

/// The one text of this refusal. It repeats neither name nor value: what came may be the secret itself.
fn in_clear<E: serde::de::Error>() -> E {
    E::custom(r#"a secret that is not exactly {"sealed": "<base64>"}"#)
}

/// Visitors' answers to what is no object (or no text): refused without repeating it, as serde's own would.
macro_rules! repeat_nothing {
    ($($visit:ident: $Kind:ty),+) => {
        $(fn $visit<E: serde::de::Error>(self, _: $Kind) -> Result<Self::Value, E> {
            Err(in_clear())
        })+
    };
}

/// Reads the wrapper.
struct Wrapper;

impl<'de> Visitor<'de> for Wrapper {
    type Value = Vec<u8>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(r#"exactly {"sealed": "<base64>"}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Vec<u8>, A::Error> {
        if members.next_key_seed(IsMember)? != Some(true) {
            return Err(in_clear());
        }
        let ciphertext = members.next_value_seed(Base64Text)?;
        match members.next_key_seed(IsMember)? {
            None => Ok(ciphertext),
            Some(_) => Err(in_clear()),
        }
    }

    repeat_nothing!(visit_str: &str, visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64);
}

/// Reads a member's name: is it the wrapper's?
struct IsMember;

impl<'de> DeserializeSeed<'de> for IsMember {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for IsMember {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the member sealed")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == MEMBER)
    }
}

/// Reads the wrapper's value.
struct Base64Text;

impl<'de> DeserializeSeed<'de> for Base64Text {
    type Value = Vec<u8>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Base64Text {
    type Value = Vec<u8>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a sealed box in standard base64 with padding")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
        BASE64.decode(text).map_err(|_| in_clear())
    }

    repeat_nothing!(visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64);
}

/// Where a document keeps its secrets: member names, `*` for every item or member.
pub(crate) type SecretPlaces = &'static [&'static [&'static str]];

/// The path of the first secret that is there and not sealed (SEAL-2), for saying why a document was refused: the typed
/// reading has refused it already, but perhaps at another, earlier mistake.
pub(crate) fn first_in_clear(document: &Value, places: SecretPlaces) -> Option<String> {
    fn search(value: &Value, place: &[&str], path: &mut String) -> bool {
        let Some((name, rest)) = place.split_first() else {
            return Sealed::<SecretText>::deserialize(value).is_err();
        };
        let mut below = |name: &str, value: &Value| {
            let length = path.len();
            crate::json::push_member(path, name);
            let found = search(value, rest, path);
            if !found {
                path.truncate(length);
            }
            found
        };
        match (value, *name) {
            (Value::Object(members), "*") => members.iter().any(|(name, value)| below(name, value)),
            (Value::Object(members), name) => {
                members.get(name).is_some_and(|value| below(name, value))
            }
            (Value::Array(items), "*") => items.iter().enumerate().any(|(at, item)| {
                let length = path.len();
                crate::json::push_index(path, at);
                let found = search(item, rest, path);
                if !found {
                    path.truncate(length);
                }
                found
            }),
            _ => false,
        }
    }
    places.iter().find_map(|place| {
        let mut path = String::new();
        search(document, place, &mut path).then_some(path)
    })
}

/// Whether the key is of low order, on the curve or its twist, in any spelling: eight times such a point is nothing, so
/// every shared secret with it is zero. What libsodium keeps a list of encodings for.
fn is_low_order(public: &[u8; 32]) -> bool {
    MontgomeryPoint(*public)
        .mul_bits_be([true, false, false, false].into_iter())
        .to_bytes()
        == [0; 32]
}

/// Whether the little-endian number is below p = 2²⁵⁵ − 19, that is, the only spelling of its coordinate (KEY-1).
fn is_canonical(public: &[u8; 32]) -> bool {
    let ones_above_the_lowest_byte =
        public[31] == 0x7f && public[1..31].iter().all(|byte| *byte == 0xff);
    public[31] <= 0x7f && !(ones_above_the_lowest_byte && public[0] >= 0xed)
}

/// The caller's random source in the words of the older `rand_core` that the cipher speaks.
struct Draw<'a, R>(&'a mut R);

impl<R: CryptoRng> crypto_box::aead::rand_core::RngCore for Draw<'_, R> {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill_bytes(&mut self, into: &mut [u8]) {
        self.0.fill_bytes(into);
    }

    fn try_fill_bytes(
        &mut self,
        into: &mut [u8],
    ) -> Result<(), crypto_box::aead::rand_core::Error> {
        self.0.fill_bytes(into);
        Ok(())
    }
}

impl<R: CryptoRng> crypto_box::aead::rand_core::CryptoRng for Draw<'_, R> {}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    const SECRET: &str = "canary-7f3a";

    fn key(seed: u8) -> SealingSecretKey {
        SealingSecretKey::from_seed([seed; 32])
    }

    fn sealed_to(recipient: &SealingSecretKey) -> Sealed {
        seal(
            &recipient.public(),
            SECRET.as_bytes(),
            &mut ChaCha8Rng::seed_from_u64(1),
        )
    }

    #[test]
    fn only_the_recipient_opens_and_only_what_was_sealed_seal_3() {
        let sealed = sealed_to(&key(1));
        assert_eq!(key(1).open(&sealed).unwrap().expose_text(), Some(SECRET));
        assert_eq!(
            key(2).open(&sealed).unwrap_err(),
            Unopenable::Authentication
        );
        for at in 0..sealed.as_bytes().len() {
            let mut changed = sealed.as_bytes().to_vec();
            changed[at] ^= 1;
            assert!(
                key(1)
                    .open(&Sealed::<SecretText>::from_bytes(changed))
                    .is_err(),
                "byte {at}"
            );
        }
        for length in 0..OVERHEAD_BYTES {
            let cut = Sealed::<SecretText>::from_bytes(&sealed.as_bytes()[..length]);
            assert_eq!(key(1).open(&cut).unwrap_err(), Unopenable::TooShort);
        }
    }

    #[test]
    fn chance_is_the_callers() {
        assert_eq!(sealed_to(&key(1)), sealed_to(&key(1)));
        let other: Sealed = seal(
            &key(1).public(),
            SECRET.as_bytes(),
            &mut ChaCha8Rng::seed_from_u64(2),
        );
        assert_ne!(sealed_to(&key(1)), other);
    }

    #[test]
    fn a_secret_is_the_wrapper_and_nothing_else_seal_2() {
        let right = serde_json::to_string(&sealed_to(&key(1))).unwrap();
        assert!(right.starts_with(r#"{"sealed":""#), "{right}");
        assert_eq!(
            serde_json::from_str::<Sealed>(&right).unwrap(),
            sealed_to(&key(1))
        );
        assert!(
            serde_json::from_str::<Sealed>(r#"{"sealed":""}"#).is_ok(),
            "the right shape that does not open"
        );
        for text in [
            r#""canary-7f3a""#,
            r#"{"sealed":"canary-7f3a"}"#,
            r#"{"sealed":"AAA"}"#,
            r#"{"sealed":"AAB="}"#,
            r#"{"sealed":"AA-_"}"#,
            r#"{"sealed":"AAAA","canary-7f3a":1}"#,
            r#"{"canary-7f3a":1,"sealed":"AAAA"}"#,
            r#"{"canary-7f3a":"AAAA"}"#,
            r#"{"sealed":{"canary-7f3a":1}}"#,
            r#"{"sealed":["canary-7f3a"]}"#,
            r#"{"sealed":73737}"#,
            r#"{"sealed":null}"#,
            r#"{"Sealed":"AAAA"}"#,
            r#"["AAAA"]"#,
            "{}",
            "null",
            "true",
            "73737",
            "-73737",
            "7.3737",
        ] {
            for error in [
                serde_json::from_str::<Sealed>(text)
                    .map_err(|error| error.to_string())
                    .unwrap_err(),
                crate::json::parse::<Sealed>(text.as_bytes())
                    .map_err(|error| error.to_string())
                    .unwrap_err(),
            ] {
                assert!(
                    !error.contains("7f3a") && !error.contains("737"),
                    "{text} is repeated: {error}"
                );
            }
        }
    }

    #[test]
    fn a_secret_in_clear_is_found_behind_another_mistake_seal_2() {
        const PLACES: SecretPlaces = &[&["a", "b"], &["list", "*", "secrets", "*"]];
        for (document, field) in [
            (r#"{"a":{"b":"clear"}}"#, Some("a.b")),
            (r#"{"a":{"b":null}}"#, Some("a.b")),
            (
                r#"{"a":{"b":{"sealed":"AAAA"}},"list":[{"secrets":{"x":{"sealed":"AAAA"},"y":1}}]}"#,
                Some("list[0].secrets.y"),
            ),
            (
                r#"{"list":[1,{"secrets":[]},{"secrets":{"x":""}}]}"#,
                Some("list[2].secrets.x"),
            ),
            (r#"{"a":{"b":{"sealed":"AAAA"}},"list":[]}"#, None),
            (r#"{"a":"clear"}"#, None),
            ("{}", None),
            ("[]", None),
        ] {
            let found = first_in_clear(&serde_json::from_str(document).unwrap(), PLACES);
            assert_eq!(found.as_deref(), field, "{document}");
        }
    }

    /// The seven low-order encodings that libsodium lists, each with and without the bit that X25519 ignores.
    fn low_order() -> Vec<[u8; 32]> {
        let order_8 = |text: &str| {
            let mut bytes = [0; 32];
            assert!(crate::hash::read_hex(text, &mut bytes));
            bytes
        };
        let near_p = |first: u8| {
            let mut bytes = [0xff; 32];
            (bytes[0], bytes[31]) = (first, 0x7f);
            bytes
        };
        let mut one = [0; 32];
        one[0] = 1;
        let listed = [
            [0; 32],
            one,
            order_8("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
            order_8("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
            near_p(0xec),
            near_p(0xed),
            near_p(0xee),
        ];
        listed
            .into_iter()
            .flat_map(|bytes| {
                let mut with_bit = bytes;
                with_bit[31] |= 0x80;
                [bytes, with_bit]
            })
            .collect()
    }

    #[test]
    fn a_low_order_ephemeral_key_is_refused_before_opening_seal_6() {
        for ephemeral in low_order() {
            // What such a box would be if its shared secret, zero, were taken: everybody can make it.
            let mut ciphertext = ephemeral.to_vec();
            ciphertext.extend([0; 32]);
            let sealed = Sealed::<SecretText>::from_bytes(ciphertext);
            assert_eq!(
                key(1).open(&sealed).unwrap_err(),
                Unopenable::LowOrder,
                "{ephemeral:02x?}"
            );
        }
    }

    #[test]
    fn weak_sealing_keys_are_refused_key_1() {
        for public in low_order() {
            assert_eq!(
                SealingPublicKey(public).checked(),
                Err(WeakKey::SmallOrder),
                "{public:02x?}"
            );
        }
        let mut not_canonical = key(1).public();
        not_canonical.0[31] |= 0x80;
        assert_eq!(not_canonical.checked(), Err(WeakKey::NotCanonical));
        let mut nine = [0xff; 32]; // u = p + 9, the base point
        (nine[0], nine[31]) = (0xf6, 0x7f);
        assert_eq!(SealingPublicKey(nine).checked(), Err(WeakKey::NotCanonical));
        let mut two = [0; 32];
        two[0] = 2;
        assert_eq!(
            SealingPublicKey(two).checked(),
            Err(WeakKey::NotOnCurve),
            "u = 2 lies on the twist"
        );
        for seed in 0..50 {
            assert_eq!(key(seed).public().checked(), Ok(key(seed).public()));
        }
    }

    #[test]
    fn nothing_secret_prints_seal_4() {
        let opened = key(1).open(&sealed_to(&key(1))).unwrap();
        assert_eq!(format!("{opened:?}"), "Secret(redacted)");
        assert_eq!(format!("{:?}", sealed_to(&key(1))), "sealed, 59 bytes");
        let printed = format!("{:?}", key(7));
        assert!(
            printed.contains("redacted") && !printed.contains("7, 7") && !printed.contains("0707"),
            "{printed}"
        );
    }
}
