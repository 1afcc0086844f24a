//! What was told while the run went on, the newest line at the bottom.

use ratatui::text::Line;

use super::Scene;
use crate::look::Tone;
use crate::text::line;

pub(super) fn lines(scene: &Scene<'_>, height: u16) -> Vec<Line<'static>> {
    if scene.log.is_empty() {
        let text = " Nothing was told yet.";
        return vec![Line::default(), line(scene.look, Tone::Plain, text)];
    }
    ending(scene, height, scene.scrolled)
}

/// Its last lines, wherever it was scrolled to.
pub(super) fn newest(scene: &Scene<'_>, height: u16) -> Vec<Line<'static>> {
    ending(scene, height, 0)
}

/// So many lines, with so many below them.
fn ending(scene: &Scene<'_>, height: u16, below: usize) -> Vec<Line<'static>> {
    let behind = scene.log.len().saturating_sub(below);
    let first = behind.saturating_sub(usize::from(height));
    let told = scene.log.iter().skip(first).take(behind - first);
    told.map(|text| line(scene.look, Tone::Plain, text.as_str()))
        .collect()
}
