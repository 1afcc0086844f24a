//! Reading control calls: bodies and queries, strictly, with all unknown names at once.
//!
//! On the agents' wire unknown members are ignored (WIRE-5), because the other side may be newer. Here the other side
//! is a person or a script, and a misspelled name that is ignored is an afternoon lost.

use std::fmt;
use std::str::FromStr;

use protocol::json;
use serde::de::value::Error as WordError;
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde_json::Value;

use super::refusal::{Refusal, suggestion};

/// The members that an object may have, and what may be inside them.
#[derive(Debug)]
pub(super) struct Members(pub(super) &'static [(&'static str, Inside)]);

/// What a member holds, as far as names go.
#[derive(Debug)]
pub(super) enum Inside {
    /// A value without names, or with names of its owner's choice.
    Free,
    /// An object.
    Object(&'static Members),
    /// An array of objects.
    Each(&'static Members),
}

/// Reads a body. Syntax first, then every unknown member in one message, then the shape.
///
/// # Errors
/// A [`Refusal`] that names the place.
pub(super) fn body<T: DeserializeOwned>(bytes: &[u8], members: &Members) -> Result<T, Refusal> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Refusal::invalid(
            "the body is empty",
            format!("send a JSON object with {}", names(members)),
        ));
    }
    let json = json::scan(bytes).map_err(|error| {
        Refusal::invalid(
            format!("the body is no JSON that is read here: {error}"),
            "send one JSON object in UTF-8",
        )
    })?;
    let value: Value = json.read().map_err(|error| {
        Refusal::invalid(
            format!("the body is no JSON that is read here: {error}"),
            "send one JSON object in UTF-8",
        )
    })?;
    let mut unknown = Vec::new();
    find_unknown(&value, members, "", &mut unknown);
    if !unknown.is_empty() {
        return Err(Refusal::invalid(
            format!(
                "unknown {}: {}",
                plural("member", unknown.len()),
                unknown.join("; ")
            ),
            "nothing was changed; correct the names or leave them out",
        ));
    }
    json.read().map_err(|error| {
        Refusal::invalid(
            format!("the body has another shape: {error}"),
            format!("its members are {}", names(members)),
        )
    })
}

/// The members that an object may have, and in brackets those of the objects in it.
fn names(members: &Members) -> String {
    let name = |(name, inside): &(&str, Inside)| match inside {
        Inside::Free => (*name).to_owned(),
        Inside::Object(members) | Inside::Each(members) => format!("{name} ({})", names(members)),
    };
    members.0.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn find_unknown(value: &Value, members: &Members, path: &str, unknown: &mut Vec<String>) {
    let Some(object) = value.as_object() else {
        return;
    };
    for (name, inside) in object {
        let place = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match members.0.iter().find(|(known, _)| known == name) {
            None => unknown.push(with_suggestion(
                &place,
                name,
                members.0.iter().map(|(known, _)| *known),
            )),
            Some((_, Inside::Free)) => {}
            Some((_, Inside::Object(members))) => find_unknown(inside, members, &place, unknown),
            Some((_, Inside::Each(members))) => {
                for (at, value) in inside.as_array().into_iter().flatten().enumerate() {
                    find_unknown(value, members, &format!("{place}[{at}]"), unknown);
                }
            }
        }
    }
}

fn with_suggestion<'a>(
    place: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    match suggestion(name, known) {
        Some(near) => format!("{place:?} (did you mean {near:?}?)"),
        None => format!("{place:?}"),
    }
}

fn plural(word: &str, count: usize) -> String {
    if count == 1 {
        word.to_owned()
    } else {
        format!("{word}s")
    }
}

