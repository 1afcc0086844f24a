//! `POST /rotate-key`: new keys for old, signed with the old one (OP-9).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::KeyId;
use crate::seal::SealingPublicKey;
use crate::sign::{Signature, SigningPublicKey};

/// New public keys, with the proof that the new private key is at hand.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct RotateKeyRequest {
    /// The new signing key (KEY-1).
    pub signing_key: SigningPublicKey,
    /// The new sealing key (KEY-1).
    pub sealing_key: SealingPublicKey,
    /// The new key's signature over [`crate::sign::rotation_proof_bytes`].
    pub proof: Signature,
}

/// What the portal registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct RotateKeyAnswer {
    /// The ID of the new signing key.
    pub active_key_id: KeyId,
}
