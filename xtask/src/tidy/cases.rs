//! Public failures that a test proves absent: `// case T9` in the sources, explained in `docs/cases.md`.
//!
//! A number is one letter for the kind of program the failure was seen in (T: node agents and updaters, H: handling
//! of HTTP and JSON, L: load generators) and a decimal number without leading zero.

use std::collections::BTreeSet;

use super::table::row;
use super::{Findings, Tree};

const TABLE: &str = "docs/cases.md";
const MARK: &str = concat!("// ca", "se ");

pub(super) fn check(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let Some(table) = tree.file(TABLE) else {
        findings.broken(TABLE, 0, "is missing");
        return findings;
    };
    let mut known = BTreeSet::new();
    for (line, text) in table.lines() {
        let Some(number) = row(text).and_then(|cells| cells.first().copied()) else {
            continue;
        };
        if number == "Number" {
            continue;
        }
        findings.looked_at += 1;
        if !is_number(number) {
            findings.broken(
                TABLE,
                line,
                format!("{number} is no number of a failure: T9, H12, L3"),
            );
        }
        if !known.insert(number) {
            findings.broken(TABLE, line, format!("{number} stands here twice"));
        }
    }
    let mut used = BTreeSet::new();
    // This crate speaks about numbers; it proves nothing about them.
    for file in tree
        .files
        .iter()
        .filter(|f| f.code.is_some() && !f.path.starts_with("xtask/"))
    {
        findings.looked_at += 1;
        for (line, text) in file.lines() {
            for number in numbers(text) {
                if !is_number(number) {
                    findings.broken(
                        &file.path,
                        line,
                        format!("`{number}` is no number of a failure: T9, H12, L3"),
                    );
                } else if !known.contains(number) {
                    findings.broken(&file.path, line, format!("{number} has no row in {TABLE}"));
                } else if !file.is_test_line(line) {
                    findings.broken(
                        &file.path,
                        line,
                        format!("{number} is named outside a test"),
                    );
                }
                used.insert(number);
            }
        }
    }
    for number in known.difference(&used) {
        findings.broken(
            TABLE,
            0,
            format!("{number} has a row, and no test names it"),
        );
    }
    findings
}

/// The words after the mark, when the first of them looks like a number rather than prose.
fn numbers(text: &str) -> Vec<&str> {
    let Some((_, rest)) = text.split_once(MARK) else {
        return Vec::new();
    };
    let list: Vec<&str> = rest
        .split([':', '(', ';', '.'])
        .next()
        .unwrap_or_default()
        .split([',', ' '])
        .filter(|w| !w.is_empty())
        .take_while(|w| w.chars().any(|c| c.is_ascii_digit()))
        .collect();
    list
}

fn is_number(word: &str) -> bool {
    let mut chars = word.chars();
    let letter = chars.next().is_some_and(|c| matches!(c, 'T' | 'H' | 'L'));
    let digits = chars.as_str();
    letter
        && !digits.is_empty()
        && !digits.starts_with('0')
        && digits.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_their_rows() {
        let table = "| Number | Seen | Here |\n|---|---|---|\n| T9 | a | b |\n";
        let rows: &[(&str, &str)] = &[
            ("T9", ""),
            ("T9: a server's fault answered 401", ""),
            ("T9, T10", "T10 has no row"),
            ("T09", "no number of a failure"),
            ("#11", "no number of a failure"),
            (
                "insensitive comparison",
                "T9 has a row, and no test names it",
            ),
        ];
        for (comment, expected) in rows {
            let text = format!("#[test]\nfn t() {{\n{MARK}{comment}\n}}\n");
            let tree = Tree::of(&[(TABLE, table), ("protocol/src/a.rs", &text)], &[]);
            let found: Vec<String> = check(&tree)
                .violations
                .iter()
                .map(ToString::to_string)
                .collect();
            match *expected {
                "" => assert!(found.is_empty(), "{comment}: {found:?}"),
                part => assert!(
                    found.iter().any(|f| f.contains(part)),
                    "{comment}: {found:?}"
                ),
            }
        }
    }

    #[test]
    fn a_number_outside_a_test_proves_nothing() {
        let table = "| Number | Seen | Here |\n|---|---|---|\n| T9 | a | b |\n";
        let text = format!("{MARK}T9\nfn f() {{}}\n");
        let tree = Tree::of(&[(TABLE, table), ("protocol/src/a.rs", &text)], &[]);
        assert_eq!(check(&tree).violations.len(), 1);
    }
}
