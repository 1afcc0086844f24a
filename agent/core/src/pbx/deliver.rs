//! The delivery lane: events reach the portal at least once and in order (OPS-8).
//!
//! Only what is on disk is sent. The portal's number says what it has stored; what it never takes is given up, so that it
//! stands in nobody's way: an event that is refused three times by itself (ANS-2), the events of an operation that it does
//! not know (404), and what comes after a gap that cannot be closed.

use std::sync::Arc;

use protocol::id::OperationId;
use protocol::limits::{BODY_BYTES_MAX, EVENTS_PER_CALL_MAX, LOG_CALL_BYTES_MAX};
use protocol::pbx::call::{Refusal, Request};
use protocol::pbx::operation::{EventsAnswer, OperationEvent, OperationEvents};
use protocol::problem::ProblemCode;

use super::durable::{Undeliverable, UndeliverableEvents};
use super::events;
use super::pace::{RequestRefused, Tries};
use super::shared::Shared;
use crate::note::Note;

/// What is being sent.
#[derive(Debug, Default)]
pub(super) struct Deliver {
    /// The call that is out, or that is to go out again as it is.
    batch: Option<Box<Batch>>,
    /// How the call that went out last has fared, whether it is still to go out or not: the same events may be asked for
    /// again.
    pub(super) tries: Tries,
    tried: Option<Box<Span>>,
    /// One event a call, until the one is found that the portal does not take.
    one_by_one: bool,
}

/// The events of one call.
#[derive(Debug)]
struct Batch {
    span: Span,
    body: Arc<OperationEvents>,
}

/// Which events they are; what a number holds never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    operation: OperationId,
    first: u64,
    last: u64,
}

/// Room for events in a body, in bytes: what they are wrapped in needs a little.
const ROOM_BYTES: usize = BODY_BYTES_MAX - 1024;

impl Deliver {
    /// Whether there is something to send, and on disk.
    pub(super) fn wants_call(&self, shared: &Shared) -> bool {
        self.batch.is_some()
            || !shared.journal.on_disk().outbox.is_empty() && !shared.journal.outbox.is_empty()
    }

    /// The next call: the one that is to go out again, or the first events of the first operation.
    pub(super) fn request(&mut self, shared: &Shared) -> Option<Request> {
        if self.batch.is_none() {
            self.batch = self.next_batch(shared).map(Box::new);
        }
        let Batch { span, body } = self.batch.as_deref()?;
        if self.tried.as_deref() != Some(span) {
            self.tried = Some(Box::new(span.clone()));
            self.tries = Tries::default();
        }
        Some(Request::Events {
            operation: span.operation.clone(),
            body: Arc::clone(body),
        })
    }

    fn next_batch(&self, shared: &Shared) -> Option<Batch> {
        let wanted = shared.journal.outbox.first()?;
        let on_disk = shared
            .journal
            .on_disk()
            .outbox
            .iter()
            .find(|outbox| outbox.operation == wanted.operation)?;
        let durable_last = on_disk.events.last()?.sequence;
        let count_max = if self.one_by_one {
            1
        } else {
            EVENTS_PER_CALL_MAX
        };
        let events: Vec<OperationEvent> = fitting(
            wanted
                .events
                .iter()
                .take_while(|event| event.sequence <= durable_last)
                .take(count_max),
        )
        .cloned()
        .collect();
        let (first, last) = (events.first()?.sequence, events.last()?.sequence);
        let body = OperationEvents::new(events)
            .expect("events are numbered, cut and counted when they are written down");
        Some(Batch {
            span: Span {
                operation: wanted.operation.clone(),
                first,
                last,
            },
            body: Arc::new(body),
        })
    }

