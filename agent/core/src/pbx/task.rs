//! What an agent asks of its host: each task is one thing that a node can do, with typed parameters.
//!
//! A task is repeatable unless [`Work::is_destructive`](crate::journal::Work::is_destructive) says otherwise: performed
//! twice, it leaves the node as once. Secrets are in it only sealed; the host opens them when it performs it. None of them
//! runs a command that somebody typed (OPS-5).

use std::fmt;
use std::sync::Arc;

use protocol::hash::Sha256Hex;
use protocol::id::{AddonName, AgentVersion, EntryName, NodeName, ServerId, SnapshotName};
use protocol::pbx::enroll::{BootstrapSecrets, EnrollAnswer, S3Access};
use protocol::pbx::operation::{DiagCollectResult, Role, ServerRejoinParams};
use protocol::pbx::sync::IngressMode;
use protocol::seal::{Kubeconfig, Sealed, SealingPublicKey};
use protocol::sign::{Signature, SigningPublicKey};
use protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::addon::object::{Object, ObjectId};
use super::addon::seen::{AddonsSeen, AppliedObject, Look};
use super::boot::{Booted, Health, Image, NodeFacts};
use crate::limits::Limits;
use crate::machine::{Deadline, KeyHandle};
use crate::time::Monotonic;

/// A task of the host.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Makes a signing and a sealing key pair and keeps them durably, before it answers with [`Done::Keys`] (ENR-1).
    MakeKeys(KeySlot),
    /// Asks the provider's metadata service for the server's number: [`Done::ServerId`] (ENR-2).
    ReadServerId,
    /// Writes `bootstrap.json`: the answer to the enrollment, its secrets sealed (ENR-5, FILE-7).
    StoreBootstrap(Arc<EnrollAnswer>),
    /// Deletes the token from the configuration; comments and other keys stay (ENR-5).
    DropToken,
    /// Writes k3s's configuration and its first-start manifests from `bootstrap.json` (ENR-6, FILE-9, FILE-11).
    WriteK3sConfig,
    /// Starts k3s as a server; a k3s that runs stays as it is (ENR-6).
    StartK3s,
    /// Stops k3s, if what is to follow can follow; where it cannot, nothing is stopped and the task fails.
    StopK3s(StopFor),
    /// Stops k3s and starts it again, so that it reads its drop-ins (SYNC-5).
    RestartK3s,
    /// Waits until the Kubernetes API answers, or the deadline.
    WaitApi,
    /// Writes the Secrets `kube-system/hcloud` and `kube-system/pbx-etcd-s3` (FILE-17).
    WriteSecrets(Secrets),
    /// Writes k3s's drop-ins where they differ (FILE-16): [`Done::DropIns`].
    WriteDropIns(DropIns),
    /// Looks at the add-ons' objects, their releases and their health; changes nothing: [`Done::AddonsSeen`].
    LookAtAddons(Look),
    /// Has k3s let go of the first-start manifests of add-ons, where there are any: lays `pbx-<name>.yaml.skip` beside each,
    /// durably, and ends once k3s has gone through its manifests after the last was laid (FILE-11).
    LetGoOfManifests(Vec<AddonName>),
    /// Applies all objects of an add-on, by server-side apply with force, refusing unknown members; all of them for trial
    /// first, so that what the API server refuses changes nothing: [`Done::AddonApplied`] (ADD-1, ADD-4).
    ApplyAddon {
        /// The add-on.
        addon: AddonName,
        /// Its objects.
        objects: Vec<Object>,
    },
    /// Applies a Platform that installs nothing, unless a `SaaSApplication` exists, which is looked for right before:
    /// [`Done::Applications`] (ADD-15).
    EmptyPlatform(Box<Object>),
    /// Deletes objects of an add-on, in the background; one that is gone or has another UID is left (ADD-5).
    DeleteAddon {
        /// The add-on.
        addon: AddonName,
        /// The objects.
        objects: Vec<Doomed>,
    },
    /// Has k3s take an etcd snapshot: [`Done::SnapshotSaved`] (OP-1).
    SaveSnapshot {
        /// The name that k3s is asked for; it appends node and time.
        name: SnapshotName,
    },
    /// Looks for a snapshot in the bucket: [`Done::SnapshotConfirmed`]. Fails if it is not there (OP-1).
    ConfirmSnapshot {
        /// The name that the snapshot has in truth.
        name: SnapshotName,
        /// Access to the bucket.
        s3: Bucket,
    },
    /// Puts a snapshot on the node and resets the cluster to it. Destructive (OP-3).
    ResetRestore {
        /// The snapshot.
        snapshot: SnapshotName,
        /// Where it is.
        source: RestoreSource,
    },
    /// Deletes the Nodes, other than its own, whose kubelet has not reported since the restored API came up:
    /// [`Done::NodesForgotten`] (OP-4).
    ForgetStaleNodes {
        /// What they are given to come back, in milliseconds.
        grace_ms: u64,
    },
    /// Forgets every key pair but this one (OP-9).
    PromoteKeys(KeyHandle),
    /// Fetches the program of a new agent and keeps it durably beside the running one, if its size and hash are right (UPD-1).
    FetchProgram(Box<Program>),
    /// Runs the fetched program to hear its version, which must be this one.
    CheckProgram(AgentVersion),
    /// Keeps the running program as the previous one, durably (UPD-1).
    KeepProgram,
    /// Notes durably that a version is on trial, and starts the timer that puts the previous program back, unless the
    /// version is committed by then; after a start of the node it counts anew (UPD-1, UPD-5). Started again, it begins
    /// anew.
    ArmRollback {
        /// The version.
        version: AgentVersion,
        /// When the timer fires.
        after_ms: u64,
    },
    /// Puts the fetched program of this hash in the running one's place, durably; one that is there already stays (UPD-1).
    SwapPrograms(Sha256Hex),
    /// Notes durably that the version on trial stays, and then stops the timer (UPD-2).
    CommitProgram,
    /// Makes a ServiceAccount that may do what its role says; one of that name stays as it is (OP-7).
    EnsureAccount(Account),
    /// Asks for a token of a ServiceAccount: [`Done::TokenIssued`] (OP-7).
    RequestToken {
        /// The ServiceAccount.
        account: AccountName,
        /// For how long; the API may grant less or more.
        lifetime_seconds: u64,
        /// The agent's own key: the token leaves the host sealed to it, and no other way.
        seal_to: SealingPublicKey,
    },
    /// Makes a kubeconfig of a token and seals it to whoever asked: [`Done::KubeconfigSealed`] (OP-7).
    SealKubeconfig {
        /// The token.
        token: Sealed,
        /// The key of whoever asked.
        recipient: SealingPublicKey,
    },
    /// Lists the ServiceAccounts of access: [`Done::Accounts`] (OP-8).
    ListAccounts,
    /// Deletes ServiceAccounts of access, as far as they are there; their tokens end with them (OP-8).
    DeleteAccounts(Vec<AccountName>),
    /// Lists the bucket with keys that are to be tried: [`Done::BucketListed`] (OP-10).
    ListBucket(Box<S3Access>),
    /// Collects what helps to find a fault: [`Done::Collected`] (OP-11). What may be in it is the closed list of
    /// [`Section`](super::diagnostics::Section).
    CollectDiagnostics,
    /// Sets this server's datastore aside, and has k3s join another server from its next start on. Destructive (OP-12).
    ///
    /// The joining is configured before the datastore goes: a k3s that a reboot starts in between must not found a cluster
    /// of its own. What is set aside carries the operation's ID and is kept; it is the evidence.
    ClearDatastore(Box<ServerRejoinParams>),
    /// Looks how the node is before an upgrade: [`Done::Inspected`]. Leaves nothing behind but what a probe of the EFI
    /// variables leaves (OP-5).
    InspectNode,
    /// Fetches an image into the state directory, whole and of the right hash (OP-5).
    FetchImage(Box<Image>),
    /// Makes a fetched image the node's second boot entry, with the first one pinned as the default before; entries beside
    /// the two are removed (OP-5).
    StageSlot {
        /// The image.
        image: Box<Image>,
        /// The entry that runs, and stays the default.
        keep: EntryName,
    },
    /// Arms the way back, and boots an entry for once. Destructive; it never ends, the node goes down with it (OP-5, OP-6).
    ///
    /// What is marked on disk before the entry is set is the boot in which that was done: the evidence.
    Reboot {
        /// The entry.
        entry: EntryName,
        /// When the node's own timer goes back from that entry if nobody has committed it, in milliseconds after its boot.
        return_after_ms: u64,
    },
    /// Looks how the node is after a boot: [`Done::Health`] (OP-6).
    CheckHealth,
    /// Makes the entry that runs the default and disarms the way back, if it is this one: [`Done::Booted`], with what runs
    /// in truth (OP-6).
    Commit {
        /// The entry.
        entry: EntryName,
    },
    /// Lets nothing new onto a node: [`Done::Cordoned`], with what runs there (OP-12).
    Cordon(NodeName),
    /// Moves what runs on a node elsewhere, as far as it may be moved: [`Done::Evicted`] (OP-12).
    Evict(NodeName),
    /// Watches whether a node is silent: [`Done::Gone`]. Fails if it reports (OP-12, R45).
    ConfirmGone {
        /// The node.
        node: NodeName,
        /// For how long it must be silent, in milliseconds.
        silent_ms: u64,
    },
    /// Deletes a Node, if it is still the one that was watched (OP-12).
    DeleteNode {
        /// The node.
        node: NodeName,
        /// The Node that was watched.
        uid: Uid,
    },
}

