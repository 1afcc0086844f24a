//! The pace: when this agent may call its portal at all, and what it makes of an answer's status (ANS-1 to ANS-10).
//!
//! One pace gates every call of an agent; lanes only queue. [`Pace::judge`] is the table of answers, one arm a row. What an
//! answer *holds* is the lane's affair, and so are the codes of a single endpoint (ENR-7, ENR-8, OPS-8).

use std::borrow::Cow;
use std::collections::VecDeque;

use protocol::endpoint::{Authentication, Endpoint};
use protocol::limits::{CLOCK_SKEW_SECONDS_MAX, RETRY_AFTER_SECONDS_MAX, SAME_REQUEST_SENT_MAX};
use protocol::pbx::call::{AnswerBody, Refusal, Reply, RetryAfter};
use protocol::problem::ProblemCode;
use protocol::time::{Timestamp, UnixSeconds};

use super::durable::IdleReason;
use super::rotate;
use super::shared::Shared;
use crate::backoff::Backoff;
use crate::limits::{CLOCK_CORRECTIONS_MAX, SIGN_AGAIN_MS};
use crate::machine::{Stamp, Unreachable, Wake, WakeReason};
use crate::note::Note;
use crate::seed::{Chance, Purpose, Seed};
use crate::time::Monotonic;

/// When this agent may call.
#[derive(Debug)]
pub(super) struct Pace {
    gate: Gate,
    backoff: Backoff,
    /// Corrections of the clock offset since a call last succeeded (ANS-5).
    corrections: u32,
    /// The key in use was refused, and the other one on disk is tried (ANS-4).
    other_key_tried: bool,
    /// The identity was revoked, and this start's one question is not answered yet (ANS-4).
    asking_again: bool,
    backoff_jitter: Chance,
    retry_after_spread: Chance,
}

/// Whether a call may go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Until(Wake),
    /// Nothing more in this life of the program.
    Shut,
}

/// How one and the same request has fared so far: the same method, path and body (ANS-2).
#[derive(Debug, Default)]
pub(super) struct Tries {
    refused: u32,
    signed_again: bool,
    /// The seconds that it was signed with last: wherever a word of the portal leads the clock, and leads it back to, no
    /// second is used twice.
    signed_at: VecDeque<u64>,
}

impl Tries {
    /// Once, and not beyond the third time that the request goes out (ANS-3).
    fn may_be_signed_again(&self) -> bool {
        !self.signed_again && self.refused + 1 < SAME_REQUEST_SENT_MAX
    }

    /// The second to sign with, now that it is `clock`: later than those before, unless nobody would take one by now
    /// (SIGN-4).
    fn sign_at(&mut self, clock: u64) -> u64 {
        let can_follow = |second: &&u64| **second < clock + CLOCK_SKEW_SECONDS_MAX;
        let latest = self.signed_at.iter().filter(can_follow).max();
        let earliest = latest.map_or(clock, |second| clock.max(second + 1));
        let is_unused = |second: &u64| !self.signed_at.contains(second);
        let at = (earliest..).find(is_unused).unwrap_or(earliest);
        if self.signed_at.len() == SIGNED_AT_KEPT {
            self.signed_at.pop_front();
        }
        self.signed_at.push_back(at);
        at
    }
}

/// What a lane is to do with an answer.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The answer counts (ANS-1).
    Done(AnswerBody),
    /// The same request is to go out again, byte for byte, once the gate opens (ANS-3).
    Again,
    /// The request was refused with 400 so many times (ANS-2).
    Refused(RequestRefused),
    /// The identity is taken as revoked; the gate is shut (ANS-4).
    Revoked,
    /// Nothing was achieved; the lane may ask anew once the gate opens. With what the portal said, if it spoke.
    Later(Option<Refusal>),
}

/// A request that was refused with 400 (ANS-2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestRefused {
    /// The code, or the status where there was none.
    pub(super) code: String,
    /// How often this same request was refused.
    pub(super) times: u32,
}

impl RequestRefused {
    /// Whether the same request must never go out again.
    pub(super) fn is_final(&self) -> bool {
        self.times >= SAME_REQUEST_SENT_MAX
    }
}

impl Pace {
    /// The pace of a start: `first_sync_waits` where this start's first call is a sync (SYNC-10).
    pub(super) fn boot(seed: Seed, shared: &Shared, first_sync_waits: bool) -> Self {
        let gate = if first_sync_waits {
            let wait_ms = seed
                .child(Purpose::FirstSync)
                .between(0, shared.facts.limits.first_sync_ms_max);
            Gate::Until(Wake {
                at: shared.now.monotonic.plus_ms(wait_ms),
                why: WakeReason::FirstSync,
            })
        } else {
            Gate::Open
        };
        Self {
            gate,
            backoff: Backoff::default(),
            corrections: 0,
            other_key_tried: false,
            asking_again: matches!(shared.journal.idle, Some(IdleReason::Revoked { .. })),
            backoff_jitter: seed.child(Purpose::BackoffJitter),
            retry_after_spread: seed.child(Purpose::RetryAfterSpread),
        }
    }

