//! Words, bars and curves in cells: everything that a view puts together, each at a width that it is told.

use std::cell::Cell;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use record::Micros;
use record::judgement::grouped;

use crate::look::{Look, Tone};

/// How many rows something is scrolled, from its top or, a log, from its bottom. Only what draws it knows how far that can
/// be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scroll(Cell<usize>);

impl Scroll {
    /// Further from where it begins.
    pub(crate) fn further(&self, rows: usize) {
        self.0.set(self.0.get().saturating_add(rows));
    }

    /// Back to where it begins.
    pub(crate) fn back(&self, rows: usize) {
        self.0.set(self.0.get().saturating_sub(rows));
    }

    /// How far, where `height` of `all` rows are seen.
    pub(crate) fn bounded(&self, all: usize, height: usize) -> usize {
        self.0.set(self.0.get().min(all.saturating_sub(height)));
        self.0.get()
    }
}

/// The levels of a cell, from its lowest eighth to all of it.
const LEVELS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Puts lines into a part of the screen. One that is too wide for it says so, and never within a number: half of one would
/// be another number.
pub(crate) fn put(look: Look, buffer: &mut Buffer, area: Rect, lines: &[Line<'_>]) {
    let area = area.intersection(buffer.area);
    for (row, line) in (area.top()..area.bottom()).zip(lines) {
        let text = line.to_string();
        match columns(text.trim_end()) > usize::from(area.width) {
            true => {
                let kept = kept(look, &text, usize::from(area.width));
                let line = shortened(look, line, kept);
                buffer.set_line(area.left(), row, &line, area.width)
            }
            false => buffer.set_line(area.left(), row, line, area.width),
        };
    }
}

/// The first characters of a line, and the mark that there were more.
fn shortened(look: Look, line: &Line<'_>, mut chars: usize) -> Line<'static> {
    let mut spans = Vec::new();
    let mut style = Style::default();
    for span in &line.spans {
        let text: String = span.content.chars().take(chars).collect();
        chars -= text.chars().count();
        if !text.is_empty() {
            style = span.style;
            spans.push(Span::styled(text, style));
        }
    }
    spans.push(Span::styled(look.cut_mark(), style));
    Line::from(spans)
}

/// How many characters of a text stay before the mark where it is cut to a width: a word with a digit stays whole or goes.
fn kept(look: Look, text: &str, width: usize) -> usize {
    let room = width.saturating_sub(columns(look.cut_mark()));
    let mut used = 0;
    let fits = |char: &char| {
        used += columns(char.encode_utf8(&mut [0; 4]));
        used <= room
    };
    let kept: String = text.chars().take_while(fits).collect();
    let behind = text[kept.len()..].split(' ').next().unwrap_or_default();
    let part = kept.rsplit(' ').next().unwrap_or_default();
    let is_number = (part.chars().chain(behind.chars())).any(|char| char.is_ascii_digit());
    // A name that is longer than all there is of room is cut all the same.
    let is_all = kept.trim_start().len() == part.len();
    let whole = match is_number && !behind.is_empty() && !is_all {
        true => &kept[..kept.len() - part.len()],
        false => &kept,
    };
    whole.trim_end().chars().count()
}

/// How many columns a text takes.
pub(crate) fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// The first of some wordings that fits, or the last one.
pub(crate) fn fitting<T: AsRef<str>>(
    wordings: impl IntoIterator<Item = T>,
    width: usize,
) -> String {
    let mut last = String::new();
    for wording in wordings {
        wording.as_ref().clone_into(&mut last);
        if columns(&last) <= width {
            break;
        }
    }
    last
}

fn apart(row: &str) -> String {
    row.trim_end_matches(' ').replace(TOGETHER, " ")
}

/// The text in rows of at most this width, cut between words where there are some; all rows but the first are indented.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> Vec<String> {
    if columns(text) <= width || width == 0 {
        return vec![apart(text)];
    }
    // A share stays a share.
    let text = text.replace(" %", &format!("{TOGETHER}%"));
    // A row that is all indent has room for nothing.
    let indent = if indent > width / 2 { 0 } else { indent };
    let (mut rows, mut row) = (Vec::new(), String::new());
    let mut used = 0;
    let mut next = |row: &mut String, used: &mut usize| {
        rows.push(apart(row));
        *row = " ".repeat(indent);
        *used = indent;
    };
    for word in text.split_inclusive(' ') {
        if used + columns(word.trim_end()) > width && !row.trim().is_empty() {
            next(&mut row, &mut used);
        }
        for char in word.chars() {
            let wide = columns(char.encode_utf8(&mut [0; 4]));
            if used + wide > width && used > indent {
                if char == ' ' {
                    continue;
                }
                next(&mut row, &mut used);
            }
            row.push(char);
            used += wide;
        }
    }
    rows.push(apart(&row));
    rows
}

/// Between the words of what is not to be torn apart.
pub(crate) const TOGETHER: char = '\u{a0}';

/// Things in a list, each of which stays in one row where it is wrapped.
pub(crate) fn list<'a>(things: impl IntoIterator<Item = &'a String>) -> String {
    let things = things
        .into_iter()
        .map(|thing| thing.replace(' ', &TOGETHER.to_string()));
    things.collect::<Vec<_>>().join(", ")
}

