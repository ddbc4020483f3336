//! The two hosts: processes that dial and answer, crash and start again.

use std::num::NonZeroU32;

use longhaul_rate_control::{ChosenProfile, Profile, Unplayable};
use longhaul_session::{
    ClientConfig, ClientHandshake, ClientProgress, Keyring, ServerConfig, ServerHandshake,
    ServerProgress, Session, SessionSecret, Token,
};
use longhaul_units::{Duration, Instant};
use longhaul_wire::{Carrier, CloseCode, ControlMessage, Hello};

use crate::draw::Draw;
use crate::scenario::{End, Scenario};
use crate::tls::{ByteChannel, Piece};

/// The control connection: both directions and the secret that its ends share.
#[derive(Debug)]
pub(crate) struct Control {
    pub up: ByteChannel,
    pub down: ByteChannel,
    secret: [u8; 32],
}

impl Control {
    pub fn new(scenario: &Scenario, draw: &mut Draw) -> Self {
        let channel = || ByteChannel::new(scenario.pipe_delay);
        Self { up: channel(), down: channel(), secret: draw.bytes() }
    }
}

/// State of one end's handshake.
#[derive(Debug)]
pub(crate) enum Handshake {
    Client(ClientHandshake, Box<ChosenProfile>, Instant),
    Server(ServerHandshake),
    /// Done, one way or the other.
    Over,
}

/// The terms that a handshake has agreed on.
#[derive(Debug)]
pub(crate) struct Shaken {
    pub session: Box<Session>,
    /// The profile that this end plays.
    pub chosen: Box<ChosenProfile>,
    /// Time that the peer took to answer.
    pub round_trip: Option<Duration>,
}

/// Outcome of a handshake.
pub(crate) enum Outcome {
    /// It goes on.
    Pending,
    Done(Shaken),
    Failed(CloseCode, String),
}

impl Handshake {
    pub fn client(
        scenario: &Scenario,
        carrier: Carrier,
        control: &mut Control,
        now: Instant,
        draw: &mut Draw,
    ) -> Self {
        let key = token(scenario.authorized).key();
        let chosen = scenario.chosen();
        // A server that has little to send gets no limit, but what its profile needs.
        let has_limit = chosen.profile.needs_rate || scenario.source() == End::Server;
        let config = ClientConfig {
            protect: scenario.protect,
            carrier,
            lanes: scenario.lanes,
            profile: Some(chosen.profile.name.into()),
            rate: chosen.rate.filter(|_| has_limit),
            parameters: chosen.parameters.for_peer(),
            ..ClientConfig::default()
        };
        let secret = SessionSecret::new(control.secret);
        let (handshake, hello) = ClientHandshake::new(&config, &key, secret, now);
        control.up.send(now, &hello, draw);
        Self::Client(handshake, Box::new(chosen), now)
    }

    pub fn server(scenario: &Scenario, control: &Control, now: Instant) -> Self {
        let config = ServerConfig {
            udp_port: Some(7420),
            tcp: true,
            max_lanes: scenario.max_lanes,
            ..ServerConfig::default()
        };
        Self::Server(ServerHandshake::new(config, SessionSecret::new(control.secret), now))
    }

    /// Takes in what the control connection brought. `connection` is the number that a server gives.
    pub fn handle(
        &mut self,
        piece: &Piece,
        control: &mut Control,
        now: Instant,
        connection: NonZeroU32,
        draw: &mut Draw,
    ) -> Outcome {
        let Piece::Bytes(bytes) = piece else {
            *self = Self::Over;
            return Outcome::Failed(CloseCode::INTERNAL, "the control connection broke".into());
        };
        match core::mem::replace(self, Self::Over) {
            Self::Client(handshake, chosen, since) => match handshake.handle(bytes) {
                Ok(ClientProgress::NeedMore(handshake)) => {
                    *self = Self::Client(handshake, chosen, since);
                    Outcome::Pending
                }
                Ok(ClientProgress::Done(session)) => {
                    let round_trip = Some(now - since);
                    Outcome::Done(Shaken { session: Box::new(session), chosen, round_trip })
                }
                Err(error) => {
                    control.up.send(now, &error.close_message(), draw);
                    control.up.close(now);
                    failed(&error)
                }
            },
            Self::Server(handshake) => {
                let keyring: Keyring = [&token(true)].into_iter().collect();
                match handshake.handle(bytes, &keyring) {
                    Ok(ServerProgress::NeedMore(handshake)) => {
                        *self = Self::Server(handshake);
                        Outcome::Pending
                    }
                    Ok(ServerProgress::Verified(client)) => {
                        let chosen = match wished(client.hello()) {
                            Ok(chosen) => Box::new(chosen),
                            Err(why) => {
                                let refused =
                                    client.refuse(CloseCode::UNSUPPORTED_OPTION, &why.to_string());
                                control.down.send(now, &refused, draw);
                                control.down.close(now);
                                return Outcome::Failed(
                                    CloseCode::UNSUPPORTED_OPTION,
                                    why.to_string(),
                                );
                            }
                        };
                        let (session, welcome) = client.accept(connection);
                        control.down.send(now, &welcome, draw);
                        let session = Box::new(session);
                        Outcome::Done(Shaken { session, chosen, round_trip: None })
                    }
                    Err(error) => {
                        control.down.send(now, &error.close_message(), draw);
                        control.down.close(now);
                        failed(&error)
                    }
                }
            }
            Self::Over => Outcome::Pending,
        }
    }

    /// Gives up when it is time.
    pub fn handle_timeout(&mut self, now: Instant) -> Outcome {
        let result = match self {
            Self::Client(handshake, ..) => handshake.handle_timeout(now),
            Self::Server(handshake) => handshake.handle_timeout(now),
            Self::Over => return Outcome::Pending,
        };
        match result {
            Ok(()) => Outcome::Pending,
            Err(error) => {
                *self = Self::Over;
                failed(&error)
            }
        }
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Client(handshake, ..) => Some(handshake.next_timeout()),
            Self::Server(handshake) => Some(handshake.next_timeout()),
            Self::Over => None,
        }
    }
}

fn failed(error: &longhaul_session::HandshakeError) -> Outcome {
    let code = match error {
        longhaul_session::HandshakeError::Closed { code, .. } => *code,
        _ => error.close_code().unwrap_or(CloseCode::INTERNAL),
    };
    Outcome::Failed(code, error.to_string())
}

/// Profile that a server plays, as its client wishes.
fn wished(hello: &Hello) -> Result<ChosenProfile, Unplayable> {
    let parameters = hello.parameters.as_deref().unwrap_or_default().split_whitespace();
    Profile::wished(hello.profile.as_deref(), hello.rate, parameters)
}

/// Reads the messages of the control connection after the handshake: only CLOSE matters here.
pub(crate) fn close_in(bytes: &[u8]) -> Option<(CloseCode, String)> {
    match ControlMessage::parse(bytes) {
        Ok(Some((ControlMessage::Close { code, reason }, _))) => Some((code, reason.into())),
        _ => None,
    }
}

/// The server's token, or another.
fn token(right: bool) -> Token {
    Token::from_random([if right { 7 } else { 8 }; 16])
}
