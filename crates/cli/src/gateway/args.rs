//! The words of `longhaul gateway`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::run::args::{RUN_EXAMPLES, RunArgs};

/// `longhaul gateway`.
#[derive(Args, Debug)]
pub struct GatewayArgs {
    /// The service or tool.
    #[command(subcommand)]
    pub command: GatewayCommand,
}

/// The commands of `longhaul gateway`.
#[derive(Debug, Subcommand)]
pub enum GatewayCommand {
    /// Pass sessions on, each segment with a connection of its own
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// Run a program whose TCP connections go through gateways, without its knowledge
    ///
    /// A library stands in front of the program's `connect`: its outgoing TCP connections go through the
    /// gateways, those of its children too. It has to be linked with the C library dynamically; static,
    /// Go and set-user-id programs are refused, since nothing can stand in front of them. UDP and name
    /// resolution are as without. The token stays in its file, which the program and its children read
    /// when they connect first: their environment has only the file's name.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Say what is wrong with a configuration of `gateway serve`
    ///
    /// Reads a file as `gateway serve --config` does, with the files that it names, and says all that
    /// is wrong, by line. Status 0: nothing is.
    Check(CheckArgs),
    /// Show the sessions of a gateway, the state of their segments, and which of them holds them up
    ///
    /// Each session with the segment towards its client and the one onward: transport, round trip, rate,
    /// what was sent again, buffers, and the part of the time in which bytes waited for it.
    Status(StatusArgs),
}

/// `longhaul gateway status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Address on this host's loopback that the gateway has as --metrics
    #[arg(value_name = "ADDR:PORT", default_value = "127.0.0.1:7422")]
    pub at: std::net::SocketAddr,
}

/// `longhaul gateway check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The configuration
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `longhaul gateway serve`.
///
/// A long path in two or more segments: losses are repaired and buffers sized for each segment, not
/// for the whole path. Clients are `longhaul cp --via`, whatever speaks SOCKS5, and programs that
/// connect to a forwarded port. Payload is never looked at. Nothing is passed on to destinations
/// that --allow does not name.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Everything from a TOML file, in place of options: its keys are their names, with _ for -,
    /// and it has routes and settings of segments (docs/gateways.md). SIGHUP reads it again
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "listen", "token_file", "allow", "socks", "socks_password_file", "forward", "from", "via",
        "neighbour_token_file", "via_token_file", "name", "congestion", "max_sessions", "max_sessions_per_client", "memory",
        "spares", "metrics", "drain",
    ])]
    pub config: Option<PathBuf>,
    /// Address for clients and gateways with a token; repeatable [default port: 7421]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,
    /// File with the tokens that may use this gateway, one a line
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Destination that may be dialled, an address or a range, perhaps with one port; next gateways
    /// too; repeatable. Loopback, link-local and this host's own addresses need a rule for just them
    #[arg(long, value_name = "PREFIX[:PORT]", required_unless_present = "config")]
    pub allow: Vec<String>,
    /// Address for SOCKS5 clients; repeatable
    #[arg(long, value_name = "ADDR:PORT")]
    pub socks: Vec<String>,
    /// File with USER:PASSWORD lines, one of which SOCKS5 clients have to know
    #[arg(long, value_name = "FILE", requires = "socks")]
    pub socks_password_file: Option<PathBuf>,
    /// Port whose clients all go to one target, on loopback unless ADDR says; repeatable
    #[arg(long, value_name = "[ADDR:]PORT=HOST:PORT")]
    pub forward: Vec<String>,
    /// Addresses from which SOCKS5 and forwarded clients may come, besides loopback; repeatable
    #[arg(long, value_name = "PREFIX")]
    pub from: Vec<String>,
    /// Gateways through which SOCKS5 and forwarded clients are led, in order
    #[arg(long, value_name = "[NAME@]HOST[:PORT]", value_delimiter = ',')]
    pub via: Vec<String>,
    /// File with the tokens of neighbouring gateways, which may use this one too, and are believed
    /// about the names and addresses of their clients
    #[arg(long, value_name = "FILE")]
    pub neighbour_token_file: Option<PathBuf>,
    /// File with the token for the next gateway [default: the first of --token-file]
    #[arg(long, value_name = "FILE")]
    pub via_token_file: Option<PathBuf>,
    /// Name by which clients address this gateway: needed behind an address translation
    /// [default: the address that they dial]
    #[arg(long)]
    pub name: Option<String>,
    /// Congestion control of all segments, such as bbr [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Most sessions at a time [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_sessions: Option<u32>,
    /// Most sessions of one client: a user or an address with a token [default: as many as there are]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_sessions_per_client: Option<u32>,
    /// Most memory that sessions hold together, the kernel's buffers included; each place has 64 KiB of
    /// it [default: a quarter of what this process may have]
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<String>,
    /// Connections kept open to each gateway that sessions went to of late: the next one is set up a
    /// round trip faster [default: 0]
    #[arg(long, value_name = "N")]
    pub spares: Option<u32>,
    /// Where Prometheus may look, and on loopback `gateway status`: only there clients are named
    #[arg(long, value_name = "[ADDR:]PORT")]
    pub metrics: Option<String>,
    /// Time that SIGTERM leaves to sessions before they are reset [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub drain: Option<String>,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  longhaul gateway serve --listen 192.0.2.1:7421 --token-file tokens --allow 198.51.100.0/24
      a gateway for everybody who has one of the tokens, to one network
  longhaul gateway serve --socks 127.0.0.1:1080 --token-file tokens --via far.example \\
      --allow 203.0.113.9:7421
      SOCKS5 for this host: `curl --socks5-hostname 127.0.0.1:1080 URL`
  longhaul gateway serve --config /etc/longhaul/gateway.toml
      everything from a file, which `longhaul gateway check` judges
  longhaul gateway serve --forward 8443=data.example:443 --allow 198.51.100.7:443
      `curl https://localhost:8443/` reaches data.example";
