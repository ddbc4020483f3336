//! Segments in memory, over links with a delay and a clock that somebody moves: sessions run over
//! them as over a network, the same each time.
//!
//! Data arrives after the delay of its link, later where that is dark meanwhile. What a dropped
//! segment has not ended both ways is reset at its peer, behind what was sent; a host that vanishes
//! says nothing, and is given up as TCP does it.

use longhaul_sys::sync::lock;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use longhaul_units::{Duration, Instant, Rate};

use super::{Direction, Listener, Segment, SegmentSettings, Statistics, Transport};

/// A network of hosts that are all linked with each other.
#[derive(Clone, Debug, Default)]
pub struct Network(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now: Instant,
    listeners: BTreeMap<SocketAddr, VecDeque<usize>>,
    connections: Vec<Connection>,
    links: BTreeMap<(IpAddr, IpAddr), Link>,
    /// When hosts vanished.
    gone: BTreeMap<IpAddr, Instant>,
}

/// A link, in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// In one direction.
    pub delay: Duration,
    /// Nothing arrives in this time, and everything of it behind it.
    pub dark: (Instant, Instant),
    /// Bytes that wait in a direction at most.
    pub capacity: usize,
}

#[derive(Debug)]
struct Connection {
    /// The end that dialled, and the one that accepted.
    ends: [SocketAddr; 2],
    began: Instant,
    is_refused: bool,
    /// By the end that sends.
    halves: [Half; 2],
}

#[derive(Debug, Default)]
struct Half {
    /// Bytes by the time when they were sent.
    chunks: VecDeque<(Instant, VecDeque<u8>)>,
    ended: Option<Instant>,
    end_was_read: bool,
    reset: Option<Instant>,
    sent: u64,
}

impl Network {
    /// Moves the clock.
    pub fn set_now(&self, now: Instant) {
        self.state().now = now;
    }

    /// Links two hosts.
    pub fn link(&self, one: IpAddr, other: IpAddr, link: Link) {
        let mut state = self.state();
        state.links.insert((one, other), link);
        state.links.insert((other, one), link);
    }

    /// A host is gone, and says nothing more.
    pub fn vanish(&self, host: IpAddr) {
        let mut state = self.state();
        let now = state.now;
        state.gone.entry(host).or_insert(now);
        state.listeners.retain(|at, _| at.ip() != host);
    }

    /// Nothing listens there any more: its program was killed.
    pub fn close(&self, host: IpAddr) {
        let mut state = self.state();
        let now = state.now;
        let (closed, open) =
            std::mem::take(&mut state.listeners).into_iter().partition(|(at, _)| at.ip() == host);
        state.listeners = open;
        let closed: BTreeMap<SocketAddr, VecDeque<usize>> = closed;
        // Nobody will accept these.
        for waiting in closed.into_values().flatten() {
            state.connections[waiting].halves[1].reset = Some(now);
        }
    }

