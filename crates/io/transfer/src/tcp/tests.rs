//! Both ends on loopback, over real control connections.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, PoisonError};
use std::thread;

use longhaul_engine::Closed;
use longhaul_objects::ObjectTable;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_session::{ClientConfig, ServerConfig, Session, Token};
use longhaul_units::{Extent, LaneId, ObjectId, StreamId};
use longhaul_wire::{
    Carrier, ConnectionId, Frame, Frames, JOIN_LEN, Join, Protect, RecordHead, Writer,
};

use super::*;
use crate::api::Stop;
use crate::buffer::{Buffer, Pool, Reuse};
use crate::carrier::{Command, Outgoing};
use crate::control::{Accepted, Acceptor, Control, Dialed, dial};

#[test]
fn groups_and_messages_cross_under_every_protection() {
    for protect in [Protect::Clear, Protect::Integrity, Protect::Aead] {
        let (mut client, mut server) = ends(protect, 3);
        let size = 9 * GROUP_SIZE + 12_345;
        server.hub.expect_object(size, 64);
        client.hub.say(600_000, 1);
        server.hub.say(700_000, 2);
        for group in 0..10 {
            client.offer(group as usize % 3, group, size);
        }
        server.hub.wait(|hub| hub.groups.len() == 10);
        client.hub.wait(|hub| hub.delivered == size && hub.peer_credit == 5_000_000);
        client.hub.finished.store(true, Ordering::Relaxed);
        server.hub.finished.store(true, Ordering::Relaxed);
        client.lanes.mailboxes[0].wake();
        server.lanes.mailboxes[0].wake();
        client.hub.wait(|hub| hub.ended);
        server.hub.wait(|hub| hub.ended);
        assert!(server.hub.state().heard == noise(600_000, 1), "{protect}");
        assert!(client.hub.state().heard == noise(700_000, 2), "{protect}");
        for group in 0..10 {
            let got = &server.hub.state().groups[&group];
            assert!(*got == group_bytes(group, size), "{protect} {group}");
        }
        client.lanes.close(CloseCode::DONE, "that was all");
        client.lanes.join();
        server.lanes.join();
        for (hub, by_peer) in [(&client.hub, false), (&server.hub, true)] {
            let end = Closed { code: CloseCode::DONE, reason: "that was all".into(), by_peer };
            assert_eq!(hub.state().closed, vec![end; 3], "{protect}");
        }
        let sent = client.lanes.view().info;
        assert!(sent.segments_sent > 0 && sent.rtt_min > Duration::ZERO);
        assert!(!client.lanes.view().congestion_control.is_empty());
    }
}

#[test]
fn a_group_is_taken_once_unless_it_is_forgotten() {
    let (client, server) = ends(Protect::Clear, 1);
    let size = 2 * GROUP_SIZE;
    server.hub.expect_object(size, 8);
    for group in [0, 0, 1] {
        client.offer(0, group, size);
    }
    server.hub.wait(|hub| hub.groups.contains_key(&1));
    assert_eq!(server.hub.state().taken, 2);
    server.lanes.mailboxes[0].post_anew(OBJECT, 0);
    client.offer(0, 0, size);
    server.hub.wait(|hub| hub.taken == 3);
    assert!(server.hub.state().groups[&0] == group_bytes(0, size));
}

#[test]
fn want_of_memory_holds_the_peer_and_loses_nothing() {
    let (client, server) = ends(Protect::Aead, 2);
    let size = 40 * GROUP_SIZE;
    server.hub.keep_buffers.store(true, Ordering::Relaxed);
    server.hub.expect_object(size, 3);
    for group in 0..40 {
        client.offer(group as usize % 2, group, size);
    }
    for done in 0..=37 {
        server.hub.wait(|hub| hub.groups.len() >= done + 3);
        assert_eq!(server.hub.state().kept.len(), 3);
        drop(server.hub.lock().kept.pop());
    }
    server.hub.wait(|hub| hub.groups.len() == 40);
}