    /// The portal has the events up to a number; what it has is not kept. `false` if that brought nothing forward: the same
    /// call is to go out again, later.
    pub(super) fn accepted(&mut self, shared: &mut Shared, answer: EventsAnswer) -> bool {
        let Some(batch) = self.batch.take() else {
            return true;
        };
        let accepted = answer.accepted_sequence.min(batch.span.last);
        if accepted >= batch.span.first {
            drop_events(shared, &batch.span.operation, |event| {
                event.sequence <= accepted
            });
            if answer.accepted_sequence > accepted {
                events::end_behind(shared, &batch.span.operation, answer.accepted_sequence);
            }
            return true;
        }
        let follows_a_gap = batch.span.first > answer.accepted_sequence.saturating_add(1);
        if !follows_a_gap {
            self.batch = Some(batch);
            return false;
        }
        // What is missing before them is gone from here, too. The portal may have kept them all the same.
        let count = drop_events(shared, &batch.span.operation, |event| {
            event.sequence <= batch.span.last
        });
        shared.note(Note::EventsDropped {
            operation: batch.span.operation,
            count,
        });
        true
    }

    /// The call was refused with 400. Three times: the events are tried one by one, and one that is refused three times by
    /// itself is given up (ANS-2).
    pub(super) fn refused(&mut self, shared: &mut Shared, refused: RequestRefused) {
        if !refused.is_final() {
            return;
        }
        let Some(batch) = self.batch.take() else {
            return;
        };
        self.one_by_one = batch.span.first != batch.span.last;
        if self.one_by_one {
            return;
        }
        let (operation, sequence) = (batch.span.operation, batch.span.first);
        drop_events(shared, &operation, |event| event.sequence == sequence);
        give_up(
            shared,
            &operation,
            sequence,
            1,
            Undeliverable::Refused { code: refused.code },
        );
        shared.note(Note::EventUndeliverable {
            operation,
            sequence,
        });
    }

    /// Any other failure. An operation that the portal has not handed to this agent: recorded, and its events dropped.
    pub(super) fn failed(&mut self, shared: &mut Shared, refusal: Option<&Refusal>) {
        let is_unknown = refusal.is_some_and(|refusal| {
            (refusal.status, refusal.code) == (404, Some(ProblemCode::NotFound))
        });
        if !is_unknown {
            return;
        }
        let Some(batch) = self.batch.take() else {
            return;
        };
        let count = drop_events(shared, &batch.span.operation, |_| true);
        give_up(
            shared,
            &batch.span.operation,
            batch.span.first,
            count,
            Undeliverable::UnknownOperation,
        );
        shared.note(Note::EventsDropped {
            operation: batch.span.operation,
            count,
        });
    }
}

/// The first of these events that fit into one call together; one alone always does.
fn fitting<'a>(
    events: impl Iterator<Item = &'a OperationEvent>,
) -> impl Iterator<Item = &'a OperationEvent> {
    let (mut log_bytes, mut bytes) = (0, 0);
    events.enumerate().map_while(move |(at, event)| {
        log_bytes += event
            .log_tail
            .iter()
            .flatten()
            .map(String::len)
            .sum::<usize>();
        bytes += serde_json::to_vec(event).map_or(ROOM_BYTES, |json| json.len() + 1);
        (at == 0 || (log_bytes <= LOG_CALL_BYTES_MAX && bytes <= ROOM_BYTES)).then_some(event)
    })
}

/// Drops events of an operation from the outbox; how many.
fn drop_events(
    shared: &mut Shared,
    operation: &OperationId,
    which: impl Fn(&OperationEvent) -> bool,
) -> u64 {
    let outbox = &mut shared.journal.change().outbox;
    let mut dropped = 0;
    for entry in outbox
        .iter_mut()
        .filter(|entry| entry.operation == *operation)
    {
        let before = entry.events.len();
        entry.events.retain(|event| !which(event));
        dropped += before - entry.events.len();
    }
    outbox.retain(|entry| !entry.events.is_empty());
    u64::try_from(dropped).unwrap_or(u64::MAX)
}

/// Entries of undeliverable events that are kept for `status`.
const UNDELIVERABLE_KEPT_MAX: usize = 100;

fn give_up(
    shared: &mut Shared,
    operation: &OperationId,
    first_sequence: u64,
    count: u64,
    cause: Undeliverable,
) {
    let kept = &mut shared.journal.change().undeliverable;
    kept.push(UndeliverableEvents {
        operation: operation.clone(),
        first_sequence,
        count,
        cause,
    });
    let surplus = kept.len().saturating_sub(UNDELIVERABLE_KEPT_MAX);
    kept.drain(..surplus);
}
