//! The machine: a request and a moment go in, an answer and the changes to the state come out.
//!
//! A request finds its shard by the agent's ID or by its token, and waits for nobody else's. Its signature is verified
//! outside the lock, which is where a request spends most of its time; whatever depends on the agent's state is decided
//! under the lock, once, in the order of SIGN-6.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use protocol::dialect::Dialect;
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::id::{AgentId, ReleaseVersion};
use protocol::pbx::call::{AnswerBody, Request};
use protocol::pbx::enroll::EnrollRequest;
use protocol::pbx::sync::{SyncAnswer, SyncReport};
use protocol::problem::ProblemCode;
use protocol::sign::{SigningKey, canonical};

use crate::answer::{Answer, Content, Refused};
use crate::checks::{self, Claim, Proven, Routed, Unread};
use crate::clock::{ClockSetting, Moment};
use crate::control::Control;
use crate::counters::Tally;
use crate::enroll::Outside;
use crate::hetzner::Hetzner;
use crate::identities::{self, KeyPair};
use crate::limiter::Window;
use crate::near_miss::{Budget, Wrong};
use crate::operations;
use crate::releases::Releases;
use crate::replay::Seen;
use crate::request::{PortalNow, RawRequest, TypedCall};
use crate::seals::Seals;
use crate::shard::Shards;
use crate::snapshot::{OtherShards, ShardMemory, SharedMemory, Snapshot};
use crate::state::{Change, Changes, ShardState, Shared, Work};

/// What a portal is made with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The names that it speaks by.
    pub dialect: Dialect,
    /// The key that signs releases.
    pub release_key: SigningKey,
    /// Where its chance comes from: the same seed and the same calls give the same IDs, tokens and boxes.
    pub seed: [u8; 32],
    /// How many signatures it remembers at most, over all shards (SIGN-5). At least one a shard.
    pub replay_capacity: usize,
    /// The lowest protocol that it speaks; a lower one is 426.
    pub minimum_protocol: u32,
    /// When it answers 429.
    pub rate_limits: RateLimits,
    /// Into how many parts its clusters are divided.
    pub shards: Shards,
}

/// When a portal answers 429; by default never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// For the signed requests of one agent.
    pub per_agent: Option<RateLimit>,
    /// For all enrollments together: before its token is read, nobody knows whose one is.
    pub enroll: Option<RateLimit>,
}

/// So many requests within so many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// How many pass.
    pub requests: u32,
    /// In how many seconds, from the first of them.
    pub seconds: u32,
}

/// A portal. Shared by reference between threads; requests of different shards do not wait for each other.
pub struct Portal {
    settings: Settings,
    shards: Box<[Mutex<Shard>]>,
    shared: Shared,
    sequence: AtomicU64,
    tally: Tally,
    enrollments: Mutex<Window>,
    searches: Mutex<Budget>,
}

/// One shard: what is remembered, and what is only kept at hand.
pub(crate) struct Shard {
    pub(crate) state: ShardState,
    pub(crate) seals: Seals,
    windows: HashMap<AgentId, Window>,
}

impl Settings {
    /// The defaults: this protocol's names, a million signatures, protocol 1, no rate limit, 16 shards.
    pub fn new(release_key: SigningKey, seed: [u8; 32]) -> Self {
        Self {
            dialect: Dialect::default(),
            release_key,
            seed,
            replay_capacity: 1_000_000,
            minimum_protocol: 1,
            rate_limits: RateLimits::default(),
            shards: Shards::default(),
        }
    }
}

