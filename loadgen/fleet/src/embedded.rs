//! The portal that a run starts itself: the mock portal over TLS, on threads of its own.
//!
//! Agents reach it over sockets like any other; the timeline reaches it by its control verbs, without HTTP. It is fresh:
//! the same seed gives the same tokens and IDs in every run.

use std::sync::{Arc, Mutex, PoisonError};

use mock_portal::serve::BindError;
use mock_portal::strictness::Profile;
use mock_portal::tls::Certificate;
use mock_portal::{Config, Running, Server};
use portal_core::control::{
    OperationInput, OperationStatus, OperationView, TokenLine, TokensInput,
};
use protocol::hash::Sha256Hex;
use protocol::id::{AddonName, AgentId, Arch, ClusterId, Generation, NodeName, OperationId};
use protocol::pbx::operation::{Consent, EventState, OperationEvent};
use protocol::pbx::release::{
    AddonTemplate, AgentArtifact, AgentRelease, ImageArtifact, ImageRelease, Manifest,
    TemplateEngine,
};
use protocol::sign::SigningPublicKey;
use protocol::time::Timestamp;
use record::fleet::OperationEnd;
use record::{Outcome, PortalCounters};
use scenario::{DocumentSpec, OperationSpec, Population, PortalSpec, ReleaseSpec};
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

use crate::usage::Part;

/// A running portal, with what it counted in earlier lives.
pub struct Embedded {
    runtime: Option<Runtime>,
    running: Arc<tokio::sync::Mutex<Running>>,
    earlier: Mutex<PortalCounters>,
    base_url: String,
    ca_pem: String,
    release_keys: Vec<SigningPublicKey>,
}

/// Why the embedded portal cannot be had, or does not do what it is asked; with what to do where that is known.
#[derive(Debug, thiserror::Error)]
#[error("the embedded portal: {0}")]
pub struct PortalRefused(String);

impl PortalRefused {
    fn of(why: impl ToString) -> Self {
        Self(why.to_string())
    }
}

