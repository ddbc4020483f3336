mod circuits;
mod drawn;
mod firewalls;
mod kernel_refusals;
mod line;
mod meddling;
mod memory;
mod paths;
mod profiles;
mod sizes;
mod taking;

use longhaul_objects::Keeps;
use longhaul_pathsim::{DuplexConfig, PathConfig};

pub use circuits::Circuit;
pub use firewalls::TcpOpens;
pub use kernel_refusals::{KernelRefusal, RefusedBecause};
pub use meddling::{Meddles, Meddling};
pub use paths::{Directions, Silence};
pub use taking::Taking;

use longhaul_rate_control::{ChosenProfile, PathMemory, Profile};
use longhaul_units::{Bytes, Duration, Rate};
use longhaul_wire::Protect;

/// Everything about a world but its accidents, which come from [`Scenario::seed`] too.
///
/// [`Scenario::new`] is an uneventful transfer to change for a test; [`Scenario::drawn`] draws all
/// from the seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed of everything random.
    pub seed: u64,
    /// True if the client is the source.
    pub push: bool,
    /// True if it is a pipe of [`Scenario::bytes`], and not a copy of the tree.
    pub pipe: bool,
    /// True if it is a listing, of a server that has [`Scenario::bytes`] of names.
    pub listing: bool,
    /// True if that is a comparison instead: of as many files, which the server hashes.
    pub hashes: bool,
    /// Files that the sink has and leaves alone.
    pub keeps: Keeps,
    /// True if the sink deletes what was not announced.
    pub deletes: bool,
    /// True if symbolic links are copied as what they lead to.
    pub follows: bool,
    /// True until a dry run has announced what the copy behind it will do.
    pub dry_run: bool,
    /// True if the client, which is the sink, lists the names that it wants.
    pub lists_names: bool,
    /// True if the client, which is the sink, changes the rate of the source.
    pub steers: bool,
    /// True if an earlier copy of the tree is there; some files were changed since.
    pub copied_before: bool,
    /// Its carrier.
    pub carrier: Choice,
    /// True where connections go through ssh in place of TCP.
    pub tunnel: bool,
    /// Opening of TCP connections beside lanes that do not answer.
    pub tcp: TcpOpens,
    /// Lanes that the client asks for.
    pub lanes: u16,
    /// Lanes that the server grants at most.
    pub max_lanes: u16,
    /// A profile of `longhaul-rate-control`.
    pub profile: &'static str,
    /// Parameters of the profile that somebody chose, each written `name=value`.
    pub parameters: Vec<String>,
    /// The user's rate, for profiles that need one.
    pub rate: Option<Rate>,
    /// The user's limit, for profiles that find the rate.
    pub limit: Option<Rate>,
    /// Protection of payload.
    pub protect: Protect,
    /// True if the sink syncs.
    pub fsync: bool,
    /// The sink's memory for groups, as it promises it.
    pub capacity: Bytes,
    /// Bytes that it takes beyond that.
    pub spare: Bytes,
    /// Most names in the tree; 1 is a single file.
    pub entries: u64,
    /// Least bytes of a name.
    pub name_len: usize,
    /// Most bytes in the tree; those of a pipe.
    pub bytes: u64,
    /// Sizes of the files, in order and without directories, where the tree is not drawn.
    pub sizes: Vec<u64>,
    /// Path of each lane, client to server and back.
    pub paths: Vec<DuplexConfig>,
    /// The path that each lane begins on: those with the same number are one, with one controller.
    pub homes: Vec<u16>,
    /// Memory of each of them at the side that sends.
    pub memory: Option<PathMemory>,
    /// A circuit beside these paths.
    pub circuit: Option<Circuit>,
    /// Limits that the sink's host reports, in order.
    pub takings: Vec<Taking>,
    /// When a path swallows what is sent over it.
    pub silences: Vec<Silence>,
    /// When a host's own stack refuses packets.
    pub refusals: Vec<KernelRefusal>,
    /// Treatment of ECN-capable packets.
    pub meddling: Meddling,
    /// Addresses are those of IPv6.
    pub ipv6: bool,
    /// One-way delay of the control connection.
    pub pipe_delay: Duration,
    /// UDP payload that both hosts believe their interface sends.
    pub datagram_max: u16,
    /// UDP payload that the client's interface really sends.
    pub interface_max: u16,
    /// The client's stack refuses larger packets, as if its buffers were full.
    pub queued_max: u16,
    /// A path or an interface takes no packets as large as UDP needs them, at first or later.
    pub is_narrow: bool,
    /// Most packets in one call to the kernel.
    pub batch: u16,
    /// Socket buffer of a lane.
    pub socket_buffer: Bytes,
    /// Bytes of messages that an end keeps until they are acknowledged.
    pub stream_buffer: usize,
    /// Longest time that a write, read or sync takes.
    pub disk_latency: Duration,
    /// Time that hashing a group at the source takes beyond that, while its packets are on their
    /// way.
    pub hash_delay: Duration,
    /// Client's and server's clocks are ahead of the world's by so much.
    pub clocks: [Duration; 2],
    /// True if the server lets the client do what it asks.
    pub granted: bool,
    /// True if the client holds the server's token.
    pub authorized: bool,
    /// One in so many packets gives the adversary an idea; 0 for no adversary.
    pub adversary: u64,
    /// True if both ends must come to rest before the client closes.
    pub rest: bool,
    /// True if somebody changes a byte of an unpublished file between two runs of the sink.
    pub tampers: bool,
    /// True where somebody else has pushed before under the same identities, with other contents, and left.
    pub prepared: bool,
    /// True where the source may have lost its secret, or have another, in each run.
    pub forgets: bool,
    /// Accidents, each with its time.
    pub faults: Vec<Fault>,
}

