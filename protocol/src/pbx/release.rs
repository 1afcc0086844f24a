//! What a release manifest says. To be believed only as [`crate::verified::Verified`].

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::hash::Sha256Hex;
use crate::id::{AddonName, AgentVersion, Arch, EntryName, ReleaseVersion, is_name};
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
    /// One program for each architecture; those for one that nobody here knows are not read.
    #[serde(deserialize_with = "of_known_arch")]
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
    /// One image for each architecture; those for one that nobody here knows are not read.
    #[serde(deserialize_with = "of_known_arch")]
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

/// What is for an architecture of a later time is left out, so that a release may bring it without being lost to those who
/// do not know it (WIRE-5). Its name is a name all the same (FILE-18).
fn of_known_arch<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let all = Vec::<Map<String, Value>>::deserialize(deserializer)?;
    let mut known = Vec::with_capacity(all.len());
    for artifact in all {
        let later = match artifact.get("arch").and_then(Value::as_str) {
            Some(arch) if !is_name(arch) => {
                return Err(D::Error::custom(format!(
                    "{arch:?} is no name of an architecture"
                )));
            }
            Some(arch) => arch.parse::<Arch>().is_err(),
            None => false,
        };
        if !later {
            let read = serde_json::from_value(Value::Object(artifact));
            known.push(read.map_err(D::Error::custom)?);
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifacts(archs: &[&str]) -> Result<AgentRelease, serde_json::Error> {
        let artifact = |arch: &&str| serde_json::json!({"arch": arch, "url": "https://a", "sha256": Sha256Hex::of(b""), "size": 1});
        let artifacts: Vec<Value> = archs.iter().map(artifact).collect();
        serde_json::from_value(serde_json::json!({"version": "1.4.0", "artifacts": artifacts}))
    }

    // rules WIRE-5, FILE-18
    #[test]
    fn an_architecture_of_a_later_time_is_left_out_file_18_wire_5() {
        let read = artifacts(&["amd64", "riscv64", "arm64"]).unwrap();
        let archs: Vec<Arch> = read.artifacts.iter().map(|it| it.arch).collect();
        assert_eq!(archs, [Arch::Amd64, Arch::Arm64]);
        let refused = artifacts(&["amd64", "../../etc"]).unwrap_err().to_string();
        assert!(refused.contains("../../etc"), "{refused}");
    }
}