/// What k3s is stopped for, and what must be true before (R37).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopFor {
    /// A reset to a snapshot: it is there, whole, and of this cluster's token.
    Restore {
        /// The snapshot.
        snapshot: SnapshotName,
        /// Where it is.
        source: RestoreSource,
        /// The hash of the token that it was taken with, if it is known.
        token_hash: Option<String>,
    },
    /// Joining another server: the token opens, and that server answers.
    Rejoin(Box<ServerRejoinParams>),
}

/// A ServiceAccount of access (OP-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its name.
    pub name: AccountName,
    /// When access was asked for, by the portal's clock. Written onto the object, so that a revocation can tell accounts
    /// from before it (R60).
    pub asked_at: Timestamp,
}

/// The name of a ServiceAccount of access: `pbx-access-<hash of the subject>-<role>`, so that asking again finds it, and
/// so that nothing else in the cluster is ever taken for one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccountName {
    /// Whose it is.
    pub subject: SubjectHash,
    /// What it may do.
    pub role: Role,
}

/// The first 16 hex digits of SHA-256 of a subject: free text that becomes part of a name (FILE-18).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SubjectHash(String);

impl SubjectHash {
    /// Of a subject.
    pub fn of(subject: &str) -> Self {
        let mut hash = Sha256Hex::of(subject.as_bytes()).to_string();
        hash.truncate(16);
        Self(hash)
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "pbx-access-{}-{}", self.subject.0, self.role)
    }
}

