//! A connection's carrier as clients and servers use it: one trait, whatever carries the data.

use std::io;
use std::sync::{Arc, Mutex};

use longhaul_connection::{CarrierSeen, End};
use longhaul_control::Control;
use longhaul_engine::{Closed, Role};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_sys::udp::BufferSize;
use longhaul_units::{Bytes, Rate};
use longhaul_wire::{CloseCode, HostAccount, HostLosses, SourceReport};

use crate::udp::lane::{HostDrops, KernelRefusal, LaneView};
use crate::udp::paths::{Account, ConnectionPaths};
use crate::upper_layer::Mailbox;

/// A running carrier of one connection. Its owner calls it some ten times a second; data passes by mailboxes
/// and [`UpperLayer`](crate::upper_layer::UpperLayer). The defaults suit connections of the kernel, which finds
/// paths, packet sizes and rates by itself.
pub trait Carrier {
    /// "udp", "tcp", ...
    fn name(&self) -> &'static str;

    /// Sends CLOSE on all lanes. Data that was not sent stays unsent.
    fn close(&self, code: CloseCode, reason: &str);

    /// Waits for the lanes to end; they do soon once closed.
    fn join(&mut self);

    /// Counters of all lanes together.
    fn totals(&self) -> Totals;

    /// Counters and times for the attendant.
    fn seen(&self) -> CarrierSeen;

    /// True where object bytes have arrived at the peer or here.
    fn have_moved(&self) -> bool;

    /// Checks which paths live, and divides the connection's limits among them, if it is time.
    fn look(&self) {}

    /// Sends at most `rate` from now on, at the IP layer and over all paths together.
    fn limit(&self, rate: Option<Rate>);

    /// This end receives the data: from now on it announces its limits to the peer.
    fn tell_limits(&self) {}

    /// The state of this host.
    fn host(&self) -> HostView {
        HostView::default()
    }

    /// The paths that its lanes choose between, if they do.
    fn paths(&self) -> Option<&Arc<ConnectionPaths>> {
        None
    }

    /// Counts of what each lane has sent over each of them.
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

    /// The refusal of this host's kernel to take packets of a lane, if it refuses them.
    fn refusal(&self) -> Option<KernelRefusal> {
        None
    }

    /// Advice for a user whose peer has fallen silent.
    fn advice_on_silence(&self) -> Option<&'static str> {
        None
    }

    /// Adds to an `end` by silence that the kernel of this host, which is the `role`'s, takes no packets, if that
    /// is so.
    fn explain(&self, end: End, role: Role) -> End {
        let Some(refusal) = self.refusal() else { return end };
        let advice = refusal.with_advice(role);
        match end {
            End::Stalled(mut stalled) => {
                stalled.advice = Some(advice);
                End::Stalled(stalled)
            }
            End::Closed(closed) if closed.code == CloseCode::TIMEOUT => {
                let reason = format!("{}; {advice}", closed.reason);
                End::Closed(Closed { reason, ..closed })
            }
            end => end,
        }
    }

    /// Notes on the control connection that the peer lives, if the carrier brought anything since
    /// `before`; returns the value to pass next time.
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
    /// The state of sending; its bounds, and CPU time, are not known here.
    pub sending: SourceReport,
    /// Grows while the peer shows that it lives.
    pub received: u64,
}

/// The state of this host, which can be read also when the lanes are over.
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
        let account = self.monitored.as_ref().map(|account| *lock(account)).unwrap_or_default();
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
