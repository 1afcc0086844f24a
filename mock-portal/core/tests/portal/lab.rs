//! A portal on a clock that the test moves, and agents that sign as real ones do.

use std::sync::Arc;

use portal_core::control::{
    ClockInput, DesiredInput, HetznerServer, OperationInput, TokenLine, TokensInput,
};
use portal_core::{
    Answer, Body, Changes, Content, Explanation, Portal, PortalNow, RawRequest, Settings, TypedCall,
};
use protocol::dialect::Dialect;
use protocol::hash::Sha256Hex;
use protocol::id::{AgentId, ClusterId, EnrollmentToken, OperationId, ServerId};
use protocol::pbx::call::{AnswerBody, Request};
use protocol::pbx::enroll::{EnrollAnswer, EnrollRequest};
use protocol::pbx::operation::{EventState, OperationEvent, OperationEvents, OperationOffer, Step};
use protocol::pbx::rotate::RotateKeyRequest;
use protocol::pbx::sync::{DesiredState, SyncAnswer, SyncReport};
use protocol::problem::ProblemCode;
use protocol::seal::{Sealed, SealingSecretKey};
use protocol::sign::{Signature, SigningKey, canonical, rotation_proof_bytes};
use protocol::time::{Timestamp, UnixSeconds};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// 2026-11-30T01:02:03Z.
pub(crate) const START_MS: i64 = 1_796_000_523_000;

