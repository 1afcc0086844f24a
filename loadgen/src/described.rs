//! `loadgen schema`, `completions` and `man`: the program and its files, described for editors, shells and readers.

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use record::Exit;
use scenario::shipped::shipped;

use crate::cli::{self, Cli, CompletionsOptions, ManOptions, SchemaOf, SchemaOptions};
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
    let program = Cli::<cli::Command>::command();
    let program = match options.shell {
        // Where a name does not fit, bash offers files; other shells offer either the one or the other.
        Shell::Bash => with_shipped_names(program),
        _ => program,
    };
    answer_all(&command_line::completions(options.shell, program));
    Exit::Held
}

/// The program as if a scenario could only be a shipped one.
fn with_shipped_names(program: Command) -> Command {
    program.mut_subcommands(|command| {
        command.mut_args(|argument| match argument.get_id() == cli::SCENARIO {
            true => {
                let names = shipped().iter().map(|shipped| shipped.name);
                argument.value_parser(PossibleValuesParser::new(names))
            }
            false => argument,
        })
    })
}

pub(crate) fn man(options: &ManOptions) -> Result<Exit, Usage> {
    let program = Cli::<cli::Command>::command();
    match &options.folder {
        None => answer_all(&command_line::page(program)),
        Some(folder) => {
            let written = command_line::write_pages(program, folder).map_err(|error| {
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
