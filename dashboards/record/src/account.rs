//! Nothing is lost: what was planned, what was started and how it ended add up, and agree with the portal's own counters.
//!
//! Per endpoint, over the whole run, warm-up included:
//!
//! - planned = started + dropped
//! - started = answered + transport + timed out + aborted
//! - against the portal: see [`Account::check_against`]
//!
//! A run whose account does not add up is broken (exit code 6), whatever its figures say.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use protocol::endpoint::Endpoint;

use crate::label::ByLabel;
use crate::outcome::{Class, Outcome};

/// The account of a run, a line for each endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Account {
    lines: ByLabel<Endpoint, Line>,
}

/// The account of one endpoint, or of all together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// Requests that were due.
    pub planned: u64,
    /// Requests that were due and that the generator did not start.
    pub dropped: u64,
    /// Requests that were started.
    pub started: u64,
    /// How those that were started ended.
    pub ended: ByLabel<Outcome, u64>,
}

/// What the portal counted itself. Over a restart or a reset of the portal the caller adds the counters of each life.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PortalCounters {
    /// Requests that reached it, by endpoint.
    pub received: ByLabel<Endpoint, u64>,
    /// Answers that it gave, by endpoint and by `ok`, `not_modified` or the code's name.
    pub answered: ByLabel<Endpoint, ByLabel<Outcome, u64>>,
}

/// Where an account does not add up.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AccountError {
    /// Requests vanished, or appeared, between plan and start.
    #[error("{endpoint}: {planned} planned, but {started} started and {dropped} dropped")]
    Planned {
        /// Where.
        endpoint: Endpoint,
        /// Requests due.
        planned: u64,
        /// Requests started.
        started: u64,
        /// Requests not started.
        dropped: u64,
    },
    /// Requests vanished, or appeared, between start and end.
    #[error(
        "{endpoint}: {started} started, but {answered} answered, {transport} failed in transport, {timed_out} timed out \
         and {aborted} aborted"
    )]
    Started {
        /// Where.
        endpoint: Endpoint,
        /// Requests started.
        started: u64,
        /// Ended with an answer.
        answered: u64,
        /// Ended without a connection.
        transport: u64,
        /// Ended with nobody waiting.
        timed_out: u64,
        /// Ended with the run.
        aborted: u64,
    },
    /// We hold answers that the portal did not give.
    #[error(
        "{endpoint}: {ours} answers were `{outcome}`, but the portal gave only {portals} of them"
    )]
    NotGiven {
        /// Where.
        endpoint: Endpoint,
        /// Which answer.
        outcome: Outcome,
        /// How many we hold.
        ours: u64,
        /// How many the portal gave.
        portals: u64,
    },
    /// The portal gave more answers than can have been lost.
    #[error(
        "{endpoint}: the portal gave {portals} answers, {ours} arrived, and only {lost} can have been lost on the way"
    )]
    NotArrived {
        /// Where.
        endpoint: Endpoint,
        /// How many we hold.
        ours: u64,
        /// How many the portal gave.
        portals: u64,
        /// How many of ours ended in a way that can be a lost answer.
        lost: u64,
    },
    /// The portal answered what it had not received, or received what nobody sent.
    #[error(
        "{endpoint}: the portal received {received} requests; by our account it was at least {at_least} and at most \
         {at_most}"
    )]
    Received {
        /// Where.
        endpoint: Endpoint,
        /// Requests that reached the portal, as it says.
        received: u64,
        /// The answers that it gave.
        at_least: u64,
        /// Our answered requests and those that can have reached it.
        at_most: u64,
    },
}

impl FromIterator<(Endpoint, Line)> for Account {
    fn from_iter<I: IntoIterator<Item = (Endpoint, Line)>>(lines: I) -> Self {
        Account {
            lines: lines.into_iter().collect(),
        }
    }
}

impl Account {
    /// Counts a request as due.
    #[inline]
    pub fn planned(&mut self, endpoint: Endpoint) {
        self.lines[endpoint].planned += 1;
    }

