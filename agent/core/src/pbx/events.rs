//! What an operation leaves behind: its events, numbered and on disk before they are sent (OPS-8), and its end, remembered
//! for 30 days (OPS-7).
//!
//! Only writing down stands here; when an event is sent, and what the portal's answer means, is
//! [`deliver`](super::deliver)'s.

use std::sync::Arc;

use protocol::hash::Sha256Hex;
use protocol::id::OperationId;
use protocol::limits::{LOG_CALL_BYTES_MAX, LOG_TAIL_LINES_MAX};
use protocol::pbx::operation::{
    EventState, OperationEvent, OperationOffer, OperationResult, Reason, Step,
};
use protocol::pbx::sync::OperationState;
use protocol::time::Timestamp;

use super::durable::{Durable, FinishedOperation, Outbox, Undeliverable};
use super::shared::Shared;
use crate::limits::{FINISHED_DAYS_MAX, FINISHED_MAX, FINISHED_RESULT_BYTES_MAX};
use crate::machine::LogLine;
use crate::note::Note;

/// Bytes of an event's message; a longer one is cut.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// How an operation ends.
#[derive(Debug, PartialEq)]
pub(super) struct End {
    state: EventState,
    message: Option<String>,
    reason: Option<Reason>,
    result: Option<Box<OperationResult>>,
}

impl End {
    pub(super) fn succeeded(result: Option<OperationResult>) -> Self {
        Self {
            state: EventState::Succeeded,
            message: None,
            reason: None,
            result: result.map(Box::new),
        }
    }

    pub(super) fn failed(message: String, reason: Option<Reason>) -> Self {
        Self::without_result(EventState::Failed, message, reason)
    }

    /// Not begun: the agent does not perform the kind (OPS-5).
    pub(super) fn unsupported(message: String) -> Self {
        Self::without_result(EventState::Unsupported, message, None)
    }

    /// Not begun: the agent will not, as things are (OPS-6, OPS-10).
    pub(super) fn refused(message: String, reason: Reason) -> Self {
        Self::without_result(EventState::Refused, message, Some(reason))
    }

    fn without_result(state: EventState, message: String, reason: Option<Reason>) -> Self {
        Self {
            state,
            message: Some(message),
            reason,
            result: None,
        }
    }
}

/// A step of the running operation begins.
pub(super) fn step_started(durable: &mut Durable, at: Timestamp, step: Step) {
    write_down(durable, event(at, Some(step), EventState::Started));
}

/// A step of the running operation has ended well.
pub(super) fn step_succeeded(durable: &mut Durable, at: Timestamp, step: Step) {
    write_down(durable, event(at, Some(step), EventState::Succeeded));
}

/// A step of the running operation has failed: with the last lines of its log (OPS-3).
pub(super) fn step_failed(
    durable: &mut Durable,
    at: Timestamp,
    step: Step,
    message: &str,
    reason: Option<Reason>,
    log: Vec<LogLine>,
) {
    write_down(
        durable,
        OperationEvent {
            message: Some(cut(message)),
            log_tail: Some(log_tail(log)),
            reason,
            ..event(at, Some(step), EventState::Failed)
        },
    );
}

fn event(at: Timestamp, step: Option<Step>, state: EventState) -> OperationEvent {
    OperationEvent {
        sequence: 0,
        at,
        step,
        state,
        message: None,
        log_tail: None,
        reason: None,
        result: None,
    }
}

/// Writes an event of the running operation down, with its next number.
fn write_down(durable: &mut Durable, mut event: OperationEvent) {
    if let Some(running) = durable.operation.as_deref_mut() {
        event.sequence = running.next_sequence;
        running.next_sequence += 1;
        let operation = running.offer.id.clone();
        put_into_outbox(durable, &operation, event);
    }
}

fn put_into_outbox(durable: &mut Durable, operation: &OperationId, event: OperationEvent) {
    let entry = durable
        .outbox
        .iter_mut()
        .find(|outbox| outbox.operation == *operation);
    match entry {
        Some(outbox) => outbox.events.push(event),
        None => durable.outbox.push(Outbox {
            operation: operation.clone(),
            events: vec![event],
        }),
    }
}

/// The running operation has ended.
pub(super) fn end_running(shared: &mut Shared, end: End) {
    let running = shared.journal.change().operation.take();
    if let Some(running) = running {
        write_end(shared, &running.offer, running.next_sequence, end);
    }
}

/// An operation that is not begun ends with its only event.
pub(super) fn end_unbegun(shared: &mut Shared, offer: &OperationOffer, end: End) {
    write_end(shared, offer, 1, end);
}

/// The portal has events of an operation that this record knows nothing of (FILE-13): those of the record that was lost. The
/// end follows them, since the portal keeps what it has under a number. Once: nobody is led on by a number that grows.
pub(super) fn end_behind(shared: &mut Shared, operation: &OperationId, stored: u64) {
    let finished = &shared.journal.finished;
    let Some(at) = finished.iter().position(|finished| {
        let end = &finished.end;
        finished.id == *operation && end.reason == Some(Reason::StateLost) && end.sequence == 1
    }) else {
        return;
    };
    let durable = shared.journal.change();
    let end = &mut Arc::make_mut(&mut durable.finished)[at].end;
    end.sequence = stored.saturating_add(1);
    let end = end.clone();
    put_into_outbox(durable, operation, end);
}

