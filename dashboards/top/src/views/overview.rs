//! The run at one look: where the fleet is, what was offered and done, what calls took, which codes came, what of what is
//! expected holds.
//!
//! The sections share the height by need: each has a least, and what is left goes to whatever says most with it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use record::judgement::grouped;
use record::label::Label as _;
use record::series::Gauge;
use record::{Endpoint, Judgement, Outcome, Snapshot, Verdict};

use super::endpoints::called;
use super::{Scene, latency, log};
use crate::look::Tone;
use crate::past::syncs;
use crate::text::{
    Fold, count_or_none, curve, fitted, highest, line, or_none, part, put, rule, span, words,
};

/// From this width on each endpoint has curves of its own.
const WIDE: u16 = 120;

/// Rows of each section, its heading included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rows {
    fleet: u16,
    latency: u16,
    answers: u16,
    expectations: u16,
}

impl Rows {
    /// What each gets of this height, for so many endpoints, codes and expectations.
    fn of(body: Rect, endpoints: u16, codes: u16, expectations: u16) -> Self {
        let states = Gauge::STATES.len() as u16;
        let mut rows = Rows {
            fleet: 1 + states,
            latency: 2,
            answers: 1,
            expectations: 2,
        };
        let mut left = body
            .height
            .saturating_sub(rows.fleet + rows.latency + rows.answers + rows.expectations);
        let mut grow = |section: &mut u16, to: u16| {
            let more = to.saturating_sub(*section).min(left);
            *section += more;
            left -= more;
            left
        };
        grow(&mut rows.expectations, 1 + expectations.div_ceil(2));
        grow(&mut rows.latency, 1 + endpoints);
        grow(&mut rows.fleet, 2 + states);
        let mut left = grow(&mut rows.expectations, 1 + expectations);
        // A line each, or all in one: some of them would be no list.
        if codes <= left {
            left = grow(&mut rows.answers, 1 + codes);
        }
        for height in [1, 2] {
            let curves = 1 + endpoints * latency::curves_height(height) as u16;
            if body.width >= WIDE && curves.saturating_sub(rows.latency) <= left {
                left = grow(&mut rows.latency, curves);
            }
        }
        // Twice as high says more, higher than that does not.
        grow(&mut rows.fleet, 2 + 2 * states);
        rows
    }
}

pub(super) fn draw(scene: &Scene<'_>, buffer: &mut Buffer, body: Rect) {
    let mut endpoints = called(scene);
    // Where there is room for one, it is what agents do all day.
    endpoints.sort_by_key(|endpoint| !matches!(endpoint, Endpoint::Sync | Endpoint::CheckIn));
    let codes = codes(scene);
    let judgements = &scene.now.judgements;
    let count = |items: usize| u16::try_from(items).unwrap_or(u16::MAX / 8).min(1_000);
    let rows = Rows::of(
        body,
        count(endpoints.len()),
        count(codes.len()),
        count(judgements.len()),
    );
    let mut y = body.y;
    let mut next = |height: u16| {
        let area = Rect { y, height, ..body };
        y = y.saturating_add(height);
        area.intersection(body)
    };
    fleet(scene, buffer, next(rows.fleet));
    let area = next(rows.latency);
    let width = usize::from(area.width);
    let height = usize::from(area.height.saturating_sub(1)) / endpoints.len().max(1) / 3;
    let latency = match area.width >= WIDE && height > 0 {
        true => latency::curves(scene, &endpoints, width, height),
        false => latency::table(scene, &endpoints, width),
    };
    put(buffer, area, &latency);
    let area = next(rows.answers);
    put(buffer, area, &answers(scene, &codes, area));
    let area = next(rows.expectations);
    put(buffer, area, &expectations(scene, judgements, area));
    let area = next(body.height);
    if area.height > 1 && !scene.log.is_empty() {
        let mut lines = vec![rule(scene.look, area.width, "Log")];
        lines.extend(log::newest(scene, area.height - 1));
        put(buffer, area, &lines);
    }
}

