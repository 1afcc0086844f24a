//! The maintenance window: whether a moment lies in it, and when the next one begins (SYNC-8).
//!
//! A window opens on its days, at its start by the clock of its zone, and is open for its duration in elapsed time, so that
//! a change of daylight saving time makes none longer or shorter. A start that such a change skips is that much later, and
//! of a start that comes twice the first counts, as calendars have it (RFC 5545, 3.3.5). Zones are those of the database
//! that is built in: no file of the node changes what a window means.
//!
//! What is done in a window is not decided here.

use std::sync::LazyLock;

use jiff::ToSpan as _;
use jiff::civil::{self, Date};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use protocol::pbx::sync::{MaintenanceWindow, Weekday};
use protocol::time::Timestamp;

/// Minutes of a day, and of a week: a window may be open all the time.
const DAY_MINUTES: u32 = 24 * 60;
const WEEK_MINUTES: u32 = 7 * DAY_MINUTES;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A maintenance window that means something.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Window {
    /// The days on which it opens, Monday first.
    days: [bool; 7],
    start: civil::Time,
    duration_minutes: u32,
    zone: TimeZone,
}

/// Why a maintenance window means nothing. Then it never opens, and the document's other parts are put into force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WindowRefused {
    #[error("maintenance_window.time_zone {0:?} is not in the IANA database of this agent")]
    UnknownZone(String),
    #[error("maintenance_window.days is empty, so it never opens")]
    NoDays,
    #[error("maintenance_window.duration_minutes is {0}; it must be 1 to {WEEK_MINUTES}, a week")]
    Duration(u32),
}

impl Window {
    /// Reads a document's.
    pub(super) fn read(written: &MaintenanceWindow) -> Result<Self, WindowRefused> {
        let zone = ZONES
            .get(&written.time_zone)
            .map_err(|_| WindowRefused::UnknownZone(written.time_zone.clone()))?;
        if written.days.is_empty() {
            return Err(WindowRefused::NoDays);
        }
        if !(1..=WEEK_MINUTES).contains(&written.duration_minutes) {
            return Err(WindowRefused::Duration(written.duration_minutes));
        }
        let mut days = [false; 7];
        for day in &written.days {
            days[monday_first(*day)] = true;
        }
        let (hour, minute) = (written.start.hour(), written.start.minute());
        let (hour, minute) = (hour.cast_signed(), minute.cast_signed());
        Ok(Self {
            days,
            start: civil::time(hour, minute, 0, 0),
            duration_minutes: written.duration_minutes,
            zone,
        })
    }

    /// One that never opens.
    pub(super) fn never() -> Self {
        Self {
            days: [false; 7],
            start: civil::Time::midnight(),
            duration_minutes: 0,
            zone: TimeZone::UTC,
        }
    }

    /// Whether it is open.
    pub(super) fn is_open(&self, at: Timestamp) -> bool {
        let Some(today) = self.date(at) else {
            return false;
        };
        let duration_ms = i64::from(self.duration_minutes) * 60_000;
        // The zone's day may be longer than 24 hours, and a start that is skipped comes later than it says.
        let days_back = i64::from(self.duration_minutes / DAY_MINUTES) + 2;
        self.openings(today, -days_back, 1)
            .any(|opens| opens <= at && at.unix_ms() - opens.unix_ms() < duration_ms)
    }

    /// When it opens next, after this moment; none at the end of time.
    pub(super) fn opens_after(&self, at: Timestamp) -> Option<Timestamp> {
        let today = self.date(at)?;
        self.openings(today, -2, 9).find(|opens| *opens > at)
    }

    /// The moments at which it opens, of some days around one, in their order.
    fn openings(&self, day: Date, from: i64, to: i64) -> impl Iterator<Item = Timestamp> {
        let days = (from..=to).filter_map(move |offset| day.checked_add(offset.days()).ok());
        days.filter(|day| {
            self.days[usize::from(day.weekday().to_monday_zero_offset().unsigned_abs())]
        })
        .filter_map(|day| {
            let opens = self.zone.to_timestamp(day.to_datetime(self.start)).ok()?;
            Some(Timestamp::from_unix_ms(opens.as_millisecond()))
        })
    }

    fn date(&self, at: Timestamp) -> Option<Date> {
        let at = jiff::Timestamp::from_millisecond(at.unix_ms()).ok()?;
        Some(self.zone.to_datetime(at).date())
    }
}

