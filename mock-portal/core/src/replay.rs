//! Which signatures were seen (SIGN-5, KEY-3).
//!
//! A signature is remembered until 120 s have passed since it was seen, *and* its timestamp can no longer pass the skew
//! check by the portal's clock; a clock that is set back therefore lengthens the memory. What is remembered lies in two
//! generations, and the older one is forgotten as a whole once nothing in it must be kept. So nothing is ever forgotten too
//! early, something is kept longer than it must be, and forgetting costs nothing per request. The memory is bounded; full,
//! it says so and forgets nothing.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};

use protocol::limits::{CLOCK_SKEW_SECONDS_MAX, REPLAY_SECONDS};
use protocol::sign::SigningPublicKey;
use protocol::time::UnixSeconds;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::clock::Moment;

/// What a signature is recognised by: the verifying key and the signed bytes, so that another spelling of the same
/// signature is the same, and equal requests of two agents are not (KEY-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seen(#[serde(with = "hex")] [u8; 16]);

impl Seen {
    /// Of a signature over these bytes.
    pub(crate) fn of_bytes(key: &SigningPublicKey, signed: &[u8]) -> Self {
        let hash = Sha256::new()
            .chain_update(key.0)
            .chain_update(signed)
            .finalize();
        let mut seen = [0; 16];
        seen.copy_from_slice(&hash[..16]);
        Self(seen)
    }

    /// Of a signature over bytes that `fingerprint` stands for.
    pub(crate) fn of_fingerprint(key: &SigningPublicKey, fingerprint: [u8; 16]) -> Self {
        let mut seen = fingerprint;
        for (byte, key) in seen.iter_mut().zip(key.0) {
            *byte ^= key;
        }
        Self(seen)
    }
}

/// 16 bytes as text: a list of numbers would be twice as long, and there is one a request.
mod hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(
        bytes: &[u8; 16],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", u128::from_be_bytes(*bytes)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[u8; 16], D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        match u128::from_str_radix(&text, 16) {
            Ok(number) if text.len() == 32 => Ok(number.to_be_bytes()),
            _ => Err(D::Error::custom("no 16 bytes in hex")),
        }
    }
}

/// The memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplayMemory {
    young: Generation,
    old: Generation,
}

/// What the memory says of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not seen, and there is room for it.
    Fresh,
    /// Seen.
    Replayed,
    /// Not seen, and there is no room: nobody can decide about the next one (KEY-4).
    Full,
}

impl ReplayMemory {
    /// What the memory says, before the signature is remembered.
    pub(crate) fn verdict(&self, seen: Seen, capacity: usize, moment: Moment) -> Verdict {
        if self.young.signatures.contains(&seen) || self.old.signatures.contains(&seen) {
            return Verdict::Replayed;
        }
        let kept = self.young.kept(moment) + self.old.kept(moment);
        if kept < capacity {
            Verdict::Fresh
        } else {
            Verdict::Full
        }
    }

    /// Remembers a signature, and forgets what need not be kept.
    pub(crate) fn remember(&mut self, seen: Seen, at: UnixSeconds, moment: Moment) {
        if !self.old.must_be_kept(moment) {
            self.old = Generation::default();
        }
        if !self.young.must_be_kept(moment) {
            self.young = Generation::default();
        }
        if self.old.signatures.is_empty() && self.young.lasts_ms(moment) >= GENERATION_MS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.remember(seen, at, moment);
    }

    /// The latest moment, by the monotonic clock, at which anything was seen.
    pub(crate) fn until_monotonic_ms(&self) -> u64 {
        self.young
            .until_monotonic_ms
            .max(self.old.until_monotonic_ms)
    }

    /// How many signatures are held, those included that need not be.
    pub(crate) fn len(&self) -> usize {
        self.young.signatures.len() + self.old.signatures.len()
    }
}

/// For how long a generation takes signatures, if the one before is gone by then.
const GENERATION_MS: u64 = REPLAY_SECONDS * 1000;

