//! The words of the command line, as they are written; what they mean is decided by each command.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use longhaul::{CarrierChoice, LinkChoice, Protect};
use longhaul_pathsim::Probability;
use longhaul_rate_control::Profile;
use longhaul_units::{Bytes, Rate};

use crate::attributes::AttributeArgs;
use crate::circuits::args::CircuitsArgs;
use crate::circuits::when::{self, When};
use crate::filter::FilterArgs;
use crate::gateway::args::GatewayArgs;
use crate::lab::args::LabArgs;
use crate::link::{choice, rate};
use crate::serve::log::LogFormat;
use crate::values::{
    carrier, count, fsync, lanes, memory, parameters_help, parse_time, path, percent, period,
    ports, profile_help, protect,
};

/// Moves very large data over long, fat networks at the rate that the path and both hosts can
/// really take: encrypted, verified end to end, resumable.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, after_help = EXIT_STATUSES)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Args, Clone, Debug, Default)]
pub struct Common {
    /// One JSON object on standard output
    ///
    /// Of `pipe --receive` on standard error; also on failure, then with `error`. The rest goes to standard
    /// error.
    #[arg(long, global = true)]
    pub json: bool,
    /// Errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Details too; of `cp` the names of what changes (-vv: details)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copy files and trees to or from another host
    ///
    /// Into an existing directory a source goes under its own name, else the destination takes the new
    /// name. A slash at the end of DST asks for a directory and makes it; at the end of SRC it means
    /// nothing. SRC/. means the contents of SRC; a server chooses their names, so they go into a new or
    /// empty directory unless --merge is given. A local name with a colon is written ./a:b.
    ///
    /// In what a server is asked for, * ? and [...] stand for what they match there. DST is a directory where * or ? is
    /// used; where [...] matches several, a slash behind DST says so.
    ///
    /// HOST:PATH is reached by ssh, which starts `longhaul serve --ssh` there; the data goes beside it, at full
    /// speed, or through it where no port is open. With HOST:PATH on both sides it goes from the one host to the other,
    /// or through this one where the first does not reach the second. PATH begins at the home there or with a slash, and no shell reads it. lh:// is a `longhaul serve`
    /// that runs already; bytes of its paths, and of ssh://, are written as in URLs: %20 is a space, %25 is a %.
    ///
    /// A file appears under its name only when it is whole, verified and durable. What an interrupted
    /// copy has written is kept: the same command again goes on from there.
    Cp(CpArgs),
    /// Send standard input to another host's standard output
    ///
    /// Sends standard input into the pipe NAME of a `longhaul serve`, or with --receive writes what comes
    /// out of it to standard output. Whoever comes first waits for the other end. The bytes arrive in
    /// order and verified, or both ends fail: a receiver ends with status 0 only if the sender's input
    /// came to its end and every byte of it was written. A receiver that reads slowly holds the sender back.
    ///
    /// NAME is any name that nobody else uses at that server, of at most 255 bytes; it is not a file. Over ssh both
    /// ends come to HOST as the same user.
    /// With --receive the data owns standard output, so the object of --json goes to standard error.
    Pipe(PipeArgs),
    /// Serve the files below a directory, and join the ends of pipes
    ///
    /// Clients prove that they hold a token, the server proves it to them. Nothing outside the root can
    /// be reached. Without an allow flag clients may both read and write. Pipes touch no file; to send
    /// into one takes what writing takes, to receive what reading takes. Ctrl-C ends it cleanly: what
    /// running transfers have written is kept and can be resumed. SIGTERM waits for them first (--drain).
    Serve(ServeArgs),
    /// Make tokens, and show which ones a file holds
    Keys(KeysArgs),
    /// A verified transfer over an emulated long path, and what it shows
    ///
    /// Makes a tree of files in memory, starts a server and a client of this program, and puts an
    /// emulated path between them: in network namespaces as root or where users may have user
    /// namespaces, with kernel TCP over the same path for comparison; elsewhere by a relay in user
    /// space on loopback addresses. Then it compares the copy byte for byte, says what the path allowed,
    /// what was reached and where the losses went, and removes everything.
    Demo(DemoArgs),
    /// What this machine can carry, and what Longhaul makes of it
    ///
    /// Sends data between two network namespaces (which takes root; else over loopback) as raw UDP, by
    /// Longhaul and by the kernel's TCP, in turns, and compares the medians with the raw flow. Needs
    /// 7 GB of memory, half of it in /dev/shm, and a machine that does nothing else.
    Bench(BenchArgs),
    /// Emulated long paths between hosts on this machine, for any program
    Lab(LabArgs),
    /// Circuits: bandwidth booked as it varies over time
    Circuits(CircuitsArgs),
    /// Gateways: a long path in segments, each with the transport that suits it
    Gateway(GatewayArgs),
    /// List what a server has
    ///
    /// Lists what is at a place of a server, which has to allow reading: names sorted directory by
    /// directory, a slash behind those of directories. Links are listed, not followed. What acts on terminals is
    /// escaped, as in JSON: each name has a line. With --json one object with `entries` (path, type, size, mode,
    /// modified, for a link target), `listed` and `failures`.
    Ls(ListArgs),
    /// Compare files, where they are, with a list of their hashes
    ///
    /// Compares the files below PLACE with MANIFEST, as `longhaul cp --manifest` and `b3sum` write it. Each is
    /// hashed where it is, by several threads: at a server only hashes travel. A line for each file that is
    /// missing, changed, extra (not in MANIFEST, in a directory that it names) or cannot be read; the status is 0
    /// where there is none. No link is followed.
    Verify(VerifyArgs),
    /// List interrupted copies to a directory, or discard them
    ///
    /// A line for each copy to PLACE, or to a directory below it, that was interrupted: how long ago, how much has
    /// arrived of the files that it has begun, and its hidden directory. The same `longhaul cp` again goes on from there. Other file systems below
    /// PLACE are not looked through. A server has to allow reading, and for --discard deletion too.
    Resume(ResumeArgs),
    /// List the profiles: protocols and rate controls
    #[command(hide = true, after_help = profile_help())]
    Profiles,
    /// What the way to a server and both hosts can do, and what would help
    ///
    /// Connects, finds the round trip and the largest packet of the path, and says what the sockets of both
    /// hosts are granted, what this host's processors can do, what earlier transfers have learnt, and what
    /// would help, with the command. Takes a second; nothing is read or written at the server, to which it
    /// is a client that asks for nothing: `serve --once` goes on.
    Probe(ProbeArgs),
    /// What paths could take, as earlier transfers of this user have seen it
    ///
    /// Each transfer leaves what it has seen of the path at the host that sent: at the client of a push, at
    /// the server of a pull. The next one begins by it. The file is
    /// ~/.local/state/longhaul/history.db; it names the hosts that this user exchanged data with.
    History(HistoryArgs),
    /// Write the manual pages
    #[command(hide = true)]
    Man(ManArgs),
    /// Write completions for a shell to standard output
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write names at a server that complete a command line, as completion scripts want them
    #[command(hide = true)]
    Places(PlacesArgs),
}

