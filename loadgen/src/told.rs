//! What is told to whoever looks on: lines on stderr, or kept while a screen shows them and told when it is gone.
//!
//! One place for the whole program, since logs come from every thread.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many lines are kept for the time after the screen.
const LINES_KEPT: usize = 10_000;

/// The lines of a screen; none while there is no screen.
static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<String>,
    /// The last ones, which the screen has not shown yet.
    fresh: usize,
    /// Older ones that had to make room.
    left_out: u64,
}

impl Kept {
    fn push(&mut self, line: &str) {
        if self.lines.len() == LINES_KEPT {
            self.lines.pop_front();
            self.left_out += 1;
        }
        self.lines.push_back(line.to_owned());
        self.fresh = (self.fresh + 1).min(LINES_KEPT);
    }

    fn fresh(&mut self) -> Vec<String> {
        let shown = self.lines.len() - std::mem::take(&mut self.fresh);
        self.lines.range(shown..).cloned().collect()
    }

    fn told(self) -> impl Iterator<Item = String> {
        let left_out = (self.left_out > 0).then(|| format!("{} lines left out", self.left_out));
        left_out.into_iter().chain(self.lines)
    }
}

fn kept() -> MutexGuard<'static, Option<Kept>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A text as one line that does nothing to a terminal: what a file or a portal says may hold anything.
pub(crate) fn one_line(text: &str) -> String {
    let shown = |char: char| match char.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => char,
    };
    text.chars().map(shown).collect()
}

/// A line for whoever looks on. Nothing is left to tell when stderr is gone.
pub(crate) fn tell(line: &str) {
    match &mut *kept() {
        Some(kept) => kept.push(line),
        None => {
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
}

/// A line that says no more than a screen does.
pub(crate) fn progress(line: &str) {
    if kept().is_none() {
        tell(line);
    }
}

/// From now on lines are kept.
pub(crate) fn keep() {
    kept().get_or_insert_default();
}

/// Lines that came since the last time.
pub(crate) fn fresh() -> Vec<String> {
    kept().as_mut().map(Kept::fresh).unwrap_or_default()
}

/// Tells what was kept; from now on lines go to stderr again.
pub(crate) fn release() {
    let lines = kept().take().into_iter().flat_map(Kept::told);
    for line in lines {
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Where logs go: told, an event in one piece.
pub(crate) struct Logged;

impl Write for Logged {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match &mut *kept() {
            Some(kept) => String::from_utf8_lossy(event)
                .lines()
                .for_each(|line| kept.push(line)),
            None => io::stderr().write_all(event)?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_shown_once_and_told_once() {
        let mut kept = Kept::default();
        assert_eq!(kept.fresh(), [""; 0]);
        kept.push("one");
        kept.push("two");
        assert_eq!(kept.fresh(), ["one", "two"]);
        kept.push("three");
        assert_eq!(kept.fresh(), ["three"]);
        assert_eq!(kept.told().collect::<Vec<_>>(), ["one", "two", "three"]);
    }

    #[test]
    fn what_is_too_much_to_keep_is_counted() {
        let mut kept = Kept::default();
        for line in 0..LINES_KEPT + 2 {
            kept.push(&line.to_string());
        }
        let told: Vec<String> = kept.told().collect();
        assert_eq!(told[..2], ["2 lines left out", "2"]);
    }
}