/// Signatures that are forgotten together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Generation {
    signatures: HashSet<Seen, BuildHasherDefault<DefaultHasher>>,
    /// The latest timestamp among them.
    latest_at: u64,
    /// When the first was seen.
    since_monotonic_ms: u64,
    /// When the last was seen.
    until_monotonic_ms: u64,
}

impl Generation {
    fn remember(&mut self, seen: Seen, at: UnixSeconds, moment: Moment) {
        if self.signatures.is_empty() {
            self.since_monotonic_ms = moment.monotonic_ms;
        }
        self.signatures.insert(seen);
        self.latest_at = self.latest_at.max(at.0);
        self.until_monotonic_ms = self.until_monotonic_ms.max(moment.monotonic_ms);
    }

    /// Whether something in it was seen within 120 s, or could still pass the skew check.
    fn must_be_kept(&self, moment: Moment) -> bool {
        let seen_ms_ago = moment.monotonic_ms.saturating_sub(self.until_monotonic_ms);
        let could_pass =
            moment.seconds_ahead(UnixSeconds(self.latest_at)) >= -i64::from(SKEW_SECONDS);
        !self.signatures.is_empty() && (seen_ms_ago <= REPLAY_SECONDS * 1000 || could_pass)
    }

    fn kept(&self, moment: Moment) -> usize {
        if self.must_be_kept(moment) {
            self.signatures.len()
        } else {
            0
        }
    }

    fn lasts_ms(&self, moment: Moment) -> u64 {
        moment.monotonic_ms.saturating_sub(self.since_monotonic_ms)
    }
}

