//! The tiers: what each runs, and where its count comes from.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Ending;
use super::count::{self, Count};
use crate::project::{Finished, KILLED, Project};
use crate::{tidy, tools};

/// One tier of tests.
pub(super) struct Tier {
    pub(super) name: &'static str,
    pub(super) proves: &'static str,
    pub(super) run: fn(&Project) -> Result<Ending>,
}

/// All tiers, quick ones first.
pub(super) const TIERS: &[Tier] = &[
    Tier {
        name: "format",
        proves: "every file is formatted",
        run: format,
    },
    Tier {
        name: "tidy",
        proves: "the invariants of ARCHITECTURE.md hold, the documents tell the truth",
        run: tidy,
    },
    Tier {
        name: "lint",
        proves: "clippy has nothing to say",
        run: lint,
    },
    Tier {
        name: "deny",
        proves: "licences, bans, sources; one TLS provider",
        run: deny,
    },
    Tier {
        name: "doc",
        proves: "the documentation builds, its links hold",
        run: doc,
    },
    Tier {
        name: "unit+behaviour",
        proves: "all tests of the workspace",
        run: unit_and_behaviour,
    },
    Tier {
        name: "vectors",
        proves: "another language computes the published vectors",
        run: vectors,
    },
    Tier {
        name: "python-client",
        proves: "a client in another language enrolls and syncs",
        run: python_client,
    },
    Tier {
        name: "hostile-requests",
        proves: "the portal answers what its OpenAPI documents describe, whatever is asked",
        run: hostile_requests,
    },
    Tier {
        name: "main-job",
        proves: "`loadgen run steady` ends in PASS, in release",
        run: main_job,
    },
    Tier {
        name: "benchmarks-fresh",
        proves: "docs/benchmarks.md is about this code",
        run: benchmarks_fresh,
    },
    Tier {
        name: "proofs-fresh",
        proves: "docs/proofs.md is about this code",
        run: proofs_fresh,
    },
];

/// Commits that may lie between the code that a page is about and this one.
const PAGE_AGE_MAX: usize = 50;
/// What benchmarks and proofs are about.
pub(crate) const MEASURED: &[&str] = &[
    "protocol",
    "agent",
    "mock-portal",
    "loadgen",
    "scenarios",
    "dashboards/record",
    "Cargo.lock",
];

fn format(project: &Project) -> Result<Ending> {
    let mut fmt = Command::new("cargo");
    fmt.args(["fmt", "--all", "--check", "--", "--verbose"]);
    let done = project
        .run("format", &mut fmt)?
        .ok("cargo fmt would change files")?;
    let passed = done
        .text
        .lines()
        .filter(|l| l.starts_with("Formatting "))
        .count();
    Ok(Ending::Ran(Count {
        passed,
        failed: 0,
        what: "files".to_owned(),
    }))
}

fn tidy(project: &Project) -> Result<Ending> {
    let mut report = Vec::new();
    let result = tidy::run(&project.root, &mut report);
    if result.is_err() {
        eprintln!("{}", String::from_utf8_lossy(&report));
    }
    Ok(Ending::Ran(Count {
        passed: result?,
        failed: 0,
        what: "checks".to_owned(),
    }))
}

fn lint(project: &Project) -> Result<Ending> {
    let mut clippy = Command::new("cargo");
    clippy.args([
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--keep-going",
        "--message-format=json",
        "--",
        "-D",
        "warnings",
    ]);
    let done = compiled(project.run("lint", &mut clippy)?, "clippy is not content")?;
    Ok(artifacts(project, &done, "", "targets"))
}

fn doc(project: &Project) -> Result<Ending> {
    let mut doc = Command::new("cargo");
    doc.args([
        "doc",
        "--quiet",
        "--workspace",
        "--no-deps",
        "--message-format=json",
    ])
    .env("RUSTDOCFLAGS", "-D warnings");
    let done = compiled(
        project.run("doc", &mut doc)?,
        "the documentation does not build",
    )?;
    Ok(artifacts(project, &done, ".html", "crates"))
}

/// Goes on only if a command that spoke cargo's JSON succeeded; otherwise shows what the compiler said.
fn compiled(done: Finished, complaint: &str) -> Result<Finished> {
    if done.success {
        return Ok(done);
    }
    eprintln!("{}", count::rendered(&done.text));
    bail!("{complaint}");
}

/// Counts the files of our own crates, with a certain ending, that a command made or found fresh.
fn artifacts(project: &Project, done: &Finished, ending: &str, what: &str) -> Ending {
    let passed = count::own_artifacts(&done.text, &project.root.to_string_lossy(), ending);
    Ending::Ran(Count {
        passed,
        failed: 0,
        what: what.to_owned(),
    })
}

