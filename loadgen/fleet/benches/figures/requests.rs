//! Whether memory grows with requests: a fleet in virtual time whose calls are recorded as a run records them, looked at
//! after one million and after ten.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::machine::{Action, Input, Ticket};
use agent_core::pbx::Agent;
use agent_core::port::Watch;
use agent_core::time::{Monotonic, Now};
use anyhow::{Result, ensure};
use fleet_sim::simulation::{Nodes, Settings, Simulation};
use protocol::endpoint::Endpoint;
use protocol::pbx::call::Reply;
use record::micros::Window;
use record::{Micros, Outcome, Recorder, Sample};

use crate::machine::resident_kib;
use crate::{Figures, example};

/// So few that a million requests are three days: what is kept of each agent up to a limit has reached it by then.
const AGENTS: u32 = 100;
const FEW: u64 = 1_000_000;
const MANY: u64 = 10_000_000;
/// Ten million take 834 hours.
const HOURS_MAX: u64 = 1_000;

pub(crate) fn measure() -> Result<Figures> {
    let document = example::document()?;
    let settings = Settings::new(1);
    let portal = settings.portal();
    let recorder = Arc::new(Mutex::new(Recorder::new(Window {
        from: Micros::ZERO,
        until: Micros::from_seconds(HOURS_MAX * 3_600),
    })));
    let mut simulation = Simulation::new(settings, portal);
    let mut clusters = Vec::new();
    Nodes::new(AGENTS).join(&mut simulation, |_, member| {
        clusters.push(member.facts.config.cluster_id.clone());
        Counting {
            recorder: Arc::clone(&recorder),
            underway: None,
        }
    })?;
    for cluster in &clusters {
        example::set_document(&simulation, cluster, &document)?;
    }
    let mut resident_at = |requests: u64| -> Result<f64> {
        while ended(&recorder) < requests {
            let next = simulation.now().plus_ms(60_000);
            ensure!(
                next < Monotonic::from_ms(HOURS_MAX * 3_600_000),
                "{HOURS_MAX} hours are too few for {requests} requests"
            );
            simulation.run_until(next)?;
            lock(&recorder).recent();
        }
        resident_kib("self")
    };
    let few = resident_at(FEW)?;
    let many = resident_at(MANY)?;
    Ok([
        ("growth_mib", (many - few) / 1024.0),
        ("resident_mib", many / 1024.0),
    ]
    .into())
}

/// Records the calls of one agent.
struct Counting {
    recorder: Arc<Mutex<Recorder>>,
    underway: Option<(Ticket, Endpoint, Micros, Micros)>,
}

impl Watch<Agent> for Counting {
    fn action(&mut self, now: Now, action: &Action<Agent>) {
        if let Action::Call(ticket, call) = action {
            let endpoint = call.request.endpoint();
            let intended = Micros::from_ms(call.intended.as_ms());
            let started = Micros::from_ms(now.monotonic.as_ms());
            let mut recorder = lock(&self.recorder);
            recorder.planned(endpoint, intended);
            recorder.started(endpoint, started);
            self.underway = Some((*ticket, endpoint, intended, started));
        }
    }

    fn input(&mut self, now: Now, input: &Input<Agent>) {
        let Input::Reply(ticket, reply) = input else {
            return;
        };
        let Some((_, endpoint, intended, started)) =
            self.underway.take_if(|(underway, ..)| underway == ticket)
        else {
            return;
        };
        let sample = Sample {
            endpoint,
            outcome: match reply {
                Ok(Reply::Done(_)) => Outcome::Ok,
                Ok(_) => Outcome::Status4xx,
                Err(_) => Outcome::ConnectOther,
            },
            intended,
            started,
            first_byte_out: Some(started),
            ended: Micros::from_ms(now.monotonic.as_ms()),
            connect: None,
        };
        lock(&self.recorder).ended(&sample);
    }
}

fn ended(recorder: &Mutex<Recorder>) -> u64 {
    let total = lock(recorder).recorded().account.total();
    total.ended.total()
}

fn lock(recorder: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}
