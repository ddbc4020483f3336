//! One TCP connection of the carrier on a thread of its own: drives a [`RecordHalf`].

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_connection::{Place, RecordHalf};
use longhaul_engine::Closed;
use longhaul_sys::sync::lock;
use longhaul_sys::wait::{Interest, wait};
use longhaul_sys::{clock, tcp};
use longhaul_units::{Instant, Rate};
use longhaul_wire::CloseCode;

use super::TcpView;
use super::join::{DataConnection, HEADERS};
use super::link::{Got, Link};
use super::seal::Seals;
use crate::buffer::Buffer;
use crate::upper_layer::{self, Command, Mailbox, UpperLayer};

/// The thread's state.
pub struct Worker {
    half: RecordHalf<Arc<Buffer>, Buffer, Box<Seals>>,
    link: Link,
    upper: Arc<dyn UpperLayer>,
    mailbox: Arc<Mailbox>,
    shared: Arc<Mutex<TcpView>>,
    commands: VecDeque<Command>,
    message: Vec<u8>,
    idle_timeout: Duration,
    /// Object bytes given to the socket that it has delivered.
    delivered: u64,
    congestion_control: String,
    /// Bytes of the headers of IP and TCP, without options.
    headers: u32,
    view_due: Instant,
}

/// Outcome of reading.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Bytes came; there may be more.
    Busy,
    /// Nothing is there.
    Waiting,
    /// There is no memory to receive into.
    Stalled,
}

impl Worker {
    pub fn new(
        connection: DataConnection,
        rate: Option<Rate>,
        idle_timeout: Duration,
        upper: Arc<dyn UpperLayer>,
        mailbox: Arc<Mailbox>,
        shared: Arc<Mutex<TcpView>>,
    ) -> io::Result<Self> {
        let DataConnection { lane, link, seals } = connection;
        let congestion_control = tcp::congestion_control(&link.stream)?;
        let is_ipv4 = link.stream.local_addr()?.ip().to_canonical().is_ipv4();
        let headers = if is_ipv4 { HEADERS_IPV4 } else { HEADERS };
        let now = clock::now();
        Ok(Self {
            half: RecordHalf::new(now, lane, rate, seals),
            link,
            upper,
            mailbox,
            shared,
            commands: VecDeque::new(),
            message: Vec::new(),
            idle_timeout,
            delivered: 0,
            congestion_control,
            headers,
            view_due: now,
        })
    }

    pub fn run(mut self) {
        if let Err(error) = self.carry() {
            self.half.close(broken(&error, self.idle_timeout));
        }
        self.mailbox.set_backlog(0);
        self.publish(clock::now());
        self.read_messages();
        self.pass_news();
        // Anything that is not sent by then is lost with the connection.
        let _ = self.send_close();
        self.link.finish();
    }

    /// Sends and receives until the connection ends.
    fn carry(&mut self) -> io::Result<()> {
        self.pass_news();
        while self.half.is_open() {
            self.take_commands();
            self.half.handle_standing(&self.upper.standing());
            upper_layer::write_messages(&mut self.half, &*self.upper, &mut self.message);
            let mut busy = match self.send() {
                Ok(busy) => busy,
                Err(error) => {
                    self.receive_the_rest();
                    return Err(error);
                }
            };
            let mut progress = Progress::Busy;
            for _ in 0..READS {
                progress = self.receive()?;
                if progress != Progress::Busy {
                    break;
                }
            }
            busy |= progress == Progress::Busy;
            busy |= self.read_messages() | self.pass_news();
            self.upper.on_credit(self.half.credit());
            let now = clock::now();
            if now >= self.view_due {
                self.publish(now);
            }
            if !busy && self.half.is_open() {
                self.sleep(now, progress)?;
            }
        }
        Ok(())
    }

    /// Receives what the peer sent before it stopped receiving.
    fn receive_the_rest(&mut self) {
        while matches!(self.receive(), Ok(Progress::Busy)) {}
    }

    fn take_commands(&mut self) {
        let mut commands = std::mem::take(&mut self.commands);
        self.mailbox.drain(&mut commands);
        for command in commands.drain(..) {
            match command {
                Command::Order(order) => self.half.handle_order(order),
                // Only UDP lanes share sockets, and change paths.
                Command::Move(..) => {}
                Command::Limit(rate) => self.half.limit(clock::now(), rate),
            }
        }
        self.commands = commands;
    }

    /// Sends records until nothing goes any more; true if anything went and more may.
    fn send(&mut self) -> io::Result<bool> {
        let mut busy = false;
        for _ in 0..WRITES {
            busy = self.write_once()?;
            if !busy {
                break;
            }
        }
        self.link.flush()?;
        self.mailbox.set_backlog(self.half.backlog());
        Ok(busy)
    }

