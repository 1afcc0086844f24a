//! What the programs say of themselves, made from the declaration of their command lines: help, completions, manual
//! pages. And how whatever they say comes to standard output: all of it, or it is an error.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Roff, roman};

/// What `clap` ends with.
const USAGE: u8 = 2;

/// Reads the command line of this process. `unwritten` is the exit code where help cannot be written.
///
/// # Errors
/// There is nothing left to do but to end with this code: help was asked for, or a mistake was told.
pub fn parse<P: Parser>(unwritten: u8) -> Result<P, ExitCode> {
    P::try_parse().map_err(|error| ExitCode::from(said::<P>(&error, unwritten)))
}

/// Says what `clap` has to say: help on standard output, mistakes on standard error.
fn said<P: Parser>(error: &clap::Error, unwritten: u8) -> u8 {
    // Nothing is left to tell when stderr is gone.
    if error.use_stderr() {
        let _ = match missing_command::<P>(error) {
            Some(mut command) => writeln!(io::stderr(), "{}", command.render_help()),
            None => error.print(),
        };
        return USAGE;
    }
    match error.print().and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "{}", Unwritten(&error));
            unwritten
        }
        Ok(()) | Err(_) => 0,
    }
}

/// The command that was called without one of its own, if that is the mistake: its help says more than the list of all
/// names, which has those in it that nobody is to call.
fn missing_command<P: Parser>(error: &clap::Error) -> Option<Command> {
    if error.kind() != ErrorKind::MissingSubcommand {
        return None;
    }
    let mut program = P::command();
    program.build();
    let Some(ContextValue::String(called)) = error.get(ContextKind::InvalidSubcommand) else {
        return Some(program);
    };
    let mut names = called.split(' ').skip(1);
    names.try_fold(program, |command, name| {
        command.find_subcommand(name).cloned()
    })
}

/// Standard output that cannot be written, as a person is told it.
#[derive(Debug, Clone, Copy)]
pub struct Unwritten<'a>(pub &'a io::Error);

impl std::fmt::Display for Unwritten<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "standard output cannot be written: {}", self.0)
    }
}

/// Writes to standard output, all of it and now. A reader that has gone has read enough.
///
/// # Errors
/// It cannot be written.
pub fn print(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// What a shell needs to complete commands and options.
pub fn completions(shell: Shell, mut program: Command) -> Vec<u8> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, name, &mut script);
    script
}

/// The manual page of the program.
pub fn page(program: Command) -> Vec<u8> {
    rendered(&built(program))
}

/// Writes a manual page for the program and one for each command that people call into a folder; gives their files.
///
/// # Errors
/// The folder or a file cannot be written.
pub fn write_pages(program: Command, folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let mut files = Vec::new();
    let mut commands = vec![built(program)];
    while let Some(command) = commands.pop() {
        let file = folder.join(Man::new(command.clone()).get_filename());
        fs::write(&file, rendered(&command)).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", file.display()))
        })?;
        files.push(file);
        let below = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set());
        commands.extend(below.cloned());
    }
    files.sort_unstable();
    Ok(files)
}

fn built(program: Command) -> Command {
    // A page about `help` says nothing that a page does not.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    program
}

/// `clap_mangen`'s page, and what follows the help: as sections, in lines as they are written.
fn rendered(command: &Command) -> Vec<u8> {
    let more = command.get_after_help().map(ToString::to_string);
    let bare = command.clone().after_help(Resettable::Reset);
    let mut page = Vec::new();
    let written = Man::new(bare)
        .render(&mut page)
        .and_then(|()| sections(&more.unwrap_or_default()).to_writer(&mut page));
    written.expect("a buffer takes whatever is written");
    page
}

/// What follows the help: headings, paragraphs, and lines that stay lines because they are indented.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut is_verbatim = false;
    for line in text.lines() {
        let heading = match line {
            "Examples:" => Some("EXAMPLES"),
            "Exit codes:" => Some("EXIT STATUS"),
            _ => None,
        };
        let is_indented = line.starts_with(' ');
        if std::mem::replace(&mut is_verbatim, is_indented) != is_indented {
            roff.control(if is_indented { "nf" } else { "fi" }, []);
        }
        match heading {
            Some(heading) => roff.control("SH", [heading]),
            None if line.is_empty() => roff.control("PP", []),
            None => roff.text([roman(line)]),
        };
    }
    if is_verbatim {
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{Args, CommandFactory as _, Subcommand};

    use super::*;

    /// Does things.
    #[derive(Debug, Parser)]
    #[command(name = "doer", after_help = AFTER)]
    struct Doer {
        #[command(subcommand)]
        command: Deed,
        /// A word that the environment says as well, so that something always is said.
        #[arg(long, global = true, env = "PATH")]
        path: Option<String>,
    }

    #[derive(Debug, Subcommand)]
    enum Deed {
        /// Does it.
        Do(Options),
        /// Does several things.
        #[command(subcommand)]
        Several(Several),
        #[command(hide = true)]
        Secretly,
    }

    #[derive(Debug, Subcommand)]
    enum Several {
        /// The first.
        First,
    }

    #[derive(Debug, Args)]
    struct Options {
        /// How often.
        #[arg(long, env = "DOER_TIMES", default_value_t = 1)]
        times: u64,
    }

    const AFTER: &str = "\
Examples:
  doer do
  doer do --times 7    seven times

Exit codes:
  0  done
  1  not done
Nothing else.";

    fn parsed(arguments: &[&str]) -> clap::Error {
        let arguments = arguments.iter().map(OsString::from);
        Doer::try_parse_from(arguments).unwrap_err()
    }

    #[test]
    fn who_says_too_little_gets_help_without_what_is_hidden() {
        for (arguments, lists) in [(&["doer"][..], "several"), (&["doer", "several"], "first")] {
            let error = parsed(arguments);
            // Nested commands ask for help by themselves where nothing else is said.
            let help = match missing_command::<Doer>(&error) {
                Some(mut command) => command.render_help().to_string(),
                None => error.to_string(),
            };
            assert!(help.contains(lists), "{help}");
            assert!(help.contains("Usage: doer"), "{help}");
            assert!(!help.contains("secretly"), "{help}");
            assert!(error.use_stderr());
        }
        assert!(missing_command::<Doer>(&parsed(&["doer", "dance"])).is_none());
    }

    #[test]
    fn a_page_has_the_environment_and_its_lines() {
        let page = String::from_utf8(page(Doer::command())).unwrap();
        for part in [
            "\n.TH doer 1",
            "\\fBPATH\\fR environment variable",
            "\n.SH EXAMPLES\n.nf\n  doer do\n  doer do \\-\\-times 7    seven times\n.fi\n",
            "\n.SH \"EXIT STATUS\"\n.nf\n  0  done\n  1  not done\n.fi\nNothing else.\n",
        ] {
            assert!(page.contains(part), "{part:?} is not in {page}");
        }
        assert!(!page.contains("secretly"), "{page}");
    }

    #[test]
    fn completions_are_of_what_people_call() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(shell, Doer::command());
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("doer") && script.contains("several"));
        }
    }
}
