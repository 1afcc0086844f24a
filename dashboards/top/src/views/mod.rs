//! What each view says, and what stands around every one of them: the title, the keys, the help.
//!
//! A screen of less than 60 by 15 is told in words alone, one of less than 20 by 5 in one line.

mod agents;
mod endpoints;
mod generator;
mod latency;
mod log;
mod overview;
mod timeline;

use std::collections::VecDeque;

pub(crate) use self::agents::Looking;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use record::snapshot::Arrivals;
use record::{Micros, Snapshot, progress_line};

use crate::look::{Look, Tone};
use crate::past::Past;
use crate::text::{Scroll, fitting, line, page, put, span, wrapped};

/// A view. They are numbered from 1 in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Overview,
    Endpoints,
    Timeline,
    Agents,
    Generator,
    Log,
}

impl View {
    pub(crate) const ALL: [View; 6] = [
        View::Overview,
        View::Endpoints,
        View::Timeline,
        View::Agents,
        View::Generator,
        View::Log,
    ];

    fn name(self) -> &'static str {
        match self {
            View::Overview => "Overview",
            View::Endpoints => "Endpoints",
            View::Timeline => "Time line",
            View::Agents => "Agents",
            View::Generator => "Generator",
            View::Log => "Log",
        }
    }

    /// The view with this number.
    pub(crate) fn of_key(digit: char) -> Option<View> {
        let number = usize::try_from(digit.to_digit(10)?).ok()?;
        Self::ALL.get(number.checked_sub(1)?).copied()
    }

    /// The view so many places further, in a circle.
    pub(crate) fn next(self, places: usize) -> View {
        Self::ALL[(self as usize + places) % Self::ALL.len()]
    }
}

/// All that a drawing is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) look: Look,
    pub(crate) keys: &'a Keys,
    pub(crate) view: View,
    pub(crate) help: Option<&'a Scroll>,
    pub(crate) frozen: bool,
    pub(crate) word: &'a str,
    pub(crate) said: Option<&'a str>,
    pub(crate) looking: &'a Looking,
    /// How far what is seen is scrolled.
    pub(crate) scroll: &'a Scroll,
    pub(crate) now: &'a Snapshot,
    pub(crate) past: &'a Past,
    pub(crate) log: &'a VecDeque<String>,
}

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// One line.
    Line,
    /// Words alone.
    Words,
    /// Everything.
    Full,
}

impl Room {
    fn of(area: Rect) -> Self {
        match (area.width, area.height) {
            (0..20, _) | (_, 0..5) => Room::Line,
            (20..60, _) | (_, 5..15) => Room::Words,
            _ => Room::Full,
        }
    }
}

pub(crate) fn draw(scene: &Scene<'_>, buffer: &mut Buffer, area: Rect) {
    let room = Room::of(area);
    if room == Room::Line {
        let told = line(scene.look, Tone::Plain, progress_line(scene.now));
        return put(scene.look, buffer, area, &[told]);
    }
    title(scene, buffer, Rect { height: 1, ..area });
    let keys = Rect {
        y: area.bottom() - 1,
        height: 1,
        ..area
    };
    bottom(scene, buffer, keys);
    let body = Rect {
        y: area.y + 1,
        height: area.height - 2,
        ..area
    };
    let page = |lines| page(scene.look, lines, body.height, scene.scroll);
    let lines = match (scene.view, room) {
        (View::Overview, Room::Full) => {
            overview::draw(scene, buffer, body);
            Vec::new()
        }
        (View::Overview, _) => page(overview::in_words(scene, body)),
        (View::Endpoints, _) => page(endpoints::lines(scene, body.width)),
        (View::Timeline, _) => page(timeline::lines(scene, body.width)),
        (View::Agents, _) => agents::lines(scene, body),
        (View::Generator, _) => page(generator::lines(scene, body)),
        (View::Log, _) => log::lines(scene, body.width, body.height),
    };
    put(scene.look, buffer, body, &lines);
    if let Some(scroll) = scene.help {
        help(scene, buffer, body, scroll);
    }
}