    /// Counts a request that was due as not started, and never to be.
    pub fn dropped(&mut self, endpoint: Endpoint) {
        self.lines[endpoint].dropped += 1;
    }

    /// Counts a request as started.
    #[inline]
    pub fn started(&mut self, endpoint: Endpoint) {
        self.lines[endpoint].started += 1;
    }

    /// Counts a request that was started as ended.
    #[inline]
    pub fn ended(&mut self, endpoint: Endpoint, outcome: Outcome) {
        self.lines[endpoint].ended[outcome] += 1;
    }

    /// Adds what the other one counted, exactly.
    pub fn add(&mut self, other: &Account) {
        for (endpoint, theirs) in other.lines.iter() {
            self.lines[endpoint].add(theirs);
        }
    }

    /// The account of one endpoint.
    pub fn line(&self, endpoint: Endpoint) -> &Line {
        &self.lines[endpoint]
    }

    /// The account of each endpoint.
    pub fn lines(&self) -> impl Iterator<Item = (Endpoint, &Line)> {
        self.lines.iter()
    }

    /// Whether it has counted nothing.
    pub fn is_empty(&self) -> bool {
        self.lines.values().all(Line::is_empty)
    }

    /// Counts nothing any more, keeping its memory.
    pub fn clear(&mut self) {
        self.lines.iter_mut().for_each(|(_, line)| line.clear());
    }

    /// The account of all endpoints together.
    pub fn total(&self) -> Line {
        let mut total = Line::default();
        self.lines.values().for_each(|line| total.add(line));
        total
    }

    /// Where our own numbers do not add up; empty if they do.
    pub fn check(&self) -> Vec<AccountError> {
        let mut errors = Vec::new();
        for (endpoint, line) in self.lines.iter() {
            if line.planned != line.started + line.dropped {
                errors.push(AccountError::Planned {
                    endpoint,
                    planned: line.planned,
                    started: line.started,
                    dropped: line.dropped,
                });
            }
            if line.started != line.ended.total() {
                errors.push(AccountError::Started {
                    endpoint,
                    started: line.started,
                    answered: line.of(Class::Answered),
                    transport: line.of(Class::Transport),
                    timed_out: line.of(Class::TimedOut),
                    aborted: line.of(Class::Aborted),
                });
            }
        }
        errors
    }

    /// Where our numbers and the portal's do not agree; empty if they do. The portal serves nobody but this run.
    ///
    /// For each endpoint and each answer of the portal's table, what we hold is at most what it gave. It may have given
    /// more, since an answer can be lost: over the endpoint's answers together, at most as many more as requests of ours
    /// ended in a way that can hide one ([`Outcome::may_be_lost_answer`]: broken or too large, reset, closed early,
    /// stale, timed out while waiting, a status without a code, aborted). What failed before a request was sent (names,
    /// connections, TLS, time-out of the connection) hides none. And it received at least what it answered, at most what
    /// we got answered or may have lost.
    pub fn check_against(&self, portal: &PortalCounters) -> Vec<AccountError> {
        let mut errors = Vec::new();
        for (endpoint, line) in self.lines.iter() {
            let given = &portal.answered[endpoint];
            for (outcome, ours) in line.ended.iter().filter(|(o, _)| o.is_portals_word()) {
                if *ours > given[outcome] {
                    errors.push(AccountError::NotGiven {
                        endpoint,
                        outcome,
                        ours: *ours,
                        portals: given[outcome],
                    });
                }
            }
            let (ours, lost) = (line.portals_words(), line.lost_at_most());
            if given.total() > ours + lost {
                errors.push(AccountError::NotArrived {
                    endpoint,
                    ours,
                    portals: given.total(),
                    lost,
                });
            }
            let received = portal.received[endpoint];
            if received < given.total() || received > ours + lost {
                errors.push(AccountError::Received {
                    endpoint,
                    received,
                    at_least: given.total(),
                    at_most: ours + lost,
                });
            }
        }
        errors
    }
}

