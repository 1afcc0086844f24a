//! What an agent is told once at its start, and what a look at its node shows.

use std::sync::Arc;

use protocol::id::{AgentVersion, Arch, ClusterId, EnrollmentToken, NodeName};
use protocol::pbx::sync::{ApiState, BootReport, K3sReport};
use protocol::verified::ReleaseKeys;

use crate::limits::Limits;

/// What an agent is told at its start.
#[derive(Debug, Clone)]
pub struct BootFacts {
    /// Its configuration.
    pub config: Config,
    /// The running program.
    pub agent_version: AgentVersion,
    /// The version that the rollback timer has put back, as the host has noted it; it stays noted until the next update
    /// (UPD-3).
    pub rolled_back_from: Option<AgentVersion>,
    /// What the node runs on.
    pub arch: Arch,
    /// The numbers of its behaviour; a fleet shares one value.
    pub limits: Arc<Limits>,
    /// The release keys built into it (UPD-4); a fleet shares one value.
    pub release_keys: Arc<ReleaseKeys>,
}

/// What cloud-init has written for the node (FILE-1), as far as it decides anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The cluster that the node belongs to.
    pub cluster_id: ClusterId,
    /// The node's name.
    pub node_name: NodeName,
    /// The enrollment token, until it is used (ENR-5).
    pub token: Option<EnrollmentToken>,
}

/// What the node shows. How the host finds out is its own affair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// What was booted in truth (ENR-3).
    pub boot: BootReport,
    /// How k3s is.
    pub k3s: K3sReport,
    /// Whether a drop-in was written that k3s has not read yet (SYNC-5).
    pub restart_pending: bool,
    /// What is wrong with the node, in words (FAIL-7, FILE-13).
    pub problems: Vec<String>,
}

impl Observation {
    /// Whether the Kubernetes API answers (FAIL-2).
    pub fn api_is_up(&self) -> bool {
        self.k3s.api == ApiState::Up
    }
}
