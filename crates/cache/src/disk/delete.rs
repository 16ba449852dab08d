//! Deleting pages before their segment's time has come.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use crate::disk::catalog::Catalog;
use crate::disk::chain::{self, ChainKey};
use crate::disk::damage::DamageKind;
use crate::disk::directory::FileKind;
use crate::disk::event::{DiskEvent, DropReason};
use crate::disk::format::{RecordHeader, SegmentHeader, deleted_header};
use crate::disk::record::{Doomed, Wanted};
use crate::disk::segment::{self, Scan};

impl Catalog {
    /// Deletes pages at all of their places, and segments in which nothing is left. The bytes of a
    /// page stay until its segment goes; what says whose they are does not.
    pub(crate) fn delete(&mut self, doomed: &Doomed) {
        match doomed {
            Doomed::Sequence { namespace, tokens, first } => {
                let keys = chain::keys_of(namespace, tokens);
                for (number, slots) in self.take_away(keys.into_iter().skip(*first)) {
                    self.bury(number, &slots);
                }
            }
            Doomed::Namespace { namespace, spared } => {
                let spared = spared.iter().flat_map(|tokens| chain::keys_of(namespace, tokens));
                let spared: HashSet<ChainKey> = spared.collect();
                let keys = self.index.keys_of(namespace).into_iter();
                self.take_away(keys.filter(|key| !spared.contains(key)));
                self.delete_from_tables(namespace, &spared);
                self.tell(DiskEvent::Cleared(*namespace));
            }
        }
        self.shared.counters.pages.store(self.index.pages(), Ordering::Relaxed);
    }

    /// Takes pages out of the index, and tells of them; returns the slots that they had in each
    /// segment.
    fn take_away(&mut self, keys: impl Iterator<Item = ChainKey>) -> BTreeMap<u32, Vec<u32>> {
        let mut slots: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for key in keys {
            let removal = self.index.remove_all(key);
            for record in &removal.dropped {
                slots.entry(record.place.segment).or_default().push(record.place.index);
            }
            self.tell_removal(removal, DropReason::Deleted);
        }
        slots
    }

    fn bury(&mut self, number: u32, slots: &[u32]) {
        let Some(segment) = self.shared.segment(number) else { return };
        if self.index.is_empty(number) && self.remove_segment(&segment.name) {
            return;
        }
        self.write_deleted(&segment.name, &segment.header, slots);
    }

    /// Deletes a namespace's pages, except `spared` ones of this model, from the tables of all
    /// segments: what has expired, or has come since the directory was looked at, or is of another
    /// model, is in no index.
    fn delete_from_tables(&mut self, namespace: &[u8; 32], spared: &HashSet<ChainKey>) {
        let Ok(listed) = self.directory.list() else { return };
        for one in listed.iter().filter(|one| one.kind == FileKind::Segment) {
            let name = &one.name;
            let Ok((file, header)) = segment::open(&self.directory.file(name)) else { continue };
            let Ok(Scan { records, .. }) = segment::scan(&file, &header, 0) else { continue };
            let is_ours = header.model == self.model;
            let goes = |record: &RecordHeader| {
                record.namespace == *namespace && !(is_ours && spared.contains(&record.key))
            };
            let doomed = records.iter().filter(|(_, record)| goes(record));
            let slots: Vec<u32> = doomed.map(|&(slot, _)| slot).collect();
            let is_all = slots.len() == records.len();
            if slots.is_empty() || is_all && self.remove_segment(name) {
                continue;
            }
            if self.write_deleted(name, &header, &slots) && !is_ours {
                // What is remembered of other models is read again.
                self.forget(name, DropReason::Deleted);
            }
        }
    }

    /// Writes into a segment's table that these pages are deleted; `false` if that failed.
    fn write_deleted(&mut self, name: &str, header: &SegmentHeader, slots: &[u32]) -> bool {
        match self.try_to_write_deleted(name, header, slots) {
            // Somebody made room meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                self.report(name, DamageKind::NotDeleted(error.kind()));
                false
            }
            Ok(()) => true,
        }
    }

    fn try_to_write_deleted(
        &self,
        name: &str,
        header: &SegmentHeader,
        slots: &[u32],
    ) -> io::Result<()> {
        // Who is about to make a page's life longer would bring it back.
        let lock = self.directory.lock_file()?;
        lock.lock()?;
        // Who writes to the segment writes behind what is deleted, and need not be waited for.
        let file = self.directory.open_file(name)?;
        for &slot in slots {
            let bytes = deleted_header(&header.id, slot);
            file.write_all_at(&bytes, header.geometry.header_offset(slot))?;
        }
        file.sync_data()
    }

    /// Deletes a segment, if nobody writes to it or deletes others.
    fn remove_segment(&mut self, name: &str) -> bool {
        let Ok(lock) = self.directory.lock_file() else { return false };
        let is_gone = lock.try_lock().is_ok() && self.directory.remove_unlocked(name);
        if is_gone {
            self.forget(name, DropReason::Deleted);
        }
        is_gone
    }

    /// Lets a page go that was to be read, and that another process has deleted.
    pub(crate) fn drop_deleted(&mut self, wanted: &Wanted) {
        let removal = self.index.remove(wanted.key, wanted.place);
        self.tell_removal(removal, DropReason::Deleted);
    }
}
