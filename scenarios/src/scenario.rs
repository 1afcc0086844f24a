//! The valid scenario, and how one is made: written, merged with the command line, checked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use record::micros::{Micros, Window};

use crate::expect::Expectation;
use crate::form::leaf::{Count, LONGEST, Positive, Span, duration_text, read_duration};
use crate::form::{At, Reader, Slot, Written, syntax};
use crate::mistake::{Found, Mistakes, Origin, Suggestion};
use crate::population::{AGENTS_MAX, Population, check_arrival, shared_out};
use crate::portal::PortalSpec;
use crate::referees::{RefereeNumber, Referees};
use crate::share::Share;
use crate::timeline::TimelineEntry;
use crate::written;

pub use crate::form::syntax::BYTES_MAX;

/// A scenario that needs no further check.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it shows, in a sentence; may be empty.
    pub about: String,
    /// Where all chance comes from.
    pub seed: u64,
    /// How long it runs.
    pub duration: Duration,
    /// How long from its start nothing is judged, but for counts and the fleet's figures. Shorter than `duration`.
    pub warm_up: Duration,
    /// Who the agents are; at least one population.
    pub populations: Vec<Population>,
    /// The portal that the run starts itself.
    pub portal: PortalSpec,
    /// What happens when, in the order of time.
    pub timeline: Vec<TimelineEntry>,
    /// What is expected; at least one thing.
    pub expect: Vec<Expectation>,
    /// The referees that it owes.
    pub referees: Referees,
    /// What the generator itself must keep.
    pub generator: GeneratorLimits,
    /// Its text without the secrets in it: what may be kept in a result. Reads as the same scenario but for them.
    pub text: String,
    /// What the command line set otherwise.
    pub overrides: Overrides,
}

/// What the generator itself must keep, or the run is overloaded and nothing is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeneratorLimits {
    /// How late 99 % of the requests inside the window may be started.
    pub lateness_p99_at_most: Duration,
    /// Which share of what is due over the whole run may be left undone.
    pub dropped_share_at_most: Share,
}

/// What the command line says otherwise than the file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Overrides {
    /// `--agents`: agents of all populations together; each keeps its share.
    pub agents: Option<u64>,
    /// `--duration`, as it was given.
    pub duration: Option<String>,
    /// `--seed`.
    pub seed: Option<u64>,
}

impl Default for GeneratorLimits {
    fn default() -> Self {
        GeneratorLimits {
            lateness_p99_at_most: Duration::from_millis(100),
            dropped_share_at_most: Share::new(0.001).unwrap_or(Share::NONE),
        }
    }
}

impl Overrides {
    /// What was given, option by option: what a result keeps.
    pub fn given(&self) -> BTreeMap<String, String> {
        let agents = self.agents.map(|agents| (AGENTS, agents.to_string()));
        let duration = self.duration.clone().map(|duration| (DURATION, duration));
        let seed = self.seed.map(|seed| (SEED, seed.to_string()));
        [agents, duration, seed]
            .into_iter()
            .flatten()
            .map(|(option, value)| (option.to_owned(), value))
            .collect()
    }
}

const AGENTS: &str = "--agents";
const DURATION: &str = "--duration";
const SEED: &str = "--seed";

/// The JSON Schema of a scenario file, for editors.
pub fn schema() -> Value {
    let mut schema = written::Scenario::schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Scenario".into();
    schema
}

