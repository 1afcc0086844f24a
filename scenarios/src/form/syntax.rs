//! A file's text as a tree of values with their places, or its syntax errors.

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use super::{Node, Reader};
use crate::mistake::{Found, Origin};

/// The largest scenario file. One with a million agents has ten lines about them.
pub const BYTES_MAX: usize = 1 << 20;

/// Reads `text` and hands its tree to `read`. After a key that is there twice the rest is still read, since nothing else
/// depends on it; after another syntax error nothing is: what follows would be told in the wrong place.
pub(crate) fn with_tree<T>(
    text: &str,
    reader: &mut Reader,
    read: impl FnOnce(&Node<'_>, &mut Reader) -> Option<T>,
) -> Option<T> {
    if text.len() > BYTES_MAX {
        let what = format!(
            "is {} bytes long; a scenario has at most {BYTES_MAX}",
            text.len()
        );
        reader.found.push(whole_file(what));
        return None;
    }
    // A byte order mark alone is nothing, too.
    if text
        .trim_start_matches('\u{feff}')
        .lines()
        .all(|line| line.trim().is_empty() || line.trim().starts_with('#'))
    {
        reader.found.push(whole_file(
            "is empty: a scenario has at least `name`, `duration`, a `population` and something to `expect`".to_owned(),
        ));
        return None;
    }
    let (tree, errors): (Spanned<DeTable<'_>>, Vec<Error>) = DeTable::parse_recoverable(text);
    let mut only_doubled = true;
    for error in &errors {
        only_doubled &= error.message().contains("duplicate key");
        reader.found.push(Found {
            origin: Origin::File(error.span().unwrap_or(0..0)),
            key: String::new(),
            what: format!("not TOML: {}", error.message().trim()),
            suggestion: None,
        });
    }
    if !only_doubled {
        return None;
    }
    let root = DeValue::Table(tree.into_inner());
    let node = Node {
        value: &root,
        span: 0..0,
        path: String::new(),
    };
    let read = read(&node, reader);
    if errors.is_empty() { read } else { None }
}

fn whole_file(what: String) -> Found {
    Found {
        origin: Origin::File(0..0),
        key: String::new(),
        what,
        suggestion: None,
    }
}
