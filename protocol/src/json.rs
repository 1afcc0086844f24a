//! Strict reading of JSON in two steps: syntax, then shape (SIGN-6 puts the protocol check between them).
//!
//! [`scan`] is the syntax step of KEY-2: UTF-8 without a byte order mark, nothing after the value, no member twice in
//! one object (members that nobody asked for included), at most 32 levels. What it returns is the proof, and only that can
//! be given a shape. serde_json alone would take the last of two members, and an array where an object is due; the shape
//! step takes neither.

mod scan;
mod shape;

use std::fmt;

use serde::de::DeserializeOwned;

pub use scan::{Json, Syntax, SyntaxFault, scan};

/// Why JSON was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonRefusal {
    /// Not JSON as KEY-2 wants it.
    #[error("{0}")]
    Syntax(#[from] Syntax),
    /// JSON, but of another shape than its place asks for.
    #[error("{}: {why}", Place(path))]
    Shape {
        /// The member, as `addons[0].name`; empty for the outermost value.
        path: String,
        /// What was wrong with it. Values of the wrong type are not repeated: they may be secrets.
        why: String,
    },
}

/// Both steps: [`scan`], then [`Json::read`].
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonRefusal> {
    scan(bytes)?.read()
}

impl Json<'_> {
    /// The shape step: an object where an object is due at every level, all members that must be there, right types.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, JsonRefusal> {
        shape::read(self.as_str())
    }

    /// Whether the outermost object names a `protocol` that is a whole number below `lowest`: 426 `protocol_too_old`, in
    /// SIGN-6's place between syntax and shape. Missing, of another type, or too high is the shape's affair.
    pub fn protocol_below(&self, lowest: u32) -> bool {
        shape::outer_number(self.as_str(), "protocol")
            .is_some_and(|protocol| protocol < i128::from(lowest))
    }
}

/// A path in an error's text.
struct Place<'a>(&'a str);

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_empty() {
            "the outermost value"
        } else {
            self.0
        })
    }
}

/// Appends `.name` to a path, `name` to an empty one.
pub(crate) fn push_member(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(crate::id::shown(name));
}

