//! SHA-256 and its spelling: exactly 64 lower-case hex digits (WIRE-6, KEY-2).

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::words::{schema, serde_by_text};

/// A SHA-256, spelled as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Hex([u8; 32]);

/// A text that is not 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no SHA-256: it must be exactly 64 lower-case hex digits")]
pub struct HashRefused(pub String);

impl Sha256Hex {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Takes a hash computed elsewhere.
    pub const fn from_bytes(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// The 32 bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hex digits, as ASCII.
    pub fn hex(&self) -> [u8; 64] {
        let mut hex = [0; 64];
        write_hex(&self.0, &mut hex);
        hex
    }
}

impl FromStr for Sha256Hex {
    type Err = HashRefused;

    fn from_str(text: &str) -> Result<Self, HashRefused> {
        let mut hash = [0; 32];
        match read_hex(text, &mut hash) {
            true => Ok(Self(hash)),
            false => Err(HashRefused(crate::id::shown(text).to_owned())),
        }
    }
}

impl fmt::Display for Sha256Hex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(ascii(&self.hex()))
    }
}

impl fmt::Debug for Sha256Hex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Sha256Hex({self})")
    }
}

serde_by_text!(Sha256Hex, "a SHA-256 as 64 lower-case hex digits");
schema!(
    Sha256Hex,
    schemars::json_schema!({
        "description": "A SHA-256 in lower-case hex.", "type": "string", "pattern": "^[0-9a-f]{64}$",
    })
);

/// Writes bytes as lower-case hex, two digits a byte.
pub(crate) fn write_hex(bytes: &[u8], hex: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(hex.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// What was written byte by byte, as text.
pub(crate) fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("digits and punctuation are UTF-8")
}

/// Reads exactly `into.len()` bytes of lower-case hex; false when the text is anything else (KEY-2).
pub(crate) fn read_hex(text: &str, into: &mut [u8]) -> bool {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    text.len() == 2 * into.len()
        && text
            .as_bytes()
            .chunks_exact(2)
            .zip(into)
            .all(|(pair, byte)| match (digit(pair[0]), digit(pair[1])) {
                (Some(high), Some(low)) => {
                    *byte = high << 4 | low;
                    true
                }
                _ => false,
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_hash_has_one_spelling_wire_6_key_2() {
        let hash = Sha256Hex::of(b"");
        assert_eq!(hash.to_string(), OF_NOTHING);
        assert_eq!(hash.hex(), OF_NOTHING.as_bytes());
        assert_eq!(OF_NOTHING.parse(), Ok(hash));
        for text in [
            &OF_NOTHING.to_uppercase(),
            &OF_NOTHING[1..],
            &format!("{OF_NOTHING}0"),
            &OF_NOTHING.replace('e', "g"),
        ] {
            assert!(text.parse::<Sha256Hex>().is_err(), "{text}");
        }
    }
}