/// `longhaul cp`.
#[derive(Args, Debug)]
#[command(override_usage = "longhaul cp [OPTIONS] SRC... DST", after_help = CP_EXAMPLES)]
pub struct CpArgs {
    /// What to copy, then where to
    #[arg(required = true, num_args = 1.., value_name = "PATH")]
    #[arg(help = "What to copy, then where to; HOST:PATH and lh://HOST/PATH are at another host")]
    pub paths: Vec<OsString>,
    /// Start of its server.
    #[command(flatten)]
    pub ssh: SshArgs,
    /// How the data travels.
    #[command(flatten)]
    pub link: LinkArgs,
    /// When data is made durable at the destination
    #[arg(long, value_name = "WHEN", value_parser = fsync(), default_value = "end")]
    #[arg(action = clap::ArgAction::Set)]
    pub fsync: bool,
    /// Reconnect to a server whose connection was lost, for at most 90s, 5m or the like; 0: never
    ///
    /// The copy goes on from there; over ssh another server is started. A server that is busy is asked again as long.
    /// Not with --circuit.
    #[arg(long, value_name = "TIME", value_parser = when::parse_time, default_value = "5m", hide_short_help = true)]
    pub retry: std::time::Duration,
    /// Changes at the destination.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Attributes that are kept.
    #[command(flatten)]
    pub attributes: AttributeArgs,
    /// Names that are copied, and names that are not.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Names in a list, which alone are copied.
    #[command(flatten)]
    pub names: NamesArgs,
    /// Do not hash the data at both ends
    ///
    /// Takes less processor time, and finds only what is corrupted on the network. Not with --protect clear.
    #[arg(long, hide_short_help = true)]
    pub no_verify: bool,
    /// Read or write large files of this host past its page cache (O_DIRECT): for data that is much larger
    /// than memory, on fast disks. `longhaul serve` has the same option for its host
    #[arg(long, hide_short_help = true)]
    pub direct: bool,
    /// Give a copy up that stands still for so long though both ends are there: no contents arrive, no
    /// files are found or confirmed, and the server does not say that its disk is why. A disk of this
    /// host that gets nothing done in this time ends it, too. The begin of a booking is waited for; 0
    /// never
    #[arg(long, value_name = "TIME", value_parser = when::parse_time, default_value = "5m", hide_short_help = true)]
    pub stall_timeout: std::time::Duration,
    /// Write a line for each file that is copied, or there unchanged, as b3sum does: its hash and its name
    ///
    /// By it `longhaul verify` and `b3sum --check` check a copy, in the directory that holds it: names begin with
    /// that of the copy, those of SRC/. are those in it. Names that are not UTF-8 have their bytes, which b3sum does
    /// not read. What is copied is hashed on its way; what is there unchanged is read on this host. FILE is
    /// written when all was copied; - is none. Not in a copy between two other hosts.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    #[arg(conflicts_with_all = ["no_verify", "update", "dry_run"])]
    pub manifest: Option<PathBuf>,
    /// Write each packet that this host, sending over UDP, takes as lost, with its lane, its number and
    /// the cause that it is given: to compare with what the path did (docs/lab.md)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub losses: Option<PathBuf>,
    /// Habits that the user turns off.
    #[command(flatten)]
    pub habits: HabitArgs,
    /// The circuit to go over.
    #[command(flatten)]
    pub circuit: CircuitArgs,
    /// What is asked of it.
    #[command(flatten)]
    pub file: FileArgs,
}

