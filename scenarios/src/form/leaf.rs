//! The ends of the form: durations, numbers with their range, words, names.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toml::de::DeValue;

use protocol::endpoint::Endpoint;
use protocol::id::{AddonName, AgentVersion, ReleaseVersion};
use protocol::pbx::operation::{OperationKind, Step};
use protocol::pbx::sync::{IngressMode, TimeOfDay, Weekday};
use record::fleet::OperationEnd;
use record::label::Label;
use record::outcome::Outcome;
use record::result::Protocol;

use super::{Node, Reader, Written, members};
use crate::mistake::{Suggestion, shown, suggest};
use crate::portal::{ClearText, Profile};
use crate::timeline::ServerOf;

/// The longest duration in a scenario: a month.
pub(crate) const LONGEST: Duration = Duration::from_secs(31 * 86_400);

/// A duration, zero included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// A duration that is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Positive(pub(crate) Duration);

/// A whole number within a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count<const MIN: i64, const MAX: i64>(pub(crate) i64);

/// So many times as much: a number from 0.001 to 1000.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio(pub(crate) f64);

/// Events per second, above zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate(pub(crate) f64);

/// A percentile: above 0, at most 100.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Percentile(pub(crate) f64);

/// A name that becomes part of a file's or an agent's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(pub(crate) String);

/// Any TOML table, as a JSON object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonTable(pub(crate) Map<String, Value>);

/// A word of a closed set.
pub(crate) trait Word: Sized + Clone {
    /// What the set is called in an error.
    const WHAT: &'static str;

    /// Every word with what it stands for.
    fn words() -> Vec<(&'static str, Self)>;
}

/// A table from words of a closed set to values.
#[derive(Debug, Clone)]
pub(crate) struct ByWord<K, V>(pub(crate) BTreeMap<K, V>);

/// A table from free keys to values.
#[derive(Debug, Clone)]
pub(crate) struct ByName<V>(pub(crate) BTreeMap<String, V>);

impl Written for Span {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        duration(node, reader).map(Span)
    }

    fn schema() -> Value {
        json!({ "type": "string", "pattern": DURATION_PATTERN })
    }
}

impl Written for Positive {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        match duration(node, reader)? {
            Duration::ZERO => {
                reader.wrong(node, "must be longer than zero", None);
                None
            }
            duration => Some(Positive(duration)),
        }
    }

    fn schema() -> Value {
        Span::schema()
    }
}

impl<const MIN: i64, const MAX: i64> Written for Count<MIN, MAX> {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let due = match (MIN, MAX) {
            (i64::MIN, i64::MAX) => "a whole number".to_owned(),
            (_, i64::MAX) => format!("a whole number from {MIN}"),
            _ => format!("a whole number from {MIN} to {MAX}"),
        };
        let DeValue::Integer(integer) = node.value else {
            reader.mistyped(node, &due);
            return None;
        };
        match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) if (MIN..=MAX).contains(&number) => Some(Count(number)),
            // Too large a number is told the largest, also where none was chosen and TOML has it.
            _ if MAX == i64::MAX && !integer.as_str().starts_with('-') => {
                reader.mistyped(node, &format!("{due} to {MAX}"));
                None
            }
            _ => {
                reader.mistyped(node, &due);
                None
            }
        }
    }

    fn schema() -> Value {
        let mut schema = json!({ "type": "integer" });
        if MIN != i64::MIN {
            schema["minimum"] = MIN.into();
        }
        if MAX != i64::MAX {
            schema["maximum"] = MAX.into();
        }
        schema
    }
}

impl<const MIN: i64, const MAX: i64> Count<MIN, MAX> {
    /// The number as one that is not negative; a negative one, which only a range below zero allows, is zero.
    pub(crate) fn get(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }
}

impl Written for crate::share::Share {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let share = number(node).and_then(crate::share::Share::new);
        if share.is_none() {
            reader.mistyped(node, "a share from 0 to 1");
        }
        share
    }

    fn schema() -> Value {
        json!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}

impl Written for Ratio {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        match number(node) {
            Some(ratio) if (0.001..=1_000.0).contains(&ratio) => Some(Ratio(ratio)),
            _ => {
                reader.mistyped(node, "a number from 0.001 to 1000");
                None
            }
        }
    }

    fn schema() -> Value {
        json!({ "type": "number", "minimum": 0.001, "maximum": 1000 })
    }
}