impl Line {
    /// How many ended in this class.
    pub fn of(&self, class: Class) -> u64 {
        self.count(|outcome| outcome.class() == class)
    }

    /// How many ended with what was asked for.
    pub fn successes(&self) -> u64 {
        self.count(Outcome::is_success)
    }

    /// How many are still under way.
    pub fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.ended.total())
    }

    fn portals_words(&self) -> u64 {
        self.count(Outcome::is_portals_word)
    }

    fn lost_at_most(&self) -> u64 {
        self.count(Outcome::may_be_lost_answer)
    }

    fn count(&self, which: impl Fn(Outcome) -> bool) -> u64 {
        let picked = self.ended.counted().filter(|(outcome, _)| which(*outcome));
        picked.map(|(_, count)| count).sum()
    }

    fn is_empty(&self) -> bool {
        (self.planned, self.dropped, self.started) == (0, 0, 0)
            && self.ended.counted().next().is_none()
    }

    fn clear(&mut self) {
        (self.planned, self.dropped, self.started) = (0, 0, 0);
        self.ended.iter_mut().for_each(|(_, count)| *count = 0);
    }

    fn add(&mut self, other: &Line) {
        self.planned += other.planned;
        self.dropped += other.dropped;
        self.started += other.started;
        self.ended.add(&other.ended);
    }
}

