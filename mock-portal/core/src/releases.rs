//! Releases: manifests, signed when they are published. A fresh portal has one, `2026.11.1`.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::hash::Sha256Hex;
use protocol::id::{AddonName, AgentVersion, Arch, EntryName, ReleaseVersion};
use protocol::json::{self, JsonRefusal};
use protocol::pbx::release::{
    AddonTemplate, AgentArtifact, AgentRelease, DeploymentRef, HealthCheck, ImageArtifact,
    ImageRelease, Manifest, TemplateEngine,
};
use protocol::sign::SigningKey;
use protocol::time::Timestamp;
use protocol::verified::{SignedManifest, sign_manifest};
use serde::{Deserialize, Serialize};

use crate::control::ReleaseView;

/// The releases, by version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Releases {
    by_version: BTreeMap<ReleaseVersion, Release>,
    latest: ReleaseVersion,
}

/// One release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Release {
    manifest: Manifest,
    signed: Arc<SignedManifest>,
}

impl Releases {
    /// What a fresh portal has.
    pub(crate) fn fresh(key: &SigningKey) -> Self {
        let manifest = first_release();
        let latest = manifest.version.clone();
        let payload = serde_json::to_vec(&manifest).expect("the types of the wire always encode");
        let signed = Arc::new(sign_manifest(key, payload));
        Self {
            by_version: BTreeMap::from([(latest.clone(), Release { manifest, signed })]),
            latest,
        }
    }

    /// The release that was published last.
    pub(crate) fn latest(&self) -> &ReleaseVersion {
        &self.latest
    }

    pub(crate) fn signed(&self, version: &ReleaseVersion) -> Option<Arc<SignedManifest>> {
        self.by_version
            .get(version)
            .map(|release| Arc::clone(&release.signed))
    }

    pub(crate) fn manifest(&self, version: &ReleaseVersion) -> Option<&Manifest> {
        self.by_version
            .get(version)
            .map(|release| &release.manifest)
    }

    /// Publishes what was signed here; a payload that is no manifest changes nothing.
    pub(crate) fn publish(&mut self, signed: Arc<SignedManifest>) {
        if let Ok(manifest) = read(&signed.payload) {
            self.latest = manifest.version.clone();
            self.by_version
                .insert(manifest.version.clone(), Release { manifest, signed });
        }
    }

    pub(crate) fn views(&self) -> Vec<ReleaseView> {
        let view = |(version, release): (&ReleaseVersion, &Release)| ReleaseView {
            version: version.clone(),
            agent_version: release.manifest.agent.version.clone(),
            floor: release.manifest.floor,
            addons: release
                .manifest
                .addons
                .iter()
                .map(|addon| addon.name.clone())
                .collect(),
            latest: *version == self.latest,
        };
        self.by_version.iter().map(view).collect()
    }
}

/// Reads a payload as strictly as an agent does.
pub(crate) fn read(payload: &[u8]) -> Result<Manifest, JsonRefusal> {
    json::parse(payload)
}

/// Release `2026.11.1`: the manifest of the protocol's example, with add-ons to try documents with. Nothing can be fetched
/// from its URLs.
fn first_release() -> Manifest {
    let version = "2026.11.1";
    let artifact = |arch: Arch| AgentArtifact {
        arch,
        url: format!("https://artifacts.invalid/pbx-agent-1.4.0-{arch}"),
        sha256: Sha256Hex::of(format!("pbx-agent 1.4.0 {arch}").as_bytes()),
        size: 9_123_456,
    };
    let image = |arch: Arch| ImageArtifact {
        arch,
        url: format!("https://artifacts.invalid/pbx-{version}-{arch}.efi"),
        sha256: Sha256Hex::of(format!("pbx {version} {arch}").as_bytes()),
        size: 512_000_000,
        entry: EntryName::new(format!("pbx-{version}-{arch}.efi"))
            .expect("a name of the protocol's example"),
        image_sha256: Sha256Hex::of(format!("pbx {version} {arch} booted").as_bytes()),
    };
    Manifest {
        version: ReleaseVersion::new(version).expect("a version of the protocol's example"),
        created_at: Timestamp::from_unix_ms(1_793_836_800_000), // 2026-11-05
        floor: 12,
        template_engine: TemplateEngine::Minijinja,
        agent: AgentRelease {
            version: AgentVersion::new("1.4.0").expect("a version of the protocol's example"),
            artifacts: Arch::ALL.iter().copied().map(artifact).collect(),
        },
        image: ImageRelease {
            k3s_version: "v1.34.1+k3s1".to_owned(),
            artifacts: Arch::ALL.iter().copied().map(image).collect(),
        },
        addons: vec![
            addon("cert-manager", &[], Some("cert-manager")),
            addon("external-dns", &[], Some("external-dns")),
            addon("metrics", &["cert-manager"], None),
        ],
    }
}

/// A chart with the document's options as its values, and with the secret ones in a Secret that it reads.
const TEMPLATE: &str = "apiVersion: helm.cattle.io/v1
kind: HelmChart
metadata:
  name: NAME
  namespace: kube-system
spec:
  chart: NAME
  targetNamespace: NAME
  createNamespace: true
  valuesContent: |-
    {{ options | tojson }}
{%- if secret_options %}
  valuesSecrets:
  - name: {{ secret_name }}
    keys: [values.yaml]
---
apiVersion: v1
kind: Secret
metadata:
  name: {{ secret_name }}
  namespace: kube-system
stringData:
  values.yaml: |-
    {{ secret_options | tojson }}
{%- endif %}
";

fn addon(name: &str, requires: &[&str], deployment: Option<&str>) -> AddonTemplate {
    let named = |name: &str| AddonName::new(name).expect("a name from the list above");
    AddonTemplate {
        name: named(name),
        requires: requires.iter().map(|name| named(name)).collect(),
        conflicts: Vec::new(),
        template: TEMPLATE.replace("NAME", name),
        health: deployment.map(|name| HealthCheck {
            deployments: vec![DeploymentRef {
                namespace: name.to_owned(),
                name: name.to_owned(),
            }],
        }),
    }
}
