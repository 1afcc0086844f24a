//! Closed sets of labels, and tables over them.
//!
//! A label is a variant of an enum, never a string that somebody measured: so memory is fixed before the run begins,
//! and an agent's or operation's ID cannot become one. In memory a table is a plain array; in a file it is a map from
//! label to value that leaves out what is as at the start, in the order of the set.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// A member of a closed set.
pub trait Label: Copy + PartialEq + 'static {
    /// What the set is called in an error.
    const WHAT: &'static str;

    /// Every member, each at its [`index`](Self::index).
    fn all() -> &'static [Self];

    /// The place in [`all`](Self::all).
    fn index(self) -> usize;

    /// The name in files and on screens.
    fn label(self) -> &'static str;

    /// The member of that name.
    fn from_label(label: &str) -> Option<Self> {
        Self::all().iter().copied().find(|l| l.label() == label)
    }
}

/// One value for each member of a set.
#[derive(Clone, PartialEq, Eq)]
pub struct ByLabel<K, V> {
    values: Box<[V]>,
    labels: PhantomData<K>,
}

impl<K: Label, V> ByLabel<K, V> {
    /// Each label with its value, in the order of the set.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        K::all().iter().copied().zip(self.values.iter())
    }

    /// Each label with its value, in the order of the set.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        K::all().iter().copied().zip(self.values.iter_mut())
    }

    /// The values, in the order of the set.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.values.iter()
    }
}

impl<K: Label> ByLabel<K, u64> {
    /// Adds count by count.
    pub fn add(&mut self, other: &Self) {
        for (index, count) in counted(&other.values) {
            self.values[index] = self.values[index].saturating_add(count);
        }
    }

    /// Each label that was counted, and how often, in the order of the set.
    pub fn counted(&self) -> impl Iterator<Item = (K, u64)> {
        counted(&self.values).map(|(index, count)| (K::all()[index], count))
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.values.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// The places of a table that are not zero, with what they hold. Most are, so they are looked at by several.
pub(crate) fn counted<T: Copy + Default + PartialEq>(
    table: &[T],
) -> impl DoubleEndedIterator<Item = (usize, T)> {
    const TOGETHER: usize = 16;
    let is_counted = |count: &T| *count != T::default();
    let parts = table.chunks(TOGETHER).enumerate();
    parts
        .filter(move |(_, part)| {
            part.iter()
                .fold(false, |any, count| any | is_counted(count))
        })
        .flat_map(move |(number, part)| {
            let places = part.iter().copied().enumerate();
            let counted = places.filter(move |(_, count)| is_counted(count));
            counted.map(move |(place, count)| (number * TOGETHER + place, count))
        })
}

impl<K: Label, V: Default> Default for ByLabel<K, V> {
    fn default() -> Self {
        ByLabel {
            values: K::all().iter().map(|_| V::default()).collect(),
            labels: PhantomData,
        }
    }
}

impl<K: Label, V> Index<K> for ByLabel<K, V> {
    type Output = V;

    fn index(&self, label: K) -> &V {
        &self.values[label.index()]
    }
}

impl<K: Label, V> IndexMut<K> for ByLabel<K, V> {
    fn index_mut(&mut self, label: K) -> &mut V {
        &mut self.values[label.index()]
    }
}

impl<K: Label, V: Default> FromIterator<(K, V)> for ByLabel<K, V> {
    /// The last value of a label counts; a label that does not come is as at the start.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut table = ByLabel::default();
        for (label, value) in pairs {
            table[label] = value;
        }
        table
    }
}

impl<K: Label, V: fmt::Debug + Default + PartialEq> fmt::Debug for ByLabel<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = V::default();
        f.debug_map()
            .entries(
                self.iter()
                    .filter(|(_, value)| **value != start)
                    .map(|(label, value)| (label.label(), value)),
            )
            .finish()
    }
}

impl<K: Label, V: Serialize + Default + PartialEq> Serialize for ByLabel<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let start = V::default();
        let mut map = serializer.serialize_map(None)?;
        for (label, value) in self.iter().filter(|(_, value)| **value != start) {
            map.serialize_entry(label.label(), value)?;
        }
        map.end()
    }
}

impl<'de, K: Label, V: Deserialize<'de> + Default> Deserialize<'de> for ByLabel<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Label, V: Deserialize<'de> + Default> Visitor<'de> for Table<K, V> {
            type Value = ByLabel<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a map with a value for each {}", K::WHAT)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut table = ByLabel::default();
                while let Some(label) = map.next_key::<String>()? {
                    // Dropping it would lose what was counted under it, so a merge would no longer be exact.
                    let Some(label) = K::from_label(&label) else {
                        return Err(de::Error::custom(format_args!(
                            "unknown {} `{label:.80}`: the file is from a newer version",
                            K::WHAT
                        )));
                    };
                    table[label] = map.next_value()?;
                }
                Ok(table)
            }
        }

        deserializer.deserialize_map(Table(PhantomData))
    }
}

impl<K: Label, V: JsonSchema> JsonSchema for ByLabel<K, V> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("{}_by_{}", V::schema_name(), K::WHAT.replace(' ', "_")).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let labels: Vec<&str> = K::all().iter().map(|l| l.label()).collect();
        json_schema!({
            "type": "object",
            "propertyNames": { "enum": labels },
            "additionalProperties": generator.subschema_for::<V>(),
        })
    }
}

/// Writes a label as its name and reads it again, for use in `#[serde(with = "…")]`.
pub mod as_name {
    use serde::de::{self, Deserialize, Deserializer};
    use serde::ser::Serializer;

    use super::Label;

    /// Writes the name.
    ///
    /// # Errors
    /// The serialiser's own.
    pub fn serialize<K: Label, S: Serializer>(label: &K, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(label.label())
    }

    /// Reads the name.
    ///
    /// # Errors
    /// A name that is not in the set.
    pub fn deserialize<'de, K: Label, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<K, D::Error> {
        let name = String::deserialize(deserializer)?;
        K::from_label(&name)
            .ok_or_else(|| de::Error::custom(format_args!("unknown {} `{name:.80}`", K::WHAT)))
    }
}

/// Declares a closed set with its names: an enum, its [`Label`], serde and schema as that name.
macro_rules! labels {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident as $what:literal { $( $(#[$vmeta:meta])* $variant:ident = $label:literal ),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name { $( $(#[$vmeta])* $variant ),+ }

        impl $name {
            /// Every member, in order.
            pub const ALL: &'static [$name] = &[ $( $name::$variant ),+ ];
        }

        impl $crate::label::Label for $name {
            const WHAT: &'static str = $what;

            fn all() -> &'static [Self] {
                Self::ALL
            }

            fn index(self) -> usize {
                self as usize
            }

            fn label(self) -> &'static str {
                match self { $( $name::$variant => $label ),+ }
            }
        }

        $crate::label::named!($name);
    };
}

/// Display, serde and schema of a [`Label`] type as its name.
macro_rules! named {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::label::Label::label(*self))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::label::as_name::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::label::as_name::deserialize(deserializer)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let labels: Vec<&str> = <$name as $crate::label::Label>::all()
                    .iter()
                    .map(|l| $crate::label::Label::label(*l))
                    .collect();
                schemars::json_schema!({ "enum": labels })
            }
        }
    };
}

pub(crate) use {labels, named};