/// Columns of a text that nobody's terminal has told the width of.
const TEXT_WIDTH: u16 = 80;

pub(crate) fn in_words(scene: &Scene<'_>) -> Vec<String> {
    let requests = endpoints::requests(scene, TEXT_WIDTH);
    let requests = requests.iter().map(Line::to_string);
    let states = overview::states(scene).into_iter();
    let states = states.flat_map(|text| wrapped(&text, usize::MAX, 0));
    let lines = states.chain(requests);
    lines.map(|line| line.trim_end().to_owned()).collect()
}

/// A moment of the run, to the second: `30s`.
fn second(at: Micros) -> String {
    format!("{:.0}s", at.as_seconds().floor())
}

/// How far the run is: `30s/120s`.
fn progress(now: &Snapshot) -> String {
    let duration = now.duration.as_seconds();
    format!("{}/{duration:.0}s", second(now.at))
}

/// What stands at the right of the title: how far the run is, and before it whatever is not as usual, as far as it fits
/// beside the view's name.
fn right_title(scene: &Scene<'_>, width: usize) -> String {
    let frozen = if scene.frozen { "FROZEN" } else { "" };
    let held = match scene.now.arrivals {
        Arrivals::Held => ["ARRIVALS HELD", "HELD"],
        Arrivals::GoOn | Arrivals::Over => ["", ""],
    };
    let progress = progress(scene.now);
    let words = [
        [frozen, held[0], scene.word, &progress],
        [frozen, held[1], scene.word, &progress],
        [frozen, "", "", &progress],
        ["", "", "", &progress],
    ];
    let told = words.map(|words| {
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        format!(" {} ", words.join(" "))
    });
    let name = scene.view.name().len() + 3;
    fitting(told, width.saturating_sub(name))
}

fn title(scene: &Scene<'_>, buffer: &mut Buffer, area: Rect) {
    let right = right_title(scene, usize::from(area.width));
    let tab = |(number, view): (usize, View)| match view == scene.view {
        true => format!("[{number} {}]", view.name()),
        false => format!(" {number} {} ", view.name()),
    };
    let tabs: String = (1..).zip(View::ALL).map(tab).collect();
    let number = |(number, view): (usize, View)| match view == scene.view {
        true => format!("[{number} {}]", view.name()),
        false => format!(" {number} "),
    };
    let numbers: String = (1..).zip(View::ALL).map(number).collect();
    let room_left = usize::from(area.width).saturating_sub(right.chars().count());
    // Half of a name says nothing.
    let all = [format!(" loadgen {}", tabs.trim_end()), tabs, numbers];
    let fits = |left: &String| left.chars().count() <= room_left;
    let left = all.into_iter().find(fits).unwrap_or_else(|| {
        let one = format!(" {} {}", scene.view as usize + 1, scene.view.name());
        one.chars().take(room_left).collect()
    });
    let text = format!("{left:<room_left$}{right}");
    put(
        scene.look,
        buffer,
        area,
        &[line(scene.look, Tone::Frame, text)],
    );
}

fn bottom(scene: &Scene<'_>, buffer: &mut Buffer, area: Rect) {
    let width = usize::from(area.width);
    let keys = match scene.view {
        View::Agents => scene.keys.agents,
        _ => scene.keys.line,
    };
    let text = match scene.said {
        Some(said) => format!(" {said}"),
        None => fitting(keys, width),
    };
    let text = format!("{text:<width$}");
    put(
        scene.look,
        buffer,
        area,
        &[line(scene.look, Tone::Frame, text)],
    );
}

/// The keys of a screen, as the bottom line and the help tell them.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The bottom line, from the wording with most to that with least room.
    line: [&'static str; 3],
    /// The same while single agents are seen.
    agents: [&'static str; 3],
    /// Every key and what it does.
    help: &'static [&'static str],
}

impl Keys {
    /// Whether the run is over.
    pub(crate) fn is_of_replay(&self) -> bool {
        std::ptr::eq(self, &KEYS_OF_REPLAY)
    }
}

