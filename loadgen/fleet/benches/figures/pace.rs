//! How late a thousand agents at their real pace call, 30 s and 5 s to either side, and what a sync costs when nobody is
//! in a hurry: each finds cold caches and sleeping threads.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use scenario::Arrival;

use crate::Figures;
use crate::runs::{Second, calm, run};

const AGENTS: u64 = 1_000;
const ARRIVAL: Duration = Duration::from_secs(20);
/// All have begun and their nodes are set up.
const WARM_UP: Duration = Duration::from_secs(36);
const DURATION: Duration = Duration::from_secs(60);

pub(crate) fn measure() -> Result<Figures> {
    let arrival = Arrival::Ramp { over: ARRIVAL };
    let mut scenario = calm(AGENTS, arrival, 1.0)?;
    scenario.duration = DURATION;
    scenario.warm_up = WARM_UP;
    let mut first: Option<Second> = None;
    let mut last = None;
    let result = run(scenario, None, |second| {
        if second.seconds >= WARM_UP.as_secs_f64() {
            first.get_or_insert(second);
            last = Some(second);
        }
        false
    })?;
    let (first, last) = first.zip(last).context("the run was too short")?;
    ensure!(
        last.connected == AGENTS,
        "{} of {AGENTS} agents are connected at the end",
        last.connected
    );
    let lateness = result.figures.lateness.context("no call was made")?;
    let syncs = last.syncs - first.syncs;
    Ok([
        ("lateness_p50_ms", lateness.p50.0 as f64 / 1e3),
        ("lateness_p99_ms", lateness.p99.0 as f64 / 1e3),
        (
            "generator_us",
            (last.generator_us - first.generator_us) / syncs,
        ),
        ("portal_us", (last.portal_us - first.portal_us) / syncs),
    ]
    .into())
}