/// Where the fleet is at the left, what it does at the right.
fn fleet(scene: &Scene<'_>, buffer: &mut Buffer, area: Rect) {
    let (look, now) = (scene.look, scene.now);
    let half = area.width / 2;
    let left = Rect {
        width: half.saturating_sub(1),
        ..area
    };
    let right = Rect {
        x: area.x + half,
        width: area.width - half,
        ..area
    };
    let heading = format!(
        "Fleet: {} of {} enrolled",
        grouped(now.gauges[Gauge::Enrolled]),
        grouped(now.agents)
    );
    let mut lines = vec![rule(look, left.width, &heading)];
    lines.extend(waterfall(scene, usize::from(left.width)));
    put(buffer, left, &lines);

    let (offered, done) = syncs(now);
    let heading = format!(
        "Syncs a second: {} offered, {} done",
        grouped(offered),
        count_or_none(done)
    );
    let mut lines = vec![rule(look, right.width, &heading)];
    // The last line is what else the fleet does; the states need theirs, so it stands below the curves.
    let rows = usize::from(area.height.saturating_sub(2));
    let offered = scene.past.curve(|point| Some(point.offered as f64));
    let done = scene.past.curve(|point| Some(point.done? as f64));
    let most = highest([&offered, &done]);
    for (name, values) in [("offered", offered), ("done", done)] {
        let width = usize::from(right.width).saturating_sub(10);
        let bars = curve(&values, most, Fold::Mean, width, rows / 2);
        let known = values.iter().flatten().next();
        let most = count_or_none(known.map(|_| highest([&values]) as u64));
        let labels = [name.to_owned(), format!("max {most}")];
        for (row, bars) in bars.into_iter().enumerate() {
            let label = labels.get(row).map_or("", String::as_str);
            let mut line = line(look, Tone::Plain, format!(" {label:<8}"));
            line.push_span(span(look, Tone::Good, bars));
            lines.push(line);
        }
    }
    let rest = usize::from(area.height.saturating_sub(1)).saturating_sub(lines.len());
    lines.extend((0..rest).map(|_| Line::default()));
    lines.push(line(
        look,
        Tone::Plain,
        format!(" {}", last_sync(scene, right.width)),
    ));
    put(buffer, right, &lines);
    if area.height > 1 + Gauge::STATES.len() as u16 {
        let doing = format!(" {}", doing(scene));
        let last = Rect {
            y: area.bottom() - 1,
            height: 1,
            ..left
        };
        put(buffer, last, &[line(look, Tone::Plain, doing)]);
    }
}

/// The states as bars that begin where the one before ends.
fn waterfall(scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let bars = width.saturating_sub(24);
    let mut before = 0_u64;
    let row = |state: &Gauge| {
        let count = scene.now.gauges[*state];
        let (begins, long) = part(before, count, scene.now.agents, bars);
        before = before.saturating_add(count);
        let tone = match state {
            Gauge::Healthy | Gauge::Updating => Tone::Good,
            Gauge::Waiting | Gauge::Enrolling => Tone::Quiet,
            Gauge::Idle | Gauge::Down => Tone::Bad,
            _ => Tone::Open,
        };
        let label = format!(" {:<12}{:>9} ", words(state.label()), grouped(count));
        let bar = format!("{}{}", " ".repeat(begins), "█".repeat(long));
        Line::from(vec![
            span(scene.look, Tone::Plain, label),
            span(scene.look, tone, bar),
        ])
    };
    Gauge::STATES.iter().map(row).collect()
}

/// What agents do besides being somewhere.
fn doing(scene: &Scene<'_>) -> String {
    let gauge = |gauge: Gauge| grouped(scene.now.gauges[gauge]);
    format!(
        "{} calling, {} operating, {} converged",
        gauge(Gauge::InFlight),
        gauge(Gauge::Operating),
        gauge(Gauge::Converged)
    )
}

/// How stale the fleet is.
fn last_sync(scene: &Scene<'_>, width: u16) -> String {
    let Some(last) = &scene.now.last_sync else {
        return "last sync: -".to_owned();
    };
    let behind = grouped(last.behind);
    match width {
        0..60 => format!("last sync: {behind} behind, {} at most", last.longest),
        _ => format!(
            "last sync: {behind} behind, p50 {} ago, p99 {}, {} at most",
            last.ago.p50, last.ago.p99, last.longest
        ),
    }
}