/// The final event, and what is remembered for 30 days (OPS-7).
fn write_end(shared: &mut Shared, offer: &OperationOffer, sequence: u64, end: End) {
    let last = OperationEvent {
        sequence,
        message: end.message.as_deref().map(cut),
        reason: end.reason.clone(),
        result: end.result.as_deref().map(OperationResult::to_raw),
        ..event(shared.time(), None, end.state)
    };
    let durable = shared.journal.change();
    put_into_outbox(durable, &offer.id, last.clone());
    let day = durable.days.seen;
    let finished = Arc::make_mut(&mut durable.finished);
    finished.push(FinishedOperation {
        id: offer.id.clone(),
        kind: offer.kind.clone(),
        content: content_of(offer),
        end: last,
        day,
    });
    let surplus = finished.len().saturating_sub(FINISHED_MAX);
    finished.drain(..surplus);
    forget_large_results(finished);
    finished.shrink_to_fit();
    shared.note(Note::OperationEnded {
        operation: offer.id.clone(),
        kind: offer.kind.clone(),
        state: state_of(end.state),
        reason: end.reason,
        message: end.message,
    });
}

/// Results are kept up to a number of bytes, the last ones: a bundle of diagnostics is large, and 30 days are long. What
/// an operation came to stays known; the portal has had the rest, or it lies in the outbox.
fn forget_large_results(finished: &mut [FinishedOperation]) {
    let mut room = FINISHED_RESULT_BYTES_MAX;
    for FinishedOperation { end, .. } in finished.iter_mut().rev() {
        let bytes = end.result.as_ref().map_or(0, |result| result.get().len());
        match room.checked_sub(bytes) {
            Some(left) => room = left,
            None => {
                end.result = None;
                end.message = Some(format!(
                    "the result was reported; its {bytes} bytes are not kept"
                ));
            }
        }
    }
}

/// An operation that has ended is asked for again: answered with what was recorded, unless the answer is on its way, or is
/// one that the portal never takes (OPS-7, ANS-2).
pub(super) fn answer_again(shared: &mut Shared, finished: FinishedOperation) {
    let sequence = finished.end.sequence;
    let is_on_its_way = |outbox: &Outbox| outbox.operation == finished.id;
    let is_never_taken = shared.journal.undeliverable.iter().any(|given_up| {
        given_up.operation == finished.id
            && matches!(given_up.cause, Undeliverable::Refused { .. })
            && (given_up.first_sequence..given_up.first_sequence + given_up.count)
                .contains(&sequence)
    });
    if !shared.journal.outbox.iter().any(is_on_its_way) && !is_never_taken {
        shared.note(Note::OperationAnsweredAgain {
            operation: finished.id.clone(),
        });
        put_into_outbox(shared.journal.change(), &finished.id, finished.end);
    }
}

/// Forgets what ended more than 30 days ago, counted in days on which this agent ran, so that a clock that jumps drops
/// nothing (OPS-7, OPS-8).
pub(super) fn forget_old(durable: &mut Durable) {
    let today = durable.days.seen;
    let is_old =
        |finished: &FinishedOperation| today.saturating_sub(finished.day) > FINISHED_DAYS_MAX;
    let old: Vec<OperationId> = durable
        .finished
        .iter()
        .filter(|finished| is_old(finished))
        .map(|finished| finished.id.clone())
        .collect();
    if !old.is_empty() {
        Arc::make_mut(&mut durable.finished).retain(|finished| !is_old(finished));
        durable
            .outbox
            .retain(|outbox| !old.contains(&outbox.operation));
        durable
            .undeliverable
            .retain(|given_up| !old.contains(&given_up.operation));
    }
}

/// The hash of what an operation asks for, so that the same ID with other content is seen for 30 days (OPS-9).
pub(super) fn content_of(offer: &OperationOffer) -> Sha256Hex {
    let content = serde_json::to_vec(offer).expect("an offer came as JSON and goes as JSON");
    Sha256Hex::of(&content)
}

/// How an operation stands after an event of the whole of it.
pub(super) fn state_of(state: EventState) -> OperationState {
    match state {
        EventState::Started => OperationState::Running,
        EventState::Succeeded => OperationState::Succeeded,
        EventState::Failed => OperationState::Failed,
        EventState::Unsupported => OperationState::Unsupported,
        EventState::Refused => OperationState::Refused,
    }
}

fn cut(message: &str) -> String {
    message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned()
}

/// The last lines of a log that fit into one call: at most 200, and at most 128 KiB as JSON writes them (OPS-3, OPS-8).
fn log_tail(log: Vec<LogLine>) -> Vec<String> {
    let mut room = LOG_CALL_BYTES_MAX;
    let mut kept: Vec<String> = log
        .into_iter()
        .rev()
        .take(LOG_TAIL_LINES_MAX)
        .map(LogLine::into_string)
        .take_while(|line| {
            let written = json_length(line);
            let fits = written <= room;
            room = room.saturating_sub(written);
            fits
        })
        .collect();
    kept.reverse();
    kept
}

/// Bytes of a text as JSON writes it, quotes and comma included.
fn json_length(text: &str) -> usize {
    let written = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.bytes().map(written).sum::<usize>() + 3
}

#[cfg(test)]
mod tests {
    use super::*;

    // rules OPS-3, OPS-8
    #[test]
    fn ops_3_the_log_is_its_last_lines_and_fits_into_a_call() {
        let numbered = |count: usize| (0..count).map(|at| LogLine::new(at.to_string())).collect();
        let tail = log_tail(numbered(1_000));
        assert_eq!(
            (tail.len(), tail[0].as_str(), tail[199].as_str()),
            (200, "800", "999")
        );

        let long = |text: &str| (0..200).map(|_| LogLine::new(text.repeat(2_000))).collect();
        for text in ["x", "\u{1}", "\"", "é"] {
            let tail = log_tail(long(text));
            let written = serde_json::to_vec(&tail).unwrap().len();
            assert!(written <= LOG_CALL_BYTES_MAX, "{text:?}: {written}");
            assert!(
                written > LOG_CALL_BYTES_MAX - 7 * 1024,
                "{text:?}: {written} leaves room"
            );
        }
    }
}
