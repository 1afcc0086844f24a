//! `--data FILE`: what was acknowledged is there after a kill, and a file that is not ours is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mock_portal::clock::Clock;
use mock_portal::store::{self, Data, NotKept, SCHEMA};
use mock_portal::{Config, Server, keys};
use portal_core::control::ClockInput;
use portal_core::{Changes, Portal, PortalNow};
use protocol::sign::SigningKey;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use redb::{Database, TableDefinition};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::client::*;
use crate::program::{PROGRAM, Serving, failing};

/// Agents that work at once, and how many of them share a cluster.
const AGENTS: usize = 24;
const AGENTS_PER_CLUSTER: usize = 3;
/// How often the portal is killed.
const KILLS: usize = 6;

/// What one agent was told, and what may have happened besides because an answer was lost.
#[derive(Debug, Clone)]
struct Known {
    agent: Agent,
    /// The request that enrolls it, once it has a token.
    enrollment: Option<Message>,
    enrolled: bool,
    /// Syncs that were answered 200.
    syncs: u64,
    /// The last of them, as it was sent.
    last_sync: Option<Message>,
    /// A rotation that was sent: the key, and whether it was answered.
    rotation: Option<(SigningKey, bool)>,
    /// Rotations that are over.
    rotations: u64,
    /// Acknowledged events by operation.
    events: BTreeMap<String, u64>,
}

/// What everybody was told by the control API.
#[derive(Debug, Default)]
struct Told {
    generations: BTreeMap<String, u64>,
    operations: BTreeSet<String>,
    unused_tokens: BTreeSet<(String, String, String)>,
}

type Killed = io::Error;