    /// Nothing is sent any more.
    pub(super) fn shut(&mut self) {
        self.gate = Gate::Shut;
    }

    pub(super) fn is_shut(&self) -> bool {
        self.gate == Gate::Shut
    }

    /// Whether this start only asks whether its identity is still revoked.
    pub(super) fn only_asks_again(&self) -> bool {
        self.asking_again
    }

    /// When the gate opens, if it is not open.
    pub(super) fn opens(&self, now: Monotonic) -> Option<Wake> {
        match self.gate {
            Gate::Until(wake) if wake.at > now => Some(wake),
            Gate::Until(_) | Gate::Open | Gate::Shut => None,
        }
    }

    /// When the gate opened last, if calls have waited for it.
    pub(super) fn opened(&self) -> Option<Monotonic> {
        match self.gate {
            Gate::Until(wake) => Some(wake.at),
            Gate::Open | Gate::Shut => None,
        }
    }

    /// How a request is to be signed now; the other key signs while it is on trial (ANS-4). A request that goes out again
    /// has a later timestamp than before (ANS-3), unless the clock was set back so far that nobody would take one (SIGN-4).
    pub(super) fn stamp(&self, shared: &Shared, tries: &mut Tries) -> Option<Stamp> {
        let identity = shared.journal.identity.as_ref()?;
        let preferred = rotate::preferred(&shared.journal, identity);
        let key = match &identity.other {
            Some(other) if self.other_key_tried && preferred != other.handle => other.handle,
            Some(_) if self.other_key_tried => identity.active.handle,
            _ => preferred,
        };
        let clock = shared.time().unix_seconds().max(0).unsigned_abs();
        let clock = clock.min(LATEST_STAMP - 2 * CLOCK_SKEW_SECONDS_MAX);
        Some(Stamp {
            agent: identity.agent_id.clone(),
            key,
            at: UnixSeconds(tries.sign_at(clock)),
        })
    }
}

/// How many seconds that a request was signed with are remembered: more than a clock is led to within one request's tries.
const SIGNED_AT_KEPT: usize = 16;
/// The last timestamp that has ten digits (KEY-2).
const LATEST_STAMP: u64 = 9_999_999_999;

/// The table of answers.
impl Pace {
    /// What becomes of an answer: sets the gate for every lane, and says what this request's lane is to do.
    pub(super) fn judge(
        &mut self,
        shared: &mut Shared,
        endpoint: Endpoint,
        tries: &mut Tries,
        reply: Result<Reply, Unreachable>,
    ) -> Verdict {
        if self.asking_again {
            return self.judge_asked_again(shared, reply);
        }
        let refusal = match reply {
            // ANS-1
            Ok(Reply::Done(answer)) if answer.endpoint() == endpoint => {
                self.succeed();
                return Verdict::Done(answer);
            }
            // ANS-9: an answer to something else
            Ok(Reply::Done(_)) => {
                self.back_off(
                    shared,
                    endpoint,
                    Some(200),
                    "the answer is another endpoint's".into(),
                );
                return Verdict::Later(None);
            }
            // ANS-8: no network
            Err(unreachable) => {
                self.back_off(shared, endpoint, None, unreachable.why);
                return Verdict::Later(None);
            }
            // ANS-9: a 200 that is none
            Ok(Reply::Broken { status, why }) => {
                self.back_off(shared, endpoint, Some(status), why.to_string().into());
                return Verdict::Later(None);
            }
            Ok(Reply::Refused(refusal)) => refusal,
        };
        let is_signed = endpoint.authentication() == Authentication::Signature;
        match (refusal.status, refusal.code) {
            // ANS-3
            (400, Some(ProblemCode::Replayed)) if is_signed && tries.may_be_signed_again() => {
                tries.signed_again = true;
                tries.refused += 1;
                shared.note(Note::SignedAgain { endpoint });
                self.sign_again(shared);
                Verdict::Again
            }
            // ANS-2
            (400, _) => {
                tries.refused += 1;
                let refused = RequestRefused {
                    code: code_or_status(&refusal),
                    times: tries.refused,
                };
                shared.note(Note::RequestRefused {
                    endpoint,
                    code: refused.code.clone(),
                    detail: refusal.detail.clone(),
                    times: refused.times,
                });
                self.back_off_from(shared, endpoint, &refusal);
                Verdict::Refused(refused)
            }
            // ENR-7: a token's refusal is the enrollment's affair, and no identity can be revoked there.
            (401, _) if !is_signed => self.later(shared, endpoint, refusal),
            // ANS-4
            (401, code) if is_portals_word(&refusal) => self.unauthorized(shared, code),
            // ANS-5
            (409, Some(ProblemCode::ClockSkew)) => self.clock_skew(shared, endpoint, refusal),
            // ANS-6, as far as it is here: the update itself is not.
            (426, _) => {
                shared.note(Note::ProtocolTooOld {
                    endpoint,
                    release: refusal.release.clone(),
                });
                self.later(shared, endpoint, refusal)
            }
            // ANS-7
            (429, _) => {
                match portals_word(shared, &refusal) {
                    Some(word) => self.wait_as_told(shared, endpoint, refusal.status, word),
                    None => self.back_off_from(shared, endpoint, &refusal),
                }
                Verdict::Later(Some(refusal))
            }
            // ANS-7 for 503: the longer of the portal's word and the backoff.
            (503, _) => {
                let backoff_ms = self.backoff_ms(shared);
                match portals_word(shared, &refusal).filter(|word| word.bounded_ms() > backoff_ms) {
                    Some(word) => self.wait_as_told(shared, endpoint, refusal.status, word),
                    None => self.wait_backoff(
                        shared,
                        endpoint,
                        Some(refusal.status),
                        why(&refusal),
                        backoff_ms,
                    ),
                }
                Verdict::Later(Some(refusal))
            }
            // ANS-8 for every other 5xx; ANS-9 for a proxy's 401, 3xx, other 4xx, other 2xx.
            _ => self.later(shared, endpoint, refusal),
        }
    }

