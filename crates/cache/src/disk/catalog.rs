//! The files of the directory as this process knows them, and the index of what is in them.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use crate::disk::chain::ChainKey;
use crate::disk::damage::{Damage, DamageKind};
use crate::disk::directory::{Directory, FileKind, Listed};
use crate::disk::event::{DiskEvent, DropReason};
use crate::disk::format::{Geometry, SegmentHeader};
use crate::disk::index::{Index, Removal};
use crate::disk::record::{Record, SequencePage, StoredRun, Wanted};
use crate::disk::segment::{self, Scan, Segment};
use crate::disk::shared::Shared;
use crate::timestamp::Timestamp;

/// Keys of other models that are kept, 16 bytes each.
const OTHER_MODELS_MAX: usize = 1 << 18;
/// Findings that are remembered so as not to be told twice.
const REPORTED_MAX: usize = 4096;
/// Segments that are used; a directory that holds more gives up the least recently used.
const FILES_MAX: usize = 400;

/// What is known of a segment file.
enum Known {
    /// Of this store's model.
    Ours(Ours),
    /// Of another model.
    Other { next: u32, bytes: u64 },
    /// Damaged, or of another version of the format.
    Unusable,
}

struct Ours {
    segment: Arc<Segment>,
    /// The slot after the last that was seen.
    next: u32,
    sound: bool,
}

pub(crate) struct Catalog {
    pub(crate) directory: Directory,
    pub(crate) model: [u8; 32],
    pub(crate) page_bytes: u32,
    budget: u64,
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: Index,
    known: HashMap<String, Known>,
    next_number: u32,
    /// False while the directory is looked at for the first time.
    is_replayed: bool,
    reported: HashSet<Damage>,
    events: Sender<DiskEvent>,
}

impl Catalog {
    pub(crate) fn new(
        directory: Directory,
        model: [u8; 32],
        page_bytes: u32,
        budget: u64,
        shared: Arc<Shared>,
        events: Sender<DiskEvent>,
    ) -> Self {
        Self {
            directory,
            model,
            page_bytes,
            budget,
            shared,
            index: Index::default(),
            known: HashMap::new(),
            next_number: 0,
            is_replayed: false,
            reported: HashSet::new(),
            events,
        }
    }

    /// Says something to the store's owner, who may be gone.
    pub(crate) fn tell(&self, event: DiskEvent) {
        let _ = self.events.send(event);
    }

    pub(crate) fn report(&mut self, file: &str, kind: DamageKind) {
        let damage = Damage { file: file.to_string(), kind };
        if self.reported.len() < REPORTED_MAX && self.reported.insert(damage.clone()) {
            self.tell(DiskEvent::Damaged(damage));
        }
    }

    /// Notices what was written or deleted since, tells of it, and keeps the directory within its
    /// budget. `writing` is the segment that this process writes, and knows itself.
    pub(crate) fn refresh(&mut self, now: Timestamp, writing: Option<&str>) {
        let listed = match self.directory.list() {
            Ok(listed) => listed,
            // Deleted as a whole.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return self.report(".", DamageKind::Unreadable(error.kind())),
        };
        for one in listed.iter().filter(|one| one.kind == FileKind::Foreign) {
            self.report(&one.name, DamageKind::Foreign);
        }
        let mut segments = segments_of(listed);
        self.forget_vanished(&segments);
        // The newest first: where memory ends, the oldest stay unknown.
        segments.sort_by(|a, b| (b.modified, &a.name).cmp(&(a.modified, &b.name)));
        for one in segments.iter().filter(|one| writing != Some(&one.name)) {
            self.look_at(one, now);
        }
        self.make_room(0, segments, |name| writing == Some(name));
    }

    /// Notes that the pages of a path were used. Of several segments, those whose first page stands
    /// further ahead count as used a little later: they must go after what follows in others, and
    /// after what is written at this time.
    pub(crate) fn touch_path(&self, keys: &[ChainKey], now: Timestamp) {
        let numbers = self.index.segments_of(keys);
        let segments = self.shared.segments();
        for (later, number) in (1..).zip(numbers.iter().rev()) {
            if let Some(segment) = segments.get(number) {
                segment.touch(Timestamp(now.0.saturating_add(later)));
            }
        }
    }

