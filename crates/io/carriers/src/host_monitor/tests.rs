use std::net::SocketAddr;
use std::slice;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use longhaul_connection::{
    Begun, GroupPart, News, Order, Standing, Stored, Unplaceable, Violation,
};
use longhaul_engine::{LaneConfig, Path, Role, Suspension};
use longhaul_host::Batch;
use longhaul_needs::needs;
use longhaul_rate_control::{HostLimit, Profile};
use longhaul_session::{Direction, LaneKeys, SessionSecret};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_units::{Bottleneck, Duration, Instant, Rate};
use longhaul_wire::{Cipher, CloseCode, ConnectionId, MONITOR_LANE, Protect, StallTimes};

use super::announced::Announced;
use super::*;
use crate::buffer::Buffer;
use crate::protection::Protection;
use crate::udp::lane::{self, LaneSetup, LaneSocket};
use crate::udp::paths::{ConnectionPaths, FIRST, Opening, Owner};
use crate::upper_layer::{Command, UpperLayer};

/// A sentinel of one lane, whose thread is this one and announces what the test wants.
struct Watching {
    sentinel: Sentinel,
    log: Arc<LaneLog>,
    announced: Arc<AnnouncementCell>,
    account: Arc<Mutex<HostAccount>>,
    stored: Arc<Mutex<Option<Stored>>>,
    now: Instant,
}

impl Watching {
    fn new(speaks: bool) -> Self {
        Self::playing(Part::Limits, speaks)
    }

    fn playing(part: Part, speaks: bool) -> Self {
        let log = Arc::new(LaneLog::default());
        let (announced, account): (Arc<AnnouncementCell>, Arc<Mutex<_>>) = Default::default();
        let stored = Arc::new(Mutex::new(None));
        let sinks = AnnouncementSinks {
            mailboxes: vec![Arc::new(Mailbox::new().unwrap())],
            announced: announced.clone(),
            account: account.clone(),
            speaks: Arc::new(AtomicBool::new(speaks)),
            stored: {
                let stored = stored.clone();
                Box::new(move || *lock(&stored))
            },
        };
        let sentinel = Sentinel::new(vec![log.clone()], part, sinks);
        Self { sentinel, log, announced, account, stored, now: clock::now() }
    }

    /// Reads what 1 Gb/s bring, each millisecond; each fiftieth read comes 30 ms late, and a small socket,
    /// which nobody empties, drops what comes meanwhile.
    fn read_with_stalls(&mut self, time: Duration) {
        let socket = small_socket();
        self.log.receive_from(Some(&socket));
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let end = self.now + time;
        let mut reads = 0;
        while self.now < end {
            reads += 1;
            let late = if reads % 50 == 0 { Duration::from_millis(30) } else { Duration::ZERO };
            self.now = self.now + MS + late;
            if !late.is_zero() {
                (0..200).for_each(|_| drop(peer.send_to(&[0; 1_400], socket.local_addr())));
            }
            let missed = (MS + late).as_millis() as u64;
            let batch = Batch {
                bytes: 125_000 * missed,
                packets: 84 * missed,
                age: Some(Duration::from_micros(100) + late),
                cpu: Some(Duration::from_micros(100)),
                full: false,
            };
            self.log.beat(self.now);
            self.log.read(self.now, &batch);
            self.log.rest();
            self.sentinel.look(self.now);
        }
    }

    fn announced(&self) -> Announced {
        self.announced.read().expect("nobody writes").1
    }
}

const MS: Duration = Duration::from_millis(1);

fn small_socket() -> UdpSocket {
    let mut options = UdpOptions::default();
    options.receive_buffer = 106_496;
    UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap()
}

#[test]
fn stalls_that_the_buffer_cannot_outlast_limit_the_peer() {
    let mut watching = Watching::new(true);
    watching.read_with_stalls(Duration::from_secs(3));
    let limit = watching.announced().limit.expect("a limit");
    assert_eq!(limit.cause, Bottleneck::ReceiverBuffer);
    assert!(limit.rate < Rate::from_mbps(300), "{}", limit.rate);
    let account = *lock(&watching.account);
    assert!(account.stalls >= 20 && account.limits == 1, "{account:?}");
    assert!(account.longest_stall >= Duration::from_millis(29));
    assert_eq!(account.limited_by, Bottleneck::ReceiverBuffer);
    assert_eq!(account.stalled_by, StallTimes::default(), "nothing tells of a cause");
    assert_ne!(account.remedies & HostAccount::WATCHES, 0);
}