/// Sends and reads; an error is what a killed portal looks like.
async fn ask(stream: &mut TcpStream, message: &Message) -> Result<Answer, Killed> {
    exchange(stream, message)
        .await
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn lab_call(method: &'static str, path: &str, body: &Value) -> Message {
    Message {
        method,
        path: format!("/_lab/v1{path}"),
        headers: vec![],
        body: if method == "GET" {
            vec![]
        } else {
            body.to_string().into_bytes()
        },
    }
}

impl Known {
    fn new(number: usize) -> Self {
        let mut agent = Agent::new(&format!("n{number}"));
        agent.cluster = format!("c{}", number / AGENTS_PER_CLUSTER);
        Self {
            agent,
            enrollment: None,
            enrolled: false,
            syncs: 0,
            last_sync: None,
            rotation: None,
            rotations: 0,
            events: BTreeMap::new(),
        }
    }

    /// A token and an identity. The same token is tried again after a kill, whether it was used or not (ENR-10).
    async fn enroll(&mut self, agents: &mut TcpStream, lab: &mut TcpStream) -> Result<(), Killed> {
        if self.enrollment.is_none() {
            let order = json!({"cluster_id": self.agent.cluster, "node_name": self.agent.node});
            let answer = ask(lab, &lab_call("POST", "/tokens", &order)).await?;
            let token = answer.json()["tokens"][0]["token"]
                .as_str()
                .unwrap()
                .parse();
            self.enrollment = Some(self.agent.enrollment(&token.unwrap()));
        }
        let answer = ask(agents, self.enrollment.as_ref().unwrap()).await?;
        assert_eq!(answer.status, 200, "{answer:?}");
        let id = answer.json()["agent_id"].as_str().unwrap().to_owned();
        assert!(
            !self.enrolled || id == self.agent.id,
            "another agent for the same token"
        );
        self.agent.id = id;
        self.enrolled = true;
        Ok(())
    }

    /// A sync with the key that the portal knows; a new one whose registration may be lost is tried first.
    async fn sync(
        &mut self,
        agents: &mut TcpStream,
        told: &AtomicU64,
    ) -> Result<Option<String>, Killed> {
        if let Some((new, is_registered)) = self.rotation.clone() {
            let old = std::mem::replace(&mut self.agent.key, new);
            let answer = ask(agents, &self.agent.sync()).await?;
            match answer.refusal() {
                (200, _) => {
                    self.rotation = None;
                    self.rotations += 1;
                }
                (401, code) => {
                    assert_eq!(code, "bad_signature");
                    assert!(!is_registered, "a key that was acknowledged is forgotten");
                    (self.agent.key, self.rotation) = (old, None);
                }
                refusal => panic!("{refusal:?}"),
            }
        }
        let request = self.agent.sync();
        let answer = ask(agents, &request).await?;
        assert_eq!(answer.status, 200, "{answer:?}");
        self.syncs += 1;
        self.last_sync = Some(request);
        told.fetch_add(1, Relaxed);
        let operation = answer.json()["operation"]["id"].as_str().map(str::to_owned);
        Ok(operation)
    }

    async fn rotate(&mut self, agents: &mut TcpStream, rng: &mut StdRng) -> Result<(), Killed> {
        let new = SigningKey::from_seed(rng.random());
        let request = self.agent.rotation(&new);
        self.rotation = Some((new.clone(), false));
        let answer = ask(agents, &request).await?;
        assert_eq!(answer.status, 200, "{answer:?}");
        self.rotation = Some((new, true));
        Ok(())
    }

    /// The next events of an operation; the last one ends it.
    async fn report(
        &mut self,
        agents: &mut TcpStream,
        operation: &str,
        rng: &mut StdRng,
    ) -> Result<(), Killed> {
        let first = self.events.get(operation).copied().unwrap_or(0) + 1;
        // No two calls alike: within one second the second of them would be a replay.
        let message = format!("{:x}", rng.random::<u64>());
        let step = |sequence| json!({"sequence": sequence, "at": "2026-11-30T01:02:03Z", "step": "save", "state": "started", "message": message});
        let mut events: Vec<Value> = (first..first + rng.random_range(1..3)).map(step).collect();
        if rng.random_bool(0.3) {
            let sequence = first + events.len() as u64;
            events.push(json!({"sequence": sequence, "at": "2026-11-30T01:02:03Z", "state": "succeeded", "result": {}}));
        }
        let body = json!({ "events": events }).to_string().into_bytes();
        let path = format!("/agent/v1/operations/{operation}/events");
        let answer = ask(agents, &self.agent.signed("POST", &path, body)).await?;
        assert_eq!(answer.status, 200, "{answer:?}");
        let accepted = answer.json()["accepted_sequence"].as_u64().unwrap();
        self.events.insert(operation.to_owned(), accepted);
        Ok(())
    }
}

/// Works until the portal is gone. Whatever it says was answered.
async fn work(
    known: &mut Known,
    urls: (String, String),
    seed: u64,
    told: Arc<AtomicU64>,
    progress: Arc<Notify>,
) -> (Told, Killed) {
    let mut said = Told::default();
    let mut rng = StdRng::seed_from_u64(seed);
    let killed = work_on(known, &urls, &mut rng, &told, &progress, &mut said).await;
    (said, killed.unwrap_err())
}

async fn work_on(
    known: &mut Known,
    (agents, lab): &(String, String),
    rng: &mut StdRng,
    told: &AtomicU64,
    progress: &Notify,
    said: &mut Told,
) -> Result<std::convert::Infallible, Killed> {
    let mut agents = TcpStream::connect(address(agents)).await?;
    let mut lab = TcpStream::connect(address(lab)).await?;
    if !known.enrolled {
        known.enroll(&mut agents, &mut lab).await?;
    }
    loop {
        let cluster = known.agent.cluster.clone();
        if let Some(operation) = known.sync(&mut agents, told).await? {
            known.report(&mut agents, &operation, rng).await?;
        }
        progress.notify_one();
        match rng.random_range(0..20) {
            0 => known.rotate(&mut agents, rng).await?,
            1 => {
                let call = lab_call("PUT", &format!("/clusters/{cluster}/desired"), &document());
                let answer = ask(&mut lab, &call).await?;
                let generation = answer.json()["generation"].as_u64().unwrap();
                said.generations.insert(cluster, generation);
            }
            2 => {
                let order = json!({"kind": "snapshot.save", "params": {"name": "x"}});
                let call = lab_call("POST", &format!("/clusters/{cluster}/operations"), &order);
                let answer = ask(&mut lab, &call).await?;
                said.operations
                    .insert(answer.json()["id"].as_str().unwrap().to_owned());
            }
            3 => {
                let node = format!("spare-{}", rng.random::<u64>());
                let order = json!({"cluster_id": cluster, "node_name": node});
                let answer = ask(&mut lab, &lab_call("POST", "/tokens", &order)).await?;
                let token = answer.json()["tokens"][0]["token"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                said.unused_tokens.insert((token, cluster, node));
            }
            _ => {}
        }
    }
}

fn document() -> Value {
    json!({
        "release": "2026.11.1", "agent_version": "1.4.0",
        "host": {"snapshot_schedule": "0 */6 * * *", "snapshot_retention": 14, "ingress_mode": "bundled"},
        "maintenance_window": {"days": ["sun"], "start": "02:00", "duration_minutes": 120, "time_zone": "Europe/Berlin"},
        "secrets": {"hcloud_token": "in clear", "s3": {"endpoint": "https://s3.example", "region": "r", "bucket": "b",
            "folder": "f", "access_key": "in clear", "secret_key": "in clear"}},
    })
}

/// Everything that was acknowledged is there.
async fn verify(portal: &Serving, fleet: &mut [Known], told: &Told) {
    let mut agents = TcpStream::connect(address(portal.url("agents_url")))
        .await
        .unwrap();
    let mut lab = TcpStream::connect(address(portal.url("lab_url")))
        .await
        .unwrap();
    for known in fleet.iter_mut().filter(|known| known.enrolled) {
        let id = &known.agent.id;
        let shown = ask(
            &mut lab,
            &lab_call("GET", &format!("/agents/{id}"), &Value::Null),
        )
        .await
        .unwrap();
        assert_eq!(shown.status, 200, "agent {id} is forgotten");
        let reports = shown.json()["reports"].as_u64().unwrap();
        assert!(
            reports >= known.syncs,
            "{id}: {reports} reports of {} are there",
            known.syncs
        );
        // rule SIGN-5: what was answered before the kill is still a replay after it.
        if let Some(request) = &known.last_sync {
            let answer = ask(&mut agents, request).await.unwrap();
            let switched = known.rotation.is_some() || answer.status == 401;
            assert!(
                switched || answer.refusal() == (400, "replayed".to_owned()),
                "{answer:?}"
            );
        }
        // rule ENR-10: the token is still this agent's, and its first keys get its first answer.
        let answer = ask(&mut agents, known.enrollment.as_ref().unwrap())
            .await
            .unwrap();
        assert_eq!(answer.json()["agent_id"], *id, "{answer:?}");
        for (operation, accepted) in &known.events {
            let shown = ask(
                &mut lab,
                &lab_call("GET", &format!("/operations/{operation}"), &Value::Null),
            )
            .await
            .unwrap();
            let there = shown.json()["accepted_sequence"].as_u64().unwrap();
            assert!(
                there >= *accepted,
                "operation {operation}: {there} events of {accepted}"
            );
        }
        known.sync(&mut agents, &AtomicU64::new(0)).await.unwrap();
    }
    for (cluster, generation) in &told.generations {
        let shown = ask(
            &mut lab,
            &lab_call("GET", &format!("/clusters/{cluster}/desired"), &Value::Null),
        )
        .await
        .unwrap();
        assert!(
            shown.json()["generation"].as_u64().unwrap() >= *generation,
            "{cluster}"
        );
    }
    for operation in &told.operations {
        let shown = ask(
            &mut lab,
            &lab_call("GET", &format!("/operations/{operation}"), &Value::Null),
        )
        .await
        .unwrap();
        assert_eq!(shown.status, 200, "operation {operation} is forgotten");
    }
}

/// The seed of the run: the one that `PBX_LAB_SEED` names, or another one each time.
#[expect(
    clippy::disallowed_methods,
    reason = "a test has no options; the variable is the one that the other tests of chance take"
)]
fn seed() -> u64 {
    match std::env::var("PBX_LAB_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => u64::from_le_bytes(keys::settings().unwrap().seed[..8].try_into().unwrap()),
    }
}