    fn forget_vanished(&mut self, segments: &[Listed]) {
        let present: HashSet<&str> = segments.iter().map(|one| one.name.as_str()).collect();
        let gone: Vec<_> =
            self.known.keys().filter(|name| !present.contains(&name[..])).cloned().collect();
        for name in gone {
            self.forget(&name, DropReason::Vanished);
        }
    }

    pub(crate) fn forget(&mut self, name: &str, reason: DropReason) {
        match self.known.remove(name) {
            Some(Known::Ours(ours)) => {
                let removal = self.index.remove_segment(ours.segment.number);
                self.tell_removal(removal, reason);
                self.shared.segments_mut().remove(&ours.segment.number);
            }
            // Which keys were in no other is not known: the others' are read again.
            Some(Known::Other { .. }) => {
                self.known.retain(|_, known| !matches!(known, Known::Other { .. }));
                self.shared.other_models_mut().clear();
            }
            Some(Known::Unusable) | None => {}
        }
    }

    /// The new place is told first, so that who has taken it lets the old one go without a loss.
    pub(crate) fn tell_removal(&self, removal: Removal, reason: DropReason) {
        self.tell_found(removal.moved);
        let dropped = removal.dropped.len() as u64;
        self.shared.counters.dropped_pages.fetch_add(dropped, Ordering::Relaxed);
        for record in removal.dropped {
            self.tell(DiskEvent::Dropped { place: record.place, reason });
        }
    }

    /// Opens a segment that is not known, and reads what is new in one that is.
    fn look_at(&mut self, listed: &Listed, now: Timestamp) {
        match self.known.get_mut(&listed.name) {
            None => self.open(listed, now),
            Some(Known::Unusable) => {}
            Some(Known::Ours(ours)) => {
                if ours.next >= ours.segment.header.geometry.slots {
                    return;
                }
                let scan = ours.segment.scan(ours.next);
                let Some(scan) = self.scanned(&listed.name, scan) else { return };
                self.take_in(&listed.name, scan, now);
            }
            Some(Known::Other { bytes, .. }) if *bytes == listed.bytes => {}
            Some(Known::Other { .. }) => {
                if let Ok((file, header)) = segment::open(&self.directory.file(&listed.name)) {
                    self.look_at_other(listed, &file, &header, now);
                }
            }
        }
    }

    fn open(&mut self, listed: &Listed, now: Timestamp) {
        let name = &listed.name;
        let (file, header) = match segment::open(&self.directory.file(name)) {
            Ok(opened) => opened,
            Err(DamageKind::Unreadable(io::ErrorKind::NotFound)) => return,
            Err(kind) => {
                self.known.insert(name.clone(), Known::Unusable);
                return self.report(name, kind);
            }
        };
        if header.model != self.model || header.geometry.page_bytes != self.page_bytes {
            return self.look_at_other(listed, &file, &header, now);
        }
        let scan = segment::scan(&file, &header, 0);
        let Some(scan) = self.scanned(name, scan) else { return };
        self.add(name, file, header, listed.modified);
        self.take_in(name, scan, now);
    }

    /// Makes a segment of this model known, with nothing in it.
    pub(crate) fn add(
        &mut self,
        name: &str,
        file: File,
        header: SegmentHeader,
        used: Timestamp,
    ) -> Arc<Segment> {
        let segment = Segment::new(self.next_number, name.to_string(), file, header, used);
        let segment = Arc::new(segment);
        // 2³² segments are more than any disk holds.
        self.next_number = self.next_number.wrapping_add(1);
        self.shared.segments_mut().insert(segment.number, Arc::clone(&segment));
        let ours = Ours { segment: Arc::clone(&segment), next: 0, sound: true };
        self.known.insert(name.to_string(), Known::Ours(ours));
        segment
    }

