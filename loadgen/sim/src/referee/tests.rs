//! Each referee is shown a run that must not happen, made by hand, and one that is fine.

use agent_core::journal::{StepRecord, Work};
use agent_core::machine::{Call, KeyHandle, Stamp, WakeReason};
use agent_core::pbx::durable::{IdleReason, RunningOperation, StepData, TakenDocument, UpdateStep};
use agent_core::pbx::task::DocumentStep;
use agent_core::time::{Monotonic, Wall};
use protocol::hash::Sha256Hex;
use protocol::id::{Generation, OperationId};
use protocol::pbx::call::{AnswerBody, Refusal, Request, RetryAfter};
use protocol::pbx::operation::{EventsAnswer, OperationEvents, OperationOffer, Step};
use protocol::pbx::sync::SyncAnswer;
use protocol::problem::ProblemCode;
use protocol::seal::SealingPublicKey;
use protocol::sign::{SigningKey, SigningPublicKey};
use protocol::time::{Timestamp, UnixSeconds};
use protocol::verified::{SignedManifest, sign_manifest};

use super::*;
use crate::trace::Began;

const CANARY: &str = "canary-4711";

/// A run made by hand: one agent (or two of a cluster), and events at seconds.
struct Run {
    referees: Referees,
    now_ms: u64,
}

impl Run {
    fn new() -> Self {
        let key = release_key();
        let keys = ReleaseKeys::new(vec![
            protocol::sign::VerifyingKey::parse(&key.public()).unwrap(),
        ])
        .unwrap();
        let mut referees = Referees::new(Context {
            release_keys: Arc::new(keys),
            canaries: Arc::from([CANARY.to_owned()]),
        });
        for node in ["n1", "n2"] {
            referees.admit(node.parse().unwrap(), 0, Arc::new(Limits::REAL));
        }
        Self {
            referees,
            now_ms: 0,
        }
    }

    fn at(&mut self, seconds: u64) -> &mut Self {
        self.now_ms = seconds * 1000;
        self
    }

    fn see(&mut self, event: Event) -> &mut Self {
        self.of(0, event)
    }

    fn of(&mut self, agent: usize, event: Event) -> &mut Self {
        let now = self.now();
        self.referees.see(agent, now, &event);
        self
    }

    fn now(&self) -> Now {
        Now {
            monotonic: Monotonic::from_ms(self.now_ms),
            wall: Wall::from_unix_ms(1_796_000_000_000 + self.now_ms as i64),
        }
    }

    fn wait(&mut self, until_seconds: u64, why: WakeReason) -> &mut Self {
        self.see(Event::Waits(Some(Wake {
            at: Monotonic::from_ms(until_seconds * 1000),
            why,
        })))
    }

    /// A call that is sent now and answered now.
    fn answered(&mut self, request: &Request) -> &mut Self {
        let call = self.call(request);
        let body = AnswerBody::Sync(Arc::new(SyncAnswer {
            portal_time: Timestamp::from_unix_ms(0),
            desired: None,
            operation: None,
        }));
        self.see(Event::Sent(call.clone()))
            .see(Event::Answered { call, body })
    }

    /// A call that is sent now and refused now.
    fn refused(&mut self, request: &Request, refusal: Refusal) -> &mut Self {
        let call = self.call(request);
        self.see(Event::Sent(call.clone()))
            .see(Event::Refused { call, refusal })
    }

    fn call(&self, request: &Request) -> Call<Request> {
        let signing = SigningPublicKey([1; 32]);
        let key = KeyHandle {
            signing,
            sealing: SealingPublicKey([2; 32]),
        };
        let stamp = Stamp {
            agent: "agt_1".parse().unwrap(),
            key,
            at: UnixSeconds(self.now_ms / 1000),
        };
        Call {
            request: request.clone(),
            stamp: (request.endpoint() != protocol::endpoint::Endpoint::Enroll).then_some(stamp),
            intended: Monotonic::from_ms(self.now_ms),
        }
    }

