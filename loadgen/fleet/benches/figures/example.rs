//! The document of the benchmarks, and what a node that has it in force says and hears: from the shipped scenario
//! `steady` (the example of the protocol with two more add-ons), by a real agent and a real portal in virtual time.

use std::sync::Arc;

use agent_core::machine::{Action, Input};
use agent_core::pbx::Agent;
use agent_core::pbx::addon::seen::AddonsSeen;
use agent_core::pbx::durable::Durable;
use agent_core::pbx::facts::{BootFacts, Observation};
use agent_core::pbx::task::Done;
use agent_core::port::Watch;
use agent_core::time::{Monotonic, Now};
use anyhow::{Context as _, Result, anyhow, ensure};
use fleet_sim::simulation::{Nodes, Settings, Simulation};
use protocol::id::ClusterId;
use protocol::pbx::call::{AnswerBody, Reply, Request};
use protocol::pbx::sync::{SyncAnswer, SyncReport};
use scenario::{DocumentSpec, Scenario, shipped};

/// The scenario whose fleet and document are measured.
pub(crate) fn steady() -> Result<Scenario> {
    let steady = shipped::find("steady").map_err(|why| anyhow!(why))?;
    Scenario::parse(steady.name, steady.text).map_err(|mistakes| anyhow!("{mistakes}"))
}

/// Its document.
pub(crate) fn document() -> Result<DocumentSpec> {
    let document = steady()?.portal.document;
    document.context("the scenario `steady` has a document")
}

/// A node that has the document in force.
pub(crate) struct Settled {
    pub(crate) facts: BootFacts,
    pub(crate) durable: Arc<Durable>,
    pub(crate) seen: Observation,
    pub(crate) addons: Box<AddonsSeen>,
    pub(crate) report: Arc<SyncReport>,
    pub(crate) answer: Arc<SyncAnswer>,
}

/// Lets a node come up, take the document, and look at its add-ons once more after they were applied.
pub(crate) fn settled() -> Result<Settled> {
    const MINUTES: u64 = 15;
    let settings = Settings::new(1);
    let portal = settings.portal();
    let mut simulation = Simulation::new(settings, portal);
    let mut facts = None;
    Nodes::new(1).join(&mut simulation, |_, member| {
        facts = Some(member.facts.clone());
        Last::default()
    })?;
    let facts = facts.context("one node has joined")?;
    set_document(&simulation, &facts.config.cluster_id, &document()?)?;
    simulation.run_until(Monotonic::from_ms(MINUTES * 60_000))?;
    let durable = simulation.durable(0);
    ensure!(
        durable.in_force && durable.document.is_some(),
        "after {MINUTES} minutes the document is not in force"
    );
    let Last {
        seen,
        addons,
        report,
        answer,
    } = simulation.watch(0).clone();
    Ok(Settled {
        facts,
        durable,
        seen: seen.context("the node was looked at")?,
        addons: addons.context("the add-ons were looked at")?,
        report: report.context("the agent has reported")?,
        answer: answer.context("the portal has answered")?,
    })
}

/// Gives a cluster of a simulation a document.
pub(crate) fn set_document<W>(
    simulation: &Simulation<W>,
    cluster: &ClusterId,
    document: &DocumentSpec,
) -> Result<()> {
    let input = serde_json::from_value(serde_json::to_value(document)?)?;
    simulation.control().set_desired(cluster, input)?;
    Ok(())
}

/// What went through a machine last.
#[derive(Debug, Clone, Default)]
struct Last {
    seen: Option<Observation>,
    addons: Option<Box<AddonsSeen>>,
    report: Option<Arc<SyncReport>>,
    answer: Option<Arc<SyncAnswer>>,
}

impl Watch<Agent> for Last {
    fn input(&mut self, _: Now, input: &Input<Agent>) {
        match input {
            Input::Observed(_, seen) => self.seen = Some(seen.clone()),
            Input::Performed(_, Ok(Done::AddonsSeen(seen))) => self.addons = Some(seen.clone()),
            Input::Reply(_, Ok(Reply::Done(AnswerBody::Sync(answer)))) => {
                self.answer = Some(Arc::clone(answer));
            }
            _ => {}
        }
    }

    fn action(&mut self, _: Now, action: &Action<Agent>) {
        if let Action::Call(_, call) = action
            && let Request::Sync(report) = &call.request
        {
            self.report = Some(Arc::clone(report));
        }
    }
}