impl Scenario {
    /// Reads a scenario. `file` is what the mistakes call it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(file: &str, text: &str) -> Result<Self, Mistakes> {
        Self::parse_with(file, text, Overrides::default())
    }

    /// Reads a scenario and sets what the command line says otherwise.
    ///
    /// # Errors
    /// Everything that is wrong with either.
    pub fn parse_with(file: &str, text: &str, overrides: Overrides) -> Result<Self, Mistakes> {
        let mut reader = Reader::default();
        let scenario = syntax::with_tree(text, &mut reader, |node, reader| {
            let mut written = written::Scenario::read(node, reader)?;
            merge(&mut written, &overrides, reader);
            Scenario::from_written(written, reader)
        });
        match scenario {
            Some(mut scenario) if reader.found.is_empty() => {
                scenario.text = without_secrets(text, reader.secrets);
                scenario.overrides = overrides;
                Ok(scenario)
            }
            _ => {
                if reader.found.is_empty() {
                    reader.found.push(Found {
                        origin: Origin::File(0..0),
                        key: String::new(),
                        what: "cannot be used, and this program cannot say why: please report it"
                            .to_owned(),
                        suggestion: None,
                    });
                }
                Err(Mistakes::new(file, text, reader.found))
            }
        }
    }

    /// How many agents it has.
    pub fn agents(&self) -> u64 {
        self.populations
            .iter()
            .map(|population| population.count)
            .sum()
    }

    /// The part of the run that is judged.
    pub fn window(&self) -> Window {
        Window {
            from: Micros::from(self.warm_up),
            until: Micros::from(self.duration),
        }
    }

    fn from_written(written: written::Scenario, reader: &mut Reader) -> Option<Self> {
        let duration = written.duration.good().map(|at| At {
            value: at.value.0,
            path: at.path.clone(),
            origin: at.origin.clone(),
        });
        let warm_up = written.warm_up.good();
        if let (Some(warm_up), Some(duration)) = (warm_up, written.duration.good())
            && warm_up.value.0 >= duration.value.0
        {
            // The one that was set last is the one to change.
            let at = match duration.origin {
                Origin::Option(_) => duration.place(),
                Origin::File(_) => warm_up.place(),
            };
            let what = format!(
                "leaves nothing to judge: the warm-up is {}, the run {}",
                duration_text(warm_up.value.0),
                duration_text(duration.value.0)
            );
            reader.unfit(&at, what, None);
        }

        let populations = populations(written.population, duration.as_ref(), reader);
        let names: Vec<String> = populations
            .iter()
            .flatten()
            .map(|population| population.name.clone())
            .collect();
        let portal = match written.portal.optional() {
            Some(None) => Some(PortalSpec::default()),
            Some(Some(portal)) => PortalSpec::from_written(portal),
            None => None,
        };
        let timeline = match written.timeline.optional() {
            Some(entries) => {
                let entries = entries.unwrap_or_default();
                timeline(entries, duration.as_ref(), &names, reader)
            }
            None => None,
        };
        let expect = expectations(written.expect, reader);
        let referees = match written.referees.optional() {
            Some(None) => Some(Referees::Default),
            Some(Some(numbers)) => Some(Referees::Named(
                numbers
                    .into_iter()
                    .filter_map(|at| RefereeNumber::new(u8::try_from(at.value.get()).ok()?))
                    .collect(),
            )),
            None => None,
        };
        let generator = match written.generator.optional() {
            Some(None) => Some(GeneratorLimits::default()),
            Some(Some(limits)) => generator(limits),
            None => None,
        };

        Some(Scenario {
            name: written.name.value()?.0,
            about: written.about.or(String::new())?,
            seed: written.seed.or(Count(1))?.get(),
            duration: duration?.value,
            warm_up: written.warm_up.or(Span(Duration::ZERO))?.0,
            populations: populations?,
            portal: portal?,
            timeline: timeline?,
            expect: expect?,
            referees: referees?,
            generator: generator?,
            text: String::new(),
            overrides: Overrides::default(),
        })
    }
}

/// Puts what the command line says over what is written; tells what is wrong with it under the option's name.
fn merge(written: &mut written::Scenario, overrides: &Overrides, reader: &mut Reader) {
    if let Some(seed) = overrides.seed {
        match i64::try_from(seed) {
            Ok(seed) => written.seed = given(SEED, Count(seed)),
            Err(_) => told(reader, SEED, format!("{seed} is more than {}", i64::MAX)),
        }
    }
    if let Some(text) = &overrides.duration {
        match read_duration(text) {
            Ok(Duration::ZERO) => told(reader, DURATION, "must be longer than zero".to_owned()),
            Ok(duration) if duration > LONGEST => {
                told(reader, DURATION, "is longer than 31 days".to_owned());
            }
            Ok(duration) => written.duration = given(DURATION, Positive(duration)),
            Err(why) => {
                let text = crate::mistake::shown(text);
                reader.found.push(Found {
                    origin: Origin::Option(DURATION),
                    key: String::new(),
                    what: format!("`{text}` is no duration: {why}"),
                    suggestion: Some(Suggestion::Write(
                        "it with its unit, as 90s or 1h30m".to_owned(),
                    )),
                });
            }
        }
    }
    if let Some(agents) = overrides.agents {
        merge_agents(written, agents, reader);
    }
}

fn merge_agents(written: &mut written::Scenario, agents: u64, reader: &mut Reader) {
    if agents == 0 || agents > AGENTS_MAX {
        let what = format!("{agents} is not from 1 to {AGENTS_MAX}");
        return told(reader, AGENTS, what);
    }
    let Slot::Good(populations) = &mut written.population else {
        return;
    };
    let counts: Option<Vec<u64>> = populations
        .value
        .iter()
        .map(|population| Some(population.value.count.good()?.value.get()))
        .collect();
    // With a count that is wrong itself there is nothing to share out by.
    let Some(counts) = counts else {
        return;
    };
    if agents < counts.len() as u64 {
        let what = format!(
            "{agents} agents are too few for {} populations",
            counts.len()
        );
        return told(reader, AGENTS, what);
    }
    let total: u64 = counts.iter().sum();
    let shares: Vec<Share> = counts
        .iter()
        .map(|count| Share::new(*count as f64 / total as f64).unwrap_or(Share::ALL))
        .collect();
    // Each population keeps one agent at least, or it would be another scenario.
    let spare = shared_out(&shares, agents - counts.len() as u64);
    for (population, spare) in populations.value.iter_mut().zip(spare) {
        let count = i64::try_from(spare + 1).unwrap_or(i64::MAX);
        population.value.count = given(AGENTS, Count(count));
    }
}