#[test]
fn strangers_do_not_join() {
    let server = Host::start();
    let (dialed, waiting) = server.dial(Protect::Clear, 2, |_, _| ());
    let good = dialed.session.join(LaneId(0));
    let wrong_proof = Join { proof: [3; 32], ..good };
    let wrong_lane = Join { lane: LaneId(2), ..good };
    let unknown = Join { connection: ConnectionId(77), ..good };
    for join in [wrong_proof, wrong_lane, unknown] {
        assert_eq!(server.knock(&join).1, Some(CloseCode::UNAUTHORIZED), "{join:?}");
    }
    // The same lane twice: whichever comes first stays.
    let mut twins = [server.join_bare(&good), server.join_bare(&good)];
    let _second = server.join_bare(&dialed.session.join(LaneId(1)));
    let (_, _, joined) = waiting.join().unwrap().unwrap();
    let lanes: Vec<_> = joined.iter().map(|connection| connection.lane.0).collect();
    assert_eq!(lanes, [0, 1]);
    drop(joined);
    let mut codes = twins.each_mut().map(close_code);
    codes.sort();
    assert_eq!(codes, [None, Some(CloseCode::UNAUTHORIZED)]);
}

#[test]
fn a_bare_join_is_no_way_around_tls() {
    let server = Host::start();
    let (dialed, waiting) = server.dial(Protect::Aead, 1, |_, _| ());
    let join = dialed.session.join(LaneId(0));
    assert_eq!(server.knock(&join).1, Some(CloseCode::UNAUTHORIZED));
    let joined =
        super::join(dialed.server, &dialed.identity, &dialed.session, &options(), &Stop::default());
    assert_eq!(joined.unwrap().len(), 1);
    assert_eq!(waiting.join().unwrap().unwrap().2.len(), 1);
}

#[test]
fn another_server_gets_no_join() {
    let (one, other) = (Host::start(), Host::start());
    let (dialed, _) = one.dial(Protect::Aead, 1, |_, _| ());
    let joined =
        super::join(other.address, &dialed.identity, &dialed.session, &options(), &Stop::default());
    let error = joined.unwrap_err();
    assert!(matches!(error, JoinError::Tls { .. }), "{error:?}");
}

#[test]
fn connections_that_do_not_come_are_not_waited_for() {
    let server = Host::start();
    let (_dialed, waiting) = server
        .dial(Protect::Clear, 4, |options, _| options.join_timeout = Duration::from_millis(50));
    let error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(error, JoinError::Missing { missing: 4, lanes: 4 }), "{error:?}");

    let (_dialed, waiting) = server.dial(Protect::Clear, 4, |_, stop| stop.request());
    let error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(error, JoinError::Stopped), "{error:?}");
}

#[test]
fn what_breaks_the_protocol_closes_the_connection() {
    let mut object = vec![2, 0, 0, 13];
    object.extend([0; 13]);
    let long_object = [2, 0x10, 0, 13];
    let long_frames = [1, 1, 0, 1];
    let frame = |frame: Frame<'_>| {
        let (mut frames, mut record) = (Vec::new(), Vec::new());
        frame.encode(&mut Writer::append(&mut frames)).unwrap();
        let head = RecordHead::Frames { len: frames.len() };
        head.encode(&mut Writer::append(&mut record)).unwrap();
        record.extend(frames);
        record
    };
    let stream = |stream, offset, data| frame(Frame::Stream { stream, offset, fin: false, data });
    for (bytes, why) in [
        (&b"\x09"[..], "record"),
        (&long_object, "record"),
        (&long_frames, "record"),
        (&object, "not asked for"),
        (&[1, 0, 0, 1, 0x7f], ""),
        (&frame(Frame::Challenge([0; 8])), "no place"),
        (&frame(Frame::Ping), "no place"),
        (&stream(StreamId(2), 0, b"x"), "no place"),
        (&stream(StreamId(0), 5, b"x"), "out of order"),
        (&stream(StreamId(0), 0, b"bad"), "the hub does not like it"),
    ] {
        let server = Host::start();
        let (dialed, waiting) = server.dial(Protect::Clear, 1, |_, _| ());
        let mut peer = server.join_bare(&dialed.session.join(LaneId(0)));
        let end = waiting.join().unwrap().unwrap();
        let end = End::start(end.0, end.1, end.2);
        peer.write_all(bytes).unwrap();
        assert_eq!(close_code(&mut peer), Some(CloseCode::PROTOCOL_VIOLATION), "{bytes:?}");
        drop(peer);
        end.hub.wait(|hub| !hub.closed.is_empty());
        let closed = end.hub.state().closed.remove(0);
        assert!(closed.reason.contains(why) && !closed.by_peer, "{bytes:?}: {closed:?}");
    }
}

