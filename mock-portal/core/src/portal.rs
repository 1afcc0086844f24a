//! The machine: a request and a moment go in, an answer and the changes to the state come out.

use protocol::dialect::Dialect;
use protocol::problem::ProblemCode;
use protocol::sign::SigningKey;

use crate::answer::{Answer, Content, Refused};
use crate::control::Control;
use crate::request::{PortalNow, RawRequest, TypedCall};
use crate::shard::Shards;
use crate::state::Changes;

/// What a portal is made with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The names that it speaks by.
    pub dialect: Dialect,
    /// The key that signs releases.
    pub release_key: SigningKey,
    /// Where its chance comes from: the same seed and the same calls give the same IDs, tokens and boxes.
    pub seed: [u8; 32],
    /// How many signatures it remembers at most, over all shards (SIGN-5).
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
        Self { settings }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Answers a request, all of SIGN-6 from the first step to the last. The changes are made when this returns.
    pub fn answer(&self, request: &RawRequest<'_>, now: PortalNow) -> (Answer, Changes) {
        let _ = (request, now);
        not_yet()
    }

    /// Answers a request without bytes: the same machine behind the signature, for virtual time.
    pub fn answer_typed(&self, call: TypedCall, now: PortalNow) -> (Answer, Changes) {
        let _ = (call, now);
        not_yet()
    }

    /// The control API's verbs, at one moment.
    pub fn control(&self, now: PortalNow) -> Control<'_> {
        Control::new(self, now)
    }
}

fn not_yet() -> (Answer, Changes) {
    let refused = Refused::new(ProblemCode::Internal, "KEY-4", "a portal that is built", "one that is not");
    (Answer { endpoint: None, agent: None, content: Content::Refused(Box::new(refused)) }, Changes::default())
}
