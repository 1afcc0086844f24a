//! Enums whose values are words on the wire.
//!
//! serde's derive would also take `{"active": null}` for the word `active`; these take a string and nothing else.
//! `closed_words!` refuses an unknown word, `open_words!` keeps it in `Unknown` (WIRE-5).

use std::fmt;

/// A word that is not in the list that its place allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {word:?} is unknown; it is one of {known}", word = crate::id::shown(word))]
pub struct UnknownWord {
    /// What the word was to name.
    pub what: &'static str,
    /// The word as it came.
    pub word: String,
    /// The words allowed, separated by commas.
    pub known: String,
}

/// Reads a string and hands it to `read`; anything else is refused, with `expecting` as what was due.
pub(crate) struct WordVisitor<T, F: FnOnce(&str) -> Result<T, E>, E: fmt::Display> {
    pub(crate) expecting: &'static str,
    pub(crate) read: F,
}

impl<T, F: FnOnce(&str) -> Result<T, E>, E: fmt::Display> serde::de::Visitor<'_>
    for WordVisitor<T, F, E>
{
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expecting)
    }

    fn visit_str<D: serde::de::Error>(self, word: &str) -> Result<T, D> {
        (self.read)(word).map_err(D::custom)
    }
}

/// Serialize as `Display`, Deserialize by `FromStr`, of a string only.
macro_rules! serde_by_text {
    ($Name:ty, $expecting:literal) => {
        impl serde::Serialize for $Name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $Name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str($crate::words::WordVisitor {
                    expecting: $expecting,
                    read: |text: &str| text.parse::<Self>(),
                })
            }
        }
    };
}

/// Standard base64 with padding, canonical, as a regular expression.
pub(crate) const BASE64_PATTERN: &str =
    "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// The JSON Schema of bytes that travel as base64.
pub(crate) fn base64_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"description": "Base64.", "type": "string", "pattern": BASE64_PATTERN})
}

/// A JSON Schema for a type whose serde is written by hand.
macro_rules! schema {
    ($Name:ident, $schema:expr) => {
        impl schemars::JsonSchema for $Name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}

/// What both kinds of word enums share.
macro_rules! words_serde {
    ($Name:ident, $what:expr) => {
        impl std::fmt::Display for $Name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $Name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $Name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str($crate::words::WordVisitor {
                    expecting: $what,
                    read: |word: &str| word.parse::<Self>(),
                })
            }
        }
    };
}

/// An enum of words; another word is refused.
macro_rules! closed_words {
    ($(#[$meta:meta])* pub enum $Name:ident ($what:literal) { $($(#[$about:meta])* $Variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Name { $($(#[$about])* $Variant,)+ }

        impl $Name {
            /// Every value, in the order of the protocol's table.
            pub const ALL: &'static [Self] = &[$(Self::$Variant,)+];

            /// The word on the wire.
            pub const fn as_str(&self) -> &'static str {
                match self { $(Self::$Variant => $word,)+ }
            }
        }

        impl std::str::FromStr for $Name {
            type Err = $crate::words::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($word => Ok(Self::$Variant),)+
                    _ => Err($crate::words::UnknownWord {
                        what: $what,
                        word: word.to_owned(),
                        known: [$($word,)+].join(", "),
                    }),
                }
            }
        }

        $crate::words::words_serde!($Name, $what);
        $crate::words::schema!($Name, schemars::json_schema!({
            "description": concat!("A word: ", $what, "."), "type": "string", "enum": [$($word,)+],
        }));
    };
}

/// An enum of words that keeps an unknown one as it came (WIRE-5).
macro_rules! open_words {
    ($(#[$meta:meta])* pub enum $Name:ident ($what:literal) { $($(#[$about:meta])* $Variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Name {
            $($(#[$about])* $Variant,)+
            /// A word that this version does not know, as it came (WIRE-5).
            Unknown(String),
        }

        impl $Name {
            /// Every known value, in the order of the protocol's table.
            pub const KNOWN: &'static [Self] = &[$(Self::$Variant,)+];

            /// The word on the wire.
            pub fn as_str(&self) -> &str {
                match self { $(Self::$Variant => $word,)+ Self::Unknown(word) => word }
            }
        }

        impl From<&str> for $Name {
            fn from(word: &str) -> Self {
                match word { $($word => Self::$Variant,)+ _ => Self::Unknown(word.to_owned()) }
            }
        }

        impl std::str::FromStr for $Name {
            type Err = std::convert::Infallible;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                Ok(Self::from(word))
            }
        }

        $crate::words::words_serde!($Name, $what);
        $crate::words::schema!($Name, schemars::json_schema!({
            "description": concat!("A word: ", $what, ". Another one than these may come (WIRE-5)."),
            "type": "string", "examples": [$($word,)+],
        }));
    };
}
pub(crate) use {closed_words, open_words, schema, serde_by_text, words_serde};
