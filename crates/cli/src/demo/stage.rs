//! Where the demo takes place: two hosts of the lab, or this host with a relay between two addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command};
use std::time::Duration;

use longhaul::Stop;
use longhaul_lab::pump::TcpPump;
use longhaul_lab::{Conditions, DirectionStats, Host, LinkSpec, Testbed, TestbedOptions, Topology};
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_units::Rate;
use serde_json::Value;

use super::relay::{DirectionReport, EmulatedPath, Relay, RelayReport};
use crate::lab;
use crate::output::Output;

/// Where the demo takes place.
pub(super) enum Stage {
    /// Two network namespaces with an emulated path between them, which carries any program.
    Hosts(Box<Testbed>),
    /// This host, with a relay that carries Longhaul only: needs no privileges.
    Here,
}

/// Which program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

/// The emulated path in operation.
pub(super) enum Emulation {
    OfTestbed,
    Relay(Relay),
}

/// How kernel TCP did.
pub(super) struct KernelTcp {
    pub streams: u16,
    pub time: Duration,
    pub goodput: Rate,
}

impl Stage {
    /// The lab where this process may have one. Before any thread: it may take a user namespace.
    pub fn set_up(path: &EmulatedPath, output: &Output) -> Self {
        let hosts = lab::prepare(output).and_then(|()| {
            let options = TestbedOptions { seed: path.seed, ..TestbedOptions::default() };
            Testbed::new(&topology(path), &options).map_err(lab::cannot_build)
        });
        match hosts {
            Ok(testbed) => Self::Hosts(Box::new(testbed)),
            Err(failure) => {
                output.say(format!(
                    "no network namespaces here, so a relay for Longhaul alone emulates the path, \
                     and kernel TCP is not shown beside it ({failure})"
                ));
                Self::Here
            }
        }
    }

    /// Where the server may listen, and where a client finds it.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Self::Hosts(testbed) => {
                let at = SocketAddr::new(testbed.ends().1.ipv4(), PORT);
                Some((at, at))
            }
            Self::Here => {
                let port = free_port()?;
                Some((SocketAddr::new(SERVER.into(), port), SocketAddr::new(RELAY.into(), port)))
            }
        }
    }

    /// Makes what comes to `at` go to `server` over `path`.
    pub fn emulate(
        &self,
        at: SocketAddr,
        server: SocketAddr,
        path: &EmulatedPath,
    ) -> io::Result<Emulation> {
        match self {
            Self::Hosts(_) => Ok(Emulation::OfTestbed),
            Self::Here => Relay::start(at, server, path).map(Emulation::Relay),
        }
    }

    pub fn spawn(&self, end: End, mut command: Command) -> io::Result<Child> {
        match self {
            Self::Hosts(testbed) => testbed.spawn(host(testbed, end), command),
            Self::Here => command.spawn(),
        }
    }

    /// CUBIC over the same path, for as long as the copy took, at most [`TCP_MOST`] each. Empty
    /// where there is no testbed.
    pub fn kernel_tcp(&self, copied: &Value, output: &Output, stop: &Stop) -> Vec<KernelTcp> {
        let Self::Hosts(testbed) = self else { return Vec::new() };
        let took = copied.get("seconds").and_then(Value::as_f64).unwrap_or(0.0);
        let time = Duration::from_secs_f64(took.max(0.0)).clamp(TCP_LEAST, TCP_MOST);
        let mut all = Vec::new();
        for streams in TCP_STREAMS {
            if stop.is_requested() {
                break;
            }
            let connections = if streams == 1 { "connection" } else { "connections" };
            output.say(format!("kernel TCP (CUBIC, {streams} {connections}) over the same path"));
            match TcpPump::new(CUBIC, streams).goodput(testbed, Duration::ZERO, time) {
                Ok(goodput) => all.push(KernelTcp { streams, time, goodput }),
                Err(error) => output.say(format!("kernel TCP did not run: {error}")),
            }
        }
        all
    }
}

impl Emulation {
    /// Ends it, and tells what it did.
    pub fn end(self, stage: &Stage) -> io::Result<RelayReport> {
        match (self, stage) {
            (Self::Relay(relay), _) => relay.stop(),
            (Self::OfTestbed, Stage::Hosts(testbed)) => {
                let stats = testbed.stats(0)?;
                let [forward, backward] = [stats.forward, stats.backward].map(report);
                Ok(RelayReport { forward, backward })
            }
            (Self::OfTestbed, Stage::Here) => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn report(stats: DirectionStats) -> DirectionReport {
    DirectionReport {
        path: stats.path,
        // Nothing of this path is the kernel's.
        queue_delay_max: stats.queue().unwrap_or_default().max_delay,
        released: stats.packets_written,
        lateness_typical: stats.lateness.median,
        lateness_max: stats.lateness.max,
        overflows: stats.device_full + stats.overrun,
        unsent: stats.refused + stats.malformed,
        cpu: None,
    }
}

fn host(testbed: &Testbed, end: End) -> &Host {
    let (client, server) = testbed.ends();
    match end {
        End::Client => client,
        End::Server => server,
    }
}

fn topology(path: &EmulatedPath) -> Topology {
    let both = Conditions {
        delay: Some(path.rtt / 2),
        rate: Some(path.rate),
        queue: Some(path.queue),
        loss: Some(path.loss),
        ..Conditions::default()
    };
    Topology::two_hosts(LinkSpec { mtu: path.mtu, ..LinkSpec::between_hosts(both) })
}

/// A port that is free for TCP and UDP at both addresses.
fn free_port() -> Option<u16> {
    let first = TcpListener::bind((RELAY, 0)).ok()?;
    let port = first.local_addr().ok()?.port();
    let _second = TcpListener::bind((SERVER, port)).ok()?;
    for ip in [RELAY, SERVER] {
        let address = SocketAddr::new(IpAddr::V4(ip), port);
        let _free = UdpSocket::bind(address, &UdpOptions::default()).ok()?;
    }
    Some(port)
}

/// In a namespace of its own every port is free.
const PORT: u16 = 7420;
/// The client knows one port for TCP and UDP, so relay and server differ by address.
const RELAY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const CUBIC: &str = "cubic";
const TCP_STREAMS: [u16; 2] = [1, 8];
const TCP_LEAST: Duration = Duration::from_secs(1);
const TCP_MOST: Duration = Duration::from_secs(10);
