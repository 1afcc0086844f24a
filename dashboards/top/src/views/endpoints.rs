//! Where every request went: a column for each endpoint that was called, a row for each outcome that came.

use ratatui::text::Line;
use record::account::Line as Account;
use record::judgement::grouped;
use record::label::Label as _;
use record::{Endpoint, Outcome};

use super::Scene;
use super::latency;
use crate::look::Tone;
use crate::text::{line, rule, words};

/// Columns of the names at the left.
const NAME: usize = 19;

/// Endpoints that a request was due at.
pub(super) fn called(scene: &Scene<'_>) -> Vec<Endpoint> {
    let all = Endpoint::ALL.iter().copied();
    all.filter(|endpoint| scene.now.account.line(*endpoint).planned > 0)
        .collect()
}

pub(super) fn lines(scene: &Scene<'_>, width: u16) -> Vec<Line<'static>> {
    let mut lines = requests(scene, width);
    let called = called(scene);
    if !called.is_empty() {
        lines.extend(latency::table(scene, &called, usize::from(width)));
    }
    lines
}

/// Where requests went.
pub(super) fn requests(scene: &Scene<'_>, width: u16) -> Vec<Line<'static>> {
    let look = scene.look;
    let called = called(scene);
    if called.is_empty() {
        let text = " No request was due yet.";
        return vec![Line::default(), line(look, Tone::Plain, text)];
    }
    let total = scene.now.account.total();
    // Nothing in a column is larger than what was due there.
    let column_width =
        |(name, account): &(&str, &Account)| name.len().max(grouped(account.planned).len()) + 2;
    let cell = |text: &str, column: &(&str, &Account)| {
        let width = column_width(column);
        format!("{text:>width$}")
    };
    // Whole columns, and the sum before any of what it is of.
    let all = ("all", &total);
    let mut left = usize::from(width).saturating_sub(NAME + column_width(&all));
    let mut columns: Vec<(&str, &Account)> = called
        .iter()
        .map(|endpoint| (endpoint.label(), scene.now.account.line(*endpoint)))
        .take_while(|column| {
            let fits = column_width(column) <= left;
            left = left.saturating_sub(column_width(column));
            fits
        })
        .collect();
    let heading = match called.len() - columns.len() {
        0 => "Requests so far".to_owned(),
        _ => format!(
            "Requests so far, {} of {} endpoints",
            columns.len(),
            called.len()
        ),
    };
    columns.push(all);
    let row = |name: &str, tone: Tone, figure: &dyn Fn(&Account) -> u64| {
        let cells: String = columns
            .iter()
            .map(|column| match figure(column.1) {
                0 => cell("-", column),
                count => cell(&grouped(count), column),
            })
            .collect();
        line(
            look,
            tone,
            format!(" {:<width$}{cells}", words(name), width = NAME - 1),
        )
    };
    let names: String = columns
        .iter()
        .map(|column| cell(column.0, column))
        .collect();

    let mut lines = vec![
        rule(look, width, &heading),
        line(look, Tone::Heading, format!("{:<NAME$}{names}", "")),
        row("due", Tone::Plain, &|account| account.planned),
        row("dropped", Tone::Plain, &|account| account.dropped),
        row("started", Tone::Plain, &|account| account.started),
        row("under way", Tone::Plain, &Account::in_flight),
    ];
    let came = Outcome::ALL
        .iter()
        .filter(|outcome| total.ended[**outcome] > 0);
    for outcome in came {
        let tone = match outcome.is_success() {
            true => Tone::Good,
            false => Tone::Bad,
        };
        let name = outcome.label();
        lines.push(row(name, tone, &|account| account.ended[*outcome]));
    }
    lines
}
