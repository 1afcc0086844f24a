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
use crate::text::{fitted, line, or_none, rule, words, wrapped};

/// How far a page of the list goes.
const PAGE: u64 = 10;
/// Columns of the moment before an event.
const MOMENT: usize = 11;
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
    /// Whether the chosen one is to be followed once the list is answered: what is shown until then is another one.
    follows_next: bool,
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

    /// Takes in what the fleet has answered.
    pub(crate) fn see(&mut self, shown: &AgentsShown) {
        if self.is_answered_by(shown) && std::mem::take(&mut self.follows_next) {
            self.follow(shown);
        }
    }

    /// Whether this is the list that is looked for.
    fn is_answered_by(&self, shown: &AgentsShown) -> bool {
        shown.filter == self.filter
    }

    fn follow(&mut self, shown: &AgentsShown) {
        self.followed = chosen(self.chosen, shown).map(|row| row.name.clone());
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
            (Key::Enter, false) => match shown {
                Some(shown) if self.is_answered_by(shown) => self.follow(shown),
                _ => self.follows_next = true,
            },
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
        let last = log.events.iter().skip(first);
        let rows: Vec<String> = last
            .flat_map(|event| {
                let text = format!(" {:>9} {}", clock(event.at), event.what);
                wrapped(&scene.look.text(&text), usize::from(width), MOMENT)
            })
            .collect();
        let first = rows.len().saturating_sub(room);
        let rows = rows[first..].iter();
        lines.extend(rows.map(|row| line(scene.look, Tone::Plain, row.as_str())));
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
    let heading = match looking.is_answered_by(shown) {
        true => format!("Agents: {}{filter}", grouped(shown.matching)),
        // What stands below is of the filter before.
        false => format!("Agents: -{filter}"),
    };
    let mut lines = vec![rule(scene.look, width, &heading)];
    let columns = Columns::of(usize::from(width));
    lines.push(line(
        scene.look,
        Tone::Quiet,
        format!(
            "   {}",
            columns.row(scene, |column| column.name().to_owned())
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
        let told = columns.row(scene, |column| column.of(row));
        lines.push(line(scene.look, tone, format!(" {mark} {told}")));
    }
    if shown.matching == 0 {
        lines.push(line(scene.look, Tone::Plain, " Nobody."));
    }
    lines
}

/// What is told of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Node,
    State,
    Synced,
    Document,
    Clock,
    LastCall,
    Cluster,
}

/// The columns that there is room for, what matters most first: one is there or not, but never a part of it.
struct Columns(Vec<(Column, usize)>);

impl Column {
    /// With the columns that it takes at least, and those that it can make use of.
    const ALL: [(Column, usize, usize); 7] = [
        (Column::Node, 11, 30),
        (Column::State, 16, 18),
        (Column::Synced, 9, 9),
        (Column::Document, 6, 6),
        (Column::Clock, 10, 10),
        (Column::LastCall, 15, 30),
        (Column::Cluster, 20, 40),
    ];

    const fn name(self) -> &'static str {
        match self {
            Column::Node => "node",
            Column::State => "state",
            Column::Synced => "synced",
            Column::Document => "doc",
            Column::Clock => "clock",
            Column::LastCall => "last call",
            Column::Cluster => "cluster",
        }
    }

    /// Figures stand at the right of theirs.
    const fn is_figure(self) -> bool {
        matches!(self, Column::Synced | Column::Document | Column::Clock)
    }

    fn of(self, row: &AgentRow) -> String {
        match self {
            Column::Node => row.name.node.clone(),
            Column::Cluster => row.name.cluster.clone(),
            Column::State => match (row.idle, row.operating) {
                (Some(why), _) => words(why.label()),
                (None, true) => format!("{} +op", words(row.state.label())),
                (None, false) => words(row.state.label()),
            },
            Column::Synced => or_none(row.synced_ago),
            Column::Document => match row.generation {
                0 => "-".to_owned(),
                generation => generation.to_string(),
            },
            Column::Clock => match row.clock_offset_ms {
                0 => "right".to_owned(),
                ms => format!("{:+.1} s", ms as f64 / 1e3),
            },
            Column::LastCall => row.last_call.map_or_else(
                || "-".to_owned(),
                |(endpoint, outcome)| format!("{endpoint} {}", words(outcome.label())),
            ),
        }
    }
}

impl Columns {
    fn of(width: usize) -> Self {
        // A mark stands before each line.
        let mut left = width.saturating_sub(3);
        let mut columns = Vec::new();
        for (column, least, most) in Column::ALL {
            if least > left && !columns.is_empty() {
                break;
            }
            left = left.saturating_sub(least);
            columns.push((column, least, most));
        }
        let grown = columns.into_iter().map(|(column, least, most)| {
            let more = left.min(most - least);
            left -= more;
            (column, least + more)
        });
        Self(grown.collect())
    }

    fn row(&self, scene: &Scene<'_>, cell: impl Fn(Column) -> String) -> String {
        let cells = self.0.iter().map(|(column, width)| {
            let text = cell(*column);
            match column.is_figure() {
                true => format!("{text:>width$}"),
                false => {
                    // Behind a figure stand two blanks, and one behind a text.
                    let before = usize::from(*column == Column::LastCall) * 2;
                    let text = fitted(scene.look, &text, width - before - 1);
                    format!("{:before$}{text} ", "")
                }
            }
        });
        cells.collect()
    }
}

/// A moment of the run, to a tenth of a second.
fn clock(at: Micros) -> String {
    format!("{:.1}s", at.as_seconds())
}
