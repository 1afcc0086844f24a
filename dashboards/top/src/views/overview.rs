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
use record::{Endpoint, Judgement, Outcome, Snapshot, Verdict, snapshot};

use super::endpoints::called;
use super::{Scene, latency, log, second};
use crate::look::Tone;
use crate::past::syncs;
use crate::text::{
    Fold, count_or_none, curve, fitted, fitting, highest, line, list, or_none, part, put, rule,
    span, words, wrapped,
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
        let latency_heading = latency::heading_height(usize::from(body.width)) as u16;
        let mut rows = Rows {
            fleet: 1 + states,
            latency: 1 + latency_heading,
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
        grow(&mut rows.latency, latency_heading + endpoints);
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
    let look = scene.look;
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
    put(look, buffer, area, &latency);
    let area = next(rows.answers);
    put(look, buffer, area, &answers(scene, &codes, area));
    let area = next(rows.expectations);
    put(look, buffer, area, &expectations(scene, judgements, area));
    let area = next(body.height);
    if area.height > 1 && !scene.log.is_empty() {
        let mut lines = vec![rule(look, area.width, "Log")];
        lines.extend(log::newest(scene, area.width, area.height - 1));
        put(look, buffer, area, &lines);
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
    put(look, buffer, left, &lines);

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
        format!(" {}", last_sync(scene, right.width.saturating_sub(1))),
    ));
    put(look, buffer, right, &lines);
    if area.height > 1 + Gauge::STATES.len() as u16 {
        let doing = format!(" {}", doing(scene));
        let last = Rect {
            y: area.bottom() - 1,
            height: 1,
            ..left
        };
        put(look, buffer, last, &[line(look, Tone::Plain, doing)]);
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

/// How stale the fleet was when that was looked at.
fn last_sync(scene: &Scene<'_>, width: u16) -> String {
    let (Some(last), Some(at)) = (&scene.now.last_sync, scene.now.judged_at) else {
        return "last sync: -".to_owned();
    };
    let (at, behind, longest) = (second(at), grouped(last.behind), last.longest);
    let wordings = [
        format!(
            "last sync at {at}: {behind} behind, p50 {} ago, p99 {}, {longest} at most",
            last.ago.p50, last.ago.p99
        ),
        format!("last sync at {at}: {behind} behind, {longest} at most"),
        format!("last sync at {at}: {behind} behind, {longest} most"),
        format!("last sync at {at}: {behind} behind"),
    ];
    fitting(wordings, usize::from(width))
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
        Verdict::NoData | Verdict::SoFar => Tone::Open,
        Verdict::Fail | Verdict::Overloaded | Verdict::Aborted => Tone::Bad,
    }
}

/// The verdict; while the run goes on, how many expectations hold and how many do not, and as of when.
fn standing(now: &Snapshot) -> String {
    match (&now.end, now.judged_at) {
        (Some(end), _) => format!("Expectations: {} {}", end.verdict.capitals(), end.reason),
        (None, Some(at)) => {
            let standing = snapshot::standing(&now.judgements);
            format!("Expectations at {}: {standing}", second(at))
        }
        (None, None) => "Expectations: not judged yet".to_owned(),
    }
}

/// Those that fail first, then those without data, then those that are open.
fn worst_first(judgements: &[Judgement]) -> Vec<&Judgement> {
    let mut sorted: Vec<&Judgement> = judgements.iter().collect();
    sorted.sort_by_key(|judgement| match judgement.verdict {
        Verdict::Fail | Verdict::Overloaded | Verdict::Aborted => 0,
        Verdict::NoData => 1,
        Verdict::SoFar => 2,
        Verdict::Pass => 3,
    });
    sorted
}

/// What came of an expectation, and what it is.
fn judged(judgement: &Judgement, width: usize, figures: usize) -> String {
    let came = judgement.came().unwrap_or_else(|| "-".to_owned());
    match width {
        // Where there is room, which part of the run the figure is of.
        100.. => format!("{came:<figures$}  {} ({})", judgement.text, judgement.place),
        _ => format!("{came:<figures$}  {}", judgement.text),
    }
}

/// Columns of a verdict.
const VERDICT: usize = 9;

fn verdict(scene: &Scene<'_>, judgement: &Judgement) -> Span<'static> {
    let text = format!(" {:<width$}", word(judgement.verdict), width = VERDICT - 1);
    span(scene.look, tone(judgement.verdict), text)
}

fn expectations(scene: &Scene<'_>, judgements: &[Judgement], area: Rect) -> Vec<Line<'static>> {
    let look = scene.look;
    let width = usize::from(area.width);
    let heading = fitted(look, &standing(scene.now), width.saturating_sub(5));
    let mut lines = vec![rule(look, area.width, heading.trim_end())];
    let rows = usize::from(area.height.saturating_sub(1));
    let columns = match judgements.len() > rows {
        true => 2,
        false => 1,
    };
    let sorted = worst_first(judgements);
    // Below each other they are a column; beside each other there is no room for one.
    let figures = match columns {
        1 => sorted
            .iter()
            .filter_map(|judgement| judgement.came())
            .map(|came| came.len())
            .max(),
        _ => None,
    };
    let figures = figures.unwrap_or(0).clamp(1, width / 4);
    for row in 0..rows.min(sorted.len()) {
        let mut spans = Vec::new();
        for column in 0..columns {
            if let Some(judgement) = sorted.get(row + column * rows) {
                let width = width / columns;
                let text = judged(judgement, width, figures);
                let text = fitted(look, &text, width.saturating_sub(VERDICT));
                spans.push(verdict(scene, judgement));
                spans.push(span(look, Tone::Plain, text));
            }
        }
        lines.push(Line::from(spans));
    }
    // The last place says how many have none.
    let unseen = sorted.len().saturating_sub(rows * columns);
    if let (Some(last), true) = (lines.last_mut(), unseen > 0 && rows > 0) {
        let text = format!(" and {} more", unseen + 1);
        last.spans.truncate(2);
        last.push_span(span(look, Tone::Plain, text));
    }
    lines
}

/// The run in words, a line for each thing, what matters most first; what is long takes several.
pub(super) fn in_words(scene: &Scene<'_>, body: Rect) -> Vec<Line<'static>> {
    let (look, now) = (scene.look, scene.now);
    let width = usize::from(body.width);
    let (offered, done) = syncs(now);
    let sync = |endpoint: Endpoint| now.last_second[endpoint].response;
    let sync = sync(Endpoint::Sync).or_else(|| sync(Endpoint::CheckIn));
    let codes: Vec<String> = codes(scene)
        .iter()
        .map(|(outcome, count)| format!("{} {}", words(outcome.label()), grouped(*count)))
        .collect();
    let [enrolled, states] = states(scene);
    let told = [
        enrolled,
        states,
        format!(
            " last second: {} syncs offered, {} done, response p50 {} p99 {}",
            grouped(offered),
            count_or_none(done),
            or_none(sync.map(|all| all.p50)),
            or_none(sync.map(|all| all.p99))
        ),
        match codes.is_empty() {
            true => " no answer yet".to_owned(),
            false => format!(" so far: {}", list(&codes)),
        },
        format!(" {}", standing(now)),
    ];
    let wrapped = |text: &str, indent| wrapped(&look.text(text), width, indent);
    let mut lines: Vec<Line<'static>> = told
        .iter()
        .flat_map(|text| wrapped(text, 3))
        .map(|text| line(look, Tone::Plain, text))
        .collect();
    for judgement in worst_first(&now.judgements) {
        let verdict = verdict(scene, judgement);
        let text = format!("{}{}", verdict.content, judged(judgement, width, 1));
        let mut rows = wrapped(&text, VERDICT).into_iter();
        let first = rows.next().unwrap_or_default();
        let rest = first.get(VERDICT..).unwrap_or_default().to_owned();
        lines.push(Line::from(vec![verdict, span(look, Tone::Plain, rest)]));
        lines.extend(rows.map(|row| line(look, Tone::Plain, row)));
    }
    lines
}

/// Who is enrolled, and where everybody is.
pub(super) fn states(scene: &Scene<'_>) -> [String; 2] {
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
    [enrolled, format!(" {}", list(&states))]
}