    fn report(&self, number: u8) -> RefereeReport {
        let reports = self.referees.reports(&BTreeSet::new());
        reports
            .into_iter()
            .find(|report| report.number == number)
            .unwrap()
    }

    /// The referee has judged, and nothing is wrong.
    #[track_caller]
    fn fine(&self, number: u8) {
        let report = self.report(number);
        assert!(report.judged > 0 && report.breaches == 0, "{report:?}");
    }

    /// The referee has found one thing, and its words say this.
    #[track_caller]
    fn broken(&self, number: u8, says: &str) {
        let report = self.report(number);
        assert_eq!(report.breaches, 1, "{report:?}");
        assert!(
            report.broken.iter().any(|text| text.contains(says)),
            "{report:?}"
        );
    }
}

fn release_key() -> SigningKey {
    SigningKey::from_seed([9; 32])
}

fn operation(id: &str) -> OperationId {
    id.parse().unwrap()
}

fn began(id: &str, step: Step) -> Began {
    let record = StepRecord {
        work: Work::Operation {
            operation: operation(id),
            step,
        },
        attempt: 1,
    };
    Began {
        record,
        moves_k3s: matches!(step, Step::StopK3s | Step::StartK3s),
        changes_cluster: false,
    }
}

fn recorded(id: &str, step: Step) -> Event {
    let offer: OperationOffer = serde_json::from_value(serde_json::json!({
        "id": id, "kind": "cluster.restore", "target": "n1", "params": {"snapshot": "s", "source": "local"},
        "consent": null,
    }))
    .unwrap();
    let running = RunningOperation {
        offer,
        step,
        attempt: 1,
        resumes: 0,
        next_sequence: 1,
        data: StepData::ClusterRestore {
            revoked: None,
            forgotten_nodes: None,
        },
    };
    Event::Stored(Arc::new(Durable {
        operation: Some(Box::new(running)),
        ..Durable::default()
    }))
}

fn manifest_request() -> Request {
    Request::Manifest("2026.11.1".parse().unwrap())
}

fn sync_request(sequence: u64) -> Request {
    let report = serde_json::from_value(serde_json::json!({
        "protocol": 1, "sequence": sequence, "agent_version": "1.4.0", "arch": "amd64", "node_name": "n1",
        "boot": {"image_sha256": "0".repeat(64), "entry": "pbx-2026.11.1-amd64.efi"},
        "k3s": {"version": "v1.34.1+k3s1", "unit": "active", "api": "up"}, "leader": true,
        "document": {"applied_generation": 0, "seen_generation": 0, "result": "applied", "message": null},
        "addons": [], "operation": null, "update": {"running": "1.4.0", "rolled_back_from": null},
        "restart_pending": false, "clock_offset_ms": 0, "keys_created_at": "2026-09-01T00:00:00Z",
        "last_error": null, "problems": [],
    }))
    .unwrap();
    Request::Sync(Arc::new(report))
}

fn enroll() -> Request {
    let request = serde_json::from_value(serde_json::json!({
        "protocol": 1, "token": "pbxe_x", "cluster_id": "clu_1", "node_name": "n1", "server_id": 1,
        "signing_key": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
        "sealing_key": "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=",
        "boot_image_sha256": "0".repeat(64), "agent_version": "1.4.0", "arch": "amd64",
    }))
    .unwrap();
    Request::Enroll(Arc::new(request))
}

fn refusal(status: u16, code: ProblemCode) -> Refusal {
    Refusal {
        status,
        code: Some(code),
        raw_code: Some(code.as_str().to_owned()),
        portal_time: None,
        release: None,
        retry_after: RetryAfter::Absent,
        date: None,
        has_age: false,
        is_json: true,
        is_empty: false,
        detail: None,
    }
}

