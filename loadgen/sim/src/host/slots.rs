//! What a node boots from: entries, the default one, one for the next boot only, and the way back (OP-5, OP-6).

use std::collections::BTreeMap;

use agent_core::pbx::boot::{BootId, Booted, Image};
use agent_core::time::Monotonic;
use litemap::LiteMap;
use protocol::hash::Sha256Hex;
use protocol::id::{EntryName, OperationId};
use protocol::pbx::sync::BootReport;

/// Bytes of a boot partition.
const PARTITION_BYTES: u64 = 4 << 30;
/// Bytes of the image that a server came with.
const FIRST_IMAGE_BYTES: u64 = 512_000_000;

/// The slots of a node, and the boot that it is in.
#[derive(Debug)]
pub(super) struct Slots {
    entries: LiteMap<EntryName, Slot>,
    default: EntryName,
    one_shot: Option<EntryName>,
    selected: EntryName,
    boots: u32,
    pub(super) booted_at: Monotonic,
    /// The timer that goes back from an entry on trial; on disk, so it is armed in each boot.
    way_back: Option<WayBack>,
    /// In which boot an entry was set for one boot, by the operation.
    issued: BTreeMap<OperationId, BootId>,
    fetched: Option<Sha256Hex>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    download: Sha256Hex,
    booted: Sha256Hex,
    bytes: u64,
    k3s_version: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct WayBack {
    from: EntryName,
    after_ms: u64,
}

impl Slots {
    /// Of a server that was just installed.
    pub(super) fn new(boot: &BootReport, k3s_version: &str) -> Self {
        let slot = Slot {
            download: boot.image_sha256,
            booted: boot.image_sha256,
            bytes: FIRST_IMAGE_BYTES,
            k3s_version: k3s_version.to_owned(),
        };
        Self {
            // One entry, so in order; a vector that is collected has room for four.
            entries: LiteMap::from_sorted_store_unchecked(vec![(boot.entry.clone(), slot)]),
            default: boot.entry.clone(),
            one_shot: None,
            selected: boot.entry.clone(),
            boots: 1,
            booted_at: Monotonic::default(),
            way_back: None,
            issued: BTreeMap::new(),
            fetched: None,
        }
    }

    /// Power comes on: the loader takes the entry for one boot, which is gone then, or the default.
    pub(super) fn boot(&mut self, now: Monotonic) {
        let one_shot = self.one_shot.take();
        let wanted = one_shot.filter(|entry| self.entries.contains_key(entry));
        self.selected = wanted.unwrap_or_else(|| self.default.clone());
        self.boots += 1;
        self.booted_at = now;
    }

    pub(super) fn boot_id(&self) -> BootId {
        BootId(format!("boot-{}", self.boots))
    }

    pub(super) fn booted(&self) -> Booted {
        Booted {
            boot_id: self.boot_id(),
            entry: self.selected.clone(),
        }
    }

    fn slot(&self) -> &Slot {
        let slot = self.entries.get(&self.selected);
        slot.expect("the entry that runs is not removed")
    }

    pub(super) fn report(&self) -> BootReport {
        BootReport {
            image_sha256: self.slot().booted,
            entry: self.selected.clone(),
        }
    }

    pub(super) fn k3s_version(&self) -> &str {
        &self.slot().k3s_version
    }

    /// What is free, once all entries are gone but the one that runs.
    pub(super) fn bytes_free(&self) -> u64 {
        PARTITION_BYTES - self.slot().bytes
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &EntryName> {
        self.entries.keys()
    }

    pub(super) fn default(&self) -> &EntryName {
        &self.default
    }

    /// When the node goes back by itself, if nothing happens until then.
    pub(super) fn goes_back_at(&self) -> Option<Monotonic> {
        let way_back = self.way_back.as_ref()?;
        (way_back.from == self.selected).then(|| self.booted_at.plus_ms(way_back.after_ms))
    }

    pub(super) fn fetch(&mut self, image: &Image) {
        self.fetched = Some(image.sha256);
    }

    pub(super) fn has_fetched(&self, image: &Image) -> bool {
        self.fetched == Some(image.sha256) || self.has_staged(image)
    }

    pub(super) fn has_staged(&self, image: &Image) -> bool {
        let staged = self.entries.get(&image.entry);
        staged.is_some_and(|slot| slot.download == image.sha256)
    }

    pub(super) fn set_default(&mut self, entry: &EntryName) {
        self.default = entry.clone();
    }

    pub(super) fn stage(&mut self, image: &Image) {
        let slot = Slot {
            download: image.sha256,
            booted: image.image_sha256,
            bytes: image.size,
            k3s_version: image.k3s_version.clone(),
        };
        self.entries.insert(image.entry.clone(), slot);
    }

    /// Entries beside these are removed.
    pub(super) fn keep(&mut self, kept: [&EntryName; 2]) {
        self.entries.retain(|entry, _| kept.contains(&entry));
    }

    pub(super) fn arm(&mut self, from: &EntryName, after_ms: u64) {
        self.way_back = Some(WayBack {
            from: from.clone(),
            after_ms,
        });
    }

    pub(super) fn disarm(&mut self) {
        self.way_back = None;
    }

    pub(super) fn issue(&mut self, operation: &OperationId) {
        self.issued.insert(operation.clone(), self.boot_id());
    }

    pub(super) fn set_one_shot(&mut self, entry: &EntryName) {
        self.one_shot = Some(entry.clone());
    }

    /// What the node shows of a reboot into an entry (OPS-4).
    pub(super) fn reboot(&self, operation: &OperationId, entry: &EntryName) -> Reboot {
        match self.issued.get(operation) {
            None => Reboot::NotIssued,
            Some(in_boot) if *in_boot != self.boot_id() => Reboot::Booted(self.booted()),
            Some(_) if self.one_shot.as_ref() == Some(entry) => Reboot::NotIssued,
            Some(_) => Reboot::Unclear,
        }
    }
}

/// What a node shows of a reboot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reboot {
    /// It was not told to, or was told and has not begun.
    NotIssued,
    /// It has booted since.
    Booted(Booted),
    /// It was to be told, and whether it was cannot be seen.
    Unclear,
}