    /// Reports what a scan came upon; `None` if it could not be made.
    fn scanned(&mut self, name: &str, scan: io::Result<Scan>) -> Option<Scan> {
        match scan {
            Ok(scan) => {
                if scan.damaged > 0 {
                    self.report(name, DamageKind::Headers { records: scan.damaged });
                }
                if scan.truncated > 0 {
                    self.report(name, DamageKind::Truncated { pages: scan.truncated });
                }
                Some(scan)
            }
            Err(error) => {
                self.report(name, DamageKind::Unreadable(error.kind()));
                None
            }
        }
    }

    /// Takes the records of one of this model's segments into the index and tells of them.
    fn take_in(&mut self, name: &str, scan: Scan, now: Timestamp) {
        let Some(Known::Ours(ours)) = self.known.get_mut(name) else { return };
        ours.next = scan.next;
        ours.sound &= scan.damaged == 0 && scan.truncated == 0;
        let segment = Arc::clone(&ours.segment);
        let records = scan.records.iter().map(|(slot, header)| segment.record(*slot, header));
        let mut reached = Vec::new();
        for record in records.filter(|record| !record.is_expired(now)) {
            reached.extend(self.index.insert(record));
        }
        if self.is_replayed {
            self.tell_found(reached);
        }
    }

    fn tell_found(&self, records: Vec<Record>) {
        self.index.runs(records, |run| self.tell(DiskEvent::Found(run)));
    }

    /// Gives `each` run of pages that can be reached; from here on new ones are told as events.
    pub(crate) fn replay(&mut self, each: impl FnMut(StoredRun)) {
        self.is_replayed = true;
        self.index.runs(self.index.reachable(), each);
    }

    fn look_at_other(
        &mut self,
        listed: &Listed,
        file: &File,
        header: &SegmentHeader,
        now: Timestamp,
    ) {
        let next = match self.known.get(&listed.name) {
            Some(Known::Other { next, .. }) => *next,
            _ => 0,
        };
        let has_room = self.shared.other_models().len() < OTHER_MODELS_MAX;
        let scan = if has_room { segment::scan(file, header, next) } else { Ok(Scan::default()) };
        let Some(scan) = self.scanned(&listed.name, scan) else { return };
        let mut keys = self.shared.other_models_mut();
        for (_, record) in scan.records {
            if keys.len() < OTHER_MODELS_MAX && record.expires_at.is_none_or(|at| at > now) {
                keys.insert(half(&record.key.0));
            }
        }
        let known = Known::Other { next: scan.next, bytes: listed.bytes };
        self.known.insert(listed.name.clone(), known);
    }

    /// Deletes the least recently used segments until `bytes` more fit the budget; true if they
    /// do. Segments that somebody writes stay, and those that are to, and nothing is deleted while
    /// another process does.
    fn make_room(
        &mut self,
        bytes: u64,
        mut segments: Vec<Listed>,
        stays: impl Fn(&str) -> bool,
    ) -> bool {
        let mut total: u64 = segments.iter().map(|one| one.bytes).sum();
        let mut files = segments.len();
        let fits = |total: u64, files| total + bytes <= self.budget && files < FILES_MAX;
        let mut is_enough = fits(total, files);
        // Held to the end of the function.
        let lock = if is_enough { None } else { self.directory.lock_file().ok() };
        if lock.as_ref().is_some_and(|lock| lock.try_lock().is_ok()) {
            segments.sort_by_key(|one| self.last_used(one));
            for one in segments.iter().filter(|one| !stays(&one.name)) {
                if is_enough {
                    break;
                }
                if self.directory.remove_unlocked(&one.name) {
                    total -= one.bytes;
                    files -= 1;
                    self.forget(&one.name, DropReason::Evicted);
                }
                is_enough = total + bytes <= self.budget && files < FILES_MAX;
            }
        }
        let counters = &self.shared.counters;
        counters.directory_bytes.store(total, Ordering::Relaxed);
        counters.segments.store(files, Ordering::Relaxed);
        counters.pages.store(self.index.pages(), Ordering::Relaxed);
        is_enough
    }

