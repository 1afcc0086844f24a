//! `POST /enroll` from its keys on: a token for an identity (ENR-4, ENR-10, and the end of SIGN-6).

use std::sync::Arc;

use protocol::hash::Sha256Hex;
use protocol::id::{AgentId, ClusterId, EnrollmentToken, ManifestName, NodeName, ServerId};
use protocol::pbx::enroll::{EnrollAnswer, EnrollRequest, FirstManifest, K3sBootstrap};
use protocol::problem::ProblemCode;
use protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::answer::Refused;
use crate::clock::Moment;
use crate::hetzner::{Asked, Hetzner};
use crate::identities::{Enrollment, KeyPair, Registry, strong_keys};
use crate::releases::Releases;
use crate::seals::Seals;
use crate::state::{Change, Cluster, Work};

/// A token, whom it is for, and who used it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Token {
    pub(crate) bound: TokenBounds,
    pub(crate) used_by: Option<AgentId>,
}

/// Whom a token is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenBounds {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node_name: NodeName,
    /// The server; none for the first that comes.
    pub server_id: Option<ServerId>,
    /// The boot image; none for any.
    pub boot_image_sha256: Option<Sha256Hex>,
    /// When it can no longer be used for the first time; none for never.
    pub expires_at: Option<Timestamp>,
}

/// What a token is kept by.
pub(crate) fn hash_of(token: &EnrollmentToken) -> Sha256Hex {
    Sha256Hex::of(token.expose().as_bytes())
}

/// What an enrollment looks at and does not change.
#[derive(Clone, Copy)]
pub(crate) struct Outside<'a> {
    pub(crate) releases: &'a Releases,
    pub(crate) hetzner: &'a Hetzner,
}

/// Decides. In the order of SIGN-6, one refusal a step; nothing changes before the last.
pub(crate) fn enroll(
    work: &mut Work<'_>,
    registry: &mut Registry,
    outside: Outside<'_>,
    seals: &mut Seals,
    request: &EnrollRequest,
    moment: Moment,
) -> Result<(AgentId, EnrollAnswer), Box<Refused>> {
    let (signing, sealing) = strong_keys(&request.signing_key, &request.sealing_key)?;

    let token_hash = hash_of(&request.token);
    let Some(token) = work.state().tokens.get(&token_hash) else {
        return Err(Refused::new(
            ProblemCode::InvalidToken,
            "ENR-4",
            "a token that this portal made",
            "another",
        ));
    };
    let bound = &token.bound;
    if (&request.cluster_id, &request.node_name) != (&bound.cluster, &bound.node_name) {
        let expected = format!(
            "cluster {} and node {}, which the token is for",
            bound.cluster, bound.node_name
        );
        let came = format!(
            "cluster {} and node {}",
            request.cluster_id, request.node_name
        );
        return Err(Refused::new(
            ProblemCode::ServerMismatch,
            "ENR-4",
            expected,
            came,
        ));
    }
    if let Some(agent_id) = &token.used_by {
        return again(work, agent_id, request, moment);
    }
    if let Some(expires_at) = bound
        .expires_at
        .filter(|expires_at| moment.time >= *expires_at)
    {
        let expected = format!("a token before it expires, at {expires_at}");
        return Err(Refused::new(
            ProblemCode::TokenExpired,
            "ENR-4",
            expected,
            format!("one at {}", moment.time),
        ));
    }
    if let Some(server_id) = bound
        .server_id
        .filter(|server_id| *server_id != request.server_id)
    {
        let expected = format!("server {server_id}, which the token is for");
        return Err(Refused::new(
            ProblemCode::ServerMismatch,
            "ENR-4",
            expected,
            format!("server {}", request.server_id),
        ));
    }
    if let Some(owner) = registry.owner_of_signing(&request.signing_key) {
        let came = format!("the signing key of agent {owner}");
        return Err(Refused::new(
            ProblemCode::Conflict,
            "SIGN-6",
            "a signing key that no agent has registered",
            came,
        ));
    }
    match outside
        .hetzner
        .ask(request.server_id, &bound.cluster, &bound.node_name)
    {
        Asked::Fits => {}
        Asked::Differs(carried) => {
            let expected = format!(
                "server {} with label {:?} and name {:?} at the Hetzner API",
                request.server_id,
                bound.cluster.as_str(),
                bound.node_name.as_str()
            );
            return Err(Refused::new(
                ProblemCode::ServerMismatch,
                "ENR-4",
                expected,
                format!("one with {carried}"),
            ));
        }
        Asked::Unreachable => {
            let expected = format!("what the Hetzner API says of server {}", request.server_id);
            return Err(Refused::new(
                ProblemCode::Internal,
                "ENR-4",
                expected,
                "no answer from it; try again later",
            ));
        }
    }
    if let Some(image) = bound
        .boot_image_sha256
        .filter(|image| *image != request.boot_image_sha256)
    {
        let expected = format!("boot image {image}, which the token is for");
        let came = format!("boot image {}", request.boot_image_sha256);
        return Err(Refused::new(
            ProblemCode::ImageMismatch,
            "ENR-4",
            expected,
            came,
        ));
    }

    let bound = bound.clone();
    let Some(cluster) = work.state().clusters.get(&bound.cluster) else {
        return Err(Refused::new(
            ProblemCode::Internal,
            "KEY-4",
            "the token's cluster",
            "none of that ID",
        ));
    };
    let keys = KeyPair {
        signing,
        sealing,
        registered_at: moment.time,
        replaces: None,
    };
    let agent_id = seals.mint_agent(work.state());
    let answer = bootstrap(
        cluster,
        &bound.cluster,
        &agent_id,
        &keys,
        outside.releases,
        seals,
        moment,
    );
    let enrollment = Enrollment {
        at: moment.time,
        server_id: request.server_id,
        keys,
        agent_version: request.agent_version.clone(),
        arch: request.arch,
        answer: Arc::new(answer.clone()),
    };
    work.change_keys(
        Change::Enrolled {
            token: token_hash,
            agent: agent_id.clone(),
            enrollment,
        },
        registry,
    );
    Ok((agent_id, answer))
}

