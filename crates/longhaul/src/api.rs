//! Progress, reports and events.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_files::stood_for;
use longhaul_objects::EndedEntry as Ended;
use longhaul_objects::limits::FAILURES_MAX;
use longhaul_objects::{Deletion, Deletions};
use longhaul_session::KeyId;
use longhaul_units::{EntryCode, MemoryUse, Rate, shown_path};
use longhaul_wire::{Bottleneck, CloseCode, EntryEnd, HostAccount, Losses, Protect};

use crate::connection::circuit::report::CircuitReport;
use crate::connection::links::LinkUse;
use crate::connection::path_history::HistoryReport;

/// Where a copy is, for a progress display. Rates are over the last second or so.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Bytes of files that are under their names at the destination.
    pub bytes_named: u64,
    /// Bytes of files that are at the sink (received and verified by it as far as known here).
    pub bytes_done: u64,
    /// In a dry run: of these the ones that a copy would bring.
    pub would_change: u64,
    /// Bytes in all, once the scan is over.
    pub bytes_total: Option<u64>,
    /// Entries that this command has brought.
    pub files_named: u64,
    /// The same, and those that stay as they were.
    pub files_done: u64,
    /// Entries in all, once the scan is over.
    pub files_total: Option<u64>,
    /// Of `bytes_done`, those that were there from an earlier run.
    pub resumed_bytes: u64,
    /// Goodput.
    pub rate: Rate,
    /// Smoothed RTT; zero if unknown. This and what follows is as the side with the data says; in a
    /// pull it is up to half a second old.
    pub rtt: Duration,
    /// Packets sent so far.
    pub packets_sent: u64,
    /// Packets lost.
    pub packets_lost: u64,
    /// What limits the rate now.
    pub bound: Bottleneck,
    /// Since the start.
    pub elapsed: Duration,
}

/// How a copy went.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CopyReport {
    /// Bytes of files now at the destination.
    pub bytes: u64,
    /// Files now at the destination (directories and links included).
    pub files: u64,
    /// Start of the call to durable end.
    pub elapsed: Duration,
    /// Until the first object byte could be sent.
    pub setup: Duration,
    /// Bytes of files that are at the destination, those of unchanged and incomplete ones too.
    pub bytes_done: u64,
    /// Bytes that were durable from an earlier run.
    pub resumed_bytes: u64,
    /// Nothing was kept: the destination is the null device of this host.
    pub discarded: bool,
    /// All file contents were compared with the source's hashes.
    pub verified: bool,
    /// What the user should know though nothing failed: times that could not be set, ...
    pub remarks: Vec<String>,
    /// Entries that could not be copied.
    pub failures: EndedEntries,
    /// Entries that are not to be copied: FIFOs, sockets and devices.
    pub skipped: EndedEntries,
    /// Files that were at the destination already, with their size and modification time, and their bytes:
    /// neither read nor sent.
    pub unchanged: (u64, u64),
    /// Those of them that are not newer were compared by their contents: read at both ends.
    pub compared: bool,
    /// Files among them that are newer at the destination.
    pub newer: u64,
    /// Entries among the unchanged ones whose mode, owner or other attributes were mended, or in a dry run would be.
    pub mended: u64,
    /// In a dry run: entries that a copy would make or replace, and their bytes.
    pub would_change: (u64, u64),
    /// Names at the destination that the source has not, and that were deleted, or would be.
    pub deleted: DeletedNames,
    /// How the data travelled.
    pub link: LinkReport,
}

