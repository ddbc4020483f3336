use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use longhaul_session::TokenKey;
use longhaul_wire::{DecodeError, Reader, option_fields};

use crate::options::{Kind, MAX_MESSAGE, begin, finish, put};
use crate::place::{Host, Place, cut, read_short, write_short};

/// The port of gateways, unless a route says another.
pub const GATEWAY_PORT: u16 = 7421;
/// Most gateways beyond the one that a header is sent to.
pub const MAX_HOPS: usize = 7;

/// Names a session on all its segments.
pub type SessionId = [u8; 16];

/// A time of day, in microseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clock(u64);

impl Clock {
    /// The time `micros` microseconds after 1970 began.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Microseconds between the two times, whichever is first.
    pub const fn abs_diff(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }

    /// Microseconds by which this time is ahead of `other`; negative where it is behind.
    pub const fn ahead_of(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// The time of a clock that is `offset` microseconds ahead.
    pub const fn moved_by(self, offset: i64) -> Self {
        Self(self.0.saturating_add_signed(offset))
    }

    /// So many microseconds later.
    pub const fn plus(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}

/// A gateway beyond the one that is addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Where it listens.
    pub place: Place,
    /// Its `--name`, where that is not the host of `place`; else empty.
    pub name: String,
    /// The transport towards it; empty: the gateway before it chooses.
    pub transport: String,
    /// Options of the transport: `name=value`, with spaces between.
    pub options: String,
}

impl Hop {
    /// The gateway as its dialler names it in a header: by its `--name`, where it has another one
    /// than that of its place.
    pub fn written(&self) -> Place {
        let host = Host::parse(&self.name).unwrap_or_else(|| self.place.host.clone());
        Place { host, port: self.place.port }
    }
}

impl fmt::Display for Hop {
    /// As [`FromStr`] reads it, without options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.name {
            "" => self.place.fmt(f),
            name => write!(f, "{name}@{}", self.place),
        }
    }
}

/// A text is not a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a gateway: HOST, HOST:PORT or NAME@HOST:PORT, with IPv6 in brackets, and ?OPTION=VALUE&... behind it"
)]
pub struct ParseHopError;

impl FromStr for Hop {
    type Err = ParseHopError;

    /// Reads `[NAME@]HOST[:PORT][?OPTION=VALUE[&OPTION=VALUE...]]`; the port is [`GATEWAY_PORT`] where none is
    /// named.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (text, options) = text.split_once('?').unwrap_or((text, ""));
        if options.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(ParseHopError);
        }
        let (name, place) = text.rsplit_once('@').unwrap_or(("", text));
        if text.contains('@') && Host::parse(name).is_none() {
            return Err(ParseHopError);
        }
        let with_port = || alloc::format!("{place}:{GATEWAY_PORT}").parse();
        let place: Place = place.parse().or_else(|_| with_port()).map_err(|_| ParseHopError)?;
        Ok(Self { name: name.into(), options: options.replace('&', " "), ..place.into() })
    }
}

/// A text does not name gateways.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseViaError {
    /// One of them.
    #[error("{text}: {error}")]
    Gateway {
        /// As it was written.
        text: String,
        /// The right form.
        error: ParseHopError,
    },
    /// None, or too many.
    #[error("a route has at most {} gateways", MAX_HOPS + 1)]
    Number,
    /// Options are for the segment towards a gateway, and this host makes that to the first.
    #[error("the first gateway takes no options: this host's own settings hold for that segment")]
    OwnSegment,
}

/// The gateways that `texts` name, in order: the first, to which the caller itself connects, and the others.
///
/// # Errors
/// One of them is not well written, they are none or too many, or the first has options.
pub fn parse_via<'t>(
    texts: impl IntoIterator<Item = &'t str>,
) -> Result<(Hop, Vec<Hop>), ParseViaError> {
    let parse = |text: &'t str| {
        text.parse().map_err(|error| ParseViaError::Gateway { text: text.into(), error })
    };
    let mut hops = texts.into_iter().map(parse).collect::<Result<Vec<Hop>, _>>()?;
    if hops.is_empty() || hops.len() > MAX_HOPS + 1 {
        return Err(ParseViaError::Number);
    }
    let first = hops.remove(0);
    match first.options.is_empty() {
        true => Ok((first, hops)),
        false => Err(ParseViaError::OwnSegment),
    }
}

