//! A connection's carrier as clients and servers use it: one trait, whatever carries the data.

use std::io;
use std::sync::{Arc, Mutex};

use longhaul_connection::{CarrierSeen, End};
use longhaul_control::Control;
use longhaul_engine::{Closed, Role};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_sys::udp::BufferSize;
use longhaul_units::Bytes;
use longhaul_wire::{CloseCode, HostAccount, HostLosses, SourceReport};

use crate::carrier::Mailbox;
use crate::udp::lane::{HostDrops, LaneView, Refusal};
use crate::udp::lines::{Account, Lines};

/// What carries a connection, at work. It is asked some ten times a second; data passes by mailboxes and
/// [`UpperLayer`](crate::carrier::UpperLayer). The defaults suit connections of the kernel, which finds
/// paths, packet sizes and rates by itself.
pub trait Carrier {
    /// "udp", "tcp", ...
    fn name(&self) -> &'static str;

    /// Says goodbye on all lanes. What was not sent stays unsent.
    fn close(&self, code: CloseCode, reason: &str);

    /// Waits for the lanes to end; they do soon once closed.
    fn join(&mut self);

    /// Counters of all lanes together.
    fn totals(&self) -> Totals;

    /// What it has seen by now.
    fn seen(&self) -> CarrierSeen;

    /// True where object bytes have arrived at the peer or here.
    fn have_moved(&self) -> bool;

    /// Looks which paths live, and sees to it that the connection's limits hold over all of them, if it
    /// is time.
    fn look(&self) {}

    /// This end receives the data: the peer is told what it takes.
    fn tell_limits(&self) {}

    /// How this host fares.
    fn host(&self) -> HostView {
        HostView::default()
    }

    /// The paths that its lanes choose between, if they do.
    fn paths(&self) -> Option<&Arc<Lines>> {
        None
    }

    /// What each lane has sent over each of them.
    fn accounts(&self) -> Vec<Account> {
        Vec::new()
    }

    /// Notices of paths that were left out since the last call.
    fn take_left_out(&self) -> Vec<String> {
        Vec::new()
    }

    /// IP-layer bytes of the largest packet that has passed, as far as it was tried.
    fn passed(&self) -> Option<u64> {
        None
    }

    /// True if a new connection may send smaller packets where these are too large for the path.
    fn may_send_smaller(&self) -> bool {
        false
    }

    /// Looks if the path swallows its packets; how it ended by that.
    fn swallowed(&self, _control: &Control) -> Option<Closed> {
        None
    }

    /// That this host's kernel takes no packets of a lane.
    fn refusal(&self) -> Option<Refusal> {
        None
    }

    /// What may help a user whose peer has fallen silent.
    fn advice_on_silence(&self) -> Option<&'static str> {
        None
    }

    /// Where nothing moved, that the kernel of this host, which is the `role`'s, takes no packets is why.
    fn explain(&self, end: End, role: Role) -> End {
        let Some(refusal) = self.refusal() else { return end };
        let add = |reason: String| format!("{reason}; {}", refusal.with_advice(role));
        match end {
            End::Stalled(reason) => End::Stalled(add(reason)),
            End::Closed(closed) if closed.code == CloseCode::TIMEOUT => {
                End::Closed(Closed { reason: add(closed.reason), ..closed })
            }
            end => end,
        }
    }

    /// Tells the control connection that the peer lives, if the carrier brought anything since
    /// `before`; returns what to pass next time.
    fn vouch(&self, control: &Control, before: u64) -> u64 {
        let received = self.totals().received;
        if received != before {
            control.note_received(clock::now());
        }
        received
    }
}

/// Sums over the lanes of a connection, and the state of their path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// How sending goes; what bounds it, and CPU time, are not known here.
    pub sending: SourceReport,
    /// Grows while the peer shows that it lives.
    pub received: u64,
}

/// How this host fares, for whoever asks, also when the lanes are over.
#[derive(Clone, Debug, Default)]
pub struct HostView {
    pub(crate) monitored: Option<Arc<Mutex<HostAccount>>>,
    pub(crate) views: Vec<Arc<Mutex<LaneView>>>,
    pub(crate) drops: Option<Arc<HostDrops>>,
    pub(crate) buffers: Option<BufferSize>,
}

impl HostView {
    /// All but the processor time.
    pub fn account(&self) -> HostAccount {
        let account = self.monitored.as_ref().map(|told| *lock(told)).unwrap_or_default();
        let size =
            |of: fn(&BufferSize) -> usize| Bytes::new(self.buffers.as_ref().map_or(0, of) as u64);
        let socket = self.views.iter().map(|view| lock(view).stats.socket_drops).sum();
        let (backlog, card) = self.drops.as_ref().map_or((0, 0), |drops| drops.explained());
        HostAccount {
            buffer_asked: size(|size| size.asked),
            buffer_granted: size(|size| size.obtained),
            lost: HostLosses { socket, backlog, card },
            ..account
        }
    }
}

/// Mailboxes for `count` lanes.
pub fn mailboxes(count: u16) -> io::Result<Vec<Arc<Mailbox>>> {
    (0..count).map(|_| Mailbox::new().map(Arc::new)).collect()
}
