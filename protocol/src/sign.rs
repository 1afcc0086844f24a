//! Signing: who says it (SIGN-2, SIGN-7, SIGN-8), and which keys are too weak to say anything (KEY-1).
//!
//! What is signed is [`canonical`]. A key is parsed once, when it is registered or read, and kept as [`VerifyingKey`];
//! a weak one does not become one. Which request needs a signature, and when a timestamp is too old, is not decided here.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::Signer as _;
use zeroize::Zeroizing;

use crate::dialect::Dialect;
use crate::hash::Sha256Hex;
use crate::id::KeyId;
use crate::time::UnixSeconds;
use crate::words::serde_by_text;

/// The bytes that a request's signature is over (SIGN-2):
/// `METHOD "\n" PATH "\n" TIMESTAMP "\n" HEX(SHA256(BODY))`, no newline at the end, after the dialect's prefix.
///
/// `path` is what follows the configured base URL, with its query if there is one; a prefix inside the base URL is not
/// part of it.
pub fn canonical(
    dialect: &Dialect,
    method: &str,
    path: &str,
    at: UnixSeconds,
    body_hash: &Sha256Hex,
) -> Vec<u8> {
    let prefix = dialect.signed_prefix();
    let mut bytes = Vec::with_capacity(prefix.len() + method.len() + path.len() + 20 + 3 + 64);
    bytes.extend_from_slice(prefix.as_bytes());
    bytes.extend_from_slice(method.as_bytes());
    bytes.push(b'\n');
    bytes.extend_from_slice(path.as_bytes());
    bytes.push(b'\n');
    bytes.extend_from_slice(at.to_string().as_bytes());
    bytes.push(b'\n');
    bytes.extend_from_slice(&body_hash.hex());
    bytes
}

/// What the new key signs at a rotation, so that nobody registers a key that they do not hold: the old signing public
/// key and then the new one.
pub fn rotation_proof_bytes(old: &SigningPublicKey, new: &SigningPublicKey) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(&old.0);
    bytes[32..].copy_from_slice(&new.0);
    bytes
}

/// An Ed25519 private key. Wiped when dropped; `Debug` shows the ID of its public key and nothing else.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// The key of a 32-byte seed (RFC 8032, 5.1.5).
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let seed = Zeroizing::new(seed);
        Self(ed25519_dalek::SigningKey::from_bytes(&seed))
    }

    /// The seed, for the file that keeps it (FILE-5).
    pub fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// The public half.
    pub fn public(&self) -> SigningPublicKey {
        SigningPublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs; the same bytes always get the same signature (RFC 8032).
    pub fn sign(&self, bytes: &[u8]) -> Signature {
        Signature(self.0.sign(bytes).to_bytes())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "SigningKey({}, private half redacted)",
            self.public().key_id()
        )
    }
}

/// The 32 bytes of an Ed25519 public key as they travel; whether they are a key is [`VerifyingKey::parse`]'s question.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SigningPublicKey(pub [u8; 32]);

impl SigningPublicKey {
    /// The key's ID.
    pub fn key_id(&self) -> KeyId {
        KeyId::of(&self.0)
    }
}

/// A public key that must not count (KEY-1), with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WeakKey {
    /// No point of the curve has this encoding.
    #[error("the 32 bytes are no point of the curve")]
    NotOnCurve,
    /// The point has another, shorter spelling; accepting both would make one key look like two.
    #[error("the 32 bytes are not the canonical encoding of their point")]
    NotCanonical,
    /// A point of small order: a signature or a shared secret of such a key proves nothing and hides nothing.
    #[error("the key is of small order")]
    SmallOrder,
}

/// A public key that was found canonical, on the curve and not of small order (KEY-1, SIGN-7). Keep it parsed: a
/// request should pay for its verification only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VerifyingKey(ed25519_dalek::VerifyingKey);

impl VerifyingKey {
    /// Parses a public key and refuses a weak one (KEY-1).
    pub fn parse(public: &SigningPublicKey) -> Result<Self, WeakKey> {
        let key =
            ed25519_dalek::VerifyingKey::from_bytes(&public.0).map_err(|_| WeakKey::NotOnCurve)?;
        if key.is_weak() {
            return Err(WeakKey::SmallOrder);
        }
        if key.to_edwards().compress().to_bytes() != public.0 {
            return Err(WeakKey::NotCanonical);
        }
        Ok(Self(key))
    }

