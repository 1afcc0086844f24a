//! Single agents: a list to look through, and the events of the one that is followed.

use ratatui::layout::Rect;
use ratatui::text::Line;
use record::agents::{AgentRow, AgentsAsked, AgentsShown};
use record::judgement::grouped;
use record::label::Label as _;
use record::series::Gauge;
use record::{Micros, agents::AgentName};

use super::Scene;
use crate::key::Key;
use crate::look::Tone;
use crate::text::{fitted, line, or_none, rule, words};

/// How far a page of the list goes.
const PAGE: u64 = 10;
/// How many agents around the chosen one are asked for: more than a screen is high, to either side.
const AROUND: u64 = 100;

/// What whoever sits before the screen looks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Looking {
    filter: String,
    /// Whether letters go to the filter.
    is_typing: bool,
    /// Which of those that the filter lets through is chosen, from 0.
    chosen: u64,
    followed: Option<AgentName>,
}

impl Looking {
    /// What the fleet is asked for.
    pub(crate) fn asks(&self) -> AgentsAsked {
        AgentsAsked {
            filter: self.filter.clone(),
            skip: self.chosen.saturating_sub(AROUND),
            rows: 2 * AROUND,
            followed: self.followed.clone(),
        }
    }

    /// Whether letters are text and no keys.
    pub(crate) fn is_typing(&self) -> bool {
        self.is_typing
    }

    /// Takes in a key while the list is seen; tells whether it meant something here.
    pub(crate) fn press(&mut self, key: Key, shown: Option<&AgentsShown>) -> bool {
        let last = shown.map_or(0, |shown| shown.matching.saturating_sub(1));
        match (key, self.is_typing) {
            (Key::Char(char), true) => {
                self.filter.push(char);
                self.chosen = 0;
            }
            (Key::Backspace, true) => {
                self.filter.pop();
                self.chosen = 0;
            }
            (Key::Enter | Key::Tab, true) => self.is_typing = false,
            (Key::Escape, true) => {
                *self = Self {
                    followed: self.followed.take(),
                    ..Self::default()
                }
            }
            (Key::Char('/'), false) => self.is_typing = true,
            (Key::Enter, false) => {
                let chosen = shown.and_then(|shown| chosen(self.chosen, shown));
                self.followed = chosen.map(|row| row.name.clone());
            }
            (Key::Escape, false) => match self.followed.take() {
                Some(_) => {}
                None => *self = Self::default(),
            },
            (Key::Up, _) => self.chosen = self.chosen.saturating_sub(1),
            (Key::Down, _) => self.chosen = (self.chosen + 1).min(last),
            (Key::PageUp, _) => self.chosen = self.chosen.saturating_sub(PAGE),
            (Key::PageDown, _) => self.chosen = (self.chosen + PAGE).min(last),
            (Key::Home, _) => self.chosen = 0,
            (Key::End, _) => self.chosen = last,
            _ => return false,
        }
        true
    }
}

/// The one that is chosen.
fn chosen(chosen: u64, shown: &AgentsShown) -> Option<&AgentRow> {
    let at = usize::try_from(chosen.checked_sub(shown.skipped)?).ok()?;
    shown.rows.get(at)
}

pub(super) fn lines(scene: &Scene<'_>, body: Rect) -> Vec<Line<'static>> {
    let Some(shown) = &scene.now.agents_shown else {
        let text = match scene.keys.is_of_replay() {
            true => " Single agents are seen while a run goes on; a result has sums alone.",
            false => " Nothing was seen of single agents yet.",
        };
        return vec![Line::default(), line(scene.look, Tone::Plain, text)];
    };
    let width = body.width;
    // The list and the events share what there is.
    let height = match &shown.followed {
        Some(_) => body.height / 2,
        None => body.height,
    };
    let mut lines = list(scene, shown, width, height);
    if let Some(log) = &shown.followed {
        lines.resize(usize::from(height), Line::default());
        let heading = format!("Events of {} in {}", log.name.node, log.name.cluster);
        lines.push(rule(scene.look, width, &heading));
        let room = usize::from(body.height - height).saturating_sub(1);
        let first = log.events.len().saturating_sub(room);
        for event in log.events.iter().skip(first) {
            let text = format!(" {:>9} {}", clock(event.at), event.what);
            lines.push(line(scene.look, Tone::Plain, text));
        }
        if log.events.is_empty() {
            let text = " Nothing has happened to it since it is followed.";
            lines.push(line(scene.look, Tone::Quiet, text));
        }
    }
    lines
}

fn list(scene: &Scene<'_>, shown: &AgentsShown, width: u16, height: u16) -> Vec<Line<'static>> {
    let looking = scene.looking;
    let filter = match (looking.is_typing, looking.filter.as_str()) {
        (true, filter) => format!(" with /{filter}_"),
        (false, "") => String::new(),
        (false, filter) => format!(" with /{filter}"),
    };
    let heading = format!("Agents: {}{filter}", grouped(shown.matching));
    let mut lines = vec![rule(scene.look, width, &heading)];
    let name = usize::from(width).saturating_sub(58).clamp(16, 40);
    lines.push(line(
        scene.look,
        Tone::Quiet,
        format!(
            "   {:<name$} {:<13}{:>9} {:>5} {:>9}  last call",
            "node", "state", "synced", "doc", "clock"
        ),
    ));
    // A page of the list, so that the chosen one moves and not the list.
    let rows = u64::from(height).saturating_sub(2).max(1);
    let first = looking.chosen / rows * rows;
    for at in first..first + rows {
        let Some(row) = chosen(at, shown) else {
            continue;
        };
        let mark = if at == looking.chosen { '>' } else { ' ' };
        let tone = match row.state {
            Gauge::Healthy => Tone::Plain,
            Gauge::Idle | Gauge::Down => Tone::Bad,
            Gauge::Waiting => Tone::Quiet,
            _ => Tone::Open,
        };
        lines.push(line(
            scene.look,
            tone,
            format!(" {mark} {}", told(row, name)),
        ));
    }
    if shown.matching == 0 {
        lines.push(line(scene.look, Tone::Plain, " Nobody."));
    }
    lines
}

/// An agent in a line.
fn told(row: &AgentRow, name: usize) -> String {
    let state = match row.operating {
        true => format!("{} +op", words(row.state.label())),
        false => words(row.state.label()),
    };
    let generation = match row.generation {
        0 => "-".to_owned(),
        generation => generation.to_string(),
    };
    let clock = match row.clock_offset_ms {
        0 => "right".to_owned(),
        ms => format!("{:+.1} s", ms as f64 / 1e3),
    };
    let last = row.last_call.map_or_else(
        || "-".to_owned(),
        |(endpoint, outcome)| format!("{endpoint} {}", words(outcome.label())),
    );
    format!(
        "{} {:<13}{:>9} {generation:>5} {clock:>9}  {last}",
        fitted(&row.name.node, name),
        fitted(&state, 12),
        or_none(row.synced_ago),
    )
}

/// A moment of the run, to a tenth of a second.
fn clock(at: Micros) -> String {
    format!("{:.1}s", at.as_seconds())
}
