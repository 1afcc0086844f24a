//! What is wrong with a scenario: one line a mistake, with its place and what to write instead.

use std::fmt;
use std::ops::Range;

use serde_json::{Value, json};

/// How many mistakes are told. A file with more is not a scenario with typing errors.
const TOLD_MAX: usize = 100;

/// Everything that is wrong with a scenario, in the order of the file; what the command line adds comes last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes {
    file: String,
    mistakes: Vec<Mistake>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where.
    pub place: Place,
    /// The member it is about, as `population[0].arrival.ramp.over`; empty where it is about the whole file.
    pub key: String,
    /// What is wrong, and why.
    pub what: String,
    /// What to write instead.
    pub suggestion: Option<Suggestion>,
}

/// Where something is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the file.
    File {
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
    },
    /// In an option of the command line, as `--agents`.
    Option(&'static str),
}

/// What to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suggestion {
    /// Probably this was meant.
    DidYouMean(String),
    /// These are possible.
    OneOf(Vec<String>),
    /// It would read like this.
    Write(String),
}

/// A place in the text or on the command line, before lines and columns are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    File(Range<usize>),
    Option(&'static str),
}

/// A mistake before lines and columns are counted.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) origin: Origin,
    pub(crate) key: String,
    pub(crate) what: String,
    pub(crate) suggestion: Option<Suggestion>,
}

impl Mistakes {
    pub(crate) fn new(file: &str, text: &str, found: Vec<Found>) -> Self {
        let mut placed: Vec<(usize, Mistake)> = found
            .into_iter()
            .map(|found| {
                let (at, place) = match found.origin {
                    Origin::File(span) => (span.start, place_of(text, span.start)),
                    Origin::Option(option) => (usize::MAX, Place::Option(option)),
                };
                let mistake = Mistake {
                    place,
                    key: found.key,
                    what: found.what,
                    suggestion: found.suggestion,
                };
                (at, mistake)
            })
            .collect();
        placed.sort_by_key(|(at, _)| *at);
        Mistakes {
            file: file.to_owned(),
            mistakes: placed.into_iter().map(|(_, mistake)| mistake).collect(),
        }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.mistakes.iter()
    }

    /// How many there are; at least one.
    #[expect(clippy::len_without_is_empty, reason = "there is always at least one")]
    pub fn len(&self) -> usize {
        self.mistakes.len()
    }

    /// For programs: a list of `{file, line, column, key, what, suggestion}`, `option` in place of line and column for
    /// what the command line says.
    pub fn to_json(&self) -> Value {
        let list = self.mistakes.iter().map(|mistake| {
            let suggestion = mistake.suggestion.as_ref().map(|s| match s {
                Suggestion::DidYouMean(word) => json!({ "did_you_mean": word }),
                Suggestion::OneOf(words) => json!({ "one_of": words }),
                Suggestion::Write(text) => json!({ "write": text }),
            });
            let mut object = json!({
                "file": self.file,
                "key": mistake.key,
                "what": mistake.what,
                "suggestion": suggestion,
            });
            match mistake.place {
                Place::File { line, column } => {
                    object["line"] = line.into();
                    object["column"] = column.into();
                }
                Place::Option(option) => object["option"] = option.into(),
            }
            object
        });
        list.collect()
    }
}

impl std::error::Error for Mistakes {}

impl fmt::Display for Mistakes {
    /// One line each: `file:line:column: key: what; did you mean …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, mistake) in self.mistakes.iter().take(TOLD_MAX).enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            match mistake.place {
                Place::File { line, column } => write!(f, "{}:{line}:{column}: ", self.file)?,
                Place::Option(option) => write!(f, "{option}: ")?,
            }
            mistake.fmt(f)?;
        }
        match self.mistakes.len().saturating_sub(TOLD_MAX) {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more", self.file),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)?;
        match &self.suggestion {
            None => Ok(()),
            Some(Suggestion::DidYouMean(word)) => write!(f, "; did you mean `{word}`?"),
            Some(Suggestion::OneOf(words)) => write!(f, "; it is one of {}", words.join(", ")),
            Some(Suggestion::Write(text)) => write!(f, "; write {text}"),
        }
    }
}

/// What was probably meant by `word`: the nearest of `known`, if it is near; else all of them.
pub(crate) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Suggestion {
    // Half of the letters right is a typing error; less is another word.
    const NEAR: f64 = 0.5;
    let known: Vec<&str> = known.into_iter().collect();
    let nearness = |k: &str| strsim::normalized_damerau_levenshtein(&word.to_lowercase(), k);
    let nearest = known
        .iter()
        .map(|k| (nearness(k), *k))
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    match nearest {
        Some((nearness, k)) if nearness >= NEAR => Suggestion::DidYouMean(k.to_owned()),
        _ => Suggestion::OneOf(known.into_iter().map(ToOwned::to_owned).collect()),
    }
}

/// At most the first 60 characters, without control characters: what is quoted of a file must not fill a screen or move
/// its cursor.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        shown.push('…');
    }
    shown
}

fn place_of(text: &str, at: usize) -> Place {
    // A parser may point behind the end, or into a character that it did not like.
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Place::File {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_are_counted_in_characters_from_one() {
        let text = "a = 1\n# größer\nbä = 2\n";
        let rows = [
            (0, 1, 1),
            (4, 1, 5),
            (6, 2, 1),
            (text.find("= 2").unwrap(), 3, 4),
            (text.find('ö').unwrap() + 1, 2, 5),
            (9_999, 4, 1),
        ];
        for (at, line, column) in rows {
            assert_eq!(place_of(text, at), Place::File { line, column }, "{at}");
        }
    }

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_gets_the_list() {
        let known = ["count", "arrival", "tempo"];
        let rows = [
            ("cuont", Suggestion::DidYouMean("count".to_owned())),
            ("Arrival", Suggestion::DidYouMean("arrival".to_owned())),
            (
                "speed",
                Suggestion::OneOf(known.map(ToOwned::to_owned).to_vec()),
            ),
        ];
        for (word, suggestion) in rows {
            assert_eq!(suggest(word, known), suggestion, "{word}");
        }
    }

    #[test]
    fn a_thousand_mistakes_do_not_fill_the_screen() {
        let found = Found {
            origin: Origin::File(0..1),
            key: String::new(),
            what: "wrong".to_owned(),
            suggestion: None,
        };
        let mistakes = Mistakes::new("f.toml", "x", vec![found; 1_000]);
        let text = mistakes.to_string();
        assert_eq!(text.lines().count(), TOLD_MAX + 1);
        assert!(text.ends_with("f.toml: and 900 more"), "{text}");
        assert_eq!(shown(&"\u{1b}[31m".repeat(40)).matches('\u{1b}').count(), 0);
    }
}
