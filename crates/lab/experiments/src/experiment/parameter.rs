use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A parameter that an axis can vary, and that lines and panels of a figure can stand for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Parameter {
    /// The program that transfers; not an axis, since all compete in every cell.
    #[default]
    Contender,
    /// Round trip of the link, `100ms`; all of it on the way back with `100ms back`; with `none` no
    /// link of the testbed delays.
    Rtt,
    /// Packets lost at random on the way there, `0.1%`.
    Loss,
    /// Losses in a row on the way there, `none` or `0.01%,20`: where one begins, and its mean length.
    BurstLoss,
    /// Rate of the link, `1Gbps`.
    Rate,
    /// Queue in front of it, `12MB`.
    Queue,
    /// Largest packet of all links, `9000`.
    Mtu,
    /// Rate that contenders are given, `800Mbps`.
    SendingRate,
    /// Socket buffers that contenders are given, `256KiB`.
    SocketBuffer,
    /// `memory`, `ramdisk` or `disk`.
    Medium,
    /// `none`, or work beside the receiver as `lab path --load` reads it.
    Load,
    /// TCP connections of `[cross]`: `none`, `1 cubic`, `8 bbr`.
    Cross,
    /// Parameters of Longhaul's profile, `none` or `segment=1000 chunk=6802`.
    Param,
    /// Path history of Longhaul's sender: `cold`, an empty history; `warm`, that of a run
    /// just before.
    History,
    /// Rate of the sending node's own devices, and the queue there: `none` or
    /// `150Mbps,100KB`.
    Egress,
    /// A slow disk for the copies, `none` or `rate=300Mbps,from=2s,length=3s`.
    Disk,
}

impl Parameter {
    /// As experiments write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contender => "contender",
            Self::Rtt => "rtt",
            Self::Loss => "loss",
            Self::BurstLoss => "burst-loss",
            Self::Rate => "rate",
            Self::Queue => "queue",
            Self::Mtu => "mtu",
            Self::SendingRate => "sending-rate",
            Self::SocketBuffer => "socket-buffer",
            Self::Medium => "medium",
            Self::Load => "load",
            Self::Cross => "cross",
            Self::Param => "param",
            Self::History => "history",
            Self::Egress => "egress",
            Self::Disk => "disk",
        }
    }

    /// On an axis of a figure.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Contender => "contender",
            Self::Rtt => "round trip",
            Self::Loss => "random loss",
            Self::BurstLoss => "burst loss",
            Self::Rate => "rate of the link",
            Self::Queue => "queue",
            Self::Mtu => "MTU (bytes)",
            Self::SendingRate => "sending rate (Mb/s)",
            Self::SocketBuffer => "socket buffer",
            Self::Medium => "from and to",
            Self::Load => "load beside it",
            Self::Cross => "TCP connections beside it",
            Self::Param => "parameters",
            Self::History => "memory of the path",
            Self::Egress => "sender's own device",
            Self::Disk => "disk of the receiver",
        }
    }

    /// True where it is of links, so that an axis may set it for several.
    pub const fn is_of_links(self) -> bool {
        matches!(self, Self::Rtt | Self::Loss | Self::BurstLoss | Self::Rate | Self::Queue)
    }

    /// A value as people read it.
    pub fn say(self, value: &str) -> String {
        match self {
            Self::Loss if is_zero(value) => "no loss".into(),
            Self::Loss => format!("{value} loss"),
            Self::BurstLoss => bursts(value),
            Self::Rtt if value == NONE => "no delay".into(),
            Self::Rtt => match value.strip_suffix(BACK) {
                Some(time) => format!("RTT {} on the way back", spaced(time)),
                None => format!("RTT {}", spaced(value)),
            },
            Self::Mtu => format!("MTU {value}"),
            Self::Queue => format!("queue {}", spaced(value)),
            Self::SocketBuffer => format!("{} buffer", spaced(value)),
            Self::Medium => format!("{value} to {value}"),
            Self::Rate | Self::SendingRate => rate_words(value),
            Self::Load => load_words(value),
            Self::Egress => egress_words(value),
            Self::Disk => disk_words(value),
            Self::Cross if value == "none" => "alone".into(),
            Self::Cross => format!("beside {}", value.to_uppercase()),
            Self::Param if value == "none" => "defaults".into(),
            Self::History => format!("{value} start"),
            Self::Param | Self::Contender => value.into(),
        }
    }

    /// A value beside a tick of an axis that bears the label.
    pub fn tick(self, value: &str) -> String {
        match self {
            Self::Load => load_words(value),
            Self::Egress => egress_words(value),
            Self::Disk => disk_words(value),
            Self::BurstLoss => bursts(value),
            Self::Cross => value.to_uppercase(),
            Self::Rtt if value == NONE => value.into(),
            Self::Rtt | Self::Queue | Self::SocketBuffer => spaced(value),
            _ => value.into(),
        }
    }
}

