//! What is stored, and what is wanted back.

use std::sync::Arc;

use crate::disk::chain::ChainKey;
use crate::disk_page::DiskPage;
use crate::timestamp::Timestamp;
use crate::token_page::PAGE_TOKENS;

/// A full page that lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) place: DiskPage,
    pub(crate) namespace: [u8; 32],
    /// How many pages stand before it.
    pub(crate) depth: u32,
    pub(crate) tokens: [u32; PAGE_TOKENS],
    /// The key of the page before it; at depth 0 the root of the namespace.
    pub(crate) parent: ChainKey,
    pub(crate) key: ChainKey,
    pub(crate) expires_at: Option<Timestamp>,
}

impl Record {
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// A full page of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequencePage {
    /// Whose it is.
    pub namespace: [u8; 32],
    /// The token ids of the sequence, up to this page's end at least; shared by its pages.
    pub tokens: Arc<[u32]>,
    /// How many pages stand before it: it covers positions `16 depth ..= 16 depth + 15`.
    pub depth: usize,
    /// When it must not be used any more.
    pub expires_at: Option<Timestamp>,
}

impl SequencePage {
    /// The token ids from the start of the sequence to the end of this page.
    pub fn path(&self) -> &[u32] {
        let end = self.depth.saturating_add(1).saturating_mul(PAGE_TOKENS);
        &self.tokens[..end.min(self.tokens.len())]
    }
}

/// A full page to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPage {
    /// Which.
    pub page: SequencePage,
    /// Its K/V, exactly as long as the store's pages are.
    pub bytes: Vec<u8>,
}

/// Pages on disk that follow one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRun {
    /// Whose they are.
    pub namespace: [u8; 32],
    /// The token ids from the start of the sequence to the end of the last page.
    pub tokens: Vec<u32>,
    /// The last pages of `tokens`: where each lies, and when it must not be used any more.
    pub pages: Vec<(DiskPage, Option<Timestamp>)>,
}

impl StoredRun {
    /// How many pages stand before the first of [`pages`](Self::pages).
    pub fn first(&self) -> usize {
        (self.tokens.len() / PAGE_TOKENS).saturating_sub(self.pages.len())
    }

    /// Each page's path from the start of the sequence, its place and its expiry.
    pub fn paths(&self) -> impl Iterator<Item = (&[u32], DiskPage, Option<Timestamp>)> {
        let first = self.first();
        self.pages.iter().enumerate().map(move |(index, &(place, expires_at))| {
            (&self.tokens[..(first + index + 1) * PAGE_TOKENS], place, expires_at)
        })
    }
}

/// Pages to be deleted.
pub(crate) enum Doomed {
    /// All of a namespace, of whatever model, but this model's pages of these sequences.
    Namespace { namespace: [u8; 32], spared: Vec<Vec<u32>> },
    /// Those of a sequence from the page on that has `first` pages before it.
    Sequence { namespace: [u8; 32], tokens: Vec<u32>, first: usize },
}

/// A page to be read, and what must be found there: a hash alone is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub(crate) place: DiskPage,
    pub(crate) key: ChainKey,
    pub(crate) tokens: [u32; PAGE_TOKENS],
}

impl Wanted {
    /// Pages `first`, `first + 1`, … of the sequence `tokens`, which should lie at `places`; as
    /// many as `tokens` has.
    pub fn run(
        namespace: &[u8; 32],
        tokens: &[u32],
        first: usize,
        places: &[DiskPage],
    ) -> Vec<Self> {
        let (pages, _) = tokens.as_chunks::<PAGE_TOKENS>();
        let mut key = ChainKey::root(namespace);
        let mut wanted = Vec::with_capacity(places.len());
        for (depth, page) in pages.iter().enumerate().take(first.saturating_add(places.len())) {
            key = key.next(page);
            if let Some(&place) = depth.checked_sub(first).and_then(|index| places.get(index)) {
                wanted.push(Self { place, key, tokens: *page });
            }
        }
        wanted
    }
}
