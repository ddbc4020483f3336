//! Policies that find lost object bytes and send them again: one a file.

mod chunks;
mod continuous;
mod rounds;

use alloc::boxed::Box;
use core::fmt::Debug;

use longhaul_rate_control::Repair;
use longhaul_units::Extent;
use longhaul_wire::Frame;

use chunks::Chunks;
use continuous::Continuous;
use rounds::Rounds;

/// A policy of repair. A lane reports events to it, and asks it before it takes a missing
/// object packet as lost, and which bytes go next; what is lost goes to the outbox whatever the policy.
pub(crate) trait Policy: Debug + Send {
    /// Bytes were offered.
    fn on_offered(&mut self) {}

    /// Nothing more will be offered before something is delivered.
    fn on_flushed(&mut self) {}

    /// All that was offered is sent, in packets below `next`; `outstanding` is true if the fate of
    /// any is open.
    fn on_all_sent(&mut self, _next: u64, _outstanding: &dyn Fn() -> bool) {}

    /// Nothing is acknowledged any more.
    fn on_probe_timeout(&mut self) {}

    /// The frame for the peer now, in packet `number`; again after
    /// [`Policy::on_probe_timeout`], if need be.
    fn poll_frame(&mut self, _number: u64) -> Option<Frame<'static>> {
        None
    }

    /// Where a report up to `largest` shows object packets as missing: only those below this number
    /// are lost. `None`: they are judged as all others are.
    fn lost_below(&self, _largest: u64) -> Option<u64> {
        None
    }

    /// A report up to `largest` was taken in; `outstanding` is true if the fate of any packet below a
    /// number is open.
    fn on_report(&mut self, _largest: u64, _outstanding: &dyn Fn(u64) -> bool) {}

    /// True if fresh bytes go before lost ones, while both may go.
    fn prefers_fresh(&self) -> bool {
        false
    }

    /// True if bytes of an extent may be sent of which none was sent before. Once begun it is sent to
    /// its end.
    fn may_begin(&self) -> bool {
        true
    }

    /// Bytes of `extent` are sent for the first time.
    fn on_begun(&mut self, _extent: Extent) {}

    /// So many packets of fresh bytes are sent.
    fn on_fresh(&mut self, _packets: u64) {}

    /// An extent is delivered, or what the peer has of it is all that it needs.
    fn on_done(&mut self, _extent: Extent) {}

    /// Rounds that are over, where there are rounds.
    fn rounds(&self) -> u64 {
        0
    }
}

/// The policy of that name.
pub(crate) fn policy(repair: Repair) -> Box<dyn Policy> {
    match repair {
        Repair::Continuous => Box::new(Continuous),
        Repair::Rounds => Box::new(Rounds::default()),
        Repair::Chunks(sizes) => Box::new(Chunks::new(sizes)),
    }
}
