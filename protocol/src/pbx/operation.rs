//! Operations: what a portal can ask of a node, and the events by which the node answers. Which
//! kinds and steps there are, which of them are destructive (OPS-4), and which need no Kubernetes API (OPS-6), is said here.
//!
//! An offer is read in two stages, as the document is: its envelope ([`OperationOffer`]) with the answer that carries it,
//! its parameters with [`OperationOffer::params`]. So an unknown kind, or a secret in clear, refuses the operation and
//! leaves the document beside it alone. There is no kind that runs what somebody typed (OPS-5).

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::enroll::S3Access;
use super::{raw, same_raw};
use crate::hash::Sha256Hex;
use crate::id::{EntryName, KeyId, NodeName, OperationId, ReleaseVersion, SnapshotName};
use crate::json::{self, JsonRefusal};
use crate::limits::{
    DIAGNOSTICS_BYTES_MAX, EVENTS_PER_CALL_MAX, LOG_CALL_BYTES_MAX, LOG_LINE_BYTES_MAX,
    LOG_TAIL_LINES_MAX,
};
use crate::seal::{Kubeconfig, Sealed, SealingPublicKey, SecretPlaces, first_in_clear};
use crate::time::Timestamp;
use crate::verified::base64_text;
use crate::words::{closed_words, open_words, schema};

open_words! {
    /// What an operation does; an unknown kind is answered `unsupported` (OPS-5, WIRE-5).
    pub enum OperationKind ("operation kind") {
        /// Takes a snapshot and confirms that it reached the bucket (OP-1).
        SnapshotSave = "snapshot.save",
        /// Resets the cluster's state to a snapshot (OP-2).
        ClusterRestore = "cluster.restore",
        /// Updates the node image in place (OP-5).
        ClusterUpgrade = "cluster.upgrade",
        /// Issues a kubeconfig, sealed to whoever asked (OP-7).
        AccessIssue = "access.issue",
        /// Takes access back (OP-8).
        AccessRevoke = "access.revoke",
        /// Replaces the agent's own keys (OP-9).
        AgentRotateKey = "agent.rotate_key",
        /// Tries new keys to the bucket before they are used (OP-10).
        S3Verify = "s3.verify",
        /// Collects what helps to find a fault, with consent (OP-11).
        DiagCollect = "diag.collect",
        /// Joins a server to the cluster again (OP-12).
        ServerRejoin = "server.rejoin",
        /// Moves what runs on a node elsewhere (OP-12).
        NodeDrain = "node.drain",
        /// Forgets a node that is gone (OP-12).
        NodeForget = "node.forget",
    }
}

closed_words! {
    /// A step of an operation; some kinds share one.
    pub enum Step ("step") {
        /// Takes the snapshot.
        Save = "save",
        /// Looks whether the snapshot is in the bucket.
        ConfirmS3 = "confirm_s3",
        /// Says what came of it.
        Report = "report",
        /// Stops k3s.
        StopK3s = "stop_k3s",
        /// Puts the snapshot on the node and resets the cluster to it (OP-3).
        ResetRestore = "reset_restore",
        /// Starts k3s.
        StartK3s = "start_k3s",
        /// Waits for the Kubernetes API.
        WaitApi = "wait_api",
        /// Deletes Nodes that did not come back (OP-4).
        ForgetStaleNodes = "forget_stale_nodes",
        /// Looks whether the upgrade can be.
        Preflight = "preflight",
        /// Takes a snapshot to go back to.
        PreSnapshot = "pre_snapshot",
        /// Fetches the image.
        FetchImage = "fetch_image",
        /// Makes it a boot entry.
        StageSlot = "stage_slot",
        /// Boots it.
        Reboot = "reboot",
        /// Waits until the node is healthy on it (OP-6).
        HealthGate = "health_gate",
        /// Stays on it.
        Commit = "commit",
        /// Makes the ServiceAccount.
        EnsureSa = "ensure_sa",
        /// Asks for its token.
        Token = "token",
        /// Seals the kubeconfig.
        Seal = "seal",
        /// Deletes ServiceAccounts.
        DeleteSa = "delete_sa",
        /// Makes new keys.
        Generate = "generate",
        /// Registers them.
        Register = "register",
        /// Uses them for the first time.
        Confirm = "confirm",
        /// Lists the bucket.
        ListBucket = "list_bucket",
        /// Collects the bundle.
        Collect = "collect",
        /// Empties k3s's datastore on this server.
        ClearDatastore = "clear_datastore",
        /// Lets nothing new onto the node.
        Cordon = "cordon",
        /// Moves what runs there.
        Evict = "evict",
        /// Makes sure that the node is gone.
        ConfirmGone = "confirm_gone",
        /// Deletes its Node.
        DeleteNode = "delete_node",
    }
}

