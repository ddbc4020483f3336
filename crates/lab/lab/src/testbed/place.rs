//! Where an end of a link is to be.

use std::net::IpAddr;

use longhaul_sys::netns::Namespace;

/// An end of a link before there is anything.
pub(super) struct Place<'a> {
    pub(super) node: &'a Namespace,
    /// The device at the node.
    pub(super) device: String,
    pub(super) mtu: u32,
    pub(super) ipv6: bool,
    /// This end's address and the other's, and how many bits they have in common.
    pub(super) addresses: Vec<([IpAddr; 2], u8)>,
}

/// Packets or super-packets that may wait for the emulator: its longest stalls at 10 Gb/s.
pub(super) const DEVICE_QUEUE: u32 = 8192;