/// Appends `[at]` to a path.
pub(crate) fn push_index(path: &mut String, at: usize) {
    use fmt::Write as _;
    write!(path, "[{at}]").expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::Value;
    use serde_json::value::RawValue;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Outer {
        inner: Option<Inner>,
        #[serde(default)]
        list: Vec<Inner>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner {
        number: u64,
        text: String,
    }

    #[test]
    fn syntax_is_what_key_2_says() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let many = |last: &str| {
            let names: Vec<_> = (0..40).map(|n| format!("\"n{n}\":{n}")).collect();
            format!("{{{},{last}}}", names.join(","))
        };
        for (text, fault) in [
            ("{}", None),
            (" [1, -0, 0.5, 1e9, 1E+9, 1e-9] ", None),
            (r#"{"a":{"a":[{"a":1},{"a":2}]},"b":null}"#, None),
            (r#""\ud83d\ude00 \/\b\f\n\r\t\"\\""#, None),
            (nested(32).as_str(), None),
            (many(r#""x":1"#).as_str(), None),
            ("\u{feff}{}", Some(SyntaxFault::ByteOrderMark)),
            ("", Some(SyntaxFault::Ended)),
            ("{} {}", Some(SyntaxFault::Trailing)),
            ("{}\0", Some(SyntaxFault::Trailing)),
            (nested(33).as_str(), Some(SyntaxFault::TooDeep)),
            (r#"{"a":1,"a":1}"#, Some(SyntaxFault::Doubled("a".into()))),
            (
                r#"{"a":1,"\u0061":1}"#,
                Some(SyntaxFault::Doubled("a".into())),
            ),
            (
                r#"[{"x":{"b":1,"b":2}}]"#,
                Some(SyntaxFault::Doubled("b".into())),
            ),
            (
                many(r#""n17":1"#).as_str(),
                Some(SyntaxFault::Doubled("n17".into())),
            ),
            (
                r#"{"a":1,}"#,
                Some(SyntaxFault::Expected("a member's name")),
            ),
            ("[1,]", Some(SyntaxFault::Expected("a value"))),
            ("[1 2]", Some(SyntaxFault::Expected("a comma or ]"))),
            (r#"{"a" 1}"#, Some(SyntaxFault::Expected("a colon"))),
            (r#"{'a':1}"#, Some(SyntaxFault::Expected("a member's name"))),
            ("NaN", Some(SyntaxFault::Expected("a value"))),
            ("nul", Some(SyntaxFault::Expected("true, false or null"))),
            ("01", Some(SyntaxFault::Trailing)),
            ("+1", Some(SyntaxFault::Expected("a value"))),
            ("1.", Some(SyntaxFault::Ended)),
            ("[1.]", Some(SyntaxFault::Expected("a digit"))),
            ("[.5]", Some(SyntaxFault::Expected("a value"))),
            ("[1e]", Some(SyntaxFault::Expected("a digit"))),
            (r#""\x""#, Some(SyntaxFault::Expected("an escape of JSON"))),
            (
                r#""\ud800""#,
                Some(SyntaxFault::Expected("a whole surrogate pair")),
            ),
            (
                r#""\ud800\u0061""#,
                Some(SyntaxFault::Expected("a whole surrogate pair")),
            ),
            (
                r#""\u12g4""#,
                Some(SyntaxFault::Expected("four hex digits after \\u")),
            ),
            (
                "\"a\nb\"",
                Some(SyntaxFault::Expected(
                    "no control character, but its escape,",
                )),
            ),
            ("\"a", Some(SyntaxFault::Ended)),
            ("// no\n1", Some(SyntaxFault::Expected("a value"))),
        ] {
            assert_eq!(
                scan(text.as_bytes()).err().map(|syntax| syntax.fault),
                fault,
                "{text}"
            );
        }
        assert_eq!(
            scan(b"\"\xff\"").err().map(|syntax| syntax.fault),
            Some(SyntaxFault::NotUtf8)
        );
    }

    #[test]
    fn what_ends_a_plain_run_is_found_at_every_offset() {
        for length in 0..40 {
            for filler in ['x', ' ', '\u{7f}', '\u{80}', 'ÿ', '!', '#', '[', ']'] {
                let run = String::from_iter(std::iter::repeat_n(filler, length));
                for (text, fault) in [
                    (format!("\"{run}\""), None),
                    (format!("\"{run}\\n{run}\""), None),
                    (format!("\"{run}\"\""), Some(SyntaxFault::Trailing)),
                    (format!("\"{run}"), Some(SyntaxFault::Ended)),
                    (
                        format!("\"{run}\u{1f}\""),
                        Some(SyntaxFault::Expected(
                            "no control character, but its escape,",
                        )),
                    ),
                    (
                        format!("\"{run}\0{run}\""),
                        Some(SyntaxFault::Expected(
                            "no control character, but its escape,",
                        )),
                    ),
                ] {
                    assert_eq!(
                        scan(text.as_bytes()).err().map(|syntax| syntax.fault),
                        fault,
                        "{text:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_fault_is_placed() {
        let syntax = scan(b"{\n  \"a\": 1,\n  \"b\": ?\n}").unwrap_err();
        assert_eq!((syntax.line, syntax.column, syntax.offset), (3, 8, 19));
        assert_eq!(syntax.to_string(), "line 3, column 8: a value is due here");
    }

    #[test]
    fn shape_takes_an_object_for_an_object_only_key_2() {
        let shape = |path: &str, why: &str| JsonRefusal::Shape {
            path: path.into(),
            why: why.into(),
        };
        for (text, refusal) in [
            (r#"{"inner":{"number":1,"text":"x","unknown":[1]}}"#, None),
            (r#"{"inner":null}"#, None),
            ("{}", None),
            (
                r#"[{"number":1,"text":"x"}]"#,
                Some(shape("", "invalid type: sequence, expected struct Outer")),
            ),
            (
                r#"{"inner":[1,"x"]}"#,
                Some(shape(
                    "inner",
                    "invalid type: sequence, expected struct Inner",
                )),
            ),
            (
                r#"{"list":[{"number":1,"text":"x"},[1,"x"]]}"#,
                Some(shape(
                    "list[1]",
                    "invalid type: sequence, expected struct Inner",
                )),
            ),
            (
                r#"{"list":[{"number":1}]}"#,
                Some(shape("list[0]", "missing field `text`")),
            ),
            (
                r#"{"list":[{"number":1.0,"text":"x"}]}"#,
                Some(shape(
                    "list[0].number",
                    "invalid type: floating point `1.0`, expected u64",
                )),
            ),
            (
                r#"{"list":[{"number":"geheim, expected ","text":"x"}]}"#,
                Some(shape(
                    "list[0].number",
                    "invalid type: string, expected u64",
                )),
            ),
        ] {
            assert_eq!(parse::<Outer>(text.as_bytes()).err(), refusal, "{text}");
        }
    }

    #[test]
    fn a_protocol_that_is_too_low_is_found_between_the_steps_sign_6() {
        for (text, below) in [
            (r#"{"protocol":0}"#, true),
            (r#"{"x":{"protocol":1},"protocol":0,"y":1}"#, true),
            (r#"{"protocol":-5}"#, true),
            (
                r#"{"protocol":-99999999999999999999999999999999999999999999}"#,
                true,
            ),
            (r#"{"proto\u0063ol":0}"#, true),
            (r#"{"protocol":1}"#, false),
            (r#"{"protocol":2}"#, false),
            (
                r#"{"protocol":99999999999999999999999999999999999999999999}"#,
                false,
            ),
            (r#"{"protocol":0.5}"#, false),
            (r#"{"protocol":"0"}"#, false),
            (r#"{"protocol":null}"#, false),
            (r#"{"x":{"protocol":0}}"#, false),
            ("{}", false),
            (r#"[{"protocol":0}]"#, false),
            ("0", false),
        ] {
            assert_eq!(
                scan(text.as_bytes()).unwrap().protocol_below(1),
                below,
                "{text}"
            );
        }
    }

    #[test]
    fn raw_text_stays_as_it_was() {
        #[derive(Deserialize)]
        struct Envelope {
            raw: Box<RawValue>,
        }
        let envelope: Envelope = parse(br#"{"raw": { "b" : [1,  2] } }"#).unwrap();
        assert_eq!(envelope.raw.get(), r#"{ "b" : [1,  2] }"#);
    }

    /// Any JSON, no member twice, at most 32 levels.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 24, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..24).prop_map(Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..24)
                    .prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn valid_json_is_valid_here(value in any_json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            prop_assert_eq!(scan(text.as_bytes()).map(|json| json.as_str().to_owned()), Ok(text.clone()));
            prop_assert_eq!(parse::<Value>(text.as_bytes()), Ok(serde_json::from_str(&text).unwrap()));
        }

        /// One byte of valid JSON is changed: both refuse it, or both take it, but for what only KEY-2 refuses.
        #[test]
        fn damaged_json_is_refused_as_serde_json_does(
            value in any_json(),
            at in any::<proptest::sample::Index>(),
            byte in proptest::sample::select(&b"{}[]\",:\\u0-.eE+tn \x00\xff"[..]),
        ) {
            let mut bytes = serde_json::to_vec(&value).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let (ours, theirs) = (scan(&bytes), serde_json::from_slice::<Value>(&bytes));
            match ours {
                Ok(_) => {
                    // A number that no f64 holds is a number all the same.
                    let out_of_range = theirs.as_ref().is_err_and(|error| error.to_string().contains("out of range"));
                    prop_assert!(theirs.is_ok() || out_of_range, "{:?} on {:?}", theirs, bytes);
                }
                Err(Syntax { fault: SyntaxFault::Doubled(_) | SyntaxFault::TooDeep, .. }) => {}
                Err(syntax) => prop_assert!(theirs.is_err(), "{} on {:?}", syntax, bytes),
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse::<Outer>(&bytes);
            let _ = scan(&bytes).map(|json| json.protocol_below(1));
        }
    }

    /// Forty thousand members cost a sort, not a square: the test would take minutes.
    #[test]
    fn many_members_cost_no_square() {
        let names: Vec<_> = (0..40_000).map(|n| format!("\"{n}\":0")).collect();
        assert!(scan(format!("{{{}}}", names.join(",")).as_bytes()).is_ok());
    }
}
