//! Which shard a cluster, a token, an agent or an operation is in, and how the portal's IDs say so.
//!
//! Everything of a cluster is in one shard, chosen by the cluster's ID. IDs and tokens that the portal mints carry their
//! shard's number as two hex digits behind their prefix, so a request finds its shard without a table that all share. An
//! ID that the portal did not mint falls into some shard and is unknown there.

use protocol::id::{AgentId, ClusterId, EnrollmentToken, OperationId};
use rand_core::Rng;

/// How many shards a portal has, 1 to 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards(u16);

impl Shards {
    /// So many shards; fewer than 1 are 1, more than 256 are 256.
    pub const fn new(count: u16) -> Self {
        match count {
            0 => Self(1),
            1..=256 => Self(count),
            _ => Self(256),
        }
    }

    /// How many.
    pub const fn count(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn of_cluster(self, cluster: &ClusterId) -> usize {
        // FNV-1a, 32 bits: spreads names that differ in their last digits, the same on every machine.
        let hash = cluster
            .as_str()
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| {
                (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
            });
        hash as usize % self.count()
    }

    pub(crate) fn of_agent(self, agent: &AgentId) -> usize {
        self.named(agent.as_str(), AGENT)
    }

    pub(crate) fn of_operation(self, operation: &OperationId) -> usize {
        self.named(operation.as_str(), OPERATION)
    }

    pub(crate) fn of_token(self, token: &EnrollmentToken) -> usize {
        self.named(token.expose(), TOKEN)
    }

    fn named(self, id: &str, prefix: &str) -> usize {
        let digits = id.strip_prefix(prefix).and_then(|rest| rest.get(..2));
        digits
            .and_then(|digits| usize::from_str_radix(digits, 16).ok())
            .unwrap_or(0)
            % self.count()
    }
}

impl Default for Shards {
    fn default() -> Self {
        Self(16)
    }
}

const AGENT: &str = "agt_";
const OPERATION: &str = "op_";
const TOKEN: &str = "pbxe_";

/// Crockford's base 32: no letters that are taken for digits.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// A new agent's ID: 80 random bits.
pub(crate) fn mint_agent(shard: usize, rng: &mut impl Rng) -> AgentId {
    AgentId::new(mint(AGENT, shard, 16, rng))
        .expect("prefix, hex digits and base 32 are in the alphabet")
}

/// A new operation's ID: 80 random bits.
pub(crate) fn mint_operation(shard: usize, rng: &mut impl Rng) -> OperationId {
    OperationId::new(mint(OPERATION, shard, 16, rng))
        .expect("prefix, hex digits and base 32 are in the alphabet")
}

/// A new token: 160 random bits.
pub(crate) fn mint_token(shard: usize, rng: &mut impl Rng) -> EnrollmentToken {
    EnrollmentToken::new(mint(TOKEN, shard, 32, rng))
        .expect("prefix, hex digits and base 32 are no control characters")
}

/// A new secret of a cluster: 160 random bits.
pub(crate) fn mint_secret(rng: &mut impl Rng) -> String {
    let mut secret = String::new();
    push_random(&mut secret, 32, rng);
    secret
}

fn mint(prefix: &str, shard: usize, length: usize, rng: &mut impl Rng) -> String {
    let mut id = format!("{prefix}{shard:02x}");
    push_random(&mut id, length, rng);
    id
}

fn push_random(text: &mut String, length: usize, rng: &mut impl Rng) {
    let mut bytes = [0; 32];
    rng.fill_bytes(&mut bytes[..length]);
    text.extend(
        bytes[..length]
            .iter()
            .map(|byte| char::from(ALPHABET[usize::from(byte & 31)])),
    );
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng as _;

    use super::*;

    #[test]
    fn what_the_portal_mints_names_its_shard() {
        let mut rng = ChaCha20Rng::from_seed([7; 32]);
        for shards in [Shards::new(1), Shards::default(), Shards::new(256)] {
            for shard in 0..shards.count() {
                assert_eq!(shards.of_agent(&mint_agent(shard, &mut rng)), shard);
                assert_eq!(shards.of_operation(&mint_operation(shard, &mut rng)), shard);
                assert_eq!(shards.of_token(&mint_token(shard, &mut rng)), shard);
            }
        }
    }

    #[test]
    fn what_it_did_not_mint_falls_into_some_shard() {
        for id in ["x", "agt_", "agt_z", "agt_zz", "agt_ff01", "0f", "agt_-1"] {
            assert!(
                Shards::default().of_agent(&AgentId::new(id).unwrap()) < 16,
                "{id}"
            );
        }
        assert!(Shards::default().of_token(&EnrollmentToken::new("pbxe_é").unwrap()) < 16);
    }

    #[test]
    fn clusters_that_differ_in_a_digit_are_spread() {
        let shards = Shards::default();
        let mut filled = vec![0; shards.count()];
        for at in 1..=1000 {
            filled[shards.of_cluster(&ClusterId::new(format!("clu_steady-{at}")).unwrap())] += 1;
        }
        assert!(
            filled.iter().all(|count| (30..=100).contains(count)),
            "{filled:?}"
        );
    }
}
