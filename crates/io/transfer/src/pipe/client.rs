//! A client's end of a pipe.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use longhaul_rate_control::Profile;
use longhaul_session::{ClientConfig, Session};
use longhaul_sys::clock;
use longhaul_sys::udp::UdpOptions;
use longhaul_units::{Bytes, Duration, Instant};
use longhaul_wire::{Carrier, CloseCode, PipeRequest, PipeRole, ReceiveLimits, SourceReport};

use super::api::{PipeCircuit, PipeError, PipeOptions, PipeReport, pipe_name_is_valid};
use super::drain::Drain;
use super::feed::Feed;
use crate::api::{CarrierChoice, LinkReport, Snapshot, Stop};
use crate::budget::SINK_MEMORY;
use crate::carrier::{Mailbox, join_all};
use crate::circuit::{Circuit, CircuitReport, CircuitWant, Errand};
use crate::client::{
    IMPLEMENTATION, INTERVAL, Link, RateMeter, UDP_PATIENCE, link_report, note_end, profile,
};
use crate::connection::{Lanes, mailboxes};
use crate::control::{Control, Dialed, dial};
use crate::hub::{Side, State, TransferHub};
use crate::progress::Progress;
use crate::side::SinkSide;
use crate::watch::Watch;

/// Plays one end of a pipe. Blocks until the other end is there, and then until every byte is
/// where it should be, or the pipe breaks.
///
/// After an error a thread may still be stuck writing to [`PipeOptions::file`], if nobody reads there.
///
/// # Errors
/// See [`PipeError`].
pub fn pipe(
    options: &PipeOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<PipeReport, PipeError> {
    let started = clock::now();
    if !pipe_name_is_valid(&options.name) {
        return Err(PipeError::Usage("a pipe has a name of 1 to 255 bytes, none zero".into()));
    }
    let profile = profile(&options.profile, options.rate).map_err(PipeError::Usage)?;
    if options.circuit.is_some() && options.role == PipeRole::Receive {
        return Err(PipeError::Usage("the end that sends books the circuit".into()));
    }
    let first = match options.carrier {
        CarrierChoice::Tcp if options.circuit.is_some() => {
            return Err(PipeError::Usage(
                "a circuit carries UDP lanes, not TCP connections".into(),
            ));
        }
        CarrierChoice::Tcp => Carrier::Tcp,
        CarrierChoice::Auto | CarrierChoice::Udp => Carrier::Udp,
    };
    let attempt = Attempt { options, profile, started };
    match attempt.run(first, Vec::new(), progress, stop) {
        // Nothing was read: the other end was not there.
        Err(PipeError::UdpBlocked { server })
            if options.carrier == CarrierChoice::Auto && options.circuit.is_none() =>
        {
            let notice = format!("no UDP packet comes through to {server}: TCP carries instead");
            progress.tell(&notice);
            attempt.run(Carrier::Tcp, vec![notice], progress, stop)
        }
        result => result,
    }
}

/// One try with one carrier.
struct Attempt<'a> {
    options: &'a PipeOptions,
    profile: &'static Profile,
    started: Instant,
}

/// A pipe under way.
struct Running {
    server: SocketAddr,
    session: Arc<Session>,
    circuit: Option<Circuit>,
    control: Control,
    hub: Arc<TransferHub>,
    part: Part,
    lanes: Lanes,
    workers: Vec<JoinHandle<()>>,
    started: Instant,
    /// Since when packets could come.
    connected: Instant,
    /// When both ends were there.
    joined: Option<Instant>,
    notices: Vec<String>,
    rates: RateMeter,
    watch: Watch,
}

/// The end that this host plays.
enum Part {
    Feed(Arc<Feed>),
    Drain(Arc<Drain>),
}

impl Part {
    fn new(role: PipeRole, file: File, mailboxes: &[Arc<Mailbox>]) -> Self {
        match role {
            PipeRole::Send => Self::Feed(Arc::new(Feed::of_file(file, mailboxes.to_vec()))),
            PipeRole::Receive => Self::Drain(Arc::new(Drain::to_file(file, mailboxes.to_vec()))),
        }
    }

    fn side(&self) -> Side {
        match self {
            Self::Feed(feed) => Side::Source(feed.clone()),
            Self::Drain(drain) => Side::Sink(drain.clone()),
        }
    }

