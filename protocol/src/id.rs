//! Names and numbers that identify things; each is checked when it is made and needs no check afterwards.
//!
//! Two alphabets: IDs that the portal gives (`[A-Za-z0-9_-]{1,64}`, FILE-8, SIGN-7), and names that become a path or
//! an object's name (`[A-Za-z0-9][A-Za-z0-9._-]{0,62}` without `..`, FILE-18). Cloning one costs a counter, not a copy.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::words::{closed_words, schema, serde_by_text};

/// A text that is no ID or name of its kind. Names the value (at most 80 characters of it) and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} is refused: it must be {alphabet}")]
pub struct IdRefused {
    /// What the text was to name: `agent ID`, `release version` …
    pub what: &'static str,
    /// The text, cut at 80 characters.
    pub value: String,
    /// What is allowed.
    pub alphabet: &'static str,
}

/// The alphabet of IDs that the portal gives (FILE-8, SIGN-7).
const ID_ALPHABET: &str = "1 to 64 of A-Z a-z 0-9 _ -";
/// The alphabet of names that become a path or an object's name (FILE-18).
const NAME_ALPHABET: &str =
    "1 to 63 of A-Z a-z 0-9 . _ -, beginning with a letter or digit, without \"..\"";
/// The alphabet of a snapshot's name: FILE-18's, but longer, because k3s appends node and time to the name it is given.
const SNAPSHOT_ALPHABET: &str =
    "1 to 200 of A-Z a-z 0-9 . _ -, beginning with a letter or digit, without \"..\"";

/// The first 80 characters of a value, for an error's text.
pub(crate) fn shown(value: &str) -> &str {
    match value.char_indices().nth(80) {
        Some((end, _)) => &value[..end],
        None => value,
    }
}

/// [`ID_ALPHABET`] as a regular expression.
const ID_PATTERN: &str = "^[A-Za-z0-9_-]{1,64}$";
/// [`NAME_ALPHABET`] as a regular expression, but for `..`.
const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$";
/// [`SNAPSHOT_ALPHABET`] as a regular expression, but for `..`.
const SNAPSHOT_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$";

fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn is_name_of(text: &str, length_max: usize) -> bool {
    (1..=length_max).contains(&text.len())
        && text.as_bytes()[0].is_ascii_alphanumeric()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && !text.contains("..")
}

pub(crate) fn is_name(text: &str) -> bool {
    is_name_of(text, 63)
}

fn is_snapshot_name(text: &str) -> bool {
    is_name_of(text, 200)
}

