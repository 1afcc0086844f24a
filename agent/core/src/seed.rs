//! Chance: a seed given at boot, split into one child per purpose, so that one more draw here changes nothing there.
//!
//! The draws decide how waits are spread and nothing that must be hard to guess; keys and sealing get their randomness
//! from the world.

/// What a run's chance grows from. A world gives a new one at each boot, or the spreads repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

/// What chance is drawn for; each has its own stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// When the first sync after a start comes (SYNC-10).
    FirstSync,
    /// How far a sync lies from the middle of its interval (SYNC-1).
    SyncJitter,
    /// Where in its range a backoff lies (ANS-8).
    BackoffJitter,
    /// What is added to a wait that the portal asked for (ANS-7).
    RetryAfterSpread,
    /// Where in its range the wait before a failed task of the host lies.
    TaskRetryJitter,
    /// Where in its range the wait before a failed write lies.
    StoreRetryJitter,
    /// Where the tickets of a boot begin.
    Tickets,
    /// Where in its range the wait before a failed task of the agent's own update lies.
    UpdateRetryJitter,
    /// What tells this life of the program from others, where it holds a lease (SYNC-6).
    Life,
}

impl Seed {
    /// One stream for whoever has no purposes to keep apart, such as a world.
    pub fn stream(self) -> Chance {
        Chance(self.0)
    }

    /// The stream of a purpose.
    pub fn child(self, purpose: Purpose) -> Chance {
        let mut chance = Chance(self.0 ^ (purpose as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93));
        Chance(chance.draw())
    }
}

/// A stream of draws: SplitMix64 (Steele, Lea, Flood 2014), which has all of its state in eight bytes and is fair enough
/// to spread waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chance(u64);

impl Chance {
    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `low..=high`, uniform; `low` where `high` is below it.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let width = u128::from(high.saturating_sub(low)) + 1;
        let offset = (u128::from(self.draw()) * width) >> 64;
        low + u64::try_from(offset).expect("the upper half of a product is below its factor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_draw_here_changes_nothing_there() {
        let mut alone = Seed(7).child(Purpose::SyncJitter);
        let mut disturbed = Seed(7).child(Purpose::SyncJitter);
        let mut other = Seed(7).child(Purpose::BackoffJitter);
        let draws: Vec<_> = (0..8).map(|_| alone.draw()).collect();
        let beside: Vec<_> = (0..8)
            .map(|_| {
                other.draw();
                disturbed.draw()
            })
            .collect();
        assert_eq!(draws, beside);
        assert_ne!(draws[0], Seed(7).child(Purpose::BackoffJitter).draw());
        assert_ne!(draws[0], Seed(8).child(Purpose::SyncJitter).draw());
    }

    #[test]
    fn a_draw_is_uniform_to_both_ends() {
        let mut chance = Seed(1).child(Purpose::FirstSync);
        let mut seen = [0_u32; 5];
        for _ in 0..10_000 {
            seen[usize::try_from(chance.between(10, 14)).unwrap() - 10] += 1;
        }
        assert!(
            seen.iter().all(|count| (1_800..2_200).contains(count)),
            "{seen:?}"
        );
        assert_eq!(chance.between(9, 9), 9);
        assert_eq!(chance.between(9, 3), 9);
        assert!(chance.between(0, u64::MAX) > 0);
    }
}
