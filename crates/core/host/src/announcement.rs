//! Announcements of a host to the other end, before it would lose datagrams.

use longhaul_units::{Bottleneck, Duration, Rate};

/// Message for the other end, now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announcement {
    /// This end takes no more than that.
    Limit {
        /// Rate of the whole connection, at the IP layer.
        rate: Rate,
        /// Cause of the limit.
        cause: Bottleneck,
        /// For so long, unless a newer announcement comes.
        lasts: Duration,
    },
    /// Nothing should be sent, resends included.
    Suspend {
        /// For so long, unless a newer announcement comes.
        lasts: Duration,
    },
    /// The suspend is over.
    Resume,
    /// This end will process so much ([`Part::Paptc`](crate::monitor::Part::Paptc)); that is no limit, but what a controller goes by.
    Capacity {
        /// Rate of the whole connection, at the IP layer.
        rate: Rate,
    },
}
