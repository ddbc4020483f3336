use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_lab::Testbed;
use longhaul_lab::pump::RoundTrips;
use longhaul_lab::signals::Signals;
use longhaul_lab::topology::quantity;
use longhaul_units::{Instant, Rate};
use serde::{Deserialize, Serialize};

/// A mover of data: a program with its options, under a name like `gridftp -p 4`.
pub trait Contender: Send + Sync {
    /// Its name, which [`crate::registry::find`] knows.
    fn name(&self) -> &str;

    /// A description of it, in a line.
    fn about(&self) -> String;

    /// Debian packages that have the program; none for what is part of this one or of the kernel.
    fn packages(&self) -> &'static [&'static str] {
        &[]
    }

    /// The program, or why it cannot be run and what helps.
    ///
    /// # Errors
    /// The reason.
    fn presence(&self) -> Result<Presence, Absent>;

    /// True if it takes [`Job::parameters`], [`Job::history`], [`Job::host_priority`] and
    /// [`Job::nice`].
    fn takes_parameters(&self) -> bool {
        false
    }

    /// Its use of programs at nodes between ([`Job::via`]): it can use them, must, or knows none.
    fn passage(&self) -> Passage {
        Passage::Direct
    }

    /// True where it measures [`Job::round_trips`] in place of moving data.
    fn measures_round_trips(&self) -> bool {
        false
    }

    /// Moves `job` across `testbed`, and ends everything that it started, whatever happened.
    ///
    /// # Errors
    /// What kept it from moving all of the data within the job's patience.
    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError>;
}

/// A contender's use of nodes between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It goes from end to end.
    Direct,
    /// It goes through them where the job names some.
    Either,
    /// It goes through them, and the job has to name some.
    Relayed,
}

/// A node between, where a program takes the data and sends it on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waypoint {
    /// Its name.
    pub node: String,
    /// The kernel's congestion control of what the program sends; the kernel's default if there is none.
    pub congestion_control: Option<String>,
    /// Connections that a gateway of Longhaul keeps open to the next: 0 to 64.
    #[serde(default)]
    pub spares: u8,
    /// The limit of what the program sends over UDT; none by default.
    #[serde(default, deserialize_with = "quantity::optional")]
    pub rate: Option<Rate>,
}

impl Waypoint {
    /// The node of that name, with everything else left to the program.
    pub fn new(node: &str) -> Self {
        Self { node: node.to_owned(), congestion_control: None, spares: 0, rate: None }
    }
}

/// The data to be moved, and the conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Name of the node that has the data.
    pub from: String,
    /// Name of the node that is to have it.
    pub to: String,
    /// Nodes between, in order, whose programs take the data and send it on.
    pub via: Vec<Waypoint>,
    /// The amount.
    pub bytes: u64,
    /// After so long it is cut, and what has arrived counts; by default it lasts until all has, and
    /// so it does where a contender cannot tell what has arrived.
    pub length: Option<Duration>,
    /// So many connections are made, and as many bytes sent there and back, in place of moving data.
    pub round_trips: Option<u32>,
    /// Where it is, and where it goes.
    pub medium: Medium,
    /// Bytes of a write or of a block, where the program takes such an option.
    pub block: Option<u64>,
    /// The sending rate: a limit, or the rate itself where a protocol has no control of its own.
    pub rate: Option<Rate>,
    /// Bytes of the sockets' buffers.
    pub socket_buffer: Option<u32>,
    /// Longhaul's receiver runs before all other programs.
    pub host_priority: bool,
    /// The niceness of Longhaul's receiver.
    pub nice: Option<i8>,
    /// When work beside the transfer comes and leaves, where it does so again and again.
    pub spells: Vec<[Instant; 2]>,
    /// Of Longhaul's profile, each `name=value`.
    pub parameters: Vec<String>,
    /// Have Longhaul's sender list each packet that it takes as lost
    /// ([`Outcome::reported_losses`]).
    pub losses: bool,
    /// Where Longhaul's sender remembers paths, from one run to the next; without it, nowhere.
    pub history: Option<PathBuf>,
    /// The hard limit of the run, start of servers included.
    pub patience: Duration,
    /// Distance of the samples of [`Outcome::series`].
    pub series: Duration,
    /// When the transfer begins, from the making of the testbed: where links change with time, all
    /// contenders are to meet the same. By default as soon as everything is ready.
    pub begin: Option<Duration>,
}

