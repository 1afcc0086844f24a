//! The faults of the scenario: it can have none yet, and the view says so.

use ratatui::text::Line;

use super::Scene;
use crate::look::Tone;
use crate::text::line;

pub(super) fn lines(scene: &Scene<'_>) -> Vec<Line<'static>> {
    let text = "This scenario has no faults.";
    vec![
        Line::default(),
        line(scene.look, Tone::Plain, format!(" {text}")),
    ]
}