/// Names in a list, which alone are copied.
#[derive(Args, Clone, Debug, Default)]
pub struct NamesArgs {
    /// Copy only the names in SRC, a directory, that FILE lists, one a line; -: standard input
    ///
    /// Directories are copied with what is in them; those above a name are made. With a slash behind it a link
    /// to a directory is followed, too, but not within a listed directory, where names behind links fail. Lines that
    /// are empty or begin with # or ; are no names. DST gets them as SRC/. would. Not with --delete, nor in a copy
    /// between two other hosts.
    #[arg(long, value_name = "FILE", hide_short_help = true, conflicts_with = "delete")]
    pub files_from: Option<PathBuf>,
    /// In the list of --files-from a zero byte ends each name
    #[arg(short = '0', long, hide_short_help = true, requires = "files_from")]
    pub from0: bool,
}

/// Changes that `cp` may make at the destination.
#[derive(Args, Clone, Debug, Default)]
pub struct ChangeArgs {
    /// With SRC/. from a server: also into a directory that is not empty
    ///
    /// The server chooses every name in it and may replace what is there.
    #[arg(long, hide_short_help = true)]
    pub merge: bool,
    /// DST is the new name of SRC, also where a directory has that name
    #[arg(short = 'T', long, hide_short_help = true)]
    pub no_target_directory: bool,
    /// Send also what is there with its size and modification time
    #[arg(short = 'I', long)]
    pub ignore_times: bool,
    /// Compare contents, not times: both ends hash what both have, and only what differs is sent
    ///
    /// Of large files the MiB that differ, of those with holes all. With -n too. -I changes nothing then,
    /// as with rsync.
    #[arg(short = 'c', long, conflicts_with = "no_verify", hide_short_help = true)]
    pub checksum: bool,
    /// Leave alone what is newer at the destination
    #[arg(short = 'u', long)]
    pub update: bool,
    /// Delete what the source has not
    ///
    /// In directories that are copied, at the end, if nothing failed; what --exclude leaves out stays. A
    /// server has to allow it (`serve --allow-delete`).
    #[arg(long)]
    pub delete: bool,
    /// Delete at most N names, and fail where there are more
    #[arg(long, value_name = "N", value_parser = count, requires = "delete", hide_short_help = true)]
    pub max_delete: Option<u64>,
    /// Change nothing, and say what would be
    ///
    /// A file that cannot be read counts as failed, though a copy would find it unchanged.
    #[arg(short = 'n', long, conflicts_with = "circuit")]
    pub dry_run: bool,
    /// Give up the copy when more than N entries have failed
    #[arg(long, value_name = "N", value_parser = count, hide_short_help = true)]
    pub max_errors: Option<u64>,
}

/// Options of `cp`, `scp` and `rsync` for what is done anyway.
#[derive(Args, Clone, Debug, Default)]
pub struct HabitArgs {
    /// Accepted, as -l -p -t -S -W -P are, and done anyway: trees are copied whole, with links, modes and times; holes
    /// are not sent; what changed goes whole; interrupted copies are gone on with; a terminal shows progress
    #[arg(short = 'r', long, hide_short_help = true)]
    #[arg(overrides_with = "recursive")]
    pub recursive: bool,
    /// As -r; rsync's -R is --files-from
    #[arg(short = 'R', hide_short_help = true, overrides_with = "all")]
    pub all: bool,
    /// See -r
    #[arg(short = 'l', long = "links", hide = true, overrides_with = "symlinks")]
    pub symlinks: bool,
    /// See -r
    #[arg(short = 'p', long, alias = "perms", hide = true, overrides_with = "preserve")]
    pub preserve: bool,
    /// See -r
    #[arg(short = 't', long, hide = true, overrides_with = "times")]
    pub times: bool,
    /// See -r
    #[arg(short = 'S', long, hide = true, overrides_with = "sparse")]
    pub sparse: bool,
    /// See -r
    #[arg(short = 'W', long, hide = true, overrides_with = "whole_file")]
    pub whole_file: bool,
    /// See -r
    #[arg(short = 'P', long, visible_alias = "partial", hide = true)]
    #[arg(overrides_with = "progress")]
    pub progress: bool,
}