impl Portal {
    /// A fresh portal: release `2026.11.1`, no cluster, no token, no agent.
    pub fn new(settings: Settings) -> Self {
        let shard = |index| {
            let seals = Seals::new(&settings.seed, index);
            Mutex::new(Shard {
                state: ShardState::default(),
                seals,
                windows: HashMap::new(),
            })
        };
        Self {
            shards: (0..settings.shards.count()).map(shard).collect(),
            shared: Shared::fresh(&settings.release_key),
            sequence: AtomicU64::new(0),
            tally: Tally::new(),
            enrollments: Mutex::default(),
            searches: Mutex::default(),
            settings,
        }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Answers a request, all of SIGN-6 from the first step to the last. The changes are made when this returns.
    pub fn answer(&self, request: &RawRequest<'_>, now: PortalNow) -> (Answer, Changes) {
        let moment = self.moment(now);
        self.counted(match checks::route_of(&self.settings.dialect, request) {
            Err((endpoint, refused)) => refusal(endpoint, refused),
            Ok(routed) if routed.route.endpoint == Endpoint::Enroll => self.enroll(
                || checks::read(&routed, self.settings.minimum_protocol),
                moment,
            ),
            Ok(routed) => match self.prove(request, &routed, moment) {
                Err(refused) => refusal(Some(routed.route.endpoint), refused),
                Ok(proven) => {
                    let read = checks::read(&routed, self.settings.minimum_protocol);
                    self.signed(routed.route.endpoint, &proven, read, moment)
                }
            },
        })
    }

    /// Answers a request without bytes: the same machine behind the signature, for virtual time.
    pub fn answer_typed(&self, call: TypedCall, now: PortalNow) -> (Answer, Changes) {
        let moment = self.moment(now);
        let endpoint = call.request.endpoint();
        let minimum_protocol = self.settings.minimum_protocol;
        self.counted(match call.agent {
            None if endpoint == Endpoint::Enroll => self.enroll(
                || checks::read_typed(call.request, minimum_protocol),
                moment,
            ),
            None => refusal(Some(endpoint), checks::wrong_signature("an agent", "none")),
            Some(agent) => {
                let seen = Seen::of_fingerprint(&call.key, call.fingerprint);
                let proven = Proven {
                    agent,
                    key: call.key,
                    at: call.at,
                    seen,
                };
                let read = checks::read_typed(call.request, minimum_protocol);
                self.signed(endpoint, &proven, read, moment)
            }
        })
    }

    /// The control API's verbs, at one moment.
    pub fn control(&self, now: PortalNow) -> Control<'_> {
        Control::new(self, now)
    }

    /// Makes changes that another portal of the same settings has made, in their order: what a restart with data does.
    pub fn restore(&self, changes: &Changes) {
        self.sequence.fetch_max(changes.sequence, Ordering::Relaxed);
        for change in &changes.changes {
            match (change.shard(self.settings.shards), change) {
                (Some(shard), _) => {
                    self.shard(shard).state.apply(change);
                    self.registry().apply(change);
                }
                (None, Change::ReleasePublished { signed }) => {
                    self.releases_mut().publish(Arc::clone(signed));
                }
                (None, Change::ClockSet { setting }) => *self.clock_mut() = *setting,
                (None, Change::HetznerServerPut { .. } | Change::HetznerForgotten) => {
                    self.hetzner_mut().apply(change);
                }
                (None, _) => self.empty_all(|_, _| {}),
            }
        }
    }

    /// All that it remembers now. Waits for requests that are being decided, and they for it.
    pub fn snapshot(&self) -> Snapshot {
        let shards: Vec<_> = self.shards.iter().map(locked).collect();
        Snapshot {
            sequence: self.sequence.load(Ordering::Relaxed),
            shards: shards
                .iter()
                .map(|shard| ShardMemory(shard.state.clone()))
                .collect(),
            shared: SharedMemory {
                registry: self.registry().clone(),
                releases: self.releases().clone(),
                hetzner: self.hetzner().clone(),
                clock: *self.clock(),
            },
        }
    }

    /// Begins with what a portal of the same settings remembered.
    ///
    /// # Errors
    /// When that one had another number of shards; nothing is changed then.
    pub fn begin_with(&self, snapshot: Snapshot) -> Result<(), OtherShards> {
        let Snapshot {
            sequence,
            shards,
            shared,
        } = snapshot;
        if shards.len() != self.shards.len() {
            return Err(OtherShards {
                made: shards.len(),
                has: self.shards.len(),
            });
        }
        self.sequence.store(sequence, Ordering::Relaxed);
        for (shard, memory) in self.shards.iter().zip(shards) {
            locked(shard).state = memory.0;
        }
        *self.registry() = shared.registry;
        *self.releases_mut() = shared.releases;
        *self.hetzner_mut() = shared.hetzner;
        *self.clock_mut() = shared.clock;
        Ok(())
    }

