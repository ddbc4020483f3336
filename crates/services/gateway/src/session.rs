//! One session at a gateway: from the first byte of a client to the end of both directions.

mod asked;
mod dial;
mod shares;
mod status;

use std::io;
use std::net::SocketAddr;

use longhaul_relay::{
    Answer, Clock, Dialled, Dialler, Ends, MAX_MESSAGE, Place, Route, Side, Status,
};
use longhaul_units::Instant;

use crate::ending::{Ending, Summary};
use crate::entry::{Arrival, Entered, Entry};
use crate::pump::{Flow, Link, Pool, Pump};
use crate::shared::Admission;
use crate::transport::{Direction, Segment};
use dial::Dialling;
use shares::Shares;

/// The driver's part in each call.
#[derive(Debug)]
pub struct Context<'a> {
    /// The time.
    pub now: Instant,
    /// The time of day.
    pub clock: Clock,
    /// Random bytes that no call has seen.
    pub random: fn() -> io::Result<[u8; 16]>,
    /// Pipes and a buffer.
    pub pool: &'a mut Pool,
}

/// Outcome of a call.
#[derive(Debug)]
pub enum Turn {
    /// Nothing can be done until a segment is ready or time has passed.
    Waiting,
    /// More can be done at once.
    More,
    /// A name has to be resolved; [`Session::resolved`] takes the addresses.
    Resolve(Place),
    /// A new segment stands or is being dialled: its readiness is to be watched.
    Dialled,
    /// The session is over and can be dropped, which resets what has not ended.
    Over(Ending),
}

/// A session; the driver calls [`Self::run`] when a segment is ready and [`Self::look`] at times.
#[derive(Debug)]
pub struct Session {
    admission: Admission,
    entry: Box<dyn Entry>,
    client: SocketAddr,
    local: Place,
    near: Link,
    far: Option<Link>,
    stage: Stage,
    /// By the side that sends.
    pumps: [Pump; 2],
    ends: Ends,
    /// A side closed before it had everything, when both directions had ended.
    left: Option<Side>,
    shares: Shares,
    began: Instant,
    deadline: Instant,
    /// For the log.
    pub summary: Summary,
}

#[derive(Debug)]
enum Stage {
    /// The client says what it wants.
    Entering { received: Vec<u8> },
    /// The next hop's name is being resolved, or it is being dialled.
    Dialling(Box<Dialling>),
    /// The next gateway has the header.
    Answering { dialling: Box<Dialling>, dialler: Box<Dialler> },
    /// Payload passes.
    Relaying,
    /// The client gets a refusal, and the time to read it.
    Refusing(Ending),
}

impl Session {
    /// The session of a client that has arrived at `local` by `segment`.
    ///
    /// # Errors
    /// The segment broke already.
    pub fn new(
        admission: Admission,
        entry: Box<dyn Entry>,
        segment: Box<dyn Segment>,
        client: SocketAddr,
        now: Instant,
    ) -> io::Result<Self> {
        let local = segment.local_address()?.into();
        let silence = match entry.is_led() {
            true => admission.shared().header_timeout,
            // It may be a neighbour's spare connection.
            false => admission.shared().spare_timeout,
        };
        let deadline = now + silence;
        let mut shares = Shares::new(&admission);
        let mut near = Link::new(segment);
        near.segment.change(&shares.join(Side::Near, client.ip(), now))?;
        let mut session = Self {
            admission,
            entry,
            client,
            local,
            near,
            far: None,
            stage: Stage::Entering { received: Vec::new() },
            pumps: Default::default(),
            ends: Ends::default(),
            left: None,
            shares,
            began: now,
            deadline,
            summary: Summary::default(),
        };
        session.pace(Side::Near)?;
        Ok(session)
    }

    /// The link to a side.
    pub fn link(&mut self, side: Side) -> Option<&mut Link> {
        match side {
            Side::Near => Some(&mut self.near),
            Side::Far => self.far.as_mut(),
        }
    }

