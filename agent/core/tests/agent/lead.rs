//! Who leads: the Lease as one agent sees it, with a node's real numbers (SYNC-6).

use std::sync::Arc;

use agent_core::limits::Limits;
use agent_core::machine::{Evidence, Machine as _, WakeReason};
use agent_core::note::Note;
use agent_core::pbx::lease::{LeaseCall, Servers};
use agent_core::time::Monotonic;
use protocol::pbx::operation::SnapshotSource;

use crate::operate::{restore, save};
use crate::world::LeaseTrouble::{AnswerLost, Fine, Lost};
use crate::world::{START_MS, World, api_down, document, enrolled, facts, healthy};

/// An enrolled agent whose Lease is renewed as a node's.
pub(crate) fn real() -> World {
    let mut facts = facts();
    facts.limits = Arc::new(Limits::REAL);
    World::with_facts(enrolled(), facts, 1)
}

/// An enrolled agent that looks at the Lease as often as a node's; one that nobody renews lasts for years.
pub(crate) fn looking() -> World {
    let mut facts = facts();
    facts.limits = Arc::new(Limits {
        lease_retry_ms: Limits::REAL.lease_retry_ms,
        lease_alone_ms: Limits::REAL.lease_alone_ms,
        ..Limits::clone(&facts.limits)
    });
    World::with_facts(enrolled(), facts, 1)
}

impl World {
    /// Lives until so many seconds after its start.
    fn live_until(&mut self, second: u64) {
        let end = Monotonic::from_ms(second * 1_000);
        loop {
            self.settle();
            if self.out_endpoint().is_some() {
                self.answer_well();
                continue;
            }
            match self.agent.poll_wake() {
                Some(wake) if wake.at <= end => self.wait_for(wake),
                _ => break,
            }
        }
        let ms = end.since(self.now.monotonic).as_millis();
        self.pass_ms(u64::try_from(ms).unwrap());
        self.tell(agent_core::machine::Input::Tick);
    }

    fn holder(&self) -> &str {
        self.node.lease.as_ref().map_or("", |lease| &lease.holder)
    }

    /// Whether it leads at this moment, as it has noted.
    fn leads(&mut self) -> bool {
        self.tell(agent_core::machine::Input::Tick);
        let mut notes = self.notes.iter().rev();
        notes
            .find_map(|note| match note {
                Note::Leadership { leads } => Some(*leads),
                _ => None,
            })
            .unwrap_or(false)
    }

    /// Whether it says so in its next report.
    fn reports_that_it_leads(&mut self) -> bool {
        let leads = self.sync().report().leader;
        self.answer_well();
        leads
    }
}

// rule SYNC-6: alone it leads at once, and holds and renews the Lease all the same.
#[test]
fn sync_6_alone_it_leads_at_once_and_renews_the_lease() {
    let mut world = real();
    world.settle();
    assert!(world.holder().starts_with("agt_1_"), "{}", world.holder());
    assert!(world.reports_that_it_leads());
    let calls = world.node.lease_calls.len();
    let second = world.now.monotonic.as_ms() / 1_000;
    world.live_until(second + 600);
    let renewals = &world.node.lease_calls[calls..];
    assert!((10..=12).contains(&renewals.len()), "{}", renewals.len());
    assert!(
        renewals
            .iter()
            .all(|call| matches!(call, LeaseCall::Write { over: Some(_), .. }))
    );
    // Another server has joined, and may take over: it is renewed as often as it is looked at.
    world.node.servers = Servers::Several;
    world.live_until(second + 700);
    let calls = world.node.lease_calls.len();
    world.live_until(second + 1_300);
    let renewals = world.node.lease_calls.len() - calls;
    assert!((20..=24).contains(&renewals), "{renewals}");
    world.node.servers = Servers::OnlyThis;
    // Another life of the same agent, alone: the one before is over.
    let before = world.holder().to_owned();
    world.crash();
    world.settle();
    assert_ne!(world.holder(), before);
    assert!(world.leads());
}

