//! `docs/dependencies.md` against `[workspace.dependencies]` and the graph: same names, same licences, all used.

use std::collections::BTreeMap;

use super::table::{row, ticked};
use super::{Findings, Tree};

const TABLE: &str = "docs/dependencies.md";
const MANIFEST: &str = "Cargo.toml";

pub(super) fn check(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let (Some(table), Some(manifest)) = (tree.file(TABLE), tree.file(MANIFEST)) else {
        findings.broken(TABLE, 0, format!("{TABLE} or {MANIFEST} is missing"));
        return findings;
    };
    let wanted = match outside_dependencies(&manifest.text) {
        Ok(wanted) => wanted,
        Err(why) => {
            findings.broken(MANIFEST, 0, why);
            return findings;
        }
    };
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for (line, text) in table.lines() {
        let Some(cells) = row(text).filter(|c| c.first() != Some(&"Crate")) else {
            continue;
        };
        findings.looked_at += 1;
        let [name, purpose, passed_over, licence] = cells[..] else {
            findings.broken(
                TABLE,
                line,
                "a row has four cells: crate, for, passed over, licence",
            );
            continue;
        };
        let name = ticked(name).next().unwrap_or(name);
        if purpose.is_empty() || passed_over.is_empty() {
            findings.broken(
                TABLE,
                line,
                format!("{name}: say what it is for and what was passed over (– for nothing)"),
            );
        }
        if rows.insert(name, line).is_some() {
            findings.broken(TABLE, line, format!("{name} stands here twice"));
        }
        if !wanted.iter().any(|w| w == name) {
            findings.broken(
                TABLE,
                line,
                format!("{name} is no dependency of the workspace"),
            );
        } else if let Some(real) = tree
            .licences
            .get(name)
            .filter(|real| !real.contains(licence))
        {
            let real: Vec<&str> = real.iter().map(String::as_str).collect();
            findings.broken(
                TABLE,
                line,
                format!("{name} is under {}, not {licence}", real.join(" and ")),
            );
        }
    }
    for name in &wanted {
        if !rows.contains_key(name.as_str()) {
            findings.broken(MANIFEST, 0, format!("{name} has no row in {TABLE}"));
        }
        if !tree.crates.iter().any(|c| c.uses.contains(name)) {
            findings.broken(MANIFEST, 0, format!("{name} is used by no crate"));
        }
    }
    for krate in &tree.crates {
        for used in &krate.uses {
            let ours = tree.crates.iter().any(|c| c.name == *used);
            if !ours && !wanted.contains(used) {
                let what = format!("{used} is not in [workspace.dependencies]");
                findings.broken(&format!("{}/Cargo.toml", krate.folder), 0, what);
            }
        }
    }
    findings
}

/// Names in `[workspace.dependencies]` that are not folders of ours.
fn outside_dependencies(manifest: &str) -> Result<Vec<String>, String> {
    let parsed: toml::Table = manifest
        .parse()
        .map_err(|e: toml::de::Error| e.to_string())?;
    let table = parsed
        .get("workspace")
        .and_then(|w| w.get("dependencies"))
        .and_then(toml::Value::as_table);
    let table = table.ok_or("no [workspace.dependencies]")?;
    Ok(table
        .iter()
        .filter(|(_, v)| v.get("path").is_none())
        .map(|(k, _)| k.clone())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str =
        "[workspace.dependencies]\nprotocol = { path = \"protocol\" }\nserde = \"1\"\n";
    const ROW: &str = "| `serde` | Types. | – | MIT |\n";

    fn found(rows: &str, uses: &[&str]) -> Vec<String> {
        let text = format!("| Crate | For | Passed over | Licence |\n|---|---|---|---|\n{rows}");
        let mut tree = Tree::of(
            &[(TABLE, &text), (MANIFEST, TOML)],
            &[("protocol", "protocol", uses)],
        );
        tree.licences
            .insert("serde".to_owned(), ["MIT".to_owned()].into());
        check(&tree)
            .violations
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn table_and_manifest_must_say_the_same() {
        assert_eq!(found(ROW, &["serde"]), [""; 0]);
        let rows: &[(&str, &[&str], &str)] = &[
            ("", &["serde"], "serde has no row"),
            (ROW, &[], "serde is used by no crate"),
            (
                "| `serde` | Types. | – | GPL-3.0 |\n",
                &["serde"],
                "is under MIT, not GPL-3.0",
            ),
            (
                "| `serde` | | – | MIT |\n",
                &["serde"],
                "say what it is for",
            ),
            (
                "| `serde` | Types. | – | MIT |\n| `rand` | Chance. | – | MIT |\n",
                &["serde"],
                "rand is no dependency",
            ),
            (
                ROW,
                &["serde", "rand"],
                "rand is not in [workspace.dependencies]",
            ),
            (
                "| `serde` | Types. | – | MIT |\n| `serde` | Types. | – | MIT |\n",
                &["serde"],
                "stands here twice",
            ),
        ];
        for (rows, uses, expected) in rows {
            let found = found(rows, uses);
            assert!(
                found.iter().any(|f| f.contains(expected)),
                "{expected}: {found:?}"
            );
        }
    }
}