#[test]
fn referee_1_wants_a_record_before_a_task() {
    let mut run = Run::new();
    run.see(recorded("op_1", Step::StopK3s))
        .see(Event::Began(began("op_1", Step::StopK3s)));
    run.fine(1);
    run.see(Event::Began(began("op_1", Step::ResetRestore)));
    run.broken(1, "the disk does not hold it");
}

#[test]
fn referee_2_wants_a_look_at_the_node_before_something_destructive_begins_again() {
    let begins = || Event::Began(began("op_1", Step::ResetRestore));
    let probed = |not_started| Event::Probed {
        record: began("op_1", Step::ResetRestore).record,
        not_started,
    };
    let mut run = Run::new();
    run.see(begins()).see(probed(true)).see(begins());
    run.fine(2);
    run.see(probed(false)).see(begins());
    run.broken(2, "NotStarted");
}

#[test]
fn referee_3_allows_one_operation_per_cluster() {
    let mut run = Run::new();
    run.of(0, Event::Began(began("op_1", Step::Save)));
    run.of(0, Event::OperationEnded(operation("op_1")));
    run.of(1, Event::Began(began("op_2", Step::Save)));
    run.fine(3);
    run.of(0, Event::Began(began("op_3", Step::Save)));
    run.broken(3, "op_3 works in a cluster where op_2 runs");
}

#[test]
fn referee_4_counts_refusals_of_the_same_request() {
    let no = || refusal(400, ProblemCode::InvalidRequest);
    let mut run = Run::new();
    for second in [0, 60, 120] {
        run.at(second).refused(&manifest_request(), no());
    }
    run.fine(4);
    run.at(600).refused(&manifest_request(), no());
    run.broken(4, "refused with 400 3 times");
}

#[test]
fn referee_4_remembers_a_request_while_others_are_sent() {
    let no = || refusal(400, ProblemCode::InvalidRequest);
    let mut run = Run::new();
    for second in [0, 60, 120] {
        run.at(second).refused(&sync_request(1), no());
    }
    run.at(180).refused(&sync_request(2), no());
    run.at(240).answered(&sync_request(3));
    run.fine(4);
    run.at(300).refused(&sync_request(1), no());
    run.broken(4, "refused with 400 3 times");
}

#[test]
fn referee_5_lets_a_revoked_agent_ask_once_a_boot() {
    let revoked = || refusal(401, ProblemCode::Revoked);
    let mut run = Run::new();
    run.see(Event::Booted(Arc::default()))
        .at(10)
        .refused(&manifest_request(), revoked());
    run.at(900)
        .see(Event::Booted(Arc::default()))
        .at(930)
        .refused(&manifest_request(), revoked());
    run.fine(5);
    let call = run.at(960).call(&manifest_request());
    run.see(Event::Sent(call));
    run.broken(5, "revoked agent");
}

#[test]
fn referee_5_takes_a_proxys_401_for_no_revocation() {
    let mut proxy = refusal(401, ProblemCode::Revoked);
    (proxy.code, proxy.raw_code, proxy.is_json) = (None, None, false);
    let mut run = Run::new();
    run.at(10)
        .refused(&manifest_request(), proxy.clone())
        .at(30)
        .refused(&manifest_request(), proxy);
    assert_eq!(run.report(5).judged, 0);
}

#[test]
fn referee_5_ends_a_token_at_its_third_refusal_whatever_is_started_again() {
    let no = || refusal(401, ProblemCode::TokenExpired);
    let mut run = Run::new();
    for second in [0, 60, 120] {
        run.at(second).refused(&enroll(), no());
    }
    run.fine(5);
    let call = run
        .at(900)
        .see(Event::Booted(Arc::default()))
        .call(&enroll());
    run.see(Event::Sent(call));
    run.broken(5, "token");
}

