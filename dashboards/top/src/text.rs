//! Words, bars and curves in cells: everything that a view puts together, each at a width that it is told.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use record::Micros;
use record::judgement::grouped;

use crate::look::{Look, Tone};

/// The levels of a cell, from its lowest eighth to all of it.
const LEVELS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Puts lines into a part of the screen; what does not fit is cut off.
pub(crate) fn put(buffer: &mut Buffer, area: Rect, lines: &[Line<'_>]) {
    let area = area.intersection(buffer.area);
    for (row, line) in (area.top()..area.bottom()).zip(lines) {
        buffer.set_line(area.left(), row, line, area.width);
    }
}

/// A line of one tone.
pub(crate) fn line(look: Look, tone: Tone, text: impl Into<String>) -> Line<'static> {
    Line::from(span(look, tone, text))
}

/// A part of a line.
pub(crate) fn span(look: Look, tone: Tone, text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), look.style(tone))
}

/// A heading with a rule behind it.
pub(crate) fn rule(look: Look, width: u16, heading: &str) -> Line<'static> {
    let rest = usize::from(width).saturating_sub(heading.chars().count() + 4);
    Line::from(vec![
        span(look, Tone::Quiet, "─ "),
        span(look, Tone::Heading, heading),
        span(look, Tone::Quiet, format!(" {} ", "─".repeat(rest))),
    ])
}

/// The text cut to a width, with a mark where it was cut, and filled up to it.
pub(crate) fn fitted(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return format!("{text:<width$}");
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        cut.push('…');
    }
    cut
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
        assert_eq!(fitted("abc", 5), "abc  ");
        assert_eq!(fitted("abcdef", 5), "abcd…");
        assert_eq!(fitted("abcdef", 0), "");
    }
}