fn monday_first(day: Weekday) -> usize {
    match day {
        Weekday::Monday => 0,
        Weekday::Tuesday => 1,
        Weekday::Wednesday => 2,
        Weekday::Thursday => 3,
        Weekday::Friday => 4,
        Weekday::Saturday => 5,
        Weekday::Sunday => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};

    fn written(
        days: &[Weekday],
        start: &str,
        duration_minutes: u32,
        zone: &str,
    ) -> MaintenanceWindow {
        MaintenanceWindow {
            days: days.to_vec(),
            start: start.parse().unwrap(),
            duration_minutes,
            time_zone: zone.to_owned(),
        }
    }

    fn window(days: &[Weekday], start: &str, duration_minutes: u32, zone: &str) -> Window {
        Window::read(&written(days, start, duration_minutes, zone)).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    // rule SYNC-8
    #[test]
    fn sync_8_a_window_is_open_on_its_days_from_its_start_for_its_duration() {
        use Weekday::*;
        let berlin = window(&[Sunday], "02:00", 120, "Europe/Berlin");
        let midnight = window(&[Saturday], "23:30", 60, "Europe/Berlin");
        let long = window(&[Friday], "22:00", 2 * DAY_MINUTES + 60, "Asia/Tokyo");
        let always = window(
            &[
                Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday,
            ],
            "00:00",
            DAY_MINUTES,
            "UTC",
        );
        // The window, a moment, and whether it is open then.
        let rows = [
            ("one", &berlin, "2026-11-29T00:59:59.999Z", false),
            ("its first moment", &berlin, "2026-11-29T01:00:00Z", true),
            ("its last moment", &berlin, "2026-11-29T02:59:59.999Z", true),
            ("its end", &berlin, "2026-11-29T03:00:00Z", false),
            ("another day", &berlin, "2026-11-30T01:30:00Z", false),
            ("over midnight", &midnight, "2026-11-28T23:15:00Z", true),
            (
                "over midnight, the end",
                &midnight,
                "2026-11-28T23:30:00Z",
                false,
            ),
            (
                "the day of a day's end",
                &midnight,
                "2026-11-28T00:15:00Z",
                false,
            ),
            ("days long", &long, "2026-11-29T13:59:59Z", true),
            ("days long, the end", &long, "2026-11-29T14:00:00Z", false),
            ("always", &always, "2026-03-29T23:59:59.999Z", true),
        ];
        for (case, window, moment, open) in rows {
            assert_eq!(window.is_open(at(moment)), open, "{case}: {moment}");
        }
    }

    // rule SYNC-8: what a change of the clocks does to a start, and that it does nothing to a duration.
    #[test]
    fn sync_8_a_change_of_the_clocks_moves_no_window_by_more_than_it_must() {
        use Weekday::*;
        // The zone, the start on a Sunday, a moment before, and when it opens then.
        let rows = [
            // 02:00 to 03:00 is skipped on 2026-03-29 in Berlin: 02:30 by the clock before the change is 03:30 after it.
            (
                "Europe/Berlin",
                "02:30",
                "2026-03-28T12:00:00Z",
                "2026-03-29T01:30:00Z",
            ),
            (
                "Europe/Berlin",
                "03:00",
                "2026-03-28T12:00:00Z",
                "2026-03-29T01:00:00Z",
            ),
            // 02:00 to 03:00 comes twice on 2026-10-25: the first one counts.
            (
                "Europe/Berlin",
                "02:30",
                "2026-10-24T12:00:00Z",
                "2026-10-25T00:30:00Z",
            ),
            // By half an hour, in the other half of the year.
            (
                "Australia/Lord_Howe",
                "02:15",
                "2026-10-03T12:00:00Z",
                "2026-10-03T15:45:00Z",
            ),
            // At midnight.
            (
                "America/Santiago",
                "00:10",
                "2026-09-05T12:00:00Z",
                "2026-09-06T04:10:00Z",
            ),
        ];
        for (zone, start, before, opens) in rows {
            let window = window(&[Sunday], start, 60, zone);
            let opens = at(opens);
            assert_eq!(
                window.opens_after(at(before)),
                Some(opens),
                "{zone} {start}"
            );
            let end = Timestamp::from_unix_ms(opens.unix_ms() + 3_600_000);
            assert!(
                window.is_open(opens) && !window.is_open(end),
                "{zone} {start}"
            );
        }
    }

    #[test]
    fn sync_8_a_window_that_means_nothing_is_refused() {
        use Weekday::Sunday;
        let rows = [
            (
                written(&[Sunday], "02:00", 60, "Europe/Atlantis"),
                "Europe/Atlantis",
            ),
            (written(&[Sunday], "02:00", 60, ""), "time_zone"),
            (written(&[Sunday], "02:00", 60, "+02:00"), "time_zone"),
            (written(&[], "02:00", 60, "UTC"), "days"),
            (
                written(&[Sunday], "02:00", 0, "UTC"),
                "duration_minutes is 0",
            ),
            (
                written(&[Sunday], "02:00", WEEK_MINUTES + 1, "UTC"),
                "10081",
            ),
        ];
        for (written, says) in rows {
            let refused = Window::read(&written).unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
        }
    }

    /// Over a year, minute by minute, from the zone's clock alone: at which minutes a window opens. A start that is skipped
    /// counts where the clock before the change would have shown it.
    fn openings_by_the_clock(window: &Window, year: i16) -> Vec<i64> {
        let first = civil::date(year, 1, 1)
            .to_zoned(TimeZone::UTC)
            .unwrap()
            .timestamp();
        let minutes = 366 * i64::from(DAY_MINUTES);
        let local = |minute: i64, offset_seconds: i64| {
            let seconds = first.as_second() + minute * 60 + offset_seconds;
            (seconds.div_euclid(86_400), seconds.rem_euclid(86_400) / 60)
        };
        let start = i64::from(window.start.hour()) * 60 + i64::from(window.start.minute());
        let opens = |(day, minute): (i64, i64)| {
            let weekday = usize::try_from((day + 3).rem_euclid(7)).unwrap();
            window.days[weekday] && minute == start
        };
        let offset = |minute: i64| {
            let at = jiff::Timestamp::from_second(first.as_second() + minute * 60).unwrap();
            i64::from(window.zone.to_offset(at).seconds())
        };
        let mut found = Vec::new();
        let mut days = std::collections::BTreeSet::new();
        // The offset before the last change, for as long as the change was by.
        let mut before: Option<(i64, i64)> = None;
        let mut last = offset(0);
        for minute in 0..minutes {
            let now = offset(minute);
            if now > last {
                before = Some((last, minute + (now - last) / 60));
            }
            last = now;
            let clock = local(minute, now);
            let old_clock = before
                .filter(|(_, until)| minute < *until)
                .map(|(offset, _)| local(minute, offset));
            for shown in [Some(clock), old_clock].into_iter().flatten() {
                let is_skipped_or_real = opens(shown) && days.insert(shown.0);
                if is_skipped_or_real {
                    found.push((first.as_second() + minute * 60) * 1000);
                }
            }
        }
        found
    }

    // rule SYNC-8
    #[test]
    fn sync_8_over_a_year_and_in_every_kind_of_zone_windows_open_by_the_zones_clock() {
        const ZONES: [&str; 16] = [
            "UTC",
            "Europe/Berlin",
            "Europe/London",
            "Europe/Dublin",
            "America/New_York",
            "America/St_Johns",
            "America/Santiago",
            "America/Sao_Paulo",
            "Africa/Casablanca",
            "Africa/Cairo",
            "Asia/Kolkata",
            "Asia/Kathmandu",
            "Asia/Tehran",
            "Australia/Lord_Howe",
            "Pacific/Chatham",
            "Antarctica/Troll",
        ];
        const DAYS: [Weekday; 7] = [
            Weekday::Monday,
            Weekday::Tuesday,
            Weekday::Wednesday,
            Weekday::Thursday,
            Weekday::Friday,
            Weekday::Saturday,
            Weekday::Sunday,
        ];
        for seed in 0..64 {
            let mut chance = Seed(seed).child(Purpose::Tickets);
            let mut pick = |count: u64| usize::try_from(chance.between(0, count - 1)).unwrap();
            let zone = ZONES[pick(16)];
            let mut days: Vec<_> = DAYS.into_iter().filter(|_| pick(3) == 0).collect();
            days.push(DAYS[pick(7)]);
            // Where the clocks change, and anywhere.
            let start = [
                [
                    "00:00", "00:30", "01:00", "01:30", "02:00", "02:15", "02:45", "03:00",
                ][pick(8)],
                ["05:17", "12:00", "22:30", "23:59"][pick(4)],
            ][usize::from(pick(4) == 0)];
            let duration = [1, 60, 119, 240, DAY_MINUTES, DAY_MINUTES + 61, WEEK_MINUTES][pick(7)];
            let case = format!("seed {seed}: {zone} {days:?} {start} {duration}");
            let window = window(&days, start, duration, zone);
            let openings = openings_by_the_clock(&window, 2026);
            let duration_ms = i64::from(duration) * 60_000;
            let first = openings[0];
            let last = *openings.last().unwrap();
            // Each opening is told from the one before, in order.
            for pair in openings.windows(2) {
                let next = window.opens_after(Timestamp::from_unix_ms(pair[0]));
                assert_eq!(next, Some(Timestamp::from_unix_ms(pair[1])), "{case}");
            }
            // Open is what lies within the duration of some opening, at moments near its ends and anywhere.
            let mut moments: Vec<i64> = (openings.iter())
                .flat_map(|opens| {
                    [
                        opens - 1,
                        *opens,
                        opens + duration_ms - 1,
                        opens + duration_ms,
                    ]
                })
                .collect();
            for _ in 0..200 {
                moments.push(
                    chance
                        .between(first.unsigned_abs(), last.unsigned_abs())
                        .cast_signed(),
                );
            }
            for moment in moments
                .into_iter()
                .filter(|it| (first + duration_ms..last).contains(it))
            {
                let expected =
                    (openings.iter()).any(|opens| (*opens..opens + duration_ms).contains(&moment));
                let moment = Timestamp::from_unix_ms(moment);
                assert_eq!(window.is_open(moment), expected, "{case}: {moment}");
            }
        }
    }
}
