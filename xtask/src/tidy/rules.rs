//! `docs/rules.md` against the sources: an ID that a test or a comment names must stand there, a module that the
//! table names must exist, and a rule that is built must have a test that names it.
//!
//! Whether a test would turn red without its rule cannot be seen from here; that is tried by turning rules off.

use std::collections::{BTreeMap, BTreeSet};

use super::table::{row, ticked};
use super::tree::File;
use super::{Findings, Tree};

const TABLE: &str = "docs/rules.md";

/// A row of the table.
struct Rule<'a> {
    line: usize,
    home: &'a str,
}

pub(super) fn check(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let Some(table) = tree.file(TABLE) else {
        findings.broken(TABLE, 0, "is missing");
        return findings;
    };
    let rules = read(table, &mut findings);
    let families: BTreeSet<&str> = rules.keys().filter_map(|id| id.split('-').next()).collect();
    let mut tested = BTreeSet::new();
    // This crate speaks about IDs; it proves no rule.
    for file in tree
        .files
        .iter()
        .filter(|f| f.path != TABLE && !f.path.starts_with("xtask/"))
    {
        for (line, text) in file.lines() {
            for id in ids(text, &families) {
                if !rules.contains_key(id.as_str()) {
                    findings.broken(
                        &file.path,
                        line,
                        format!("{id} stands in no table of {TABLE}"),
                    );
                } else if file.is_test_line(line) {
                    tested.insert(id);
                }
            }
        }
    }
    for (id, rule) in &rules {
        findings.looked_at += 1;
        if rule.home == "later" || rule.home.starts_with("later: ") {
            continue;
        }
        let modules: Vec<&str> = ticked(rule.home).collect();
        if modules.is_empty() {
            findings.broken(
                TABLE,
                rule.line,
                format!("{id} names neither a module nor `later`"),
            );
        }
        for module in modules.iter().filter(|m| !module_exists(tree, m)) {
            findings.broken(
                TABLE,
                rule.line,
                format!("{id} lives in {module}, which does not exist"),
            );
        }
        if !id.starts_with("referee") && !tested.contains(*id) {
            findings.broken(
                TABLE,
                rule.line,
                format!("{id} is built, and no test names it"),
            );
        }
    }
    findings
}

/// Reads the rows `| ID | rule | where |`; referees have numbers for IDs.
fn read<'a>(table: &'a File, findings: &mut Findings) -> BTreeMap<&'a str, Rule<'a>> {
    let mut rules = BTreeMap::new();
    for (line, text) in table.lines() {
        let Some(cells) = row(text) else { continue };
        let [id, rule, home] = cells[..] else {
            findings.broken(TABLE, line, "a row has three cells: ID, rule, where");
            continue;
        };
        let is_id = id.split_once('-').is_some_and(|(family, number)| {
            family.chars().all(|c| c.is_ascii_uppercase()) && number.parse::<u16>().is_ok()
        });
        if is_id {
            if rule.is_empty() {
                findings.broken(TABLE, line, format!("{id} says nothing"));
            }
            if rules.insert(id, Rule { line, home }).is_some() {
                findings.broken(TABLE, line, format!("{id} stands here twice"));
            }
        }
    }
    rules
}

/// Rule IDs of known families in a line: `SIGN-3` as a word, or `sign_3` in a function's name.
fn ids(text: &str, families: &BTreeSet<&str>) -> Vec<String> {
    let mut found = Vec::new();
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    for token in text.split(|c: char| !word(c)) {
        let mut parts = token.split('-');
        if let (Some(family), Some(number), None) = (parts.next(), parts.next(), parts.next())
            && families.contains(family)
            && number.chars().all(|c| c.is_ascii_digit())
            && !number.is_empty()
        {
            found.push(token.to_owned());
        }
        // In a test's name: `fn sign_3_headers`, `fn rule_sign_3`.
        let names: Vec<&str> = if text.contains("fn ") {
            token.split('_').collect()
        } else {
            Vec::new()
        };
        for w in names.windows(2) {
            let family = w[0].to_ascii_uppercase();
            if families.contains(family.as_str())
                && !w[1].is_empty()
                && w[1].chars().all(|c| c.is_ascii_digit())
            {
                found.push(format!("{family}-{}", w[1]));
            }
        }
    }
    found
}

