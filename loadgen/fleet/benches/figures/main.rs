//! The measurements behind `docs/benchmarks.md`: each call makes one of them once, in a process of its own, and prints its
//! figures as one line of JSON. `cargo xtask bench` calls this, knows the bounds, takes medians and writes the page.
//!
//! What costs processor time is told by the kernel's clocks of threads, which other programs disturb little. A
//! measurement that did not measure what it says (a request failed, an agent is missing) is an error, not a figure.
//!
//! | Measurement | What it is |
//! |---|---|
//! | [`signatures`] | peer: Ed25519 alone |
//! | [`peers`] | what others take to post to a route that does nothing, and what our transport takes |
//! | [`sync`] | what a signed sync over TLS costs either side, in a closed loop |
//! | [`connect`] | what opening a connection with a full TLS handshake costs either side |
//! | [`recording`] | what it takes to record a request |
//! | [`requests`] | whether memory grows with requests |
//! | [`pace`] | how late a fleet at its real pace calls |
//! | [`ten_thousand`] | the program that people run, with ten thousand agents and its screen |
//! | [`memory`] | what a connected agent takes of memory, and its connection at the portal |
//! | [`engine`] | what the engine alone takes |
//! | [`day`] | a fleet's day in virtual time |

mod connect;
mod day;
mod engine;
mod example;
mod machine;
mod memory;
mod nothing;
mod pace;
mod peers;
mod recording;
mod requests;
mod runs;
mod signatures;
mod sync;
mod ten_thousand;
mod unsigned;

use std::collections::BTreeMap;
use std::env;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use machine::Others;
use peers::Peer;

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
        ["unsigned"] => beside_others(|| peers::measure(Peer::Ours))?,
        ["post", folder, port, connections] => {
            return unsigned::post_for_ever(folder.as_ref(), port, connections);
        }
        ["nothing", folder] => return nothing::serve_nothing(folder.as_ref()),
        [
            peer @ ("wrk" | "oha" | "hey" | "k6" | "locust" | "goose"),
            program,
        ] => {
            let peer = Peer::named(peer, program)?;
            beside_others(|| peers::measure(peer))?
        }
        ["sync"] => beside_others(sync::measure)?,
        ["connect"] => beside_others(connect::measure)?,
        ["recording"] => beside_others(recording::measure)?,
        ["requests"] => beside_others(requests::measure)?,
        ["ten-thousand", loadgen] => beside_others(|| ten_thousand::measure(loadgen))?,
        ["pace"] => beside_others(pace::measure)?,
        ["memory"] => beside_others(memory::measure)?,
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
