//! The portal that a run starts itself: the mock portal over TLS, on threads of its own. With a fleet in several shards
//! each shard has one, in a process of its own, which holds just that shard's clusters.
//!
//! Agents reach it over sockets like any other; the run reaches it by what it can be asked here, which is done by its
//! control verbs, without HTTP. It is fresh: the same seed gives the same tokens and IDs in every run.

use std::sync::Arc;

use mock_portal::serve::BindError;
use mock_portal::strictness::Profile;
use mock_portal::tls::Certificate;
use mock_portal::{Config, Running, Server};
use portal_core::control::{OperationInput, OperationStatus, TokenLine, TokensInput};
use protocol::hash::Sha256Hex;
use protocol::id::{AddonName, AgentId, Arch, ClusterId, Generation, NodeName, OperationId};
use protocol::pbx::operation::{Consent, EventState, OperationEvent, OperationKind};
use protocol::pbx::release::{
    AddonTemplate, AgentArtifact, AgentRelease, ImageArtifact, ImageRelease, Manifest,
    TemplateEngine,
};
use protocol::sign::SigningPublicKey;
use protocol::time::Timestamp;
use record::fleet::OperationEnd;
use record::result::IndexRange;
use record::{Outcome, PortalCounters};
use scenario::{DocumentSpec, Population, PortalSpec, ReleaseSpec};
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

use crate::usage::{self, Part, room_for_threads, runtime_threads};
use crate::worker::{Ask, Worker, orders};

/// A running portal, with what it counted in earlier lives.
pub struct Embedded {
    runtime: Option<Runtime>,
    running: Arc<tokio::sync::Mutex<Running>>,
    earlier: PortalCounters,
}

/// How a portal is to be.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct PortalSetup {
    /// Whether it lets pass what a lenient portal may let pass.
    pub is_friendly: bool,
    /// Where its keys, tokens and IDs come from.
    pub seed: u64,
}

/// Where a portal is reached, and what has to be known of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PortalReady {
    /// Its base URL.
    pub base_url: String,
    /// Who has signed its certificate, in PEM.
    pub ca_pem: String,
    /// The keys that its releases are signed with.
    pub release_keys: Vec<SigningPublicKey>,
}

/// Why the embedded portal cannot be had, or does not do what it is asked; with what to do where that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the embedded portal: {0}")]
pub struct PortalRefused(String);

impl PortalRefused {
    fn of(why: impl ToString) -> Self {
        Self(why.to_string())
    }
}

impl PortalSetup {
    /// The portal of a shard. Each has a seed of its own, so that no two give out the same IDs.
    pub fn of(spec: &PortalSpec, seed: u64, shard: usize) -> Self {
        let derived = || {
            let text = format!("portal of shard\n{seed}\n{shard}\n");
            let hash = Sha256Hex::of(text.as_bytes());
            u64::from_be_bytes(std::array::from_fn(|at| hash.as_bytes()[at]))
        };
        Self {
            is_friendly: spec.profile == scenario::Profile::Friendly,
            seed: match shard {
                0 => seed,
                _ => derived(),
            },
        }
    }
}