impl Written for Rate {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        match number(node) {
            Some(rate) if rate > 0.0 => Some(Rate(rate)),
            _ => {
                reader.mistyped(node, "a number of events per second above 0");
                None
            }
        }
    }

    fn schema() -> Value {
        json!({ "type": "number", "exclusiveMinimum": 0 })
    }
}

impl Written for Percentile {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        match number(node) {
            Some(percentile) if percentile > 0.0 && percentile <= 100.0 => {
                Some(Percentile(percentile))
            }
            _ => {
                reader.mistyped(node, "a percentile above 0 and at most 100");
                None
            }
        }
    }

    fn schema() -> Value {
        json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 100 })
    }
}

impl Written for bool {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        match node.value {
            DeValue::Boolean(truth) => Some(*truth),
            _ => {
                reader.mistyped(node, "true or false");
                None
            }
        }
    }

    fn schema() -> Value {
        json!({ "type": "boolean" })
    }
}

impl Written for String {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        match node.value {
            DeValue::String(text) => Some(text.clone().into_owned()),
            _ => {
                reader.mistyped(node, "a string");
                None
            }
        }
    }

    fn schema() -> Value {
        json!({ "type": "string" })
    }
}

impl Written for ClearText {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        reader.secrets.push(node.span.clone());
        String::read(node, reader).map(ClearText::new)
    }

    fn schema() -> Value {
        String::schema()
    }
}

impl Written for Name {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let text = String::read(node, reader)?;
        let fits = (1..=40).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !text.starts_with('-');
        if !fits {
            let what = format!(
                "`{}` is no name: 1 to 40 of a-z 0-9 -, not beginning with -",
                shown(&text)
            );
            reader.wrong(node, what, None);
            return None;
        }
        Some(Name(text))
    }

    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,39}$" })
    }
}

impl Written for JsonTable {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        match node.value {
            DeValue::Table(_) => match as_json(node, reader)? {
                Value::Object(object) => Some(JsonTable(object)),
                _ => None,
            },
            _ => {
                reader.mistyped(node, "a table");
                None
            }
        }
    }

    fn schema() -> Value {
        json!({ "type": "object" })
    }
}

impl<K: Word + Ord, V: Written> Written for ByWord<K, V> {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let words = K::words();
        let DeValue::Table(table) = node.value else {
            reader.mistyped(node, &format!("a table by {}", K::WHAT));
            return None;
        };
        let mut read = Some(BTreeMap::new());
        for (key, (span, value)) in members(table) {
            let member = node.member(key, value);
            let Some((_, word)) = words.iter().find(|(word, _)| *word == key) else {
                let key_node = Node { span, ..member };
                let what = format!("unknown {}", K::WHAT);
                let suggestion = suggest(key, words.iter().map(|(word, _)| *word));
                reader.wrong(&key_node, what, Some(suggestion));
                read = None;
                continue;
            };
            match (V::read(&member, reader), &mut read) {
                (Some(value), Some(read)) => {
                    read.insert(word.clone(), value);
                }
                (None, _) => read = None,
                (Some(_), None) => {}
            }
        }
        read.map(ByWord)
    }

    fn schema() -> Value {
        let words: Vec<&str> = K::words().iter().map(|(word, _)| *word).collect();
        json!({
            "type": "object",
            "propertyNames": { "enum": words },
            "additionalProperties": V::schema(),
        })
    }
}

impl<V: Written> Written for ByName<V> {
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let DeValue::Table(table) = node.value else {
            reader.mistyped(node, "a table");
            return None;
        };
        let mut read = Some(BTreeMap::new());
        for (key, (_, value)) in members(table) {
            match (V::read(&node.member(key, value), reader), &mut read) {
                (Some(value), Some(read)) => {
                    read.insert(key.to_owned(), value);
                }
                (None, _) => read = None,
                (Some(_), None) => {}
            }
        }
        read.map(ByName)
    }

    fn schema() -> Value {
        json!({ "type": "object", "additionalProperties": V::schema() })
    }
}

