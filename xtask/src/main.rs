//! `cargo xtask`: the project's own chores. One file or folder a chore; this one tells them apart and turns their
//! errors into exit codes: 0 done, 1 something is wrong and was named, 2 wrong usage.

mod bench;
mod page;
mod pictures;
mod project;
mod prove;
mod test;
mod tidy;
mod tools;

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use project::Project;

/// The project's own chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(flatten)]
    project: project::Options,
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Run every tier of tests and say for each how many there were.
    Test(test::Options),
    /// Measure what the product costs and write docs/benchmarks.md.
    Bench(bench::Options),
    /// Run what takes longer than the tests may, part by part, and write docs/proofs.md.
    Prove(prove::Options),
    /// Draw the pictures in the README anew.
    Pictures,
    /// Check the invariants of ARCHITECTURE.md and the promises of the documents.
    Tidy,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    let project = Project::find(cli.project)?;
    match cli.chore {
        Chore::Test(options) => test::run(&project, &options, &mut io::stdout()),
        Chore::Bench(options) => bench::run(&project, &options, &mut io::stdout()),
        Chore::Prove(options) => prove::run(&project, &options, &mut io::stdout()),
        Chore::Pictures => pictures::run(&project, &mut io::stdout()),
        Chore::Tidy => tidy::run(&project.root, &mut io::stdout()).map(drop),
    }
}
