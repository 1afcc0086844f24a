//! `loadgen run`: from a scenario to a verdict, a result file and an exit code.
//!
//! While it runs, a live screen where there is a terminal for it, else a plain line every five seconds on stderr; the verdict
//! is the last line on stdout. Ctrl-C ends the run gently, a second one at once, and a terminal that hangs up ends it
//! gently; all leave a report. Before the run has begun there is nothing to report, and it ends at once.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_drive::files::{Outlives, replace, set_aside, unfinished};
use fleet::foreign::TokenCommand;
use fleet::run::{ForeignPortal, Interrupt, NotStarted, Options, Run, Sharding, prepare};
use fleet::usage::room_for_threads;
use fleet::worker::Program;
use record::timeline::{Became, Step};
use record::{Decision, Exit, Findings, Micros, RunResult, decide, progress_line};
use scenario::Scenario;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::cli::{RunOptions, TerminalOptions};
use crate::read::scenario;
use crate::screen::{self, Show};
use crate::told::{self, one_line, tell};
use crate::{Usage, answer};

/// How long a portal may take to answer at all before the run starts.
const REACH_WITHIN: Duration = Duration::from_secs(10);
/// How often the progress is told.
const LINE_EVERY: Micros = Micros::from_seconds(5);
/// Where results go if nobody says where.
const RESULTS: &str = "loadgen-results";
/// The file that everything else is made from.
pub(crate) const RESULT: &str = "result.json";
/// What the result of the run before is called, once another one has begun.
const RESULT_BEFORE: &str = "result-before.json";

pub(crate) fn run(
    options: RunOptions,
    terminal: &TerminalOptions,
    program: Program,
) -> Result<Exit, Usage> {
    let show = Show::of(&options.screen, terminal);
    #[cfg(debug_assertions)]
    let breaks_at = options.screen_breaks_at.map(Duration::from_secs);
    #[cfg(not(debug_assertions))]
    let breaks_at = None;
    let scenario = scenario(&options.scenario)?;
    let token_command = TokenCommand::default();
    let fleet_options = Options {
        portal: options.portal.map(|url| ForeignPortal {
            url,
            tokens: options.tokens,
            token_command: token_command.clone(),
            identities: options.identities,
            release_key: options.release_key,
        }),
        owns_target: options.i_own_this_target,
        reach_within: REACH_WITHIN,
        versions: [("loadgen".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
        commit: option_env!("LOADGEN_COMMIT").map(str::to_owned),
        shards: Some(Sharding {
            count: options.shards,
            program,
        }),
    };
    let face = room_for_threads(1)
        .and_then(|()| Builder::new_current_thread().enable_all().build())
        .and_then(|runtime| Ok((Interrupts::listen(&runtime)?, runtime)));
    let (mut interrupts, runtime) = match face {
        Ok(face) => face,
        Err(error) => {
            let missing = format!("nobody can watch a run: {error}");
            return Ok(not_started(vec![missing]));
        }
    };
    let starting = runtime.spawn_blocking(move || start(scenario, fleet_options, options.out));
    let started = runtime.block_on(async {
        tokio::select! {
            biased;
            _ = interrupts.next() => None,
            started = starting => Some(started),
        }
    });
    let (run, out) = match started {
        None => {
            // Whatever was being waited for ends with the program, but for another program.
            token_command.end();
            runtime.shutdown_background();
            return Ok(over(Findings {
                interrupted: vec!["interrupted before the run had begun".to_owned()],
                ..Findings::default()
            }));
        }
        Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
        Some(Ok(Ok(started))) => started,
        Some(Ok(Err(NotStarted::Usage(mistakes)))) => return Err(Usage(mistakes.join("\n"))),
        Some(Ok(Err(NotStarted::Preflight(missing)))) => return Ok(not_started(missing)),
    };
    let screen = screen::show(show, &run, &out, breaks_at);
    runtime.block_on(look_on(&run, &mut interrupts));
    let (result, decision) = run.wait();
    // Before the screen leaves: a terminal that takes nothing any more may hold it up for good.
    let kept = keep(&result, &out);
    if let Some(screen) = screen {
        // A panic of it was told when it came, and the run is none the worse for it.
        let _ = screen.join();
    }
    Ok(report(&result, kept, decision, &out))
}

/// Starts the run once it can be had and there is a place for its result.
fn start(
    scenario: Scenario,
    options: Options,
    out: Option<PathBuf>,
) -> Result<(Run, PathBuf), NotStarted> {
    let name = scenario.name.clone();
    can_be_made(out.as_deref().unwrap_or(Path::new(RESULTS)))
        .map_err(|missing| NotStarted::Preflight(vec![missing]))?;
    let prepared = prepare(scenario, options)?;
    for line in prepared.told() {
        tell(line);
    }
    let out = place(out, &name).map_err(|missing| NotStarted::Preflight(vec![missing]))?;
    let run = prepared.start()?;
    set_result_aside(&out);
    Ok((run, out))
}

/// A result of a run before is not this one's, whatever becomes of it.
fn set_result_aside(out: &Path) {
    let before = out.join(RESULT);
    if let Err(error) = set_aside(&before, &out.join(RESULT_BEFORE)) {
        tell(&format!(
            "{}: it is of a run before, and stays until this one ends: {error}",
            before.display()
        ));
    }
}

/// A folder that a result can be written to; without a word where, one that no run before has used.
fn place(out: Option<PathBuf>, name: &str) -> Result<PathBuf, String> {
    let folder = match out {
        Some(out) => {
            fs::create_dir_all(&out).map_err(|error| unmade(&out, &error))?;
            out
        }
        None => own_folder(name).map_err(|error| {
            format!("{RESULTS}: no folder for the result can be made: {error} (--out)")
        })?,
    };
    takes_result(&folder)?;
    Ok(folder)
}

/// Whether the folder of a result can be had, found out before anything is started for the run. Leaves nothing behind.
fn can_be_made(folder: &Path) -> Result<(), String> {
    let missing: Vec<&Path> = folder
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && folder.symlink_metadata().is_err())
        .collect();
    let made = fs::create_dir_all(folder).map_err(|error| unmade(folder, &error));
    let can = made.and_then(|()| takes_result(folder));
    for folder in missing {
        // Those that could not be made are not there.
        let _ = fs::remove_dir(folder);
    }
    can
}

fn unmade(folder: &Path, error: &io::Error) -> String {
    format!("--out {}: it cannot be made: {error}", folder.display())
}

/// Whether a result can be written to this folder, over the one that may be there.
fn takes_result(folder: &Path) -> Result<(), String> {
    let file = folder.join(RESULT);
    let probe = unfinished(&file);
    let writable = match file.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => File::create(&probe).and_then(|_| fs::remove_file(&probe)),
    };
    writable.map_err(|error| format!("{}: it cannot be written: {error}", file.display()))
}