/// How data travels between this host and a server.
#[derive(Args, Clone, Debug)]
pub struct LinkArgs {
    /// Protocol and rate control; `longhaul help profiles` lists them
    #[arg(long, value_name = "NAME", default_value = "auto", long_help = profile_help())]
    #[arg(value_parser = PossibleValuesParser::new(Profile::names()), hide_possible_values = true)]
    pub profile: String,
    /// Most that the side with the data sends, like 1.6Gbps
    ///
    /// In IP-layer bits per second, with headers. Profiles without a rate control of their own send at it.
    ///
    /// Also a timetable: '08:00,200Mbps 19:00,off' limits from eight in the morning, by this host's clock, until
    /// seven in the evening, and changes while a copy runs. Not for `pipe --receive`.
    #[arg(long, value_name = "RATE", value_parser = rate::parse)]
    pub rate: Option<rate::RateChoice>,
    /// Write a line of progress so often to standard error, like 30s, terminal or not; with --json an object
    ///
    /// Its fields are `elapsed` (seconds), `bytes`, `bytes_total`, `files`, `files_total` (null while the tree
    /// is listed), `rate_bps`, `rtt_ms`, `packets_sent`, `packets_lost`, `bottleneck`.
    #[arg(long, value_name = "TIME", value_parser = period, hide_short_help = true)]
    pub stats: Option<std::time::Duration>,
    /// One of the profile's parameters; may be given several times
    #[arg(long = "param", value_name = "NAME=VALUE", long_help = parameters_help())]
    #[arg(hide_short_help = true)]
    pub parameters: Vec<String>,
    /// Who else is on the path, under --profile auto [default: shared]
    #[arg(long, value_name = "USE", value_parser = path(), hide_short_help = true)]
    pub path: Option<&'static str>,
    /// Protection of the data on its way; verifying it at the end is another thing
    #[arg(long, value_name = "MODE", value_parser = protect(), default_value = "aead")]
    #[arg(hide_short_help = true)]
    pub protect: Protect,
    /// Token that the server knows [default: ~/.config/longhaul/token]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// What carries the data
    #[arg(long, value_name = "KIND", value_parser = carrier(), default_value = "auto")]
    pub carrier: CarrierChoice,
    /// UDP lanes, or TCP connections with --carrier tcp
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = lanes)]
    pub lanes: u16,
    /// A network link to use; several at once
    ///
    /// LOCAL is this host's address there, REMOTE the server's (link-local ones with their interface, as in
    /// fe80::1%eth0); what is left out is as without. Each link finds its own rate, and stands in for those
    /// that carry nothing. Of the lanes it gets N to the N of the others, one at least; with weight=0 it is
    /// used only while no other one carries anything.
    #[arg(long = "link", value_name = "[LOCAL][,REMOTE][,weight=N]", conflicts_with_all = ["circuit", "via"])]
    #[arg(hide_short_help = true)]
    #[arg(value_parser = choice::parse)]
    pub links: Vec<LinkChoice>,
    /// Gateways on the path.
    #[command(flatten)]
    pub route: RouteArgs,
    /// Most memory for data that is under way, at least 64MiB
    ///
    /// The program itself takes some 30 MiB more. [default: as much as the path is worth, 192 MiB and two
    /// bandwidth-delay products]
    #[arg(long, value_name = "SIZE", value_parser = memory, hide_short_help = true)]
    pub memory: Option<Bytes>,
    /// Neither begin by what earlier transfers have learnt of the path and its circuits, nor add to it
    #[arg(long, hide_short_help = true)]
    pub no_history: bool,
    /// Run the threads that must not be late before all other programs of this host, where that is
    /// permitted (SCHED_FIFO; as root, with CAP_SYS_NICE, or a limit of real-time priority)
    #[arg(long, hide_short_help = true)]
    pub host_priority: bool,
}

/// How a server is started over ssh, for a place that is written `[USER@]HOST:PATH`.
#[derive(Args, Clone, Debug, Default)]
pub struct SshArgs {
    /// Program that is run as ssh [default: LONGHAUL_SSH, else ssh]
    ///
    /// With its options. Blanks stand between words; quotes hold them together, and no shell reads them.
    #[arg(short = 'e', long = "rsh", value_name = "CMD", hide_short_help = true)]
    pub rsh: Option<String>,
    /// The program longhaul at that host [default: searched in PATH, ~/.local/bin, /usr/local/bin]
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub remote_path: Option<String>,
    /// Ports that the server there may take, TCP and UDP [default: any]
    #[arg(long, value_name = "A-B", value_parser = ports, hide_short_help = true)]
    pub ports: Option<(u16, u16)>,
}

/// Gateways on the path to a server.
#[derive(Args, Clone, Debug, Default)]
pub struct RouteArgs {
    /// Gateways to the server, in order
    ///
    /// With commas between. TCP connections go through them, each segment with one of its own. Given
    /// several times: routes, each tried once where the one before cannot be had or is lost (of `pipe` only
    /// until data has moved); `direct` is one too. [default: the route of LONGHAUL_VIA; port 7421]
    #[arg(long, value_name = "[NAME@]HOST[:PORT]")]
    pub via: Vec<String>,
    /// File with the token that the first gateway knows [default: that of the server]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub via_token_file: Option<PathBuf>,
}

/// `longhaul pipe`.
#[derive(Args, Debug)]
#[command(override_usage = "longhaul pipe [OPTIONS] HOST:NAME", after_help = PIPE_EXAMPLES)]
pub struct PipeArgs {
    /// Where both ends meet, and the name that both give.
    #[arg(
        help = "Where both ends meet, over ssh, and the name that both give; or lh://HOST[:PORT]/NAME"
    )]
    #[arg(value_name = "HOST:NAME")]
    pub pipe: OsString,
    /// Options of ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
    /// Write what comes out of the pipe to standard output
    #[arg(long)]
    pub receive: bool,
    /// Give the pipe up if what is on its way stands still for so long though both ends are there, and
    /// no end says that its input, its output or a booking is what it waits for; 0 never
    #[arg(long, value_name = "TIME", value_parser = when::parse_time, default_value = "5m")]
    pub stall_timeout: std::time::Duration,
    /// How the data travels.
    #[command(flatten)]
    pub link: LinkArgs,
    /// The circuit to send over.
    #[command(flatten)]
    pub circuit: CircuitArgs,
    /// What is asked of it.
    #[command(flatten)]
    pub hold: HoldArgs,
}