#[test]
fn referee_6_holds_every_wait_to_its_bounds() {
    // Booted at 0, failed at 100: what is waited for, until when, and whether that fits.
    let rows = [
        (WakeReason::FirstSync, 30, true),
        (WakeReason::FirstSync, 31, false),
        (WakeReason::Backoff { failures: 1 }, 105, true),
        (WakeReason::Backoff { failures: 1 }, 104, false),
        (WakeReason::Backoff { failures: 1 }, 111, false),
        (WakeReason::Backoff { failures: 7 }, 400, true),
        (WakeReason::Backoff { failures: 7 }, 401, false),
    ];
    for (why, until, fits) in rows {
        let mut run = Run::new();
        run.see(Event::Booted(Arc::default()));
        let call = run.call(&manifest_request());
        run.at(100)
            .see(Event::Unanswered { call })
            .at(0)
            .wait(until, why);
        if fits {
            run.fine(6);
        } else {
            run.broken(6, "waits until");
        }
    }
}

#[test]
fn referee_6_wants_healthy_syncs_25_to_35_seconds_apart() {
    for (until, fits) in [(25, true), (35, true), (24, false), (36, false)] {
        let mut run = Run::new();
        run.answered(&sync_request(1))
            .wait(until, WakeReason::SyncDue);
        if fits {
            run.fine(6);
        } else {
            run.broken(6, "waits until");
        }
    }
    // Whatever it said that it waits for.
    let mut run = Run::new();
    run.answered(&sync_request(1));
    run.at(25).answered(&sync_request(2));
    run.fine(6);
    run.at(49).answered(&sync_request(3));
    run.broken(6, "a sync is sent 1000 ms before one may be due");
}

#[test]
fn referee_6_hears_the_portals_word() {
    let mut busy = refusal(429, ProblemCode::TooManyRequests);
    busy.retry_after = RetryAfter::Seconds(60);
    let mut run = Run::new();
    run.at(100)
        .refused(&manifest_request(), busy)
        .wait(175, WakeReason::PortalsWord { seconds: 60 });
    run.fine(6);
    let call = run.at(159).call(&manifest_request());
    run.see(Event::Sent(call));
    run.broken(6, "1000 ms before its wait is over");
}

#[test]
fn referee_6_lets_no_base_shrink_while_calls_fail() {
    let mut run = Run::new();
    let call = run.call(&manifest_request());
    run.at(100)
        .see(Event::Unanswered { call: call.clone() })
        .wait(130, WakeReason::Backoff { failures: 3 });
    run.at(140)
        .see(Event::Unanswered { call })
        .wait(150, WakeReason::Backoff { failures: 1 });
    run.broken(6, "after 3 before");
}

#[test]
fn referee_7_wants_a_verified_manifest_before_any_task_of_its_document() {
    let payload = br#"{"version": "2026.11.1", "created_at": "2026-11-30T01:02:03Z", "floor": 1,
        "template_engine": "minijinja", "agent": {"version": "1.4.0", "artifacts": []},
        "image": {"k3s_version": "v1.34.1+k3s1", "artifacts": []}, "addons": []}"#;
    let taken = |manifest: SignedManifest| {
        let document = TakenDocument {
            generation: Generation(1),
            release: "2026.11.1".parse().unwrap(),
            raw: Arc::from(serde_json::value::RawValue::from_string("{}".to_owned()).unwrap()),
            manifest: Arc::new(manifest),
        };
        Event::Stored(Arc::new(Durable {
            document: Some(Arc::new(document)),
            ..Durable::default()
        }))
    };
    let task = || {
        let work = Work::Document {
            generation: Generation(1),
            step: DocumentStep::WriteDropIns,
        };
        Event::Began(Began {
            record: StepRecord { work, attempt: 1 },
            moves_k3s: false,
            changes_cluster: false,
        })
    };
    let mut run = Run::new();
    run.see(taken(sign_manifest(&release_key(), &payload[..])))
        .see(task());
    run.fine(7);
    run.see(taken(sign_manifest(
        &SigningKey::from_seed([8; 32]),
        &payload[..],
    )))
    .see(task());
    run.broken(7, "no key verifies the manifest of 2026.11.1");
}