/// Made here and now, so that two runs at once do not take the same one.
fn own_folder(name: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(RESULTS)?;
    let mut number = 1;
    loop {
        let folder = Path::new(RESULTS).join(format!("{name}-{number}"));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|()| folder),
        }
    }
}

fn not_started(missing: Vec<String>) -> Exit {
    for line in &missing {
        tell(line);
    }
    over(Findings {
        preflight: missing,
        ..Findings::default()
    })
}

/// The end of what did not run.
fn over(findings: Findings) -> Exit {
    let decision = decide(&findings);
    verdict(&decision);
    decision.exit
}

/// Ctrl-C, what service managers send in its place, and the end of the terminal.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// None where whoever started the program wants it to outlive the terminal (`nohup`).
    hangup: Option<Signal>,
}

/// How much an interrupt wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The next harder way to end.
    Harder,
    /// The gentle one, however often it is asked for: shell and kernel both tell that a terminal is gone, and whoever ends
    /// a program after a time (`timeout`) tells it and then its group.
    Gently,
}

impl Interrupts {
    pub(crate) fn listen(runtime: &Runtime) -> io::Result<Self> {
        let _inside = runtime.enter();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: match ignores_hangup(&status) {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    pub(crate) async fn next(&mut self) -> Wanted {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Wanted::Harder,
            _ = self.terminate.recv() => Wanted::Gently,
            _ = hangup => Wanted::Gently,
        }
    }
}

/// Whether a process with this `/proc` status lets hang-ups pass: the lowest bit of the signals that it ignores.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|ignored| ignored & 1 == 1)
}

