use longhaul_units::{Bottleneck, Duration, Losses, MemoryUse, Rate};

use crate::error::{DecodeError, Full};
use crate::message::HostAccount;
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{units, varint};

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
    /// Bottleneck now.
    pub bound: Bottleneck,
    /// Bottleneck for the longest time.
    pub bottleneck: Bottleneck,
    /// Use that the source made of its path history.
    pub memory: MemoryUse,
    /// The rate that it remembered; zero if none.
    pub remembered: Rate,
    /// Entries with access lists, which the request does not keep, as far as the source has looked.
    pub access_lists: u64,
    /// Those that have extended attributes of the user's, likewise.
    pub xattrs: u64,
    /// Account of the source's host: costs and condition.
    pub host: HostAccount,
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
        w.u8(self.memory as u8)?;
        w.varint(self.remembered.as_bps().min(varint::MAX))?;
        w.varint(self.access_lists)?;
        w.varint(self.xattrs)?;
        self.host.encode(w)
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
            memory: MemoryUse::from_code(r.u8()?),
            remembered: Rate::from_bps(r.varint()?),
            access_lists: r.varint()?,
            xattrs: r.varint()?,
            host: HostAccount::decode(r)?,
        })
    }
}
