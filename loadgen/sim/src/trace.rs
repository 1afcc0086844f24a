//! What referees see: events at the machine's boundary, the same in a live run and in virtual time.
//!
//! An [`Event`] can be made by hand, so that a referee can be shown a run that must not happen; [`Tap`] makes them from what
//! really goes through a machine. Nothing is judged here.

use std::fmt::Debug;
use std::io::Read as _;
use std::sync::Arc;

use agent_core::journal::{Ledger as _, StepRecord, Work};
use agent_core::machine::{Action, Call, Evidence, Input, Ticket, Wake};
use agent_core::note::Note;
use agent_core::pbx::Agent;
use agent_core::pbx::durable::Durable;
use agent_core::pbx::lease::{LeaseCall, LeaseReply};
use agent_core::pbx::task::{Done, Task};
use flate2::read::GzDecoder;
use protocol::id::OperationId;
use protocol::pbx::call::{AnswerBody, Refusal, Reply, Request};
use protocol::pbx::operation::Bundle;
use protocol::pbx::sync::SyncReport;
use protocol::time::Timestamp;

/// Something that happened at an agent.
#[derive(Debug, Clone)]
pub enum Event {
    /// The program started, with this on disk.
    Booted(Arc<Durable>),
    /// A record became durable.
    Stored(Arc<Durable>),
    /// A write failed.
    StoreFailed,
    /// A request went out.
    Sent(Call<Request>),
    /// It was answered with 200.
    Answered {
        /// The request.
        call: Call<Request>,
        /// The answer.
        body: AnswerBody,
    },
    /// It was answered with another status.
    Refused {
        /// The request.
        call: Call<Request>,
        /// What came back.
        refusal: Refusal,
    },
    /// Nothing came back, or nothing that can be read.
    Unanswered {
        /// The request.
        call: Call<Request>,
    },
    /// A task of the host began.
    Began(Began),
    /// It ended.
    Ended {
        /// What it was.
        began: Began,
        /// Whether it succeeded.
        succeeded: bool,
    },
    /// The node was looked at for a task that was found started.
    Probed {
        /// What was recorded of it.
        record: StepRecord,
        /// Whether nothing of it had happened.
        not_started: bool,
    },
    /// The Lease was asked for (SYNC-6).
    LeaseAsked {
        /// Whether it is to be written.
        writes: bool,
    },
    /// It was written as asked last, as the answer says or a later look.
    LeaseWritten,
    /// Somebody else has written it.
    LeaseLost,
    /// The agent waits now, and for this; none where it waits for an answer alone.
    Waits(Option<Wake>),
    /// An operation has ended at the agent.
    OperationEnded(OperationId),
    /// A text that somebody may read: a report, a log line, an argument, a file.
    Text {
        /// Which of them.
        place: &'static str,
        /// The text.
        text: String,
    },
}

/// A task that began.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Began {
    /// What was recorded of it before.
    pub record: StepRecord,
    /// Whether it stops or starts k3s.
    pub moves_k3s: bool,
    /// Whether it changes the cluster's configuration, which is the leader's alone (SYNC-6).
    pub changes_cluster: bool,
}

/// Makes events of what goes through one machine; remembers what is under way.
#[derive(Debug, Clone, Default)]
pub struct Tap {
    writing: Option<(Ticket, Arc<Durable>)>,
    calling: Option<(Ticket, Call<Request>)>,
    performing: Option<(Ticket, Began)>,
    probing: Option<(Ticket, StepRecord)>,
    /// Who was to hold the Lease by the last write of it, and when it was to be renewed.
    leasing: Option<(String, Timestamp)>,
    /// The last report, so that its free text is shown again only when it has changed.
    reported: Option<Arc<SyncReport>>,
}

impl Tap {
    /// The machine starts from this record.
    pub fn boot(&mut self, durable: &Durable, mut see: impl FnMut(Event)) {
        *self = Self::default();
        see(Event::Booted(Arc::new(durable.clone())));
    }

    /// The machine is about to be told this.
    pub fn input(&mut self, input: &Input<Agent>, mut see: impl FnMut(Event)) {
        match input {
            Input::Stored(ticket, result) => {
                let Some((_, durable)) = self.writing.take_if(|(writing, _)| writing == ticket)
                else {
                    return;
                };
                see(match result {
                    Ok(()) => Event::Stored(durable),
                    Err(_) => Event::StoreFailed,
                });
            }
            Input::Reply(ticket, reply) => {
                let Some((_, call)) = self.calling.take_if(|(calling, _)| calling == ticket) else {
                    return;
                };
                see(match reply {
                    Ok(Reply::Done(body)) => Event::Answered {
                        call,
                        body: body.clone(),
                    },
                    Ok(Reply::Refused(refusal)) => Event::Refused {
                        call,
                        refusal: refusal.clone(),
                    },
                    Ok(Reply::Broken { .. }) | Err(_) => Event::Unanswered { call },
                });
            }
            Input::Performed(ticket, result) => {
                let Some((_, began)) = self
                    .performing
                    .take_if(|(performing, _)| performing == ticket)
                else {
                    return;
                };
                match result {
                    Err(failure) => see(Event::Text {
                        place: "a task's log",
                        text: format!("{failure:?}"),
                    }),
                    Ok(Done::Collected(collected)) => see(Event::Text {
                        place: "a diagnostic bundle",
                        text: text_of(&collected.bundle),
                    }),
                    Ok(_) => {}
                }
                see(Event::Ended {
                    began,
                    succeeded: result.is_ok(),
                });
            }
            Input::Probed(ticket, evidence) => {
                let Some((_, record)) = self.probing.take_if(|(probing, _)| probing == ticket)
                else {
                    return;
                };
                see(Event::Probed {
                    record,
                    not_started: matches!(evidence, Evidence::NotStarted),
                });
            }
            Input::Progress(_, lines) => see(Event::Text {
                place: "a task's log",
                text: format!("{lines:?}"),
            }),
            Input::Leased(_, Ok(LeaseReply::Written { .. })) => see(Event::LeaseWritten),
            Input::Leased(_, Ok(LeaseReply::Conflict)) => see(Event::LeaseLost),
            Input::Leased(
                _,
                Ok(LeaseReply::Read {
                    lease: Some(lease), ..
                }),
            ) => {
                let was_asked = self.leasing.as_ref().is_some_and(|(holder, renewed_at)| {
                    *lease.holder == **holder && lease.renewed_at == *renewed_at
                });
                if was_asked {
                    see(Event::LeaseWritten);
                }
            }
            Input::Leased(_, Ok(LeaseReply::Read { lease: None, .. }) | Err(_))
            | Input::Tick
            | Input::Observed(..)
            | Input::Opened(..) => {}
        }
    }

