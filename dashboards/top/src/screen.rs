//! The screen's state: what was seen, which view, frozen or not. Nothing here waits, writes or knows what time it is.

use std::collections::VecDeque;

use ratatui::Frame;
use record::Snapshot;
use record::agents::AgentsAsked;
use record::snapshot::Arrivals;

use crate::key::Key;
use crate::look::Look;
use crate::past::Past;
use crate::text::Scroll;
use crate::views::{self, Keys, Looking, View};

/// How many lines of the log are kept.
pub const LINES_KEPT: usize = 1_000;
/// How far a page goes.
const PAGE: usize = 10;
/// How many seconds of a run the bottom line says what a key did, unless another key comes before.
const SAID_SECONDS: u8 = 5;

/// What whoever sits before the screen wants of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It ends, and calls under way may end.
    Quit,
    /// It ends at once.
    QuitAtOnce,
    /// This moment's snapshot is kept in a file.
    SnapshotNow,
    /// Arrivals are held, or go on again.
    HoldArrivals,
    /// A run that is over is moved by a key that means nothing to the screen.
    Replay(Key),
}

/// The screen.
#[derive(Debug, Clone)]
pub struct Screen {
    look: Look,
    keys: &'static Keys,
    view: View,
    /// How far the help is scrolled; none while it is not there.
    help: Option<Scroll>,
    /// What stands before the time: `ENDING`, `PAUSED`.
    word: String,
    /// What stands in place of the keys, and for how many seconds more.
    said: Option<(String, u8)>,
    looking: Looking,
    /// How far each view is scrolled.
    scrolls: [Scroll; View::ALL.len()],
    log: VecDeque<String>,
    seen: Seen,
    /// What is shown instead, while the figures are frozen. The log goes on: it says what keys did.
    frozen: Option<Box<Seen>>,
}

/// All figures that were seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) now: Snapshot,
    pub(crate) past: Past,
}

impl Screen {
    /// A screen of a run that has seen nothing.
    pub fn new(look: Look) -> Self {
        Screen::with_keys(look, &views::KEYS_OF_RUN)
    }

    /// The same screen for a run that is over: it tells the keys of a replay.
    pub fn of_replay(look: Look) -> Self {
        Screen::with_keys(look, &views::KEYS_OF_REPLAY)
    }

    fn with_keys(look: Look, keys: &'static Keys) -> Self {
        Screen {
            look,
            keys,
            view: View::Overview,
            help: None,
            word: String::new(),
            said: None,
            looking: Looking::default(),
            scrolls: Default::default(),
            log: VecDeque::new(),
            seen: Seen::default(),
            frozen: None,
        }
    }

    /// Takes in the run's next second.
    pub fn see(&mut self, snapshot: Snapshot) {
        self.seen.past.see(&snapshot);
        if let Some(shown) = &snapshot.agents_shown {
            self.looking.see(shown);
        }
        self.seen.now = snapshot;
        self.said = self.said.take().and_then(|(said, seconds)| {
            let left = seconds.checked_sub(1)?;
            Some((said, left))
        });
    }

    /// Takes in a line of the log; of what would move a cursor or colour something, only the text.
    pub fn log(&mut self, line: &str) {
        if self.log.len() == LINES_KEPT {
            self.log.pop_front();
        }
        self.log.push_back(visible(line));
    }

    /// Forgets the seconds that it has seen, as before the first one.
    pub fn forget(&mut self) {
        self.seen = Seen::default();
    }

    /// From now on the run comes to its end, and no more seconds need come.
    pub fn ends(&mut self) {
        self.says("ENDING");
    }

    /// Puts a word before the time.
    pub fn says(&mut self, word: &str) {
        word.clone_into(&mut self.word);
    }

    /// Says in the bottom line what came of a key, whatever view is seen.
    pub fn tells(&mut self, text: &str) {
        self.said = Some((visible(text), SAID_SECONDS));
    }

    /// What the fleet is asked for while its agents are seen one by one; none in another view.
    pub fn asks(&self) -> Option<AgentsAsked> {
        (self.view == View::Agents).then(|| self.looking.asks())
    }