/// Declares how the words of a closed set are read.
macro_rules! word {
    ($Type:ty, $what:expr, $words:expr) => {
        impl Word for $Type {
            const WHAT: &'static str = $what;

            fn words() -> Vec<(&'static str, Self)> {
                $words
            }
        }

        impl Written for $Type {
            fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
                a_word(node, reader)
            }

            fn schema() -> Value {
                let words: Vec<&str> = <$Type as Word>::words().iter().map(|(w, _)| *w).collect();
                json!({ "enum": words })
            }
        }
    };
}
pub(crate) use word;

word!(Endpoint, <Endpoint as Label>::WHAT, labels());
word!(Outcome, <Outcome as Label>::WHAT, labels());
word!(OperationEnd, <OperationEnd as Label>::WHAT, labels());
// Fleets of the other one do not exist yet; the schema says the same.
word!(
    Protocol,
    <Protocol as Label>::WHAT,
    vec![(Protocol::Pbx.label(), Protocol::Pbx)]
);
word!(
    Profile,
    "profile",
    vec![("strict", Profile::Strict), ("friendly", Profile::Friendly)]
);
word!(ServerOf, "server", ServerOf::ALL.to_vec());
word!(
    Step,
    "step",
    Step::ALL.iter().map(|s| (s.as_str(), *s)).collect()
);
word!(
    Weekday,
    "weekday",
    Weekday::ALL.iter().map(|d| (d.as_str(), *d)).collect()
);
word!(
    OperationKind,
    "operation kind",
    OperationKind::KNOWN
        .iter()
        .map(|k| (k.as_str(), k.clone()))
        .collect()
);
word!(
    IngressMode,
    "ingress mode",
    IngressMode::KNOWN
        .iter()
        .map(|m| (m.as_str(), m.clone()))
        .collect()
);

fn labels<L: Label>() -> Vec<(&'static str, L)> {
    L::all().iter().map(|l| (l.label(), *l)).collect()
}

pub(crate) fn a_word<W: Word>(node: &Node<'_>, reader: &mut Reader) -> Option<W> {
    let words = W::words();
    let DeValue::String(text) = node.value else {
        reader.mistyped(node, &format!("a word that names the {}", W::WHAT));
        return None;
    };
    let found = words.iter().find(|(word, _)| *word == text.as_ref());
    if found.is_none() {
        let what = format!("unknown {} `{}`", W::WHAT, shown(text));
        let suggestion = suggest(text, words.iter().map(|(word, _)| *word));
        reader.wrong(node, what, Some(suggestion));
    }
    found.map(|(_, value)| value.clone())
}

/// Declares that a text is read by its type's own check.
macro_rules! checked_text {
    ($($Type:ty),+) => {
        $(impl Written for $Type {
            fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
                let text = String::read(node, reader)?;
                match <$Type>::from_str(&text) {
                    Ok(value) => Some(value),
                    Err(why) => {
                        reader.wrong(node, why.to_string(), None);
                        None
                    }
                }
            }

            fn schema() -> Value {
                String::schema()
            }
        })+
    };
}

checked_text!(ReleaseVersion, AgentVersion, AddonName, TimeOfDay);

/// Units of a duration, the longest first, with their length.
const UNITS: &[(&str, u64)] = &[
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

const DURATION_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(d|h|m|s|ms|us))+$";

fn duration(node: &Node<'_>, reader: &mut Reader) -> Option<Duration> {
    const DUE: &str = "a duration with its unit (us, ms, s, m, h, d)";
    match node.value {
        DeValue::String(text) => match read_duration(text) {
            Ok(duration) if duration > LONGEST => {
                let what = format!("`{}` is longer than 31 days", shown(text));
                reader.wrong(node, what, None);
                None
            }
            Ok(duration) => Some(duration),
            Err(why) => {
                let what = format!("`{}` is no duration: {why}", shown(text));
                let written = text.trim().parse::<f64>();
                let suggestion = written.ok().filter(|n| *n >= 0.0 && n.is_finite());
                let suggestion =
                    suggestion.map(|_| Suggestion::Write(format!("\"{}s\"", text.trim())));
                reader.wrong(node, what, suggestion);
                None
            }
        },
        DeValue::Integer(number) => {
            let what = format!(
                "expected {DUE}, found the number {}",
                shown(&number.to_string())
            );
            let suggestion = Suggestion::Write(format!("\"{}s\"", number.as_str()));
            let suggestion = (!number.as_str().starts_with('-')).then_some(suggestion);
            reader.wrong(node, what, suggestion);
            None
        }
        _ => {
            reader.mistyped(node, DUE);
            None
        }
    }
}

