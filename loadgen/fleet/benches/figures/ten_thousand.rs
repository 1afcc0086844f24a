//! Ten thousand agents at their real pace, portal and all on this machine, by the program that people run, with its screen
//! on a terminal of 200 columns and 60 rows: what its result says, and what its processes take while it runs.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use agent_core::port::Clock as _;
use agent_drive::SystemClock;
use anyhow::{Context as _, Result, anyhow, ensure};
use fleet::usage::{Part, raise_files_limit};
use record::{Outcome, RunResult};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use scenario::shipped;
use toml::{Table, Value};

use crate::Figures;
use crate::machine::{Tree, pass, resident_kib, threads_of};

const AGENTS: u64 = 10_000;
/// So few that what is made for them is nothing; every process has some.
const FEW: u64 = 16;
/// One comes before, and no more: what the processes take then is there without agents.
const BEGIN: Duration = Duration::from_secs(10);
const ARRIVAL: Duration = Duration::from_secs(40);
/// All have begun and their nodes are set up.
const WARM_UP: Duration = Duration::from_secs(90);
const DURATION: Duration = Duration::from_secs(140);
/// Keys are made before the run and sums after it.
const LONGEST: Duration = Duration::from_secs(240);
const SECOND: Duration = Duration::from_secs(1);
const BEFORE_THE_SECOND: Duration = Duration::from_secs(BEGIN.as_secs() - 2);
const LOOK: Duration = Duration::from_millis(100);
/// The thread of the screen.
const SCREEN: &str = "screen";

pub(crate) fn measure(loadgen: &str) -> Result<Figures> {
    raise_files_limit();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("ten-thousand.toml");
    fs::write(&file, scenario(AGENTS)?)?;
    let mut running = Running::start(loadgen, &file, folder.path(), None)?;
    let (_, empty) = running.look_after(BEFORE_THE_SECOND)?;
    let (from, warm) = running.look_after(WARM_UP)?;
    let (until, last) = running.look_after(DURATION - 2 * SECOND)?;
    while !running.has_ended()? {
        ensure!(running.passed() < LONGEST, "it does not end");
        pass(LOOK);
    }
    let as_many = last.processes.saturating_sub(1);
    let few = few(loadgen, folder.path(), (as_many > 0).then_some(as_many))?;
    let result = fs::read(folder.path().join("result.json")).context("there is no result")?;
    let result = RunResult::read(&result)?;
    ensure!(
        result.fleet.enrolled == AGENTS,
        "{} of {AGENTS} agents are enrolled; calls failed: {:?}",
        result.fleet.enrolled,
        failed(&result)
    );
    let breaches: u64 = result.referees.iter().map(|r| r.breaches).sum();
    ensure!(breaches == 0, "{breaches} rules were broken");
    let errors: u64 = failed(&result).iter().map(|(_, count)| count).sum();
    let lateness = result.figures.lateness.context("no call was made")?;
    let seconds = (until - from).as_secs_f64();
    Ok([
        ("lateness_p99_ms", lateness.p99.0 as f64 / 1e3),
        (
            "agent_kib",
            (last.fleet_kib - empty.fleet_kib) / AGENTS as f64,
        ),
        (
            "waiting_kib",
            (empty.fleet_kib - few.fleet_kib) / AGENTS as f64,
        ),
        (
            "portal_kib",
            (last.portal_kib - empty.portal_kib) / AGENTS as f64,
        ),
        ("errors", errors as f64),
        ("account_errors", result.account_errors().len() as f64),
        (
            "screen_percent",
            (last.screen_ns - warm.screen_ns) as f64 / 1e7 / seconds,
        ),
        ("cores", (last.cpu_seconds - warm.cpu_seconds) / seconds),
        ("processes", last.processes as f64),
    ]
    .into())
}

/// What as many processes take that have a few agents, of which one has come.
fn few(loadgen: &str, folder: &Path, shards: Option<u64>) -> Result<Look> {
    let file = folder.join("few.toml");
    fs::write(&file, scenario(FEW)?)?;
    let mut running = Running::start(loadgen, &file, &folder.join("few"), shards)?;
    Ok(running.look_after(BEFORE_THE_SECOND)?.1)
}