fn deny(project: &Project) -> Result<Ending> {
    let program = match tools::cargo_deny(project) {
        Ok(program) => program,
        Err(why) => return Ok(Ending::NotRun(format!("{why:#}"))),
    };
    let mut deny = Command::new(program);
    deny.args(["check", "bans", "licenses", "sources"]);
    let done = project
        .run("deny", &mut deny)?
        .ok("cargo deny refuses the tree")?;
    let verdict = done.text.lines().last().unwrap_or_default();
    let passed = verdict.split(", ").filter(|v| v.ends_with(" ok")).count();

    let mut tree = Command::new("cargo");
    tree.args([
        "tree",
        "--workspace",
        "--exclude",
        "loadgen",
        "--exclude",
        "fleet",
        "--target",
        "all",
        "--invert",
        "aws-lc-rs",
    ]);
    let done = project.run("aws-lc-rs", &mut tree)?;
    if done.success || !done.text.contains("did not match any packages") {
        done.show_tail();
        bail!(
            "aws-lc-rs is in more than the load generator (its users are above), or cargo tree could not look for it"
        );
    }
    Ok(Ending::Ran(Count {
        passed: passed + 1,
        failed: 0,
        what: format!("{verdict}, aws-lc-rs in the load generator only"),
    }))
}

fn unit_and_behaviour(project: &Project) -> Result<Ending> {
    let mut test = Command::new("cargo");
    test.args(["test", "--workspace", "--no-fail-fast"]);
    let done = project.run("unit+behaviour", &mut test)?;
    let counted = count::cargo_test(&done.text);
    if done.success {
        return counted.map(Ending::Ran).map_err(anyhow::Error::msg);
    }
    show_failures(&done.text);
    match counted {
        Ok(counted) if counted.failed > 0 => Ok(Ending::Ran(counted)),
        _ => {
            done.show_tail();
            bail!("cargo test failed before it could count");
        }
    }
}

/// Shows every block that a failed test printed, from the log of `cargo test`.
fn show_failures(log: &str) {
    let mut show = false;
    for line in log.lines() {
        if line.starts_with("---- ") {
            show = true;
        } else if line == "failures:" || line.starts_with("test result:") {
            show = false;
        }
        let ends = line.ends_with("... FAILED") || line.starts_with(KILLED);
        if show || ends || is_hanging(log, line) {
            eprintln!("  | {line}");
        }
    }
}

/// Whether a line tells of a test that runs for long, and whose end no other line tells.
fn is_hanging(log: &str, line: &str) -> bool {
    let Some((test, _)) = line.split_once(" has been running for over ") else {
        return false;
    };
    !log.contains(&format!("{test} ... "))
}

fn vectors(project: &Project) -> Result<Ending> {
    let python = match tools::python(project, &tools::CHECKERS) {
        Ok(python) => python,
        Err(why) => return Ok(Ending::NotRun(format!("{why:#}"))),
    };
    let mut make = Command::new(&python);
    make.args(["protocol/vectors/make.py", "--check"]);
    project
        .run("vectors made", &mut make)?
        .ok("make.py would write other vectors than those that are there")?;
    let mut check = Command::new(python);
    check.arg("protocol/vectors/check.py");
    checked(project.run("vectors", &mut check)?)
}

fn python_client(project: &Project) -> Result<Ending> {
    let python = match tools::python(project, &tools::CHECKERS) {
        Ok(python) => python,
        Err(why) => return Ok(Ending::NotRun(format!("{why:#}"))),
    };
    let mut client = Command::new(python);
    client
        .arg("e2e/python/run.py")
        .arg("--portal-binary")
        .arg(built(project, "mock-portal")?);
    checked(project.run("python-client", &mut client)?)
}

fn hostile_requests(project: &Project) -> Result<Ending> {
    let python = match tools::python(project, &tools::HOSTILE) {
        Ok(python) => python,
        Err(why) => return Ok(Ending::NotRun(format!("{why:#}"))),
    };
    let mut hunt = Command::new(python);
    hunt.arg("e2e/python/hostile.py")
        .arg("--portal-binary")
        .arg(built(project, "mock-portal")?);
    checked(project.run("hostile-requests", &mut hunt)?)
}

