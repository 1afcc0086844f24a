//! The durable effects of a task, one after the other, and a crash between two of them.

/// What a crash leaves of the task that was under way, and what crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Leftover {
    /// How many of the task's durable effects are done; a task that has fewer is done, and nobody was told.
    pub effects: u32,
    /// What crashes.
    pub fall: Fall,
}

/// What crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fall {
    /// The agent's program alone; the node goes on, and systemd starts the program again.
    Program,
    /// The whole node: its power is cut and comes back.
    Power,
}

/// Counts the durable effects of a task, and cuts it off before the one at which a crash comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effects {
    left: u32,
    pub(super) done: u32,
}

impl Effects {
    /// All of them.
    pub(super) const fn all() -> Self {
        Self::up_to(u32::MAX)
    }

    /// So many, and then a crash.
    pub(super) const fn up_to(effects: u32) -> Self {
        Self {
            left: effects,
            done: 0,
        }
    }

    /// The next effect: to be asked right before it.
    pub(super) fn next(&mut self) -> Result<(), Undone> {
        self.left = self.left.checked_sub(1).ok_or(Undone::Crashed)?;
        self.done += 1;
        Ok(())
    }
}

/// Why a task was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undone {
    /// The crash came.
    Crashed,
    /// The node went down with it, as it was told.
    WentDown,
    /// The node would not do it.
    Failed(String),
}

impl From<String> for Undone {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<&str> for Undone {
    fn from(why: &str) -> Self {
        Self::Failed(why.to_owned())
    }
}

impl From<crate::cluster::ApiDown> for Undone {
    fn from(down: crate::cluster::ApiDown) -> Self {
        Self::Failed(down.to_string())
    }
}
