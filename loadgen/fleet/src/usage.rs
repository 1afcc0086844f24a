//! What this process takes of its machine: processor time by part, memory, open files; and what the machine has.
//!
//! Read from the kernel's own files, which cost nothing while nobody looks. What cannot be read counts as zero: a figure
//! that is missing must not end a run.

use std::fs;
use std::io;
use std::sync::Mutex;

use record::result::HostInfo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The names that threads of each part of this process begin with: the kernel keeps 15 characters of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The agents, and all that drives and counts them.
    Agents,
    /// The embedded portal.
    Portal,
}

impl Part {
    /// The name of its threads.
    pub const fn thread_name(self) -> &'static str {
        match self {
            Part::Agents => "agents",
            Part::Portal => "portal",
        }
    }
}

/// Processor time that the threads of a part have taken, in microseconds. Threads that have ended do not count.
pub fn cpu_us(part: Part) -> u64 {
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return 0;
    };
    threads
        .flatten()
        .filter(|thread| {
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            name.trim_end().starts_with(part.thread_name())
        })
        .map(|thread| {
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            nanoseconds_on_cpu(&text) / 1_000
        })
        .sum()
}

/// The first figure of `schedstat`.
fn nanoseconds_on_cpu(schedstat: &str) -> u64 {
    let first = schedstat.split_whitespace().next();
    first.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The highest resident memory of this process so far.
pub fn rss_bytes_peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kilobytes(&status, "VmHWM:") * 1024
}

/// Processor time that this process has taken, all parts and its ended threads included, in microseconds.
pub fn process_cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

/// What a process takes at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Process {
    /// Processor time so far, in microseconds.
    pub cpu_us: u64,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Open files, where they were counted: of thousands that takes a while.
    pub files: Option<u64>,
}

/// Whether the system gives so many threads more. Asked before a runtime is made, which takes for granted that it does.
///
/// # Errors
/// When it does not.
pub fn room_for_threads(count: usize) -> io::Result<()> {
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let held = gate.lock();
        let wait = || drop(gate.lock());
        let started: io::Result<Vec<_>> = (0..count)
            .map(|_| std::thread::Builder::new().spawn_scoped(scope, wait))
            .collect();
        drop(held);
        started.map(drop).map_err(|error| {
            let why = format!(
                "{count} more threads are not to be had: {error} (`ulimit -u`, `ulimit -v`)"
            );
            io::Error::new(error.kind(), why)
        })
    })
}

/// How many threads a runtime of several takes.
pub fn runtime_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What this process takes now.
pub fn process(count_files: bool) -> Process {
    Process {
        cpu_us: process_cpu_us(),
        rss_bytes: rss_bytes(),
        files: count_files.then(open_files),
    }
}

/// Resident memory of this process, now.
pub fn rss_bytes() -> u64 {
    let pages = resident_pages(&fs::read_to_string("/proc/self/statm").unwrap_or_default());
    pages * rustix::param::page_size() as u64
}

/// The second figure of `statm`.
fn resident_pages(statm: &str) -> u64 {
    let second = statm.split_whitespace().nth(1);
    second.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Open files of this process, now.
pub fn open_files() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64)
}

/// Memory that new work can have without anything being swapped out; none if the kernel does not say.
pub fn memory_bytes_available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    match kilobytes(&text, "MemAvailable:") {
        0 => None,
        kilobytes => Some(kilobytes * 1024),
    }
}

/// A line of `name: 123 kB`.
fn kilobytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Raises the limit of open files as far as the system allows without privileges, and tells what it is then.
pub fn raise_files_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let highest = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Where it may not be raised, the old one is what counts.
    let _ = setrlimit(Resource::Nofile, highest);
    files_limit()
}

/// How many files this process may have open.
pub fn files_limit() -> u64 {
    // None is "without a limit".
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The machine, as a result says it.
pub fn host_info() -> HostInfo {
    let system = rustix::system::uname();
    let text = |bytes: &std::ffi::CStr| bytes.to_string_lossy().into_owned();
    let memory = rustix::system::sysinfo();
    HostInfo {
        cpus: std::thread::available_parallelism()
            .map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
        memory_bytes: memory.totalram.saturating_mul(memory.mem_unit.into()),
        files_limit: files_limit(),
        kernel: format!("{} {}", text(system.sysname()), text(system.release())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(nanoseconds_on_cpu("123456789 42 7\n"), 123_456_789);
        assert_eq!(nanoseconds_on_cpu(""), 0);
        assert_eq!(
            kilobytes("VmPeak:\t 9 kB\nVmHWM:\t  2048 kB\n", "VmHWM:"),
            2048
        );
        assert_eq!(kilobytes("VmPeak:\t 9 kB\n", "VmHWM:"), 0);
        assert_eq!(resident_pages("900 123 45 6 0 7 0\n"), 123);
        assert_eq!(resident_pages(""), 0);
    }

    #[test]
    fn this_process_takes_something() {
        assert!(rss_bytes_peak() > 1 << 20);
        assert!(rss_bytes() > 1 << 20);
        assert!(process_cpu_us() > 0);
        assert!(open_files() >= 3);
        assert!(memory_bytes_available().unwrap() > 1 << 20);
        let host = host_info();
        assert!(host.cpus >= 1 && host.memory_bytes > 1 << 20 && host.kernel.starts_with("Linux "));
        assert_eq!(raise_files_limit(), host_info().files_limit);
    }

    #[test]
    fn processor_time_is_told_by_the_names_of_threads() {
        let spin = || {
            let start = cpu_us(Part::Portal);
            let mut rounds = 0_u64;
            while cpu_us(Part::Portal) < start + 20_000 {
                rounds += 1;
                assert!(rounds < 1_000_000, "this thread is not seen");
            }
        };
        let named = std::thread::Builder::new().name(Part::Portal.thread_name().to_owned());
        let before = cpu_us(Part::Agents);
        named.spawn(spin).unwrap().join().unwrap();
        assert_eq!(cpu_us(Part::Agents), before);
    }
}
