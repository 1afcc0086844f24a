//! `loadgen explain`: what a scenario would do and what it would take, before anything runs.
//!
//! What is told about files, ports, memory and processors is what `loadgen run` tells before it starts, weighed against this machine;
//! what is foreseen comes from `fleet`. A machine that is too small is told and is no error here.

use fleet::forecast::Forecast;
use fleet::preflight::{Fit, Need, Split, fit, offer};
use record::judgement::{Quantity, grouped};
use record::{Exit, Micros};
use scenario::{Host, RefereeNumber, Referees, Scenario};
use serde_json::{Value, json};

use crate::check::counted;
use crate::cli::CheckOptions;
use crate::read::scenario;
use crate::{Usage, answer};

pub(crate) fn explain(options: &CheckOptions) -> Result<Exit, Usage> {
    let scenario = match scenario(&options.scenario) {
        Ok(scenario) => scenario,
        Err(none) if options.json => {
            answer(&none.to_json(&options.scenario.scenario).to_string());
            return Ok(Exit::Usage);
        }
        Err(none) => return Err(none.into()),
    };
    let forecast = Forecast::of(&scenario);
    let need = Need {
        agents: forecast.agents,
        clusters: forecast.clusters,
        syncs_a_second: forecast.syncs_per_second,
        embedded: true,
        loopback: true,
        split: Split::AsNeeded,
    };
    let fit = fit(need, offer());
    match options.json {
        true => answer(&in_json(&scenario, &forecast, &fit).to_string()),
        false => in_words(&scenario, &forecast, &fit)
            .iter()
            .for_each(|line| answer(line)),
    }
    Ok(Exit::Held)
}

fn in_json(scenario: &Scenario, forecast: &Forecast, fit: &Fit) -> Value {
    let timeline = scenario.timeline.iter();
    json!({
        "scenario": scenario.name,
        "about": scenario.about,
        "seed": scenario.seed,
        "duration_seconds": scenario.duration.as_secs_f64(),
        "window": scenario.window(),
        "forecast": forecast,
        "preflight": { "told": fit.told, "missing": fit.missing, "processes": fit.sources.len() },
        "timeline": timeline
            .map(|entry| json!({ "at_seconds": entry.at.as_secs_f64(), "what": entry.action.text() }))
            .collect::<Vec<_>>(),
        "expectations": expected(scenario),
        "referees": referees(scenario)
            .map(|(referee, name)| json!({ "number": referee.get(), "name": name }))
            .collect::<Vec<_>>(),
        "referees_not_owed": not_owed(scenario)
            .map(|(referee, name)| json!({ "number": referee.get(), "name": name, "needs": referee.needs() }))
            .collect::<Vec<_>>(),
        "no_data_ahead": scenario.without_data(Host::Embedded),
        "ends": ends(scenario)
            .map(|(exit, why)| json!({ "exit_code": exit.code(), "when": why }))
            .collect::<Vec<_>>(),
    })
}

fn in_words(scenario: &Scenario, forecast: &Forecast, fit: &Fit) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", scenario.name, scenario.about)];
    let mut part = |heading: &str, told: Vec<String>| {
        if !told.is_empty() {
            lines.push(String::new());
            lines.push(heading.to_owned());
            lines.extend(told.into_iter().map(|line| format!("  {line}")));
        }
    };
    part("Agents", agents(scenario, forecast));
    part("Load", load(scenario, forecast));
    let missing = fit.missing.iter().map(|what| format!("missing: {what}"));
    let machine: Vec<String> = fit.told.iter().cloned().chain(missing).collect();
    part("This machine, with the mock portal on it", machine);
    let timeline = scenario.timeline.iter().map(|entry| {
        let at = Micros::from(entry.at).to_string();
        format!("{at:<11} {}", entry.action.text())
    });
    part("Time line", timeline.collect());
    part("Expected", expected(scenario));
    let referees = referees(scenario).map(|(referee, name)| format!("{:<2} {name}", referee.get()));
    part(
        "Referees that must have had something to judge",
        referees.collect(),
    );
    if scenario.referees == Referees::Default {
        let not_owed = not_owed(scenario).map(|(referee, name)| {
            let (number, needs) = (referee.get(), referee.needs());
            format!("{number:<2} {name}: needs {needs}")
        });
        part("Referees that watch, and are not owed", not_owed.collect());
    }
    part("NO_DATA ahead", scenario.without_data(Host::Embedded));
    let ends = ends(scenario).map(|(exit, why)| format!("{:<3} {why}", exit.code()));
    part("Exit code", ends.collect());
    lines
}