/// Where the data of a [`Job`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Memory of the programs; those that move only files get one in a file system in memory.
    Memory,
    /// Files of random bytes.
    Files {
        /// A folder for source and target. The files are made in `source-COUNT-SIZE` below it,
        /// unless they are there, and left for the next run; the copy is removed.
        folder: PathBuf,
        /// Their number, at least one; [`Job::bytes`] is divided evenly.
        count: u64,
        /// Another folder for the copies.
        target: Option<PathBuf>,
    },
}

impl Job {
    /// From memory to memory, with everything else left to the program.
    pub fn new(from: &str, to: &str, bytes: u64, patience: Duration) -> Self {
        Self {
            from: from.to_owned(),
            to: to.to_owned(),
            via: Vec::new(),
            bytes,
            length: None,
            round_trips: None,
            medium: Medium::Memory,
            block: None,
            rate: None,
            socket_buffer: None,
            host_priority: false,
            nice: None,
            spells: Vec::new(),
            parameters: Vec::new(),
            losses: false,
            history: None,
            patience,
            series: Duration::from_millis(100),
            begin: None,
        }
    }

    /// For programs that move no files.
    pub(crate) fn memory_only(&self) -> Result<(), ContenderError> {
        match self.medium {
            Medium::Memory => Ok(()),
            Medium::Files { .. } => Err(ContenderError::unsuitable("it moves memory, no files")),
        }
    }

    /// For programs that take no rate.
    pub(crate) fn without_rate(&self) -> Result<(), ContenderError> {
        match self.rate {
            None => Ok(()),
            Some(_) => Err(ContenderError::unsuitable("it takes no rate")),
        }
    }
}

/// A program that can be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Presence {
    /// Name and version.
    pub version: String,
    /// Where it was found; `None` for what is part of this program.
    pub program: Option<PathBuf>,
}

/// Why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{why}{}", self.hint())]
pub struct Absent {
    /// The reason.
    pub why: String,
    /// Debian packages that would change it.
    pub packages: Vec<&'static str>,
}

impl Absent {
    pub(crate) fn new(why: impl Into<String>, packages: &[&'static str]) -> Self {
        Self { why: why.into(), packages: packages.to_vec() }
    }

    fn hint(&self) -> String {
        match self.packages[..] {
            [] => String::new(),
            _ => format!("; on Debian: apt-get install {}", self.packages.join(" ")),
        }
    }
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Name and version of the program.
    pub version: String,
    /// The kernel's congestion control, as read back, or that of the program; `None` where there is
    /// none.
    pub congestion_control: Option<String>,
    /// The protocol that carried the data, by count.
    pub transport: Transport,
    /// Data moved, each byte once.
    pub bytes: u64,
    /// It was cut at the job's length: `bytes` had arrived by then.
    pub cut: bool,
    /// From the start of the command that moves the data until it has ended and the receiver has
    /// everything, or until it was cut.
    pub seconds: f64,
    /// CPU-seconds of all processes, or threads, of the sending end.
    pub cpu_send: f64,
    /// CPU-seconds of all processes, or threads, of the receiving end.
    pub cpu_receive: f64,
    /// CPU-seconds of all processes at each node between, in their order.
    pub cpu_between: Vec<f64>,
    /// Single times, where the job asked for round trips.
    #[serde(skip)]
    pub round_trips: Option<RoundTrips>,
    /// The most memory that a process of the sending end had, and of the receiving end, in bytes.
    pub memory: [u64; 2],
    /// The bottleneck, by the program's own report.
    pub bottleneck: Option<String>,
    /// Packets or segments sent again, where they are counted.
    pub resent: Option<u64>,
    /// Packets lost, by cause, where the program reports them.
    pub lost: Option<BTreeMap<String, u64>>,
    /// Each packet that Longhaul's sender took as lost, where [`Job::losses`] asked for that.
    #[serde(skip)]
    pub reported_losses: Vec<ReportedLoss>,
    /// Bytes that reached the receiving node, with headers and copies, over time.
    pub series: Vec<Sample>,
    /// The booked circuits that carried data.
    pub bookings: Vec<Booking>,
    /// Which signals of the receiving host moved, and what all of them were, where they are watched.
    #[serde(skip)]
    pub signals: Option<(Signals, String)>,
    /// The rest of the program's report, and the counts behind `transport`.
    pub details: serde_json::Value,
}

impl Outcome {
    /// Bits of data per second.
    pub fn goodput(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8.0 / self.seconds } else { 0.0 }
    }
}