/// Kill and restart, again and again, while everything that an agent and an operator can do is done. The seed that is
/// printed makes the same fleet and the same moments by the count of answers; what is under way then is up to the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_kill_under_load_loses_nothing_that_was_acknowledged() {
    let seed = seed();
    eprintln!("PBX_LAB_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("portal.data");
    let options = [
        "--log",
        "warn",
        "--data",
        file.to_str().unwrap(),
        "--data-checkpoint",
        "256",
    ];
    let mut fleet: Vec<Known> = (0..AGENTS).map(Known::new).collect();
    let mut all = Told::default();
    let mut release_keys = None;
    let told = Arc::new(AtomicU64::new(0));
    for kill in 0..KILLS {
        let portal = Serving::on_free_ports(&options);
        let keys = release_keys.get_or_insert_with(|| portal.ready["release_keys"].clone());
        assert_eq!(
            portal.ready["release_keys"], *keys,
            "agents know the first key"
        );
        verify(&portal, &mut fleet, &all).await;

        let progress = Arc::new(Notify::new());
        let until = told.load(Relaxed) + rng.random_range(50..1500);
        let mut tasks = tokio::task::JoinSet::new();
        for (number, mut known) in fleet.drain(..).enumerate() {
            let urls = (
                portal.url("agents_url").to_owned(),
                portal.url("lab_url").to_owned(),
            );
            let (told, progress) = (Arc::clone(&told), Arc::clone(&progress));
            let seed = rng.random();
            tasks.spawn(async move {
                let (said, killed) = work(&mut known, urls, seed, told, progress).await;
                (number, known, said, killed)
            });
        }
        while told.load(Relaxed) < until {
            progress.notified().await;
        }
        drop(portal); // SIGKILL, at once
        let mut back = BTreeMap::new();
        while let Some(ended) = tasks.join_next().await {
            let (number, known, said, _) = ended.unwrap();
            back.insert(number, known);
            for (cluster, generation) in said.generations {
                let highest = all.generations.entry(cluster).or_default();
                *highest = generation.max(*highest);
            }
            all.operations.extend(said.operations);
            all.unused_tokens.extend(said.unused_tokens);
        }
        fleet = back.into_values().collect();
        let syncs: u64 = fleet.iter().map(|known| known.syncs).sum();
        eprintln!(
            "kill {kill} after {syncs} syncs, {} operations",
            all.operations.len()
        );
    }

    let portal = Serving::on_free_ports(&options);
    verify(&portal, &mut fleet, &all).await;
    // A token that was made and not used is as good as new.
    let mut agents = TcpStream::connect(address(portal.url("agents_url")))
        .await
        .unwrap();
    assert!(
        !all.unused_tokens.is_empty() && !all.operations.is_empty() && !all.generations.is_empty()
    );
    assert!(
        fleet.iter().any(|known| known.rotations > 0)
            && fleet.iter().any(|known| !known.events.is_empty())
    );
    for (token, cluster, node) in &all.unused_tokens {
        let mut agent = Agent::new(node);
        agent.cluster.clone_from(cluster);
        let answer = ask(&mut agents, &agent.enrollment(&token.parse().unwrap()))
            .await
            .unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let (status, told) = portal.end("-TERM");
    assert!(status.success(), "{told}");
}

// rule KEY-4: a disk that takes no more is told at once, the portal ends, and what was acknowledged before is there.
#[tokio::test]
async fn key_4_a_full_disk_ends_the_portal_and_takes_nothing_back() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("portal.data");
    let data = ["--log", "warn", "--data", file.to_str().unwrap()];
    // A limit on the size of files, in blocks of 512 bytes; the signal that goes with it is ignored, as on a full disk.
    let limited = "trap '' XFSZ; ulimit -f 3072; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", limited, PROGRAM, "serve"])
        .args(["--listen", "127.0.0.1:0", "--lab", "127.0.0.1:0"])
        .args(data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let portal = Serving::start(&mut command);
    let mut agents = TcpStream::connect(address(portal.url("agents_url")))
        .await
        .unwrap();
    let mut lab = TcpStream::connect(address(portal.url("lab_url")))
        .await
        .unwrap();
    let mut known = Known::new(0);
    known.enroll(&mut agents, &mut lab).await.unwrap();
    // A report as large as it may be, so that the disk is full soon.
    let refused = loop {
        let mut report = known.agent.report();
        report["problems"] = json!(vec!["x".repeat(1000); 200]);
        let request = known
            .agent
            .signed("POST", SYNC, report.to_string().into_bytes());
        match ask(&mut agents, &request).await {
            Ok(answer) if answer.status == 200 => known.syncs += 1,
            refused => break refused,
        }
        assert!(known.syncs < 100, "the disk is never full");
    };
    // The answer may be lost with the portal, but it is no other.
    if let Ok(refused) = refused {
        assert_eq!(refused.refusal(), (503, "internal".to_owned()));
    }
    let (status, told) = portal.ended();
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("cannot be written"), "{told}");
    assert!(told.contains("make room"), "{told}");
    assert!(known.syncs > 0);

    let portal = Serving::on_free_ports(&data);
    verify(&portal, &mut [known], &Told::default()).await;
    portal.end("-TERM");
}

