//! A segment file that is read: its header, its table, its pages.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use crate::disk::damage::DamageKind;
use crate::disk::format::{
    HeaderFault, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader,
    deleted_header,
};
use crate::disk::record::{Record, Wanted};
use crate::disk_page::DiskPage;
use crate::timestamp::Timestamp;

/// Record headers read at once. The table ends where so many slots in a row are empty.
const CHUNK_RECORDS: usize = 256;
/// How often a header is read that does not fit its checksum: its writer may be just at it.
const TRIES: usize = 3;

/// An open segment of the store's own model; any thread may read it.
pub(crate) struct Segment {
    pub(crate) number: u32,
    /// The file's name in the directory.
    pub(crate) name: String,
    pub(crate) header: SegmentHeader,
    file: File,
    /// When one of its pages was last used, in milliseconds as [`Timestamp`].
    used: AtomicU64,
}

/// Why a page was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFault {
    /// Another record stands there than was wanted.
    Other,
    /// The page was deleted.
    Deleted,
    /// The record is sound no more.
    Damaged,
    /// The system would not.
    Io(io::ErrorKind),
}

/// Opens a segment file for reading and checks its header.
pub(crate) fn open(path: &Path) -> Result<(File, SegmentHeader), DamageKind> {
    let file = File::open(path).map_err(|error| DamageKind::Unreadable(error.kind()))?;
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    file.read_exact_at(&mut bytes, 0).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => DamageKind::NotASegment,
        kind => DamageKind::Unreadable(kind),
    })?;
    let header = SegmentHeader::decode(&bytes).map_err(|fault| match fault {
        HeaderFault::Damaged => DamageKind::NotASegment,
        HeaderFault::Version(version) => DamageKind::Version(version),
    })?;
    Ok((file, header))
}

/// What a part of a table says.
#[derive(Default)]
pub(crate) struct Scan {
    /// The sound records, by slot.
    pub(crate) records: Vec<(u32, RecordHeader)>,
    /// The slot after the last that is not empty.
    pub(crate) next: u32,
    /// Headers that do not fit their checksum.
    pub(crate) damaged: u32,
    /// Sound headers whose pages lie beyond the end of the file.
    pub(crate) truncated: u32,
}

/// Reads the table from slot `from` on, and no page.
pub(crate) fn scan(file: &File, header: &SegmentHeader, from: u32) -> io::Result<Scan> {
    let mut scan = Scan { next: from, ..Scan::default() };
    let geometry = header.geometry;
    let mut chunk = vec![0; CHUNK_RECORDS * RECORD_HEADER_BYTES];
    let mut slot = from;
    while slot < geometry.slots {
        // A new record is mostly alone: looking for one must not cost a whole chunk.
        let wanted = if slot == from && from > 0 { 1 } else { CHUNK_RECORDS };
        let wanted = wanted.min((geometry.slots - slot) as usize);
        let bytes = &mut chunk[..wanted * RECORD_HEADER_BYTES];
        let length = read_as_far(file, bytes, geometry.header_offset(slot))?;
        let (headers, _) = bytes[..length].as_chunks::<RECORD_HEADER_BYTES>();
        let mut empty = true;
        for (header_bytes, slot) in headers.iter().zip(slot..) {
            if header_bytes.iter().all(|&byte| byte == 0) {
                continue;
            }
            empty = false;
            scan.next = slot + 1;
            match read_slot(file, header, header_bytes, slot) {
                Slot::Record(record) => scan.records.push((slot, *record)),
                Slot::Deleted => {}
                Slot::Damaged => scan.damaged += 1,
            }
        }
        if empty || headers.len() < wanted {
            break;
        }
        slot += wanted as u32;
    }
    // The length is asked for after the headers were read: each has its page before it.
    let length = file.metadata()?.len();
    let found = scan.records.len();
    scan.records.retain(|&(slot, _)| geometry.page_offset(slot + 1) <= length);
    scan.truncated = (found - scan.records.len()) as u32;
    Ok(scan)
}

/// What stands in a slot of a table that is not empty.
enum Slot {
    Record(Box<RecordHeader>),
    Deleted,
    Damaged,
}

fn read_slot(
    file: &File,
    header: &SegmentHeader,
    bytes: &[u8; RECORD_HEADER_BYTES],
    slot: u32,
) -> Slot {
    let mut bytes = *bytes;
    for _ in 0..TRIES {
        if let Some(record) = RecordHeader::decode(&bytes, &header.id, slot) {
            return Slot::Record(Box::new(record));
        }
        if bytes == deleted_header(&header.id, slot) {
            return Slot::Deleted;
        }
        if file.read_exact_at(&mut bytes, header.geometry.header_offset(slot)).is_err() {
            break;
        }
    }
    Slot::Damaged
}

/// Reads until `bytes` is full or the file ends, and returns how many bytes came.
fn read_as_far(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

impl Segment {
    /// A segment whose header was read from `file`.
    pub(crate) fn new(
        number: u32,
        name: String,
        file: File,
        header: SegmentHeader,
        used: Timestamp,
    ) -> Self {
        Self { number, name, header, file, used: AtomicU64::new(used.0) }
    }

    /// Reads the table from slot `from` on.
    pub(crate) fn scan(&self, from: u32) -> io::Result<Scan> {
        scan(&self.file, &self.header, from)
    }

    /// The record in `slot`, as the rest of the cache knows it.
    pub(crate) fn record(&self, slot: u32, header: &RecordHeader) -> Record {
        Record {
            place: DiskPage { segment: self.number, index: slot },
            namespace: header.namespace,
            depth: header.depth,
            tokens: header.tokens,
            parent: header.parent,
            key: header.key,
            expires_at: header.expires_at,
        }
    }

    /// Reads the wanted page into `page`, which has the length of this segment's pages. On an
    /// error `page` holds anything.
    pub(crate) fn read(&self, wanted: &Wanted, page: &mut [u8]) -> Result<(), ReadFault> {
        let slot = wanted.place.index;
        let geometry = self.header.geometry;
        if slot >= geometry.slots {
            return Err(ReadFault::Other);
        }
        let fault = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ReadFault::Damaged,
            kind => ReadFault::Io(kind),
        };
        let mut bytes = [0; RECORD_HEADER_BYTES];
        let offset = geometry.header_offset(slot);
        self.file.read_exact_at(&mut bytes, offset).map_err(fault)?;
        if bytes == deleted_header(&self.header.id, slot) {
            return Err(ReadFault::Deleted);
        }
        let header =
            RecordHeader::decode(&bytes, &self.header.id, slot).ok_or(ReadFault::Damaged)?;
        if header.key != wanted.key || header.tokens != wanted.tokens {
            return Err(ReadFault::Other);
        }
        self.file.read_exact_at(page, geometry.page_offset(slot)).map_err(fault)?;
        if blake3::hash(page) != header.checksum {
            return Err(ReadFault::Damaged);
        }
        Ok(())
    }

    /// Notes that it was used, in the file too: for where another process makes room, and after a
    /// crash.
    pub(crate) fn touch(&self, now: Timestamp) {
        if self.used.fetch_max(now.0, Ordering::Relaxed) < now.0 {
            self.write_use();
        }
    }

    pub(crate) fn used(&self) -> Timestamp {
        Timestamp(self.used.load(Ordering::Relaxed))
    }

    /// Says in the file when it was used. That it fails costs nothing but that note.
    pub(crate) fn write_use(&self) {
        let time = UNIX_EPOCH.checked_add(Duration::from_millis(self.used().0));
        let _ = time.map(|time| self.file.set_modified(time));
    }
}