/// `0%`, `0`, `0ppm`.
fn is_zero(value: &str) -> bool {
    !value.is_empty() && !value.contains(|c: char| c.is_ascii_digit() && c != '0')
}

/// `0.01%,20` as `bursts of 20 from 0.01%`.
fn bursts(value: &str) -> String {
    match value.split_once(',') {
        Some((begin, mean)) => format!("bursts of {mean} from {begin}"),
        None => "no bursts".into(),
    }
}

/// `50ms` as `50 ms`.
fn spaced(value: &str) -> String {
    match value.find(|c: char| c.is_alphabetic()) {
        Some(at) => format!("{} {}", value[..at].trim_end(), &value[at..]),
        None => value.into(),
    }
}

fn rate_words(value: &str) -> String {
    value.parse::<longhaul_units::Rate>().map_or_else(|_| value.into(), |rate| rate.to_string())
}

/// `loops,count=3,cores=1` as `3 loops`.
fn load_words(value: &str) -> String {
    let Ok(load) = value.parse::<longhaul_lab::load::Load>() else { return "no load".into() };
    let work = match (load.work.name(), load.count) {
        ("loops", 1) => "1 loop".into(),
        ("loops", count) => format!("{count} loops"),
        (work, 1) => work.into(),
        (work, count) => format!("{count} x {work}"),
    };
    let cores: Vec<String> = load.cores.iter().map(usize::to_string).collect();
    let work = match cores.len() {
        0 => work,
        1 => format!("{work} on core {}", cores[0]),
        _ => format!("{work} on cores {}", cores.join(" and ")),
    };
    match (load.length, load.every) {
        (Some(length), Some(every)) => format!("{work} for {length:?} of each {every:?}"),
        _ => work,
    }
}

/// `150Mbps,100KB` as `device of 150 Mb/s`.
fn egress_words(value: &str) -> String {
    let egress = value.parse::<longhaul_lab::Egress>();
    egress.map_or_else(|_| "fast device".into(), |egress| format!("device of {}", egress.rate))
}

/// `rate=300Mbps,from=2s,length=3s` as `disk of 300 Mb/s from 2s on for 3s`.
fn disk_words(value: &str) -> String {
    let Ok(disk) = longhaul_lab::disk::DiskSpec::parse(value, PathBuf::new()) else {
        return "fast disk".into();
    };
    let from = disk.from.map_or(String::new(), |from| format!(" from {from:?} on"));
    let length = disk.length.map_or(String::new(), |length| format!(" for {length:?}"));
    format!("disk of {}{from}{length}", disk.rate)
}

/// Behind a round trip that packets towards the receiver do not wait for.
pub(super) const BACK: &str = " back";
/// In place of a value.
pub(super) const NONE: &str = "none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_in_words() {
        assert_eq!(Parameter::Load.say("loops,count=3,cores=1"), "3 loops on core 1");
        assert_eq!(Parameter::Load.say("isosurface,cores=0+1"), "isosurface on cores 0 and 1");
        assert_eq!(Parameter::Rtt.say("50ms back"), "RTT 50 ms on the way back");
        assert_eq!(Parameter::Rtt.say("none"), "no delay");
        assert_eq!(Parameter::Rtt.tick("none"), "none");
        assert_eq!(Parameter::Egress.say("150Mbps,100KB"), "device of 150 Mb/s");
        assert_eq!(Parameter::Disk.say("none"), "fast disk");
        assert_eq!(
            Parameter::Disk.say("rate=300Mbps,from=2s,length=3s"),
            "disk of 300 Mb/s from 2s on for 3s"
        );
        assert_eq!(Parameter::Load.say("none"), "no load");
        assert_eq!(Parameter::Loss.say("0%"), "no loss");
        assert_eq!(Parameter::Loss.say("0.01%"), "0.01% loss");
        assert_eq!(Parameter::Rtt.say("50ms"), "RTT 50 ms");
        assert_eq!(Parameter::SendingRate.say("800Mbps"), "800 Mb/s");
        assert_eq!(Parameter::BurstLoss.say("0.01%,20"), "bursts of 20 from 0.01%");
        assert_eq!(Parameter::Cross.say("8 cubic"), "beside 8 CUBIC");
        assert_eq!(
            Parameter::Load.say("loops,length=100ms,every=2s"),
            "1 loop for 100ms of each 2s"
        );
    }
}
