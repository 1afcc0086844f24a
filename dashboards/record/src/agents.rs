//! Single agents, for whoever wants to see what one of them does: asked for by a live screen, answered by the fleet, and in
//! no result. What is shown is a page of a list, so it costs the same in a fleet of any size.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use protocol::endpoint::Endpoint;

use crate::label::{Label as _, labels};
use crate::micros::Micros;
use crate::outcome::Outcome;
use crate::series::Gauge;

/// How many events of one agent are kept.
pub const EVENTS_KEPT: usize = 500;

/// What is to be shown of the agents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentsAsked {
    /// Only those that have this in their node's or cluster's name, in the name of their state, or in why they are idle;
    /// all where it is empty. Capitals are as good as small letters.
    pub filter: String,
    /// How many of those to leave out before the first that is shown.
    pub skip: u64,
    /// How many to show at most.
    pub rows: u64,
    /// The one whose events are followed from now on.
    pub followed: Option<AgentName>,
}

/// An agent by its names, which are unique in a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AgentName {
    /// Its cluster.
    pub cluster: String,
    /// Its node.
    pub node: String,
}

labels! {
    /// Why an agent is idle.
    pub enum IdleWhy as "reason to be idle" {
        /// Its identity is revoked.
        Revoked = "revoked",
        /// Its token was refused too often.
        TokenRefused = "token_refused",
        /// Its enrollment was refused too often.
        EnrollmentRefused = "enrollment_refused",
        /// Its node has booted another image than its release's.
        ImageMismatch = "image_mismatch",
        /// Who it was cannot be read any more.
        IdentityLost = "identity_lost",
        /// It has neither an identity nor a token.
        NoToken = "no_token",
    }
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AgentsShown {
    /// The filter that this answers.
    pub filter: String,
    /// How many the filter lets through.
    pub matching: u64,
    /// How many of those come before the first that is here.
    pub skipped: u64,
    /// The agents.
    pub rows: Vec<AgentRow>,
    /// The events of the one that is followed.
    pub followed: Option<AgentLog>,
}

/// An agent at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRow {
    /// Who it is.
    pub name: AgentName,
    /// What it is.
    pub state: Gauge,
    /// Why it is idle; none where it is not.
    #[serde(default)]
    pub idle: Option<IdleWhy>,
    /// Whether it has an operation that runs.
    pub operating: bool,
    /// How long ago it synced; none if it never has.
    pub synced_ago: Option<Micros>,
    /// The generation of the document that it has in force; 0 for none.
    pub generation: u64,
    /// Its last call, and how it ended.
    pub last_call: Option<(Endpoint, Outcome)>,
    /// How far its clock was off when the run began.
    pub clock_offset_ms: i64,
}

/// The events of an agent since it is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentLog {
    /// Who it is.
    pub name: AgentName,
    /// The last [`EVENTS_KEPT`] of them.
    pub events: VecDeque<AgentEvent>,
}

/// Something that an agent has done, or that has happened to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEvent {
    /// When, from the start of the run.
    pub at: Micros,
    /// What.
    pub what: String,
}

impl AgentsAsked {
    /// Whether an agent is let through by the filter.
    pub fn lets_through(&self, name: &AgentName, state: Gauge, idle: Option<IdleWhy>) -> bool {
        let wanted = self.filter.to_lowercase();
        let why = idle.map_or("", IdleWhy::label);
        let words = [&name.node, &name.cluster, state.label(), why];
        // A name is typed as it is read: `backing off` for `backing_off`.
        let has = |word: &&str| {
            let word = word.to_lowercase();
            word.contains(&wanted) || word.replace('_', " ").contains(&wanted)
        };
        wanted.is_empty() || words.iter().any(has)
    }

