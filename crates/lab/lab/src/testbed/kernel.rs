//! A path that the kernel's own emulation (netem) carries.

use std::io;
use std::process::Command;

use longhaul_sys::netns::{Namespace, wait_for_path};

use super::leftovers::Registration;
use super::{TCP_BUFFER, Testbed, TestbedError, TestbedOptions, addresses, configure, has_ipv6};
use super::{routes, step};
use crate::netem;
use crate::topology::{LineKind, LinkSpec, Node, Topology};

/// The kernel's counts of one direction of such a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCount {
    /// Packets that arrived, or are under way.
    pub passed: u64,
    /// Packets that were lost, at random or because the queue was full: netem counts both
    /// together.
    pub lost: u64,
}

impl Testbed {
    /// The two hosts of a link, and between them a node of the name `netem` whose devices do to
    /// packets what the link says, by the kernel's own emulation: forward on the way to the second
    /// host, backward on the way to the first. There are no [`Testbed::stats`] but
    /// [`Testbed::kernel_counts`], and random numbers are the kernel's own.
    ///
    /// # Errors
    /// Errors of [`Testbed::new`]; [`TestbedError::Unlike`] for what netem does not do, or does
    /// otherwise; [`TestbedError::NoNetem`] for kernels and systems without it.
    pub fn kernel(link: &LinkSpec) -> Result<Self, TestbedError> {
        let paths = link.paths()?;
        if link.line != LineKind::Emulated {
            return Err(TestbedError::Unlike("a line by HTB"));
        }
        let commands = |path| netem::commands(path, link.mtu).map_err(TestbedError::Unlike);
        let (forward, backward) = (commands(&paths.forward)?, commands(&paths.backward)?);
        let testbed = Self::wired(link)?;
        // The second device is the one towards the second host.
        for (device, commands) in [(1, forward), (0, backward)] {
            for words in &commands {
                tc(&testbed.hosts[1].namespace, routes::device(device), words)?;
            }
        }
        Ok(testbed)
    }

    /// The kernel's counts of a path of [`Testbed::kernel`], forward and backward.
    ///
    /// # Errors
    /// `NotFound` for other testbeds, and those of `tc`.
    pub fn kernel_counts(&self) -> io::Result<[KernelCount; 2]> {
        let node = self.host(NODE).ok_or(io::ErrorKind::NotFound)?;
        let count = |link| {
            let device = routes::device(link);
            let words = ["-s", "qdisc", "show", "dev", &device, "root"];
            let output = node.namespace.run(|| Command::new("tc").args(words).output())??;
            counted(&String::from_utf8_lossy(&output.stdout))
                .ok_or_else(|| io::Error::other(format!("tc tells nothing of {device}")))
        };
        Ok([count(1)?, count(0)?])
    }

