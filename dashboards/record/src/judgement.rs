//! One expectation, judged: what was expected, what came, and whether that is enough.
//!
//! Judging is `scenario`'s work; these are the words that are left of it in the result file.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::micros::Micros;
use crate::verdict::Verdict;

/// One expectation, judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judgement {
    /// The expectation as a person would say it.
    pub text: String,
    /// `pass`, `fail` or `no_data`; while a run goes on, `so_far` where its end alone will tell.
    pub verdict: Verdict,
    /// What came; none without data.
    pub figure: Option<Quantity>,
    /// Of how many, where the figure is a part of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// What was expected of it.
    pub bound: Bound,
    /// Which part of the run the figure is of.
    #[serde(rename = "where")]
    pub place: String,
}

/// A figure with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "unit", content = "value")]
pub enum Quantity {
    /// A duration, in microseconds.
    Micros(Micros),
    /// A number of things.
    Count(u64),
    /// A part of a whole, 0 to 1.
    Share(f64),
    /// Events per second.
    PerSecond(f64),
    /// So many times as much.
    Ratio(f64),
}

/// The limit a figure is held against.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// It must not be more.
    AtMost(Quantity),
    /// It must not be less.
    AtLeast(Quantity),
    /// It must be this.
    Exactly(Quantity),
}

impl Bound {
    /// The limit itself.
    pub const fn limit(&self) -> Quantity {
        match self {
            Bound::AtMost(limit) | Bound::AtLeast(limit) | Bound::Exactly(limit) => *limit,
        }
    }

    /// The verdict on a figure; without one there is nothing to judge.
    pub fn verdict(&self, figure: Option<Quantity>) -> Verdict {
        match figure {
            None => Verdict::NoData,
            Some(figure) if self.holds(figure) => Verdict::Pass,
            Some(_) => Verdict::Fail,
        }
    }

    /// Whether a figure keeps it. A figure of another unit, or one that is no number, does not.
    pub fn holds(&self, figure: Quantity) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        match (self, figure.compare(self.limit())) {
            (Bound::AtMost(_), Some(Less | Equal)) => true,
            (Bound::AtLeast(_), Some(Greater | Equal)) => true,
            (Bound::Exactly(_), Some(Equal)) => true,
            (Bound::AtMost(_) | Bound::AtLeast(_) | Bound::Exactly(_), _) => false,
        }
    }
}

impl Quantity {
    fn compare(self, other: Quantity) -> Option<std::cmp::Ordering> {
        match (self, other) {
            (Quantity::Micros(a), Quantity::Micros(b)) => Some(a.cmp(&b)),
            (Quantity::Count(a), Quantity::Count(b)) => Some(a.cmp(&b)),
            (Quantity::Share(a), Quantity::Share(b)) => a.partial_cmp(&b),
            (Quantity::PerSecond(a), Quantity::PerSecond(b)) => a.partial_cmp(&b),
            (Quantity::Ratio(a), Quantity::Ratio(b)) => a.partial_cmp(&b),
            _ => None,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Micros(micros) => micros.fmt(f),
            Quantity::Count(count) => f.pad(&grouped(*count)),
            Quantity::Share(share) => write!(f, "{} %", percent(*share)),
            Quantity::PerSecond(rate) => write!(f, "{}/s", short(*rate)),
            Quantity::Ratio(ratio) => write!(f, "{} times", short(*ratio)),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtMost(limit) => write!(f, "at most {limit}"),
            Bound::AtLeast(limit) => write!(f, "at least {limit}"),
            Bound::Exactly(limit) => write!(f, "exactly {limit}"),
        }
    }
}

impl Judgement {
    /// What came, as a person would say it: `12.4 ms`, `9 of 10`; none without data.
    pub fn came(&self) -> Option<String> {
        let figure = self.figure.as_ref()?;
        Some(match self.of {
            Some(whole) => format!("{figure} of {}", grouped(whole)),
            None => figure.to_string(),
        })
    }
}

