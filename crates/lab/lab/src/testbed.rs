//! A topology in operation.

mod addresses;
mod error;
mod keeper;
mod leftovers;
mod links;
mod listeners;
mod other_emulator;
mod place;
mod processes;
mod quota;
mod routes;
mod switch;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_pathsim::Direction;
use longhaul_sys::netns::{Namespace, NetnsPair, wait_for_path};
use longhaul_sys::traffic_control::QueueCounters;
use tempfile::TempDir;

pub use self::error::TestbedError;
use self::keeper::{Keeper, pin};
use self::leftovers::Registration;
pub(crate) use self::leftovers::disk_mark;
pub use self::leftovers::{Cleaned, Place, clean_up, shared_folder};
use self::other_emulator::OtherEmulator;
pub use self::other_emulator::{OtherCounts, OtherPath};
use self::processes::TAG;
use self::quota::Quota;
use crate::emulator::{Emulator, LinkSetup, LinkStats, Loss, class};
use crate::topology::{Egress, Topology};

/// A network stack per node, an emulated path per link, until it is dropped.
///
/// Nodes are network namespaces without a mount; the kernel removes them and their devices when
/// the process ends, however that happens. Commands started inside are killed with the testbed;
/// what they leave running after a `kill -9` is found and killed by the next [`clean_up`].
#[derive(Debug)]
pub struct Testbed {
    // Fields are dropped in this order: processes inside end before their network does.
    registration: Registration,
    other: Option<Box<OtherEmulator>>,
    hosts: Vec<Host>,
    emulator: Emulator,
    topology: Topology,
    interrupted: Arc<AtomicBool>,
}

/// Needs of a testbed beyond its topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestbedOptions {
    /// Of everything random.
    pub seed: u64,
    /// Losses of a direction that may wait for [`Testbed::take_losses`]; 0 keeps none.
    pub log: usize,
}

impl Default for TestbedOptions {
    fn default() -> Self {
        Self { seed: 1, log: 0 }
    }
}

/// A node of a testbed.
#[derive(Debug)]
pub struct Host {
    name: String,
    number: usize,
    ipv6: bool,
    cores: Vec<usize>,
    quota: Option<Quota>,
    shaped: Vec<QueueCounters>,
    // Ends before the namespace that it lives in.
    keeper: Keeper,
    namespace: Namespace,
    interrupted: Arc<AtomicBool>,
}

impl Testbed {
    /// Makes everything that `topology` describes. Schedules of rates and outages begin now.
    ///
    /// # Errors
    /// Impossible topologies, missing privileges, kernels without what is needed: in words that say
    /// what helps. Nothing stays behind.
    pub fn new(topology: &Topology, options: &TestbedOptions) -> Result<Self, TestbedError> {
        topology.validate()?;
        let registration = Registration::new().map_err(step("take stock of running testbeds"))?;
        let ipv6 = has_ipv6();
        let mut namespaces = Vec::new();
        for node in &topology.nodes {
            let namespace = Namespace::new().map_err(step("make a network namespace"))?;
            let tcp_buffer = node.tcp_buffer.map_or(TCP_BUFFER, |buffer| buffer.get());
            configure(&namespace, ipv6, Some(tcp_buffer))
                .map_err(step("set up a network namespace"))?;
            namespaces.push(namespace);
        }
        let mut setups = Vec::new();
        let mut shaped: Vec<Vec<QueueCounters>> = namespaces.iter().map(|_| Vec::new()).collect();
        for (number, link) in topology.links.iter().enumerate() {
            let nodes = topology.ends(number);
            let ends = nodes.map(|node| &namespaces[node]);
            let setup = links::make(link, number, ends, options.seed, ipv6)?;
            for node in nodes {
                if let Some(core) = topology.nodes[node].receive_core {
                    let steered = namespaces[node].steer(&routes::device(number), core);
                    steered.map_err(step("steer what is received to a core"))?;
                }
                if let Some(Egress { rate, queue }) = topology.nodes[node].egress {
                    let (device, class) = (routes::device(number), class(rate, link.mtu));
                    let (_, counters) = switch::shape(&namespaces[node], &device, class, queue)?;
                    shaped[node].push(counters);
                }
            }
            setups.push(setup);
        }
        for (node, namespace) in namespaces.iter().enumerate() {
            routes::lay(topology, node, namespace, ipv6).map_err(step("lay routes"))?;
        }
        let made = Self::assemble(topology, namespaces, setups, options, (registration, ipv6));
        let mut testbed = made?;
        for (host, shaped) in testbed.hosts.iter_mut().zip(shaped) {
            host.shaped = shaped;
        }
        Ok(testbed)
    }