fn config(file: &Path) -> Config {
    let mut config = Config::new(keys::settings_of_seed(7));
    config.data = Some(Data::new(file));
    config
}

// rule SIGN-5: the memory of signatures outlives the portal, its time too, and is no longer than it must be.
#[tokio::test]
async fn sign_5_a_restart_forgets_no_signature_and_no_clock() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("portal.data");
    let mut agent = Agent::new("n1");
    let mut last: Option<Message> = None;
    let mut monotonic_ms = 0;
    for checkpoint_bytes in [0, u64::MAX, 0] {
        let mut config = config(&file);
        config.data.as_mut().unwrap().checkpoint_bytes = checkpoint_bytes;
        let running = Server::start(config).await.unwrap();
        let mut stream = TcpStream::connect(address(&running.agents_url))
            .await
            .unwrap();
        assert!(running.portal.latest_monotonic_ms() >= monotonic_ms);
        if let Some(last) = &last {
            let answer = ask(&mut stream, last).await.unwrap();
            assert_eq!(answer.refusal(), (400, "replayed".to_owned()));
            assert_eq!(running.control().clock().offset_ms, 40_000);
        } else {
            let control = running.control();
            let input = serde_json::from_value(json!({"offset_ms": 40_000})).unwrap();
            let (_, changes) = control.set_clock(input);
            running.keep(&changes).await.unwrap();
            let order =
                serde_json::from_value(json!({"cluster_id": "c1", "node_name": "n1"})).unwrap();
            let (made, changes) = control.make_tokens(&order).unwrap();
            running.keep(&changes).await.unwrap();
            let request = agent.enrollment(&made.tokens[0].token);
            let answer = ask(&mut stream, &request).await.unwrap();
            agent.id = answer.json()["agent_id"].as_str().unwrap().to_owned();
        }
        let sync = agent.sync();
        let answer = ask(&mut stream, &sync).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        monotonic_ms = running.portal.latest_monotonic_ms();
        last = Some(sync);
        running.shutdown().await;
    }
}

