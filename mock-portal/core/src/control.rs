//! The control API's verbs, typed: what whoever runs the portal may ask of it and set.
//!
//! Each verb that changes something returns what it says and the [`Changes`] that it made, as [`Portal::answer`] does.
//! How a verb is spelled in HTTP, and whether whoever asks may, is the shell's affair.

mod ask;
mod say;

pub use crate::documents::{AddonInput, DesiredInput, S3Input, SecretsInput};
pub use crate::hetzner::HetznerServer;
pub use ask::{AgentsQuery, AgentsState, ClockInput, OperationInput, TokensInput};
pub use say::{
    AgentDetail, AgentKey, AgentState, AgentSummary, AgentsPage, Census, ClockView, CounterLine,
    Counters, DesiredSet, DesiredView, OperationPosted, OperationStatus, OperationView,
    ReleaseKeyView, ReleasePublished, ReleaseView, TokenLine, TokensMade,
};

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use protocol::id::{AgentId, ClusterId, Generation, NodeName, OperationId, ServerId};
use protocol::json::JsonRefusal;
use protocol::limits::BODY_BYTES_MAX;
use protocol::pbx::operation::{OperationKind, ParamsRefusal};
use protocol::verified::sign_manifest;
use serde::Serialize;

use crate::clock::ClockSetting;
use crate::documents::Document;
use crate::enroll::{TokenBounds, hash_of};
use crate::operations::ClearParams;
use crate::portal::{Portal, Shard};
use crate::releases::{self, Releases};
use crate::request::PortalNow;
use crate::state::{Change, Changes, Work};

/// The verbs, at one moment.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    portal: &'a Portal,
    now: PortalNow,
}

/// Why a verb was refused: what, why and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// 404.
    #[error("no agent {0} here; GET /agents lists those that are")]
    UnknownAgent(AgentId),
    /// 404.
    #[error("no cluster {0} here; a cluster arises when POST /tokens names it")]
    UnknownCluster(ClusterId),
    /// 404.
    #[error("no operation {0} here; POST /clusters/{{id}}/operations makes one and tells its ID")]
    UnknownOperation(OperationId),
    /// 400.
    #[error("{member}: {why}")]
    Invalid {
        /// The member of the request.
        member: String,
        /// What is wrong with it, and what it must be.
        why: String,
    },
    /// 400.
    #[error("the manifest is refused: {0}")]
    Manifest(JsonRefusal),
}

/// A document as it is set, with its secrets in clear: sealed and beside an operation it still fits into an answer (WIRE-2).
const DOCUMENT_BYTES_MAX: usize = 128 * 1024;
/// An operation as it is posted: its kind, its parameters and the consent to it (WIRE-2).
const OPERATION_BYTES_MAX: usize = 32 * 1024;

/// Refuses what no agent would read to its end (WIRE-2).
fn fits(what: &str, bytes: usize, most: usize) -> Result<(), ControlError> {
    if bytes <= most {
        return Ok(());
    }
    let why =
        format!("it has {bytes} bytes, and agents read no answer with more than {most} of it");
    Err(ControlError::invalid(what, why))
}

fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

impl<'a> Control<'a> {
    pub(crate) fn new(portal: &'a Portal, now: PortalNow) -> Self {
        Self { portal, now }
    }

    /// `POST /tokens`. Clusters that the tokens name arise.
    pub fn make_tokens(&self, input: &TokensInput) -> Result<(TokensMade, Changes), ControlError> {
        let moment = self.portal.moment(self.now);
        let bounds = input.bounds(moment.time)?;
        let shards = self.portal.settings().shards;
        let mut by_shard: BTreeMap<usize, Vec<(usize, TokenBounds)>> = BTreeMap::new();
        for (at, bound) in bounds.into_iter().enumerate() {
            by_shard
                .entry(shards.of_cluster(&bound.cluster))
                .or_default()
                .push((at, bound));
        }
        let mut locked: Vec<_> = by_shard
            .keys()
            .map(|index| self.portal.shard(*index))
            .collect();
        let (mut tokens, mut changes) = (Vec::new(), Vec::new());
        for (shard, bounds) in locked.iter_mut().zip(by_shard.into_values()) {
            let Shard { state, seals, .. } = &mut **shard;
            let mut work = Work::new(state);
            for (at, bound) in bounds {
                if !work.state().clusters.contains_key(&bound.cluster) {
                    let secrets = seals.cluster_secrets(&bound.cluster);
                    work.change(Change::ClusterMade {
                        cluster: bound.cluster.clone(),
                        secrets,
                    });
                }
                let token = seals.mint_token(work.state());
                tokens.push((at, TokenLine::of(&token, &bound)));
                work.change(Change::TokenMade {
                    token: hash_of(&token),
                    bound,
                });
            }
            changes.extend(work.into_changes());
        }
        tokens.sort_by_key(|(at, _)| *at);
        let tokens = tokens.into_iter().map(|(_, line)| line).collect();
        Ok((TokensMade { tokens }, self.portal.numbered(changes)))
    }