impl Embedded {
    /// Starts one on loopback, on a free port.
    ///
    /// # Errors
    /// When no address or no certificate can be had.
    async fn start(setup: PortalSetup) -> Result<(Self, PortalReady), PortalRefused> {
        room_for_threads(runtime_threads()).map_err(PortalRefused::of)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name(Part::Portal.thread_name())
            .enable_all()
            .build()
            .map_err(PortalRefused::of)?;
        let config = Config {
            certificate: Some(Certificate::self_signed(None).map_err(PortalRefused::of)?),
            profile: match setup.is_friendly {
                false => Profile::Strict,
                true => Profile::Friendly,
            },
            ..Config::new(mock_portal::keys::settings_of_seed(setup.seed))
        };
        let starting = runtime.spawn(Server::start(config)).await;
        let running = starting
            .map_err(PortalRefused::of)?
            .map_err(PortalRefused::of)?;
        let ready = PortalReady {
            base_url: running.agents_url.clone(),
            ca_pem: running.ca_pem.clone().unwrap_or_default(),
            release_keys: running.release_keys.iter().map(|key| key.public).collect(),
        };
        let embedded = Self {
            running: Arc::new(tokio::sync::Mutex::new(running)),
            runtime: Some(runtime),
            earlier: PortalCounters::default(),
        };
        Ok((embedded, ready))
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
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

impl Worker for Embedded {
    const NAME: &'static str = Part::Portal.thread_name();
    type Setup = PortalSetup;
    type Ready = PortalReady;
    type Order = PortalOrder;

    async fn begin(setup: PortalSetup) -> Result<(Self, PortalReady), String> {
        usage::raise_files_limit();
        Self::start(setup).await.map_err(|why| why.to_string())
    }

    async fn obey(&mut self, order: PortalOrder) -> serde_json::Result<String> {
        order.done_by(self).await
    }
}

orders! {
    /// What a portal can be asked.
    pub enum PortalOrder of Embedded {
        MakeTokens,
        SetDocuments,
        PostOperations,
        LookUpOperations,
        Revoke,
        Publish,
        Reset,
        Restart,
        Count,
        CpuTime,
    }
}

/// Makes tokens for agents of a population, in their order.
#[derive(Debug, Serialize, Deserialize)]
pub struct MakeTokens {
    /// The population's name.
    population: String,
    servers_per_cluster: u64,
    agents: IndexRange,
}

impl MakeTokens {
    /// Tokens for these agents of a population, whose first is also the first of its cluster.
    pub fn of(population: &Population, agents: IndexRange) -> Self {
        Self {
            population: population.name.clone(),
            servers_per_cluster: population.servers_per_cluster,
            agents,
        }
    }

    fn input(&self) -> Result<TokensInput, PortalRefused> {
        let stem = stem(&self.population);
        let whole = |number: u64| u32::try_from(number).map_err(PortalRefused::of);
        Ok(TokensInput {
            cluster_id: ClusterId::new(format!("clu_{stem}")).map_err(PortalRefused::of)?,
            node_name: NodeName::new(&stem).map_err(PortalRefused::of)?,
            server_id: None,
            boot_image_sha256: None,
            expires_in_seconds: None,
            count: Some(whole(self.agents.count)?),
            first: Some(whole(self.agents.first)?.saturating_add(1)),
            servers_per_cluster: Some(whole(self.servers_per_cluster)?),
        })
    }
}

impl Ask<Embedded> for MakeTokens {
    type Answer = Result<Vec<TokenLine>, PortalRefused>;

    async fn done_by(self, portal: &mut Embedded) -> Self::Answer {
        let input = self.input()?;
        let running = portal.running.lock().await;
        let (made, _) = running
            .control()
            .make_tokens(&input)
            .map_err(PortalRefused::of)?;
        Ok(made.tokens)
    }
}

/// Sets the document of clusters. A cluster that the portal does not know is refused, as after a reset.
#[derive(Serialize, Deserialize)]
pub struct SetDocuments {
    /// The clusters.
    pub clusters: Vec<ClusterId>,
    /// Their document, secrets in clear: the control API's body.
    pub document: Value,
}

impl SetDocuments {
    /// The document of a scenario, for these clusters.
    pub fn of(document: &DocumentSpec, clusters: Vec<ClusterId>) -> Self {
        let document = serde_json::to_value(document);
        Self {
            clusters,
            document: document.expect("a document has string keys only"),
        }
    }
}

impl Ask<Embedded> for SetDocuments {
    type Answer = Vec<Result<Generation, PortalRefused>>;

    async fn done_by(self, portal: &mut Embedded) -> Self::Answer {
        let running = portal.running.lock().await;
        let control = running.control();
        let set = |cluster: &ClusterId| {
            let input = serde_json::from_value(self.document.clone()).map_err(PortalRefused::of)?;
            let (set, _) = control
                .set_desired(cluster, input)
                .map_err(PortalRefused::of)?;
            Ok(set.generation)
        };
        self.clusters.iter().map(set).collect()
    }
}

/// Gives clusters operations. A cluster that the portal does not know is refused, as after a reset.
#[derive(Debug, Serialize, Deserialize)]
pub struct PostOperations(pub Vec<NewOperation>);

/// An operation for a cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewOperation {
    /// The cluster.
    pub cluster: ClusterId,
    /// What is to be done.
    pub kind: OperationKind,
    /// The server that is to run it; without, the portal chooses.
    pub target: Option<NodeName>,
    /// Its parameters, secrets in clear.
    pub params: Map<String, Value>,
    /// Who agreed to it.
    pub consent: Option<Consent>,
}

impl Ask<Embedded> for PostOperations {
    type Answer = Vec<Result<OperationId, PortalRefused>>;

