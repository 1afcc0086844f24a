//! What the kernel says of processes and their machine.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::time::{ClockId, clock_gettime};

/// What the kernel counts processor time in, on every Linux (`USER_HZ`).
const TICKS_A_SECOND: f64 = 100.0;

/// Processor time that this process has taken, in seconds.
pub(crate) fn process_cpu_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

/// Processor time that this thread has taken, in seconds.
pub(crate) fn thread_cpu_seconds() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Resident memory of a process (a number, or `self`), in KiB.
///
/// # Errors
/// When there is no such process.
pub(crate) fn resident_kib(process: &str) -> Result<f64> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    kib.and_then(|kib| kib.parse().ok())
        .with_context(|| format!("{path} has no VmRSS"))
}

/// A process and all that it has started, at a moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) processes: Vec<u32>,
    /// Processor time so far, that of children which have ended and were waited for included.
    pub(crate) cpu_seconds: f64,
    /// Resident memory of all together.
    pub(crate) resident_kib: f64,
}

impl Tree {
    /// The process `root` and its children, and theirs. One that has ended and was not waited for takes nothing, and is
    /// not counted.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(crate) fn of(root: u32) -> Result<Self> {
        let mut all: Vec<(u32, Stat)> = Vec::new();
        for entry in fs::read_dir("/proc").context("read /proc")?.flatten() {
            // A process that ends meanwhile has no files any more.
            let number = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let stat = fs::read_to_string(entry.path().join("stat"));
            if let (Some(process), Ok(stat)) = (number, stat)
                && let Some(stat) = Stat::read(&stat)
            {
                all.push((process, stat));
            }
        }
        let mut wanted = vec![root];
        let mut tree = Self::default();
        while let Some(process) = wanted.pop() {
            wanted.extend(
                all.iter()
                    .filter(|(_, s)| s.parent == process)
                    .map(|(p, _)| *p),
            );
            let Some((_, stat)) = all.iter().find(|(p, s)| *p == process && !s.has_ended) else {
                continue;
            };
            tree.processes.push(process);
            tree.cpu_seconds += stat.cpu_seconds;
            tree.resident_kib += resident_kib(&process.to_string()).unwrap_or(0.0);
        }
        Ok(tree)
    }
}

/// What `/proc/PID/stat` says.
struct Stat {
    parent: u32,
    has_ended: bool,
    cpu_seconds: f64,
}

impl Stat {
    fn read(text: &str) -> Option<Self> {
        // The second field is a name in parentheses, which may hold anything.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = fields.get(11..15)?.iter();
        let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            has_ended: *fields.first()? == "Z",
            cpu_seconds: ticks / TICKS_A_SECOND,
        })
    }
}

/// A thread of a process.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    /// As the kernel keeps it: 15 characters.
    pub(crate) name: String,
    pub(crate) on_cpu_ns: u64,
}

/// The threads of a process; none if there is no such process.
pub(crate) fn threads_of(process: u32) -> Vec<Thread> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    let read = |thread: fs::DirEntry| {
        let file = |name| fs::read_to_string(thread.path().join(name)).ok();
        let on_cpu = file("schedstat")?.split_whitespace().next()?.parse().ok();
        Some(Thread {
            name: file("comm")?.trim_end().to_owned(),
            on_cpu_ns: on_cpu?,
        })
    };
    threads.flatten().filter_map(read).collect()
}

/// Lets time pass while another process is measured.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever looks at another process from outside has nothing to wait for but time"
)]
pub(crate) fn pass(time: Duration) {
    sleep(time);
}

/// How busy the machine is beside this process and its children, from its making on.
pub(crate) struct Others {
    busy_seconds: f64,
    all_seconds: f64,
    own_seconds: f64,
}

impl Others {
    /// Looks from now on.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(crate) fn from_now() -> Result<Self> {
        let (busy_seconds, all_seconds) = processors()?;
        Ok(Self {
            busy_seconds,
            all_seconds,
            own_seconds: Tree::of(std::process::id())?.cpu_seconds,
        })
    }

    /// The share of all processors together that others have taken since, in percent.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(crate) fn percent(&self) -> Result<f64> {
        let now = Self::from_now()?;
        let busy = now.busy_seconds - self.busy_seconds;
        let own = now.own_seconds - self.own_seconds;
        let all = now.all_seconds - self.all_seconds;
        Ok((100.0 * (busy - own) / all).max(0.0))
    }
}

/// Seconds of all processors so far: at work, and in all.
fn processors() -> Result<(f64, f64)> {
    let text = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    let first = text.lines().next().unwrap_or_default();
    let numbers = first.split_whitespace().skip(1);
    let seconds: Vec<f64> = numbers
        .map_while(|ticks| Some(ticks.parse::<f64>().ok()? / TICKS_A_SECOND))
        .collect();
    // What follows is counted in user and nice already.
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = seconds[..] else {
        bail!("/proc/stat begins with {first:?}");
    };
    let busy = user + nice + system + irq + softirq + steal;
    Ok((busy, busy + idle + iowait))
}