/// A copy, or the sending end of a pipe, over a booked circuit.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Circuit")]
pub struct CircuitArgs {
    /// Book a circuit at this service, and send over it
    ///
    /// At the rates that were booked (VBTP); messages, and what it does not carry, go over IP. FROM and TO
    /// are the service's names of the two ends; without them it has to know one link only.
    #[arg(long, value_name = "https://HOST[:PORT][/FROM/TO]", conflicts_with = "via")]
    pub circuit: Option<String>,
    /// Follow this booking, made before by `longhaul circuits request`, instead of making one. What is
    /// left of it is given back once all is sent
    #[arg(long, value_name = "ID", requires = "circuit", hide_short_help = true)]
    pub booking: Option<u64>,
    /// File with the token for the service [default: ~/.config/longhaul/circuit-token]. It is another
    /// than the server's: the service reads it
    #[arg(long, value_name = "FILE", requires = "circuit", hide_short_help = true)]
    pub circuit_token_file: Option<PathBuf>,
    /// File in PEM with the authorities that may vouch for the service [default: those this host knows]
    #[arg(long, value_name = "FILE", requires = "circuit", hide_short_help = true)]
    pub circuit_ca: Option<PathBuf>,
    /// Let the token cross the network in the clear, to a service at http:// on another host
    #[arg(long, requires = "circuit", hide_short_help = true)]
    pub plain_http: bool,
    /// The server's address at the circuit's far end [default: its address over IP]
    #[arg(long, value_name = "ADDR", requires = "circuit", hide_short_help = true)]
    pub circuit_to: Option<IpAddr>,
    /// This host's address on the circuit, to have answers come back over it
    /// [default: the address over IP, over which they come back then]
    #[arg(long, value_name = "ADDR", requires = "circuit", hide_short_help = true)]
    pub circuit_from: Option<IpAddr>,
    /// Go over IP where no circuit is to be had, instead of failing
    #[arg(long, requires = "circuit", hide_short_help = true)]
    pub circuit_or_ip: bool,
    /// Begin over IP at once, and go over to the circuit when it begins; where none is to be had, stay
    #[arg(long, requires = "circuit", hide_short_help = true)]
    pub circuit_and_ip: bool,
}

/// What a copy asks of its circuit.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Circuit")]
pub struct FileArgs {
    /// When it must be there, like +2h: else nothing is booked
    ///
    /// Or at a time, like 2027-03-01T22:00Z.
    #[arg(long, value_name = "WHEN", requires = "circuit", conflicts_with = "booking")]
    pub deadline: Option<When>,
    /// Extra capacity for what is lost and sent again or sent too late, in percent of the bytes
    /// [default: by what earlier circuits to that host lost and missed, 2 at first]
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = percent,
        requires = "circuit",
        conflicts_with = "booking",
        hide_short_help = true
    )]
    pub margin: Option<f64>,
}

/// What a pipe asks of its circuit.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Circuit")]
pub struct HoldArgs {
    /// How long the circuit is wanted, like 90s or 2h: what comes later goes over IP
    #[arg(long, value_name = "TIME", value_parser = when::parse_time, requires = "circuit")]
    #[arg(conflicts_with = "booking")]
    pub time: Option<std::time::Duration>,
    /// Most that is of use on the circuit
    #[arg(long, value_name = "RATE", requires = "circuit", conflicts_with = "booking")]
    pub max_rate: Option<Rate>,
    /// Least that is of use on the circuit [default: --max-rate]
    #[arg(long, value_name = "RATE", requires = "circuit", conflicts_with = "booking")]
    pub min_rate: Option<Rate>,
    /// When the circuit must have started, like +10m or 2027-03-01T22:00Z: else nothing is booked
    #[arg(long, value_name = "WHEN", requires = "circuit", conflicts_with = "booking")]
    pub latest_start: Option<When>,
}