    /// The three nodes, joined by veth pairs that hand on packets one by one.
    pub(super) fn wired(link: &LinkSpec) -> Result<Self, TestbedError> {
        let [first, second] = &link.between;
        let wire = |name: &str, from: &str, to: &str| LinkSpec {
            name: name.into(),
            between: [from.into(), to.into()],
            mtu: link.mtu,
            ..LinkSpec::between_hosts(Default::default())
        };
        let topology = Topology {
            name: link.name.clone(),
            about: String::new(),
            nodes: [first, NODE, second].map(Node::new).into(),
            links: vec![wire("near", first, NODE), wire("far", NODE, second)],
        };
        topology.validate()?;
        let registration = Registration::new().map_err(step("take stock of running testbeds"))?;
        let ipv6 = has_ipv6();
        let mut namespaces = Vec::new();
        for _ in &topology.nodes {
            let namespace = Namespace::new().map_err(step("make a network namespace"))?;
            configure(&namespace, ipv6, Some(TCP_BUFFER))
                .map_err(step("set up a network namespace"))?;
            namespaces.push(namespace);
        }
        for number in 0..topology.links.len() {
            let [a, b] = topology.ends(number);
            let addresses = |of: fn(usize, usize) -> _| [of(number, 0), of(number, 1)];
            let v4 = (addresses(addresses::link_v4), addresses::LINK_V4);
            let v6 = (addresses(addresses::link_v6), addresses::LINK_V6);
            let ends = if ipv6 { &[v4, v6][..] } else { &[v4] };
            let (device, pair) = (routes::device(number), [&namespaces[a], &namespaces[b]]);
            pair[0]
                .join(pair[1], &device, link.mtu, ends)
                .map_err(step("join two network namespaces"))?;
            for end in pair {
                end.cut_super_packets(&device).map_err(step("have a link cut super-packets"))?;
            }
        }
        for (node, namespace) in namespaces.iter().enumerate() {
            routes::lay(&topology, node, namespace, ipv6).map_err(step("lay routes"))?;
        }
        let ends = [&namespaces[0], &namespaces[2]];
        let of = |address: fn(usize) -> _| [address(0), address(2)];
        wait_for_path(ends, of(addresses::node_v4)).map_err(step("reach the other host"))?;
        if ipv6 {
            wait_for_path(ends, of(addresses::node_v6)).map_err(step("reach the other host"))?;
        }
        let options = TestbedOptions::default();
        Self::assemble(&topology, namespaces, Vec::new(), &options, (registration, ipv6))
    }
}

/// Has `tc` add a queueing discipline to a device.
fn tc(namespace: &Namespace, device: String, words: &[String]) -> Result<(), TestbedError> {
    let mut command = Command::new("tc");
    command.args(["qdisc", "add", "dev", &device]).args(words);
    let output = match namespace.run(|| command.output()).and_then(|output| output) {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let hint = "there is no `tc`; on Debian: apt-get install iproute2";
            return Err(TestbedError::NoNetem(hint.into()));
        }
        Err(error) => return Err(step("run tc")(error)),
    };
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(TestbedError::NoNetem(why_not(words, complaint.trim())))
}

/// Help against a complaint of `tc`.
fn why_not(words: &[String], complaint: &str) -> String {
    // The words of tc since 6.0, before that, and of kernels that cannot say why.
    let unknown = ["qdisc kind is unknown", "qdisc not found", "No such file or directory"];
    match unknown.iter().any(|words| complaint.contains(words)) {
        true => "this kernel has no netem (CONFIG_NET_SCH_NETEM); `modprobe sch_netem` loads it \
                 where it is a module"
            .into(),
        false => format!("tc {}: {complaint}", words.join(" ")),
    }
}

/// From lines like ` Sent 3000 bytes 2 pkt (dropped 1, overlimits 0 requeues 0)`.
fn counted(text: &str) -> Option<KernelCount> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Sent "))?;
    let mut words = line.split([' ', ',', '(']).filter(|word| !word.is_empty());
    let mut after = |what: &str, skip: usize| {
        words.by_ref().skip_while(|word| *word != what).nth(skip)?.parse().ok()
    };
    Some(KernelCount { passed: after("bytes", 1)?, lost: after("dropped", 1)? })
}

