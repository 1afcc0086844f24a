//! Whatever goes wrong: no panic, no loop, and once it is over every agent is where it should be.
//!
//! Each seed is a fleet of its own with troubles of its own.

use std::collections::{BTreeMap, BTreeSet};

use agent_core::pbx::durable::Durable;
use agent_core::time::Monotonic;
use fleet_sim::clock::NodeClock;
use fleet_sim::host::Defect;
use fleet_sim::referee::NAMES;
use fleet_sim::simulation::{Digest, Nodes, Settings, Trouble, Troubles, Wire};
use portal_core::control::{AgentsQuery, OperationStatus};
use protocol::id::ClusterId;
use protocol::pbx::operation::OperationKind;
use record::result::RefereeReport;
use serde_json::{Value, json};

use crate::lab::{Lab, MINUTE_MS, OTHER_KINDS, quirks};
use crate::seeds::{for_each_seed, judged_by, seeds, tell};

/// Nothing goes wrong any more after this minute.
const TROUBLE_MINUTES: u64 = 40;
/// What every agent may need from then on: the longest backoff, the longest word of a portal, what they were at, which may
/// be an upgrade that goes back after 20 minutes.
const PEACE_MINUTES: u64 = 45;

fn settings(seed: u64, wire: Wire) -> Settings {
    let end = Monotonic::from_ms(TROUBLE_MINUTES * MINUTE_MS);
    Settings {
        wire,
        troubles: Troubles::of_seed(seed, end),
        ..Settings::new(seed)
    }
}

/// What is wrong with the agent that the second document of a run names.
const DEFECTS: [Option<Defect>; 5] = [
    None,
    Some(Defect::NeverSyncs),
    Some(Defect::DiesAtStart),
    Some(Defect::DoesNotRun),
    Some(Defect::OtherHash),
];

/// A fleet of one to four nodes, some with wrong clocks, some in a cluster of two or three.
fn nodes(seed: u64) -> Nodes {
    Nodes {
        servers_per_cluster: [1, 1, 3, 2][usize::try_from(seed % 4).unwrap()],
        clock_offset_ms_max: [0, 50_000, 7_200_000][usize::try_from(seed % 3).unwrap()],
        clock_drift_ppm_max: 200,
        quirks: quirks(DEFECTS[usize::try_from(seed / 4 % 5).unwrap()]),
        ..Nodes::new(1 + u32::try_from(seed % 4).unwrap())
    }
}

/// An hour: documents and every kind of operation while things go wrong, and then peace.
fn live_through(seed: u64, wire: Wire) -> Lab {
    let mut lab = Lab::new(settings(seed, wire), &[nodes(seed)]);
    let at = |lab: &mut Lab, minute| lab.run_until_minute(minute).unwrap();
    at(&mut lab, 2 + seed % 3);
    lab.set_document();
    at(&mut lab, 5);
    lab.meddle(seed);
    at(&mut lab, 6);
    lab.operate(OperationKind::SnapshotSave, |_, _| {
        Some(json!({"name": "nightly"}))
    });
    at(&mut lab, 10);
    lab.operate(OperationKind::AgentRotateKey, |_, _| Some(json!({})));
    at(&mut lab, 16);
    lab.operate(OperationKind::ClusterRestore, restore_params);
    lab.set_document();
    lab.meddle(seed + 1);
    at(&mut lab, 24);
    lab.set_document();
    lab.operate(OperationKind::AgentRotateKey, |_, _| Some(json!({})));
    at(&mut lab, 28);
    lab.meddle(seed + 2);
    at(&mut lab, 30);
    lab.operate_other_kinds(seed);
    lab.operate(OperationKind::SnapshotSave, |_, _| {
        Some(json!({"name": "weekly"}))
    });
    at(&mut lab, TROUBLE_MINUTES);
    come_to_peace(&mut lab);
    at(&mut lab, TROUBLE_MINUTES + PEACE_MINUTES);
    lab
}

/// Restores what the cluster saved last.
pub(crate) fn restore_params(lab: &Lab, cluster: &ClusterId) -> Option<Value> {
    let snapshot = lab.snapshot_of(cluster)?;
    Some(json!({"snapshot": snapshot, "source": "local"}))
}

