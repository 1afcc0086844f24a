//! The terminal: taken for the screen, and given back as it was, whatever happens.
//!
//! It is given back when a [`Terminal`] is dropped, before a panic of any thread is told, and before a signal stops or ends
//! the program; whatever is asked of it afterwards, or once nobody holds its other end any more, is an error and never a
//! panic. A program that goes on in the foreground takes it again and draws the whole screen anew; one in the background
//! leaves it alone. Ctrl-C, Ctrl-Z and Ctrl-\ stay the signals they are. Nothing is asked of the environment, and no answer
//! of the terminal is waited for.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use nix::unistd::{getpgrp, getsid, tcgetpgrp};
use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::{Attribute, SetAttribute};
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::{Position, Size};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, ttyname};
use signal_hook::consts::{SIGABRT, SIGCONT, SIGQUIT, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::key::{Key, Keys};
use crate::screen::Screen;

/// The terminal that is taken: a process has one.
static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);
/// Told when somebody may be waiting for [`TAKEN`] to be another.
static CHANGED: Condvar = Condvar::new();
/// Panics give it back.
static HOOK: Once = Once::new();
/// Whether signals give it back, too.
static LISTENS: Mutex<bool> = Mutex::new(false);

/// No drawing is larger, so that it is written in one piece.
const DRAWING_BYTES: usize = 1 << 16;
/// So soon comes what is left of a paste.
const REST_WITHIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
/// Whoever goes on pasting beyond so many pieces is not waited for.
const PIECES_MAX: usize = 256;

/// What it takes to give a terminal back, and to take it again.
struct Taken {
    tty: File,
    modes: Termios,
    screen: Shown,
}

/// Whether the screen is on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// It is not: the program is stopped or in the background.
    No,
    /// Nobody knows: the program was stopped, and goes on.
    Perhaps,
    Yes,
}

/// A terminal with a screen on it.
pub struct Terminal {
    tty: File,
    keys: Keys,
    screen: ratatui::Terminal<Tty>,
    /// Whether what is on it is not what was drawn last.
    is_stale: bool,
}

impl Terminal {
    /// Takes the terminal that `end` is: the alternate screen, and keys one by one.
    ///
    /// # Errors
    /// When it is no terminal, has no size, is taken already, or somebody else's job is in its foreground.
    pub fn take(end: impl AsFd) -> io::Result<Self> {
        let tty = own_end(&end)?;
        let modes = tcgetattr(&tty)?;
        // Whoever changes a terminal from its background is stopped.
        if !is_foreground(&tty) {
            return Err(io::Error::other("another job is in its foreground"));
        }
        let size = size_of(&tty)?;
        if size.width == 0 || size.height == 0 {
            return Err(io::Error::other("it has no size"));
        }
        let drawings = BufWriter::with_capacity(DRAWING_BYTES, Drawings);
        let screen = ratatui::Terminal::new(Tty {
            size: tty.try_clone()?,
            backend: CrosstermBackend::new(drawings),
        })?;

        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        listen()?;
        let mut taken = taken();
        if taken.is_some() {
            return Err(io::Error::other("it is taken already"));
        }
        let shown = taken.insert(Taken {
            tty: tty.try_clone()?,
            modes,
            screen: Shown::No,
        });
        let terminal = Self {
            tty,
            keys: Keys::default(),
            screen,
            is_stale: false,
        };
        let shown = shown.show();
        drop(taken);
        shown.map(|()| terminal)
    }

    /// Draws the screen, at the size that the terminal has now; nothing while it is not shown.
    ///
    /// # Errors
    /// When the terminal is gone or given back.
    pub fn draw(&mut self, screen: &Screen) -> io::Result<()> {
        if !self.is_shown()? {
            return Ok(());
        }
        if std::mem::take(&mut self.is_stale) {
            self.screen.clear()?;
        }
        self.screen.draw(|frame| screen.draw(frame))?;
        Ok(())
    }

    /// Whether it must be drawn anew, whatever was drawn last: the program was stopped, or in the background.
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Its size now.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn size(&self) -> io::Result<Size> {
        size_of(&self.tty)
    }

