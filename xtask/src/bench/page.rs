//! The page: medians, bounds and where they come from, as text. Pure: figures in, Markdown out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Run;
use super::figures::{
    CONNECTION, Figure, HANDSHAKES, Is, Measurement, OTHERS, OURS, POST, Program, RATE, SIGN, SYNC,
};
use crate::page::{Origin, grouped};

/// A measurement and its runs.
#[derive(Debug)]
pub(super) struct Measured<'a> {
    pub(super) measurement: &'a Measurement,
    runs: Vec<Run>,
    /// Why there are none.
    missing: Option<String>,
}

/// A figure over all runs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    lowest: f64,
    median: f64,
    highest: f64,
}

impl<'a> Measured<'a> {
    pub(super) fn made(measurement: &'a Measurement, runs: Vec<Run>) -> Self {
        Self {
            measurement,
            runs,
            missing: None,
        }
    }

    pub(super) fn missing(measurement: &'a Measurement, why: String) -> Self {
        Self {
            measurement,
            runs: Vec::new(),
            missing: Some(why),
        }
    }

    /// The figures whose median is over their bound.
    pub(super) fn misses(&self) -> impl Iterator<Item = &Figure> {
        self.measurement.figures.iter().filter(|figure| {
            let median = self.spread(figure.name).map(|spread| spread.median);
            matches!((figure.is, median), (Is::AtMost(bound), Some(median)) if median > bound)
        })
    }

    fn median(&self, name: &str) -> Option<f64> {
        Some(self.spread(name)?.median)
    }

    /// None if no run has the figure.
    fn spread(&self, name: &str) -> Option<Spread> {
        let mut values: Vec<f64> = self
            .runs
            .iter()
            .filter_map(|run| run.get(name).copied())
            .collect();
        values.sort_by(f64::total_cmp);
        Some(Spread {
            lowest: *values.first()?,
            median: values[values.len() / 2],
            highest: *values.last()?,
        })
    }
}

