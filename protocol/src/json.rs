//! Strict reading of JSON in two steps: syntax, then shape (SIGN-6 puts the protocol check between them).
//!
//! [`scan`] is the syntax step of KEY-2: UTF-8 without a byte order mark, nothing after the value, no member twice in
//! one object (members that nobody asked for included), at most 32 levels. What it returns is the proof, and only that can
//! be given a shape. serde_json alone would take the last of two members, and an array where an object is due; the shape
//! step takes neither.

mod scan;
mod shape;

use std::fmt;

use serde::de::DeserializeOwned;

pub use scan::{Json, Syntax, SyntaxFault, scan};

/// Why JSON was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonRefusal {
    /// Not JSON as KEY-2 wants it.
    #[error("{0}")]
    Syntax(#[from] Syntax),
    /// JSON, but of another shape than its place asks for.
    #[error("{}: {why}", Place(path))]
    Shape {
        /// The member, as `addons[0].name`; empty for the outermost value.
        path: String,
        /// What was wrong with it. Values of the wrong type are not repeated: they may be secrets.
        why: String,
    },
}

/// Both steps: [`scan`], then [`Json::read`].
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonRefusal> {
    scan(bytes)?.read()
}

impl Json<'_> {
    /// The shape step: an object where an object is due at every level, all members that must be there, right types.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, JsonRefusal> {
        shape::read(self.as_str())
    }

    /// Whether the outermost object names a `protocol` that is a whole number below `lowest`: 426 `protocol_too_old`, in
    /// SIGN-6's place between syntax and shape. Missing, of another type, or too high is the shape's affair.
    pub fn protocol_below(&self, lowest: u32) -> bool {
        shape::outer_number(self.as_str(), "protocol").is_some_and(|protocol| protocol < i128::from(lowest))
    }
}

/// A path in an error's text.
struct Place<'a>(&'a str);

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_empty() { "the outermost value" } else { self.0 })
    }
}

/// Appends `.name` to a path, `name` to an empty one.
pub(crate) fn push_member(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(crate::id::shown(name));
}

/// Appends `[at]` to a path.
pub(crate) fn push_index(path: &mut String, at: usize) {
    use fmt::Write as _;
    write!(path, "[{at}]").expect("a string takes everything");
}
