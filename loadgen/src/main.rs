//! The program `loadgen`: arguments, wiring, exit codes. What a run is stands in `fleet`, what is expected of it in
//! `scenario`, what came of it in `record`.
//!
//! Exit codes: 0 what was expected held; 1 it did not; 2 usage or scenario error; 3 the generator could not keep up; 4 the
//! preflight failed or the portal never answered; 5 nothing to judge; 6 an invariant broke; 130 interrupted, with the
//! report so far.

mod check;
mod cli;
mod described;
mod explain;
mod list;
mod read;
mod run;
mod screen;
mod told;
mod view;
mod worker;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::OnceLock;

use command_line::Unwritten;
use fleet::worker::Program;
use record::Exit;
use tracing_subscriber::EnvFilter;

use cli::{Called, Cli, Command, LogFormat, TerminalOptions};
use told::{one_line, tell};

/// Thousands of connections make and free buffers of all sizes: half the memory an agent of the system's allocator, and
/// less time in it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What was asked for cannot be meant; text for a person, a line a mistake. Exit code 2.
struct Usage(String);

fn main() -> ExitCode {
    let cli: Cli<Called> = match command_line::parse(Exit::Preflight.code()) {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    let colors = cli.terminal.has_colors();
    let done = log(&cli.log, cli.log_format, colors).and_then(|()| match cli.command {
        Called::ByPeople(command) => {
            let program = worker::program(&cli.log, cli.log_format);
            done(*command, &cli.terminal, program)
        }
        Called::Worker(options) => worker::work(options),
    });
    let exit = done.unwrap_or_else(|Usage(text)| {
        tell(text.trim_end());
        Exit::Usage
    });
    ExitCode::from(if_told(exit).code())
}

fn done(command: Command, terminal: &TerminalOptions, program: Program) -> Result<Exit, Usage> {
    match command {
        Command::Run(options) => run::run(options, terminal, program),
        Command::Check(options) => check::check(options),
        Command::Explain(options) => explain::explain(&options),
        Command::List(options) => Ok(list::list(&options)),
        Command::View(options) => view::view(options, terminal),
        Command::Schema(options) => Ok(described::schema(&options)),
        Command::Completions(options) => Ok(described::completions(&options)),
        Command::Man(options) => described::man(&options),
    }
}

/// An answer that could not be written is none: what would be a pass is not one.
fn if_told(exit: Exit) -> Exit {
    match UNWRITTEN.get() {
        Some(error) => {
            tell(&Unwritten(error).to_string());
            match exit {
                Exit::Held => Exit::Preflight,
                worse => worse,
            }
        }
        None => exit,
    }
}

/// Why a line of the answer could not be written, the first time.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

/// Logs go to stderr; stdout is for answers.
fn log(filter: &str, format: LogFormat, colors: bool) -> Result<(), Usage> {
    let filter = EnvFilter::builder().parse(filter).map_err(|error| {
        Usage(format!(
            "--log {filter:?} is no filter: {error}; write a level (info) or target=level,… (agent_drive=debug)"
        ))
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| told::Logged)
        .with_ansi(colors && io::stderr().is_terminal());
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
    Ok(())
}

/// A line of the answer.
fn answer(line: &str) {
    answer_all(format!("{}\n", one_line(line)).as_bytes());
}

/// The answer: stdout.
fn answer_all(bytes: &[u8]) {
    if let Err(error) = command_line::print(bytes) {
        let _ = UNWRITTEN.set(error);
    }
}