// rule SIGN-5: a clock that began at 0 again would keep every signature of the last run for as long as that one had run.
#[tokio::test]
async fn sign_5_the_monotonic_clock_goes_on_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("portal.data");
    let a_day_ms = 24 * 60 * 60 * 1000;
    let running = Server::start(config(&file)).await.unwrap();
    let later = PortalNow {
        monotonic_ms: a_day_ms,
        ..Clock::start().now()
    };
    let (_, changes) = running
        .portal
        .control(later)
        .set_clock(ClockInput::default());
    running.keep(&changes).await.unwrap();
    running.shutdown().await;

    let running = Server::start(config(&file)).await.unwrap();
    let (_, changes) = running.control().set_clock(ClockInput::default());
    running.keep(&changes).await.unwrap();
    let now = running.portal.latest_monotonic_ms();
    assert!((a_day_ms..a_day_ms + 60_000).contains(&now), "{now}");
    running.shutdown().await;
}

/// Whether a future is ready, asked once.
async fn is_ready(future: &mut (impl Future<Output = Result<(), NotKept>> + Unpin)) -> bool {
    tokio::select! {
        biased;
        kept = future => { kept.unwrap(); true }
        () = std::future::ready(()) => false,
    }
}

// An answer can tell of what another request has changed and not handed over yet; it waits for that one, too.
#[tokio::test]
async fn no_answer_goes_out_before_what_it_tells_of_is_kept() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("portal.data");
    let mut settings = keys::settings_of_seed(7);
    let opened = store::open(&Data::new(&file), &mut settings).unwrap();
    let portal = Arc::new(Portal::new(settings));
    let store = opened.start(&portal).unwrap();
    let nothing = Changes::default();
    store.keep(&portal, &nothing).await.unwrap();

    let control = portal.control(Clock::start().now());
    let (_, first) = control.set_clock(ClockInput::default());
    let (_, second) = control.set_clock(ClockInput::default());
    let mut read = Box::pin(store.keep(&portal, &nothing));
    let mut later = Box::pin(store.keep(&portal, &second));
    assert!(!is_ready(&mut read).await, "a reader has not waited");
    assert!(
        !is_ready(&mut later).await,
        "the second was kept before the first"
    );
    store.keep(&portal, &first).await.unwrap();
    later.await.unwrap();
    read.await.unwrap();
    store.close().await;
    // What comes after the end is not promised.
    let (_, third) = control.set_clock(ClockInput::default());
    assert_eq!(store.keep(&portal, &third).await, Err(NotKept));
}