#[test]
fn referee_7_wants_a_verified_manifest_before_a_program_is_fetched() {
    let program = || Sha256Hex::of(b"a program");
    let payload = || {
        serde_json::to_vec(&serde_json::json!({
            "version": "2026.11.1", "created_at": "2026-11-30T01:02:03Z", "floor": 1, "template_engine": "minijinja",
            "agent": {"version": "1.5.0", "artifacts": [
                {"arch": "amd64", "url": "https://artifacts.invalid/agent", "sha256": program(), "size": 1},
            ]},
            "image": {"k3s_version": "v1.34.1+k3s1", "artifacts": []}, "addons": [],
        }))
        .unwrap()
    };
    let update = || {
        let update = serde_json::from_value(serde_json::json!({
            "release": "2026.11.1", "from": "1.4.0", "step": "fetch", "attempt": 1,
            "program": {"version": "1.5.0", "url": "https://artifacts.invalid/agent", "sha256": program(), "size": 1},
        }));
        Arc::new(Durable {
            update: Some(Box::new(update.unwrap())),
            ..Durable::default()
        })
    };
    let fetch = || {
        let record = StepRecord {
            work: Work::Update {
                version: "1.5.0".parse().unwrap(),
                step: UpdateStep::Fetch,
            },
            attempt: 1,
        };
        Event::Began(Began {
            record,
            moves_k3s: false,
            changes_cluster: false,
        })
    };
    // Whose key has signed the manifest; what was on disk when the program started; whether the program may be fetched.
    let rows = [
        (release_key(), Arc::default(), true),
        (SigningKey::from_seed([8; 32]), Arc::default(), false),
        (SigningKey::from_seed([8; 32]), update(), true),
    ];
    for (key, on_disk, may) in rows {
        let mut run = Run::new();
        let call = run.call(&manifest_request());
        let body = AnswerBody::Manifest(Arc::new(sign_manifest(&key, payload())));
        run.see(Event::Booted(on_disk))
            .see(Event::Answered { call, body })
            .see(Event::Stored(update()))
            .see(fetch());
        if may {
            run.fine(7);
        } else {
            run.broken(7, "no verified manifest has it");
        }
    }
}

#[test]
fn referee_8_leaves_k3s_to_the_operation_that_runs() {
    let enrollment = || {
        let work = Work::Enrollment {
            step: agent_core::pbx::durable::EnrollStep::StartK3s,
        };
        Event::Began(Began {
            record: StepRecord { work, attempt: 1 },
            moves_k3s: true,
            changes_cluster: false,
        })
    };
    let mut run = Run::new();
    run.see(Event::Began(began("op_1", Step::StopK3s)));
    // Another node joins the cluster meanwhile.
    run.of(1, enrollment());
    run.fine(8);
    run.of(0, enrollment());
    run.broken(8, "while op_1 runs");
}

