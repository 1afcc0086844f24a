//! The screen of a run, live or over: whether there is one, what draws it, and what its keys do.
//!
//! A live one has a thread of its own, so that a terminal that takes its time holds up neither agents nor interrupts. When
//! the terminal is gone, or the screen has panicked, the run goes on as one without a screen.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use agent_drive::files::{Outlives, replace};
use fleet::run::{Interrupt, Run, Wanted};
use record::{RunResult, Snapshot, replay};
use tokio::sync::watch;
use tokio::time::Instant;
use top::{Look, Replay, Screen, Terminal, Wish};

use crate::cli::{ScreenChoice, ScreenOptions, TerminalOptions};
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
}

impl Show {
    pub(crate) fn of(options: &ScreenOptions, terminal: &TerminalOptions) -> Self {
        Self {
            choice: options.screen,
            is_dumb: terminal.is_dumb(),
            look: Look {
                color: terminal.has_colors(),
                ascii: options.ascii,
            },
        }
    }

    /// How it looks.
    pub(crate) fn look(&self) -> Look {
        self.look
    }

    /// Takes the terminal, if that is wanted and can be; only where somebody wants it by name, what came of it is told.
    fn terminal(&self) -> Option<Terminal> {
        let all_terminals = io::stdout().is_terminal() && io::stderr().is_terminal();
        if !self.is_wanted(all_terminals) {
            return None;
        }
        Terminal::take(io::stderr())
            .inspect_err(|error| {
                if self.choice == ScreenChoice::On {
                    tell(&format!("screen: stderr gives none: {error}"));
                }
            })
            .ok()
    }

    fn is_wanted(&self, all_terminals: bool) -> bool {
        match self.choice {
            ScreenChoice::Off => false,
            ScreenChoice::On => !self.is_dumb,
            ScreenChoice::Auto => !self.is_dumb && all_terminals,
        }
    }
}

/// Shows the run, if that is wanted and can be.
pub(crate) fn show(
    show: Show,
    run: &Run,
    out: &Path,
    breaks_at: Option<Duration>,
) -> Option<JoinHandle<()>> {
    let terminal = show.terminal()?;
    let screen = Screen::new(show.look);
    let live = Live {
        snapshots: run.snapshots(),
        wanted: run.wanted(),
        interrupt: run.interrupt(),
        out: out.to_owned(),
        breaks_at,
    };
    told::keep();
    let named = std::thread::Builder::new().name(THREAD.to_owned());
    let shown = named.spawn(move || {
        // Dropped after the terminal, or the lines would go with the screen.
        let _released = Released;
        // Whatever ends it, the run goes on.
        let _ = watch(terminal, screen, live);
    });
    match shown {
        Ok(thread) => Some(thread),
        Err(error) => {
            told::release();
            tell(&format!("screen: the system gives it no thread: {error}"));
            None
        }
    }
}

/// Replays a run that is over, if that is wanted and can be, until a key or `stop` ends it; tells whether it did.
pub(crate) fn show_again(
    show: Show,
    result: &RunResult,
    log: &[String],
    stop: &Arc<AtomicBool>,
) -> bool {
    let Some(terminal) = show.terminal() else {
        return false;
    };
    let mut screen = Screen::of_replay(show.look);
    log.iter().for_each(|line| screen.log(line));
    let mut replay = Replay::new(replay::snapshots(result));
    replay.show(&mut screen);
    let over = Over {
        replay,
        looked_at: Instant::now(),
        stop: Arc::clone(stop),
    };
    // A terminal that is gone has nobody before it.
    let _ = watch(terminal, screen, over);
    true
}

/// Lines go to stderr again when this is gone.
struct Released;

impl Drop for Released {
    fn drop(&mut self) {
        told::release();
    }
}

/// What a screen is fed from.
trait Source {
    /// Does what a key asks for beyond the screen, and tells there what came of it.
    fn press(&mut self, wish: Wish, screen: &mut Screen);

    /// Gives the screen what is new.
    fn look(&mut self, screen: &mut Screen) -> News;
}

/// What a source has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Nothing,
    Something,
    /// Nothing any more.
    Over,
}

