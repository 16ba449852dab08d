//! The bytes of a segment file.
//!
//! ```text
//! 0      segment header (128 bytes)
//! 4096   table: one record header of 256 bytes for each slot, zeros where there is no record yet
//! …      at the next multiple of 4096: one page for each slot
//! ```
//!
//! A page is deleted by another header in the place of its own, which says nothing but that: zeros
//! would end the table. A life that became longer is another header too. Both lie within one sector
//! of a disk, so that a crash leaves one of them.
//!
//! Numbers are little-endian. All pages of a segment have one size, so a slot's place is known
//! without reading what stands before it, and opening a segment reads its table alone. A page is
//! written before its header, so a header that can be read has its page behind it unless the
//! machine itself went down; then the checksum of the page tells.

use crate::disk::chain::ChainKey;
use crate::timestamp::Timestamp;
use crate::token_page::PAGE_TOKENS;

/// Version of the layout above.
const FORMAT_VERSION: u32 = 1;
const SEGMENT_MAGIC: [u8; 8] = *b"rfrnSEG\n";
const RECORD_MAGIC: [u8; 8] = *b"rfrnPAGE";
const DELETED_MAGIC: [u8; 8] = *b"rfrnGONE";

pub(crate) const SEGMENT_HEADER_BYTES: usize = 128;
pub(crate) const RECORD_HEADER_BYTES: usize = 256;
const TABLE_OFFSET: u64 = 4096;
const ALIGNMENT: u64 = 4096;
/// Bytes of a page, and slots of a segment, at most: what is beyond is damage, not data.
pub(crate) const PAGE_BYTES_MAX: u32 = 1 << 30;
const SLOTS_MAX: u32 = 1 << 20;
/// Where the checksum of each header stands: at its end.
const SEGMENT_CHECKSUM_AT: usize = SEGMENT_HEADER_BYTES - 32;
const RECORD_CHECKSUM_AT: usize = RECORD_HEADER_BYTES - 32;

/// Where things lie in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Bytes of each page.
    pub(crate) page_bytes: u32,
    /// Records that the segment has room for.
    pub(crate) slots: u32,
}

impl Geometry {
    /// As many slots as fit `segment_bytes`, but at least one.
    pub(crate) fn new(page_bytes: u32, segment_bytes: u64) -> Self {
        let room = segment_bytes.saturating_sub(TABLE_OFFSET + ALIGNMENT);
        let slots = room / (u64::from(page_bytes) + RECORD_HEADER_BYTES as u64);
        Self { page_bytes, slots: slots.clamp(1, u64::from(SLOTS_MAX)) as u32 }
    }

    pub(crate) fn header_offset(self, slot: u32) -> u64 {
        TABLE_OFFSET + u64::from(slot) * RECORD_HEADER_BYTES as u64
    }

    pub(crate) fn page_offset(self, slot: u32) -> u64 {
        self.header_offset(self.slots).next_multiple_of(ALIGNMENT)
            + u64::from(slot) * u64::from(self.page_bytes)
    }

    /// Length of a full segment.
    pub(crate) fn segment_bytes(self) -> u64 {
        self.page_offset(self.slots)
    }
}

/// The first bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Random; the file is named after it.
    pub(crate) id: [u8; 16],
    /// Weights digest and numerics id, as the store was told.
    pub(crate) model: [u8; 32],
    pub(crate) geometry: Geometry,
    pub(crate) created: Timestamp,
}

/// Why bytes are not a segment header of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Damaged,
    Version(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(PAGE_TOKENS as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&self.geometry.page_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.geometry.slots.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.created.0.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.model);
        bytes[64..80].copy_from_slice(&self.id);
        let checksum = blake3::hash(&bytes[..SEGMENT_CHECKSUM_AT]);
        bytes[SEGMENT_CHECKSUM_AT..].copy_from_slice(checksum.as_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Result<Self, HeaderFault> {
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(HeaderFault::Damaged);
        }
        // Another version may have its checksum elsewhere.
        let version = u32::from_le_bytes(field(bytes, 8));
        if version != FORMAT_VERSION {
            return Err(HeaderFault::Version(version));
        }
        let checksum: [u8; 32] = field(bytes, SEGMENT_CHECKSUM_AT);
        if blake3::hash(&bytes[..SEGMENT_CHECKSUM_AT]) != checksum {
            return Err(HeaderFault::Damaged);
        }
        let page_bytes = u32::from_le_bytes(field(bytes, 16));
        let slots = u32::from_le_bytes(field(bytes, 20));
        let page_tokens = u32::from_le_bytes(field(bytes, 12));
        let in_range = (1..=PAGE_BYTES_MAX).contains(&page_bytes)
            && (1..=SLOTS_MAX).contains(&slots)
            && page_tokens == PAGE_TOKENS as u32;
        if !in_range {
            return Err(HeaderFault::Damaged);
        }
        Ok(Self {
            id: field(bytes, 64),
            model: field(bytes, 32),
            geometry: Geometry { page_bytes, slots },
            created: Timestamp(u64::from_le_bytes(field(bytes, 24))),
        })
    }
}

/// What stands in the table for one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) namespace: [u8; 32],
    pub(crate) depth: u32,
    pub(crate) tokens: [u32; PAGE_TOKENS],
    pub(crate) parent: ChainKey,
    pub(crate) key: ChainKey,
    pub(crate) expires_at: Option<Timestamp>,
    /// BLAKE3 of the page.
    pub(crate) checksum: [u8; 32],
}