    /// Two hosts, joined by a veth pair and nothing else: no delay, no loss, no rate, super-packets
    /// handed over whole, the kernel's own TCP buffers. Nothing is emulated, so that there are no
    /// [`Testbed::stats`].
    ///
    /// # Errors
    /// Errors of [`Testbed::new`].
    pub fn direct(mtu: u32) -> Result<Self, TestbedError> {
        let registration = Registration::new().map_err(step("take stock of running testbeds"))?;
        let pair = NetnsPair::new(mtu).map_err(step("join two network namespaces"))?;
        let namespaces: Vec<Namespace> = pair.into_sides().into();
        let ipv6 = has_ipv6();
        for namespace in &namespaces {
            configure(namespace, ipv6, None).map_err(step("set up a network namespace"))?;
        }
        let topology = Topology::direct();
        let options = TestbedOptions::default();
        Self::assemble(&topology, namespaces, Vec::new(), &options, (registration, ipv6))
    }

    /// Nodes in a row, each joined to the next one by a veth pair; those between forward. Otherwise as
    /// [`Testbed::direct`].
    ///
    /// # Errors
    /// Errors of [`Testbed::new`].
    pub fn row(names: &[&str], mtu: u32) -> Result<Self, TestbedError> {
        let topology = Topology::row(names, mtu);
        topology.validate()?;
        let registration = Registration::new().map_err(step("take stock of running testbeds"))?;
        let ipv6 = has_ipv6();
        let mut namespaces = Vec::new();
        for _ in names {
            let namespace = Namespace::new().map_err(step("make a network namespace"))?;
            configure(&namespace, ipv6, None).map_err(step("set up a network namespace"))?;
            namespaces.push(namespace);
        }
        for (link, pair) in namespaces.windows(2).enumerate() {
            links::join(link, [&pair[0], &pair[1]], mtu, ipv6)
                .map_err(step("join two network namespaces"))?;
        }
        for (node, namespace) in namespaces.iter().enumerate() {
            routes::lay(&topology, node, namespace, ipv6).map_err(step("lay routes"))?;
        }
        for (link, pair) in namespaces.windows(2).enumerate() {
            let addresses = [0, 1].map(|end| addresses::link_v4(link, end));
            wait_for_path([&pair[0], &pair[1]], addresses).map_err(step("wait for a link"))?;
        }
        let options = TestbedOptions::default();
        Self::assemble(&topology, namespaces, Vec::new(), &options, (registration, ipv6))
    }

    /// Two hosts, joined by a path that another program emulates. There are no [`Testbed::stats`];
    /// [`Testbed::close_other`] has what the program counted.
    ///
    /// # Errors
    /// Errors of [`Testbed::new`], and what the program writes when it does not come up.
    pub fn emulated_by(program: &Path, path: &OtherPath) -> Result<Self, TestbedError> {
        let registration = Registration::new().map_err(step("take stock of running testbeds"))?;
        let mut namespaces = Vec::new();
        for _ in 0..2 {
            let namespace = Namespace::new().map_err(step("make a network namespace"))?;
            configure(&namespace, false, Some(TCP_BUFFER))
                .map_err(step("set up a network namespace"))?;
            namespaces.push(namespace);
        }
        let topology = Topology::direct();
        let options = TestbedOptions { seed: path.seed, log: 0 };
        let mut testbed =
            Self::assemble(&topology, namespaces, Vec::new(), &options, (registration, false))?;
        let hosts = [&testbed.hosts[0], &testbed.hosts[1]];
        let mark = (TAG, testbed.registration.tag());
        let unnamed = || step("name a network namespace")(io::ErrorKind::PermissionDenied.into());
        let name = |host| testbed.netns_name(host).ok_or_else(unnamed);
        let names = [name(hosts[0])?, name(hosts[1])?];
        let other = OtherEmulator::start(program, path, mark, hosts, names)
            .map_err(step("start another program's emulator"))?;
        testbed.other = Some(Box::new(other));
        Ok(testbed)
    }