impl OperationKind {
    /// The steps in their order; an unknown kind has none.
    pub fn steps(&self) -> &'static [Step] {
        use Step::{
            ClearDatastore, Collect, Commit, Confirm, ConfirmGone, ConfirmS3, Cordon, DeleteNode,
            DeleteSa, EnsureSa, Evict, FetchImage, ForgetStaleNodes, Generate, HealthGate,
            ListBucket, PreSnapshot, Preflight, Reboot, Register, Report, ResetRestore, Save, Seal,
            StageSlot, StartK3s, StopK3s, Token, WaitApi,
        };
        match self {
            Self::SnapshotSave => &[Save, ConfirmS3, Report],
            Self::ClusterRestore => &[StopK3s, ResetRestore, StartK3s, WaitApi, ForgetStaleNodes],
            Self::ClusterUpgrade => &[
                Preflight,
                PreSnapshot,
                FetchImage,
                StageSlot,
                Reboot,
                HealthGate,
                Commit,
            ],
            Self::AccessIssue => &[EnsureSa, Token, Seal],
            Self::AccessRevoke => &[DeleteSa],
            Self::AgentRotateKey => &[Generate, Register, Confirm],
            Self::S3Verify => &[ListBucket],
            Self::DiagCollect => &[Collect],
            Self::ServerRejoin => &[StopK3s, ClearDatastore, StartK3s, WaitApi],
            Self::NodeDrain => &[Cordon, Evict, Report],
            Self::NodeForget => &[ConfirmGone, DeleteNode],
            Self::Unknown(_) => &[],
        }
    }

    /// Whether the kind is accepted while the Kubernetes API is down (OPS-6).
    pub fn runs_without_api(&self) -> bool {
        matches!(self, Self::ClusterRestore | Self::DiagCollect)
    }
}

impl Step {
    /// Whether the step destroys something, so that a crash inside it is looked at and never simply repeated (OPS-4).
    pub const fn is_destructive(self) -> bool {
        matches!(
            self,
            Self::ResetRestore | Self::Reboot | Self::ClearDatastore
        )
    }
}

/// An operation as it is handed out; its parameters are read in a second stage.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct OperationOffer {
    /// Its ID; it names a log file, so its alphabet is checked (FILE-8).
    pub id: OperationId,
    /// Its kind.
    pub kind: OperationKind,
    /// The node that is to run it (OPS-10).
    pub target: NodeName,
    /// The parameters as raw text.
    pub params: Arc<RawValue>,
    /// Somebody's consent to this very request (OP-11).
    pub consent: Option<Consent>,
}

impl PartialEq for OperationOffer {
    /// Raw text is compared byte for byte.
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.kind == other.kind
            && self.target == other.target
            && self.consent == other.consent
            && self.params.get() == other.params.get()
    }
}

impl Eq for OperationOffer {}

/// Somebody's consent to one request (OP-11).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Consent {
    /// Who.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// What they agreed to.
    pub text: String,
}

/// The parameters of an operation, one type a kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Params {
    /// Of `snapshot.save`.
    SnapshotSave(SnapshotSaveParams),
    /// Of `cluster.restore`.
    ClusterRestore(ClusterRestoreParams),
    /// Of `cluster.upgrade`.
    ClusterUpgrade(ClusterUpgradeParams),
    /// Of `access.issue`.
    AccessIssue(AccessIssueParams),
    /// Of `access.revoke`.
    AccessRevoke(AccessRevokeParams),
    /// Of `agent.rotate_key`.
    AgentRotateKey(NoParams),
    /// Of `s3.verify`.
    S3Verify(S3Access),
    /// Of `diag.collect`.
    DiagCollect(NoParams),
    /// Of `server.rejoin`.
    ServerRejoin(ServerRejoinParams),
    /// Of `node.drain`.
    NodeDrain(NodeParams),
    /// Of `node.forget`.
    NodeForget(NodeParams),
}

