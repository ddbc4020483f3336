use longhaul_units::{Bottleneck, Bytes, Duration};

use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::units;
use crate::writer::Writer;

/// HOST of RESULT and REPORT (docs/protocol.md 7.2): the cost of the transfer for a host, and the counts of
/// its monitor, since the start. All but the processor time and the buffers is zero where
/// there is no monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostAccount {
    /// CPU time that its process took, in whole microseconds as all times here.
    pub cpu_time: Duration,
    /// Times of at least 1 ms in which a thread of its lanes had something to do and did not run.
    pub stalls: u64,
    /// Time in them.
    pub stalled: Duration,
    /// The longest.
    pub longest_stall: Duration,
    /// Time in them by what explains them; the rest of [`Self::stalled`] nothing explains.
    pub stalled_by: StallTimes,
    /// Times that it limited its peer.
    pub limits: u64,
    /// Time in which it did.
    pub limited: Duration,
    /// Why, for the most part.
    pub limited_by: Bottleneck,
    /// Times that it asked for silence.
    pub suspends: u64,
    /// Time in which it did.
    pub suspended: Duration,
    /// Timers of its lanes that fired late by 1 ms or more.
    pub missed: u64,
    /// By how much, in all.
    pub missed_time: Duration,
    /// Remedies against all this, as bits.
    pub remedies: u64,
    /// Receive buffer of its sockets as it was asked for.
    pub buffer_asked: Bytes,
    /// And as it was granted.
    pub buffer_granted: Bytes,
    /// Packets that it lost itself.
    pub lost: HostLosses,
}

/// Why the threads of a host stood still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallTimes {
    /// Others had their processor.
    pub preempted: Duration,
    /// Their control group had used up its quota.
    pub quota: Duration,
    /// The hypervisor ran something else.
    pub stolen: Duration,
    /// They were at work on what they had read.
    pub busy: Duration,
}

/// Packets that a host lost after they had reached it, by place; counted by gaps in packet numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLosses {
    /// A socket's buffer was full.
    pub socket: u64,
    /// The queue of a processor was, on the way to the socket.
    pub backlog: u64,
    /// The ring of a network card was.
    pub card: u64,
}

impl HostAccount {
    /// A monitor is at work.
    pub const WATCHES: u64 = 1;
    /// The threads of lanes take short turns.
    pub const SHORT_TURNS: u64 = 2;
    /// They run before all that are scheduled normally.
    pub const RUNS_FIRST: u64 = 4;
    /// They were to do so, and the system did not permit it.
    pub const PRIORITY_REFUSED: u64 = 8;
    /// Threads that write what has come take short turns.
    pub const WRITERS_SHORT_TURNS: u64 = 16;
    /// Threads of lanes keep off the processor that serves the network's interrupts.
    pub const OFF_INTERRUPTS: u64 = 32;
    /// They were to, and there are fewer than three processors.
    pub const FEW_PROCESSORS: u64 = 64;
    /// They were to, and no processor serves more than half of the interrupts.
    pub const INTERRUPTS_SPREAD: u64 = 128;
    /// Lanes poll their network device instead of waiting for its interrupt.
    pub const BUSY_POLLING: u64 = 256;
    /// They were to, and the system did not permit it.
    pub const BUSY_POLLING_REFUSED: u64 = 512;

    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.varint(units::micros(self.cpu_time))?;
        w.varint(self.stalls)?;
        w.varint(units::micros(self.stalled))?;
        w.varint(units::micros(self.longest_stall))?;
        w.varint(self.limits)?;
        w.varint(units::micros(self.limited))?;
        w.u8(self.limited_by as u8)?;
        w.varint(self.suspends)?;
        w.varint(units::micros(self.suspended))?;
        w.varint(self.missed)?;
        w.varint(units::micros(self.missed_time))?;
        w.varint(self.remedies)?;
        w.varint(self.buffer_asked.get())?;
        w.varint(self.buffer_granted.get())?;
        let StallTimes { preempted, quota, stolen, busy } = self.stalled_by;
        for time in [preempted, quota, stolen, busy] {
            w.varint(units::micros(time))?;
        }
        let HostLosses { socket, backlog, card } = self.lost;
        [socket, backlog, card].into_iter().try_for_each(|packets| w.varint(packets))
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let time = |r: &mut Reader<'_>| r.varint().map(Duration::from_micros);
        Ok(Self {
            cpu_time: time(r)?,
            stalls: r.varint()?,
            stalled: time(r)?,
            longest_stall: time(r)?,
            limits: r.varint()?,
            limited: time(r)?,
            limited_by: Bottleneck::from_code(r.u8()?),
            suspends: r.varint()?,
            suspended: time(r)?,
            missed: r.varint()?,
            missed_time: time(r)?,
            remedies: r.varint()?,
            buffer_asked: Bytes::new(r.varint()?),
            buffer_granted: Bytes::new(r.varint()?),
            stalled_by: StallTimes {
                preempted: time(r)?,
                quota: time(r)?,
                stolen: time(r)?,
                busy: time(r)?,
            },
            lost: HostLosses { socket: r.varint()?, backlog: r.varint()?, card: r.varint()? },
        })
    }
}