macro_rules! text_newtype {
    ($(#[$meta:meta])* $Name:ident, $what:literal, $check:ident, $alphabet:ident, $pattern:ident) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $Name(Arc<str>);

        impl $Name {
            /// Checks and takes a text; an error names it and what is allowed.
            pub fn new(text: impl AsRef<str>) -> Result<Self, IdRefused> {
                let text = text.as_ref();
                if $check(text) {
                    Ok(Self(Arc::from(text)))
                } else {
                    Err(IdRefused { what: $what, value: shown(text).to_owned(), alphabet: $alphabet })
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $Name {
            type Err = IdRefused;

            fn from_str(text: &str) -> Result<Self, IdRefused> {
                Self::new(text)
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(&self.0)
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}({})", stringify!($Name), self.0)
            }
        }

        impl AsRef<str> for $Name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $Name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $Name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $Name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer
                    .deserialize_str(crate::words::WordVisitor { expecting: $what, read: |text: &str| Self::new(text) })
            }
        }

        schema!($Name, json_schema!({
            "description": format!("The {}: {}.", $what, $alphabet), "type": "string", "pattern": $pattern,
            "not": {"pattern": "[.][.]"},
        }));
    };
}

text_newtype!(
    /// The ID that the portal gave an agent at its enrollment (SIGN-7).
    AgentId, "agent ID", is_id, ID_ALPHABET, ID_PATTERN
);
text_newtype!(
    /// The ID of an operation; it names a log file, so its alphabet is checked here (FILE-8).
    OperationId, "operation ID", is_id, ID_ALPHABET, ID_PATTERN
);
text_newtype!(
    /// The ID of a cluster.
    ClusterId, "cluster ID", is_id, ID_ALPHABET, ID_PATTERN
);
text_newtype!(
    /// The name of a node, as Kubernetes and the portal know it (FILE-18).
    NodeName, "node name", is_name, NAME_ALPHABET, NAME_PATTERN
);
text_newtype!(
    /// The version of a release: `2026.11.1` (FILE-18).
    ReleaseVersion, "release version", is_name, NAME_ALPHABET, NAME_PATTERN
);
text_newtype!(
    /// The version of an agent program: `1.4.0` (FILE-18).
    AgentVersion, "agent version", is_name, NAME_ALPHABET, NAME_PATTERN
);
text_newtype!(
    /// The name of an add-on (FILE-18).
    AddonName, "add-on name", is_name, NAME_ALPHABET, NAME_PATTERN
);
text_newtype!(
    /// The name of a boot entry: `pbx-2026.11.1-amd64.efi` (FILE-18).
    EntryName, "boot entry name", is_name, NAME_ALPHABET, NAME_PATTERN
);
text_newtype!(
    /// The name of a first-start manifest: `pbx-hcloud-ccm.yaml` (FILE-18).
    ManifestName, "manifest name", is_name, NAME_ALPHABET, NAME_PATTERN
);
text_newtype!(
    /// The name of a snapshot. FILE-18's alphabet, but up to 200 characters: k3s appends node and time to the name it
    /// is given, and the longer one comes back in `cluster.restore`.
    SnapshotName, "snapshot name", is_snapshot_name, SNAPSHOT_ALPHABET, SNAPSHOT_PATTERN
);

closed_words! {
    /// A processor architecture that programs and images are built for.
    pub enum Arch ("architecture") {
        /// 64-bit x86.
        Amd64 = "amd64",
        /// 64-bit ARM.
        Arm64 = "arm64",
    }
}

macro_rules! number_newtype {
    ($(#[$meta:meta])* $Name:ident) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $Name(pub u64);

        impl fmt::Display for $Name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

number_newtype!(
    /// The number of a server at the cloud provider (ENR-2).
    ServerId
);
number_newtype!(
    /// The number of a document; it only grows, 0 means none yet (SYNC-7).
    Generation
);

/// A public key's ID: the first 16 hex digits of SHA-256 of its 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 8]);

impl KeyId {
    /// The ID of a public key.
    pub fn of(public: &[u8; 32]) -> Self {
        let hash = crate::hash::Sha256Hex::of(public);
        let mut id = [0; 8];
        id.copy_from_slice(&hash.as_bytes()[..8]);
        Self(id)
    }
}

impl FromStr for KeyId {
    type Err = IdRefused;

    fn from_str(text: &str) -> Result<Self, IdRefused> {
        let mut id = [0; 8];
        match crate::hash::read_hex(text, &mut id) {
            true => Ok(Self(id)),
            false => Err(IdRefused {
                what: "key ID",
                value: shown(text).to_owned(),
                alphabet: "16 lower-case hex digits",
            }),
        }
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hex = [0; 16];
        crate::hash::write_hex(&self.0, &mut hex);
        formatter.pad(crate::hash::ascii(&hex))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyId({self})")
    }
}

serde_by_text!(KeyId, "a key ID");
schema!(
    KeyId,
    json_schema!({
        "description": "The ID of a public key: the first 16 hex digits of SHA-256 of its 32 bytes.",
        "type": "string", "pattern": "^[0-9a-f]{16}$",
    })
);

/// The token that lets a node enroll once. A secret: `Debug` shows nothing of it; it is written to the wire only, and
/// wiped when dropped. 1 to 512 characters, none of them a control character; what it says is the portal's affair.
#[derive(Clone, PartialEq, Eq)]
pub struct EnrollmentToken(Zeroizing<String>);

/// A text that cannot be an enrollment token. Does not repeat it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the enrollment token is refused: it must be 1 to 512 characters without control characters"
)]
pub struct TokenRefused;

impl EnrollmentToken {
    /// Checks and takes a text; the error does not repeat it.
    pub fn new(text: impl Into<String>) -> Result<Self, TokenRefused> {
        let text = Zeroizing::new(text.into());
        let fits = (1..=512).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        if fits {
            Ok(Self(text))
        } else {
            Err(TokenRefused)
        }
    }

    /// The token itself, for the wire and for the portal's look-up.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Hash for EnrollmentToken {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expose().hash(state);
    }
}

impl FromStr for EnrollmentToken {
    type Err = TokenRefused;

    fn from_str(text: &str) -> Result<Self, TokenRefused> {
        Self::new(text)
    }
}

impl fmt::Debug for EnrollmentToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("EnrollmentToken(redacted)")
    }
}