/// The UID of an object of the Kubernetes API: another object of the same name has another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(pub String);

impl Task {
    /// Whether it fails by itself where the Kubernetes API does not answer.
    pub(super) fn needs_api(&self) -> bool {
        match self {
            Self::SaveSnapshot { .. }
            | Self::ForgetStaleNodes { .. }
            | Self::EnsureAccount(_)
            | Self::RequestToken { .. }
            | Self::ListAccounts
            | Self::DeleteAccounts(_)
            | Self::Cordon(_)
            | Self::Evict(_)
            | Self::ConfirmGone { .. }
            | Self::DeleteNode { .. }
            | Self::InspectNode => true,
            Self::MakeKeys(_)
            | Self::ReadServerId
            | Self::StoreBootstrap(_)
            | Self::DropToken
            | Self::WriteK3sConfig
            | Self::StartK3s
            | Self::StopK3s(_)
            | Self::RestartK3s
            | Self::WaitApi
            | Self::WriteSecrets(_)
            | Self::WriteDropIns(_)
            | Self::ConfirmSnapshot { .. }
            | Self::ResetRestore { .. }
            | Self::PromoteKeys(_)
            | Self::SealKubeconfig { .. }
            | Self::ListBucket(_)
            | Self::CollectDiagnostics
            | Self::ClearDatastore(_)
            | Self::FetchImage(_)
            | Self::StageSlot { .. }
            | Self::Reboot { .. }
            | Self::CheckHealth
            | Self::Commit { .. }
            | Self::LookAtAddons(_)
            | Self::LetGoOfManifests(_)
            | Self::ApplyAddon { .. }
            | Self::EmptyPlatform(_)
            | Self::DeleteAddon { .. }
            | Self::FetchProgram(_)
            | Self::CheckProgram(_)
            | Self::KeepProgram
            | Self::ArmRollback { .. }
            | Self::SwapPrograms(_)
            | Self::CommitProgram => false,
        }
    }

