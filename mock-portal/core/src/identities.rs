//! Agents and their keys: which key of an agent is in force, and how one replaces another.
//!
//! A rotation registers a second pair beside the first. The first stays in force until the second is used for the first
//! time, at most 24 hours. Secrets are sealed to the sealing key that was registered with the signing key that verified the
//! request (SEAL-1). How an agent comes to be is [`crate::enroll`]'s.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::id::{AgentId, AgentVersion, Arch, ClusterId, NodeName, OperationId, ServerId};
use protocol::limits::KEY_OVERLAP_SECONDS_MAX;
use protocol::pbx::enroll::EnrollAnswer;
use protocol::pbx::operation::OperationKind;
use protocol::pbx::rotate::{RotateKeyAnswer, RotateKeyRequest};
use protocol::pbx::sync::SyncReport;
use protocol::problem::ProblemCode;
use protocol::seal::SealingPublicKey;
use protocol::sign::{SigningPublicKey, VerifyingKey, WeakKey, rotation_proof_bytes};
use protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::answer::Refused;
use crate::clock::Moment;
use crate::operations::ClearParams;
use crate::seals::Seals;
use crate::state::{Change, ShardState, Work};

/// An agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Agent {
    pub(crate) cluster: ClusterId,
    pub(crate) node_name: NodeName,
    pub(crate) enrollment: Enrollment,
    pub(crate) keys: Keys,
    pub(crate) revoked_at: Option<Timestamp>,
    pub(crate) last_report: Option<ReceivedReport>,
    /// The report, in the cluster's count, that last said `leader: true` (OPS-10).
    pub(crate) last_led: Option<u64>,
    pub(crate) reports: u64,
    /// The signing key that it was last asked to replace, and by which operation (OP-9).
    pub(crate) rotation_asked_for: Option<(SigningPublicKey, OperationId)>,
}

/// What an agent was enrolled with, and what it was answered: the same again for the same (ENR-10).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Enrollment {
    /// When.
    pub at: Timestamp,
    /// Its server.
    pub server_id: ServerId,
    /// Its keys of that time.
    pub keys: KeyPair,
    /// Its program of that time.
    pub agent_version: AgentVersion,
    /// What it runs on.
    pub arch: Arch,
    /// What it was answered, sealed to its key of that time.
    pub answer: Arc<EnrollAnswer>,
}

/// A report as it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReceivedReport {
    pub(crate) at: Timestamp,
    /// Its place in the cluster's count of reports.
    pub(crate) order: u64,
    pub(crate) report: Arc<SyncReport>,
}

/// The keys of an agent: one pair, or two while a rotation lasts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Keys {
    current: KeyPair,
    next: Option<Box<KeyPair>>,
}

/// A signing key and the sealing key that was registered with it. Both were found strong (KEY-1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPair {
    /// Verifies.
    #[serde(with = "verifying_key")]
    pub signing: VerifyingKey,
    /// Secrets are sealed to it.
    pub sealing: SealingPublicKey,
    /// When they were registered.
    pub registered_at: Timestamp,
    /// The signing key that it replaces, of a pair that came by rotation.
    pub replaces: Option<SigningPublicKey>,
}

impl Keys {
    /// One pair.
    pub(crate) fn one(current: KeyPair) -> Self {
        Self {
            current,
            next: None,
        }
    }

    /// Registers a second pair beside the first; one that was there before is gone.
    pub(crate) fn register(&mut self, next: KeyPair) {
        self.next = Some(Box::new(next));
    }

    /// The second pair was used: it is alone from now on.
    pub(crate) fn switch(&mut self) {
        if let Some(next) = self.next.take() {
            self.current = *next;
        }
    }

    /// The pairs that a signature may be of: the one before first, while the overlap lasts.
    pub(crate) fn in_force(&self, moment: Moment) -> impl Iterator<Item = &KeyPair> {
        let is_over = self.next().is_some_and(|next| is_over(next, moment));
        self.all().skip(usize::from(is_over))
    }