    /// `GET /agents`.
    pub fn agents(&self, query: &AgentsQuery) -> Result<AgentsPage, ControlError> {
        let limit = query.limit.unwrap_or(100);
        if !(1..=1000).contains(&limit) {
            return Err(ControlError::invalid(
                "limit",
                format!("{limit} is refused; it must be 1 to 1000"),
            ));
        }
        let limit = limit as usize;
        let shards = self.portal.settings().shards;
        let first = query
            .cursor
            .as_ref()
            .map_or(0, |cursor| shards.of_agent(cursor));
        let behind = query
            .cursor
            .as_ref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let mut agents = Vec::new();
        // IDs begin with their shard's number, so the shards in order are the agents in order.
        for index in first..shards.count() {
            let shard = self.portal.shard(index);
            let found = shard
                .state
                .agents
                .range::<AgentId, _>((behind, Bound::Unbounded))
                .filter(|(_, agent)| query.wants(agent));
            agents.extend(
                found
                    .map(|(id, agent)| AgentSummary::of(id, agent))
                    .take(limit + 1 - agents.len()),
            );
            if agents.len() > limit {
                break;
            }
        }
        let more = agents.len() > limit;
        agents.truncate(limit);
        let next_cursor = if more {
            agents.last().map(|agent| agent.id.clone())
        } else {
            None
        };
        Ok(AgentsPage {
            agents,
            next_cursor,
        })
    }

    /// `GET /agents/{id}`.
    pub fn agent(&self, agent: &AgentId) -> Result<AgentDetail, ControlError> {
        let shard = self
            .portal
            .shard(self.portal.settings().shards.of_agent(agent));
        let found = shard
            .state
            .agents
            .get(agent)
            .map(|found| AgentDetail::of(agent, found));
        found.ok_or_else(|| ControlError::UnknownAgent(agent.clone()))
    }

    /// `POST /agents/{id}/revoke`. Revoking a revoked agent changes nothing.
    pub fn revoke(&self, agent: &AgentId) -> Result<(AgentSummary, Changes), ControlError> {
        let moment = self.portal.moment(self.now);
        let mut shard = self
            .portal
            .shard(self.portal.settings().shards.of_agent(agent));
        let mut work = Work::new(&mut shard.state);
        let unknown = || ControlError::UnknownAgent(agent.clone());
        if !work.agent(agent).ok_or_else(unknown)?.is_revoked() {
            work.change(Change::Revoked {
                agent: agent.clone(),
                at: moment.time,
            });
        }
        let summary = AgentSummary::of(agent, work.agent(agent).ok_or_else(unknown)?);
        Ok((summary, self.portal.numbered(work.into_changes())))
    }

    /// `PUT /clusters/{id}/desired`.
    pub fn set_desired(
        &self,
        cluster: &ClusterId,
        input: DesiredInput,
    ) -> Result<(DesiredSet, Changes), ControlError> {
        fits("document", json_bytes(&input), DOCUMENT_BYTES_MAX)?;
        let moment = self.portal.moment(self.now);
        let mut shard = self
            .portal
            .shard(self.portal.settings().shards.of_cluster(cluster));
        let mut work = Work::new(&mut shard.state);
        let found = work
            .state()
            .clusters
            .get(cluster)
            .ok_or_else(|| ControlError::UnknownCluster(cluster.clone()))?;
        let generation = Generation(
            found
                .document
                .as_ref()
                .map_or(0, |document| document.generation.0)
                + 1,
        );
        let warnings = warnings(&self.portal.releases(), &input);
        let document = Document {
            generation,
            set_at: moment.time,
            input,
        };
        work.change(Change::DocumentSet {
            cluster: cluster.clone(),
            document,
        });
        Ok((
            DesiredSet {
                generation,
                warnings,
            },
            self.portal.numbered(work.into_changes()),
        ))
    }