/// Why an operation cannot be begun by its parameters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamsRefusal {
    /// A secret came in clear: `refused`, reason `unsealed_secret` (OPS-10).
    #[error("{field} is a secret that is not sealed")]
    UnsealedSecret {
        /// The secret's member.
        field: String,
    },
    /// The kind is unknown: `unsupported` (OPS-5).
    #[error("operation kind {kind:?} is unknown")]
    Unsupported {
        /// The kind as it came.
        kind: String,
    },
    /// Not the parameters of that kind: `failed`.
    #[error("the parameters are refused: {why}")]
    Shape {
        /// What was wrong with them.
        why: JsonRefusal,
    },
}

impl OperationOffer {
    /// The second stage: the parameters, by kind. A secret in clear is named as such even where another mistake stands
    /// before it (OPS-10).
    pub fn params(&self) -> Result<Params, ParamsRefusal> {
        let bytes = self.params.get().as_bytes();
        let params = match &self.kind {
            OperationKind::SnapshotSave => json::parse(bytes).map(Params::SnapshotSave),
            OperationKind::ClusterRestore => json::parse(bytes).map(Params::ClusterRestore),
            OperationKind::ClusterUpgrade => json::parse(bytes).map(Params::ClusterUpgrade),
            OperationKind::AccessIssue => json::parse(bytes).map(Params::AccessIssue),
            OperationKind::AccessRevoke => json::parse(bytes).map(Params::AccessRevoke),
            OperationKind::AgentRotateKey => json::parse(bytes).map(Params::AgentRotateKey),
            OperationKind::S3Verify => json::parse(bytes).map(Params::S3Verify),
            OperationKind::DiagCollect => json::parse(bytes).map(Params::DiagCollect),
            OperationKind::ServerRejoin => json::parse(bytes).map(Params::ServerRejoin),
            OperationKind::NodeDrain => json::parse(bytes).map(Params::NodeDrain),
            OperationKind::NodeForget => json::parse(bytes).map(Params::NodeForget),
            OperationKind::Unknown(kind) => {
                return Err(ParamsRefusal::Unsupported {
                    kind: crate::id::shown(kind).to_owned(),
                });
            }
        };
        params.map_err(|why| {
            let params: Value = serde_json::from_str(self.params.get()).unwrap_or_default();
            match first_in_clear(&params, self.kind.secrets()) {
                Some(field) => ParamsRefusal::UnsealedSecret { field },
                None => ParamsRefusal::Shape { why },
            }
        })
    }
}

impl OperationKind {
    /// Where the parameters of a kind keep their secrets.
    pub fn secrets(&self) -> &'static [&'static [&'static str]] {
        const S3: SecretPlaces = &[&["access_key"], &["secret_key"]];
        const REJOIN: SecretPlaces = &[&["token"]];
        match self {
            Self::S3Verify => S3,
            Self::ServerRejoin => REJOIN,
            _ => &[],
        }
    }
}

impl Params {
    /// The kind that they are of.
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::SnapshotSave(_) => OperationKind::SnapshotSave,
            Self::ClusterRestore(_) => OperationKind::ClusterRestore,
            Self::ClusterUpgrade(_) => OperationKind::ClusterUpgrade,
            Self::AccessIssue(_) => OperationKind::AccessIssue,
            Self::AccessRevoke(_) => OperationKind::AccessRevoke,
            Self::AgentRotateKey(_) => OperationKind::AgentRotateKey,
            Self::S3Verify(_) => OperationKind::S3Verify,
            Self::DiagCollect(_) => OperationKind::DiagCollect,
            Self::ServerRejoin(_) => OperationKind::ServerRejoin,
            Self::NodeDrain(_) => OperationKind::NodeDrain,
            Self::NodeForget(_) => OperationKind::NodeForget,
        }
    }

    /// Every secret with the name of its member, for asking whether all of them open.
    pub fn sealed_values(&self) -> Vec<(String, &Sealed)> {
        match self {
            Self::S3Verify(s3) => {
                vec![
                    ("access_key".to_owned(), &s3.access_key),
                    ("secret_key".to_owned(), &s3.secret_key),
                ]
            }
            Self::ServerRejoin(rejoin) => vec![("token".to_owned(), &rejoin.token)],
            _ => Vec::new(),
        }
    }

    /// The parameters as raw text, as an offer carries them.
    pub fn to_raw(&self) -> Arc<RawValue> {
        match self {
            Self::SnapshotSave(params) => raw(params),
            Self::ClusterRestore(params) => raw(params),
            Self::ClusterUpgrade(params) => raw(params),
            Self::AccessIssue(params) => raw(params),
            Self::AccessRevoke(params) => raw(params),
            Self::AgentRotateKey(params) | Self::DiagCollect(params) => raw(params),
            Self::S3Verify(params) => raw(params),
            Self::ServerRejoin(params) => raw(params),
            Self::NodeDrain(params) | Self::NodeForget(params) => raw(params),
        }
    }
}

