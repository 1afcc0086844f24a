//! What an agent keeps on disk, with a schema number.
//!
//! A world may spread it over files as the node's layout wants it (FILE-5, FILE-6); it is one value here, so that one write
//! changes what belongs together. `bootstrap.json` and the private keys are the host's: tasks write and read them.
//!
//! Members that this program does not know are ignored, so that an older program can read what a newer one has written
//! with the same schema; a newer schema is refused.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use protocol::hash::Sha256Hex;
use protocol::id::{
    AgentId, AgentVersion, Generation, NodeName, OperationId, ReleaseVersion, ServerId,
    SnapshotName,
};
use protocol::pbx::operation::{
    DiagCollectResult, OperationEvent, OperationKind, OperationOffer, SnapshotSaveResult, Step,
};
use protocol::problem::ProblemCode;
use protocol::seal::{Kubeconfig, Sealed};
use protocol::sign::Signature;
use protocol::time::Timestamp;
use protocol::verified::SignedManifest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::addon::seen::KeptAddon;
use crate::journal::{Ledger, StepRecord, Work};
use crate::limits::REVOCATIONS_MAX;
use crate::machine::KeyHandle;
use crate::pbx::boot::{Booted, Image};
use crate::pbx::task::Program;
use crate::pbx::task::{AccountName, SubjectHash, Uid};

/// The schema that this program writes, and the newest that it reads.
pub const SCHEMA: u32 = 1;

/// An agent's durable record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Durable {
    /// The schema of what follows.
    pub schema: u32,
    /// Who the agent is; none until the answer to the enrollment is kept.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// The enrollment, until it is through.
    #[serde(default)]
    pub enrollment: Option<Box<Enrollment>>,
    /// Why the agent sends nothing any more.
    #[serde(default)]
    pub idle: Option<IdleReason>,
    /// The document that was taken last.
    #[serde(default)]
    pub document: Option<Arc<TakenDocument>>,
    /// Whether that document is in force: all that can be done for it was done once.
    #[serde(default)]
    pub in_force: bool,
    /// The generation that was in force last; 0 before the first.
    #[serde(default)]
    pub applied_generation: Generation,
    /// What was applied of add-ons, on disk by name before it was, and kept when it is gone: a restore brings it back (ADD-5).
    #[serde(default)]
    pub addons: Arc<Vec<KeptAddon>>,
    /// The highest floor of a manifest that was believed (UPD-6).
    #[serde(default)]
    pub floor: u64,
    /// The agent's own update, until it is committed or given up.
    #[serde(default)]
    pub update: Option<Box<Update>>,
    /// Versions that are left alone (UPD-3), the oldest first.
    #[serde(default)]
    pub bans: Vec<Ban>,
    /// The release that a 426 has named last, and that came to nothing (ANS-6).
    #[serde(default)]
    pub tried: Option<Box<Tried>>,
    /// The operation that runs.
    #[serde(default)]
    pub operation: Option<Box<RunningOperation>>,
    /// Operations that have ended, oldest first (OPS-7).
    #[serde(default)]
    pub finished: Arc<Vec<FinishedOperation>>,
    /// Events that the portal has not acknowledged, oldest operation first (OPS-8).
    #[serde(default)]
    pub outbox: Vec<Outbox>,
    /// Events that the portal will never take; shown in `status` (ANS-2, OPS-8).
    #[serde(default)]
    pub undeliverable: Vec<UndeliverableEvents>,
    /// The days on which this agent has run.
    #[serde(default)]
    pub days: Days,
    /// Access that was revoked and must stay so, whatever a restore brings back (R60).
    #[serde(default)]
    pub revocations: Option<Box<Revocations>>,
    /// The record before this one could not be read (FILE-13): the operation that the portal hands out first may have been
    /// under way.
    #[serde(default)]
    pub is_after_loss: bool,
}

impl Default for Durable {
    /// A node that was never started.
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            identity: None,
            enrollment: None,
            idle: None,
            document: None,
            in_force: true,
            applied_generation: Generation(0),
            addons: Arc::default(),
            floor: 0,
            update: None,
            bans: Vec::new(),
            tried: None,
            operation: None,
            finished: Arc::default(),
            outbox: Vec::new(),
            undeliverable: Vec::new(),
            days: Days::default(),
            revocations: None,
            is_after_loss: false,
        }
    }
}

