//! Which seeds a test runs through, how it does so on all processors, and what it says of them.
//!
//! `PBX_LAB_SEEDS` says how many seeds there are, `PBX_LAB_FIRST_SEED` where they begin, and `PBX_LAB_SEED` which one alone
//! is run. A seed that fails is printed with the command that runs it again.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::iter::from_fn;
use std::num::NonZero;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::json;

#[expect(
    clippy::disallowed_methods,
    reason = "a test has no command line of its own to say how long it may take"
)]
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

pub(crate) fn seeds(default: u64) -> Range<u64> {
    match variable("PBX_LAB_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = variable("PBX_LAB_FIRST_SEED").unwrap_or(0);
            first..first + variable("PBX_LAB_SEEDS").unwrap_or(default)
        }
    }
}

/// Runs a test of one seed for each of them, on all processors; what they came to, in the order of the seeds. Those that
/// fail are printed, with how to run the first of them again.
pub(crate) fn for_each_seed<T: Send>(seeds: Range<u64>, test: &str, of: fn(u64) -> T) -> Vec<T> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end);
        let run = |seed| (seed, catch_unwind(|| of(seed)).ok());
        from_fn(take).map(run).collect::<Vec<_>>()
    };
    let mut lives = thread::scope(|scope| {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap());
        joined.flatten().collect::<Vec<_>>()
    });
    lives.sort_by_key(|(seed, _)| *seed);
    let failed: Vec<u64> = lives
        .iter()
        .filter_map(|(seed, life)| life.is_none().then_some(*seed))
        .collect();
    if let Some(first) = failed.first() {
        panic!(
            "seeds {failed:?} fail; again: \
             PBX_LAB_SEED={first} cargo test -p fleet-sim --test simulation {test}"
        );
    }
    lives.into_iter().filter_map(|(_, life)| life).collect()
}

/// Says on stdout what a test has gone through, in the one line that the project's chores read: what it was, and how often
/// what happened in it. Written past the test harness, which would keep it for itself.
pub(crate) fn tell(what: &str, counts: &BTreeMap<String, u64>) {
    let line = json!({"what": what, "counts": counts});
    let mut out = io::stdout().lock();
    writeln!(out, "\nproved {line}").unwrap();
}

/// The name of a count: how many events a referee has judged.
pub(crate) fn judged_by(referee: u8) -> String {
    format!("judged by referee {referee}")
}