/// How data travelled between this host and a server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinkReport {
    /// "udp" or "tcp".
    pub carrier: &'static str,
    /// The profile.
    pub profile: String,
    /// Protection of payload.
    pub protect: Protect,
    /// Smallest RTT.
    pub rtt: Duration,
    /// Packets sent by the side that sends the data, of every kind.
    pub packets_sent: u64,
    /// Of those, carrying bytes sent before.
    pub packets_resent: u64,
    /// Of those, lost, by cause.
    pub lost: Losses,
    /// What bounded the rate for the longest time.
    pub bottleneck: Bottleneck,
    /// CPU time of this process.
    pub cpu_local: Duration,
    /// CPU time of the server's process meanwhile, if reported.
    pub cpu_remote: Option<Duration>,
    /// How both hosts fared.
    pub hosts: Hosts,
    /// What became of the circuit, if there was one.
    pub circuit: Option<CircuitReport>,
    /// What the side that sends made of what it remembered of the path, and the rate that this was;
    /// zero if none.
    pub memory: (MemoryUse, Rate),
    /// What each of several links carried, where the user named them.
    pub links: Vec<LinkUse>,
    /// More of it, and what was learnt, where this host sent over UDP and keeps a history.
    pub history: Option<HistoryReport>,
    /// Connections that were lost, behind which others went on.
    pub reconnects: u32,
    /// The gateways of the route that was taken, in order; the last one where others were lost.
    pub via: Vec<String>,
    /// Things the user should know (small socket buffer, missing offloads, carrier fallback).
    pub notices: Vec<String>,
}

/// Of UDP under `auto`, encrypted, before anything has moved.
impl Default for LinkReport {
    fn default() -> Self {
        Self {
            carrier: "udp",
            profile: "auto".into(),
            protect: Protect::Aead,
            rtt: Duration::ZERO,
            packets_sent: 0,
            packets_resent: 0,
            lost: Losses::default(),
            bottleneck: Bottleneck::Unknown,
            cpu_local: Duration::ZERO,
            cpu_remote: None,
            hosts: Hosts::default(),
            circuit: None,
            memory: (MemoryUse::None, Rate::ZERO),
            links: Vec::new(),
            history: None,
            reconnects: 0,
            via: Vec::new(),
            notices: Vec::new(),
        }
    }
}

/// How both hosts of a transfer fared, as far as they say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// The one with the data.
    pub sender: Option<HostAccount>,
    /// The other one.
    pub receiver: Option<HostAccount>,
}

/// A transfer that came to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Bytes moved.
    pub bytes: u64,
    /// Entries that could not be copied.
    pub failures: EndedEntries,
    /// Entries that are not to be copied.
    pub skipped: EndedEntries,
}

/// Why a transfer at a server did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
#[non_exhaustive]
pub struct ServeFailure {
    /// Why, for programs, as the client gets it too.
    pub code: CloseCode,
    /// Why, for people.
    pub reason: String,
}

/// An entry that was not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedEntry {
    /// Its path; of a source whose contents are copied `.`.
    pub path: String,
    /// Why, for programs.
    pub code: EntryCode,
    /// Why, for people.
    pub reason: String,
}

impl EndedEntry {
    /// The entry `path`, with what became of it.
    pub fn new(path: impl Into<String>, code: EntryCode, reason: impl Into<String>) -> Self {
        let path = Some(path.into()).filter(|path| !path.is_empty());
        Self { path: path.unwrap_or_else(|| ".".into()), code, reason: reason.into() }
    }
}

impl fmt::Display for EndedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

/// Entries that were not copied: all are counted, the first are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedEntries {
    /// Number of them.
    pub count: u64,
    /// The first, at most [`FAILURES_MAX`].
    pub sample: Vec<EndedEntry>,
}

impl EndedEntries {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// True if each may pass when the same is tried again, although nobody mends anything.
    pub fn may_all_pass(&self) -> bool {
        self.count == self.sample.len() as u64
            && self.sample.iter().all(|entry| entry.code.may_pass())
    }

    /// One more.
    pub(crate) fn push(&mut self, path: &str, end: &EntryEnd) {
        self.count += 1;
        if self.sample.len() < FAILURES_MAX {
            self.sample.push(EndedEntry::new(path, end.code, &*end.reason));
        }
    }

    /// And `count` others, of which the first are `sample`.
    pub(crate) fn plus(mut self, count: u64, sample: &[Ended]) -> Self {
        self.count += count;
        let left = FAILURES_MAX.saturating_sub(self.sample.len());
        let more = sample.iter().take(left);
        let entry = |Ended { path, end, .. }: &Ended| {
            let path = stood_for(path.as_bytes()).map_or(path.to_string(), shown_path);
            EndedEntry::new(path, end.code, &*end.reason)
        };
        self.sample.extend(more.map(entry));
        self
    }
}