pub(crate) struct Lab {
    pub(crate) portal: Portal,
    pub(crate) now: PortalNow,
    /// Every change that was made, in order.
    pub(crate) changes: Vec<Changes>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new(release_key(), [42; 32]);
        change(&mut settings);
        let now = PortalNow {
            wall: Timestamp::from_unix_ms(START_MS),
            monotonic_ms: 5_000,
        };
        Self {
            portal: Portal::new(settings),
            now,
            changes: Vec::new(),
        }
    }

    /// Time passes.
    pub(crate) fn pass_s(&mut self, seconds: i64) {
        self.now.wall = Timestamp::from_unix_ms(self.now.wall.unix_ms() + seconds * 1000);
        self.now.monotonic_ms += seconds.unsigned_abs() * 1000;
    }

    pub(crate) fn token(&mut self, cluster: &str, node: &str) -> TokenLine {
        self.tokens(json!({"cluster_id": cluster, "node_name": node}))
            .remove(0)
    }

    pub(crate) fn tokens(&mut self, input: Value) -> Vec<TokenLine> {
        let input: TokensInput = serde_json::from_value(input).unwrap();
        let (made, changes) = self.portal.control(self.now).make_tokens(&input).unwrap();
        self.changes.push(changes);
        made.tokens
    }

    /// Puts a server into the simulated Hetzner API.
    pub(crate) fn hetzner(&mut self, server: u64, says: Value) {
        let says: HetznerServer = serde_json::from_value(says).unwrap();
        let (_, changes) = self
            .portal
            .control(self.now)
            .put_hetzner_server(ServerId(server), says)
            .unwrap();
        self.changes.push(changes);
    }

    /// An agent with keys of its own, enrolled.
    pub(crate) fn agent(&mut self, cluster: &str, node: &str, seed: u8) -> Agent {
        let token = self.token(cluster, node);
        let mut agent = Agent::new(&token, seed);
        let answer = self.enroll(&agent.enrollment(&token.token));
        agent.enrolled = Some(expect_enrolled(&answer));
        agent
    }

    pub(crate) fn enroll(&mut self, request: &EnrollRequest) -> Answer {
        self.send(&Raw::unsigned(Request::Enroll(Arc::new(request.clone()))))
    }

    pub(crate) fn send(&mut self, raw: &Raw) -> Answer {
        let headers: Vec<(&str, &[u8])> = raw
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect();
        let body = if raw.too_large {
            Body::TooLarge
        } else {
            Body::Complete(&raw.body)
        };
        let request = RawRequest {
            method: &raw.method,
            target: &raw.target,
            headers: &headers,
            body,
        };
        let (answer, changes) = self.portal.answer(&request, self.now);
        self.changes.push(changes);
        answer
    }

    pub(crate) fn send_typed(&mut self, call: TypedCall) -> Answer {
        let (answer, changes) = self.portal.answer_typed(call, self.now);
        self.changes.push(changes);
        answer
    }

    pub(crate) fn sign(&self, agent: &Agent, request: &Request) -> Raw {
        Raw::signed(agent, request, self.seconds())
    }

    /// Signs now and sends.
    pub(crate) fn call(&mut self, agent: &Agent, request: &Request) -> Answer {
        let raw = self.sign(agent, request);
        self.send(&raw)
    }

    /// A report, a second later than the one before.
    pub(crate) fn sync(&mut self, agent: &mut Agent) -> Answer {
        self.pass_s(1);
        let report = agent.report();
        self.call(agent, &Request::Sync(Arc::new(report)))
    }

    pub(crate) fn synced(&mut self, agent: &mut Agent) -> Arc<SyncAnswer> {
        expect_synced(&self.sync(agent))
    }

    /// The operation in the next sync's answer.
    pub(crate) fn offer(&mut self, agent: &mut Agent) -> Option<OperationOffer> {
        self.synced(agent).operation.clone()
    }

    pub(crate) fn events(
        &mut self,
        agent: &Agent,
        operation: &OperationId,
        events: Vec<OperationEvent>,
    ) -> Answer {
        self.pass_s(1);
        let body = Arc::new(OperationEvents::new(events).unwrap());
        self.call(
            agent,
            &Request::Events {
                operation: operation.clone(),
                body,
            },
        )
    }

    pub(crate) fn seconds(&self) -> UnixSeconds {
        UnixSeconds(
            self.portal
                .control(self.now)
                .clock()
                .portal_time
                .unix_seconds() as u64,
        )
    }

    pub(crate) fn set_desired(&mut self, cluster: &str, input: DesiredInput) -> u64 {
        let (set, changes) = self
            .portal
            .control(self.now)
            .set_desired(&cluster_id(cluster), input)
            .unwrap();
        self.changes.push(changes);
        set.generation.0
    }

    pub(crate) fn post(&mut self, cluster: &str, input: Value) -> OperationId {
        // From text: `params` stays raw.
        let input: OperationInput = serde_json::from_str(&input.to_string()).unwrap();
        let (posted, changes) = self
            .portal
            .control(self.now)
            .post_operation(&cluster_id(cluster), input)
            .unwrap();
        self.changes.push(changes);
        posted.id
    }

    pub(crate) fn set_clock(&mut self, offset_ms: i64) {
        let input = ClockInput {
            offset_ms,
            drift_ppm: 0,
        };
        let (_, changes) = self.portal.control(self.now).set_clock(input);
        self.changes.push(changes);
    }

    pub(crate) fn revoke(&mut self, agent: &Agent) {
        let (_, changes) = self.portal.control(self.now).revoke(agent.id()).unwrap();
        self.changes.push(changes);
    }

    pub(crate) fn count(&self, code: ProblemCode) -> u64 {
        let lines = self.portal.control(self.now).counters().answers;
        lines
            .iter()
            .filter(|line| line.code == Some(code))
            .map(|line| line.count)
            .sum()
    }
}

/// A node's keys, and what it knows of itself.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) signing: SigningKey,
    pub(crate) sealing: SealingSecretKey,
    pub(crate) cluster: String,
    pub(crate) node: String,
    pub(crate) server: ServerId,
    pub(crate) image: Sha256Hex,
    pub(crate) enrolled: Option<Arc<EnrollAnswer>>,
    pub(crate) leader: bool,
    pub(crate) reports: u64,
}

impl Agent {
    pub(crate) fn new(token: &TokenLine, seed: u8) -> Self {
        Self {
            signing: SigningKey::from_seed([seed; 32]),
            sealing: SealingSecretKey::from_seed([seed ^ 0x80; 32]),
            cluster: token.cluster_id.to_string(),
            node: token.node_name.to_string(),
            server: ServerId(4200 + u64::from(seed)),
            image: Sha256Hex::of(b"image"),
            enrolled: None,
            leader: true,
            reports: 0,
        }
    }