/// While a run goes on.
pub(crate) static KEYS_OF_RUN: Keys = Keys {
    line: [
        " 1-6 Tab  p hold arrivals  f freeze  s snapshot  q end  Q at once  ? help",
        " 1-6 Tab  p hold  f freeze  s snapshot  q end  ? help",
        " 1-6 Tab p f s q Q  ? help",
    ],
    agents: [
        " 1-6 Tab  / filter  Enter follow  Esc  p hold  f freeze  s snapshot  q  ? help",
        " 1-6 Tab  / filter  Enter Esc  p hold  f s q  ? help",
        " 1-6 Tab / Enter Esc p f s q ? help",
    ],
    help: &[
        "1 to 6       that view",
        "Tab          the next view, with Shift the one before",
        "Up, Down     a line, an agent; Page a page; Home, End",
        "/            agents by node, cluster, state; Esc: all",
        "Enter        agents: follow one's events; Esc lets go",
        "p            hold arrivals; who has arrived goes on",
        "f            freeze the figures, and let them go on",
        "s            this second's snapshot in a file",
        "q, Ctrl-C    end: calls under way may end",
        "Q            end at once",
        "?            this help; any other key, and it is away",
    ],
};

/// When it is over.
pub(crate) static KEYS_OF_REPLAY: Keys = Keys {
    line: [
        " 1-6 Tab  Space play  Left Right step  + - speed  f freeze  q leave  ? help",
        " 1-6 Tab  Space play  f freeze  q leave  ? help",
        " 1-6 Tab Space f q  ? help",
    ],
    agents: [
        " 1-6 Tab  Space play  Left Right step  + - speed  q leave  ? help",
        " 1-6 Tab  Space play  q leave  ? help",
        " 1-6 Tab Space q  ? help",
    ],
    help: &[
        "1 to 6       that view",
        "Tab          the next view, with Shift the one before",
        "Up, Down     a line, Page a page",
        "Space        play and pause; at the end, play again",
        "Left, Right  a step back, a step on",
        "Home, End    the start, the end",
        "+, -         twice as fast, half as fast",
        "f            freeze the figures, and let them go on",
        "q, Ctrl-C    leave",
        "?            this help; any other key, and it is away",
    ],
};

/// Columns of the help, its edges included, where there is room.
const HELP_WIDTH: u16 = 60;
/// Columns of a key in it.
const HELP_KEYS: usize = 13;

fn help(scene: &Scene<'_>, buffer: &mut Buffer, body: Rect, scroll: &Scroll) {
    let look = scene.look;
    let width = HELP_WIDTH.min(body.width);
    let inside = usize::from(width).saturating_sub(4);
    let texts = scene.keys.help.iter();
    let rows: Vec<Line<'_>> = texts
        .flat_map(|text| wrapped(text, inside, HELP_KEYS))
        .map(|row| line(look, Tone::Plain, row))
        .collect();
    let height = (rows.len() as u16 + 2).min(body.height);
    let area = Rect {
        x: body.x + (body.width - width) / 2,
        y: body.y + (body.height - height) / 2,
        width,
        height,
    };
    let edge = |left: &str, heading: &str, right: &str| {
        let rule = "─".repeat((inside + 2).saturating_sub(heading.chars().count()));
        line(look, Tone::Heading, format!("{left}{heading}{rule}{right}"))
    };
    let rows = page(look, rows, height.saturating_sub(2), scroll);
    let mut drawn = vec![edge("┌", " Keys ", "┐")];
    for row in rows {
        let blank = inside.saturating_sub(row.width());
        let mut line = line(look, Tone::Heading, "│ ");
        line.extend(row.spans);
        line.push_span(span(look, Tone::Heading, " ".repeat(blank) + " │"));
        drawn.push(line);
    }
    drawn.push(edge("└", "", "┘"));
    // What lies below shows through nowhere.
    for position in area.intersection(buffer.area).positions() {
        buffer[position].reset();
    }
    put(look, buffer, area, &drawn);
}