#[test]
fn a_kernel_without_counts_leads_to_no_announcement() {
    // No thread has joined, as where /proc is unreadable and perf refused, and there is no socket.
    let mut watching = Watching::new(true);
    for _ in 0..200 {
        watching.now += MS;
        watching.sentinel.look(watching.now);
    }
    assert_eq!(watching.announced(), Announced::default());
    assert_eq!(lock(&watching.account).stalls, 0);
}

#[test]
fn data_that_waits_for_storage_limits_the_peer_to_what_is_written() {
    let mut watching = Watching::new(true);
    let start = watching.now;
    for ms in 1..=1_000 {
        watching.now = start + MS * ms;
        // 200 Mb/s; three quarters of the memory are full, a quarter too much.
        let written = u64::from(ms) * 25_000;
        *lock(&watching.stored) = Some(Stored { waiting: 48 << 20, memory: 64 << 20, written });
        watching.sentinel.look(watching.now);
    }
    let limit = watching.announced().limit.expect("a limit");
    assert_eq!(limit.cause, Bottleneck::ReceiverDisk);
    assert!((140..=160).contains(&(limit.rate.as_bps() / 1_000_000)), "{}", limit.rate);
    assert_eq!(lock(&watching.account).limited_by, Bottleneck::ReceiverDisk);
}

#[test]
fn a_sender_keeps_what_it_sees_for_the_report() {
    let mut watching = Watching::new(false);
    watching.read_with_stalls(Duration::from_secs(3));
    assert_eq!(watching.announced(), Announced::default());
    assert!(lock(&watching.account).stalls >= 20);
}

#[test]
fn a_profile_says_who_speaks_for_the_receiving_host() {
    let part = |name, parameters: &[&'static str]| {
        let rate = Some(Rate::from_gbps(1));
        part_of(&Profile::wished(Some(name), rate, parameters.iter().copied()).unwrap())
    };
    assert_eq!(part("auto", &[]), Some(Part::Limits));
    assert_eq!(part("rbudp", &[]), None);
    assert_eq!(part("paptc", &[]), Some(Part::Paptc));
    assert_eq!(part("rapid", &[]), Some(Part::Rapid(RapidConfig::default())));
    let ule = Account::Ule(RunAndSleep::default());
    let config = RapidConfig { polling: Duration::from_millis(5), account: ule };
    assert_eq!(part("rapid", &["polling=5ms", "account=1"]), Some(Part::Rapid(config)));
}

#[test]
fn a_lane_gets_each_announcement_once() {
    let log = Arc::new(LaneLog::default());
    let announced = Arc::new(AnnouncementCell::default());
    let mut watch = Watch::new(Some(log), announced.clone());
    let now = clock::now();
    assert_eq!(watch.news(now), None);
    let suspension = Some(Suspension { order: 1, until: now + MS });
    let word = Announced { suspension, ..Announced::default() };
    announced.write(&word);
    assert_eq!((watch.news(now), watch.news(now)), (Some(word), None));
}

#[needs(priority)]
#[test]
fn priority_is_taken_where_it_is_permitted() {
    let taken = std::thread::spawn(|| Priority::First.take()).join().unwrap();
    assert_ne!(taken & HostAccount::RUNS_FIRST, 0);
    let cores =
        HostAccount::OFF_INTERRUPTS | HostAccount::FEW_PROCESSORS | HostAccount::INTERRUPTS_SPREAD;
    assert_eq!((taken & cores).count_ones(), 1, "chosen, or why not: {taken}");
}

#[needs(root)]
#[test]
fn priority_that_is_refused_is_reported_and_turns_are_short() {
    let taken = std::thread::spawn(|| {
        // Capabilities are each thread's own.
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective.remove(rustix::thread::CapabilitySet::SYS_NICE);
        rustix::thread::set_capabilities(None, sets).unwrap();
        Priority::First.take()
    });
    let taken = taken.join().unwrap();
    let refused = HostAccount::PRIORITY_REFUSED | HostAccount::SHORT_TURNS;
    assert_eq!(taken & (refused | HostAccount::RUNS_FIRST), refused);
}

/// The layer above lanes. It must not be called: the holder of its lock may have no processor.
struct Locked;

impl UpperLayer for Locked {
    fn on_news(&self, news: News<Buffer>) {
        assert!(matches!(news, News::Closed(_)), "it has a lock");
    }
    fn on_stream_bytes(&self, _: &[u8]) -> Result<(), Violation> {
        unreachable!("it has a lock");
    }
    fn standing(&self) -> Standing {
        unreachable!("it has a lock");
    }
    fn begin_group(&self, _: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        unreachable!("it has a lock");
    }
}

