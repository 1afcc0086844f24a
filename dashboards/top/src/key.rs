//! Keys, and the bytes that a terminal sends for them.
//!
//! Few keys mean anything, so few sequences are known; what is not known is no key. Ctrl-C is none either: it stays the
//! signal that it is without a screen.

/// A key that may mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Tab.
    Tab,
    /// Shift and Tab.
    BackTab,
    /// Escape.
    Escape,
    /// Return.
    Enter,
    /// Backspace.
    Backspace,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
}

/// Sequences of more than one byte.
const SEQUENCES: [(&[u8], Key); 17] = [
    (b"\x1b[Z", Key::BackTab),
    (b"\x1b[A", Key::Up),
    (b"\x1b[B", Key::Down),
    (b"\x1bOA", Key::Up),
    (b"\x1bOB", Key::Down),
    (b"\x1b[C", Key::Right),
    (b"\x1b[D", Key::Left),
    (b"\x1bOC", Key::Right),
    (b"\x1bOD", Key::Left),
    (b"\x1b[H", Key::Home),
    (b"\x1b[F", Key::End),
    (b"\x1bOH", Key::Home),
    (b"\x1bOF", Key::End),
    (b"\x1b[1~", Key::Home),
    (b"\x1b[4~", Key::End),
    (b"\x1b[5~", Key::PageUp),
    (b"\x1b[6~", Key::PageDown),
];

/// The keys in what was read at once.
pub fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        let known = SEQUENCES
            .iter()
            .find_map(|(sequence, key)| Some((*key, bytes.strip_prefix(*sequence)?)));
        let (key, behind) = match (known, first) {
            (Some((key, behind)), _) => (Some(key), behind),
            (None, b'\t') => (Some(Key::Tab), rest),
            (None, b'\r' | b'\n') => (Some(Key::Enter), rest),
            (None, 0x08 | 0x7f) => (Some(Key::Backspace), rest),
            (None, 0x1b) if rest.is_empty() => (Some(Key::Escape), rest),
            (None, 0x1b) => (None, behind_unknown(rest)),
            (None, b' '..=b'~') => (Some(Key::Char(char::from(*first))), rest),
            (None, _) => (None, rest),
        };
        keys.extend(key);
        bytes = behind;
    }
    keys
}

/// What follows a sequence that nobody knows: its letters are not keys.
fn behind_unknown(sequence: &[u8]) -> &[u8] {
    let last = match sequence.first() {
        Some(b'[' | b'O') => sequence
            .iter()
            .skip(1)
            .position(|byte| (0x40..=0x7e).contains(byte))
            .map(|at| at + 1),
        _ => Some(0),
    };
    last.and_then(|last| sequence.get(last + 1..))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_keys() {
        let rows: &[(&[u8], &[Key])] = &[
            (b"q", &[Key::Char('q')]),
            (b"1?Q", &[Key::Char('1'), Key::Char('?'), Key::Char('Q')]),
            (b"\t\x1b[Z", &[Key::Tab, Key::BackTab]),
            (b"\x1b", &[Key::Escape]),
            (
                b"/a\x7f\r",
                &[Key::Char('/'), Key::Char('a'), Key::Backspace, Key::Enter],
            ),
            (b"\x1b[A\x1bOBf", &[Key::Up, Key::Down, Key::Char('f')]),
            (b"\x1b[5~\x1b[6~", &[Key::PageUp, Key::PageDown]),
            (b"\x1b[D\x1bOC ", &[Key::Left, Key::Right, Key::Char(' ')]),
            (b"\x1b[H\x1bOH\x1b[1~", &[Key::Home, Key::Home, Key::Home]),
            (b"\x1b[F\x1bOF\x1b[4~", &[Key::End, Key::End, Key::End]),
            // F5, Alt-q, a click, half a sequence, a letter beyond ASCII, Ctrl-A: nothing.
            (b"\x1b[15~s", &[Key::Char('s')]),
            (b"\x1bqs", &[Key::Char('s')]),
            (b"\x1b[<0;3;4M", &[]),
            (b"\x1b[1", &[]),
            ("ü\u{1}".as_bytes(), &[]),
        ];
        for (bytes, expected) in rows {
            assert_eq!(keys(bytes), *expected, "{bytes:?}");
        }
    }
}