/// Outcomes that came, the worst first: what went wrong by its number, then what went well.
fn codes(scene: &Scene<'_>) -> Vec<(Outcome, u64)> {
    let total = scene.now.account.total();
    let mut codes: Vec<(Outcome, u64)> = total
        .ended
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(outcome, count)| (outcome, *count))
        .collect();
    codes.sort_by_key(|(outcome, count)| {
        (
            outcome.is_success(),
            std::cmp::Reverse(*count),
            outcome.index(),
        )
    });
    codes
}

fn tone_of(outcome: Outcome) -> Tone {
    match outcome.is_success() {
        true => Tone::Good,
        false => Tone::Bad,
    }
}

/// The codes: a line each with room, else all in one.
fn answers(scene: &Scene<'_>, codes: &[(Outcome, u64)], area: Rect) -> Vec<Line<'static>> {
    let look = scene.look;
    if area.height <= 1 {
        return vec![in_a_line(scene, codes)];
    }
    let ended: u64 = codes.iter().map(|(_, count)| count).sum();
    let heading = format!("Answers: {} so far, the worst first", grouped(ended));
    let mut lines = vec![rule(look, area.width, &heading)];
    for (outcome, count) in codes {
        let share = *count as f64 / ended as f64 * 100.0;
        let places: Vec<String> = called(scene)
            .iter()
            .map(|endpoint| (endpoint, scene.now.account.line(*endpoint).ended[*outcome]))
            .filter(|(_, count)| *count > 0)
            .map(|(endpoint, count)| format!("{endpoint} {}", grouped(count)))
            .collect();
        let name = words(outcome.label());
        let mut line = line(look, tone_of(*outcome), format!(" {name:<23}"));
        line.push_span(span(
            look,
            Tone::Plain,
            format!(
                "{:>11} {share:>7.3} %  {}",
                grouped(*count),
                places.join(", ")
            ),
        ));
        lines.push(line);
    }
    lines
}

fn in_a_line(scene: &Scene<'_>, codes: &[(Outcome, u64)]) -> Line<'static> {
    let look = scene.look;
    let mut spans = vec![
        span(look, Tone::Quiet, "─ "),
        span(look, Tone::Heading, "Answers"),
    ];
    if codes.is_empty() {
        spans.push(span(look, Tone::Plain, "  none yet"));
    }
    for (outcome, count) in codes {
        let text = format!("  {} {}", words(outcome.label()), grouped(*count));
        spans.push(span(look, tone_of(*outcome), text));
    }
    Line::from(spans)
}

/// A verdict in words.
fn word(verdict: Verdict) -> String {
    words(verdict.capitals())
}

fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Pass => Tone::Good,
        Verdict::NoData => Tone::Open,
        Verdict::Fail | Verdict::Overloaded | Verdict::Aborted => Tone::Bad,
    }
}

/// The verdict; while the run goes on, how many expectations hold and how many do not.
fn standing(now: &Snapshot) -> String {
    let judgements = &now.judgements;
    if let Some(end) = &now.end {
        return format!("{} {}", end.verdict.capitals(), end.reason);
    }
    if judgements.is_empty() {
        return "not judged yet".to_owned();
    }
    let count = |verdict: Verdict| judgements.iter().filter(|j| j.verdict == verdict).count();
    let mut text = format!("{} of {} hold", count(Verdict::Pass), judgements.len());
    for verdict in [Verdict::Fail, Verdict::NoData] {
        if count(verdict) > 0 {
            text.push_str(&format!(", {} {}", count(verdict), word(verdict)));
        }
    }
    text
}

/// Those that fail first, then those without data.
fn worst_first(judgements: &[Judgement]) -> Vec<&Judgement> {
    let mut sorted: Vec<&Judgement> = judgements.iter().collect();
    sorted.sort_by_key(|judgement| match judgement.verdict {
        Verdict::Fail | Verdict::Overloaded | Verdict::Aborted => 0,
        Verdict::NoData => 1,
        Verdict::Pass => 2,
    });
    sorted
}

