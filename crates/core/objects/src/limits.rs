//! Every bound of this crate, in one place, with its reason (docs/objects.md section "Limits").

use longhaul_units::Duration;

/// Bytes of a hash group, the last of an object excepted (docs/protocol.md section 7.3).
pub const GROUP_SIZE: u64 = 1 << 20;
/// Memory for entries from the first file of a bundle on with which that ends. Names of its files wait for these: with
/// those of [`ASIDE_NAMES_MAX`] they have to take less than [`UNSETTLED_COST`].
pub const BUNDLE_COST: u64 = 4 << 20;
/// Files of at least this many bytes are objects of their own (docs/protocol.md section 7.1).
pub const LARGE_FILE_MIN: u64 = 1 << 20;
/// Most bytes of an object that bundles small files (docs/protocol.md section 7.1).
pub const BUNDLE_MAX: u64 = 8 << 20;
/// A bundle ends where a file's own name says so, if its last group holds as many bytes: a group costs
/// as much as a full one.
pub const BUNDLE_FILL: u64 = 3 << 18;
/// Bytes of small files in the mean from one such file to the next.
pub const BUNDLE_SPREAD: u64 = 1 << 18;
/// Most files that this implementation puts into one bundle; the peer's may hold more.
pub const BUNDLE_FILES_MAX: usize = 1024;
/// Largest object: group numbers have 32 bits.
pub const OBJECT_MAX: u64 = (u32::MAX as u64) * GROUP_SIZE;
/// Most entries of one transfer.
pub const ENTRIES_MAX: u32 = 1 << 26;
/// Most directories of one transfer. Each is held until the end, when its times are set.
pub const DIRECTORIES_MAX: u32 = 1 << 22;
/// Memory that a file or link takes beside the bytes of its path and target, until it is settled
/// (docs/protocol.md section 7.2).
pub const ENTRY_COST: u64 = 256;
/// The same of each range with data of a file with holes.
pub const DATA_RANGE_COST: u64 = 16;
/// The same of metadata beside its bytes in a manifest, each of which counts so often: an entry of an access
/// list takes two bytes there.
pub const METADATA_COST: u64 = 128;
/// Memory that the first of several names takes beside its own name, until the end.
pub const FIRST_NAME_COST: u64 = 160;
/// See [`METADATA_COST`].
pub const METADATA_SPREAD: u64 = 2;
/// Most memory for files and links that are announced and neither confirmed, refused nor failed. A
/// source announces no more until some are settled, which bounds the memory of both sides.
pub const UNSETTLED_COST: u64 = 16 << 20;
/// Most entries from the oldest file or link that is not settled to the last that is announced. A sink
/// allows twice as many: it has directories that are still to be made.
pub const WINDOW_MAX: u32 = 1 << 17;
/// Entries that a sink has still to prepare, from which on it takes in no more messages.
pub const BACKLOG_MAX: usize = 1 << 14;
/// Entries waiting at a source to be announced, from which on the scan should pause.
pub const UNANNOUNCED_MAX: u32 = 1 << 14;
/// The same in memory.
pub const UNANNOUNCED_COST: u64 = 8 << 20;
/// Memory that a sink takes for the path of any entry, of which it keeps a hash until the end.
pub const PATH_COST: u64 = 50;
/// Memory that a directory takes beside its own name, until the end.
pub const DIRECTORY_COST: u64 = 192;
/// Memory that it takes besides until it is in its place.
pub const ASIDE_COST: u64 = 256;
/// Memory for directories with which either end begins, and asks for more when half of it is taken.
pub const NAME_MEMORY: u64 = 8 << 20;
/// Of it, what one more message may take: without so much none is taken in while more may come.
pub const NAME_MARGIN: u64 = 1 << 20;
/// Bytes of entries after which a MANIFEST message is closed.
pub const MANIFEST_BYTES: usize = 32 << 10;
/// Most chaining values in one HASHES message that this implementation sends.
pub const HASHES_MAX: usize = 1024;
/// Most pairs in one CONFIRM or HAVE message that this implementation sends.
pub const PAIRS_MAX: usize = 1024;
/// Most groups in one OFFER message with tags that this implementation sends.
pub const OFFERED_MAX: usize = 512;
/// Groups that were read to be compared, and wait to be sent their hashes, from which on a source reads
/// no more of them.
pub const COMPARED_MAX: usize = 4096;
/// Groups of files that a sink has with the same size whose hashes it has asked for and not compared
/// (docs/protocol.md section 7.4).
pub const COMPARING_MAX: u64 = 4096;
/// Of them, as many as are free before it asks for more.
pub const COMPARING_BATCH: u64 = 256;
/// Small files that a source reads at once for such hashes.
pub const COMPARING_FILES: usize = 64;
/// Most ranges of groups that HAVE or OFFER may name for one object; a sink names no more.
pub const HAVE_RANGES_MAX: usize = 1 << 16;
/// Repairs of one group after which the entries in it fail (docs/protocol.md section 7.3).
pub const REPAIRS_MAX: u8 = 3;
/// Large files that a sink has prepared and not yet completed.
pub const PREPARED_MAX: u32 = 512;
/// Entries in one [`crate::action::Action`] that names several.
pub const ACTION_ENTRIES_MAX: usize = 256;
/// Bytes of paths in a DELETED.
pub const DELETED_BYTES: usize = 16 << 10;
/// Directories of one action that deletes what is in them, since their answer names that.
pub const DELETING_MAX: usize = 16;
/// Groups in one [`Action::RecheckGroups`](crate::action::Action::RecheckGroups): few, so that groups that arrive
/// meanwhile do not wait for long.
pub const RECHECK_GROUPS: usize = 16;
/// Bytes of files that are written straight into one new directory before it appears: more would keep
/// what is whole from being seen for long.
pub const ASIDE_BYTES_MAX: u64 = 1 << 30;
/// Memory for the files and links that wait for such a directory: with those of a bundle and of another
/// directory it has to be less than [`UNSETTLED_COST`], or nothing could be announced that ends the wait.
pub const ASIDE_NAMES_MAX: u64 = 4 << 20;
/// Received and written bytes that may wait for their hashes before credit stops.
pub const UNVERIFIED_MAX: u64 = 1 << 30;
/// Hashes that may wait for their groups, beside two for each MiB of the sink's capacity.
pub const WAITING_HASHES_MAX: u64 = 4096;
/// Time from the first write to the checkpoint that makes it durable.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
/// The same where files wait for their names, and checkpoints are quick.
pub const CHECKPOINT_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Such a checkpoint waits this many times as long as the last one took.
pub const CHECKPOINT_SHARE: u32 = 10;
/// Bytes written that bring a checkpoint before its time.
pub const CHECKPOINT_BYTES: u64 = 256 << 20;
/// Answers that wait for the source to read them, from which on a sink takes in no more messages,
/// prepares nothing more and promises nothing more. Those that are announced can still fail.
pub const ANSWERS_MAX: usize = 4096;
/// Entries that failed, and that were skipped, of which path and reason are kept for the report; all are counted.
pub const FAILURES_MAX: usize = 1000;