    /// A success ends every row: of failures, of corrections, of keys on trial (ANS-10).
    fn succeed(&mut self) {
        self.gate = Gate::Open;
        self.backoff.succeed();
        self.corrections = 0;
        self.other_key_tried = false;
    }

    /// The one question that a revoked agent asks at a start: a 200 lifts the revocation, anything else leaves it idle,
    /// and nothing more is sent in this life of the program (ANS-4).
    fn judge_asked_again(
        &mut self,
        shared: &mut Shared,
        reply: Result<Reply, Unreachable>,
    ) -> Verdict {
        self.asking_again = false;
        match reply {
            Ok(Reply::Done(answer)) => {
                shared.journal.change().idle = None;
                shared.note(Note::RevocationLifted);
                self.succeed();
                Verdict::Done(answer)
            }
            _ => {
                self.shut();
                Verdict::Revoked
            }
        }
    }

    /// ANS-4: the other key on disk once, then idle.
    fn unauthorized(&mut self, shared: &mut Shared, code: Option<ProblemCode>) -> Verdict {
        let has_other = shared
            .journal
            .identity
            .as_ref()
            .is_some_and(|identity| identity.other.is_some());
        if has_other && !self.other_key_tried {
            self.other_key_tried = true;
            shared.note(Note::OtherKeyTried);
            self.sign_again(shared);
            return Verdict::Later(None);
        }
        shared.journal.change().idle = Some(IdleReason::Revoked { code });
        shared.note(Note::Revoked { code });
        self.shut();
        Verdict::Revoked
    }

    /// ANS-5: the offset is always the portal's time minus the raw clock, so that it heals by itself; only two corrections
    /// in a row are tried at once.
    fn clock_skew(&mut self, shared: &mut Shared, endpoint: Endpoint, refusal: Refusal) -> Verdict {
        let Some(portal_time) = portals_time(&refusal) else {
            return self.later(shared, endpoint, refusal);
        };
        shared.clock_offset_ms = portal_time
            .unix_ms()
            .saturating_sub(shared.now.wall.unix_ms());
        shared.note(Note::ClockCorrected {
            offset_ms: shared.clock_offset_ms,
        });
        self.corrections += 1;
        if self.corrections > CLOCK_CORRECTIONS_MAX {
            return self.later(shared, endpoint, refusal);
        }
        self.sign_again(shared);
        Verdict::Later(Some(refusal))
    }

    fn sign_again(&mut self, shared: &Shared) {
        self.gate = Gate::Until(Wake {
            at: shared.now.monotonic.plus_ms(SIGN_AGAIN_MS),
            why: WakeReason::SignAgain,
        });
    }

    fn later(&mut self, shared: &mut Shared, endpoint: Endpoint, refusal: Refusal) -> Verdict {
        self.back_off_from(shared, endpoint, &refusal);
        Verdict::Later(Some(refusal))
    }

    fn back_off_from(&mut self, shared: &mut Shared, endpoint: Endpoint, refusal: &Refusal) {
        if let RetryAfter::Unreadable(raw) = &refusal.retry_after {
            shared.note(Note::UnreadableRetryAfter { raw: raw.clone() });
        }
        self.back_off(shared, endpoint, Some(refusal.status), why(refusal));
    }

