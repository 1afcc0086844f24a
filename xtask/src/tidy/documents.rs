//! What documents point at exists, and the code map of `ARCHITECTURE.md` leaves no crate out.

use super::table::ticked;
use super::{Findings, Tree};

const MAP: &str = "ARCHITECTURE.md";

pub(super) fn check(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    match tree.file(MAP) {
        None => findings.broken(MAP, 0, "is missing"),
        Some(map) => {
            for krate in &tree.crates {
                findings.looked_at += 1;
                let folder = format!("{}/", krate.folder);
                if !ticked(&map.text).any(|t| t == folder) {
                    findings.broken(
                        MAP,
                        0,
                        format!("the code map does not name `{folder}` ({})", krate.name),
                    );
                }
            }
        }
    }
    for file in tree.files.iter().filter(|f| f.path.ends_with(".md")) {
        for (line, text) in file.lines() {
            for target in links(text) {
                findings.looked_at += 1;
                let path = beside(&file.path, target);
                if !exists(tree, &path) {
                    findings.broken(
                        &file.path,
                        line,
                        format!("links to `{target}`, which does not exist"),
                    );
                }
            }
            for path in ticked(text).filter(|t| is_path(tree, t)) {
                findings.looked_at += 1;
                if !exists(tree, path.trim_end_matches('/')) {
                    findings.broken(
                        &file.path,
                        line,
                        format!("names `{path}`, which does not exist"),
                    );
                }
            }
        }
    }
    findings
}

/// Relative targets of `[text](target)` in a line, without their anchors.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?.split('#').next()?;
        (!target.is_empty() && !target.contains("://")).then_some(target)
    })
}

/// Whether a word between backticks is a path from the root: it begins with one of our folders and holds no blank,
/// pattern or place-holder.
fn is_path(tree: &Tree, word: &str) -> bool {
    let plain = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'));
    let top = word.split('/').next().unwrap_or_default();
    plain
        && word.contains('/')
        && tree
            .files
            .iter()
            .any(|f| f.path.split_once('/').is_some_and(|(t, _)| t == top))
}

/// `target` seen from the folder of `from`.
fn beside(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A file, or a folder with one below it.
fn exists(tree: &Tree, path: &str) -> bool {
    let below = |f: &str| {
        f.strip_prefix(path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    tree.files.iter().any(|f| below(&f.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pointed_at_must_exist() {
        let rows: &[(&str, &str)] = &[
            (
                "`protocol/` is floor 0; see [rules](docs/rules.md#sign) and `protocol/src/sign.rs`.",
                "",
            ),
            (
                "`protocol/`, `target/dist/`, `agents/v1/x`, [out](https://example.org/a)",
                "",
            ),
            ("nothing of it", "does not name `protocol/`"),
            (
                "`protocol/` and `protocol/src/gone.rs`",
                "names `protocol/src/gone.rs`",
            ),
            (
                "`protocol/` and [more](docs/gone.md)",
                "links to `docs/gone.md`",
            ),
        ];
        for (text, expected) in rows {
            let files = [
                (MAP, *text),
                ("protocol/src/sign.rs", ""),
                ("docs/rules.md", ""),
            ];
            let found = check(&Tree::of(&files, &[("protocol", "protocol", &[])])).violations;
            match *expected {
                "" => assert!(found.is_empty(), "{text}: {found:?}"),
                part => assert!(
                    found.len() == 1 && found[0].what.contains(part),
                    "{text}: {found:?}"
                ),
            }
        }
    }

    #[test]
    fn links_start_from_their_file() {
        assert_eq!(beside("docs/a.md", "../ARCHITECTURE.md"), "ARCHITECTURE.md");
        assert_eq!(beside("README.md", "docs/"), "docs");
    }
}
