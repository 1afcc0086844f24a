//! Signing: who says it (SIGN-1 to SIGN-7), and which keys are too weak to say anything (KEY-1).
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
pub fn canonical(dialect: &Dialect, method: &str, path: &str, at: UnixSeconds, body_hash: &Sha256Hex) -> Vec<u8> {
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
        write!(formatter, "SigningKey({}, private half redacted)", self.public().key_id())
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

/// A public key that was found canonical, on the curve and not of small order (KEY-1, SIGN-7). Keep it parsed: parsing
/// costs about a tenth of a verification.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VerifyingKey(ed25519_dalek::VerifyingKey);

impl VerifyingKey {
    /// Parses a public key and refuses a weak one (KEY-1).
    pub fn parse(public: &SigningPublicKey) -> Result<Self, WeakKey> {
        let key = ed25519_dalek::VerifyingKey::from_bytes(&public.0).map_err(|_| WeakKey::NotOnCurve)?;
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
        self.0.verify_strict(bytes, &ed25519_dalek::Signature::from_bytes(&signature.0)).is_ok()
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
        .ok_or_else(|| Base64Refused { value: crate::id::shown(text).to_owned(), length: N })
}

macro_rules! base64_bytes {
    ($Name:ident, $length:literal, $expecting:literal) => {
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
    };
}

base64_bytes!(SigningPublicKey, 32, "a signing key as base64 of 32 bytes");
base64_bytes!(Signature, 64, "a signature as base64 of 64 bytes");
pub(crate) use base64_bytes;