    fn assemble(
        topology: &Topology,
        namespaces: Vec<Namespace>,
        setups: Vec<LinkSetup>,
        options: &TestbedOptions,
        (registration, ipv6): (Registration, bool),
    ) -> Result<Self, TestbedError> {
        let emulator = Emulator::start(setups, options.log).map_err(step("start the emulator"))?;
        let names: Vec<&str> = topology.nodes.iter().map(|node| node.name.as_str()).collect();
        let file = addresses::hosts_file(&names, ipv6).map_err(step("write a list of hosts"))?;
        let mut hosts = Vec::new();
        let interrupted = Arc::new(AtomicBool::new(false));
        for (number, namespace) in namespaces.into_iter().enumerate() {
            let name = names[number].to_owned();
            let cores = topology.nodes[number].cores.clone();
            let keeper = Keeper::new(&namespace, &name, file.path(), &cores)
                .map_err(step("enter a namespace on the cores asked for"))?;
            registration.name(&name, &namespace).map_err(step("name a network namespace"))?;
            let quota = topology.nodes[number].cpu_quota;
            let quota = quota.map(|part| Quota::new(&registration.group(&name), part)).transpose();
            let quota = quota.map_err(step("limit CPU time"))?;
            let interrupted = interrupted.clone();
            let shaped = Vec::new();
            hosts.push(Host {
                name,
                number,
                ipv6,
                cores,
                quota,
                shaped,
                keeper,
                namespace,
                interrupted,
            });
        }
        for (link, direction, switch) in emulator.switches() {
            // No node has a dot in its name.
            let name = format!("{}.{direction}", topology.links[link].name);
            registration.name(&name, switch).map_err(step("name a network namespace"))?;
        }
        let (topology, other) = (topology.clone(), None);
        Ok(Self { registration, other, hosts, emulator, topology, interrupted })
    }

    /// The topology it was made from.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// When the schedules of rates and outages began, by [`longhaul_sys::clock::now`].
    pub fn began(&self) -> longhaul_units::Instant {
        self.emulator.began()
    }

    /// All nodes, in the order of the topology.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The node of that name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The name under which `ip netns exec` knows a node, where it does: not without root.
    pub fn netns_name(&self, host: &Host) -> Option<String> {
        self.registration.netns_name(&host.name)
    }

    /// Starts `command` at a host. It finds the other nodes under their names (/etc/hosts), and is
    /// killed when the testbed ends.
    ///
    /// # Errors
    /// Errors of starting a process.
    pub fn spawn(&self, host: &Host, mut command: Command) -> io::Result<Child> {
        command.env(TAG, self.registration.tag());
        if let Some(quota) = &host.quota {
            quota.apply(&mut command)?;
        }
        host.keeper.spawn(command)
    }

    /// A new folder for files of commands, in memory where there is such a place. It is removed when
    /// it is dropped, and by [`clean_up`] when this process was killed.
    ///
    /// # Errors
    /// Errors of making a folder.
    pub fn scratch(&self) -> io::Result<TempDir> {
        self.registration.scratch()
    }

    /// Has the connections between two hosts, in both directions and over IPv4, use a congestion
    /// control of the kernel, whatever programs ask for; `None` leaves it to them again.
    ///
    /// # Errors
    /// Errors of changing routes.
    pub fn set_congestion_control(&self, a: &Host, b: &Host, name: Option<&str>) -> io::Result<()> {
        for (from, to) in [(a, b), (b, a)] {
            let (device, mut route) = routes::between(&self.topology, from.number, to.number);
            route.congestion_control = name.map(str::to_owned);
            from.namespace.add_route(&device, &route)?;
        }
        Ok(())
    }

    /// Counters of a link since the start, by its place in the topology.
    ///
    /// # Errors
    /// Errors of reading the devices' counters.
    ///
    /// # Panics
    /// When there is no such link.
    pub fn stats(&self, link: usize) -> io::Result<LinkStats> {
        self.emulator.stats(link)
    }

    /// Packets lost in one direction of a link since the last call, and how many more the log had
    /// no room for. See [`TestbedOptions::log`]. What lines of the kernel's drop is in
    /// [`Testbed::stats`] only.
    ///
    /// # Panics
    /// When there is no such link.
    pub fn take_losses(&self, link: usize, direction: Direction) -> (Vec<Loss>, u64) {
        self.emulator.take_log(link, (direction == Direction::Backward).into())
    }

    /// The first host and the last: the only two, or the ends of a chain.
    pub fn ends(&self) -> (&Host, &Host) {
        (&self.hosts[0], &self.hosts[self.hosts.len() - 1])
    }

