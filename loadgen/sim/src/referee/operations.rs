//! Referees 3, 8 and 11: operations of a cluster, and where their results go.

use std::collections::BTreeMap;

use agent_core::journal::Work;
use protocol::id::OperationId;
use protocol::pbx::call::{AnswerBody, Request};

use super::Bench;
use crate::trace::{Began, Event, operation_of};

/// The operation that runs in each cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Clusters {
    running: BTreeMap<usize, Running>,
}

/// An operation, and the agent that is at it.
#[derive(Debug, Clone)]
struct Running {
    operation: OperationId,
    agent: usize,
}

impl Clusters {
    pub(super) fn see(
        &mut self,
        cluster: usize,
        agent: usize,
        event: &Event,
        bench: &mut Bench<'_>,
    ) {
        match event {
            Event::Began(began) => {
                if let Some(operation) = operation_of(&began.record.work) {
                    let running = Running {
                        operation: operation.clone(),
                        agent,
                    };
                    let before = self.running.insert(cluster, running);
                    let other = before.filter(|before| before.operation != *operation);
                    bench.judge(
                        3,
                        other.map(
                            |Running {
                                 operation: other, ..
                             }| {
                                format!("{operation} works in a cluster where {other} runs")
                            },
                        ),
                    );
                }
                if began.moves_k3s {
                    bench.judge(8, self.disturbs(cluster, agent, began));
                }
            }
            Event::OperationEnded(operation) => {
                let running = self.running.get(&cluster);
                if running.is_some_and(|running| running.operation == *operation) {
                    self.running.remove(&cluster);
                }
            }
            _ => {}
        }
    }

    fn disturbs(&self, cluster: usize, agent: usize, began: &Began) -> Option<String> {
        let running = self.running.get(&cluster)?;
        match &began.record.work {
            Work::Operation { operation, .. } if *operation == running.operation => None,
            // A node that joins starts its k3s for the first time, one restarts it in the window; neither knows what others
            // are at.
            Work::Enrollment { .. } | Work::Document { .. } if agent != running.agent => None,
            work => {
                let operation = &running.operation;
                Some(format!(
                    "{work:?} stops or starts k3s while {operation} runs"
                ))
            }
        }
    }
}

/// How many operations of one agent may wait for their results to be acknowledged; more is a breach by itself.
const WAITING_MAX: usize = 64;

/// Results of one agent that the portal has not acknowledged.
#[derive(Debug, Clone, Default)]
pub(super) struct Results {
    waiting: Vec<OperationId>,
}

impl Results {
    /// Whether this operation's result is still on its way.
    pub(super) fn wait_for(&self, operation: &OperationId) -> bool {
        self.waiting.contains(operation)
    }

    pub(super) fn see(&mut self, event: &Event, bench: &mut Bench<'_>) {
        match event {
            Event::OperationEnded(operation) => {
                if !self.waiting.contains(operation) {
                    self.waiting.push(operation.clone());
                }
                if self.waiting.len() > WAITING_MAX {
                    let oldest = self.waiting.remove(0);
                    bench.judge(
                        11,
                        Some(format!("the result of {oldest} is still not at the portal")),
                    );
                }
            }
            Event::Answered {
                call,
                body: AnswerBody::Events(answer),
            } => {
                let Request::Events { operation, body } = &call.request else {
                    return;
                };
                let delivered = body
                    .events()
                    .iter()
                    .any(|event| event.is_final() && event.sequence <= answer.accepted_sequence);
                if delivered && self.waiting.contains(operation) {
                    self.waiting.retain(|waiting| waiting != operation);
                    bench.judge(11, None);
                }
            }
            _ => {}
        }
    }
}

/// The portal's side of referee 11, once the run is over.
pub(super) fn stored_at_portal(operation: &OperationId, results: u64, bench: &mut Bench<'_>) {
    let breach = (results != 1)
        .then(|| format!("the portal has {results} results of {operation}, which has ended once"));
    bench.judge(11, breach);
}
