//! A world to put an agent into: a clock moved by hand, a disk, a node that does what it is told unless a test says
//! otherwise, and a portal whose answers the test gives.
//!
//! Whatever a test does, the world itself insists on what no agent may ever do: perform a task whose record is not on disk
//! (rule OPS-2), send keys or events that are not (rules ENR-1, OPS-8), have two calls out at once, use a signature twice,
//! or want to be woken in the past. What was written is on disk once the agent was told so, and no earlier.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use agent_core::journal::{Ledger, Recorded};
use agent_core::limits::Limits;
use agent_core::machine::{
    Action, Call, Deadline, Evidence, Input, KeyHandle, LeaseFailure, LogLine, Machine,
    StoreFailure, TaskFailure, Ticket, Unopenable, Unreachable, Wake,
};
use agent_core::note::Note;
use agent_core::pbx::Agent;
use agent_core::pbx::addon::object::{Content, Object, ObjectKind};
use agent_core::pbx::addon::seen::{
    AddonsSeen, AppliedObject, Fingerprint, Release, SeenObject, Status,
};
use agent_core::pbx::boot::{BootId, Booted, Health, NodeFacts};
use agent_core::pbx::diagnostics::bundle;
use agent_core::pbx::durable::{Durable, Identity, KeyPairs};
use agent_core::pbx::facts::{BootFacts, Config, Observation};
use agent_core::pbx::lease::{Lease, LeaseCall, LeaseReply, ResourceVersion, Servers};
use agent_core::pbx::task::{Account, Done, Doomed, KeySlot, Task, Uid};
use agent_core::seed::Seed;
use agent_core::time::{Monotonic, Now, Wall};
use protocol::dialect::Dialect;
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::id::{AgentId, Arch, Generation, ServerId};
use protocol::pbx::call::{AnswerBody, BrokenBody, Refusal, Reply, Request, RetryAfter};
use protocol::pbx::enroll::{BootstrapSecrets, EnrollAnswer, K3sBootstrap, S3Access};
use protocol::pbx::operation::{OperationEvent, OperationOffer, Params};
use protocol::pbx::release::{AgentRelease, ImageRelease, Manifest, TemplateEngine};
use protocol::pbx::sync::{
    ApiState, BootReport, DesiredState, HostConfig, IngressMode, K3sReport, MaintenanceWindow,
    SyncAnswer, SyncReport, UnitState, Weekday,
};
use protocol::problem::ProblemCode;
use protocol::seal::{Sealed, SealingPublicKey};
use protocol::sign::{Signature, SigningKey, SigningPublicKey, VerifyingKey};
use protocol::time::Timestamp;
use protocol::verified::{ReleaseKeys, SignedManifest, sign_manifest};
use serde_json::value::RawValue;

/// 2026-11-30T00:00:00Z.
pub(crate) const START_MS: i64 = 1_795_996_800_000;

/// The agent, and all that is around it.
pub(crate) struct World {
    pub(crate) agent: Agent,
    pub(crate) facts: BootFacts,
    pub(crate) now: Now,
    /// What was written, from the moment on at which the agent is told so.
    pub(crate) disk: Arc<Durable>,
    writing: Option<Arc<Durable>>,
    pub(crate) disk_is_full: bool,
    pub(crate) stores: usize,
    /// The program dies while this write is under way, counted from 1; whether the write is still done.
    pub(crate) dies_in_store: Option<(usize, bool)>,
    dead: bool,
    pub(crate) node: Node,
    pub(crate) notes: Vec<Note>,
    /// The program has ended itself.
    pub(crate) has_exited: bool,
    out: Option<Sent>,
    ticket: Option<Ticket>,
    boots: u64,
    signatures: HashSet<(String, Vec<u8>, u64, KeyHandle)>,
    inputs: VecDeque<Input<Agent>>,
}

/// A call that went out.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) call: Call<Request>,
    pub(crate) at: Now,
}

impl Sent {
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.call.request.endpoint()
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        self.call.request.body()
    }

    pub(crate) fn stamp(&self) -> u64 {
        self.call.stamp.as_ref().unwrap().at.0
    }

    pub(crate) fn key(&self) -> KeyHandle {
        self.call.stamp.as_ref().unwrap().key
    }

    pub(crate) fn report(&self) -> &SyncReport {
        match &self.call.request {
            Request::Sync(report) => report,
            other => panic!("a sync was expected, not {other:?}"),
        }
    }

    pub(crate) fn events(&self) -> &[OperationEvent] {
        match &self.call.request {
            Request::Events { body, .. } => body.events(),
            other => panic!("events were expected, not {other:?}"),
        }
    }
}

