//! The programs of the agent on a node: the one that runs, the one before, one that was fetched; and the timer that puts the
//! one before back (FILE-4, UPD-1, UPD-2).
//!
//! Each change is one durable effect. The timer is a unit on disk: after a start of the node it counts anew.

use std::collections::BTreeMap;

use agent_core::pbx::task::Program;
use agent_core::time::Monotonic;
use protocol::hash::Sha256Hex;
use protocol::id::AgentVersion;

use super::effects::{Effects, Undone};

/// What is wrong with programs, by their hash; one that is not here is as it should be.
pub type Defects = BTreeMap<Sha256Hex, Defect>;

/// What is wrong with a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Defect {
    /// It cannot be fetched as its manifest says it is.
    OtherHash,
    /// It does not even say its version.
    DoesNotRun,
    /// It says its version, and dies at each start.
    DiesAtStart,
    /// It runs, and never reaches the portal.
    NeverSyncs,
}

/// A program on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Installed {
    version: AgentVersion,
    /// None of the one that the server came with.
    sha256: Option<Sha256Hex>,
}

/// The programs of a node.
#[derive(Debug)]
pub(super) struct Programs {
    running: Installed,
    previous: Option<Installed>,
    new: Option<Installed>,
    trial: Option<Trial>,
    timer: Option<Timer>,
}

/// What the node has noted of a version on trial.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trial {
    version: AgentVersion,
    state: TrialState,
}

impl Trial {
    /// Whether nobody has said that the version stays.
    fn is_open(&self) -> bool {
        self.state != TrialState::Committed
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrialState {
    Pending,
    Committed,
    RolledBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timer {
    fires_at: Monotonic,
    after_ms: u64,
}

impl Programs {
    /// Of a server that was just installed.
    pub(super) fn new(version: &AgentVersion) -> Self {
        Self {
            running: Installed {
                version: version.clone(),
                sha256: None,
            },
            previous: None,
            new: None,
            trial: None,
            timer: None,
        }
    }

    pub(super) fn version(&self) -> &AgentVersion {
        &self.running.version
    }

    pub(super) fn hash(&self) -> Option<Sha256Hex> {
        self.running.sha256
    }

    pub(super) fn rolled_back_from(&self) -> Option<AgentVersion> {
        let trial = self.trial.as_ref()?;
        (trial.state == TrialState::RolledBack).then(|| trial.version.clone())
    }

    /// When the timer fires.
    pub(super) fn fires_at(&self) -> Option<Monotonic> {
        self.timer.map(|timer| timer.fires_at)
    }

    /// The node was started: the timer counts anew.
    pub(super) fn boot(&mut self, now: Monotonic) {
        if let Some(timer) = &mut self.timer {
            timer.fires_at = now.plus_ms(timer.after_ms);
        }
    }

    /// Whether there is a version on trial that was not committed.
    pub(super) fn is_on_trial(&self) -> bool {
        self.trial.as_ref().is_some_and(Trial::is_open)
    }

    /// The timer fires; whether it has put the previous program back, so that the agent is started again.
    pub(super) fn fire(&mut self) -> bool {
        self.timer = None;
        let Some(trial) = (self.trial.as_mut()).filter(|trial| trial.is_open()) else {
            return false;
        };
        trial.state = TrialState::RolledBack;
        self.new = None;
        if let Some(previous) = &self.previous {
            self.running = previous.clone();
        }
        true
    }

    pub(super) fn fetch(
        &mut self,
        program: &Program,
        defects: &Defects,
        effects: &mut Effects,
    ) -> Result<(), Undone> {
        if defects.get(&program.sha256) == Some(&Defect::OtherHash) {
            return Err(format!("{} has another hash than its manifest says", program.url).into());
        }
        effects.next()?;
        self.new = Some(Installed {
            version: program.version.clone(),
            sha256: Some(program.sha256),
        });
        Ok(())
    }

    pub(super) fn check(&self, version: &AgentVersion, defects: &Defects) -> Result<(), Undone> {
        let new = self.new.as_ref().ok_or(NOTHING_NEW)?;
        let defect = new.sha256.and_then(|sha256| defects.get(&sha256));
        match defect {
            Some(Defect::DoesNotRun) => Err("pbx-agent.new version: exec format error".into()),
            _ if new.version != *version => Err(format!("it says {}", new.version).into()),
            _ => Ok(()),
        }
    }

    pub(super) fn keep(&mut self, effects: &mut Effects) -> Result<(), Undone> {
        effects.next()?;
        self.previous = Some(self.running.clone());
        Ok(())
    }

    pub(super) fn arm(
        &mut self,
        version: &AgentVersion,
        after_ms: u64,
        now: Monotonic,
        effects: &mut Effects,
    ) -> Result<(), Undone> {
        effects.next()?;
        self.trial = Some(Trial {
            version: version.clone(),
            state: TrialState::Pending,
        });
        effects.next()?;
        self.timer = Some(Timer {
            fires_at: now.plus_ms(after_ms),
            after_ms,
        });
        Ok(())
    }

    pub(super) fn swap(&mut self, sha256: Sha256Hex, effects: &mut Effects) -> Result<(), Undone> {
        if self.running.sha256 == Some(sha256) {
            return Ok(());
        }
        let new = self.new.clone().filter(|new| new.sha256 == Some(sha256));
        let new = new.ok_or(NOTHING_NEW)?;
        effects.next()?;
        (self.running, self.new) = (new, None);
        Ok(())
    }

    pub(super) fn commit(&mut self, effects: &mut Effects) -> Result<(), Undone> {
        let trial = self.trial.as_mut().ok_or("no version is on trial")?;
        effects.next()?;
        trial.state = TrialState::Committed;
        effects.next()?;
        self.timer = None;
        Ok(())
    }
}

const NOTHING_NEW: &str = "there is no pbx-agent.new of that hash";
