//! Deleting pages before their segment's time has come.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use crate::disk::catalog::Catalog;
use crate::disk::damage::DamageKind;
use crate::disk::event::DropReason;
use crate::disk::format::{SegmentHeader, deleted_header};
use crate::disk::record::{Doomed, Wanted};
use crate::disk::segment::{self, Scan};

impl Catalog {
    /// Deletes pages at all of their places, and segments in which nothing is left. The bytes of a
    /// page stay until its segment goes; what says whose they are does not.
    pub(crate) fn delete(&mut self, doomed: &Doomed) {
        let keys = match doomed {
            Doomed::Namespace(namespace) => self.index.keys_of(namespace),
            Doomed::Sequence { .. } => doomed.keys().unwrap_or_default(),
        };
        let mut slots: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for key in keys {
            let removal = self.index.remove_all(key);
            for record in &removal.dropped {
                slots.entry(record.place.segment).or_default().push(record.place.index);
            }
            self.tell_removal(removal, DropReason::Deleted);
        }
        for (number, slots) in slots {
            self.bury(number, &slots);
        }
        if let Doomed::Namespace(namespace) = doomed {
            self.delete_of_other_models(namespace);
        }
        self.shared.counters.pages.store(self.index.pages(), Ordering::Relaxed);
    }

    fn bury(&mut self, number: u32, slots: &[u32]) {
        let Some(segment) = self.shared.segment(number) else { return };
        if self.index.is_empty(number) && self.remove_segment(&segment.name) {
            return;
        }
        match self.write_deleted(&segment.name, &segment.header, slots) {
            // Somebody made room meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.report(&segment.name, DamageKind::NotDeleted(error.kind())),
            Ok(()) => {}
        }
    }

    /// Deletes a namespace's pages of other models, which the tables of their segments tell.
    fn delete_of_other_models(&mut self, namespace: &[u8; 32]) {
        for name in self.segments_of_other_models() {
            let Ok((file, header)) = segment::open(&self.directory.file(&name)) else { continue };
            let Ok(Scan { records, .. }) = segment::scan(&file, &header, 0) else { continue };
            let doomed = records.iter().filter(|(_, record)| record.namespace == *namespace);
            let slots: Vec<u32> = doomed.map(|&(slot, _)| slot).collect();
            let is_all = slots.len() == records.len();
            if slots.is_empty() || is_all && self.remove_segment(&name) {
                continue;
            }
            match self.write_deleted(&name, &header, &slots) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.report(&name, DamageKind::NotDeleted(error.kind())),
                // What is remembered of other models is read again.
                Ok(()) => self.forget(&name, DropReason::Deleted),
            }
        }
    }

    fn write_deleted(&self, name: &str, header: &SegmentHeader, slots: &[u32]) -> io::Result<()> {
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