    /// Writes once; true if anything went.
    fn write_once(&mut self) -> io::Result<bool> {
        let [head, body] = self.half.poll_write(clock::now());
        if head.is_empty() && body.is_empty() {
            return Ok(false);
        }
        let written = self.link.write(head, body)?;
        self.half.handle_written(clock::now(), written);
        Ok(written > 0)
    }

    fn receive(&mut self) -> io::Result<Progress> {
        let half = &mut self.half;
        // Data that answers a repair comes after the repair was posted here.
        self.mailbox.take_repairs(|repair| half.handle_repair(repair));
        let got = match half.place(&mut &*self.upper) {
            Place::Bytes(place) => self.link.read(place)?,
            Place::NoMemory => return Ok(Progress::Stalled),
            Place::Closed => return Ok(Progress::Waiting),
        };
        match got {
            Got::Bytes(count) => self.half.handle_received(count),
            Got::Nothing => return Ok(Progress::Waiting),
            Got::End => return Err(io::Error::other("the peer ended it without a word")),
        }
        // Messages come before the news that nothing follows them; and groups are not to wait for
        // others that came with them.
        self.read_messages();
        self.pass_news();
        Ok(Progress::Busy)
    }

    fn pass_news(&mut self) -> bool {
        upper_layer::pass_news(&*self.upper, || self.half.poll_news())
    }

    fn read_messages(&mut self) -> bool {
        if self.half.has_messages() {
            // Count before reading: the data that a message is about must be in the counts.
            self.publish(clock::now());
        }
        upper_layer::read_messages(&mut self.half, &*self.upper, |_| {}).unwrap_or_else(
            |violation| {
                self.half.handle_order(upper_layer::close_for(&violation));
                true
            },
        )
    }

    fn sleep(&mut self, now: Instant, progress: Progress) -> io::Result<()> {
        let may_sleep = self.mailbox.announce_sleep();
        let mut deadline = now + SLEEP_MAX;
        deadline = self.half.next_timeout().map_or(deadline, |at| at.min(deadline));
        let mut sources = [(self.mailbox.waker().as_fd(), Interest::Readable); 3];
        let mut count = 1;
        if progress == Progress::Stalled {
            deadline = deadline.min(now + STALL);
        } else {
            sources[count] = (self.link.stream.as_fd(), Interest::Readable);
            count += 1;
        }
        if self.half.is_writing() || self.link.is_holding() {
            sources[count] = (self.link.stream.as_fd(), Interest::Writable);
            count += 1;
        }
        let waited = if may_sleep { wait(&sources[..count], Some(deadline)) } else { Ok(0) };
        self.mailbox.end_sleep();
        waited.map(drop)
    }

    /// Sends CLOSE behind the present record, if there is room for both soon.
    fn send_close(&mut self) -> io::Result<()> {
        let deadline = clock::now() + GOODBYE;
        while !self.half.is_closed() {
            if !self.write_once()? && !self.half.is_closed() {
                let socket = [(self.link.stream.as_fd(), Interest::Writable)];
                if wait(&socket, Some(deadline))? == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn publish(&mut self, now: Instant) {
        self.view_due = now + VIEW_INTERVAL;
        // The counters of a socket that cannot be read any more stay as they were.
        if let Ok(info) = tcp::info(&self.link.stream) {
            let congestion_control = self.congestion_control.clone();
            let under_way = u64::from(info.bytes_unsent)
                + u64::from(info.unacknowledged) * u64::from(info.segment);
            let delivered = self.half.sent_in_all().saturating_sub(under_way);
            // The kernel's count of bytes under way includes messages.
            self.delivered = self.delivered.max(delivered);
            let options = if info.timestamps { TIMESTAMPS } else { 0 };
            *lock(&self.shared) = TcpView {
                info,
                packet: info.segment + options + self.headers,
                congestion_control,
                moved: self.delivered + self.half.placed(),
                paced: self.half.held(now),
                peer: self.half.peer_bounds(),
            };
        }
    }
}

/// The end of a connection by a socket's failure. The kernel times out when nothing was acknowledged
/// for the idle timeout.
fn broken(error: &io::Error, idle_timeout: Duration) -> Closed {
    if error.kind() == io::ErrorKind::TimedOut {
        return Closed::silent(idle_timeout);
    }
    let reason = format!("a data connection broke: {error}");
    Closed { code: CloseCode::TIMEOUT, reason, by_peer: false }
}

/// Headers of IPv4 and TCP, in bytes, without options.
const HEADERS_IPV4: u32 = 40;
/// Bytes that timestamps take of a segment's header (RFC 7323, appendix A).
const TIMESTAMPS: u32 = 12;
/// Writes, and reads, before the other direction has its turn.
const WRITES: usize = 16;
const READS: usize = 64;
/// The thread looks at the upper layer at least so often.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Memory is looked for again after so long.
const STALL: Duration = Duration::from_millis(2);
const VIEW_INTERVAL: Duration = Duration::from_millis(50);
/// Time that the peer may take to make room for CLOSE.
const GOODBYE: Duration = Duration::from_secs(1);