#[tokio::test]
async fn a_restart_draws_no_id_again() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("portal.data");
    let mut drawn = BTreeSet::new();
    for _ in 0..3 {
        let running = Server::start(config(&file)).await.unwrap();
        let order = serde_json::from_value(json!({"cluster_id": "c1", "node_name": "n1"})).unwrap();
        let (made, changes) = running.control().make_tokens(&order).unwrap();
        // Forgotten again, so that the portal cannot see that it had drawn it.
        let (_, emptied) = running.control().reset();
        running.keep(&changes).await.unwrap();
        running.keep(&emptied).await.unwrap();
        assert!(
            drawn.insert(made.tokens[0].token.expose().to_owned()),
            "{drawn:?}"
        );
        running.shutdown().await;
    }
}

const ABOUT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("about");
const OTHER: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("other");

fn database(file: &Path, table: TableDefinition<'_, &str, &[u8]>, about: &Value) {
    let database = Database::create(file).unwrap();
    let write = database.begin_write().unwrap();
    let text = about.to_string();
    write
        .open_table(table)
        .unwrap()
        .insert("about", text.as_bytes())
        .unwrap();
    write.commit().unwrap();
}

#[test]
fn a_file_that_is_not_ours_is_left_alone() {
    let newer = SCHEMA + 1;
    type Make = fn(&Path);
    let rows: &[(&str, Make, i32, &[&str])] = &[
        (
            "a text",
            |file| std::fs::write(file, "# my notes").unwrap(),
            2,
            &["is no data file of mock-portal", "name another file"],
        ),
        (
            "another database",
            |file| database(file, OTHER, &json!({})),
            2,
            &["a database of something else"],
        ),
        (
            "another program's",
            |file| database(file, ABOUT, &json!({"program": "x", "schema": 1})),
            2,
            &["it is of \"x\""],
        ),
        (
            "a later version's",
            |file| {
                database(
                    file,
                    ABOUT,
                    &json!({"program": "mock-portal", "schema": SCHEMA + 1, "new": true}),
                );
            },
            2,
            &[
                "written by a later mock-portal",
                &format!("schema is {newer}"),
            ],
        ),
        (
            "a folder",
            |file| std::fs::create_dir(file).unwrap(),
            2,
            &["it is no regular file", "name another file"],
        ),
        (
            "a pipe",
            |file| rustix::fs::mkfifoat(rustix::fs::CWD, file, 0o600.into()).unwrap(),
            2,
            &["it is no regular file"],
        ),
        (
            "one that is cut off in its first bytes",
            |file| std::fs::write(file, b"redb").unwrap(),
            2,
            &["is damaged: it is cut off", "keep it as evidence"],
        ),
        (
            "one that is cut off",
            |file| {
                database(file, OTHER, &json!({}));
                let whole = std::fs::read(file).unwrap();
                std::fs::write(file, &whole[..300]).unwrap();
            },
            2,
            &["is damaged"],
        ),
        (
            "one that only begins like a database",
            |file| std::fs::write(file, "redbrick houses").unwrap(),
            2,
            &["is no data file of mock-portal"],
        ),
    ];
    for (what, make, code, says) in rows {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("portal.data");
        make(&file);
        let read = || file.is_file().then(|| std::fs::read(&file).unwrap());
        let before = read();
        let (ended, told) = failing(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--lab",
            "127.0.0.1:0",
            "--data",
            file.to_str().unwrap(),
        ]);
        assert_eq!(ended, Some(*code), "{what}: {told}");
        for part in *says {
            assert!(told.contains(part), "{what}: {part:?} is not in {told:?}");
        }
        assert!(read() == before, "{what} was changed");
    }
}

