//! Where things are, and how a command is run: quietly, into a log whose end is shown when it fails.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use clap::Args;

/// How much of a log is shown when its command failed.
const TAIL_LINES: usize = 60;

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
        let (out, err) = (log.try_clone()?, log);
        let program = command.get_program().to_string_lossy().into_owned();
        let status = command
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .status()
            .with_context(|| format!("start {program}"))?;
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
