//! The words of `longhaul circuits`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use longhaul_units::{Bytes, Rate};

use super::when::{self, When};

/// `longhaul circuits`.
#[derive(Args, Debug)]
pub struct CircuitsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CircuitsCommand,
}

/// What `longhaul circuits` does.
#[derive(Debug, Subcommand)]
pub enum CircuitsCommand {
    /// Take bookings for the links of a network and carry them out
    ///
    /// Takes bookings over REST (described at /openapi.json) and keeps them in a file or a PostgreSQL
    /// database. What was acknowledged survives whatever happens to the process. Serves plain HTTP: to
    /// serve others than this machine, put a proxy that ends TLS in front of it.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Show what would come of a request, and what else could be had
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(Box<PlanArgs>),
    /// Book
    #[command(after_help = REQUEST_EXAMPLES)]
    Request(Box<RequestArgs>),
    /// List bookings
    List(ListArgs),
    /// Show a booking, and why it does not finish sooner
    Show(ShowArgs),
    /// Keep a booking that was held with --hold-for
    Commit(OneArgs),
    /// Change what a booking is for; what is not named stays
    ///
    /// What has passed of a booking stays, and the rest is planned anew; if there is no room, nothing
    /// changes.
    Modify(ModifyArgs),
    /// Add bytes to a file, or time to a circuit
    Extend(ExtendArgs),
    /// End a booking whose work is done, so that others can use the rest
    Release(OneArgs),
    /// Cancel a booking or a series
    Cancel(CancelArgs),
    /// Check the log of a service: it must decide itself again, and no link be exceeded
    Audit(AuditArgs),
    /// Repeat the simulations of the VBLS paper with the production calendar
    #[command(after_help = SIMULATE_EXAMPLES)]
    Simulate(SimulateArgs),
    /// Measure how fast the calendar decides
    Bench,
}

/// `longhaul circuits serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Configuration: store, rules, links, projects, tokens (docs/circuits.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["store", "link"])]
    pub config: Option<PathBuf>,
    /// Address to listen at
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7430")]
    pub listen: SocketAddr,
    /// Listen at an address of the network although nothing hides the tokens on their way
    #[arg(long)]
    pub plain_http: bool,
    /// File or postgres:// URL that keeps the bookings [default: longhaul-circuits.db]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// A link, when there is no configuration
    #[arg(long, value_name = "NAME=FROM-TO:RATE")]
    pub link: Vec<String>,
}

/// Where the service is.
#[derive(Args, Clone, Debug)]
pub struct Where {
    /// The service
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7430")]
    pub url: String,
    /// File with the token that the service knows [default: ~/.config/longhaul/circuit-token]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// File in PEM with the authorities that may vouch for the service [default: those this host knows]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Let the token cross the network in the clear, to a service at http:// on another host
    #[arg(long)]
    pub plain_http: bool,
}