/// A call's query.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what follows the `?`, or nothing.
    ///
    /// # Errors
    /// When a name comes twice.
    pub(super) fn read(text: Option<&str>) -> Result<Self, Refusal> {
        let mut given: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
            if given.iter().any(|(before, _)| *before == name) {
                return Err(Refusal::invalid(
                    format!("the query names {name:?} more than once"),
                    "name it once",
                ));
            }
            given.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(given))
    }

    /// Refuses every name that is not known, all of them at once.
    ///
    /// # Errors
    /// When there is one.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        let names = self.0.iter().map(|(name, _)| name.as_str());
        let unknown: Vec<_> = names
            .filter(|name| !known.contains(name))
            .map(|name| with_suggestion(name, name, known.iter().copied()))
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let hint = match known {
            [] => "this call takes no query".to_owned(),
            known => format!("this call takes {}", known.join(", ")),
        };
        Err(Refusal::invalid(
            format!("unknown in the query: {}", unknown.join("; ")),
            hint,
        ))
    }

    /// The value of a name, read as `T`; none when it is not there.
    ///
    /// # Errors
    /// When the value is no `T`.
    pub(super) fn get<T: FromStr>(&self, name: &str) -> Result<Option<T>, Refusal>
    where
        T::Err: fmt::Display,
    {
        self.with(name, |value| value.parse())
    }

    /// The same for a word of the JSON that the control API speaks.
    ///
    /// # Errors
    /// When the value is no such word.
    pub(super) fn word<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Refusal> {
        self.with(name, |value| {
            T::deserialize(IntoDeserializer::<WordError>::into_deserializer(value))
        })
    }

    fn with<T, E: fmt::Display>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Refusal> {
        let Some((_, value)) = self.0.iter().find(|(given, _)| given == name) else {
            return Ok(None);
        };
        read(value).map(Some).map_err(|error| {
            Refusal::invalid(
                format!("the query's {name}={value:?} cannot be read: {error}"),
                "correct it or leave it out",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Order {
        name: String,
        count: Option<u32>,
        host: Option<Host>,
        addons: Option<Vec<Host>>,
        options: Option<Value>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Host {
        retention: u32,
    }

    const HOST: Members = Members(&[("retention", Inside::Free)]);
    const ORDER: Members = Members(&[
        ("name", Inside::Free),
        ("count", Inside::Free),
        ("host", Inside::Object(&HOST)),
        ("addons", Inside::Each(&HOST)),
        ("options", Inside::Free),
    ]);

    #[test]
    fn a_right_body_is_read() {
        let order: Order = body(
            br#"{"name": "n", "options": {"any": 1}, "addons": [{"retention": 1}]}"#,
            &ORDER,
        )
        .unwrap();
        assert_eq!(
            (order.name.as_str(), order.addons),
            ("n", Some(vec![Host { retention: 1 }]))
        );
    }

    #[test]
    fn a_wrong_body_is_told_all_of_it() {
        let rows: &[(&[u8], &[&str])] = &[
            (b"", &["empty", "name, count"]),
            (b"  \n", &["empty"]),
            (b"{", &["no JSON"]),
            (b"name=n", &["no JSON"]),
            (b"\xef\xbb\xbf{}", &["no JSON"]),
            (br#"{"name": "a", "name": "b"}"#, &["name"]),
            (
                br#"{"nam": "n", "colour": 1, "host": {"retentoin": 1}, "addons": [{}, {"x": 1}]}"#,
                &[
                    r#""nam" (did you mean "name"?)"#,
                    r#""colour""#,
                    r#""host.retentoin" (did you mean "retention"?)"#,
                    r#""addons[1].x""#,
                    "members",
                ],
            ),
            (br#"{"count": 1}"#, &["name"]),
            (br#"{"name": "n", "count": "1"}"#, &["count"]),
            (br#"["n"]"#, &["shape"]),
        ];
        for (bytes, says) in rows {
            let refusal = body::<Order>(bytes, &ORDER).unwrap_err();
            let text = format!("{} {}", refusal.detail, refusal.hint);
            for part in *says {
                assert!(text.contains(part), "{part:?} is not in {text:?}");
            }
        }
    }

    #[test]
    fn a_query_is_read_and_unknown_names_are_refused_together() {
        let known = ["limit", "agent", "code"];
        let query = Query::read(Some("limit=5&agent=agt%5F1")).unwrap();
        query.only(&known).unwrap();
        assert_eq!(query.get::<u32>("limit").unwrap(), Some(5));
        assert_eq!(
            query.word::<String>("agent").unwrap().as_deref(),
            Some("agt_1")
        );
        assert_eq!(query.get::<String>("code").unwrap(), None);

        let refusal = Query::read(Some("limt=5&x"))
            .unwrap()
            .only(&known)
            .unwrap_err();
        assert!(
            refusal
                .detail
                .contains(r#""limt" (did you mean "limit"?); "x""#),
            "{}",
            refusal.detail
        );
        assert!(
            refusal.hint.contains("takes limit, agent, code"),
            "{}",
            refusal.hint
        );

        assert!(
            Query::read(Some("limit=5&limit=6"))
                .unwrap_err()
                .detail
                .contains("more than once")
        );
        let refusal = Query::read(Some("limit=many"))
            .unwrap()
            .get::<u32>("limit")
            .unwrap_err();
        assert!(
            refusal.detail.contains(r#"limit="many""#),
            "{}",
            refusal.detail
        );
    }
}