/// Calm: what `steady` has, without its operations and at the real pace.
fn scenario(agents: u64) -> Result<String> {
    let steady = shipped::find("steady").map_err(|why| anyhow!(why))?;
    let mut scenario: Table = steady.text.parse()?;
    let mut set = |name: &str, value: Value| scenario.insert(name.to_owned(), value);
    let seconds = |time: Duration| Value::from(format!("{}s", time.as_secs()));
    set("name", "ten-thousand".into());
    set("duration", seconds(DURATION));
    set("warm_up", seconds(WARM_UP));
    set("timeline", Value::Array(Vec::new()));
    let enrolled: Table = "enrolled = { exactly = \"all\" }".parse()?;
    set("expect", vec![Value::Table(enrolled)].into());
    let populations = scenario.get_mut("population").and_then(Value::as_array_mut);
    let population = populations.and_then(|all| all.first_mut()?.as_table_mut());
    let population = population.context("the scenario `steady` has a population")?;
    population.insert("count".to_owned(), Value::Integer(agents.cast_signed()));
    population.insert("tempo".to_owned(), Value::Float(1.0));
    let arrival: Table = format!(
        "stages = [{{ count = 1, over = \"{}s\" }}, {{ count = {}, over = \"{}s\" }}]",
        BEGIN.as_secs(),
        agents - 1,
        ARRIVAL.as_secs()
    )
    .parse()?;
    population.insert("arrival".to_owned(), Value::Table(arrival));
    Ok(toml::to_string(&scenario)?)
}

/// Calls that ended with something else than what they asked for, by outcome; the end of the run cuts some off.
fn failed(result: &RunResult) -> Vec<(Outcome, u64)> {
    let total = result.account.total();
    let ended = total.ended.iter().map(|(outcome, count)| (outcome, *count));
    ended
        .filter(|(outcome, count)| {
            *count > 0 && !outcome.is_success() && *outcome != Outcome::Aborted
        })
        .collect()
}

/// The program, and the terminal that it has its screen on.
struct Running {
    process: Child,
    _terminal: File,
    clock: SystemClock,
    /// When its screen was seen first, since its start.
    began: Option<Duration>,
}

/// What its processes take.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    processes: u64,
    /// Of all of them, since they began.
    cpu_seconds: f64,
    /// Of the thread that draws the screen, since it began.
    screen_ns: u64,
    /// Resident memory of those in which a portal serves.
    portal_kib: f64,
    /// Resident memory of the others.
    fleet_kib: f64,
}

impl Running {
    fn start(loadgen: &str, scenario: &Path, out: &Path, shards: Option<u64>) -> Result<Self> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let end = rustix::fs::open(ptsname(&ours, Vec::new())?, flags, Mode::empty())?;
        let size = Winsize {
            ws_col: 200,
            ws_row: 60,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&end, size)?;
        let terminal = File::from(ours);
        let mut shown = terminal.try_clone()?;
        // What is drawn must be taken, or the screen waits. The other end being gone is an error to read from.
        thread::spawn(move || io::copy(&mut shown, &mut io::sink()));
        let process = Command::new(loadgen)
            .args(["run", "--screen", "on", "--out"])
            .args([out, scenario])
            .args(shards.map(|shards| format!("--shards={shards}")))
            .env("TERM", "xterm-256color")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(end))
            .spawn()
            .with_context(|| format!("start {loadgen}"))?;
        Ok(Self {
            process,
            _terminal: terminal,
            clock: SystemClock::start(),
            began: None,
        })
    }

    fn passed(&self) -> Duration {
        Duration::from_millis(self.clock.now().monotonic.as_ms())
    }

    /// What it takes so long after its run has begun, and when that was looked at.
    fn look_after(&mut self, moment: Duration) -> Result<(Duration, Look)> {
        let began = match self.began {
            Some(began) => began,
            None => {
                while self.looked_at()?.screen_ns == 0 {
                    self.still_runs()?;
                    pass(LOOK);
                }
                *self.began.insert(self.passed())
            }
        };
        while self.passed() < began + moment {
            self.still_runs()?;
            pass(LOOK);
        }
        Ok((self.passed(), self.looked_at()?))
    }

    fn looked_at(&self) -> Result<Look> {
        let tree = Tree::of(self.process.id())?;
        let mut look = Look {
            processes: tree.processes.len() as u64,
            cpu_seconds: tree.cpu_seconds,
            ..Look::default()
        };
        for process in tree.processes {
            let threads = threads_of(process);
            let of_screen = threads.iter().filter(|thread| thread.name == SCREEN);
            look.screen_ns += of_screen.map(|thread| thread.on_cpu_ns).sum::<u64>();
            let portal = Part::Portal.thread_name();
            let resident = resident_kib(&process.to_string()).unwrap_or(0.0);
            match threads.iter().any(|t| t.name.starts_with(portal)) {
                true => look.portal_kib += resident,
                false => look.fleet_kib += resident,
            }
        }
        Ok(look)
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// It has not taken too long.
    fn still_runs(&mut self) -> Result<()> {
        ensure!(
            self.passed() < LONGEST,
            "it still runs after {} seconds",
            LONGEST.as_secs()
        );
        ensure!(!self.has_ended()?, "it ended before its time");
        Ok(())
    }
}

/// However the measurement ends, the program ends with it, and its children with their input.
impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