impl Serialize for EnrollmentToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EnrollmentToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(crate::words::WordVisitor {
            expecting: "a token",
            read: |text: &str| Self::new(text),
        })
    }
}

schema!(
    EnrollmentToken,
    json_schema!({
        "description": "An enrollment token, without control characters.",
        "type": "string", "minLength": 1, "maxLength": 512, "not": {"pattern": "[\\x00-\\x1f\\x7f-\\x9f]"},
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_portal_have_their_alphabet_file_8_sign_7() {
        let longest = "x".repeat(64);
        let too_long = "x".repeat(65);
        for (text, is_id) in [
            ("agt_01J9", true),
            ("-", true),
            (longest.as_str(), true),
            ("", false),
            (too_long.as_str(), false),
            ("op.1", false),
            ("../../etc/passwd", false),
            ("op/1", false),
            ("op 1", false),
            ("op\n", false),
            ("öp", false),
        ] {
            assert_eq!(
                OperationId::new(text).is_ok(),
                is_id,
                "{text:?} as an operation's ID"
            );
            assert_eq!(
                AgentId::new(text).is_ok(),
                is_id,
                "{text:?} as an agent's ID"
            );
        }
    }

    #[test]
    fn names_that_become_paths_have_theirs_file_18() {
        let longest = "x".repeat(63);
        let too_long = "x".repeat(64);
        for (text, is_name) in [
            ("2026.11.1", true),
            ("pbx-2026.11.1-amd64.efi", true),
            (longest.as_str(), true),
            ("", false),
            (too_long.as_str(), false),
            (".hidden", false),
            ("-rf", false),
            ("a..b", false),
            ("a/b", false),
            ("a\\b", false),
            ("a\0", false),
            ("ä", false),
        ] {
            let found = [
                ReleaseVersion::new(text).is_ok(),
                AgentVersion::new(text).is_ok(),
                NodeName::new(text).is_ok(),
                AddonName::new(text).is_ok(),
                EntryName::new(text).is_ok(),
                ManifestName::new(text).is_ok(),
                SnapshotName::new(text).is_ok() && text.len() <= 63,
            ];
            assert_eq!(found, [is_name; 7], "{text:?}");
        }
        assert!(SnapshotName::new("x".repeat(200)).is_ok());
        assert!(SnapshotName::new("x".repeat(201)).is_err());
    }

    #[test]
    fn an_error_shows_the_name_and_not_all_of_a_long_one() {
        let error = AddonName::new("../".repeat(1000)).unwrap_err();
        assert_eq!(error.value.len(), 80);
        let text = error.to_string();
        assert!(
            text.starts_with("add-on name \"../../") && text.contains("A-Z a-z 0-9"),
            "{text}"
        );
    }

    #[test]
    fn a_key_id_is_the_beginning_of_a_hash() {
        let id = KeyId::of(&[0; 32]);
        assert_eq!(id.to_string(), "66687aadf862bd77"); // of SHA-256 of 32 zero bytes
        assert_eq!("66687aadf862bd77".parse(), Ok(id));
        for text in [
            "66687AADF862BD77",
            "66687aadf862bd7",
            "66687aadf862bd770",
            "",
        ] {
            assert!(text.parse::<KeyId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_token_is_written_to_the_wire_and_nowhere_else() {
        let token = EnrollmentToken::new("pbxe_geheim").unwrap();
        assert!(!format!("{token:?}").contains("geheim"));
        assert_eq!(serde_json::to_string(&token).unwrap(), r#""pbxe_geheim""#);
        let error = serde_json::from_str::<EnrollmentToken>("\"pbxe_geheim\\u0000\"").unwrap_err();
        assert!(!error.to_string().contains("geheim"), "{error}");
    }
}