    /// The machine wants this done.
    pub fn action(&mut self, action: &Action<Agent>, mut see: impl FnMut(Event)) {
        match action {
            Action::Store(ticket, durable) => {
                self.writing = Some((*ticket, Arc::clone(durable)));
                if let Ok(text) = serde_json::to_string(&**durable) {
                    see(Event::Text {
                        place: "a state file",
                        text,
                    });
                }
            }
            Action::Call(ticket, call) => {
                self.calling = Some((*ticket, call.clone()));
                if let Some(text) = self.free_text(&call.request) {
                    see(Event::Text {
                        place: "a request",
                        text,
                    });
                }
                see(Event::Sent(call.clone()));
            }
            Action::Perform(ticket, task, _) => {
                see(Event::Text {
                    place: "a task's argument",
                    text: format!("{:?}", **task),
                });
                let began = Began {
                    record: task.record().clone(),
                    changes_cluster: changes_cluster(&task.record().work),
                    moves_k3s: matches!(
                        **task,
                        Task::StartK3s
                            | Task::StopK3s(_)
                            | Task::RestartK3s
                            | Task::ResetRestore { .. }
                            | Task::ClearDatastore(_)
                    ),
                };
                self.performing = Some((*ticket, began.clone()));
                see(Event::Began(began));
            }
            Action::Probe(ticket, task) => self.probing = Some((*ticket, task.record().clone())),
            Action::Note(note) => {
                see(Event::Text {
                    place: "a log line",
                    text: format!("{note:?}"),
                });
                if let Note::OperationEnded { operation, .. } = note {
                    see(Event::OperationEnded(operation.clone()));
                }
            }
            Action::Lease(_, LeaseCall::Read, _) => see(Event::LeaseAsked { writes: false }),
            Action::Lease(
                _,
                LeaseCall::Write {
                    holder, renewed_at, ..
                },
                _,
            ) => {
                self.leasing = Some((holder.to_string(), *renewed_at));
                see(Event::LeaseAsked { writes: true });
            }
            Action::Observe(_) | Action::Open(..) | Action::Exit => {}
        }
    }

    /// What is free text in a request and was not shown just before. The enrollment's request is left out: the token that
    /// it carries is a secret that belongs there, and the rest of it is of closed alphabets.
    fn free_text(&mut self, request: &Request) -> Option<String> {
        match request {
            Request::Sync(report) => {
                let before = self.reported.replace(Arc::clone(report));
                let is_new = match before {
                    Some(before) => free_parts(&before) != free_parts(report),
                    None => true,
                };
                is_new.then(|| format!("{:?}", free_parts(report)))
            }
            Request::Events { .. } => Some(String::from_utf8(request.body()).unwrap_or_default()),
            Request::Enroll(_) | Request::Manifest(_) | Request::RotateKey(_) => None,
        }
    }
}

/// What is free text in a report.
fn free_parts(report: &SyncReport) -> impl PartialEq + Debug {
    (
        &report.document.message,
        &report.last_error,
        &report.addons,
        &report.problems,
    )
}

/// What a diagnostic bundle holds, as text.
pub(crate) fn text_of(bundle: &Bundle) -> String {
    let mut bytes = Vec::new();
    // What cannot be read is shown as far as it can.
    let _ = GzDecoder::new(bundle.as_bytes()).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn changes_cluster(work: &Work) -> bool {
    match work {
        Work::Document { step, .. } => step.changes_cluster(),
        // A node that joins writes what its enrollment brought; an operation runs at its target, leading or not (OPS-10).
        Work::Enrollment { .. } | Work::Update { .. } | Work::Operation { .. } => false,
    }
}

/// Whether a record is on this disk.
pub(crate) fn holds(disk: Option<&Arc<Durable>>, record: &StepRecord) -> bool {
    disk.is_some_and(|disk| disk.holds(record))
}

/// The operation that a piece of work is a step of.
pub(crate) fn operation_of(work: &Work) -> Option<&OperationId> {
    match work {
        Work::Operation { operation, .. } => Some(operation),
        Work::Enrollment { .. } | Work::Document { .. } | Work::Update { .. } => None,
    }
}