// rule SYNC-6: taken only after it was seen unchanged for as long as it lasts, by this agent's own monotonic clock.
#[test]
fn sync_6_another_takes_the_lease_only_once_it_was_seen_unchanged_for_as_long_as_it_lasts() {
    // Whether there is a Lease at all, and what is written in it of the time: nobody reads that.
    for renewed_at_ms in [None, Some(0), Some(START_MS), Some(START_MS * 2)] {
        let mut world = real();
        world.node.servers = Servers::Several;
        if let Some(ms) = renewed_at_ms {
            let renewed_at = protocol::time::Timestamp::from_unix_ms(ms);
            world.node.write_lease("agt_2_0000000000000001", renewed_at);
        }
        world.live_until(1 + 137);
        assert!(
            !world.holder().starts_with("agt_1"),
            "{renewed_at_ms:?}: too early"
        );
        assert!(!world.leads());
        world.live_until(1 + 137 + 3 * 26);
        assert!(world.holder().starts_with("agt_1"), "{renewed_at_ms:?}");
        assert!(world.leads());
    }
}

#[test]
fn sync_6_a_lease_that_is_renewed_is_never_taken() {
    let mut world = real();
    world.node.another_leads();
    for turn in 1..40 {
        world.live_until(turn * 60);
        // By a clock that stands still.
        world.node.another_leads();
    }
    assert_eq!(world.holder(), "agt_2_0000000000000001");
    assert!(!world.leads());
    assert!(
        world
            .node
            .lease_calls
            .iter()
            .all(|call| *call == LeaseCall::Read)
    );
}

// rule SYNC-6: a holder stops before anybody may take the Lease, however little it hears.
#[test]
fn sync_6_a_holder_leads_for_the_deadline_after_its_last_renewal_began_and_no_longer() {
    let mut world = real();
    world.node.servers = Servers::Several;
    world.live_until(300);
    assert!(world.leads());
    let held = world.node.lease_calls.len();
    world.node.lease_troubles.extend([Lost; 100]);
    let silent_since = world.now.monotonic;
    let mut last_led = silent_since;
    while world.leads() {
        last_led = world.now.monotonic;
        let second = last_led.as_ms() / 1_000;
        world.live_until(second + 1);
        assert!(second < 500);
    }
    assert!(world.node.lease_calls.len() > held);
    let led = last_led.since(silent_since).as_secs();
    assert!(led <= 107, "it led for {led} s");
    // It is heard again, and nobody else has written.
    world.node.lease_troubles.clear();
    world.live_until(last_led.as_ms() / 1_000 + 200);
    assert!(world.leads());
}

// rule SYNC-6: a renewal that was done and not answered counts from when it began.
#[test]
fn sync_6_a_renewal_whose_answer_is_lost_is_known_again() {
    let mut world = real();
    world.node.servers = Servers::Several;
    world.live_until(300);
    world
        .node
        .lease_troubles
        .extend([Fine, AnswerLost, Fine, AnswerLost]);
    let calls = world.node.lease_calls.len();
    world.live_until(300 + 7 * 26);
    assert!(world.leads());
    let reads = world.node.lease_calls[calls..].iter();
    assert_eq!(reads.filter(|call| **call == LeaseCall::Read).count(), 2);
}

// rule SYNC-6: whoever has written the Lease meanwhile has it.
#[test]
fn sync_6_a_renewal_over_somebody_elses_is_a_loss() {
    let mut world = real();
    world.take(&document(1));
    world.tasks();
    world.node.another_leads();
    world.live_until(60);
    assert!(!world.leads());
    world.live_until(60 + 120);
    assert_eq!(world.holder(), "agt_2_0000000000000001");
    world.live_until(60 + 137 + 3 * 26);
    assert!(world.leads(), "and it expires as anybody's");
}

// rule SYNC-6: a Lease from the past, of a cluster that was restored, is nobody's proof.
#[test]
fn sync_6_its_own_lease_from_the_past_expires_like_any_other() {
    let mut world = real();
    world.node.servers = Servers::Several;
    world.live_until(400);
    assert!(world.leads());
    let past = world.node.lease.clone();
    world.live_until(460);
    world.node.lease = past;
    world.live_until(490);
    assert!(!world.leads());
    world.live_until(490 + 100);
    assert!(!world.leads());
    world.live_until(490 + 137 + 3 * 26);
    assert!(world.leads());
}

