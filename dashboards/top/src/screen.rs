//! The screen's state: what was seen, which view, frozen or not. Nothing here waits, writes or knows what time it is.

use std::collections::VecDeque;

use ratatui::Frame;
use record::Snapshot;
use record::agents::AgentsAsked;

use crate::key::Key;
use crate::look::Look;
use crate::past::Past;
use crate::views::{self, Keys, Looking, View};

/// How many lines of the log are kept.
pub const LINES_KEPT: usize = 1_000;
/// How far a page of the log goes.
const PAGE: usize = 10;

/// What whoever sits before the screen wants of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It ends, and calls under way may end.
    Quit,
    /// It ends at once.
    QuitAtOnce,
    /// This moment's snapshot is kept in a file.
    SnapshotNow,
    /// Arrivals stand still, or go on again.
    PauseArrivals,
}

/// The screen.
#[derive(Debug, Clone)]
pub struct Screen {
    look: Look,
    keys: &'static Keys,
    view: View,
    help: bool,
    /// What stands before the time: `ENDING`, `PAUSED`.
    word: String,
    looking: Looking,
    /// Lines of the log below the last one that is shown.
    scrolled: usize,
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
            help: false,
            word: String::new(),
            looking: Looking::default(),
            scrolled: 0,
            log: VecDeque::new(),
            seen: Seen::default(),
            frozen: None,
        }
    }

    /// Takes in the run's next second.
    pub fn see(&mut self, snapshot: Snapshot) {
        self.seen.past.see(&snapshot);
        self.seen.now = snapshot;
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

    /// What the fleet is asked for while its agents are seen one by one; none in another view.
    pub fn asks(&self) -> Option<AgentsAsked> {
        (self.view == View::Agents).then(|| self.looking.asks())
    }

    /// Takes in a key.
    pub fn press(&mut self, key: Key) -> Option<Wish> {
        // What is typed is text, whatever its letters mean elsewhere.
        if self.view == View::Agents && self.looking.is_typing() && self.look_for(key) {
            return None;
        }
        // The first key after the help takes it away, and does what it does.
        let helped = std::mem::take(&mut self.help);
        match key {
            Key::Char('q') => return Some(Wish::Quit),
            Key::Char('Q') => return Some(Wish::QuitAtOnce),
            Key::Char('s') => return Some(Wish::SnapshotNow),
            Key::Char('p') => return Some(Wish::PauseArrivals),
            Key::Char('?') => self.help = !helped,
            Key::Char('f') => {
                self.frozen = match self.frozen {
                    Some(_) => None,
                    None => Some(Box::new(self.seen.clone())),
                };
            }
            key if self.view == View::Agents && self.look_for(key) => {}
            Key::Char(digit) => self.view = View::of_key(digit).unwrap_or(self.view),
            Key::Tab => self.view = self.view.next(1),
            Key::BackTab => self.view = self.view.next(View::ALL.len() - 1),
            Key::Up => self.scroll(1, true),
            Key::Down => self.scroll(1, false),
            Key::PageUp => self.scroll(PAGE, true),
            Key::PageDown => self.scroll(PAGE, false),
            Key::Left
            | Key::Right
            | Key::Home
            | Key::End
            | Key::Enter
            | Key::Backspace
            | Key::Escape => {}
        }
        None
    }

    fn look_for(&mut self, key: Key) -> bool {
        self.looking.press(key, self.seen.now.agents_shown.as_ref())
    }

    fn scroll(&mut self, lines: usize, up: bool) {
        if self.view == View::Log {
            let most = self.log.len().saturating_sub(1);
            self.scrolled = match up {
                true => self.scrolled.saturating_add(lines).min(most),
                false => self.scrolled.saturating_sub(lines),
            };
        }
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
            help: self.help,
            frozen: self.frozen.is_some(),
            word: &self.word,
            looking: &self.looking,
            scrolled: self.scrolled,
            now: &shown.now,
            past: &shown.past,
            log: &self.log,
        }
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