/// The node: what it shows, what its tasks come to, and what was asked of it.
pub(crate) struct Node {
    pub(crate) shows: Observation,
    /// The failures of the next tasks, each of one whose name it gives (`WriteSecrets`).
    pub(crate) failures: Vec<(&'static str, TaskFailure)>,
    /// A task that is not answered before the test says so.
    pub(crate) holds: Option<&'static str>,
    pub(crate) held: Option<(Ticket, Recorded<Task>, Deadline)>,
    pub(crate) evidence: Option<Evidence<Done>>,
    pub(crate) unopenable: Option<&'static str>,
    pub(crate) performed: Vec<Recorded<Task>>,
    pub(crate) probed: Vec<Recorded<Task>>,
    pub(crate) opened: usize,
    /// The ServiceAccounts of access that are listed.
    pub(crate) accounts: Vec<Account>,
    /// The Node that was found silent.
    pub(crate) gone_uid: Option<Uid>,
    pub(crate) addons: Addons,
    /// What runs.
    pub(crate) booted: Booted,
    /// Whether the API is ready after an upgrade.
    pub(crate) is_well: bool,
    keys_made: u8,
    /// The Lease that the cluster has.
    pub(crate) lease: Option<Arc<Lease>>,
    /// The servers that the cluster has.
    pub(crate) servers: Servers,
    /// What is said of the next questions about the Lease, before any is answered.
    pub(crate) lease_troubles: VecDeque<LeaseTrouble>,
    pub(crate) lease_calls: Vec<LeaseCall>,
    versions: u64,
}

/// What goes wrong with a question about the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseTrouble {
    /// Nothing.
    Fine,
    /// It was not heard.
    Lost,
    /// It was done, and nobody was told.
    AnswerLost,
}

/// What the cluster has of add-ons: charts are deployed and uninstalled at once unless the test says otherwise.
pub(crate) struct Addons {
    pub(crate) seen: AddonsSeen,
    /// Whether what is applied is deployed from then on.
    pub(crate) charts_wait: bool,
    uids: u64,
}

impl Addons {
    fn new() -> Self {
        let mut addons = Self {
            seen: AddonsSeen::default(),
            charts_wait: false,
            uids: 0,
        };
        addons.clear();
        addons
    }

    /// Nothing is there any more.
    pub(crate) fn clear(&mut self) {
        self.seen = AddonsSeen {
            offers_retry: true,
            ..AddonsSeen::default()
        };
    }

    pub(crate) fn find(&mut self, id: &str) -> Option<&mut SeenObject> {
        let id = id.parse().unwrap();
        self.seen.objects.iter_mut().find(|object| object.id == id)
    }

    fn apply(&mut self, object: &Object) -> AppliedObject {
        let status = match &object.content {
            Content::Spec(spec) if object.id.kind() == ObjectKind::Platform => {
                let is_empty = spec["components"] == serde_json::json!([]);
                Status::Platform {
                    is_empty,
                    is_cleared: false,
                    refuses: None,
                }
            }
            Content::Spec(_) if object.id.kind() == ObjectKind::HelmChart => Status::Chart {
                is_deployed: !self.charts_wait,
                failed: None,
                namespace: object.release_namespace().unwrap().to_owned(),
            },
            _ => Status::None,
        };
        if let Some(namespace) = object.release_namespace() {
            let name = object.id.name().to_owned();
            let namespace = namespace.to_owned();
            self.seen.releases.retain(|release| release.name != name);
            self.seen.releases.push(Release { name, namespace });
        }
        let bytes = *object.hash().as_bytes().first_chunk().unwrap();
        let fingerprint = Fingerprint(u64::from_le_bytes(bytes));
        let there = self.seen.objects.iter_mut().find(|it| it.id == object.id);
        let uid = match there {
            Some(there) => {
                there.addon.clone_from(&object.labels["pbx.io/addon"]);
                (there.fingerprint, there.status) = (fingerprint, status);
                there.uid.clone()
            }
            None => {
                self.uids += 1;
                let uid = Uid(format!("uid-{}", self.uids));
                self.seen.objects.push(SeenObject {
                    id: object.id.clone(),
                    addon: object.labels["pbx.io/addon"].clone(),
                    uid: uid.clone(),
                    fingerprint,
                    is_applied: true,
                    is_deleting: false,
                    status,
                });
                uid
            }
        };
        AppliedObject { uid, fingerprint }
    }

    fn delete(&mut self, doomed: &[Doomed]) {
        let is_doomed = |seen: &SeenObject| {
            let mut doomed = doomed.iter();
            doomed.any(|it| it.id == seen.id && it.uid == seen.uid)
        };
        let charts_wait = self.charts_wait;
        for object in &mut self.seen.objects {
            object.is_deleting |= is_doomed(object) && charts_wait;
        }
        let gone = self
            .seen
            .objects
            .extract_if(.., |it| is_doomed(it) && !charts_wait);
        let gone: Vec<String> = gone.map(|object| object.id.name().to_owned()).collect();
        self.seen
            .releases
            .retain(|release| !gone.contains(&release.name));
    }
}

impl World {
    /// A node that was never started.
    pub(crate) fn fresh() -> Self {
        Self::with(Durable::default(), 1)
    }

    /// An agent that is enrolled, and has no document yet.
    pub(crate) fn enrolled() -> Self {
        Self::with(enrolled(), 1)
    }