/// The whole page, or the tables alone where nothing is said of their origin.
pub(super) fn write(
    origin: Option<&Origin>,
    measured: &[Measured<'_>],
    profiles: &BTreeMap<&str, Vec<String>>,
) -> String {
    let mut page = String::new();
    if let Some(origin) = origin {
        head(&mut page, origin, measured);
    }
    let bounded = rows(measured, |is| matches!(is, Is::AtMost(_)));
    section(&mut page, "Figures and their bounds", &bounded);
    posting(&mut page, measured);
    let peers = rows(measured, |is| is == Is::Peer);
    section(&mut page, "Peers, in the same run", &peers);
    signing(&mut page, measured);
    let beside = rows(measured, |is| is == Is::Beside);
    section(&mut page, "Beside", &beside);
    for (name, lines) in profiles {
        let _ = write!(page, "## What a profile says of `{name}`\n\n```text\n");
        for line in lines {
            let _ = writeln!(page, "{line}");
        }
        page.push_str("```\n\n");
    }
    if origin.is_some() {
        page.push_str("## How each is measured\n\n");
        for Measured { measurement, .. } in measured {
            let (name, runs, how) = (measurement.name, measurement.runs, measurement.how);
            let _ = writeln!(page, "- `{name}`, {runs} ×: {how}");
        }
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn head(page: &mut String, origin: &Origin, measured: &[Measured<'_>]) {
    let _ = write!(
        page,
        "# Benchmarks\n\n\
         Measured and written by `cargo xtask bench`, never by hand.\n\n\
         {origin}"
    );
    let others: Vec<f64> = measured
        .iter()
        .flat_map(|m| &m.runs)
        .filter_map(|run| run.get(OTHERS).copied())
        .collect();
    if let Some(most) = others.into_iter().max_by(f64::total_cmp) {
        let _ = writeln!(
            page,
            "- Other programs took up to {} of the processors during a run",
            shown(most, "%")
        );
    }
    page.push_str(
        "\nEach figure is the median of several processes, with the lowest and the highest beside it. Times are processor time \
         unless they are said to be passed time. The document is the protocol's example, with its four secrets, and two \
         more add-ons: that of the scenario `steady`.\n\n",
    );
}

fn section(page: &mut String, title: &str, rows: &[String]) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(page, "## {title}\n\n");
    page.push_str("| Median | What | Lowest to highest | Bound |\n|---|---|---|---|\n");
    for row in rows {
        let _ = writeln!(page, "{row}");
    }
    page.push('\n');
}

/// Ours and the peers, side by side.
fn posting(page: &mut String, measured: &[Measured<'_>]) {
    let is_posting = |m: &&Measured<'_>| m.measurement.figures.iter().any(|f| f.is == Is::Posting);
    let clients: Vec<&Measured<'_>> = measured.iter().filter(is_posting).collect();
    if clients.is_empty() {
        return;
    }
    let ours = |name| {
        let ours = clients.iter().find(|m| m.measurement.name == OURS)?;
        ours.median(name).filter(|median| *median > 0.0)
    };
    page.push_str(
        "## Posting the same bytes unsigned to a route that does nothing: ours and others, in the same run\n\n\
         | Program | Processor time a request | Times ours | Memory a connection | Times ours | Requests (passed time) | \
         Connections opened meanwhile |\n|---|---|---|---|---|---|---|\n",
    );
    for client in &clients {
        let name = match client.measurement.program {
            Some(Program::Peer(peer)) => peer.called(),
            _ => "ours",
        };
        if let Some(why) = &client.missing {
            let why = why.replace('|', "/").replace('\n', " ");
            let _ = writeln!(page, "| {name} | not measured: {why} | – | – | – | – | – |");
            continue;
        }
        let value = |figure, unit| {
            let median = client.median(figure);
            median.map_or("–".to_owned(), |median| shown(median, unit))
        };
        let times = |figure| match (client.median(figure), ours(figure)) {
            (Some(theirs), Some(ours)) => shown(theirs / ours, ""),
            _ => "–".to_owned(),
        };
        let _ = writeln!(
            page,
            "| {name} | {} | {} | {} | {} | {} | {} |",
            value(POST, "µs"),
            times(POST),
            value(CONNECTION, "KiB"),
            times(CONNECTION),
            value(RATE, "/s"),
            value(HANDSHAKES, ""),
        );
    }
    page.push('\n');
}

/// What a signed sync costs its generator beside the unsigned post of the same bytes.
fn signing(page: &mut String, measured: &[Measured<'_>]) {
    let median = |(measurement, figure): (&str, &str)| {
        let measured = measured.iter().find(|m| m.measurement.name == measurement);
        measured?.median(figure)
    };
    let (Some(signed), Some(unsigned)) = (median(SYNC), median((OURS, POST))) else {
        return;
    };
    let _ = writeln!(
        page,
        "What a signed sync adds to an unsigned POST, for its generator: {}, engine, node model, referees and counting \
         included{}.\n",
        shown(signed - unsigned, "µs"),
        median(SIGN).map_or(String::new(), |sign| format!(
            "; {} of that is the signature",
            shown(sign, "µs")
        )),
    );
}

fn rows(measured: &[Measured<'_>], wanted: impl Fn(Is) -> bool) -> Vec<String> {
    let mut rows = Vec::new();
    for measured in measured {
        for figure in measured.measurement.figures.iter().filter(|f| wanted(f.is)) {
            let Some(spread) = measured.spread(figure.name) else {
                continue;
            };
            let unit = figure.unit;
            let bound = match figure.is {
                Is::AtMost(bound) if spread.median > bound => {
                    format!("at most {}: **missed**", shown(bound, unit))
                }
                Is::AtMost(bound) => format!("at most {}: held", shown(bound, unit)),
                Is::Peer | Is::Posting | Is::Beside => "–".to_owned(),
            };
            rows.push(format!(
                "| {} | {} | {} to {} | {bound} |",
                shown(spread.median, unit),
                figure.what,
                shown(spread.lowest, unit),
                shown(spread.highest, unit),
            ));
        }
    }
    rows
}

/// A figure with three digits that say something.
fn shown(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let number = format!("{value:.digits$}");
    let number = match number.contains('.') {
        true => number
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
        false => grouped(&number),
    };
    match unit {
        "" => number,
        unit => format!("{number} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::MEASUREMENTS;
    use super::*;

    const MEASUREMENT: Measurement = Measurement {
        name: "sync",
        runs: 5,
        seconds: 1,
        program: None,
        how: "in a loop.",
        figures: &[
            Figure {
                name: "generator_us",
                what: "a sync",
                unit: "µs",
                is: Is::AtMost(60.0),
            },
            Figure {
                name: "rate",
                what: "syncs",
                unit: "/s",
                is: Is::Beside,
            },
        ],
    };

    fn measured(generator_us: &[f64]) -> Measured<'static> {
        let runs = generator_us.iter().map(|us| {
            [("generator_us", *us), ("rate", 18_770.4), (OTHERS, 1.5)]
                .map(|(name, value)| (name.to_owned(), value))
                .into()
        });
        Measured::made(&MEASUREMENT, runs.collect())
    }

    fn origin() -> Origin {
        Origin {
            commit: "78842aa".to_owned(),
            date: "2026-11-30".to_owned(),
            machine: "2 × AMD EPYC, 24 GiB".to_owned(),
            system: "Linux 6.18".to_owned(),
            compiler: "rustc 1.95.0".to_owned(),
        }
    }

    #[test]
    fn the_median_is_held_against_the_bound() {
        for (runs, expected) in [
            (
                [70.0, 50.0, 51.26, 49.0, 80.0],
                "| 51.3 µs | a sync | 49 µs to 80 µs | at most 60 µs: held |",
            ),
            (
                [70.0, 50.0, 61.0, 49.0, 80.0],
                "| 61 µs | a sync | 49 µs to 80 µs | at most 60 µs: **missed** |",
            ),
        ] {
            let measured = [measured(&runs)];
            let page = write(Some(&origin()), &measured, &BTreeMap::new());
            assert!(page.contains(expected), "{page}");
            assert!(page.contains("| 18,770 /s | syncs |"), "{page}");
            assert_eq!(
                measured[0].misses().count(),
                usize::from(expected.contains("missed"))
            );
        }
    }

    #[test]
    fn peers_stand_beside_ours_or_it_is_said_why_not() {
        let find = |name| MEASUREMENTS.iter().find(|m| m.name == name).unwrap();
        let posting = |name, client_us, connection_kib| {
            let run: Run = [(POST, client_us), (CONNECTION, connection_kib)]
                .map(|(name, value)| (name.to_owned(), value))
                .into();
            Measured::made(find(name), vec![run])
        };
        let page = write(
            None,
            &[
                posting("unsigned", 20.0, 10.0),
                posting("wrk", 8.0, 25.0),
                Measured::missing(find("hey"), "no\npackage | here".to_owned()),
                measured(&[50.0]),
            ],
            &BTreeMap::new(),
        );
        for line in [
            "| ours | 20 µs | 1 | 10 KiB | 1 | – | – |\n",
            "| wrk 4.1.0 | 8 µs | 0.4 | 25 KiB | 2.5 | – | – |\n",
            "| hey 0.1.4 | not measured: no package / here | – | – | – | – | – |\n",
            "adds to an unsigned POST, for its generator: 30 µs,",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }

    #[test]
    fn the_page_says_where_it_comes_from() {
        let profiles = [("sync", vec!["12.50% agents f".to_owned()])].into();
        let page = write(Some(&origin()), &[measured(&[50.0])], &profiles);
        for part in [
            "Commit: `78842aa`\n",
            "2 × AMD EPYC, 24 GiB, Linux 6.18, rustc 1.95.0",
            "up to 1.5 % of the processors",
            "- `sync`, 5 ×: in a loop.\n",
            "What a profile says of `sync`",
            "12.50% agents f\n",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let tables = write(None, &[measured(&[50.0])], &BTreeMap::new());
        assert!(tables.starts_with("## Figures"), "{tables}");
    }
}
