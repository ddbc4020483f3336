//! What a program asks for and what it is told.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_carriers::losses::LossLog;
use longhaul_control::Via;
use longhaul_history::History;
use longhaul_objects::limits::FAILURES_MAX;
use longhaul_objects::{Failure, Fsync};
use longhaul_session::Token;
use longhaul_units::{Bytes, MemoryUse, Rate};
use longhaul_wire::{Bottleneck, HostAccount, Losses, Protect};

use crate::circuit::{CircuitOptions, CircuitReport};
use crate::links::{LinkChoice, LinkUse};
use crate::recollection::HistoryReport;

/// Port of a server unless told, for TCP and UDP.
pub const DEFAULT_PORT: u16 = 7420;

/// A file or tree, here or at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this host.
    Local(PathBuf),
    /// At a `longhaul serve`: `lh://HOST[:PORT]/PATH`.
    Remote {
        /// Name or address.
        host: String,
        /// TCP and UDP port.
        port: u16,
        /// Path below the server's root, as bytes, without a leading slash.
        path: Vec<u8>,
    },
}

/// What carries streams and objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CarrierChoice {
    /// UDP lanes; TCP connections where UDP does not pass.
    #[default]
    Auto,
    /// UDP lanes or nothing.
    Udp,
    /// TCP connections.
    Tcp,
}

/// A copy between this host and a server. Exactly one side is remote.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// What to copy; all local or all at one server.
    pub sources: Vec<Location>,
    /// Where to.
    pub destination: Location,
    /// The destination was written with a trailing slash: it is a directory, made if missing.
    pub destination_is_directory: bool,
    /// A source was written as `SRC/.`: its contents are copied.
    pub copy_contents: bool,
    /// Contents of a server's directory go into a directory here that holds something already too. The
    /// server chooses every name in it then, and may replace what is there.
    pub merge: bool,
    /// Contents are hashed at both ends and compared. Without, what is corrupted outside of the network
    /// is not found; not with [`Protect::Clear`], which leaves the network's unfound as well.
    pub verify: bool,
    /// Proves this client to the server, and the server to it.
    pub token: Token,
    /// Name of a [`longhaul_rate_control::Profile`].
    pub profile: String,
    /// Most that may be sent, at the IP layer; the rate of profiles that need one.
    pub rate: Option<Rate>,
    /// What is chosen of the profile's parameters, each `name=value`.
    pub parameters: Vec<String>,
    /// Protection of payload.
    pub protect: Protect,
    /// What carries the data.
    pub carrier: CarrierChoice,
    /// UDP lanes or TCP connections.
    pub lanes: u16,
    /// Gateways on the path to the server: TCP connections go through them, the first of which this
    /// host dials. Not with UDP lanes, links or a circuit.
    pub via: Option<Via>,
    /// When data is made durable.
    pub fsync: Fsync,
    /// Most memory for what is under way; else by the path. At least [`crate::MEMORY_LEAST`].
    pub memory: Option<Bytes>,
    /// Whole blocks of large files on this host go past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Time without a sign of the peer after which it is given up.
    pub idle_timeout: Duration,
    /// Time after which a copy is given up that stands still though both ends are there: nothing moves,
    /// and neither end says that it waits for a disk or a booking. Zero is for ever.
    pub stall_timeout: Duration,
    /// The links that data goes over, all at once; unless told the way that leads to the server. Only by
    /// UDP, and not with a circuit.
    pub links: Vec<LinkChoice>,
    /// Data goes over a circuit that is booked for it; messages, and what the circuit does not carry,
    /// go over IP under the profile. Only to a server, and by UDP.
    pub circuit: Option<CircuitOptions>,
    /// What is remembered of paths that this host sends over; nothing is, and nothing is added, without.
    pub history: Option<Arc<History>>,
    /// What only this user knows: by it a copy to a server believes what that has of an earlier one.
    /// Without, that is read here and compared.
    pub secret: Option<[u8; 32]>,
    /// Threads that must not be late run before all others where that is permitted (`SCHED_FIFO`).
    pub host_priority: bool,
    /// Where this host, sending over UDP, tells each packet that it takes as lost, and why.
    pub losses: Option<Arc<LossLog>>,
}