/// Between the two hosts.
const NODE: &str = "netem";

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    use longhaul_needs::needs;

    use super::*;
    use crate::topology::Conditions;

    #[test]
    fn counts_are_read() {
        let text = "qdisc netem 1: root refcnt 2 limit 1000 delay 25ms\n \
                    Sent 3000 bytes 2 pkt (dropped 1, overlimits 0 requeues 0) \n backlog 0b\n";
        assert_eq!(counted(text), Some(KernelCount { passed: 2, lost: 1 }));
        assert_eq!(counted("Sent 3000 bytes"), None);
    }

    #[needs(namespaces, ipv6)]
    #[test]
    fn packets_pass_the_node_between_the_hosts_one_by_one() {
        let link = LinkSpec::between_hosts(Conditions::default());
        let testbed = Testbed::wired(&link).unwrap();
        let (host, peer) = testbed.ends();
        let data = vec![7; 2_000_000];
        for address in [peer.ipv4(), peer.ipv6().unwrap()] {
            let listener = peer.run(|| TcpListener::bind((address, 0))).unwrap().unwrap();
            let target = listener.local_addr().unwrap();
            let mut stream = host.run(|| TcpStream::connect(target)).unwrap().unwrap();
            let mut accepted = listener.accept().unwrap().0;
            std::thread::scope(|scope| {
                scope.spawn(|| stream.write_all(&data).unwrap());
                let mut received = vec![0; data.len()];
                accepted.read_exact(&mut received).unwrap();
                assert!(received == data, "over {address}");
            });
        }
        let counters = testbed.hosts()[1].namespace.counters().unwrap();
        let passed = counters.of(&routes::device(0)).unwrap().unwrap().received;
        assert!(passed >= 2 * data.len() as u64 / 1500, "{passed} packets, of 1500 bytes at most");
    }

    #[needs(namespaces, netem)]
    #[test]
    fn a_path_of_the_kernel_delays_and_loses() {
        let conditions = Conditions {
            delay: Some(Duration::from_millis(20)),
            loss: Some("100%".parse().unwrap()),
            ..Conditions::default()
        };
        let delay = Conditions { delay: conditions.delay, ..Conditions::default() };
        let link = LinkSpec { forward: delay, ..LinkSpec::between_hosts(Conditions::default()) };
        let testbed = Testbed::kernel(&link).unwrap();
        let (host, peer) = testbed.ends();
        let bind = |host: &super::super::Host| host.run(|| UdpSocket::bind((host.ipv4(), 0)));
        let (from, to) = (bind(host).unwrap().unwrap(), bind(peer).unwrap().unwrap());
        let begin = longhaul_sys::clock::now();
        from.send_to(b"x", to.local_addr().unwrap()).unwrap();
        to.recv(&mut [0]).unwrap();
        assert!(longhaul_sys::clock::now() - begin >= Duration::from_millis(20));
        assert!(testbed.kernel_counts().unwrap()[0].passed > 0);
        let lost = LinkSpec { backward: conditions, ..link };
        let testbed = Testbed::kernel(&lost).unwrap();
        let (host, peer) = testbed.ends();
        let (to, from) = (bind(host).unwrap().unwrap(), bind(peer).unwrap().unwrap());
        from.send_to(b"x", to.local_addr().unwrap()).unwrap();
        to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(to.recv(&mut [0]).is_err());
        assert!(testbed.kernel_counts().unwrap()[1].lost > 0);
    }

    #[test]
    fn a_kernel_without_netem_differs_from_other_complaints() {
        let words = ["netem".to_owned(), "loss".to_owned()];
        let hint = why_not(&words, "Error: Specified qdisc kind is unknown.");
        assert!(hint.contains("CONFIG_NET_SCH_NETEM"), "{hint}");
        assert_eq!(why_not(&words, "Illegal \"loss\""), "tc netem loss: Illegal \"loss\"");
    }

    #[test]
    fn conditions_that_netem_does_otherwise_are_refused_before_anything_is_made() {
        let conditions = Conditions { path_mtu: Some(1300), ..Conditions::default() };
        let refused = Testbed::kernel(&LinkSpec::between_hosts(conditions)).unwrap_err();
        assert!(matches!(refused, TestbedError::Unlike("a smaller path MTU")), "{refused}");
        let rate = Conditions { rate: Some("1Gbps".parse().unwrap()), ..Conditions::default() };
        let link = LinkSpec { line: LineKind::Htb, ..LinkSpec::between_hosts(rate) };
        let refused = Testbed::kernel(&link).unwrap_err();
        assert!(matches!(refused, TestbedError::Unlike("a line by HTB")), "{refused}");
    }
}
