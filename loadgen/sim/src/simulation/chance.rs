//! The chance of a world: a stream for each agent and purpose, all from one seed, so that one more draw here changes
//! nothing there. The agents' own chance is theirs; each start of one gets a seed from here.

use agent_core::seed::{self, Seed};
use protocol::hash::Sha256Hex;

/// Anything between two numbers, both included, all alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// The least.
    pub least: u64,
    /// The most; the least where it is below.
    pub most: u64,
}

impl Spread {
    /// Always this number.
    pub const fn fixed(number: u64) -> Self {
        Self {
            least: number,
            most: number,
        }
    }

    /// From the first to the second.
    pub const fn new(least: u64, most: u64) -> Self {
        Self { least, most }
    }
}

/// What is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The seed of each start of the agent.
    Boots,
    /// How long it takes from power on to the agent's start.
    BootTime,
    /// How long a call is under way.
    Latency,
    /// What goes wrong, and how.
    Trouble,
    /// What a crash leaves of what was under way.
    Leftovers,
    /// What is fixed about a node: keys, number, image, clock, the moment of its arrival.
    Node,
    /// Which troubles there are, and how often each.
    Profile,
}

/// A stream of draws.
#[derive(Debug, Clone)]
pub(super) struct Chance(seed::Chance);

impl Chance {
    /// The stream of a purpose, for a member of the run.
    pub(super) fn new(seed: u64, member: u64, purpose: Purpose) -> Self {
        let text = format!("simulation\n{seed}\n{member}\n{purpose:?}\n");
        let derived = Sha256Hex::of(text.as_bytes());
        let first_eight = std::array::from_fn(|at| derived.as_bytes()[at]);
        Self(Seed(u64::from_be_bytes(first_eight)).stream())
    }

    /// 64 bits.
    pub(super) fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `count`; 0 where that is 0.
    pub(super) fn below(&mut self, count: u64) -> u64 {
        self.0.between(0, count.saturating_sub(1))
    }

    /// A number of a spread.
    pub(super) fn within(&mut self, spread: Spread) -> u64 {
        self.0.between(spread.least, spread.most)
    }

    /// One of these, all alike.
    pub(super) fn pick<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        let at = self.below(N as u64);
        from[usize::try_from(at).unwrap_or(0)]
    }

    /// Whether something happens that does so `count` times in a hundred.
    pub(super) fn percent(&mut self, count: u64) -> bool {
        self.below(100) < count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_member_and_purpose_has_a_stream_of_its_own() {
        let first = |seed, member, purpose| Chance::new(seed, member, purpose).draw();
        let one = first(1, 1, Purpose::Latency);
        assert_eq!(one, first(1, 1, Purpose::Latency));
        for other in [
            first(2, 1, Purpose::Latency),
            first(1, 2, Purpose::Latency),
            first(1, 1, Purpose::Trouble),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_spread_is_drawn_to_both_ends() {
        let mut chance = Chance::new(1, 1, Purpose::Latency);
        let mut seen = [0_u32; 5];
        for _ in 0..10_000 {
            let drawn = chance.within(Spread::new(10, 14));
            seen[usize::try_from(drawn - 10).unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| (1_800..2_200).contains(count)));
        assert_eq!(chance.within(Spread::fixed(7)), 7);
        assert_eq!(chance.within(Spread::new(7, 3)), 7);
    }
}