    /// ANS-8.
    pub(super) fn back_off(
        &mut self,
        shared: &mut Shared,
        endpoint: Endpoint,
        status: Option<u16>,
        why: Cow<'static, str>,
    ) {
        let wait_ms = self.backoff_ms(shared);
        self.wait_backoff(shared, endpoint, status, why, wait_ms);
    }

    fn backoff_ms(&mut self, shared: &Shared) -> u64 {
        self.backoff
            .fail(&shared.facts.limits, &mut self.backoff_jitter)
    }

    fn wait_backoff(
        &mut self,
        shared: &mut Shared,
        endpoint: Endpoint,
        status: Option<u16>,
        why: Cow<'static, str>,
        wait_ms: u64,
    ) {
        let failures = self.backoff.failures();
        self.gate = Gate::Until(Wake {
            at: shared.now.monotonic.plus_ms(wait_ms),
            why: WakeReason::Backoff { failures },
        });
        shared.note(Note::BackedOff {
            endpoint,
            status,
            why,
            failures,
            wait_ms,
        });
    }

    /// ANS-7: never shorter than the portal's word, but for its bound of a day.
    fn wait_as_told(
        &mut self,
        shared: &mut Shared,
        endpoint: Endpoint,
        status: u16,
        word: PortalsWord,
    ) {
        let spread_ms = self
            .retry_after_spread
            .between(0, shared.facts.limits.retry_after_spread_ms_max);
        let wait_ms = word.bounded_ms() + spread_ms;
        self.gate = Gate::Until(Wake {
            at: shared.now.monotonic.plus_ms(wait_ms),
            why: WakeReason::PortalsWord {
                seconds: word.bounded_seconds(),
            },
        });
        shared.note(Note::PortalWait {
            endpoint,
            status,
            raw_seconds: word.raw_seconds,
            wait_ms,
        });
    }
}

/// A wait that the portal asked for, before its bound.
#[derive(Debug, Clone, Copy)]
struct PortalsWord {
    raw_seconds: u64,
}

impl PortalsWord {
    fn bounded_seconds(self) -> u64 {
        self.raw_seconds.min(RETRY_AFTER_SECONDS_MAX)
    }

    fn bounded_ms(self) -> u64 {
        self.bounded_seconds() * 1_000
    }
}

/// What the portal asks for. A date in `Retry-After` is held against the portal's own time where the answer says it, since
/// a node's clock may be off by more than the wait.
fn portals_word(shared: &Shared, refusal: &Refusal) -> Option<PortalsWord> {
    let now = portals_time(refusal).unwrap_or_else(|| shared.time());
    refusal
        .retry_after
        .wait_seconds(now)
        .map(|raw_seconds| PortalsWord { raw_seconds })
}

/// The portal's time by an answer: `portal_time`, or else a `Date` that no cache has kept (ANS-5).
fn portals_time(refusal: &Refusal) -> Option<Timestamp> {
    refusal
        .portal_time
        .or(if refusal.has_age { None } else { refusal.date })
}

/// Whether a 401 is the portal's own and not a proxy's: empty, or JSON with a code of the table (ANS-4).
fn is_portals_word(refusal: &Refusal) -> bool {
    refusal.is_empty || (refusal.is_json && refusal.code.is_some())
}

/// The code of a refusal, or its status where there was none.
pub(super) fn code_or_status(refusal: &Refusal) -> String {
    refusal
        .raw_code
        .clone()
        .unwrap_or_else(|| refusal.status.to_string())
}

fn why(refusal: &Refusal) -> Cow<'static, str> {
    match (&refusal.raw_code, &refusal.detail) {
        (Some(code), Some(detail)) => format!("{code}: {detail}").into(),
        (Some(code), None) => code.clone().into(),
        (None, _) => "an answer without a code".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Tries;

    // rule ANS-5: wherever the clock is led, and led back to, no second signs the same request twice.
    #[test]
    fn ans_5_no_second_signs_a_request_twice_wherever_the_clock_is_led() {
        let (start, year) = (1_796_000_000, 365 * 86_400);
        let by_years = [0, 10, 0, 3, 10, 2, 3, 0].map(|years| years * year);
        let by_seconds = [0, 60, 0, 59, 1, 60, 0, 61];
        for ahead in [by_years, by_seconds] {
            let clocks = ahead.map(|seconds| start + seconds);
            let mut tries = Tries::default();
            let signed = clocks.map(|clock| tries.sign_at(clock));
            let distinct: BTreeSet<u64> = signed.into();
            assert_eq!(distinct.len(), signed.len(), "{signed:?}");
            for (at, clock) in signed.iter().zip(clocks) {
                assert!(at - clock <= 64, "{at} is far from {clock}");
            }
        }
    }
}
