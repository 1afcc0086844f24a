//! What each view says, and what stands around every one of them: the title, the keys, the help.
//!
//! A screen of less than 60 by 15 is told in words alone, one of less than 20 by 5 in one line.

mod agents;
mod endpoints;
mod faults;
mod generator;
mod latency;
mod log;
mod overview;

use std::collections::VecDeque;

pub(crate) use self::agents::Looking;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use record::{Snapshot, progress_line};

use crate::look::{Look, Tone};
use crate::past::Past;
use crate::text::{line, put, span};

/// A view. They are numbered from 1 in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Overview,
    Endpoints,
    Faults,
    Agents,
    Generator,
    Log,
}

impl View {
    pub(crate) const ALL: [View; 6] = [
        View::Overview,
        View::Endpoints,
        View::Faults,
        View::Agents,
        View::Generator,
        View::Log,
    ];

    fn name(self) -> &'static str {
        match self {
            View::Overview => "Overview",
            View::Endpoints => "Endpoints",
            View::Faults => "Faults",
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
    pub(crate) help: bool,
    pub(crate) frozen: bool,
    pub(crate) word: &'a str,
    pub(crate) looking: &'a Looking,
    pub(crate) scrolled: usize,
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
        return put(buffer, area, &[told]);
    }
    title(scene, buffer, Rect { height: 1, ..area });
    let keys = Rect {
        y: area.bottom() - 1,
        height: 1,
        ..area
    };
    bottom(scene, buffer, keys, room);
    let body = Rect {
        y: area.y + 1,
        height: area.height - 2,
        ..area
    };
    match (scene.view, room) {
        (View::Overview, Room::Full) => overview::draw(scene, buffer, body),
        (View::Overview, _) => put(buffer, body, &overview::in_words(scene, body)),
        (View::Endpoints, _) => put(buffer, body, &endpoints::lines(scene, body.width)),
        (View::Faults, _) => put(buffer, body, &faults::lines(scene)),
        (View::Agents, _) => put(buffer, body, &agents::lines(scene, body)),
        (View::Generator, _) => put(buffer, body, &generator::lines(scene, body)),
        (View::Log, _) => put(buffer, body, &log::lines(scene, body.height)),
    }
    if scene.help {
        help(scene, buffer, body);
    }
}

/// Columns of a text that nobody's terminal has told the width of.
const TEXT_WIDTH: u16 = 80;

pub(crate) fn in_words(scene: &Scene<'_>) -> Vec<String> {
    let mut lines = overview::states(scene);
    lines.extend(endpoints::requests(scene, TEXT_WIDTH));
    let plain = |line: &Line<'_>| line.to_string().trim_end().to_owned();
    lines.iter().map(plain).collect()
}

/// How far the run is: `30s/120s`.
fn progress(now: &Snapshot) -> String {
    format!(
        "{:.0}s/{:.0}s",
        now.at.as_seconds().floor(),
        now.duration.as_seconds()
    )
}

fn title(scene: &Scene<'_>, buffer: &mut Buffer, area: Rect) {
    let frozen = if scene.frozen { "FROZEN" } else { "" };
    let paused = if scene.now.paused { "PAUSED" } else { "" };
    let mut right = String::new();
    for word in [frozen, paused, scene.word, &progress(scene.now)] {
        if !word.is_empty() {
            right.push(' ');
            right.push_str(word);
        }
    }
    right.push(' ');
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
    put(buffer, area, &[line(scene.look, Tone::Frame, text)]);
}

fn bottom(scene: &Scene<'_>, buffer: &mut Buffer, area: Rect, room: Room) {
    let keys = match room {
        Room::Full if scene.view == View::Agents => scene.keys.agents,
        Room::Full => scene.keys.line,
        _ => scene.keys.short,
    };
    let text = format!("{keys:<width$}", width = usize::from(area.width));
    put(buffer, area, &[line(scene.look, Tone::Frame, text)]);
}

/// The keys of a screen, as the bottom line and the help tell them.
#[derive(Debug)]
pub(crate) struct Keys {
    line: &'static str,
    /// The same while single agents are seen.
    agents: &'static str,
    /// The same in a narrow terminal.
    short: &'static str,
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
pub(crate) const KEYS_OF_RUN: Keys = Keys {
    line: " 1-6 Tab  p pause  f freeze  s snapshot  q end  Q at once  ? help",
    agents: " 1-6 Tab  / filter  Up Down choose  Enter follow  Esc let go  q end  ? help",
    short: " 1-6 Tab p f s q Q  ? help",
    help: &[
        "1 to 6       that view",
        "Tab          the next view, with Shift the one before",
        "Up, Down     a line of the log, an agent; Page a page",
        "/            agents by node, cluster, state; Esc: all",
        "Enter        agents: follow one's events; Esc lets go",
        "p            stop arrivals, and let them go on",
        "f            freeze the figures, and let them go on",
        "s            this second's snapshot in a file",
        "q, Ctrl-C    end: calls under way may end",
        "Q            end at once",
        "?            this help, and away with it",
    ],
};

/// When it is over.
pub(crate) const KEYS_OF_REPLAY: Keys = Keys {
    line: " 1-6 Tab  Space play  Left Right step  + - speed  f freeze  q leave  ? help",
    agents: " 1-6 Tab  Space play  q leave  ? help",
    short: " 1-6 Tab Space q  ? help",
    help: &[
        "1 to 6       that view",
        "Tab          the next view, with Shift the one before",
        "Up, Down     a line of the log, Page a page",
        "Space        play and pause; at the end, play again",
        "Left, Right  a step back, a step on",
        "Home, End    the start, the end",
        "+, -         twice as fast, half as fast",
        "f            freeze the figures, and let them go on",
        "q, Ctrl-C    leave",
        "?            this help, and away with it",
    ],
};

fn help(scene: &Scene<'_>, buffer: &mut Buffer, body: Rect) {
    let lines = scene.keys.help.len() as u16;
    let width = 58.min(body.width);
    let height = (lines + 2).min(body.height);
    let area = Rect {
        x: body.x + (body.width - width) / 2,
        y: body.y + (body.height - height) / 2,
        width,
        height,
    };
    let inside = usize::from(width).saturating_sub(4);
    let edge = |left: &str, heading: &str, right: &str| {
        let rule = "─".repeat((inside + 2).saturating_sub(heading.chars().count()));
        line(
            scene.look,
            Tone::Heading,
            format!("{left}{heading}{rule}{right}"),
        )
    };
    let mut drawn = vec![edge("┌", " Keys ", "┐")];
    for text in scene.keys.help {
        let text = crate::text::fitted(text, inside);
        drawn.push(Line::from(vec![
            span(scene.look, Tone::Heading, "│ "),
            span(scene.look, Tone::Plain, text),
            span(scene.look, Tone::Heading, " │"),
        ]));
    }
    drawn.push(edge("└", "", "┘"));
    // What lies below shows through nowhere.
    for position in area.intersection(buffer.area).positions() {
        buffer[position].reset();
    }
    put(buffer, area, &drawn);
}
