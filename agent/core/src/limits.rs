//! Every number of an agent's behaviour, with its unit and its rule.
//!
//! What the other side of the wire can see (60 s of skew, events a call, the portal's own word in `Retry-After`) stands in
//! [`protocol::limits`] and is the same at every tempo.

/// The numbers of an agent's behaviour. [`Limits::REAL`] is a node's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Between two syncs, in the middle (SYNC-1).
    pub sync_interval_ms: u64,
    /// How far a sync may lie from the middle, to either side (SYNC-1).
    pub sync_jitter_ms: u64,
    /// The longest wait before the first sync after a start (SYNC-10).
    pub first_sync_ms_max: u64,
    /// The shortest wait after a failure (ANS-8).
    pub backoff_ms_min: u64,
    /// The base of the wait after the first failure; it doubles with each (ANS-8).
    pub backoff_first_ms: u64,
    /// The longest wait after a failure (ANS-8).
    pub backoff_ms_max: u64,
    /// What is added, at most, to a wait that the portal asked for (ANS-7).
    pub retry_after_spread_ms_max: u64,
    /// Between two applications of the cluster's configuration without any change (SYNC-3).
    pub reapply_interval_ms: u64,
    /// What a Node that is silent after a restore is given to come back (OP-4).
    pub restore_grace_ms: u64,
    /// Between two looks at a node that was upgraded (OP-6).
    pub health_look_ms: u64,
    /// From the boot of an upgraded node until it goes back by itself, if it is not kept (OP-6).
    pub return_after_ms: u64,
    /// Until a task of the host that only changes the node must have ended.
    pub task_ms_max: u64,
    /// Until a task of the host that waits for something larger (a start of k3s, a snapshot, a transfer) must have ended.
    pub long_task_ms_max: u64,
    /// How long the Lease lasts: for so long it must have been seen unchanged before another takes it (SYNC-6).
    pub lease_ms: u64,
    /// How long a holder leads after its last renewal that succeeded began; shorter than the Lease lasts (SYNC-6).
    pub lease_renew_ms_max: u64,
    /// Between two questions about the Lease, where there are other servers (SYNC-6).
    pub lease_retry_ms: u64,
    /// Between two renewals of the Lease by the only server of its cluster: half of the time that it leads without one
    /// (SYNC-6).
    pub lease_alone_ms: u64,
    /// Until a question about the Lease must be answered (SYNC-6).
    pub lease_call_ms_max: u64,
    /// What a new program is given for its first good sync before the one before is put back (UPD-1).
    pub rollback_ms: u64,
    /// For how long a version that failed is left alone (UPD-3), and a release that a 426 has named (ANS-6).
    pub ban_ms: u64,
    /// Within which a new program must say that it runs.
    pub program_check_ms_max: u64,
    /// How long ago the portal may have been heard last before programs are swapped.
    pub heard_ms_max: u64,
    /// For how long the portal's time is known after it was told, by the monotonic clock (SYNC-5).
    pub portal_time_ms_max: u64,
}

/// Milliseconds until a request goes out again that is to be signed once more (ANS-3) or with a corrected clock (ANS-5):
/// a timestamp counts whole seconds, so it is the same at every tempo.
pub const SIGN_AGAIN_MS: u64 = 1_000;
/// Corrections of the clock offset in a row after which the agent backs off (ANS-5).
pub const CLOCK_CORRECTIONS_MAX: u32 = 2;
/// Refusals of a token after which the agent idles, counted durably (ENR-7).
pub const TOKEN_REFUSALS_MAX: u32 = 3;
/// Starts of the program in the middle of an operation after which it fails (`resume_limit`).
pub const RESUMES_MAX: u32 = 10;
/// Swaps in a row that fail, after which no more is tried until the rollback timer has fired (UPD-1).
pub const SWAPS_MAX: u32 = 3;
/// Versions that are left alone at most; the oldest is forgotten for another.
pub const BANS_MAX: usize = 8;
/// Days seen running for which a finished operation is remembered (OPS-7).
pub const FINISHED_DAYS_MAX: u32 = 30;
/// Finished operations that are remembered at most, whatever the calendar says.
pub const FINISHED_MAX: usize = 10_000;
/// Bytes of the results of finished operations that are kept at most; beyond it the oldest are remembered without.
pub const FINISHED_RESULT_BYTES_MAX: usize = 1024 * 1024;
/// People whose revoked access is remembered one by one (R60).
pub const REVOCATIONS_MAX: usize = 1_000;
/// The longest that access is given for, in seconds (R61).
pub const ACCESS_SECONDS_MAX: u64 = 24 * 60 * 60;
/// The shortest that access is given for, in seconds: the least that the Kubernetes API grants.
pub const ACCESS_SECONDS_MIN: u64 = 10 * 60;
/// Looks in a row at which all must be well before an upgrade is kept (OP-6).
pub const HEALTH_PASSES: u32 = 3;
/// Looks at a node that is not ready to be upgraded, until the upgrade fails: five minutes' worth (OP-5).
pub const PREFLIGHT_LOOKS_MAX: u32 = 30;
/// Bytes of one operation's log on the node; beyond it the oldest lines go (R9).
pub const OPERATION_LOG_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of all operations' logs on the node; beyond it the oldest logs go (R9).
pub const OPERATION_LOGS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The tempo below which the time that a holder of the Lease is given scales no further.
const GUARD_TEMPO_MIN: f64 = 0.01;

