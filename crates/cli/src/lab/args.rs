//! The words of `longhaul lab`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use longhaul_lab::disk::DiskSpec;
use longhaul_lab::load::Load;
use longhaul_lab::{BurstLoss, Reorder, parse_time};
use longhaul_pathsim::Probability;
use longhaul_units::{Bytes, Rate};

/// `longhaul lab`.
#[derive(Args, Debug)]
pub struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// What `longhaul lab` does.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List the experiments that come with the program
    List(ListArgs),
    /// Run experiments, or what is left of them
    ///
    /// Makes each run of an experiment on a testbed of its own and keeps it at once. Runs that are
    /// there already are not made again, so that an experiment that was interrupted goes on where it
    /// was; contenders that were absent or failed are tried again. A contender that hangs is ended and
    /// recorded as such. Needs what `lab path` needs, and a machine that does little else.
    Run(RunArgs),
    /// Draw what was measured, beside what the papers found, as one HTML page
    ///
    /// Writes one HTML page that needs nothing else: for each experiment that has results the
    /// question, its source, what that found beside what was measured here, and figures.
    Report(ReportArgs),
    /// Run commands with an emulated path between them
    Path(Box<PathArgs>),
    /// Measure whether the emulated paths do what they promise
    ///
    /// Builds paths, sends packets over them through real sockets, and compares what was measured with
    /// what was asked for: round trip, loss, rate, queue, order, marks, path MTU, TCP, and what the
    /// machine can carry. Exit status 1 when something is off. Needs what `lab path` needs, and a
    /// machine that does little else.
    Check(CheckArgs),
    /// List the programs that can be run beside Longhaul, and install those that are missing
    ///
    /// Shows which programs can be run across a testbed, each with its version or the reason why it is
    /// absent and the Debian packages that have it.
    Peers(PeersArgs),
    /// List the topologies that come with the program, or show one
    Topologies {
        /// The one to show, as a file for `lab path --topology`
        name: Option<String>,
    },
}

/// `longhaul lab list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Folder of results [default: longhaul/lab where the user's data are]
    #[arg(long, value_name = "FOLDER")]
    pub results: Option<PathBuf>,
}

/// `longhaul lab run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// Experiments by name (see `lab list`), `all`, or files
    #[arg(required = true, value_name = "NAME|FILE")]
    pub experiments: Vec<String>,
    /// Fewer cells and repeats, fewer bytes
    #[arg(long)]
    pub quick: bool,
    /// Make all runs anew; earlier results are kept under another name
    #[arg(long)]
    pub fresh: bool,
    /// Folder of results [default: longhaul/lab where the user's data are]
    #[arg(long, value_name = "FOLDER")]
    pub results: Option<PathBuf>,
}

/// `longhaul lab report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Folder of results [default: longhaul/lab where the user's data are]
    #[arg(long, value_name = "FOLDER")]
    pub results: Option<PathBuf>,
    /// Where the page is written
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
}

/// `longhaul lab path`.
///
/// Makes two hosts, `host` and `peer`, that reach each other over an emulated path only, and runs
/// COMMAND (or a shell) at `host`. Any program works: the hosts are network namespaces with real
/// sockets, and know each other by name. The exit status is that of COMMAND; what the path did to
/// the packets is printed at the end. Needs root, or user namespaces and access to /dev/net/tun.
#[derive(Args, Debug)]
#[command(after_help = PATH_EXAMPLES)]
pub struct PathArgs {
    /// The path between two hosts.
    #[command(flatten)]
    pub line: LineArgs,
    /// A topology by name or from a file, instead of two hosts and the options above
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = PATH_OPTIONS)]
    pub topology: Option<String>,
    /// Node at which COMMAND runs [default: the first, host]
    #[arg(long, value_name = "NODE")]
    pub at: Option<String>,
    /// Command line for a shell at `peer`, started first and ended with COMMAND
    #[arg(long, value_name = "COMMAND")]
    pub peer: Option<String>,
    /// The same at any node; may be repeated
    #[arg(long, value_name = "NODE=COMMAND", value_parser = parse_run)]
    pub run: Vec<(String, String)>,
    /// Work beside the commands: loops, isosurface, memory or disk, with count, cores, from, length,
    /// size, folder, rate; may be repeated
    #[arg(long, value_name = "WORK[,KEY=VALUE...]")]
    pub load: Vec<Load>,
    /// A slow disk in an empty folder while the commands run, with folder, rate, size, from, length;
    /// may be repeated
    #[arg(long, value_name = "KEY=VALUE[,...]")]
    pub disk: Vec<DiskSpec>,
    /// Of everything random: the same seed loses the same packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write every lost packet to a file, a line of comma-separated values each
    #[arg(long, value_name = "FILE")]
    pub losses: Option<PathBuf>,
    /// Write the state of all links to a file, as a line of JSON every 100 ms
    #[arg(long, value_name = "FILE")]
    pub series: Option<PathBuf>,
    /// Command to run [default: the shell of SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// Treatment of packets by a path between two hosts.
