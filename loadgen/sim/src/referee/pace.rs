//! Referees 4, 5, 6 and 12: what an agent sends, how often, and how long it waits.
//!
//! Bounds are worked out here again, from the rules' numbers.

use std::collections::VecDeque;
use std::sync::Arc;

use agent_core::journal::Work;
use agent_core::limits::{Limits, SIGN_AGAIN_MS};
use agent_core::machine::{Call, KeyHandle, Wake, WakeReason};
use agent_core::pbx::durable::Durable;
use agent_core::time::Monotonic;
use protocol::endpoint::Endpoint;
use protocol::pbx::call::{Refusal, Request, RetryAfter};
use protocol::problem::ProblemCode;

use super::Bench;
use crate::trace::Event;

/// Refusals of one request after which it is not sent again (ANS-2), and of a token (ENR-7).
const REFUSALS_MAX: u32 = 3;
/// The one bound on the portal's word, in seconds (ANS-7).
const WORD_SECONDS_MAX: u64 = 86_400;
/// Requests of a boot that were refused with 400 and are remembered.
const REFUSED_KEPT: usize = 8;
/// Signatures of a boot that are remembered. They differ by their second, and the pace lets few go out in one.
const SIGNATURES_KEPT: usize = 16;

/// What is known of one agent's requests.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    limits: Arc<Limits>,
    booted: Option<Monotonic>,
    /// When the last sync was due that was answered with 200.
    last_sync: Option<Monotonic>,
    /// When an answer last made the agent wait, and before when it may not send.
    failed: Option<Failure>,
    /// The longest row of failures that was waited for since the last success: its base never shrinks.
    row: u32,
    wake: Option<Wake>,
    /// The requests that were refused with 400 last, and how often.
    refused: VecDeque<(Content, u32)>,
    two_keys: bool,
    keys_refused: Vec<KeyHandle>,
    revoked: bool,
    sent_this_boot: bool,
    token_refusals: u32,
    signed: [Signed; SIGNATURES_KEPT],
    next_signed: usize,
    host_failed: Option<Monotonic>,
    /// A step of the agent's own update, which has a row of its own.
    update_failed: Option<Monotonic>,
    store_failed: Option<Monotonic>,
}

#[derive(Debug, Clone, Copy)]
struct Failure {
    at: Monotonic,
    word_seconds: Option<u64>,
    not_before: Monotonic,
}

/// Which request of a boot it is: two that agree here have the same bytes.
type Content = (Endpoint, [u64; 2]);

/// What tells one signature of a boot from another: its second, the beginning of its key and which request it is under.
type Signed = Option<(u64, [u8; 8], Content)>;

