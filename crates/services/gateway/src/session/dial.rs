//! Dialling: from a route to a segment towards the next gateway or the target.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use longhaul_relay::{
    Addressed, Answer, Dialler, Hop, Place, Route, RouteError, Side, Status, proxy,
};

use super::asked::Asked;
use super::{Context, NEAR, Session, Stage, Turn, reset, status, words};
use crate::pump::Link;

/// A session on its way to the next hop.
#[derive(Debug)]
pub(super) struct Dialling {
    next: Next,
    addresses: VecDeque<SocketAddr>,
    /// Payload that came behind the header.
    payload: Vec<u8>,
    /// The next gateway was dialled again by the clock that it has proven.
    has_its_clock: bool,
    /// Why the last address was not reached.
    failure: Option<(Status, String)>,
    /// By which kind of connection.
    spare: Spare,
    /// The payload follows the header already.
    is_sent: bool,
}

/// Use of a connection that was kept open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spare {
    /// If there is one.
    Wanted,
    /// It is.
    Used,
    /// One had been closed: no more of them.
    Refused,
}

/// The next stop on the route.
#[derive(Debug)]
enum Next {
    /// A gateway, or a target that speaks the protocol, and the route that is left for it.
    Aware(Box<(Hop, Route)>),
    /// A target that knows of nothing, with the route that led here.
    Plain(Box<Route>),
}

/// Why there is no header for the next gateway. This gateway is to blame, or its operator.
#[derive(Debug, thiserror::Error)]
enum SignError {
    #[error("this gateway has no token for the next one (--via-token-file)")]
    NoToken,
    #[error("no address was dialled")]
    NotDialled,
    #[error("{0}")]
    Random(io::Error),
    #[error("{0}")]
    Route(#[from] RouteError),
}

impl Dialling {
    pub fn new(route: Route, payload: Vec<u8>) -> Self {
        let next = match route.onward() {
            Some(next) => Next::Aware(Box::new(next)),
            None if route.target.aware => {
                Next::Aware(Box::new((route.target.place.clone().into(), route)))
            }
            None => Next::Plain(Box::new(route)),
        };
        Self {
            next,
            addresses: VecDeque::new(),
            payload,
            has_its_clock: false,
            failure: None,
            spare: Spare::Wanted,
            is_sent: false,
        }
    }

    pub const fn next(&self) -> &Place {
        match &self.next {
            Next::Aware(next) => &next.0.place,
            Next::Plain(route) => &route.target.place,
        }
    }

    /// The transport that is asked for, and its options.
    fn transport(&self) -> [&str; 2] {
        match &self.next {
            Next::Aware(next) => [&next.0.transport, &next.0.options],
            Next::Plain(_) => [""; 2],
        }
    }

    /// The route, where its target comes next and is a name: a route of this gateway's own may
    /// depend on the name's addresses.
    fn undecided(&self) -> Option<&Route> {
        let route = match &self.next {
            Next::Aware(next) => Some(&next.1).filter(|route| next.0.place == route.target.place),
            Next::Plain(route) => Some(&**route),
        };
        route.filter(|route| route.hops.is_empty() && route.target.place.address().is_none())
    }
}

impl Session {
    pub(super) fn begin_dialling(&mut self, dialling: Dialling, cx: &mut Context<'_>) -> Turn {
        self.deadline = cx.now + self.admission.shared().dial_timeout;
        let place = dialling.next().clone();
        self.stage = Stage::Dialling(Box::new(dialling));
        match place.address() {
            Some(address) => self.resolved(Ok(vec![address]), cx),
            None => Turn::Resolve(place),
        }
    }

    /// The addresses of the place that [`Turn::Resolve`] named.
    pub fn resolved(
        &mut self,
        addresses: io::Result<Vec<SocketAddr>>,
        cx: &mut Context<'_>,
    ) -> Turn {
        let Stage::Dialling(dialling) = &mut self.stage else { return Turn::Waiting };
        match addresses {
            Ok(addresses) => {
                let policy = self.admission.shared().policy();
                let led = policy.routes.to_addresses(&addresses).filter(|led| !led.via.is_empty());
                if let Some((led, route)) = led.zip(dialling.undecided()) {
                    let route = Route { hops: led.via.clone(), ..route.clone() };
                    let payload = std::mem::take(&mut dialling.payload);
                    return self.begin_dialling(Dialling::new(route, payload), cx);
                }
                dialling.addresses = addresses.into();
                self.dial_next(cx)
            }
            Err(error) => self.refuse(Status::UNRESOLVED, &words(&error), cx),
        }
    }