    /// True while packets are carried; when not, [`Testbed::close`] says why.
    pub fn is_running(&self) -> bool {
        self.emulator.is_running()
    }

    /// Kills all commands, and what they have started in turn; transfers of this process between
    /// the hosts give up.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.registration.kill_inside();
    }

    /// Ends a testbed of [`Testbed::emulated_by`]; tells what the program counted.
    ///
    /// # Errors
    /// A program that ended before, or says something else.
    pub fn close_other(mut self) -> io::Result<OtherCounts> {
        let mut other = self.other.take().ok_or(io::ErrorKind::NotFound)?;
        other.stop()
    }

    /// Ends the testbed and reports whether packets were carried until now.
    ///
    /// # Errors
    /// What ended the emulator early.
    pub fn close(mut self) -> io::Result<()> {
        self.registration.kill_inside();
        self.emulator.stop()
    }
}

impl Host {
    /// True if what goes on here is to end early: see [`Testbed::interrupt`].
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its own IPv4 address, of the range for documentation, reached over whatever link is shortest.
    pub fn ipv4(&self) -> IpAddr {
        addresses::node_v4(self.number)
    }

    /// Its own IPv6 address; `None` on kernels without IPv6.
    pub fn ipv6(&self) -> Option<IpAddr> {
        self.ipv6.then(|| addresses::node_v6(self.number))
    }

    /// Its IPv4 address on a link that it is an end of, to reach it over that link and no other:
    /// `end` is 0 for the first node of the link and 1 for the second.
    pub fn ipv4_on(&self, link: usize, end: usize) -> IpAddr {
        addresses::link_v4(link, end)
    }

    /// Packets and super-packets that its own devices had no room for, where they are limited
    /// ([`crate::topology::Node::egress`]).
    ///
    /// # Errors
    /// Errors of reading the counters.
    pub fn refused(&self) -> io::Result<u64> {
        self.shaped.iter().map(|queue| Ok(queue.read()?.dropped)).sum()
    }

    /// Looks for a socket that listens here, for connections or for datagrams of anybody, at
    /// `port`, or at any port.
    ///
    /// # Errors
    /// Errors of starting a thread inside.
    pub fn listens(&self, port: Option<u16>) -> io::Result<bool> {
        self.namespace.run(|| listeners::any(port))
    }

    /// Calls `work` on a thread inside. Sockets made there stay there, in whatever thread they are
    /// used.
    ///
    /// # Errors
    /// Errors of starting the thread.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.namespace.run(|| pin(&self.cores).map(|()| work()))?
    }
}

/// An error of the system in doing `step`.
fn step(step: &'static str) -> impl Fn(io::Error) -> TestbedError {
    move |error| TestbedError::System { step, error }
}

fn has_ipv6() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6").exists()
}

/// Without a size of buffers they stay as the kernel has them.
fn configure(namespace: &Namespace, ipv6: bool, tcp_buffer: Option<u64>) -> io::Result<()> {
    // Answers come back by the way the routes say, whatever the kernel expects.
    namespace.set("net/ipv4/conf/all/rp_filter", "0")?;
    namespace.set("net/ipv4/conf/default/rp_filter", "0")?;
    namespace.set("net/ipv4/ip_forward", "1")?;
    // What one connection learns must not change the next: runs are to be repeatable.
    namespace.set("net/ipv4/tcp_no_metrics_save", "1")?;
    if let Some(tcp_buffer) = tcp_buffer {
        let default = tcp_buffer.min(TCP_BUFFER_START);
        for parameter in ["net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem"] {
            let least = default.min(4096);
            namespace.set(parameter, &format!("{least} {default} {tcp_buffer}"))?;
        }
    }
    if ipv6 {
        // Nothing but what the hosts send crosses a link.
        namespace.set("net/ipv6/conf/default/router_solicitations", "0")?;
        namespace.set("net/ipv6/conf/default/addr_gen_mode", "1")?;
        namespace.set("net/ipv6/conf/all/forwarding", "1")?;
    }
    Ok(())
}

/// 256 MiB; see [`crate::topology::Node::tcp_buffer`].
const TCP_BUFFER: u64 = 256 << 20;
/// Buffer with which a connection begins.
const TCP_BUFFER_START: u64 = 128 << 10;

#[cfg(test)]
mod tests;