// rule SYNC-6: restored meanwhile, the cluster shows what it has shown before, and another may have written in between.
#[test]
fn sync_6_a_look_that_failed_begins_the_time_anew() {
    let mut world = real();
    world.node.another_leads();
    world.live_until(100);
    world.node.lease_troubles.extend([Lost]);
    world.live_until(100 + 137);
    assert!(world.holder().starts_with("agt_2"), "too early");
    world.live_until(100 + 137 + 3 * 26);
    assert!(world.holder().starts_with("agt_1"));
    assert!(world.leads());
}

// rule SYNC-6: k3s was stopped on this node, too, so that the cluster may have been restored meanwhile, however short it was.
#[test]
fn sync_6_a_start_of_its_own_k3s_begins_the_time_anew() {
    let mut world = real();
    world.node.another_leads();
    world.live_until(100);
    world.node.holds = Some("StartK3s");
    world.offer(&restore("op_1", SnapshotSource::Local));
    world.live_until(110);
    world.live_until(120);
    world.release_well();
    world.live_until(120 + 137);
    assert!(world.holder().starts_with("agt_2"), "too early");
    world.live_until(120 + 137 + 3 * 26);
    assert!(world.holder().starts_with("agt_1"));
}

// rules SYNC-6, FAIL-2: what the leader alone may do waits for the API, and is cut off before another could lead.
#[test]
fn sync_6_a_change_of_the_cluster_must_end_before_another_could_take_the_lease() {
    let mut world = real();
    world.node.servers = Servers::Several;
    world.live_until(300);
    world.node.lease_troubles.extend([Lost; 100]);
    world.node.holds = Some("WriteSecrets");
    let begun = world.now.monotonic;
    world.sync();
    world.answer_sync(Some(&document(1)), None);
    world.answer_well();
    let (_, _, deadline) = world.node.held.as_ref().expect("it leads");
    // The last renewal began up to 26 s before.
    let left = deadline.0.since(begun).as_secs();
    assert!((60..=137).contains(&left), "{left} s");

    let mut world = real();
    world.node.servers = Servers::Several;
    world.live_until(300);
    world.node.lease_troubles.extend([Lost; 100]);
    world.live_until(300 + 108);
    world.sync();
    world.answer_sync(Some(&document(1)), None);
    world.answer_well();
    assert_eq!(world.tasks(), ["WriteDropIns"], "it leads no longer");
    assert!(world.disk.in_force);
}

#[test]
fn sync_6_before_it_is_known_who_leads_the_document_is_pending() {
    let mut world = real();
    world.node.lease_troubles.extend([Lost; 4]);
    world.sync();
    world.answer_sync(Some(&document(1)), None);
    world.answer_well();
    assert_eq!(world.tasks(), ["WriteDropIns"]);
    assert!(!world.disk.in_force);
    world.live_until(300);
    assert_eq!(world.tasks(), ["WriteSecrets"]);
    assert!(world.disk.in_force);
}

// rule FAIL-2: with the API down nobody leads, and once it is up it does so at once.
#[test]
fn fail_2_with_the_api_down_nobody_leads() {
    let mut world = real();
    world.live_until(100);
    world.node.shows = api_down();
    assert!(!world.reports_that_it_leads());
    world.live_until(400);
    world.node.shows = healthy();
    world.reports_that_it_leads();
    assert!(world.leads());
}

#[test]
fn the_lease_is_renewed_while_a_task_of_half_an_hour_runs() {
    let mut world = real();
    world.settle();
    world.node.holds = Some("SaveSnapshot");
    world.offer(&save("op_1"));
    let calls = world.node.lease_calls.len();
    world.live_until(1_500);
    assert!(world.node.held.is_some());
    assert!(world.node.lease_calls.len() > calls + 20);
    assert!(world.leads());
}

// rule FAIL-6: a revoked agent leaves the cluster alone, and its Lease to whoever comes.
#[test]
fn fail_6_a_revoked_agent_does_not_renew_the_lease() {
    let mut world = real();
    world.sync();
    world.refuse(protocol::problem::ProblemCode::Revoked);
    world.settle();
    let calls = world.node.lease_calls.len();
    assert_eq!(world.wake(), None);
    world.crash();
    world.node.evidence = Some(Evidence::NotStarted);
    assert_ne!(world.wake().map(|wake| wake.why), Some(WakeReason::Lease));
    assert_eq!(world.node.lease_calls.len(), calls);
}