    pub(crate) fn with(durable: Durable, seed: u64) -> Self {
        Self::with_facts(durable, facts(), seed)
    }

    pub(crate) fn with_facts(durable: Durable, facts: BootFacts, seed: u64) -> Self {
        let now = Now {
            monotonic: Monotonic::from_ms(1_000),
            wall: Wall::from_unix_ms(START_MS),
        };
        let disk = Arc::new(durable);
        let agent = Agent::boot(Arc::clone(&disk), facts.clone(), Seed(seed), now);
        Self {
            agent,
            facts,
            now,
            disk,
            writing: None,
            disk_is_full: false,
            stores: 0,
            dies_in_store: None,
            dead: false,
            node: Node::new(),
            notes: Vec::new(),
            has_exited: false,
            out: None,
            ticket: None,
            boots: seed,
            signatures: HashSet::new(),
            inputs: VecDeque::new(),
        }
    }

    /// The program dies and is started again: the disk stays, and so does the node.
    pub(crate) fn crash(&mut self) {
        self.boots += 1_000;
        self.dead = false;
        self.has_exited = false;
        self.dies_in_store = None;
        self.pass_ms(5_000);
        self.out = None;
        self.ticket = None;
        self.inputs.clear();
        self.writing = None;
        self.node.held = None;
        self.signatures.clear();
        self.agent = Agent::boot(
            Arc::clone(&self.disk),
            self.facts.clone(),
            Seed(self.boots),
            self.now,
        );
    }