impl fmt::Display for Judgement {
    /// One line: `pass  99 % of sync answers … within 250 ms: 12.4 ms (sync, ok, 25 s to 120 s)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let came = self.came().unwrap_or_else(|| "no data".to_owned());
        write!(
            f,
            "{:<7} {}: {came} ({})",
            self.verdict, self.text, self.place
        )
    }
}

/// A count with its thousands apart: `1,000,000`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share in per cent. Never rounds what is below the whole up to it, nor what is above nothing down to it: `99.9998`
/// stays visible, since a bound of 100 % is about that.
fn percent(share: f64) -> String {
    let hundredfold = share * 100.0;
    if share == 0.0 || share == 1.0 || !share.is_finite() {
        return format!("{hundredfold}");
    }
    for decimals in 2..=6_usize {
        let text = format!("{hundredfold:.decimals$}");
        let rounded: f64 = text.parse().unwrap_or(hundredfold);
        if rounded != 0.0 && rounded != 100.0 {
            let text = text.trim_end_matches('0').trim_end_matches('.');
            return text.to_owned();
        }
    }
    format!("{hundredfold}")
}

fn short(value: f64) -> String {
    let decimals = match value {
        _ if value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_said_with_its_unit() {
        let rows = [
            (Quantity::Micros(Micros(12_400)), "12.4 ms"),
            (Quantity::Count(1_234_567), "1,234,567"),
            (Quantity::Count(999), "999"),
            (Quantity::Share(1.0), "100 %"),
            (Quantity::Share(0.999), "99.9 %"),
            (Quantity::Share(0.999_998), "99.9998 %"),
            (Quantity::Share(0.000_001), "0.0001 %"),
            (Quantity::Share(0.0), "0 %"),
            (Quantity::PerSecond(33.333), "33.3/s"),
            (Quantity::PerSecond(1_000.0), "1000/s"),
            (Quantity::Ratio(1.5), "1.5 times"),
            (Quantity::Ratio(100.0), "100 times"),
        ];
        for (quantity, text) in rows {
            assert_eq!(quantity.to_string(), text);
        }
    }

    #[test]
    fn a_bound_holds_at_its_limit_and_never_for_another_unit() {
        use Bound::{AtLeast, AtMost, Exactly};
        use Quantity::{Count, Ratio, Share};
        let rows = [
            (AtMost(Count(5)), Count(5), true),
            (AtMost(Count(5)), Count(6), false),
            (AtLeast(Count(5)), Count(5), true),
            (AtLeast(Count(5)), Count(4), false),
            (Exactly(Count(5)), Count(5), true),
            (Exactly(Count(5)), Count(4), false),
            (AtMost(Count(5)), Share(0.5), false),
            (AtMost(Ratio(5.0)), Ratio(f64::NAN), false),
            (AtLeast(Share(0.5)), Share(f64::NAN), false),
        ];
        for (bound, figure, holds) in rows {
            assert_eq!(bound.holds(figure), holds, "{figure} {bound}");
        }
    }

    #[test]
    fn a_file_spells_unit_and_value() {
        let judgement = Judgement {
            text: "1,000 agents enrolled".to_owned(),
            verdict: Verdict::Fail,
            figure: Some(Quantity::Count(999)),
            of: None,
            bound: Bound::Exactly(Quantity::Count(1_000)),
            place: "whole run".to_owned(),
        };
        let text = serde_json::to_string(&judgement).unwrap();
        assert_eq!(
            text,
            r#"{"text":"1,000 agents enrolled","verdict":"fail","figure":{"unit":"count","value":999},"bound":{"exactly":{"unit":"count","value":1000}},"where":"whole run"}"#
        );
        assert_eq!(serde_json::from_str::<Judgement>(&text).unwrap(), judgement);
        assert_eq!(
            judgement.to_string(),
            "fail    1,000 agents enrolled: 999 (whole run)"
        );
        let of_whole = Judgement {
            of: Some(1_234),
            ..judgement
        };
        let text = serde_json::to_string(&of_whole).unwrap();
        assert_eq!(serde_json::from_str::<Judgement>(&text).unwrap(), of_whole);
        assert_eq!(
            of_whole.to_string(),
            "fail    1,000 agents enrolled: 999 of 1,234 (whole run)"
        );
    }
}