const SKEW_SECONDS: u32 = CLOCK_SKEW_SECONDS_MAX as u32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protocol::time::Timestamp;

    use super::*;

    fn moment(second: i64, monotonic_s: u64) -> Moment {
        Moment {
            time: Timestamp::from_unix_ms(second * 1000),
            monotonic_ms: monotonic_s * 1000,
        }
    }

    fn seen(n: u8) -> Seen {
        Seen([n; 16])
    }

    // rule SIGN-5: exactly as long as the timestamp could still pass, and never shorter than 120 s.
    #[test]
    fn sign_5_a_signature_is_remembered_until_its_timestamp_can_no_longer_pass() {
        // Stamped so many seconds ahead of the portal, seen again so many seconds later: still remembered?
        for (ahead, later, remembered) in [
            (0, 0, true),
            (0, 120, true),
            (0, 122, false),
            (60, 120, true),  // the timestamp passes for the last time
            (60, 121, false), // 121 s in whole seconds
            (-60, 1, true),
            (-60, 120, true), // long out of the skew, but seen within 120 s
        ] {
            let mut memory = ReplayMemory::default();
            let first = moment(1_000_000, 0);
            memory.remember(seen(1), UnixSeconds((1_000_000 + ahead) as u64), first);
            let then = moment(1_000_000 + later, later as u64);
            memory.remember(seen(2), UnixSeconds(1_000_000), then);
            let verdict = memory.verdict(seen(1), 10, then);
            assert_eq!(verdict == Verdict::Replayed, remembered, "{ahead} {later}");
        }
    }

    // rule SIGN-5: the portal's clock was set back by an hour; the timestamp can pass for another hour.
    #[test]
    fn sign_5_a_clock_that_is_set_back_lengthens_the_memory() {
        let mut memory = ReplayMemory::default();
        memory.remember(seen(1), UnixSeconds(1_000_000), moment(1_000_000, 0));
        for passed in [0, 121, 3000, 3660] {
            let back = moment(1_000_000 - 3600 + passed, 1 + passed as u64);
            memory.remember(seen(2), UnixSeconds(back.time.unix_seconds() as u64), back);
            assert_eq!(
                memory.verdict(seen(1), 10, back),
                Verdict::Replayed,
                "{passed} s after it was set back"
            );
        }
    }

    // rule SIGN-5, rule KEY-4: full, it forgets nothing, and takes in again when it may forget.
    #[test]
    fn sign_5_a_full_memory_says_so_and_forgets_nothing() {
        let mut memory = ReplayMemory::default();
        for n in 0..5 {
            assert_eq!(
                memory.verdict(seen(n), 5, moment(1_000_000, 0)),
                Verdict::Fresh
            );
            memory.remember(seen(n), UnixSeconds(1_000_000), moment(1_000_000, 0));
        }
        let last = moment(1_000_120, 120);
        assert_eq!(memory.verdict(seen(9), 5, last), Verdict::Full);
        assert!((0..5).all(|n| memory.verdict(seen(n), 5, last) == Verdict::Replayed));
        assert_eq!(
            memory.verdict(seen(9), 5, moment(1_000_121, 121)),
            Verdict::Fresh
        );
    }

    // rule KEY-3
    #[test]
    fn key_3_the_key_and_the_signed_bytes_make_the_difference() {
        let (one, other) = (SigningPublicKey([1; 32]), SigningPublicKey([2; 32]));
        assert_eq!(Seen::of_bytes(&one, b"x"), Seen::of_bytes(&one, b"x"));
        assert_ne!(Seen::of_bytes(&one, b"x"), Seen::of_bytes(&other, b"x"));
        assert_ne!(Seen::of_bytes(&one, b"x"), Seen::of_bytes(&one, b"y"));
        assert_ne!(
            Seen::of_fingerprint(&one, [0; 16]),
            Seen::of_fingerprint(&other, [0; 16])
        );
        assert_ne!(
            Seen::of_fingerprint(&one, [0; 16]),
            Seen::of_fingerprint(&one, [1; 16])
        );
    }

    #[test]
    fn what_is_held_is_bounded_by_what_three_generations_saw() {
        let mut memory = ReplayMemory::default();
        for second in 0..10_000_u64 {
            let now = moment(1_000_000 + second as i64, second);
            let seen =
                Seen::of_fingerprint(&SigningPublicKey([0; 32]), u128::from(second).to_le_bytes());
            memory.remember(seen, UnixSeconds(1_000_000 + second), now);
            assert!(
                memory.len() <= 3 * 121 + 2,
                "{} held at {second} s",
                memory.len()
            );
        }
    }

    /// The memory without any cleverness: every signature with its timestamp, and whether it was ever allowed to go.
    #[derive(Default)]
    struct Model(Vec<(Seen, u64, u64, bool)>);

    impl Model {
        fn pass(&mut self, now: Moment) {
            for (_, at, seen_ms, may_go) in &mut self.0 {
                let recent = now.monotonic_ms - *seen_ms <= 120_000;
                *may_go |= !recent && now.seconds_ahead(UnixSeconds(*at)) < -60;
            }
        }

        /// Whether it must be refused, and whether it may be.
        fn says(&self, seen: Seen) -> (bool, bool) {
            let of = |must: bool| {
                self.0
                    .iter()
                    .any(|(s, _, _, may_go)| *s == seen && !(must && *may_go))
            };
            (of(true), of(false))
        }
    }

    proptest! {
        // rule SIGN-5: against the model, while the portal's clock jumps about.
        #[test]
        fn sign_5_the_memory_agrees_with_a_simple_model(
            steps in prop::collection::vec((0_u64..90, -200_i64..200, 0_u8..40, -60_i64..=60), 1..200),
            jumps in any::<bool>(),
        ) {
            let (mut memory, mut model) = (ReplayMemory::default(), Model::default());
            let (mut monotonic_s, mut second) = (0, 1_000_000_i64);
            for (passes, jump, n, ahead) in steps {
                monotonic_s += passes;
                second += passes as i64 + if jumps && jump % 7 == 0 { jump } else { 0 };
                let now = moment(second, monotonic_s);
                model.pass(now);
                let (must, may) = model.says(seen(n));
                match memory.verdict(seen(n), 1000, now) {
                    Verdict::Fresh => {
                        prop_assert!(!must, "forgotten too early");
                        let at = (second + ahead) as u64;
                        memory.remember(seen(n), UnixSeconds(at), now);
                        model.0.push((seen(n), at, now.monotonic_ms, false));
                    }
                    Verdict::Replayed => prop_assert!(may, "refused though never seen"),
                    Verdict::Full => prop_assert!(false, "full"),
                }
            }
        }
    }
}