/// `longhaul serve`.
#[derive(Args, Debug)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// Everything from a TOML file, in place of options: who is let in, and to what; SIGHUP reads it again
    ///
    /// Its keys are the options' names, with _ for -, and tables `[[access]]` with `token_file`, `root`, rights and limits of
    /// each token (docs/operating.md).
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "listen", "directory", "root", "token_file", "ssh", "once", "allow_read", "allow_write", "allow_delete",
        "allow_owners", "direct", "stall_timeout", "excuse_timeout", "profiles", "memory", "socket_buffer",
        "no_history", "host_priority", "trust_proxy", "drain", "log", "metrics", "discard_after",
    ])]
    pub config: Option<PathBuf>,
    /// Say what is wrong with that file, all at once, by line, and end
    #[arg(long)]
    pub check: bool,
    /// Time that SIGTERM leaves to transfers, while nobody is let in, before it ends them
    #[arg(long, value_name = "TIME", value_parser = when::parse_time, default_value = "30s", hide_short_help = true)]
    pub drain: std::time::Duration,
    /// Where Prometheus (/metrics) and who starts and watches it (/healthz, /readyz) may look
    #[arg(long, value_name = "[ADDR:]PORT", hide_short_help = true)]
    pub metrics: Option<String>,
    /// A line on standard error for each transfer, in place of words
    ///
    /// `time` of its end, `client`, `key` (id of its token), `direction`, `path` (the first that it asked for), `bytes` that moved,
    /// `seconds`, `rate_bps`, `bottleneck`, `lost` by cause, `outcome` (done, incomplete, failed), `failed` entries, `reason`. As text
    /// each is name=value. With json other lines, as of the start, are objects too, of `time` and `message`.
    #[arg(long, value_name = "FORM", value_enum, hide_short_help = true)]
    pub log: Option<LogFormat>,
    /// Remove what interrupted copies have left that nobody has gone on with for so long; 0: never
    #[arg(long, value_name = "TIME", value_parser = when::parse_time, default_value = "30d", hide_short_help = true)]
    pub discard_after: std::time::Duration,
    /// Address to listen at, TCP and UDP
    #[arg(long, value_name = "ADDR:PORT", help = LISTEN_HELP)]
    pub listen: Option<String>,
    /// Directory that is served [default: .]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// The same
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    pub root: Option<PathBuf>,
    /// File with the tokens that are let in, one a line [default: a new token is made and printed]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Serve the one client that asks on standard input, as `longhaul cp HOST:PATH` does through ssh
    ///
    /// In ~/.ssh/authorized_keys `command="longhaul serve --ssh --root /data --allow-read",restrict` limits a
    /// key, whatever its client asks for. Without --root its user may reach what it may reach anyway.
    #[arg(long, conflicts_with_all = ["listen", "token_file", "once", "trust_proxy", "json"])]
    pub ssh: bool,
    /// With --ssh: ports to listen at, whatever the client wishes
    #[arg(long, value_name = "A-B", value_parser = ports, requires = "ssh", hide_short_help = true)]
    pub ports: Option<(u16, u16)>,
    /// Serve one transfer, then end; the exit status is that of the transfer
    #[arg(long)]
    pub once: bool,
    /// Clients may copy from here; without --allow-write, only that
    #[arg(long)]
    pub allow_read: bool,
    /// Clients may copy to here; without --allow-read, only that
    #[arg(long)]
    pub allow_write: bool,
    /// Clients that may read and write may also delete what their source has not (`cp --delete`)
    #[arg(long)]
    pub allow_delete: bool,
    /// Files that clients copy to here may get owners, set-id bits and attributes beyond `user.` (`cp -a`)
    ///
    /// As far as this process may set them: as root, who holds a token can leave a program that runs as root.
    /// They may copy such attributes from here, too. Over ssh a user has this right without it,
    /// unless --root or another right is given.
    #[arg(long)]
    pub allow_owners: bool,
    /// Read and write large files past the page cache (O_DIRECT): for data that is much larger than
    /// memory, on fast disks
    #[arg(long, hide_short_help = true)]
    pub direct: bool,
    /// Give a copy or pipe up that stands still for so long though both ends are there: no contents
    /// arrive, no files are found or confirmed, and the client does not say that its disk, its booking or
    /// its end of the pipe is why. A disk of this host that gets nothing done in this time ends a
    /// copy, too; 0 never
    #[arg(long, value_name = "TIME", value_parser = when::parse_time, default_value = "5m", hide_short_help = true)]
    pub stall_timeout: std::time::Duration,
    /// Of 64 clients at a time: where one more comes, a client is ended in which nothing has moved for so
    /// long, whatever it says that it waits for; else one of the token that holds most places,
    /// or of the address, if they hold more than who comes. It ends as where the server is busy, and
    /// the same command goes on from what had arrived; 0 never ends one for what it waits for
    #[arg(long, value_name = "TIME", value_parser = when::parse_time, default_value = "15m", hide_short_help = true)]
    pub excuse_timeout: std::time::Duration,
    /// Profiles that clients may choose, with commas between them [default: any]
    ///
    /// `unlimited`, `fixed` and others send what the client wants.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', hide_possible_values = true)]
    #[arg(value_parser = PossibleValuesParser::new(Profile::names()))]
    pub profiles: Option<Vec<String>>,
    /// Most memory of all clients together
    ///
    /// For data that is under way and the socket buffers of their lanes. Each begins with up to 192 MiB and
    /// grows with its path while half is left for others; one that finds less than 64 MiB is answered `busy`.
    /// The program itself takes some 30 MiB more. [default: half of the memory of this host, or of its control group]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub memory: Option<Bytes>,
    /// Buffers of the UDP sockets; a small one shows what hosts do that allow no more [default: 25MB]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub socket_buffer: Option<Bytes>,
    /// Neither begin by what earlier transfers to a client have learnt of the path, nor add to it
    #[arg(long, hide_short_help = true)]
    pub no_history: bool,
    /// Run the threads that must not be late before all other programs of this host, where that is
    /// permitted (SCHED_FIFO; as root, with CAP_SYS_NICE, or a limit of real-time priority)
    #[arg(long, hide_short_help = true)]
    pub host_priority: bool,
    /// Address of a proxy, such as the last gateway; repeatable
    ///
    /// It has to say by the PROXY protocol (version 2) for whom it connects. That address counts for limits and the log, and gives no
    /// rights. Others may not say it.
    #[arg(long, value_name = "ADDR")]
    pub trust_proxy: Vec<std::net::IpAddr>,
}

/// `longhaul probe`.
#[derive(Args, Debug)]
pub struct ProbeArgs {
    /// The server.
    #[arg(
        value_name = "SERVER",
        help = "The server: HOST[:PORT], lh://HOST[:PORT], or HOST: over ssh"
    )]
    pub server: OsString,
    /// How it is started there.
    #[command(flatten)]
    pub ssh: SshArgs,
    /// File with the token that the server knows [default: ~/.config/longhaul/token]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Do not look what earlier transfers have learnt
    #[arg(long)]
    pub no_history: bool,
}

