//! `cargo xtask prove`: runs what takes longer than the test command may, and writes `docs/proofs.md`, which nothing else
//! writes.
//!
//! Each proof is a test of the workspace that is told to go through more than it does by itself, cut into parts of less
//! than nine minutes, as many at once as there are processors. A part that has held at this commit is not run again, so
//! that an interrupted proof goes on where it was. What a part has gone through is what its test says of itself: a line `proved {"what": …, "counts": {…}}`.

mod page;
mod proofs;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::page::Origin;
use crate::project::{Project, Stopwatch};
use crate::test::MEASURED;
use proofs::{PROOFS, Part, Proof};

const PAGE: &str = "docs/proofs.md";
/// The longest that a part may take, as `timeout` is told it.
const PART_SECONDS_MAX: &str = "540";

/// How `cargo xtask prove` runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run these proofs only, and leave the page as it is.
    #[arg(value_name = "PROOF", value_parser = names())]
    proofs: Vec<String>,
    /// Run parts again that have held at this commit.
    #[arg(long)]
    again: bool,
    /// Name the proofs, their parts and what each shows, run nothing.
    #[arg(long)]
    list: bool,
}

fn names() -> Vec<&'static str> {
    PROOFS.iter().map(|proof| proof.name).collect()
}

/// What was counted, by name.
type Counts = BTreeMap<String, u64>;

/// Runs the parts that have not held yet; writes the page once all have.
///
/// # Errors
/// When a part does not hold.
pub(crate) fn run(project: &Project, options: &Options, out: &mut dyn Write) -> Result<()> {
    if options.list {
        for proof in PROOFS {
            let parts = proof.parts().len();
            writeln!(out, "{:<14} {parts:>3} parts  {}", proof.name, proof.shows)?;
        }
        return Ok(());
    }
    let origin = Origin::of(project, MEASURED)?;
    let kept = project.target.join("xtask/proved").join(&origin.commit);
    fs::create_dir_all(&kept).with_context(|| format!("create {}", kept.display()))?;
    let all = options.proofs.is_empty();
    let chosen = |name: &str| all || options.proofs.iter().any(|wanted| wanted == name);
    let proofs: Vec<&Proof> = PROOFS.iter().filter(|proof| chosen(proof.name)).collect();
    for proof in &proofs {
        build(project, proof)?;
    }
    let parts: Vec<Part> = proofs.iter().flat_map(|proof| proof.parts()).collect();
    let counted = at_once(&parts, |at, part| {
        let of = format!("{} ({} of {})", part.name(), at + 1, parts.len());
        once(project, part, &kept, options.again, &of)
    })?;
    let mut proved = Vec::new();
    for proof in proofs {
        let mut sums = Counts::new();
        let its = parts.iter().zip(&counted);
        for (_, counts) in its.filter(|(part, _)| part.proof.name == proof.name) {
            for (name, count) in counts {
                *sums.entry(name.clone()).or_default() += count;
            }
        }
        writeln!(out, "{}: {}", proof.name, page::listed(&sums))?;
        proved.push((proof, sums));
    }
    if all {
        let path = project.root.join(PAGE);
        fs::write(&path, page::write(&origin, &proved))
            .with_context(|| format!("write {}", path.display()))?;
        eprintln!("xtask: {PAGE} is written");
    }
    Ok(())
}

/// Does something with every part, as many at once as there are processors, and gives what came of each. After the first
/// that fails no other begins.
fn at_once<T: Send>(
    parts: &[Part],
    each: impl Fn(usize, &Part) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    let Some(part) = parts.get(at) else { return };
                    let came = each(at, part);
                    if came.is_err() {
                        next.store(parts.len(), Relaxed);
                    }
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((at, came));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, came)| came).collect()
}

/// The test of a proof, by cargo.
fn cargo(proof: &Proof, options: &[&str]) -> Vec<String> {
    let mut words = vec![
        "cargo",
        "test",
        "--quiet",
        "--release",
        "--package",
        "fleet-sim",
    ];
    words.extend(["--test", proof.target]);
    words.extend(options);
    words.into_iter().map(str::to_owned).collect()
}

fn build(project: &Project, proof: &Proof) -> Result<()> {
    eprintln!("xtask: building {} …", proof.target);
    let mut build = Command::new("env");
    build.args(cargo(proof, &["--no-run"]));
    let built = project.run("prove-build", &mut build)?;
    built.ok("the tests do not build").map(|_| ())
}

/// What a part counts: as it was kept, or by running it.
fn once(project: &Project, part: &Part, kept: &Path, again: bool, of: &str) -> Result<Counts> {
    let path: PathBuf = kept.join(format!("{}.json", part.name()));
    if let (false, Ok(text)) = (again, fs::read_to_string(&path)) {
        eprintln!("xtask: {of} has held already");
        return serde_json::from_str::<Value>(&text)
            .ok()
            .and_then(|value| counts(&value))
            .with_context(|| {
                format!(
                    "{} is not what was written there: remove it",
                    path.display()
                )
            });
    }
    eprintln!("xtask: {of} …");
    let clock = Stopwatch::start();
    let proof = part.proof;
    let mut test = Command::new("timeout");
    test.arg(PART_SECONDS_MAX)
        .args(cargo(proof, &["--", "--exact", proof.test]))
        .envs(proof.variables.iter().copied());
    if let Some((first, count)) = part.seeds {
        test.env("PBX_LAB_FIRST_SEED", first.to_string());
        test.env("PBX_LAB_SEEDS", count.to_string());
    }
    let done = project
        .run(&format!("prove-{}", part.name()), &mut test)?
        .ok(&format!(
            "{} does not hold, or not within {PART_SECONDS_MAX} s",
            part.name()
        ))?;
    let counts = said(&done.text)
        .with_context(|| format!("{} does not say what it went through", proof.test))?;
    let text = json!({ "counts": counts }).to_string();
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    eprintln!("xtask: {of} held, {} s", clock.passed().as_secs());
    Ok(counts)
}

/// What a test has said of itself, summed up.
fn said(text: &str) -> Result<Counts> {
    let mut sums = Counts::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("proved ")) {
        let value: Value = serde_json::from_str(line).context("a line `proved` is no JSON")?;
        let counts = counts(&value).context("a line `proved` has no counts")?;
        for (name, count) in counts {
            *sums.entry(name).or_default() += count;
        }
    }
    ensure!(
        sums.values().any(|count| *count > 0),
        "there is no line `proved` that counts anything"
    );
    Ok(sums)
}

fn counts(value: &Value) -> Option<Counts> {
    let counts = value.get("counts")?.as_object()?;
    counts
        .iter()
        .map(|(name, count)| Some((name.clone(), count.as_u64()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_says_of_itself_is_summed_up() {
        let text = "running 1 test\n\nproved {\"what\":\"x\",\"counts\":{\"seeds\":2,\"agents\":3}}\n.\n\
                    proved {\"what\":\"y\",\"counts\":{\"seeds\":1}}\n";
        let sums = said(text).unwrap();
        assert_eq!(
            sums,
            Counts::from([("seeds".to_owned(), 3), ("agents".to_owned(), 3)])
        );
    }

    #[test]
    fn a_test_that_says_nothing_proves_nothing() {
        for text in [
            "test result: ok. 0 passed",
            "proved {\"counts\":{\"seeds\":0}}",
            "proved {}",
            "proved x",
        ] {
            assert!(said(text).is_err(), "{text}");
        }
    }
}
