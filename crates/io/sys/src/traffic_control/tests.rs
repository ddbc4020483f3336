use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use longhaul_needs::needs;

use super::*;
use crate::netns::tests::quiet_stack;
use crate::netns::{DEVICE, Namespace, Side, wait_for_path};
use crate::udp::{Route, SendError, UdpOptions, UdpSocket, Wait};

#[needs(namespaces, htb)]
#[test]
fn an_htb_holds_its_queue_and_counts_what_it_drops() {
    let [near, host] = [(); 2].map(|()| quiet_stack());
    let addresses = Side::ALL.map(Side::ipv4);
    near.join(&host, DEVICE, 1500, &[(addresses, 24)]).unwrap();
    wait_for_path([&near, &host], addresses).unwrap();
    // A packet a second, and one more after a pause.
    let packet = 1000 + 28 + 14;
    let class = class(1, Rate::from_bps(8 * packet), packet);
    let limit = 10 * packet as u32;
    let mut egress = near.run(|| Egress::of(DEVICE)).unwrap().unwrap();
    let htb = Change::AddHtb { default: 1 };
    let queue = Change::AddQueue { class: 1, limit };
    made(egress.apply(&[htb, Change::AddClass(class), queue]));
    assert_eq!(kinds(&egress.apply(&[htb])), [Some(io::ErrorKind::AlreadyExists)]);
    let counters = near.run(|| QueueCounters::of(DEVICE)).unwrap().unwrap();
    assert_eq!(counters.read().unwrap(), QueueCount::default());
    let (sender, far) = (socket(&near, addresses[0]), socket(&host, addresses[1]));
    let to = Route::to(far.local_addr());
    for _ in 0..1000 {
        // What finds the queue full is gone, or refused: it was sent in any case.
        let _ = sender.send(&to, &[IoSlice::new(&[0; 1000])], None, Wait::No);
    }
    let QueueCount { dropped, waiting } = counters.read().unwrap();
    assert!(
        dropped > 0 && waiting > Bytes::ZERO && waiting <= Bytes::new(10 * packet),
        "{dropped} {waiting}"
    );
    let nothing = Class { rate: Rate::from_bps(7), ..class };
    let (rate, burst) = (Rate::from_gbps(40), Bytes::from_mib(1));
    let more = Class { rate, ceiling: rate, burst, ..class };
    let changed = egress.apply(&[nothing, more].map(Change::ChangeClass));
    assert_eq!(kinds(&changed), [Some(io::ErrorKind::InvalidInput), None]);
    // All that was taken arrives, and nothing else.
    let mut buffer = [0; 2000];
    for _ in dropped..1000 {
        far.recv(&mut [IoSliceMut::new(&mut buffer)], Wait::UntilReady).unwrap().unwrap();
    }
    assert_eq!(counters.read().unwrap(), QueueCount { dropped, waiting: Bytes::ZERO });
    assert!(far.recv(&mut [IoSliceMut::new(&mut buffer)], Wait::No).unwrap().is_none());
    assert!(near.run(|| QueueCounters::of("no such")).unwrap().is_err());
}