#[test]
fn more_of_the_stream_than_allowed_closes_the_connection() {
    // The hub takes everything at once, so the limit keeps ahead of what comes: only a record
    // that exceeds it by itself can break it, and that is longer than records may be.
    let hub = TestHub::new();
    let mut stream = stream::Stream::new();
    let data = vec![1; 60_000];
    for i in 0..4 {
        stream.handle(&*hub, i * 60_000, false, &data).unwrap();
    }
    assert!(stream.handle(&*hub, 240_000, false, &data).is_err());
    let mut out = Vec::new();
    stream.write(&*hub, &mut Writer::append(&mut out), 1000).unwrap();
    let limit = Frames::new(&out).next().unwrap().unwrap();
    assert_eq!(limit, Frame::StreamLimit { stream: StreamId(0), limit: 240_000 + (256 << 10) });
    stream.handle(&*hub, 240_000, true, &data).unwrap();
    assert!(stream.handle(&*hub, 300_000, false, b"").is_err(), "behind the end");
}

#[test]
fn a_peer_that_vanishes_is_told() {
    for sent in [&b""[..], b"\x02", b"\x02\0\0\x20\0\0\0\0\0\0\0\0\0\0\0\0half"] {
        let server = Host::start();
        let (dialed, waiting) = server.dial(Protect::Clear, 1, |_, _| ());
        let mut peer = server.join_bare(&dialed.session.join(LaneId(0)));
        let end = waiting.join().unwrap().unwrap();
        let end = End::start(end.0, end.1, end.2);
        end.hub.expect_object(GROUP_SIZE, 4);
        peer.write_all(sent).unwrap();
        drop(peer);
        end.hub.wait(|hub| !hub.closed.is_empty());
        let closed = end.hub.state().closed.remove(0);
        assert_eq!((closed.code, closed.by_peer), (CloseCode::TIMEOUT, false));
        assert!(closed.reason.starts_with("a data connection broke"), "{closed:?}");
    }
}

#[test]
fn a_peer_that_the_kernel_gives_up_is_told_as_silent() {
    let idle_timeout = Duration::from_millis(1500);
    let server = Host::start();
    let (dialed, waiting) =
        server.dial(Protect::Clear, 1, |options, _| options.idle_timeout = idle_timeout);
    // The control connection lives on: only the kernel sees that nothing is read here.
    let _peer = server.join_bare(&dialed.session.join(LaneId(0)));
    let (session, control, connections) = waiting.join().unwrap().unwrap();
    let options = TcpCarrierOptions { idle_timeout, ..options() };
    let end = End::with(&options, session, control, connections);
    // More than the buffers of both sockets hold.
    let groups = 32;
    (0..groups).for_each(|group| end.offer(0, group, u64::from(groups) * GROUP_SIZE));
    end.hub.wait(|hub| !hub.closed.is_empty());
    let closed = end.hub.state().closed.remove(0);
    assert_eq!((closed.code, closed.by_peer), (CloseCode::TIMEOUT, false));
    assert_eq!(closed.reason, "nothing was heard from the peer for 1.5 s");
}

#[test]
fn the_congestion_control_is_the_one_asked_for() {
    let reno = TcpCarrierOptions { congestion_control: Some("reno".into()), ..options() };
    let server = Host::start();
    let (dialed, waiting) =
        server.dial(Protect::Clear, 1, |options, _| options.congestion_control = reno_name());
    let stop = Stop::default();
    let joined = super::join(dialed.server, &dialed.identity, &dialed.session, &reno, &stop);
    let client = End::start(dialed.session, dialed.control, joined.unwrap());
    let end = waiting.join().unwrap().unwrap();
    let end = End::start(end.0, end.1, end.2);
    for mut end in [client, end] {
        end.lanes.close(CloseCode::DONE, "");
        end.lanes.join();
        assert_eq!(end.lanes.view().congestion_control, "reno");
    }

    let (dialed, _) = server.dial(Protect::Clear, 1, |_, _| ());
    let unknown = TcpCarrierOptions { congestion_control: Some("nosuch".into()), ..options() };
    let joined = super::join(dialed.server, &dialed.identity, &dialed.session, &unknown, &stop);
    assert!(matches!(joined.unwrap_err(), JoinError::CongestionControl { .. }));
}

fn reno_name() -> Option<String> {
    Some("reno".into())
}