    /// The client has asked for something.
    pub const fn has_entered(&self) -> bool {
        !matches!(self.stage, Stage::Entering { .. })
    }

    /// The client was let in, and holds one of the places of sessions.
    pub const fn is_inside(&self) -> bool {
        self.admission.is_inside()
    }

    /// How it ends where the gateway stops now.
    pub fn stopped(&self) -> Ending {
        match &self.stage {
            Stage::Refusing(ending) => ending.clone(),
            _ => Ending::Stopped,
        }
    }

    /// The same ending, but a client that was not let in has no session that could break.
    pub fn settled(&self, ending: Ending) -> Ending {
        match ending {
            Ending::Reset(..) if !self.is_inside() => Ending::NotEntered(ending.to_string()),
            ending => ending,
        }
    }

    /// Does what can be done.
    pub fn run(&mut self, cx: &mut Context<'_>) -> Turn {
        let turn = match &self.stage {
            Stage::Entering { .. } => self.enter(cx),
            Stage::Dialling(_) => self.dial(cx),
            Stage::Answering { .. } => self.await_answer(cx),
            Stage::Relaying => self.relay(cx),
            Stage::Refusing(_) => self.refuse_on(cx),
        };
        self.summary.bytes = [self.pumps[NEAR].taken(), self.pumps[FAR].taken()];
        turn.unwrap_or_else(Turn::Over)
    }

    /// Looks at what no readiness tells: deadlines and silent peers.
    pub fn look(&mut self, cx: &mut Context<'_>) -> Turn {
        let late = cx.now >= self.deadline;
        if self.admission.had_to_go() {
            let why = "others took its place before it proved who it is".into();
            return Turn::Over(Ending::NotEntered(why));
        }
        if let Err((side, error)) = self.look_at_shares(cx.now) {
            return Turn::Over(reset(side, &error));
        }
        match &self.stage {
            Stage::Entering { .. } if late => {
                return Turn::Over(Ending::NotEntered(
                    "it did not say in time what it wants".into(),
                ));
            }
            Stage::Dialling(_) if late => {
                return self.dial_failed(io::ErrorKind::TimedOut.into(), cx);
            }
            Stage::Answering { .. } if late => {
                return self.refuse(Status::TIMEOUT, "it did not answer in time", cx);
            }
            Stage::Refusing(ending) if late => return Turn::Over(ending.clone()),
            Stage::Relaying if late => {
                self.deadline = cx.now + SILENCE_CHECK;
                for side in Side::BOTH {
                    let limit = self.admission.shared().silence_timeout;
                    let (is_closing, is_over) =
                        (self.ends.is_closing(side), self.ends.may_close(side));
                    let Some(link) = self.link(side).filter(|_| !is_over) else { continue };
                    match link.segment.statistics() {
                        Ok(seen) if seen.silence < limit => {}
                        Ok(_) => return Turn::Over(Ending::Silent(side)),
                        // How it closed is looked at below.
                        Err(_) if is_closing => {}
                        // Where it only ended, what came before may wait to be read.
                        Err(_) => {
                            if let Err(error) = link.segment.check() {
                                return Turn::Over(reset(side, &error));
                            }
                        }
                    }
                }
                // The peer's last acknowledgement need not make a segment ready.
                if Side::BOTH.iter().any(|side| self.ends.is_closing(*side)) {
                    return self.run(cx);
                }
            }
            _ => {}
        }
        Turn::Waiting
    }

