//! HAProxy at nodes between, as SciStream and others put it there.

use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use crate::contender::{Absent, ContenderError, End, Presence};
use crate::programs;
use crate::relays::{self, Dial, PORT, Relay};
use crate::session::Session;

pub(crate) struct Haproxy;

impl Relay for Haproxy {
    const NAME: &'static str = "haproxy";
    const ABOUT: &'static str = "HAProxy at the nodes between, over TCP, with buffers of 100 KiB";
    const PACKAGES: &'static [&'static str] = &["haproxy"];
    const USUAL: &'static [&'static str] = &["haproxy cubic x1", "haproxy bbr x1"];

    fn presence() -> Result<Presence, Absent> {
        let [program] = programs::require(["haproxy"], Self::PACKAGES)?;
        Ok(programs::presence(program, "-v", version))
    }

    fn start(
        session: &mut Session<'_>,
        presence: &Presence,
        target: SocketAddr,
    ) -> Result<Dial, ContenderError> {
        relays::use_congestion_controls(session)?;
        let addresses = relays::addresses(session, PORT);
        let program = presence.program.clone().unwrap_or_default();
        for (place, at) in addresses.iter().enumerate() {
            let next = addresses.get(place + 1).unwrap_or(&target);
            let file = session.folder().join(format!("haproxy-{place}.cfg"));
            let written = fs::write(&file, configuration(*at, *next));
            written.map_err(ContenderError::system("write a configuration"))?;
            let mut command = Command::new(&program);
            command.arg("-db").arg("-f").arg(&file);
            let relay = session.start(End::Between(place), command)?;
            session.listening(relay, PORT)?;
        }
        Ok(relays::at(addresses[0]))
    }
}

/// One thread and large buffers: what was fastest of all that was tried.
fn configuration(at: SocketAddr, next: SocketAddr) -> String {
    let mut text = String::new();
    let times = ["connect 30s", "client 1h", "server 1h"];
    let _ = write!(text, "global\n  nbthread 1\n  maxconn 1024\n  tune.bufsize 102400\n");
    let _ = write!(text, "defaults\n  mode tcp\n");
    for time in times {
        let _ = writeln!(text, "  timeout {time}");
    }
    let _ = write!(text, "listen relay\n  bind {at}\n  server next {next}\n");
    text
}

/// `HAProxy version 2.6.12-1+deb12u3 2025/10/03 - https://haproxy.org/`.
fn version(text: &str) -> Option<String> {
    let words = text.lines().next()?.strip_prefix("HAProxy version ")?;
    Some(format!("HAProxy {}", words.split(' ').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_relay_leads_to_the_next() {
        let (at, next) = ("198.51.100.2:5001", "198.51.100.3:5001");
        let text = configuration(at.parse().unwrap(), next.parse().unwrap());
        assert!(text.ends_with(&format!("listen relay\n  bind {at}\n  server next {next}\n")));
        let text = "HAProxy version 2.6.12-1+deb12u4 2026/10/03 - https://haproxy.org/\nStatus:";
        assert_eq!(version(text).as_deref(), Some("HAProxy 2.6.12-1+deb12u4"));
        assert_eq!(version("command not found"), None);
    }
}
