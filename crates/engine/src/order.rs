//! Orders to the engine's thread that are no requests.

use cache::Timestamp;

use crate::kv_memory::KvMemory;

/// Something to be done with the memory in the engine's thread, at a moment.
pub(crate) type Order = Box<dyn FnOnce(&mut KvMemory, Timestamp) + Send>;
