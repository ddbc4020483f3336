//! Options of the public calls. An option that several calls share stands in [`ConnectOptions`] alone.

use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_carriers::losses::LossLog;
use longhaul_control::tunnel::Tunnel;
use longhaul_control::{Remote, Via};
use longhaul_history::History;
use longhaul_objects::NameList;
use longhaul_session::Token;
use longhaul_units::{Bytes, Rate};
use longhaul_wire::{Deletes, FilterRule, KeptAttributes, Protect, SshTaken};

use crate::connection::circuit::CircuitOptions;
use crate::connection::links::LinkChoice;
use crate::connection::steering::RateSchedule;
use crate::endpoint::ssh::arrivals::SshArrivals;
use crate::endpoint::ssh::grant::Grant;
use crate::endpoint::ssh::started::SshServer;

/// Default port of a server, for TCP and UDP.
pub const DEFAULT_PORT: u16 = 7420;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address.
    pub host: String,
    /// TCP and UDP port.
    pub port: u16,
}

impl Endpoint {
    /// The server at `port` of `host`; see [`DEFAULT_PORT`].
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

/// Choice of what carries streams and objects.
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

/// A route to a server.
#[derive(Clone, Debug)]
pub enum Route {
    /// As the network leads there.
    Direct,
    /// Through gateways, the first of which this host dials: TCP connections, not UDP lanes, links or
    /// a circuit.
    Gateways(Via),
}

impl Route {
    /// The gateways, if there are some.
    pub const fn via(&self) -> Option<&Via> {
        match self {
            Self::Direct => None,
            Self::Gateways(via) => Some(via),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("directly"),
            Self::Gateways(via) => write!(f, "through {via}"),
        }
    }
}

/// A server, and how data travels between it and this host: all that copies and pipes share.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// The server.
    pub server: Endpoint,
    /// Proves this client to the server, and the server to it.
    pub token: Token,
    /// The server was started by ssh: it knows where it listens.
    pub ssh: Option<Arc<SshServer>>,
    /// Name of a [`longhaul_rate_control::Profile`].
    pub profile: String,
    /// Most that may be sent, by either end, at the IP layer; the rate of profiles that need one.
    pub rate: Option<Rate>,
    /// In the place of `rate`: one that changes while the transfer runs; not of profiles that need a rate, nor
    /// where a pipe comes here.
    pub rate_schedule: Option<RateSchedule>,
    /// Parameters of the profile that are chosen, each `name=value`.
    pub parameters: Vec<String>,
    /// Protection of payload.
    pub protect: Protect,
    /// The carrier of the data.
    pub carrier: CarrierChoice,
    /// UDP lanes or TCP connections.
    pub lanes: u16,
    /// Routes to the server, the best first: where one cannot be had or is lost, the next is taken, each
    /// once. Of a pipe only until data has moved. Without any, the direct one.
    pub routes: Vec<Route>,
    /// Most memory for what is under way; else by the path. At least [`crate::memory::budget::MEMORY_LEAST`].
    pub memory: Option<Bytes>,
    /// Time without a sign of the server after which it is given up.
    pub idle_timeout: Duration,
    /// Time without progress after which a copy or pipe is given up though both ends are there, and
    /// neither says that it waits for a disk, a booking or a user of its pipe. Zero is for ever.
    pub stall_timeout: Duration,
    /// Time for which a server is dialled again after its connection was lost; zero: it is not. What can be
    /// resumed goes on from there. Not with a circuit.
    pub retry: Duration,
    /// The links that data goes over, all at once; without, the path that leads to the server. Only by
    /// UDP, and not with a circuit.
    pub links: Vec<LinkChoice>,
    /// Data goes over a circuit that is booked for it; messages, and what the circuit does not carry,
    /// go over IP under the profile. Only for the end that sends, and by UDP.
    pub circuit: Option<CircuitOptions>,
    /// History of the paths that this host sends over; without it nothing is known, and nothing is added.
    pub history: Option<Arc<History>>,
    /// Threads that must not be late run before all others where that is permitted (`SCHED_FIFO`).
    pub host_priority: bool,
    /// Where this host, sending over UDP, notes each packet that it takes as lost, and why.
    pub losses: Option<Arc<LossLog>>,
}

