//! The words of `longhaul gateway run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// `longhaul gateway run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Gateways, in order [default: those of LONGHAUL_VIA; port 7421]
    #[arg(long, value_name = "[NAME@]HOST[:PORT]", value_delimiter = ',')]
    pub via: Vec<String>,
    /// File with the token that the first gateway knows [default: ~/.config/longhaul/token]
    #[arg(long, value_name = "FILE")]
    pub via_token_file: Option<PathBuf>,
    /// Destination that is reached through the gateways, an address or a range, perhaps with one port;
    /// repeatable. Loopback, link-local and multicast addresses need a rule that lies within those
    /// ranges [default: all others]
    #[arg(long, value_name = "PREFIX[:PORT]")]
    pub to: Vec<String>,
    /// Connect directly, with a message, where a gateway cannot be reached
    #[arg(long)]
    pub direct_if_unreachable: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub command: Vec<OsString>,
}

pub(in crate::gateway) const RUN_EXAMPLES: &str = "\
Examples:
  longhaul gateway run --via gw.example -- iperf3 -c 198.51.100.7 -P 8
      all connections of iperf3 go through gw.example
  longhaul gateway run --via gw.example,far.example --to 198.51.100.0/24 \\
      --direct-if-unreachable -- curl https://data.example/run-17
      only those to one network, through two gateways";
