//! Referee 9: secrets that are in the run, and in no text.

use super::Bench;
use crate::trace::Event;

pub(super) fn see(event: &Event, canaries: &[String], bench: &mut Bench<'_>) {
    let Event::Text { place, text } = event else {
        return;
    };
    if canaries.is_empty() {
        return;
    }
    // The breach does not repeat the secret: it is read by people, and kept.
    let found = canaries
        .iter()
        .position(|canary| text.contains(canary.as_str()));
    bench.judge(
        9,
        found.map(|number| format!("canary {number} is in {place}")),
    );
}
