//! A disk that survives a crash: what was written durably is there, what was being written may be or may not.

use std::sync::Arc;

/// A disk that holds one record, replaced atomically (FILE-12).
#[derive(Debug, Clone)]
pub struct SimDisk<D> {
    durable: Arc<D>,
    in_flight: Option<Arc<D>>,
}

/// What a crash does to a write that is under way; a real disk may do either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InFlight {
    /// The rename did not reach the disk.
    Lost,
    /// It did, and nobody was told.
    Kept,
}

impl<D> SimDisk<D> {
    /// A disk with a record on it.
    pub fn new(record: D) -> Self {
        Self {
            durable: Arc::new(record),
            in_flight: None,
        }
    }

    /// A write begins. One at a time: a second one takes the place of the first.
    pub fn begin(&mut self, record: Arc<D>) {
        self.in_flight = Some(record);
    }

    /// The write under way is durable.
    pub fn finish(&mut self) {
        if let Some(record) = self.in_flight.take() {
            self.durable = record;
        }
    }

    /// The write under way fails; the old record stays.
    pub fn fail(&mut self) {
        self.in_flight = None;
    }

    /// Power is cut.
    pub fn crash(&mut self, in_flight: InFlight) {
        match in_flight {
            InFlight::Lost => self.fail(),
            InFlight::Kept => self.finish(),
        }
    }

    /// What is on the disk.
    pub fn read(&self) -> Arc<D> {
        Arc::clone(&self.durable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_finished_survives_for_certain() {
        let check = |act: fn(&mut SimDisk<u8>), expected: u8| {
            let mut disk = SimDisk::new(1);
            disk.begin(Arc::new(2));
            act(&mut disk);
            assert_eq!(*disk.read(), expected);
        };
        check(|_| (), 1);
        check(|disk| disk.finish(), 2);
        check(|disk| disk.fail(), 1);
        check(|disk| disk.crash(InFlight::Lost), 1);
        check(|disk| disk.crash(InFlight::Kept), 2);
        // Nothing is under way any more, so a second crash has nothing to decide.
        check(
            |disk| {
                disk.finish();
                disk.crash(InFlight::Lost);
            },
            2,
        );
    }
}
