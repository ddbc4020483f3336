//! Both ends on loopback, over real control connections.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, PoisonError};
use std::thread;

use longhaul_connection::{
    Begun, GroupPart, Misspoken, News, Order, Repair, Standing, Unplaceable, Violation, WholeGroup,
};
use longhaul_control::{Accepted, Acceptor, Control, Dialed, Remote, dial};
use longhaul_engine::Closed;
use longhaul_objects::ObjectTable;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_session::{ClientConfig, ServerConfig, Session, Token};
use longhaul_sys::stop::Stop;
use longhaul_units::{Extent, LaneId, ObjectId, StreamId};
use longhaul_wire::{
    AEAD_TAG_LEN, Carrier, ConnectionId, Frame, Frames, JOIN_LEN, Join, Protect, RecordHead, Writer,
};

use super::*;
use crate::buffer::{Buffer, Pool};
use crate::carrier::Carrier as _;
use crate::upper_layer::Command;

#[test]
fn groups_and_messages_cross_under_every_protection() {
    for protect in [Protect::Clear, Protect::Integrity, Protect::Aead] {
        let (mut client, mut server) = ends(protect, 3);
        let size = 9 * GROUP_SIZE + 12_345;
        server.upper.expect_object(size, 64);
        client.upper.say(600_000, 1);
        server.upper.say(700_000, 2);
        for group in 0..10 {
            client.offer(group as usize % 3, group, size);
        }
        server.upper.wait(|upper| upper.groups.len() == 10);
        client.upper.wait(|upper| upper.delivered == size && upper.peer_credit == 5_000_000);
        client.upper.finished.store(true, Ordering::Relaxed);
        server.upper.finished.store(true, Ordering::Relaxed);
        client.lanes.mailboxes[0].wake();
        server.lanes.mailboxes[0].wake();
        client.upper.wait(|upper| upper.ended);
        server.upper.wait(|upper| upper.ended);
        assert!(server.upper.state().received == noise(600_000, 1), "{protect}");
        assert!(client.upper.state().received == noise(700_000, 2), "{protect}");
        for group in 0..10 {
            let got = &server.upper.state().groups[&group];
            assert!(*got == group_bytes(group, size), "{protect} {group}");
        }
        client.lanes.close(CloseCode::DONE, "that was all");
        client.lanes.join();
        server.lanes.join();
        for (upper, by_peer) in [(&client.upper, false), (&server.upper, true)] {
            let end = Closed { code: CloseCode::DONE, reason: "that was all".into(), by_peer };
            assert_eq!(upper.state().closed, vec![end; 3], "{protect}");
        }
        // Messages are not among the bytes that moved.
        assert_eq!(server.lanes.view().moved, size, "{protect}");
        assert!((1..=size).contains(&client.lanes.view().moved), "{protect}");
        let sent = client.lanes.view().info;
        assert!(sent.segments_sent > 0 && sent.rtt_min > Duration::ZERO);
        assert!(!client.lanes.view().congestion_control.is_empty());
    }
}

#[test]
fn a_group_is_taken_once_unless_it_is_forgotten() {
    let (client, server) = ends(Protect::Clear, 1);
    let size = 2 * GROUP_SIZE;
    server.upper.expect_object(size, 8);
    for group in [0, 0, 1] {
        client.offer(0, group, size);
    }
    server.upper.wait(|upper| upper.groups.contains_key(&1));
    assert_eq!(server.upper.state().taken, 2);
    server.lanes.mailboxes[0].post_repair(Repair::ReceiveAgain(OBJECT, 0));
    client.offer(0, 0, size);
    server.upper.wait(|upper| upper.taken == 3);
    assert!(server.upper.state().groups[&0] == group_bytes(0, size));
}

#[test]
fn lack_of_memory_holds_the_peer_and_loses_nothing() {
    let (client, server) = ends(Protect::Aead, 2);
    let size = 40 * GROUP_SIZE;
    server.upper.keep_buffers.store(true, Ordering::Relaxed);
    server.upper.expect_object(size, 3);
    for group in 0..40 {
        client.offer(group as usize % 2, group, size);
    }
    for done in 0..=37 {
        server.upper.wait(|upper| upper.groups.len() >= done + 3);
        assert_eq!(server.upper.state().kept.len(), 3);
        drop(server.upper.lock().kept.pop());
    }
    server.upper.wait(|upper| upper.groups.len() == 40);
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
        assert_eq!(server.join_bare(&join).read(&mut [0]).unwrap(), 0, "{join:?}");
    }
    // The same lane twice: whichever comes first stays.
    let mut twins = [server.join_bare(&good), server.join_bare(&good)];
    let _second = server.join_bare(&dialed.session.join(LaneId(1)));
    let (_, _, joined) = waiting.join().unwrap().unwrap();
    let lanes: Vec<_> = joined.iter().map(|connection| connection.lane.0).collect();
    assert_eq!(lanes, [0, 1]);
    let ended = |twin: &mut TcpStream| {
        twin.set_nonblocking(true).unwrap();
        twin.read(&mut [0]).is_ok_and(|count| count == 0)
    };
    while !twins.iter_mut().any(ended) {
        thread::yield_now();
    }
    assert_eq!(twins.iter_mut().filter_map(|twin| ended(twin).then_some(())).count(), 1);
}

