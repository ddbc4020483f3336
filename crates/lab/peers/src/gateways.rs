//! `longhaul gateway serve` at nodes between.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use longhaul_relay::{
    Addressed, Answer, Clock, Dialled, Dialler, GATEWAY_PORT, MAX_MESSAGE, Place, Route, Target,
};
use longhaul_session::{Token, TokenKey, parse_token_file};
use longhaul_sys::clock::{self, WallTime};

use crate::contender::{Absent, End, Failure, Presence};
use crate::longhaul::{self, Commands};
use crate::relays::{Dial, Relay, addresses};
use crate::session::Session;

pub(crate) struct Gateways;

impl Relay for Gateways {
    const NAME: &'static str = "gateways";
    const ABOUT: &'static str = "Longhaul's gateways at the nodes between, over TCP";
    const USUAL: &'static [&'static str] =
        &["gateways cubic x1", "gateways cubic x8", "gateways bbr x1", "gateways bbr x8"];

    fn presence() -> Result<Presence, Absent> {
        longhaul::presence()
    }

    fn start(
        session: &mut Session<'_>,
        presence: &Presence,
        target: SocketAddr,
    ) -> Result<Dial, Failure> {
        let commands = Commands::new(session, presence)?;
        let gateways = start(session, &commands, target)?;
        let key = key(&commands).map_err(Failure::system("read a token"))?;
        Ok(Box::new(move |target, within| dial(&gateways, &key, target, within)))
    }
}

/// Starts a gateway at each node between, and gives their addresses. They lead to `target` alone.
pub(crate) fn start(
    session: &mut Session<'_>,
    commands: &Commands,
    target: SocketAddr,
) -> Result<Vec<SocketAddr>, Failure> {
    let addresses = addresses(session, GATEWAY_PORT);
    let via = &session.job().via;
    for (place, (waypoint, at)) in via.iter().zip(&addresses).enumerate() {
        let next = addresses.get(place + 1).unwrap_or(&target);
        let mut serve = commands.command(&["gateway", "serve", "--quiet"]);
        serve.args(["--listen", &at.to_string(), "--allow", &next.to_string()]);
        if let Some(name) = &waypoint.congestion_control {
            serve.args(["--congestion", name]);
        }
        let gateway = session.start(End::Between(place), serve)?;
        session.listening(gateway, GATEWAY_PORT)?;
    }
    Ok(addresses)
}

fn key(commands: &Commands) -> io::Result<TokenKey> {
    let text = fs::read_to_string(commands.token())?;
    let tokens = parse_token_file(&text).map_err(io::Error::other)?;
    tokens.first().map(Token::key).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Connects to the first gateway, and has it and those beyond it lead on to `target` (docs/relay.md).
fn dial(
    gateways: &[SocketAddr],
    key: &TokenKey,
    target: SocketAddr,
    within: Duration,
) -> io::Result<TcpStream> {
    let deadline = clock::now() + within;
    let (first, beyond) = gateways.split_first().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(first, within)?;
    let hops = beyond.iter().map(|address| Place::from(*address).into()).collect();
    let target = Target { place: target.into(), aware: false };
    let route = Route { hops, ..Route::new(random()?, target) };
    let addressed = Addressed { written: (*first).into(), dialled: (*first).into() };
    let now = Clock::from_micros(WallTime::now().as_nanos() / 1000);
    let signed = Dialler::new(&route, addressed, key, now, random()?);
    let (mut dialler, header) = signed.map_err(io::Error::other)?;
    stream.write_all(&header)?;
    let mut buffer = [0; MAX_MESSAGE];
    loop {
        let left = deadline.since(clock::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let wanted = dialler.wanted().min(buffer.len());
        let length = match stream.read(&mut buffer[..wanted]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        match dialler.receive(&buffer[..length]).map_err(io::Error::other)? {
            Dialled::Incomplete => {}
            Dialled::Connected { .. } => {
                stream.set_read_timeout(None)?;
                return Ok(stream);
            }
            Dialled::Refused(answer) | Dialled::Unproven(answer) => return Err(refusal(&answer)),
        }
    }
}

fn refusal(answer: &Answer) -> io::Error {
    let Answer { status, at, to, reason, .. } = answer;
    io::Error::other(format!("gateway {at} did not reach {to}: {status} ({reason})"))
}

/// Sixteen bytes that are nowhere twice.
fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
