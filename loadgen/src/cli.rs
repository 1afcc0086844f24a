//! What can be written on the command line; every option is also an environment variable.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use fleet::foreign::TokenSource;

/// Runs fleets of real agents against a portal, and gives one verdict.
#[derive(Debug, Parser)]
#[command(name = "loadgen", version, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Cli<C: Subcommand> {
    /// What to do.
    #[command(subcommand)]
    pub command: C,
    /// What to log to stderr: a level, or target=level,… What agents note is counted; agent_drive=info tells each.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        default_value = "error,agent_drive=off",
        env = "LOADGEN_LOG"
    )]
    pub log: String,
    /// How to log.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        env = "LOADGEN_LOG_FORMAT"
    )]
    pub log_format: LogFormat,
    #[command(flatten)]
    pub terminal: TerminalOptions,
}

/// What the terminal is like.
#[derive(Debug, Args)]
pub(crate) struct TerminalOptions {
    /// No colours; in the environment any word means that, an empty one nothing.
    #[arg(
        long,
        global = true,
        value_name = "WORD",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        env = "NO_COLOR"
    )]
    pub no_color: Option<String>,
    /// The kind of terminal; one that is dumb, or none, has neither colours nor a live screen.
    #[arg(long, global = true, value_name = "KIND", env = "TERM")]
    pub term: Option<String>,
}

impl TerminalOptions {
    /// Whether it can only take lines of text.
    pub(crate) fn is_dumb(&self) -> bool {
        let kind = self.term.as_deref();
        kind.is_none_or(|kind| kind.is_empty() || kind == "dumb")
    }

    /// Whether colours are wanted and can be had.
    pub(crate) fn has_colors(&self) -> bool {
        !self.is_dumb() && self.no_color.as_deref().is_none_or(str::is_empty)
    }
}

// Lines that fit into 80 columns, since they are not wrapped by words that belong together.
const EXAMPLES: &str = "\
Examples:
  loadgen run steady                        1,000 agents, and a mock portal
  loadgen run steady --agents 100 --seed 7  fewer, and other ones
  loadgen run my.toml --portal https://portal.example --tokens tokens.jsonl \\
    --i-own-this-target                     a portal of your own
  loadgen list                              the scenarios that there are
  loadgen explain steady                    what that would do
  loadgen check my.toml                     every mistake in it at once
  loadgen view out/result.json              a run that is over, once more";

const EXIT_CODES: &str = "\
Exit codes:
  0    what was expected held
  1    it did not
  2    usage or scenario error
  3    the generator could not keep up, so nothing is judged
  4    the preflight failed, or the portal never answered
  5    nothing to judge
  6    an invariant broke: accounting, a referee, two agents with one identity
  130  interrupted, with the report so far
When several hold, the first of 130, 2, 4, 6, 3, 1, 5.";

const RUN_EXAMPLES: &str = "\
Examples:
  loadgen run steady --agents 100 --out out
  loadgen run my.toml --duration 10m --screen off
  loadgen run my.toml --portal https://portal.example --tokens tokens.jsonl \\
    --i-own-this-target";

const CHECK_EXAMPLES: &str = "\
Examples:
  loadgen check my.toml
  loadgen check my.toml --agents 100000 --json";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  loadgen explain steady
  loadgen explain my.toml --agents 10000 --duration 1h
  loadgen explain steady --json | jq .forecast.syncs_per_second";

const LIST_EXAMPLES: &str = "\
Examples:
  loadgen list
  loadgen list --json | jq -r '.[].name'";

const SCHEMA_EXAMPLES: &str = "\
Examples:
  loadgen schema scenario > scenario.json   then `#:schema ./scenario.json` as
                                            the first line of a scenario
  loadgen schema result";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  loadgen completions bash > ~/.local/share/bash-completion/completions/loadgen
  loadgen completions zsh > ~/.zfunc/_loadgen
  loadgen completions fish > ~/.config/fish/completions/loadgen.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  loadgen man | man -l -
  loadgen man ~/.local/share/man/man1";

const VIEW_EXAMPLES: &str = "\
Examples:
  loadgen view out/result.json     on the screen, paused at the end; Space plays it
  loadgen view out --screen off    in plain lines, the verdict last
  ssh lab cat out/result.json | loadgen view /dev/stdin

The file is a regular one, or a pipe that is open already: /dev/stdin, <(…).

Exit codes:
  0    the file could be read, whatever the verdict was
  2    it could not, or it contradicts itself
  130  interrupted";

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Whether there is a screen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScreenChoice {
    /// Where stdout and stderr are terminals.
    #[default]
    Auto,
    /// Where stderr is a terminal.
    On,
    /// Nowhere: plain lines.
    Off,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a scenario and gives its verdict.
    #[command(after_help = format!("{RUN_EXAMPLES}\n\n{EXIT_CODES}"))]
    Run(RunOptions),
    /// Reads a scenario and tells everything that is wrong with it.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckOptions),
    /// Tells what a scenario would do and what it would take; nothing is run.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(CheckOptions),
    /// Lists the scenarios that come with the program.
    #[command(after_help = LIST_EXAMPLES)]
    List(ListOptions),
    /// Shows a run that is over: replays it in the terminal, or tells it in plain lines.
    #[command(after_help = VIEW_EXAMPLES)]
    View(ViewOptions),
    /// Prints the JSON Schema of a file: for editors, and for programs that read results.
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema(SchemaOptions),
    /// Prints what a shell needs to complete commands and options.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsOptions),
    /// Prints the manual page, or writes one for each command into a folder.
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManOptions),
}