impl From<Place> for Hop {
    fn from(place: Place) -> Self {
        Self { place, name: String::new(), transport: String::new(), options: String::new() }
    }
}

/// The end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where it listens.
    pub place: Place,
    /// Set: it speaks this protocol, and gets a header of its own.
    pub aware: bool,
}

/// Where a session goes, and what is known of it on each segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Random, the same on all segments.
    pub session: SessionId,
    /// Gateways beyond the one that is addressed, at most [`MAX_HOPS`].
    pub hops: Vec<Hop>,
    /// The end of the session.
    pub target: Target,
    /// The client that the first gateway let in, at most 255 bytes; empty where it is not known.
    pub client: String,
    /// The client's address, as the first gateway saw it.
    pub origin: Option<core::net::SocketAddr>,
    /// `name=value`, with spaces between, at most 1024 bytes.
    pub properties: String,
}

impl Route {
    /// The route of session `session` through the addressed gateway straight to `target`.
    pub const fn new(session: SessionId, target: Target) -> Self {
        Self {
            session,
            hops: Vec::new(),
            target,
            client: String::new(),
            origin: None,
            properties: String::new(),
        }
    }

    /// The route that is left beyond the next gateway, and that gateway; `None` where the target
    /// comes next.
    pub fn onward(&self) -> Option<(Hop, Self)> {
        let (next, rest) = self.hops.split_first()?;
        Some((next.clone(), Self { hops: rest.to_vec(), ..self.clone() }))
    }

    /// The header that takes this route to the gateway `addressed`, proven with `key`.
    ///
    /// # Errors
    /// There are too many hops, or the header would be longer than [`MAX_MESSAGE`].
    pub(crate) fn sign(
        &self,
        addressed: &Addressed,
        key: &TokenKey,
        time: Clock,
        nonce: [u8; 16],
    ) -> Result<(Vec<u8>, Proof), RouteError> {
        if self.hops.len() > MAX_HOPS {
            return Err(RouteError::TooManyHops);
        }
        let mut message = begin(Kind::Header);
        put(&mut message, true, SESSION, |out| out.extend_from_slice(&self.session));
        put(&mut message, true, ADDRESSED, |out| {
            addressed.written.write(out);
            addressed.dialled.write(out);
        });
        for hop in &self.hops {
            put(&mut message, true, HOP, |out| {
                hop.place.write(out);
                write_short(out, &hop.name);
                write_short(out, &hop.transport);
                out.extend_from_slice(hop.options.as_bytes());
            });
        }
        put(&mut message, true, TARGET, |out| {
            out.push(u8::from(self.target.aware));
            self.target.place.write(out);
        });
        if !self.client.is_empty() {
            let client = cut(&self.client, 255).as_bytes();
            put(&mut message, false, CLIENT, |out| out.extend_from_slice(client));
        }
        if let Some(origin) = self.origin {
            put(&mut message, false, ORIGIN, |out| Place::from(origin).write(out));
        }
        if !self.properties.is_empty() {
            let properties = cut(&self.properties, MAX_PROPERTIES).as_bytes();
            put(&mut message, false, PROPERTIES, |out| out.extend_from_slice(properties));
        }
        put(&mut message, true, CREDENTIAL, |out| {
            out.extend_from_slice(&key.id().0);
            out.extend_from_slice(&time.0.to_be_bytes());
            out.extend_from_slice(&nonce);
            out.extend_from_slice(&[0; PROOF_LEN]);
        });
        if message.len() > MAX_MESSAGE {
            return Err(RouteError::TooLong);
        }
        finish(&mut message, 0);
        message.truncate(message.len() - PROOF_LEN);
        let proof = key.prove(HEADER_LABEL, &[&message]);
        message.extend_from_slice(&proof);
        Ok((message, proof))
    }
}

/// A route cannot be written as a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// More gateways than a header has room for.
    #[error("a route has at most {} gateways", MAX_HOPS + 1)]
    TooManyHops,
    /// Names and options are too long together.
    #[error("the names of a route are longer than {MAX_MESSAGE} bytes in all")]
    TooLong,
}

/// The gateway that a header is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressed {
    /// As the user or the hop named it.
    pub written: Place,
    /// The address that was dialled.
    pub dialled: Place,
}