#[derive(Args, Debug)]
pub struct LineArgs {
    /// Round trip without queues
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_time)]
    #[arg(allow_hyphen_values = true)]
    pub rtt: Duration,
    /// Rate of the narrowest link, IP-layer bits with headers [default: no limit]
    #[arg(long, allow_hyphen_values = true, value_name = "RATE")]
    pub rate: Option<Rate>,
    /// Bytes that may wait for that link [default: what it carries in a round trip]
    #[arg(long, allow_hyphen_values = true, value_name = "SIZE", requires = "rate")]
    pub queue: Option<Bytes>,
    /// Mark packets of ECN-capable senders that find more than SIZE bytes in the queue
    #[arg(long, value_name = "SIZE", requires = "rate")]
    pub ecn: Option<Bytes>,
    /// Packets lost at random
    #[arg(long, allow_hyphen_values = true, value_name = "PART")]
    pub loss: Option<Probability>,
    /// Losses in a row: the part of packets at which a burst begins, and its mean length
    #[arg(long, value_name = "PART,PACKETS")]
    pub burst_loss: Option<BurstLoss>,
    /// Delay that varies, from nothing up to TIME more
    #[arg(long, allow_hyphen_values = true, value_name = "TIME", value_parser = parse_time)]
    pub jitter: Option<Duration>,
    /// Packets held back behind later ones, and for how long
    #[arg(long, value_name = "PART,TIME", value_parser = parse_reorder)]
    pub reorder: Option<Reorder>,
    /// Packets that arrive twice
    #[arg(long, value_name = "PART")]
    pub duplicate: Option<Probability>,
    /// Packets that arrive with a wrong bit
    #[arg(long, value_name = "PART")]
    pub corrupt: Option<Probability>,
    /// Largest packet of the hosts' devices, in bytes
    #[arg(long, value_name = "N", default_value_t = 1500)]
    pub mtu: u32,
    /// Largest packet that passes on the way; larger ones are answered with ICMP
    #[arg(long, value_name = "N")]
    pub path_mtu: Option<u32>,
    /// Do not answer packets above --path-mtu
    #[arg(long, requires = "path_mtu")]
    pub black_hole: bool,
    /// A firewall swallows UDP both ways, from TIME on [default: from the start]
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "0s")]
    #[arg(value_parser = parse_time)]
    pub swallow_udp: Option<Duration>,
    /// Impair only what host sends to peer; the way back keeps delay, rate and queue
    #[arg(long)]
    pub one_way: bool,
}

/// `longhaul lab check`.
#[derive(Args, Debug)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct CheckArgs {
    /// Only the checks of these names [default: all]
    #[arg(value_name = "NAME")]
    pub only: Vec<String>,
}

/// `longhaul lab peers`.
#[derive(Args, Debug)]
#[command(after_help = PEERS_EXAMPLES)]
pub struct PeersArgs {
    /// Only these [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Install what is missing with apt-get, as root; what would start a server on this machine
    /// only for a NAME that needs it
    #[arg(long)]
    pub install: bool,
}

fn parse_reorder(text: &str) -> Result<Reorder, String> {
    let (probability, by) = pair(text, "1%,2ms")?;
    let probability = probability.parse().map_err(|error| format!("{probability}: {error}"))?;
    Ok(Reorder { probability, by: parse_time(by)? })
}

fn pair<'a>(text: &'a str, example: &str) -> Result<(&'a str, &'a str), String> {
    text.split_once(',').ok_or_else(|| format!("expected two values, like {example}"))
}

fn parse_run(text: &str) -> Result<(String, String), String> {
    let (node, command) = text.split_once('=').ok_or("expected NODE=COMMAND")?;
    Ok((node.to_owned(), command.to_owned()))
}

/// What a topology says itself.
const PATH_OPTIONS: [&str; 16] = [
    "rtt",
    "rate",
    "queue",
    "ecn",
    "loss",
    "burst_loss",
    "jitter",
    "reorder",
    "duplicate",
    "corrupt",
    "mtu",
    "path_mtu",
    "black_hole",
    "swallow_udp",
    "one_way",
    "peer",
];

const PATH_EXAMPLES: &str = "\
Examples:
  longhaul lab path --rtt 150ms --rate 1Gbps --loss 0.01% --peer 'iperf3 -s' -- iperf3 -c peer
  longhaul lab path --rtt 100ms --rate 500Mbps --queue 1MB      a shell; `ip netns` shows the peer
  longhaul lab path --topology phoebus --run 'peer=iperf3 -s' -- iperf3 -c peer -C cubic
  longhaul lab path --rate 2Gbps --load loops,count=3,cores=1 --peer 'taskset -c 1 ...' -- ...
  longhaul lab path --disk folder=/mnt/slow,rate=200Mbps --peer 'longhaul serve --root /mnt/slow' -- ...
  longhaul lab topologies phoebus > mine.toml; longhaul lab path --topology mine.toml";

const PEERS_EXAMPLES: &str = "\
Examples:
  longhaul lab peers
  longhaul lab peers --install
  longhaul lab peers --install rsync-ssh                 with the server of ssh
  longhaul lab peers --json | jq -r '.peers[] | select(.absent) | .name'";

const RUN_EXAMPLES: &str = "\
Examples:
  longhaul lab run long-haul-matrix --quick && longhaul lab report
  longhaul lab run all --quick --results /tmp/lab && longhaul lab report --results /tmp/lab
  longhaul lab run mine.toml";

const CHECK_EXAMPLES: &str = "\
Examples:
  longhaul lab check                     about a minute
  longhaul lab check loss rate
  longhaul lab check --json | jq '.checks[] | select(.ok | not)'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_or_refused_with_an_example() {
        let burst = BurstLoss { begin: Probability::from_ppm(100), mean: 20 };
        assert_eq!("0.01%,20".parse(), Ok(burst));
        let reorder =
            Reorder { probability: Probability::from_percent(1), by: Duration::from_millis(2) };
        assert_eq!(parse_reorder("1%,2ms"), Ok(reorder));
        assert_eq!(parse_run("peer=a=b"), Ok(("peer".into(), "a=b".into())));
        for wrong in ["", "1%", "2,3", "1%,0", "1%,-1"] {
            assert!(wrong.parse::<BurstLoss>().is_err(), "{wrong}");
        }
        for wrong in ["1%", "1%,2", "x,2ms"] {
            assert!(parse_reorder(wrong).is_err(), "{wrong}");
        }
        assert!(parse_run("peer").is_err());
    }
}
