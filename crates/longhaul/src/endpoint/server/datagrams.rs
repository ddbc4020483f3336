//! Datagrams that come to the socket of all lanes of a server.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use longhaul_carriers::upper_layer::{ForwardedDatagram, Mailbox};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_sys::udp::Wait;
use longhaul_units::LaneId;
use longhaul_wire::Header;

use super::Running;
use crate::connection::attend::INTERVAL;

/// Lanes by connection and number.
#[derive(Default)]
pub(super) struct Known(Mutex<BTreeMap<(u32, u16), Arc<Mailbox>>>);

/// Datagrams for a connection find their lanes until this is dropped.
pub(super) struct KnownLanes<'s> {
    known: &'s Known,
    connection: NonZeroU32,
}

impl Known {
    /// Those of `connection`, of which none is known yet.
    pub fn of(&self, connection: NonZeroU32) -> KnownLanes<'_> {
        KnownLanes { known: self, connection }
    }
}

impl KnownLanes<'_> {
    /// These lanes have these mailboxes.
    pub fn add<'m>(&self, lanes: impl IntoIterator<Item = (LaneId, &'m Arc<Mailbox>)>) {
        let connection = self.connection.get();
        let lanes = lanes.into_iter();
        lock(&self.known.0)
            .extend(lanes.map(|(lane, mailbox)| ((connection, lane.0), mailbox.clone())));
    }
}

impl Drop for KnownLanes<'_> {
    fn drop(&mut self) {
        lock(&self.known.0).retain(|(connection, _), _| *connection != self.connection.get());
    }
}

impl Running<'_> {
    /// Hands datagrams that come to the common socket to their lanes: the first of each, those
    /// from a changed address, and those of strangers, which are dropped.
    pub(super) fn pass_datagrams(&self) {
        let mut buffer = vec![0; 65_536];
        while !self.left.is_requested() {
            let ready = self.udp.wait_readable(None, Some(clock::now() + INTERVAL));
            if !ready.is_ok_and(|ready| ready.socket) {
                continue;
            }
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let Ok(Some(got)) = self.udp.recv(&mut slices, Wait::No) else { continue };
            let segment = usize::from(got.segment).max(1);
            let at = clock::now();
            for packet in buffer[..got.len].chunks(segment) {
                let Ok(header) = Header::parse(packet) else { continue };
                let key = (header.connection.0, header.lane.0);
                let mailbox = lock(&self.lanes.0).get(&key).cloned();
                if let Some(mailbox) = mailbox {
                    let (from, to, ecn, bytes) = (got.from, got.to, got.ecn(), packet.to_vec());
                    mailbox.post_datagram(ForwardedDatagram { from, to, at, ecn, bytes });
                }
            }
        }
    }
}