/// A header as it was received. Its proof is not judged yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The gateway that it is for.
    pub addressed: Addressed,
    /// Where the session goes from there.
    pub route: Route,
    pub(crate) key_id: [u8; 8],
    pub(crate) time: Clock,
    pub(crate) nonce: [u8; 16],
    pub(crate) proof: Proof,
    /// It has an option that matters, which this version does not know.
    pub(crate) has_unknown_critical: bool,
}

impl core::ops::Deref for Header {
    type Target = Route;

    fn deref(&self) -> &Route {
        &self.route
    }
}

impl Header {
    /// Reads the options of a header.
    ///
    /// # Errors
    /// They are not those of docs/relay.md section 2.
    pub(crate) fn decode(options: &[u8]) -> Result<Self, DecodeError> {
        let mut found = Found::default();
        for field in option_fields(options) {
            let (critical, number, value) = field?;
            if found.credential.is_some() {
                return Err(DecodeError::Trailing { what: "header" });
            }
            found.take(critical, number, value)?;
        }
        let missing = DecodeError::Truncated { what: "header" };
        let (key_id, time, nonce, proof) = found.credential.ok_or(missing)?;
        Ok(Self {
            addressed: found.addressed.ok_or(missing)?,
            route: Route {
                session: found.session.ok_or(missing)?,
                hops: found.hops,
                target: found.target.ok_or(missing)?,
                client: found.client.unwrap_or_default(),
                origin: found.origin,
                properties: found.properties.unwrap_or_default(),
            },
            key_id,
            time,
            nonce,
            proof,
            has_unknown_critical: found.unknown_critical,
        })
    }
}

#[derive(Default)]
struct Found {
    session: Option<SessionId>,
    addressed: Option<Addressed>,
    hops: Vec<Hop>,
    target: Option<Target>,
    client: Option<String>,
    origin: Option<core::net::SocketAddr>,
    properties: Option<String>,
    credential: Option<([u8; 8], Clock, [u8; 16], Proof)>,
    unknown_critical: bool,
}

impl Found {
    fn take(&mut self, critical: bool, number: u16, value: &[u8]) -> Result<(), DecodeError> {
        let mut r = Reader::new(value, "option of the header");
        match number {
            SESSION => once(&mut self.session, r.array()?)?,
            ADDRESSED => {
                let addressed =
                    Addressed { written: Place::read(&mut r)?, dialled: Place::read(&mut r)? };
                if addressed.dialled.address().is_none() {
                    return Err(r.invalid());
                }
                once(&mut self.addressed, addressed)?
            }
            HOP => {
                let place = Place::read(&mut r)?;
                let (name, transport) = (read_short(&mut r)?.into(), read_short(&mut r)?.into());
                let options = r.text(MAX_MESSAGE)?.into();
                self.hops.push(Hop { place, name, transport, options });
                if self.hops.len() > MAX_HOPS {
                    return Err(r.invalid());
                }
            }
            TARGET => {
                let aware = match r.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(r.invalid()),
                };
                once(&mut self.target, Target { place: Place::read(&mut r)?, aware })?
            }
            CLIENT => once(&mut self.client, r.text(255)?.into())?,
            ORIGIN => {
                let origin = Place::read(&mut r)?.address().ok_or(r.invalid())?;
                once(&mut self.origin, origin)?
            }
            PROPERTIES => once(&mut self.properties, r.text(MAX_PROPERTIES)?.into())?,
            CREDENTIAL => {
                let time = |r: &mut Reader<'_>| r.u64().map(Clock);
                let credential = (r.array()?, time(&mut r)?, r.array()?, r.array()?);
                once(&mut self.credential, credential)?
            }
            _ => {
                self.unknown_critical |= critical;
                return Ok(());
            }
        }
        if critical != !matches!(number, CLIENT | ORIGIN | PROPERTIES) {
            return Err(r.invalid());
        }
        r.finish()
    }
}

/// Sets an option that may stand once.
pub(crate) fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), DecodeError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(DecodeError::Invalid { what: "repeated option" }),
    }
}

pub(crate) type Proof = [u8; PROOF_LEN];
pub(crate) const PROOF_LEN: usize = 32;
pub(crate) const HEADER_LABEL: &str = "longhaul/1 relay header ";

const SESSION: u16 = 1;
const ADDRESSED: u16 = 2;
const HOP: u16 = 3;
const TARGET: u16 = 4;
const CLIENT: u16 = 5;
const ORIGIN: u16 = 6;
const PROPERTIES: u16 = 7;
const CREDENTIAL: u16 = 8;
const MAX_PROPERTIES: usize = 1024;