impl PortalCounters {
    /// Adds the counters of another portal, or of another life of this one.
    pub fn add(&mut self, other: &PortalCounters) {
        self.received.add(&other.received);
        for (endpoint, theirs) in other.answered.iter() {
            self.answered[endpoint].add(theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::problem::ProblemCode;

    use super::*;

    const REPLAYED: Outcome = Outcome::Problem(ProblemCode::Replayed);

    /// An account of the sync endpoint that adds up, with these ends and one dropped request.
    fn account(ends: &[(Outcome, u64)]) -> Account {
        let mut account = Account::default();
        account.planned(Endpoint::Sync);
        account.dropped(Endpoint::Sync);
        for (outcome, count) in ends {
            for _ in 0..*count {
                account.planned(Endpoint::Sync);
                account.started(Endpoint::Sync);
                account.ended(Endpoint::Sync, *outcome);
            }
        }
        account
    }

    fn portal(received: u64, answered: &[(Outcome, u64)]) -> PortalCounters {
        let mut portal = PortalCounters::default();
        portal.received[Endpoint::Sync] = received;
        portal.answered[Endpoint::Sync] = answered.iter().copied().collect();
        portal
    }

    // case L17: what is started ends somewhere, once.
    #[test]
    fn an_account_adds_up_or_says_where_it_does_not() {
        let whole = account(&[
            (Outcome::Ok, 3),
            (REPLAYED, 2),
            (Outcome::TimedOutAnswer, 1),
        ]);
        assert_eq!(whole.check(), []);
        assert_eq!(whole.total().successes(), 3);
        assert_eq!(whole.line(Endpoint::Sync).of(Class::Answered), 5);

        let mut vanished = whole.clone();
        vanished.planned(Endpoint::Enroll);
        let mut unended = whole.clone();
        unended.planned(Endpoint::Sync);
        unended.started(Endpoint::Sync);
        assert_eq!(unended.line(Endpoint::Sync).in_flight(), 1);
        let mut twice = whole;
        twice.ended(Endpoint::Sync, Outcome::Ok);
        let rows = [
            (vanished, "enroll: 1 planned, but 0 started and 0 dropped"),
            (
                unended,
                "sync: 7 started, but 5 answered, 0 failed in transport, 1 timed out and 0 aborted",
            ),
            (
                twice,
                "sync: 6 started, but 6 answered, 0 failed in transport, 1 timed out and 0 aborted",
            ),
        ];
        for (account, text) in rows {
            let errors: Vec<String> = account.check().iter().map(ToString::to_string).collect();
            assert_eq!(errors, [text]);
        }
    }

    // case L6, L17, L23: our numbers are the portal's, but for what can have been lost.
    #[test]
    fn our_account_agrees_with_the_portals_within_what_can_be_lost() {
        let ok = Outcome::Ok;
        // Our ends, the portal's received and answered, and how the disagreement begins ("" for none).
        type Row<'a> = (
            &'a [(Outcome, u64)],
            u64,
            &'a [(Outcome, u64)],
            &'a [&'a str],
        );
        let rows: &[Row<'_>] = &[
            (&[(ok, 5), (REPLAYED, 1)], 6, &[(ok, 5), (REPLAYED, 1)], &[]),
            // An answer that was lost on the way: processed, counted there, a reset here.
            (&[(ok, 5), (Outcome::Reset, 1)], 6, &[(ok, 6)], &[]),
            // A reset before the portal read it.
            (&[(ok, 5), (Outcome::Reset, 1)], 5, &[(ok, 5)], &[]),
            // Received, never answered: the portal ended first.
            (&[(ok, 5), (Outcome::TimedOutAnswer, 1)], 6, &[(ok, 5)], &[]),
            // A refused connection hides no answer.
            (
                &[(ok, 5), (Outcome::ConnectRefused, 1)],
                6,
                &[(ok, 6)],
                &[
                    "sync: the portal gave 6 answers, 5 arrived, and only 0 can",
                    "sync: the portal received 6 requests; by our account it was at least 6 and at most 5",
                ],
            ),
            (
                &[(ok, 5)],
                5,
                &[(ok, 4), (REPLAYED, 1)],
                &["sync: 5 answers were `ok`, but the portal gave only 4"],
            ),
            (
                &[(ok, 5)],
                4,
                &[(ok, 5)],
                &["sync: the portal received 4 requests"],
            ),
            (
                &[(ok, 5)],
                7,
                &[(ok, 5)],
                &["sync: the portal received 7 requests"],
            ),
            // What a proxy said is no answer of the portal's.
            (&[(ok, 5), (Outcome::Status5xx, 2)], 5, &[(ok, 5)], &[]),
        ];
        for (ends, received, answered, begins) in rows {
            let errors: Vec<String> = account(ends)
                .check_against(&portal(*received, answered))
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(errors.len(), begins.len(), "{ends:?}: {errors:?}");
            for (error, begin) in errors.iter().zip(*begins) {
                assert!(error.starts_with(begin), "{error}");
            }
        }
    }

    #[test]
    fn only_an_end_after_the_request_was_sent_can_hide_an_answer() {
        let hides_none = [
            Outcome::Dns,
            Outcome::ConnectRefused,
            Outcome::ConnectOther,
            Outcome::ClientPorts,
            Outcome::ClientFiles,
            Outcome::Tls,
            Outcome::TimedOutConnect,
        ];
        for end in Outcome::ALL.into_iter().filter(|o| !o.is_portals_word()) {
            let ours = account(&[(Outcome::Ok, 5), (end, 1)]);
            let errors = ours.check_against(&portal(6, &[(Outcome::Ok, 6)]));
            assert_eq!(errors.is_empty(), !hides_none.contains(&end), "{end}");
        }
    }

    #[test]
    fn lives_of_a_portal_add_up() {
        let mut both = portal(6, &[(Outcome::Ok, 5), (REPLAYED, 1)]);
        both.add(&portal(2, &[(Outcome::Ok, 2)]));
        assert_eq!(both, portal(8, &[(Outcome::Ok, 7), (REPLAYED, 1)]));
    }

    #[test]
    fn a_file_keeps_the_account_line_by_line() {
        let account = account(&[(Outcome::Ok, 3), (REPLAYED, 2)]);
        let text = serde_json::to_string(&account).unwrap();
        assert_eq!(
            text,
            r#"{"sync":{"planned":6,"dropped":1,"started":5,"ended":{"ok":3,"replayed":2}}}"#
        );
        assert_eq!(serde_json::from_str::<Account>(&text).unwrap(), account);
    }
}
