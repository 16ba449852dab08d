//! Where a page lies in the disk tier.

/// Names the copy of one full page in the disk tier. What the numbers mean is the business of
/// whoever writes there; to the tree they are a name that stands for one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiskPage {
    /// Number of the file.
    pub segment: u32,
    /// Number of the page in it.
    pub index: u32,
}
