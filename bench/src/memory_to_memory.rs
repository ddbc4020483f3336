//! One lane from memory to memory: what engine, protection and sockets cost, without files,
//! hashes and control connection. For benchmarks and tests; both ends are given the secret.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use longhaul_carriers::buffer::{Buffer, Pool};
use longhaul_carriers::host_monitor::Priority;
use longhaul_carriers::protection::{Protection, object_tag_len};
use longhaul_carriers::udp::lane::{self, HostDrops, LaneSetup, LaneSocket, LaneView};
use longhaul_carriers::udp::paths::{ConnectionPaths, FIRST, Opening, Owner};
use longhaul_carriers::upper_layer::{Command, Mailbox, UpperLayer};
use longhaul_connection::{Begun, GroupPart, News, Order, Standing, Unplaceable, WholeGroup};
use longhaul_engine::{LaneConfig, LaneStats, Role};
use longhaul_objects::ObjectTable;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_rate_control::ChosenProfile;
use longhaul_session::{Direction, LaneKeys, SessionSecret};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_sys::udp::UdpSocket;
use longhaul_units::{Bytes, Duration, Extent, Instant, LaneId, ObjectId};
use longhaul_wire::{Cipher, CloseCode, ConnectionId, Protect};

/// Options on which both ends agree.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// Bytes to move.
    pub bytes: u64,
    /// Protection of payload.
    pub protect: Protect,
    /// Cipher that seals packets.
    pub cipher: Cipher,
    /// Keys come from here.
    pub secret: [u8; 32],
    /// Profile: sets the rate, and repairs losses.
    pub profile: ChosenProfile,
    /// Bytes offered to the lane at a time.
    pub window: u64,
}

/// Results of one end.
#[derive(Clone, Debug)]
pub struct MemoryReport {
    /// From the start to the last byte received, or acknowledged.
    pub elapsed: Duration,
    /// CPU time of the lane's thread, softirq work that ran in it included.
    pub cpu: Duration,
    /// Counters of the lane.
    pub stats: LaneStats,
}

struct MemoryTransfer {
    options: MemoryOptions,
    mailbox: Arc<Mailbox>,
    /// Groups that the sender sends, over and over.
    groups: Vec<Arc<Buffer>>,
    /// Memory into which the receiver receives.
    pool: Pool,
    table: ObjectTable,
    next: AtomicU64,
    done: AtomicU64,
    end: Mutex<Option<Instant>>,
    ended: Condvar,
}

impl MemoryTransfer {
    fn offer_next(&self) {
        let offset = self.next.fetch_add(GROUP_SIZE, Ordering::Relaxed);
        if offset >= self.options.bytes {
            return;
        }
        let len = GROUP_SIZE.min(self.options.bytes - offset);
        let extent = Extent { object: OBJECT, offset, len };
        let index = (offset / GROUP_SIZE) as usize % self.groups.len();
        let bytes = self.groups[index].clone();
        self.mailbox.post(Command::Order(Order::Offer { extent, bytes }));
    }

    fn count(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if done >= self.options.bytes {
            lock(&self.end).get_or_insert_with(clock::now);
            self.ended.notify_all();
        }
    }