/// The parameters of a kind that has none: `{}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct NoParams {}

/// Parameters of `snapshot.save`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotSaveParams {
    /// The name that k3s is asked to give the snapshot.
    pub name: SnapshotName,
}

/// Parameters of `cluster.restore`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ClusterRestoreParams {
    /// The snapshot.
    pub snapshot: SnapshotName,
    /// Where it is.
    pub source: SnapshotSource,
    /// What the snapshot's record says of the token that it was taken with: k3s's token hash, compared before anything is
    /// stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_hash: Option<String>,
}

closed_words! {
    /// Where a snapshot is (OP-3).
    pub enum SnapshotSource ("snapshot source") {
        /// k3s's copy on the node.
        Local = "local",
        /// The bucket.
        S3 = "s3",
    }
}

/// Parameters of `cluster.upgrade`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ClusterUpgradeParams {
    /// The release to go to.
    pub release: ReleaseVersion,
}

/// Parameters of `access.issue`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AccessIssueParams {
    /// Who asked.
    pub subject: String,
    /// What they may do.
    pub role: Role,
    /// The key to seal the kubeconfig to; it is checked before it is sealed to (KEY-1).
    pub recipient_key: SealingPublicKey,
    /// For how long, in seconds.
    pub lifetime_seconds: u64,
}

closed_words! {
    /// What somebody may do in a cluster.
    pub enum Role ("role") {
        /// Everything.
        Admin = "admin",
        /// Change what runs.
        Edit = "edit",
        /// Look.
        View = "view",
    }
}

/// Parameters of `access.revoke`: `{"subject": …}` or `{"everyone": true}`, never both.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "AccessRevokeAsWritten", into = "AccessRevokeAsWritten")]
pub enum AccessRevokeParams {
    /// One person's access.
    Subject(String),
    /// Everybody's.
    Everyone,
}

/// [`AccessRevokeParams`] before it is clear which of the two it is.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct AccessRevokeAsWritten {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    everyone: Option<bool>,
}

impl TryFrom<AccessRevokeAsWritten> for AccessRevokeParams {
    type Error = &'static str;

    fn try_from(written: AccessRevokeAsWritten) -> Result<Self, Self::Error> {
        match (written.subject, written.everyone) {
            (Some(subject), None | Some(false)) => Ok(Self::Subject(subject)),
            (None, Some(true)) => Ok(Self::Everyone),
            _ => Err("either subject, or everyone with the value true"),
        }
    }
}

impl From<AccessRevokeParams> for AccessRevokeAsWritten {
    fn from(params: AccessRevokeParams) -> Self {
        match params {
            AccessRevokeParams::Subject(subject) => Self {
                subject: Some(subject),
                everyone: None,
            },
            AccessRevokeParams::Everyone => Self {
                subject: None,
                everyone: Some(true),
            },
        }
    }
}

/// Parameters of `server.rejoin`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ServerRejoinParams {
    /// The URL of a server that stands.
    pub server_url: String,
    /// The token of servers.
    pub token: Sealed,
}

/// Parameters of `node.drain` and `node.forget`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct NodeParams {
    /// The node.
    pub node: NodeName,
}

/// The result of an operation that succeeded, one type a kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OperationResult {
    /// Of `snapshot.save`.
    SnapshotSave(SnapshotSaveResult),
    /// Of `cluster.restore`.
    ClusterRestore(ClusterRestoreResult),
    /// Of `cluster.upgrade`.
    ClusterUpgrade(ClusterUpgradeResult),
    /// Of `access.issue`.
    AccessIssue(AccessIssueResult),
    /// Of `access.revoke`.
    AccessRevoke(AccessRevokeResult),
    /// Of `agent.rotate_key`.
    AgentRotateKey(AgentRotateKeyResult),
    /// Of `s3.verify`.
    S3Verify(S3VerifyResult),
    /// Of `diag.collect`.
    DiagCollect(DiagCollectResult),
    /// Of `server.rejoin`.
    ServerRejoin(ServerRejoinResult),
    /// Of `node.drain`.
    NodeDrain(NodeDrainResult),
    /// Of `node.forget`.
    NodeForget(NodeForgetResult),
}

