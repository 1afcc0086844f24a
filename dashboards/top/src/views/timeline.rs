//! What happens to the run and when: the steps of its time line, done or to come, and how those went that are done.

use ratatui::text::Line;
use record::timeline::{Became, Step};

use super::Scene;
use crate::look::Tone;
use crate::text::{fitting, line, rule, wrapped};

/// From this width on a step's moments stand beside what it is.
const WIDE: usize = 60;
/// Columns of the moment when it is due, and of the one when it was done.
const DUE: usize = 11;
const DONE: usize = 14;

pub(super) fn lines(scene: &Scene<'_>, width: u16) -> Vec<Line<'static>> {
    let look = scene.look;
    let steps = &scene.now.timeline;
    if steps.is_empty() {
        let text = " This scenario has no time line: nothing happens but what agents do.";
        return std::iter::once(Line::default())
            .chain(
                wrapped(text, usize::from(width), 1)
                    .into_iter()
                    .map(|text| line(look, Tone::Plain, text)),
            )
            .collect();
    }
    let heading = standing(scene).map(|standing| format!("Time line: {standing}"));
    let heading = fitting(heading, usize::from(width).saturating_sub(4));
    let mut lines = vec![rule(look, width, &heading)];
    let width = usize::from(width);
    if width >= WIDE {
        let names = format!(
            " {:<DUE$}{:<DONE$}{}",
            "due", "done", "what, and how it went"
        );
        lines.push(line(look, Tone::Quiet, names));
    }
    for step in steps.iter() {
        let (tone, moment, what) = told(scene, step);
        let due = step.due.to_string();
        let rows = match width >= WIDE {
            true => {
                let text = format!(" {due:<DUE$}{moment:<DONE$}{what}");
                wrapped(&text, width, 1 + DUE + DONE)
            }
            false => {
                let mut rows = vec![format!(" {due}, {moment}")];
                rows.extend(wrapped(&format!("   {what}"), width, 3));
                rows
            }
        };
        lines.extend(rows.into_iter().map(|text| line(look, tone, text)));
    }
    lines
}

/// How many steps are done, and when the next one is due; in more words and in fewer.
fn standing(scene: &Scene<'_>) -> [String; 2] {
    let steps = &scene.now.timeline;
    if steps.iter().all(|step| step.became == Became::LeftOut) {
        return ["left out, it is for the embedded portal", "left out"].map(str::to_owned);
    }
    let is_done = |step: &&Step| step.done_until(scene.now.at).is_some();
    let done = steps.iter().filter(is_done).count();
    let standing = format!("{done} of {} done", steps.len());
    match (steps.get(done), &scene.now.end) {
        (Some(next), None) => {
            let wait = next.due.since(scene.now.at);
            [
                format!("{standing}, the next in {wait}"),
                format!("{standing}, next {wait}"),
            ]
        }
        _ => [standing.clone(), standing],
    }
}

/// A step's tone, when it was or will be done, and what it is.
fn told(scene: &Scene<'_>, step: &Step) -> (Tone, String, String) {
    let now = scene.now.at;
    let what = step.what.clone();
    match (&step.became, step.done_until(now)) {
        (_, Some(done)) => {
            let tone = match done.refused {
                0 => Tone::Good,
                _ => Tone::Bad,
            };
            (tone, format!("at {}", done.at), format!("{what}: {done}"))
        }
        (Became::LeftOut, None) => (Tone::Open, "left out".to_owned(), what),
        (Became::ToCome | Became::Done(_), None) if scene.now.end.is_some() => {
            (Tone::Open, "never came".to_owned(), what)
        }
        (Became::ToCome | Became::Done(_), None) => {
            (Tone::Quiet, format!("in {}", step.due.since(now)), what)
        }
    }
}