#[test]
fn a_bare_join_is_no_way_around_tls() {
    let server = Host::start();
    let (dialed, waiting) = server.dial(Protect::Aead, 1, |_, _| ());
    let join = dialed.session.join(LaneId(0));
    assert_eq!(server.join_bare(&join).read(&mut [0]).unwrap(), 0);
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
fn a_second_connection_for_a_lane_is_turned_away_inside_tls_too() {
    let server = Host::start();
    let (dialed, waiting) = server.dial(Protect::Aead, 2, |_, _| ());
    let join = || {
        let Dialed { server, identity, session, .. } = &dialed;
        super::join(*server, identity, session, &options(), &Stop::default()).unwrap()
    };
    let (first, second) = (join(), join());
    waiting.join().unwrap().unwrap();
    let mut codes: Vec<_> = first.into_iter().chain(second).map(|data| Peer(data).end()).collect();
    codes.sort();
    let unauthorized = Some(CloseCode::UNAUTHORIZED);
    assert_eq!(codes, [None, None, unauthorized, unauthorized]);
}

#[test]
fn a_breach_of_the_protocol_closes_the_connection() {
    let mut object = vec![2, 0, 0, 13];
    object.extend([0; 13]);
    let long_object = [2, 0x10, 0, 13];
    let long_frames = [1, 1, 0, 1];
    let frame = frames_record;
    let stream = |stream, offset, data| frame(Frame::Stream { stream, offset, fin: false, data });
    for protect in [Protect::Aead, Protect::Clear] {
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
            (&stream(StreamId(0), 0, b"bad"), "the messages end in the middle of one"),
        ] {
            let (mut peer, end) = peer(protect);
            peer.send(bytes);
            // Without TLS the sender of bytes that are no record is unknown.
            let (code, why) = match (protect, why) {
                (Protect::Clear, "record") => (CloseCode::TIMEOUT, ALTERED),
                _ => (CloseCode::PROTOCOL_VIOLATION, why),
            };
            assert_eq!(peer.end(), Some(code), "{bytes:?}");
            end.upper.wait(|upper| !upper.closed.is_empty());
            let closed = end.upper.state().closed.remove(0);
            assert!(closed.reason.contains(why) && !closed.by_peer, "{bytes:?}: {closed:?}");
        }
    }
}