/// What is asked for.
#[derive(Args, Clone, Debug)]
pub struct WantArgs {
    /// Nodes at which the circuit begins and ends
    #[arg(num_args = 2, value_names = ["FROM", "TO"])]
    pub ends: Vec<String>,
    /// Links to take, instead of FROM and TO
    #[arg(long, value_name = "LINK,...", value_delimiter = ',', conflicts_with = "ends")]
    pub links: Vec<String>,
    /// Size of a file to carry
    #[arg(long, value_name = "SIZE", conflicts_with = "time")]
    pub bytes: Option<Bytes>,
    /// How long a circuit is wanted, like 90s or 2h
    #[arg(long, value_name = "TIME", value_parser = when::parse_time)]
    pub time: Option<Duration>,
    /// Most that the two hosts can use
    #[arg(long, value_name = "RATE")]
    pub max_rate: Option<Rate>,
    /// Least that is of use (with --time) [default: --max-rate]
    #[arg(long, value_name = "RATE", requires = "time", conflicts_with = "bytes")]
    pub min_rate: Option<Rate>,
    /// When it may start: a time like 2027-03-01T22:00Z or +2h [default: at once]
    #[arg(long, value_name = "WHEN")]
    pub start: Option<When>,
    /// When the file must be there
    #[arg(long, value_name = "WHEN", requires = "bytes", conflicts_with = "time")]
    pub deadline: Option<When>,
    /// When a circuit must have started
    #[arg(long, value_name = "WHEN", requires = "time", conflicts_with = "bytes")]
    pub latest_start: Option<When>,
    /// How a file is placed in time
    #[arg(long, value_enum, default_value_t = PolicyArg::Earliest, conflicts_with = "time")]
    pub policy: PolicyArg,
    /// Extra for what is sent again, in percent of the file
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, conflicts_with = "time")]
    pub margin: f64,
    /// Name for people
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub label: String,
    /// Destination address of the traffic, by which the switch tells it from other traffic
    #[arg(long, value_name = "ADDR")]
    pub destination: Option<IpAddr>,
    /// Again and again, at this local time, like 22:00
    #[arg(long = "at", id = "at_hour", value_name = "HH:MM")]
    #[arg(requires_all = ["zone", "count"], conflicts_with_all = ["start", "deadline"])]
    pub at_hour: Option<String>,
    /// Local time by which a recurring file must be there
    #[arg(long = "by", value_name = "HH:MM", requires = "at_hour", conflicts_with = "time")]
    pub by_hour: Option<String>,
    /// Zone of these times, like Europe/Zurich
    #[arg(long, value_name = "ZONE", requires = "at_hour")]
    pub zone: Option<String>,
    /// Days of the week, like mon,thu [default: every day]
    #[arg(long, value_name = "DAY,...", value_delimiter = ',', requires = "at_hour")]
    pub on: Vec<String>,
    /// First day, like 2027-03-01 [default: today]
    #[arg(long, value_name = "DAY", requires = "at_hour")]
    pub first: Option<String>,
    /// How many times
    #[arg(long, value_name = "N", requires = "at_hour")]
    pub count: Option<u32>,
}

/// `longhaul circuits plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// What.
    #[command(flatten)]
    pub want: WantArgs,
}

/// `longhaul circuits request`.
#[derive(Args, Debug)]
pub struct RequestArgs {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// What.
    #[command(flatten)]
    pub want: WantArgs,
    /// Book a plan as it was quoted, instead
    #[arg(long, value_name = "QUOTE", conflicts_with_all = [
        "ends", "links", "bytes", "time", "max_rate", "start", "policy", "margin", "label",
        "destination", "at_hour", "hold_for",
    ])]
    pub quote: Option<String>,
    /// Keep it only for so long, until `circuits commit`
    #[arg(long, value_name = "TIME", value_parser = when::parse_time)]
    pub hold_for: Option<Duration>,
    /// Send again what may have been booked: the same key books once. Times have to be given in full
    /// then, since one that counts from now is another each time
    #[arg(long, value_name = "KEY", value_parser = parse_key)]
    pub key: Option<String>,
}

/// `longhaul circuits list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// Those that ended too
    #[arg(long)]
    pub all: bool,
}

/// `longhaul circuits show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// The booking
    pub id: u64,
}

/// A booking.
#[derive(Args, Debug)]
pub struct OneArgs {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// The booking
    pub id: u64,
}

/// `longhaul circuits modify`.
#[derive(Args, Debug)]
#[group(id = "changes", required = true, multiple = true)]
#[group(args = ["bytes", "time", "max_rate", "min_rate", "start", "deadline"])]
pub struct ModifyArgs {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// The booking
    pub id: u64,
    /// Size of the file
    #[arg(long, value_name = "SIZE", conflicts_with = "time")]
    pub bytes: Option<Bytes>,
    /// How long the circuit is wanted, like 90s or 2h
    #[arg(long, value_name = "TIME", value_parser = when::parse_time)]
    pub time: Option<Duration>,
    /// Most that the two hosts can use
    #[arg(long, value_name = "RATE")]
    pub max_rate: Option<Rate>,
    /// Least that is of use, of a circuit for a time
    #[arg(long, value_name = "RATE")]
    pub min_rate: Option<Rate>,
    /// When it may start, if it has not begun
    #[arg(long, value_name = "WHEN")]
    pub start: Option<When>,
    /// When the file must be there
    #[arg(long, value_name = "WHEN")]
    pub deadline: Option<When>,
}

/// `longhaul circuits extend`.
#[derive(Args, Debug)]
#[group(id = "more", required = true, multiple = false)]
#[group(args = ["bytes", "time"])]
pub struct ExtendArgs {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// The booking
    pub id: u64,
    /// Bytes more of a file
    #[arg(long, value_name = "SIZE")]
    pub bytes: Option<Bytes>,
    /// Time more of a circuit, like 90s or 2h
    #[arg(long, value_name = "TIME", value_parser = when::parse_time)]
    pub time: Option<Duration>,
}

