//! `loadgen schema`, `completions` and `man`: the program and its files, described for editors, shells and readers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agent_drive::files::{Outlives, replace};
use clap::CommandFactory as _;
use clap_mangen::Man;
use record::Exit;

use crate::cli::{Cli, Command, CompletionsOptions, ManOptions, SchemaOf, SchemaOptions};
use crate::{Usage, answer, answer_all};

pub(crate) fn schema(options: &SchemaOptions) -> Exit {
    let schema = match options.file {
        SchemaOf::Scenario => scenario::schema(),
        SchemaOf::Result => record::result::schema().to_value(),
    };
    answer_all(format!("{schema:#}\n").as_bytes());
    Exit::Held
}

pub(crate) fn completions(options: &CompletionsOptions) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(
        options.shell,
        &mut Cli::<Command>::command(),
        "loadgen",
        &mut script,
    );
    answer_all(&script);
    Exit::Held
}

pub(crate) fn man(options: &ManOptions) -> Result<Exit, Usage> {
    let mut program = Cli::<Command>::command().disable_help_subcommand(true);
    program.build();
    match &options.folder {
        None => {
            let mut page = Vec::new();
            let rendered = Man::new(program).render(&mut page);
            rendered.expect("a buffer takes whatever is written");
            answer_all(&page);
        }
        Some(folder) => {
            let written = pages(&program, folder).map_err(|error| {
                Usage(format!(
                    "{}: pages cannot be written: {error}",
                    folder.display()
                ))
            })?;
            for page in written {
                answer(&page.display().to_string());
            }
        }
    }
    Ok(Exit::Held)
}

/// Writes a page for the program and one for each of its commands.
fn pages(program: &clap::Command, folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let commands = std::iter::once(program).chain(program.get_subcommands());
    commands
        .map(|command| {
            let man = Man::new(command.clone());
            let mut page = Vec::new();
            man.render(&mut page)?;
            let file = folder.join(man.get_filename());
            replace(&file, 0o666, &page, Outlives::ProgramEnd).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", man.get_filename()))
            })?;
            Ok(file)
        })
        .collect()
}
