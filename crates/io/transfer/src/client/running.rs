//! A task under way.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use longhaul_connection::Silence;
use longhaul_session::Session;
use longhaul_sys::clock;
use longhaul_units::{Duration, Instant, Rate};
use longhaul_wire::{CloseCode, SourceReport};

use super::link::Link;
use super::{Client, Failure, Finished, Task};
use crate::api::{LinkReport, Snapshot, Stop};
use crate::carrier::{Mailbox, join_all};
use crate::circuit::{Circuit, CircuitReport};
use crate::connection::{Lanes, mailboxes};
use crate::control::{Control, Dialed};
use crate::hub::{Side, State, TransferHub};
use crate::progress::Progress;
use crate::watch::Watch;

pub(super) struct Running<T> {
    server: SocketAddr,
    session: Arc<Session>,
    circuit: Option<Circuit>,
    control: Control,
    hub: Arc<TransferHub>,
    task: T,
    lanes: Lanes,
    mailboxes: Vec<Arc<Mailbox>>,
    workers: Vec<JoinHandle<()>>,
    profile: &'static str,
    started: Instant,
    /// Of UDP, since packets could come.
    silence: Silence,
    notices: Vec<String>,
    rates: RateMeter,
    watch: Watch,
}

impl<T: Task> Running<T> {
    pub fn start(
        client: &Client<'_>,
        dialed: Dialed,
        mut notices: Vec<String>,
        make: impl Fn(SocketAddr, &[Arc<Mailbox>]) -> Result<T, Failure>,
        stop: &Stop,
    ) -> Result<Self, Failure> {
        let Dialed { session, control, server, identity, local, rtt } = dialed;
        let session = Arc::new(session);
        let mailboxes = mailboxes(session.lanes)?;
        let task = make(server, &mailboxes)?;
        let hub = Arc::new(TransferHub::client(&client.wish, mailboxes.clone()));
        hub.play(task.side());
        let watched = hub.clone();
        control.on_end(move |end| watched.change(|state| state.note_end(end)));
        let Client { profile, rate, idle_timeout, started, .. } = *client;
        let link = Link {
            session: &session,
            identity: &identity,
            server,
            local,
            rtt,
            profile,
            rate,
            idle_timeout,
        };
        let booked = client.circuit.is_some();
        let lanes = link.start(booked, &hub, &mailboxes, &mut notices, stop)?;
        let mut circuit = None;
        if let (Some(options), Lanes::Udp(lanes)) = (client.circuit, &lanes)
            && let Some(errand) = task.hold()
        {
            let follower = link.follower(options, errand, &hub, lanes, started);
            circuit = Some(Circuit::start(follower)?);
        }
        let workers = task.side().start(&hub)?;
        Ok(Self {
            server,
            session,
            circuit,
            control,
            hub,
            task,
            lanes,
            mailboxes,
            workers,
            profile: profile.name,
            started,
            silence: Silence::since(clock::now()),
            notices,
            rates: RateMeter::new(started),
            watch: Watch::new(client.memory, client.stall_timeout),
        })
    }

    /// Until the task is done or cannot be.
    pub fn watch(&mut self, progress: &Progress, stop: &Stop) -> Result<(), Failure> {
        let mut received = 0;
        loop {
            let state = self.hub.wait(INTERVAL, |state| self.judge(state).is_some());
            self.task.on_look(&state, progress);
            self.watch.look(&self.task.side(), &self.lanes);
            progress.set(self.snapshot());
            self.lanes.look();
            received = self.lanes.vouch(&self.control, received);
            if let Some(end) = self.judge(&state) {
                return end;
            }
            if stop.is_requested() {
                return Err(Failure::Stopped);
            }
            if let Some(reason) = self.watch.stalled() {
                let (server, code) = (self.server, CloseCode::TIMEOUT);
                return Err(Failure::Closed { server, code, by_peer: false, reason });
            }
            if state.validated.is_none() && self.silence.look(clock::now()) > UDP_PATIENCE {
                return Err(Failure::UdpBlocked { server: self.server });
            }
        }
    }

    /// Whether the task is at its end, and how.
    fn judge(&self, state: &State) -> Option<Result<(), Failure>> {
        let server = self.server;
        if self.is_done(state) {
            return Some(Ok(()));
        }
        if let Some(refused) = &state.refused {
            return Some(Err(Failure::Refused { server, reason: refused.reason.clone() }));
        }
        if let Some(reason) = &state.failed {
            return Some(Err(Failure::Local(reason.clone())));
        }
        let closed = state.closed.as_ref()?;
        let (code, by_peer) = (closed.code, closed.by_peer);
        let reason = match closed.reason.as_str() {
            "" => code.to_string(),
            reason => reason.to_string(),
        };
        Some(Err(Failure::Closed { server, code, by_peer, reason }))
    }

