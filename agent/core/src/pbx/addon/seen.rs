//! What a look at the cluster shows of the add-ons, and what is kept of them on disk.

use protocol::hash::Sha256Hex;
use protocol::id::AddonName;
use protocol::pbx::release::DeploymentRef;
use serde::{Deserialize, Serialize};

use super::object::{Object, ObjectId};
use crate::pbx::task::Uid;

/// Stands for what an object holds of all that an agent applies (labels, annotations, content), as the API server shows it:
/// another one means that somebody has changed it since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub u64);

/// What a look is to find out beside the objects themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// Helm releases that may be there.
    pub releases: Vec<Release>,
    /// Deployments that should be available.
    pub deployments: Vec<DeploymentRef>,
}

/// A Helm release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Release {
    /// Its name: that of its HelmChart.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// What a look has shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct AddonsSeen {
    /// All objects of ADD-2's kinds with the label `pbx.io/managed=true` (ADD-3), by name.
    pub objects: Vec<SeenObject>,
    /// Those of the releases asked for that have a release Secret of Helm's and no HelmChart any more, of whoever's.
    pub releases: Vec<Release>,
    /// Those of the Deployments asked for that are not available, or whose status is older than their spec.
    pub unavailable: Vec<DeploymentRef>,
    /// The `SaaSApplication` objects, as `namespace/name` (ADD-15, ADD-17).
    pub applications: Vec<String>,
    /// Whether the cluster's helm-controller knows the failure policy `retry`.
    pub offers_retry: bool,
}

/// An object, as a look has shown it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeenObject {
    /// Which one.
    pub id: ObjectId,
    /// The add-on that its label names.
    pub addon: String,
    /// An agent has applied it, this one or another server's: `pbx-agent` is among its field managers.
    pub is_applied: bool,
    /// Its UID.
    pub uid: Uid,
    /// What it holds.
    pub fingerprint: Fingerprint,
    /// It is being deleted, and something is waited for.
    pub is_deleting: bool,
    /// What its controller says.
    pub status: Status,
}

/// What an object's controller says of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Status {
    /// Nothing, or nothing that counts.
    None,
    /// Of a HelmChart.
    Chart {
        /// The job for what it holds now is complete, and its release is `deployed`.
        is_deployed: bool,
        /// The job has failed for good, and why.
        failed: Option<String>,
        /// The namespace of its release.
        namespace: String,
    },
    /// Of a Platform.
    Platform {
        /// `spec.components` has none: it installs nothing.
        is_empty: bool,
        /// What it holds now was taken up, and Flux has nothing left of what it has installed.
        is_cleared: bool,
        /// The message of the condition `Removable=False`.
        refuses: Option<String>,
    },
}

/// What was applied of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedObject {
    /// Its UID.
    pub uid: Uid,
    /// What it holds since then.
    pub fingerprint: Fingerprint,
}

/// What is kept of an add-on: what was applied of it, so that nothing else is ever deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptAddon {
    /// The add-on.
    pub name: AddonName,
    /// Its objects, on disk before they are applied first.
    #[serde(default)]
    pub objects: Vec<KeptObject>,
    /// The Deployments that tell of its health.
    #[serde(default)]
    pub deployments: Vec<DeploymentRef>,
}

/// What is kept of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptObject {
    /// Which one.
    pub id: ObjectId,
    /// What was applied last, and what came of it; none before that is known.
    #[serde(default)]
    pub form: Option<KeptForm>,
    /// Of a HelmChart: the namespace of its release.
    #[serde(default)]
    pub release_namespace: Option<String>,
    /// Of a HelmChart: its release was deployed once.
    #[serde(default)]
    pub was_deployed: bool,
}

/// What was applied of an object and what came of it, as one hash: all of it is only ever compared together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeptForm(u64);

impl KeptForm {
    /// Of what was to be applied, the UID of the object that it became, and what that holds.
    pub fn of(wanted: &Object, uid: &Uid, fingerprint: Fingerprint) -> Self {
        let Fingerprint(fingerprint) = fingerprint;
        let whole = format!("{} {} {fingerprint}", wanted.hash(), uid.0);
        let hash = Sha256Hex::of(whole.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

impl KeptAddon {
    /// Its releases.
    pub(super) fn releases(&self) -> impl Iterator<Item = Release> {
        self.objects.iter().filter_map(|object| {
            Some(Release {
                name: object.id.name().to_owned(),
                namespace: object.release_namespace.clone()?,
            })
        })
    }
}