/// Why a durable record is not read.
#[derive(Debug, thiserror::Error)]
pub enum DurableRefused {
    /// A newer program has written it; this one would lose what it does not know.
    #[error(
        "the record has schema {found}, and this program reads up to {SCHEMA}: start the program that has written it"
    )]
    NewerSchema {
        /// Its schema.
        found: u32,
    },
    /// It is no record.
    #[error("the record cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
}

impl Durable {
    /// What a node begins with whose record cannot be read (FILE-13). The portal gives the rest again; what is left of an
    /// operation that was under way nobody knows. Without its identity the agent sends nothing any more.
    pub fn after_loss(identity: Option<Identity>) -> Self {
        Self {
            idle: identity.is_none().then_some(IdleReason::IdentityLost),
            identity,
            is_after_loss: true,
            ..Self::default()
        }
    }

    /// Reads a record from its JSON; the caller has the file.
    pub fn read(json: &[u8]) -> Result<Self, DurableRefused> {
        #[derive(Deserialize)]
        struct SchemaOnly {
            schema: u32,
        }
        let SchemaOnly { schema } = serde_json::from_slice(json)?;
        if schema > SCHEMA {
            return Err(DurableRefused::NewerSchema { found: schema });
        }
        Ok(serde_json::from_slice(json)?)
    }

    /// The record as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a durable record has string keys and raw JSON only")
    }
}

impl Ledger for Durable {
    fn holds(&self, record: &StepRecord) -> bool {
        match &record.work {
            Work::Enrollment { step } => self.enrollment.as_ref().is_some_and(|enrollment| {
                (enrollment.step, enrollment.attempt) == (*step, record.attempt)
            }),
            Work::Document { generation, .. } => self
                .document
                .as_ref()
                .is_some_and(|document| document.generation == *generation),
            Work::Update { version, step } => self.update.as_ref().is_some_and(|update| {
                update.program.version == *version
                    && (update.step, update.attempt) == (*step, record.attempt)
            }),
            Work::Operation { operation, step } => self.operation.as_ref().is_some_and(|running| {
                running.offer.id == *operation
                    && (running.step, running.attempt) == (*step, record.attempt)
            }),
        }
    }
}

/// Who an agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The ID that the portal gave.
    pub agent_id: AgentId,
    /// The keys that requests are signed with.
    pub active: KeyPairs,
    /// The other ones on disk, during a rotation: the new ones before they are confirmed, the old ones after (OP-9).
    #[serde(default)]
    pub other: Option<Box<KeyPairs>>,
}

/// A signing and a sealing key pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPairs {
    /// Their name.
    pub handle: KeyHandle,
    /// When they were made, by the portal's clock as well as it was known.
    pub created_at: Timestamp,
}

/// An enrollment under way (ENR-1 to ENR-6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrollment {
    /// The step that has begun.
    pub step: EnrollStep,
    /// Which try of it, from 1.
    pub attempt: u32,
    /// The keys, once they are made.
    #[serde(default)]
    pub keys: Option<KeyPairs>,
    /// The server's number, once it is known.
    #[serde(default)]
    pub server_id: Option<ServerId>,
    /// How often the request was refused for good: the token by one of ENR-7's codes, or the request itself by 400
    /// (ANS-2). While the last try is out it counts already, so that a crash cannot make it one more.
    #[serde(default)]
    pub refusals: u32,
}

/// A step of the enrollment, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnrollStep {
    /// The keys are made and kept (ENR-1).
    MakeKeys,
    /// The server's number is asked for (ENR-2).
    ReadServerId,
    /// The portal is asked (ENR-3).
    Ask,
    /// Its answer is kept (ENR-5).
    StoreAnswer,
    /// The token is deleted from the configuration (ENR-5).
    DropToken,
    /// k3s's configuration is written (ENR-6).
    WriteK3s,
    /// k3s is started.
    StartK3s,
    /// Its API is waited for.
    WaitApi,
    /// The Secrets are written.
    WriteSecrets,
}

impl fmt::Display for EnrollStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::MakeKeys => "make_keys",
            Self::ReadServerId => "read_server_id",
            Self::Ask => "ask",
            Self::StoreAnswer => "store_answer",
            Self::DropToken => "drop_token",
            Self::WriteK3s => "write_k3s",
            Self::StartK3s => "start_k3s",
            Self::WaitApi => "wait_api",
            Self::WriteSecrets => "write_secrets",
        })
    }
}