    /// The number of the last changes that were made: whoever waits until these are kept has lost nothing that an answer
    /// before it can have told.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// The latest moment of the monotonic clock that it remembers anything of. A clock that goes on from there after a
    /// restart forgets no signature too early (SIGN-5).
    pub fn latest_monotonic_ms(&self) -> u64 {
        let seen = self
            .shards
            .iter()
            .map(|shard| locked(shard).state.replay.until_monotonic_ms());
        seen.max()
            .unwrap_or(0)
            .max(self.clock().set_at_monotonic_ms)
    }

    /// Whether two portals remember the same: what a test of a restart with data asks.
    pub fn remembers_the_same_as(&self, other: &Self) -> bool {
        let same_shard = |(mine, theirs): (&Mutex<Shard>, &Mutex<Shard>)| {
            locked(mine).state == locked(theirs).state
        };
        self.shards.iter().zip(&other.shards).all(same_shard)
            && *self.registry() == *other.registry()
            && *self.releases() == *other.releases()
            && *self.hetzner() == *other.hetzner()
            && *self.clock() == *other.clock()
    }

    /// 401 for headers and signature: everything about a signature that needs no more state than the agent's keys.
    fn prove(
        &self,
        request: &RawRequest<'_>,
        routed: &Routed<'_>,
        moment: Moment,
    ) -> Result<Proven, Box<Refused>> {
        let dialect = &self.settings.dialect;
        let Claim {
            agent,
            at,
            signature,
        } = checks::claim(dialect, request)?;
        let keys = {
            let shard = self.shard(self.settings.shards.of_agent(&agent));
            shard
                .state
                .agents
                .get(&agent)
                .map(|agent| agent.keys.clone())
        };
        let keys = keys.ok_or_else(|| checks::unknown_agent(&agent))?;
        let signed = canonical(
            dialect,
            request.method,
            request.target,
            at,
            &Sha256Hex::of(routed.body),
        );
        if let Some(pair) = keys
            .in_force(moment)
            .find(|pair| pair.signing.verify(&signed, &signature))
        {
            let key = pair.signing.public();
            return Ok(Proven {
                agent,
                key,
                at,
                seen: Seen::of_bytes(&key, &signed),
            });
        }
        let host = request
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let wrong = Wrong {
            dialect,
            method: request.method,
            target: request.target,
            host: host.and_then(|(_, value)| std::str::from_utf8(value).ok()),
            agent: agent.as_str(),
            at,
            body: routed.body,
            signature: &signature,
            keys: &keys,
        };
        let search = locked(&self.searches).take(moment.monotonic_ms);
        let mut refused = checks::wrong_signature(
            "a signature of the agent's key over METHOD LF PATH LF TIMESTAMP LF HEX(SHA256(BODY))",
            "one that does not verify",
        );
        refused.explanation.signature = Some(Box::new(wrong.explain(search)));
        Err(refused)
    }

    /// A request with a right signature, from the agent's state on. `read` is the body, read before the lock was taken;
    /// what was wrong with it counts only in its place.
    fn signed(
        &self,
        endpoint: Endpoint,
        proven: &Proven,
        read: Result<Request, Unread>,
        moment: Moment,
    ) -> (Answer, Changes) {
        let mut shard = self.shard(self.settings.shards.of_agent(&proven.agent));
        let Shard {
            state,
            seals,
            windows,
        } = &mut *shard;
        let mut work = Work::new(state);
        let decided = self.decide(&mut work, seals, windows, proven, read, moment);
        let changes = self.numbered(work.into_changes());
        let content = match decided {
            Ok(body) => Content::Done(body),
            Err(refused) => Content::Refused(refused),
        };
        let mut answer = Answer {
            endpoint: Some(endpoint),
            agent: None,
            content,
        };
        if !matches!(
            answer.code(),
            Some(ProblemCode::UnknownAgent | ProblemCode::BadSignature)
        ) {
            answer.agent = Some(proven.agent.clone());
        }
        (answer, changes)
    }

