//! The referees of a scenario: which of them a run owes, what each needs to have something to judge, and what of that a
//! scenario gives.
//!
//! All of them watch in every run, and a breach is one whoever owes what. Owed are those without which a run has shown too
//! little: one that is owed and judged nothing leaves it without data. Where the scenario names none, that are those of
//! [`RefereeNumber::BY_DEFAULT`] that it gives something to judge.

use std::collections::BTreeSet;

use record::result::Protocol;

use crate::scenario::Scenario;
use crate::timeline::Action;

/// The number of a referee, 1 to 13.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefereeNumber(u8);

/// Which referees a run owes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Referees {
    /// Those of [`RefereeNumber::BY_DEFAULT`] that the scenario gives something to judge.
    Default,
    /// Those that it names.
    Named(BTreeSet<RefereeNumber>),
}

/// Whose portal a run is at: what a scenario does to its portal, it does to the embedded one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// The run's own.
    Embedded,
    /// Somebody else's.
    Foreign,
}

/// What a referee needs.
enum Need {
    /// Something that a scenario has or has not. At somebody else's portal agents may have enrolled before.
    Given(Part),
    /// What only the course of a run brings, if anything does.
    Course(&'static str),
}

/// A part of a scenario that a referee may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    PbxAgents,
    Enrollments,
    Document,
    Operations,
    Revocation,
}

impl Part {
    const fn text(self) -> &'static str {
        match self {
            Part::PbxAgents => "agents that speak `pbx`",
            Part::Enrollments => "agents that enroll, or other steps that agents perform",
            Part::Document => "a document, whose secrets it looks for",
            Part::Operations => "an operation in the time line",
            Part::Revocation => "a revocation in the time line",
        }
    }

    fn is_in(self, scenario: &Scenario, host: Host) -> bool {
        let mut steps = scenario.timeline.iter().map(|entry| &entry.action);
        match (self, host) {
            (Part::Enrollments, Host::Foreign) => false,
            (Part::PbxAgents, _) | (Part::Enrollments, Host::Embedded) => {
                let mut populations = scenario.populations.iter();
                populations.any(|population| population.protocol == Protocol::Pbx)
            }
            (Part::Document | Part::Operations | Part::Revocation, Host::Foreign) => false,
            (Part::Document, Host::Embedded) => {
                scenario.portal.document.is_some()
                    || steps.any(|action| matches!(action, Action::SetDocument(_)))
            }
            (Part::Operations, Host::Embedded) => {
                steps.any(|action| matches!(action, Action::Operation(_)))
            }
            (Part::Revocation, Host::Embedded) => {
                steps.any(|action| matches!(action, Action::Revoke { .. }))
            }
        }
    }
}

impl RefereeNumber {
    /// Every referee.
    pub const ALL: [RefereeNumber; 13] = {
        let mut all = [RefereeNumber(0); 13];
        let mut at = 0;
        while at < all.len() {
            all[at] = RefereeNumber(at as u8 + 1);
            at += 1;
        }
        all
    };

    /// Those that a scenario owes that names none: how fast syncs follow each other, secrets, signatures.
    pub const BY_DEFAULT: [RefereeNumber; 3] =
        [RefereeNumber(6), RefereeNumber(9), RefereeNumber(12)];

    /// A referee's number; none for a number that no referee has.
    pub fn new(number: u8) -> Option<Self> {
        (1..=13).contains(&number).then_some(RefereeNumber(number))
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// What it needs to have something to judge.
    pub fn needs(self) -> &'static str {
        match self.need() {
            Need::Given(part) => part.text(),
            Need::Course(what) => what,
        }
    }

    fn need(self) -> Need {
        match self.0 {
            1 => Need::Given(Part::Enrollments),
            3 | 11 => Need::Given(Part::Operations),
            5 => Need::Given(Part::Revocation),
            6 | 12 => Need::Given(Part::PbxAgents),
            9 => Need::Given(Part::Document),
            2 => Need::Course("a destructive step, as `cluster.restore` has"),
            4 => Need::Course("requests that are refused with 400"),
            7 => Need::Course("a document that agents apply"),
            8 => Need::Course("a k3s that is stopped or started"),
            10 => Need::Course("the moment of the last fault, which only a simulation knows"),
            _ => Need::Course("configurations of clusters that change"),
        }
    }
}

impl Scenario {
    /// The referees that a run of it owes.
    pub fn owed(&self, host: Host) -> BTreeSet<RefereeNumber> {
        match &self.referees {
            Referees::Named(named) => named.clone(),
            Referees::Default => {
                let all = RefereeNumber::BY_DEFAULT.into_iter();
                all.filter(|referee| self.gives(*referee, host) == Some(true))
                    .collect()
            }
        }
    }

    /// Whether it gives a referee something to judge; none where only the course of a run can tell.
    fn gives(&self, referee: RefereeNumber, host: Host) -> Option<bool> {
        match referee.need() {
            Need::Given(part) => Some(part.is_in(self, host)),
            Need::Course(_) => None,
        }
    }

    /// What makes a run of it NO_DATA, as far as that is known before: referees that it names and gives nothing to judge.
    pub fn without_data(&self, host: Host) -> Vec<String> {
        let Referees::Named(named) = &self.referees else {
            return Vec::new();
        };
        let for_nothing = named
            .iter()
            .filter(|referee| self.gives(**referee, host) == Some(false));
        for_nothing
            .map(|referee| {
                format!(
                    "referee {} will have nothing to judge, and `referees` names it: {}",
                    referee.0,
                    self.remedy(*referee)
                )
            })
            .collect()
    }

    /// What to do about a referee that is owed and has nothing to judge.
    pub(crate) fn remedy(&self, referee: RefereeNumber) -> String {
        let needs = referee.needs();
        let rest: Vec<String> = self
            .owed(Host::Embedded)
            .iter()
            .filter(|owed| **owed != referee)
            .map(|owed| owed.0.to_string())
            .collect();
        let rest = rest.join(", ");
        match self.referees {
            Referees::Named(_) => {
                format!("it needs {needs}; or leave it out: `referees = [{rest}]`")
            }
            Referees::Default => {
                format!(
                    "it needs {needs}, and time for it; or name the others: `referees = [{rest}]`"
                )
            }
        }
    }
}