    /// `GET /clusters/{id}/desired`.
    pub fn desired(&self, cluster: &ClusterId) -> Result<DesiredView, ControlError> {
        let shard = self
            .portal
            .shard(self.portal.settings().shards.of_cluster(cluster));
        let found = shard
            .state
            .clusters
            .get(cluster)
            .ok_or_else(|| ControlError::UnknownCluster(cluster.clone()))?;
        let document = found.document.as_ref();
        Ok(DesiredView {
            generation: document.map_or(Generation(0), |document| document.generation),
            set_at: document.map(|document| document.set_at),
            desired: document.map(|document| document.input.redacted()),
        })
    }

    /// `POST /clusters/{id}/operations`. Parameters of a kind that is known must be those of that kind.
    pub fn post_operation(
        &self,
        cluster: &ClusterId,
        input: OperationInput,
    ) -> Result<(OperationPosted, Changes), ControlError> {
        let moment = self.portal.moment(self.now);
        let bytes =
            input.kind.as_str().len() + input.params.get().len() + json_bytes(&input.consent);
        fits("operation", bytes, OPERATION_BYTES_MAX)?;
        let params = ClearParams::new(input.params);
        let mut warnings = Vec::new();
        match params.check(&input.kind) {
            Ok(unknown) => {
                let told = |name: String| {
                    format!("{} has no parameter {name:?}; agents ignore it", input.kind)
                };
                warnings.extend(unknown.into_iter().map(told));
            }
            Err(ParamsRefusal::Unsupported { kind }) => {
                warnings.push(format!(
                    "no agent knows operation kind {kind:?}; it will be answered unsupported"
                ));
            }
            Err(refusal) => return Err(ControlError::invalid("params", refusal.to_string())),
        }
        if input.kind == OperationKind::DiagCollect && input.consent.is_none() {
            warnings.push("diag.collect without consent will be refused".to_owned());
        }
        let mut shard = self
            .portal
            .shard(self.portal.settings().shards.of_cluster(cluster));
        let Shard { state, seals, .. } = &mut *shard;
        let mut work = Work::new(state);
        let found = work
            .state()
            .clusters
            .get(cluster)
            .ok_or_else(|| ControlError::UnknownCluster(cluster.clone()))?;
        let is_of = |node: &NodeName| {
            found
                .agents
                .iter()
                .any(|id| work.agent(id).is_some_and(|agent| agent.node_name == *node))
        };
        if let Some(target) = input.target.as_ref().filter(|target| !is_of(target)) {
            warnings.push(format!(
                "no agent of node {target} is enrolled yet; the operation waits for it"
            ));
        }
        let id = seals.mint_operation(work.state());
        work.change(Change::OperationMade {
            operation: id.clone(),
            cluster: cluster.clone(),
            kind: input.kind,
            target: input.target,
            params,
            consent: input.consent,
            at: moment.time,
        });
        Ok((
            OperationPosted { id, warnings },
            self.portal.numbered(work.into_changes()),
        ))
    }

    /// `GET /operations/{id}`.
    pub fn operation(&self, operation: &OperationId) -> Result<OperationView, ControlError> {
        let shard = self
            .portal
            .shard(self.portal.settings().shards.of_operation(operation));
        let found = shard
            .state
            .operations
            .get(operation)
            .map(|found| found.view(operation));
        found.ok_or_else(|| ControlError::UnknownOperation(operation.clone()))
    }

    /// `GET /releases`.
    pub fn releases(&self) -> Vec<ReleaseView> {
        self.portal.releases().views()
    }

    /// `POST /releases`: signs a manifest's payload as it stands and publishes it.
    pub fn publish_release(
        &self,
        payload: &[u8],
    ) -> Result<(ReleasePublished, Changes), ControlError> {
        let manifest = releases::read(payload).map_err(ControlError::Manifest)?;
        let key = &self.portal.settings().release_key;
        let signed = Arc::new(sign_manifest(key, payload));
        fits("manifest, signed,", json_bytes(&signed), BODY_BYTES_MAX)?;
        let mut releases = self.portal.releases_mut();
        let mut warnings = Vec::new();
        if releases.manifest(&manifest.version).is_some() {
            warnings.push(format!(
                "release {} was there before and is replaced",
                manifest.version
            ));
        }
        releases.publish(Arc::clone(&signed));
        let published = ReleasePublished {
            version: manifest.version,
            key_id: key.public().key_id(),
            warnings,
        };
        Ok((
            published,
            self.portal
                .numbered(vec![Change::ReleasePublished { signed }]),
        ))
    }

    /// The public halves of the keys that sign releases.
    pub fn release_keys(&self) -> Vec<ReleaseKeyView> {
        let public = self.portal.settings().release_key.public();
        vec![ReleaseKeyView {
            id: public.key_id(),
            public,
        }]
    }

