//! `cargo xtask tidy`: the invariants of `ARCHITECTURE.md` and the promises of the documents, as checks over the
//! dependency graph and the sources. What clippy can say is in `clippy.toml` instead.
//!
//! A check is a function from the [`Tree`] to what it found; it reads nothing else, so each is shown to fail on a
//! violation planted in a tree of a few lines. A check that looked at nothing fails as well.

mod cases;
mod code;
mod crates;
mod dependencies;
mod documents;
mod manners;
mod places;
mod purity;
mod rooms;
mod rules;
mod table;
mod tree;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

pub(crate) use table::row as table_row;
use tree::Tree;

/// Every check, in the order in which it is reported.
const CHECKS: &[Check] = &[
    Check {
        name: "floors",
        why: "dependencies point downward only",
        run: crates::floors,
    },
    Check {
        name: "runtimes",
        why: "floors 0 to 2 reach no runtime, not even through others",
        run: crates::runtimes,
    },
    Check {
        name: "purity",
        why: "the machines have no clock, chance or IO of their own",
        run: purity::check,
    },
    Check {
        name: "rooms",
        why: "processes, sockets and system paths each have one room",
        run: rooms::check,
    },
    Check {
        name: "manners",
        why: "no unwrap, no stubs, no ignored tests; modules say what they are",
        run: manners::check,
    },
    Check {
        name: "places",
        why: "no machine's paths and no registry's hosts",
        run: places::check,
    },
    Check {
        name: "rules",
        why: "every rule ID means something, every built rule has a test",
        run: rules::check,
    },
    Check {
        name: "cases",
        why: "every public failure that a test names is in docs/cases.md",
        run: cases::check,
    },
    Check {
        name: "dependencies",
        why: "docs/dependencies.md and Cargo.toml say the same",
        run: dependencies::check,
    },
    Check {
        name: "documents",
        why: "the code map is whole, and what documents point at exists",
        run: documents::check,
    },
];

struct Check {
    name: &'static str,
    why: &'static str,
    run: fn(&Tree) -> Findings,
}

/// What a check saw.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// How many things it judged: files, edges, rows.
    pub(crate) looked_at: usize,
    pub(crate) violations: Vec<Violation>,
}

impl Findings {
    /// Notes a violation in a line of a file, counted from 1; 0 for the file as a whole.
    pub(crate) fn broken(&mut self, path: &str, line: usize, what: impl Into<String>) {
        self.violations.push(Violation {
            path: path.to_owned(),
            line,
            what: what.into(),
        });
    }
}

/// One place that breaks a check, with what to do about it.
#[derive(Debug)]
pub(crate) struct Violation {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Runs all checks over the project at `root` and reports each on a line; returns how many there were.
///
/// # Errors
/// When the project cannot be read, or when a check is broken.
pub(crate) fn run(root: &Path, out: &mut dyn std::io::Write) -> Result<usize> {
    let tree = Tree::load(root)?;
    let mut broken = Vec::new();
    for check in CHECKS {
        let findings = (check.run)(&tree);
        let word = if findings.violations.is_empty() && findings.looked_at > 0 {
            "ok"
        } else {
            "BROKEN"
        };
        writeln!(
            out,
            "{:<13} {word:<6} {:>5} looked at: {}",
            check.name, findings.looked_at, check.why
        )?;
        for violation in &findings.violations {
            writeln!(out, "  {violation}")?;
        }
        if word != "ok" {
            broken.push(check.name);
        }
    }
    if !broken.is_empty() {
        bail!("not tidy: {}", broken.join(", "));
    }
    Ok(CHECKS.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_project_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut report = Vec::new();
        let result = run(root, &mut report);
        let report = String::from_utf8(report).unwrap();
        assert!(result.is_ok(), "{report}");
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = CHECKS.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), CHECKS.len());
    }

    #[test]
    fn nothing_to_look_at_is_a_failure() {
        let empty = Tree::of(&[], &[]);
        for check in CHECKS {
            let findings = (check.run)(&empty);
            assert!(
                findings.looked_at == 0 || !findings.violations.is_empty(),
                "{}",
                check.name
            );
        }
    }
}