    async fn done_by(self, portal: &mut Embedded) -> Self::Answer {
        let running = portal.running.lock().await;
        let control = running.control();
        let post = |new: NewOperation| {
            let input = OperationInput {
                kind: new.kind,
                target: new.target,
                params: to_raw_value(&new.params)
                    .map(Arc::from)
                    .map_err(PortalRefused::of)?,
                consent: new.consent,
            };
            let (posted, _) = control
                .post_operation(&new.cluster, input)
                .map_err(PortalRefused::of)?;
            Ok(posted.id)
        };
        self.0.into_iter().map(post).collect()
    }
}

/// Looks operations up; none for those that the portal has forgotten.
#[derive(Debug, Serialize, Deserialize)]
pub struct LookUpOperations(pub Vec<OperationId>);

/// An operation as the portal has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OperationSeen {
    /// Its kind.
    pub kind: OperationKind,
    /// How it stands.
    pub end: OperationEnd,
    /// Events that say how it ended.
    pub finals: u64,
    /// Events that came again and were different.
    pub different_repeats: u64,
    /// What came of it.
    pub result: Option<Value>,
}

impl Ask<Embedded> for LookUpOperations {
    type Answer = Vec<Option<OperationSeen>>;

    async fn done_by(self, portal: &mut Embedded) -> Self::Answer {
        let running = portal.running.lock().await;
        let control = running.control();
        let look_up = |id: &OperationId| {
            let view = control.operation(id).ok()?;
            let finals = view.events.iter().filter(|event| is_final(event));
            Some(OperationSeen {
                end: end_of(view.state),
                finals: finals.count() as u64,
                different_repeats: view.different_repeats,
                result: view
                    .result
                    .and_then(|result| serde_json::from_str(result.get()).ok()),
                kind: view.kind,
            })
        };
        self.0.iter().map(look_up).collect()
    }
}

/// Revokes agents; answers why some were not.
#[derive(Debug, Serialize, Deserialize)]
pub struct Revoke(pub Vec<AgentId>);

impl Ask<Embedded> for Revoke {
    type Answer = Vec<PortalRefused>;

    async fn done_by(self, portal: &mut Embedded) -> Self::Answer {
        let running = portal.running.lock().await;
        let control = running.control();
        let refused = |agent| control.revoke(agent).err().map(PortalRefused::of);
        self.0.iter().filter_map(refused).collect()
    }
}

/// Publishes a release.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Publish {
    /// The manifest, not yet signed.
    pub manifest: Manifest,
}

impl Publish {
    /// A release, its artifacts made up.
    pub fn of(release: &ReleaseSpec, now: Timestamp) -> Self {
        Self {
            manifest: manifest(release, now),
        }
    }
}

impl Ask<Embedded> for Publish {
    type Answer = Result<(), PortalRefused>;

    async fn done_by(self, portal: &mut Embedded) -> Self::Answer {
        let payload = serde_json::to_vec(&self.manifest).map_err(PortalRefused::of)?;
        let running = portal.running.lock().await;
        let published = running.control().publish_release(&payload);
        published.map(drop).map_err(PortalRefused::of)
    }
}

/// Forgets everything but addresses and keys. What it had counted still counts.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Reset;

impl Ask<Embedded> for Reset {
    type Answer = ();

    async fn done_by(self, portal: &mut Embedded) {
        let (counted, _) = portal.running.lock().await.control().reset();
        for line in counted.answers {
            if let Some(endpoint) = line.endpoint {
                let outcome = line.code.map_or(Outcome::Ok, Outcome::Problem);
                portal.earlier.received[endpoint] += line.count;
                portal.earlier.answered[endpoint][outcome] += line.count;
            }
        }
    }
}

/// Ends as if its power were cut, and starts again. Fails when its address is gone.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Restart {
    /// Whether it still knows what it knew.
    pub with_data: bool,
}

impl Ask<Embedded> for Restart {
    type Answer = Result<(), PortalRefused>;

    async fn done_by(self, portal: &mut Embedded) -> Self::Answer {
        let running = Arc::clone(&portal.running);
        let restart = async move { running.lock_owned().await.restart(self.with_data).await };
        portal.on_its_threads(restart).await
    }
}

/// What it counted, over all of its lives.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Count;

impl Ask<Embedded> for Count {
    type Answer = PortalCounters;

    async fn done_by(self, portal: &mut Embedded) -> PortalCounters {
        let mut counters = portal.running.lock().await.counters();
        counters.add(&portal.earlier);
        counters
    }
}

/// Processor time that its threads have taken, in microseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct CpuTime;

impl Ask<Embedded> for CpuTime {
    type Answer = u64;

    async fn done_by(self, _: &mut Embedded) -> u64 {
        usage::cpu_us(Part::Portal)
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
fn end_of(status: OperationStatus) -> OperationEnd {
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
fn is_final(event: &OperationEvent) -> bool {
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