/// Why an agent sends nothing any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleReason {
    /// Its identity was revoked; asked once again at each start (ANS-4).
    Revoked {
        /// The portal's code, if it gave one.
        code: Option<ProblemCode>,
    },
    /// Its token was refused three times; a new token comes with a new server (ENR-7).
    TokenRefused {
        /// The last code; none where a crash has swallowed the last answer.
        code: Option<ProblemCode>,
    },
    /// Its request to be enrolled was refused with 400 three times (ANS-2).
    EnrollmentRefused {
        /// The last code, or the status where there was none.
        code: String,
    },
    /// The node has booted another image than its release's (ENR-8).
    ImageMismatch,
    /// Who it was cannot be read any more (FILE-13); a new identity comes with a new server.
    IdentityLost,
}

impl fmt::Display for IdleReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revoked { code: Some(code) } => {
                write!(formatter, "its identity is revoked ({code})")
            }
            Self::Revoked { code: None } => formatter.write_str("its identity is revoked"),
            Self::TokenRefused { code: Some(code) } => {
                write!(formatter, "its token was refused three times ({code})")
            }
            Self::TokenRefused { code: None } => {
                formatter.write_str("its token was refused three times")
            }
            Self::EnrollmentRefused { code } => {
                write!(formatter, "its request was refused three times ({code})")
            }
            Self::ImageMismatch => {
                formatter.write_str("the node has booted another image than its release's")
            }
            Self::IdentityLost => formatter.write_str("who it was cannot be read any more"),
        }
    }
}

/// The document that was taken last: believed whole, perhaps not in force yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakenDocument {
    /// Its generation.
    pub generation: Generation,
    /// The release that it goes with.
    pub release: ReleaseVersion,
    /// Its raw text, byte for byte as it came.
    pub raw: Arc<RawValue>,
    /// The release's manifest, verified before this was written (SYNC-4).
    pub manifest: Arc<SignedManifest>,
}

/// The agent's own update under way (UPD-1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// The release that the program is of.
    pub release: ReleaseVersion,
    /// The program that is to run.
    pub program: Program,
    /// The portal has asked for it with a 426, whatever the document says (ANS-6).
    #[serde(default)]
    pub too_old: bool,
    /// The version that ran before.
    pub from: AgentVersion,
    /// The step that has begun.
    pub step: UpdateStep,
    /// Which try of it, from 1.
    pub attempt: u32,
    /// How often the program was started in the middle of it.
    #[serde(default)]
    pub resumes: u32,
}

/// A step of the agent's own update, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateStep {
    /// The new program is fetched.
    Fetch,
    /// It is seen to run.
    Check,
    /// The running program is kept as the previous one.
    Keep,
    /// The rollback timer is started.
    Arm,
    /// The programs are swapped.
    Swap,
    /// The new program runs, until its first good sync.
    Trial,
    /// It stays, and the timer is stopped.
    Commit,
}

impl fmt::Display for UpdateStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Fetch => "fetch",
            Self::Check => "check",
            Self::Keep => "keep",
            Self::Arm => "arm",
            Self::Swap => "swap",
            Self::Trial => "trial",
            Self::Commit => "commit",
        })
    }
}

/// A version that is left alone for a while (UPD-3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// The version.
    pub version: AgentVersion,
    /// Why.
    pub reason: BanReason,
    /// Until when, by the portal's time; none until that was heard.
    #[serde(default)]
    pub until: Option<Timestamp>,
}

/// Why a version is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BanReason {
    /// It was put back by the rollback timer.
    RolledBack,
    /// It does not run on this node.
    DoesNotRun,
    /// The portal does not speak its protocol any more.
    TooOld,
}

impl fmt::Display for BanReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::RolledBack => "it was rolled back, and is left alone for six hours",
            Self::DoesNotRun => "it does not run here, and is left alone for six hours",
            Self::TooOld => {
                "the portal does not speak its protocol, and it is left alone for six hours"
            }
        })
    }
}