/// Carrier that the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// UDP lanes.
    Udp,
    /// TCP connections.
    Tcp,
    /// UDP, and TCP in its place where it does not answer.
    Auto,
}

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub struct Fault {
    /// From the start of the world.
    pub at: Duration,
    /// The accident.
    pub what: Accident,
}

/// An accident. Each is over at once or after the time given; what can be repeated is.
#[derive(Clone, Debug)]
pub enum Accident {
    /// The process at that end is killed; its kernel closes the control connection.
    Kill(End),
    /// The host at that end loses power, and what is not synced.
    PowerCut(End),
    /// The process does not run for that time.
    Stall(End, Duration),
    /// The control connection breaks.
    Disconnect,
    /// A file at the source is removed.
    Vanish,
    /// A file at the source is written again.
    Change,
    /// The sink's disk has so much room left.
    DiskFull(Bytes),
    /// The sink's disk has room again.
    DiskFreed,
    /// The next sync at the sink fails.
    SyncFails,
    /// The sink's host asks for silence.
    Suspend(Duration),
    /// The user stops the client.
    Cancel,
    /// From now on the lane takes another route.
    Reroute(u16, Box<DuplexConfig>),
}

/// One of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It dials.
    Client,
    /// It answers.
    Server,
}

impl Scenario {
    /// A push of some files over one clean lane of 100 Mb/s and 20 ms, without faults.
    pub fn new(seed: u64) -> Self {
        let path = PathConfig::default()
            .delay(Duration::from_millis(10))
            .rate(Rate::from_mbps(100), Bytes::new(250_000));
        Self {
            seed,
            push: true,
            pipe: false,
            listing: false,
            hashes: false,
            keeps: Keeps::default(),
            deletes: false,
            follows: false,
            dry_run: false,
            lists_names: false,
            steers: false,
            copied_before: false,
            carrier: Choice::Udp,
            tunnel: false,
            tcp: TcpOpens::After(Duration::from_millis(60)),
            lanes: 1,
            max_lanes: 4,
            profile: "auto",
            parameters: Vec::new(),
            rate: None,
            limit: None,
            protect: Protect::Aead,
            fsync: true,
            capacity: Bytes::from_mib(4),
            spare: Bytes::from_mib(8),
            entries: 12,
            name_len: 1,
            bytes: 2_000_000,
            sizes: Vec::new(),
            paths: vec![DuplexConfig::symmetric(path)],
            homes: vec![0],
            memory: None,
            circuit: None,
            takings: Vec::new(),
            silences: Vec::new(),
            refusals: Vec::new(),
            meddling: Meddling::NONE,
            ipv6: false,
            pipe_delay: Duration::from_millis(10),
            datagram_max: 1472,
            interface_max: 1472,
            queued_max: u16::MAX,
            is_narrow: false,
            batch: 44,
            socket_buffer: Bytes::from_mib(4),
            stream_buffer: 1 << 20,
            disk_latency: Duration::from_micros(500),
            hash_delay: Duration::ZERO,
            clocks: [Duration::from_secs(1000), Duration::from_secs(4294)],
            granted: true,
            authorized: true,
            adversary: 0,
            rest: true,
            tampers: false,
            prepared: false,
            forgets: false,
            faults: Vec::new(),
        }
    }

    /// The world of `seed`.
    pub fn drawn(seed: u64) -> Self {
        drawn::scenario(seed)
    }

    /// Sets the path of every lane.
    #[must_use]
    pub fn over(mut self, path: &DuplexConfig) -> Self {
        self.paths = vec![path.clone(); usize::from(self.lanes)];
        self.homes = vec![0; usize::from(self.lanes)];
        self
    }

    /// Sets the number of lanes, each over a path as the first one's.
    #[must_use]
    pub fn with_lanes(mut self, lanes: u16) -> Self {
        self.lanes = lanes;
        self.paths = vec![self.paths[0].clone(); usize::from(lanes)];
        self.homes = vec![0; usize::from(lanes)];
        self
    }

    /// Adds an accident.
    #[must_use]
    pub fn fault(mut self, at: Duration, what: Accident) -> Self {
        self.faults.push(Fault { at, what });
        self
    }

    /// Every path that lanes take, those behind a change of route too.
    pub(crate) fn all_paths(&self) -> impl Iterator<Item = &DuplexConfig> {
        let rerouted = self.faults.iter().filter_map(|fault| match &fault.what {
            Accident::Reroute(_, path) => Some(&**path),
            _ => None,
        });
        let circuit = self.circuit.iter().map(|circuit| &circuit.line);
        self.paths.iter().chain(rerouted).chain(circuit)
    }

    /// The profile as the user chose it: a limit is the rate of those that take it for the link's.
    pub(crate) fn chosen(&self) -> ChosenProfile {
        let parameters = self.parameters.iter().map(String::as_str);
        Profile::wished(Some(self.profile), self.rate.or(self.limit), parameters)
            .expect("scenarios have profiles that can be played")
    }

    /// Things that a server lists.
    pub fn things(&self) -> u64 {
        self.bytes / 64
    }

    /// The end that has the files.
    pub fn source(&self) -> End {
        if self.push { End::Client } else { End::Server }
    }

    /// The end that gets them.
    pub fn sink(&self) -> End {
        self.source().peer()
    }
}

impl End {
    /// The other one.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