    /// Bytes that came through as far as known here.
    fn bytes(&self) -> u64 {
        match self {
            Self::Feed(feed) => feed.confirmed(),
            Self::Drain(drain) => drain.bytes(),
        }
    }

    /// What it is doing until then.
    fn waits_for(&self) -> &'static str {
        match self {
            Self::Feed(_) => "waiting for the receiver of the pipe",
            Self::Drain(_) => "waiting for the sender of the pipe",
        }
    }

    /// Whether the other end is there.
    fn is_joined(&self) -> bool {
        match self {
            Self::Feed(feed) => feed.is_joined(),
            // The server sends what it gets; of an empty pipe only its end.
            Self::Drain(drain) => drain.bytes() > 0 || drain.is_at_end(),
        }
    }
}

impl Attempt<'_> {
    fn run(
        &self,
        carrier: Carrier,
        notices: Vec<String>,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<PipeReport, PipeError> {
        let options = self.options;
        let socket_buffer = Bytes::new(UdpOptions::default().receive_buffer as u64);
        let config = ClientConfig {
            protect: options.protect,
            carrier,
            // The first stays on IP.
            lanes: options.lanes.max(1) + u16::from(options.circuit.is_some()),
            implementation: Some(IMPLEMENTATION.into()),
            receive_limits: Some(ReceiveLimits { socket_buffer, credit: SINK_MEMORY }),
            profile: Some(options.profile.clone()),
            rate: options.rate.filter(|_| options.role == PipeRole::Receive),
            ..ClientConfig::default()
        };
        let idle = options.idle_timeout;
        let dialed = dial(&options.host, options.port, &options.token, &config, idle, stop)?;
        let mut running = self.start(dialed, notices, stop)?;
        let end = running.watch(progress, stop);
        running.finish(end, options, progress)
    }

    fn start(
        &self,
        dialed: Dialed,
        mut notices: Vec<String>,
        stop: &Stop,
    ) -> Result<Running, PipeError> {
        let Self { options, profile, started } = *self;
        let local = |error: std::io::Error| PipeError::Local(error.to_string());
        let Dialed { session, control, server, identity, local: address, rtt } = dialed;
        let session = Arc::new(session);
        let boxes = mailboxes(session.lanes).map_err(local)?;
        let part = Part::new(options.role, options.file.try_clone().map_err(local)?, &boxes);
        let request = PipeRequest { role: options.role, name: options.name.clone() }.into();
        let hub = Arc::new(TransferHub::client(&request, boxes.clone()));
        hub.play(part.side());
        let watched = hub.clone();
        control.on_end(move |end| watched.change(|state| note_end(state, end)));
        let link = Link {
            session: &session,
            identity: &identity,
            server,
            local: address,
            rtt,
            profile,
            rate: options.rate,
            idle_timeout: options.idle_timeout,
        };
        let of_ip = if options.circuit.is_some() { 1 } else { session.lanes };
        let lanes = link.start(of_ip, &hub, &boxes, &mut notices, stop)?;
        let mut circuit = None;
        if let (Some(wanted), Lanes::Udp(lanes), Part::Feed(feed)) =
            (&options.circuit, &lanes, &part)
        {
            feed.hold();
            let PipeCircuit { options, time, min_rate, max_rate } = wanted;
            let (time, min_rate, max_rate) = (*time, *min_rate, *max_rate);
            let errand = Errand::Pipe(feed.clone(), CircuitWant::Time { time, min_rate, max_rate });
            let follower = link.follower(options, errand, &hub, &boxes, lanes, started);
            circuit = Some(Circuit::start(follower).map_err(local)?);
        }
        let workers = part.side().start(&hub).map_err(local)?;
        Ok(Running {
            server,
            session,
            circuit,
            control,
            hub,
            part,
            lanes,
            workers,
            started,
            connected: clock::now(),
            joined: None,
            notices,
            rates: RateMeter::new(started),
            watch: Watch::new(),
        })
    }
}