impl ConnectOptions {
    /// To `server` as `longhaul cp` connects without options: profile `auto` over one lane, encrypted.
    pub fn new(server: Endpoint, token: Token) -> Self {
        Self {
            server,
            token,
            ssh: None,
            profile: "auto".into(),
            rate: None,
            rate_schedule: None,
            parameters: Vec::new(),
            protect: Protect::Aead,
            carrier: CarrierChoice::Auto,
            lanes: 1,
            routes: Vec::new(),
            memory: None,
            idle_timeout: IDLE_TIMEOUT,
            stall_timeout: STALL_TIMEOUT,
            retry: Duration::ZERO,
            links: Vec::new(),
            circuit: None,
            history: None,
            host_priority: false,
            losses: None,
        }
    }

    /// To a server that ssh has started, otherwise the same.
    pub fn over_ssh(server: &Arc<SshServer>) -> Self {
        let endpoint = Endpoint::new(server.host(), server.port());
        Self::new(endpoint, server.token()).through(server)
    }

    /// The same, to this server that ssh has started.
    pub(crate) fn through(self, server: &Arc<SshServer>) -> Self {
        let endpoint = Endpoint::new(server.host(), server.port());
        Self { server: endpoint, token: server.token(), ssh: Some(server.clone()), ..self }
    }

    /// Where the server is dialled.
    pub(crate) fn remote<'a>(&'a self, via: Option<&'a Via>) -> Remote<'a> {
        let Endpoint { host, port } = &self.server;
        let (port, tunnel) = (*port, self.tunnel());
        let only_tunnel = self.taken() == Some(SshTaken::All);
        let found = self.ssh.as_ref().and_then(|ssh| ssh.addresses().split_first());
        let (host, others) = found.unwrap_or((host, &[]));
        Remote { host, others, port, via, tunnel, only_tunnel }
    }

    /// Ports that the server which ssh has started may listen at, and that others have.
    pub(crate) fn taken(&self) -> Option<SshTaken> {
        self.ssh.as_ref()?.taken()
    }

    /// The streams of ssh that started the server, if they carry connections.
    pub(crate) fn tunnel(&self) -> Option<&Arc<Tunnel>> {
        self.ssh.as_ref()?.tunnel()
    }
}

/// Files and trees, and where they go. Paths at a server are below its root, as bytes, without a
/// leading slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyPaths {
    /// From this host to the server.
    Push {
        /// Here.
        sources: Vec<PathBuf>,
        /// There.
        destination: Vec<u8>,
    },
    /// From the server to this host.
    Pull {
        /// There.
        sources: Vec<Vec<u8>>,
        /// Here.
        destination: PathBuf,
    },
}

/// Records of a copy beside its report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyRecords {
    /// Each change at the destination is left in [`crate::Progress::take_changes`].
    pub changes: bool,
    /// A file of this host that gets a line for each file that was copied, or was there unchanged: its BLAKE3
    /// hash and its name, as `b3sum` writes it. Not without [`CopyOptions::verify`], with
    /// [`CopyOptions::update`] or [`CopyOptions::dry_run`].
    pub manifest: Option<PathBuf>,
    /// Of these attributes, which sources have and the copy is not to keep, no remark is made.
    pub unmissed: KeptAttributes,
}

/// Names of what is copied that a user lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedNames {
    /// Of the contents of the one source only these are copied, with what is in them; needs
    /// [`CopyOptions::copy_contents`], and nothing is deleted.
    pub list: Option<Arc<NameList>>,
    /// Paths that fail where they are not found, among what is copied: see
    /// [`NamesBesideRules::due`](crate::NamesBesideRules::due).
    pub due: Vec<Vec<u8>>,
}

