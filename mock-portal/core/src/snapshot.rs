//! The whole memory at one moment, so that a shell can keep it and begin again from there.
//!
//! [`Changes`](crate::Changes) alone would do, but there is one for each request, and reading all that ever were takes
//! longer every day. A snapshot stands for all changes up to its number; those after it are made on top.

use serde::{Deserialize, Serialize};

use crate::clock::ClockSetting;
use crate::hetzner::Hetzner;
use crate::identities::Registry;
use crate::releases::Releases;
use crate::state::ShardState;

/// All that a portal remembers. Written down, it holds secrets in clear: it is for the portal's own disk.
pub struct Snapshot {
    /// The number of the last change in it.
    pub sequence: u64,
    /// What each shard remembers, in the order of their numbers.
    pub shards: Vec<ShardMemory>,
    /// What they share.
    pub shared: SharedMemory,
}

/// What one shard remembers.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardMemory(pub(crate) ShardState);

/// What all shards share.
#[derive(Serialize, Deserialize)]
pub struct SharedMemory {
    pub(crate) registry: Registry,
    pub(crate) releases: Releases,
    pub(crate) hetzner: Hetzner,
    pub(crate) clock: ClockSetting,
}

/// A snapshot that cannot be begun with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "it was made with {made} shards, and this portal has {has}: IDs name their shard, so the number cannot change"
)]
pub struct OtherShards {
    /// How many it has.
    pub made: usize,
    /// How many the portal has.
    pub has: usize,
}
