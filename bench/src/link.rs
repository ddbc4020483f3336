//! Where data goes: two namespaces joined by a veth pair, or loopback where there may be none; and
//! an emulated long path.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command};
use std::time::Duration;

use longhaul_lab::{Conditions, LinkSpec, Testbed, TestbedOptions, Topology};
use longhaul_pathsim::Probability;
use longhaul_sys::netns::Side;
use longhaul_units::Rate;

/// The path between the two ends.
pub(crate) enum Link {
    Hosts { testbed: Box<Testbed>, mtu: u16 },
    Loopback { why: String },
}

impl Link {
    pub(crate) fn new(mtu: u16) -> Self {
        match Testbed::direct(mtu.into()) {
            Ok(testbed) => Self::Hosts { testbed: Box::new(testbed), mtu },
            Err(error) => Self::Loopback { why: error.to_string() },
        }
    }

    /// 1 Gb/s and a round trip of 100 ms between two hosts; `loss` of the packets are lost at random
    /// on the way there.
    pub(crate) fn emulated(loss: Probability) -> io::Result<Self> {
        let _ = longhaul_lab::clean_up()?;
        let both = Conditions {
            delay: Some(Duration::from_millis(50)),
            rate: Some(Rate::from_gbps(1)),
            ..Conditions::default()
        };
        let forward = Conditions { loss: Some(loss), ..Conditions::default() };
        let topology = Topology::two_hosts(LinkSpec { forward, ..LinkSpec::between_hosts(both) });
        let testbed = Testbed::new(&topology, &TestbedOptions::default());
        Ok(Self::Hosts { testbed: Box::new(testbed.map_err(io::Error::other)?), mtu: 1500 })
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Hosts { testbed, mtu } => match testbed.topology().links.first() {
                Some(link) => link.describe(),
                None => format!("two network namespaces joined by a veth pair, MTU {mtu}"),
            },
            Self::Loopback { why } => format!("loopback, MTU 65536, because {why}"),
        }
    }

    /// The hosts, where there are any.
    pub(crate) fn testbed(&self) -> Option<&Testbed> {
        match self {
            Self::Hosts { testbed, .. } => Some(testbed),
            Self::Loopback { .. } => None,
        }
    }

    /// Address of the receiving (`B`) or sending (`A`) end.
    pub(crate) fn address(&self, side: Side) -> IpAddr {
        match self {
            Self::Hosts { testbed, .. } => host(testbed, side).ipv4(),
            Self::Loopback { .. } => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Bytes of UDP payload that fit one packet; on loopback those of a common path.
    pub(crate) fn datagram(&self) -> u16 {
        match self {
            Self::Hosts { mtu, .. } => mtu - HEADERS,
            Self::Loopback { .. } => 1500 - HEADERS,
        }
    }

    /// Calls `work` on a thread of that end.
    pub(crate) fn run<T: Send>(
        &self,
        side: Side,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        match self {
            Self::Hosts { testbed, .. } => host(testbed, side).run(work)?,
            // A thread of its own here too, whose CPU time is that of the work.
            Self::Loopback { .. } => std::thread::scope(|scope| join(scope.spawn(work))),
        }
    }

    /// Starts `command` at that end.
    pub(crate) fn spawn(&self, side: Side, command: &mut Command) -> io::Result<Child> {
        match self {
            Self::Loopback { .. } => command.spawn(),
            Self::Hosts { testbed, .. } => {
                let command = std::mem::replace(command, Command::new("true"));
                testbed.spawn(host(testbed, side), command)
            }
        }
    }

    /// Runs both ends side by side: `receive` is given what tells `send` to begin, with the
    /// address that it listens at.
    pub(crate) fn both<S: Send, R: Send>(
        &self,
        send: impl FnOnce(std::net::SocketAddr) -> io::Result<S> + Send,
        receive: impl FnOnce(&dyn Fn(std::net::SocketAddr)) -> io::Result<R> + Send,
    ) -> io::Result<(S, R)> {
        let (announce, announced) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(move || {
                self.run(Side::B, move || {
                    receive(&|address| {
                        // The sender ends only after it has received the address.
                        let _ = announce.send(address);
                    })
                })
            });
            let sent = match announced.recv() {
                Ok(address) => self.run(Side::A, || send(address)),
                // The receiver says why.
                Err(_) => Err(io::ErrorKind::NotConnected.into()),
            };
            let received = join(receiver)?;
            Ok((sent?, received))
        })
    }
}

fn host(testbed: &Testbed, side: Side) -> &longhaul_lab::Host {
    match side {
        Side::A => &testbed.hosts()[0],
        Side::B => &testbed.hosts()[1],
    }
}

/// The thread's result; its panic goes on here.
fn join<T>(thread: std::thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// IPv4 and UDP.
const HEADERS: u16 = 28;