    /// Time passes, without anybody looking.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        self.now.monotonic = self.now.monotonic.plus_ms(ms);
        self.now.wall = Wall::from_unix_ms(self.now.wall.unix_ms() + i64::try_from(ms).unwrap());
    }

    /// The node's clock is set, and nothing else.
    pub(crate) fn set_clock(&mut self, by_ms: i64) {
        self.now.wall = Wall::from_unix_ms(self.now.wall.unix_ms() + by_ms);
    }

    pub(crate) fn tell(&mut self, input: Input<Agent>) {
        self.inputs.push_back(input);
        self.settle();
    }

    /// Does what the agent wants, until it wants nothing more or waits for the test's answer.
    pub(crate) fn settle(&mut self) {
        while !self.dead {
            while let Some(action) = self.agent.poll_action() {
                self.act(action);
                if self.dead {
                    return;
                }
            }
            let Some(input) = self.inputs.pop_front() else {
                return;
            };
            if matches!(input, Input::Stored(_, Ok(()))) {
                self.disk = self.writing.take().expect("a write under way");
            }
            self.agent.handle(input, self.now);
        }
    }

    /// Keys (rule ENR-1) and events (rule OPS-8) are on disk before they are sent.
    fn rests_on_the_disk(&self, request: &Request) {
        match request {
            Request::Enroll(request) => {
                let enrollment = self.disk.enrollment.as_deref();
                let kept = enrollment.and_then(|enrollment| enrollment.keys);
                let kept = kept.map(|keys| (keys.handle.signing, keys.handle.sealing));
                assert_eq!(kept, Some((request.signing_key, request.sealing_key)));
            }
            Request::Events { operation, body } => {
                let mut outboxes = self.disk.outbox.iter();
                let kept = outboxes.find(|outbox| outbox.operation == *operation);
                let kept = &kept.expect("events of an operation on disk").events;
                assert!(body.events().iter().all(|event| kept.contains(event)));
            }
            Request::Sync(_) | Request::Manifest(_) | Request::RotateKey(_) => {}
        }
    }

    /// What will be applied of an add-on is on disk by name before (rule ADD-5), and what is deleted was.
    fn names_are_on_disk(&self, task: &Task) {
        let (addon, ids): (_, Vec<_>) = match task {
            Task::ApplyAddon { addon, objects } => {
                (addon, objects.iter().map(|it| &it.id).collect())
            }
            Task::DeleteAddon { addon, objects } => {
                (addon, objects.iter().map(|it| &it.id).collect())
            }
            _ => return,
        };
        let kept = self.disk.addons.iter().find(|kept| kept.name == *addon);
        let kept = &kept.expect("an add-on on disk").objects;
        assert!(ids.iter().all(|id| kept.iter().any(|kept| kept.id == **id)));
    }

    /// How often the program was started, as a number that grows.
    pub(crate) fn boots(&self) -> u64 {
        self.boots
    }

    /// Whether the program has died in the write that the test named.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    fn act(&mut self, action: Action<Agent>) {
        match action {
            Action::Note(note) => self.notes.push(note),
            Action::Exit => self.has_exited = true,
            Action::Observe(ticket) => self
                .inputs
                .push_back(Input::Observed(ticket, self.node.shows.clone())),
            Action::Store(ticket, durable) => {
                self.stores += 1;
                if let Some((_, is_kept)) = self.dies_in_store.filter(|(at, _)| *at == self.stores)
                {
                    self.dead = true;
                    if is_kept {
                        self.disk = durable;
                    }
                    return;
                }
                let result = if self.disk_is_full {
                    Err(StoreFailure {
                        message: "state.json: no space left on device".into(),
                    })
                } else {
                    self.writing = Some(durable);
                    Ok(())
                };
                self.inputs.push_back(Input::Stored(ticket, result));
            }
            Action::Open(ticket, values) => {
                self.node.opened += values.len();
                let refused = values
                    .iter()
                    .find(|(field, _)| Some(field.0.as_str()) == self.node.unopenable);
                let result = refused.map_or(Ok(()), |(field, _)| {
                    Err(Unopenable {
                        field: field.clone(),
                    })
                });
                self.inputs.push_back(Input::Opened(ticket, result));
            }
            Action::Perform(ticket, task, deadline) => {
                assert!(
                    self.disk.holds(task.record()),
                    "not on disk: {:?}",
                    task.record()
                );
                self.names_are_on_disk(&task);
                if self.node.holds == Some(name(&task)) {
                    self.node.held = Some((ticket, task, deadline));
                } else {
                    let result = self.node.perform(&task);
                    self.node.performed.push(task);
                    self.inputs.push_back(Input::Performed(ticket, result));
                }
            }
            Action::Probe(ticket, task) => {
                assert!(
                    self.disk.holds(task.record()),
                    "not on disk: {:?}",
                    task.record()
                );
                let evidence = self
                    .node
                    .evidence
                    .take()
                    .expect("a probe that the test did not think of");
                self.node.probed.push(task);
                self.inputs.push_back(Input::Probed(ticket, evidence));
            }
            Action::Lease(ticket, call, _) => {
                let reply = self.node.lease(call);
                self.inputs.push_back(Input::Leased(ticket, reply));
            }
            Action::Call(ticket, call) => {
                assert!(self.out.is_none(), "two calls at once: {call:?}");
                assert!(call.intended <= self.now.monotonic);
                self.rests_on_the_disk(&call.request);
                if let Some(stamp) = &call.stamp {
                    let path = call.request.path(&Dialect::default());
                    let signature = (path, call.request.body(), stamp.at.0, stamp.key);
                    assert!(self.signatures.insert(signature), "signed twice: {call:?}");
                }
                self.ticket = Some(ticket);
                self.out = Some(Sent { call, at: self.now });
            }
        }
    }

    /// The next wake, if the agent waits for nothing else.
    pub(crate) fn wake(&mut self) -> Option<Wake> {
        self.settle();
        self.agent.poll_wake()
    }

    /// Moves the clock to a wake, if it lies ahead.
    pub(crate) fn wait_for(&mut self, wake: Wake) {
        let ms = wake.at.since(self.now.monotonic).as_millis();
        self.pass_ms(u64::try_from(ms).unwrap());
        self.tell(Input::Tick);
    }

    /// The next call, however long the agent waits for it; it stays out until it is answered. `None` if there will be none.
    pub(crate) fn next_call(&mut self) -> Option<Sent> {
        let sent = self.next_call_in(1_000);
        assert!(
            sent.is_some() || self.dead || self.agent.poll_wake().is_none(),
            "a thousand wakes without a call"
        );
        sent
    }

    /// The next call within so many wakes.
    pub(crate) fn next_call_in(&mut self, wakes: usize) -> Option<Sent> {
        for _ in 0..wakes {
            self.settle();
            if self.dead {
                return None;
            }
            if let Some(sent) = &self.out {
                return Some(sent.clone());
            }
            let mut wake = self.agent.poll_wake()?;
            if wake.at <= self.now.monotonic {
                // The test has moved the clock; the agent is told.
                self.tell(Input::Tick);
                if self.out.is_some() {
                    continue;
                }
                wake = self.agent.poll_wake()?;
                let is_ahead = wake.at > self.now.monotonic;
                assert!(
                    is_ahead,
                    "nothing is left to do, and it wants to be woken at once: {wake:?}"
                );
            }
            self.wait_for(wake);
        }
        None
    }

    /// The next call, which must be there.
    pub(crate) fn call(&mut self) -> Sent {
        self.next_call().expect("a call was expected")
    }

    /// The endpoint of the call that is out, if one is.
    pub(crate) fn out_endpoint(&mut self) -> Option<Endpoint> {
        self.settle();
        self.out.as_ref().map(Sent::endpoint)
    }

    /// The next sync; other calls on the way are answered as a healthy portal would.
    pub(crate) fn sync(&mut self) -> Sent {
        self.call_of(Endpoint::Sync)
    }

    /// The next call of an endpoint; others on the way are answered as a healthy portal would.
    pub(crate) fn call_of(&mut self, endpoint: Endpoint) -> Sent {
        for _ in 0..100 {
            let sent = self.call();
            if sent.endpoint() == endpoint {
                return sent;
            }
            self.answer_well();
        }
        panic!("a hundred calls without one of {endpoint}");
    }

    /// Whether no call comes for a day.
    pub(crate) fn is_silent_for_a_day(&mut self) -> bool {
        let end = self.now.monotonic.plus_ms(86_400_000);
        loop {
            self.settle();
            if self.out.is_some() {
                return false;
            }
            match self.agent.poll_wake() {
                Some(wake) if wake.at < end => self.wait_for(wake),
                _ => return true,
            }
        }
    }

    /// The call that is out is answered.
    pub(crate) fn reply(&mut self, reply: Result<Reply, Unreachable>) {
        self.settle();
        let ticket = self.ticket.take().expect("a call to answer");
        self.out = None;
        self.tell(Input::Reply(ticket, reply));
    }

    pub(crate) fn answer(&mut self, body: AnswerBody) {
        self.reply(Ok(Reply::Done(body)));
    }

    /// A 200 to a sync.
    pub(crate) fn answer_sync(
        &mut self,
        desired: Option<&Arc<RawValue>>,
        operation: Option<OperationOffer>,
    ) {
        let answer = SyncAnswer {
            portal_time: self.time(),
            desired: desired.cloned(),
            operation,
        };
        self.answer(AnswerBody::Sync(Arc::new(answer)));
    }

    /// What a healthy portal without documents and operations answers.
    pub(crate) fn answer_well(&mut self) {
        self.settle();
        match &self.out.clone().expect("a call to answer").call.request {
            Request::Enroll(_) => self.answer(AnswerBody::Enroll(Arc::new(enroll_answer()))),
            Request::Sync(_) => self.answer_sync(None, None),
            Request::Events { body, .. } => {
                let accepted_sequence = body.events().last().unwrap().sequence;
                self.answer(AnswerBody::Events(protocol::pbx::operation::EventsAnswer {
                    accepted_sequence,
                }));
            }
            Request::Manifest(release) => {
                let signed = signed(&manifest(release.as_str(), 1, "1.4.0"));
                self.answer(AnswerBody::Manifest(signed));
            }
            Request::RotateKey(request) => {
                let active_key_id = request.signing_key.key_id();
                self.answer(AnswerBody::RotateKey(
                    protocol::pbx::rotate::RotateKeyAnswer { active_key_id },
                ));
            }
        }
    }

    pub(crate) fn refuse(&mut self, code: ProblemCode) {
        self.reply(Ok(Reply::Refused(refusal(code))));
    }

    pub(crate) fn unreachable(&mut self) {
        self.reply(Err(Unreachable {
            why: "connection refused".into(),
        }));
    }

    pub(crate) fn time(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.now.wall.unix_ms())
    }

    /// The names of the tasks that were performed since the last time this was asked.
    pub(crate) fn tasks(&mut self) -> Vec<&'static str> {
        self.node
            .performed
            .drain(..)
            .map(|task| name(&task))
            .collect()
    }

    /// The task that is held back has ended.
    pub(crate) fn release(&mut self, result: Result<Done, TaskFailure>) {
        self.release_and_hold(None, result);
    }

    fn release_and_hold(&mut self, next: Option<&'static str>, result: Result<Done, TaskFailure>) {
        self.node.holds = next;
        let (ticket, task, _) = self.node.held.take().expect("a task that is held back");
        self.node.performed.push(task);
        self.tell(Input::Performed(ticket, result));
    }

    /// The held task is done as the node does it.
    pub(crate) fn release_well(&mut self) {
        self.release_well_and_hold(None);
    }

    /// So is the held task, and the next one of this name is held back.
    pub(crate) fn release_well_and_hold(&mut self, next: Option<&'static str>) {
        let (ticket, task, deadline) = self.node.held.take().expect("a task that is held back");
        let result = self.node.perform(&task);
        self.node.held = Some((ticket, task, deadline));
        self.release_and_hold(next, result);
    }

    /// Runs a document into force: sync, manifest, secrets, disk, host.
    pub(crate) fn take(&mut self, raw: &Arc<RawValue>) {
        self.sync();
        self.answer_sync(Some(raw), None);
        while let Some(sent) = self.out.clone() {
            assert_eq!(sent.endpoint(), Endpoint::Manifest);
            self.answer_well();
        }
        assert!(self.disk.in_force, "{:?}", self.notes);
    }

    /// Offers an operation in the next sync.
    pub(crate) fn offer(&mut self, offer: &OperationOffer) {
        self.sync();
        self.answer_sync(None, Some(offer.clone()));
    }
}

