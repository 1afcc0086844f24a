//! Who may use whom: the floors of `ARCHITECTURE.md`, over the manifests and the resolved graph.

use super::{Findings, Tree};

/// Every crate's floor. A new crate gets its line here and its place in `ARCHITECTURE.md`.
const FLOORS: &[(&str, u8)] = &[
    ("protocol", 0),
    ("record", 1),
    ("scenario", 1),
    ("agent-core", 2),
    ("portal-core", 2),
    ("agent-drive", 3),
    ("command-line", 3),
    ("fleet-sim", 3),
    ("mock-portal", 3),
    ("fleet", 4),
    ("top", 4),
    ("loadgen", 5),
    ("xtask", 5),
    ("e2e", 6),
];

/// Neighbours that may be used, as (who, whom).
const NEIGHBOURS: &[(&str, &str)] = &[("scenario", "record"), ("mock-portal", "command-line")];

/// Arrows that point downward and are forbidden all the same, as (who, whom, why).
const FORBIDDEN: &[(&str, &str, &str)] = &[
    (
        "agent-core",
        "scenario",
        "an agent cannot tell that it is being tested",
    ),
    (
        "portal-core",
        "agent-core",
        "the two agree only through protocol, or the mock would agree with our agent",
    ),
    (
        "agent-core",
        "portal-core",
        "the two agree only through protocol, or the mock would agree with our agent",
    ),
];

/// What must not be reachable from floors 0 to 2: whatever runs tasks, opens sockets or starts threads for others.
const RUNTIMES: &[&str] = &[
    "tokio",
    "mio",
    "hyper",
    "axum",
    "reqwest",
    "rustls",
    "socket2",
    "rustix",
    "async-std",
    "smol",
    "rayon",
];

/// The highest floor that is pure.
pub(super) const PURE: u8 = 2;

/// The floor of one of our crates.
pub(super) fn floor(name: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, floor)| *floor)
}

/// Dependencies, those of tests included, point to a lower floor.
pub(super) fn floors(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for krate in &tree.crates {
        let manifest = format!("{}/Cargo.toml", krate.folder);
        let Some(own) = floor(&krate.name) else {
            findings.broken(
                &manifest,
                0,
                format!(
                    "{} has no floor; give it one in xtask/src/tidy/crates.rs",
                    krate.name
                ),
            );
            continue;
        };
        for used in krate
            .uses
            .iter()
            .filter(|u| tree.crates.iter().any(|c| c.name == **u))
        {
            findings.looked_at += 1;
            let Some(theirs) = floor(used) else {
                continue;
            };
            let pair = (krate.name.as_str(), used.as_str());
            let dashboard = krate.folder.starts_with("dashboards/") && krate.name != "record";
            if let Some((.., why)) = FORBIDDEN.iter().find(|(a, b, _)| (*a, *b) == pair) {
                findings.broken(&manifest, 0, format!("{} uses {}: {why}", pair.0, pair.1));
            } else if theirs >= own && !NEIGHBOURS.contains(&pair) {
                findings.broken(
                    &manifest,
                    0,
                    format!(
                        "{} (floor {own}) uses {} (floor {theirs}): only downward",
                        pair.0, pair.1
                    ),
                );
            } else if dashboard && used != "record" {
                findings.broken(
                    &manifest,
                    0,
                    format!("{} uses {}: a dashboard knows record only", pair.0, pair.1),
                );
            }
        }
    }
    findings
}

/// No runtime behind floors 0 to 2, not even through somebody else's crate.
pub(super) fn runtimes(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for krate in tree
        .crates
        .iter()
        .filter(|c| floor(&c.name).is_some_and(|f| f <= PURE))
    {
        findings.looked_at += krate.reaches.len();
        for runtime in RUNTIMES.iter().filter(|r| krate.reaches.contains(**r)) {
            findings.broken(
                &format!("{}/Cargo.toml", krate.folder),
                0,
                format!(
                    "{} reaches {runtime}; cargo tree -p {} -i {runtime} shows how",
                    krate.name, krate.name
                ),
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_that_do_not_point_down_are_found() {
        let rows: &[(&str, &str, &[&str], &str)] = &[
            (
                "portal-core",
                "mock-portal/core",
                &["protocol", "record"],
                "",
            ),
            ("scenario", "scenarios", &["record"], ""),
            (
                "portal-core",
                "mock-portal/core",
                &["fleet"],
                "only downward",
            ),
            (
                "fleet-sim",
                "loadgen/sim",
                &["mock-portal"],
                "only downward",
            ),
            (
                "agent-core",
                "agent/core",
                &["portal-core"],
                "agree only through protocol",
            ),
            (
                "agent-core",
                "agent/core",
                &["scenario"],
                "cannot tell that it is being tested",
            ),
            ("newcomer", "newcomer", &["protocol"], "has no floor"),
        ];
        for (name, folder, uses, expected) in rows {
            let mut crates: Vec<(&str, &str, &[&str])> = vec![(name, folder, uses)];
            crates.extend(
                FLOORS
                    .iter()
                    .filter(|(n, _)| n != name)
                    .map(|(n, _)| (*n, *n, &[][..])),
            );
            let found = floors(&Tree::of(&[], &crates)).violations;
            if expected.is_empty() {
                assert!(found.is_empty(), "{name}: {found:?}");
            } else {
                assert_eq!(found.len(), 1, "{name}: {found:?}");
                assert!(found[0].what.contains(expected), "{name}: {found:?}");
            }
        }
    }

    #[test]
    fn a_runtime_behind_another_crate_is_found() {
        let mut tree = Tree::of(&[], &[("portal-core", "mock-portal/core", &["somebody"])]);
        tree.crates[0].reaches = ["somebody".to_owned()].into();
        assert!(runtimes(&tree).violations.is_empty());
        tree.crates[0].reaches.insert("tokio".to_owned());
        assert_eq!(runtimes(&tree).violations.len(), 1);
    }
}
