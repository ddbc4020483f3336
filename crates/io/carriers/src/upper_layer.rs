//! The interface between a carrier (UDP lanes, TCP connections) and a transfer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use longhaul_connection::{
    Begun, GroupPart, Groups, IdleTime, MessageLane, Misspoken, News, Order, Repair, Standing,
    Stored, Unplaceable, Violation,
};
use longhaul_engine::Path;
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_sys::wait::Waker;
use longhaul_units::{Duration, Ecn, Instant, PathId, Rate, shown};
use longhaul_wire::CloseCode;

use crate::buffer::Buffer;

/// The layer above a carrier: the transfer, as seen by the carrier's threads. Calls come from any of them and
/// do not block.
/// The defaults suit a layer without messages or data.
pub trait UpperLayer: Send + Sync {
    /// News of a lane. What concerns lanes only ([`News::MoveAsked`], [`News::Lost`], [`News::FitsNot`]) stays
    /// with the carrier.
    fn on_news(&self, news: News<Buffer>);
    /// Bytes of stream 0, in order.
    ///
    /// # Errors
    /// The peer broke the protocol; the carrier closes the connection.
    fn on_stream_bytes(&self, _bytes: &[u8]) -> Result<(), Violation> {
        Err(Misspoken::OutOfTurn.into())
    }
    /// True if bytes of stream 0 are wanted now; else they stay with the carrier, and the peer is
    /// held by its limit. Changes to `true` by [`UpperLayer::next_message`], or before the mailbox is woken.
    fn wants_stream(&self) -> bool {
        true
    }
    /// The peer finished stream 0.
    ///
    /// # Errors
    /// As [`UpperLayer::on_stream_bytes`].
    fn on_stream_end(&self) -> Result<(), Violation> {
        Ok(())
    }
    /// Appends the next message for stream 0 to `out`; `false` when there is none now.
    fn next_message(&self, _out: &mut Vec<u8>) -> bool {
        false
    }
    /// True once this side has finished stream 0 behind the last message.
    fn is_finished(&self) -> bool {
        false
    }
    /// The peer promised room for so many object bytes in all.
    fn on_credit(&self, _credit: u64) {}
    /// The values that this side announces, each until the next of its kind.
    fn standing(&self) -> Standing {
        Standing::default()
    }
    /// The bytes that wait for storage, if anything is stored. Waits for no lock.
    fn stored(&self) -> Option<Stored> {
        None
    }
    /// Memory for the group of `part`, of which the first authentic bytes have come.
    ///
    /// # Errors
    /// There is none now, or the peer may not send the group.
    fn begin_group(&self, _part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        Err(Unplaceable::Unasked)
    }
}

/// Passes on the bytes of messages that `half` has received; true if there were any. `count` comes before
/// each: a message that ends the transfer must not overtake what the lane has counted.
///
/// # Errors
/// The peer broke the protocol.
pub fn read_messages<L: MessageLane>(
    half: &mut L,
    upper: &dyn UpperLayer,
    count: impl Fn(&L),
) -> Result<bool, Violation> {
    let mut any = false;
    let mut bytes = [0; 16 << 10];
    while upper.wants_stream()
        && let len @ 1.. = half.read_messages(&mut bytes)
    {
        any = true;
        count(half);
        upper.on_stream_bytes(&bytes[..len])?;
    }
    if upper.wants_stream() && half.poll_messages_end() {
        count(half);
        upper.on_stream_end()?;
    }
    Ok(any)
}

/// The order that closes the connection to a peer that broke the protocol.
pub fn close_for(violation: &Violation) -> Order<Arc<Buffer>> {
    // It may quote the peer.
    Order::Close(CloseCode::PROTOCOL_VIOLATION, shown(&violation.to_string()))
}

/// Gives `half` the messages that are ready; true if any went on its way. `message` is room for one.
pub fn write_messages(
    half: &mut impl MessageLane,
    upper: &dyn UpperLayer,
    message: &mut Vec<u8>,
) -> bool {
    let mut any = half.write_messages();
    // Asked before there is no message: between the two it may get its last one.
    let mut is_finished = upper.is_finished();
    while half.wants_messages() && upper.next_message(message) {
        any |= half.push_messages(message);
        message.clear();
        is_finished = upper.is_finished();
    }
    if is_finished {
        any |= half.finish_messages();
    }
    any
}

/// Passes a lane's news on to `upper`; true if there was any.
pub fn pass_news(
    upper: &dyn UpperLayer,
    mut poll_news: impl FnMut() -> Option<News<Buffer>>,
) -> bool {
    let mut any = false;
    while let Some(news) = poll_news() {
        any = true;
        upper.on_news(news);
    }
    any
}

impl Groups<Buffer> for &dyn UpperLayer {
    fn begin(&mut self, part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        self.begin_group(part)
    }
}

/// A command of a transfer to a thread of the carrier.
#[derive(Debug)]
pub enum Command {
    /// An order for the lane.
    Order(Order<Arc<Buffer>>),
    /// Go on over another path of the connection.
    Move(Box<PathSwitch>),
    /// Send at most so much from now on, over this TCP connection.
    Limit(Option<Rate>),
}