/// So many of these as there is room for, from where they are scrolled to; the last row says how many more there are.
pub(crate) fn page(
    look: Look,
    lines: Vec<Line<'static>>,
    height: u16,
    scroll: &Scroll,
) -> Vec<Line<'static>> {
    let (all, height) = (lines.len(), usize::from(height));
    let first = scroll.bounded(all, height);
    let mut page: Vec<_> = lines.into_iter().skip(first).take(height).collect();
    let below = all.saturating_sub(first + height);
    if let (Some(last), 1..) = (page.last_mut(), below) {
        let text = format!(" {} {} more lines: Down", look.cut_mark(), below + 1);
        *last = line(look, Tone::Heading, text);
    }
    page
}

/// A line of one tone.
pub(crate) fn line(look: Look, tone: Tone, text: impl Into<String>) -> Line<'static> {
    Line::from(span(look, tone, text))
}

/// A part of a line.
pub(crate) fn span(look: Look, tone: Tone, text: impl Into<String>) -> Span<'static> {
    let text = text.into();
    Span::styled(look.text(&text).into_owned(), look.style(tone))
}

/// A heading with a rule behind it.
pub(crate) fn rule(look: Look, width: u16, heading: &str) -> Line<'static> {
    let heading = look.text(heading);
    let rest = usize::from(width).saturating_sub(columns(&heading) + 4);
    Line::from(vec![
        span(look, Tone::Quiet, "─ "),
        span(look, Tone::Heading, heading.into_owned()),
        span(look, Tone::Quiet, format!(" {} ", "─".repeat(rest))),
    ])
}

/// The text cut to a width, but within no number, with a mark where it was cut, and filled up to it.
pub(crate) fn fitted(look: Look, text: &str, width: usize) -> String {
    let text = look.text(text);
    let mut fitted: String = match columns(&text) <= width {
        true => text.into_owned(),
        false => {
            let kept = text.chars().take(kept(look, &text, width));
            kept.chain(look.cut_mark().chars()).collect()
        }
    };
    while columns(&fitted) > width {
        fitted.pop();
    }
    let blank = width - columns(&fitted);
    fitted + &" ".repeat(blank)
}

/// A name with underscores as words.
pub(crate) fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// A duration, or that there is none.
pub(crate) fn or_none(time: Option<Micros>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| time.to_string())
}

/// A count, or that nobody knows it.
pub(crate) fn count_or_none(count: Option<u64>) -> String {
    count.map_or_else(|| "-".to_owned(), grouped)
}

/// Bytes as a person would say them.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes >> 20 {
        0..10_240 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// A limit as a person would say it.
pub(crate) fn limit(limit: u64) -> String {
    match limit {
        u64::MAX => "no limit".to_owned(),
        limit => grouped(limit),
    }
}

/// Where a part of a whole begins and how long it is, in cells: whoever is there is seen, were it one in a million.
pub(crate) fn part(before: u64, count: u64, whole: u64, width: usize) -> (usize, usize) {
    if count == 0 || whole == 0 || width == 0 {
        return (0, 0);
    }
    let cells = |count: u64| {
        let share = count.min(whole) as f64 / whole as f64;
        (share * width as f64).round() as usize
    };
    let begins = cells(before).min(width - 1);
    let ends = cells(before.saturating_add(count)).clamp(begins + 1, width);
    (begins, ends - begins)
}

/// How several seconds become one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    /// The worst of them, which is what a latency is looked at for.
    Highest,
    /// Their mean.
    Mean,
}

/// A curve as bars, `height` lines from top to bottom, the newest second at the right. A second without a figure stays
/// empty; one whose figure is nothing is a line at the bottom.
pub(crate) fn curve(
    values: &[Option<f64>],
    highest: f64,
    fold: Fold,
    width: usize,
    height: usize,
) -> Vec<String> {
    let cells = folded(values, fold, width);
    let levels = (height * 8).max(1);
    let eighths: Vec<Option<usize>> = cells
        .iter()
        .map(|value| {
            let share = value.as_ref()? / highest.max(f64::MIN_POSITIVE);
            let level = (share.clamp(0.0, 1.0) * levels as f64).round() as usize;
            Some(level.clamp(1, levels))
        })
        .collect();
    let empty = " ".repeat(width.saturating_sub(eighths.len()));
    let row = |row: usize| {
        let below = (height - 1 - row) * 8;
        let cells = eighths
            .iter()
            .map(|level| LEVELS[level.map_or(0, |level| level.saturating_sub(below).min(8))]);
        empty.chars().map(|_| " ").chain(cells).collect()
    };
    (0..height).map(row).collect()
}