/// A server of files below one directory.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// TCP address to listen at; lanes use the same UDP port.
    pub listen: SocketAddr,
    /// Nothing outside can be reached.
    pub root: PathBuf,
    /// Any of them is let in.
    pub tokens: Vec<Token>,
    /// Serve one transfer and end: who only connects, or is refused, is none.
    pub once: bool,
    /// Clients may copy from here.
    pub allow_read: bool,
    /// Clients may copy to here.
    pub allow_write: bool,
    /// Most memory of all transfers together for what is under way and for sockets of lanes; else
    /// half of the host's. At least [`crate::MEMORY_LEAST`], which one transfer needs.
    pub memory: Option<Bytes>,
    /// Whole blocks of large files go past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Bytes of the UDP sockets' buffers, each way; what suits fast paths unless told.
    pub socket_buffer: Option<Bytes>,
    /// Clients at a time. Where one more comes, tokens and addresses that hold more than its own make
    /// room.
    pub connections_max: usize,
    /// Time without a sign of the peer after which it is given up.
    pub idle_timeout: Duration,
    /// Time after which a copy is given up that stands still though both ends are there: nothing moves,
    /// and neither end says that it waits for a disk or a booking. Zero is for ever.
    pub stall_timeout: Duration,
    /// Time for which a client may say that it waits for its disk, its booking or the other end of its
    /// pipe, while others find no place. Zero is for ever.
    pub excuse_timeout: Duration,
    /// Names of the profiles that clients may choose; without, any.
    pub profiles: Option<Vec<String>>,
    /// What is remembered of paths that this host sends over; nothing is, and nothing is added, without.
    pub history: Option<Arc<History>>,
    /// Threads that must not be late run before all others where that is permitted (`SCHED_FIFO`).
    pub host_priority: bool,
    /// Addresses of proxies, which have to say for whom they connect (PROXY protocol, version 2). It
    /// counts for limits and the log, and gives no rights. Others may not say it.
    pub trust_proxy: Vec<IpAddr>,
}

/// Where a copy is, for a progress display. Rates are over the last second or so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Bytes of files that are under their names at the destination.
    pub bytes_named: u64,
    /// Bytes of files that are at the sink (received and verified by it as far as known here).
    pub bytes_done: u64,
    /// Bytes in all, once the scan is over.
    pub bytes_total: Option<u64>,
    /// Entries confirmed.
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
#[derive(Clone, Debug, PartialEq)]
pub struct CopyReport {
    /// Bytes of files now at the destination.
    pub bytes: u64,
    /// Files now at the destination (directories and links included).
    pub files: u64,
    /// Start of the call to durable end.
    pub elapsed: Duration,
    /// Until the first object byte could be sent.
    pub setup: Duration,
    /// Bytes that were durable from an earlier run.
    pub resumed_bytes: u64,
    /// Nothing was kept: the destination is the null device of this host.
    pub discarded: bool,
    /// All file contents were compared with the source's hashes.
    pub verified: bool,
    /// What the user should know though nothing failed: times that could not be set, ...
    pub remarks: Vec<String>,
    /// Entries that could not be copied.
    pub failures: Failures,
    /// How the data travelled.
    pub link: LinkReport,
}

/// How data travelled between this host and a server.
#[derive(Clone, Debug, PartialEq)]
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
    /// CPU time of the server's process meanwhile, if told.
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
    /// Things the user should know (small socket buffer, missing offloads, carrier fallback).
    pub notices: Vec<String>,
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
pub struct Served {
    /// Bytes moved.
    pub bytes: u64,
    /// Entries that could not be copied.
    pub failures: Failures,
}

/// Entries that could not be copied: all are counted, the first are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// How many there are.
    pub count: u64,
    /// Path and reason of the first, at most [`FAILURES_MAX`].
    pub sample: Vec<(String, String)>,
}

impl Failures {
    /// Whether everything was copied.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One more.
    pub(crate) fn push(&mut self, path: String, reason: String) {
        self.count += 1;
        if self.sample.len() < FAILURES_MAX {
            self.sample.push((named(&path), reason));
        }
    }

    /// And `count` others, of which the first are `sample`.
    pub(crate) fn plus(mut self, count: u64, sample: &[Failure]) -> Self {
        self.count += count;
        let left = FAILURES_MAX.saturating_sub(self.sample.len());
        let more = sample.iter().take(left);
        self.sample.extend(more.map(|failure| (named(&failure.path), failure.reason.clone())));
        self
    }
}

/// A path for people: what `SRC/.` stands for has no name.
fn named(path: &impl ToString) -> String {
    let path = path.to_string();
    if path.is_empty() { ".".into() } else { path }
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
        /// What was done, or what went wrong, for people.
        outcome: Result<Served, String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_failures_are_counted_and_the_first_are_named() {
        let mut failures = Failures::default();
        assert!(failures.is_empty());
        for number in 0..FAILURES_MAX + 5 {
            failures.push(number.to_string(), "no space left".into());
        }
        let failures = failures.plus(14_886, &[]);
        assert_eq!(failures.count, FAILURES_MAX as u64 + 5 + 14_886);
        assert_eq!(failures.sample.len(), FAILURES_MAX);
        assert_eq!(failures.sample[0].0, "0");
    }
}
