//! The thread that writes: everything that came while the last commit was under way is in the next one.
//!
//! Requests hand their changes over in any order, and an answer may tell of changes that another request has not handed
//! over yet. So what is written is always the longest run of numbers without a gap, and an answer goes out when all up to
//! its own are on the disk. No change that was told of can be lost, and none is written without what it rests on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use portal_core::Portal;
use tokio::sync::oneshot;

use super::file::{DataError, DataFile, Sizes};
use crate::clock::Clock;

/// What a request wants.
pub(super) enum Order {
    /// Keep these changes.
    Keep {
        /// Their number.
        sequence: u64,
        /// They themselves, encoded.
        bytes: Vec<u8>,
        /// To be told when they are kept.
        done: oneshot::Sender<()>,
    },
    /// Say when all up to this number are kept.
    Await {
        /// The number.
        sequence: u64,
        /// To be told.
        done: oneshot::Sender<()>,
    },
}

/// Owns the file.
pub(super) struct Writer {
    pub(super) file: DataFile,
    pub(super) portal: Arc<Portal>,
    /// Everything up to this number is on the disk.
    pub(super) kept: Arc<AtomicU64>,
    pub(super) sizes: Sizes,
    /// Bytes of changes after which the memory is written down, if it is not larger itself: so what is written for it is
    /// never more than what is written for changes.
    pub(super) checkpoint_bytes: u64,
}

/// Orders that are not carried out yet.
#[derive(Default)]
struct Waiting {
    /// Changes by their number.
    changes: BTreeMap<u64, Vec<u8>>,
    /// Who waits, by the number that they wait for.
    told: BTreeMap<u64, Vec<oneshot::Sender<()>>>,
}

impl Writer {
    /// Writes until nobody can send orders any more. An error ends it, and whoever waits learns that by the end of their
    /// channel.
    pub(super) fn run(mut self, orders: &Receiver<Order>) -> Result<(), DataError> {
        let mut waiting = Waiting::default();
        while let Ok(first) = orders.recv() {
            waiting.take(first);
            orders.try_iter().for_each(|order| waiting.take(order));
            let before = self.kept.load(Ordering::Relaxed);
            let (last, bytes) = waiting.run_after(before);
            if last > before {
                self.file.append(last, &bytes)?;
                self.sizes.changes_bytes += bytes.len() as u64;
                self.kept.store(last, Ordering::Release);
            }
            waiting.tell(last);
            let worth = self.checkpoint_bytes.max(self.sizes.memory_bytes);
            if self.sizes.changes_bytes >= worth {
                self.checkpoint()?;
                waiting.forget(self.kept.load(Ordering::Relaxed));
            }
        }
        Ok(())
    }

    /// Writes the whole memory down. It may be ahead of what was handed over; what is handed over later and is in it
    /// already needs no place any more.
    fn checkpoint(&mut self) -> Result<(), DataError> {
        let clock = Clock::start();
        let snapshot = self.portal.snapshot();
        self.sizes = Sizes {
            memory_bytes: self.file.checkpoint(&snapshot)?,
            changes_bytes: 0,
        };
        self.kept.store(snapshot.sequence, Ordering::Release);
        tracing::debug!(
            sequence = snapshot.sequence,
            bytes = self.sizes.memory_bytes,
            took = ?clock.elapsed(),
            "the memory was written down"
        );
        Ok(())
    }
}

impl Waiting {
    fn take(&mut self, order: Order) {
        let (sequence, done) = match order {
            Order::Keep {
                sequence,
                bytes,
                done,
            } => {
                self.changes.insert(sequence, bytes);
                (sequence, done)
            }
            Order::Await { sequence, done } => (sequence, done),
        };
        self.told.entry(sequence).or_default().push(done);
    }

    /// The changes that follow on `kept` without a gap, one after the other, and the number of the last.
    fn run_after(&mut self, kept: u64) -> (u64, Vec<u8>) {
        let (mut last, mut run) = (kept, Vec::new());
        self.forget_changes(kept);
        while let Some(bytes) = self.changes.remove(&(last + 1)) {
            run.extend_from_slice(&bytes);
            last += 1;
        }
        (last, run)
    }

    /// Tells those who wait for a number up to this.
    fn tell(&mut self, kept: u64) {
        let later = self.told.split_off(&(kept + 1));
        for done in std::mem::replace(&mut self.told, later)
            .into_values()
            .flatten()
        {
            // Whoever has gone away needs no answer.
            let _ = done.send(());
        }
    }

    /// Everything up to this number is kept, whoever handed it over or has not yet.
    fn forget(&mut self, kept: u64) {
        self.forget_changes(kept);
        self.tell(kept);
    }

    fn forget_changes(&mut self, kept: u64) {
        self.changes = self.changes.split_off(&(kept + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(waiting: &mut Waiting, sequence: u64) -> oneshot::Receiver<()> {
        let (done, told) = oneshot::channel();
        let bytes = sequence.to_string().into_bytes();
        waiting.take(Order::Keep {
            sequence,
            bytes,
            done,
        });
        told
    }

    #[test]
    fn nothing_is_written_before_what_it_rests_on_and_nobody_is_told_before_it_is_written() {
        let mut waiting = Waiting::default();
        let mut five = keep(&mut waiting, 5);
        assert_eq!(waiting.run_after(3), (3, vec![]), "4 is missing");
        waiting.tell(3);
        assert!(five.try_recv().is_err());
        let (done, mut reader) = oneshot::channel();
        waiting.take(Order::Await { sequence: 4, done });
        let mut four = keep(&mut waiting, 4);
        let mut seven = keep(&mut waiting, 7);
        assert_eq!(waiting.run_after(3), (5, b"45".to_vec()));
        waiting.tell(5);
        for told in [&mut four, &mut five, &mut reader] {
            assert_eq!(told.try_recv(), Ok(()));
        }
        // A memory that was written down meanwhile has 6 and 7 in it, though 6 was not handed over yet.
        waiting.forget(7);
        assert_eq!(seven.try_recv(), Ok(()));
        let mut six = keep(&mut waiting, 6);
        assert_eq!(waiting.run_after(7), (7, vec![]));
        waiting.tell(7);
        assert_eq!(six.try_recv(), Ok(()));
    }
}