    pub(crate) fn id(&self) -> &AgentId {
        &self.enrolled.as_ref().expect("enrolled").agent_id
    }

    /// The same agent with other keys.
    pub(crate) fn with_keys(&self, seed: u8) -> Self {
        Self {
            signing: SigningKey::from_seed([seed; 32]),
            sealing: SealingSecretKey::from_seed([seed ^ 0x80; 32]),
            ..self.clone()
        }
    }

    pub(crate) fn enrollment(&self, token: &EnrollmentToken) -> EnrollRequest {
        let mut request = json!({
            "protocol": 1, "token": "-", "cluster_id": self.cluster, "node_name": self.node, "server_id": self.server,
            "signing_key": self.signing.public(), "sealing_key": self.sealing.public(),
            "boot_image_sha256": self.image, "agent_version": "1.4.0", "arch": "amd64"});
        request["token"] = Value::from(token.expose());
        serde_json::from_value(request).unwrap()
    }

    pub(crate) fn report(&mut self) -> SyncReport {
        self.reports += 1;
        serde_json::from_value(self.report_json()).unwrap()
    }

    pub(crate) fn report_json(&self) -> Value {
        json!({
            "protocol": 1, "sequence": self.reports, "agent_version": "1.4.0", "arch": "amd64", "node_name": self.node,
            "boot": {"image_sha256": self.image, "entry": "pbx-2026.11.1-amd64.efi"},
            "k3s": {"version": "v1.34.1+k3s1", "unit": "active", "api": "up"}, "leader": self.leader,
            "document": {"applied_generation": 0, "seen_generation": 0, "result": "applied", "message": null},
            "addons": [], "operation": null, "update": {"running": "1.4.0", "rolled_back_from": null},
            "restart_pending": false, "clock_offset_ms": 0, "keys_created_at": "2026-09-01T00:00:00Z",
            "last_error": null, "problems": []})
    }

    pub(crate) fn rotation_to(&self, new: &Agent) -> RotateKeyRequest {
        let proof = new.signing.sign(&rotation_proof_bytes(
            &self.signing.public(),
            &new.signing.public(),
        ));
        RotateKeyRequest {
            signing_key: new.signing.public(),
            sealing_key: new.sealing.public(),
            proof,
        }
    }

    pub(crate) fn open(&self, sealed: &Sealed) -> Option<String> {
        self.sealing
            .open(sealed)
            .ok()
            .map(|secret| secret.expose_text().unwrap().to_owned())
    }
}

/// A request as bytes, to be damaged.
#[derive(Clone)]
pub(crate) struct Raw {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) too_large: bool,
}

impl Raw {
    pub(crate) fn unsigned(request: Request) -> Self {
        let mut headers = Vec::new();
        if request.method() == "POST" {
            headers.push(("content-type".to_owned(), b"application/json".to_vec()));
        }
        Self {
            method: request.method().to_owned(),
            target: request.path(&Dialect::default()),
            headers,
            body: request.body(),
            too_large: false,
        }
    }

    pub(crate) fn signed(agent: &Agent, request: &Request, at: UnixSeconds) -> Self {
        let mut raw = Self::unsigned(request.clone());
        raw.sign(agent, at);
        raw
    }

    /// Signs it as it stands.
    pub(crate) fn sign(&mut self, agent: &Agent, at: UnixSeconds) {
        let bytes = canonical(
            &Dialect::default(),
            &self.method,
            &self.target,
            at,
            &Sha256Hex::of(&self.body),
        );
        self.put_signature(agent, at, agent.signing.sign(&bytes));
    }

    /// Signs other bytes than are due.
    pub(crate) fn sign_bytes(&mut self, agent: &Agent, at: UnixSeconds, bytes: &[u8]) {
        self.put_signature(agent, at, agent.signing.sign(bytes));
    }

    fn put_signature(&mut self, agent: &Agent, at: UnixSeconds, signature: Signature) {
        self.set("Pbx-Agent-Id", agent.id().as_str());
        self.set("Pbx-Timestamp", &at.to_string());
        self.set("Pbx-Signature", &signature.to_string());
    }