/// Whether `crate::a::b` is a module: a file, a folder with `mod.rs`, or `mod b` inside its parent.
fn module_exists(tree: &Tree, module: &str) -> bool {
    let mut parts = module.split("::");
    let Some(krate) = parts
        .next()
        .and_then(|name| tree.crates.iter().find(|c| c.name == name))
    else {
        return false;
    };
    let path = parts.fold(format!("{}/src", krate.folder), |path, part| {
        format!("{path}/{part}")
    });
    let is = |p: String| tree.file(&p).is_some();
    if path.ends_with("/src") {
        return is(format!("{path}/lib.rs")) || is(format!("{path}/main.rs"));
    }
    is(format!("{path}.rs")) || is(format!("{path}/mod.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "| ID | Rule | Where |\n|---|---|---|\n\
                        | SIGN-3 | Headers. | `protocol::sign` |\n\
                        | RM-2 | k3s stays. | later |\n\
                        | RM-3 | A list. | later: `agent-node::uninstall` |\n";
    const TEST: &str =
        "#[cfg(test)]\nmod tests {\n  // rule SIGN-3\n  #[test]\n  fn headers() {}\n}\n";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files, &[("protocol", "protocol", &[])]);
        check(&tree)
            .violations
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn ids_are_read_as_words() {
        let families = BTreeSet::from(["SIGN", "KEY"]);
        let rows: &[(&str, &[&str])] = &[
            ("// rule SIGN-3, KEY-2", &["SIGN-3", "KEY-2"]),
            ("fn rule_sign_6_order() {}", &["SIGN-6"]),
            ("fn sign_3_then_key_2() {}", &["SIGN-3", "KEY-2"]),
            ("SHA-256, UTF-8, MY-KEY-2, SIGN-", &[]),
            ("key_1 and sign_2 are names", &[]),
        ];
        for (text, expected) in rows {
            assert_eq!(ids(text, &families), *expected, "{text}");
        }
    }

    #[test]
    fn a_table_that_fits_the_sources_is_fine() {
        assert_eq!(
            found(&[(TABLE, ROWS), ("protocol/src/sign.rs", TEST)]),
            [""; 0]
        );
        let by_name = "#[test]\nfn rule_sign_3() {}\n";
        assert_eq!(
            found(&[
                (TABLE, ROWS),
                ("protocol/src/sign.rs", ""),
                ("e2e/tests/a.rs", by_name)
            ]),
            [""; 0]
        );
        let python = "def check():  # rule SIGN-3\n    pass\n";
        assert_eq!(
            found(&[
                (TABLE, ROWS),
                ("protocol/src/sign.rs", ""),
                ("protocol/vectors/check.py", python)
            ]),
            [""; 0]
        );
    }

    #[test]
    fn what_does_not_fit_is_found() {
        let outside = "// rule SIGN-3\nfn f() {}\n";
        let unknown = "#[cfg(test)]\nmod tests {\n  // rule SIGN-3, SIGN-99\n}\n";
        let twice = format!("{ROWS}| SIGN-3 | Again. | later |\n");
        let rows: &[(&[(&str, &str)], &str)] = &[
            (&[("protocol/src/sign.rs", TEST)], "is missing"),
            (
                &[(TABLE, ROWS), ("protocol/src/sign.rs", outside)],
                "no test names it",
            ),
            (
                &[(TABLE, ROWS), ("protocol/src/sign.rs", unknown)],
                "SIGN-99 stands in no table",
            ),
            (
                &[(TABLE, ROWS), ("protocol/src/other.rs", TEST)],
                "which does not exist",
            ),
            (
                &[(TABLE, &twice), ("protocol/src/sign.rs", TEST)],
                "stands here twice",
            ),
        ];
        for (files, expected) in rows {
            let found = found(files);
            assert!(
                found.iter().any(|f| f.contains(expected)),
                "{expected}: {found:?}"
            );
        }
    }
}