impl Embedded {
    /// Starts one on loopback, on a free port.
    ///
    /// # Errors
    /// When no address or no certificate can be had.
    pub fn start(spec: &PortalSpec, seed: u64) -> Result<Self, PortalRefused> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name(Part::Portal.thread_name())
            .enable_all()
            .build()
            .map_err(PortalRefused::of)?;
        let config = Config {
            certificate: Some(Certificate::self_signed(None).map_err(PortalRefused::of)?),
            profile: match spec.profile {
                scenario::Profile::Strict => Profile::Strict,
                scenario::Profile::Friendly => Profile::Friendly,
            },
            ..Config::new(mock_portal::keys::settings_of_seed(seed))
        };
        let running = runtime
            .block_on(Server::start(config))
            .map_err(PortalRefused::of)?;
        Ok(Self {
            base_url: running.agents_url.clone(),
            ca_pem: running.ca_pem.clone().unwrap_or_default(),
            release_keys: running.release_keys.iter().map(|key| key.public).collect(),
            running: Arc::new(tokio::sync::Mutex::new(running)),
            runtime: Some(runtime),
            earlier: Mutex::default(),
        })
    }

    /// Where agents reach it.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Who has signed its certificate, in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The keys that its releases are signed with.
    pub fn release_keys(&self) -> &[SigningPublicKey] {
        &self.release_keys
    }

    /// Tokens for a whole population, in the order of its agents.
    ///
    /// # Errors
    /// When the population's name makes no names of nodes.
    pub async fn tokens(&self, population: &Population) -> Result<Vec<TokenLine>, PortalRefused> {
        let stem = stem(&population.name);
        let whole = |number: u64| u32::try_from(number).map_err(PortalRefused::of);
        let input = TokensInput {
            cluster_id: ClusterId::new(format!("clu_{stem}")).map_err(PortalRefused::of)?,
            node_name: NodeName::new(&stem).map_err(PortalRefused::of)?,
            server_id: None,
            boot_image_sha256: None,
            expires_in_seconds: None,
            count: Some(whole(population.count)?),
            servers_per_cluster: Some(whole(population.servers_per_cluster)?),
        };
        let running = self.running.lock().await;
        let (made, _) = running
            .control()
            .make_tokens(&input)
            .map_err(PortalRefused::of)?;
        Ok(made.tokens)
    }

    /// Sets a cluster's document; answers its generation.
    ///
    /// # Errors
    /// When the portal does not know the cluster, as after a reset.
    pub async fn set_document(
        &self,
        cluster: &ClusterId,
        document: &DocumentSpec,
    ) -> Result<Generation, PortalRefused> {
        let input = serde_json::to_value(document)
            .and_then(serde_json::from_value)
            .map_err(PortalRefused::of)?;
        let running = self.running.lock().await;
        let (set, _) = running
            .control()
            .set_desired(cluster, input)
            .map_err(PortalRefused::of)?;
        Ok(set.generation)
    }

    /// Gives a cluster an operation, with this target and these parameters; answers its ID.
    ///
    /// # Errors
    /// When the portal does not know the cluster, as after a reset.
    pub async fn post_operation(
        &self,
        cluster: &ClusterId,
        operation: &OperationSpec,
        target: Option<NodeName>,
        params: &Map<String, Value>,
        now: Timestamp,
    ) -> Result<OperationId, PortalRefused> {
        let input = OperationInput {
            kind: operation.kind.clone(),
            target,
            params: to_raw_value(params)
                .map(Arc::from)
                .map_err(PortalRefused::of)?,
            consent: operation.consent.as_ref().map(|consent| Consent {
                by: consent.by.clone(),
                at: now,
                text: consent.text.clone(),
            }),
        };
        let running = self.running.lock().await;
        let (posted, _) = running
            .control()
            .post_operation(cluster, input)
            .map_err(PortalRefused::of)?;
        Ok(posted.id)
    }

    /// An operation as the portal has it; none if it has forgotten it.
    pub async fn operation(&self, operation: &OperationId) -> Option<OperationView> {
        self.running
            .lock()
            .await
            .control()
            .operation(operation)
            .ok()
    }

    /// Revokes an agent.
    ///
    /// # Errors
    /// When the portal does not know it, as after a reset.
    pub async fn revoke(&self, agent: &AgentId) -> Result<(), PortalRefused> {
        let running = self.running.lock().await;
        running
            .control()
            .revoke(agent)
            .map(drop)
            .map_err(PortalRefused::of)
    }

    /// Publishes a release, its artifacts made up.
    ///
    /// # Errors
    /// When the portal does not take the manifest.
    pub async fn publish(
        &self,
        release: &ReleaseSpec,
        now: Timestamp,
    ) -> Result<(), PortalRefused> {
        let payload = serde_json::to_vec(&manifest(release, now)).map_err(PortalRefused::of)?;
        let running = self.running.lock().await;
        running
            .control()
            .publish_release(&payload)
            .map(drop)
            .map_err(PortalRefused::of)
    }

    /// Forgets everything but addresses and keys. What it had counted still counts.
    pub async fn reset(&self) {
        let (counted, _) = self.running.lock().await.control().reset();
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        for line in counted.answers {
            if let Some(endpoint) = line.endpoint {
                let outcome = line.code.map_or(Outcome::Ok, Outcome::Problem);
                earlier.received[endpoint] += line.count;
                earlier.answered[endpoint][outcome] += line.count;
            }
        }
    }

    /// Ends as if its power were cut, and starts again, with what it knew or without.
    ///
    /// # Errors
    /// When its address is gone.
    pub async fn restart(&self, with_data: bool) -> Result<(), PortalRefused> {
        let running = Arc::clone(&self.running);
        let restart = async move { running.lock_owned().await.restart(with_data).await };
        self.on_its_threads(restart).await
    }

    /// What it counted, over all of its lives.
    pub async fn counters(&self) -> PortalCounters {
        let mut counters = self.running.lock().await.counters();
        counters.add(&self.earlier.lock().unwrap_or_else(PoisonError::into_inner));
        counters
    }

    /// Its servers' tasks belong to its own runtime, not to the agents'.
    async fn on_its_threads(
        &self,
        work: impl Future<Output = Result<(), BindError>> + Send + 'static,
    ) -> Result<(), PortalRefused> {
        let Some(runtime) = &self.runtime else {
            return Err(PortalRefused::of("it has ended"));
        };
        match runtime.spawn(work).await {
            Ok(done) => done.map_err(PortalRefused::of),
            Err(panicked) => Err(PortalRefused::of(panicked)),
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // In the background, since the last owner may be a task of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded")
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}

/// What a population's name lends to the names of its nodes and clusters: short enough to be numbered.
fn stem(name: &str) -> String {
    let plain = name.chars().map(|c| match c {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    });
    let stem: String = plain.take(40).collect();
    match stem.trim_matches('-') {
        "" => "nodes".to_owned(),
        stem => stem.to_owned(),
    }
}

/// How an operation stands at the portal, as a result says it.
pub(crate) fn end_of(status: OperationStatus) -> OperationEnd {
    match status {
        OperationStatus::Queued | OperationStatus::HandedOut | OperationStatus::Running => {
            OperationEnd::Unfinished
        }
        OperationStatus::Succeeded => OperationEnd::Succeeded,
        OperationStatus::Failed => OperationEnd::Failed,
        OperationStatus::Unsupported => OperationEnd::Unsupported,
        OperationStatus::Refused => OperationEnd::Refused,
    }
}

/// Whether an event is the last one of its operation: it is of no step, and it says how it ended.
pub(crate) fn is_final(event: &OperationEvent) -> bool {
    event.step.is_none() && event.state != EventState::Started
}

/// A manifest whose artifacts nobody can fetch.
fn manifest(release: &ReleaseSpec, now: Timestamp) -> Manifest {
    let version = &release.version;
    let hash = |of: &str| Sha256Hex::of(format!("{of} {version}").as_bytes());
    let url = |of: &str| format!("https://artifacts.invalid/{version}/{of}");
    Manifest {
        version: version.clone(),
        created_at: now,
        floor: release.floor,
        template_engine: TemplateEngine::Minijinja,
        agent: AgentRelease {
            version: release.agent_version.clone(),
            artifacts: vec![AgentArtifact {
                arch: Arch::Amd64,
                url: url("agent"),
                sha256: hash("agent"),
                size: 9_123_456,
            }],
        },
        image: ImageRelease {
            k3s_version: crate::live::K3S_VERSION.to_owned(),
            artifacts: vec![ImageArtifact {
                arch: Arch::Amd64,
                url: url("image"),
                sha256: hash("image"),
                size: 512_000_000,
                entry: crate::live::boot_entry(version),
                image_sha256: hash("booted image"),
            }],
        },
        addons: release
            .addons
            .iter()
            .map(|name| AddonTemplate {
                name: name.clone(),
                requires: Vec::new(),
                conflicts: Vec::new(),
                template: chart_template(name),
                health: None,
            })
            .collect(),
    }
}

/// A chart of the add-on's name with the document's options as its values.
fn chart_template(name: &AddonName) -> String {
    format!(
        "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  name: {name}\n  namespace: kube-system\nspec:\n  \
         chart: {name}\n  targetNamespace: {name}\n  createNamespace: true\n  valuesContent: |-\n    \
         {{{{ options | tojson }}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_populations_name_makes_names_of_nodes() {
        for (name, expected) in [
            ("nodes", "nodes"),
            ("fsn1 (spare)", "fsn1--spare"),
            ("ü", "nodes"),
            (&"x".repeat(63), &"x".repeat(40)),
        ] {
            assert_eq!(stem(name), expected);
            assert!(NodeName::new(format!("{}-1000000", stem(name))).is_ok());
        }
    }
}
