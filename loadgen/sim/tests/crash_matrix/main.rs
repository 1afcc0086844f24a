//! The crash matrix: every kind of operation, crashed at every step, at every point of it, in two ways, and crashed once
//! more while it recovers.
//!
//! A case ([`cases`]) is a kind with what it needs and what the node must look like in the end. It is run once without a
//! crash, which tells the *occasions* there are: each write of the agent's record, each task of the host with its durable
//! effects, each call. Then it is run again for each point of each occasion: before it, between any two of its effects,
//! after it and before the agent knows; with the program alone dying, and with the power cut. That is a cell. What a cell
//! must come to is a table ([`rows`]), with a row for each step of each kind.
//!
//! Each cell is run once more with a second crash at a point of its recovery; with `PBX_LAB_MATRIX=all` at every one, with
//! a cell's number at every one of that cell alone.

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails with the line that was wrong"
)]

mod bench;
mod cases;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::num::NonZero;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fleet_sim::host::{Fall, Leftover};
use fleet_sim::simulation::{Occasion, Planned, Site};
use protocol::pbx::operation::{OperationKind, Step};
use serde_json::json;

use bench::{Bench, Ran};
use cases::{CASES, Case};
use rows::{End, Hit};

/// One point at which an operation is crashed.
#[derive(Debug, Clone, Copy)]
struct Cell {
    case: &'static Case,
    hit: Hit,
    planned: Planned,
}

/// All points of a run's occasions, from one on.
fn points(occasions: &[Occasion], from: usize) -> Vec<(Planned, Hit)> {
    let mut points = Vec::new();
    for (number, occasion) in occasions.iter().enumerate().skip(from) {
        let Some(step) = occasion.step else { continue };
        let is_task_of_step =
            |it: &Occasion| it.site == Site::Task && it.step == Some(step) && it.effects > 0;
        let behind_task = occasions[..number].iter().any(is_task_of_step);
        for fall in [Fall::Program, Fall::Power] {
            for effects in 0..=occasion.effects {
                let leftover = Leftover { effects, fall };
                let planned = Planned {
                    occasion: number,
                    leftover,
                };
                let hit = Hit {
                    site: occasion.site,
                    step,
                    effects,
                    all: occasion.effects,
                    fall,
                    behind_task,
                    is_first: number == 0,
                };
                points.push((planned, hit));
            }
        }
    }
    points
}

/// A run of a case with these crashes, and whether it ended as it must.
fn run(case: &'static Case, crashes: &[(Planned, Hit)]) -> Ran {
    let planned = crashes.iter().map(|(planned, _)| *planned);
    let (bench, ran) = Bench::run(case, planned);
    let hits: Vec<Hit> = crashes.iter().map(|(_, hit)| *hit).collect();
    let ends = rows::ends(&case.kind(), &hits);
    let end = End::of(&ran.view);
    assert!(
        ends.contains(&end),
        "{end:?}, expected one of {ends:?}, after {hits:#?}: {:#?}",
        ran.view
    );
    bench.judge(case, &ran);
    ran
}

/// Does this for each item on all processors; those that fail are named.
fn for_each<T: Sync, R: Send>(
    items: &[T],
    name: impl Fn(&T) -> String + Sync,
    of: fn(&T) -> R,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let came = catch_unwind(std::panic::AssertUnwindSafe(|| of(item)));
            done.push((name(item), came.ok()));
        }
        done
    };
    let done: Vec<_> = thread::scope(|scope| {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap());
        joined.flatten().collect()
    });
    let failed: Vec<&String> = done
        .iter()
        .filter(|(_, came)| came.is_none())
        .map(|(name, _)| name)
        .collect();
    assert!(failed.is_empty(), "{} fail: {failed:#?}", failed.len());
    done.into_iter().filter_map(|(_, came)| came).collect()
}

/// Which second crashes there are: one a cell, all, or all of one cell alone, whose number is given.
enum Matrix {
    OneEach,
    All,
    Cell(usize),
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test has no command line of its own to say how much of it to run"
)]
fn matrix() -> Matrix {
    match std::env::var("PBX_LAB_MATRIX").as_deref() {
        Err(_) => Matrix::OneEach,
        Ok("all") => Matrix::All,
        Ok(number) => Matrix::Cell(
            number
                .parse()
                .expect("PBX_LAB_MATRIX is all, or a cell's number"),
        ),
    }
}

/// The cells of all cases, and each with the number that says which point of its recovery is its own.
fn cells() -> Vec<(usize, Cell)> {
    let cells = CASES.iter().flat_map(|case| {
        let ran = run(case, &[]);
        let points = points(&ran.occasions, 0).into_iter();
        points.map(move |(planned, hit)| Cell { case, hit, planned })
    });
    cells.enumerate().collect()
}

/// Runs a cell, and then again with second crashes; how many there were.
fn prove((number, cell): &(usize, Cell)) -> u64 {
    let first = (cell.planned, cell.hit);
    let ran = run(cell.case, &[first]);
    let recovery = points(&ran.occasions, cell.planned.occasion + 1);
    let chosen: Vec<_> = match matrix() {
        Matrix::All | Matrix::Cell(_) => recovery,
        // A prime, so that all kinds of points come up.
        Matrix::OneEach => {
            let at = number * 7 % recovery.len().max(1);
            recovery.get(at).copied().into_iter().collect()
        }
    };
    for second in &chosen {
        run(cell.case, &[first, *second]);
    }
    chosen.len() as u64
}

// rules OPS-2, OPS-4, OPS-7, OPS-8
#[test]
fn every_operation_survives_a_crash_at_every_point_and_another_one_while_it_recovers() {
    let cells = cells();
    // Every step of every kind has a cell before it and one behind it, and each destructive one has one inside.
    let mut seen: BTreeMap<(OperationKind, Step), BTreeSet<&str>> = BTreeMap::new();
    for (_, cell) in &cells {
        let moments = seen.entry((cell.case.kind(), cell.hit.step)).or_default();
        moments.insert(match (cell.hit.effects, cell.hit.all) {
            (0, _) => "before",
            (some, all) if some == all => "after",
            _ => "inside",
        });
    }
    for kind in OperationKind::KNOWN {
        for step in kind.steps() {
            let moments = seen.get(&(kind.clone(), *step));
            let moments = moments.unwrap_or_else(|| panic!("{kind} {step} has no cell"));
            let mut owed = vec!["before", "after"];
            owed.extend(step.is_destructive().then_some("inside"));
            assert!(
                owed.iter().all(|it| moments.contains(it)),
                "{kind} {step}: {moments:?}"
            );
        }
    }
    let name = |(number, cell): &(usize, Cell)| {
        format!(
            "{number} {} {:?} {:?}",
            cell.case.name, cell.hit, cell.planned
        )
    };
    if let Matrix::Cell(number) = matrix() {
        prove(&cells[number]);
        return;
    }
    let recoveries: u64 = for_each(&cells, name, prove).into_iter().sum();
    let counts = json!({"cells": cells.len(), "crashes while recovering": recoveries});
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "\ncrash matrix: {} cells, {recoveries} recovery crashes, all passed",
        cells.len()
    )
    .unwrap();
    let line = json!({"what": "operations crashed at every point", "counts": counts});
    writeln!(out, "proved {line}").unwrap();
}