/// A datagram that came to another socket than its lane's own, and is forwarded.
#[derive(Debug)]
pub struct ForwardedDatagram {
    /// The sender's address.
    pub from: std::net::SocketAddr,
    /// The address of this host that it was sent to, where known.
    pub to: Option<std::net::IpAddr>,
    /// Time of its arrival.
    pub at: Instant,
    /// The ECN codepoint that it carried.
    pub ecn: Ecn,
    /// Its payload.
    pub bytes: Vec<u8>,
}

/// The path that a lane switches to.
#[derive(Debug)]
pub struct PathSwitch {
    /// Its number.
    pub number: PathId,
    /// Its rate control.
    pub path: Arc<Mutex<Path>>,
    /// The peer's address there.
    pub remote: std::net::SocketAddr,
    /// The socket to use from now on; without it the lane's own.
    pub socket: Option<longhaul_sys::udp::UdpSocket>,
}

/// Forwarded datagrams that wait for their lane, bounded in number and bytes: only the lane, which opens
/// them, recognizes those of strangers.
#[derive(Debug, Default)]
pub struct ForwardQueue {
    queue: VecDeque<ForwardedDatagram>,
    bytes: usize,
}

impl ForwardQueue {
    /// Takes one in, unless so many wait that it is better lost.
    fn push(&mut self, datagram: ForwardedDatagram) {
        let bytes = self.bytes + datagram.bytes.len();
        if self.queue.len() < DATAGRAMS_MAX && bytes <= DATAGRAM_BYTES_MAX {
            self.bytes = bytes;
            self.queue.push_back(datagram);
        }
    }

    /// The oldest, if it came until then.
    pub fn pop_until(&mut self, until: Instant) -> Option<ForwardedDatagram> {
        let datagram = self.queue.pop_front_if(|datagram| datagram.at <= until)?;
        self.bytes -= datagram.bytes.len();
        Some(datagram)
    }
}

/// The transfer's end of a carrier thread's inbox.
#[derive(Debug)]
pub struct Mailbox {
    commands: Mutex<VecDeque<Command>>,
    forwarded: Mutex<ForwardQueue>,
    /// Repairs, taken in between receiving and placing, and whether there are any.
    repairs: Mutex<Vec<Repair>>,
    has_repairs: AtomicBool,
    waker: Waker,
    /// The thread has to look at the upper layer once more before it sleeps.
    look: AtomicBool,
    /// The thread sleeps, or is about to: it has to be woken.
    sleeping: AtomicBool,
    /// Object bytes offered and not sent, as the thread last saw, plus what is in the box.
    backlog: AtomicU64,
    idle: Mutex<IdleTime>,
}

impl Mailbox {
    /// An empty box.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            commands: Mutex::default(),
            forwarded: Mutex::default(),
            repairs: Mutex::default(),
            has_repairs: AtomicBool::new(false),
            waker: Waker::new()?,
            look: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            backlog: AtomicU64::new(0),
            idle: Mutex::new(IdleTime::new(clock::now())),
        })
    }

    /// Puts a command into the box.
    pub fn post(&self, command: Command) {
        if let Command::Order(Order::Offer { extent, .. }) = &command
            && self.backlog.fetch_add(extent.len, Ordering::Relaxed) == 0
        {
            self.set_idle(false);
        }
        lock(&self.commands).push_back(command);
        self.wake();
    }

    /// Passes a datagram on, unless the thread is behind by so many that it is better lost.
    pub fn post_datagram(&self, datagram: ForwardedDatagram) {
        lock(&self.forwarded).push(datagram);
        self.wake();
    }

    /// Passes on a repair of a group. One that lets a group be received again is posted before the
    /// source is asked for the group.
    pub fn post_repair(&self, repair: Repair) {
        lock(&self.repairs).push(repair);
        self.has_repairs.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Gives `handle` the repairs, as they were posted. Called between receiving and
    /// placing: what answers a repair cannot have come before the repair was posted here.
    pub fn take_repairs(&self, handle: impl FnMut(Repair)) {
        if self.has_repairs.swap(false, Ordering::SeqCst) {
            std::mem::take(&mut *lock(&self.repairs)).into_iter().for_each(handle);
        }
    }

    /// Makes the thread look at the upper layer.
    pub fn wake(&self) {
        self.look.store(true, Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Object bytes that wait to be sent there.
    pub fn backlog(&self) -> u64 {
        self.backlog.load(Ordering::Relaxed)
    }

    /// Bytes that the lane has taken and not sent.
    pub fn set_backlog(&self, bytes: u64) {
        let before = self.backlog.swap(bytes, Ordering::Relaxed);
        if (before == 0) != (bytes == 0) {
            self.set_idle(bytes == 0);
        }
    }

    fn set_idle(&self, is_idle: bool) {
        lock(&self.idle).set(clock::now(), is_idle);
    }

    /// Total time in which there was nothing to send.
    pub fn idle_time(&self) -> Duration {
        lock(&self.idle).lasted(clock::now())
    }

    /// Wakes the thread of the lane.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Takes everything out; `true` if there was anything. Called before the thread looks at the
    /// upper.
    pub fn drain(&self, into: &mut VecDeque<Command>) -> bool {
        self.look.store(false, Ordering::SeqCst);
        into.append(&mut lock(&self.commands));
        !into.is_empty()
    }

    /// Takes the datagrams that wait, behind [`Mailbox::drain`]; true if there are any.
    pub fn drain_forwarded(&self, into: &mut ForwardQueue) -> bool {
        let mut forwarded = lock(&self.forwarded);
        let any = !forwarded.queue.is_empty();
        forwarded.bytes = 0;
        forwarded.queue.drain(..).for_each(|datagram| into.push(datagram));
        any
    }

    /// Announces sleep: what is posted from here on wakes. `false` if something came since
    /// [`Mailbox::drain`]: no time to sleep.
    pub fn announce_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        !self.look.load(Ordering::SeqCst)
    }

    /// The thread looks again.
    pub fn end_sleep(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
        self.waker.clear();
    }
}

/// Says goodbye on all threads of a carrier.
pub fn close_all<'m>(
    mailboxes: impl IntoIterator<Item = &'m Arc<Mailbox>>,
    code: CloseCode,
    reason: &str,
) {
    for mailbox in mailboxes {
        mailbox.post(Command::Order(Order::Close(code, reason.into())));
    }
}

