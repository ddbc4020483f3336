//! A pair of gateways that carry TCP connections over UDT, framed as in Phoebus section 4.4.

use std::net::SocketAddr;
use std::process::Command;

use crate::contender::{Absent, ContenderError, End, Presence};
use crate::relays::{self, Dial, PORT, Relay};
use crate::session::Session;
use crate::udt;

pub(crate) struct UdtGateways;

impl Relay for UdtGateways {
    const NAME: &'static str = "udt-gateways";
    const ABOUT: &'static str =
        "a pair of gateways at two nodes between, UDT4 (libudt) from one to the other";
    const PACKAGES: &'static [&'static str] = udt::PACKAGES;
    const TAKES_RATE: bool = true;
    const USUAL: &'static [&'static str] = &["udt-gateways cubic x1", "udt-gateways bbr x1"];

    fn presence() -> Result<Presence, Absent> {
        udt::presence()
    }

    fn start(
        session: &mut Session<'_>,
        presence: &Presence,
        target: SocketAddr,
    ) -> Result<Dial, ContenderError> {
        let addresses = relays::addresses(session, PORT);
        let [first, second] = addresses[..] else {
            return Err(ContenderError::unsuitable(
                "a pair of UDT gateways takes two nodes between",
            ));
        };
        if session.job().via[0].congestion_control.is_some() {
            return Err(ContenderError::unsuitable(
                "what the first of two UDT gateways sends is UDT",
            ));
        }
        relays::use_congestion_controls(session)?;
        let program = presence.program.clone().unwrap_or_default();
        let buffer = session.job().socket_buffer.unwrap_or(udt::SOCKET_BUFFER).to_string();
        let rates = session.job().via.iter().map(|waypoint| waypoint.rate);
        let rates: Vec<String> =
            rates.map(|rate| rate.map_or(0, |rate| rate.as_bps() / 8).to_string()).collect();
        for (place, side, at, next) in [(1, "leave", second, target), (0, "enter", first, second)] {
            let mut command = Command::new(&program);
            command.args([side, &at.ip().to_string(), &at.port().to_string()]);
            command.args([
                &next.ip().to_string(),
                &next.port().to_string(),
                &buffer,
                &rates[place],
            ]);
            let relay = session.start(End::Between(place), command)?;
            session.listening(relay, PORT)?;
        }
        Ok(relays::at(first))
    }
}