/// Draws whatever is new, until there is nothing new to come.
fn watch(mut terminal: Terminal, mut screen: Screen, mut source: impl Source) -> io::Result<()> {
    let mut next_drawing = Instant::now();
    let mut size = terminal.size()?;
    let mut is_news = true;
    loop {
        let now = Instant::now();
        if is_news && now >= next_drawing {
            terminal.draw(&screen)?;
            next_drawing = now + DRAWN_EVERY;
            is_news = false;
        }
        let wait = match is_news {
            true => next_drawing - now,
            false => DRAWN_EVERY,
        };
        for key in terminal.keys(wait)? {
            is_news = true;
            if let Some(wish) = screen.press(key) {
                source.press(wish, &mut screen);
            }
        }
        match source.look(&mut screen) {
            News::Nothing => {}
            News::Something => is_news = true,
            News::Over => return Ok(()),
        }
        let size_now = terminal.size()?;
        is_news |= std::mem::replace(&mut size, size_now) != size_now || terminal.is_stale();
    }
}

/// A run that goes on.
struct Live {
    snapshots: watch::Receiver<Snapshot>,
    wanted: watch::Sender<Wanted>,
    interrupt: watch::Sender<Interrupt>,
    out: PathBuf,
    breaks_at: Option<Duration>,
}

impl Source for Live {
    fn press(&mut self, wish: Wish, screen: &mut Screen) {
        match wish {
            Wish::Quit => end(&self.interrupt, Interrupt::Gently),
            Wish::QuitAtOnce => end(&self.interrupt, Interrupt::AtOnce),
            Wish::SnapshotNow => screen.tells(&self.keep_snapshot()),
            Wish::HoldArrivals => {
                self.wanted.send_modify(|wanted| wanted.held = !wanted.held);
            }
            // Nothing is replayed yet.
            Wish::Replay(_) => {}
        }
    }

    fn look(&mut self, screen: &mut Screen) -> News {
        let mut news = News::Nothing;
        let asks = screen.asks();
        self.wanted.send_if_modified(|wanted| {
            let is_new = wanted.agents != asks;
            wanted.agents = asks;
            is_new
        });
        match self.snapshots.has_changed() {
            Err(_) => return News::Over,
            Ok(false) => {}
            Ok(true) => {
                news = News::Something;
                self.break_down();
                let snapshot = self.snapshots.borrow_and_update().clone();
                screen.see(snapshot);
            }
        }
        for line in told::fresh() {
            news = News::Something;
            screen.log(&line);
        }
        if *self.interrupt.borrow() != Interrupt::No {
            screen.ends();
        }
        news
    }
}

impl Live {
    /// Puts the last snapshot beside the result; says so, the shorter the better.
    fn keep_snapshot(&self) -> String {
        let snapshot = self.snapshots.borrow().clone();
        let seconds = snapshot.at.as_seconds().floor();
        let name = format!("snapshot-{seconds}s.json");
        let file = self.out.join(&name);
        let text = snapshot.to_text() + "\n";
        match replace(&file, 0o666, text.as_bytes(), Outlives::ProgramEnd) {
            Ok(()) => {
                tell(&format!("snapshot: {}", file.display()));
                format!("{name} is in {}", self.out.display())
            }
            Err(error) => {
                tell(&format!(
                    "{}: the snapshot was not written: {error}",
                    file.display()
                ));
                format!("no snapshot: {error}: {}", file.display())
            }
        }
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

/// A run that is over.
struct Over {
    replay: Replay,
    looked_at: Instant,
    /// Set by whoever wants it to end, from a key on or from elsewhere.
    stop: Arc<AtomicBool>,
}

impl Source for Over {
    fn press(&mut self, wish: Wish, _: &mut Screen) {
        match wish {
            Wish::Quit | Wish::QuitAtOnce => self.stop.store(true, Ordering::Relaxed),
            // Every second of it is in a file already, and nobody arrives any more.
            Wish::SnapshotNow | Wish::HoldArrivals => {}
            Wish::Replay(key) => self.replay.press(key),
        }
    }

    fn look(&mut self, screen: &mut Screen) -> News {
        if self.stop.load(Ordering::Relaxed) {
            return News::Over;
        }
        let now = Instant::now();
        self.replay.pass(now - self.looked_at);
        self.looked_at = now;
        match self.replay.show(screen) {
            true => News::Something,
            false => News::Nothing,
        }
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
            };
            assert_eq!(show.is_wanted(all_terminals), wanted, "{show:?}");
        }
    }
}
