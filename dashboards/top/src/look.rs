//! Colours or none, and the characters of plain terminals.
//!
//! A colour never says anything alone: whatever has one has a word as well.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// How a screen may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// With colours.
    pub color: bool,
    /// With no character above `~`.
    pub ascii: bool,
}

/// What a text is, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    /// A heading.
    Heading,
    /// The first line and the last one.
    Frame,
    /// What is not read, but looked for.
    Quiet,
    Good,
    Bad,
    /// Neither good nor bad yet.
    Open,
}

impl Look {
    pub(crate) fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        let coloured = |color: Color| match self.color {
            true => plain.fg(color),
            false => plain,
        };
        match tone {
            Tone::Plain => plain,
            Tone::Heading => coloured(Color::Cyan).add_modifier(Modifier::BOLD),
            Tone::Frame => plain.add_modifier(Modifier::REVERSED),
            Tone::Quiet => coloured(Color::DarkGray),
            Tone::Good => coloured(Color::Green),
            Tone::Bad => coloured(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Open => coloured(Color::Yellow),
        }
    }

    /// What stands where a text was cut.
    pub(crate) const fn cut_mark(self) -> &'static str {
        match self.ascii {
            true => "...",
            false => "…",
        }
    }

    /// A text as this look shows it, where that is of another width: what is laid out is what is drawn.
    pub(crate) fn text(self, text: &str) -> Cow<'_, str> {
        match self.ascii && text.contains('…') {
            true => Cow::Owned(text.replace('…', "...")),
            false => Cow::Borrowed(text),
        }
    }

    /// Makes what is drawn one that every terminal can show, if this look is so.
    pub(crate) fn finish(self, buffer: &mut Buffer) {
        if !self.ascii {
            return;
        }
        for cell in &mut buffer.content {
            if !cell.symbol().is_ascii() {
                let plain = plain(cell.symbol());
                cell.set_char(plain);
            }
        }
    }
}

/// What stands for a character that a plain terminal does not have.
fn plain(symbol: &str) -> char {
    match symbol {
        "─" => '-',
        "│" => '|',
        "┌" | "┐" | "└" | "┘" => '+',
        "▁" => '.',
        "▂" => ':',
        "▃" => '-',
        "▄" => '=',
        "▅" => '+',
        "▆" => '*',
        "▇" => '%',
        "█" => '#',
        "µ" => 'u',
        "→" => '>',
        _ => '?',
    }
}