/// A packet that Longhaul's sender took as lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedLoss {
    /// Lane and number.
    pub packet: PacketId,
    /// Why, as far as the sender can tell.
    pub cause: String,
}

/// A packet of Longhaul's within a connection and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketId {
    /// The lane.
    pub lane: u16,
    /// Its number there.
    pub number: u64,
}

impl PacketId {
    /// Of the packet that begins so; nothing for one of another protocol.
    pub fn of(head: &[u8]) -> Option<Self> {
        let header = longhaul_wire::Header::parse(head).ok()?;
        Some(Self { lane: header.lane.0, number: header.number.get() })
    }
}

/// Bytes that had come by a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Since the start.
    pub seconds: f64,
    /// Bytes of IP packets since the start.
    pub bytes: u64,
}

/// A circuit that was booked for a copy, and how both kept to the plan. Times are seconds from the
/// start of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Booking {
    /// When the circuit was asked for.
    pub asked: f64,
    /// When it was planned to be done.
    pub planned: f64,
    /// When the copy was done, and all of it durable.
    pub done: f64,
    /// When the circuit was left.
    pub left: f64,
    /// True if the rest of the booking was given back then; else it had run out.
    pub released: bool,
    /// IP-layer bytes that the vector allowed until then.
    pub allowed_bytes: u64,
    /// IP-layer bytes that were sent on the circuit.
    pub sent_bytes: u64,
    /// IP-layer bytes that went over IP afterwards.
    pub ip_bytes: u64,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// Connections of the kernel.
    Tcp,
}

/// A node of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Where the data is.
    Sender,
    /// Where it goes.
    Receiver,
    /// A node between, by its place in [`Job::via`].
    Between(usize),
}

/// Why a run gave no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContenderError {
    /// The program is not there.
    #[error("absent: {0}")]
    Absent(#[from] Absent),
    /// It was ended when its time was up.
    #[error("not done after {after:?}, and ended{}", indented(.words))]
    TimedOut {
        /// The job's patience.
        after: Duration,
        /// Last output of the programs.
        words: String,
    },
    /// It gave up, crashed, or did not deliver everything.
    #[error("{what}: {status}{}", indented(.words))]
    Failed {
        /// The command.
        what: String,
        /// Its status at the end.
        status: String,
        /// Its last output.
        words: String,
    },
    /// The job asks for something that this program cannot do.
    #[error("cannot do that: {why}")]
    Unsuitable {
        /// The reason.
        why: String,
    },
}

fn indented(words: &str) -> String {
    words.lines().map(|line| format!("\n  {line}")).collect()
}

impl ContenderError {
    pub(crate) fn unsuitable(why: impl Into<String>) -> Self {
        Self::Unsuitable { why: why.into() }
    }

    /// Something of this program or its system that failed.
    pub(crate) fn system(what: &str) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::Failed {
            what: what.to_owned(),
            status: error.to_string(),
            words: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_say_what_helps() {
        let absent = Absent { why: "no iperf3 in PATH".into(), packages: vec!["iperf3"] };
        let expected = "no iperf3 in PATH; on Debian: apt-get install iperf3";
        assert_eq!(absent.to_string(), expected);
        assert_eq!(Absent { packages: Vec::new(), ..absent }.to_string(), "no iperf3 in PATH");
        let (what, status) = ("iperf3".into(), "exit status: 1".into());
        let failed = ContenderError::Failed { what, status, words: "no route\nto host".into() };
        assert_eq!(failed.to_string(), "iperf3: exit status: 1\n  no route\n  to host");
    }
}
