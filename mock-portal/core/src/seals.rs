//! Boxes that are made once: a document once a key and generation, an operation's secrets once a key (SEAL-1).
//!
//! A keep-alive sync neither seals nor writes JSON anew. What is kept here is made from the state and can be made again; it
//! is not part of it. The shard's chance is here too, because boxes and IDs need it.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::id::{AgentId, ClusterId, EnrollmentToken, Generation, OperationId};
use protocol::seal::{self, Sealed, SealingPublicKey};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::documents::{Document, S3Input, SecretsInput};
use crate::enroll::hash_of;
use crate::operations::Operation;
use crate::secret::ClearOrSealed;
use crate::shard;
use crate::state::{ClusterSecrets, ShardState};

/// One shard's chance, and the boxes made with it.
pub(crate) struct Seals {
    rng: ChaCha20Rng,
    shard: usize,
    documents: HashMap<AgentId, Kept<Generation>>,
    operations: HashMap<AgentId, Kept<OperationId>>,
    /// Boxes made so far.
    made: u64,
}

/// What was sealed for an agent last: one item for each of its keys in force, so at most two.
type Kept<K> = Vec<(SealingPublicKey, K, Arc<RawValue>)>;

/// Keys of an agent that can be in force at once.
const KEYS_MAX: usize = 2;

impl Seals {
    /// The chance of a shard: one child of the seed a shard.
    pub(crate) fn new(seed: &[u8; 32], shard: usize) -> Self {
        let child = Sha256::new()
            .chain_update(b"portal-core shard")
            .chain_update(seed)
            .chain_update(shard.to_le_bytes());
        Self {
            rng: ChaCha20Rng::from_seed(child.finalize().into()),
            shard,
            documents: HashMap::new(),
            operations: HashMap::new(),
            made: 0,
        }
    }

    /// Forgets every box; the chance goes on, so that no ID comes twice.
    pub(crate) fn forget(&mut self) {
        self.documents.clear();
        self.operations.clear();
    }

    /// How many boxes were made so far.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// A box of a secret; one that is sealed already stays as it is.
    pub(crate) fn seal(&mut self, recipient: &SealingPublicKey, secret: &ClearOrSealed) -> Sealed {
        match secret {
            ClearOrSealed::Clear(secret) => {
                self.made += 1;
                seal::seal(recipient, secret.expose().as_bytes(), &mut self.rng)
            }
            ClearOrSealed::Sealed(sealed) => sealed.clone(),
        }
    }

    /// A document as raw JSON, sealed to that key.
    pub(crate) fn document(
        &mut self,
        agent: &AgentId,
        recipient: &SealingPublicKey,
        document: &Document,
    ) -> Arc<RawValue> {
        if let Some(raw) = kept(&self.documents, agent, recipient, &document.generation) {
            return raw;
        }
        let sealed = document.input.seal(document.generation, &mut |secret| {
            self.seal(recipient, secret)
        });
        keep(
            &mut self.documents,
            agent,
            recipient,
            document.generation,
            sealed.to_raw(),
        )
    }

    /// An operation's parameters as raw JSON, their secrets sealed to that key.
    pub(crate) fn params(
        &mut self,
        agent: &AgentId,
        recipient: &SealingPublicKey,
        id: &OperationId,
        operation: &Operation,
    ) -> Arc<RawValue> {
        if operation.kind.secrets().is_empty() {
            return operation.params.raw();
        }
        if let Some(raw) = kept(&self.operations, agent, recipient, id) {
            return raw;
        }
        let sealed = operation
            .params
            .seal(&operation.kind, &mut |secret| self.seal(recipient, secret));
        keep(&mut self.operations, agent, recipient, id.clone(), sealed)
    }

    /// An ID for a new agent.
    pub(crate) fn mint_agent(&mut self, state: &ShardState) -> AgentId {
        self.mint(shard::mint_agent, |id| state.agents.contains_key(id))
    }

    /// An ID for a new operation.
    pub(crate) fn mint_operation(&mut self, state: &ShardState) -> OperationId {
        self.mint(shard::mint_operation, |id| {
            state.operations.contains_key(id)
        })
    }

    /// A new token.
    pub(crate) fn mint_token(&mut self, state: &ShardState) -> EnrollmentToken {
        self.mint(shard::mint_token, |token| {
            state.tokens.contains_key(&hash_of(token))
        })
    }

    /// Taken ones come up where a portal was restored with the seed that it had before.
    fn mint<T>(
        &mut self,
        mint: impl Fn(usize, &mut ChaCha20Rng) -> T,
        is_taken: impl Fn(&T) -> bool,
    ) -> T {
        loop {
            let id = mint(self.shard, &mut self.rng);
            if !is_taken(&id) {
                return id;
            }
        }
    }

    /// The secrets of a cluster that just arose: chosen by chance, until a document brings others.
    pub(crate) fn cluster_secrets(&mut self, cluster: &ClusterId) -> ClusterSecrets {
        let mut secret = || ClearOrSealed::Clear(shard::mint_secret(&mut self.rng).into());
        ClusterSecrets {
            k3s_token: secret(),
            k3s_agent_token: secret(),
            bootstrap: SecretsInput {
                hcloud_token: secret(),
                s3: S3Input {
                    endpoint: "https://s3.invalid".to_owned(),
                    region: "fsn1".to_owned(),
                    bucket: "pbx-snapshots".to_owned(),
                    folder: cluster.to_string(),
                    access_key: secret(),
                    secret_key: secret(),
                },
            },
        }
    }
}

fn kept<K: PartialEq>(
    all: &HashMap<AgentId, Kept<K>>,
    agent: &AgentId,
    recipient: &SealingPublicKey,
    of: &K,
) -> Option<Arc<RawValue>> {
    let kept = all
        .get(agent)?
        .iter()
        .find(|(key, what, _)| key == recipient && what == of)?;
    Some(Arc::clone(&kept.2))
}

fn keep<K>(
    all: &mut HashMap<AgentId, Kept<K>>,
    agent: &AgentId,
    recipient: &SealingPublicKey,
    of: K,
    raw: Arc<RawValue>,
) -> Arc<RawValue> {
    let kept = all.entry(agent.clone()).or_default();
    kept.retain(|(key, _, _)| key != recipient);
    kept.truncate(KEYS_MAX - 1);
    kept.insert(0, (*recipient, of, Arc::clone(&raw)));
    raw
}
