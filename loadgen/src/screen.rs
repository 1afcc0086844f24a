//! The live screen of a run: whether there is one, the thread that draws it, and what its keys do.
//!
//! A thread of its own, so that a terminal that takes its time holds up neither agents nor interrupts. When the terminal is
//! gone, or the screen has panicked, the run goes on as one without a screen.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use agent_drive::files::{Outlives, replace};
use fleet::run::{Interrupt, Run};
use record::Snapshot;
use tokio::sync::watch;
use tokio::time::Instant;
use top::{Look, Screen, Terminal, Wish};

use crate::cli::{RunOptions, ScreenChoice, TerminalOptions};
use crate::run::end;
use crate::told::{self, tell};

/// No more than four drawings a second, and no longer than that until news is seen.
const DRAWN_EVERY: Duration = Duration::from_millis(250);
/// The thread's name, by which its processor time is found.
const THREAD: &str = "screen";

/// Whether there is to be a screen, and how it looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Show {
    choice: ScreenChoice,
    is_dumb: bool,
    look: Look,
    breaks_at: Option<Duration>,
}

impl Show {
    pub(crate) fn of(options: &RunOptions, terminal: &TerminalOptions) -> Self {
        #[cfg(debug_assertions)]
        let breaks_at = options.screen_breaks_at.map(Duration::from_secs);
        #[cfg(not(debug_assertions))]
        let breaks_at = None;
        Self {
            choice: options.screen,
            is_dumb: terminal.is_dumb(),
            look: Look {
                color: terminal.has_colors(),
                ascii: options.ascii,
            },
            breaks_at,
        }
    }

    /// Whether the terminal is to be asked for a screen; only where somebody wants one by name, what came of it is told.
    fn is_wanted(&self, all_terminals: bool) -> bool {
        match self.choice {
            ScreenChoice::Off => false,
            ScreenChoice::On => !self.is_dumb,
            ScreenChoice::Auto => !self.is_dumb && all_terminals,
        }
    }
}

/// Shows the run, if that is wanted and can be.
pub(crate) fn show(show: Show, run: &Run, out: &Path) -> Option<JoinHandle<()>> {
    let all_terminals = io::stdout().is_terminal() && io::stderr().is_terminal();
    if !show.is_wanted(all_terminals) {
        return None;
    }
    let watching = Watching {
        screen: Screen::new(show.look),
        snapshots: run.snapshots(),
        interrupt: run.interrupt(),
        out: out.to_owned(),
        breaks_at: show.breaks_at,
    };
    let shown = Terminal::take(io::stderr()).and_then(|terminal| {
        told::keep();
        let named = std::thread::Builder::new().name(THREAD.to_owned());
        named.spawn(move || {
            // Dropped after the terminal, or the lines would go with the screen.
            let _released = Released;
            // Whatever ends it, the run goes on.
            let _ = watching.watch(terminal);
        })
    });
    match shown {
        Ok(thread) => Some(thread),
        Err(error) => {
            told::release();
            if show.choice == ScreenChoice::On {
                tell(&format!("screen: stderr gives none: {error}"));
            }
            None
        }
    }
}

/// Lines go to stderr again when this is gone.
struct Released;

impl Drop for Released {
    fn drop(&mut self) {
        told::release();
    }
}

/// The screen and what it is fed from.
struct Watching {
    screen: Screen,
    snapshots: watch::Receiver<Snapshot>,
    interrupt: watch::Sender<Interrupt>,
    out: PathBuf,
    breaks_at: Option<Duration>,
}

impl Watching {
    /// Draws whatever is new and does what keys wish for, until the run has ended.
    fn watch(mut self, mut terminal: Terminal) -> io::Result<()> {
        let mut next_drawing = Instant::now();
        let mut size = terminal.size()?;
        let mut is_news = true;
        loop {
            let now = Instant::now();
            if is_news && now >= next_drawing {
                self.break_down();
                terminal.draw(&self.screen)?;
                next_drawing = now + DRAWN_EVERY;
                is_news = false;
            }
            let wait = match is_news {
                true => next_drawing - now,
                false => DRAWN_EVERY,
            };
            for key in terminal.keys(wait)? {
                is_news = true;
                if let Some(wish) = self.screen.press(key) {
                    self.grant(wish);
                }
            }
            match self.snapshots.has_changed() {
                Err(_) => return Ok(()),
                Ok(false) => {}
                Ok(true) => {
                    is_news = true;
                    let snapshot = self.snapshots.borrow_and_update().clone();
                    self.screen.see(snapshot);
                }
            }
            for line in told::fresh() {
                is_news = true;
                self.screen.log(&line);
            }
            if *self.interrupt.borrow() != Interrupt::No {
                self.screen.ends();
            }
            let size_now = terminal.size()?;
            is_news |= std::mem::replace(&mut size, size_now) != size_now;
        }
    }

    fn grant(&self, wish: Wish) {
        match wish {
            Wish::Quit => end(&self.interrupt, Interrupt::Gently),
            Wish::QuitAtOnce => end(&self.interrupt, Interrupt::AtOnce),
            Wish::SnapshotNow => self.keep_snapshot(),
        }
    }

    /// Puts the last snapshot beside the result.
    fn keep_snapshot(&self) {
        let snapshot = self.snapshots.borrow().clone();
        let seconds = snapshot.at.as_seconds().floor();
        let file = self.out.join(format!("snapshot-{seconds}s.json"));
        let text = snapshot.to_text() + "\n";
        let kept = replace(&file, 0o666, text.as_bytes(), Outlives::ProgramEnd);
        tell(&match kept {
            Ok(()) => format!("snapshot: {}", file.display()),
            Err(error) => format!("{}: the snapshot was not written: {error}", file.display()),
        });
    }

    /// Panics where a test wants it.
    fn break_down(&self) {
        let at = Duration::from(self.snapshots.borrow().at);
        assert!(
            self.breaks_at.is_none_or(|breaks_at| at < breaks_at),
            "the screen was told to break"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_for_terminals_that_are_not_dumb() {
        use ScreenChoice::{Auto, Off, On};
        // What was chosen, dumb, stdout and stderr are terminals: wanted.
        let rows = [
            (Auto, false, true, true),
            (Auto, false, false, false),
            (Auto, true, true, false),
            (On, false, false, true),
            (On, true, true, false),
            (Off, false, true, false),
        ];
        for (choice, is_dumb, all_terminals, wanted) in rows {
            let look = Look {
                color: true,
                ascii: false,
            };
            let show = Show {
                choice,
                is_dumb,
                look,
                breaks_at: None,
            };
            assert_eq!(show.is_wanted(all_terminals), wanted, "{show:?}");
        }
    }
}
