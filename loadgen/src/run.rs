//! `loadgen run`: from a scenario to a verdict, a result file and an exit code.
//!
//! Without a terminal and with one alike: a plain line every five seconds on stderr, the verdict as the last line on
//! stdout. Ctrl-C ends the run gently, a second one at once; both leave a report.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet::run::{ForeignPortal, Interrupt, NotStarted, Options, Prepared, Run, prepare};
use record::{Decision, Exit, Findings, RunResult, decide, progress_line};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::cli::RunOptions;
use crate::read::{NoScenario, scenario};
use crate::{Usage, answer, tell};

/// How long a portal may take to answer at all before the run starts.
const REACH_WITHIN: Duration = Duration::from_secs(10);
/// How often the progress is told.
const LINE_EVERY_SECONDS: u64 = 5;
/// Where results go if nobody says where.
const RESULTS: &str = "loadgen-results";

pub(crate) fn run(options: RunOptions) -> Result<Exit, Usage> {
    let scenario = scenario(&options.scenario).map_err(|none| match none {
        NoScenario::Unreadable(why) => Usage(why),
        NoScenario::Mistakes(mistakes) => Usage(mistakes.to_string()),
    })?;
    let name = scenario.name.clone();
    let fleet_options = Options {
        portal: options.portal.map(|url| ForeignPortal {
            url,
            tokens: options.tokens,
            release_key: options.release_key,
        }),
        owns_target: options.i_own_this_target,
        reach_within: REACH_WITHIN,
        versions: [("loadgen".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
        commit: option_env!("LOADGEN_COMMIT").map(str::to_owned),
    };
    let out = options.out;
    let started = prepare(scenario, fleet_options).and_then(|prepared| start(prepared, out, &name));
    let (run, out) = match started {
        Ok(started) => started,
        Err(NotStarted::Usage(mistakes)) => return Err(Usage(mistakes.join("\n"))),
        Err(NotStarted::Preflight(missing)) => return Ok(not_started(missing)),
    };
    look_on(&run);
    let (result, decision) = run.wait();
    Ok(report(&result, &decision, &out))
}

/// Starts the run once there is a place for its result.
fn start(
    prepared: Prepared,
    out: Option<PathBuf>,
    name: &str,
) -> Result<(Run, PathBuf), NotStarted> {
    for line in prepared.told() {
        tell(line);
    }
    let out = out.unwrap_or_else(|| own_folder(name));
    fs::create_dir_all(&out).map_err(|error| {
        NotStarted::Preflight(vec![format!(
            "--out {}: it cannot be made: {error}",
            out.display()
        )])
    })?;
    Ok((prepared.start()?, out))
}

/// A folder that no run before has used.
fn own_folder(name: &str) -> PathBuf {
    let taken = |number: &u32| Path::new(RESULTS).join(format!("{name}-{number}")).exists();
    let number = (1..u32::MAX)
        .find(|number| !taken(number))
        .unwrap_or(u32::MAX);
    Path::new(RESULTS).join(format!("{name}-{number}"))
}

fn not_started(missing: Vec<String>) -> Exit {
    for line in &missing {
        tell(line);
    }
    let findings = Findings {
        preflight: missing,
        ..Findings::default()
    };
    let decision = decide(&findings);
    verdict(&decision);
    decision.exit
}

/// Tells the progress, and listens to Ctrl-C, until the run ends.
fn look_on(run: &Run) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        // A run nobody can look at is still a run.
        return;
    };
    let mut snapshots = run.snapshots();
    let interrupt = run.interrupt();
    runtime.block_on(async {
        let interrupts = signal(SignalKind::interrupt());
        let ends = signal(SignalKind::terminate());
        let (Ok(mut interrupts), Ok(mut ends)) = (interrupts, ends) else {
            return;
        };
        let mut second = 0;
        loop {
            tokio::select! {
                biased;
                _ = interrupts.recv() => harder(&interrupt),
                _ = ends.recv() => harder(&interrupt),
                changed = snapshots.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    second += 1;
                    if second % LINE_EVERY_SECONDS == 0 {
                        tell(&progress_line(&snapshots.borrow_and_update()));
                    }
                }
            }
        }
    });
}

/// The next harder way to end.
fn harder(interrupt: &watch::Sender<Interrupt>) {
    let next = match *interrupt.borrow() {
        Interrupt::No => Interrupt::Gently,
        Interrupt::Gently | Interrupt::AtOnce => Interrupt::AtOnce,
    };
    tell(match next {
        Interrupt::AtOnce => "interrupted: reporting at once",
        _ => "interrupted: calls under way may end; once more to report at once",
    });
    interrupt.send_replace(next);
}

/// Writes the result and says what came of the run.
fn report(result: &RunResult, decision: &Decision, out: &Path) -> Exit {
    for judgement in &result.expectations {
        answer(&judgement.to_string());
    }
    for referee in &result.referees {
        let judged = match (referee.judged, referee.breaches) {
            (0, _) => "not judged".to_owned(),
            (judged, breaches) => format!("{judged} judged, {breaches} broken"),
        };
        answer(&format!(
            "referee {:<2} {}: {judged}",
            referee.number, referee.name
        ));
    }
    for note in &result.notes {
        tell(&format!("note: {note}"));
    }
    let file = out.join("result.json");
    let written = write(&file, &result.to_text());
    match written {
        Ok(()) => tell(&format!("result: {}", file.display())),
        Err(error) => tell(&format!(
            "{}: the result was not written: {error}",
            file.display()
        )),
    }
    verdict(decision);
    decision.exit
}

/// The last line: the verdict and why.
fn verdict(decision: &Decision) {
    if let Some(verdict) = decision.verdict() {
        answer(&format!("{} {}", verdict.capitals(), decision.reason));
    }
}

/// Puts a file in place as a whole, or not at all.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("json.new");
    let mut written = File::create(&new)?;
    written.write_all(text.as_bytes())?;
    written.write_all(b"\n")?;
    written.sync_all()?;
    fs::rename(&new, file)
}
