//! Reports of a gateway.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::ending::{Ending, Summary};

/// Takes what a gateway reports, from any of its threads.
pub type Report = Arc<dyn Fn(Event) + Send + Sync>;

/// A gateway's report while it works.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client was let in. Of its session [`Self::Ended`] follows, also where the gateway stops.
    Entered,
    /// A session is over, or a client was not let in.
    Ended {
        /// Client and target.
        summary: Summary,
        /// Its ending.
        ending: Ending,
    },
    /// A client came from an address that is not among those allowed; its connection was reset.
    Stranger {
        /// Its address.
        from: SocketAddr,
    },
    /// A client could not be let in.
    AcceptFailed {
        /// Why.
        error: io::Error,
    },
}