    fn enter(&mut self, cx: &mut Context<'_>) -> Step {
        let Stage::Entering { received } = &mut self.stage else { return Ok(Turn::Waiting) };
        let mut received = std::mem::take(received);
        let policy = self.admission.shared().policy();
        loop {
            let mut arrival = Arrival {
                peer: self.client,
                local: self.local.clone(),
                clock: cx.clock,
                random: (cx.random)().map_err(|error| Ending::NotEntered(error.to_string()))?,
                gatekeeper: &self.admission.shared().gatekeeper,
                neighbours: &policy.neighbours,
            };
            match self.entry.receive(&received, &mut arrival) {
                Entered::Incomplete { used, reply } => {
                    received.drain(..used);
                    self.reply(&reply, cx)?;
                    if used > 0 {
                        continue;
                    }
                }
                Entered::Refused { reply, why } => {
                    return Ok(self.begin_refusal(&reply, Ending::NotEntered(why), cx));
                }
                Entered::Asked { used, mut route, client } => {
                    self.summary.target = route.target.place.to_string();
                    received.drain(..used);
                    if self.admission.shared().is_draining() {
                        self.summary.client = client;
                        return Ok(self.turn_away(Status::SHUTDOWN, "", cx));
                    }
                    let place = self.admission.get_in(&client);
                    self.summary.client = client;
                    if let Err(error) = place {
                        return Ok(self.turn_away(Status::BUSY, &error.to_string(), cx));
                    }
                    if !self.admission.name(route.session) {
                        return Ok(self.refuse(Status::LOOP, "", cx));
                    }
                    self.lead(&mut route);
                    return Ok(self.begin_dialling(Dialling::new(*route, received), cx));
                }
            }
            let room = MAX_MESSAGE.saturating_sub(received.len());
            let Some(buffer) = cx.pool.scratch().get_mut(..room).filter(|_| room > 0) else {
                return Err(Ending::NotEntered("it says too much before it asks".into()));
            };
            match self.near.read(buffer).map_err(|error| reset(Side::Near, &error))? {
                None => {
                    self.stage = Stage::Entering { received };
                    return Ok(Turn::Waiting);
                }
                Some(0) => return Err(Ending::NotEntered("it left before it asked".into())),
                Some(len) => {
                    if received.is_empty() {
                        self.admission.begin();
                        let in_time = cx.now + self.admission.shared().header_timeout;
                        self.deadline = self.deadline.min(in_time);
                    }
                    received.extend_from_slice(&buffer[..len]);
                }
            }
        }
    }

    /// Adds the gateways of this gateway's own routes where the client names none.
    fn lead(&self, route: &mut Route) {
        let policy = self.admission.shared().policy();
        if route.hops.is_empty() {
            let led = policy.routes.to(&route.target.place).map(|route| &route.via);
            route.hops =
                led.or(self.entry.is_led().then_some(&policy.via)).cloned().unwrap_or_default();
        }
    }

