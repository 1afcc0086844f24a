//! Mixed fleets: fifty agents in clusters of one, two and three servers, six hours long, every kind of operation, and
//! whatever goes wrong meanwhile. All referees judge, and none of them may have had nothing to judge.

use std::collections::BTreeMap;

use agent_core::time::Monotonic;
use fleet_sim::referee::NAMES;
use fleet_sim::simulation::{Nodes, Settings, Troubles, Wire};
use protocol::pbx::operation::OperationKind;
use serde_json::json;

use crate::lab::{Lab, MINUTE_MS};
use crate::property::{check, come_to_peace, restore_params, struck};
use crate::seeds::{for_each_seed, judged_by, seeds, tell};

/// Nothing goes wrong any more after this minute.
const TROUBLE_MINUTES: u64 = 330;
/// Six hours are over.
const END_MINUTES: u64 = 360;
/// Something is asked of every cluster so often.
const ROUND_MINUTES: u64 = 15;

fn populations(seed: u64) -> [Nodes; 3] {
    let of = |name, count, servers_per_cluster| Nodes {
        name,
        servers_per_cluster,
        arrival_ms: 10 * MINUTE_MS,
        clock_offset_ms_max: [0, 50_000, 7_200_000][usize::try_from(seed % 3).unwrap()],
        clock_drift_ppm_max: 200,
        ..Nodes::new(count)
    };
    [of("one", 20, 1), of("two", 18, 2), of("three", 12, 3)]
}

fn live_through(seed: u64) -> Lab {
    let settings = Settings {
        wire: Wire::Typed,
        troubles: Troubles::of_seed(seed, Monotonic::from_ms(TROUBLE_MINUTES * MINUTE_MS)),
        ..Settings::new(seed)
    };
    let mut lab = Lab::new(settings, &populations(seed));
    let rounds = (TROUBLE_MINUTES - 2 * ROUND_MINUTES) / ROUND_MINUTES;
    for round in 0..rounds {
        lab.run_until_minute((round + 1) * ROUND_MINUTES).unwrap();
        // Another order of the same for each seed.
        match (seed + round) % 5 {
            0 => lab.set_document(),
            1 => lab.operate(OperationKind::SnapshotSave, |_, _| {
                Some(json!({"name": "nightly"}))
            }),
            2 => lab.operate(OperationKind::AgentRotateKey, |_, _| Some(json!({}))),
            3 => lab.operate(OperationKind::ClusterRestore, restore_params),
            _ => lab.operate_other_kinds(seed + 2 * (round / 5)),
        }
    }
    lab.run_until_minute(TROUBLE_MINUTES).unwrap();
    come_to_peace(&mut lab);
    lab.run_until_minute(END_MINUTES).unwrap();
    lab
}

#[test]
fn fifty_agents_of_mixed_clusters_live_through_six_hours_of_trouble() {
    let name = "fifty_agents_of_mixed_clusters_live_through_six_hours_of_trouble";
    let lives = for_each_seed(seeds(50), name, |seed| {
        let lab = live_through(seed);
        let ends = check(&lab);
        let mut counts = BTreeMap::from([
            ("seeds".to_owned(), 1),
            ("agents".to_owned(), lab.simulation.members() as u64),
            ("agents that end well".to_owned(), u64::from(ends.well)),
            ("operations".to_owned(), lab.operations.len() as u64),
            ("troubles".to_owned(), struck(&lab).values().sum()),
        ]);
        for report in lab.reports() {
            counts.insert(judged_by(report.number), report.judged);
        }
        counts
    });
    let runs = lives.len();
    let mut sums = BTreeMap::new();
    for (name, count) in lives.into_iter().flatten() {
        *sums.entry(name).or_insert(0) += count;
    }
    tell("fifty agents of mixed clusters, six hours", &sums);
    for (number, name) in NAMES.iter().filter(|_| runs >= 50) {
        let judged = sums.get(&judged_by(*number)).copied().unwrap_or(0);
        assert!(judged > 0, "referee {number} has judged nothing: {name}");
    }
}
