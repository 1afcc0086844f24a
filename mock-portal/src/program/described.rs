//! `mock-portal completions` and `man`: the program, described for shells and readers.

use anyhow::Context as _;
use clap::CommandFactory as _;

use super::cli::{Cli, Completions, ManPages};
use super::{Failure, answer_all};

pub(super) fn completions(options: &Completions) -> Result<(), Failure> {
    let script = command_line::completions(options.shell, Cli::command());
    Ok(answer_all(&script)?)
}

pub(super) fn man(options: &ManPages) -> Result<(), Failure> {
    let Some(folder) = &options.folder else {
        return Ok(answer_all(&command_line::page(Cli::command()))?);
    };
    let files = command_line::write_pages(Cli::command(), folder)
        .with_context(|| format!("{}: pages cannot be written", folder.display()))?;
    let lines: String = files
        .iter()
        .map(|file| format!("{}\n", file.display()))
        .collect();
    Ok(answer_all(lines.as_bytes())?)
}