#[test]
fn referee_8_allows_a_restart_for_a_drop_in_inside_the_window_alone() {
    let desired = serde_json::json!({
        "generation": 1, "release": "2026.11.1", "agent_version": "1.4.0",
        "host": {"snapshot_schedule": "0 0 * * *", "snapshot_retention": 1, "ingress_mode": "bundled"},
        // Mondays from 02:00 to 03:00 in Berlin: from 01:00 to 02:00 in UTC, in winter.
        "maintenance_window": {"days": ["mon"], "start": "02:00", "duration_minutes": 60, "time_zone": "Europe/Berlin"},
        "secrets": {"hcloud_token": {"sealed": "AA=="}, "s3": {"endpoint": "e", "region": "r", "bucket": "b",
            "folder": "f", "access_key": {"sealed": "AA=="}, "secret_key": {"sealed": "AA=="}}},
        "addons": [],
    });
    let document = TakenDocument {
        generation: Generation(1),
        release: "2026.11.1".parse().unwrap(),
        raw: Arc::from(serde_json::value::to_raw_value(&desired).unwrap()),
        manifest: Arc::new(sign_manifest(&release_key(), &b"{}"[..])),
    };
    let taken = Event::Stored(Arc::new(Durable {
        document: Some(Arc::new(document)),
        ..Durable::default()
    }));
    let restart = || {
        let work = Work::Document {
            generation: Generation(1),
            step: DocumentStep::RestartK3s,
        };
        Event::Began(Began {
            record: StepRecord { work, attempt: 1 },
            moves_k3s: true,
            changes_cluster: false,
        })
    };
    // When it begins, by the portal's time, and whether that is inside.
    let rows = [
        ("2026-11-30T00:59:59Z", false),
        ("2026-11-30T01:00:00Z", true),
        ("2026-11-30T01:59:59Z", true),
        ("2026-11-30T02:00:00Z", false),
        ("2026-12-01T01:30:00Z", false),
    ];
    for (begins, fits) in rows {
        let begins: Timestamp = begins.parse().unwrap();
        let mut run = Run::new();
        let call = run.call(&manifest_request());
        // The node's clock is wrong, and the portal was heard ten minutes ago.
        let portal_time = Timestamp::from_unix_ms(begins.unix_ms() - 600_000);
        let body = AnswerBody::Sync(Arc::new(SyncAnswer {
            portal_time,
            desired: None,
            operation: None,
        }));
        run.at(100)
            .see(taken.clone())
            .see(Event::Answered { call, body })
            .at(700)
            .see(restart());
        if fits {
            run.fine(8);
        } else {
            run.broken(8, "outside");
        }
    }
    let mut run = Run::new();
    run.see(taken).see(restart());
    run.broken(8, "by a clock that the portal has not set");
}

#[test]
fn referee_13_lets_nobody_change_the_cluster_while_another_may_lead() {
    let secrets = || {
        let work = Work::Document {
            generation: Generation(1),
            step: DocumentStep::WriteSecrets,
        };
        Began {
            record: StepRecord { work, attempt: 1 },
            moves_k3s: false,
            changes_cluster: true,
        }
    };
    let began = || Event::Began(secrets());
    let ended = || Event::Ended {
        began: secrets(),
        succeeded: true,
    };
    let lead = |run: &mut Run, agent: usize| {
        run.of(agent, Event::LeaseAsked { writes: true });
        run.of(agent, Event::LeaseWritten);
    };
    // The first leads, and stops; the second takes over after so many seconds, and changes something.
    for (second, fits) in [(137, true), (136, false)] {
        let mut run = Run::new();
        lead(&mut run, 0);
        run.of(0, began());
        run.of(0, ended());
        run.at(second);
        lead(&mut run, 1);
        run.of(1, began());
        if fits {
            run.fine(13);
        } else {
            run.broken(13, "while the Lease of another agent lasts");
        }
    }
    // A leader that was frozen in the middle of a change, and the one after it.
    let mut run = Run::new();
    lead(&mut run, 0);
    run.of(0, began());
    run.at(137);
    lead(&mut run, 1);
    run.of(0, ended());
    run.broken(13, "the end of its own Lease");
    // One that has begun too late, and one that never asked.
    let mut run = Run::new();
    lead(&mut run, 0);
    run.at(107).of(0, began());
    run.broken(13, "longer ago");
    let mut run = Run::new();
    run.of(0, began());
    run.broken(13, "does not hold the Lease");
}

#[test]
fn referee_9_finds_a_secret_and_does_not_repeat_it() {
    let text = |text: &str| Event::Text {
        place: "a log line",
        text: text.to_owned(),
    };
    let mut run = Run::new();
    run.see(text("nothing to see"));
    run.fine(9);
    run.see(text(&format!("the token is {CANARY}")));
    run.broken(9, "canary 0 is in a log line");
    assert!(!format!("{:?}", run.report(9)).contains(CANARY));
}