/// A release that a 426 has named, and that came to nothing (ANS-6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The release.
    pub release: ReleaseVersion,
    /// Until when it is not asked for again, by the portal's time; none until that was heard.
    #[serde(default)]
    pub until: Option<Timestamp>,
}

/// The operation that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunningOperation {
    /// What was asked for; it counts, whatever is asked under the same ID later (OPS-9).
    pub offer: OperationOffer,
    /// The step that has begun.
    pub step: Step,
    /// Which try of it, from 1.
    pub attempt: u32,
    /// How often the program was started in the middle of it.
    #[serde(default)]
    pub resumes: u32,
    /// The number of the next event.
    pub next_sequence: u64,
    /// What its steps have found out.
    pub data: StepData,
}

/// What the steps of an operation have found out, filled in step by step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepData {
    /// Of `snapshot.save`.
    SnapshotSave {
        /// After `save`: the name that the snapshot has in truth.
        saved: Option<SnapshotName>,
        /// After `confirm_s3`: all of the result.
        confirmed: Option<SnapshotSaveResult>,
    },
    /// Of `cluster.restore`.
    ClusterRestore {
        /// In `forget_stale_nodes`, once it was looked: revoked access that the snapshot has brought back.
        #[serde(default)]
        revoked: Option<Again>,
        /// After `forget_stale_nodes`: the nodes that did not come back.
        forgotten_nodes: Option<Vec<NodeName>>,
    },
    /// Of `cluster.upgrade`.
    ClusterUpgrade(Box<Upgrade>),
    /// Of `access.issue`.
    AccessIssue {
        /// When it was asked for, by the portal's clock.
        asked_at: Timestamp,
        /// After `token`: the token, sealed to the agent's own key.
        token: Option<Sealed>,
        /// After `token`: when it ends, by the portal's clock.
        expires_at: Option<Timestamp>,
        /// After `seal`: the kubeconfig, sealed to whoever asked.
        kubeconfig: Option<Sealed<Kubeconfig>>,
    },
    /// Of `access.revoke`.
    AccessRevoke {
        /// In `delete_sa`, once it was looked: what is to be deleted. A crash inside the deleting changes nothing of it.
        accounts: Option<Vec<AccountName>>,
    },
    /// Of `s3.verify`.
    S3Verify {
        /// After `list_bucket`.
        objects_seen: Option<u64>,
    },
    /// Of `diag.collect`.
    DiagCollect {
        /// After `collect`.
        collected: Option<DiagCollectResult>,
    },
    /// Of `server.rejoin`, whose steps find out nothing.
    ServerRejoin,
    /// Of `node.drain`.
    NodeDrain {
        /// After `cordon`: what ran there, so that what a crash interrupts is told whole.
        pods: Option<Vec<String>>,
        /// After `evict`: what would not go.
        left: Option<Vec<String>>,
    },
    /// Of `node.forget`.
    NodeForget {
        /// After `confirm_gone`.
        gone: Option<Gone>,
    },
    /// Of `agent.rotate_key`.
    AgentRotateKey {
        /// After `generate`: the new keys.
        new: Option<NewKeys>,
        /// After a request that was signed with them got a 200.
        #[serde(default)]
        confirmed: bool,
    },
}

/// What the steps of an upgrade have found out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgrade {
    /// In `preflight`, once the release's manifest was verified.
    pub image: Option<Image>,
    /// In `preflight`: looks at which the node was not ready.
    #[serde(default)]
    pub looks: u32,
    /// After `preflight`: what the node came from.
    pub from: Option<CameFrom>,
    /// In `pre_snapshot`: the name that the snapshot has in truth.
    pub saved: Option<SnapshotName>,
    /// In `health_gate`: looks in a row at which all was well.
    #[serde(default)]
    pub passes: u32,
    /// What was not well at the last look.
    #[serde(default)]
    pub unwell: Option<String>,
}

/// What a node came from when it was upgraded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CameFrom {
    /// What ran.
    pub booted: Booted,
    /// The k3s that ran.
    pub k3s_version: String,
    /// The Deployments in `kube-system`, which must all be there again.
    pub deployments: Vec<String>,
}

/// Revoked access that a restore has brought back (R60).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// It is to be deleted.
    Found(Vec<AccountName>),
    /// It was.
    Deleted(Vec<AccountName>),
}

/// What `confirm_gone` of `node.forget` has seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// The Node that was silent; none where there is no such Node.
    pub uid: Option<Uid>,
}