    fn is_done(&self, state: &State) -> bool {
        let side = self.task.side();
        if side.done().is_none() {
            return false;
        }
        if let Side::Sink(_) = side {
            // RESULT is on its way; the source half-closes when it has read it.
            self.hub.finish();
        }
        self.hub.may_close() || state.closed.is_some()
    }

    fn snapshot(&mut self) -> Snapshot {
        let now = clock::now();
        let backlog = self.mailboxes.iter().map(|mailbox| mailbox.backlog()).sum();
        let so_far = self.task.so_far(backlog);
        let moved = so_far.bytes_done.saturating_sub(so_far.resumed_bytes);
        let sending = self.sending();
        Snapshot {
            rate: self.rates.update(now, moved),
            rtt: sending.rtt,
            packets_sent: sending.packets_sent,
            packets_lost: sending.lost.total(),
            bound: sending.bound,
            elapsed: now - self.started,
            ..so_far
        }
    }

    /// How sending goes, as the side that sends says.
    fn sending(&self) -> SourceReport {
        match self.task.side() {
            Side::Source(_) => self.watch.sending(&self.lanes),
            Side::Sink(_) => self.task.source_report().unwrap_or_default(),
        }
    }

    pub fn finish(
        mut self,
        end: Result<(), Failure>,
        progress: &Progress,
    ) -> Result<Finished<T>, Failure> {
        let (code, reason) = match &end {
            Ok(()) => (CloseCode::DONE, String::new()),
            Err(Failure::Stopped) => (CloseCode::CANCELLED, "stopped by the user".into()),
            Err(Failure::Local(reason)) => (CloseCode::STORAGE, reason.clone()),
            Err(Failure::Closed { code: CloseCode::TIMEOUT, by_peer: false, reason, .. }) => {
                (CloseCode::TIMEOUT, reason.clone())
            }
            Err(_) => (CloseCode::CANCELLED, "given up by the client".into()),
        };
        let elapsed = clock::now() - self.started;
        let side = self.task.side();
        self.watch.look_last(&side, &self.lanes);
        progress.set(self.snapshot());
        let circuit = self.circuit.take().map(Circuit::finish).unwrap_or_default();
        self.notices.extend(circuit.notices);
        self.hub.finish();
        self.lanes.close(code, &reason);
        self.control.close(code, &reason);
        // A failure of the local storage leaves nothing to be made durable.
        if !matches!(end, Ok(()) | Err(Failure::Local(_))) {
            side.wind_up();
            progress.set(self.snapshot());
        }
        side.stop();
        self.lanes.join();
        let hangs = self.watch.stalled().is_some() && !self.end_soon();
        if T::THREADS_END && !hangs || end.is_ok() {
            join_all(&mut self.workers);
        }
        end.map(|()| self.report(elapsed, circuit.report))
    }

    /// Whether the threads come to their end before long: what hangs in a disk's system calls cannot.
    fn end_soon(&self) -> bool {
        let deadline = clock::now() + DISK_PATIENCE;
        let ended = || self.workers.iter().all(JoinHandle::is_finished);
        while !ended() && clock::now() < deadline {
            std::thread::sleep(INTERVAL / 10);
        }
        ended()
    }

    fn report(self, elapsed: Duration, circuit: Option<CircuitReport>) -> Finished<T> {
        let sending = self.sending();
        let link = LinkReport {
            carrier: self.lanes.name(),
            profile: self.profile.into(),
            protect: self.session.protect,
            rtt: sending.rtt_min,
            packets_sent: sending.packets_sent,
            packets_resent: sending.packets_resent,
            lost: sending.lost,
            bottleneck: sending.bottleneck,
            cpu_local: clock::process_cpu_time(),
            cpu_remote: self.task.cpu_remote(),
            circuit,
            notices: self.notices,
        };
        Finished { task: self.task, elapsed, validated: self.hub.state().validated, link }
    }
}

/// Goodput over about the last second.
struct RateMeter {
    points: VecDeque<(Instant, u64)>,
}

impl RateMeter {
    fn new(now: Instant) -> Self {
        Self { points: [(now, 0)].into() }
    }

    fn update(&mut self, now: Instant, bytes: u64) -> Rate {
        self.points.push_back((now, bytes));
        while self.points.len() > 2 && now - self.points[1].0 > Duration::from_secs(1) {
            self.points.pop_front();
        }
        let (then, before) = self.points[0];
        Rate::from_bytes_over(bytes.saturating_sub(before), (now - then).max(INTERVAL / 10))
    }
}

/// How often the state is looked at when nothing happens.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long a disk that got nothing done may take to let its threads go.
const DISK_PATIENCE: Duration = Duration::from_secs(2);
/// How long UDP may stay silent once the server let us in.
const UDP_PATIENCE: Duration = Duration::from_secs(5);