    /// Whether the signature is this key's over these bytes, strictly (SIGN-7): s < L, R canonical and not of small
    /// order, the equation without the cofactor.
    pub fn verify(&self, bytes: &[u8], signature: &Signature) -> bool {
        self.0
            .verify_strict(bytes, &ed25519_dalek::Signature::from_bytes(&signature.0))
            .is_ok()
    }

    /// The key as it travels.
    pub fn public(&self) -> SigningPublicKey {
        SigningPublicKey(self.0.to_bytes())
    }

    /// The key's ID.
    pub fn key_id(&self) -> KeyId {
        self.public().key_id()
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "VerifyingKey({})", self.public())
    }
}

/// The 64 bytes of a signature, spelled as canonical base64 with padding (SIGN-3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(pub [u8; 64]);

/// A text that is not the canonical base64 of so many bytes (WIRE-6, KEY-2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is refused: it must be {length} bytes in standard base64 with padding")]
pub struct Base64Refused {
    /// The text, cut at 80 characters.
    pub value: String,
    /// How many bytes were due.
    pub length: usize,
}

/// Decodes canonical base64 of exactly `N` bytes.
pub(crate) fn read_base64<const N: usize>(text: &str) -> Result<[u8; N], Base64Refused> {
    BASE64
        .decode(text)
        .ok()
        .and_then(|bytes| <[u8; N]>::try_from(bytes).ok())
        .ok_or_else(|| Base64Refused {
            value: crate::id::shown(text).to_owned(),
            length: N,
        })
}

macro_rules! base64_bytes {
    ($Name:ident, $length:literal, $expecting:literal, $pattern:literal) => {
        impl FromStr for $Name {
            type Err = Base64Refused;

            fn from_str(text: &str) -> Result<Self, Base64Refused> {
                read_base64::<$length>(text).map(Self)
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                base64::display::Base64Display::new(&self.0, &BASE64).fmt(formatter)
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}({self})", stringify!($Name))
            }
        }

        serde_by_text!($Name, $expecting);
        crate::words::schema!($Name, schemars::json_schema!({
            "description": concat!("Base64 of ", $length, " bytes."), "type": "string", "pattern": $pattern,
        }));
    };
}

