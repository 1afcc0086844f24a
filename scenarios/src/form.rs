//! The form of a scenario file, declared once: the same declaration reads a value and describes it in JSON Schema.
//!
//! Reading goes on after a mistake. A member is a [`Slot`]: absent, bad (then its mistake is already told), or good with
//! its place; so what depends on a bad member is skipped instead of being told as a second mistake.
//!
//! Three macros declare a form: [`form!`] a table with its keys, [`choice!`] a table that has exactly one of several keys,
//! and in [`leaf`] the words and values that stand at the ends.

pub(crate) mod leaf;
pub(crate) mod syntax;

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::mistake::{Found, Origin, Suggestion, shown, suggest};

/// A type that has a form in the file.
pub(crate) trait Written: Sized {
    /// Reads one; tells every mistake in it and gives none if there was one that left nothing to give.
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self>;

    /// What it looks like, as JSON Schema.
    fn schema() -> Value;
}

/// A value in the file, with its place and its name.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    pub(crate) value: &'a DeValue<'a>,
    pub(crate) span: Range<usize>,
    pub(crate) path: String,
}

/// Collects what is wrong, and where things are.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) found: Vec<Found>,
    /// Where the parts of free values (parameters, options) stand: their names are only checked later.
    pub(crate) places: BTreeMap<String, Range<usize>>,
    /// Where secrets stand: they are not for a copy of the text.
    pub(crate) secrets: Vec<Range<usize>>,
}

/// A value and where it came from.
#[derive(Debug, Clone)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) path: String,
    pub(crate) origin: Origin,
}

/// A member that may be there.
#[derive(Debug, Clone)]
pub(crate) enum Slot<T> {
    /// Not written.
    Absent,
    /// Written, or due, and wrong: the mistake is told.
    Bad,
    /// Written and right.
    Good(At<T>),
}

impl Reader {
    /// Tells a mistake about a value in the file.
    pub(crate) fn wrong(
        &mut self,
        node: &Node<'_>,
        what: impl Into<String>,
        suggestion: Option<Suggestion>,
    ) {
        self.found.push(Found {
            origin: Origin::File(node.span.clone()),
            key: node.path.clone(),
            what: what.into(),
            suggestion,
        });
    }

    /// Tells a mistake about a value that was read and does not fit with others.
    pub(crate) fn unfit<T>(
        &mut self,
        at: &At<T>,
        what: impl Into<String>,
        suggestion: Option<Suggestion>,
    ) {
        self.found.push(Found {
            origin: at.origin.clone(),
            key: at.path.clone(),
            what: what.into(),
            suggestion,
        });
    }

    /// Tells that a value is of another type than is due.
    pub(crate) fn mistyped(&mut self, node: &Node<'_>, due: &str) {
        let what = format!("expected {due}, found {}", described(node.value));
        self.wrong(node, what, None);
    }
}

impl<T> At<T> {
    /// Where a mistake is mended that this and `other` make together: in the option, where `other` was set by one.
    pub(crate) fn set_with<O>(&self, other: &At<O>) -> At<()> {
        match &other.origin {
            Origin::Option(_) => At {
                origin: other.origin.clone(),
                ..self.place()
            },
            Origin::File(_) => self.place(),
        }
    }

    /// Its place alone.
    pub(crate) fn place(&self) -> At<()> {
        At {
            value: (),
            path: self.path.clone(),
            origin: self.origin.clone(),
        }
    }
}

impl<T> Slot<T> {
    /// The value, if it is good.
    pub(crate) fn good(&self) -> Option<&At<T>> {
        match self {
            Slot::Good(at) => Some(at),
            Slot::Absent | Slot::Bad => None,
        }
    }

    /// The value itself, if it is good.
    pub(crate) fn value(self) -> Option<T> {
        match self {
            Slot::Good(at) => Some(at.value),
            Slot::Absent | Slot::Bad => None,
        }
    }

    /// The value, or `default` if it is not written; none if it is bad.
    pub(crate) fn or(self, default: T) -> Option<T> {
        match self {
            Slot::Good(at) => Some(at.value),
            Slot::Absent => Some(default),
            Slot::Bad => None,
        }
    }

    /// The value if it is written; none if it is bad.
    pub(crate) fn optional(self) -> Option<Option<T>> {
        match self {
            Slot::Good(at) => Some(Some(at.value)),
            Slot::Absent => Some(None),
            Slot::Bad => None,
        }
    }

    /// Whether a mistake about it was told.
    pub(crate) fn is_bad(&self) -> bool {
        matches!(self, Slot::Bad)
    }
}

/// A table that is being read.
pub(crate) struct Table<'a> {
    node: Node<'a>,
    members: BTreeMap<&'a str, (Range<usize>, &'a Spanned<DeValue<'a>>)>,
}