/// `longhaul ls`.
#[derive(Args, Debug)]
#[command(after_help = LS_EXAMPLES)]
pub struct ListArgs {
    /// File or directory.
    #[arg(
        value_name = "PLACE",
        help = "File or directory: [USER@]HOST:PATH over ssh, or lh://HOST[:PORT]/PATH"
    )]
    pub place: OsString,
    /// Start of its server.
    #[command(flatten)]
    pub ssh: SshArgs,
    /// Mode, size and time of last modification too
    #[arg(short, long)]
    pub long: bool,
    /// All that is below it
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// File with the token that the server knows [default: ~/.config/longhaul/token]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Gateways on the path.
    #[command(flatten)]
    pub route: RouteArgs,
}

/// `longhaul verify`.
#[derive(Args, Debug)]
#[command(after_help = VERIFY_EXAMPLES)]
pub struct VerifyArgs {
    /// Lines of a hash and a name; - is standard input
    #[arg(value_name = "MANIFEST")]
    pub manifest: PathBuf,
    /// Directory that the names are relative to.
    #[arg(
        value_name = "PLACE",
        help = "Directory that the names are relative to: DIR, [USER@]HOST:PATH or lh://HOST[:PORT]/PATH"
    )]
    pub place: OsString,
    /// Start of its server.
    #[command(flatten)]
    pub ssh: SshArgs,
    /// Files that are not in MANIFEST are fine
    #[arg(long)]
    pub ignore_extra: bool,
    /// File with the token that the server knows [default: ~/.config/longhaul/token]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Gateways on the path.
    #[command(flatten)]
    pub route: RouteArgs,
}

/// `longhaul resume`.
#[derive(Args, Debug)]
pub struct ResumeArgs {
    /// Where they go to.
    #[arg(
        value_name = "PLACE",
        default_value = ".",
        help = "Where they go to: DIR, [USER@]HOST:PATH or lh://HOST[:PORT]/PATH"
    )]
    pub place: OsString,
    /// Start of its server.
    #[command(flatten)]
    pub ssh: SshArgs,
    /// Remove what they keep, but for copies that run: the same copy again begins at its begin
    #[arg(long)]
    pub discard: bool,
    /// File with the token that the server knows [default: ~/.config/longhaul/token]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Gateways on the path.
    #[command(flatten)]
    pub route: RouteArgs,
}

/// `longhaul history`.
#[derive(Args, Debug)]
#[command(after_help = HISTORY_EXAMPLES)]
pub struct HistoryArgs {
    /// Action on the file; `list` by default.
    #[command(subcommand)]
    pub command: Option<HistoryCommand>,
}

/// What `longhaul history` does.
#[derive(Debug, Subcommand)]
pub enum HistoryCommand {
    /// A line for each path, and for each host that circuits led to
    List,
    /// All that is known of the paths and circuits to a host
    Show {
        /// As it was named, or its address
        host: String,
    },
    /// Forget paths and circuits
    Clear {
        /// Only those to this host, as it was named or by its address [default: all]
        host: Option<String>,
    },
}

/// `longhaul keys`.
#[derive(Args, Debug)]
pub struct KeysArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// What `longhaul keys` does.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a token in a new file that only you can read
    #[command(after_help = KEYS_EXAMPLES)]
    New {
        /// File to make; - prints the token instead [default: ~/.config/longhaul/token]
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    /// Show the public name of each token in a file, as it stands in logs
    Id {
        /// File to read [default: ~/.config/longhaul/token]
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
}

/// `longhaul demo`.
#[derive(Args, Debug)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Size of the tree; needs twice as much room in /dev/shm or TMPDIR
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub size: Bytes,
    /// Rate of the path's narrowest link, at the IP layer
    #[arg(long, value_name = "RATE", default_value = "1Gbps")]
    pub rate: Rate,
    /// Round trip without queues, like 100ms
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_time)]
    pub rtt: std::time::Duration,
    /// Packets lost at random in each direction, like 0.1%
    #[arg(long, value_name = "PART", default_value = "0.1%")]
    pub loss: Probability,
}

/// `longhaul bench`.
#[derive(Args, Debug)]
#[command(after_help = BENCH_EXAMPLES)]
pub struct BenchArgs {
    /// One run with little data: shows that everything works, not how fast it is
    #[arg(long)]
    pub quick: bool,
    /// Runs of each row [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: Option<u16>,
    /// Largest packet between the namespaces, in bytes
    #[arg(long, value_name = "N", default_value_t = 1500)]
    #[arg(value_parser = clap::value_parser!(u16).range(1280..))]
    pub mtu: u16,
    /// Other programs too, as far as they are installed: iperf3, GridFTP, UDT
    #[arg(long)]
    pub peers: bool,
    /// Only rows with this in their name, beside the raw flow; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub row: Vec<String>,
}

/// `longhaul man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Folder for a page of each command; without it, the program's page goes to standard output
    pub folder: Option<PathBuf>,
}

/// `longhaul completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Shell that is to complete commands and options
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `longhaul places`.
#[derive(Args, Debug)]
pub struct PlacesArgs {
    /// Up to the cursor, as it was typed
    pub line: String,
}

/// Time that SIGTERM leaves to transfers, unless set.
pub(crate) const DRAIN: std::time::Duration = std::time::Duration::from_secs(30);

const EXIT_STATUSES: &str = "\
Exit status: 0 done and verified (or as --no-verify asked), 1 failed, 2 used wrongly.
Start with `longhaul demo`, `longhaul cp run-17 HOST:`, or `longhaul serve` on that host.";

