//! A fleet's day in virtual time, to see how long it takes: `day [agents] [hours]`.

use std::time::Duration;

use agent_core::port::Unwatched;
use agent_core::time::Monotonic;
use fleet_sim::simulation::{Nodes, Settings, Simulation};
use portal_core::control::DesiredInput;
use protocol::id::ClusterId;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u32>());
    let agents = numbers.next().transpose()?.unwrap_or(1_000);
    let hours = numbers.next().transpose()?.unwrap_or(24);
    let settings = Settings::new(1);
    let portal = settings.portal();
    let mut simulation = Simulation::new(settings, portal);
    let mut clusters: Vec<ClusterId> = Vec::new();
    Nodes::new(agents).join(&mut simulation, |_, member| {
        clusters.push(member.facts.config.cluster_id.clone());
        Unwatched
    })?;
    simulation.run_until(minutes(2))?;
    let document: DesiredInput = serde_json::from_str(DOCUMENT)?;
    for cluster in &clusters {
        simulation
            .control()
            .set_desired(cluster, document.clone())?;
    }
    simulation.run_until(minutes(60 * u64::from(hours)))?;
    let answered: u64 = (simulation.control().counters().answers.iter())
        .map(|line| line.count)
        .sum();
    #[expect(clippy::print_stdout, reason = "what the example is for")]
    {
        println!(
            "{agents} agents, {hours} h: {answered} answers, digest {}",
            simulation.digest()
        );
    }
    Ok(())
}

fn minutes(count: u64) -> Monotonic {
    Monotonic::default() + Duration::from_secs(60 * count)
}

/// The example of the protocol, with four secrets, and two more add-ons without.
const DOCUMENT: &str = r#"{
    "release": "2026.11.1",
    "agent_version": "1.4.0",
    "host": {"snapshot_schedule": "0 */6 * * *", "snapshot_retention": 14, "ingress_mode": "bundled"},
    "maintenance_window": {
        "days": ["sun"], "start": "02:00", "duration_minutes": 120, "time_zone": "Europe/Berlin"
    },
    "secrets": {
        "hcloud_token": "hcloud-token",
        "s3": {"endpoint": "https://fsn1.example", "region": "fsn1", "bucket": "snapshots", "folder": "day",
               "access_key": "access-key", "secret_key": "secret-key"}
    },
    "addons": [
        {"name": "cert-manager", "enabled": true, "options": {"replicas": 2},
         "secret_options": {"acme_key": "acme-key"}},
        {"name": "external-dns", "enabled": true, "options": {"replicas": 2}},
        {"name": "metrics", "enabled": true, "options": {"resolution_seconds": 30}}
    ]
}"#;