    fn decide(
        &self,
        work: &mut Work<'_>,
        seals: &mut Seals,
        windows: &mut HashMap<AgentId, Window>,
        proven: &Proven,
        read: Result<Request, Unread>,
        moment: Moment,
    ) -> Result<AnswerBody, Box<Refused>> {
        let agent = &proven.agent;
        let pair = checks::admit(work, proven, self.replay_capacity_of_a_shard(), moment)?;
        if let Some(limit) = self.settings.rate_limits.per_agent {
            let window = windows.entry(agent.clone()).or_default();
            window
                .take(limit, moment.monotonic_ms)
                .map_err(checks::too_many)?;
        }
        match read.map_err(|unread| unread.refused(|| self.release_of(work, agent)))? {
            Request::Sync(report) => Ok(AnswerBody::Sync(Arc::new(
                self.sync(work, seals, agent, &pair, report, moment),
            ))),
            Request::Events { operation, body } => {
                operations::take_events(work, agent, &operation, &body, moment)
                    .map(AnswerBody::Events)
            }
            Request::Manifest(version) => self.manifest(&version).map(AnswerBody::Manifest),
            Request::RotateKey(request) => {
                let mut registry = self.registry();
                identities::rotate(work, &mut registry, agent, &pair, &request, moment)
                    .map(AnswerBody::RotateKey)
            }
            Request::Enroll(_) => Err(Refused::new(
                ProblemCode::InvalidRequest,
                "SIGN-6",
                "a request of a signed endpoint",
                "an enrollment",
            )),
        }
    }

    /// `POST /sync`, from its shape on.
    fn sync(
        &self,
        work: &mut Work<'_>,
        seals: &mut Seals,
        agent: &AgentId,
        pair: &KeyPair,
        report: Arc<SyncReport>,
        moment: Moment,
    ) -> SyncAnswer {
        work.change(Change::Reported {
            agent: agent.clone(),
            at: moment.time,
            report,
        });
        identities::ask_for_rotation(work, seals, agent, moment);
        let document = work
            .agent(agent)
            .and_then(|agent| work.state().clusters.get(&agent.cluster)?.document.as_ref());
        let desired = document.map(|document| seals.document(agent, &pair.sealing, document));
        let operation = operations::hand_out(work, seals, agent, &pair.sealing, moment);
        SyncAnswer {
            portal_time: moment.time,
            desired,
            operation,
        }
    }

    fn manifest(
        &self,
        version: &ReleaseVersion,
    ) -> Result<Arc<protocol::verified::SignedManifest>, Box<Refused>> {
        self.releases().signed(version).ok_or_else(|| {
            let came = format!("release {version}");
            Refused::new(
                ProblemCode::NotFound,
                "SIGN-6",
                "a release that was published",
                came,
            )
        })
    }

    /// `POST /enroll`, from its rate on.
    fn enroll(
        &self,
        read: impl FnOnce() -> Result<Request, Unread>,
        moment: Moment,
    ) -> (Answer, Changes) {
        let refused = |refused| refusal(Some(Endpoint::Enroll), refused);
        if let Some(limit) = self.settings.rate_limits.enroll
            && let Err(wait_seconds) = locked(&self.enrollments).take(limit, moment.monotonic_ms)
        {
            return refused(checks::too_many(wait_seconds));
        }
        match read() {
            Ok(Request::Enroll(request)) => self.enroll_read(&request, moment),
            Ok(_) => refused(Refused::new(
                ProblemCode::InvalidRequest,
                "SIGN-6",
                "an enrollment",
                "another request",
            )),
            Err(unread) => refused(unread.refused(|| self.releases().latest().clone())),
        }
    }

