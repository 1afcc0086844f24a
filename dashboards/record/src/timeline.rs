//! The time line of a run: what was to happen when, and what came of each step.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::judgement::grouped;
use crate::micros::Micros;

/// How many reasons of one step's refusals are kept in words. All are counted.
pub const REASONS_KEPT: usize = 20;

/// A step of the time line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// When it is due, from the start of the run.
    pub due: Micros,
    /// What, as a person would say it.
    pub what: String,
    /// What became of it.
    pub became: Became,
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    /// It is to come; of a run that is over, it never came.
    ToCome,
    /// It is done to the embedded portal, and the run has somebody else's.
    LeftOut,
    /// It is done.
    Done(Done),
}

/// How a step went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// When it was done, from the start of the run.
    pub at: Micros,
    /// How many it was to be done to: clusters, agents or portals, whatever it is for.
    pub meant: u64,
    /// How many of those the portal refused.
    pub refused: u64,
    /// Why: the first [`REASONS_KEPT`] reasons in the order of their text.
    pub why: BTreeSet<String>,
}

impl Step {
    /// How it went, if it was done until `now`.
    pub fn done_until(&self, now: Micros) -> Option<&Done> {
        match &self.became {
            Became::Done(done) if done.at <= now => Some(done),
            Became::Done(_) | Became::ToCome | Became::LeftOut => None,
        }
    }
}

impl Done {
    /// Done to so many, and refused for these reasons.
    pub fn new(at: Micros, meant: u64, refused: impl IntoIterator<Item = String>) -> Self {
        let mut done = Done {
            at,
            meant,
            refused: 0,
            why: BTreeSet::new(),
        };
        for why in refused {
            done.refused += 1;
            done.why.insert(why);
            done.keep_first_reasons();
        }
        done
    }

    fn keep_first_reasons(&mut self) {
        while self.why.len() > REASONS_KEPT {
            self.why.pop_last();
        }
    }

    fn add(&mut self, other: Done) {
        self.at = self.at.max(other.at);
        self.meant += other.meant;
        self.refused += other.refused;
        self.why.extend(other.why);
        self.keep_first_reasons();
    }
}

impl Became {
    fn add(&mut self, other: Became) {
        match (&mut *self, other) {
            (Became::Done(mine), Became::Done(theirs)) => mine.add(theirs),
            (Became::ToCome | Became::LeftOut, theirs @ Became::Done(_)) => *self = theirs,
            (_, Became::ToCome | Became::LeftOut) => {}
        }
    }
}

/// Adds what became of the same steps in another part of the run.
pub(crate) fn add(mine: &mut Vec<Step>, theirs: Vec<Step>) {
    let more = theirs.len().saturating_sub(mine.len());
    let mut theirs = theirs.into_iter();
    for (mine, theirs) in mine.iter_mut().zip(&mut theirs) {
        mine.became.add(theirs.became);
    }
    // One that was written before steps were kept has none.
    mine.extend(theirs.take(more));
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = self.meant.saturating_sub(self.refused);
        match (self.meant, self.refused) {
            (0, 0) => return f.write_str("done, to nobody: its share is of none"),
            (1, 0) => return f.write_str("done"),
            (0 | 1, _) => f.write_str("refused")?,
            (_, 0) => return write!(f, "done to all {}", grouped(done)),
            (meant, refused) => write!(
                f,
                "done to {} of {}, {} refused",
                grouped(done),
                grouped(meant),
                grouped(refused)
            )?,
        }
        let mut why = self.why.iter();
        if let Some(first) = why.next() {
            write!(f, ": {first}")?;
        }
        match why.len() {
            0 => Ok(()),
            more => write!(f, " (and {more} more)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(at: u64, meant: u64, refused: &[&str]) -> Done {
        let refused = refused.iter().map(|why| (*why).to_owned());
        Done::new(Micros::from_seconds(at), meant, refused)
    }

    #[test]
    fn how_a_step_went_is_said() {
        let rows = [
            (done(1, 1, &[]), "done"),
            (done(1, 1_000, &[]), "done to all 1,000"),
            (done(1, 0, &[]), "done, to nobody: its share is of none"),
            (done(1, 1, &["why"]), "refused: why"),
            (
                done(1, 50, &["why", "why", "z"]),
                "done to 47 of 50, 3 refused: why (and 1 more)",
            ),
        ];
        for (done, said) in rows {
            assert_eq!(done.to_string(), said);
        }
    }

    // Whichever part comes first, the sum is the same, and what one of them has not done yet another may have.
    #[test]
    fn parts_of_a_run_have_one_time_line() {
        let step = |became: Became| Step {
            due: Micros::from_seconds(1),
            what: "it happens".to_owned(),
            became,
        };
        let one = vec![
            step(Became::Done(done(2, 10, &["a"]))),
            step(Became::ToCome),
        ];
        let other = vec![
            step(Became::Done(done(3, 20, &["b", "b"]))),
            step(Became::Done(done(4, 1, &[]))),
        ];
        let sum = vec![
            step(Became::Done(done(3, 30, &["a", "b", "b"]))),
            other[1].clone(),
        ];
        for (mine, theirs) in [(&one, &other), (&other, &one)] {
            let mut mine = mine.clone();
            add(&mut mine, theirs.clone());
            assert_eq!(mine, sum);
            add(&mut mine, Vec::new());
            assert_eq!(mine, sum);
        }
        let mut before = Vec::new();
        add(&mut before, sum.clone());
        assert_eq!(before, sum);
    }
}
