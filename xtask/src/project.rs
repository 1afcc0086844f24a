//! Where things are, and how a command is run: quietly, into a log whose end is shown when it fails.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

/// How much of a log is shown when its command failed.
const TAIL_LINES: usize = 60;
/// A command that logs nothing for so long hangs: no build and no test is silent for longer, on a slow machine either.
const SILENT_MAX: Duration = Duration::from_mins(12);
/// What a log says where something was killed.
pub(crate) const KILLED: &str = "xtask: killed:";

/// What every chore may be told.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Folder of the tools that chores install for themselves [default: TARGET/xtask/tools].
    #[arg(long, env = "XTASK_TOOLS", value_name = "DIR", global = true)]
    tools: Option<PathBuf>,
}

/// The checkout and its folders.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    pub(crate) target: PathBuf,
    /// Where tools are kept that chores install for themselves.
    pub(crate) tools: PathBuf,
    /// Where commands log.
    pub(crate) logs: PathBuf,
}

/// How long something takes, for people and for the time that a chore may take.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "chores are no part of a run; nothing that is tested depends on how long they take"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn passed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) success: bool,
    /// Everything it printed, in order.
    pub(crate) text: String,
    log: PathBuf,
}

impl Project {
    /// Finds the checkout that this program was built from.
    ///
    /// # Errors
    /// When cargo cannot say where it builds.
    pub(crate) fn find(options: Options) -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest
            .parent()
            .context("xtask lies in the project's root")?
            .to_owned();
        let metadata = MetadataCommand::new()
            .current_dir(&root)
            .no_deps()
            .exec()
            .context("cargo metadata")?;
        let target = metadata.target_directory.into_std_path_buf();
        let tools = options.tools.unwrap_or_else(|| target.join("xtask/tools"));
        let logs = target.join("xtask/logs");
        fs::create_dir_all(&logs).with_context(|| format!("create {}", logs.display()))?;
        Ok(Self {
            root,
            target,
            tools,
            logs,
        })
    }

    /// Runs a command in the root, both its outputs into `<name>.log`.
    ///
    /// # Errors
    /// When it cannot be started. A command that ran and failed is a [`Finished`].
    pub(crate) fn run(&self, name: &str, command: &mut Command) -> Result<Finished> {
        let path = self
            .logs
            .join(format!("{}.log", name.replace([' ', '/'], "-")));
        let mut log = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        writeln!(log, "$ {}", spelled(command))?;
        let (out, err) = (log.try_clone()?, log.try_clone()?);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .with_context(|| format!("start {program}"))?;
        let status = attend(child, log, SILENT_MAX)?;
        let logged = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        let text = logged
            .split_once('\n')
            .map_or(String::new(), |(_command, text)| text.to_owned());
        Ok(Finished {
            success: status.success(),
            text,
            log: path,
        })
    }
}

impl Finished {
    /// Goes on only after success; otherwise shows the log's end on stderr.
    ///
    /// # Errors
    /// When the command failed.
    pub(crate) fn ok(self, what: &str) -> Result<Self> {
        if self.success {
            return Ok(self);
        }
        self.show_tail();
        bail!("{what}; the whole log is {}", self.log.display());
    }

    /// Shows the end of the log on stderr.
    pub(crate) fn show_tail(&self) {
        let lines: Vec<&str> = self.text.lines().collect();
        for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
            eprintln!("  | {line}");
        }
    }
}

/// Waits for a command. What it waits for itself, and hangs, is killed: the others still have their turn.
///
/// # Errors
/// When the command cannot be waited for.
fn attend(mut child: Child, mut log: File, silent_max: Duration) -> Result<ExitStatus> {
    let parent = child.id();
    let (ended, end) = channel();
    std::thread::spawn(move || ended.send(child.wait()));
    let mut said = 0;
    loop {
        match end.recv_timeout(silent_max) {
            Ok(status) => return status.context("wait for a command"),
            Err(RecvTimeoutError::Disconnected) => bail!("the thread that waits has ended"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let says = log.metadata().map_or(0, |log| log.len());
        if std::mem::replace(&mut said, says) == says {
            writeln!(log, "{KILLED} it said nothing for {silent_max:?}")?;
            children(parent).for_each(|child| {
                let _ = kill_process(child, Signal::KILL);
            });
        }
    }
}

/// The processes that one has started and not waited for yet.
fn children(parent: u32) -> impl Iterator<Item = Pid> {
    let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let ids: Vec<i32> = listed
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect();
    ids.into_iter().filter_map(Pid::from_raw)
}

/// A command as it would be typed.
fn spelled(command: &Command) -> String {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    words
        .map(|w| w.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_killed_and_the_rest_has_its_turn() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let log = File::create(&path).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; sleep 600; echo goes on; exit 3"]);
        let out = log.try_clone().unwrap();
        let child = command.stdout(out).spawn().unwrap();
        let status = attend(child, log, Duration::from_millis(50)).unwrap();
        assert_eq!(status.code(), Some(3));
        let said = fs::read_to_string(path).unwrap();
        assert!(said.contains(KILLED), "{said}");
        assert!(said.ends_with("goes on\n"), "{said}");
    }
}
