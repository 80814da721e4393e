//! Sequence memory on disk: a file of one sequence, and a folder of pages.
//!
//! Both are files of one form ([`file`]): their writer ([`CacheIdentity`]), their contents, the bytes of pages, and
//! checksums. A file that another model, build, level or cache format wrote is refused by name, and so is a damaged one. Data
//! from disk has the bits that were computed, or is not used.

mod error;
pub(crate) mod file;
mod identity;
mod lock;
pub(crate) mod page;
pub(crate) mod sequence;
pub(crate) mod store;

pub use error::DiskError;
pub use identity::CacheIdentity;
pub use lock::FileLock;
pub use store::{PageFolder, Warn};
