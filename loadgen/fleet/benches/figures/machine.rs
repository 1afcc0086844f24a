//! What the kernel says of this process and its machine.

use std::fs;

use anyhow::{Context as _, Result, bail};
use rustix::time::{ClockId, clock_gettime};

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

/// How busy the machine is beside this process, from its making on.
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
            own_seconds: process_cpu_seconds(),
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
    /// What the kernel counts in, on every Linux (`USER_HZ`).
    const TICKS_A_SECOND: f64 = 100.0;
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