fn given<T>(option: &'static str, value: T) -> Slot<T> {
    Slot::Good(At {
        value,
        path: String::new(),
        origin: Origin::Option(option),
    })
}

fn told(reader: &mut Reader, option: &'static str, what: String) {
    reader.found.push(Found {
        origin: Origin::Option(option),
        key: String::new(),
        what,
        suggestion: None,
    });
}

fn populations(
    written: Slot<Vec<At<written::Population>>>,
    duration: Option<&At<Duration>>,
    reader: &mut Reader,
) -> Option<Vec<Population>> {
    let Slot::Good(written) = written else {
        return None;
    };
    if written.value.is_empty() {
        reader.unfit(&written.place(), "is empty: a scenario has agents", None);
        return None;
    }
    let mut names = BTreeSet::new();
    let mut total = 0;
    let mut populations = Some(Vec::new());
    for at in written.value {
        let here = at.place();
        if let Some(name) = at.value.name.good()
            && !names.insert(name.value.clone())
        {
            let what = format!("there are two populations `{}`", name.value.0);
            reader.unfit(name, what, None);
        }
        match (
            Population::from_written(at.value, &here, reader),
            &mut populations,
        ) {
            (Some(population), Some(populations)) => {
                if let Some(duration) = duration {
                    check_arrival(&population, duration, &here, reader);
                }
                let before = total;
                total += population.count;
                if total > AGENTS_MAX && before <= AGENTS_MAX {
                    let what = format!("makes it {total} agents together, more than {AGENTS_MAX}");
                    reader.unfit(&here, what, None);
                }
                populations.push(population);
            }
            (None, _) => populations = None,
            (Some(_), None) => {}
        }
    }
    populations
}

fn timeline(
    written: Vec<At<written::Entry>>,
    duration: Option<&At<Duration>>,
    populations: &[String],
    reader: &mut Reader,
) -> Option<Vec<TimelineEntry>> {
    let mut entries = Some(Vec::new());
    for at in written {
        TimelineEntry::check(&at.value, duration, populations, reader);
        match (TimelineEntry::from_written(at.value, reader), &mut entries) {
            (Some(entry), Some(entries)) => entries.push(entry),
            (None, _) => entries = None,
            (Some(_), None) => {}
        }
    }
    if let Some(entries) = &mut entries {
        // Stable: what is written first happens first at the same moment.
        entries.sort_by_key(|entry| entry.at);
    }
    entries
}

fn expectations(
    written: Slot<Vec<At<written::Expect>>>,
    reader: &mut Reader,
) -> Option<Vec<Expectation>> {
    let Slot::Good(written) = written else {
        return None;
    };
    if written.value.is_empty() {
        let what = "is empty: without an expectation there is nothing to judge";
        reader.unfit(&written.place(), what, None);
        return None;
    }
    let mut expectations = Some(Vec::new());
    for at in written.value {
        let here = at.place();
        match (
            Expectation::from_written(at.value, &here, reader),
            &mut expectations,
        ) {
            (Some(expectation), Some(expectations)) => expectations.push(expectation),
            (None, _) => expectations = None,
            (Some(_), None) => {}
        }
    }
    expectations
}

fn generator(written: written::Generator) -> Option<GeneratorLimits> {
    let usual = GeneratorLimits::default();
    Some(GeneratorLimits {
        lateness_p99_at_most: written
            .lateness_p99_at_most
            .or(Positive(usual.lateness_p99_at_most))?
            .0,
        dropped_share_at_most: written
            .dropped_share_at_most
            .or(usual.dropped_share_at_most)?,
    })
}

/// The text with every secret replaced. What stands in its place is a string too, so it reads as the same scenario.
fn without_secrets(text: &str, mut secrets: Vec<std::ops::Range<usize>>) -> String {
    secrets.sort_by_key(|span| span.start);
    let mut copy = String::with_capacity(text.len());
    let mut at = 0;
    for span in secrets {
        if span.start < at {
            continue;
        }
        copy.push_str(&text[at..span.start]);
        copy.push_str("\"redacted\"");
        at = span.end;
    }
    copy.push_str(&text[at..]);
    copy
}