    /// Waits for the end, and returns its time.
    fn wait(&self) -> Instant {
        let mut end = lock(&self.end);
        loop {
            match *end {
                Some(at) => return at,
                None => end = self.ended.wait(end).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl UpperLayer for MemoryTransfer {
    fn on_news(&self, news: News<Buffer>) {
        match news {
            News::Delivered(extent) => {
                self.count(extent.len);
                self.offer_next();
            }
            News::Arrived(WholeGroup { len, buffer, .. }) => {
                drop(buffer);
                self.count(len.into());
            }
            News::Closed(_) => {
                lock(&self.end).get_or_insert_with(clock::now);
                self.ended.notify_all();
            }
            _ => {}
        }
    }
    fn standing(&self) -> Standing {
        let drained = self.next.load(Ordering::Relaxed) >= self.options.bytes;
        Standing { credit: u64::MAX >> 2, drained, ..Standing::default() }
    }
    fn begin_group(&self, part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        let len = part.group_len(&self.table)?;
        let buffer = self.pool.try_take().ok_or(Unplaceable::NoMemory)?;
        Ok(Begun::Memory { buffer, len })
    }
}

/// Sends `options.bytes` out of `groups`, in turn, from `socket`, connected to `to`.
///
/// # Errors
/// The profile needs a rate, or a thread cannot be started.
pub fn send(
    socket: UdpSocket,
    to: SocketAddr,
    options: &MemoryOptions,
    groups: Vec<Arc<Buffer>>,
) -> io::Result<MemoryReport> {
    run(socket, Some(to), options, groups, Pool::new(0))
}

/// Receives `options.bytes` into buffers of `pool`.
///
/// # Errors
/// The profile needs a rate, or a thread cannot be started.
pub fn receive(socket: UdpSocket, options: &MemoryOptions, pool: Pool) -> io::Result<MemoryReport> {
    run(socket, None, options, Vec::new(), pool)
}

fn run(
    socket: UdpSocket,
    to: Option<SocketAddr>,
    options: &MemoryOptions,
    groups: Vec<Arc<Buffer>>,
    pool: Pool,
) -> io::Result<MemoryReport> {
    let now = clock::now();
    let (role, ours, theirs) = match to {
        Some(_) => (Role::Client, Direction::ClientToServer, Direction::ServerToClient),
        None => (Role::Server, Direction::ServerToClient, Direction::ClientToServer),
    };
    let secret = SessionSecret::new(options.secret);
    let protection = |direction| {
        let keys = LaneKeys::new(&secret, direction, LANE);
        Protection::new(keys, options.cipher, options.protect)
    };
    let config = configure(&socket, to, options, role)?;
    let rtt = Duration::from_millis(1);
    let path = longhaul_carriers::udp::path(&options.profile, rtt);
    let mut table = ObjectTable::default();
    table.push(options.bytes);
    let upper = Arc::new(MemoryTransfer {
        options: options.clone(),
        mailbox: Arc::new(Mailbox::new()?),
        groups,
        pool,
        table,
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
        end: Mutex::new(None),
        ended: Condvar::new(),
    });
    let shared = Arc::new(Mutex::new(LaneView::default()));
    let one_path = Owner::Server(Opening(Box::new(|| None)));
    let paths = Arc::new(ConnectionPaths::new(one_path, path, vec![upper.mailbox.clone()]));
    let thread = lane::spawn(LaneSetup {
        config,
        path: paths.path(FIRST),
        paths,
        socket: match to {
            Some(to) => LaneSocket::Own(socket, to),
            None => LaneSocket::Own(socket, SocketAddr::from(([0, 0, 0, 0], 0))),
        },
        seal: protection(ours),
        open: protection(theirs),
        upper: upper.clone(),
        mailbox: upper.mailbox.clone(),
        shared: shared.clone(),
        thread_group: Arc::default(),
        drops: Some(Arc::new(HostDrops::since_now())),
        priority: Priority::Usual,
        monitor: None,
        sentinel: None,
        losses: None,
    })?;
    if to.is_some() {
        for _ in 0..options.window.div_ceil(GROUP_SIZE).max(1) {
            upper.offer_next();
        }
    }
    let finished = upper.wait();
    if to.is_some() {
        upper.mailbox.post(Command::Order(Order::Close(CloseCode::DONE, String::new())));
    }
    // The receiver ends when the sender has closed.
    let _ = thread.join();
    let view = lock(&shared).clone();
    Ok(MemoryReport { elapsed: finished - now, cpu: view.cpu, stats: view.stats })
}

/// The lane of an end; its socket is connected to `to`, where that is known.
fn configure(
    socket: &UdpSocket,
    to: Option<SocketAddr>,
    options: &MemoryOptions,
    role: Role,
) -> io::Result<LaneConfig> {
    let mut config = LaneConfig::new(ConnectionId(1), LANE, role, 1);
    config.remote = to;
    config.repair = options.profile.repair();
    config.object_tag = object_tag_len(options.protect);
    config.socket_buffer = Some(Bytes::new(socket.receive_buffer().obtained as u64));
    if let Some(to) = to {
        socket.connect(to)?;
        let headers = if to.is_ipv4() { 28 } else { 48 };
        config.datagram_max = (socket.route_mtu()?.min(65_535) as u16).saturating_sub(headers);
    }
    Ok(config)
}

/// The one lane.
const LANE: LaneId = LaneId(0);
/// The one object that is moved.
const OBJECT: ObjectId = ObjectId(0);

#[cfg(test)]
mod tests;