/// Nothing goes wrong any more: a last document, and what somebody would do about agents that are idle, and about a restore
/// that has failed and left k3s stopped (FAIL-3).
pub(crate) fn come_to_peace(lab: &mut Lab) {
    // What was on its way when the last trouble struck has come.
    let now = lab.simulation.now();
    lab.simulation
        .run_until(now.plus_ms(2 * MINUTE_MS))
        .unwrap();
    // Who was told that its identity is revoked asks once when it starts (ANS-4): with a clock that is right, or the one
    // answer is that its clock is not.
    for member in 0..lab.simulation.members() {
        if lab.is_idle(member) {
            let right = NodeClock::right(lab.simulation.settings().started_at);
            lab.simulation.set_clock(member, right);
            lab.simulation.crash(member);
        }
    }
    lab.leave_alone();
    lab.set_last_document();
    lab.operate(OperationKind::ClusterRestore, |lab, cluster| {
        let mut members = lab.members_of(cluster);
        let has_failed = members.any(|member| lab.restore_has_failed(member));
        has_failed.then(|| restore_params(lab, cluster))?
    });
}

/// How the members of a run have ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    pub(crate) well: u32,
    idle: u32,
    stopped: u32,
}

/// No agent was in a loop, and each that is not at rest for a reason is where the portal wants it.
pub(crate) fn check(lab: &Lab) -> Ends {
    let simulation = &lab.simulation;
    let mut ends = Ends::default();
    for member in 0..simulation.members() {
        let seen = simulation.watch(member);
        assert!(
            seen.most_calls <= 20,
            "{} calls in ten seconds",
            seen.most_calls
        );
        let durable = simulation.durable(member);
        if lab.is_idle(member) {
            let told = simulation.troubles(member);
            let has_enrolled = durable.identity.is_some();
            // Who has two keys asks with one of them (ANS-4), and the portal may know the other.
            let has_two_keys = (durable.identity.as_ref()).is_some_and(|it| it.other.is_some());
            assert!(
                has_two_keys || !has_enrolled && told.keys().any(|it| may_end_an_enrollment(*it)),
                "{member} is idle: {:?} after {told:?}",
                durable.idle
            );
            ends.idle += 1;
        } else if seen.k3s_is_stopped && lab.restore_has_failed(member) {
            ends.stopped += 1;
        } else {
            ends_well(lab, member, &durable);
            lab.tell_of_peace(member);
            ends.well += 1;
        }
    }
    let agents = simulation
        .control()
        .agents(&AgentsQuery::default())
        .unwrap()
        .agents;
    let identities =
        (0..simulation.members()).filter_map(|member| simulation.durable(member).identity.clone());
    let identities: BTreeSet<_> = identities.map(|identity| identity.agent_id).collect();
    let known: BTreeSet<_> = agents.iter().map(|agent| agent.id.clone()).collect();
    assert!(identities.is_subset(&known));
    assert!(
        agents.len() <= simulation.members(),
        "a node has two identities"
    );
    for (cluster, operation) in &lab.operations {
        let view = lab.operation(operation);
        let finals = view.events.iter().filter(|event| event.is_final()).count();
        let is_excused = lab.members_of(cluster).any(|member| {
            lab.is_idle(member)
                || (simulation.troubles(member).keys()).any(|trouble| may_end_an_event(*trouble))
        });
        assert!(
            view.ended_at.is_some() || is_excused,
            "{operation} has not ended: {:#?}",
            lab.operations_of(cluster).collect::<Vec<_>>()
        );
        if !is_excused {
            lab.tell_referees(operation, finals as u64);
        }
    }
    let struck = struck(lab);
    for report in lab.reports() {
        let RefereeReport { number, broken, .. } = &report;
        if struck.keys().all(|trouble| is_judge_of(*number, *trouble)) {
            assert_eq!(
                report.breaches, 0,
                "referee {number}: {broken:?}, after {struck:?}"
            );
        }
    }
    ends
}

/// It is enrolled, has the last document, and owes nobody anything.
fn ends_well(lab: &Lab, member: usize, durable: &Durable) {
    let enrollment = &durable.enrollment;
    assert!(
        enrollment.is_none(),
        "{member} still enrolls: {enrollment:?}"
    );
    let reached = durable.in_force && durable.applied_generation == lab.generation;
    assert!(
        reached,
        "{member} has {} in force and not {}: {}",
        durable.applied_generation,
        lab.generation,
        lab.simulation.watch(member).last_report
    );
    let operation = &durable.operation;
    assert!(operation.is_none(), "{member} still works: {operation:?}");
    addons_end_well(lab, member);
    // The result of an operation whose first events a portal has not taken is asked for again and again, in vain.
    let mut troubles = lab.simulation.troubles(member).keys();
    let outbox = &durable.outbox;
    assert!(
        outbox.is_empty() || troubles.any(|trouble| may_end_an_event(*trouble)),
        "{member} still has events: {outbox:?}"
    );
}

