use serde::{Deserialize, Serialize};

/// What can be varied, and what lines and panels of a figure can stand for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Parameter {
    /// Who transfers; not an axis, since all compete in every cell.
    #[default]
    Contender,
    /// Round trip of the link, `100ms`.
    Rtt,
    /// Packets lost at random on the way there, `0.1%`.
    Loss,
    /// Rate of the link, `1Gbps`.
    Rate,
    /// Queue in front of it, `12MB`.
    Queue,
    /// Largest packet of all links, `9000`.
    Mtu,
    /// Rate that contenders are told, `800Mbps`.
    SendingRate,
    /// Socket buffers that contenders are told, `256KiB`.
    SocketBuffer,
    /// `memory`, `ramdisk` or `disk`.
    Medium,
    /// `none`, or work beside the receiver as `lab path --load` reads it.
    Load,
}

impl Parameter {
    /// As experiments write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contender => "contender",
            Self::Rtt => "rtt",
            Self::Loss => "loss",
            Self::Rate => "rate",
            Self::Queue => "queue",
            Self::Mtu => "mtu",
            Self::SendingRate => "sending-rate",
            Self::SocketBuffer => "socket-buffer",
            Self::Medium => "medium",
            Self::Load => "load",
        }
    }

    /// On an axis of a figure.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Contender => "contender",
            Self::Rtt => "round trip",
            Self::Loss => "random loss",
            Self::Rate => "rate of the link",
            Self::Queue => "queue",
            Self::Mtu => "MTU (bytes)",
            Self::SendingRate => "sending rate (Mb/s)",
            Self::SocketBuffer => "socket buffer",
            Self::Medium => "from and to",
            Self::Load => "load at the receiver",
        }
    }

    /// A value as people read it.
    pub fn say(self, value: &str) -> String {
        match self {
            Self::Loss if is_zero(value) => "no loss".into(),
            Self::Loss => format!("{value} loss"),
            Self::Rtt => format!("RTT {}", spaced(value)),
            Self::Mtu => format!("MTU {value}"),
            Self::Queue => format!("queue {}", spaced(value)),
            Self::SocketBuffer => format!("{} buffer", spaced(value)),
            Self::Medium => format!("{value} to {value}"),
            Self::Rate | Self::SendingRate => rate_words(value),
            Self::Load => load_words(value),
            Self::Contender => value.into(),
        }
    }

    /// A value beside a tick of an axis that bears the label.
    pub fn tick(self, value: &str) -> String {
        match self {
            Self::Load => load_words(value),
            Self::Rtt | Self::Queue | Self::SocketBuffer => spaced(value),
            _ => value.into(),
        }
    }
}

/// `0%`, `0`, `0ppm`.
fn is_zero(value: &str) -> bool {
    !value.is_empty() && !value.contains(|c: char| c.is_ascii_digit() && c != '0')
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
    match (load.work.name(), load.count) {
        ("loops", 1) => "1 loop".into(),
        ("loops", count) => format!("{count} loops"),
        (work, 1) => work.into(),
        (work, count) => format!("{count} x {work}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_said_in_words() {
        assert_eq!(Parameter::Load.say("loops,count=3,cores=1"), "3 loops");
        assert_eq!(Parameter::Load.say("none"), "no load");
        assert_eq!(Parameter::Loss.say("0%"), "no loss");
        assert_eq!(Parameter::Loss.say("0.01%"), "0.01% loss");
        assert_eq!(Parameter::Rtt.say("50ms"), "RTT 50 ms");
        assert_eq!(Parameter::SendingRate.say("800Mbps"), "800 Mb/s");
    }
}