impl<'a> Table<'a> {
    /// Opens a table; tells of every key in it that is not in `keys`.
    pub(crate) fn open(node: &Node<'a>, keys: &[&str], reader: &mut Reader) -> Option<Self> {
        let DeValue::Table(table) = node.value else {
            reader.mistyped(node, &format!("a table with {}", listed(keys)));
            return None;
        };
        let members = members(table);
        for (key, (span, _)) in &members {
            if !keys.contains(key) {
                reader.wrong(
                    &node.member_at(key, span.clone()),
                    "unknown key",
                    Some(suggest(key, keys.iter().copied())),
                );
            }
        }
        Some(Table {
            node: node.clone(),
            members,
        })
    }

    /// A member that must be there.
    pub(crate) fn required<T: Written>(&self, key: &str, reader: &mut Reader) -> Slot<T> {
        match self.optional(key, reader) {
            Slot::Absent => {
                let place = match self.node.path.is_empty() {
                    // The whole file has no place of its own; its first line is where one looks.
                    true => self.node.member_at(key, 0..0),
                    false => self.node.member_at(key, self.node.span.clone()),
                };
                reader.wrong(&place, "is missing", None);
                Slot::Bad
            }
            slot => slot,
        }
    }

    /// A member that may be left out.
    pub(crate) fn optional<T: Written>(&self, key: &str, reader: &mut Reader) -> Slot<T> {
        let Some((_, value)) = self.members.get(key) else {
            return Slot::Absent;
        };
        let node = self.node.member(key, value);
        match T::read(&node, reader) {
            Some(value) => Slot::Good(At {
                value,
                path: node.path,
                origin: Origin::File(node.span),
            }),
            None => Slot::Bad,
        }
    }

    /// Whether a key is written.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.members.contains_key(key)
    }
}

impl<'a> Node<'a> {
    /// A member of this table.
    pub(crate) fn member(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Node<'a> {
        Node {
            value: value.get_ref(),
            ..self.member_at(key, value.span())
        }
    }

    /// An element of this array.
    pub(crate) fn element(&self, at: usize, value: &'a Spanned<DeValue<'a>>) -> Node<'a> {
        Node {
            value: value.get_ref(),
            span: value.span(),
            path: format!("{}[{at}]", self.path),
        }
    }

    fn member_at(&self, key: &str, span: Range<usize>) -> Node<'a> {
        let key = shown(key);
        Node {
            value: self.value,
            span,
            path: match self.path.is_empty() {
                true => key,
                false => format!("{}.{key}", self.path),
            },
        }
    }
}

/// The members of a table by key, each with the place of its key.
pub(crate) fn members<'a>(
    table: &'a DeTable<'a>,
) -> BTreeMap<&'a str, (Range<usize>, &'a Spanned<DeValue<'a>>)> {
    table
        .iter()
        .map(|(key, value)| (key.get_ref().as_ref(), (key.span(), value)))
        .collect()
}

/// What a value is, for an error: its type, and itself where that is short and no table.
pub(crate) fn described(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(_) => "a string".to_owned(),
        DeValue::Integer(integer) => format!("the number {}", shown(&integer.to_string())),
        DeValue::Float(float) => format!("the number {}", shown(float.as_str())),
        DeValue::Boolean(truth) => format!("{truth}"),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// `a`, `a or b`, `a, b or c`, each between backticks.
pub(crate) fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Reads a choice that is written as a word: none if it is written otherwise, none inside if the word is not of `words`.
pub(crate) fn lone_word<'a>(
    node: &Node<'a>,
    words: &[&str],
    keys: &[&str],
    reader: &mut Reader,
) -> Option<Option<&'a str>> {
    let DeValue::String(text) = node.value else {
        return None;
    };
    let text = text.as_ref();
    if words.contains(&text) {
        return Some(Some(text));
    }
    if keys.contains(&text) {
        let write = Suggestion::Write(format!("{{ {text} = … }}"));
        reader.wrong(node, format!("`{text}` says too little alone"), Some(write));
    } else {
        let suggestion = suggest(text, words.iter().chain(keys).copied());
        let what = format!("unknown word `{}`", shown(text));
        reader.wrong(node, what, Some(suggestion));
    }
    Some(None)
}

