//! One word and one exit code for a whole run.
//!
//! [`decide`] is the only place where a run gets its verdict. It weighs what was found; finding it is others' work.

use crate::label::labels;

labels! {
    /// The word a run, or one expectation of it, ends with.
    pub enum Verdict as "verdict" {
        /// What was expected held.
        Pass = "pass",
        /// It did not, or an invariant broke.
        Fail = "fail",
        /// There was nothing to judge.
        NoData = "no_data",
        /// The generator could not keep up, so nothing is judged.
        Overloaded = "overloaded",
        /// The run did not come about, or was ended from outside.
        Aborted = "aborted",
        /// The run goes on, and only its end will tell: neither held nor failed.
        SoFar = "so_far",
    }
}

labels! {
    /// What a program that ran it exits with.
    pub enum Exit as "exit" {
        /// 0: what was expected held.
        Held = "held",
        /// 1: an expectation did not hold.
        NotHeld = "not_held",
        /// 2: wrong usage, or a scenario with mistakes; nothing ran.
        Usage = "usage",
        /// 3: the generator could not keep up.
        Overloaded = "overloaded",
        /// 4: the preflight failed, or the portal never answered.
        Preflight = "preflight",
        /// 5: there was nothing to judge.
        NothingToJudge = "nothing_to_judge",
        /// 6: an invariant broke: the account, a referee, two agents with one identity.
        Broken = "broken",
        /// 130: interrupted, with the report so far.
        Interrupted = "interrupted",
    }
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Held => 0,
            Exit::NotHeld => 1,
            Exit::Usage => 2,
            Exit::Overloaded => 3,
            Exit::Preflight => 4,
            Exit::NothingToJudge => 5,
            Exit::Broken => 6,
            Exit::Interrupted => 130,
        }
    }

    /// The verdict that goes with it; none where nothing ran.
    pub const fn verdict(self) -> Option<Verdict> {
        match self {
            Exit::Held => Some(Verdict::Pass),
            Exit::NotHeld | Exit::Broken => Some(Verdict::Fail),
            Exit::Overloaded => Some(Verdict::Overloaded),
            Exit::NothingToJudge => Some(Verdict::NoData),
            Exit::Preflight | Exit::Interrupted => Some(Verdict::Aborted),
            Exit::Usage => None,
        }
    }
}

impl Verdict {
    /// The word in capitals: the first one of a program's last line.
    pub const fn capitals(self) -> &'static str {
        match self {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::NoData => "NO_DATA",
            Verdict::Overloaded => "OVERLOADED",
            Verdict::Aborted => "ABORTED",
            Verdict::SoFar => "SO_FAR",
        }
    }
}

/// What was found about a run, each as a sentence for a person. Nothing found means that it passed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Who ended it from outside, and when.
    pub interrupted: Vec<String>,
    /// Mistakes in arguments or scenario.
    pub usage: Vec<String>,
    /// What kept it from starting, and a portal that never answered.
    pub preflight: Vec<String>,
    /// Invariants that broke.
    pub broken: Vec<String>,
    /// Where the generator could not keep up.
    pub overloaded: Vec<String>,
    /// Expectations that did not hold.
    pub not_held: Vec<String>,
    /// What could not be judged for want of data.
    pub no_data: Vec<String>,
    /// What held: said in the reason of a pass.
    pub held: u64,
}

/// The verdict on a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What the program exits with.
    pub exit: Exit,
    /// Why, in one line.
    pub reason: String,
}

/// Which exit code comes first when several hold.
pub(crate) const ORDER: [Exit; 7] = [
    Exit::Interrupted,
    Exit::Usage,
    Exit::Preflight,
    Exit::Broken,
    Exit::Overloaded,
    Exit::NotHeld,
    Exit::NothingToJudge,
];

/// Weighs what was found: of several, the first of 130, 2, 4, 6, 3, 1, 5 counts.
pub fn decide(findings: &Findings) -> Decision {
    for exit in ORDER {
        if let [first, rest @ ..] = findings.behind(exit) {
            let reason = match rest.len() {
                0 => first.clone(),
                more => format!("{first} (and {more} more)"),
            };
            return Decision { exit, reason };
        }
    }
    let reason = match findings.held {
        1 => "1 expectation held".to_owned(),
        held => format!("{held} expectations held"),
    };
    Decision {
        exit: Exit::Held,
        reason,
    }
}

impl Findings {
    fn behind(&self, exit: Exit) -> &[String] {
        match exit {
            Exit::Held => &[],
            Exit::Interrupted => &self.interrupted,
            Exit::Usage => &self.usage,
            Exit::Preflight => &self.preflight,
            Exit::Broken => &self.broken,
            Exit::Overloaded => &self.overloaded,
            Exit::NotHeld => &self.not_held,
            Exit::NothingToJudge => &self.no_data,
        }
    }
}

impl Decision {
    /// The verdict; none where nothing ran.
    pub fn verdict(&self) -> Option<Verdict> {
        self.exit.verdict()
    }

    /// The last line of a run: the word in capitals and the reason. None where nothing ran.
    pub fn line(&self) -> Option<String> {
        let word = self.verdict()?.capitals();
        Some(format!("{word} {}", self.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which findings there are, one flag a list, in the order of this table: 130, 2, 4, 6, 3, 1, 5.
    fn findings(flags: [bool; 7]) -> Findings {
        let list = |at: usize, text: &str| match flags[at] {
            true => vec![text.to_owned()],
            false => Vec::new(),
        };
        Findings {
            interrupted: list(0, "interrupted"),
            usage: list(1, "usage"),
            preflight: list(2, "preflight"),
            broken: list(3, "broken"),
            overloaded: list(4, "overloaded"),
            not_held: list(5, "not held"),
            no_data: list(6, "no data"),
            held: 3,
        }
    }

    // case L18: every combination of findings, all 128 of them, has the exit code of the table.
    #[test]
    fn of_several_findings_the_first_of_the_order_counts() {
        let table = [
            (130, Some("ABORTED interrupted")),
            (2, None),
            (4, Some("ABORTED preflight")),
            (6, Some("FAIL broken")),
            (3, Some("OVERLOADED overloaded")),
            (1, Some("FAIL not held")),
            (5, Some("NO_DATA no data")),
        ];
        for bits in 0..128_u8 {
            let flags: [bool; 7] = std::array::from_fn(|at| bits & (1 << at) != 0);
            let decision = decide(&findings(flags));
            let (code, line) = match flags.iter().position(|found| *found) {
                Some(first) => table[first],
                None => (0, Some("PASS 3 expectations held")),
            };
            assert_eq!(decision.exit.code(), code, "{flags:?}");
            assert_eq!(decision.line().as_deref(), line, "{flags:?}");
        }
    }

    #[test]
    fn the_reason_names_the_first_and_counts_the_rest() {
        let decision = decide(&Findings {
            not_held: vec!["p99".to_owned(), "share".to_owned(), "count".to_owned()],
            ..Findings::default()
        });
        assert_eq!(decision.line().unwrap(), "FAIL p99 (and 2 more)");
        let one = decide(&Findings {
            held: 1,
            ..Findings::default()
        });
        assert_eq!(one.line().unwrap(), "PASS 1 expectation held");
    }

    // case L19: the file's word is the verdict's, and reads back as it.
    #[test]
    fn the_word_in_a_file_is_the_word_of_the_last_line() {
        for verdict in Verdict::ALL {
            let text = serde_json::to_string(verdict).unwrap();
            assert_eq!(text.trim_matches('"').to_uppercase(), verdict.capitals());
            assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), *verdict);
        }
    }
}
