//! `loadgen view`: a finished run from its result file, on the screen of a live one or in plain lines.
//!
//! It judges nothing anew: what is shown is what the file says. So the exit code says whether the file could be read and
//! not what the verdict was, which is the last line and in the file.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fleet::usage::room_for_threads;
use record::figures::Distribution;
use record::judgement::grouped;
use record::{Exit, RunResult, replay};
use tokio::runtime::{Builder, Runtime};
use top::{Look, Screen};

use crate::cli::{TerminalOptions, ViewOptions};
use crate::read::{open, unreadable};
use crate::run::{Interrupts, RESULT, judged};
use crate::screen::{Show, show_again};
use crate::told::tell;
use crate::{Usage, answer};

pub(crate) fn view(options: ViewOptions, terminal: &TerminalOptions) -> Result<Exit, Usage> {
    let show = Show::of(&options.screen, terminal);
    let result = Arc::new(read(&options.result)?);
    match on_screen(show, &result) {
        Ok(Some(exit)) => return Ok(exit),
        Ok(None) => {}
        Err(error) => tell(&format!("screen: the system gives no room for it: {error}")),
    }
    for line in in_words(&result, show.look()) {
        answer(&line);
    }
    answer(&verdict(&result));
    Ok(Exit::Held)
}

/// The result in this file, or in this folder.
fn read(path: &Path) -> Result<RunResult, Usage> {
    let file = match path.is_dir() {
        true => path.join(RESULT),
        false => PathBuf::from(path),
    };
    let wrong = |why: String| Usage(format!("{}: {why}", file.display()));
    let mut text = Vec::new();
    open(&file, "a result file")
        .and_then(|mut opened| opened.read_to_end(&mut text).map_err(unreadable))
        .map_err(wrong)?;
    RunResult::read(&text).map_err(|error| wrong(error.to_string()))
}

/// Shows it until somebody leaves; none where there is no screen for it.
fn on_screen(show: Show, result: &Arc<RunResult>) -> io::Result<Option<Exit>> {
    room_for_threads(1)?;
    let runtime: Runtime = Builder::new_current_thread().enable_all().build()?;
    let mut interrupts = Interrupts::listen(&runtime)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut screen = {
        let (result, stop) = (Arc::clone(result), Arc::clone(&stop));
        runtime.spawn_blocking(move || {
            let mut log = about(&result);
            log.extend(judged(&result));
            log.push(verdict(&result));
            show_again(show, &result, &log, &stop)
        })
    };
    let exit = runtime.block_on(async {
        let shown = tokio::select! {
            shown = &mut screen => (shown, Exit::Held),
            _ = interrupts.next() => {
                stop.store(true, Ordering::Relaxed);
                (screen.await, Exit::Interrupted)
            }
        };
        match shown {
            (Ok(true), exit) => Some(exit),
            (Ok(false), _) => None,
            (Err(panicked), _) => std::panic::resume_unwind(panicked.into_panic()),
        }
    });
    Ok(exit)
}

/// The whole of it in plain lines, but for the verdict.
fn in_words(result: &RunResult, look: Look) -> Vec<String> {
    let mut screen = Screen::of_replay(look);
    for second in replay::snapshots(result) {
        screen.see(second);
    }
    let mut lines = about(result);
    lines.extend(screen.in_words());
    lines.extend(latencies(result));
    lines.extend(judged(result));
    lines
}

/// What calls took inside the window, endpoint by endpoint.
fn latencies(result: &RunResult) -> Vec<String> {
    let row = |[name, count, p50, p95, p99, max]: [&str; 6]| {
        format!(" {name:<18}{count:>10}{p50:>10}{p95:>10}{p99:>10}{max:>10}")
    };
    let of = |name: &str, times: &Distribution| {
        let count = grouped(times.count);
        let [p50, p95, p99, max] =
            [times.p50, times.p95, times.p99, times.max].map(|time| time.to_string());
        row([name, &count, &p50, &p95, &p99, &max])
    };
    let figures = &result.figures;
    let endpoints = figures.endpoints.iter();
    let responses = endpoints
        .filter_map(|(endpoint, figures)| Some(of(endpoint.label(), figures.response.as_ref()?)));
    let mut lines = vec![row(["response, judged", "ok", "p50", "p95", "p99", "max"])];
    lines.extend(responses);
    let lateness = figures.lateness.as_ref();
    lines.extend(lateness.map(|times| of("lateness, judged", times)));
    lines
}

/// What ran, when and where, and what the generator took for it.
fn about(result: &RunResult) -> Vec<String> {
    let run = &result.run;
    let portal = run.portal.as_deref().unwrap_or("mock portal");
    let overrides = run
        .overrides
        .iter()
        .map(|(option, value)| format!(" {option} {value}"));
    let mut lines = vec![
        format!("run     {}{}", run.scenario, overrides.collect::<String>()),
        format!("seed    {}", run.seed),
        format!("portal  {portal}"),
        format!("from    {} to {}", run.started_at, run.ended_at),
        format!("judged  from {} to {}", run.window.from, run.window.until),
    ];
    let taken = &result.generator;
    lines.push(format!(
        "took    {:.1} s of processor time, {} MiB and {} open files at most, in {}",
        taken.cpu_us as f64 / 1e6,
        grouped(taken.rss_bytes_peak >> 20),
        grouped(taken.files_peak),
        match taken.processes {
            1 => "1 process".to_owned(),
            several => format!("{} processes", grouped(several)),
        }
    ));
    lines.extend(result.notes.iter().map(|note| format!("note: {note}")));
    lines
}

/// The last line, as the run gave it.
fn verdict(result: &RunResult) -> String {
    format!("{} {}", result.verdict.capitals(), result.reason)
}