    /// Dials the next address that is allowed, or gives up.
    fn dial_next(&mut self, cx: &mut Context<'_>) -> Turn {
        self.far = None;
        let shared = self.admission.shared().clone();
        let policy = shared.policy();
        let Stage::Dialling(dialling) = &mut self.stage else { return Turn::Waiting };
        while let Some(address) = dialling.addresses.pop_front() {
            if !policy.destinations.allow(address) {
                let reason = format!("{address} is not among its destinations");
                dialling.failure.get_or_insert((Status::FORBIDDEN, reason));
                continue;
            }
            let live = policy.segments.of(address.ip());
            let [wanted, options] = dialling.transport();
            let wanted = if wanted.is_empty() { &live.class.transport } else { wanted };
            let Some(transport) = shared.transport(wanted) else {
                let reason = format!("no transport \"{wanted}\"");
                return self.refuse(Status::UNSUPPORTED_TRANSPORT, &reason, cx);
            };
            let asked = match Asked::read(options, &live.class.settings, &**transport) {
                Ok(asked) => asked,
                Err(unmet) => {
                    return self.refuse(Status::UNSUPPORTED_OPTION, &unmet.to_string(), cx);
                }
            };
            let spare = match (&dialling.next, dialling.spare) {
                (Next::Aware(_), Spare::Wanted) if asked.is_nothing() => {
                    shared.spares.take(address)
                }
                _ => None,
            };
            if spare.is_some() {
                dialling.spare = Spare::Used;
            }
            let settings = asked.of(live.settings());
            match spare.map_or_else(|| transport.dial(address, &settings), Ok) {
                Ok(segment) => {
                    self.shares.ask(asked);
                    self.shares.join(Side::Far, address.ip(), cx.now);
                    self.summary.next = Some(address);
                    self.far = Some(Link::new(segment));
                    self.deadline = cx.now + shared.dial_timeout;
                    // What comes as soon as it stands finds its limits.
                    self.shares.forget_limit();
                    let limited = self.pace(Side::Far).map_err(|error| (Side::Far, error));
                    return match limited.and_then(|()| self.limit_memory()) {
                        Ok(()) => Turn::Dialled,
                        Err((side, error)) => Turn::Over(reset(side, &error)),
                    };
                }
                Err(error) => dialling.failure = Some((status(&error), reason(&error))),
            }
        }
        let failure = dialling.failure.take();
        let (status, reason) = failure.unwrap_or((Status::UNRESOLVED, "no address".into()));
        self.refuse(status, &reason, cx)
    }

    pub(super) fn dial_failed(&mut self, error: io::Error, cx: &mut Context<'_>) -> Turn {
        if let Stage::Dialling(dialling) = &mut self.stage {
            dialling.failure = Some((status(&error), reason(&error)));
        }
        self.dial_next(cx)
    }

    /// Looks how the dialling goes.
    pub(super) fn dial(&mut self, cx: &mut Context<'_>) -> super::Step {
        let Some(far) = &mut self.far else { return Ok(Turn::Waiting) };
        match far.segment.connected() {
            Ok(false) => {
                far.writable = false;
                return Ok(Turn::Waiting);
            }
            Ok(true) => {}
            Err(error) => return Ok(self.dial_failed(error, cx)),
        }
        far.writable = true;
        if let Err(error) = self.far_stands() {
            return Ok(self.dial_failed(error, cx));
        }
        let Stage::Dialling(dialling) = &self.stage else { return Ok(Turn::Waiting) };
        let Next::Aware(next) = &dialling.next else {
            if let Some(header) = self.proxy_header() {
                self.pumps[NEAR].put(&header);
            }
            self.connected(self.summary.next, &[], cx.now);
            return Ok(Turn::More);
        };
        let (dialler, header) = match self.sign(&next.0, &next.1, cx) {
            Ok(signed) => signed,
            Err(error) => return Ok(self.refuse(Status::INTERNAL, &error.to_string(), cx)),
        };
        self.pumps[NEAR].restart();
        self.pumps[NEAR].put(&header);
        self.deadline = cx.now + self.admission.shared().dial_timeout;
        if let Stage::Dialling(mut dialling) = std::mem::replace(&mut self.stage, Stage::Relaying) {
            // A spare connection may turn out to be closed: who dials again must not send twice.
            dialling.is_sent = dialling.spare != Spare::Used;
            if dialling.is_sent {
                self.pumps[NEAR].put(&dialling.payload);
            }
            self.stage = Stage::Answering { dialling, dialler: Box::new(dialler) };
        }
        Ok(Turn::More)
    }

