//! The verdict on a whole run: everything that was found, weighed by `record`.

use record::account::Line;
use record::judgement::grouped;
use record::label::Label;
use record::micros::Micros;
use record::outcome::{Class, Outcome};
use record::result::RunResult;
use record::verdict::{Decision, Findings, Verdict, decide};

use crate::expect::Evidence;
use crate::referees::{Host, Referees};
use crate::scenario::Scenario;

impl Scenario {
    /// Judges a run of this scenario: writes every expectation's judgement and the verdict into the result, and gives the
    /// verdict. A result that was judged before is judged anew.
    pub fn judge(&self, result: &mut RunResult) -> Decision {
        let judgements: Vec<_> = {
            let evidence = Evidence::from(&*result);
            self.expect.iter().map(|e| e.judge(&evidence)).collect()
        };
        let mut findings = Findings {
            interrupted: interrupted(result),
            preflight: never_answered(&result.account.total()),
            broken: broken(result),
            overloaded: self.overloaded(result),
            no_data: self.not_refereed(result),
            ..Findings::default()
        };
        for (expectation, judgement) in self.expect.iter().zip(&judgements) {
            let told = judgement.to_string();
            let told = told
                .split_once(' ')
                .map_or(told.as_str(), |(_, rest)| rest.trim_start());
            match judgement.verdict {
                Verdict::Pass => findings.held += 1,
                Verdict::NoData if expectation.allow_empty => {}
                Verdict::NoData | Verdict::SoFar => findings.no_data.push(told.to_owned()),
                Verdict::Fail | Verdict::Overloaded | Verdict::Aborted => {
                    findings.not_held.push(told.to_owned());
                }
            }
        }
        let decision = decide(&findings);
        result.expectations = judgements;
        let owed = self.owed(host_of(result));
        for report in &mut result.referees {
            let owed = owed.iter().any(|referee| referee.get() == report.number);
            report.owed = owed;
        }
        result.decided(&decision);
        decision
    }

    /// Where the generator, and not the portal, was the limit.
    fn overloaded(&self, result: &RunResult) -> Vec<String> {
        let mut told = Vec::new();
        let limit = Micros::from(self.generator.lateness_p99_at_most);
        if let Some(late) = result.samples.lateness.quantile(0.99)
            && late > limit
        {
            told.push(format!(
                "the generator could not keep up: 99 % of requests started at most {late} late, {limit} is allowed"
            ));
        }
        let total = result.account.total();
        let allowed = self.generator.dropped_share_at_most;
        if total.dropped as f64 > allowed.get() * total.planned as f64 {
            told.push(format!(
                "the generator could not keep up: it left {} of {} requests undone, {allowed} is allowed",
                grouped(total.dropped),
                grouped(total.planned)
            ));
        }
        for (outcome, what) in [
            (Outcome::ClientPorts, "source ports"),
            (Outcome::ClientFiles, "file descriptors"),
        ] {
            let count = total.ended[outcome];
            if count > 0 {
                told.push(format!(
                    "the generator ran out of {what}: {} requests were not sent",
                    grouped(count)
                ));
            }
        }
        for part in result
            .populations
            .iter()
            .filter(|part| part.here() < part.count)
        {
            let missing = part.count - part.here();
            told.push(format!(
                "{} of {} agents of `{}` are not in this result, so it cannot be judged",
                grouped(missing),
                grouped(part.count),
                part.name
            ));
        }
        told
    }

    /// Referees that are owed and judged nothing.
    fn not_refereed(&self, result: &RunResult) -> Vec<String> {
        let judged = |number| {
            let report = result
                .referees
                .iter()
                .find(|report| report.number == number);
            report.is_some_and(|report| report.judged > 0)
        };
        let why = match self.referees {
            Referees::Named(_) => "`referees` names it",
            Referees::Default => "this scenario owes it by default",
        };
        self.owed(host_of(result))
            .into_iter()
            .filter(|referee| !judged(referee.get()))
            .map(|referee| {
                format!(
                    "referee {} had nothing to judge, and {why}: {}",
                    referee.get(),
                    self.remedy(referee)
                )
            })
            .collect()
    }
}

/// Whose portal the run was at.
fn host_of(result: &RunResult) -> Host {
    match result.run.portal {
        None => Host::Embedded,
        Some(_) => Host::Foreign,
    }
}

fn interrupted(result: &RunResult) -> Vec<String> {
    match result.interrupted {
        true => vec!["interrupted; this is the report so far".to_owned()],
        false => Vec::new(),
    }
}

/// A portal that did not answer a single request is not there, whatever was expected of it.
fn never_answered(total: &Line) -> Vec<String> {
    if total.started == 0 || total.of(Class::Answered) > 0 {
        return Vec::new();
    }
    let most = total
        .ended
        .iter()
        .filter(|(_, count)| **count > 0)
        .max_by_key(|(outcome, count)| (**count, std::cmp::Reverse(outcome.index())));
    let most = most.map_or_else(String::new, |(outcome, count)| {
        format!(", most often `{outcome}` ({})", grouped(*count))
    });
    vec![format!(
        "the portal never answered: {} requests were sent{most}",
        grouped(total.started)
    )]
}

/// Invariants that hold in every run.
fn broken(result: &RunResult) -> Vec<String> {
    let account = result.account_errors();
    let mut told: Vec<String> = account
        .iter()
        .map(|error| format!("the account does not add up: {error}"))
        .collect();
    for report in result.referees.iter().filter(|report| report.breaches > 0) {
        let first = report
            .broken
            .first()
            .map_or("no word of it", String::as_str);
        told.push(format!(
            "referee {} ({}) saw {} breaches: {first}",
            report.number,
            report.name,
            grouped(report.breaches)
        ));
    }
    if result.fleet.duplicate_identities > 0 {
        told.push(format!(
            "{} identities are not one an agent",
            grouped(result.fleet.duplicate_identities)
        ));
    }
    told
}