    /// The transport of the programs on a host.
    pub fn host(&self, address: IpAddr) -> Memory {
        Memory { network: self.clone(), address }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    /// When what `end` sends at `sent` arrives; `None`: never.
    fn arrival(&self, connection: usize, end: usize, sent: Instant) -> Option<Instant> {
        let ends = &self.connections[connection].ends;
        let (from, to) = (ends[end].ip(), ends[1 - end].ip());
        let link = self.links.get(&(from, to))?;
        let is_gone =
            |host: IpAddr, at: Instant| self.gone.get(&host).is_some_and(|gone| at >= *gone);
        let at = match sent + link.delay {
            at if at >= link.dark.0 && at < link.dark.1 => link.dark.1,
            at => at,
        };
        (!is_gone(from, sent) && !is_gone(to, at)).then_some(at)
    }

    /// Bytes that `end` sent at `sent` have arrived.
    fn has_arrived(&self, connection: usize, end: usize, sent: Instant) -> bool {
        self.arrival(connection, end, sent).is_some_and(|at| at <= self.now)
    }

    /// Bytes that `end` sent at `sent` are acknowledged.
    fn is_acknowledged(&self, connection: usize, end: usize, sent: Instant) -> bool {
        let arrival = self.arrival(connection, end, sent);
        arrival.is_some_and(|at| self.has_arrived(connection, 1 - end, at) && at <= self.now)
    }

    /// The peer has the end that `end` sent, and the peer's has come, read or not.
    fn is_over(&self, connection: usize, end: usize) -> bool {
        let halves = &self.connections[connection].halves;
        halves[end].ended.is_some_and(|at| self.is_acknowledged(connection, end, at))
            && halves[1 - end].ended.is_some_and(|at| self.has_arrived(connection, 1 - end, at))
    }

    /// The peer of `end` reset the connection, or was given up.
    fn failure(&self, connection: usize, end: usize) -> Option<io::ErrorKind> {
        let Connection { ends, halves, .. } = &self.connections[connection];
        if let Some(at) = halves[1 - end].reset
            && self.has_arrived(connection, 1 - end, at)
        {
            return Some(io::ErrorKind::ConnectionReset);
        }
        let gone = self.gone.get(&ends[1 - end].ip())?;
        (self.now.since(*gone) >= GIVEN_UP).then_some(io::ErrorKind::TimedOut)
    }
}

/// The transport of the programs on a host.
#[derive(Clone, Debug)]
pub struct Memory {
    network: Network,
    address: IpAddr,
}

impl Transport for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn judge(&self, _settings: &SegmentSettings) -> io::Result<Option<String>> {
        Ok(None)
    }

    fn listen(
        &self,
        address: SocketAddr,
        _settings: &SegmentSettings,
    ) -> io::Result<Box<dyn Listener>> {
        let mut state = self.network.state();
        if state.listeners.insert(address, VecDeque::new()).is_some() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(Box::new(MemoryListener { network: self.network.clone(), address }))
    }

    fn dial(
        &self,
        address: SocketAddr,
        _settings: &SegmentSettings,
    ) -> io::Result<Box<dyn Segment>> {
        let mut state = self.network.state();
        let connection = state.connections.len();
        // Ports are never used again.
        let local = SocketAddr::new(self.address, 1 + (connection % 65_535) as u16);
        let is_refused = !state.listeners.contains_key(&address);
        let began = state.now;
        state.connections.push(Connection {
            ends: [local, address],
            began,
            is_refused,
            halves: Default::default(),
        });
        if let Some(listener) = state.listeners.get_mut(&address) {
            listener.push_back(connection);
        }
        Ok(Box::new(MemorySegment { network: self.network.clone(), connection, end: 0 }))
    }
}

#[derive(Debug)]
struct MemoryListener {
    network: Network,
    address: SocketAddr,
}

impl Listener for MemoryListener {
    fn accept(&self) -> io::Result<Option<(Box<dyn Segment>, SocketAddr)>> {
        let mut state = self.network.state();
        let Some(&next) = state.listeners.get(&self.address).and_then(VecDeque::front) else {
            return Ok(None);
        };
        let began = state.connections[next].began;
        if !state.has_arrived(next, 0, began) {
            return Ok(None);
        }
        state.listeners.get_mut(&self.address).and_then(VecDeque::pop_front);
        let peer = state.connections[next].ends[0];
        let network = self.network.clone();
        Ok(Some((Box::new(MemorySegment { network, connection: next, end: 1 }), peer)))
    }