/// Reads `90s`, `1.5h`, `1h30m`: digits and a unit, as often as one likes, each unit shorter than the one before.
pub(crate) fn read_duration(text: &str) -> Result<Duration, &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.starts_with('-') {
        return Err("it is negative");
    }
    let mut rest = text;
    let mut us = 0_f64;
    let mut longer_than = u64::MAX;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or("it has no unit (us, ms, s, m, h, d)")?;
        let (number, behind) = rest.split_at(digits);
        let is_number = number.starts_with(|c: char| c.is_ascii_digit())
            && number.ends_with(|c: char| c.is_ascii_digit());
        let number: f64 = match number.parse() {
            Ok(number) if is_number => number,
            _ => return Err("a number and a unit are due, as in 90s or 1h30m"),
        };
        let letters = behind
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let (_, length) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or("its unit is none of us, ms, s, m, h, d")?;
        if *length >= longer_than {
            return Err("its units do not get shorter");
        }
        longer_than = *length;
        us += number * *length as f64;
        rest = behind;
    }
    // Saturates far above the longest duration that a scenario may have.
    Ok(Duration::from_micros(us.round() as u64))
}

/// How a duration is written: the reverse of [`read_duration`].
pub(crate) fn duration_text(duration: Duration) -> String {
    let mut us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, length) in UNITS {
        if us >= *length {
            text.push_str(&format!("{}{unit}", us / length));
            us %= length;
        }
    }
    match text.is_empty() {
        true => "0s".to_owned(),
        false => text,
    }
}

fn number(node: &Node<'_>) -> Option<f64> {
    let number: f64 = match node.value {
        DeValue::Integer(integer) => {
            i64::from_str_radix(integer.as_str(), integer.radix()).ok()? as f64
        }
        DeValue::Float(float) => float.as_str().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// A TOML value as JSON. What JSON cannot say (a date, a number without end) is a mistake.
fn as_json(node: &Node<'_>, reader: &mut Reader) -> Option<Value> {
    reader.places.insert(node.path.clone(), node.span.clone());
    match node.value {
        DeValue::String(text) => Some(text.as_ref().into()),
        DeValue::Boolean(truth) => Some((*truth).into()),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix());
            if number.is_err() {
                reader.mistyped(node, "a number of 64 bits");
            }
            number.ok().map(Into::into)
        }
        DeValue::Float(_) => {
            let number = number(node).and_then(serde_json::Number::from_f64);
            if number.is_none() {
                reader.mistyped(node, "a number that JSON can say");
            }
            number.map(Value::Number)
        }
        DeValue::Datetime(_) => {
            reader.mistyped(
                node,
                "a value that JSON can say (write the date as a string)",
            );
            None
        }
        DeValue::Array(array) => array
            .iter()
            .enumerate()
            .map(|(at, value)| as_json(&node.element(at, value), reader))
            .collect(),
        DeValue::Table(table) => members(table)
            .into_iter()
            .map(|(key, (_, value))| {
                Some((key.to_owned(), as_json(&node.member(key, value), reader)?))
            })
            .collect::<Option<Map<String, Value>>>()
            .map(Value::Object),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_units_that_get_shorter() {
        let ok = [
            ("0s", 0),
            ("250ms", 250_000),
            ("7us", 7),
            ("1.5h", 5_400_000_000),
            ("1h30m", 5_400_000_000),
            ("1d2h3m4s5ms6us", 93_784_005_006),
            ("0.5s", 500_000),
        ];
        for (text, us) in ok {
            assert_eq!(read_duration(text), Ok(Duration::from_micros(us)), "{text}");
        }
        let bad = [
            "", "30", "s", "-5s", "5 s", "1.s", ".5s", "1..5s", "5x", "30m1h", "1s1s", "1h30",
            "٣s", "1e3s", "inf",
        ];
        for text in bad {
            assert!(read_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_is_written_as_it_is_read() {
        for us in [0, 1, 1_500, 2_500_000, 5_400_000_000, 93_784_005_006] {
            let duration = Duration::from_micros(us);
            assert_eq!(
                read_duration(&duration_text(duration)),
                Ok(duration),
                "{us}"
            );
        }
        assert_eq!(duration_text(Duration::from_secs(90)), "1m30s");
    }
}
