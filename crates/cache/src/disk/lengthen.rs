//! Longer lives for pages that are stored already.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;

use crate::disk::catalog::Catalog;
use crate::disk::chain::ChainKey;
use crate::disk::format::{RECORD_HEADER_BYTES, RecordHeader};
use crate::disk::record::Record;
use crate::disk::segment::Segment;
use crate::disk_page::DiskPage;
use crate::timestamp::Timestamp;

/// True if what is stored until `stored` need not be written anew to last until `asked` (each
/// `None` for ever): it lasts at least half as long as it should, so that a life which each use
/// extends is not written at each use.
pub fn lasts_long_enough(
    stored: Option<Timestamp>,
    asked: Option<Timestamp>,
    now: Timestamp,
) -> bool {
    match (stored, asked) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(stored), Some(asked)) => {
            stored > now && stored.0 - now.0 >= asked.0.saturating_sub(now.0) / 2
        }
    }
}

impl Catalog {
    /// Where a page lies, if it lasts long enough there.
    pub(crate) fn place(
        &self,
        key: &ChainKey,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<DiskPage> {
        let record = self.index.get(key)?;
        lasts_long_enough(record.expires_at, expires_at, now).then_some(record.place)
    }

    /// Lets pages live until `expires_at`, where that is much longer than they would; also those
    /// whose life is over, since who keeps them in memory uses them again. Their headers are
    /// written anew in their places; each lies within one sector of a disk, so that a crash leaves
    /// the one or the other. If it cannot be done, they end when they would have.
    pub(crate) fn lengthen(
        &mut self,
        keys: &[ChainKey],
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) {
        let mut short: BTreeMap<u32, Vec<Record>> = BTreeMap::new();
        for record in keys.iter().filter_map(|key| self.index.get(key)) {
            if !lasts_long_enough(record.expires_at, expires_at, now) {
                short.entry(record.place.segment).or_default().push(*record);
            }
        }
        if short.is_empty() {
            return;
        }
        // Another process may be just deleting one of them, which must not come back.
        let Ok(lock) = self.directory.lock_file() else { return };
        if lock.lock().is_err() {
            return;
        }
        for (number, records) in short {
            let Some(segment) = self.shared.segment(number) else { continue };
            let _ = self.write_lives(&segment, &records, expires_at);
        }
        drop(lock);
    }

    fn write_lives(
        &mut self,
        segment: &Segment,
        records: &[Record],
        expires_at: Option<Timestamp>,
    ) -> io::Result<()> {
        // Who writes to the segment writes behind what is there, and need not be waited for.
        let file = self.directory.open_file(&segment.name)?;
        let (id, geometry) = (&segment.header.id, segment.header.geometry);
        for record in records {
            let slot = record.place.index;
            let mut bytes = [0; RECORD_HEADER_BYTES];
            file.read_exact_at(&mut bytes, geometry.header_offset(slot))?;
            let header = RecordHeader::decode(&bytes, id, slot);
            // What another process has deleted is no such header any more.
            let Some(header) = header.filter(|header| header.key == record.key) else { continue };
            let longer = RecordHeader { expires_at, ..header }.encode(id, slot);
            file.write_all_at(&longer, geometry.header_offset(slot))?;
            self.index.lengthen(record, expires_at);
        }
        Ok(())
    }
}