/// A copy between this host and a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyOptions {
    /// The server, and how data travels.
    pub connect: ConnectOptions,
    /// Sources and destination.
    pub paths: CopyPaths,
    /// The destination was written with a trailing slash: it is a directory, made if missing.
    pub destination_is_directory: bool,
    /// A source was written as `SRC/.`: its contents are copied.
    pub copy_contents: bool,
    /// The destination is the new name of the one source, even where a directory has that name.
    pub destination_is_name: bool,
    /// Names that are copied and names that are not: the first rule that matches decides. Patterns are
    /// those of `rsync` (docs/protocol.md section 7.9); at most [`longhaul_wire::MAX_RULES`].
    pub rules: Vec<FilterRule>,
    /// Names that are listed.
    pub names: ListedNames,
    /// Contents of a server's directory go into a directory here that holds something already too. The
    /// server chooses every name in it then, and may replace what is there.
    pub merge: bool,
    /// Files are sent though the destination has them, with their size and modification time.
    pub ignore_times: bool,
    /// Files are compared by their contents, whatever their times are: what is equal is not sent, and of
    /// others only the MiB that differ.
    pub checksum: bool,
    /// Files stay as they are that were modified later at the destination.
    pub update: bool,
    /// Names in copied directories that only the destination has are deleted at the end, if nothing failed;
    /// those that [`rules`](Self::rules) leave out stay. The copy fails where there are more than its bound. A server has to allow it.
    pub delete: Option<Deletes>,
    /// Attributes that are kept beside times and permission bits less the umask.
    pub attributes: KeptAttributes,
    /// Nothing is changed: the report says what a copy would do. A server has to let this client read and write.
    pub dry_run: bool,
    /// The copy is given up when more entries than that have failed.
    pub max_errors: Option<u64>,
    /// Records of it.
    pub records: CopyRecords,
    /// Contents are hashed at both ends and compared. Without, what is corrupted outside of the network
    /// is not found; not with [`Protect::Clear`], which leaves the network's unfound as well.
    pub verify: bool,
    /// Data is made durable at the destination before it counts as there.
    pub sync: bool,
    /// Whole blocks of large files on this host go past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Secret of this user: by it a copy to a server believes what that has of an earlier one.
    /// Without, that is read here and compared.
    pub secret: Option<[u8; 32]>,
}

impl CopyOptions {
    /// A copy that is verified and durable.
    pub fn new(connect: ConnectOptions, paths: CopyPaths) -> Self {
        Self {
            connect,
            paths,
            destination_is_directory: false,
            copy_contents: false,
            destination_is_name: false,
            rules: Vec::new(),
            names: ListedNames::default(),
            merge: false,
            ignore_times: false,
            checksum: false,
            update: false,
            delete: None,
            attributes: KeptAttributes::default(),
            dry_run: false,
            max_errors: None,
            records: CopyRecords::default(),
            verify: true,
            sync: true,
            direct: false,
            secret: None,
        }
    }
}

/// Rights of who holds one of some tokens, and the limits of each of these tokens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Access {
    /// Holders of any of them are let in.
    pub tokens: Vec<Token>,
    /// Nothing outside can be reached.
    pub root: PathBuf,
    /// They may copy from here.
    pub allow_read: bool,
    /// They may copy to here.
    pub allow_write: bool,
    /// Where they may do both they may delete what a copied directory has and its source has not.
    pub allow_delete: bool,
    /// Files that they copy to here may get owners, set-user-ID and set-group-ID bits, and extended attributes that
    /// are not the user's, as far as this process may set them; they may copy these from here, too. Where it runs
    /// as root a token is enough then to leave a program that does.
    pub allow_owners: bool,
    /// Most clients of one token at a time.
    pub transfers: Option<usize>,
    /// Other limits. Of those of the server the stricter ones hold; the rate is of the clients of one token.
    pub limits: Limits,
}

/// Limits of what clients move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// A copy to here begins, and goes on, while so much is free on the file system of its destination.
    pub min_free: Option<Bytes>,
    /// The most that they are sent together, and that comes together from those who copy to here. Each has an equal
    /// part.
    pub rate: Option<Rate>,
}

impl Access {
    /// Holders of `tokens` read and write below `root`.
    pub const fn new(root: PathBuf, tokens: Vec<Token>) -> Self {
        Self {
            tokens,
            root,
            allow_read: true,
            allow_write: true,
            allow_delete: false,
            allow_owners: false,
            transfers: None,
            limits: Limits { min_free: None, rate: None },
        }
    }
}