/// The request of a client that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Action {
    /// A copy to the server.
    Push,
    /// A copy from it.
    Pull,
    /// Into a pipe.
    Send,
    /// Out of one.
    Receive,
    /// A look at what is there.
    List,
    /// Hashes of what is there.
    Verify,
    /// A look at interrupted copies.
    Leftovers,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Push,
        Self::Pull,
        Self::Send,
        Self::Receive,
        Self::List,
        Self::Verify,
        Self::Leftovers,
    ];

    /// Its name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::List => "list",
            Self::Verify => "verify",
            Self::Leftovers => "leftovers",
        }
    }
}

/// A transfer of a server, when it has ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TransferAccount {
    /// Id of the token that its client has proven.
    pub key_id: KeyId,
    /// Its kind.
    pub action: Action,
    /// The first path that the client named, or the name of its pipe: its own words, as bytes.
    pub path: Vec<u8>,
    /// Bytes of contents that were moved.
    pub bytes: u64,
    /// Time since it began.
    pub time: Duration,
    /// Limit for the longest time, as far as the end that sent knows.
    pub bottleneck: Bottleneck,
    /// Packets that were lost, likewise.
    pub lost: Losses,
}

impl TransferAccount {
    /// One that has moved nothing yet.
    pub fn new(key_id: KeyId, action: Action, path: Vec<u8>) -> Self {
        let (bottleneck, lost) = (Bottleneck::StartUp, Losses::default());
        Self { key_id, action, path, bytes: 0, time: Duration::ZERO, bottleneck, lost }
    }
}

/// Something that a server tells its operator.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ServeEvent {
    /// It listens at this address.
    Listening(SocketAddr),
    /// A client authenticated: its address, what it wants.
    Began {
        /// Its address.
        client: SocketAddr,
        /// For people: "push to data/run7", ...
        what: String,
    },
    /// A transfer ended.
    Ended {
        /// Its address.
        client: SocketAddr,
        /// Its account, unless it ended before it had begun.
        account: Option<TransferAccount>,
        /// Its result.
        outcome: Result<Served, ServeFailure>,
    },
    /// A client was turned away: wrong token, garbage, not permitted.
    Refused {
        /// Its address.
        client: SocketAddr,
        /// Why.
        reason: String,
    },
    /// For `-v`: a socket buffer smaller than asked, an offload that is missing, ...
    Notice(String),
}

/// Names that a copy has deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletedNames {
    /// Their number.
    pub count: u64,
    /// The first of them.
    pub sample: Vec<String>,
    /// Number of those that could not be deleted, which are among the failures of the copy.
    pub kept: u64,
}

impl DeletedNames {
    /// Those that are gone; those that stay join the `failures` of the copy, or what it `skipped`.
    pub(crate) fn of(
        deletions: &Deletions,
        failures: &mut EndedEntries,
        skipped: &mut EndedEntries,
    ) -> Self {
        let Deletions { deleted, kept, spared, sample: all } = deletions;
        let mut sample = Vec::new();
        let (failed_before, skipped_before) = (failures.count, skipped.count);
        for Deletion { path, result } in all {
            let path = shown_path(path);
            match result {
                Ok(()) => sample.push(path),
                Err(end) if end.code == EntryCode::Skipped => skipped.push(&path, end),
                Err(end) => failures.push(&path, end),
            }
        }
        // More than those that have a name here.
        (failures.count, skipped.count) = (failed_before + kept, skipped_before + spared);
        Self { count: *deleted, sample, kept: *kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_failures_are_counted_and_the_first_are_named() {
        let mut failures = EndedEntries::default();
        assert!(failures.is_empty());
        let end = EntryEnd::new(EntryCode::Damaged, "did not verify");
        for number in 0..FAILURES_MAX {
            failures.push(&number.to_string(), &end);
        }
        assert!(failures.may_all_pass());
        failures.push("one more", &end);
        let failures = failures.plus(14_886, &[]);
        assert_eq!(failures.count, FAILURES_MAX as u64 + 1 + 14_886);
        assert_eq!(failures.sample.len(), FAILURES_MAX);
        assert_eq!((&*failures.sample[0].path, failures.sample[0].code), ("0", EntryCode::Damaged));
        assert!(!failures.may_all_pass(), "of most of them nothing is known");
    }
}
