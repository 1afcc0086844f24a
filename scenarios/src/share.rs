//! A part of a whole, and whom it takes.

use std::fmt;

/// A part of a whole, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// Nothing of it.
    pub const NONE: Share = Share(0.0);
    /// All of it.
    pub const ALL: Share = Share(1.0);

    /// A share; none for a number outside of 0 to 1.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Share(share))
    }

    /// The number, from 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Whether it takes member `index` of a series: spread evenly, the same members in every run, and of the first `n` as
    /// many as the share of `n`, rounded down. A tenth takes 9, 19, 29 …
    pub fn takes(self, index: u64) -> bool {
        self.of(index + 1) > self.of(index)
    }

    /// How many of `count` it takes: rounded down.
    pub fn of(self, count: u64) -> u64 {
        // A share such as 0.1 is not exact in binary; the addend makes a tenth of ten one again.
        (self.0 * count as f64 + 1e-9).floor() as u64
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        record::Quantity::Share(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_takes_as_many_as_it_says_spread_evenly() {
        let rows = [
            (0.0, 0),
            (0.1, 100),
            (0.25, 250),
            (0.333, 333),
            (0.999, 999),
            (1.0, 1_000),
        ];
        for (share, taken) in rows {
            let share = Share::new(share).unwrap();
            assert_eq!(share.of(1_000), taken);
            let members: Vec<u64> = (0..1_000).filter(|i| share.takes(*i)).collect();
            assert_eq!(members.len() as u64, taken, "{share}");
            let widest = members.windows(2).map(|pair| pair[1] - pair[0]).max();
            let due = (1.0 / share.get().max(1e-9)).ceil() as u64;
            assert!(widest.is_none_or(|w| w <= due), "{share}: {widest:?}");
        }
        assert_eq!(
            (0..40).filter(|i| Share(0.1).takes(*i)).collect::<Vec<_>>(),
            [9, 19, 29, 39]
        );
    }

    #[test]
    fn there_is_no_share_outside_the_whole() {
        for outside in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::new(outside), None);
        }
    }
}
