//! What a scenario is going to do, before anything runs: who comes when, and how many calls that makes. What it takes of
//! its machine is for [`preflight`](crate::preflight) to say.
//!
//! Everything here follows from the scenario and from the numbers of the agents' behaviour. What depends on the portal is
//! left out: how long its answers take, and the calls that operations bring as their steps come.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_core::limits::Limits;
use scenario::{Population, Scenario};
use serde::Serialize;

/// The referees, by number: what each watches over.
pub use fleet_sim::referee::NAMES as REFEREES;

/// Calls of an agent that begins: it enrolls and syncs.
const FIRST_CALLS: f64 = 2.0;
/// A document has a manifest, which each agent asks for once.
const MANIFEST_CALLS: f64 = 1.0;

/// What a scenario is going to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// Agents, all populations together.
    pub agents: u64,
    /// Clusters that they are in.
    pub clusters: u64,
    /// Each population.
    pub populations: Vec<PopulationForecast>,
    /// How they begin.
    pub arrival: ArrivalForecast,
    /// Syncs a second once all have begun and nothing goes wrong.
    pub syncs_per_second: f64,
    /// Calls a second in the busiest second of the arrival, if agents are up as they begin: who syncs already, and the
    /// first calls of whoever begins.
    pub arrival_calls_per_second: f64,
}

/// One population.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PopulationForecast {
    /// Its name.
    pub name: String,
    /// Its agents.
    pub agents: u64,
    /// Servers in a cluster; the last one may have fewer.
    pub servers_per_cluster: u64,
    /// Its clusters.
    pub clusters: u64,
    /// The mean time between two syncs of an agent, in seconds.
    pub sync_interval_seconds: f64,
    /// How long until all of its agents have begun, in seconds.
    pub arrival_seconds: f64,
}

/// How agents begin: all populations together, second by second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArrivalForecast {
    /// How long until all have begun, in seconds.
    pub seconds: f64,
    /// The most that begin in one second.
    pub peak_per_second: u64,
    /// The first second in which so many do.
    pub peak_at_second: u64,
}

impl Forecast {
    /// What this scenario is going to do.
    pub fn of(scenario: &Scenario) -> Self {
        let mut begins: BTreeMap<u64, Second> = BTreeMap::new();
        for population in &scenario.populations {
            let syncs = syncs_per_second(population, 1);
            for index in 0..population.count {
                let second = begins
                    .entry(population.start_of(index).as_secs())
                    .or_default();
                second.agents += 1;
                second.syncs += syncs;
            }
        }
        let manifest = match scenario.portal.document {
            Some(_) => MANIFEST_CALLS,
            None => 0.0,
        };
        let mut syncing = 0.0;
        let mut arrival = ArrivalForecast {
            seconds: longest(scenario).as_secs_f64(),
            peak_per_second: 0,
            peak_at_second: 0,
        };
        let mut arrival_calls_per_second = 0.0;
        for (at, second) in &begins {
            if second.agents > arrival.peak_per_second {
                arrival.peak_per_second = second.agents;
                arrival.peak_at_second = *at;
            }
            let first = second.agents as f64 * (FIRST_CALLS + manifest);
            arrival_calls_per_second = f64::max(arrival_calls_per_second, syncing + first);
            syncing += second.syncs;
        }
        Forecast {
            agents: scenario.agents(),
            clusters: scenario.populations.iter().map(Population::clusters).sum(),
            populations: scenario.populations.iter().map(of_population).collect(),
            arrival,
            syncs_per_second: syncing,
            arrival_calls_per_second,
        }
    }
}

/// What begins in a second.
#[derive(Debug, Default)]
struct Second {
    agents: u64,
    /// Syncs a second that these will make.
    syncs: f64,
}

fn of_population(population: &Population) -> PopulationForecast {
    PopulationForecast {
        name: population.name.clone(),
        agents: population.count,
        servers_per_cluster: population.servers_per_cluster,
        clusters: population.clusters(),
        sync_interval_seconds: sync_interval(population).as_secs_f64(),
        arrival_seconds: population.arrival.length().as_secs_f64(),
    }
}

/// The jitter goes to either side, so it is not in the mean.
fn sync_interval(population: &Population) -> Duration {
    let limits = Limits::REAL.scaled(population.tempo);
    Duration::from_millis(limits.sync_interval_ms)
}

fn syncs_per_second(population: &Population, agents: u64) -> f64 {
    let interval = sync_interval(population).max(Duration::from_millis(1));
    agents as f64 / interval.as_secs_f64()
}

/// How long until everybody has begun.
pub(crate) fn longest(scenario: &Scenario) -> Duration {
    let lengths = scenario.populations.iter().map(|p| p.arrival.length());
    lengths.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(arrival: &str, document: bool) -> Forecast {
        let document = match document {
            true => include_str!("../../../scenarios/two-servers.toml")
                .split_once("[portal.document]")
                .and_then(|(_, rest)| rest.split_once("[[timeline]]"))
                .map(|(document, _)| format!("[portal.document]{document}"))
                .unwrap(),
            false => String::new(),
        };
        let text = format!(
            "name = \"some\"\nduration = \"60s\"\n\
             [[population]]\nname = \"fast\"\ncount = 300\ntempo = 0.1\nservers_per_cluster = 2\n{arrival}\n\
             [[population]]\nname = \"slow\"\ncount = 60\n\
             {document}\n[[expect]]\nenrolled = {{ exactly = \"all\" }}\n"
        );
        Forecast::of(&Scenario::parse("some", &text).unwrap_or_else(|e| panic!("{e}")))
    }

    #[test]
    fn syncs_follow_from_agents_and_their_intervals() {
        let forecast = forecast("", false);
        assert_eq!((forecast.agents, forecast.clusters), (360, 150 + 60));
        // 300 every 3 s, 60 every 30 s.
        assert_eq!(forecast.syncs_per_second.round(), 102.0);
        assert_eq!(forecast.populations[0].sync_interval_seconds, 3.0);
    }

    #[test]
    fn the_busiest_second_of_an_arrival_is_found() {
        // The arrival of the first population; how many begin when, at most; calls in that second.
        let rows = [
            ("", 360, 0, 720.0),
            ("arrival = { ramp = { over = \"30s\" } }", 70, 0, 140.0),
            (
                "arrival = { stages = [{ count = 100, over = \"10s\" }, { count = 200, over = \"2s\" }] }",
                100,
                10,
                // In the second after it, when the first 200 sync already.
                269.0,
            ),
        ];
        for (arrival, peak, at, calls) in rows {
            let forecast = forecast(arrival, false);
            let seen = &forecast.arrival;
            assert_eq!(
                (seen.peak_per_second, seen.peak_at_second),
                (peak, at),
                "{arrival}"
            );
            assert_eq!(
                forecast.arrival_calls_per_second.round(),
                calls,
                "{arrival}"
            );
        }
        assert_eq!(forecast("", true).arrival_calls_per_second, 3.0 * 360.0);
    }
}