impl Pace {
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        Self {
            limits,
            booted: None,
            last_sync: None,
            failed: None,
            row: 0,
            wake: None,
            refused: VecDeque::new(),
            two_keys: false,
            keys_refused: Vec::new(),
            revoked: false,
            sent_this_boot: false,
            token_refusals: 0,
            signed: [const { None }; SIGNATURES_KEPT],
            next_signed: 0,
            host_failed: None,
            update_failed: None,
            store_failed: None,
        }
    }

    pub(super) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    pub(super) fn see(&mut self, event: &Event, bench: &mut Bench<'_>) {
        let now = bench.now.monotonic;
        match event {
            Event::Booted(durable) => self.boot(durable, now),
            Event::Stored(durable) => {
                self.two_keys = has_two_keys(durable);
                self.store_failed = None;
            }
            Event::StoreFailed => self.store_failed = Some(now),
            Event::Sent(call) => self.sends(call, bench),
            Event::Answered { call, .. } => self.answered(call),
            Event::Refused { call, refusal } => self.refused(call, refusal, bench),
            Event::Unanswered { .. } => self.fails(now, None),
            Event::Ended {
                began,
                succeeded: false,
            } => match began.record.work {
                // A step of an operation that fails ends it, and nothing is tried again.
                Work::Operation { .. } => {}
                Work::Update { .. } => self.update_failed = Some(now),
                Work::Enrollment { .. } | Work::Document { .. } => self.host_failed = Some(now),
            },
            Event::Waits(wake) => self.waits(*wake, bench),
            _ => {}
        }
    }

    fn boot(&mut self, durable: &Durable, now: Monotonic) {
        let limits = Arc::clone(&self.limits);
        *self = Self {
            booted: Some(now),
            two_keys: has_two_keys(durable),
            revoked: self.revoked,
            token_refusals: self.token_refusals,
            ..Self::new(limits)
        };
    }

    fn sends(&mut self, call: &Call<Request>, bench: &mut Bench<'_>) {
        let now = bench.now.monotonic;
        let endpoint = call.request.endpoint();
        let content = content(&call.request);
        if let Some((_, times)) = self.refused.iter().find(|(refused, _)| *refused == content) {
            let breach = *times >= REFUSALS_MAX;
            bench.judge(
                4,
                breach.then(|| {
                    format!("{endpoint} was refused with 400 {times} times and is sent again")
                }),
            );
        }
        if self.revoked {
            let breach = self.sent_this_boot || call.stamp.is_none();
            bench.judge(
                5,
                breach.then(|| {
                    format!("{endpoint} is sent by a revoked agent that has asked in this boot")
                }),
            );
        }
        if endpoint == Endpoint::Enroll && self.token_refusals > 0 {
            let breach = self.token_refusals >= REFUSALS_MAX;
            bench.judge(
                5,
                breach.then(|| "a token that was refused three times is sent again".to_owned()),
            );
        }
        self.sent_this_boot = true;
        if let Some(failure) = &self.failed {
            let early = failure.not_before.as_ms().saturating_sub(now.as_ms());
            bench.judge(
                6,
                (early > 0)
                    .then(|| format!("{endpoint} is sent {early} ms before its wait is over")),
            );
        }
        if endpoint == Endpoint::Sync
            && self.failed.is_none()
            && let Some(last) = self.last_sync
        {
            let limits = &self.limits;
            let earliest = last.plus_ms(
                limits
                    .sync_interval_ms
                    .saturating_sub(limits.sync_jitter_ms),
            );
            let early = earliest.as_ms().saturating_sub(now.as_ms());
            bench.judge(
                6,
                (early > 0).then(|| format!("a sync is sent {early} ms before one may be due")),
            );
        }
        if let Some(stamp) = &call.stamp {
            let signed = Some((stamp.at.0, first_eight(&stamp.key.signing.0), content));
            let again = self.signed.contains(&signed);
            bench.judge(
                12,
                again.then(|| {
                    format!(
                        "{endpoint} carries a signature of {} a second time",
                        stamp.at.0
                    )
                }),
            );
            self.signed[self.next_signed] = signed;
            self.next_signed = (self.next_signed + 1) % SIGNATURES_KEPT;
        }
    }

    fn answered(&mut self, call: &Call<Request>) {
        self.failed = None;
        self.row = 0;
        self.revoked = false;
        self.keys_refused.clear();
        let endpoint = call.request.endpoint();
        self.forget_manifests(endpoint);
        if endpoint == Endpoint::Sync {
            self.last_sync = Some(call.intended);
        }
    }

    fn refused(&mut self, call: &Call<Request>, refusal: &Refusal, bench: &mut Bench<'_>) {
        let now = bench.now.monotonic;
        let endpoint = call.request.endpoint();
        match refusal.status {
            400 => {
                let content = content(&call.request);
                let known = self
                    .refused
                    .iter()
                    .position(|(refused, _)| *refused == content);
                let before = known.and_then(|at| self.refused.remove(at));
                self.forget_manifests(endpoint);
                if self.refused.len() == REFUSED_KEPT {
                    self.refused.pop_front();
                }
                let times = before.map_or(0, |(_, times)| times) + 1;
                self.refused.push_back((content, times));
                self.is_told(now);
            }
            401 if refusal.is_empty || refusal.code.is_some_and(|code| code.status() == 401) => {
                self.is_told(now);
                match &call.stamp {
                    Some(stamp) => {
                        if !self.keys_refused.contains(&stamp.key) {
                            self.keys_refused.push(stamp.key);
                        }
                        if !self.two_keys || self.keys_refused.len() > 1 {
                            self.revoked = true;
                            bench.judge(5, None);
                        }
                    }
                    None => {
                        if refusal.code.is_some_and(is_about_token) {
                            self.token_refusals += 1;
                        }
                    }
                }
            }
            429 | 503 => {
                let word = match refusal.retry_after {
                    RetryAfter::Seconds(seconds) => Some(seconds.clamp(1, WORD_SECONDS_MAX)),
                    _ => None,
                };
                self.fails(now, word);
            }
            500.. => self.fails(now, None),
            _ => self.is_told(now),
        }
    }

    /// Once the manifest of another release is asked for, that of one which was refused may be asked for again (ANS-2).
    fn forget_manifests(&mut self, asked: Endpoint) {
        if asked == Endpoint::Manifest {
            self.refused.retain(|((endpoint, _), _)| *endpoint != asked);
        }
    }

    /// An answer that may make the agent wait, for which no least wait is owed.
    fn is_told(&mut self, at: Monotonic) {
        self.failed = Some(Failure {
            at,
            word_seconds: None,
            not_before: at,
        });
    }

    /// A failure for which the rules name a least wait: the portal's word, or that of a backoff.
    fn fails(&mut self, at: Monotonic, word_seconds: Option<u64>) {
        let least_ms = word_seconds.map_or(self.limits.backoff_ms_min, |seconds| seconds * 1000);
        self.failed = Some(Failure {
            at,
            word_seconds,
            not_before: at.plus_ms(least_ms),
        });
    }

    fn waits(&mut self, wake: Option<Wake>, bench: &mut Bench<'_>) {
        if wake == self.wake {
            return;
        }
        self.wake = wake;
        let Some(Wake { at, why }) = wake else { return };
        if let WakeReason::Backoff { failures } = why {
            let shrunk = failures < self.row;
            bench.judge(
                6,
                shrunk.then(|| {
                    format!(
                        "backs off as after {failures} failures, after {} before",
                        self.row
                    )
                }),
            );
            self.row = self.row.max(failures);
        }
        let limits = &self.limits;
        let bounds = match why {
            WakeReason::SyncDue => self.last_sync.map(|last| {
                let (interval, jitter) = (limits.sync_interval_ms, limits.sync_jitter_ms);
                (last, interval.saturating_sub(jitter), interval + jitter)
            }),
            WakeReason::FirstSync => self
                .booted
                .map(|booted| (booted, 0, limits.first_sync_ms_max)),
            WakeReason::PortalsWord { seconds } => self.failed.and_then(|failure| {
                let word = failure.word_seconds.unwrap_or(seconds);
                let ms = word * 1000;
                Some((failure.at, ms, ms + limits.retry_after_spread_ms_max))
                    .filter(|_| failure.word_seconds.is_none_or(|word| word == seconds))
            }),
            WakeReason::Backoff { failures } => self.failed.map(|failure| {
                let (low, high) = backoff_ms(limits, failures);
                (failure.at, low, high)
            }),
            WakeReason::TaskRetry { failures } => {
                let (low, high) = backoff_ms(limits, failures);
                let of_update =
                    |failed: &Monotonic| at >= failed.plus_ms(low) && at <= failed.plus_ms(high);
                let failed = self.update_failed.filter(of_update).or(self.host_failed);
                failed.map(|failed| (failed, low, high))
            }
            WakeReason::StoreRetry { failures } => self.store_failed.map(|failed| {
                let (low, high) = backoff_ms(limits, failures);
                (failed, low, high)
            }),
            WakeReason::LooksAgain => Some((bench.now.monotonic, 0, limits.health_look_ms)),
            WakeReason::SignAgain => Some((bench.now.monotonic, 0, SIGN_AGAIN_MS)),
            WakeReason::Lease => {
                let latest = bench.now.monotonic.plus_ms(limits.lease_alone_ms);
                Some((Monotonic::default(), 0, latest.as_ms()))
            }
            WakeReason::Reapply | WakeReason::WindowOpens | WakeReason::TaskDeadline => None,
        };
        let Some((from, low, high)) = bounds else {
            return;
        };
        let (earliest, latest) = (from.plus_ms(low), from.plus_ms(high));
        // A cycle that took longer delays the next one, so what is overdue is due at once (SYNC-9).
        let fits = at >= earliest && (at <= latest || at <= bench.now.monotonic);
        bench.judge(
            6,
            (!fits).then(|| {
                let (at, from) = (at.as_ms(), from.as_ms());
                format!(
                    "waits until {at} for {why:?}, which is not {low} to {high} ms after {from}"
                )
            }),
        );
    }
}