    fn last_used(&self, listed: &Listed) -> Timestamp {
        match self.known.get(&listed.name) {
            Some(Known::Ours(ours)) => ours.segment.used().max(listed.modified),
            _ => listed.modified,
        }
    }

    /// Whether there can be room for a segment.
    pub(crate) fn fits(&self, geometry: Geometry) -> bool {
        geometry.segment_bytes() <= self.budget
    }

    /// Makes room for a new segment, but not at the cost of pages of this path; true if there is.
    pub(crate) fn make_room_for(
        &mut self,
        geometry: Geometry,
        path: &[ChainKey],
    ) -> io::Result<bool> {
        self.directory.ensure()?;
        let segments = segments_of(self.directory.list()?);
        let of_path = self.index.segments_of(path).into_iter();
        let of_path = of_path.filter_map(|number| self.shared.segment(number));
        let of_path: HashSet<String> = of_path.map(|segment| segment.name.clone()).collect();
        Ok(self.make_room(geometry.segment_bytes(), segments, |name| of_path.contains(name)))
    }

    /// Segments of this model that are sound and not full, the fullest first.
    pub(crate) fn unfinished(&self) -> Vec<Arc<Segment>> {
        let mut unfinished: Vec<_> = self
            .known
            .values()
            .filter_map(|known| match known {
                Known::Ours(ours)
                    if ours.sound && ours.next < ours.segment.header.geometry.slots =>
                {
                    Some(ours)
                }
                _ => None,
            })
            .collect();
        unfinished.sort_by_key(|ours| ours.segment.header.geometry.slots - ours.next);
        unfinished.into_iter().map(|ours| Arc::clone(&ours.segment)).collect()
    }

    /// Reads on in a segment whose lock was just taken, and returns the slot to write next; `None`
    /// if there is damage, or no room.
    pub(crate) fn next_slot(&mut self, name: &str, now: Timestamp) -> Option<u32> {
        let Some(Known::Ours(ours)) = self.known.get(name) else { return None };
        let scan = ours.segment.scan(ours.next);
        let scan = self.scanned(name, scan)?;
        self.take_in(name, scan, now);
        let Some(Known::Ours(ours)) = self.known.get(name) else { return None };
        (ours.sound && ours.next < ours.segment.header.geometry.slots).then_some(ours.next)
    }

    /// Takes in a record that this process has written, and tells of it and of what can be reached
    /// again with it.
    pub(crate) fn wrote(&mut self, name: &str, record: Record, page: SequencePage) {
        if let Some(Known::Ours(ours)) = self.known.get_mut(name) {
            ours.next = record.place.index + 1;
        }
        let mut reached = self.index.insert(record);
        self.tell(DiskEvent::Stored(page, record.place));
        reached.retain(|one| one.place != record.place);
        self.tell_found(reached);
        self.shared.counters.pages.store(self.index.pages(), Ordering::Relaxed);
    }

    pub(crate) fn is_known(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// Leaves a segment that cannot be written as it is.
    pub(crate) fn give_up(&mut self, name: &str) {
        if let Some(Known::Ours(ours)) = self.known.get_mut(name) {
            ours.sound = false;
        }
    }

    /// Lets a page go that was read and found damaged.
    pub(crate) fn drop_damaged(&mut self, wanted: &Wanted) {
        let Some(segment) = self.shared.segment(wanted.place.segment) else { return };
        self.report(&segment.name, DamageKind::Page { index: wanted.place.index });
        self.give_up(&segment.name);
        self.shared.counters.damaged_pages.fetch_add(1, Ordering::Relaxed);
        let removal = self.index.remove(wanted.key, wanted.place);
        self.tell_removal(removal, DropReason::Damaged);
    }
}

fn segments_of(listed: Vec<Listed>) -> Vec<Listed> {
    listed.into_iter().filter(|one| one.kind == FileKind::Segment).collect()
}

/// The half of a key by which other models' pages are known: enough to say, not to serve.
pub(crate) fn half(key: &[u8; 32]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&key[..16]);
    half
}