    /// The pair that verified a request, if it is in force.
    pub(crate) fn pair(&self, key: &SigningPublicKey, moment: Moment) -> Option<&KeyPair> {
        self.in_force(moment)
            .find(|pair| pair.signing.public() == *key)
    }

    /// The pair that is alone in force from its first use on.
    pub(crate) fn next(&self) -> Option<&KeyPair> {
        self.next.as_deref()
    }

    /// Every pair that is kept, in force or not; the one before first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &KeyPair> {
        std::iter::once(&self.current).chain(self.next())
    }
}

/// Whether the overlap that began with this pair is over: 24 hours by the portal's clock.
fn is_over(next: &KeyPair, moment: Moment) -> bool {
    let passed_ms = moment
        .time
        .unix_ms()
        .saturating_sub(next.registered_at.unix_ms());
    u64::try_from(passed_ms).is_ok_and(|passed_ms| passed_ms > KEY_OVERLAP_SECONDS_MAX * 1000)
}

impl Agent {
    /// Whether it is revoked.
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked_at.is_some()
    }

    /// Whether its last report said that it leads.
    pub(crate) fn leads(&self) -> bool {
        self.last_report
            .as_ref()
            .is_some_and(|received| received.report.leader)
    }
}

/// Every key that any agent has registered, with its agent (KEY-1). A key that was replaced, or whose agent is revoked,
/// stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Registry {
    signing: BTreeMap<SigningPublicKey, AgentId>,
    sealing: BTreeMap<SealingPublicKey, AgentId>,
}

impl Registry {
    /// The agent that registered a signing key.
    pub(crate) fn owner_of_signing(&self, key: &SigningPublicKey) -> Option<&AgentId> {
        self.signing.get(key)
    }

    fn knows(&self, signing: &SigningPublicKey, sealing: &SealingPublicKey) -> bool {
        self.signing.contains_key(signing) || self.sealing.contains_key(sealing)
    }

    /// Makes a change, as far as it is about keys.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Enrolled {
                agent, enrollment, ..
            } => self.add(agent, &enrollment.keys),
            Change::KeysRegistered { agent, keys } => self.add(agent, keys),
            Change::Emptied => *self = Self::default(),
            _ => {}
        }
    }

    fn add(&mut self, agent: &AgentId, keys: &KeyPair) {
        self.signing.insert(keys.signing.public(), agent.clone());
        self.sealing.insert(keys.sealing, agent.clone());
    }
}

/// Both keys, if neither is weak (KEY-1).
pub(crate) fn strong_keys(
    signing: &SigningPublicKey,
    sealing: &SealingPublicKey,
) -> Result<(VerifyingKey, SealingPublicKey), Box<Refused>> {
    let weak = |member, why: WeakKey| {
        let came = format!("{member}: {why}");
        Refused::new(
            ProblemCode::InvalidKey,
            "KEY-1",
            "strong keys in their canonical encoding",
            came,
        )
    };
    let signing = VerifyingKey::parse(signing).map_err(|why| weak("signing_key", why))?;
    let sealing = sealing.checked().map_err(|why| weak("sealing_key", why))?;
    Ok((signing, sealing))
}