impl OperationResult {
    /// Reads the result of a kind from an event's raw text; an unknown kind has none.
    pub fn read(kind: &OperationKind, raw: &RawValue) -> Result<Option<Self>, JsonRefusal> {
        let bytes = raw.get().as_bytes();
        let result = match kind {
            OperationKind::SnapshotSave => Self::SnapshotSave(json::parse(bytes)?),
            OperationKind::ClusterRestore => Self::ClusterRestore(json::parse(bytes)?),
            OperationKind::ClusterUpgrade => Self::ClusterUpgrade(json::parse(bytes)?),
            OperationKind::AccessIssue => Self::AccessIssue(json::parse(bytes)?),
            OperationKind::AccessRevoke => Self::AccessRevoke(json::parse(bytes)?),
            OperationKind::AgentRotateKey => Self::AgentRotateKey(json::parse(bytes)?),
            OperationKind::S3Verify => Self::S3Verify(json::parse(bytes)?),
            OperationKind::DiagCollect => Self::DiagCollect(json::parse(bytes)?),
            OperationKind::ServerRejoin => Self::ServerRejoin(json::parse(bytes)?),
            OperationKind::NodeDrain => Self::NodeDrain(json::parse(bytes)?),
            OperationKind::NodeForget => Self::NodeForget(json::parse(bytes)?),
            OperationKind::Unknown(_) => return Ok(None),
        };
        Ok(Some(result))
    }

    /// The result as raw text, as an event carries it.
    pub fn to_raw(&self) -> Arc<RawValue> {
        match self {
            Self::SnapshotSave(result) => raw(result),
            Self::ClusterRestore(result) => raw(result),
            Self::ClusterUpgrade(result) => raw(result),
            Self::AccessIssue(result) => raw(result),
            Self::AccessRevoke(result) => raw(result),
            Self::AgentRotateKey(result) => raw(result),
            Self::S3Verify(result) => raw(result),
            Self::DiagCollect(result) => raw(result),
            Self::ServerRejoin(result) => raw(result),
            Self::NodeDrain(result) => raw(result),
            Self::NodeForget(result) => raw(result),
        }
    }
}

/// Result of `snapshot.save`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotSaveResult {
    /// The name that the snapshot has in truth.
    pub name: SnapshotName,
    /// Its size in bytes.
    pub size: u64,
    /// Its hash.
    pub sha256: Sha256Hex,
    /// Where it is.
    pub location: String,
}

/// Result of `cluster.restore`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ClusterRestoreResult {
    /// The snapshot that the cluster was reset to.
    pub snapshot: SnapshotName,
    /// Nodes that did not come back (OP-4).
    pub forgotten_nodes: Vec<NodeName>,
    /// Access that the snapshot had brought back and that was taken again.
    pub revoked: Vec<String>,
}

/// Result of `cluster.upgrade`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ClusterUpgradeResult {
    /// The release that runs.
    pub release: ReleaseVersion,
    /// The boot entry that runs.
    pub entry: EntryName,
    /// The k3s that runs.
    pub k3s_version: String,
}

/// Result of `access.issue`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AccessIssueResult {
    /// The kubeconfig, sealed to whoever asked (OP-7).
    pub sealed_kubeconfig: Sealed<Kubeconfig>,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// Result of `access.revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AccessRevokeResult {
    /// The ServiceAccounts that were deleted.
    pub deleted: Vec<String>,
}

/// Result of `agent.rotate_key`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AgentRotateKeyResult {
    /// The ID of the signing key in use.
    pub active_key_id: KeyId,
}

/// Result of `s3.verify`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct S3VerifyResult {
    /// How many objects the bucket listed.
    pub objects_seen: u64,
}

/// Result of `diag.collect`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct DiagCollectResult {
    /// A gzipped tar, in base64 on the wire.
    pub bundle: Bundle,
    /// Whether something was left out to fit.
    pub truncated: bool,
}

