//! What was told while the run went on, the newest line at the bottom. A line that is long takes several rows.

use ratatui::text::Line;

use super::Scene;
use crate::look::Tone;
use crate::text::{line, wrapped};

/// How far the rows of a long line behind its first stand from the edge.
const INDENT: usize = 2;

pub(super) fn lines(scene: &Scene<'_>, width: u16, height: u16) -> Vec<Line<'static>> {
    if scene.log.is_empty() {
        let text = " Nothing was told yet.";
        return vec![Line::default(), line(scene.look, Tone::Plain, text)];
    }
    let rows = rows(scene, width);
    let height = usize::from(height);
    let below = scene.scroll.bounded(rows.len(), height);
    drawn(scene, &rows[..rows.len() - below], height)
}

/// Its last rows, wherever it was scrolled to.
pub(super) fn newest(scene: &Scene<'_>, width: u16, height: u16) -> Vec<Line<'static>> {
    drawn(scene, &rows(scene, width), usize::from(height))
}

fn rows(scene: &Scene<'_>, width: u16) -> Vec<String> {
    let told = scene.log.iter();
    told.flat_map(|text| wrapped(&scene.look.text(text), usize::from(width), INDENT))
        .collect()
}

/// The last of these.
fn drawn(scene: &Scene<'_>, rows: &[String], height: usize) -> Vec<Line<'static>> {
    let first = rows.len().saturating_sub(height);
    let rows = rows[first..].iter();
    rows.map(|text| line(scene.look, Tone::Plain, text.as_str()))
        .collect()
}
