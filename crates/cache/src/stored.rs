//! What the cache is told of the disk tier.

use std::hash::Hash;

use crate::disk_page::DiskPage;
use crate::namespace::Namespace;
use crate::prompt_cache::{PromptCache, shared_id};
use crate::timestamp::Timestamp;
use crate::token_page::PAGE_TOKENS;
use crate::tree::{ALIVE, HELD};
use crate::verdict::Loss;

impl<P: Copy + Eq + Hash> PromptCache<P> {
    /// Notes that the full page which ends with `tokens`, all from the start of its sequence, is
    /// stored at `place`, and lives until `expires_at` or as long as anybody who used it said. It
    /// takes the place of an older copy. The pages before it need not be known: until they are
    /// noted too, they count as evicted at `now`.
    ///
    /// Returns whether the cache has taken it: not where `tokens` are no multiple of
    /// [`PAGE_TOKENS`] or none, or the page's life is over.
    pub fn note_stored(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        place: DiskPage,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> bool {
        self.expire_due(now);
        let is_over = expires_at.is_some_and(|at| at <= now);
        if tokens.is_empty() || !tokens.len().is_multiple_of(PAGE_TOKENS) || is_over {
            return false;
        }
        self.tree.drop_place(place, Loss::Evicted, now);
        let by = self.tree.begin(shared_id(""), now, expires_at);
        let Some(root) = self.tree.root_or_new(namespace, &by) else { return false };
        let taken = self.tree.store(root, tokens, place, &by);
        self.trim_ghosts();
        self.tree.prune_root(root);
        taken
    }

    /// Notes that nothing is stored at `place` any more, and why. A page that is not in memory
    /// either is remembered as lost for that reason; one that is, is returned: it has no copy on
    /// disk any more. A place that nothing is known of is let be.
    pub fn note_dropped(&mut self, place: DiskPage, loss: Loss, now: Timestamp) -> Option<P> {
        let page = self.tree.drop_place(place, loss, now);
        self.trim_ghosts();
        page
    }

    /// The full pages of a sequence that are in memory, from its first page on.
    pub fn pages(&self, namespace: &Namespace, tokens: &[u32]) -> Vec<P> {
        let Some(root) = self.tree.root(namespace) else { return Vec::new() };
        let path = self.tree.descend(root, tokens, HELD).path;
        path.iter().filter_map(|&id| self.tree.page(id)).collect()
    }

    /// Where the full pages of a sequence lie on disk, as far as they are in memory or on disk
    /// without a gap; `None` for one that is in memory alone.
    pub fn places(&self, namespace: &Namespace, tokens: &[u32]) -> Vec<Option<DiskPage>> {
        let Some(root) = self.tree.root(namespace) else { return Vec::new() };
        let path = self.tree.descend(root, tokens, ALIVE).path;
        path.iter().map(|&id| self.tree.node(id).disk).collect()
    }
}