/// A diagnostic bundle: at most 128 KiB before base64.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "BundleBytes", into = "BundleBytes")]
pub struct Bundle(Arc<[u8]>);

/// [`Bundle`] before its size is known to be right.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct BundleBytes(#[serde(with = "base64_text")] Arc<[u8]>);

/// A bundle that is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a bundle of {0} bytes; at most {DIAGNOSTICS_BYTES_MAX} are allowed")]
pub struct BundleTooLarge(pub usize);

schema!(
    Bundle,
    schemars::json_schema!({
        "description": "A gzipped tar of at most 128 KiB, as base64.", "type": "string",
        "pattern": crate::words::BASE64_PATTERN, "maxLength": DIAGNOSTICS_BYTES_MAX.div_ceil(3) * 4,
    })
);

impl Bundle {
    /// Takes a bundle that is not too large.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Result<Self, BundleTooLarge> {
        let bytes = bytes.into();
        if bytes.len() > DIAGNOSTICS_BYTES_MAX {
            Err(BundleTooLarge(bytes.len()))
        } else {
            Ok(Self(bytes))
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "bundle of {} bytes", self.0.len())
    }
}

impl TryFrom<BundleBytes> for Bundle {
    type Error = BundleTooLarge;

    fn try_from(bytes: BundleBytes) -> Result<Self, BundleTooLarge> {
        Self::new(bytes.0)
    }
}

impl From<Bundle> for BundleBytes {
    fn from(bundle: Bundle) -> Self {
        Self(bundle.0)
    }
}

/// Result of `server.rejoin`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ServerRejoinResult {
    /// The node that joined.
    pub node: NodeName,
}

/// Result of `node.drain`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct NodeDrainResult {
    /// What was moved.
    pub evicted: Vec<String>,
    /// What would not go.
    pub left: Vec<String>,
}

/// Result of `node.forget`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct NodeForgetResult {
    /// Whether there was a Node to delete.
    pub deleted: bool,
}

/// `POST /operations/{id}/events`: what happened, in order (OPS-8). Held to the limits of a call: 100 events, 200 lines a
/// log, 1 KiB a line, 128 KiB of log. A number twice, or out of order, is for the portal to sort out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "EventsAsWritten")]
pub struct OperationEvents {
    events: Vec<OperationEvent>,
}

/// Events of an operation, in order.
#[derive(Deserialize, JsonSchema)]
struct EventsAsWritten {
    /// The events: at most 100, with at most 128 KiB of log in all.
    #[schemars(length(max = 100))]
    events: Vec<OperationEvent>,
}

/// Events that break a limit of the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventsRefused {
    /// More events than a call takes.
    #[error("{0} events; a call takes at most {EVENTS_PER_CALL_MAX}")]
    TooMany(usize),
    /// An event numbered 0.
    #[error("an event numbered 0; numbers count from 1")]
    NumberedZero,
    /// `started` without a step, or `unsupported` or `refused` with one.
    #[error("event {0}: started needs a step, unsupported and refused are of the whole operation")]
    StateAndStep(u64),
    /// A log with too many lines.
    #[error("event {0} has more than {LOG_TAIL_LINES_MAX} lines of log")]
    TooManyLines(u64),
    /// A line that is too long.
    #[error("event {0} has a line of log of more than {LOG_LINE_BYTES_MAX} bytes")]
    LineTooLong(u64),
    /// More log than a call takes.
    #[error("{0} bytes of log; a call takes at most {LOG_CALL_BYTES_MAX}")]
    TooMuchLog(usize),
}

impl OperationEvents {
    /// Takes events that keep the limits of a call.
    pub fn new(events: Vec<OperationEvent>) -> Result<Self, EventsRefused> {
        if events.len() > EVENTS_PER_CALL_MAX {
            return Err(EventsRefused::TooMany(events.len()));
        }
        let mut log_bytes = 0;
        for event in &events {
            let sequence = event.sequence;
            if sequence == 0 {
                return Err(EventsRefused::NumberedZero);
            }
            let fits = match event.state {
                EventState::Started => event.step.is_some(),
                EventState::Unsupported | EventState::Refused => event.step.is_none(),
                EventState::Succeeded | EventState::Failed => true,
            };
            if !fits {
                return Err(EventsRefused::StateAndStep(sequence));
            }
            let lines = event.log_tail.as_deref().unwrap_or_default();
            if lines.len() > LOG_TAIL_LINES_MAX {
                return Err(EventsRefused::TooManyLines(sequence));
            }
            if lines.iter().any(|line| line.len() > LOG_LINE_BYTES_MAX) {
                return Err(EventsRefused::LineTooLong(sequence));
            }
            log_bytes += lines.iter().map(String::len).sum::<usize>();
        }
        if log_bytes > LOG_CALL_BYTES_MAX {
            Err(EventsRefused::TooMuchLog(log_bytes))
        } else {
            Ok(Self { events })
        }
    }