/// Reads a choice that is written as a table with exactly one of `keys`, and gives the table and that key.
pub(crate) fn only_key<'a, 'k>(
    node: &Node<'a>,
    words: &[&str],
    keys: &[&'k str],
    reader: &mut Reader,
) -> Option<(Table<'a>, &'k str)> {
    if let DeValue::Table(table) = node.value
        && let [(word, (span, _))] = members(table).into_iter().collect::<Vec<_>>().as_slice()
        && words.contains(word)
    {
        let write = Suggestion::Write(format!("\"{word}\" in place of the table"));
        let node = node.member_at(word, span.clone());
        reader.wrong(&node, "is a word that stands alone", Some(write));
        return None;
    }
    let table = Table::open(node, keys, reader)?;
    let present: Vec<&'k str> = keys.iter().copied().filter(|k| table.has(k)).collect();
    match present.as_slice() {
        [key] => Some((table, key)),
        [] => {
            // A key that was mistyped is told already; that the right one is missing follows from it.
            if table.members.is_empty() {
                let what = format!("is empty: one of {} is due", listed(keys));
                reader.wrong(node, what, None);
            }
            None
        }
        several => {
            let what = format!("has {} at once: one of them is due", several.join(" and "));
            reader.wrong(node, what, None);
            None
        }
    }
}

/// The schema of a table.
pub(crate) fn table_schema(about: &str, members: Vec<(&str, Value, &str, bool)>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (key, mut schema, help, is_required) in members {
        schema["description"] = help.into();
        properties.insert(key.to_owned(), schema);
        if is_required {
            required.push(key);
        }
    }
    json!({
        "type": "object",
        "description": about,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Declares a table with its keys: `/// help` `key: Type, required;`. Gives a struct of [`Slot`]s and its [`Written`].
macro_rules! form {
    (
        $(#[doc = $about:literal])+
        $vis:vis struct $Name:ident {
            $( $(#[doc = $help:literal])+ $key:ident: $Type:ty, $need:ident; )*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        $vis struct $Name {
            $( $(#[doc = $help])+ pub(crate) $key: $crate::form::Slot<$Type>, )*
        }

        impl $crate::form::Written for $Name {
            fn read(node: &$crate::form::Node<'_>, reader: &mut $crate::form::Reader) -> Option<Self> {
                const KEYS: &[&str] = &[$(stringify!($key)),*];
                let table = $crate::form::Table::open(node, KEYS, reader)?;
                Some($Name { $( $key: table.$need(stringify!($key), reader) ),* })
            }

            fn schema() -> serde_json::Value {
                $crate::form::table_schema(
                    concat!($($about, "\n"),+).trim(),
                    vec![$((
                        stringify!($key),
                        <$Type as $crate::form::Written>::schema(),
                        concat!($($help, "\n"),+).trim(),
                        stringify!($need) == "required",
                    )),*],
                )
            }
        }
    };
}

/// Declares a value that is exactly one of several things: a word alone, or a table with exactly one key.
macro_rules! choice {
    (
        $(#[doc = $about:literal])+
        $vis:vis enum $Name:ident {
            words { $( $(#[doc = $whelp:literal])+ $Word:ident = $word:literal; )* }
            tables { $( $(#[doc = $help:literal])+ $Variant:ident($Type:ty) = $key:literal; )* }
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        $vis enum $Name {
            $( $(#[doc = $whelp])+ $Word, )*
            $( $(#[doc = $help])+ $Variant($Type), )*
        }

        impl $crate::form::Written for $Name {
            fn read(node: &$crate::form::Node<'_>, reader: &mut $crate::form::Reader) -> Option<Self> {
                const WORDS: &[&str] = &[$($word),*];
                const KEYS: &[&str] = &[$($key),*];
                if let Some(word) = $crate::form::lone_word(node, WORDS, KEYS, reader) {
                    return match word {
                        $( Some($word) => Some($Name::$Word), )*
                        _ => None,
                    };
                }
                let key = $crate::form::only_key(node, WORDS, KEYS, reader);
                let (table, key) = key?;
                $( if key == $key {
                    return table.required(key, reader).value().map($Name::$Variant);
                } )*
                None
            }

            fn schema() -> serde_json::Value {
                let any: Vec<serde_json::Value> = vec![
                    $(serde_json::json!({
                        "const": $word,
                        "description": concat!($($whelp, "\n"),+).trim(),
                    }),)*
                    $($crate::form::table_schema(
                        concat!($($help, "\n"),+).trim(),
                        vec![(
                            $key,
                            <$Type as $crate::form::Written>::schema(),
                            concat!($($help, "\n"),+).trim(),
                            true,
                        )],
                    ),)*
                ];
                serde_json::json!({
                    "description": concat!($($about, "\n"),+).trim(),
                    "oneOf": any,
                })
            }
        }
    };
}

pub(crate) use {choice, form};

impl<T: Written> Written for Box<T> {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        T::read(node, reader).map(Box::new)
    }

    fn schema() -> Value {
        T::schema()
    }
}

impl<T: Written> Written for Vec<At<T>> {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let DeValue::Array(array) = node.value else {
            reader.mistyped(node, "an array");
            return None;
        };
        let mut values = Some(Vec::new());
        for (at, value) in array.iter().enumerate() {
            let node = node.element(at, value);
            match T::read(&node, reader) {
                // Goes on behind a bad element: its neighbours' mistakes are to be told too.
                None => values = None,
                Some(value) => {
                    if let Some(values) = &mut values {
                        values.push(At {
                            value,
                            path: node.path,
                            origin: Origin::File(node.span),
                        });
                    }
                }
            }
        }
        values
    }

    fn schema() -> Value {
        json!({ "type": "array", "items": T::schema() })
    }
}