/// An end of a connection with one lane for data, whose thread never has a processor: that of its monitor
/// is all that runs.
struct End {
    monitor: HostMonitor,
    paths: Arc<ConnectionPaths>,
    own: Arc<Mailbox>,
    thread: JoinHandle<()>,
}

impl End {
    fn start(role: Role, socket: UdpSocket, peer: SocketAddr) -> Self {
        socket.connect(peer).unwrap();
        let (ours, theirs) = match role {
            Role::Client => (Direction::ClientToServer, Direction::ServerToClient),
            Role::Server => (Direction::ServerToClient, Direction::ClientToServer),
        };
        let protection = |direction| {
            let keys = LaneKeys::new(&SessionSecret::new([1; 32]), direction, MONITOR_LANE);
            Protection::new(keys, Cipher::Aes128Gcm, Protect::Aead)
        };
        let [data, own] = [0, 1].map(|_| Arc::new(Mailbox::new().unwrap()));
        let (monitor, sentinel) =
            HostMonitor::new(slice::from_ref(&data), &own, Part::Limits, Box::new(|| None));
        let path = || {
            let auto = Profile::wished(Some("auto"), None, []).unwrap();
            crate::udp::path(&auto, Duration::from_millis(1))
        };
        let owner = Owner::Server(Opening(Box::new(|| None)));
        let paths = Arc::new(ConnectionPaths::new(owner, path(), vec![data]));
        let mut config = LaneConfig::new(ConnectionId(1), MONITOR_LANE, role, 1);
        config.remote = (role == Role::Client).then_some(peer);
        let thread = lane::spawn(LaneSetup {
            config,
            paths: paths.clone(),
            path: Arc::new(Mutex::new(path())),
            socket: LaneSocket::Own(socket, peer),
            seal: protection(ours),
            open: protection(theirs),
            upper: Arc::new(NullUpperLayer(Arc::new(Locked))),
            mailbox: own.clone(),
            shared: Arc::default(),
            thread_group: Arc::default(),
            drops: None,
            priority: Priority::Usual,
            monitor: Some(monitor.listen()),
            sentinel: Some(Box::new(sentinel)),
            losses: None,
        });
        Self { monitor, paths, own, thread: thread.unwrap() }
    }

    fn say(&self, word: &Announced) {
        self.monitor.announced.write(word);
        self.own.wake();
    }

    /// Waits until the path of the data shows that an announcement of the peer has come.
    fn await_announcement(&self, has_come: impl Fn(&Path) -> bool) {
        let path = self.paths.path(FIRST);
        let end = clock::now() + Duration::from_secs(30);
        while !has_come(&lock(&path)) {
            assert!(clock::now() < end, "nothing has come");
            std::thread::sleep(MS);
        }
    }
}

#[test]
fn a_peer_gets_announcements_though_the_only_lane_has_no_processor() {
    let [here, there] = [(); 2].map(|()| small_socket());
    let [at, to] = [here.local_addr(), there.local_addr()];
    let sender = End::start(Role::Client, here, to);
    let receiver = End::start(Role::Server, there, at);
    // The lane lost its processor while it had its path.
    let path = receiver.paths.path(FIRST);
    let held = lock(&path);
    let now = clock::now();
    let until = now + Duration::from_secs(5);
    let rate = Rate::from_mbps(123);
    let limit = HostLimit { rate, cause: Bottleneck::ReceiverCpu, until };
    let suspension = Suspension { order: 1, until };
    let word = Announced { suspension: Some(suspension), ..Announced::default() };
    receiver.say(&word);
    sender.await_announcement(|path| {
        path.suspension().is_some_and(|suspension| suspension.order == 1)
    });
    receiver.say(&Announced { limit: Some(limit), ..word });
    sender.await_announcement(|path| path.governor().connection_limit() == Some(rate));
    let resume = Suspension { order: 2, until: now };
    receiver.say(&Announced { suspension: Some(resume), ..word });
    sender.await_announcement(|path| {
        path.suspension().is_some_and(|suspension| suspension.order == 2)
    });
    drop(held);
    let account = receiver.monitor.account();
    for end in [sender, receiver] {
        end.own.post(Command::Order(Order::Close(CloseCode::DONE, String::new())));
        end.thread.join().unwrap();
    }
    let remedies = lock(&account).remedies;
    assert_eq!(remedies, HostAccount::WATCHES | HostAccount::SHORT_TURNS, "reported at the end");
}
