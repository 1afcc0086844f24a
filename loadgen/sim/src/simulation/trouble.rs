//! What goes wrong, as data: a closed list of troubles, how often each happens at its occasion, and until when.
//!
//! Whether something goes wrong is drawn here; what it does is the world's affair. No agent can tell that it was drawn.

use std::collections::BTreeMap;

use agent_core::time::Monotonic;
use portal_core::answer::{Explanation, Refused};
use portal_core::{Answer, Content, Encoded};
use protocol::endpoint::Endpoint;
use protocol::id::ReleaseVersion;
use protocol::limits::BODY_BYTES_MAX;
use protocol::problem::{Problem, ProblemCode};
use protocol::time::Timestamp;

use super::chance::{Chance, Purpose};
use crate::disk::InFlight;
use crate::host::Leftover;

/// Something that goes wrong once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// The request does not reach the portal.
    Unreachable,
    /// The portal has done its work, and its answer does not arrive.
    AnswerLost,
    /// The portal has done its work, and what arrives is not what it said.
    AnswerBroken,
    /// Somebody refuses in the portal's place, with a code of the protocol's table. The portal hears nothing of it.
    Refused(ProblemCode),
    /// The node's wall clock is set, while a request is under way.
    ClockJumps,
    /// A record is not written, as far as the agent learns.
    StoreFails,
    /// A task of the host fails without an effect.
    TaskFails,
    /// A question about the Lease does not reach the API.
    LeaseUnheard,
    /// The API has done what was asked about the Lease, and its answer does not arrive.
    LeaseAnswerLost,
    /// The API of the cluster answers nobody for a while.
    ApiPaused,
    /// The agent is frozen for a while, right after it has asked for something; its clocks go on.
    Frozen(Site),
    /// The node crashes.
    Crash(Site, Moment),
}

/// What a crash is near to. Each kind of trouble has its occasions at one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// A request to the portal.
    Call,
    /// A write of the durable record.
    Store,
    /// A task of the host.
    Task,
    /// A question about the Lease.
    Lease,
}

/// When a crash happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// It was wanted, and nothing of it has begun.
    Before,
    /// It is under way.
    Inside,
    /// It is done, and the agent does not know.
    After,
}

/// A crash at one certain point, for whoever looks at each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blow {
    /// What it is near to.
    pub site: Site,
    /// How many of these pass before.
    pub passes: u32,
    /// When it comes.
    pub moment: Moment,
    /// What it leaves of a task.
    pub leaves: Leftover,
    /// What it leaves of a write.
    pub write: InFlight,
}

impl Trouble {
    /// All there are.
    pub fn all() -> impl Iterator<Item = Self> {
        let plain = [
            Self::Unreachable,
            Self::AnswerLost,
            Self::AnswerBroken,
            Self::ClockJumps,
            Self::StoreFails,
            Self::TaskFails,
            Self::LeaseUnheard,
            Self::LeaseAnswerLost,
            Self::ApiPaused,
            Self::Frozen(Site::Task),
            Self::Frozen(Site::Lease),
        ];
        let refusals = ProblemCode::ALL.iter().copied().map(Self::Refused);
        let crashes = [Site::Call, Site::Store, Site::Task, Site::Lease]
            .into_iter()
            .flat_map(|site| {
                [Moment::Before, Moment::Inside, Moment::After]
                    .map(|moment| Self::Crash(site, moment))
            });
        plain.into_iter().chain(refusals).chain(crashes)
    }

    /// At what it can happen.
    pub fn site(self) -> Site {
        match self {
            Self::Unreachable
            | Self::AnswerLost
            | Self::AnswerBroken
            | Self::Refused(_)
            | Self::ClockJumps => Site::Call,
            Self::StoreFails => Site::Store,
            Self::TaskFails => Site::Task,
            Self::LeaseUnheard | Self::LeaseAnswerLost | Self::ApiPaused => Site::Lease,
            Self::Frozen(site) | Self::Crash(site, _) => site,
        }
    }
}

/// How often each trouble happens, out of a million occasions, and until when. By default nothing goes wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Troubles {
    per_million: BTreeMap<Trouble, u32>,
    until: Monotonic,
}

impl Troubles {
    /// Nothing, until this moment and after it.
    pub fn until(moment: Monotonic) -> Self {
        Self {
            per_million: BTreeMap::new(),
            until: moment,
        }
    }

    /// This trouble at so many of a million occasions. Where the troubles of a site come to more than a million together,
    /// the last of them are rarer.
    #[must_use]
    pub fn with(mut self, trouble: Trouble, per_million: u32) -> Self {
        self.per_million.insert(trouble, per_million);
        self
    }

    /// A profile of a seed: some troubles, each seldom or often, and the others never, so that each also happens without
    /// the rest.
    pub fn of_seed(seed: u64, until: Monotonic) -> Self {
        let mut chance = Chance::new(seed, 0, Purpose::Profile);
        // A refusal is one code of many, and most of them end what the agent was at.
        Trouble::all()
            .filter_map(|trouble| {
                let (percent, rates) = match trouble {
                    Trouble::Refused(_) => (20, [2_000, 10_000, 50_000]),
                    Trouble::Crash(..) | Trouble::Frozen(_) | Trouble::ApiPaused => {
                        (30, [5_000, 30_000, 150_000])
                    }
                    _ => (50, [10_000, 50_000, 200_000]),
                };
                let is_there = chance.percent(percent);
                let rate = chance.pick(rates);
                is_there.then_some((trouble, rate))
            })
            .fold(Self::until(until), |troubles, (trouble, rate)| {
                troubles.with(trouble, rate)
            })
    }

    /// After this moment nothing goes wrong any more.
    pub fn end(&self) -> Monotonic {
        self.until
    }

