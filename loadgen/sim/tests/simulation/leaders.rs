//! Who leads a cluster of several servers, when its API pauses and its agents freeze and fall (SYNC-6).

use agent_core::time::Monotonic;
use fleet_sim::simulation::{Nodes, Settings, Wire};

use crate::lab::Lab;

const SECOND_MS: u64 = 1_000;

fn three_servers() -> Lab {
    let nodes = Nodes {
        servers_per_cluster: 3,
        clock_offset_ms_max: 7_200_000,
        ..Nodes::new(3)
    };
    let settings = Settings {
        wire: Wire::Typed,
        ..Settings::new(7)
    };
    let mut lab = Lab::new(settings, &[nodes]);
    lab.run_until_minute(2).unwrap();
    lab.set_document();
    lab.run_until_minute(8).unwrap();
    lab
}

impl Lab {
    fn leaders(&self) -> Vec<usize> {
        let leads = |member: &usize| {
            let report = &self.simulation.watch(*member).last_report;
            report.contains("leader: true")
        };
        (0..self.simulation.members()).filter(leads).collect()
    }

    fn run_for(&mut self, seconds: u64) {
        let end = self.simulation.now().plus_ms(seconds * SECOND_MS);
        self.simulation.run_until(end).unwrap();
    }

    fn after(&self, seconds: u64) -> Monotonic {
        self.simulation.now().plus_ms(seconds * SECOND_MS)
    }

    /// Nobody has changed the cluster while another might lead, and somebody has changed it.
    #[track_caller]
    fn one_at_a_time(&self) -> u64 {
        let report = self
            .reports()
            .into_iter()
            .find(|it| it.number == 13)
            .unwrap();
        assert_eq!(report.breaches, 0, "{:?}", report.broken);
        report.judged
    }
}

// rule SYNC-6
#[test]
fn sync_6_of_three_servers_one_leads_and_the_others_leave_the_cluster_alone() {
    let mut lab = three_servers();
    let leaders = lab.leaders();
    assert_eq!(leaders.len(), 1);
    lab.run_for(3_600);
    assert_eq!(
        lab.leaders(),
        leaders,
        "and it stays so while nothing happens"
    );
    assert!(
        lab.one_at_a_time() > 6,
        "it applies the configuration every 10 minutes"
    );
}

// rule SYNC-6: a leader that is frozen is not heard; when it goes on, it has long stopped to lead.
#[test]
fn sync_6_a_leader_that_was_frozen_finds_that_another_leads() {
    for seconds in [60, 110, 200, 400, 1_200] {
        let mut lab = three_servers();
        let [first] = lab.leaders()[..] else {
            panic!("one leads");
        };
        let until = lab.after(seconds);
        lab.simulation.freeze(first, until);
        lab.run_for(seconds + 300);
        let leaders = lab.leaders();
        assert_eq!(leaders.len(), 1, "frozen for {seconds} s");
        assert_eq!(leaders == [first], seconds < 137, "frozen for {seconds} s");
        lab.run_for(1_200);
        lab.one_at_a_time();
    }
}

// rule SYNC-6: a pause of the API that a renewal rides out changes nothing; a longer one leaves one leader as well.
#[test]
fn sync_6_a_pause_of_the_api_leaves_one_leader() {
    for seconds in [20, 60, 90, 180, 600] {
        let mut lab = three_servers();
        let leaders = lab.leaders();
        let until = lab.after(seconds);
        lab.simulation.pause_api(leaders[0], until);
        lab.run_for(seconds + 300);
        assert_eq!(lab.leaders().len(), 1, "paused for {seconds} s");
        if seconds <= 60 {
            assert_eq!(lab.leaders(), leaders, "paused for {seconds} s");
        }
        lab.run_for(1_200);
        lab.one_at_a_time();
    }
}

// rule SYNC-6: of servers that fall, the next one takes over within the time that the Lease lasts and two looks.
#[test]
fn sync_6_when_the_leader_falls_another_leads() {
    let mut lab = three_servers();
    let [first] = lab.leaders()[..] else {
        panic!("one leads");
    };
    let hour = lab.after(3_600);
    lab.simulation.freeze(first, hour);
    lab.run_for(137 + 2 * 26 + 40);
    let others: Vec<_> = lab
        .leaders()
        .into_iter()
        .filter(|it| *it != first)
        .collect();
    assert_eq!(others.len(), 1);
    lab.simulation.crash(others[0]);
    lab.run_for(137 + 3 * 26 + 40);
    let leaders: Vec<_> = lab
        .leaders()
        .into_iter()
        .filter(|it| *it != first)
        .collect();
    assert_eq!(leaders.len(), 1, "one leads after the second fall, too");
    lab.run_for(3_600);
    lab.one_at_a_time();
}