    fn change(&self, _settings: &SegmentSettings) -> io::Result<()> {
        Ok(())
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[derive(Debug)]
struct MemorySegment {
    network: Network,
    connection: usize,
    /// 0: it dialled.
    end: usize,
}

impl Segment for MemorySegment {
    fn connected(&mut self) -> io::Result<bool> {
        let state = self.network.state();
        let connection = &state.connections[self.connection];
        if !state.is_acknowledged(self.connection, 0, connection.began) {
            let failure = state.failure(self.connection, self.end);
            return failure.map_or(Ok(false), |kind| Err(kind.into()));
        }
        match connection.is_refused {
            true => Err(io::ErrorKind::ConnectionRefused.into()),
            false => Ok(true),
        }
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.network.state().connections[self.connection].ends[self.end])
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut state = self.network.state();
        let (connection, from) = (self.connection, 1 - self.end);
        let first = state.connections[connection].halves[from].chunks.front().map(|(at, _)| *at);
        if let Some(sent) = first {
            if state.has_arrived(connection, from, sent) {
                let chunks = &mut state.connections[connection].halves[from].chunks;
                let Some((_, chunk)) = chunks.front_mut() else { return Ok(None) };
                let len = buffer.len().min(chunk.len());
                for (into, byte) in buffer.iter_mut().zip(chunk.drain(..len)) {
                    *into = byte;
                }
                if chunk.is_empty() {
                    chunks.pop_front();
                }
                return Ok(Some(len));
            }
        } else if let Some(ended) = state.connections[connection].halves[from].ended
            && state.has_arrived(connection, from, ended)
        {
            state.connections[connection].halves[from].end_was_read = true;
            return Ok(Some(0));
        }
        match state.failure(connection, self.end) {
            Some(kind) => Err(kind.into()),
            None => Ok(None),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let mut state = self.network.state();
        if let Some(kind) = state.failure(self.connection, self.end) {
            return Err(kind.into());
        }
        let now = state.now;
        let ends = state.connections[self.connection].ends;
        let link = state.links.get(&(ends[0].ip(), ends[1].ip()));
        let capacity = link.map_or(0, |link| link.capacity);
        let half = &mut state.connections[self.connection].halves[self.end];
        if half.ended.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let waiting: usize = half.chunks.iter().map(|(_, chunk)| chunk.len()).sum();
        let len = bytes.len().min(capacity.saturating_sub(waiting));
        if len == 0 {
            return Ok(None);
        }
        half.chunks.push_back((now, bytes[..len].iter().copied().collect()));
        half.sent += len as u64;
        Ok(Some(len))
    }

    fn shut_down(&mut self, direction: Direction) -> io::Result<()> {
        let mut state = self.network.state();
        let now = state.now;
        if direction == Direction::Writing {
            state.connections[self.connection].halves[self.end].ended.get_or_insert(now);
        }
        Ok(())
    }

    fn end_is_acknowledged(&mut self) -> io::Result<bool> {
        let state = self.network.state();
        let ended = state.connections[self.connection].halves[self.end].ended;
        if ended.is_some_and(|at| state.is_acknowledged(self.connection, self.end, at)) {
            return Ok(true);
        }
        state.failure(self.connection, self.end).map_or(Ok(false), |kind| Err(kind.into()))
    }

    fn change(&mut self, _settings: &SegmentSettings) -> io::Result<()> {
        Ok(())
    }

    fn pace(&mut self, _rate: Rate) -> io::Result<()> {
        Ok(())
    }

    fn limit_memory(&mut self, _bytes: Option<u64>) -> io::Result<()> {
        Ok(())
    }

    fn memory_max(&self) -> u64 {
        0
    }

    fn transport(&self) -> &'static str {
        "memory"
    }

    fn congestion_control(&self) -> io::Result<String> {
        Ok("none".into())
    }

    fn statistics(&self) -> io::Result<Statistics> {
        let state = self.network.state();
        let is_broken = state.failure(self.connection, self.end).is_some();
        if is_broken || state.is_over(self.connection, self.end) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let half = &state.connections[self.connection].halves[self.end];
        let waiting = half.chunks.iter().map(|(at, _)| *at).chain(half.ended);
        let unacknowledged =
            waiting.filter(|at| !state.is_acknowledged(self.connection, self.end, *at)).min();
        Ok(Statistics {
            bytes_sent: half.sent,
            silence: unacknowledged.map_or(Duration::ZERO, |at| state.now.since(at)),
            ..Statistics::default()
        })
    }

    fn check(&mut self) -> io::Result<()> {
        let failure = self.network.state().failure(self.connection, self.end);
        failure.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn payload_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for MemorySegment {
    fn drop(&mut self) {
        let mut state = self.network.state();
        let now = state.now;
        let end = self.end;
        let ended = state.connections[self.connection].halves[end].ended;
        let is_over = state.connections[self.connection].halves[1 - end].end_was_read
            && ended.is_some_and(|at| state.is_acknowledged(self.connection, end, at));
        if !is_over {
            state.connections[self.connection].halves[end].reset.get_or_insert(now);
        }
    }
}

/// Keep-alive gives a silent peer up after this time.
const GIVEN_UP: Duration = Duration::from_secs(60);