#[test]
fn records_altered_on_the_way_are_not_believed() {
    let stream = |offset: u8, data: &[u8]| {
        let mut record = vec![1, 0, 0, 5 + data.len() as u8, 7, 3 + data.len() as u8, 0, offset, 0];
        record.extend(data);
        record
    };
    let close = frames_record(Frame::Close { code: CloseCode::DONE, reason: "" });
    // The bytes that the peer sent, and what a host in between makes of them.
    let first = |sent: &[Vec<u8>]| sent[0].clone();
    let flipped = |place: usize| {
        move |sent: &[Vec<u8>]| {
            let mut bytes = sent.concat();
            let place = place % bytes.len();
            bytes[place] ^= 1;
            bytes
        }
    };
    let bare = |_: &[Vec<u8>]| [close.clone(), vec![0; AEAD_TAG_LEN]].concat();
    let behind_bare = |sent: &[Vec<u8>]| [sent[0].clone(), bare(sent)].concat();
    let repeated = |sent: &[Vec<u8>]| [first(sent), first(sent)].concat();
    let swapped = |sent: &[Vec<u8>]| [sent[1].clone(), sent[0].clone()].concat();
    let removed = |sent: &[Vec<u8>]| sent[1..].concat();
    type Change<'c> = &'c dyn Fn(&[Vec<u8>]) -> Vec<u8>;
    let (head, body, tag) = (flipped(0), flipped(6), flipped(20));
    let changes: [(Change<'_>, &str); 8] = [
        (&head, ""),
        (&body, ""),
        (&tag, ""),
        (&bare, ""),
        (&behind_bare, "a"),
        (&repeated, "a"),
        (&swapped, ""),
        (&removed, ""),
    ];
    for (i, (change, received)) in changes.into_iter().enumerate() {
        let (mut peer, end) = peer(Protect::Clear);
        let sent =
            [stream(0, b"a"), stream(1, b"b"), close.clone()].map(|record| peer.seal(&record));
        peer.write(&change(&sent));
        end.upper.wait(|upper| !upper.closed.is_empty());
        let closed = end.upper.state().closed.remove(0);
        assert_eq!((closed.code, closed.by_peer), (CloseCode::TIMEOUT, false), "{i}");
        assert_eq!(closed.reason, ALTERED, "{i}");
        assert_eq!(end.upper.state().received, received.as_bytes(), "{i}");
    }
}

#[test]
fn records_of_another_connection_or_sent_back_are_not_believed() {
    let server = Host::start();
    let (dialed, waiting) = server.dial(Protect::Clear, 2, |_, _| ());
    let Dialed { session, .. } = &dialed;
    let mut bare = [0, 1].map(|lane| server.join_bare(&session.join(LaneId(lane))));
    let end = waiting.join().unwrap().unwrap();
    let end = End::start(end.0, end.1, end.2);
    end.upper.say(10, 1);
    end.lanes.mailboxes[0].wake();
    let mut head = [0; 4];
    bare[0].read_exact(&mut head).unwrap();
    let mut record = vec![0; usize::from(head[3]) + AEAD_TAG_LEN];
    bare[0].read_exact(&mut record).unwrap();
    bare[0].write_all(&[&head[..], &record].concat()).unwrap();
    let mut other = seal::Seals::new(session, LaneId(0)).sent;
    let mut close = frames_record(Frame::Close { code: CloseCode::DONE, reason: "" });
    other.seal_frames(&mut close, 4).unwrap();
    bare[1].write_all(&close).unwrap();
    end.upper.wait(|upper| upper.closed.len() == 2);
    for closed in &end.upper.state().closed {
        assert_eq!((closed.reason.as_str(), closed.by_peer), (ALTERED, false));
    }
}

#[test]
fn bytes_of_objects_are_placed_where_their_sender_says_and_nowhere_else() {
    let (mut peer, end) = peer(Protect::Clear);
    end.upper.expect_object(2 * GROUP_SIZE, 4);
    let mut record = peer.seal(&[2, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'x']);
    // The second group instead of the first.
    record[13] = 0x10;
    peer.write(&record);
    end.upper.wait(|upper| !upper.closed.is_empty());
    assert_eq!(end.upper.state().closed[0].reason, ALTERED);
    let part = |group| GroupPart { object: ObjectId(0), group, start: 0, len: 1 };
    let buffers = [0, 1, 0, 1].map(|group| end.upper.begin_group(&part(group)));
    assert!(buffers.iter().all(Result::is_ok), "memory was taken for what nobody sent");
}

#[test]
fn a_peer_that_vanishes_is_reported() {
    let mut begun = vec![2, 0, 0, 0x20];
    begun.extend([0; 12]);
    begun.extend(b"half");
    for protect in [Protect::Aead, Protect::Clear] {
        for sent in [&[][..], &[2], &begun] {
            let (mut peer, end) = peer(protect);
            end.upper.expect_object(GROUP_SIZE, 4);
            peer.send(sent);
            drop(peer);
            end.upper.wait(|upper| !upper.closed.is_empty());
            let closed = end.upper.state().closed.remove(0);
            assert_eq!((closed.code, closed.by_peer), (CloseCode::TIMEOUT, false));
            assert!(closed.reason.starts_with("a data connection broke"), "{closed:?}");
        }
    }
}

#[test]
fn a_peer_that_the_kernel_gives_up_is_reported_as_silent() {
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
    end.upper.wait(|upper| !upper.closed.is_empty());
    let closed = end.upper.state().closed.remove(0);
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

/// An upper layer that keeps what it is given.
struct TestTransfer {
    state: Mutex<TransferState>,
    changed: Condvar,
    finished: AtomicBool,
    keep_buffers: AtomicBool,
    credit: AtomicU64,
    table: Mutex<ObjectTable>,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct TransferState {
    messages: VecDeque<Vec<u8>>,
    received: Vec<u8>,
    ended: bool,
    delivered: u64,
    peer_credit: u64,
    groups: BTreeMap<u32, Vec<u8>>,
    taken: usize,
    kept: Vec<Buffer>,
    closed: Vec<Closed>,
}

impl TestTransfer {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            finished: AtomicBool::new(false),
            keep_buffers: AtomicBool::new(false),
            credit: AtomicU64::new(0),
            table: Mutex::default(),
            pool: Mutex::new(Pool::new(0)),
        })
    }

    fn expect_object(&self, size: u64, buffers: usize) {
        *lock(&self.pool) = Pool::new(buffers);
        lock(&self.table).push(size);
        self.credit.store(5_000_000, Ordering::Relaxed);
    }

    fn say(&self, len: usize, seed: u8) {
        let message = noise(len, seed);
        self.lock().messages.extend(message.chunks(50_000).map(<[u8]>::to_vec));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, TransferState> {
        lock(&self.state)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, TransferState> {
        self.lock()
    }

    fn change(&self, change: impl FnOnce(&mut TransferState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait(&self, mut until: impl FnMut(&mut TransferState) -> bool) {
        let waited = self.changed.wait_timeout_while(self.lock(), PATIENCE, |state| !until(state));
        assert!(!waited.unwrap_or_else(PoisonError::into_inner).1.timed_out());
    }
}

impl UpperLayer for TestTransfer {
    fn on_news(&self, news: News<Buffer>) {
        self.change(|state| match news {
            News::Delivered(extent) => state.delivered += extent.len,
            News::Closed(closed) => state.closed.push(closed),
            News::Arrived(WholeGroup { group, len, buffer, .. }) => {
                state.groups.insert(group, buffer[..len as usize].to_vec());
                state.taken += 1;
                state.kept.extend(self.keep_buffers.load(Ordering::Relaxed).then_some(buffer));
            }
            _ => {}
        });
    }
    fn on_stream_bytes(&self, bytes: &[u8]) -> Result<(), Violation> {
        if bytes == b"bad" {
            return Err(Misspoken::CutShort.into());
        }
        self.change(|state| state.received.extend_from_slice(bytes));
        Ok(())
    }
    fn on_stream_end(&self) -> Result<(), Violation> {
        self.change(|state| state.ended = true);
        Ok(())
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
    fn standing(&self) -> Standing {
        Standing { credit: self.credit.load(Ordering::Relaxed), ..Standing::default() }
    }
    fn begin_group(&self, part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        let len = part.group_len(&lock(&self.table))?;
        let buffer = lock(&self.pool).try_take().ok_or(Unplaceable::NoMemory)?;
        Ok(Begun::Memory { buffer, len })
    }
}

/// One end at work.
struct End {
    upper: Arc<TestTransfer>,
    lanes: TcpLanes,
    _session: Arc<Session>,
    _control: Control,
    pool: Pool,
}

impl End {
    fn start(session: Arc<Session>, control: Control, connections: Vec<DataConnection>) -> Self {
        Self::with(&options(), session, control, connections)
    }

    fn with(
        options: &TcpCarrierOptions,
        session: Arc<Session>,
        control: Control,
        connections: Vec<DataConnection>,
    ) -> Self {
        let upper = TestTransfer::new();
        let mailboxes = connections.iter().map(|_| Arc::new(Mailbox::new().unwrap())).collect();
        let dynamic: Arc<dyn UpperLayer> = upper.clone();
        let lanes = TcpLanes::start(connections, options, &dynamic, mailboxes).unwrap();
        let pool = Pool::new(64);
        Self { upper, lanes, _session: session, _control: control, pool }
    }

    fn offer(&self, lane: usize, group: u32, size: u64) {
        let bytes = group_bytes(group, size);
        let mut buffer = self.pool.take().unwrap();
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let offset = u64::from(group) * GROUP_SIZE;
        let extent = Extent { object: OBJECT, offset, len: bytes.len() as u64 };
        let offer = Order::Offer { extent, bytes: Arc::new(buffer) };
        self.lanes.mailboxes[lane].post(Command::Order(offer));
    }
}

type Waiting = thread::JoinHandle<Result<(Arc<Session>, Control, Vec<DataConnection>), JoinError>>;

/// A server that takes one client at a time.
struct Host {
    address: SocketAddr,
    joins: Arc<Joins>,
    clients: std::sync::mpsc::Receiver<Box<longhaul_control::PendingClient>>,
}

impl Host {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = Arc::new(Acceptor::new(ServerConfig::default(), Stop::default()).unwrap());
        let joins = Arc::new(Joins::default());
        let (tell, clients) = std::sync::mpsc::channel();
        let handing = Arc::clone(&joins);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (acceptor, joins, tell) = (acceptor.clone(), handing.clone(), tell.clone());
                let stream = stream.unwrap();
                let from = stream.peer_addr().unwrap();
                thread::spawn(move || {
                    match acceptor.accept(stream, from, &[&token()].into_iter().collect(), |_| {}) {
                        Ok(Accepted::Client(client)) => drop(tell.send(client)),
                        Ok(Accepted::Data(join)) => drop(joins.hand_over(*join)),
                        Err(_) => {}
                    }
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
        let host = self.address.ip().to_string();
        let remote = Remote {
            host: &host,
            others: &[],
            port: self.address.port(),
            via: None,
            tunnel: None,
            only_tunnel: false,
        };
        let (mut options, stop) = (options(), Stop::default());
        adapt(&mut options, &stop);
        thread::scope(|scope| {
            let dialing =
                scope.spawn(|| dial(&remote, &token(), &config, PATIENCE, &Stop::default()));
            let client = self.clients.recv_timeout(PATIENCE).unwrap();
            let number = NonZeroU32::new(5).unwrap();
            let joins = Arc::clone(&self.joins);
            let (ready, readied) = std::sync::mpsc::channel();
            let waiting = thread::spawn(move || {
                let expected = joins.expect(ConnectionId(5));
                let (session, control) = client.welcome(number, PATIENCE).unwrap();
                ready.send(()).unwrap();
                let joined = expected.collect(&session, &options, || stop.is_requested())?;
                Ok((Arc::new(session), control, joined))
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
}

/// The client's end of a data connection, in the hands of a test.
struct Peer(DataConnection);

impl Peer {
    /// `record` as it travels: outside TLS with its tag.
    fn seal(&mut self, record: &[u8]) -> Vec<u8> {
        let mut sealed = record.to_vec();
        let Some(seals) = &mut self.0.seals else { return sealed };
        match (record.first(), record.first_chunk()) {
            (Some(2), Some(head)) => {
                let tag = seals.sent.object_tag(head).unwrap();
                sealed.splice(head.len()..head.len(), tag);
            }
            (Some(1), _) if record.len() > 4 => seals.sent.seal_frames(&mut sealed, 4).unwrap(),
            // Not a whole head.
            _ => {}
        }
        sealed
    }

    fn send(&mut self, record: &[u8]) {
        let sealed = self.seal(record);
        if !sealed.is_empty() {
            self.write(&sealed);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        assert_eq!(self.0.link.write(bytes, &[]).unwrap(), bytes.len());
        assert!(self.0.link.flush().unwrap());
    }

    /// The code of the CLOSE that comes before the end, if one does.
    fn end(mut self) -> Option<CloseCode> {
        let tag = if self.0.seals.is_some() { AEAD_TAG_LEN } else { 0 };
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            while let Ok(Some((RecordHead::Frames { len }, head))) = RecordHead::parse(&bytes) {
                if bytes.len() < head + len + tag {
                    break;
                }
                let mut record: Vec<u8> = bytes.drain(..head + len + tag).collect();
                let (head, body) = record.split_at_mut(head);
                let frames = match &mut self.0.seals {
                    Some(seals) => seals.received.open_frames(head, body).unwrap(),
                    None => body,
                };
                for frame in Frames::new(frames) {
                    if let Frame::Close { code, .. } = frame.unwrap() {
                        return Some(code);
                    }
                }
            }
            match self.0.link.read(&mut chunk) {
                Ok(link::Got::Bytes(count)) => bytes.extend_from_slice(&chunk[..count]),
                Ok(link::Got::Nothing) => thread::yield_now(),
                _ => return None,
            }
        }
    }
}

/// An end at work, and its peer.
fn peer(protect: Protect) -> (Peer, End) {
    let server = Host::start();
    let (dialed, waiting) = server.dial(protect, 1, |_, _| ());
    let joined =
        super::join(dialed.server, &dialed.identity, &dialed.session, &options(), &Stop::default());
    let (session, control, connections) = waiting.join().unwrap().unwrap();
    let end = End::start(session, control, connections);
    (Peer(joined.unwrap().remove(0)), end)
}

fn frames_record(frame: Frame<'_>) -> Vec<u8> {
    let mut record = vec![1, 0, 0, 0];
    frame.encode(&mut Writer::append(&mut record)).unwrap();
    record[3] = record.len() as u8 - 4;
    record
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
        via: None,
        tunnel: None,
        packet_max: None,
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
const ALTERED: &str = "a data connection was altered on the way";

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
