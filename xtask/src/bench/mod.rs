//! `cargo xtask bench`: measures the product and writes `docs/benchmarks.md`, which nothing else writes.
//!
//! Each measurement is made five times, each time in a process of its own, and the median counts. Where others take much
//! of the machine meanwhile, a measurement is made again, as long as the time for the whole allows it, and the quietest
//! five count. A figure over its bound is written down as missed, with what a profile says, and ends the chore badly.

mod figures;
mod page;
mod profile;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::page::Origin;
use crate::project::{Project, Stopwatch};
use crate::test::{MEASURED, count};
use figures::{Figure, MEASUREMENTS, Measurement, OTHERS};
use page::Measured;

/// How often each measurement is made.
const RUNS: usize = 5;
/// How long the whole may take, building not counted.
const TIME_MAX: Duration = Duration::from_secs(12 * 60);
/// A run in which others took a larger share of the processors is made again if there is time.
const OTHERS_PERCENT_MAX: f64 = 5.0;
const PAGE: &str = "docs/benchmarks.md";

/// How `cargo xtask bench` runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Make these measurements only, print their figures, and leave the page as it is.
    #[arg(value_name = "MEASUREMENT", value_parser = names())]
    measurements: Vec<String>,
}

fn names() -> Vec<&'static str> {
    MEASUREMENTS.iter().map(|m| m.name).collect()
}

/// Measures, prints the page or the figures that were asked for, and writes the page if it is whole.
///
/// # Errors
/// When something could not be measured, or a figure misses its bound.
pub(crate) fn run(project: &Project, options: &Options, out: &mut dyn Write) -> Result<()> {
    let all = options.measurements.is_empty();
    let origin = if all {
        Some(Origin::of(project, MEASURED)?)
    } else {
        None
    };
    let program = build(project)?;
    let chosen = |m: &&Measurement| all || options.measurements.iter().any(|name| name == m.name);
    let chosen: Vec<&Measurement> = MEASUREMENTS.iter().filter(chosen).collect();
    let clock = Stopwatch::start();
    let mut measured = Vec::new();
    for (at, measurement) in chosen.iter().enumerate() {
        let later: u64 = chosen[at + 1..].iter().map(|m| m.seconds).sum();
        let until = TIME_MAX.saturating_sub(Duration::from_secs(later * RUNS as u64));
        let runs = runs(&program, measurement, &clock, until)?;
        measured.push(Measured { measurement, runs });
    }
    let mut profiles = BTreeMap::new();
    for measured in &measured {
        let name = measured.measurement.name;
        if !measured.misses().any(Figure::is_processor_time) {
            continue;
        }
        profiles.insert(name, profile::of(project, &program, name));
    }
    let text = page::write(origin.as_ref(), &measured, &profiles);
    writeln!(out, "{text}")?;
    if all {
        let path = project.root.join(PAGE);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        eprintln!("xtask: {PAGE} is written");
    }
    let missed: Vec<&str> = measured
        .iter()
        .flat_map(Measured::misses)
        .map(|figure| figure.what)
        .collect();
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// Builds the program that measures, in release.
fn build(project: &Project) -> Result<PathBuf> {
    eprintln!("xtask: building in release …");
    let mut build = Command::new("cargo");
    build.args([
        "bench",
        "--no-run",
        "--quiet",
        "--locked",
        "--package",
        "fleet",
        "--bench",
        "figures",
        "--message-format=json",
    ]);
    let done = project.run("build-figures", &mut build)?;
    if !done.success {
        eprintln!("{}", count::rendered(&done.text));
        done.show_tail();
        bail!("the measurements do not build");
    }
    let found = count::executables(&done.text)
        .into_iter()
        .find(|(name, _)| name == "figures");
    found
        .map(|(_, path)| PathBuf::from(path))
        .context("cargo built no figures")
}

/// One run's figures by name.
type Run = BTreeMap<String, f64>;

/// Makes a measurement until there are enough quiet runs, or no time for more.
fn runs(
    program: &Path,
    measurement: &Measurement,
    clock: &Stopwatch,
    until: Duration,
) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    loop {
        let quiet = runs.iter().filter(|run| is_quiet(run)).count();
        let one_more = clock.passed() + Duration::from_secs(measurement.seconds);
        if quiet >= RUNS || runs.len() >= RUNS && one_more > until {
            break;
        }
        ensure!(
            clock.passed() < TIME_MAX,
            "not done within {} minutes: the machine is too busy",
            TIME_MAX.as_secs() / 60
        );
        let run = once(program, measurement)?;
        eprintln!(
            "xtask: {:>3} s  {} {run:?}",
            clock.passed().as_secs(),
            measurement.name
        );
        runs.push(run);
    }
    runs.sort_by(|a, b| others(a).total_cmp(&others(b)));
    runs.truncate(RUNS);
    Ok(runs)
}

fn others(run: &Run) -> f64 {
    run.get(OTHERS).copied().unwrap_or(0.0)
}

fn is_quiet(run: &Run) -> bool {
    others(run) <= OTHERS_PERCENT_MAX
}

fn once(program: &Path, measurement: &Measurement) -> Result<Run> {
    let name = measurement.name;
    let done = Command::new(program)
        .arg(name)
        .output()
        .with_context(|| format!("start {}", program.display()))?;
    ensure!(
        done.status.success(),
        "{name} could not be measured: {}",
        String::from_utf8_lossy(&done.stderr).trim()
    );
    let run: Run = serde_json::from_slice(&done.stdout)
        .with_context(|| format!("{name} printed something else than figures"))?;
    for figure in measurement.figures {
        ensure!(
            run.contains_key(figure.name),
            "{name} printed no {}",
            figure.name
        );
    }
    Ok(run)
}
