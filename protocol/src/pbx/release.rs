//! What a release manifest says. To be believed only as [`crate::verified::Verified`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hash::Sha256Hex;
use crate::id::{AddonName, AgentVersion, Arch, EntryName, ReleaseVersion};
use crate::time::Timestamp;
use crate::words::open_words;

/// The payload of a signed manifest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// The release that it is of (UPD-6).
    pub version: ReleaseVersion,
    /// When it was made.
    pub created_at: Timestamp,
    /// A number that only grows; below the highest that an agent has seen it is refused (UPD-6).
    pub floor: u64,
    /// What the add-ons' templates are written for (ADD-17).
    pub template_engine: TemplateEngine,
    /// The agent program (UPD-1).
    pub agent: AgentRelease,
    /// The node image (OP-5).
    pub image: ImageRelease,
    /// The add-ons' templates (ADD-1).
    pub addons: Vec<AddonTemplate>,
}

open_words! {
    /// What templates are written for (ADD-17).
    pub enum TemplateEngine ("template engine") {
        /// MiniJinja.
        Minijinja = "minijinja",
    }
}

/// The agent program of a release.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AgentRelease {
    /// Its version; a document that names another is no mix to be had (UPD-6).
    pub version: AgentVersion,
    /// One program for each architecture.
    pub artifacts: Vec<AgentArtifact>,
}

/// An agent program to fetch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AgentArtifact {
    /// What it runs on.
    pub arch: Arch,
    /// Where it is.
    pub url: String,
    /// Its hash (UPD-1).
    pub sha256: Sha256Hex,
    /// Its size in bytes.
    pub size: u64,
}

/// The node image of a release.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ImageRelease {
    /// The k3s in it.
    pub k3s_version: String,
    /// One image for each architecture.
    pub artifacts: Vec<ImageArtifact>,
}

/// A node image to fetch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ImageArtifact {
    /// What it runs on.
    pub arch: Arch,
    /// Where it is.
    pub url: String,
    /// The download's hash.
    pub sha256: Sha256Hex,
    /// The download's size in bytes.
    pub size: u64,
    /// The boot entry that it becomes.
    pub entry: EntryName,
    /// The hash that a node that booted it reports (ENR-3).
    pub image_sha256: Sha256Hex,
}

/// An add-on of a release.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AddonTemplate {
    /// Its name.
    pub name: AddonName,
    /// The add-ons that it needs (ADD-8, ADD-11).
    pub requires: Vec<AddonName>,
    /// The add-ons that must not be there (ADD-9, ADD-10).
    pub conflicts: Vec<AddonName>,
    /// The template of its objects.
    pub template: String,
    /// When it counts as healthy; without, applied is enough (ADD-13).
    pub health: Option<HealthCheck>,
}

/// When an add-on counts as healthy (ADD-12).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct HealthCheck {
    /// Deployments that must be available.
    pub deployments: Vec<DeploymentRef>,
}

/// A Deployment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct DeploymentRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}