base64_bytes!(
    SigningPublicKey,
    32,
    "a signing key as base64 of 32 bytes",
    "^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$"
);
base64_bytes!(
    Signature,
    64,
    "a signature as base64 of 64 bytes",
    "^[A-Za-z0-9+/]{85}[AQgw]==$"
);
pub(crate) use base64_bytes;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed([seed; 32])
    }

    fn read<T: FromStr<Err: fmt::Debug>>(text: &str) -> T {
        text.parse().expect("base64")
    }

    #[test]
    fn the_signed_bytes_are_four_lines_sign_2() {
        let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let at = UnixSeconds(1_796_000_523);
        let signed = canonical(
            &Dialect::default(),
            "GET",
            "/agent/v1/releases/1/manifest?",
            at,
            &Sha256Hex::of(b""),
        );
        let expected = format!("GET\n/agent/v1/releases/1/manifest?\n1796000523\n{of_nothing}");
        assert_eq!(String::from_utf8(signed).unwrap(), expected);

        let dialect = serde_json::from_str(r#"{"signed_prefix": "pbx-v1\n"}"#).unwrap();
        let signed = canonical(&dialect, "POST", "/x", UnixSeconds(0), &Sha256Hex::of(b""));
        assert_eq!(
            String::from_utf8(signed).unwrap(),
            format!("pbx-v1\nPOST\n/x\n0\n{of_nothing}")
        );
    }

    #[test]
    fn a_signature_is_of_its_key_and_its_bytes_only() {
        let (mine, other) = (key(1), key(2));
        let signature = mine.sign(b"hello");
        let verify = |by: &SigningKey, bytes: &[u8]| {
            VerifyingKey::parse(&by.public())
                .unwrap()
                .verify(bytes, &signature)
        };
        assert!(verify(&mine, b"hello"));
        assert!(!verify(&other, b"hello"));
        assert!(!verify(&mine, b"hello "));
    }

    /// L, the order of the group, little-endian.
    const L: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];

    #[test]
    fn verification_is_strict_sign_7() {
        let verifying = VerifyingKey::parse(&key(1).public()).unwrap();
        let right = key(1).sign(b"hello");

        let mut s_plus_l = right;
        let mut carry = 0;
        for (byte, l) in s_plus_l.0[32..].iter_mut().zip(L) {
            let sum = u16::from(*byte) + u16::from(l) + carry;
            *byte = (sum & 0xff) as u8;
            carry = sum >> 8;
        }
        assert!(!verifying.verify(b"hello", &s_plus_l), "s of L or more");

        // A signature by hand with R the neutral element: s = k·a satisfies the equation, and only strictness refuses it.
        use curve25519_dalek::scalar::Scalar;
        use sha2::Digest as _;
        let a = key(1).0.to_scalar();
        let by_hand = |r: [u8; 32]| {
            let mut hash = sha2::Sha512::new();
            hash.update(r);
            hash.update(key(1).public().0);
            hash.update(b"hello");
            let s = Scalar::from_bytes_mod_order_wide(&hash.finalize().into()) * a;
            let mut signature = [0; 64];
            signature[..32].copy_from_slice(&r);
            signature[32..].copy_from_slice(s.as_bytes());
            signature
        };
        let mut neutral = [0; 32];
        neutral[0] = 1;
        let small_order_r = by_hand(neutral);
        let loose = ed25519_dalek::Verifier::verify(
            &verifying.0,
            b"hello",
            &ed25519_dalek::Signature::from_bytes(&small_order_r),
        );
        assert!(loose.is_ok(), "the equation itself holds");
        assert!(
            !verifying.verify(b"hello", &Signature(small_order_r)),
            "R of small order"
        );

        let mut not_canonical = [0xff; 32]; // y = p + 1 spells the neutral element once more
        (not_canonical[0], not_canonical[31]) = (0xee, 0x7f);
        assert!(
            !verifying.verify(b"hello", &Signature(by_hand(not_canonical))),
            "R not canonical"
        );
    }

    #[test]
    fn weak_keys_are_refused_key_1_sign_7() {
        let spelled = |first: u8, middle: u8, last: u8| {
            let mut bytes = [middle; 32];
            (bytes[0], bytes[31]) = (first, last);
            SigningPublicKey(bytes)
        };
        for (public, weak) in [
            (spelled(1, 0, 0), Some(WeakKey::SmallOrder)), // order 1
            (spelled(0xec, 0xff, 0x7f), Some(WeakKey::SmallOrder)), // order 2
            (spelled(0, 0, 0), Some(WeakKey::SmallOrder)), // order 4
            (spelled(0, 0, 0x80), Some(WeakKey::SmallOrder)), // order 4
            (spelled(0xee, 0xff, 0x7f), Some(WeakKey::SmallOrder)), // order 1, y = p + 1
            (spelled(2, 0, 0), Some(WeakKey::NotOnCurve)),
            (spelled(0xf0, 0xff, 0x7f), Some(WeakKey::NotCanonical)), // y = p + 3
            (key(1).public(), None),
        ] {
            assert_eq!(VerifyingKey::parse(&public).err(), weak, "{public}");
        }
    }

    #[test]
    fn base64_has_one_spelling_wire_6_key_2() {
        let right = "eF7G5TfdBrKgq2QmI+yRyE/HFa05L4Uk7tU7RKoe9Ac=";
        assert_eq!(read::<SigningPublicKey>(right).to_string(), right);
        for text in [
            &right[..43],                                   // no padding
            "eF7G5TfdBrKgq2QmI+yRyE/HFa05L4Uk7tU7RKoe9Ad=", // bits beyond the last byte
            "eF7G5TfdBrKgq2QmI-yRyE_HFa05L4Uk7tU7RKoe9Ac=", // the URL's alphabet
            " eF7G5TfdBrKgq2QmI+yRyE/HFa05L4Uk7tU7RKoe9Ac=",
            "eF7G5TfdBrKgq2QmI+yRyE/HFa05L4Uk7tU7RKoe9AcA", // 33 bytes
            "eF7G5TfdBrKgq2QmI+yRyE/HFa05L4Uk7tU7RKoe9A==", // 31 bytes
            "",
        ] {
            assert!(text.parse::<SigningPublicKey>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_rotations_proof_is_over_the_old_key_and_then_the_new() {
        let bytes = rotation_proof_bytes(&key(1).public(), &key(2).public());
        assert_eq!(bytes[..32], key(1).public().0);
        assert_eq!(bytes[32..], key(2).public().0);
    }

    #[test]
    fn a_private_key_does_not_print() {
        let seed_as_text = format!("{:?}", [7_u8; 32]);
        let printed = format!("{:?}", key(7));
        assert!(printed.contains(&key(7).public().key_id().to_string()));
        assert!(
            !printed.contains(&seed_as_text) && !printed.contains("070707"),
            "{printed}"
        );
    }
}