    /// Waits for keys, no longer than so long.
    ///
    /// # Errors
    /// When the terminal is gone or given back.
    pub fn keys(&mut self, wait: Duration) -> io::Result<Vec<Key>> {
        if !self.is_shown()? {
            // Whoever reads from a terminal's background is stopped.
            let _ = CHANGED.wait_timeout(taken(), wait);
            return Ok(Vec::new());
        }
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.tty, PollFlags::IN)];
        match poll(&mut fds, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if fds[0].revents() != PollFlags::IN {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // It may have been stopped meanwhile, and go on elsewhere.
        if !self.is_shown()? {
            return Ok(Vec::new());
        }
        let mut bytes = [0; 256];
        match rustix::io::read(&self.tty, &mut bytes) {
            // Nothing, if somebody else has read it meanwhile.
            Ok(count) => Ok(self.keys.read(&bytes[..count])),
            Err(rustix::io::Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the screen is on it, which it is wherever it may be.
    fn is_shown(&mut self) -> io::Result<bool> {
        let mut taken = taken();
        let Some(taken) = &mut *taken else {
            return Err(io::Error::other("it is given back"));
        };
        match (is_foreground(&taken.tty), taken.screen) {
            (true, Shown::Yes) => {}
            (true, Shown::No | Shown::Perhaps) => {
                taken.show()?;
                self.is_stale = true;
            }
            (false, _) => taken.screen = Shown::No,
        }
        Ok(taken.screen == Shown::Yes)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").finish_non_exhaustive()
    }
}

impl Taken {
    /// Puts the screen on it.
    fn show(&mut self) -> io::Result<()> {
        let modes = key_by_key(self.modes.clone());
        tcsetattr(&self.tty, OptionalActions::Now, &modes)?;
        self.screen = Shown::Yes;
        execute!(self.tty, EnterAlternateScreen, EnableBracketedPaste, Hide)
    }

    /// Leaves it as it was; nobody is left to hear of it if that fails.
    fn leave(&mut self) {
        let screen = std::mem::replace(&mut self.screen, Shown::No);
        if screen == Shown::No || !is_foreground(&self.tty) {
            return;
        }
        let plain = SetAttribute(Attribute::Reset);
        let _ = execute!(
            self.tty,
            plain,
            Show,
            DisableBracketedPaste,
            LeaveAlternateScreen
        );
        // What was typed or pasted for the screen is for nobody else, what is still on its way either.
        for _ in 0..PIECES_MAX {
            let mut fds = [PollFd::new(&self.tty, PollFlags::IN)];
            let mut bytes = [0; 4_096];
            match poll(&mut fds, Some(&REST_WITHIN)) {
                Ok(1..) if matches!(rustix::io::read(&self.tty, &mut bytes), Ok(1..)) => {}
                _ => break,
            }
        }
        let _ = tcsetattr(&self.tty, OptionalActions::Flush, &self.modes);
        let _ = self.tty.flush();
    }
}

/// Gives back what is taken.
fn give_back() {
    if let Some(mut taken) = taken().take() {
        taken.leave();
    }
    CHANGED.notify_all();
}

fn taken() -> MutexGuard<'static, Option<Taken>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the terminal be as it was whenever a signal stops or ends the program, for as long as it runs.
fn listen() -> io::Result<()> {
    let mut listens = LISTENS.lock().unwrap_or_else(PoisonError::into_inner);
    if *listens {
        return Ok(());
    }
    let mut signals = Signals::new([SIGTSTP, SIGCONT, SIGQUIT, SIGABRT])?;
    let named = std::thread::Builder::new().name("signals".to_owned());
    named.spawn(move || signals.forever().for_each(heard))?;
    *listens = true;
    Ok(())
}

/// Does what the signal does without us, with the terminal given back.
fn heard(signal: i32) {
    // Held until the program is stopped: who draws would take the terminal again at once.
    let mut taken = taken();
    match (signal, &mut *taken) {
        (SIGCONT, Some(taken)) if taken.screen == Shown::Yes => taken.screen = Shown::Perhaps,
        (SIGCONT, _) => {}
        // Nobody is there who would let it go on: the kernel does not stop such a program either.
        (SIGTSTP, _) if is_without_shell() => return,
        (_, Some(taken)) => taken.leave(),
        (_, None) => {}
    }
    // A signal that is known has a default; of one that ends the program nothing is left to tell.
    let _ = emulate_default_handler(signal);
    drop(taken);
    CHANGED.notify_all();
}

/// Whether this program is in the first job of its session: no shell with jobs has started it. Both are 0 where they are
/// another namespace's, and so may be that shell.
fn is_without_shell() -> bool {
    let job = getpgrp();
    job.as_raw() != 0 && getsid(None) == Ok(job)
}

/// Whether this program may use the terminal. One that controls no process has no foreground, and of a job that is
/// another namespace's (0) nobody here knows.
fn is_foreground(tty: &File) -> bool {
    tcgetpgrp(tty).map_or(true, |job| job.as_raw() == 0 || job == getpgrp())
}

/// An end of the terminal that is ours alone, to read from and to write to whatever the given one is for; where it
/// cannot be opened by its name, the given one.
fn own_end(end: &impl AsFd) -> io::Result<File> {
    let name = ttyname(end, Vec::new())?;
    let name = name.to_str().map_err(io::Error::other)?;
    let flags = i32::try_from(OFlags::NOCTTY.bits()).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    options.open(name).or_else(|_| {
        let same: OwnedFd = end.as_fd().try_clone_to_owned()?;
        Ok(same.into())
    })
}

fn size_of(tty: &File) -> io::Result<Size> {
    let size = tcgetwinsize(tty)?;
    Ok(Size::new(size.ws_col, size.ws_row))
}

/// Every key at once and none shown, but for those that are signals; and no waiting for one that is not there.
fn key_by_key(mut modes: Termios) -> Termios {
    use rustix::termios::{LocalModes, SpecialCodeIndex};
    modes.make_raw();
    modes.special_codes[SpecialCodeIndex::VMIN] = 0;
    modes.local_modes |= LocalModes::ISIG;
    modes
}

/// Where drawings go: to the terminal while the screen is on it, and else nowhere.
struct Drawings;

impl Write for Drawings {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *taken() {
            None => Err(io::Error::other("it is given back")),
            Some(taken) if taken.screen == Shown::Yes => taken.tty.write(bytes),
            Some(_) => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is drawn on. The cursor is the guard's affair, and the size the kernel's.
struct Tty {
    size: File,
    backend: CrosstermBackend<BufWriter<Drawings>>,
}

impl Backend for Tty {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        self.backend.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.backend.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.backend.clear()
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.backend.clear_region(region)
    }

    fn size(&self) -> io::Result<Size> {
        size_of(&self.size)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: size_of(&self.size)?,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.backend)
    }
}
