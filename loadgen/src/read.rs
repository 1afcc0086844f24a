//! From what is written on the command line to a scenario: a file, or a shipped one's name.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use scenario::scenario::BYTES_MAX;
use scenario::{Mistakes, Overrides, Scenario, shipped};
use serde_json::{Value, json};

use crate::Usage;
use crate::cli::ScenarioOptions;

/// Whatever is wrong with it, for a person.
impl From<NoScenario> for Usage {
    fn from(none: NoScenario) -> Self {
        Usage(match none {
            NoScenario::Unreadable(why) => why,
            NoScenario::Mistakes(mistakes) => mistakes.to_string(),
        })
    }
}

impl NoScenario {
    /// For programs: a list of what is wrong, as [`Mistakes::to_json`] has it.
    pub(crate) fn to_json(&self, file: &str) -> Value {
        match self {
            Self::Mistakes(mistakes) => mistakes.to_json(),
            Self::Unreadable(why) => {
                json!([{ "file": file, "key": "", "what": why, "suggestion": null }])
            }
        }
    }
}

/// Why there is no scenario.
pub(crate) enum NoScenario {
    /// There is no text to read.
    Unreadable(String),
    /// The text has mistakes.
    Mistakes(Mistakes),
}

/// Reads the scenario and sets what the command line says otherwise.
pub(crate) fn scenario(options: &ScenarioOptions) -> Result<Scenario, NoScenario> {
    let overrides = Overrides {
        agents: options.agents,
        duration: options.duration.clone(),
        seed: options.seed,
    };
    let text = text(&options.scenario).map_err(NoScenario::Unreadable)?;
    Scenario::parse_with(&options.scenario, &text, overrides).map_err(NoScenario::Mistakes)
}

/// What looks like a file is one; anything else may be a shipped scenario's name.
fn text(name: &str) -> Result<String, String> {
    let path = Path::new(name);
    let names_a_file = name.contains(['/', '\\']) || name.ends_with(".toml") || path.exists();
    match names_a_file {
        true => file(path).map_err(|why| format!("{name}: {why}")),
        false => shipped::find(name).map(|shipped| shipped.text.to_owned()),
    }
}

pub(crate) fn unreadable(error: io::Error) -> String {
    format!("it cannot be read: {error}")
}

/// Opens what has an end: a file, or a pipe that is open already. A pipe with a name waits for somebody to write to it, and
/// devices go on for ever.
pub(crate) fn open(path: &Path, expected: &str) -> Result<File, String> {
    let kind = fs::metadata(path).map_err(unreadable)?.file_type();
    let is_open = OPEN_ALREADY.iter().any(|open| path.starts_with(open));
    let other = match kind {
        _ if kind.is_file() || kind.is_fifo() && is_open => {
            return File::open(path).map_err(unreadable);
        }
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a named pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(format!(
        "it is {other}; expected {expected}, or a pipe as /dev/stdin or <(…)"
    ))
}

/// Where a process has the files that it was started with.
const OPEN_ALREADY: [&str; 3] = ["/dev/stdin", "/dev/fd", "/proc/self/fd"];

fn file(path: &Path) -> Result<String, String> {
    // No more than a scenario may have is read, whatever the file's size is said to be.
    let mut bytes = Vec::new();
    let file = open(path, "a scenario file")?;
    let most = BYTES_MAX as u64 + 1;
    file.take(most)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() > BYTES_MAX {
        return Err(format!(
            "it is larger than {} KiB; expected a scenario file",
            BYTES_MAX / 1024
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("it is no UTF-8 from byte {at} on; expected a scenario file")
    })
}