    /// A header by which the target learns of its client, where a route says so.
    fn proxy_header(&self) -> Option<Vec<u8>> {
        let Stage::Dialling(dialling) = &self.stage else { return None };
        let (Next::Plain(route), Some(target)) = (&dialling.next, self.summary.next) else {
            return None;
        };
        let policy = self.admission.shared().policy();
        let of_name = policy.routes.to(&route.target.place);
        let decided = of_name.or_else(|| policy.routes.to_addresses(&[target]))?;
        let origin = route.origin.filter(|_| decided.proxy_protocol)?;
        Some(proxy::encode(origin, target))
    }

    /// The header for the next gateway, proven with this gateway's token.
    fn sign(
        &self,
        hop: &Hop,
        route: &Route,
        cx: &Context<'_>,
    ) -> Result<(Dialler, Vec<u8>), SignError> {
        let shared = self.admission.shared();
        let policy = shared.policy();
        let key = policy.via_key.as_ref();
        let key = key.ok_or(SignError::NoToken)?;
        let dialled = self.summary.next.ok_or(SignError::NotDialled)?;
        let clock = shared.clocks.at(dialled, cx.clock);
        let nonce = (cx.random)().map_err(SignError::Random)?;
        let addressed = Addressed { written: hop.written(), dialled: dialled.into() };
        Ok(Dialler::new(route, addressed, key, clock, nonce)?)
    }

    /// The connection ended before an answer came. A spare one may have been closed long ago: that
    /// gateway is dialled once more.
    pub(super) fn lost(&mut self, status: Status, reason: &str, cx: &mut Context<'_>) -> Turn {
        match std::mem::replace(&mut self.stage, Stage::Relaying) {
            Stage::Answering { mut dialling, .. } if dialling.spare == Spare::Used => {
                dialling.spare = Spare::Refused;
                dialling.addresses.extend(self.summary.next);
                dialling.addresses.rotate_right(1);
                self.stage = Stage::Dialling(dialling);
                self.dial_next(cx)
            }
            stage => {
                self.stage = stage;
                self.refuse(status, reason, cx)
            }
        }
    }

    /// A wrong clock, once in a session of the next gateway's own, which it has proven; else of one beyond it.
    pub(super) fn dial_with_clock(&mut self, answer: Answer, cx: &mut Context<'_>) -> Turn {
        let stage = std::mem::replace(&mut self.stage, Stage::Relaying);
        let Stage::Answering { mut dialling, .. } = stage else { return Turn::Waiting };
        let Some((time, address)) = answer.time.zip(self.summary.next) else {
            self.stage = Stage::Dialling(dialling);
            return self.pass_refusal(answer, cx);
        };
        let clocks = &self.admission.shared().clocks;
        if dialling.has_its_clock || !clocks.believe(address, time, cx.clock) {
            self.stage = Stage::Dialling(dialling);
            let reason = "and it says another time than before";
            return self.refuse(Status::WRONG_CLOCK, reason, cx);
        }
        dialling.has_its_clock = true;
        dialling.addresses.push_front(address);
        self.stage = Stage::Dialling(dialling);
        self.dial_next(cx)
    }

    /// The far end stands: what the client sent behind its header goes there first.
    pub(super) fn send_early_payload(&mut self) {
        if let Stage::Dialling(dialling) | Stage::Answering { dialling, .. } = &mut self.stage {
            match dialling.is_sent {
                true => self.pumps[NEAR].count(dialling.payload.len()),
                false => self.pumps[NEAR].put_payload(&std::mem::take(&mut dialling.payload)),
            }
        }
    }
}

/// Why an address could not be dialled.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            "no local port is free: net.ipv4.ip_local_port_range names them".into()
        }
        _ => words(error),
    }
}