/// `PASS     12.4 ms  99 % of sync answers …`, in this width.
fn judged(scene: &Scene<'_>, judgement: &Judgement, width: usize) -> Vec<Span<'static>> {
    let figure = match &judgement.figure {
        Some(figure) => figure.to_string(),
        None => "-".to_owned(),
    };
    let text = match width {
        // Where there is room, which part of the run the figure is of.
        100.. => format!("{figure:<10} {} ({})", judgement.text, judgement.place),
        _ => format!("{figure:<10} {}", judgement.text),
    };
    vec![
        span(
            scene.look,
            tone(judgement.verdict),
            format!(" {:<8}", word(judgement.verdict)),
        ),
        span(
            scene.look,
            Tone::Plain,
            fitted(&text, width.saturating_sub(9)),
        ),
    ]
}

fn expectations(scene: &Scene<'_>, judgements: &[Judgement], area: Rect) -> Vec<Line<'static>> {
    let standing = standing(scene.now);
    let heading = fitted(
        &format!("Expectations: {standing}"),
        usize::from(area.width).saturating_sub(5),
    );
    let mut lines = vec![rule(scene.look, area.width, heading.trim_end())];
    let rows = usize::from(area.height.saturating_sub(1));
    let width = usize::from(area.width);
    let columns = match judgements.len() > rows {
        true => 2,
        false => 1,
    };
    let sorted = worst_first(judgements);
    for row in 0..rows.min(sorted.len()) {
        let mut spans = Vec::new();
        for column in 0..columns {
            if let Some(judgement) = sorted.get(row + column * rows) {
                spans.extend(judged(scene, judgement, width / columns));
            }
        }
        lines.push(Line::from(spans));
    }
    // The last place says how many have none.
    let unseen = sorted.len().saturating_sub(rows * columns);
    if let (Some(last), true) = (lines.last_mut(), unseen > 0 && rows > 0) {
        let text = format!(" and {} more", unseen + 1);
        last.spans.truncate(2);
        last.push_span(span(scene.look, Tone::Plain, text));
    }
    lines
}

/// The run in words, a line for each thing, what matters most first.
pub(super) fn in_words(scene: &Scene<'_>, body: Rect) -> Vec<Line<'static>> {
    let (look, now) = (scene.look, scene.now);
    let width = usize::from(body.width);
    let plain = |text: String| line(look, Tone::Plain, text);
    let mut lines = states(scene);
    let (offered, done) = syncs(now);
    lines.push(plain(format!(
        " syncs {} offered, {} done a second",
        grouped(offered),
        count_or_none(done)
    )));
    let sync = |endpoint: Endpoint| scene.past.last(|point| point.times[endpoint].response);
    let sync = sync(Endpoint::Sync).or_else(|| sync(Endpoint::CheckIn));
    lines.push(plain(format!(
        " response p50 {} p99 {}",
        or_none(sync.map(|all| all.p50)),
        or_none(sync.map(|all| all.p99))
    )));
    let codes: Vec<String> = codes(scene)
        .iter()
        .map(|(outcome, count)| format!("{} {}", words(outcome.label()), grouped(*count)))
        .collect();
    lines.push(plain(fitted(&format!(" {}", codes.join(", ")), width)));
    lines.push(plain(format!(" {}", standing(now))));
    for judgement in worst_first(&now.judgements) {
        lines.push(Line::from(judged(scene, judgement, width)));
    }
    lines
}

/// Who is enrolled, and where everybody is.
pub(super) fn states(scene: &Scene<'_>) -> Vec<Line<'static>> {
    let now = scene.now;
    let enrolled = format!(
        " {} of {} enrolled",
        grouped(now.gauges[Gauge::Enrolled]),
        grouped(now.agents)
    );
    let states: Vec<String> = Gauge::STATES
        .iter()
        .filter(|state| now.gauges[**state] > 0)
        .map(|state| format!("{} {}", words(state.label()), grouped(now.gauges[*state])))
        .collect();
    [enrolled, format!(" {}", states.join(", "))]
        .map(|text| line(scene.look, Tone::Plain, text))
        .into()
}
