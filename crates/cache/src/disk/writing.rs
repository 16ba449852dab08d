//! The segment that this process writes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::disk::catalog::Catalog;
use crate::disk::chain::ChainKey;
use crate::disk::directory::{Directory, random};
use crate::disk::format::{Geometry, RecordHeader, SegmentHeader};
use crate::disk::record::Record;
use crate::disk::segment::Segment;
use crate::timestamp::Timestamp;

/// A segment under this process's lock, which is given back when this is dropped.
pub(crate) struct Writing {
    segment: Arc<Segment>,
    file: File,
    next: u32,
}

impl Writing {
    /// Goes on with a segment that nobody writes any more, or makes a new one; `None` if there is
    /// no room for one, since other processes write all there are, or they hold pages of the `path`
    /// that is to be written on.
    pub(crate) fn begin(
        catalog: &mut Catalog,
        geometry: Geometry,
        path: &[ChainKey],
        now: Timestamp,
    ) -> io::Result<Option<Self>> {
        for segment in catalog.unfinished() {
            let Some(file) = catalog.directory.open_locked(&segment.name) else { continue };
            if let Some(next) = catalog.next_slot(&segment.name, now) {
                return Ok(Some(Self { segment, file, next }));
            }
        }
        if !catalog.make_room_for(geometry, path)? {
            return Ok(None);
        }
        let id = random()?;
        let header = SegmentHeader { id, model: catalog.model, geometry, created: now };
        // Another process that is just starting may take the file for what a crash left.
        let file =
            create(&catalog.directory, &header).or_else(|_| create(&catalog.directory, &header))?;
        let name = Directory::segment_name(&id);
        // Not a second handle of `file`, which would keep its lock.
        let table = File::open(catalog.directory.file(&name))?;
        let segment = catalog.add(&name, table, header, now);
        Ok(Some(Self { segment, file, next: 0 }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.segment.name
    }

    pub(crate) fn is_full(&self) -> bool {
        self.next >= self.segment.header.geometry.slots
    }

    /// Writes the page, used at this time, and then its header. After an error the slot counts as
    /// empty, and is written again.
    pub(crate) fn append(
        &mut self,
        mut header: RecordHeader,
        page: &[u8],
        used: Timestamp,
    ) -> io::Result<Record> {
        let geometry = self.segment.header.geometry;
        header.checksum = *blake3::hash(page).as_bytes();
        self.file.write_all_at(page, geometry.page_offset(self.next))?;
        let bytes = header.encode(&self.segment.header.id, self.next);
        self.file.write_all_at(&bytes, geometry.header_offset(self.next))?;
        let record = self.segment.record(self.next, &header);
        self.next += 1;
        self.segment.touch(used);
        // Being written to, the file tells when that was done, which is later than what it was done
        // for.
        self.segment.write_use();
        Ok(record)
    }

    /// Brings a full segment to the disk itself, so that a crash of the machine cannot take it.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Makes an empty segment, which has its name once it has its header.
fn create(directory: &Directory, header: &SegmentHeader) -> io::Result<File> {
    let (name, file) = directory.create_new()?;
    let path = directory.file(&name);
    let created = UNIX_EPOCH.checked_add(Duration::from_millis(header.created.0));
    let named = file
        .write_all_at(&header.encode(), 0)
        .and_then(|()| created.map_or(Ok(()), |created| file.set_modified(created)))
        .and_then(|()| fs::rename(&path, directory.file(&Directory::segment_name(&header.id))));
    if let Err(error) = named {
        // What cannot be deleted either is cleared when a store is opened.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}
