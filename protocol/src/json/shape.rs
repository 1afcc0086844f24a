//! The shape step: serde_json behind a deserializer that takes an object for an object and nothing else, and that knows
//! where it is when something is refused.
//!
//! serde's derived readers also take an array for a struct, member by member; [`Strict`] asks the parser for a map instead
//! wherever a struct is due. The path is one string that grows and shrinks with the reading, so a right document costs
//! a few copied names and no allocation a member.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, MapAccess,
    SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use super::{JsonRefusal, push_index, push_member};

/// Reads a text that the syntax step has passed.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, JsonRefusal> {
    let mut path = String::new();
    let mut parser = serde_json::Deserializer::from_str(text);
    // The syntax step has held the depth to its limit already.
    match T::deserialize(Strict {
        inner: &mut parser,
        path: &mut path,
    }) {
        Ok(value) => Ok(value),
        Err(error) => Err(JsonRefusal::Shape {
            path,
            why: without_value(&error),
        }),
    }
}

/// The whole number that the outermost object has under this name, if it is one. Stops reading where it finds it.
pub(super) fn outer_number(text: &str, name: &str) -> Option<i128> {
    let mut found = None;
    let outer = OuterNumber {
        name,
        found: &mut found,
    };
    // Stopping early is an error to the parser; what was found before it counts.
    let _stopped = serde_json::Deserializer::from_str(text).deserialize_map(outer);
    found
}

struct OuterNumber<'a> {
    name: &'a str,
    found: &'a mut Option<i128>,
}

impl<'de> Visitor<'de> for OuterNumber<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            if name == self.name {
                *self.found = whole_number(members.next_value::<&RawValue>()?.get());
                return Ok(());
            }
            members.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Reads a whole number of any size; one too large to hold becomes the largest, or the smallest.
fn whole_number(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let too_large = if text.starts_with('-') {
        i128::MIN
    } else {
        i128::MAX
    };
    whole.then(|| text.parse().unwrap_or(too_large))
}

/// serde_json's message without its line and column (they count from the outermost value's text, which a caller may have
/// cut out of a larger one) and without the value that was refused for its type: it may be a secret.
fn without_value(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = match message.rfind(" at line ") {
        Some(end) => &message[..end],
        None => &message,
    };
    for kind in ["invalid type: string ", "invalid value: string "] {
        if let (true, Some(expected)) = (message.starts_with(kind), message.rfind(", expected ")) {
            return format!("{}{}", kind.trim_end(), &message[expected..]);
        }
    }
    message.to_owned()
}

/// A deserializer, seed, visitor or access of the parser, with the path of where it is.
struct Strict<'p, T> {
    inner: T,
    path: &'p mut String,
}

macro_rules! pass_on {
    ($($method:ident($($argument:ident: $Kind:ty),*))+) => {
        $(fn $method<V: Visitor<'de>>(self $(, $argument: $Kind)*, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($argument,)* Strict { inner: visitor, path: self.path })
        })+
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<'_, D> {
    type Error = D::Error;

    pass_on! {
        deserialize_any() deserialize_bool()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64() deserialize_char() deserialize_str() deserialize_string()
        deserialize_bytes() deserialize_byte_buf() deserialize_option() deserialize_unit()
        deserialize_unit_struct(name: &'static str) deserialize_seq() deserialize_tuple(length: usize)
        deserialize_tuple_struct(name: &'static str, length: usize) deserialize_map()
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
        deserialize_identifier() deserialize_ignored_any()
    }

    /// The point of it all (KEY-2): a map-only reading where the parser would take an array as well.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _members: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        if name == RAW_VALUE {
            // The parser hands out raw text under this name; its visitor must reach it unwrapped.
            self.inner.deserialize_newtype_struct(name, visitor)
        } else {
            self.inner.deserialize_newtype_struct(
                name,
                Strict {
                    inner: visitor,
                    path: self.path,
                },
            )
        }
    }
}

/// The name by which serde_json's `RawValue` asks its own parser for the raw text.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

macro_rules! visit_on {
    ($($method:ident($Kind:ty))+) => {
        $(fn $method<E: serde::de::Error>(self, value: $Kind) -> Result<V::Value, E> {
            self.inner.$method(value)
        })+
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<'_, V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }

    visit_on! {
        visit_bool(bool) visit_i64(i64) visit_i128(i128) visit_u64(u64) visit_u128(u128) visit_f64(f64)
        visit_char(char) visit_str(&str) visit_borrowed_str(&'de str) visit_string(String)
        visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Strict {
            inner: value,
            path: self.path,
        })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Strict {
            inner: value,
            path: self.path,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(Items {
            inner: items,
            path: self.path,
            next: 0,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Members {
            inner: members,
            path: self.path,
            name: String::new(),
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<V::Value, A::Error> {
        // The wire's enums are words and read as strings; serde's form of an enum would also take an object for a word.
        Err(A::Error::custom("an enum of this protocol is a string"))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Strict {
            inner: deserializer,
            path: self.path,
        })
    }
}

/// The items of an array.
struct Items<'p, A> {
    inner: A,
    path: &'p mut String,
    next: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let length = self.path.len();
        push_index(self.path, self.next);
        let item = self.inner.next_element_seed(Strict {
            inner: seed,
            path: self.path,
        })?;
        self.path.truncate(length);
        self.next += 1;
        Ok(item)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// The members of an object.
struct Members<'p, A> {
    inner: A,
    path: &'p mut String,
    /// The name of the member whose value comes next.
    name: String,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_key_seed(NameSeed {
            seed,
            name: &mut self.name,
        })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let length = self.path.len();
        push_member(self.path, &self.name);
        let value = self.inner.next_value_seed(Strict {
            inner: seed,
            path: self.path,
        })?;
        self.path.truncate(length);
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// Reads a member's name, keeps it for the path, and hands it to the real seed.
struct NameSeed<'n, S> {
    seed: S,
    name: &'n mut String,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for NameSeed<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for NameSeed<'_, S> {
    type Value = S::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a member's name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<S::Value, E> {
        self.name.clear();
        self.name.push_str(name);
        self.seed.deserialize(StrDeserializer::new(name))
    }
}