/// A hub that keeps what it is given.
struct TestHub {
    state: Mutex<HubState>,
    changed: Condvar,
    finished: AtomicBool,
    keep_buffers: AtomicBool,
    credit: AtomicU64,
    table: Mutex<ObjectTable>,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct HubState {
    messages: VecDeque<Vec<u8>>,
    heard: Vec<u8>,
    ended: bool,
    delivered: u64,
    peer_credit: u64,
    groups: BTreeMap<u32, Vec<u8>>,
    taken: usize,
    kept: Vec<Buffer>,
    closed: Vec<Closed>,
}

impl TestHub {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            finished: AtomicBool::new(false),
            keep_buffers: AtomicBool::new(false),
            credit: AtomicU64::new(0),
            table: Mutex::default(),
            pool: Mutex::new(Pool::new(0, Reuse::Warm)),
        })
    }

    fn expect_object(&self, size: u64, buffers: usize) {
        *lock(&self.pool) = Pool::new(buffers, Reuse::Warm);
        lock(&self.table).push(size);
        self.credit.store(5_000_000, Ordering::Relaxed);
    }

    fn say(&self, len: usize, seed: u8) {
        let message = noise(len, seed);
        self.lock().messages.extend(message.chunks(50_000).map(<[u8]>::to_vec));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HubState> {
        lock(&self.state)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, HubState> {
        self.lock()
    }

    fn change(&self, change: impl FnOnce(&mut HubState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait(&self, mut until: impl FnMut(&mut HubState) -> bool) {
        let waited = self.changed.wait_timeout_while(self.lock(), PATIENCE, |state| !until(state));
        assert!(!waited.unwrap_or_else(PoisonError::into_inner).1.timed_out());
    }
}

impl Hub for TestHub {
    fn on_validated(&self) {}
    fn on_stream_bytes(&self, bytes: &[u8]) -> Result<(), String> {
        if bytes == b"bad" {
            return Err("the hub does not like it".into());
        }
        self.change(|state| state.heard.extend_from_slice(bytes));
        Ok(())
    }
    fn on_stream_end(&self) {
        self.change(|state| state.ended = true);
    }
    fn next_message(&self, out: &mut Vec<u8>) -> bool {
        let message = self.lock().messages.pop_front();
        message.map(|message| out.extend(message)).is_some()
    }
    fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Relaxed)
    }
    fn on_credit(&self, credit: u64) {
        self.change(|state| state.peer_credit = state.peer_credit.max(credit));
    }
    fn on_delivered(&self, extent: Extent) {
        self.change(|state| state.delivered += extent.len);
    }
    fn on_closed(&self, closed: &Closed) {
        self.change(|state| state.closed.push(closed.clone()));
    }
    fn is_drained(&self) -> bool {
        false
    }
    fn objects(&self) -> ObjectTable {
        lock(&self.table).clone()
    }
    fn take_buffer(&self) -> Option<Buffer> {
        lock(&self.pool).try_take()
    }
    fn on_group(&self, _: ObjectId, group: u32, len: u32, buffer: Buffer) {
        let keep = self.keep_buffers.load(Ordering::Relaxed);
        self.change(|state| {
            state.groups.insert(group, buffer[..len as usize].to_vec());
            state.taken += 1;
            state.kept.extend(keep.then_some(buffer));
        });
    }
    fn credit(&self) -> u64 {
        self.credit.load(Ordering::Relaxed)
    }
}

/// One end at work.
struct End {
    hub: Arc<TestHub>,
    lanes: TcpLanes,
    _session: Session,
    _control: Control,
    pool: Pool,
}

impl End {
    fn start(session: Session, control: Control, connections: Vec<DataConnection>) -> Self {
        Self::with(&options(), session, control, connections)
    }

    fn with(
        options: &TcpCarrierOptions,
        session: Session,
        control: Control,
        connections: Vec<DataConnection>,
    ) -> Self {
        let hub = TestHub::new();
        let mailboxes = connections.iter().map(|_| Arc::new(Mailbox::new().unwrap())).collect();
        let dynamic: Arc<dyn Hub> = hub.clone();
        let lanes = TcpLanes::start(connections, options, &dynamic, mailboxes).unwrap();
        let pool = Pool::new(64, Reuse::Warm);
        Self { hub, lanes, _session: session, _control: control, pool }
    }

    fn offer(&self, lane: usize, group: u32, size: u64) {
        let bytes = group_bytes(group, size);
        let mut buffer = self.pool.take().unwrap();
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let offset = u64::from(group) * GROUP_SIZE;
        let extent = Extent { object: OBJECT, offset, len: bytes.len() as u64 };
        let outgoing = Outgoing { extent, bytes: Arc::new(buffer) };
        self.lanes.mailboxes[lane].post(Command::Offer(outgoing));
    }
}

type Waiting = thread::JoinHandle<Result<(Session, Control, Vec<DataConnection>), JoinError>>;

/// A server that takes one client at a time.
struct Host {
    address: SocketAddr,
    joins: Arc<Joins>,
    clients: std::sync::mpsc::Receiver<Box<crate::control::PendingClient>>,
}

impl Host {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor =
            Arc::new(Acceptor::new(&[token()], ServerConfig::default(), Stop::default()).unwrap());
        let joins = Arc::new(Joins::default());
        let (tell, clients) = std::sync::mpsc::channel();
        let handing = Arc::clone(&joins);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (acceptor, joins, tell) = (acceptor.clone(), handing.clone(), tell.clone());
                thread::spawn(move || match acceptor.accept(stream.unwrap()) {
                    Ok(Accepted::Client(client)) => drop(tell.send(client)),
                    Ok(Accepted::Data(join)) => drop(joins.hand_over(*join)),
                    Err(_) => {}
                });
            }
        });
        Self { address, joins, clients }
    }

    /// A client is let in, and its connections are waited for.
    fn dial(
        &self,
        protect: Protect,
        lanes: u16,
        adapt: impl FnOnce(&mut TcpCarrierOptions, &Stop),
    ) -> (Dialed, Waiting) {
        let config =
            ClientConfig { protect, lanes, carrier: Carrier::Tcp, ..ClientConfig::default() };
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        let (mut options, stop) = (options(), Stop::default());
        adapt(&mut options, &stop);
        thread::scope(|scope| {
            let dialing =
                scope.spawn(|| dial(&host, port, &token(), &config, PATIENCE, &Stop::default()));
            let client = self.clients.recv_timeout(PATIENCE).unwrap();
            let number = NonZeroU32::new(5).unwrap();
            let joins = Arc::clone(&self.joins);
            let (ready, readied) = std::sync::mpsc::channel();
            let waiting = thread::spawn(move || {
                let expected = joins.expect(ConnectionId(5));
                let (session, control) = client.welcome(number, PATIENCE).unwrap();
                ready.send(()).unwrap();
                let joined = expected.collect(&session, &options, &stop)?;
                Ok((session, control, joined))
            });
            readied.recv_timeout(PATIENCE).unwrap();
            (dialing.join().unwrap().unwrap(), waiting)
        })
    }

    fn join_bare(&self, join: &Join) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let mut bytes = [0; JOIN_LEN];
        join.emit(&mut bytes);
        stream.write_all(&bytes).unwrap();
        stream
    }

    /// Joins, and what the server says to that.
    fn knock(&self, join: &Join) -> (TcpStream, Option<CloseCode>) {
        let mut stream = self.join_bare(join);
        let code = close_code(&mut stream);
        (stream, code)
    }
}