/// `POST /rotate-key`, from its shape on. `verified_by` is the pair that verified the request.
pub(crate) fn rotate(
    work: &mut Work<'_>,
    registry: &mut Registry,
    agent_id: &AgentId,
    verified_by: &KeyPair,
    request: &RotateKeyRequest,
    moment: Moment,
) -> Result<RotateKeyAnswer, Box<Refused>> {
    let refused =
        |expected: &str, came: &str| Refused::new(ProblemCode::InvalidKey, "KEY-1", expected, came);
    let (signing, sealing) = strong_keys(&request.signing_key, &request.sealing_key)?;
    let answer = RotateKeyAnswer {
        active_key_id: signing.key_id(),
    };

    let agent = work
        .agent(agent_id)
        .ok_or_else(|| refused("an agent that is here", "one that is gone"))?;
    // The same rotation again, after a lost answer: signed with the old key, or after the switch with the new one.
    let again = agent
        .keys
        .all()
        .find(|pair| pair.signing == signing && pair.sealing == sealing);
    let replaced = match again {
        Some(pair) => pair.replaces,
        None => Some(verified_by.signing.public()),
    };
    let Some(replaced) = replaced else {
        return Err(refused(
            "new keys",
            "the keys that the agent was enrolled with",
        ));
    };
    if !signing.verify(
        &rotation_proof_bytes(&replaced, &request.signing_key),
        &request.proof,
    ) {
        return Err(refused(
            "proof: the new signing key's signature over the old signing key's 32 bytes and then the new one's",
            "a proof that does not verify",
        ));
    }
    if again.is_some() {
        return Ok(answer);
    }
    if registry.knows(&request.signing_key, &request.sealing_key) {
        return Err(refused(
            "keys that no agent has registered",
            "a key that is registered",
        ));
    }
    let keys = KeyPair {
        signing,
        sealing,
        registered_at: moment.time,
        replaces: Some(replaced),
    };
    work.change_keys(
        Change::KeysRegistered {
            agent: agent_id.clone(),
            keys,
        },
        registry,
    );
    Ok(answer)
}

/// Age at which an agent is asked to replace its keys (OP-9).
const KEY_AGE_MS_MAX: i64 = 90 * 24 * 60 * 60 * 1000;

/// After the end of a rotation that has not replaced the keys, they are asked for again.
const ASK_AGAIN_MS: i64 = 24 * 60 * 60 * 1000;

/// Makes an operation `agent.rotate_key` for an agent whose keys were registered 90 days ago by the portal's clock
/// (OP-9), and another one a day after that has ended in vain: one at a time, wherever the clock is set. It waits in the
/// cluster's queue like every other.
pub(crate) fn ask_for_rotation(
    work: &mut Work<'_>,
    seals: &mut Seals,
    agent_id: &AgentId,
    moment: Moment,
) {
    let Some(agent) = work.agent(agent_id) else {
        return;
    };
    let Keys {
        current: keys,
        next: None,
    } = &agent.keys
    else {
        return;
    };
    let key = keys.signing.public();
    let age_ms = moment
        .time
        .unix_ms()
        .saturating_sub(keys.registered_at.unix_ms());
    let was_asked_lately = agent
        .rotation_asked_for
        .as_ref()
        .is_some_and(|(of, by)| *of == key && !has_ended_long_ago(work.state(), by, moment));
    if age_ms < KEY_AGE_MS_MAX || was_asked_lately {
        return;
    }
    let (cluster, target) = (agent.cluster.clone(), Some(agent.node_name.clone()));
    let operation = seals.mint_operation(work.state());
    let params = ClearParams::none();
    let kind = OperationKind::AgentRotateKey;
    work.change(Change::RotationAsked {
        agent: agent_id.clone(),
        key,
        operation: operation.clone(),
    });
    work.change(Change::OperationMade {
        operation,
        cluster,
        kind,
        target,
        params,
        consent: None,
        at: moment.time,
    });
}

/// Whether an operation has ended, and a day has passed since; so has one that nobody knows any more.
fn has_ended_long_ago(state: &ShardState, operation: &OperationId, moment: Moment) -> bool {
    let Some(operation) = state.operations.get(operation) else {
        return true;
    };
    operation
        .ended_at
        .is_some_and(|at| moment.time.unix_ms().saturating_sub(at.unix_ms()) >= ASK_AGAIN_MS)
}

/// A verifying key by its 32 bytes; a weak one is not read.
mod verifying_key {
    use serde::{Deserializer, Serializer, de::Error as _};

    use super::*;

    pub(super) fn serialize<S: Serializer>(
        key: &VerifyingKey,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        key.public().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<VerifyingKey, D::Error> {
        let public = SigningPublicKey::deserialize(deserializer)?;
        VerifyingKey::parse(&public).map_err(D::Error::custom)
    }
}
