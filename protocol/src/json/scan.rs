//! The syntax step (KEY-2): one pass over the bytes, before anything is given a type.

use std::borrow::Cow;
use std::fmt;

use crate::limits::JSON_DEPTH_MAX;

/// JSON that [`scan`] found right; the proof that the shape step asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    /// The text.
    pub fn as_str(&self) -> &'a str {
        self.0
    }

    /// Whether the outermost value is an object.
    pub fn is_object(&self) -> bool {
        self.0.trim_ascii_start().starts_with('{')
    }
}

/// Where and why the syntax step refused. Names the place, and a doubled member; repeats no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syntax {
    /// Offset of the byte at which it went wrong, from 0.
    pub offset: usize,
    /// Line of that byte, from 1.
    pub line: usize,
    /// Column of that byte, from 1, in bytes.
    pub column: usize,
    /// What was wrong.
    pub fault: SyntaxFault,
}

/// What the syntax step refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxFault {
    /// A byte order mark at the beginning.
    #[error("a byte order mark; JSON begins with its value")]
    ByteOrderMark,
    /// Bytes that are not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// A byte that no JSON has there.
    #[error("{0} is due here")]
    Expected(&'static str),
    /// The text ended inside a value.
    #[error("the text ends before its value does")]
    Ended,
    /// Something after the value.
    #[error("something follows the value")]
    Trailing,
    /// A member whose name the same object had before.
    #[error("member {0:?} is there twice")]
    Doubled(String),
    /// More than [`JSON_DEPTH_MAX`] levels.
    #[error("more than {JSON_DEPTH_MAX} levels")]
    TooDeep,
}

impl std::error::Error for Syntax {}

impl fmt::Display for Syntax {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "line {}, column {}: {}",
            self.line, self.column, self.fault
        )
    }
}

/// The syntax step alone.
pub fn scan(bytes: &[u8]) -> Result<Json<'_>, Syntax> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(place(bytes, 0, SyntaxFault::ByteOrderMark));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| place(bytes, error.valid_up_to(), SyntaxFault::NotUtf8))?;
    let mut scanner = Scanner {
        text,
        at: 0,
        names: Vec::with_capacity(NAMES_OPEN),
    };
    match scanner.document() {
        Ok(()) => Ok(Json(text)),
        Err(fault) => Err(place(bytes, scanner.at, fault)),
    }
}

/// A fault with the line and column of its offset.
fn place(bytes: &[u8], offset: usize, fault: SyntaxFault) -> Syntax {
    let before = &bytes[..offset.min(bytes.len())];
    let line_start = before
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    let line = 1 + before.iter().filter(|b| **b == b'\n').count();
    Syntax {
        offset,
        line,
        column: 1 + before.len() - line_start,
        fault,
    }
}

/// As many names are open at once in an ordinary message: room for them is made once.
const NAMES_OPEN: usize = 32;

/// On a fault `at` is left where it happened.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// Names of the members of all objects that are open, the innermost object's last, each with its offset.
    names: Vec<(Cow<'a, str>, usize)>,
}

type Scanned<T = ()> = Result<T, SyntaxFault>;