impl Node {
    fn new() -> Self {
        Self {
            shows: healthy(),
            failures: Vec::new(),
            holds: None,
            held: None,
            evidence: None,
            unopenable: None,
            performed: Vec::new(),
            probed: Vec::new(),
            opened: 0,
            accounts: Vec::new(),
            gone_uid: None,
            addons: Addons::new(),
            booted: Booted {
                boot_id: BootId("boot-1".into()),
                entry: "pbx-2026.11.1-amd64.efi".parse().unwrap(),
            },
            is_well: true,
            keys_made: 0,
            lease: None,
            servers: Servers::OnlyThis,
            lease_troubles: VecDeque::new(),
            lease_calls: Vec::new(),
            versions: 0,
        }
    }

    fn lease(&mut self, call: LeaseCall) -> Result<LeaseReply, LeaseFailure> {
        self.lease_calls.push(call.clone());
        let trouble = self.lease_troubles.pop_front();
        let silent = Err(LeaseFailure {
            why: "nothing was said".into(),
        });
        if trouble == Some(LeaseTrouble::Lost) || self.shows.k3s.api == ApiState::Down {
            return silent;
        }
        let reply = match call {
            LeaseCall::Read => LeaseReply::Read {
                lease: self.lease.clone(),
                servers: self.servers,
            },
            LeaseCall::Write { over, .. }
                if over != self.lease.as_ref().map(|lease| lease.version.clone()) =>
            {
                LeaseReply::Conflict
            }
            LeaseCall::Write {
                holder, renewed_at, ..
            } => LeaseReply::Written {
                lease: self.write_lease(&holder.to_string(), renewed_at),
                servers: self.servers,
            },
        };
        match trouble {
            Some(LeaseTrouble::AnswerLost) => silent,
            _ => Ok(reply),
        }
    }