/// Judges a checker that closes with `N passed, N failed`.
fn checked(done: Finished) -> Result<Ending> {
    let counted = count::closing_line(&done.text);
    match counted {
        Some(counted) if done.success || counted.failed > 0 => {
            if counted.failed > 0 {
                done.show_tail();
            }
            Ok(Ending::Ran(counted))
        }
        _ => {
            done.ok("the checker failed")?;
            bail!("the checker did not close with `N passed, N failed`");
        }
    }
}

/// Builds a program as `cargo test` does and says where it lies.
fn built(project: &Project, program: &str) -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    build.args([
        "build",
        "--quiet",
        "--workspace",
        "--bins",
        "--message-format=json",
    ]);
    let done = compiled(
        project.run("build", &mut build)?,
        "the programs do not build",
    )?;
    let found = count::executables(&done.text)
        .into_iter()
        .find(|(name, _)| name == program);
    found
        .map(|(_, path)| PathBuf::from(path))
        .with_context(|| format!("cargo built no {program}"))
}

fn main_job(project: &Project) -> Result<Ending> {
    let out = project.target.join("xtask/main-job");
    let mut run = Command::new("cargo");
    run.args([
        "run",
        "--quiet",
        "--release",
        "-p",
        "loadgen",
        "--",
        "run",
        "steady",
        "--out",
    ])
    .arg(&out);
    let done = project
        .run("main-job", &mut run)?
        .ok("the main job did not pass")?;
    let last = done.text.lines().last().unwrap_or_default();
    ensure!(
        last.starts_with("PASS"),
        "the main job exited 0 and its last line is {last:?}"
    );
    let path = out.join("result.json");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let result: Value =
        serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))?;
    let judged = result["expectations"].as_array().map_or(0, Vec::len);
    Ok(Ending::Ran(Count {
        passed: judged,
        failed: 0,
        what: format!("expectations; {last}"),
    }))
}

fn benchmarks_fresh(project: &Project) -> Result<Ending> {
    is_fresh(project, "docs/benchmarks.md", "cargo xtask bench")
}

fn proofs_fresh(project: &Project) -> Result<Ending> {
    is_fresh(project, "docs/proofs.md", "cargo xtask prove")
}

/// Whether a page that a chore has written is about this code; its figures are counted.
fn is_fresh(project: &Project, path: &str, chore: &str) -> Result<Ending> {
    let text = fs::read_to_string(project.root.join(path))
        .with_context(|| format!("read {path}: {chore} writes it"))?;
    let commit =
        measured_commit(&text).with_context(|| format!("{path} does not say `Commit: …`"))?;
    let figures = text
        .lines()
        .filter_map(tidy::table_row)
        .filter(|r| r.iter().any(starts_with_digit))
        .count();
    let mut log = Command::new("git");
    log.args(["rev-list", "--count", &format!("{commit}..HEAD"), "--"])
        .args(MEASURED);
    let done = project
        .run("fresh", &mut log)?
        .ok(&format!("git does not know the commit that {path} names"))?;
    let age: usize = done
        .text
        .lines()
        .last()
        .unwrap_or_default()
        .trim()
        .parse()
        .context("git rev-list --count")?;
    ensure!(
        age <= PAGE_AGE_MAX,
        "{path} is {age} commits of the measured crates old, more than {PAGE_AGE_MAX}: {chore}"
    );
    Ok(Ending::Ran(Count {
        passed: figures,
        failed: 0,
        what: format!("figures, {age} commits old"),
    }))
}

/// The commit that a page is about: the word after `Commit:`.
fn measured_commit(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("Commit:")?;
    let word = rest
        .split_whitespace()
        .next()?
        .trim_matches(['`', '.', ',']);
    (word.len() >= 7 && word.chars().all(|c| c.is_ascii_hexdigit())).then_some(word)
}

fn starts_with_digit(cell: &&str) -> bool {
    cell.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_tier_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = TIERS.iter().map(|t| t.name).collect();
        assert_eq!(names.len(), TIERS.len());
    }

    #[test]
    fn a_test_that_hangs_is_named() {
        let log = "test a has been running for over 60 seconds\n\
                   test b has been running for over 60 seconds\n\
                   test a ... ok\n";
        let hanging: Vec<&str> = log.lines().filter(|line| is_hanging(log, line)).collect();
        assert_eq!(hanging, ["test b has been running for over 60 seconds"]);
    }

    #[test]
    fn the_measured_commit_is_read() {
        assert_eq!(
            measured_commit("x\nCommit: `78842aa`, machine"),
            Some("78842aa")
        );
        assert_eq!(measured_commit("Commit: unknown"), None);
        assert_eq!(measured_commit("nothing"), None);
    }
}