    /// Takes in a key.
    pub fn press(&mut self, key: Key) -> Option<Wish> {
        self.said = None;
        if let Some(help) = self.help.take() {
            // What lies below it has no keys.
            if scrolls(&help, key) {
                self.help = Some(help);
            }
            return None;
        }
        // What is typed is text, whatever its letters mean elsewhere.
        if self.view == View::Agents && self.looking.is_typing() && self.look_for(key) {
            return None;
        }
        let is_over = self.keys.is_of_replay();
        match key {
            Key::Char('q') => return Some(Wish::Quit),
            Key::Char('Q') => return Some(Wish::QuitAtOnce),
            Key::Char('s') if !is_over => return Some(Wish::SnapshotNow),
            Key::Char('p') if !is_over => return self.holds_arrivals(),
            Key::Char('?') => self.help = Some(Scroll::default()),
            Key::Char('f') => {
                self.frozen = match self.frozen {
                    Some(_) => None,
                    None => Some(Box::new(self.seen.clone())),
                };
            }
            Key::Char(' ' | '+' | '=' | '-') | Key::Left | Key::Right | Key::Home | Key::End
                if is_over =>
            {
                return Some(Wish::Replay(key));
            }
            key if self.view == View::Agents && self.look_for(key) => {}
            Key::Char(digit) => self.view = View::of_key(digit).unwrap_or(self.view),
            Key::Tab => self.view = self.view.next(1),
            Key::BackTab => self.view = self.view.next(View::ALL.len() - 1),
            // The newest line of a log is at its bottom, where it begins to be read.
            key if self.view == View::Log => {
                scrolls(self.scroll(), upside_down(key));
            }
            key => {
                scrolls(self.scroll(), key);
            }
        }
        None
    }

    /// Holds arrivals or lets them go on, where somebody is still to arrive.
    fn holds_arrivals(&mut self) -> Option<Wish> {
        match self.seen.now.arrivals {
            Arrivals::GoOn | Arrivals::Held => Some(Wish::HoldArrivals),
            Arrivals::Over => {
                self.tells("everybody has arrived: there are no arrivals to hold");
                None
            }
        }
    }

    fn look_for(&mut self, key: Key) -> bool {
        let shown = self.frozen.as_deref().unwrap_or(&self.seen);
        self.looking.press(key, shown.now.agents_shown.as_ref())
    }

    fn scroll(&self) -> &Scroll {
        &self.scrolls[self.view as usize]
    }

    /// Draws it, whatever the size.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        views::draw(&self.scene(), frame.buffer_mut(), area);
        self.look.finish(frame.buffer_mut());
    }

    /// What the fleet did and where its requests went, in plain lines: for where there is no screen.
    pub fn in_words(&self) -> Vec<String> {
        views::in_words(&self.scene())
    }

    fn scene(&self) -> views::Scene<'_> {
        let shown = self.frozen.as_deref().unwrap_or(&self.seen);
        views::Scene {
            look: self.look,
            keys: self.keys,
            view: self.view,
            help: self.help.as_ref(),
            frozen: self.frozen.is_some(),
            word: &self.word,
            said: self.said.as_ref().map(|(said, _)| said.as_str()),
            looking: &self.looking,
            scroll: self.scroll(),
            now: &shown.now,
            past: &shown.past,
            log: &self.log,
        }
    }
}

/// Scrolls, if that is what the key is for.
fn scrolls(scroll: &Scroll, key: Key) -> bool {
    match key {
        Key::Up => scroll.back(1),
        Key::Down => scroll.further(1),
        Key::PageUp => scroll.back(PAGE),
        Key::PageDown => scroll.further(PAGE),
        Key::Home => scroll.back(usize::MAX),
        Key::End => scroll.further(usize::MAX),
        _ => return false,
    }
    true
}

/// The key for what is scrolled from its bottom.
const fn upside_down(key: Key) -> Key {
    match key {
        Key::Up => Key::Down,
        Key::Down => Key::Up,
        Key::PageUp => Key::PageDown,
        Key::PageDown => Key::PageUp,
        Key::Home => Key::End,
        Key::End => Key::Home,
        key => key,
    }
}

/// A line without control characters and without the sequences that begin with one.
fn visible(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => {
                if chars.next() == Some('[') {
                    chars.find(|end| ('@'..='~').contains(end));
                }
            }
            '\t' => text.push(' '),
            char if char.is_control() => {}
            char => text.push(char),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_moves_no_cursor() {
        let rows = [
            ("plain", "plain"),
            (
                "\u{1b}[32m INFO\u{1b}[0m booted\tonce\r",
                " INFO booted once",
            ),
            ("\u{1b}]0;title\u{7}x", "0;titlex"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
        ];
        for (line, text) in rows {
            assert_eq!(visible(line), text, "{line:?}");
        }
    }
}
