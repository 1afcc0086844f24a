//! The terminal: taken for the screen, and given back as it was, whatever happens.
//!
//! It is given back when a [`Terminal`] is dropped and before a panic of any thread is told; whatever is asked of it
//! afterwards, or once nobody holds its other end any more, is an error and never a panic. Ctrl-C stays a signal. Nothing
//! is asked of the environment, and no answer of the terminal is waited for.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::{Attribute, SetAttribute};
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::{Position, Size};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::getpgrp;
use rustix::termios::{
    OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
    ttyname,
};

use crate::key::{Key, keys};
use crate::screen::Screen;

/// The terminal that is taken: a process has one.
static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);
/// Panics give it back.
static HOOK: Once = Once::new();

/// What it takes to give a terminal back.
struct Taken {
    tty: File,
    modes: Termios,
}

/// A terminal with a screen on it.
pub struct Terminal {
    keys: File,
    screen: ratatui::Terminal<Tty>,
}

impl Terminal {
    /// Takes the terminal that `end` is: the alternate screen, and keys one by one.
    ///
    /// # Errors
    /// When it is no terminal, has no size, is taken already, or somebody else's job is in its foreground.
    pub fn take(end: impl AsFd) -> io::Result<Self> {
        let keys = own_end(&end)?;
        let modes = tcgetattr(&keys)?;
        // Whoever changes a terminal from its background is stopped. One that controls no process has no foreground.
        if tcgetpgrp(&keys).is_ok_and(|foreground| foreground != getpgrp()) {
            return Err(io::Error::other("another job is in its foreground"));
        }
        let size = size_of(&keys)?;
        if size.width == 0 || size.height == 0 {
            return Err(io::Error::other("it has no size"));
        }
        let backend = CrosstermBackend::new(BufWriter::new(keys.try_clone()?));
        let screen = ratatui::Terminal::new(Tty {
            size: keys.try_clone()?,
            backend,
        })?;

        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        let mut tty = keys.try_clone()?;
        let mut taken = taken();
        if taken.is_some() {
            return Err(io::Error::other("it is taken already"));
        }
        *taken = Some(Taken {
            tty: keys.try_clone()?,
            modes: modes.clone(),
        });
        drop(taken);
        let terminal = Self { keys, screen };
        tcsetattr(&tty, OptionalActions::Now, &key_by_key(modes))?;
        execute!(tty, EnterAlternateScreen, Hide)?;
        Ok(terminal)
    }

    /// Draws the screen, at the size that the terminal has now.
    ///
    /// # Errors
    /// When the terminal is gone or given back.
    pub fn draw(&mut self, screen: &Screen) -> io::Result<()> {
        if taken().is_none() {
            return Err(io::Error::other("it is given back"));
        }
        self.screen.draw(|frame| screen.draw(frame))?;
        Ok(())
    }

    /// Its size now.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn size(&self) -> io::Result<Size> {
        size_of(&self.keys)
    }

    /// Waits for keys, no longer than so long.
    ///
    /// # Errors
    /// When the terminal is gone or given back.
    pub fn keys(&mut self, wait: Duration) -> io::Result<Vec<Key>> {
        if taken().is_none() {
            return Err(io::Error::other("it is given back"));
        }
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.keys, PollFlags::IN)];
        match poll(&mut fds, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if !fds[0].revents().contains(PollFlags::IN) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut bytes = [0; 256];
        match rustix::io::read(&self.keys, &mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => Ok(keys(&bytes[..count])),
            Err(rustix::io::Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
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

/// Gives back what is taken; nobody is left to hear of it if that fails.
fn give_back() {
    if let Some(Taken { mut tty, modes }) = taken().take() {
        let plain = SetAttribute(Attribute::Reset);
        let _ = execute!(tty, plain, Show, LeaveAlternateScreen);
        // What was typed for the screen is for nobody else.
        let _ = tcsetattr(&tty, OptionalActions::Flush, &modes);
        let _ = tty.flush();
    }
}

fn taken() -> MutexGuard<'static, Option<Taken>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Every key at once and none shown, but for Ctrl-C, which stays the signal it is. Ctrl-Z and Ctrl-\ are keys: they would
/// stop or end the run with the screen still on.
fn key_by_key(mut modes: Termios) -> Termios {
    use rustix::termios::LocalModes;
    modes.make_raw();
    modes.local_modes |= LocalModes::ISIG;
    for code in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
        modes.special_codes[code] = 0;
    }
    modes
}

/// Where the drawing goes. The cursor is the guard's affair, and the size the kernel's.
struct Tty {
    size: File,
    backend: CrosstermBackend<BufWriter<File>>,
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
