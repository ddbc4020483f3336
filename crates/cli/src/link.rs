//! How data travels between this host and a server, as `cp` and `pipe` are told.

pub(crate) mod circuit;

use std::sync::Arc;
use std::time::Duration;

use longhaul_history::History;
use longhaul_rate_control::Profile;
use longhaul_session::Token;
use longhaul_transfer::CarrierChoice;
use longhaul_units::{Bytes, Rate};
use longhaul_wire::Protect;

use crate::args::{CarrierArg, LinkArgs, PathArg, ProtectArg};
use crate::failure::Failure;
use crate::history;
use crate::output::Output;
use crate::token;

/// What [`LinkArgs`] mean.
pub(crate) struct LinkOptions {
    pub token: Token,
    pub profile: String,
    pub rate: Option<Rate>,
    pub parameters: Vec<String>,
    pub protect: Protect,
    pub carrier: CarrierChoice,
    pub lanes: u16,
    pub memory: Option<Bytes>,
    pub history: Option<Arc<History>>,
    pub host_priority: bool,
}

/// What `args` mean.
///
/// # Errors
/// They do not fit each other, or there is no token.
pub(crate) fn options(args: &LinkArgs, output: &Output) -> Result<LinkOptions, Failure> {
    let mut parameters = args.parameters.clone();
    if args.path == PathArg::Dedicated {
        parameters.push("path=dedicated".to_owned());
    }
    Profile::wished(Some(&args.profile), args.rate, parameters.iter().map(String::as_str))
        .map_err(|error| Failure::usage(error.to_string()))?;
    if let Some(rate) = args.rate.filter(|rate| *rate < RATE_MIN) {
        return Err(Failure::usage(format!(
            "--rate: {rate} is not one small packet a second; a rate is a number with its unit, as \
             in --rate 1Gbps"
        )));
    }
    let file = token::file_or_default(args.token_file.as_deref())?;
    Ok(LinkOptions {
        token: token::read(&file)?.swap_remove(0),
        profile: args.profile.clone(),
        rate: args.rate,
        parameters,
        protect: match args.protect {
            ProtectArg::Aead => Protect::Aead,
            ProtectArg::Integrity => Protect::Integrity,
            ProtectArg::Clear => Protect::Clear,
        },
        carrier: match args.carrier {
            CarrierArg::Auto => CarrierChoice::Auto,
            CarrierArg::Udp => CarrierChoice::Udp,
            CarrierArg::Tcp => CarrierChoice::Tcp,
        },
        lanes: args.lanes,
        memory: args.memory,
        history: history::open(args.no_history, output),
        host_priority: args.host_priority,
    })
}

/// Below it nothing would seem to move, and whoever asks for it has forgotten the unit.
const RATE_MIN: Rate = Rate::from_kbps(8);
/// The protocol's own (docs/protocol.md section 3).
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