/// Not more values than cells: as many neighbours as it takes become one.
fn folded(values: &[Option<f64>], fold: Fold, width: usize) -> Vec<Option<f64>> {
    if width == 0 {
        return Vec::new();
    }
    let one = |seconds: &[Option<f64>]| {
        let figures = seconds.iter().flatten();
        let count = figures.clone().count();
        (count > 0).then(|| match fold {
            Fold::Highest => figures.copied().fold(0.0, f64::max),
            Fold::Mean => figures.sum::<f64>() / count as f64,
        })
    };
    let together = values.len().div_ceil(width).max(1);
    values.chunks(together).map(one).collect()
}

/// The highest figure of some curves.
pub(crate) fn highest<'a>(curves: impl IntoIterator<Item = &'a Vec<Option<f64>>>) -> f64 {
    let figures = curves.into_iter().flatten().flatten();
    figures.copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLORS: Look = Look {
        color: true,
        ascii: false,
    };

    #[test]
    fn a_curve_is_as_high_as_its_highest_second() {
        let values = [None, Some(0.0), Some(1.0), Some(4.0), Some(8.0)];
        let drawn = |height| curve(&values, 8.0, Fold::Highest, 7, height);
        assert_eq!(drawn(1), ["   ▁▁▄█"]);
        assert_eq!(drawn(2), ["      █", "   ▁▂██"]);
        assert_eq!(drawn(0), [""; 0]);
    }

    #[test]
    fn seconds_that_share_a_cell_are_its_worst_or_its_mean() {
        let values = [Some(2.0), Some(8.0), None, None, Some(4.0)];
        assert_eq!(
            folded(&values, Fold::Highest, 3),
            [Some(8.0), None, Some(4.0)]
        );
        assert_eq!(folded(&values, Fold::Mean, 3), [Some(5.0), None, Some(4.0)]);
        assert_eq!(folded(&values, Fold::Mean, 0), []);
    }

    #[test]
    fn a_part_of_a_fleet_is_seen_however_small() {
        assert_eq!(part(0, 1, 1_000_000, 20), (0, 1));
        assert_eq!(part(999_999, 1, 1_000_000, 20), (19, 1));
        assert_eq!(part(250, 500, 1_000, 20), (5, 10));
        assert_eq!(part(0, 0, 1_000, 20), (0, 0));
        assert_eq!(part(u64::MAX, u64::MAX, 1, 1), (0, 1));
    }

    #[test]
    fn what_is_cut_says_so() {
        for (text, width, cut) in [
            ("abc", 5, "abc  "),
            ("abcdef", 5, "abcd…"),
            ("abcdef", 0, ""),
            // Never half a number.
            ("within 250 ms", 9, "within…  "),
            ("within 250 ms", 11, "within 250…"),
            ("250 within", 8, "250 wit…"),
            ("nodes-1234567", 8, "nodes-1…"),
        ] {
            assert_eq!(fitted(COLORS, text, width), cut);
        }
        let ascii = Look {
            ascii: true,
            ..COLORS
        };
        for (text, width, cut) in [
            ("abcdef", 5, "ab..."),
            ("abcdef", 2, ".."),
            // One that came with a mark of its own.
            ("ab… c", 6, "ab...."),
            ("ab… c", 7, "ab... c"),
        ] {
            assert_eq!(fitted(ascii, text, width).trim_end(), cut);
        }
    }

    #[test]
    fn a_line_that_is_too_wide_says_so_and_cuts_no_number() {
        let area = Rect::new(0, 0, 12, 1);
        let drawn = |look: Look| {
            let mut buffer = Buffer::empty(area);
            let parts = ["healthy ", "9,920, updating 17"];
            let parts = parts.map(|part| span(look, Tone::Plain, part));
            put(look, &mut buffer, area, &[Line::from_iter(parts)]);
            let cells = buffer.content.iter().map(|cell| cell.symbol());
            cells.collect::<String>()
        };
        assert_eq!(drawn(COLORS), "healthy…    ");
        let ascii = Look {
            ascii: true,
            ..COLORS
        };
        assert_eq!(drawn(ascii), "healthy...  ");
    }

    #[test]
    fn a_long_text_takes_several_rows() {
        let rows: &[(&str, usize, usize, &[&str])] = &[
            ("short", 5, 2, &["short"]),
            ("one two three", 8, 2, &["one two", "  three"]),
            (
                "12:00 /a/long/path",
                8,
                2,
                &["12:00", "  /a/lon", "  g/path"],
            ),
            ("  led by two", 7, 0, &["  led", "by two"]),
            ("all, 100 % of it", 9, 2, &["all,", "  100 %", "  of it"]),
            ("ok 1, reset\u{a0}2", 11, 2, &["ok 1,", "  reset 2"]),
            ("漢字漢字", 4, 0, &["漢字", "漢字"]),
            ("one two", 4, 3, &["one", "two"]),
        ];
        for (text, width, indent, expected) in rows {
            assert_eq!(wrapped(text, *width, *indent), *expected, "{text}");
        }
    }
}