    /// What is to be signed.
    pub(crate) fn due(&self, at: UnixSeconds) -> Vec<u8> {
        canonical(
            &Dialect::default(),
            &self.method,
            &self.target,
            at,
            &Sha256Hex::of(&self.body),
        )
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.remove(name);
        self.add(name, value);
    }

    pub(crate) fn add(&mut self, name: &str, value: &str) {
        self.headers
            .push((name.to_owned(), value.as_bytes().to_vec()));
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.headers
            .retain(|(header, _)| !header.eq_ignore_ascii_case(name));
    }

    pub(crate) fn header(&self, name: &str) -> String {
        let found = self
            .headers
            .iter()
            .find(|(header, _)| header.eq_ignore_ascii_case(name));
        String::from_utf8(found.expect("a header").1.clone()).unwrap()
    }
}

pub(crate) fn release_key() -> SigningKey {
    SigningKey::from_seed([9; 32])
}

pub(crate) fn cluster_id(id: &str) -> ClusterId {
    ClusterId::new(id).unwrap()
}

/// The status and code of an answer: `"200"`, `"401 bad_signature"`.
pub(crate) fn said(answer: &Answer) -> String {
    match answer.code() {
        None => answer.status().to_string(),
        Some(code) => format!("{} {code}", answer.status()),
    }
}

pub(crate) fn explanation(answer: &Answer) -> &Explanation {
    &answer.refused().expect("a refusal").explanation
}

pub(crate) fn expect_enrolled(answer: &Answer) -> Arc<EnrollAnswer> {
    match &answer.content {
        Content::Done(AnswerBody::Enroll(answer)) => Arc::clone(answer),
        other => panic!("not enrolled: {other:?}"),
    }
}

pub(crate) fn expect_synced(answer: &Answer) -> Arc<SyncAnswer> {
    match &answer.content {
        Content::Done(AnswerBody::Sync(answer)) => Arc::clone(answer),
        other => panic!("not synced: {other:?}"),
    }
}

pub(crate) fn desired_of(answer: &SyncAnswer) -> DesiredState {
    DesiredState::read(answer.desired.as_ref().expect("a document"))
        .expect("a document that can be read")
}

/// The protocol's example, secrets in clear.
pub(crate) fn desired() -> DesiredInput {
    serde_json::from_value(desired_json()).unwrap()
}

pub(crate) fn desired_json() -> Value {
    json!({
        "release": "2026.11.1", "agent_version": "1.4.0",
        "host": {"snapshot_schedule": "0 */6 * * *", "snapshot_retention": 14, "ingress_mode": "bundled"},
        "maintenance_window": {"days": ["sun"], "start": "02:00", "duration_minutes": 120, "time_zone": "Europe/Berlin"},
        "secrets": {"hcloud_token": "CANARY-hcloud",
                    "s3": {"endpoint": "https://fsn1.example", "region": "fsn1", "bucket": "b", "folder": "clu_01J9",
                           "access_key": "CANARY-access", "secret_key": "CANARY-secret"}},
        "addons": [{"name": "cert-manager", "enabled": true, "options": {"replicas": 2},
                    "secret_options": {"acme_key": "CANARY-acme"}},
                   {"name": "external-dns", "enabled": true, "options": {}, "secret_options": {}},
                   {"name": "metrics", "enabled": false, "options": {}, "secret_options": {}}]})
}

pub(crate) fn event(sequence: u64, step: Option<Step>, state: EventState) -> OperationEvent {
    OperationEvent {
        sequence,
        at: Timestamp::from_unix_ms(START_MS),
        step,
        state,
        message: None,
        log_tail: None,
        reason: None,
        result: None,
    }
}

pub(crate) fn final_event(sequence: u64, result: Value) -> OperationEvent {
    let raw = RawValue::from_string(result.to_string()).unwrap();
    OperationEvent {
        result: Some(Arc::from(raw)),
        ..event(sequence, None, EventState::Succeeded)
    }
}