const LISTEN_HELP: &str =
    "Address to listen at, TCP and UDP [default: [::]:7420, or 0.0.0.0:7420 without IPv6]";

const VERIFY_EXAMPLES: &str = "\
Examples:
  longhaul cp --manifest run-17.b3 run-17 dtn2:/data/
  longhaul verify run-17.b3 dtn2:/data
  longhaul verify run-17.b3 .";
const LS_EXAMPLES: &str = "\
Examples:
  longhaul ls dtn2:run-17                  over ssh, from the home there
  longhaul ls lh://dtn2/                   what is served
  longhaul ls -l lh://dtn2/run-17          with modes, sizes and times
  longhaul ls -R --json lh://dtn2/run-17   all below it, for a script";
const CP_EXAMPLES: &str = "\
Examples:
  longhaul cp run-17 dtn2:incoming/                    over ssh, below the home there
  longhaul cp run-17/ lh://dtn2.example/incoming/      push a tree to a server, as incoming/run-17
  longhaul cp run-17/. lh://dtn2.example/incoming/     push what is in it
  longhaul cp lh://dtn2.example/run-17/a.h5 b.h5       pull a file under a new name
  longhaul cp --circuit https://book.example/gva/chi --deadline +6h big.tar lh://dtn2/";

const PIPE_EXAMPLES: &str = "\
Examples:
  tar c run-17 | longhaul pipe lh://dtn2.example/run-17
  longhaul pipe --receive lh://dtn2.example/run-17 | tar x
  tar c run-17 | longhaul pipe me@dtn2:run-17          over ssh; the other end likewise
  longhaul pipe --receive --json lh://[2001:db8::7]:7421/feed >feed.raw 2>feed.json
  visualise | longhaul pipe --circuit https://book.example/gva/chi --time 10m \\
    --min-rate 100Mbps --max-rate 400Mbps lh://dtn2.example/frames";

const SERVE_EXAMPLES: &str = "\
Examples:
  longhaul serve --root /data                          prints a token and what to run elsewhere
  longhaul serve --root /data --allow-read --token-file /etc/longhaul/tokens
  longhaul serve --once --listen 192.0.2.7:7421";

const KEYS_EXAMPLES: &str = "\
Examples:
  longhaul keys new                                    for `longhaul cp`, which looks there
  longhaul keys new --token-file /etc/longhaul/tokens  for `longhaul serve --token-file`";

const HISTORY_EXAMPLES: &str = "\
Examples:
  longhaul history                                     every path, the newest first
  longhaul history show dtn2.example
  longhaul history clear dtn2.example";

const DEMO_EXAMPLES: &str = "\
Examples:
  longhaul demo                                        1 GiB over 1 Gb/s, 100 ms, 0.1 % loss
  longhaul demo --size 200MiB --rate 200Mbps --rtt 30ms --loss 1%";

const BENCH_EXAMPLES: &str = "\
Examples:
  longhaul bench                                       five runs of each row, some minutes
  longhaul bench --quick
  longhaul bench --row engine --row 'TCP cubic'
  longhaul lab peers --install; longhaul bench --peers
  longhaul bench --mtu 9000 --json | jq '.transfers[] | [.name, .ratio]'";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_time_is_seconds_or_has_a_unit_for_every_option() {
        use std::time::Duration;
        for (text, expected) in [("20", 20), ("20s", 20), ("5m", 300), ("0", 0)] {
            let expected = Duration::from_secs(expected);
            let parse = |words: &str| Cli::try_parse_from(words.split(' ')).unwrap().command;
            let words = format!("longhaul cp --retry {text} --stall-timeout {text} a h:b");
            let Command::Cp(cp) = parse(&words) else { panic!("{words}") };
            assert_eq!([cp.retry, cp.stall_timeout], [expected; 2], "{text}");
            let words = format!("longhaul pipe --stall-timeout {text} h:b");
            let Command::Pipe(pipe) = parse(&words) else { panic!("{words}") };
            assert_eq!(pipe.stall_timeout, expected, "{text}");
            let words = format!(
                "longhaul serve --stall-timeout {text} --excuse-timeout {text} --drain {text} --discard-after {text}"
            );
            let Command::Serve(serve) = parse(&words) else { panic!("{words}") };
            let times =
                [serve.stall_timeout, serve.excuse_timeout, serve.drain, serve.discard_after];
            assert_eq!(times, [expected; 4], "{text}");
        }
        let stats = Cli::try_parse_from(["longhaul", "cp", "--stats", "30", "a", "h:b"]).unwrap();
        let Command::Cp(cp) = stats.command else { panic!() };
        assert_eq!(cp.link.stats, Some(Duration::from_secs(30)));
    }

    #[test]
    fn what_a_server_does_unless_asked_is_the_same_with_a_file() {
        let serve = Cli::try_parse_from(["longhaul", "serve"]).unwrap();
        let Command::Serve(serve) = serve.command else { panic!() };
        let options = longhaul::ServeOptions::new("[::1]:0".parse().unwrap(), Vec::new());
        assert_eq!(serve.drain, DRAIN);
        let of_file = [options.stall_timeout, options.excuse_timeout, options.discard_after];
        assert_eq!([serve.stall_timeout, serve.excuse_timeout, serve.discard_after], of_file);
    }
}
