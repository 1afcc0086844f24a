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

/// What a terminal puts around text that is pasted, once it is asked to.
const PASTE_BEGINS: &[u8] = b"\x1b[200~";
const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// No sequence is longer; what goes on is none.
const SEQUENCE_MAX: usize = 32;

/// Makes keys of what a terminal sends, however it comes in pieces. What is pasted is none: nobody pastes keys.
#[derive(Debug, Default)]
pub struct Keys {
    /// Whether a paste has begun and not ended.
    pasting: bool,
    /// The beginning of a sequence whose end has not come yet.
    begun: Vec<u8>,
}

impl Keys {
    /// The keys in what was read at once.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut all = std::mem::take(&mut self.begun);
        all.extend(bytes);
        let mut bytes = all.as_slice();
        let mut keys = Vec::new();
        while let Some((first, rest)) = bytes.split_first() {
            if self.pasting {
                bytes = self.behind_paste(bytes);
                continue;
            }
            if let Some(pasted) = bytes.strip_prefix(PASTE_BEGINS) {
                self.pasting = true;
                bytes = pasted;
                continue;
            }
            let known = SEQUENCES
                .iter()
                .find_map(|(sequence, key)| Some((*key, bytes.strip_prefix(*sequence)?)));
            let (key, behind) = match (known, first) {
                (Some((key, behind)), _) => (Some(key), behind),
                (None, b'\t') => (Some(Key::Tab), rest),
                (None, b'\r' | b'\n') => (Some(Key::Enter), rest),
                (None, 0x08 | 0x7f) => (Some(Key::Backspace), rest),
                (None, 0x1b) if rest.is_empty() => (Some(Key::Escape), rest),
                (None, 0x1b) => (None, self.behind_unknown(bytes)),
                (None, b' '..=b'~') => (Some(Key::Char(char::from(*first))), rest),
                (None, _) => (None, rest),
            };
            keys.extend(key);
            bytes = behind;
        }
        keys
    }

    /// What follows a paste; nothing where it goes on.
    fn behind_paste<'a>(&mut self, pasted: &'a [u8]) -> &'a [u8] {
        let mut places = pasted.windows(PASTE_ENDS.len());
        if let Some(end) = places.position(|window| window == PASTE_ENDS) {
            self.pasting = false;
            return &pasted[end + PASTE_ENDS.len()..];
        }
        let begun = (1..PASTE_ENDS.len())
            .rev()
            .find(|length| pasted.ends_with(&PASTE_ENDS[..*length]));
        self.begun = pasted[pasted.len() - begun.unwrap_or(0)..].to_vec();
        &[]
    }

    /// What follows a sequence that nobody knows: its letters are not keys. One that has not ended is kept.
    fn behind_unknown<'a>(&mut self, sequence: &'a [u8]) -> &'a [u8] {
        let last = match sequence.get(1) {
            Some(b'[' | b'O') => sequence
                .iter()
                .skip(2)
                .position(|byte| (0x40..=0x7e).contains(byte))
                .map(|at| at + 2),
            _ => Some(1),
        };
        match last {
            Some(last) => &sequence[last + 1..],
            None => {
                if sequence.len() <= SEQUENCE_MAX {
                    self.begun = sequence.to_vec();
                }
                &[]
            }
        }
    }
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
            assert_eq!(Keys::default().read(bytes), *expected, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_pasted_is_no_key_however_it_comes_in_pieces() {
        let sent = b"f\x1b[200~qQ\r\x1b[A\x1b[20q\x1b[201~s\x1b[5~\x1b[200~p\x1b[201~\x1b[15~1";
        let expected = [Key::Char('f'), Key::Char('s'), Key::PageUp, Key::Char('1')];
        // An Escape that comes alone is a key: nobody knows then that more is to come.
        let cuts = (0..sent.len()).filter(|at| *at == 0 || sent[at - 1] != 0x1b);
        for (first, second) in cuts
            .clone()
            .flat_map(|at| cuts.clone().map(move |b| (at, b)))
        {
            let (first, second) = (first.min(second), first.max(second));
            let mut keys = Keys::default();
            let pieces = [&sent[..first], &sent[first..second], &sent[second..]];
            let pressed: Vec<Key> = pieces.iter().flat_map(|piece| keys.read(piece)).collect();
            assert_eq!(pressed, expected, "{first} {second}");
        }
        let mut keys = Keys::default();
        assert_eq!(keys.read(PASTE_BEGINS), []);
        let pressed = b"q\x1b\x1b[201~s"
            .chunks(1)
            .flat_map(|byte| keys.read(byte));
        assert_eq!(pressed.collect::<Vec<_>>(), [Key::Char('s')]);
    }

    #[test]
    fn a_paste_without_an_end_is_no_key_and_takes_no_memory() {
        let mut keys = Keys::default();
        assert_eq!(keys.read(b"\x1b[200~"), []);
        for _ in 0..1_000 {
            assert_eq!(keys.read(b"q\x1b[20"), []);
            assert!(keys.begun.len() < PASTE_ENDS.len());
        }
        let mut keys = Keys::default();
        for _ in 0..1_000 {
            keys.read(b"\x1b[1;1");
            assert!(keys.begun.len() <= SEQUENCE_MAX);
        }
    }
}
