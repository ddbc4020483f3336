//! A path, and the record that a transfer over it leaves.

use std::net::IpAddr;

use longhaul_rate_control::Observation;
use longhaul_units::Losses;

/// Which path, seen from this host, which sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathKey {
    /// The other host, as it was named; at a server, the client's address.
    pub peer: String,
    /// This host's address.
    pub local: IpAddr,
    /// The other's.
    pub remote: IpAddr,
    /// Direction of the request.
    pub direction: Direction,
    /// At a server, the identifier of the client's token: many clients may have one address, and what
    /// one of them makes of its path the others need not believe. At a client empty.
    pub token: String,
}

/// Direction of a request for data that this host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This host, a client.
    Push,
    /// The other; this host is a server.
    Pull,
}

impl Direction {
    /// The name, in the file and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }
}

/// Record that a transfer leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Observation of the path.
    pub seen: Observation,
    /// Packets that it sent.
    pub packets: u64,
    /// Of those, lost.
    pub lost: Losses,
    /// The profile whose controller was at work at the end: under `fobs` that of the member.
    pub profile: String,
}