    /// When a task that is handed out now must have ended.
    pub(super) fn deadline(&self, limits: &Limits, now: Monotonic) -> Deadline {
        let ms = match self {
            Self::MakeKeys(_)
            | Self::ReadServerId
            | Self::StoreBootstrap(_)
            | Self::DropToken
            | Self::WriteK3sConfig
            | Self::WriteSecrets(_)
            | Self::WriteDropIns(_)
            | Self::PromoteKeys(_)
            | Self::KeepProgram
            | Self::ArmRollback { .. }
            | Self::SwapPrograms(_)
            | Self::CommitProgram
            | Self::EnsureAccount(_)
            | Self::RequestToken { .. }
            | Self::SealKubeconfig { .. }
            | Self::ListAccounts
            | Self::DeleteAccounts(_)
            | Self::ListBucket(_)
            | Self::CollectDiagnostics
            | Self::Cordon(_)
            | Self::DeleteNode { .. }
            | Self::InspectNode
            | Self::CheckHealth
            | Self::Commit { .. }
            | Self::LookAtAddons(_)
            | Self::LetGoOfManifests(_)
            | Self::ApplyAddon { .. }
            | Self::EmptyPlatform(_)
            | Self::DeleteAddon { .. } => limits.task_ms_max,
            Self::StartK3s
            | Self::StopK3s(_)
            | Self::RestartK3s
            | Self::FetchProgram(_)
            | Self::WaitApi
            | Self::SaveSnapshot { .. }
            | Self::ConfirmSnapshot { .. }
            | Self::ResetRestore { .. }
            | Self::ClearDatastore(_)
            | Self::FetchImage(_)
            | Self::StageSlot { .. }
            | Self::Reboot { .. }
            | Self::Evict(_) => limits.long_task_ms_max,
            Self::CheckProgram(_) => limits.program_check_ms_max,
            Self::ForgetStaleNodes { grace_ms: ms } | Self::ConfirmGone { silent_ms: ms, .. } => {
                limits.task_ms_max.saturating_add(*ms)
            }
        };
        Deadline(now.plus_ms(ms))
    }
}

/// The program of an agent, as a verified manifest names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its version.
    pub version: AgentVersion,
    /// Where it is.
    pub url: String,
    /// Its hash.
    pub sha256: Sha256Hex,
    /// Its size in bytes.
    pub size: u64,
}

/// Which key pairs are to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeySlot {
    /// The node's first ones. If there are some already, they are answered (ENR-11).
    First,
    /// The ones after the present ones, instead of others that are waiting there. With the proof that the portal wants:
    /// the new key's signature over the old public key and the new one.
    Next {
        /// The signing key in use.
        old: SigningPublicKey,
    },
}

/// Where the cluster's secrets come from; sealed in either place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secrets {
    /// From `bootstrap.json`.
    Bootstrap,
    /// From a document.
    Document(Box<BootstrapSecrets>),
}

/// Where access to the bucket comes from; the keys are sealed in either place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bucket {
    /// From `bootstrap.json`.
    Bootstrap,
    /// From a document.
    Document(Box<S3Access>),
}

/// k3s's drop-ins (FILE-16).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropIns {
    /// When snapshots are taken, as cron says it.
    pub snapshot_schedule: String,
    /// How many are kept.
    pub snapshot_retention: u32,
    /// Who serves ingress; none leaves that drop-in as it is.
    pub ingress_mode: Option<IngressMode>,
}

/// An object that is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// Which one.
    pub id: ObjectId,
    /// Its UID: an object of the same name that came since is another one.
    pub uid: Uid,
}

/// Where a snapshot to restore is (OP-3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreSource {
    /// k3s's copy on the node.
    Local,
    /// The bucket.
    S3(Bucket),
}

