//! What an upgrade knows of a node: the image it goes to, the slots it boots from, how it is before and after (OP-5, OP-6).
//!
//! Only facts; what follows from them is `steps::upgrade`'s.

use std::fmt;

use protocol::hash::Sha256Hex;
use protocol::id::EntryName;
use serde::{Deserialize, Serialize};

/// An image of a release whose manifest was verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The boot entry that it becomes.
    pub entry: EntryName,
    /// Where it is.
    pub url: String,
    /// The hash of the download.
    pub sha256: Sha256Hex,
    /// Its size in bytes.
    pub size: u64,
    /// The hash that a node that booted it reports (ENR-3).
    pub image_sha256: Sha256Hex,
    /// The k3s in it.
    pub k3s_version: String,
}

/// The kernel's ID of one boot: another one after each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

impl fmt::Display for BootId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Which boot this is, and of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booted {
    /// This boot.
    pub boot_id: BootId,
    /// The entry that was selected.
    pub entry: EntryName,
}

/// How a node is before an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// What runs.
    pub booted: Booted,
    /// What boots next: another entry than the one that runs while an earlier upgrade was neither kept nor gone back from.
    pub default_entry: EntryName,
    /// The k3s that runs.
    pub k3s_version: String,
    /// Whether an EFI variable that is written is read back.
    pub variables_persist: bool,
    /// Whether the boot loader knows an entry for one boot only.
    pub knows_one_shot: bool,
    /// What is free on the boot partition, in bytes, once all but the entry that runs and the one before are gone.
    pub boot_bytes_free: u64,
    /// Jobs of Helm that are under way: a reboot would leave their releases pending.
    pub helm_jobs: Vec<String>,
    /// Whether the node is Ready.
    pub node_ready: bool,
    /// The Deployments in `kube-system`.
    pub deployments: Vec<Rollout>,
}

/// A Deployment in `kube-system`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// Its name.
    pub name: String,
    /// Its last generation is observed, and all replicas of it are updated and available.
    pub available: bool,
    /// The containers of its pods were started in this boot: right after a fast one, the status is from before.
    pub of_this_boot: bool,
}

/// How a node is after a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// What runs.
    pub booted: Booted,
    /// Whether the API says that it is ready.
    pub api_ready: bool,
    /// Whether the Node is Ready.
    pub node_ready: bool,
    /// The boot that the Node says it is of.
    pub node_boot_id: Option<BootId>,
    /// The version that its kubelet says it has.
    pub kubelet_version: Option<String>,
    /// Whether etcd is healthy.
    pub etcd_healthy: bool,
    /// The Deployments in `kube-system`.
    pub deployments: Vec<Rollout>,
}
