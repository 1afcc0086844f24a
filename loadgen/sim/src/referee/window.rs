//! Referee 8, the window's half: k3s is restarted for a drop-in inside the maintenance window alone, by the portal's time.
//!
//! The time is the portal's last word and what has passed since; the window is worked out here again, from the document on
//! disk.

use std::sync::Arc;

use agent_core::journal::Work;
use agent_core::pbx::durable::TakenDocument;
use agent_core::pbx::task::DocumentStep;
use agent_core::time::Monotonic;
use jiff::ToSpan as _;
use jiff::tz::TimeZoneDatabase;
use protocol::pbx::call::AnswerBody;
use protocol::pbx::sync::{DesiredState, MaintenanceWindow, Weekday};
use protocol::time::Timestamp;

use super::Bench;
use crate::trace::Event;

/// What is known of one agent's window.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    document: Option<Arc<TakenDocument>>,
    portal_said: Option<(Timestamp, Monotonic)>,
}

impl Window {
    pub(super) fn see(&mut self, event: &Event, bench: &mut Bench<'_>) {
        match event {
            Event::Booted(durable) => {
                self.document.clone_from(&durable.document);
                self.portal_said = None;
            }
            Event::Stored(durable) => self.document.clone_from(&durable.document),
            Event::Answered {
                body: AnswerBody::Sync(answer),
                ..
            } => self.portal_said = Some((answer.portal_time, bench.now.monotonic)),
            Event::Began(began) => {
                if let Work::Document {
                    step: DocumentStep::RestartK3s,
                    ..
                } = began.record.work
                {
                    bench.judge(8, self.breach(bench.now.monotonic));
                }
            }
            _ => {}
        }
    }

    fn breach(&self, now: Monotonic) -> Option<String> {
        let Some(document) = &self.document else {
            return Some("k3s is restarted for a drop-in, and no document is on disk".to_owned());
        };
        let Some((said, at)) = self.portal_said else {
            return Some("k3s is restarted by a clock that the portal has not set".to_owned());
        };
        let since_ms = u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        let time = said.unix_ms().saturating_add_unsigned(since_ms);
        let window = DesiredState::read(&document.raw).ok()?.maintenance_window;
        (!is_open(&window, time)).then(|| {
            let time = Timestamp::from_unix_ms(time);
            format!("k3s is restarted at {time}, outside {window:?}")
        })
    }
}

/// Whether a moment lies in some day's window. More days are looked at than can count.
fn is_open(window: &MaintenanceWindow, unix_ms: i64) -> bool {
    let opened = |days_before: i64| -> Option<i64> {
        let zone = TimeZoneDatabase::bundled().get(&window.time_zone).ok()?;
        let at = jiff::Timestamp::from_millisecond(unix_ms).ok()?;
        let day = at.to_zoned(zone.clone()).date();
        let day = day.checked_sub(days_before.days()).ok()?;
        let (hour, minute) = (window.start.hour(), window.start.minute());
        let opens = day.at(hour.cast_signed(), minute.cast_signed(), 0, 0);
        let opens = opens.to_zoned(zone).ok()?.timestamp().as_millisecond();
        (window.days.iter())
            .any(|opens| weekday(*opens) == day.weekday())
            .then_some(opens)
    };
    let duration_ms = i64::from(window.duration_minutes) * 60_000;
    (-1..=9)
        .filter_map(opened)
        .any(|opens| (opens..opens + duration_ms).contains(&unix_ms))
}

fn weekday(day: Weekday) -> jiff::civil::Weekday {
    match day {
        Weekday::Monday => jiff::civil::Weekday::Monday,
        Weekday::Tuesday => jiff::civil::Weekday::Tuesday,
        Weekday::Wednesday => jiff::civil::Weekday::Wednesday,
        Weekday::Thursday => jiff::civil::Weekday::Thursday,
        Weekday::Friday => jiff::civil::Weekday::Friday,
        Weekday::Saturday => jiff::civil::Weekday::Saturday,
        Weekday::Sunday => jiff::civil::Weekday::Sunday,
    }
}
