//! All that the portal remembers, and the one way in which it changes: [`Change`]s.

use serde::{Deserialize, Serialize};

/// What one request, or one verb of the control API, changed, in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// The place in the order of all changes, from 1; 0 where nothing changed. Changes of one cluster are numbered in
    /// the order in which they were made.
    pub sequence: u64,
    /// The changes.
    pub changes: Vec<Change>,
}

/// One change of the portal's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Everything was forgotten but settings and release keys.
    Emptied,
}
