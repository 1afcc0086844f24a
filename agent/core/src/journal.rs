//! The journal: what is on disk, and therefore what may be done.
//!
//! A step is recorded before it starts (OPS-2), and that is a type: only [`Journal::recorded`] makes a [`Recorded`] task,
//! only from what the disk is known to hold, and a world performs nothing else. What a step found started after a crash
//! means is [`found_started`] and [`after_probe`]. Which steps there are, and in which order, is the lanes' affair.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use protocol::id::{AgentVersion, Generation, OperationId};
use protocol::pbx::operation::Step;

use crate::machine::{Evidence, StoreFailure, Ticket};
use crate::pbx::durable::{EnrollStep, UpdateStep};
use crate::pbx::task::DocumentStep;

/// What was recorded before a task was handed out: which work, which step of it, which try.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StepRecord {
    /// The work and its step.
    pub work: Work,
    /// Which try of this step, from 1. Each start of the program that finds the step started is another.
    pub attempt: u32,
}

/// A piece of work that has steps, at one of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Work {
    /// The enrollment (ENR-1 to ENR-6).
    Enrollment {
        /// Its step.
        step: EnrollStep,
    },
    /// Putting a document into force; recorded as a whole, since each of its steps can be repeated (SYNC-2).
    Document {
        /// The document.
        generation: Generation,
        /// Its step.
        step: DocumentStep,
    },
    /// The agent's own update (UPD-1).
    Update {
        /// The version that it goes to.
        version: AgentVersion,
        /// Its step.
        step: UpdateStep,
    },
    /// An operation.
    Operation {
        /// Its ID.
        operation: OperationId,
        /// Its step.
        step: Step,
    },
}

impl fmt::Display for Work {
    /// `enrollment ask`, `document 18 write_secrets`, `operation op_1 save`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enrollment { step } => write!(formatter, "enrollment {step}"),
            Self::Document { generation, step } => {
                write!(formatter, "document {generation} {step}")
            }
            Self::Update { version, step } => write!(formatter, "update {version} {step}"),
            Self::Operation { operation, step } => {
                write!(formatter, "operation {operation} {step}")
            }
        }
    }
}

impl Work {
    /// Whether its step stops or starts k3s, so that this node does not see its cluster for a while.
    pub fn moves_k3s(&self) -> bool {
        match self {
            Self::Enrollment { step } => *step == EnrollStep::StartK3s,
            Self::Document { step, .. } => *step == DocumentStep::RestartK3s,
            Self::Update { .. } => false,
            Self::Operation { step, .. } => matches!(
                step,
                Step::StopK3s
                    | Step::ResetRestore
                    | Step::ClearDatastore
                    | Step::StartK3s
                    | Step::Reboot
            ),
        }
    }

    /// Whether its step destroys something, so that a crash inside it is looked at and never simply repeated (OPS-4).
    pub fn is_destructive(&self) -> bool {
        match self {
            Self::Enrollment { .. } | Self::Document { .. } | Self::Update { .. } => false,
            Self::Operation { step, .. } => step.is_destructive(),
        }
    }
}

/// A durable record that can tell whether it holds the record of a step.
pub trait Ledger {
    /// Whether a crash now would leave this step's record behind.
    fn holds(&self, record: &StepRecord) -> bool;
}

/// A task whose record is on disk. Made by [`Journal::recorded`] and by nothing else.
#[derive(Debug, PartialEq, Eq)]
pub struct Recorded<T> {
    task: T,
    record: StepRecord,
}

impl<T> Recorded<T> {
    /// What was recorded.
    pub fn record(&self) -> &StepRecord {
        &self.record
    }
}

impl<T> Deref for Recorded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.task
    }
}

/// What a lane does about a step that the disk says is started, and that nobody is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// It runs, again if need be.
    Run,
    /// The node is looked at first.
    Probe,
}

/// The first half of the resume table: a step found started after a crash (OPS-2, OPS-4).
pub fn found_started(work: &Work) -> Resume {
    if work.is_destructive() {
        Resume::Probe
    } else {
        Resume::Run
    }
}

/// What a lane does about a step that the node was looked at for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterProbe<D> {
    /// It runs: nothing of it has happened.
    Run,
    /// It is over: work goes on behind it.
    GoOn(D),
    /// It fails for good and is never run again by itself, with what was seen.
    FailForGood(String),
}

/// The second half of the resume table: a destructive step after a look at the node (OPS-4).
pub fn after_probe<D>(evidence: Evidence<D>) -> AfterProbe<D> {
    match evidence {
        Evidence::NotStarted => AfterProbe::Run,
        Evidence::Completed(done) => AfterProbe::GoOn(done),
        Evidence::Unclear(seen) => AfterProbe::FailForGood(seen),
    }
}

/// A durable record, as it is wanted and as it is on disk. One write at a time; changes made meanwhile go into the next.
pub struct Journal<D> {
    wanted: Arc<D>,
    on_disk: Arc<D>,
    writing: Option<(Ticket, Arc<D>)>,
}

impl<D: Ledger + Clone> Journal<D> {
    /// After a boot everything that was read is on disk.
    pub fn boot(durable: Arc<D>) -> Self {
        Self {
            wanted: Arc::clone(&durable),
            on_disk: durable,
            writing: None,
        }
    }

    /// Changes the record; the change is on disk only later.
    pub fn change(&mut self) -> &mut D {
        Arc::make_mut(&mut self.wanted)
    }

    /// What the disk is known to hold: the only thing to rely on before an effect.
    pub fn on_disk(&self) -> &D {
        &self.on_disk
    }

    /// Whether everything that is wanted is on disk.
    pub fn is_settled(&self) -> bool {
        Arc::ptr_eq(&self.wanted, &self.on_disk)
    }

    /// The proof that a task's record is on disk; none while it is not.
    pub fn recorded<T>(&self, record: StepRecord, task: T) -> Option<Recorded<T>> {
        self.on_disk
            .holds(&record)
            .then_some(Recorded { task, record })
    }

    /// What to write next, if anything waits and nothing is being written.
    pub fn write(&mut self, ticket: Ticket) -> Option<Arc<D>> {
        if self.writing.is_some() || self.is_settled() {
            return None;
        }
        self.writing = Some((ticket, Arc::clone(&self.wanted)));
        Some(Arc::clone(&self.wanted))
    }

    /// The answer to a write. `None` if it is not the one under way.
    pub fn written(
        &mut self,
        ticket: Ticket,
        result: Result<(), StoreFailure>,
    ) -> Option<Result<(), StoreFailure>> {
        let (_, durable) = self.writing.take_if(|(writing, _)| *writing == ticket)?;
        if result.is_ok() {
            self.on_disk = durable;
        }
        Some(result)
    }
}

impl<D> Deref for Journal<D> {
    type Target = D;

    /// The record as it is wanted.
    fn deref(&self) -> &D {
        &self.wanted
    }
}

impl<D: fmt::Debug> fmt::Debug for Journal<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Journal")
            .field("wanted", &self.wanted)
            .field("settled", &Arc::ptr_eq(&self.wanted, &self.on_disk))
            .finish_non_exhaustive()
    }
}