impl Limits {
    /// A node's.
    pub const REAL: Self = Self {
        sync_interval_ms: 30_000,
        sync_jitter_ms: 5_000,
        first_sync_ms_max: 30_000,
        backoff_ms_min: 5_000,
        backoff_first_ms: 10_000,
        backoff_ms_max: 300_000,
        retry_after_spread_ms_max: 15_000,
        reapply_interval_ms: 600_000,
        restore_grace_ms: 120_000,
        health_look_ms: 10_000,
        return_after_ms: 1_200_000,
        task_ms_max: 120_000,
        long_task_ms_max: 1_800_000,
        lease_ms: 137_000,
        lease_renew_ms_max: 107_000,
        lease_retry_ms: 26_000,
        lease_alone_ms: 53_000,
        lease_call_ms_max: 10_000,
        rollback_ms: 600_000,
        ban_ms: 21_600_000,
        program_check_ms_max: 5_000,
        heard_ms_max: 60_000,
        portal_time_ms_max: 86_400_000,
    };

    /// The same agent at another tempo: below 1 is faster. Every duration of an agent scales, nothing of the wire does; what
    /// a holder of the Lease is given for its renewals scales down to a hundredth, since how late a busy machine lets it be
    /// does not scale at all.
    ///
    /// # Panics
    /// If the tempo is not a number above zero.
    pub fn scaled(self, tempo: f64) -> Self {
        assert!(
            tempo.is_finite() && tempo > 0.0,
            "a tempo is a number above zero, not {tempo}"
        );
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "milliseconds of at most days, times a positive number; `as` saturates"
        )]
        let scaled = |ms: u64, tempo: f64| ((ms as f64 * tempo).round() as u64).max(1);
        let scale = |ms| scaled(ms, tempo);
        let guard = |ms| scaled(ms, tempo.max(GUARD_TEMPO_MIN));
        Self {
            sync_interval_ms: scale(self.sync_interval_ms),
            sync_jitter_ms: scale(self.sync_jitter_ms),
            first_sync_ms_max: scale(self.first_sync_ms_max),
            backoff_ms_min: scale(self.backoff_ms_min),
            backoff_first_ms: scale(self.backoff_first_ms),
            backoff_ms_max: scale(self.backoff_ms_max),
            retry_after_spread_ms_max: scale(self.retry_after_spread_ms_max),
            reapply_interval_ms: scale(self.reapply_interval_ms),
            restore_grace_ms: scale(self.restore_grace_ms),
            health_look_ms: scale(self.health_look_ms),
            return_after_ms: scale(self.return_after_ms),
            task_ms_max: scale(self.task_ms_max),
            long_task_ms_max: scale(self.long_task_ms_max),
            lease_ms: guard(self.lease_ms),
            lease_renew_ms_max: guard(self.lease_renew_ms_max),
            lease_retry_ms: scale(self.lease_retry_ms),
            lease_alone_ms: scale(self.lease_alone_ms),
            lease_call_ms_max: guard(self.lease_call_ms_max),
            rollback_ms: scale(self.rollback_ms),
            ban_ms: scale(self.ban_ms),
            program_check_ms_max: scale(self.program_check_ms_max),
            heard_ms_max: scale(self.heard_ms_max),
            portal_time_ms_max: scale(self.portal_time_ms_max),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::REAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tempo_scales_every_duration_and_one_changes_none() {
        assert_eq!(Limits::REAL.scaled(1.0), Limits::REAL);
        let fast = Limits::REAL.scaled(0.2);
        assert_eq!(fast.sync_interval_ms, 6_000);
        assert_eq!(fast.restore_grace_ms, 24_000);
        assert_eq!(Limits::REAL.scaled(1e-9).backoff_ms_min, 1);
    }
}
