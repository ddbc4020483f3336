//! A copy or a pipe over a booked circuit, with the path over IP beside it (docs/circuits.md section 5).
//!
//! The circuit is one more path of the connection. Lane 0 stays on IP and carries messages; the other
//! lanes go there, under the booking's vector, and back to IP when it ends. The circuit is released the
//! moment everything is sent.

mod follow;
pub(crate) mod report;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::{fmt, io};

use longhaul_carriers::udp::paths::{Account, FIRST, sum};
use longhaul_rate_control::Vector;
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_sys::threads;
use longhaul_units::{Duration, Instant, PathId, Rate};

pub(crate) use follow::{Errand, Follower};
pub use report::CircuitReport;

/// Finds circuits for a copy or a pipe: the client of a booking service. Calls may take as long as a request
/// to the service does.
pub trait Circuits: fmt::Debug + Send + Sync {
    /// Books for `wish`, or finds what was booked.
    ///
    /// # Errors
    /// Why not, and what would be accepted.
    fn book(&self, wish: &CircuitWish) -> Result<CircuitBooking, ServiceError>;

    /// The vector of a booking as it stands now: the plan may have changed, and clocks drift.
    ///
    /// # Errors
    /// The service does not say, or nothing is left of it.
    fn renew(&self, booking: u64) -> Result<Vector, ServiceError>;

    /// Gives back what is left of a booking.
    ///
    /// # Errors
    /// The service does not take it.
    fn release(&self, booking: u64) -> Result<(), ServiceError>;

    /// The copy or pipe is at its end: [`Self::book`] asks for nothing from now on that was not asked for
    /// before. Whether something may be booked, so that it is worth waiting for the answer.
    fn leave(&self) -> bool {
        true
    }
}

/// What a booking service, or what leads there, answered instead; its text is for people.
pub type ServiceError = Box<dyn Error + Send + Sync>;

/// Why there is no circuit.
#[derive(Debug, thiserror::Error)]
pub enum NoCircuit {
    /// All lanes there are carry messages.
    #[error("the server grants no lane beside the one over IP")]
    NoLane,
    /// This host has no way there.
    #[error("cannot send from {local} to {remote}: {error}")]
    NoWay {
        /// Address of the circuit at this end.
        local: IpAddr,
        /// And at the other.
        remote: SocketAddr,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The service says no.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A vector without ranges.
    #[error("what was booked is shorter than the difference of the clocks is known")]
    TooShort,
}

/// What is wanted of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitWant {
    /// IP-layer bytes to be sent, headers included, if nothing is lost.
    Bytes(u64),
    /// The paper's (H, Rmin, Rmax): for a time, however much comes.
    Time {
        /// For how long.
        time: Duration,
        /// Least that is of use, at the IP layer.
        min_rate: Rate,
        /// Most that is of use.
        max_rate: Rate,
    },
    /// A booking that was made before, by its number at the service.
    Made(u64),
}

/// A circuit that is wanted, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitWish {
    /// How much of it.
    pub want: CircuitWant,
    /// The peer's address on the circuit.
    pub remote: IpAddr,
    /// Round trip, as measured over IP: for so long a circuit is idle at its beginning, while the
    /// peer's address is proven.
    pub rtt: Duration,
}

/// A booking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitBooking {
    /// Its number at the service.
    pub id: u64,
    /// The most that is safe to send, in this host's clock ([`longhaul_sys::clock::now`]).
    pub vector: Vector,
    /// IP-layer bytes that the booking can carry.
    pub bytes: u64,
    /// When it is planned to be done.
    pub finish: Instant,
}

/// That data goes over a circuit, and which.
#[derive(Clone, Debug)]
pub struct CircuitOptions {
    /// The service.
    pub circuits: Arc<dyn Circuits>,
    /// How much of a circuit; `None`: for the bytes that a copy turns out to have. A pipe has to say.
    pub want: Option<CircuitWant>,
    /// The server's address at the far end of the circuit; by default its address over IP.
    pub remote: Option<IpAddr>,
    /// This host's address on the circuit. By default it is the address over IP, and so answers
    /// come back over IP.
    pub local: Option<IpAddr>,
    /// Where no circuit is to be had data goes over IP; else the copy or pipe fails.
    pub or_ip: bool,
    /// Until the circuit begins, and where none is to be had, data goes over IP; else it waits.
    pub and_ip: bool,
}

/// The thread that follows a booking, and what others may know of it.
pub(crate) struct Circuit {
    circuits: Arc<dyn Circuits>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// What the thread and the copy share.
#[derive(Default)]
pub(crate) struct Shared {
    ended: Mutex<bool>,
    changed: Condvar,
    outcome: Mutex<Outcome>,
}

/// Its result.
#[derive(Clone, Default)]
pub(crate) struct Outcome {
    pub followed: Option<Followed>,
    pub notices: Vec<String>,
}

/// A circuit that was followed to its end, and not yet what was sent: lanes still count that.
#[derive(Clone)]
pub(crate) struct Followed {
    report: CircuitReport,
    circuit: PathId,
}

impl Followed {
    /// With what lanes that have ended sent.
    pub fn counted(self, accounts: &[Account]) -> CircuitReport {
        let carried = sum(accounts, self.circuit);
        CircuitReport {
            sent_bytes: carried.bytes_sent,
            packets_sent: carried.packets_sent,
            packets_lost: carried.lost,
            ip_bytes: sum(accounts, FIRST).bytes_sent,
            ..self.report
        }
    }
}

impl Shared {
    /// Waits for so long, or until the copy ends: then `true`.
    pub fn pause(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(lock(&self.ended), time, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub fn note(&self, notice: String) {
        lock(&self.outcome).notices.push(notice);
    }

    pub fn report(&self, followed: Followed) {
        lock(&self.outcome).followed = Some(followed);
    }
}

impl Circuit {
    /// Starts to follow.
    pub fn start(follower: Follower) -> std::io::Result<Self> {
        let (circuits, shared) = (follower.circuits(), follower.shared());
        let thread = threads::spawn("circuit", move || follower.run())?;
        Ok(Self { circuits, shared, thread })
    }

    /// The copy is at its end: what is left of the booking is given back. For a service that does not
    /// answer nobody waits longer than [`PATIENCE`]; the thread goes on alone until it gives up.
    pub fn finish(self) -> Outcome {
        *lock(&self.shared.ended) = true;
        self.shared.changed.notify_all();
        let may_be_booked = self.circuits.leave();
        let deadline = clock::now() + if may_be_booked { PATIENCE } else { MOMENT };
        while !self.thread.is_finished() && clock::now() < deadline {
            std::thread::sleep(GLANCE);
        }
        if self.thread.is_finished() {
            // A panic there has been reported by the thread itself.
            let _ = self.thread.join();
        } else if !may_be_booked {
            self.shared
                .note("the booking service had not answered by then: nothing was booked".into());
        } else {
            self.shared.note(format!(
                "the booking service did not answer within {} s: what it booked may be booked still",
                PATIENCE.as_secs()
            ));
        }
        lock(&self.shared.outcome).clone()
    }
}

/// The service answers within milliseconds, or is in trouble.
const PATIENCE: Duration = Duration::from_secs(10);
/// A thread that has asked nothing ends within it.
const MOMENT: Duration = Duration::from_millis(250);
/// How often is looked whether it has.
const GLANCE: Duration = Duration::from_millis(2);
