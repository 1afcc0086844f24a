//! A day of a thousand agents in virtual time, without bytes: the same engine, the same portal, one thread.

use agent_core::port::Unwatched;
use agent_core::time::Monotonic;
use anyhow::{Result, ensure};
use fleet_sim::simulation::{Nodes, Settings, Simulation};
use protocol::endpoint::Endpoint;

use crate::machine::process_cpu_seconds;
use crate::{Figures, example};

const AGENTS: u32 = 1_000;
const HOURS: u64 = 24;
/// A sync every 30 s, but for the first minute.
const SYNCS_MIN: u64 = (AGENTS as u64) * (HOURS * 120 - 4);

pub(crate) fn measure() -> Result<Figures> {
    let document = example::document()?;
    let before = process_cpu_seconds();
    let settings = Settings::new(1);
    let portal = settings.portal();
    let mut simulation = Simulation::new(settings, portal);
    let mut clusters = Vec::new();
    Nodes::new(AGENTS).join(&mut simulation, |_, member| {
        clusters.push(member.facts.config.cluster_id.clone());
        Unwatched
    })?;
    for cluster in &clusters {
        example::set_document(&simulation, cluster, &document)?;
    }
    simulation.run_until(Monotonic::from_ms(HOURS * 3_600_000))?;
    let cpu_seconds = process_cpu_seconds() - before;

    let answers = simulation.control().counters().answers;
    let of_syncs = answers
        .iter()
        .filter(|line| line.endpoint == Some(Endpoint::Sync));
    let syncs: u64 = of_syncs
        .filter(|line| line.code.is_none())
        .map(|line| line.count)
        .sum();
    ensure!(syncs >= SYNCS_MIN, "{syncs} syncs are no day");
    for member in 0..simulation.members() {
        let durable = simulation.durable(member);
        ensure!(
            durable.in_force && durable.document.is_some(),
            "agent {member} does not have its document in force"
        );
    }
    Ok([
        ("cpu_s", cpu_seconds),
        ("sync_us", cpu_seconds * 1e6 / syncs as f64),
    ]
    .into())
}