    /// What is left to ask for where another part of the fleet has shown this.
    #[must_use]
    pub fn beyond(&self, shown: &AgentsShown) -> Self {
        Self {
            skip: self.skip.saturating_sub(shown.matching),
            rows: self.rows.saturating_sub(shown.rows.len() as u64),
            ..self.clone()
        }
    }
}

impl AgentsShown {
    /// Adds what the next part of the fleet shows.
    pub fn add(&mut self, next: AgentsShown) {
        self.matching += next.matching;
        self.skipped += next.skipped;
        self.rows.extend(next.rows);
        self.followed = self.followed.take().or(next.followed);
    }
}

impl AgentLog {
    /// Takes in an event; the oldest makes room.
    pub fn push(&mut self, at: Micros, what: String) {
        if self.events.len() == EVENTS_KEPT {
            self.events.pop_front();
        }
        self.events.push_back(AgentEvent { at, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(node: &str) -> AgentName {
        AgentName {
            cluster: format!("clu_{node}"),
            node: node.to_owned(),
        }
    }

    #[test]
    fn a_filter_looks_at_names_and_states() {
        let rows = [
            ("", Gauge::Healthy, true),
            ("des-7", Gauge::Healthy, true),
            ("CLU_nodes", Gauge::Healthy, true),
            ("backing", Gauge::BackingOff, true),
            ("backing", Gauge::Healthy, false),
            ("backing off", Gauge::BackingOff, true),
            ("nodes-8", Gauge::Healthy, false),
        ];
        for (filter, state, expected) in rows {
            let asked = AgentsAsked {
                filter: filter.to_owned(),
                ..AgentsAsked::default()
            };
            assert_eq!(
                asked.lets_through(&name("nodes-7"), state, None),
                expected,
                "{filter}"
            );
        }
        for (filter, expected) in [("revoked", true), ("idle", true), ("token", false)] {
            let asked = AgentsAsked {
                filter: filter.to_owned(),
                ..AgentsAsked::default()
            };
            let why = Some(IdleWhy::Revoked);
            let is_let = asked.lets_through(&name("nodes-7"), Gauge::Idle, why);
            assert_eq!(is_let, expected, "{filter}");
        }
    }

    // However a fleet is split, a page of it is the same page.
    #[test]
    fn parts_of_a_fleet_show_one_list() {
        let all: Vec<AgentName> = (0..10).map(|at| name(&format!("n-{at}"))).collect();
        let show = |agents: &[AgentName], asked: &AgentsAsked| {
            let skipped = asked.skip.min(agents.len() as u64);
            let rows = agents
                .iter()
                .skip(skipped as usize)
                .take(asked.rows as usize);
            AgentsShown {
                filter: String::new(),
                matching: agents.len() as u64,
                skipped,
                rows: rows
                    .map(|name| AgentRow {
                        name: name.clone(),
                        state: Gauge::Healthy,
                        idle: None,
                        operating: false,
                        synced_ago: None,
                        generation: 0,
                        last_call: None,
                        clock_offset_ms: 0,
                    })
                    .collect(),
                followed: None,
            }
        };
        for (skip, rows) in [(0, 10), (0, 3), (2, 3), (3, 1), (4, 9), (9, 5), (12, 2)] {
            let asked = AgentsAsked {
                skip,
                rows,
                ..AgentsAsked::default()
            };
            for border in 0..=10 {
                let (first, second) = all.split_at(border);
                let mut shown = show(first, &asked);
                let next = show(second, &asked.beyond(&shown));
                shown.add(next);
                assert_eq!(shown, show(&all, &asked), "{skip} {rows} {border}");
            }
        }
    }

    #[test]
    fn the_oldest_event_makes_room() {
        let mut log = AgentLog {
            name: name("n"),
            events: VecDeque::new(),
        };
        for at in 0..=EVENTS_KEPT as u64 {
            log.push(Micros(at), at.to_string());
        }
        assert_eq!(log.events.len(), EVENTS_KEPT);
        assert_eq!(log.events[0].what, "1");
    }
}
