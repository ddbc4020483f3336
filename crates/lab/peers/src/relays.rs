//! Kernel TCP by the lab's own pump, through programs at nodes between.

use std::io;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use longhaul_lab::Testbed;
use longhaul_lab::pump::Reach;

use crate::contender::{Absent, Contender, ContenderError, End, Job, Outcome, Passage, Presence};
use crate::session::Session;
use crate::tcp::{Pumped, control, kernel_has, streams};

/// Connects, at the sending end and within a time, to what leads to an address.
pub(crate) type Dial = Box<dyn Fn(SocketAddr, Duration) -> io::Result<TcpStream> + Sync>;

/// A program that passes connections on.
pub(crate) trait Relay: Send + Sync + 'static {
    /// Before the congestion control of the sending end and the number of connections.
    const NAME: &'static str;
    const ABOUT: &'static str;
    const PACKAGES: &'static [&'static str] = &[];
    /// True where it takes the number of connections to keep open ([`crate::contender::Waypoint::spares`]).
    const TAKES_SPARES: bool = false;
    /// True where it takes a rate ([`crate::contender::Waypoint::rate`]).
    const TAKES_RATE: bool = false;
    /// Contenders to list.
    const USUAL: &'static [&'static str];

    fn presence() -> Result<Presence, Absent>;

    /// Starts one at each node between, so that what `Dial` connects to arrives at `target`.
    fn start(
        session: &mut Session<'_>,
        presence: &Presence,
        target: SocketAddr,
    ) -> Result<Dial, ContenderError>;
}

/// The pump's connections through relays.
pub(crate) struct Relayed<R> {
    name: String,
    congestion_control: String,
    streams: u16,
    relay: PhantomData<R>,
}

impl<R: Relay> Relayed<R> {
    /// `haproxy cubic x4`.
    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        let (rest, streams) = streams(name)?;
        let congestion_control = control(rest.strip_prefix(R::NAME)?.strip_prefix(' ')?)?;
        let (name, relay) = (name.to_owned(), PhantomData::<R>);
        Some(Box::new(Self { name, congestion_control, streams, relay }))
    }
}

impl<R: Relay> Contender for Relayed<R> {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        format!("{}; {} x{} at the sender", R::ABOUT, self.congestion_control, self.streams)
    }

    fn packages(&self) -> &'static [&'static str] {
        R::PACKAGES
    }

    fn presence(&self) -> Result<Presence, Absent> {
        kernel_has(&self.congestion_control)?;
        R::presence()
    }

    fn passage(&self) -> Passage {
        Passage::Relayed
    }

    fn measures_round_trips(&self) -> bool {
        true
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError> {
        let presence = self.presence()?;
        if job.via.is_empty() {
            return Err(ContenderError::unsuitable("no nodes between are named"));
        }
        if !R::TAKES_SPARES && job.via.iter().any(|waypoint| waypoint.spares > 0) {
            return Err(ContenderError::unsuitable("it keeps no spare connections"));
        }
        if !R::TAKES_RATE && job.via.iter().any(|waypoint| waypoint.rate.is_some()) {
            return Err(ContenderError::unsuitable("what it sends is not limited"));
        }
        for name in job.via.iter().filter_map(|waypoint| waypoint.congestion_control.as_ref()) {
            kernel_has(name)?;
        }
        let pumped = Pumped::new(&self.congestion_control, self.streams, job)?;
        let mut session = Session::new(testbed, job)?;
        let target = SocketAddr::new(session.address(End::Receiver), PORT);
        let dial = R::start(&mut session, &presence, target)?;
        pumped.run(session, presence, &Reach::through(PORT, &*dial))
    }
}

/// Where each of `count` relays listens.
pub(crate) fn addresses(session: &Session<'_>, port: u16) -> Vec<SocketAddr> {
    let places = 0..session.job().via.len();
    places.map(|place| (session.address(End::Between(place)), port).into()).collect()
}

/// Has what each relay sends use the congestion control that the job names for it.
pub(crate) fn use_congestion_controls(session: &mut Session<'_>) -> Result<(), ContenderError> {
    let via = &session.job().via;
    for (place, waypoint) in via.iter().enumerate() {
        let next = if place + 1 < via.len() { End::Between(place + 1) } else { End::Receiver };
        if let Some(name) = &waypoint.congestion_control {
            session.use_congestion_control_between([End::Between(place), next], name)?;
        }
    }
    Ok(())
}

/// Connects to the first relay, whatever the address behind it.
pub(crate) fn at(first: SocketAddr) -> Dial {
    Box::new(move |_, within| TcpStream::connect_timeout(&first, within))
}

/// Where the pump listens, and in namespaces of their own relays that have no port of theirs.
pub(crate) const PORT: u16 = 5001;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateways::Gateways;

    #[test]
    fn names_are_read() {
        let relayed = Relayed::<Gateways>::named("gateways bbr x8").unwrap();
        assert!(relayed.about().ends_with("; bbr x8 at the sender"), "{}", relayed.about());
        assert_eq!(relayed.passage(), Passage::Relayed);
        for wrong in ["gateways", "gateways x1", "gatewaysbbr x1", "bbr x1", "gateways bbr"] {
            assert!(Relayed::<Gateways>::named(wrong).is_none(), "{wrong}");
        }
    }
}