/// Waits for threads to end.
pub fn join_all(threads: &mut Vec<JoinHandle<()>>) {
    for thread in threads.drain(..) {
        // A panic there has been reported by the thread itself.
        let _ = thread.join();
    }
}

/// Datagrams that may wait in a mailbox, and as many again at the lane.
const DATAGRAMS_MAX: usize = 4096;
/// Bytes of datagrams that may wait there: of strangers' they may have 64 KB each.
const DATAGRAM_BYTES_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Has no message, and gets its last one as soon as a lane knows that.
    #[derive(Default)]
    struct Late {
        last: AtomicBool,
        is_finished: AtomicBool,
    }

    impl UpperLayer for Late {
        fn on_news(&self, _news: News<Buffer>) {}

        fn next_message(&self, out: &mut Vec<u8>) -> bool {
            if !self.is_finished.swap(true, Ordering::Relaxed) {
                self.last.store(true, Ordering::Relaxed);
                return false;
            }
            let has_last = self.last.swap(false, Ordering::Relaxed);
            out.extend_from_slice(if has_last { b"last" } else { b"" });
            has_last
        }

        fn is_finished(&self) -> bool {
            self.is_finished.load(Ordering::Relaxed)
        }
    }

    /// Takes on everything until it is ended.
    #[derive(Default)]
    struct Taken {
        messages: Vec<u8>,
        is_ended: bool,
    }

    impl MessageLane for Taken {
        fn read_messages(&mut self, _into: &mut [u8]) -> usize {
            0
        }

        fn poll_messages_end(&mut self) -> bool {
            false
        }

        fn wants_messages(&self) -> bool {
            !self.is_ended
        }

        fn push_messages(&mut self, bytes: &[u8]) -> bool {
            self.messages.extend_from_slice(bytes);
            true
        }

        fn write_messages(&mut self) -> bool {
            false
        }

        fn finish_messages(&mut self) -> bool {
            !std::mem::replace(&mut self.is_ended, true)
        }
    }

    #[test]
    fn messages_end_behind_one_that_comes_while_a_lane_finds_none() {
        let (upper, mut half, mut message) = (Late::default(), Taken::default(), Vec::new());
        assert!(!write_messages(&mut half, &upper, &mut message));
        assert!(!half.is_ended, "there is a last one");
        assert!(write_messages(&mut half, &upper, &mut message));
        assert_eq!((&half.messages[..], half.is_ended), (&b"last"[..], true));
    }

    #[test]
    fn datagrams_that_wait_are_bounded_in_number_and_bytes() {
        let waiting = |len: usize| {
            let mailbox = Mailbox::new().unwrap();
            let datagram = || {
                let (from, at) = ("192.0.2.1:1".parse().unwrap(), Instant::ZERO);
                ForwardedDatagram { from, to: None, at, ecn: Ecn::NotEct, bytes: vec![0; len] }
            };
            (0..2 * DATAGRAMS_MAX).for_each(|_| mailbox.post_datagram(datagram()));
            let mut forwarded = ForwardQueue::default();
            assert!(mailbox.drain_forwarded(&mut forwarded));
            mailbox.post_datagram(datagram());
            let waited = forwarded.queue.len();
            mailbox.drain_forwarded(&mut forwarded);
            assert_eq!(
                forwarded.queue.len(),
                waited,
                "a lane that does not come to them keeps no more"
            );
            while forwarded.pop_until(Instant::ZERO).is_some() {}
            assert_eq!(forwarded.bytes, 0);
            waited
        };
        assert_eq!(waiting(40), DATAGRAMS_MAX);
        assert_eq!(waiting(1 << 16), DATAGRAM_BYTES_MAX >> 16);
    }
}