/// A server of files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// TCP address to listen at; lanes use the same UDP port.
    pub listen: SocketAddr,
    /// Socket that listens already, in the place of a new one.
    pub listener: Option<Arc<TcpListener>>,
    /// Tokens that are let in, with their rights.
    pub access: Vec<Access>,
    /// First and last port to listen at, of which any that is free is taken; without, that of `listen`.
    pub ports: Option<(u16, u16)>,
    /// Serve one transfer and end. A connection that is refused or asks for nothing does not count.
    pub once: bool,
    /// All that clients may do, where it is less than their access.
    pub grant: Option<Grant>,
    /// Where its one client comes from that ssh brings.
    pub ssh: Option<Arc<SshArrivals>>,
    /// Limits of all clients.
    pub limits: Limits,
    /// Most memory of all transfers together for what is under way and for sockets of lanes; else
    /// half of the host's. At least [`crate::memory::budget::MEMORY_LEAST`], which one transfer needs.
    pub memory: Option<Bytes>,
    /// Whole blocks of large files go past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Bytes of the UDP sockets' buffers, each direction; by default what suits fast paths.
    pub socket_buffer: Option<Bytes>,
    /// Clients at a time. Where one more comes, tokens and addresses that hold more than its own make
    /// room.
    pub connections_max: usize,
    /// See [`ConnectOptions::idle_timeout`].
    pub idle_timeout: Duration,
    /// See [`ConnectOptions::stall_timeout`].
    pub stall_timeout: Duration,
    /// Time for which a client may say that it waits for its disk, its booking or the other end of its
    /// pipe, while others find no place. Zero is for ever.
    pub excuse_timeout: Duration,
    /// Leftovers of an interrupted copy in a directory that clients may write to are removed when nobody has gone
    /// on with it for so long. Zero: never.
    pub discard_after: Duration,
    /// Names of the profiles that clients may choose; without, any.
    pub profiles: Option<Vec<String>>,
    /// See [`ConnectOptions::history`].
    pub history: Option<Arc<History>>,
    /// See [`ConnectOptions::host_priority`].
    pub host_priority: bool,
    /// Addresses of proxies, which have to say for whom they connect (PROXY protocol, version 2). It
    /// counts for limits and the log, and gives no rights. Others may not say it.
    pub trust_proxy: Vec<IpAddr>,
}

impl ServeOptions {
    /// A server at `listen` that gives that `access`.
    pub fn new(listen: SocketAddr, access: Vec<Access>) -> Self {
        Self {
            listen,
            listener: None,
            access,
            ports: None,
            once: false,
            grant: None,
            ssh: None,
            limits: Limits::default(),
            memory: None,
            direct: false,
            socket_buffer: None,
            connections_max: CONNECTIONS_MAX,
            idle_timeout: IDLE_TIMEOUT,
            stall_timeout: STALL_TIMEOUT,
            excuse_timeout: EXCUSE_TIMEOUT,
            discard_after: DISCARD_AFTER,
            profiles: None,
            history: None,
            host_priority: false,
            trust_proxy: Vec::new(),
        }
    }

    /// The reason with which clients are sent away once the server stops.
    pub(crate) fn why_it_stops(&self) -> &'static str {
        match self.ssh.as_ref().is_some_and(|ssh| ssh.have_ended()) {
            true => "ssh, which had started the server, has ended",
            false => "the server is stopping",
        }
    }
}

/// The protocol's own (docs/protocol.md section 3).
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than any holiday.
pub const DISCARD_AFTER: Duration = Duration::from_secs(30 * 86_400);
/// No disk or network that works stands still for so long.
const STALL_TIMEOUT: Duration = Duration::from_secs(300);
/// Longer than most wait for a disk, and short enough for who finds no place.
const EXCUSE_TIMEOUT: Duration = Duration::from_secs(900);
/// Half of the memory of a host of 8 GiB gives each the least that it needs.
const CONNECTIONS_MAX: usize = 64;