    /// Sends a few bytes to a client that has sent few: they fit into its socket.
    fn reply(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Result<(), Ending> {
        self.pumps[FAR].put(bytes);
        let sent = self.pumps[FAR].flush(&mut self.near, cx.pool);
        sent.map(|_| ()).map_err(|error| reset(Side::Near, &error))
    }

    fn await_answer(&mut self, cx: &mut Context<'_>) -> Step {
        let Stage::Answering { dialler, .. } = &mut self.stage else { return Ok(Turn::Waiting) };
        let Some(far) = &mut self.far else { return Ok(Turn::Waiting) };
        // Of payload no more than what came with the header: it may yet go to another address.
        if let Err(error) = self.pumps[NEAR].flush(far, cx.pool) {
            return Ok(self.lost(status(&error), &words(&error), cx));
        }
        let buffer = &mut cx.pool.scratch()[..MAX_MESSAGE];
        let len = match far.read(buffer) {
            Ok(None) => return Ok(Turn::Waiting),
            Ok(Some(0)) => return Ok(self.lost(Status::RESET, "it ended the connection", cx)),
            Ok(Some(len)) => len,
            Err(error) => return Ok(self.lost(status(&error), &words(&error), cx)),
        };
        match dialler.receive(&buffer[..len]) {
            Ok(Dialled::Incomplete) => Ok(Turn::More),
            Ok(Dialled::Connected { length, peer }) => {
                let payload = buffer[length..len].to_vec();
                if let Some(address) = self.summary.next {
                    self.admission.shared().spares.note(address, cx.now);
                }
                self.connected(peer, &payload, cx.now);
                Ok(Turn::More)
            }
            Ok(Dialled::Refused(answer)) if answer.status == Status::WRONG_CLOCK => {
                Ok(self.dial_with_clock(answer, cx))
            }
            Ok(Dialled::Refused(answer)) => Ok(self.pass_refusal(answer, cx)),
            Ok(Dialled::Unproven(answer)) => {
                let reason = match answer.status {
                    Status::UNAUTHORIZED => "it does not know this gateway's token".into(),
                    status => format!("{status}, and it proves no token"),
                };
                Ok(self.refuse(Status::UNAUTHORIZED, &reason, cx))
            }
            Err(error) => Ok(self.refuse(Status::UNAUTHORIZED, &error.to_string(), cx)),
        }
    }

    /// The far end stands: the client gets its answer before the first byte from there.
    fn connected(&mut self, peer: Option<SocketAddr>, payload: &[u8], now: Instant) {
        self.deadline = now + SILENCE_CHECK;
        let answer = Answer { peer, ..Answer::new(Status::CONNECTED, &self.name()) };
        let bytes = self.entry.answer(&answer);
        self.pumps[FAR].put(&bytes);
        self.pumps[FAR].put_payload(payload);
        self.send_early_payload();
        self.stage = Stage::Relaying;
    }

    fn relay(&mut self, cx: &mut Context<'_>) -> Step {
        let mut more = false;
        for side in Side::BOTH {
            more |= self.pump(side, cx)?;
        }
        for side in Side::BOTH {
            if self.ends.is_closing(side) {
                let ended = match self.link(side) {
                    Some(link) => link.segment.end_is_acknowledged(),
                    None => Ok(true),
                };
                match ended {
                    Ok(true) => self.ends.acknowledged(side),
                    Ok(false) => {}
                    Err(error) => self.closed(side, &error)?,
                }
            }
        }
        if self.ends.is_clean() {
            return Err(self.left.map_or(Ending::Clean, Ending::Left));
        }
        Ok(if more { Turn::More } else { Turn::Waiting })
    }

    /// Moves what `from` sends; `true` where more can be done at once.
    fn pump(&mut self, from: Side, cx: &mut Context<'_>) -> Result<bool, Ending> {
        let Some(far) = &mut self.far else { return Ok(false) };
        let (source, sink) = match from {
            Side::Near => (&mut self.near, far),
            Side::Far => (far, &mut self.near),
        };
        if self.ends.is_drained(from) {
            return Ok(false);
        }
        let flow = self.pumps[index(from)].run(source, sink, cx.pool);
        let broken = |(direction, error): (Direction, io::Error)| match direction {
            Direction::Reading => reset(from, &error),
            Direction::Writing => reset(from.other(), &error),
        };
        match flow.map_err(broken)? {
            Flow::Waiting => Ok(false),
            Flow::More => Ok(true),
            Flow::Drained => {
                self.ends.drained(from);
                if self.ends.must_shut(from.other()) {
                    let shut = sink.segment.shut_down(Direction::Writing);
                    self.ends.shut(from.other());
                    if let Err(error) = shut {
                        self.closed(from.other(), &error)?;
                    }
                }
                Ok(false)
            }
        }
    }

    /// The connection to `side` broke. Where both directions had ended nothing is left to be passed on:
    /// it was closed by who did not wait for the last of it.
    fn closed(&mut self, side: Side, error: &io::Error) -> Result<(), Ending> {
        if !Side::BOTH.iter().all(|side| self.ends.is_drained(*side)) {
            return Err(reset(side, error));
        }
        self.ends.acknowledged(side);
        self.left.get_or_insert(side);
        Ok(())
    }

    /// The client gets an answer that says why it is not let in now.
    fn turn_away(&mut self, status: Status, reason: &str, cx: &mut Context<'_>) -> Turn {
        let shown = if reason.is_empty() { status.meaning().unwrap_or_default() } else { reason };
        let why = format!("{}: {shown}", self.summary.client);
        let answer = Answer { reason: reason.into(), ..Answer::new(status, &self.name()) };
        let bytes = self.entry.answer(&answer);
        self.begin_refusal(&bytes, Ending::NotEntered(why), cx)
    }

    /// The client gets an answer that says what could not be reached, and why.
    fn refuse(&mut self, status: Status, reason: &str, cx: &mut Context<'_>) -> Turn {
        let to = match &self.stage {
            Stage::Dialling(dialling) | Stage::Answering { dialling, .. } => {
                dialling.next().to_string()
            }
            _ => String::new(),
        };
        let reason = reason.into();
        self.pass_refusal(Answer { to, reason, ..Answer::new(status, &self.name()) }, cx)
    }

    fn pass_refusal(&mut self, answer: Answer, cx: &mut Context<'_>) -> Turn {
        let mut words = format!("{}: {}", answer.at, answer.status);
        for (before, more) in [(" to ", &answer.to), (": ", &answer.reason)] {
            if !more.is_empty() {
                words.push_str(before);
                words.push_str(more);
            }
        }
        let bytes = self.entry.answer(&answer);
        self.begin_refusal(&bytes, Ending::NotConnected(words), cx)
    }

    fn begin_refusal(&mut self, bytes: &[u8], ending: Ending, cx: &mut Context<'_>) -> Turn {
        self.far = None;
        self.deadline = cx.now + TIME_TO_READ;
        if bytes.is_empty() {
            return Turn::Over(ending);
        }
        self.pumps[FAR].put(bytes);
        self.stage = Stage::Refusing(ending);
        self.refuse_on(cx).unwrap_or_else(Turn::Over)
    }

    /// Writes the refusal, then waits until the client has seen it: a reset would overtake it.
    fn refuse_on(&mut self, cx: &mut Context<'_>) -> Step {
        let Stage::Refusing(ending) = &self.stage else { return Ok(Turn::Waiting) };
        let over = |_: io::Error| ending.clone();
        if !self.pumps[FAR].flush(&mut self.near, cx.pool).map_err(over)? {
            return Ok(Turn::Waiting);
        }
        if !self.ends.is_drained(Side::Far) {
            self.near.segment.shut_down(Direction::Writing).map_err(over)?;
            self.ends.drained(Side::Far);
        }
        while let Some(len) = self.near.read(cx.pool.scratch()).map_err(over)? {
            if len == 0 {
                return Err(ending.clone());
            }
        }
        Ok(Turn::Waiting)
    }

    /// This gateway, as it calls itself in answers.
    fn name(&self) -> String {
        self.admission.shared().policy().name.clone().unwrap_or_else(|| self.local.to_string())
    }
}

/// A turn, or the end of the session.
type Step = Result<Turn, Ending>;

const fn index(side: Side) -> usize {
    match side {
        Side::Near => NEAR,
        Side::Far => FAR,
    }
}

fn reset(side: Side, error: &io::Error) -> Ending {
    Ending::Reset(
        side,
        match error.kind() {
            // So a reset is called that comes behind an end.
            io::ErrorKind::BrokenPipe => "it closed before everything had come".into(),
            _ => words(error),
        },
    )
}

/// The error without the number that nobody can look up.
pub(crate) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// The status that tells a client of this error.
fn status(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Status::REFUSED,
        io::ErrorKind::TimedOut => Status::TIMEOUT,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Status::UNREACHABLE,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Status::RESET,
        // Ports or descriptors are used up.
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse => Status::BUSY,
        _ if is_exhausted(error) => Status::BUSY,
        _ => Status::INTERNAL,
    }
}

/// The process or the host has no descriptor left.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let limits = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| limits.iter().any(|limit| limit.raw_os_error() == code))
}

const NEAR: usize = 0;
const FAR: usize = 1;
/// Interval between looks at a session that stands.
const SILENCE_CHECK: longhaul_units::Duration = longhaul_units::Duration::from_secs(1);
/// A refused client has this long to read why.
const TIME_TO_READ: longhaul_units::Duration = longhaul_units::Duration::from_secs(2);