    fn enroll_read(&self, request: &EnrollRequest, moment: Moment) -> (Answer, Changes) {
        let mut shard = self.shard(self.settings.shards.of_token(&request.token));
        let Shard { state, seals, .. } = &mut *shard;
        let mut work = Work::new(state);
        let decided = {
            let mut registry = self.registry();
            let (releases, hetzner) = (self.releases(), self.hetzner());
            let outside = Outside {
                releases: &releases,
                hetzner: &hetzner,
            };
            crate::enroll::enroll(&mut work, &mut registry, outside, seals, request, moment)
        };
        let changes = self.numbered(work.into_changes());
        let (agent, content) = match decided {
            Ok((agent, answer)) => (
                Some(agent),
                Content::Done(AnswerBody::Enroll(Arc::new(answer))),
            ),
            Err(refused) => (None, Content::Refused(refused)),
        };
        (
            Answer {
                endpoint: Some(Endpoint::Enroll),
                agent,
                content,
            },
            changes,
        )
    }

    /// The release that a 426 names: the one that the agent's document names, else the one published last.
    fn release_of(&self, work: &Work<'_>, agent: &AgentId) -> ReleaseVersion {
        let cluster = work
            .agent(agent)
            .and_then(|agent| work.state().clusters.get(&agent.cluster));
        match cluster.and_then(|cluster| cluster.document.as_ref()) {
            Some(document) => document.input.release.clone(),
            None => self.releases().latest().clone(),
        }
    }

    fn replay_capacity_of_a_shard(&self) -> usize {
        (self.settings.replay_capacity / self.settings.shards.count()).max(1)
    }

    /// Signatures for which all shards together have room.
    pub(crate) fn replay_capacity(&self) -> usize {
        self.replay_capacity_of_a_shard() * self.settings.shards.count()
    }

    fn counted(&self, answered: (Answer, Changes)) -> (Answer, Changes) {
        self.tally.count(&answered.0);
        answered
    }
}

/// What the control API needs of the machine.
impl Portal {
    pub(crate) fn moment(&self, now: PortalNow) -> Moment {
        self.clock().moment(now)
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Gives changes their place in the order. To be called while what they touch is still locked.
    pub(crate) fn numbered(&self, changes: Vec<Change>) -> Changes {
        let sequence = if changes.is_empty() {
            0
        } else {
            self.sequence.fetch_add(1, Ordering::Relaxed) + 1
        };
        Changes { sequence, changes }
    }

    /// Forgets everything but settings, release keys and what is around the portal, which is its clock's setting and the
    /// simulated Hetzner API; calls `last` with these while all is locked.
    pub(crate) fn empty_all<T>(
        &self,
        last: impl FnOnce(&mut ClockSetting, &mut Hetzner) -> T,
    ) -> T {
        let mut shards: Vec<_> = self.shards.iter().map(locked).collect();
        let mut registry = self.registry();
        let mut releases = self.releases_mut();
        for shard in &mut shards {
            shard.state.apply(&Change::Emptied);
            shard.seals.forget();
            shard.windows.clear();
        }
        registry.apply(&Change::Emptied);
        *releases = Releases::fresh(&self.settings.release_key);
        let mut hetzner = self.hetzner_mut();
        last(&mut self.clock_mut(), &mut hetzner)
    }

    pub(crate) fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        locked(&self.shards[index])
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, identities::Registry> {
        locked(&self.shared.registry)
    }

    pub(crate) fn releases(&self) -> RwLockReadGuard<'_, Releases> {
        self.shared
            .releases
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn releases_mut(&self) -> RwLockWriteGuard<'_, Releases> {
        self.shared
            .releases
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hetzner(&self) -> RwLockReadGuard<'_, Hetzner> {
        self.shared
            .hetzner
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hetzner_mut(&self) -> RwLockWriteGuard<'_, Hetzner> {
        self.shared
            .hetzner
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clock(&self) -> RwLockReadGuard<'_, ClockSetting> {
        self.shared
            .clock
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clock_mut(&self) -> RwLockWriteGuard<'_, ClockSetting> {
        self.shared
            .clock
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(endpoint: Option<Endpoint>, refused: Box<Refused>) -> (Answer, Changes) {
    (
        Answer {
            endpoint,
            agent: None,
            content: Content::Refused(refused),
        },
        Changes::default(),
    )
}

/// A lock whose last holder panicked is taken all the same: state changes only in `apply`, which does not panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