/// Wherever a page is lost, that is said; the database itself holds such places for unreachable.
#[tokio::test]
async fn a_file_that_has_lost_a_page_is_said_to_be_damaged() {
    const PAGE: usize = 4096;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("portal.data");
    let running = Server::start(config(&file)).await.unwrap();
    let order = serde_json::from_value(json!({"cluster_id": "c1", "node_name": "n", "count": 500}));
    let (_, changes) = running.control().make_tokens(&order.unwrap()).unwrap();
    running.keep(&changes).await.unwrap();
    running.shutdown().await;
    let whole = std::fs::read(&file).unwrap();
    let mut damaged = 0;
    for page in 0..whole.len() / PAGE {
        let mut lost = whole.clone();
        lost[page * PAGE..(page + 1) * PAGE].fill(0);
        std::fs::write(&file, &lost).unwrap();
        match Server::start(config(&file)).await {
            // Nothing was in it.
            Ok(running) => running.shutdown().await,
            Err(error) => {
                let said = error.to_string();
                let is_told =
                    said.contains("is damaged") || page == 0 && said.contains("is no data file");
                assert!(is_told, "page {page}: {said}");
                damaged += 1;
            }
        }
    }
    assert!(damaged > 0);
}

/// Whenever the first start ends, the next one goes on or begins anew.
#[test]
fn a_first_start_that_is_killed_is_in_the_way_of_none() {
    for _ in 0..20 {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("portal.data");
        let data = ["--data", file.to_str().unwrap()];
        let free = ["serve", "--listen", "127.0.0.1:0", "--lab", "127.0.0.1:0"];
        let mut first = Command::new(env!("CARGO_BIN_EXE_mock-portal"))
            .args([&free[..], &data].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // As soon as anything of it is to be seen.
        while std::fs::read_dir(folder.path()).unwrap().next().is_none() {
            std::thread::yield_now();
        }
        first.kill().unwrap();
        first.wait().unwrap();
        Serving::on_free_ports(&data).end("-TERM");
    }
}

#[test]
fn one_portal_owns_the_file_and_its_release_key_stays() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("portal.data");
    let data = ["--data", file.to_str().unwrap()];
    // Made by hand, and readable by others.
    std::fs::write(&file, "").unwrap();
    let portal = Serving::on_free_ports(&data);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it holds secrets in clear");
    let free = ["serve", "--listen", "127.0.0.1:0", "--lab", "127.0.0.1:0"];
    let (code, told) = failing(&[&free[..], &data].concat());
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("another running portal's"), "{told}");

    let first = portal.ready["release_keys"].clone();
    portal.end("-TERM");
    let portal = Serving::on_free_ports(&data);
    assert_eq!(portal.ready["release_keys"], first);
    portal.end("-TERM");

    let key = folder.path().join("release.key");
    std::fs::write(&key, keys::write(&SigningKey::from_seed([9; 32])).as_str()).unwrap();
    let named = ["--release-key", key.to_str().unwrap()];
    let (code, told) = failing(&[&free[..], &data, &named].concat());
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("agents know the first"), "{told}");
}