impl<'a> Scanner<'a> {
    fn document(&mut self) -> Scanned {
        self.blanks();
        self.value(1)?;
        self.blanks();
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(SyntaxFault::Trailing)
        }
    }

    fn value(&mut self, depth: usize) -> Scanned {
        match self.peek() {
            Some(b'{' | b'[') if depth > JSON_DEPTH_MAX => Err(SyntaxFault::TooDeep),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(drop),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => Err(self.expected("a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Scanned {
        let first_name = self.names.len();
        self.at += 1;
        self.blanks();
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let name_at = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.expected("a member's name"));
            }
            let name = self.string()?;
            self.names.push((name, name_at));
            self.blanks();
            if !self.take(b':') {
                return Err(self.expected("a colon"));
            }
            self.blanks();
            self.value(depth + 1)?;
            self.blanks();
            if self.take(b'}') {
                return self.close_object(first_name);
            }
            if !self.take(b',') {
                return Err(self.expected("a comma or }"));
            }
            self.blanks();
        }
    }

    /// No two names of the object are equal; few are compared pair by pair, many sorted, so that an object of ten
    /// thousand members costs no square.
    fn close_object(&mut self, first_name: usize) -> Scanned {
        let names = &mut self.names[first_name..];
        let doubled = if names.len() <= 16 {
            (1..names.len()).find(|at| {
                names[..*at]
                    .iter()
                    .any(|(before, _)| *before == names[*at].0)
            })
        } else {
            names.sort_unstable();
            (1..names.len()).find(|at| names[at - 1].0 == names[*at].0)
        };
        if let Some(doubled) = doubled {
            let (name, name_at) = &names[doubled];
            self.at = *name_at;
            return Err(SyntaxFault::Doubled(crate::id::shown(name).to_owned()));
        }
        self.names.truncate(first_name);
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Scanned {
        self.at += 1;
        self.blanks();
        if self.take(b']') {
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            self.blanks();
            if self.take(b']') {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.expected("a comma or ]"));
            }
            self.blanks();
        }
    }

    /// A string, unescaped: names are compared as what they mean, or `"a"` and `"\u0061"` would be two members.
    fn string(&mut self) -> Scanned<Cow<'a, str>> {
        self.at += 1;
        let start = self.at;
        self.skip_plain();
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(Cow::Borrowed(&self.text[start..self.at - 1]));
        }
        let mut unescaped = String::from(&self.text[start..self.at]);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(unescaped));
                }
                Some(b'\\') => unescaped.push(self.escape()?),
                Some(_) => {
                    return Err(SyntaxFault::Expected(
                        "no control character, but its escape,",
                    ));
                }
                None => return Err(SyntaxFault::Ended),
            }
            let start = self.at;
            self.skip_plain();
            unescaped.push_str(&self.text[start..self.at]);
        }
    }

    /// To the next quote, backslash or control character; eight bytes at a time, since most of a body is inside strings.
    fn skip_plain(&mut self) {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGHS: u64 = 0x8080_8080_8080_8080;
        // The high bit of a byte that is below `n` (n ≤ 128), as long as no byte before it, counted from the lowest, is.
        let below = |word: u64, n: u64| word.wrapping_sub(ONES * n) & !word & HIGHS;
        let rest = &self.text.as_bytes()[self.at..];
        let (words, _) = rest.as_chunks::<8>();
        for (at, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            let quote = below(word ^ (ONES * u64::from(b'"')), 1);
            let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
            let found = quote | backslash | below(word, 0x20);
            if found != 0 {
                self.at += 8 * at + (found.trailing_zeros() / 8) as usize;
                return;
            }
        }
        let tail = &rest[8 * words.len()..];
        let plain = tail
            .iter()
            .position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f))
            .unwrap_or(tail.len());
        self.at += 8 * words.len() + plain;
    }

    fn escape(&mut self) -> Scanned<char> {
        let escaped = match self.text.as_bytes().get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            Some(_) => return Err(SyntaxFault::Expected("an escape of JSON")),
            None => return Err(SyntaxFault::Ended),
        };
        self.at += 2;
        Ok(escaped)
    }

    /// `\uXXXX`, or two of them that are one character; half of a pair is no text.
    fn unicode_escape(&mut self) -> Scanned<char> {
        let unit = |at: usize| {
            let digits = self.text.as_bytes().get(at..at + 6)?.strip_prefix(b"\\u")?;
            digits.iter().try_fold(0_u32, |unit, b| {
                Some(unit << 4 | char::from(*b).to_digit(16)?)
            })
        };
        let first = unit(self.at).ok_or(SyntaxFault::Expected("four hex digits after \\u"))?;
        let (code, length) = match (first, unit(self.at + 6)) {
            (0xd800..=0xdbff, Some(second @ 0xdc00..=0xdfff)) => {
                (0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), 12)
            }
            _ => (first, 6),
        };
        let escaped =
            char::from_u32(code).ok_or(SyntaxFault::Expected("a whole surrogate pair"))?;
        self.at += length;
        Ok(escaped)
    }

    /// RFC 8259, 6: no leading zero, digits on both sides of the point, digits in the exponent.
    fn number(&mut self) -> Scanned {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Scanned {
        let rest = &self.text.as_bytes()[self.at..];
        match rest.iter().take_while(|b| b.is_ascii_digit()).count() {
            0 => Err(self.expected("a digit")),
            length => {
                self.at += length;
                Ok(())
            }
        }
    }

    fn word(&mut self, word: &'static str) -> Scanned {
        if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            Err(SyntaxFault::Expected("true, false or null"))
        }
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn expected(&self, what: &'static str) -> SyntaxFault {
        if self.at == self.text.len() {
            SyntaxFault::Ended
        } else {
            SyntaxFault::Expected(what)
        }
    }
}