    /// Another server has the Lease.
    pub(crate) fn another_leads(&mut self) {
        self.servers = Servers::Several;
        self.write_lease("agt_2_0000000000000001", Timestamp::from_unix_ms(START_MS));
    }

    /// The others are gone, and the Lease with them.
    pub(crate) fn no_other_is_left(&mut self) {
        self.servers = Servers::OnlyThis;
        self.lease = None;
    }

    /// Somebody writes the Lease.
    pub(crate) fn write_lease(&mut self, holder: &str, renewed_at: Timestamp) -> Arc<Lease> {
        self.versions += 1;
        let lease = Arc::new(Lease {
            holder: holder.into(),
            renewed_at,
            version: ResourceVersion(self.versions.to_string().into()),
        });
        self.lease = Some(Arc::clone(&lease));
        lease
    }

    fn perform(&mut self, task: &Task) -> Result<Done, TaskFailure> {
        if let Some(at) = self
            .failures
            .iter()
            .position(|(failing, _)| *failing == name(task))
        {
            return Err(self.failures.remove(at).1);
        }
        Ok(match task {
            Task::MakeKeys(KeySlot::First) => Done::Keys {
                handle: keys(1),
                proof: None,
            },
            Task::MakeKeys(KeySlot::Next { .. }) => {
                self.keys_made += 1;
                Done::Keys {
                    handle: keys(1 + self.keys_made),
                    proof: Some(Signature([7; 64])),
                }
            }
            Task::ReadServerId => Done::ServerId(ServerId(42)),
            Task::SaveSnapshot { name } => Done::SnapshotSaved {
                name: format!("{name}-fsn1-1").parse().unwrap(),
            },
            Task::ConfirmSnapshot { name, .. } => Done::SnapshotConfirmed {
                size: 4096,
                sha256: Sha256Hex::of(name.as_str().as_bytes()),
                location: format!("s3://b/{name}"),
            },
            Task::ForgetStaleNodes { .. } => {
                Done::NodesForgotten(vec!["fsn1-server-9".parse().unwrap()])
            }
            Task::WriteDropIns(_) => Done::DropIns {
                restart_pending: self.shows.restart_pending,
            },
            Task::RestartK3s => {
                self.shows.restart_pending = false;
                Done::Plain
            }
            Task::RequestToken {
                lifetime_seconds, ..
            } => Done::TokenIssued {
                token: sealed("a token"),
                lifetime_seconds: *lifetime_seconds,
            },
            Task::SealKubeconfig { .. } => {
                Done::KubeconfigSealed(Sealed::from_bytes(b"kubeconfig".to_vec()))
            }
            Task::ListAccounts => Done::Accounts(self.accounts.clone()),
            Task::ListBucket(_) => Done::BucketListed { objects: 7 },
            Task::CollectDiagnostics => Done::Collected(bundle([])),
            Task::InspectNode => Done::Inspected(Box::new(NodeFacts {
                booted: self.booted.clone(),
                default_entry: self.booted.entry.clone(),
                k3s_version: "v1.34.1+k3s1".into(),
                variables_persist: true,
                knows_one_shot: true,
                boot_bytes_free: 4 << 30,
                helm_jobs: Vec::new(),
                node_ready: true,
                deployments: Vec::new(),
            })),
            Task::CheckHealth => Done::Health(Box::new(Health {
                booted: self.booted.clone(),
                api_ready: self.is_well,
                node_ready: true,
                node_boot_id: Some(self.booted.boot_id.clone()),
                kubelet_version: Some("v1.34.1+k3s1".into()),
                etcd_healthy: true,
                deployments: Vec::new(),
            })),
            Task::Commit { .. } => Done::Booted(self.booted.clone()),
            Task::Cordon(_) => Done::Cordoned {
                pods: ["a/shop", "a/queue", "a/database"]
                    .map(str::to_owned)
                    .into(),
            },
            Task::Evict(_) => Done::Evicted {
                left: vec!["a/database".to_owned()],
            },
            Task::ConfirmGone { .. } => Done::Gone {
                uid: self.gone_uid.clone(),
            },
            Task::LookAtAddons(_) => Done::AddonsSeen(Box::new(self.addons.seen.clone())),
            Task::ApplyAddon { objects, .. } => {
                Done::AddonApplied(objects.iter().map(|it| self.addons.apply(it)).collect())
            }
            Task::EmptyPlatform(platform) => {
                let applications = self.addons.seen.applications.clone();
                if applications.is_empty() {
                    self.addons.apply(platform);
                }
                Done::Applications(applications)
            }
            Task::DeleteAddon { objects, .. } => {
                self.addons.delete(objects);
                Done::Plain
            }
            _ => Done::Plain,
        })
    }
}