/// What the program can be called for: what people call it for, and what a run does.
#[derive(Debug, Subcommand)]
pub(crate) enum Called {
    #[command(flatten)]
    ByPeople(Box<Command>),
    /// Is a part of a run that is split into processes; the run starts it, and speaks with it by standard input and output.
    #[command(hide = true)]
    Worker(WorkerOptions),
}

/// Options of `loadgen worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerOptions {
    /// Which part.
    #[arg(value_enum)]
    pub part: WorkerPart,
}

/// A part of a run that has a process of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkerPart {
    /// The agents of a shard.
    Agents,
    /// The portal of a shard.
    Portal,
}

/// Options of `loadgen view`.
#[derive(Debug, Args)]
pub(crate) struct ViewOptions {
    /// The result.json of a run, or the folder that it is in.
    #[arg(value_name = "FILE|DIR")]
    pub result: PathBuf,
    #[command(flatten)]
    pub screen: ScreenOptions,
}

/// The argument that names a scenario.
pub(crate) const SCENARIO: &str = "scenario";

/// What a scenario is read from, and what is set otherwise.
#[derive(Debug, Args)]
pub(crate) struct ScenarioOptions {
    /// A scenario file, or the name of a shipped scenario.
    #[arg(value_name = "FILE|NAME")]
    pub scenario: String,
    /// Agents, all populations together; each keeps its share.
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        env = "LOADGEN_AGENTS"
    )]
    pub agents: Option<u64>,
    /// How long the run is: 90s, 1h30m.
    #[arg(
        long,
        value_name = "D",
        allow_hyphen_values = true,
        env = "LOADGEN_DURATION"
    )]
    pub duration: Option<String>,
    /// Where all chance comes from.
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        env = "LOADGEN_SEED"
    )]
    pub seed: Option<u64>,
}

/// Options of `loadgen run`.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub scenario: ScenarioOptions,
    /// Base URL of a portal to run against; without, a mock portal is started for the run. Its certificate must be one
    /// that the machine trusts; SSL_CERT_FILE names a private authority.
    #[arg(long, value_name = "URL", env = "LOADGEN_PORTAL")]
    pub portal: Option<String>,
    /// Tokens to enroll with at that portal, as JSON lines: a file, cmd:COMMAND, or http:… A command has no input and no
    /// terminal to ask at; it ends with the run.
    #[arg(
        long,
        value_name = "FILE|cmd:…|http:…",
        requires = "portal",
        env = "LOADGEN_TOKENS"
    )]
    pub tokens: Option<TokenSource>,
    /// Where identities are kept: agents that have one here take it up again, whatever the seed and without a token; the
    /// others put theirs there. Whoever has a file of it is that agent.
    #[arg(
        long,
        value_name = "DIR",
        requires = "portal",
        env = "LOADGEN_IDENTITIES"
    )]
    pub identities: Option<PathBuf>,
    /// Public keys that this portal's releases are signed with: one or two lines of base64, or a mock portal's ready line;
    /// without, every document is rejected.
    #[arg(
        long,
        value_name = "FILE",
        requires = "portal",
        env = "LOADGEN_RELEASE_KEY"
    )]
    pub release_key: Option<PathBuf>,
    /// Says that a portal beyond this machine is yours to load.
    #[arg(
        long,
        requires = "portal",
        env = "LOADGEN_I_OWN_THIS_TARGET",
        value_parser = yes_or_no()
    )]
    pub i_own_this_target: bool,
    /// Processes that the agents are split into; without, one process where it may have files enough for all connections,
    /// and else as many as it takes. Clusters stay whole, and without --portal each process has a mock portal to itself.
    #[arg(
        long,
        value_name = "N",
        env = "LOADGEN_SHARDS",
        value_parser = clap::value_parser!(u64).range(1..=fleet::preflight::SHARDS_MAX)
    )]
    pub shards: Option<u64>,
    /// Where result.json goes; without, a folder of its own under loadgen-results.
    #[arg(long, value_name = "DIR", env = "LOADGEN_OUT")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub screen: ScreenOptions,
    /// Lets the live screen panic in this second of the run, so that a test sees what becomes of the terminal.
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "SECOND", hide = true)]
    pub screen_breaks_at: Option<u64>,
}

/// The screen.
#[derive(Debug, Args)]
pub(crate) struct ScreenOptions {
    /// A screen in the terminal.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        env = "LOADGEN_SCREEN"
    )]
    pub screen: ScreenChoice,
    /// Nothing but ASCII on the screen.
    #[arg(long, env = "LOADGEN_ASCII", value_parser = yes_or_no())]
    pub ascii: bool,
}

/// A flag as the environment says it: 1 or 0, yes or no, true or false, on or off.
fn yes_or_no() -> BoolishValueParser {
    BoolishValueParser::new()
}

/// Options of `loadgen check` and `loadgen explain`.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    pub scenario: ScenarioOptions,
    /// The answer as JSON, mistakes too.
    #[arg(long, env = "LOADGEN_JSON", value_parser = yes_or_no())]
    pub json: bool,
}

/// Options of `loadgen list`.
#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// The list as JSON.
    #[arg(long, env = "LOADGEN_JSON", value_parser = yes_or_no())]
    pub json: bool,
}

/// Options of `loadgen schema`.
#[derive(Debug, Args)]
pub(crate) struct SchemaOptions {
    /// Which file.
    #[arg(value_enum)]
    pub file: SchemaOf,
}

/// What has a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOf {
    /// A scenario.
    Scenario,
    /// The result of a run.
    Result,
}

/// Options of `loadgen completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsOptions {
    /// Which shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Options of `loadgen man`.
#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// Where the pages go, one for each command; without, the main one goes to stdout.
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}
