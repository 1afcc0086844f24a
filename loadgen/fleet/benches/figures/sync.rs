//! What a signed keep-alive sync over TLS costs the generator and the portal: a thousand agents, each of which syncs again
//! as soon as its last one has ended, or nearly so.

use anyhow::{Context as _, Result, ensure};
use scenario::Arrival;

use crate::Figures;
use crate::runs::{Second, calm, run};

const AGENTS: u64 = 1_000;
/// A sync is due 60 ms after the one before, which is about as long as two processors take for a thousand of them. Less
/// would make the cluster's configuration, which is due every 20 syncs at any tempo, due at every one.
const TEMPO: f64 = 0.002;
/// Until everything that is grown on demand is there.
const SETTLE_SECONDS: f64 = 2.0;
const MEASURE_SECONDS: f64 = 6.0;
/// The run ends when enough was measured; this is for one that never gets there.
const LONGEST_SECONDS: u64 = 60;

pub(crate) fn measure() -> Result<Figures> {
    let mut scenario = calm(AGENTS, Arrival::AllAtOnce, TEMPO)?;
    scenario.duration = std::time::Duration::from_secs(LONGEST_SECONDS);
    scenario.warm_up = std::time::Duration::ZERO;
    let mut settled: Option<Second> = None;
    let mut first: Option<Second> = None;
    let mut last: Option<Second> = None;
    run(scenario, None, |second| {
        if second.converged == AGENTS {
            let settled = settled.get_or_insert(second);
            if second.seconds >= settled.seconds + SETTLE_SECONDS {
                let first = first.get_or_insert(second);
                last = Some(second);
                return second.seconds >= first.seconds + MEASURE_SECONDS;
            }
        }
        false
    })?;
    let (first, last) = first.zip(last).context("the fleet never settled")?;
    let syncs = last.syncs - first.syncs;
    ensure!(syncs > 0.0, "no sync was measured");
    Ok([
        (
            "generator_us",
            (last.generator_us - first.generator_us) / syncs,
        ),
        ("portal_us", (last.portal_us - first.portal_us) / syncs),
        ("syncs_per_second", syncs / (last.seconds - first.seconds)),
    ]
    .into())
}