/// A token that was used: the same answer to the same two keys and server, also after it expired; nothing to anybody else,
/// nor to an agent that is revoked (ENR-10).
fn again(
    work: &Work<'_>,
    agent_id: &AgentId,
    request: &EnrollRequest,
    moment: Moment,
) -> Result<(AgentId, EnrollAnswer), Box<Refused>> {
    let used = |came| {
        Refused::new(
            ProblemCode::TokenUsed,
            "ENR-10",
            "the keys and the server that the token was used with",
            came,
        )
    };
    let agent = work
        .agent(agent_id)
        .ok_or_else(|| used("an agent that is gone"))?;
    let with = &agent.enrollment;
    if agent.is_revoked() {
        return Err(used("the token of a revoked agent"));
    }
    if (with.keys.signing.public(), with.keys.sealing) != (request.signing_key, request.sealing_key)
    {
        return Err(used("other keys"));
    }
    if with.server_id != request.server_id {
        return Err(used("another server"));
    }
    Ok((
        agent_id.clone(),
        EnrollAnswer {
            portal_time: moment.time,
            ..EnrollAnswer::clone(&with.answer)
        },
    ))
}

/// What the node gets: the cluster's document says its release and secrets, if there is one.
fn bootstrap(
    cluster: &Cluster,
    cluster_id: &ClusterId,
    agent_id: &AgentId,
    keys: &KeyPair,
    releases: &Releases,
    seals: &mut Seals,
    moment: Moment,
) -> EnrollAnswer {
    let document = cluster.document.as_ref().map(|document| &document.input);
    let secrets = document.map_or(&cluster.secrets.bootstrap, |input| &input.secrets);
    let mut seal = |secret: &_| seals.seal(&keys.sealing, secret);
    EnrollAnswer {
        agent_id: agent_id.clone(),
        portal_time: moment.time,
        release: document.map_or_else(|| releases.latest().clone(), |input| input.release.clone()),
        k3s: K3sBootstrap {
            config: k3s_config(),
            token: seal(&cluster.secrets.k3s_token),
            agent_token: seal(&cluster.secrets.k3s_agent_token),
        },
        secrets: secrets.seal(&mut seal),
        manifests: vec![FirstManifest {
            name: ManifestName::new("pbx-hcloud-ccm.yaml")
                .expect("a name of the protocol's example"),
            content: format!(
                "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  name: hcloud-ccm\n  namespace: kube-system\n  \
                 labels:\n    pbx.io/managed: \"true\"\nspec:\n  chart: hcloud-cloud-controller-manager\n  \
                 targetNamespace: kube-system\n  set:\n    clusterID: {cluster_id}\n"
            ),
        }],
    }
}

/// k3s's configuration: the first server of a cluster with snapshots in the bucket that the Secret names (FILE-17).
fn k3s_config() -> Map<String, Value> {
    let members = [
        ("cluster-init", Value::Bool(true)),
        ("etcd-s3", Value::Bool(true)),
        ("etcd-s3-config-secret", Value::from("pbx-etcd-s3")),
    ];
    members
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
