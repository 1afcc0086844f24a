//! A finished run on the screen of a live one: which of its seconds is shown, and how fast they pass.
//!
//! It begins paused at the end, where the verdict is: whoever opens a result asks first what came of it. From there it is
//! played from its start, in real time, faster or slower. Nothing here knows what time it is: how much has passed is an argument.

use std::time::Duration;

use record::{Micros, Snapshot};

use crate::key::Key;
use crate::past::POINTS_KEPT;
use crate::screen::Screen;

/// How often the speed can double: a day passes in a minute and a half.
const DOUBLINGS_MAX: i32 = 10;
/// How often it can be halved: a second takes eight.
const HALVINGS_MAX: i32 = 3;

/// Where a replay is.
#[derive(Debug, Clone)]
pub struct Replay {
    /// In the order of time.
    seconds: Vec<Snapshot>,
    /// Which one is shown.
    shown: usize,
    /// How far the run has been played: at or behind the one that is shown.
    at: Micros,
    is_playing: bool,
    /// The speed is two to that power.
    doublings: i32,
    /// Which one and which word the screen shows.
    drawn: Option<(usize, String)>,
}

impl Replay {
    /// A replay that is paused at the end.
    pub fn new(seconds: Vec<Snapshot>) -> Self {
        let mut replay = Replay {
            seconds,
            shown: 0,
            at: Micros::ZERO,
            is_playing: false,
            doublings: 0,
            drawn: None,
        };
        replay.go(usize::MAX);
        replay
    }

    /// Takes in a key.
    pub fn press(&mut self, key: Key) {
        match key {
            Key::Char(' ') => {
                if self.is_at_end() {
                    self.go(0);
                }
                self.is_playing = !self.is_playing;
            }
            Key::Left => self.jump(self.shown.saturating_sub(1)),
            Key::Right => self.jump(self.shown + 1),
            Key::Home => self.jump(0),
            Key::End => self.jump(usize::MAX),
            Key::Char('+' | '=') => self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX),
            Key::Char('-') => self.doublings = (self.doublings - 1).max(-HALVINGS_MAX),
            _ => {}
        }
    }

    /// Lets time pass. At the end it pauses.
    pub fn pass(&mut self, time: Duration) {
        if !self.is_playing {
            return;
        }
        self.at = self.at + Micros::from(time.mul_f64(self.speed()));
        let passed = self.seconds.partition_point(|second| second.at <= self.at);
        self.shown = passed.saturating_sub(1).max(self.shown);
        self.is_playing = !self.is_at_end();
    }

    /// What the screen says before the time.
    pub fn word(&self) -> String {
        let word = match self.is_playing {
            true => "PLAYS",
            false => "PAUSED",
        };
        match self.doublings {
            0 => word.to_owned(),
            _ => format!("{word} {}x", self.speed()),
        }
    }

    fn speed(&self) -> f64 {
        2_f64.powi(self.doublings)
    }

    /// Shows the screen where the replay is, as if it had seen the run until then; tells whether that is news.
    pub fn show(&mut self, screen: &mut Screen) -> bool {
        let drawn = Some((self.shown, self.word()));
        if drawn == self.drawn {
            return false;
        }
        self.drawn = drawn;
        screen.forget();
        let until = self.seconds.len().min(self.shown + 1);
        let from = until.saturating_sub(POINTS_KEPT);
        for second in &self.seconds[from..until] {
            screen.see(second.clone());
        }
        screen.says(&self.word());
        true
    }

    fn is_at_end(&self) -> bool {
        self.shown + 1 >= self.seconds.len()
    }

    /// Goes there and stays.
    fn jump(&mut self, to: usize) {
        self.go(to);
        self.is_playing = false;
    }

    fn go(&mut self, to: usize) {
        self.shown = to.min(self.seconds.len().saturating_sub(1));
        self.at = self
            .seconds
            .get(self.shown)
            .map_or(Micros::ZERO, |second| second.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay() -> Replay {
        let second = |at| Snapshot {
            at: Micros::from_seconds(at),
            ..Snapshot::default()
        };
        Replay::new((1..=60).map(second).collect())
    }

    fn shown(replay: &Replay) -> u64 {
        replay.seconds[replay.shown].at.0 / 1_000_000
    }

    #[test]
    fn it_begins_at_the_end_and_plays_from_the_start() {
        let mut replay = replay();
        assert_eq!((shown(&replay), replay.word().as_str()), (60, "PAUSED"));
        replay.pass(Duration::from_secs(5));
        assert_eq!(shown(&replay), 60);
        replay.press(Key::Char(' '));
        assert_eq!((shown(&replay), replay.word().as_str()), (1, "PLAYS"));
        replay.pass(Duration::from_millis(900));
        assert_eq!(shown(&replay), 1);
        replay.pass(Duration::from_millis(200));
        assert_eq!(shown(&replay), 2);
        replay.press(Key::Char(' '));
        replay.pass(Duration::from_secs(5));
        assert_eq!((shown(&replay), replay.word().as_str()), (2, "PAUSED"));
        replay.press(Key::Char(' '));
        replay.pass(Duration::from_secs(1_000));
        assert_eq!((shown(&replay), replay.word().as_str()), (60, "PAUSED"));
    }

    #[test]
    fn steps_and_jumps_stay_where_they_lead() {
        let mut replay = replay();
        let rows = [
            (Key::Right, 60),
            (Key::Left, 59),
            (Key::Left, 58),
            (Key::Right, 59),
            (Key::Home, 1),
            (Key::Left, 1),
            (Key::End, 60),
        ];
        for (key, at) in rows {
            replay.press(key);
            assert_eq!((shown(&replay), replay.is_playing), (at, false), "{key:?}");
        }
    }

    #[test]
    fn the_speed_doubles_within_bounds() {
        let mut replay = replay();
        replay.press(Key::Char(' '));
        replay.press(Key::Char('+'));
        replay.press(Key::Char('='));
        assert_eq!(replay.word(), "PLAYS 4x");
        replay.pass(Duration::from_secs(5));
        assert_eq!(shown(&replay), 21);
        for _ in 0..3 {
            replay.press(Key::Char('-'));
        }
        assert_eq!(replay.word(), "PLAYS 0.5x");
        replay.pass(Duration::from_secs(4));
        assert_eq!(shown(&replay), 23);
        for _ in 0..100 {
            replay.press(Key::Char('-'));
        }
        assert_eq!(replay.word(), "PLAYS 0.125x");
        for _ in 0..100 {
            replay.press(Key::Char('+'));
        }
        assert_eq!(replay.word(), "PLAYS 1024x");
    }

    #[test]
    fn a_run_without_seconds_is_no_trouble() {
        let mut replay = Replay::new(Vec::new());
        for key in [Key::Char(' '), Key::Left, Key::Right, Key::End] {
            replay.press(key);
            replay.pass(Duration::from_secs(1));
        }
        assert_eq!(replay.word(), "PAUSED");
    }
}
