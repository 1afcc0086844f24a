//! The screen as an SVG: a picture of it for documents, the same for the same screen to the byte.
//!
//! Cells become text, so that a picture can be searched and stays small; a run of cells that look the same is one piece,
//! stretched to its columns, so that it fits whatever font draws it. Bars are drawn, since fonts differ in how they fill a
//! cell.

use std::fmt::Write as _;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use crate::screen::Screen;

/// A cell, in pixels.
const CELL_WIDTH: usize = 8;
const CELL_HEIGHT: usize = 17;
/// From the top of a cell to the line that letters stand on.
const BASELINE: usize = 13;
/// Around the screen.
const MARGIN: usize = 10;
/// What terminals are like that are dark.
const INK: &str = "#d8dee9";
const PAPER: &str = "#1b1f27";

/// A picture of the screen at this size.
pub fn svg(screen: &Screen, columns: u16, rows: u16) -> String {
    let mut terminal = match Terminal::new(TestBackend::new(columns, rows)) {
        Ok(terminal) => terminal,
        Err(never) => match never {},
    };
    match terminal.draw(|frame| screen.draw(frame)) {
        Ok(_) => {}
        Err(never) => match never {},
    }
    of_buffer(terminal.backend().buffer())
}

fn of_buffer(buffer: &Buffer) -> String {
    let columns = usize::from(buffer.area.width);
    let width = columns * CELL_WIDTH + 2 * MARGIN;
    let height = usize::from(buffer.area.height) * CELL_HEIGHT + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"{PAPER}\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"13\" \
         xml:space=\"preserve\">\n"
    );
    for (row, cells) in buffer.content.chunks(columns.max(1)).enumerate() {
        let top = MARGIN + row * CELL_HEIGHT;
        let mut column = 0;
        for piece in cells.chunk_by(same) {
            draw(&mut svg, piece, MARGIN + column * CELL_WIDTH, top);
            column += piece.len();
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Whether two neighbours are of one piece.
fn same(one: &Cell, other: &Cell) -> bool {
    let of = |cell: &Cell| (style(cell), level(cell).is_some(), is_rule(cell));
    of(one) == of(other)
}

fn draw(svg: &mut String, piece: &[Cell], left: usize, top: usize) {
    let Some(first) = piece.first() else {
        return;
    };
    let Style { ink, paper, bold } = style(first);
    let width = piece.len() * CELL_WIDTH;
    if paper != PAPER {
        rectangle(svg, (left, top), (width, CELL_HEIGHT), paper);
    }
    if level(first).is_some() {
        return bars(svg, piece, left, top, ink);
    }
    if is_rule(first) {
        return rectangle(svg, (left, top + CELL_HEIGHT / 2), (width, 1), ink);
    }
    let text: String = piece.iter().map(Cell::symbol).collect();
    let blank = text.len() - text.trim_start().len();
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" fill=\"{ink}\"{} textLength=\"{}\">{}</text>",
        left + blank * CELL_WIDTH,
        top + BASELINE,
        if bold { " font-weight=\"bold\"" } else { "" },
        text.chars().count() * CELL_WIDTH,
        escaped(text)
    );
}

/// Bars of the same height beside each other are one.
fn bars(svg: &mut String, piece: &[Cell], left: usize, top: usize, ink: &str) {
    let mut column = 0;
    for bar in piece.chunk_by(|one, other| level(one) == level(other)) {
        let height = bar.first().and_then(level).unwrap_or(0) * CELL_HEIGHT / 8;
        let from = (left + column * CELL_WIDTH, top + CELL_HEIGHT - height);
        rectangle(svg, from, (bar.len() * CELL_WIDTH, height), ink);
        column += bar.len();
    }
}

fn rectangle(
    svg: &mut String,
    (left, top): (usize, usize),
    (width, height): (usize, usize),
    ink: &str,
) {
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"{ink}\"/>"
    );
}

/// How many eighths of a cell a bar fills; none for what is no bar.
fn level(cell: &Cell) -> Option<usize> {
    let bars = "▁▂▃▄▅▆▇█".chars().map(String::from);
    bars.zip(1..)
        .find_map(|(bar, level)| (bar == cell.symbol()).then_some(level))
}

fn is_rule(cell: &Cell) -> bool {
    cell.symbol() == "─"
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Style {
    ink: &'static str,
    paper: &'static str,
    bold: bool,
}

fn style(cell: &Cell) -> Style {
    let ink = color(cell.fg);
    let (ink, paper) = match cell.modifier.contains(Modifier::REVERSED) {
        true => (PAPER, ink),
        false => (ink, PAPER),
    };
    Style {
        ink,
        paper,
        bold: cell.modifier.contains(Modifier::BOLD),
    }
}

/// The colours that a screen uses, as they look on dark paper.
fn color(color: Color) -> &'static str {
    match color {
        Color::Cyan => "#88c0d0",
        Color::DarkGray => "#6b7689",
        Color::Green => "#a3be8c",
        Color::Red => "#e06c75",
        Color::Yellow => "#ebcb8b",
        _ => INK,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
