//! A run as `loadgen` makes it, looked at once a second.

use anyhow::{Context as _, Result, anyhow, ensure};
use fleet::run::{ForeignPortal, Interrupt, NotStarted, Options, prepare};
use fleet::usage::{Part, cpu_us};
use protocol::endpoint::Endpoint;
use record::series::Gauge;
use record::{Outcome, RunResult, Snapshot};
use scenario::{Arrival, Population, Scenario};

use crate::example;

/// A run at one of its seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Second {
    /// From its start.
    pub(crate) seconds: f64,
    /// Processor time of the generator so far.
    pub(crate) generator_us: f64,
    /// Processor time of the embedded portal so far.
    pub(crate) portal_us: f64,
    /// Syncs that got their 200 so far.
    pub(crate) syncs: f64,
    /// Agents with an open connection.
    pub(crate) connected: u64,
    /// Agents that have their document in force.
    pub(crate) converged: u64,
}

impl Second {
    fn of(snapshot: &Snapshot) -> Self {
        let syncs = &snapshot.account.line(Endpoint::Sync).ended;
        Self {
            seconds: snapshot.at.as_seconds(),
            generator_us: cpu_us(Part::Agents) as f64,
            portal_us: cpu_us(Part::Portal) as f64,
            syncs: syncs[Outcome::Ok] as f64,
            connected: snapshot.gauges[Gauge::Connected],
            converged: snapshot.gauges[Gauge::Converged],
        }
    }
}

/// The fleet of the benchmarks at a tempo: its nodes boot in no time, it begins as `arrival` says, and nothing happens to
/// it but syncs.
pub(crate) fn calm(agents: u64, arrival: Arrival, tempo: f64) -> Result<Scenario> {
    let mut scenario = example::steady()?;
    let steady = scenario.populations.pop();
    let mut population = Population {
        count: agents,
        arrival,
        tempo,
        ..steady.context("the scenario `steady` has a population")?
    };
    population.node.boot_time = scenario::node::Cost::Fixed(std::time::Duration::ZERO);
    scenario.populations.push(population);
    scenario.timeline.clear();
    Ok(scenario)
}

/// Runs a scenario, to its end or until `enough` says so at one of its seconds.
///
/// # Errors
/// When it did not start, or something went wrong in it.
pub(crate) fn run(
    scenario: Scenario,
    portal: Option<ForeignPortal>,
    mut enough: impl FnMut(Second) -> bool,
) -> Result<RunResult> {
    let options = Options {
        portal,
        owns_target: false,
        reach_within: std::time::Duration::from_secs(10),
        versions: [].into(),
        commit: None,
        shards: None,
    };
    let run = prepare(scenario, options).and_then(|prepared| prepared.start());
    let run = run.map_err(|not_started| match not_started {
        NotStarted::Usage(why) | NotStarted::Preflight(why) => anyhow!(why.join("; ")),
    })?;
    let mut snapshots = run.snapshots();
    let interrupt = run.interrupt();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        while snapshots.changed().await.is_ok() {
            let second = Second::of(&snapshots.borrow_and_update());
            if enough(second) {
                interrupt.send_replace(Interrupt::Gently);
                break;
            }
        }
    });
    let (result, _) = run.wait();
    let errors = result.account_errors();
    ensure!(errors.is_empty(), "the account does not add up: {errors:?}");
    let syncs = &result.account.line(Endpoint::Sync).ended;
    let failed: Vec<_> = syncs
        .iter()
        .filter(|(outcome, count)| {
            **count > 0 && !matches!(outcome, Outcome::Ok | Outcome::Aborted)
        })
        .collect();
    ensure!(failed.is_empty(), "syncs did not succeed: {failed:?}");
    Ok(result)
}