fn agents(scenario: &Scenario, forecast: &Forecast) -> Vec<String> {
    let all = format!(
        "{} in {}, all chance from seed {}",
        counted(forecast.agents, "agent"),
        counted(forecast.clusters, "cluster"),
        scenario.seed
    );
    let populations = forecast.populations.iter().map(|population| {
        format!(
            "{}: {}, {} a cluster, a sync every {:.1} s",
            population.name,
            counted(population.agents, "agent"),
            counted(population.servers_per_cluster, "server"),
            population.sync_interval_seconds
        )
    });
    std::iter::once(all).chain(populations).collect()
}

fn load(scenario: &Scenario, forecast: &Forecast) -> Vec<String> {
    let a_second = |rate: f64| Quantity::PerSecond(rate).to_string();
    let arrival = &forecast.arrival;
    let window = scenario.window();
    vec![
        format!(
            "{} long, judged from {} to {}",
            Micros::from(scenario.duration),
            window.from,
            window.until
        ),
        format!(
            "agents begin within {}: at most {} in a second, first at {}",
            Micros((arrival.seconds * 1e6) as u64),
            grouped(arrival.peak_per_second),
            Micros::from_seconds(arrival.peak_at_second)
        ),
        format!(
            "while they begin, at most about {}: first calls, and syncs of those that are there",
            a_second(forecast.arrival_calls_per_second)
        ),
        format!(
            "once all are there, {} syncs; operations add calls as their steps come",
            a_second(forecast.syncs_per_second)
        ),
    ]
}

fn expected(scenario: &Scenario) -> Vec<String> {
    let texts = scenario.expect.iter().map(|expectation| {
        let mut text = expectation.expected.text();
        if expectation.allow_empty {
            text.push_str(", if there is anything to judge");
        }
        text
    });
    texts.collect()
}

/// The referees that a run owes.
fn referees(scenario: &Scenario) -> impl Iterator<Item = (RefereeNumber, &'static str)> {
    let owed = scenario.owed(Host::Embedded);
    named().filter(move |(referee, _)| owed.contains(referee))
}

/// The others.
fn not_owed(scenario: &Scenario) -> impl Iterator<Item = (RefereeNumber, &'static str)> {
    let owed = scenario.owed(Host::Embedded);
    named().filter(move |(referee, _)| !owed.contains(referee))
}

/// Every referee, and what it watches over.
fn named() -> impl Iterator<Item = (RefereeNumber, &'static str)> {
    let names = fleet::forecast::REFEREES.iter();
    names.filter_map(|(number, name)| Some((RefereeNumber::new(*number)?, *name)))
}

/// What ends it with which code, in the order in which they count.
fn ends(scenario: &Scenario) -> impl Iterator<Item = (Exit, String)> {
    let limits = &scenario.generator;
    let rows = [
        (Exit::Interrupted, "interrupted".to_owned()),
        (
            Exit::Preflight,
            "this machine is too small, or the portal never answers".to_owned(),
        ),
        (
            Exit::Broken,
            "accounting does not add up, a referee saw a breach, or an identity is there twice"
                .to_owned(),
        ),
        (
            Exit::Overloaded,
            format!(
                "1 % of the requests start more than {} late, or more than {} never",
                Micros::from(limits.lateness_p99_at_most),
                limits.dropped_share_at_most
            ),
        ),
        (Exit::NotHeld, "an expectation does not hold".to_owned()),
        (
            Exit::NothingToJudge,
            "an expectation, or a referee that is owed, had nothing to judge".to_owned(),
        ),
        (
            Exit::Held,
            format!(
                "what is expected holds: {}",
                counted(scenario.expect.len() as u64, "expectation")
            ),
        ),
    ];
    rows.into_iter()
}