#[needs(namespaces, htb)]
#[test]
fn a_connected_socket_hears_of_each_datagram_and_super_packet_that_a_queue_drops() {
    let [near, host] = [(); 2].map(|()| quiet_stack());
    let addresses = Side::ALL.map(Side::ipv4);
    near.join(&host, DEVICE, 1500, &[(addresses, 24)]).unwrap();
    wait_for_path([&near, &host], addresses).unwrap();
    // A packet a second.
    let slow = class(1, Rate::from_kbps(8), 1);
    let queue = Change::AddQueue { class: 1, limit: 200_000 };
    let mut egress = near.run(|| Egress::of(DEVICE)).unwrap().unwrap();
    made(egress.apply(&[Change::AddHtb { default: 1 }, Change::AddClass(slow), queue]));
    let counters = near.run(|| QueueCounters::of(DEVICE)).unwrap().unwrap();
    let (sender, far) = (socket(&near, addresses[0]), socket(&host, addresses[1]));
    sender.connect(far.local_addr()).unwrap();
    let mut refused = 0;
    for (bytes, segment) in [(1000, None), (40_000, Some(1000)), (1000, None)] {
        for _ in 0..300 {
            let payload = [IoSlice::new(&[0; 40_000][..bytes])];
            match sender.send(&Route::CONNECTED, &payload, segment, Wait::No) {
                Ok(sent) => assert_eq!(sent, bytes),
                Err(SendError::NoBuffers) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 0);
        assert_eq!(counters.read().unwrap().dropped, refused);
    }
}

#[needs(namespaces, htb, ipv6)]
#[test]
fn filters_sort_by_destination() {
    let host = quiet_stack();
    let mut egress = host.run(|| Egress::of("lo")).unwrap().unwrap();
    let fast = class(1, Rate::from_gbps(1), 1 << 20);
    made(egress.apply(&[Change::AddHtb { default: 1 }, Change::AddClass(fast)]));
    let counters = host.run(|| QueueCounters::of("lo")).unwrap().unwrap();
    for (address, headers) in [("127.0.0.9", 28 + 14), ("::1", 48 + 14)] {
        let address = address.parse().unwrap();
        let socket = socket(&host, address);
        let to = Route::to(socket.local_addr());
        let send = || socket.send(&to, &[IoSlice::new(&[0; 100])], None, Wait::No).unwrap();
        let receive = || {
            let mut buffer = [0; 200];
            socket.recv(&mut [IoSliceMut::new(&mut buffer)], Wait::UntilReady).unwrap().unwrap()
        };
        send();
        receive();
        // A byte a second, and a packet at first.
        let slow = Change::AddClass(class(0xfff0, Rate::from_bps(8), 1));
        let filter = Change::AddFilter { class: 0xfff0, to: address };
        assert_eq!(kinds(&egress.apply(&[slow, filter])), [None; 2]);
        for _ in 0..3 {
            send();
        }
        receive();
        assert_eq!(counters.read().unwrap().waiting, Bytes::new(2 * (100 + headers)));
        // Those that wait go with their class.
        let end = [Change::DeleteFilter { class: 0xfff0 }, Change::DeleteClass { class: 0xfff0 }];
        assert_eq!(kinds(&egress.apply(&end)), [None; 2]);
        send();
        receive();
        assert_eq!(counters.read().unwrap().waiting, Bytes::ZERO);
    }
}

#[needs(namespaces, htb)]
#[test]
fn each_change_has_its_verdict() {
    let host = quiet_stack();
    let mut egress = host.run(|| Egress::of("lo")).unwrap().unwrap();
    let add = |number| Change::AddClass(class(number, Rate::from_gbps(400), 1 << 20));
    made(egress.apply(&[Change::AddHtb { default: 1 }]));
    // More than one message to the kernel holds.
    let all = 0x10..0x110;
    let odd: Vec<_> = all.clone().filter(|number| number % 2 == 1).map(add).collect();
    assert!(egress.apply(&odd).iter().all(Result::is_ok));
    let every: Vec<_> = all.clone().map(add).collect();
    let expected =
        all.clone().map(|number| (number % 2 == 1).then_some(io::ErrorKind::AlreadyExists));
    assert_eq!(kinds(&egress.apply(&every)), expected.collect::<Vec<_>>());
    let end: Vec<_> = all.map(|class| Change::DeleteClass { class }).collect();
    assert!(egress.apply(&end).iter().all(Result::is_ok));

    let filter = Change::AddFilter { class: 0x10, to: "127.0.0.9".parse().unwrap() };
    let text = |verdict: &io::Result<()>| verdict.as_ref().map_err(ToString::to_string).copied();
    let gone = |what: &str| Err(format!("{what} class 1:10: there is no such class"));
    let Change::AddClass(class) = add(0x10) else { unreachable!() };
    let (change, delete) = (Change::ChangeClass(class), Change::DeleteClass { class: 0x10 });
    let verdicts = egress.apply(&[change, delete, add(0x10), change, filter, delete]);
    let answers: Vec<_> = verdicts.iter().map(text).collect();
    assert_eq!(answers[..5], [gone("change"), gone("delete"), Ok(()), Ok(()), Ok(())]);
    assert!(answers[5].as_ref().unwrap_err().starts_with("delete class 1:10: "), "{answers:?}");
    assert_eq!(verdicts[5].as_ref().unwrap_err().kind(), io::ErrorKind::ResourceBusy);

    let clear = egress.apply(&[Change::Clear, Change::Clear, add(0x10)]);
    assert_eq!(kinds(&clear)[..2], [None, Some(io::ErrorKind::NotFound)]);
    assert!(clear[2].is_err());
    let mut nowhere = host.run(|| Egress::of("no such")).unwrap().unwrap();
    for verdict in nowhere.apply(&[change, Change::Clear]) {
        assert!(verdict.unwrap_err().to_string().contains("No such device"));
    }
    assert!(egress.apply(&[]).is_empty());
}

fn class(number: u16, rate: Rate, burst: u64) -> Class {
    let burst = Bytes::new(burst);
    Class { number, parent: 0, rate, ceiling: rate, burst, priority: 0 }
}

fn kinds(verdicts: &[io::Result<()>]) -> Vec<Option<io::ErrorKind>> {
    verdicts.iter().map(|verdict| verdict.as_ref().err().map(io::Error::kind)).collect()
}

fn made(verdicts: Vec<io::Result<()>>) {
    verdicts.into_iter().for_each(Result::unwrap);
}

fn local(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, 0)
}

fn socket(host: &Namespace, address: IpAddr) -> UdpSocket {
    host.run(|| UdpSocket::bind(local(address), &UdpOptions::default())).unwrap().unwrap()
}
