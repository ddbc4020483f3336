//! A pair of stunnels at two nodes between: TLS over the middle segment, as SciStream has it.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use crate::contender::{Absent, ContenderError, End, Presence};
use crate::programs;
use crate::relays::{self, Dial, PORT, Relay};
use crate::session::Session;

pub(crate) struct Stunnel;

impl Relay for Stunnel {
    const NAME: &'static str = "stunnel";
    const ABOUT: &'static str = "a pair of stunnels at two nodes between, TLS with a shared key";
    const PACKAGES: &'static [&'static str] = &["stunnel4"];
    const USUAL: &'static [&'static str] = &["stunnel cubic x1", "stunnel bbr x1"];

    fn presence() -> Result<Presence, Absent> {
        let [program] = programs::require(["stunnel"], Self::PACKAGES)?;
        Ok(programs::presence(program, "-version", version))
    }

    fn start(
        session: &mut Session<'_>,
        presence: &Presence,
        target: SocketAddr,
    ) -> Result<Dial, ContenderError> {
        let addresses = relays::addresses(session, PORT);
        let [first, second] = addresses[..] else {
            return Err(ContenderError::unsuitable("a pair of stunnels takes two nodes between"));
        };
        relays::use_congestion_controls(session)?;
        let program = presence.program.clone().unwrap_or_default();
        let secrets = session.folder().join("secrets");
        fs::write(&secrets, KEY).map_err(ContenderError::system("write a key"))?;
        for (place, at, next) in [(0, first, second), (1, second, target)] {
            let side = if place == 0 { "client = yes" } else { "client = no" };
            let text = format!(
                "foreground = yes\npid =\ndebug = err\n[relay]\n{side}\naccept = {at}\nconnect = {next}\n\
                 PSKsecrets = {}\n",
                secrets.display()
            );
            let file = session.folder().join(format!("stunnel-{place}.conf"));
            fs::write(&file, text).map_err(ContenderError::system("write a configuration"))?;
            let mut command = Command::new(&program);
            command.arg(&file);
            let relay = session.start(End::Between(place), command)?;
            session.listening(relay, PORT)?;
        }
        Ok(relays::at(first))
    }
}

/// `stunnel 5.68 on x86_64-pc-linux-gnu platform`, perhaps behind lines of its log.
fn version(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.split_once("stunnel 5.").map(|(_, rest)| rest))?;
    Some(format!("stunnel 5.{}", line.split(' ').next()?))
}

/// Nothing secret passes, and no other program is there.
const KEY: &str = "lab:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_5_68_is_read() {
        let text =
            "Initializing inetd mode configuration\nstunnel 5.68 on x86_64-pc-linux-gnu platform\n";
        assert_eq!(version(text).as_deref(), Some("stunnel 5.68"));
        assert_eq!(version("command not found"), None);
    }
}