/// The shortest and the longest wait after so many failures in a row (ANS-8): b = min(300 s, 10 s · 2ⁿ), n from 0, uniform
/// in [max(5 s, b/2), b].
fn backoff_ms(limits: &Limits, failures: u32) -> (u64, u64) {
    let mut base = limits.backoff_first_ms;
    for _ in 1..failures.min(64) {
        base = base.saturating_mul(2).min(limits.backoff_ms_max);
    }
    let base = base.min(limits.backoff_ms_max);
    (limits.backoff_ms_min.max(base / 2), base)
}

fn has_two_keys(durable: &Durable) -> bool {
    durable
        .identity
        .as_ref()
        .is_some_and(|identity| identity.other.is_some())
}

fn is_about_token(code: ProblemCode) -> bool {
    matches!(
        code,
        ProblemCode::InvalidToken
            | ProblemCode::TokenUsed
            | ProblemCode::TokenExpired
            | ProblemCode::ServerMismatch
    )
}

fn content(request: &Request) -> Content {
    let which = match request {
        Request::Sync(report) => [report.sequence, 0],
        Request::Enroll(_) => [0, 0],
        Request::Events { operation, body } => {
            let ends = body.events().first().zip(body.events().last());
            let (first, last) =
                ends.map_or((0, 0), |(first, last)| (first.sequence, last.sequence));
            [hash(operation.as_str()), (first << 32) | last]
        }
        Request::Manifest(release) => [hash(release.as_str()), 0],
        Request::RotateKey(request) => [u64::from_le_bytes(first_eight(&request.signing_key.0)), 0],
    };
    (request.endpoint(), which)
}

fn first_eight(bytes: &[u8; 32]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    first
}

/// FNV-1a: the same in every process, and good enough to tell names apart.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