/// `longhaul circuits cancel`.
#[derive(Args, Debug)]
pub struct CancelArgs {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// The booking, or any of a series
    pub id: u64,
    /// What is left of the whole series
    #[arg(long)]
    pub series: bool,
}

/// `longhaul circuits audit`.
#[derive(Args, Debug)]
pub struct AuditArgs {
    /// File or postgres:// URL that keeps the bookings; no service may use the file meanwhile
    pub store: String,
    /// Folder of records that have left the store (`archive` of its configuration); may be given
    /// several times. Without it, a log that was compacted is checked from there on
    #[arg(long, value_name = "FOLDER")]
    pub archive: Vec<PathBuf>,
}

/// `--policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// All that is free, at once: the earliest finish
    Earliest,
    /// As late as the deadline allows
    Latest,
    /// The lowest peak rate that meets the deadline
    LeastPeak,
    /// The maximum rate throughout
    Fixed,
}

/// `longhaul circuits simulate`.
#[derive(Args, Debug)]
pub struct SimulateArgs {
    /// Which experiment
    #[arg(value_enum, default_value_t = Experiment::Main)]
    pub experiment: Experiment,
    /// Independent runs of each point
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000))]
    pub seeds: Option<u64>,
    /// Requests in each run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..))]
    pub requests: Option<u32>,
    /// Offered load, a part of the link's capacity; `main` takes it several times
    #[arg(long, value_name = "X", value_parser = parse_load)]
    pub load: Vec<f64>,
    /// Threads to run on
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: u16,
    /// Draw the paper's figure 3 to a file (`main` only)
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Experiments of `longhaul circuits simulate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// File transfers over one link: booked as VBLS and its relatives, and packet-switched
    Main,
    /// What the tick of the schedule and the switching time cost
    Switching,
    /// Several links, and requests that know little
    Scenarios,
}

/// Reads an idempotency key.
fn parse_key(text: &str) -> Result<String, String> {
    let sound = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    sound.then(|| text.to_owned()).ok_or_else(|| "expected letters, digits and signs".into())
}

/// Reads a load above 0 and below 1.
fn parse_load(text: &str) -> Result<f64, String> {
    let load = text.parse().ok().filter(|load| *load > 0.0 && *load < 1.0);
    load.ok_or_else(|| "expected a number above 0 and below 1, like 0.8".into())
}

const SERVE_EXAMPLES: &str = "\
Examples:
  longhaul circuits serve --link gva-chi=gva-chi:100Gbps
                                       one link, a new token, bookings in longhaul-circuits.db
  longhaul circuits serve --config /etc/longhaul/circuits.toml";

const PLAN_EXAMPLES: &str = "\
Examples:
  longhaul circuits plan gva chi --bytes 40TB --max-rate 40Gbps --deadline +6h
  longhaul circuits plan gva chi --time 2h --max-rate 10Gbps --min-rate 2Gbps --start +1h";

const REQUEST_EXAMPLES: &str = "\
Examples:
  longhaul circuits request gva chi --bytes 40TB --max-rate 40Gbps --deadline +6h
  longhaul circuits request --quote 5f2c...            a plan as `circuits plan` quoted it
  longhaul circuits request gva chi --bytes 40TB --max-rate 40Gbps \\
      --at 22:00 --by 06:00 --zone Europe/Zurich --count 30";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  longhaul circuits simulate --seeds 5 --load 0.5 --load 0.9
  longhaul circuits simulate switching --json";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn simulations_are_large_enough_to_say_something() {
        let parsed = |words: &str| {
            let words = format!("longhaul circuits simulate {words}");
            crate::args::Cli::try_parse_from(words.split(' ')).is_ok()
        };
        assert!(parsed("--seeds 2 --requests 100 --threads 1"));
        for wrong in ["--requests 0", "--requests 99", "--seeds 1", "--threads 0"] {
            assert!(!parsed(wrong), "{wrong}");
        }
    }

    #[test]
    fn loads() {
        assert_eq!(parse_load("0.8"), Ok(0.8));
        for wrong in ["0", "1", "NaN", "x"] {
            assert!(parse_load(wrong).is_err(), "{wrong}");
        }
    }
}
