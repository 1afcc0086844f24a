//! The control API's verbs, typed: what whoever runs the portal may ask of it and set.
//!
//! Each verb that changes something returns what it says and the [`Changes`] that it made, as [`Portal::answer`] does.
//! How a verb is spelled in HTTP, and whether whoever asks may, is the shell's affair.

mod ask;
mod say;

pub use ask::{
    AddonInput, AgentsQuery, AgentsState, ClockInput, DesiredInput, OperationInput, S3Input, SecretsInput, TokensInput,
};
pub use say::{
    AgentDetail, AgentKey, AgentState, AgentSummary, AgentsPage, ClockView, CounterLine, Counters, DesiredSet, DesiredView,
    OperationPosted, OperationStatus, OperationView, ReleaseKeyView, ReleasePublished, ReleaseView, TokenLine, TokensMade,
};

use protocol::id::{AgentId, ClusterId, OperationId};
use protocol::json::JsonRefusal;

use crate::portal::Portal;
use crate::request::PortalNow;
use crate::state::Changes;

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

impl<'a> Control<'a> {
    pub(crate) fn new(portal: &'a Portal, now: PortalNow) -> Self {
        Self { portal, now }
    }

    /// `POST /tokens`.
    pub fn make_tokens(&self, input: &TokensInput) -> Result<(TokensMade, Changes), ControlError> {
        self.not_yet(input)
    }

    /// `GET /agents`.
    pub fn agents(&self, query: &AgentsQuery) -> Result<AgentsPage, ControlError> {
        self.not_yet(query)
    }

    /// `GET /agents/{id}`.
    pub fn agent(&self, agent: &AgentId) -> Result<AgentDetail, ControlError> {
        Err(ControlError::UnknownAgent(agent.clone()))
    }

    /// `POST /agents/{id}/revoke`. Revoking a revoked agent changes nothing.
    pub fn revoke(&self, agent: &AgentId) -> Result<(AgentSummary, Changes), ControlError> {
        Err(ControlError::UnknownAgent(agent.clone()))
    }

    /// `PUT /clusters/{id}/desired`.
    pub fn set_desired(&self, cluster: &ClusterId, input: DesiredInput) -> Result<(DesiredSet, Changes), ControlError> {
        self.not_yet((cluster, input))
    }

    /// `GET /clusters/{id}/desired`.
    pub fn desired(&self, cluster: &ClusterId) -> Result<DesiredView, ControlError> {
        self.not_yet(cluster)
    }

    /// `POST /clusters/{id}/operations`.
    pub fn post_operation(
        &self,
        cluster: &ClusterId,
        input: OperationInput,
    ) -> Result<(OperationPosted, Changes), ControlError> {
        self.not_yet((cluster, input))
    }

    /// `GET /operations/{id}`.
    pub fn operation(&self, operation: &OperationId) -> Result<OperationView, ControlError> {
        Err(ControlError::UnknownOperation(operation.clone()))
    }

    /// `GET /releases`.
    pub fn releases(&self) -> Vec<ReleaseView> {
        Vec::new()
    }

    /// `POST /releases`: signs a manifest's payload as it stands and publishes it.
    pub fn publish_release(&self, payload: &[u8]) -> Result<(ReleasePublished, Changes), ControlError> {
        self.not_yet(payload)
    }

    /// The public halves of the keys that sign releases.
    pub fn release_keys(&self) -> Vec<ReleaseKeyView> {
        let public = self.portal.settings().release_key.public();
        vec![ReleaseKeyView { id: public.key_id(), public }]
    }

    /// The portal's clock.
    pub fn clock(&self) -> ClockView {
        ClockView { portal_time: self.now.wall, offset_ms: 0, drift_ppm: 0 }
    }

    /// `PUT /clock`.
    pub fn set_clock(&self, input: ClockInput) -> (ClockView, Changes) {
        let _ = input;
        (self.clock(), Changes::default())
    }

    /// `GET /counters`.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }

    /// `POST /reset`: forgets everything but settings and release keys, sets the clock right, and returns what was counted
    /// until then; every answer is counted either in it or afterwards.
    pub fn reset(&self) -> (Counters, Changes) {
        (Counters::default(), Changes::default())
    }

    /// What a restart of a portal without `--data` does: forgets everything but settings, release keys and the clock's
    /// setting. The counters go on, since they are not the portal's memory but an observer's.
    pub fn restart_without_data(&self) -> Changes {
        Changes::default()
    }

    fn not_yet<T, A>(&self, _: A) -> Result<T, ControlError> {
        Err(ControlError::Invalid { member: String::new(), why: "not built yet".to_owned() })
    }
}

impl ControlError {
    /// The HTTP status that goes with it.
    pub fn status(&self) -> u16 {
        match self {
            Self::UnknownAgent(_) | Self::UnknownCluster(_) | Self::UnknownOperation(_) => 404,
            Self::Invalid { .. } | Self::Manifest(_) => 400,
        }
    }
}
