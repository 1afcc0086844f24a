//! The commands of `mock-portal`, and how each of them ends.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage (the arguments, or a file that they name). An error is one line on
//! stderr that says what, why and what to do; stdout holds answers only.

mod cli;
mod described;
mod keys;
mod openapi;
mod serve;
mod token;

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;

use command_line::Unwritten;
use protocol::dialect::Dialect;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command, LogFormat};

/// How a command can end badly.
enum Failure {
    /// The arguments, or a file that they name: exit code 2.
    Usage(anyhow::Error),
    /// Everything else: exit code 1.
    Failed(anyhow::Error),
}

/// The exit code of [`Failure::Failed`].
const FAILED: u8 = 1;

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let cli = match command_line::parse(FAILED) {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(error)) => told(&error, 2),
        Err(Failure::Failed(error)) => told(&error, FAILED),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    log(&cli.log, cli.log_format)?;
    match cli.command {
        Command::Serve(options) => serve::run(options),
        Command::Keys(command) => keys::run(command),
        Command::Token(options) => token::run(options),
        Command::Openapi(options) => openapi::run(&options),
        Command::Completions(options) => described::completions(&options),
        Command::Man(options) => described::man(&options),
    }
}

fn told(error: &anyhow::Error, code: u8) -> ExitCode {
    let text = format!("{error:#}").replace('\n', " ");
    // Nothing is left to tell when stderr is gone.
    let _ = writeln!(std::io::stderr(), "mock-portal: {text}");
    ExitCode::from(code)
}

/// Logs go to stderr; stdout is for answers.
fn log(filter: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = EnvFilter::builder().parse(filter).map_err(|error| {
        Failure::Usage(anyhow::anyhow!(
            "--log {filter:?} is no filter: {error}; write a level (info) or target=level,… (mock_portal=debug)"
        ))
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
    Ok(())
}

/// Reads the names that an option's file chooses.
fn dialect(path: &std::path::Path) -> Result<Dialect, Failure> {
    let refused =
        |why: String| Failure::Usage(anyhow::anyhow!("--dialect {}: {why}", path.display()));
    let bytes = file("--dialect", path)?;
    let text = std::str::from_utf8(&bytes).map_err(|error| refused(error.to_string()))?;
    toml::from_str(text).map_err(|error| {
        let before = error.span().map_or("", |span| &text[..span.start]);
        let line = before.matches('\n').count() + 1;
        refused(format!("line {line}: {}", error.message()))
    })
}

/// Writes one line of an answer to stdout, at once: a script reads it from a pipe.
fn answer(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    answer_all(&line)
}

/// The answer: stdout.
fn answer_all(bytes: &[u8]) -> anyhow::Result<()> {
    command_line::print(bytes).map_err(|error| anyhow::anyhow!("{}", Unwritten(&error)))
}

/// No key, certificate chain or dialect is larger.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Reads a file that an option names.
fn file(option: &str, path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| {
        let most = FILE_BYTES_MAX as u64 + 1;
        file.take(most).read_to_end(&mut bytes)
    });
    let why = match read {
        Ok(_) if bytes.len() <= FILE_BYTES_MAX => return Ok(bytes),
        Ok(_) => format!("it is larger than {} KiB", FILE_BYTES_MAX / 1024),
        Err(error) => format!("it cannot be read: {error}"),
    };
    Err(Failure::Usage(anyhow::anyhow!(
        "{option} {}: {why}",
        path.display()
    )))
}