/// The name of a task.
pub(crate) fn name(task: &Task) -> &'static str {
    match task {
        Task::MakeKeys(_) => "MakeKeys",
        Task::ReadServerId => "ReadServerId",
        Task::StoreBootstrap(_) => "StoreBootstrap",
        Task::DropToken => "DropToken",
        Task::WriteK3sConfig => "WriteK3sConfig",
        Task::StartK3s => "StartK3s",
        Task::StopK3s(_) => "StopK3s",
        Task::RestartK3s => "RestartK3s",
        Task::WaitApi => "WaitApi",
        Task::WriteSecrets(_) => "WriteSecrets",
        Task::WriteDropIns(_) => "WriteDropIns",
        Task::LookAtAddons(_) => "LookAtAddons",
        Task::LetGoOfManifests(_) => "LetGoOfManifests",
        Task::ApplyAddon { .. } => "ApplyAddon",
        Task::EmptyPlatform(_) => "EmptyPlatform",
        Task::DeleteAddon { .. } => "DeleteAddon",
        Task::SaveSnapshot { .. } => "SaveSnapshot",
        Task::ConfirmSnapshot { .. } => "ConfirmSnapshot",
        Task::ResetRestore { .. } => "ResetRestore",
        Task::ForgetStaleNodes { .. } => "ForgetStaleNodes",
        Task::PromoteKeys(_) => "PromoteKeys",
        Task::FetchProgram(_) => "FetchProgram",
        Task::CheckProgram(_) => "CheckProgram",
        Task::KeepProgram => "KeepProgram",
        Task::ArmRollback { .. } => "ArmRollback",
        Task::SwapPrograms(_) => "SwapPrograms",
        Task::CommitProgram => "CommitProgram",
        Task::EnsureAccount(_) => "EnsureAccount",
        Task::RequestToken { .. } => "RequestToken",
        Task::SealKubeconfig { .. } => "SealKubeconfig",
        Task::ListAccounts => "ListAccounts",
        Task::DeleteAccounts(_) => "DeleteAccounts",
        Task::ListBucket(_) => "ListBucket",
        Task::CollectDiagnostics => "CollectDiagnostics",
        Task::ClearDatastore(_) => "ClearDatastore",
        Task::InspectNode => "InspectNode",
        Task::FetchImage(_) => "FetchImage",
        Task::StageSlot { .. } => "StageSlot",
        Task::Reboot { .. } => "Reboot",
        Task::CheckHealth => "CheckHealth",
        Task::Commit { .. } => "Commit",
        Task::Cordon(_) => "Cordon",
        Task::Evict(_) => "Evict",
        Task::ConfirmGone { .. } => "ConfirmGone",
        Task::DeleteNode { .. } => "DeleteNode",
    }
}

pub(crate) fn failure(message: &str) -> TaskFailure {
    TaskFailure {
        message: message.into(),
        log_tail: vec![LogLine::from("the last line")],
    }
}

/// A node's numbers, but for the Lease: once it is held it is not renewed for years, so that no test sees its wakes that
/// looks for others.
fn limits() -> Limits {
    let years_ms = 100_000_000_000;
    Limits {
        lease_retry_ms: years_ms,
        lease_alone_ms: years_ms,
        lease_renew_ms_max: 2 * years_ms,
        lease_ms: 3 * years_ms,
        ..Limits::REAL
    }
}

pub(crate) fn facts() -> BootFacts {
    BootFacts {
        config: Config {
            cluster_id: "clu_1".parse().unwrap(),
            node_name: "fsn1-server-1".parse().unwrap(),
            token: Some("pbxe_token".parse().unwrap()),
        },
        agent_version: "1.4.0".parse().unwrap(),
        rolled_back_from: None,
        arch: Arch::Amd64,
        limits: Arc::new(limits()),
        release_keys: Arc::new(release_keys()),
    }
}

pub(crate) fn release_key() -> SigningKey {
    SigningKey::from_seed([9; 32])
}

pub(crate) fn release_keys() -> ReleaseKeys {
    ReleaseKeys::new([VerifyingKey::parse(&release_key().public()).unwrap()]).unwrap()
}

/// Key pairs, told apart by a number; nobody signs with them here.
pub(crate) fn keys(number: u8) -> KeyHandle {
    KeyHandle {
        signing: SigningPublicKey([number; 32]),
        sealing: SealingPublicKey([number; 32]),
    }
}