/// What a task came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// It is done, and there is nothing to tell.
    Plain,
    /// Of [`Task::MakeKeys`].
    Keys {
        /// The key pairs.
        handle: KeyHandle,
        /// With [`KeySlot::Next`]: the new key's proof.
        proof: Option<Signature>,
    },
    /// Of [`Task::ReadServerId`].
    ServerId(ServerId),
    /// Of [`Task::SaveSnapshot`].
    SnapshotSaved {
        /// The name that the snapshot has in truth.
        name: SnapshotName,
    },
    /// Of [`Task::ConfirmSnapshot`].
    SnapshotConfirmed {
        /// Its size in bytes.
        size: u64,
        /// Its hash.
        sha256: Sha256Hex,
        /// Where it is.
        location: String,
    },
    /// Of [`Task::ForgetStaleNodes`].
    NodesForgotten(Vec<NodeName>),
    /// Of [`Task::WriteDropIns`].
    DropIns {
        /// Whether k3s runs and has not read all of them (SYNC-5).
        restart_pending: bool,
    },
    /// Of [`Task::RequestToken`].
    TokenIssued {
        /// The token, sealed to the agent's own key.
        token: Sealed,
        /// For how long it was granted, in seconds.
        lifetime_seconds: u64,
    },
    /// Of [`Task::SealKubeconfig`].
    KubeconfigSealed(Sealed<Kubeconfig>),
    /// Of [`Task::ListAccounts`].
    Accounts(Vec<Account>),
    /// Of [`Task::ListBucket`].
    BucketListed {
        /// How many objects there are.
        objects: u64,
    },
    /// Of [`Task::CollectDiagnostics`].
    Collected(DiagCollectResult),
    /// Of [`Task::InspectNode`].
    Inspected(Box<NodeFacts>),
    /// Of [`Task::CheckHealth`].
    Health(Box<Health>),
    /// Of [`Task::Commit`], and of [`Task::Reboot`] once a probe has found the node booted again.
    Booted(Booted),
    /// Of [`Task::Cordon`].
    Cordoned {
        /// What runs on the node and is to be moved, as `namespace/name`.
        pods: Vec<String>,
    },
    /// Of [`Task::Evict`].
    Evicted {
        /// What would not go.
        left: Vec<String>,
    },
    /// Of [`Task::ConfirmGone`].
    Gone {
        /// The Node that was silent; none where there is no such Node.
        uid: Option<Uid>,
    },
    /// Of [`Task::LookAtAddons`].
    AddonsSeen(Box<AddonsSeen>),
    /// Of [`Task::ApplyAddon`]: the objects in their order, as the API server has answered.
    AddonApplied(Vec<AppliedObject>),
    /// Of [`Task::EmptyPlatform`]: the `SaaSApplication` objects, as `namespace/name`; where there is one, nothing was applied.
    Applications(Vec<String>),
}

impl Done {
    /// Its name, for saying that a task came to the wrong one.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Keys { .. } => "keys",
            Self::ServerId(_) => "server ID",
            Self::SnapshotSaved { .. } => "snapshot saved",
            Self::SnapshotConfirmed { .. } => "snapshot confirmed",
            Self::NodesForgotten(_) => "nodes forgotten",
            Self::DropIns { .. } => "drop-ins",
            Self::TokenIssued { .. } => "token issued",
            Self::KubeconfigSealed(_) => "kubeconfig sealed",
            Self::Accounts(_) => "accounts",
            Self::BucketListed { .. } => "bucket listed",
            Self::Collected(_) => "collected",
            Self::Inspected(_) => "inspected",
            Self::Health(_) => "health",
            Self::Booted(_) => "booted",
            Self::Cordoned { .. } => "cordoned",
            Self::Evicted { .. } => "evicted",
            Self::Gone { .. } => "gone",
            Self::AddonsSeen(_) => "add-ons seen",
            Self::AddonApplied(_) => "add-on applied",
            Self::Applications(_) => "applications",
        }
    }
}

/// A step of putting a document into force, in its order (SYNC-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocumentStep {
    /// The host's configuration.
    WriteDropIns,
    /// k3s lets go of the first-start manifests of the document's add-ons; on every server, since each has its own.
    LetGoOfManifests,
    /// The restart of k3s that a drop-in needs, in the maintenance window.
    RestartK3s,
    /// The cluster's Secrets; the leader's alone.
    WriteSecrets,
    /// The add-ons, one after the other; the leader's alone.
    Addons,
}

impl DocumentStep {
    /// Whether it changes the cluster's configuration, which is the leader's alone (SYNC-6).
    pub fn changes_cluster(self) -> bool {
        match self {
            Self::WriteDropIns | Self::LetGoOfManifests | Self::RestartK3s => false,
            Self::WriteSecrets | Self::Addons => true,
        }
    }
}

impl fmt::Display for DocumentStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::WriteDropIns => "write_drop_ins",
            Self::LetGoOfManifests => "let_go_of_manifests",
            Self::RestartK3s => "restart_k3s",
            Self::WriteSecrets => "write_secrets",
            Self::Addons => "addons",
        })
    }
}