impl Running {
    /// Until the pipe is done or cannot be.
    fn watch(&mut self, progress: &Progress, stop: &Stop) -> Result<(), PipeError> {
        let (mut received, mut told) = (0, false);
        loop {
            let state = self.hub.wait(INTERVAL, |state| self.judge(state).is_some());
            if self.joined.is_none() && self.part.is_joined() {
                self.joined = Some(clock::now());
            }
            self.watch.look(&self.part.side(), &self.lanes);
            progress.set(self.snapshot());
            received = self.lanes.vouch(&self.control, received);
            if let Some(end) = self.judge(&state) {
                return end;
            }
            if state.validated.is_some() && self.joined.is_none() && !told {
                told = true;
                progress.tell(self.part.waits_for());
            }
            if stop.is_requested() {
                return Err(PipeError::Stopped);
            }
            if state.validated.is_none() && clock::now() - self.connected > UDP_PATIENCE {
                return Err(PipeError::UdpBlocked { server: self.server });
            }
        }
    }

    /// Whether the pipe is at its end, and how.
    fn judge(&self, state: &State) -> Option<Result<(), PipeError>> {
        if self.is_done(state) {
            return Some(Ok(()));
        }
        if let Some(refused) = &state.refused {
            let (server, reason) = (self.server, refused.reason.clone());
            return Some(Err(PipeError::Refused { server, reason }));
        }
        if let Some(reason) = &state.failed {
            return Some(Err(PipeError::Local(reason.clone())));
        }
        let closed = state.closed.as_ref()?;
        let reason = match closed.reason.as_str() {
            "" => closed.code.to_string(),
            reason => reason.to_string(),
        };
        Some(Err(PipeError::Broken { reason }))
    }

    fn is_done(&self, state: &State) -> bool {
        match &self.part {
            Part::Feed(feed) => feed.result().is_some(),
            Part::Drain(drain) => {
                if drain.done().is_none() {
                    return false;
                }
                // RESULT is on its way; the server half-closes when it has read it.
                self.hub.finish();
                state.stream_ended || state.closed.is_some()
            }
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let now = clock::now();
        let bytes_done = self.part.bytes();
        let sending = self.sending();
        Snapshot {
            bytes_done,
            rate: self.rates.update(now, bytes_done),
            rtt: sending.rtt,
            packets_sent: sending.packets_sent,
            packets_lost: sending.lost.total(),
            bound: sending.bound,
            elapsed: now - self.started,
            ..Snapshot::default()
        }
    }

    /// How sending goes, as the side that sends says.
    fn sending(&self) -> SourceReport {
        match &self.part {
            Part::Feed(_) => self.watch.sending(&self.lanes),
            Part::Drain(drain) => drain.source_report().unwrap_or_default(),
        }
    }

    fn finish(
        mut self,
        end: Result<(), PipeError>,
        options: &PipeOptions,
        progress: &Progress,
    ) -> Result<PipeReport, PipeError> {
        let (code, reason) = match &end {
            Ok(()) => (CloseCode::DONE, String::new()),
            Err(PipeError::Stopped) => (CloseCode::CANCELLED, "stopped by the user".into()),
            Err(PipeError::Local(reason)) => (CloseCode::STORAGE, reason.clone()),
            Err(_) => (CloseCode::CANCELLED, "given up by the client".into()),
        };
        let elapsed = clock::now() - self.started;
        self.watch.look_last(&self.part.side(), &self.lanes);
        progress.set(self.snapshot());
        let circuit = self.circuit.take().map(Circuit::finish).unwrap_or_default();
        self.notices.extend(circuit.notices);
        self.hub.finish();
        self.lanes.close(code, &reason);
        self.control.close(code, &reason);
        self.part.side().stop();
        self.lanes.join();
        if end.is_ok() {
            join_all(&mut self.workers);
        }
        end.map(|()| self.report(elapsed, options, circuit.report))
    }

    fn report(
        self,
        elapsed: Duration,
        options: &PipeOptions,
        circuit: Option<CircuitReport>,
    ) -> PipeReport {
        let sending = self.sending();
        let cpu_remote = match &self.part {
            Part::Feed(feed) => feed.result().map(|result| result.cpu_time),
            Part::Drain(drain) => drain.source_report().map(|report| report.cpu_time),
        };
        PipeReport {
            bytes: self.part.bytes(),
            elapsed,
            setup: self.joined.map_or(elapsed, |at| at - self.started),
            link: LinkReport {
                cpu_remote,
                circuit,
                notices: self.notices,
                ..link_report(&self.lanes, &self.session, &options.profile, &sending)
            },
        }
    }
}
