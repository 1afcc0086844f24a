//! `cargo xtask bench`: measures the product and writes `docs/benchmarks.md`, which nothing else writes.
//!
//! Each measurement is made several times, each time in a process of its own, and the median counts. Where others take
//! much of the machine meanwhile, a measurement is made again, as long as the time for the whole allows it, and the
//! quietest count. A figure over its bound is written down as missed, with what a profile says, and ends the chore badly.
//! Programs that others make are installed for it; one that cannot be had or run is written down as not measured.

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
use figures::{Figure, MEASUREMENTS, Measurement, OTHERS, Program};
use page::Measured;

/// How long the whole may take, building and installing not counted.
const TIME_MAX: Duration = Duration::from_secs(25 * 60);
/// How often a measurement is made at most, for each time that counts: on a busy machine the first must not take the
/// time of all.
const TRIES_A_RUN: usize = 3;
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
    let chosen = |m: &&Measurement| all || options.measurements.iter().any(|name| name == m.name);
    let chosen: Vec<&Measurement> = MEASUREMENTS.iter().filter(chosen).collect();
    let figures = build(
        project,
        &["bench", "--no-run"],
        "fleet",
        &["--bench", "figures"],
    )?;
    let mut commands = Vec::new();
    for measurement in &chosen {
        commands.push(command(project, &figures, measurement)?);
    }
    let clock = Stopwatch::start();
    let mut measured = Vec::new();
    for (at, (measurement, command)) in chosen.iter().zip(commands).enumerate() {
        let later = chosen[at + 1..].iter().map(|m| m.seconds * m.runs as u64);
        let until = TIME_MAX.saturating_sub(Duration::from_secs(later.sum()));
        let runs = command.and_then(|mut command| runs(&mut command, measurement, &clock, until));
        let of_peer = matches!(measurement.program, Some(Program::Peer(_)));
        measured.push(match runs {
            Ok(runs) => Measured::made(measurement, runs),
            Err(why) if of_peer => {
                eprintln!("xtask: {} is not measured: {why:#}", measurement.name);
                Measured::missing(measurement, format!("{why:#}"))
            }
            Err(why) => return Err(why),
        });
    }
    let mut profiles = BTreeMap::new();
    for measured in &measured {
        let name = measured.measurement.name;
        if !measured.misses().any(Figure::is_processor_time) {
            continue;
        }
        profiles.insert(name, profile::of(project, &figures, name));
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

/// Builds a program of a package, in release.
fn build(project: &Project, how: &[&str], package: &str, what: &[&str]) -> Result<PathBuf> {
    eprintln!("xtask: building {package} in release …");
    let mut build = Command::new("cargo");
    build
        .args(how)
        .args([
            "--quiet",
            "--locked",
            "--message-format=json",
            "--package",
            package,
        ])
        .args(what);
    let done = project.run(&format!("build-{package}"), &mut build)?;
    if !done.success {
        eprintln!("{}", count::rendered(&done.text));
        done.show_tail();
        bail!("{package} does not build");
    }
    let name = what.last().copied().unwrap_or(package);
    let found = count::executables(&done.text)
        .into_iter()
        .find(|(built, _)| built == name);
    found
        .map(|(_, path)| PathBuf::from(path))
        .with_context(|| format!("cargo built no {name}"))
}

/// What makes a measurement once. A peer's program that cannot be had is the inner error.
fn command(
    project: &Project,
    figures: &Path,
    measurement: &Measurement,
) -> Result<Result<Command>> {
    let mut command = Command::new(figures);
    command.arg(measurement.name);
    match measurement.program {
        None => {}
        Some(Program::Loadgen) => {
            let how = ["build", "--release"];
            command.arg(build(project, &how, "loadgen", &["--bin", "loadgen"])?);
        }
        Some(Program::Peer(peer)) => match peer.installed(project) {
            Ok((program, libraries)) => {
                command.arg(program);
                if let Some(libraries) = libraries {
                    command.env("LD_LIBRARY_PATH", libraries);
                }
            }
            Err(why) => return Ok(Err(why)),
        },
    }
    Ok(Ok(command))
}

/// One run's figures by name.
type Run = BTreeMap<String, f64>;

/// Makes a measurement until there are enough quiet runs, or no time for more.
fn runs(
    command: &mut Command,
    measurement: &Measurement,
    clock: &Stopwatch,
    until: Duration,
) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    loop {
        let quiet = runs.iter().filter(|run| is_quiet(run)).count();
        let one_more = clock.passed() + Duration::from_secs(measurement.seconds);
        let is_tried_enough = runs.len() >= TRIES_A_RUN * measurement.runs;
        let has_no_time = runs.len() >= measurement.runs && one_more > until;
        if quiet >= measurement.runs || is_tried_enough || has_no_time {
            break;
        }
        ensure!(
            clock.passed() < TIME_MAX,
            "not done within {} minutes: the machine is too busy",
            TIME_MAX.as_secs() / 60
        );
        let run = once(command, measurement)?;
        eprintln!(
            "xtask: {:>3} s  {} {run:?}",
            clock.passed().as_secs(),
            measurement.name
        );
        runs.push(run);
    }
    runs.sort_by(|a, b| others(a).total_cmp(&others(b)));
    runs.truncate(measurement.runs);
    Ok(runs)
}

fn others(run: &Run) -> f64 {
    run.get(OTHERS).copied().unwrap_or(0.0)
}

fn is_quiet(run: &Run) -> bool {
    others(run) <= OTHERS_PERCENT_MAX
}

fn once(command: &mut Command, measurement: &Measurement) -> Result<Run> {
    let name = measurement.name;
    let done = command
        .output()
        .with_context(|| format!("start {}", command.get_program().display()))?;
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
