use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use longhaul_needs::needs;

use super::*;
use crate::netns::{Namespace, RouteEntry};
use crate::udp::{Route, UdpOptions, UdpSocket, Wait};
use crate::wait::{Interest, wait};

const ENDS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 2)),
];

#[needs(namespaces)]
#[test]
fn a_super_packet_crosses_two_devices_whole() {
    let (spaces, tuns) = ends();
    let bind = |end: usize| {
        let local = SocketAddr::new(ENDS[end], 0);
        spaces[end].run(|| UdpSocket::bind(local, &UdpOptions::default())).unwrap().unwrap()
    };
    let (sender, receiver) = (bind(0), bind(1));
    let payload: Vec<u8> = (0..40_000u32).map(|index| (index % 251) as u8).collect();
    let route = Route::to(receiver.local_addr());
    let sent = sender.send(&route, &[IoSlice::new(&payload)], Some(1400), Wait::No);
    assert_eq!(sent.unwrap(), payload.len());

    let mut packet = vec![0; PACKET_MAX];
    let readable = (tuns[0].as_fd(), Interest::Readable);
    let len = loop {
        assert_eq!(wait(&[readable], None).unwrap(), 1);
        let len = tuns[0].read(&mut packet).unwrap().unwrap();
        // The kernel may send of its own accord.
        if packet[VNET_LEN] >> 4 == 4 {
            break len;
        }
    };
    assert_eq!(len, VNET_LEN + 28 + payload.len());
    let header = VnetHeader::parse(&packet).unwrap();
    assert_eq!((header.gso, header.segment), (Some(GsoKind::Udp), 1400));
    assert!(header.needs_checksum && header.checksum_start == 20 && header.checksum_offset == 6);
    let (front, back) = packet[..len].split_at(1000);
    tuns[1].write(&[IoSlice::new(front), IoSlice::new(back)]).unwrap();

    let mut memory = vec![0; PACKET_MAX];
    let mut buffer = [IoSliceMut::new(&mut memory)];
    let got = receiver.recv(&mut buffer, Wait::UntilReady).unwrap().unwrap();
    assert_eq!((got.len, got.segment), (payload.len(), 1400));
    assert!(memory[..payload.len()] == payload[..]);
    let [a, b] = &spaces;
    let (out, back) = (a.counters().unwrap().of("link0"), b.counters().unwrap().of("link0"));
    assert!(out.unwrap().unwrap().sent >= 1 && back.unwrap().unwrap().received >= 1);
}

#[needs(namespaces)]
#[test]
fn receiving_can_be_steered() {
    let (spaces, _tuns) = ends();
    let visible = || std::fs::read_dir("/sys/class/net").unwrap().count();
    let before = visible();
    spaces[1].steer("link0", 0).unwrap();
    assert!(spaces[1].steer("link1", 0).unwrap_err().to_string().contains("link1"));
    assert_eq!(visible(), before, "other threads see what they saw");
}

#[needs(namespaces)]
#[test]
fn nonsense_is_refused() {
    let (spaces, tuns) = ends();
    let error = tuns[0].write(&[IoSlice::new(&[0; 4])]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    // A version of IP that does not exist.
    assert!(tuns[0].write(&[IoSlice::new(&[0; 40])]).is_err());
    for name in ["", "a-name-too-long-for-a-device", "nul\0"] {
        assert!(spaces[0].add_tun(name, 1500, 10).is_err(), "{name}");
    }
    assert!(spaces[0].add_tun("link0", 1500, 10).is_err(), "the name is taken");
}

fn ends() -> ([Namespace; 2], [Tun; 2]) {
    let [(first, one), (second, other)] = [0, 1].map(|number| end(number).unwrap());
    ([first, second], [one, other])
}

fn end(number: usize) -> io::Result<(Namespace, Tun)> {
    let space = Namespace::new()?;
    let tun = space.add_tun("link0", 1500, 100)?;
    space.add_address("link0", ENDS[number], 32)?;
    let route = RouteEntry {
        to: ENDS[1 - number],
        prefix: 32,
        via: None,
        source: None,
        congestion_control: None,
    };
    space.add_route("link0", &route)?;
    Ok((space, tun))
}
