//! `cargo xtask test`: every tier of tests, one after the other, and one line for each at the end.
//!
//! A tier's count comes from what its tests printed. A tier that counted nothing has failed, and so has, in CI, a
//! tier that did not run: silence is no success. A failed tier does not stop the others.

pub(crate) mod count;
mod tiers;

use std::fmt;
use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::FalseyValueParser;

use crate::project::{Project, Stopwatch};
use count::Count;
pub(crate) use tiers::MEASURED;
use tiers::TIERS;

/// How `cargo xtask test` runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run these tiers only.
    #[arg(value_name = "TIER", value_parser = tier_names())]
    tiers: Vec<String>,
    /// A tier that could not run is a failure.
    #[arg(long, env = "CI", value_parser = FalseyValueParser::new())]
    ci: bool,
    /// Name the tiers and what each proves, run nothing.
    #[arg(long)]
    list: bool,
}

/// How one tier ended.
#[derive(Debug, Clone)]
enum Ending {
    Ran(Count),
    /// With the reason.
    NotRun(String),
    /// With the reason.
    Broke(String),
}

/// One tier's line in the summary.
#[derive(Debug)]
struct Line {
    tier: &'static str,
    ending: Ending,
    took: Duration,
}

/// Runs the tiers and prints the summary.
///
/// # Errors
/// When a tier failed, or was owed and did not run.
pub(crate) fn run(project: &Project, options: &Options, out: &mut dyn Write) -> Result<()> {
    if options.list {
        for tier in TIERS {
            writeln!(out, "{:<17} {}", tier.name, tier.proves)?;
        }
        return Ok(());
    }
    let chosen = |name: &str| options.tiers.is_empty() || options.tiers.iter().any(|t| t == name);
    let mut lines = Vec::new();
    for tier in TIERS.iter().filter(|t| chosen(t.name)) {
        eprintln!("xtask: {} …", tier.name);
        let clock = Stopwatch::start();
        let ending =
            (tier.run)(project).unwrap_or_else(|error| Ending::Broke(format!("{error:#}")));
        let line = Line {
            tier: tier.name,
            ending,
            took: clock.passed(),
        };
        eprintln!("xtask: {line}");
        lines.push(line);
    }
    // A tier that was asked for by name is owed as in CI.
    summary(&lines, options.ci || !options.tiers.is_empty(), out)
}

/// Prints a line for each tier and the closing line; fails when a tier did.
fn summary(lines: &[Line], owed: bool, out: &mut dyn Write) -> Result<()> {
    let (mut passed, mut failed, mut bad) = (0, 0, Vec::new());
    for line in lines {
        writeln!(out, "{line}")?;
        passed += line.ending.passed();
        failed += line.ending.failed(owed);
        if line.ending.failed(owed) > 0 {
            bad.push(line.tier);
        }
    }
    writeln!(out, "{passed} passed, {failed} failed")?;
    if !bad.is_empty() {
        bail!("failed: {}", bad.join(", "));
    }
    Ok(())
}

impl Ending {
    fn passed(&self) -> usize {
        match self {
            Self::Ran(count) => count.passed,
            Self::NotRun(_) | Self::Broke(_) => 0,
        }
    }

    /// How many failures this is; a tier that broke, or counted nothing, or was owed and did not run, is one.
    fn failed(&self, owed: bool) -> usize {
        match self {
            Self::Ran(Count {
                passed: 0,
                failed: 0,
                ..
            })
            | Self::Broke(_) => 1,
            Self::Ran(count) => count.failed,
            Self::NotRun(_) => usize::from(owed),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<17} {:>5} passed {:>4} s  ",
            self.tier,
            self.ending.passed(),
            self.took.as_secs()
        )?;
        match &self.ending {
            Ending::Ran(Count {
                passed: 0,
                failed: 0,
                ..
            }) => write!(f, "FAILED: counted no test"),
            Ending::Ran(count) if count.failed > 0 => {
                write!(f, "FAILED: {} failed; {}", count.failed, count.what)
            }
            Ending::Ran(count) => write!(f, "run: {}", count.what),
            Ending::NotRun(why) => write!(f, "not run: {why}"),
            Ending::Broke(why) => write!(f, "FAILED: {why}"),
        }
    }
}

fn tier_names() -> Vec<&'static str> {
    TIERS.iter().map(|t| t.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_a_failure() {
        let ran = |passed, failed| {
            Ending::Ran(Count {
                passed,
                failed,
                what: "tests".to_owned(),
            })
        };
        let rows: &[(Ending, bool, bool, &str)] = &[
            (ran(12, 0), false, false, "12 passed"),
            (ran(12, 1), true, true, "FAILED: 1 failed"),
            (ran(0, 0), true, true, "counted no test"),
            (
                Ending::NotRun("no python3".to_owned()),
                false,
                true,
                "not run: no python3",
            ),
            (
                Ending::Broke("it burnt".to_owned()),
                true,
                true,
                "FAILED: it burnt",
            ),
        ];
        for (ending, not_owed, owed, text) in rows {
            assert_eq!(ending.failed(false) > 0, *not_owed, "{ending:?}");
            assert_eq!(ending.failed(true) > 0, *owed, "{ending:?}");
            let line = Line {
                tier: "unit+behaviour",
                ending: ending.clone(),
                took: Duration::from_secs(3),
            };
            assert!(line.to_string().contains(text), "{line}");
        }
    }

    #[test]
    fn the_summary_ends_with_the_sums_and_names_what_failed() {
        let line = |tier, ending| Line {
            tier,
            ending,
            took: Duration::ZERO,
        };
        let count = |passed, failed| {
            Ending::Ran(Count {
                passed,
                failed,
                what: String::new(),
            })
        };
        let mut out = Vec::new();
        let lines = [line("format", count(30, 0)), line("vectors", count(60, 2))];
        let error = summary(&lines, true, &mut out).unwrap_err();
        assert_eq!(error.to_string(), "failed: vectors");
        assert!(
            String::from_utf8(out)
                .unwrap()
                .ends_with("\n90 passed, 2 failed\n")
        );
    }
}
