//! The agent's own update on a node, whatever becomes of it and wherever a crash comes (UPD-1 to UPD-5).

use std::collections::BTreeMap;

use agent_core::pbx::durable::BanReason;
use fleet_sim::disk::InFlight;
use fleet_sim::host::{Defect, Fall, Leftover};
use fleet_sim::simulation::{Blow, Moment, Nodes, Settings, Site};

use crate::lab::{Lab, quirks};
use crate::seeds::tell;

/// A node that runs agent 1.4.0; the next document names 1.6.0, which may have a defect.
fn lab(defect: Option<Defect>) -> Lab {
    let nodes = Nodes {
        quirks: quirks(defect),
        ..Nodes::new(1)
    };
    let mut lab = Lab::new(Settings::new(11), &[nodes]);
    lab.run_until_minute(2).unwrap();
    lab.set_document();
    lab.run_until_minute(4).unwrap();
    lab
}

/// Half an hour later a program runs that is to stay, the node's record says so, and no timer waits: its version.
fn ends(lab: &mut Lab, case: &str) -> String {
    lab.run_until_minute(45).unwrap();
    let durable = lab.simulation.durable(0);
    let host = lab.simulation.host(0);
    assert_eq!(durable.update, None, "{case}");
    assert_eq!(host.rolls_back_at(), None, "{case}");
    assert!(durable.in_force, "{case}");
    let report = &lab.simulation.watch(0).last_report;
    let running = host.agent_version().to_string();
    assert!(report.contains(&running), "{case}: {report}");
    running
}

// rules UPD-1, UPD-2, UPD-3
#[test]
fn upd_3_a_new_program_that_does_not_do_well_is_put_back() {
    // What is wrong, which agent runs in the end, and why the other is left alone.
    let rows = [
        (None, "1.6.0", None),
        (
            Some(Defect::NeverSyncs),
            "1.4.0",
            Some(BanReason::RolledBack),
        ),
        (
            Some(Defect::DiesAtStart),
            "1.4.0",
            Some(BanReason::RolledBack),
        ),
        (
            Some(Defect::DoesNotRun),
            "1.4.0",
            Some(BanReason::DoesNotRun),
        ),
        (Some(Defect::OtherHash), "1.4.0", None),
    ];
    for (defect, runs, why) in rows {
        let mut lab = lab(defect);
        lab.set_document();
        if defect == Some(Defect::OtherHash) {
            // It is fetched again and again, and nothing is held up by it.
            lab.run_until_minute(45).unwrap();
            let durable = lab.simulation.durable(0);
            assert!(durable.in_force && durable.applied_generation == lab.generation);
            assert_eq!(lab.simulation.host(0).agent_version().as_str(), runs);
            continue;
        }
        let case = format!("{defect:?}");
        assert_eq!(ends(&mut lab, &case), runs, "{case}");
        let durable = lab.simulation.durable(0);
        assert_eq!(
            durable.bans.first().map(|ban| ban.reason.clone()),
            why,
            "{case}"
        );
        let says = format!("rolled_back_from: Some({:?})", "1.6.0");
        let report = &lab.simulation.watch(0).last_report;
        let was_put_back = why == Some(BanReason::RolledBack);
        assert_eq!(
            report.contains("rolled_back_from: Some"),
            was_put_back,
            "{case}: {says}"
        );
    }
}

// rule UPD-5: a crash at every point leaves a program that starts, and the timer still decides.
#[test]
fn upd_5_a_crash_at_every_point_of_an_update_leaves_a_program_that_starts() {
    let mut points = 0_u64;
    for defect in [None, Some(Defect::NeverSyncs), Some(Defect::DiesAtStart)] {
        for site in [Site::Task, Site::Store, Site::Call] {
            for moment in [Moment::Before, Moment::Inside, Moment::After] {
                for fall in [Fall::Program, Fall::Power] {
                    for (effects, write) in [
                        (0, InFlight::Lost),
                        (1, InFlight::Kept),
                        (2, InFlight::Lost),
                    ] {
                        // Only inside is something left half done.
                        if moment != Moment::Inside && effects > 0 {
                            continue;
                        }
                        for passes in 0.. {
                            let mut lab = lab(defect);
                            lab.set_document();
                            lab.simulation.blow(
                                0,
                                Blow {
                                    site,
                                    passes,
                                    moment,
                                    leaves: Leftover { effects, fall },
                                    write,
                                },
                            );
                            lab.run_until_minute(6).unwrap();
                            if lab.simulation.has_blow(0) {
                                break;
                            }
                            points += 1;
                            let case = format!(
                                "{defect:?}: {moment:?} {site:?} {passes}, {fall:?}, {effects} effects, {write:?}"
                            );
                            let runs = ends(&mut lab, &case);
                            let expected = if defect.is_none() { "1.6.0" } else { "1.4.0" };
                            assert_eq!(runs, expected, "{case}");
                        }
                    }
                }
            }
        }
    }
    let counts = BTreeMap::from([("points".to_owned(), points)]);
    tell("a crash at every point of the agent's own update", &counts);
    assert!(points > 150, "{points} points");
}