fn in_force(generation: u64) -> Event {
    Event::Stored(Arc::new(Durable {
        in_force: true,
        applied_generation: Generation(generation),
        ..Durable::default()
    }))
}

/// Generation 2 is wanted since second 100, and the node needs 20 s for it: it is due at 450.
fn at_peace(run: &mut Run) -> &mut Run {
    let peace = Peace {
        since: Monotonic::from_ms(100_000),
        wanted: Generation(2),
        modelled_ms: 20_000,
    };
    let now = run.now();
    run.referees.at_peace(0, now, &peace);
    run
}

#[test]
fn referee_10_gives_an_agent_its_longest_backoff_and_an_interval() {
    // When generation 2 is in force, when the run ends, and what is found.
    let rows = [
        (Some(450), 500, Some("")),
        (Some(451), 500, Some("generation 2 was reached at 451000")),
        (None, 450, None),
        (None, 451, Some("generation 2 is not reached")),
    ];
    for (reached, end, found) in rows {
        let mut run = Run::new();
        run.at(50).see(in_force(1));
        if let Some(second) = reached {
            run.at(second)
                .see(in_force(2))
                .at(second + 9)
                .see(in_force(2));
        }
        at_peace(run.at(end));
        match found {
            None => assert_eq!(run.report(10).judged, 0, "its time is not over"),
            Some("") => run.fine(10),
            Some(says) => run.broken(10, says),
        }
    }
}

#[test]
fn referee_10_does_not_ask_for_more_than_an_agent_may_do() {
    let mut run = Run::new();
    run.at(90)
        .wait(200, WakeReason::PortalsWord { seconds: 100 })
        .at(550)
        .see(in_force(2));
    at_peace(&mut run);
    run.fine(10);

    let mut run = Run::new();
    let idle = Durable {
        idle: Some(IdleReason::ImageMismatch),
        ..Durable::default()
    };
    run.see(Event::Stored(Arc::new(idle)));
    at_peace(run.at(9_000));
    assert_eq!(run.report(10).judged, 0);
}

#[test]
fn referee_11_wants_every_result_at_the_portal_exactly_once() {
    let body: OperationEvents = serde_json::from_value(serde_json::json!({"events": [{
        "sequence": 3, "at": "2026-11-30T01:02:03Z", "state": "succeeded", "result": {},
    }]}))
    .unwrap();
    let request = Request::Events {
        operation: operation("op_1"),
        body: Arc::new(body),
    };
    let mut run = Run::new();
    let call = run.call(&request);
    let answer = |accepted_sequence| AnswerBody::Events(EventsAnswer { accepted_sequence });
    run.see(Event::OperationEnded(operation("op_1")));
    run.see(Event::Answered {
        call: call.clone(),
        body: answer(2),
    });
    assert_eq!(
        run.report(11).judged,
        0,
        "the last event is not acknowledged"
    );
    run.see(Event::Answered {
        call,
        body: answer(3),
    });
    run.fine(11);
    let now = run.now();
    run.referees.stored_at_portal(now, &operation("op_1"), 1);
    run.fine(11);
    run.referees.stored_at_portal(now, &operation("op_1"), 2);
    run.broken(11, "the portal has 2 results of op_1");
}

#[test]
fn referee_12_knows_a_signature_again() {
    let mut run = Run::new();
    let first = run.at(7).call(&manifest_request());
    let next_second = run.at(8).call(&manifest_request());
    run.see(Event::Sent(first.clone()))
        .see(Event::Sent(next_second));
    run.fine(12);
    run.see(Event::Booted(Arc::default()))
        .see(Event::Sent(first.clone()));
    run.fine(12);
    run.see(Event::Sent(first));
    run.broken(12, "a second time");
}
