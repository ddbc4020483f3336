//! File trees as the two ends of a copy see them (docs/files.md).
//!
//! [`SourceTree`] scans and reads, [`SinkTree`] does what a [`longhaul_objects::Sink`] wants done
//! with its storage. Both block, and both are shared by as many threads as like to call them.
//! Which file is where is decided here, with the habits of `cp`; what is moved when is not.

mod attributes;
mod b3sum;
mod cache;
mod copied_hashes;
mod destination;
mod dry_run;
mod explain;
mod filter;
mod folding;
mod glob;
mod hashing;
mod hidden;
mod identify;
mod large;
mod leftovers;
mod listed_rules;
mod listing;
mod matches;
mod metadata;
mod moved_destination;
mod parents;
mod place;
mod record;
mod sink;
mod source;
mod special;
mod target;
#[cfg(any(test, feature = "test-faults"))]
pub mod test_faults;
#[cfg(test)]
mod tests;
mod trust;

pub use b3sum::{HashList, HashListError};
pub use copied_hashes::{Again, CopiedHashes, UnfinishedList};
pub use destination::SinkOptions;
pub use destination::{Destination, DestinationError};
pub use explain::{at_directory, at_server};
pub use filter::{Filter, FilterError};
pub use glob::{AskedPatterns, expand_sources, is_pattern, means_several};
pub use hashing::Hashing;
pub use identify::{boot_id, is_hidden_name, source_label, transfer_id};
pub use leftovers::{Look, UnfinishedCopies, UnfinishedCopy, discard};
pub use listed_rules::{NamesBesideRules, list_beside_rules};
pub use listing::{Found, Listing};
pub use matches::{ListedPattern, Matches};
pub use sink::{SinkTree, StorageError};
pub use source::scan::{Scan, ScanFailure, Scanned};
pub use source::stand_in::stood_for;
pub use source::{SourceTree, own_name};
pub use target::Target;
