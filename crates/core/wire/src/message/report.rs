use longhaul_units::Duration;

use super::Bottleneck;
use crate::{DecodeError, Full, Reader, Writer, units};

/// REPORT: how sending goes, as the source sees it. All counts are since the start of the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// Packets sent, of every kind; segments with carrier TCP.
    pub packets_sent: u64,
    /// Those that carried bytes again.
    pub packets_resent: u64,
    /// Packets lost.
    pub lost: Losses,
    /// Smoothed round trip, in whole microseconds; zero if unknown.
    pub rtt: Duration,
    /// Least round trip, likewise.
    pub rtt_min: Duration,
    /// What bounds the rate now.
    pub bound: Bottleneck,
    /// What bounded it for the longest time.
    pub bottleneck: Bottleneck,
    /// CPU time that the source's process took, in whole microseconds.
    pub cpu_time: Duration,
}

/// Packets lost, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// On the path, more than chance explains, as the sender's controller estimates.
    pub congestion: u64,
    /// On the path, by chance, as the sender's controller estimates.
    pub random: u64,
    /// At the receiving socket, because its buffer was full.
    pub socket: u64,
    /// Elsewhere in the receiving host.
    pub host: u64,
    /// Refused by the sending host's own network stack.
    pub sender: u64,
    /// Anywhere else, for reasons that nobody knows.
    pub unknown: u64,
}

impl Losses {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.all().iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// These and those of `other`.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            congestion: self.congestion.saturating_add(other.congestion),
            random: self.random.saturating_add(other.random),
            socket: self.socket.saturating_add(other.socket),
            host: self.host.saturating_add(other.host),
            sender: self.sender.saturating_add(other.sender),
            unknown: self.unknown.saturating_add(other.unknown),
        }
    }

    const fn all(&self) -> [u64; 6] {
        let Self { congestion, random, socket, host, sender, unknown } = *self;
        [congestion, random, socket, host, sender, unknown]
    }
}

impl SourceReport {
    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.varint(self.packets_sent)?;
        w.varint(self.packets_resent)?;
        self.lost.all().iter().try_for_each(|count| w.varint(*count))?;
        w.varint(units::micros(self.rtt))?;
        w.varint(units::micros(self.rtt_min))?;
        w.u8(self.bound as u8)?;
        w.u8(self.bottleneck as u8)?;
        w.varint(units::micros(self.cpu_time))
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            packets_sent: r.varint()?,
            packets_resent: r.varint()?,
            lost: Losses {
                congestion: r.varint()?,
                random: r.varint()?,
                socket: r.varint()?,
                host: r.varint()?,
                sender: r.varint()?,
                unknown: r.varint()?,
            },
            rtt: Duration::from_micros(r.varint()?),
            rtt_min: Duration::from_micros(r.varint()?),
            bound: Bottleneck::from_code(r.u8()?),
            bottleneck: Bottleneck::from_code(r.u8()?),
            cpu_time: Duration::from_micros(r.varint()?),
        })
    }
}