/// Access that was revoked, by the portal's clock: an account that was asked for before is revoked.
///
/// Bounded: of more than [`REVOCATIONS_MAX`] people the oldest revocation is widened to everyone who was given access
/// before it. So forgetting takes access away and never gives it back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocations {
    /// Everyone's, up to then.
    #[serde(default)]
    everyone: Option<Timestamp>,
    /// One person's, up to then.
    #[serde(default)]
    subjects: BTreeMap<SubjectHash, Timestamp>,
}

impl Revocations {
    /// One person's access, up to now.
    pub fn revoke(&mut self, subject: SubjectHash, now: Timestamp) {
        self.subjects.insert(subject, now);
        if self.subjects.len() > REVOCATIONS_MAX
            && let Some((oldest, at)) = self.subjects.iter().min_by_key(|(_, at)| **at)
        {
            let (oldest, at) = (oldest.clone(), *at);
            self.subjects.remove(&oldest);
            self.everyone = self.everyone.max(Some(at));
        }
    }

    /// Everyone's access, up to now.
    pub fn revoke_everyone(&mut self, now: Timestamp) {
        self.everyone = self.everyone.max(Some(now));
        self.subjects.retain(|_, at| *at > now);
    }

    /// Whether access that was asked for then is revoked.
    pub fn include(&self, subject: &SubjectHash, asked_at: Timestamp) -> bool {
        let until = self.subjects.get(subject).copied().max(self.everyone);
        until.is_some_and(|until| asked_at <= until)
    }
}

/// New keys, before they are confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewKeys {
    /// Their name.
    pub handle: KeyHandle,
    /// The proof that the portal wants.
    pub proof: Signature,
}

/// An operation that has ended, or that was never begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedOperation {
    /// Its ID.
    pub id: OperationId,
    /// Its kind.
    pub kind: OperationKind,
    /// The hash of what was asked for (OPS-9).
    pub content: Sha256Hex,
    /// Its final event, which answers it if it is asked for again (OPS-7).
    pub end: OperationEvent,
    /// [`Days::seen`] when it ended.
    pub day: u32,
}

/// Events of one operation that the portal has not acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outbox {
    /// The operation.
    pub operation: OperationId,
    /// The events, in order.
    pub events: Vec<OperationEvent>,
}

/// Events that the portal will never take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndeliverableEvents {
    /// The operation.
    pub operation: OperationId,
    /// The first of them.
    pub first_sequence: u64,
    /// How many.
    pub count: u64,
    /// Why.
    pub cause: Undeliverable,
}

/// Why events will never be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undeliverable {
    /// This very event was refused with 400 as often as a request may be (ANS-2).
    Refused {
        /// The portal's code, or its status where there was none.
        code: String,
    },
    /// The portal has not handed this operation to this agent: 404 (OPS-8).
    UnknownOperation,
}

/// How many days an agent has run on, so that a clock that jumps a year ages nothing by more than a day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Days {
    /// Days seen so far.
    pub seen: u32,
    /// The last of them, in days since 1970.
    pub last: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    // R60: what is forgotten takes access away, and gives none back.
    #[test]
    fn of_too_many_revocations_the_oldest_is_widened_to_everyone() {
        let at = |seconds: i64| Timestamp::from_unix_ms(seconds * 1000);
        let mut revocations = Revocations::default();
        for number in 0..=REVOCATIONS_MAX {
            let subject = SubjectHash::of(&format!("person {number}"));
            revocations.revoke(subject, at(100 + i64::try_from(number).unwrap()));
        }
        let stranger = SubjectHash::of("somebody else");
        let second = SubjectHash::of("person 1");
        let rows = [
            (&stranger, 99, true),
            (&stranger, 100, true),
            (&stranger, 101, false),
            (&second, 101, true),
            (&second, 102, false),
        ];
        for (subject, asked_at, expected) in rows {
            assert_eq!(
                revocations.include(subject, at(asked_at)),
                expected,
                "{asked_at}"
            );
        }
        revocations.revoke_everyone(at(5_000));
        assert!(revocations.include(&stranger, at(5_000)));
        assert!(!revocations.include(&second, at(5_001)));
        assert_eq!(revocations.subjects.len(), 0);
    }
}
