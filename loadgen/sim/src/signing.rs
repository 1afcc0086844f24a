//! The signing key of a simulated node. It makes the bytes that every Ed25519 key makes of the same seed (RFC 8032), so
//! which code makes them is nobody's business but the load generator's, which signs for a thousand nodes: with the
//! feature `fast-signing` that is aws-lc, which takes half the time. Nothing is verified here.

use protocol::sign::{Signature, SigningKey, SigningPublicKey};

/// An Ed25519 private key of a simulated node; `Debug` shows nothing of its private half.
#[derive(Debug)]
pub struct NodeKey(signer::Key);

impl NodeKey {
    /// The key of a seed, and its public half.
    pub fn from_seed(seed: [u8; 32]) -> (Self, SigningPublicKey) {
        let key = SigningKey::from_seed(seed);
        let public = key.public();
        (Self(signer::key(key)), public)
    }

    /// Signs; the same bytes always get the same signature.
    pub fn sign(&self, bytes: &[u8]) -> Signature {
        signer::sign(&self.0, bytes)
    }
}

#[cfg(feature = "fast-signing")]
mod signer {
    use super::{Signature, SigningKey};

    pub(super) type Key = aws_lc_rs::signature::Ed25519KeyPair;

    pub(super) fn key(key: SigningKey) -> Key {
        Key::from_seed_and_public_key(&*key.seed(), &key.public().0)
            .expect("the public key was made of the same seed")
    }

    pub(super) fn sign(key: &Key, bytes: &[u8]) -> Signature {
        let signature = key.sign(bytes);
        Signature(
            signature
                .as_ref()
                .try_into()
                .expect("an Ed25519 signature has 64 bytes (RFC 8032, 5.1.6)"),
        )
    }
}

#[cfg(not(feature = "fast-signing"))]
mod signer {
    use super::{Signature, SigningKey};

    pub(super) type Key = SigningKey;

    pub(super) fn key(key: SigningKey) -> Key {
        key
    }

    pub(super) fn sign(key: &Key, bytes: &[u8]) -> Signature {
        key.sign(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_signs_what_any_key_of_that_seed_signs() {
        for seed in 0..=u8::MAX {
            let (key, public) = NodeKey::from_seed([seed; 32]);
            let peer = SigningKey::from_seed([seed; 32]);
            assert_eq!(public, peer.public());
            for length in [0, 1, 95, 4096] {
                let bytes = vec![seed.wrapping_mul(31); length];
                assert_eq!(
                    key.sign(&bytes),
                    peer.sign(&bytes),
                    "{seed}, {length} bytes"
                );
            }
        }
    }
}
