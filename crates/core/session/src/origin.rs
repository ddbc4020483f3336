mod known;
mod table;

use core::net::{IpAddr, Ipv4Addr};

pub use self::known::KnownOrigins;
pub use self::table::{OriginTable, Ticket};

/// Addresses of which one host easily has all: limits count them as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// An address; of IPv6, too, where it is mapped there.
    V4(Ipv4Addr),
    /// A network of 64 bits.
    V6([u8; 8]),
}

impl Origin {
    /// Of a connection that comes from `address`.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let mut network = [0; 8];
                network.copy_from_slice(&address.octets()[..8]);
                Self::V6(network)
            }
        }
    }
}
