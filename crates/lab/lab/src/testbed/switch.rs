//! A switch whose line is the kernel's: a node of its own between a node and the emulation of all
//! else of a link. It passes on what comes in at one side at the other, and has no addresses.
//!
//! A queue at the sender's own device would push back on the sender's sockets, which the edge of a
//! circuit does not do.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::Mutex;
use std::time::Duration;

use longhaul_pathsim::Bottleneck;
use longhaul_sys::netns::{Namespace, Side};
use longhaul_sys::traffic_control::{Change, Class, Egress, QueueCounters};
use longhaul_sys::tun::{PACKET_MAX, Tun, VNET_LEN};
use longhaul_units::Bytes;

use super::place::{DEVICE_QUEUE, Place};
use super::{TestbedError, configure, step};
use crate::emulator::{End, KernelLine, class};

/// Makes the switch behind an end of a link, with the rate and the queue of `line`.
pub(super) fn make(place: Place<'_>, line: Bottleneck) -> Result<End, TestbedError> {
    let Place { node, device, mtu, ipv6, addresses } = place;
    let switch = Namespace::new().map_err(step("make a network namespace"))?;
    configure(&switch, ipv6, None).map_err(step("set up a network namespace"))?;
    if ipv6 {
        // It passes packets on, but does not tell its devices' links that it is a router: nothing
        // but what the hosts send meets the queue.
        switch
            .set("net/ipv6/conf/default/forwarding", "0")
            .map_err(step("set up a network namespace"))?;
    }
    let tun = switch.add_tun(LINE, mtu, DEVICE_QUEUE).map_err(step("make a TUN device"))?;
    join(node, &switch, &device, mtu, &addresses).map_err(step("join a node and a switch"))?;
    for (addresses, _) in addresses {
        wait_for(node, &tun, addresses).map_err(step("reach a switch"))?;
    }
    let (egress, queue) = shape(&switch, LINE, class(line.rate.initial, mtu), line.queue)?;
    let counters = |of: &Namespace| of.counters().map_err(step("read the devices' counters"));
    let line = KernelLine {
        egress: Mutex::new(egress),
        queue,
        device,
        at_node: counters(node)?,
        at_switch: counters(&switch)?,
        changes: line.rate.changes,
        mtu,
        latest: Default::default(),
        switch,
    };
    Ok(End { tun, counters: counters(&line.switch)?, device: LINE.to_owned(), line: Some(line) })
}

/// HTB on a device, of one class with a queue of bytes, and its counters.
pub(super) fn shape(
    node: &Namespace,
    device: &str,
    class: Class,
    queue: Bytes,
) -> Result<(Egress, QueueCounters), TestbedError> {
    let egress = set_up_htb(node, device, class, queue).map_err(|error| match error.kind() {
        io::ErrorKind::Unsupported => TestbedError::NoHtb(error),
        _ => step("set up HTB")(error),
    })?;
    let counters = node.run(|| QueueCounters::of(device)).and_then(|queue| queue);
    Ok((egress, counters.map_err(step("read the counters of a queue"))?))
}

fn set_up_htb(node: &Namespace, device: &str, class: Class, queue: Bytes) -> io::Result<Egress> {
    let (number, limit) = (class.number, u32::try_from(queue.get()));
    let limit = limit.map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut egress = node.run(|| Egress::of(device))??;
    let htb = Change::AddHtb { default: number };
    let queue = Change::AddQueue { class: number, limit };
    let made = egress.apply(&[htb, Change::AddClass(class), queue]);
    made.into_iter().collect::<io::Result<()>>()?;
    Ok(egress)
}

fn join(
    node: &Namespace,
    switch: &Namespace,
    device: &str,
    mtu: u32,
    addresses: &[([IpAddr; 2], u8)],
) -> io::Result<()> {
    node.join(switch, device, mtu, &[])?;
    node.cut_super_packets(device)?;
    for &([here, there], prefix) in addresses {
        node.add_address(device, here, prefix)?;
        node.add_neighbour(device, Side::A, there)?;
        switch.add_neighbour(device, Side::B, here)?;
        switch.pass_on(device, LINE, there)?;
        switch.pass_on(LINE, device, here)?;
    }
    Ok(())
}

/// Waits until packets pass the switch each way: the kernel takes devices into use some time after
/// the call that asks for it, and drops in silence what is sent before. There is no emulation yet,
/// so what the node sends to the far end comes out of the switch, and is turned around.
fn wait_for(node: &Namespace, tun: &Tun, [here, there]: [IpAddr; 2]) -> io::Result<()> {
    let socket = node.run(|| UdpSocket::bind((here, 0)))??;
    socket.connect((there, ECHO))?;
    socket.set_read_timeout(Some(PROBE_INTERVAL))?;
    let mut packet = vec![0; PACKET_MAX];
    for _ in 0..PROBES {
        // It fails where the device is not in use yet.
        let _ = socket.send(b"?");
        while let Some(length) = tun.read(&mut packet)? {
            if turned_around(&mut packet[VNET_LEN..length]).is_some() {
                tun.write(&[io::IoSlice::new(&packet[..length])])?;
            }
        }
        if socket.recv(&mut [0]).is_ok() {
            return Ok(());
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the link stays down"))
}

/// Swaps addresses and ports of a UDP packet, which leaves its checksums right.
fn turned_around(ip: &mut [u8]) -> Option<()> {
    let (protocol, addresses, ports) = match ip.first()? >> 4 {
        4 => (*ip.get(9)?, 12..20, 20..24),
        6 => (*ip.get(6)?, 8..40, 40..44),
        _ => return None,
    };
    if protocol != UDP {
        return None;
    }
    for both in [addresses, ports] {
        let both = ip.get_mut(both)?;
        let (from, to) = both.split_at_mut(both.len() / 2);
        from.swap_with_slice(to);
    }
    Some(())
}

/// The switch's device towards the emulation.
const LINE: &str = "line";
/// Nobody listens there (RFC 862).
const ECHO: u16 = 7;
const UDP: u8 = 17;
/// Five seconds in all; the kernel takes up to one.
const PROBES: u32 = 2500;
const PROBE_INTERVAL: Duration = Duration::from_millis(2);
