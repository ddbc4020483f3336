use std::sync::atomic::AtomicBool;

use longhaul_engine::Suspension;
use longhaul_host::Batch;
use longhaul_needs::needs;
use longhaul_sys::clock;
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use super::*;
use sentinel::TICK;

/// A sentinel of one lane, whose thread is this one and tells what the test wants.
struct Watching {
    sentinel: Sentinel,
    log: Arc<LaneLog>,
    said: Arc<Said>,
    account: Arc<Mutex<HostAccount>>,
    now: Instant,
}

impl Watching {
    fn new(speaks: bool) -> Self {
        let log = Arc::new(LaneLog::default());
        let (said, account): (Arc<Said>, Arc<Mutex<_>>) = Default::default();
        let ears = Ears {
            mailboxes: vec![Arc::new(Mailbox::new().unwrap())],
            said: said.clone(),
            account: account.clone(),
            speaks: Arc::new(AtomicBool::new(speaks)),
        };
        let sentinel = Sentinel::new(vec![log.clone()], ears);
        Self { sentinel, log, said, account, now: clock::now() }
    }

    /// Reads what 1 Gb/s bring, each millisecond; each fiftieth read comes 30 ms late.
    fn read_with_stalls(&mut self, time: Duration) {
        let end = self.now + time;
        let mut reads = 0;
        while self.now < end {
            reads += 1;
            let late = if reads % 50 == 0 { Duration::from_millis(30) } else { Duration::ZERO };
            self.now = self.now + TICK + late;
            let missed = (TICK + late).as_millis() as u64;
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

    fn word(&self) -> said::Word {
        self.said.read().expect("nobody writes").1
    }
}

fn small_socket() -> UdpSocket {
    let mut options = UdpOptions::default();
    options.receive_buffer = 106_496;
    UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap()
}

#[test]
fn stalls_that_the_buffer_cannot_outlast_limit_the_peer() {
    let mut watching = Watching::new(true);
    watching.log.receive_from(Some(&small_socket()));
    watching.read_with_stalls(Duration::from_secs(3));
    let limit = watching.word().limit.expect("a limit");
    assert_eq!(limit.cause, Bottleneck::ReceiverBuffer);
    assert!(limit.rate < Rate::from_mbps(300), "{}", limit.rate);
    let account = *lock(&watching.account);
    assert!(account.stalls >= 20 && account.limits == 1, "{account:?}");
    assert!(account.longest_stall >= Duration::from_millis(29));
    assert_eq!(account.limited_by, Bottleneck::ReceiverBuffer);
    assert_ne!(account.remedies & HostAccount::WATCHES, 0);
}

#[test]
fn where_the_kernel_tells_nothing_nothing_is_announced() {
    // No thread has joined, as where /proc is unreadable and perf refused, and there is no socket.
    let mut watching = Watching::new(true);
    for _ in 0..200 {
        watching.now += TICK;
        watching.sentinel.look(watching.now);
    }
    assert_eq!(watching.word(), said::Word::default());
    assert_eq!(lock(&watching.account).stalls, 0);
}

#[test]
fn who_sends_keeps_what_it_sees_for_the_report() {
    let mut watching = Watching::new(false);
    watching.log.receive_from(Some(&small_socket()));
    watching.read_with_stalls(Duration::from_secs(3));
    assert_eq!(watching.word(), said::Word::default());
    assert!(lock(&watching.account).stalls >= 20);
}

#[test]
fn a_lane_hears_each_word_once() {
    let log = Arc::new(LaneLog::default());
    let said = Arc::new(Said::default());
    let mut watch = Watch::new(log, said.clone());
    let now = clock::now();
    assert_eq!(watch.news(now), None);
    let suspension = Some(Suspension { order: 1, until: now + TICK });
    let word = said::Word { limit: None, suspension };
    said.write(&word);
    assert_eq!((watch.news(now), watch.news(now)), (Some(word), None));
}

#[test]
fn a_monitor_ends_with_its_connection() {
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let monitor = HostMonitor::start(&[mailbox], Priority::Usual).unwrap();
    let account = monitor.account.clone();
    monitor.speak();
    drop(monitor);
    assert_eq!(Arc::strong_count(&account), 1, "its thread is over");
    let remedies = lock(&account).remedies;
    assert_eq!(remedies, HostAccount::WATCHES | HostAccount::SHORT_TURNS);
}

#[needs(priority)]
#[test]
fn priority_is_taken_where_it_is_permitted() {
    let taken = std::thread::spawn(|| Priority::First.take()).join().unwrap();
    assert_eq!(taken, HostAccount::RUNS_FIRST);
}

#[needs(root)]
#[test]
fn priority_that_is_refused_is_told_and_turns_are_short() {
    let taken = std::thread::spawn(|| {
        // Capabilities are each thread's own.
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective.remove(rustix::thread::CapabilitySet::SYS_NICE);
        rustix::thread::set_capabilities(None, sets).unwrap();
        Priority::First.take()
    });
    let taken = taken.join().unwrap();
    assert_eq!(taken, HostAccount::PRIORITY_REFUSED | HostAccount::SHORT_TURNS);
}
