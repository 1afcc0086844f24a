//! The measurements behind `docs/benchmarks.md`: each call makes one of them once, in a process of its own, and prints its
//! figures as one line of JSON. `cargo xtask bench` calls this, knows the bounds, takes medians and writes the page.
//!
//! What costs processor time is told by the kernel's clocks of threads, which other programs disturb little. A
//! measurement that did not measure what it says (a request failed, an agent is missing) is an error, not a figure.
//!
//! | Measurement | What it is |
//! |---|---|
//! | [`signatures`] | peer: Ed25519 alone |
//! | [`unsigned`] | peer: the transport alone, to a route that does nothing |
//! | [`sync`] | what a signed sync over TLS costs either side, in a closed loop |
//! | [`pace`] | how late a fleet at its real pace calls |
//! | [`memory`] | what a connected agent takes of memory, and its connection at the portal |
//! | [`engine`] | what the engine alone takes |
//! | [`day`] | a fleet's day in virtual time |

mod day;
mod engine;
mod example;
mod machine;
mod memory;
mod pace;
mod runs;
mod signatures;
mod sync;
mod unsigned;

use std::collections::BTreeMap;
use std::env;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use machine::Others;

/// Figures by name; the unit stands last in it.
type Figures = BTreeMap<&'static str, f64>;

/// As in the programs that are measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figures: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let figures = match words[..] {
        ["signatures"] => beside_others(|| Ok(signatures::measure()))?,
        ["unsigned"] => beside_others(unsigned::measure)?,
        ["sync"] => beside_others(sync::measure)?,
        ["pace"] => beside_others(pace::measure)?,
        ["memory"] => memory::measure()?,
        ["memory-portal", folder] => return memory::portal(folder.as_ref()),
        ["memory-fleet", folder] => memory::fleet(folder.as_ref())?,
        ["engine"] => engine::measure()?,
        ["day"] => beside_others(day::measure)?,
        _ => bail!("name one measurement; `cargo xtask bench` makes all of them"),
    };
    let line = serde_json::to_string(&figures)?;
    writeln!(io::stdout(), "{line}").context("print the figures")
}

/// Measures, and tells how much of all processors other programs took meanwhile: they make what is measured late, and
/// slower through caches and clock rates that are shared.
fn beside_others(measure: impl FnOnce() -> Result<Figures>) -> Result<Figures> {
    let others = Others::from_now()?;
    let mut figures = measure()?;
    figures.insert("others_percent", others.percent()?);
    Ok(figures)
}
