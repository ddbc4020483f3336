//! `longhaul gateway serve` at nodes between.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use longhaul_relay::GATEWAY_PORT;
use longhaul_relay_client::{self as relay_client, Step};
use longhaul_sys::clock;

use crate::contender::{Absent, ContenderError, End, Presence};
use crate::longhaul::commands::{self, Commands};
use crate::relays::{Dial, Relay, addresses};
use crate::session::Session;

pub(crate) struct Gateways;

impl Relay for Gateways {
    const NAME: &'static str = "gateways";
    const ABOUT: &'static str = "Longhaul's gateways at the nodes between, over TCP";
    const TAKES_SPARES: bool = true;
    const USUAL: &'static [&'static str] =
        &["gateways cubic x1", "gateways cubic x8", "gateways bbr x1", "gateways bbr x8"];

    fn presence() -> Result<Presence, Absent> {
        commands::presence()
    }

    fn start(
        session: &mut Session<'_>,
        presence: &Presence,
        target: SocketAddr,
    ) -> Result<Dial, ContenderError> {
        let commands = Commands::new(session, presence)?;
        let addresses = start(session, &commands, &target.to_string())?;
        let first = addresses[0];
        let via: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        let ready = || -> Result<_, Box<dyn Error + Send + Sync>> {
            let key = relay_client::read_token(commands.token())?;
            Ok(relay_client::Gateways::new(&via.join(","), key)?)
        };
        let ready = ready().map_err(io::Error::other);
        let gateways = ready.map_err(ContenderError::system("read a token"))?;
        Ok(Box::new(move |target, within| dial(&gateways, first, target, within)))
    }
}

/// Starts a gateway at each node between, and gives their addresses. They lead to `target` alone, an address
/// with a port or without.
pub(crate) fn start(
    session: &mut Session<'_>,
    commands: &Commands,
    target: &str,
) -> Result<Vec<SocketAddr>, ContenderError> {
    let addresses = addresses(session, GATEWAY_PORT);
    let via = &session.job().via;
    for (place, (waypoint, at)) in via.iter().zip(&addresses).enumerate() {
        let next = addresses.get(place + 1).map(SocketAddr::to_string);
        let next = next.as_deref().unwrap_or(target);
        let mut serve = commands.command(&["gateway", "serve", "--quiet"]);
        serve.args(["--listen", &at.to_string(), "--allow", next]);
        if let Some(name) = &waypoint.congestion_control {
            serve.args(["--congestion", name]);
        }
        if waypoint.spares > 0 {
            serve.args(["--spares", &waypoint.spares.to_string()]);
        }
        let gateway = session.start(End::Between(place), serve)?;
        session.listening(gateway, GATEWAY_PORT)?;
    }
    Ok(addresses)
}

/// Connects to the first gateway, and has it and those beyond it lead on to `target`.
fn dial(
    gateways: &relay_client::Gateways,
    first: SocketAddr,
    target: SocketAddr,
    within: Duration,
) -> io::Result<TcpStream> {
    let deadline = clock::now() + within;
    let stream = TcpStream::connect_timeout(&first, within)?;
    let mut attempt = gateways.dial(target.into(), first).map_err(io::Error::other)?;
    loop {
        let left = deadline.since(clock::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match attempt.advance(|bytes| (&stream).write(bytes), |buffer| (&stream).read(buffer)) {
            Step::Waiting => {}
            Step::Connected(_) => {
                stream.set_read_timeout(None)?;
                return Ok(stream);
            }
            Step::WrongClock(_, failure) | Step::Failed(failure) => {
                return Err(io::Error::other(failure.words));
            }
        }
    }
}