impl RecordHeader {
    /// The header as it stands in slot `slot` of the segment `id`, and nowhere else: its checksum
    /// covers both.
    pub(crate) fn encode(&self, id: &[u8; 16], slot: u32) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[..8].copy_from_slice(&RECORD_MAGIC);
        bytes[8..12].copy_from_slice(&self.depth.to_le_bytes());
        // 0 is no time at which anything could have been stored.
        let expires_at = self.expires_at.map_or(0, |at| at.0.max(1));
        bytes[16..24].copy_from_slice(&expires_at.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.namespace);
        bytes[64..96].copy_from_slice(&self.parent.0);
        bytes[96..128].copy_from_slice(&self.checksum);
        for (bytes, token) in bytes[128..192].chunks_exact_mut(4).zip(self.tokens) {
            bytes.copy_from_slice(&token.to_le_bytes());
        }
        // It follows from the parent's and the tokens; stored, it need not be hashed again for each
        // record of a directory.
        bytes[192..224].copy_from_slice(&self.key.0);
        let checksum = record_checksum(&bytes, id, slot);
        bytes[RECORD_CHECKSUM_AT..].copy_from_slice(&checksum);
        bytes
    }

    /// `None` for what is not a sound header of this slot of this segment.
    pub(crate) fn decode(
        bytes: &[u8; RECORD_HEADER_BYTES],
        id: &[u8; 16],
        slot: u32,
    ) -> Option<Self> {
        let checksum: [u8; 32] = field(bytes, RECORD_CHECKSUM_AT);
        if bytes[..8] != RECORD_MAGIC || record_checksum(bytes, id, slot) != checksum {
            return None;
        }
        let mut tokens = [0; PAGE_TOKENS];
        for (index, token) in tokens.iter_mut().enumerate() {
            *token = u32::from_le_bytes(field(bytes, 128 + 4 * index));
        }
        let expires_at = u64::from_le_bytes(field(bytes, 16));
        Some(Self {
            namespace: field(bytes, 32),
            depth: u32::from_le_bytes(field(bytes, 8)),
            tokens,
            parent: ChainKey(field(bytes, 64)),
            key: ChainKey(field(bytes, 192)),
            expires_at: (expires_at != 0).then_some(Timestamp(expires_at)),
            checksum: field(bytes, 96),
        })
    }
}

/// What stands in slot `slot` of the segment `id` in the place of a page that was deleted.
pub(crate) fn deleted_header(id: &[u8; 16], slot: u32) -> [u8; RECORD_HEADER_BYTES] {
    let mut bytes = [0; RECORD_HEADER_BYTES];
    bytes[..8].copy_from_slice(&DELETED_MAGIC);
    let checksum = record_checksum(&bytes, id, slot);
    bytes[RECORD_CHECKSUM_AT..].copy_from_slice(&checksum);
    bytes
}

fn record_checksum(bytes: &[u8; RECORD_HEADER_BYTES], id: &[u8; 16], slot: u32) -> [u8; 32] {
    let mut covered = [0; RECORD_CHECKSUM_AT + 20];
    covered[..RECORD_CHECKSUM_AT].copy_from_slice(&bytes[..RECORD_CHECKSUM_AT]);
    covered[RECORD_CHECKSUM_AT..][..16].copy_from_slice(id);
    covered[RECORD_CHECKSUM_AT + 16..].copy_from_slice(&slot.to_le_bytes());
    *blake3::hash(&covered).as_bytes()
}

/// The `N` bytes at `at` of a header, all of whose fields lie within it.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut taken = [0; N];
    taken.copy_from_slice(&bytes[at..at + N]);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RecordHeader {
        let namespace = [7; 32];
        let parent = ChainKey::root(&namespace);
        let tokens = std::array::from_fn(|index| index as u32 * 1000);
        RecordHeader {
            namespace,
            depth: 0,
            tokens,
            parent,
            key: parent.next(&tokens),
            expires_at: Some(Timestamp(5)),
            checksum: [9; 32],
        }
    }

    #[test]
    fn headers_come_back_and_no_flipped_bit_passes() {
        let geometry = Geometry::new(1000, 1 << 20);
        let segment =
            SegmentHeader { id: [1; 16], model: [2; 32], geometry, created: Timestamp(3) };
        assert_eq!(SegmentHeader::decode(&segment.encode()), Ok(segment));
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            let mut bytes = segment.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bytes).is_err(), "bit {bit}");
        }
        let bytes = record().encode(&[1; 16], 4);
        assert_eq!(RecordHeader::decode(&bytes, &[1; 16], 4), Some(record()));
        for bit in 0..RECORD_HEADER_BYTES * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&bytes, &[1; 16], 4), None, "bit {bit}");
        }
    }

    #[test]
    fn a_deleted_page_is_no_record_and_no_empty_slot() {
        let bytes = deleted_header(&[1; 16], 4);
        assert_eq!(RecordHeader::decode(&bytes, &[1; 16], 4), None);
        assert_ne!(bytes, [0; RECORD_HEADER_BYTES]);
        assert_ne!(bytes, deleted_header(&[1; 16], 5));
        assert_ne!(bytes, deleted_header(&[2; 16], 4));
    }

    #[test]
    fn a_header_is_sound_in_its_own_slot_alone() {
        let bytes = record().encode(&[1; 16], 4);
        assert_eq!(RecordHeader::decode(&bytes, &[1; 16], 5), None);
        assert_eq!(RecordHeader::decode(&bytes, &[2; 16], 4), None);
    }
}