/// Two ends, connected.
fn ends(protect: Protect, lanes: u16) -> (End, End) {
    let server = Host::start();
    let (dialed, waiting) = server.dial(protect, lanes, |_, _| ());
    let joined =
        super::join(dialed.server, &dialed.identity, &dialed.session, &options(), &Stop::default());
    let (session, control, connections) = waiting.join().unwrap().unwrap();
    (
        End::start(dialed.session, dialed.control, joined.unwrap()),
        End::start(session, control, connections),
    )
}

/// The code of the CLOSE that comes before the end of `stream`.
fn close_code(stream: &mut TcpStream) -> Option<CloseCode> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        while let Ok(Some((RecordHead::Frames { len }, head))) = RecordHead::parse(&bytes) {
            let Some(frames) = bytes.get(head..head + len) else { break };
            for frame in Frames::new(frames) {
                if let Frame::Close { code, .. } = frame.unwrap() {
                    return Some(code);
                }
            }
            bytes.drain(..head + len);
        }
        match stream.read(&mut chunk) {
            Ok(count @ 1..) => bytes.extend_from_slice(&chunk[..count]),
            _ => return None,
        }
    }
}

fn group_bytes(group: u32, size: u64) -> Vec<u8> {
    let len = GROUP_SIZE.min(size - u64::from(group) * GROUP_SIZE);
    noise(len as usize, group as u8)
}

fn noise(len: usize, seed: u8) -> Vec<u8> {
    let mut word = u32::from(seed) + 1;
    let mut bytes = Vec::with_capacity(len);
    for _ in 0..len {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.push((word >> 24) as u8);
    }
    bytes
}

fn options() -> TcpCarrierOptions {
    TcpCarrierOptions {
        congestion_control: None,
        rate: None,
        join_timeout: PATIENCE,
        idle_timeout: PATIENCE,
    }
}

fn token() -> Token {
    Token::from_random([4; 16])
}

const OBJECT: ObjectId = ObjectId(0);

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