/// Tells the progress where no screen shows it, and listens to Ctrl-C, until the run ends.
async fn look_on(run: &Run, interrupts: &mut Interrupts) {
    let mut snapshots = run.snapshots();
    let interrupt = run.interrupt();
    let mut next_line = LINE_EVERY;
    let mut steps_told = 0;
    loop {
        tokio::select! {
            biased;
            wanted = interrupts.next() => match wanted {
                Wanted::Harder => harder(&interrupt),
                Wanted::Gently => end(&interrupt, Interrupt::Gently),
            },
            changed = snapshots.changed() => {
                if changed.is_err() {
                    return;
                }
                let snapshot = snapshots.borrow_and_update();
                tell_steps(&snapshot.timeline, &mut steps_told);
                if snapshot.at >= next_line {
                    told::progress(&progress_line(&snapshot));
                    next_line = next_line + LINE_EVERY;
                }
            }
        }
    }
}

/// Tells the steps of the time line that were done since the last time. They are done one after the other.
fn tell_steps(timeline: &[Step], told: &mut usize) {
    for step in &timeline[*told..] {
        let Became::Done(done) = &step.became else {
            break;
        };
        tell(&format!("time line, {}: {}: {done}", step.due, step.what));
        *told += 1;
    }
}

/// The next harder way to end.
fn harder(interrupt: &watch::Sender<Interrupt>) {
    let next = match *interrupt.borrow() {
        Interrupt::No => Interrupt::Gently,
        Interrupt::Gently | Interrupt::AtOnce => Interrupt::AtOnce,
    };
    end(interrupt, next);
}

/// Ends the run in this way, unless a harder one is under way.
pub(crate) fn end(interrupt: &watch::Sender<Interrupt>, how: Interrupt) {
    if how <= *interrupt.borrow() {
        return;
    }
    tell(match how {
        Interrupt::AtOnce => "interrupted: reporting at once",
        _ => "interrupted: calls under way may end; once more to report at once",
    });
    interrupt.send_replace(how);
}

/// Writes the result and says what came of the run.
/// Writes the file that everything else is made from.
fn keep(result: &RunResult, out: &Path) -> io::Result<()> {
    let text = result.to_text() + "\n";
    replace(
        &out.join(RESULT),
        0o666,
        text.as_bytes(),
        Outlives::PowerLoss,
    )
}

fn report(result: &RunResult, kept: io::Result<()>, decision: Decision, out: &Path) -> Exit {
    judged(result).iter().for_each(|line| answer(line));
    for note in &result.notes {
        tell(&one_line(&format!("note: {note}")));
    }
    let file = out.join(RESULT);
    let decision = match kept {
        Ok(()) => {
            tell(&format!("result: {}", file.display()));
            decision
        }
        Err(error) => unwritten(&file, &error, decision),
    };
    verdict(&decision);
    decision.exit
}

/// What was judged, a line for each expectation and each referee.
pub(crate) fn judged(result: &RunResult) -> Vec<String> {
    let expectations = result.expectations.iter().map(ToString::to_string);
    let referees = result.referees.iter().map(|referee| {
        let judged = match (referee.judged, referee.breaches) {
            (0, _) => "not judged".to_owned(),
            (judged, breaches) => format!("{judged} judged, {breaches} broken"),
        };
        format!("referee {:<2} {}: {judged}", referee.number, referee.name)
    });
    expectations.chain(referees).collect()
}

/// A pass that nobody can look into is none. What is worse than that stays what it is.
fn unwritten(file: &Path, error: &io::Error, decision: Decision) -> Decision {
    let lost = format!("{}: the result was not written: {error}", file.display());
    tell(&lost);
    match decision.exit {
        Exit::Held => decide(&Findings {
            preflight: vec![format!("{lost}; {}", decision.reason)],
            ..Findings::default()
        }),
        _ => decision,
    }
}

/// The last line: the verdict and why.
fn verdict(decision: &Decision) {
    if let Some(line) = decision.line() {
        answer(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lets_hang_ups_pass_goes_on_doing_so() {
        let rows = [
            ("Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\t0\n", true),
            ("SigIgn:\t0000000000001003\n", true),
            ("SigIgn:\t0000000000001000\n", false),
            ("", false),
        ];
        for (status, ignores) in rows {
            assert_eq!(ignores_hangup(status), ignores, "{status:?}");
        }
    }
}
