//! How data travels between this host and a server: the options of `cp` and `pipe`.

pub(crate) mod choice;
pub(crate) mod circuit;
pub(crate) mod rate;

use longhaul::{ConnectOptions, Route, Token, Via};
use longhaul_rate_control::Profile;
use longhaul_relay::{ParseViaError, parse_via};
use longhaul_units::Rate;

use crate::args::{LinkArgs, RouteArgs};
use crate::failure::Failure;
use crate::history;
use crate::link::rate::RateChoice;
use crate::output::Output;
use crate::token;

/// Checks what can be checked before there is a server.
///
/// # Errors
/// They do not fit each other.
pub(crate) fn check(args: &LinkArgs) -> Result<(), Failure> {
    Profile::wished(
        Some(&args.profile),
        one_rate(args),
        parameters(args).iter().map(String::as_str),
    )
    .map(drop)
    .map_err(|error| Failure::usage(error.to_string()))
}

fn one_rate(args: &LinkArgs) -> Option<Rate> {
    args.rate.as_ref().and_then(RateChoice::one)
}

fn parameters(args: &LinkArgs) -> Vec<String> {
    let mut parameters = args.parameters.clone();
    parameters.extend(args.path.map(str::to_owned));
    parameters
}

/// To the server of `options`, as `args` say.
///
/// # Errors
/// There is no token for a gateway, or no such gateway.
pub(crate) fn fill(
    args: &LinkArgs,
    mut options: ConnectOptions,
    output: &Output,
) -> Result<ConnectOptions, Failure> {
    if let Some(rate) = one_rate(args).filter(|rate| *rate > Profile::RATE_MOST) {
        output.say(format!(
            "note: --rate: no socket sends at {rate}; {} is taken",
            Profile::RATE_MOST
        ));
    }
    options.routes = routes(&args.route, &options.token)?;
    options.profile.clone_from(&args.profile);
    options.rate = one_rate(args);
    options.rate_schedule = args.rate.as_ref().and_then(RateChoice::schedule);
    options.parameters = parameters(args);
    options.protect = args.protect;
    options.carrier = args.carrier;
    options.lanes = args.lanes;
    options.links.clone_from(&args.links);
    options.memory = args.memory;
    options.history = history::open(args.no_history, output);
    options.host_priority = args.host_priority;
    Ok(options)
}

/// The routes of `--via`, or that of the environment.
pub(crate) fn routes(args: &RouteArgs, token: &Token) -> Result<Vec<Route>, Failure> {
    let (texts, source) = match std::env::var(VIA) {
        Ok(text) if args.via.is_empty() && !text.is_empty() => (vec![text], VIA),
        _ => (args.via.clone(), "--via"),
    };
    if texts.iter().all(|text| text == DIRECT) {
        return Ok(texts.iter().map(|_| Route::Direct).collect());
    }
    let key = match &args.via_token_file {
        Some(file) => token::of_client(Some(file))?.key(),
        None => token.key(),
    };
    let route = |text: &String| {
        if text == DIRECT {
            return Ok(Route::Direct);
        }
        let (first, rest) = parse_via(text.split(',')).map_err(|error| {
            let colon = if matches!(error, ParseViaError::Gateway { .. }) { "" } else { ":" };
            Failure::usage(format!("{source}{colon} {error}"))
        })?;
        Ok(Route::Gateways(Via::new(first, rest, key.clone())))
    };
    texts.iter().map(route).collect()
}

/// The route without gateways.
const DIRECT: &str = "direct";
/// Gateways for those who name none.
const VIA: &str = "LONGHAUL_VIA";