pub(crate) fn key_pairs(number: u8) -> KeyPairs {
    KeyPairs {
        handle: keys(number),
        created_at: Timestamp::from_unix_ms(START_MS - 86_400_000),
    }
}

pub(crate) fn enrolled() -> Durable {
    Durable {
        identity: Some(Identity {
            agent_id: AgentId::new("agt_1").unwrap(),
            active: key_pairs(1),
            other: None,
        }),
        ..Durable::default()
    }
}

pub(crate) fn healthy() -> Observation {
    Observation {
        boot: BootReport {
            image_sha256: Sha256Hex::of(b"image"),
            entry: "pbx-2026.11.1-amd64.efi".parse().unwrap(),
        },
        k3s: K3sReport {
            version: Some("v1.34.1+k3s1".into()),
            unit: UnitState::Active,
            api: ApiState::Up,
        },
        restart_pending: false,
        problems: Vec::new(),
    }
}

pub(crate) fn api_down() -> Observation {
    let mut shows = healthy();
    shows.k3s.api = ApiState::Down;
    shows
}

pub(crate) fn sealed(text: &str) -> Sealed {
    Sealed::from_bytes(text.as_bytes().to_vec())
}

pub(crate) fn secrets(tag: &str) -> BootstrapSecrets {
    BootstrapSecrets {
        hcloud_token: sealed(&format!("{tag} hcloud")),
        s3: S3Access {
            endpoint: "https://fsn1.example".into(),
            region: "fsn1".into(),
            bucket: "b".into(),
            folder: "clu_1".into(),
            access_key: sealed(&format!("{tag} access")),
            secret_key: sealed(&format!("{tag} secret")),
        },
    }
}

pub(crate) fn enroll_answer() -> EnrollAnswer {
    EnrollAnswer {
        agent_id: AgentId::new("agt_1").unwrap(),
        portal_time: Timestamp::from_unix_ms(START_MS),
        release: "2026.11.1".parse().unwrap(),
        k3s: K3sBootstrap {
            config: serde_json::Map::new(),
            token: sealed("token"),
            agent_token: sealed("agent token"),
        },
        secrets: secrets("bootstrap"),
        manifests: Vec::new(),
    }
}

pub(crate) fn desired(generation: u64) -> DesiredState {
    DesiredState {
        generation: Generation(generation),
        release: "2026.11.1".parse().unwrap(),
        agent_version: "1.4.0".parse().unwrap(),
        host: HostConfig {
            snapshot_schedule: "0 */6 * * *".into(),
            snapshot_retention: 14,
            ingress_mode: IngressMode::Bundled,
        },
        maintenance_window: MaintenanceWindow {
            days: vec![Weekday::Sunday],
            start: "02:00".parse().unwrap(),
            duration_minutes: 120,
            time_zone: "Europe/Berlin".into(),
        },
        secrets: secrets("document"),
        addons: Vec::new(),
    }
}

pub(crate) fn document(generation: u64) -> Arc<RawValue> {
    desired(generation).to_raw()
}

pub(crate) fn manifest(version: &str, floor: u64, agent_version: &str) -> Manifest {
    Manifest {
        version: version.parse().unwrap(),
        created_at: Timestamp::from_unix_ms(START_MS),
        floor,
        template_engine: TemplateEngine::Minijinja,
        agent: AgentRelease {
            version: agent_version.parse().unwrap(),
            artifacts: Vec::new(),
        },
        image: ImageRelease {
            k3s_version: "v1.34.1+k3s1".into(),
            artifacts: Vec::new(),
        },
        addons: Vec::new(),
    }
}

pub(crate) fn signed_by(key: &SigningKey, manifest: &Manifest) -> Arc<SignedManifest> {
    Arc::new(sign_manifest(key, serde_json::to_vec(manifest).unwrap()))
}

pub(crate) fn signed(manifest: &Manifest) -> Arc<SignedManifest> {
    signed_by(&release_key(), manifest)
}

pub(crate) fn offer(id: &str, params: &Params) -> OperationOffer {
    OperationOffer {
        id: id.parse().unwrap(),
        kind: params.kind(),
        target: "fsn1-server-1".parse().unwrap(),
        params: params.to_raw(),
        consent: None,
    }
}

/// A refusal as the portal words it.
pub(crate) fn refusal(code: ProblemCode) -> Refusal {
    Refusal {
        status: code.status(),
        ..refusal_with(code.status(), Some(code))
    }
}

/// A refusal of any status, in JSON; a code that does not go with the status is fine.
pub(crate) fn refusal_with(status: u16, code: Option<ProblemCode>) -> Refusal {
    Refusal {
        status,
        code,
        raw_code: code.map(|code| code.as_str().to_owned()),
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

/// What a proxy answers: a page.
pub(crate) fn page(status: u16) -> Refusal {
    Refusal {
        is_json: false,
        ..refusal_with(status, None)
    }
}

pub(crate) fn broken() -> Reply {
    Reply::Broken {
        status: 200,
        why: BrokenBody::TooLarge(300_000),
    }
}