    /// The troubles that can happen, with how often each of a million times.
    pub fn rates(&self) -> impl Iterator<Item = (Trouble, u32)> {
        self.per_million
            .iter()
            .map(|(trouble, rate)| (*trouble, *rate))
    }
}

/// The troubles of each site, ready to be drawn.
#[derive(Debug, Clone)]
pub(super) struct Odds {
    call: Vec<(u64, Trouble)>,
    store: Vec<(u64, Trouble)>,
    task: Vec<(u64, Trouble)>,
    lease: Vec<(u64, Trouble)>,
    until: Monotonic,
}

impl Odds {
    pub(super) fn new(troubles: &Troubles) -> Self {
        let of = |site| {
            let mut below = 0;
            let rates = troubles
                .rates()
                .filter(|(trouble, _)| trouble.site() == site);
            rates
                .map(|(trouble, rate)| {
                    below += u64::from(rate);
                    (below, trouble)
                })
                .collect()
        };
        Self {
            call: of(Site::Call),
            store: of(Site::Store),
            task: of(Site::Task),
            lease: of(Site::Lease),
            until: troubles.until,
        }
    }

    /// What goes wrong at this occasion, if anything.
    pub(super) fn draw(&self, site: Site, now: Monotonic, chance: &mut Chance) -> Option<Trouble> {
        let odds = match site {
            Site::Call => &self.call,
            Site::Store => &self.store,
            Site::Task => &self.task,
            Site::Lease => &self.lease,
        };
        if odds.is_empty() || now >= self.until {
            return None;
        }
        let drawn = chance.below(1_000_000);
        let struck = odds.iter().find(|(below, _)| drawn < *below);
        struck.map(|(_, trouble)| *trouble)
    }
}

/// A refusal with this code, with all that the table puts beside it; what it says is true or not.
pub(super) fn refusal(
    code: ProblemCode,
    endpoint: Endpoint,
    time: Timestamp,
    chance: &mut Chance,
) -> Answer {
    let mut problem = Problem::new(code, "refused in the portal's place");
    match code {
        ProblemCode::ClockSkew => {
            let off_ms = chance.pick([0, 0, 61_000, -3_600_000, 315_576_000_000]);
            let told = time.unix_ms().saturating_add(off_ms);
            problem.portal_time = Some(Timestamp::from_unix_ms(told));
        }
        ProblemCode::ProtocolTooOld => {
            let release = ReleaseVersion::new("2026.12.1");
            problem.release = Some(release.expect("digits and dots are a version"));
        }
        ProblemCode::TooManyRequests => {
            problem.retry_after_seconds = Some(chance.pick([1, 7, 30, 300]));
        }
        ProblemCode::Internal => {
            problem.retry_after_seconds = chance.pick([None, None, Some(1), Some(120)]);
        }
        _ => {}
    }
    let explanation = Explanation {
        rule: "none",
        expected: "nothing".to_owned(),
        came: "trouble".to_owned(),
        signature: None,
    };
    Answer {
        endpoint: Some(endpoint),
        agent: None,
        content: Content::Refused(Box::new(Refused {
            problem,
            allow: None,
            explanation,
        })),
    }
}

/// What arrives instead of an answer.
pub(super) fn broken(mut answer: Encoded, chance: &mut Chance) -> Encoded {
    match chance.below(6) {
        0 => answer.body.clear(),
        1 => answer.body.truncate(answer.body.len() / 2),
        2 => answer.body = b"[1, 2]".to_vec(),
        3 => answer.body.resize(BODY_BYTES_MAX + 1, b' '),
        // A proxy's page, with its status or with the portal's.
        4 => {
            answer.status = chance.pick([302, 401, 403, 404, 502, 504]);
            page(&mut answer);
        }
        _ => page(&mut answer),
    }
    answer
}

fn page(answer: &mut Encoded) {
    answer.headers = vec![("Content-Type", "text/html".to_owned())];
    answer.body = b"<html><body>Something went wrong</body></html>".to_vec();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_happens_as_often_as_it_is_told_and_not_after_the_end() {
        let end = Monotonic::from_ms(1_000);
        let troubles = Troubles::until(end)
            .with(Trouble::AnswerLost, 100_000)
            .with(Trouble::Unreachable, 300_000)
            .with(Trouble::StoreFails, 1_000_000);
        let odds = Odds::new(&troubles);
        let mut chance = Chance::new(1, 1, Purpose::Trouble);
        let mut struck = BTreeMap::<_, u32>::new();
        for _ in 0..10_000 {
            let drawn = odds.draw(Site::Call, Monotonic::from_ms(999), &mut chance);
            *struck.entry(drawn).or_default() += 1;
        }
        assert!((900..1_100).contains(&struck[&Some(Trouble::AnswerLost)]));
        assert!((2_800..3_200).contains(&struck[&Some(Trouble::Unreachable)]));
        assert_eq!(struck.len(), 3, "{struck:?}");
        let mut draw = |site, at| odds.draw(site, Monotonic::from_ms(at), &mut chance);
        assert_eq!(draw(Site::Store, 999), Some(Trouble::StoreFails));
        assert_eq!(draw(Site::Store, 1_000), None);
        assert_eq!(draw(Site::Task, 999), None);
    }

    #[test]
    fn profiles_of_seeds_differ_and_leave_out_something_else_each() {
        let profile = |seed| Troubles::of_seed(seed, Monotonic::from_ms(1));
        assert_eq!(profile(1), profile(1));
        let all = Trouble::all().count();
        for seed in 0..20 {
            let has = profile(seed).rates().count();
            assert!(0 < has && has < all, "seed {seed}: {has} of {all}");
            assert_ne!(profile(seed), profile(seed + 1));
        }
    }
}
