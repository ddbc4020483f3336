//! One interface for all that can carry a segment (Phoebus section 4.3): the forwarding code names
//! no member, and a new transport is one file.

pub mod memory;
pub mod tcp;

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use longhaul_units::{Duration, Rate};

/// Wishes for a segment. A transport heeds what it can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentSettings {
    /// Congestion control by name; without one, the host's default.
    pub congestion_control: Option<String>,
    /// Most bytes that may wait in each direction; without it, as the kernel thinks right, or what
    /// the rate needs over the round trip where that is more.
    pub buffer: Option<u32>,
    /// Most payload bits per second.
    pub rate: Option<Rate>,
    /// The round trip, where it is known before a connection stands.
    pub rtt: Option<Duration>,
}

impl SegmentSettings {
    /// Bytes in flight at the rate, twice: one round trip more until a loss is repaired.
    pub fn bandwidth_delay_product(&self) -> Option<u64> {
        self.rate.zip(self.rtt).map(|(rate, rtt)| 2 * rate.bytes_in(rtt))
    }
}

/// A transport: makes listeners and segments.
pub trait Transport: Debug + Send + Sync {
    /// Its name in routes and configurations.
    fn name(&self) -> &'static str;

    /// Says whether segments can have these settings on this host, and with what restriction.
    ///
    /// # Errors
    /// `NotFound` for a congestion control that is not there; what the system says of others.
    fn judge(&self, settings: &SegmentSettings) -> io::Result<Option<String>>;

    /// Listens at `address` for segments that get these settings.
    ///
    /// # Errors
    /// The address cannot be had, or a setting cannot be met.
    fn listen(
        &self,
        address: SocketAddr,
        settings: &SegmentSettings,
    ) -> io::Result<Box<dyn Listener>>;

    /// Begins a segment to `address`; [`Segment::connected`] tells how it went.
    ///
    /// # Errors
    /// It could not even begin.
    fn dial(&self, address: SocketAddr, settings: &SegmentSettings)
    -> io::Result<Box<dyn Segment>>;
}

/// Waits for segments that others begin.
pub trait Listener: Debug + Send + Sync {
    /// The next segment and its other end; `None` where none waits.
    ///
    /// # Errors
    /// Descriptors are exhausted, or the listener broke.
    fn accept(&self) -> io::Result<Option<(Box<dyn Segment>, SocketAddr)>>;

    /// Gives other settings to the segments that come.
    ///
    /// # Errors
    /// A setting cannot be met.
    fn change(&self, settings: &SegmentSettings) -> io::Result<()>;

    /// The address, with the port that the system chose where 0 was asked for.
    ///
    /// # Errors
    /// The listener broke.
    fn local_address(&self) -> io::Result<SocketAddr>;

    /// Readable when a segment waits; `None` for one in memory.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;
}

/// A direction of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the peer.
    Reading,
    /// To the peer.
    Writing,
}

/// One end of a segment: an ordered stream of bytes each way. No call blocks. Dropping it resets
/// whatever has not ended both ways.
pub trait Segment: Debug + Send {
    /// The dialling is done; `false` while it goes on.
    ///
    /// # Errors
    /// It failed.
    fn connected(&mut self) -> io::Result<bool>;

    /// Address of this end.
    ///
    /// # Errors
    /// The segment broke.
    fn local_address(&self) -> io::Result<SocketAddr>;

    /// Reads some bytes; `Some(0)` is the end of what the peer sends, `None`: nothing is there yet.
    ///
    /// # Errors
    /// The segment broke; the peer may have reset it.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Writes some bytes; `None`: there is no room yet.
    ///
    /// # Errors
    /// The segment broke.
    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>>;

    /// Ends a direction behind what was written or read.
    ///
    /// # Errors
    /// The segment broke.
    fn shut_down(&mut self, direction: Direction) -> io::Result<()>;

    /// Everything written, the end included, has reached the peer's host.
    ///
    /// # Errors
    /// The segment broke.
    fn end_is_acknowledged(&mut self) -> io::Result<bool>;

    /// Changes what can be changed of a living segment.
    ///
    /// # Errors
    /// A setting cannot be met.
    fn change(&mut self, settings: &SegmentSettings) -> io::Result<()>;

    /// Sends at most at this rate from now on.
    ///
    /// # Errors
    /// The segment broke.
    fn pace(&mut self, rate: Rate) -> io::Result<()>;

    /// Holds no more than about so many bytes in each direction; `None`: as the settings have it.
    ///
    /// # Errors
    /// The segment broke.
    fn limit_memory(&mut self, bytes: Option<u64>) -> io::Result<()>;

    /// Most bytes that it holds while nobody limits them.
    fn memory_max(&self) -> u64;

    /// The name of its transport.
    fn transport(&self) -> &'static str;

    /// The name of the rule by which it shares the network with others.
    ///
    /// # Errors
    /// The segment broke.
    fn congestion_control(&self) -> io::Result<String>;

    /// The transport's account of the segment.
    ///
    /// # Errors
    /// There is none any more: it broke, which [`Self::check`] says, or both directions have ended.
    /// Bytes that came before may still be read.
    fn statistics(&self) -> io::Result<Statistics>;

    /// Says why the segment broke; once, so it is for those who end it then.
    ///
    /// # Errors
    /// It broke.
    fn check(&mut self) -> io::Result<()>;

    /// The descriptor whose bytes are the payload itself, so that the kernel can move them.
    fn payload_descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// The descriptor that becomes readable and writable with the segment; `None` for a segment
    /// in memory.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;
}

/// A transport's account of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Payload bytes that the peer acknowledged.
    pub bytes_sent: u64,
    /// Payload bytes that came in order.
    pub bytes_received: u64,
    /// Payload bytes that were sent again.
    pub bytes_resent: u64,
    /// Bytes that it holds: received and not read, to be sent, or not acknowledged.
    pub memory: u64,
    /// Most bytes that may wait to be read and to be sent.
    pub buffers: [u64; 2],
    /// Time for which bytes have waited for a peer that acknowledges nothing; zero where none wait.
    pub silence: Duration,
}
