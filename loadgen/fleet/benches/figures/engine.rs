//! What an agent's engine takes of memory: thousands of machines that are enrolled, have the same document in force and
//! have synced, with their own identities and records, and nothing around them. The document itself is one for all, and so is
//! at first what is recorded of the objects that were applied for it; what that takes is measured then.

use std::sync::Arc;

use agent_core::limits::Limits;
use agent_core::machine::{Action, Input, Machine as _};
use agent_core::pbx::Agent;
use agent_core::pbx::addon::seen::KeptAddon;
use agent_core::pbx::durable::{Durable, Identity};
use agent_core::pbx::facts::{BootFacts, Config};
use agent_core::pbx::lease::{Lease, LeaseCall, LeaseReply, ResourceVersion, Servers};
use agent_core::pbx::task::{Done, Task};
use agent_core::seed::Seed;
use agent_core::time::{Monotonic, Now, Wall};
use anyhow::{Context as _, Result, bail, ensure};
use protocol::id::{AgentId, ClusterId, NodeName};
use protocol::pbx::call::{AnswerBody, Reply, Request};

use crate::Figures;
use crate::example::{Settled, settled};
use crate::machine::resident_kib;

const ENGINES: usize = 20_000;
/// Enough that a report and every queue has been there.
const SYNCS: u32 = 3;

pub(crate) fn measure() -> Result<Figures> {
    let template = settled()?;
    let applied = serde_json::to_vec(&template.durable.addons)?;
    let beside_all = grown(&template, || Ok(Arc::clone(&template.durable.addons)))?;
    let with_its_own = grown(&template, || {
        let read: Vec<KeptAddon> = serde_json::from_slice(&applied)?;
        // As an agent keeps it, which leaves no room between.
        let kept = read.iter().cloned();
        Ok(Arc::new(kept.collect()))
    })?;
    Ok([
        ("engine_kib", beside_all),
        ("addons_kib", with_its_own - beside_all),
    ]
    .into())
}

/// What an engine takes, given what is kept of what was applied.
fn grown(template: &Settled, applied: impl Fn() -> Result<Arc<Vec<KeptAddon>>>) -> Result<f64> {
    let limits = Arc::new(Limits::REAL);
    let before = resident_kib("self")?;
    let mut engines = Vec::with_capacity(ENGINES);
    for number in 0..ENGINES {
        engines.push(Engine::start(template, &limits, number, applied()?)?);
    }
    let after = resident_kib("self")?;
    ensure!(engines.len() == ENGINES, "all of them are alive");
    // What is freed is there for the next, whose growth would not be seen.
    std::mem::forget(engines);
    Ok((after - before) / ENGINES as f64)
}

/// One machine, and the clock that it was moved by.
struct Engine {
    machine: Agent,
    now: Now,
    syncs: u32,
}

impl Engine {
    fn start(
        template: &Settled,
        limits: &Arc<Limits>,
        number: usize,
        addons: Arc<Vec<KeptAddon>>,
    ) -> Result<Self> {
        let identity = template.durable.identity.as_ref();
        let durable = Durable {
            identity: Some(Identity {
                agent_id: AgentId::new(format!("agt_{number:026}"))?,
                ..identity.context("the node is enrolled")?.clone()
            }),
            addons,
            ..Durable::clone(&template.durable)
        };
        let facts = BootFacts {
            config: Config {
                cluster_id: ClusterId::new(format!("clu_{number}"))?,
                node_name: NodeName::new(format!("node-{number}"))?,
                token: None,
            },
            limits: Arc::clone(limits),
            ..template.facts.clone()
        };
        let now = Now {
            monotonic: Monotonic::from_ms(0),
            wall: Wall::from_unix_ms(template.answer.portal_time.unix_ms()),
        };
        let mut engine = Self {
            machine: Agent::boot(Arc::new(durable), facts, Seed(number as u64), now),
            now,
            syncs: 0,
        };
        engine.settle(template)?;
        while engine.syncs < SYNCS {
            let wake = engine.machine.poll_wake();
            let at = wake
                .context("an agent that is enrolled has a next sync")?
                .at;
            engine.wait_until(at);
            engine.machine.handle(Input::Tick, engine.now);
            engine.settle(template)?;
        }
        Ok(engine)
    }

    fn wait_until(&mut self, at: Monotonic) {
        let passed_ms = at.as_ms().saturating_sub(self.now.monotonic.as_ms());
        self.now.monotonic = self.now.monotonic.plus_ms(passed_ms);
        let wall_ms = self.now.wall.unix_ms() + passed_ms.cast_signed();
        self.now.wall = Wall::from_unix_ms(wall_ms);
    }

    /// Answers what it asks for until it waits.
    fn settle(&mut self, template: &Settled) -> Result<()> {
        while let Some(action) = self.machine.poll_action() {
            let input = match action {
                Action::Note(_) => continue,
                Action::Observe(ticket) => Input::Observed(ticket, template.seen.clone()),
                Action::Store(ticket, _) => Input::Stored(ticket, Ok(())),
                Action::Open(ticket, _) => Input::Opened(ticket, Ok(())),
                Action::Perform(ticket, task, _) => {
                    let done = match *task {
                        Task::LookAtAddons(_) => Done::AddonsSeen(template.addons.clone()),
                        Task::WriteSecrets(_) => Done::Plain,
                        _ => bail!("a settled agent does not {task:?}"),
                    };
                    Input::Performed(ticket, Ok(done))
                }
                Action::Call(ticket, call) => {
                    let Request::Sync(_) = call.request else {
                        bail!("a settled agent only syncs");
                    };
                    self.syncs += 1;
                    let answer = AnswerBody::Sync(Arc::clone(&template.answer));
                    Input::Reply(ticket, Ok(Reply::Done(answer)))
                }
                Action::Lease(ticket, call, _) => Input::Leased(ticket, Ok(alone(call))),
                Action::Exit => bail!("nothing was updated"),
                Action::Probe(..) => bail!("nothing was interrupted"),
            };
            self.machine.handle(input, self.now);
        }
        Ok(())
    }
}

/// What the API of a cluster with one server says about the Lease.
fn alone(call: LeaseCall) -> LeaseReply {
    match call {
        LeaseCall::Read => LeaseReply::Read {
            lease: None,
            servers: Servers::OnlyThis,
        },
        LeaseCall::Write {
            holder, renewed_at, ..
        } => LeaseReply::Written {
            lease: Arc::new(Lease {
                holder: holder.to_string().into(),
                renewed_at,
                version: ResourceVersion("1".into()),
            }),
            servers: Servers::OnlyThis,
        },
    }
}
