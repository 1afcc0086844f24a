//! `loadgen list`: the scenarios that come with the program, as their files describe them.

use record::judgement::grouped;
use record::{Exit, Micros};
use scenario::{Scenario, shipped};
use serde::Serialize;

use crate::answer;
use crate::cli::ListOptions;

/// A scenario in a line.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    agents: u64,
    duration_seconds: f64,
    about: String,
}

pub(crate) fn list(options: &ListOptions) -> Exit {
    let listed: Vec<Listed> = shipped::shipped()
        .iter()
        .map(|shipped| {
            let scenario = Scenario::parse(shipped.name, shipped.text)
                .expect("every shipped scenario is read by a test");
            Listed {
                agents: scenario.agents(),
                name: scenario.name,
                duration_seconds: scenario.duration.as_secs_f64(),
                about: scenario.about,
            }
        })
        .collect();
    if options.json {
        answer(&serde_json::json!(listed).to_string());
        return Exit::Held;
    }
    let width = listed.iter().map(|one| one.name.len()).max().unwrap_or(0);
    for one in &listed {
        let duration = Micros((one.duration_seconds * 1e6) as u64).to_string();
        let agents = grouped(one.agents);
        answer(&format!(
            "{:<width$}  {agents:>6} agents  {duration:<11}  {}",
            one.name, one.about
        ));
    }
    Exit::Held
}