/// Its add-ons are what the last document wants, in its report and in the cluster.
fn addons_end_well(lab: &Lab, member: usize) {
    let seen = lab.simulation.watch(member);
    let Some(reported) = &seen.last_addons else {
        return;
    };
    let said = reported.iter().map(|addon| match &addon.message {
        Some(message) => format!("{} {}: {message}", addon.name, addon.state),
        None => format!("{} {}", addon.name, addon.state),
    });
    let said: Vec<String> = said.collect();
    let cluster = lab.simulation.cluster(&seen.cluster).unwrap();
    let mut cluster = cluster.lock().unwrap();
    if let Ok(api) = cluster.addons() {
        let applications = api.applications();
        let there: BTreeSet<String> = api.objects().map(|id| id.clone().into()).collect();
        let wanted = lab.wanted.states(&there, &applications);
        assert_eq!(said, wanted, "{member}: {}", seen.last_report);
        lab.wanted
            .check_objects(&there, &applications, &seen.cluster);
    }
}

/// Whether an agent may take this as the end of its enrollment (ENR-7, ENR-8, ANS-2).
fn may_end_an_enrollment(trouble: Trouble) -> bool {
    match trouble {
        Trouble::Refused(code) => matches!(code.status(), 400 | 401 | 409),
        _ => false,
    }
}

/// Whether an agent may take this as its events' end: a portal that never takes one (ANS-2), or does not know whose they
/// are (OPS-8). What comes after them is beyond a gap then.
fn may_end_an_event(trouble: Trouble) -> bool {
    match trouble {
        Trouble::Refused(code) => matches!(code.status(), 400 | 404),
        _ => false,
    }
}

/// Whether a referee knows of this trouble what it needs to know: 5 not of a revocation that a crash has kept from the
/// disk, 6 not whose task it was that failed, 12 not of a clock that runs through a second twice.
fn is_judge_of(referee: u8, trouble: Trouble) -> bool {
    match referee {
        5 => !matches!(trouble, Trouble::Crash(..) | Trouble::StoreFails),
        6 => trouble != Trouble::TaskFails,
        12 => trouble != Trouble::ClockJumps,
        _ => true,
    }
}

pub(crate) type Struck = BTreeMap<Trouble, u64>;

pub(crate) fn struck(lab: &Lab) -> Struck {
    let mut all = Struck::new();
    for member in 0..lab.simulation.members() {
        for (trouble, times) in lab.simulation.troubles(member) {
            *all.entry(*trouble).or_default() += times;
        }
    }
    all
}

/// What one seed has shown.
struct Life {
    digest: Digest,
    ends: Ends,
    struck: Struck,
    /// How many events each referee has judged.
    judged: BTreeMap<u8, u64>,
}