    /// The events, in order.
    pub fn events(&self) -> &[OperationEvent] {
        &self.events
    }
}

impl TryFrom<EventsAsWritten> for OperationEvents {
    type Error = EventsRefused;

    fn try_from(written: EventsAsWritten) -> Result<Self, EventsRefused> {
        Self::new(written.events)
    }
}

/// One thing that happened in an operation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("allOf" = [
    {"if": {"properties": {"state": {"const": "started"}}},
     "then": {"required": ["step"], "properties": {"step": {"type": "string"}}}},
    {"if": {"properties": {"state": {"enum": ["unsupported", "refused"]}}},
     "then": {"properties": {"step": {"type": "null"}}}},
]))]
pub struct OperationEvent {
    /// Counts from 1 within the operation (OPS-8).
    #[schemars(range(min = 1))]
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// The step; none where the event is of the whole operation.
    pub step: Option<Step>,
    /// What happened.
    pub state: EventState,
    /// In words.
    pub message: Option<String>,
    /// The last lines of the operation's log (OPS-3): at most 200, each of at most 1 KiB.
    #[schemars(length(max = 200), inner(length(max = 1024)))]
    pub log_tail: Option<Vec<String>>,
    /// Why, with `failed` and `refused`.
    pub reason: Option<Reason>,
    /// What came of it, with the operation's `succeeded`.
    pub result: Option<Arc<RawValue>>,
}

impl OperationEvent {
    /// Whether the operation ends with it: an event of the whole operation.
    pub fn is_final(&self) -> bool {
        self.step.is_none()
    }
}

impl PartialEq for OperationEvent {
    /// Raw text is compared byte for byte.
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
            && self.at == other.at
            && self.step == other.step
            && self.state == other.state
            && self.message == other.message
            && self.log_tail == other.log_tail
            && self.reason == other.reason
            && same_raw(&self.result, &other.result)
    }
}

closed_words! {
    /// What happened to a step or to an operation.
    pub enum EventState ("event state") {
        /// The step began.
        Started = "started",
        /// The step or the operation ended well.
        Succeeded = "succeeded",
        /// The step or the operation ended badly (OPS-3).
        Failed = "failed",
        /// The agent does not know the operation's kind (OPS-5).
        Unsupported = "unsupported",
        /// The agent would not begin the operation (OPS-6, OPS-10).
        Refused = "refused",
    }
}

open_words! {
    /// Why an operation failed or was refused; an unknown reason is tolerated.
    pub enum Reason ("reason") {
        /// The Kubernetes API is down (OPS-6).
        ApiDown = "api_down",
        /// A parameter is a secret in clear (OPS-10).
        UnsealedSecret = "unsealed_secret",
        /// Nobody consented to this request (OP-11).
        NoConsent = "no_consent",
        /// The key to seal to is weak (KEY-1).
        InvalidKey = "invalid_key",
        /// The release's manifest is not to be believed (UPD-4, UPD-6).
        ManifestRejected = "manifest_rejected",
        /// It would remove the agent's own node (OP-12).
        OwnNode = "own_node",
        /// What the agent knew of the operation is gone.
        StateLost = "state_lost",
        /// It was resumed too often.
        ResumeLimit = "resume_limit",
        /// What the node shows of a destructive step is neither before nor after it (OPS-4).
        Unclear = "unclear",
        /// The node went back to the old image (OP-6).
        Returned = "returned",
        /// The node went back, over a minor version of k3s.
        ReturnedMinorChanged = "returned_minor_changed",
        /// The machine forgets its EFI variables.
        NoPersistentEfiVariables = "no_persistent_efi_variables",
    }
}

/// What events are answered with (OPS-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct EventsAnswer {
    /// The highest sequence up to which there is no gap.
    pub accepted_sequence: u64,
}