    /// The portal's clock.
    pub fn clock(&self) -> ClockView {
        ClockView::of(*self.portal.clock(), self.now)
    }

    /// `PUT /clock`.
    pub fn set_clock(&self, input: ClockInput) -> (ClockView, Changes) {
        let ClockInput {
            offset_ms,
            drift_ppm,
        } = input;
        let setting = ClockSetting {
            offset_ms,
            drift_ppm,
            set_at_monotonic_ms: self.now.monotonic_ms,
        };
        let mut clock = self.portal.clock_mut();
        *clock = setting;
        (
            ClockView::of(setting, self.now),
            self.portal.numbered(vec![Change::ClockSet { setting }]),
        )
    }

    /// `PUT /hetzner/servers/{id}`: what the simulated Hetzner API says of a server from now on (ENR-4).
    pub fn put_hetzner_server(
        &self,
        server_id: ServerId,
        server: HetznerServer,
    ) -> Result<(HetznerServer, Changes), ControlError> {
        for (member, value) in [("label", &server.label), ("name", &server.name)] {
            let length = value.as_ref().map_or(0, String::len);
            if length > HETZNER_TEXT_BYTES_MAX {
                let why = format!(
                    "{length} bytes are refused; it must be at most {HETZNER_TEXT_BYTES_MAX}"
                );
                return Err(ControlError::invalid(member, why));
            }
        }
        let put = Change::HetznerServerPut {
            server_id,
            server: server.clone(),
        };
        let mut hetzner = self.portal.hetzner_mut();
        hetzner.apply(&put);
        Ok((server, self.portal.numbered(vec![put])))
    }

    /// `GET /counters`.
    pub fn counters(&self) -> Counters {
        self.portal.tally().read()
    }

    /// How much of everything there is, for `GET /metrics`.
    pub fn census(&self) -> Census {
        let mut census = Census {
            replay_capacity: self.portal.replay_capacity() as u64,
            ..Census::default()
        };
        for index in 0..self.portal.settings().shards.count() {
            census.add(&self.portal.shard(index));
        }
        census
    }

    /// `POST /reset`: forgets everything but settings and release keys, sets the clock right, empties the Hetzner API, and
    /// returns what was counted until then; every answer is counted either in it or afterwards.
    pub fn reset(&self) -> (Counters, Changes) {
        self.portal.empty_all(|clock, hetzner| {
            *clock = ClockSetting::default();
            hetzner.apply(&Change::HetznerForgotten);
            let set_right = Change::ClockSet { setting: *clock };
            (
                self.portal.tally().take(),
                self.portal
                    .numbered(vec![Change::Emptied, Change::HetznerForgotten, set_right]),
            )
        })
    }

    /// What a restart of a portal without `--data` does: forgets everything but settings, release keys, the clock's
    /// setting and the Hetzner API. The counters go on, since they are not the portal's memory but an observer's.
    pub fn restart_without_data(&self) -> Changes {
        self.portal
            .empty_all(|_, _| self.portal.numbered(vec![Change::Emptied]))
    }
}

/// Bytes of a label or name at the Hetzner API; its own limit is 63 characters.
const HETZNER_TEXT_BYTES_MAX: usize = 255;

/// What a document asks for that its release does not have; it is set all the same.
fn warnings(releases: &Releases, input: &DesiredInput) -> Vec<String> {
    let Some(manifest) = releases.manifest(&input.release) else {
        return vec![format!(
            "no release {} is published; agents will report manifest_rejected",
            input.release
        )];
    };
    let mut warnings = Vec::new();
    if manifest.agent.version != input.agent_version {
        let (release, has) = (&input.release, &manifest.agent.version);
        warnings.push(format!(
            "release {release} has agent {has}, not {}; agents will report manifest_rejected",
            input.agent_version
        ));
    }
    for addon in &input.addons {
        if !manifest
            .addons
            .iter()
            .any(|template| template.name == addon.name)
        {
            warnings.push(format!(
                "release {} has no add-on {}; agents will report it failed",
                input.release, addon.name
            ));
        }
    }
    warnings
}

impl ControlError {
    fn invalid(member: &str, why: String) -> Self {
        Self::Invalid {
            member: member.to_owned(),
            why,
        }
    }

    /// The HTTP status that goes with it.
    pub fn status(&self) -> u16 {
        match self {
            Self::UnknownAgent(_) | Self::UnknownCluster(_) | Self::UnknownOperation(_) => 404,
            Self::Invalid { .. } | Self::Manifest(_) => 400,
        }
    }
}