// case L50: run once more, each seed comes to the same digest.
#[test]
fn whatever_goes_wrong_every_agent_ends_well_and_the_run_can_be_repeated() {
    let seeds = seeds(500);
    let is_whole = seeds.end - seeds.start >= 200;
    let name = "whatever_goes_wrong_every_agent_ends_well_and_the_run_can_be_repeated";
    let lives = for_each_seed(seeds, name, |seed| {
        let lab = live_through(seed, Wire::Typed);
        let digest = lab.simulation.digest();
        let ends = check(&lab);
        // As JSON every other time: that it is the same run again counts as well.
        let wire = if seed % 2 == 0 {
            Wire::Typed
        } else {
            Wire::Json
        };
        let again = live_through(seed, wire).simulation.digest();
        assert_eq!(digest, again, "the same seed is another run over {wire:?}");
        Life {
            digest,
            ends,
            struck: struck(&lab),
            judged: lab
                .reports()
                .iter()
                .map(|report| (report.number, report.judged))
                .collect(),
        }
    });
    let count = |of: fn(&Ends) -> u32| lives.iter().map(|life| of(&life.ends)).sum::<u32>();
    let (well, idle, stopped) = (
        count(|ends| ends.well),
        count(|ends| ends.idle),
        count(|ends| ends.stopped),
    );
    let mut counts: BTreeMap<String, u64> = [
        ("seeds", lives.len() as u64),
        ("agents", u64::from(well + idle + stopped)),
        (
            "troubles",
            lives.iter().flat_map(|life| life.struck.values()).sum(),
        ),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .into();
    for life in &lives {
        for (number, judged) in &life.judged {
            *counts.entry(judged_by(*number)).or_default() += judged;
        }
    }
    tell("small fleets with troubles of every kind", &counts);
    if !is_whole {
        return;
    }
    for trouble in Trouble::all() {
        let times: u64 = lives
            .iter()
            .filter_map(|life| life.struck.get(&trouble))
            .sum();
        assert!(times > 0, "{trouble:?} never happened");
    }
    let digests: BTreeSet<Digest> = lives.iter().map(|life| life.digest).collect();
    assert_eq!(digests.len(), lives.len(), "two seeds gave one run");
    for (number, name) in NAMES {
        let judged = counts.get(&judged_by(*number)).copied().unwrap_or(0);
        assert!(judged > 0, "referee {number} has judged nothing: {name}");
    }
    assert!(
        idle > 0 && well > 3 * (idle + stopped),
        "{well} end well, {idle} idle, {stopped} with a k3s that a failed restore has stopped"
    );
}

#[test]
fn signed_and_verified_byte_for_byte_it_is_the_same_run() {
    let name = "signed_and_verified_byte_for_byte_it_is_the_same_run";
    for_each_seed(seeds(10), name, |seed| {
        let typed = live_through(seed, Wire::Typed);
        let signed = live_through(seed, Wire::Signed);
        assert_eq!(typed.simulation.digest(), signed.simulation.digest());
    });
}

#[test]
fn where_nothing_goes_wrong_everything_succeeds() {
    let mut lab = Lab::new(Settings::new(1), &[Nodes::new(5)]);
    lab.run_until_minute(2).unwrap();
    lab.set_document();
    lab.run_until_minute(5).unwrap();
    lab.operate(OperationKind::SnapshotSave, |_, _| {
        Some(json!({"name": "nightly"}))
    });
    lab.operate(OperationKind::AgentRotateKey, |_, _| Some(json!({})));
    lab.run_until_minute(10).unwrap();
    lab.operate(OperationKind::ClusterRestore, |lab, cluster| {
        Some(json!({"snapshot": lab.snapshot_of(cluster)?, "source": "local"}))
    });
    lab.run_until_minute(20).unwrap();
    for round in 0..OTHER_KINDS {
        lab.operate_other_kinds(round);
    }
    lab.run_until_minute(90).unwrap();
    check(&lab);
    for (_, operation) in &lab.operations {
        let view = lab.operation(operation);
        // Alone, there is no other server to join, and no other node to forget.
        let is_expected = match view.kind {
            OperationKind::ServerRejoin => view.state == OperationStatus::Failed,
            OperationKind::NodeForget => view.state != OperationStatus::Failed,
            OperationKind::ClusterUpgrade => {
                let last = view.events.last().and_then(|last| last.message.as_deref());
                view.state == OperationStatus::Succeeded
                    || last.is_some_and(|why| why.ends_with("runs already"))
            }
            _ => view.state == OperationStatus::Succeeded,
        };
        assert!(is_expected, "{view:?}");
        // A node that reboots may not have heard that its events are stored.
        let may_repeat = view.kind == OperationKind::ClusterUpgrade;
        assert!(may_repeat || view.repeats == 0, "{view:?}");
        assert_eq!((view.different_repeats, view.beyond_a_gap), (0, 0));
    }
    assert!(struck(&lab).is_empty());
    for member in 0..5 {
        let seen = lab.simulation.watch(member);
        // An hour and a half of syncs each 25 to 35 s apart, and a few other calls.
        assert!((150..400).contains(&seen.calls), "{} calls", seen.calls);
        assert!(seen.boots > 1, "an upgrade boots a node");
        // Each boot after the first may have cut off one call.
        let unheard = seen.calls - seen.answers;
        assert!(
            unheard < seen.boots,
            "{unheard} unheard, {} boots",
            seen.boots
        );
    }
}

// rule SYNC-5
#[test]
fn sync_5_k3s_is_restarted_for_a_drop_in_once_the_window_is_open() {
    let mut lab = Lab::new(Settings::new(1), &[Nodes::new(3)]);
    lab.run_until_minute(2).unwrap();
    lab.set_document();
    // The window opens in the 17th minute.
    for (minute, pending) in [
        (16, "restart_pending: true"),
        (22, "restart_pending: false"),
    ] {
        lab.run_until_minute(minute).unwrap();
        for member in 0..3 {
            let report = &lab.simulation.watch(member).last_report;
            assert!(report.contains(pending), "minute {minute}: {report}");
        }
    }
    check(&lab);
    let judged = |number| {
        lab.reports()
            .iter()
            .find(|it| it.number == number)
            .unwrap()
            .judged
    };
    assert!(judged(8) > 0);
}
