use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicBool;
use std::thread;

use longhaul_rate_control::Profile;
use longhaul_sys::udp::{Route, UdpOptions, Wait};
use longhaul_units::{Dscp, Ecn};

use super::*;

const BYTES: u64 = 3 << 20;
const BUFFERS: usize = 8;

fn bind() -> UdpSocket {
    let mut options = UdpOptions::default();
    options.gro = false;
    UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &options).unwrap()
}

/// Passes on what `from` has received, as it came.
fn pass(from: &UdpSocket, on: &UdpSocket, to: SocketAddr, seen: &mut BTreeSet<u8>) {
    let mut bytes = [0; 2048];
    while let Some(got) = from.recv(&mut [IoSliceMut::new(&mut bytes)], Wait::No).unwrap() {
        seen.insert(got.traffic_class);
        let route = Route::to(to).with_traffic_class(got.traffic_class);
        on.send(&route, &[IoSlice::new(&bytes[..got.len])], None, Wait::UntilReady).unwrap();
    }
}

/// The traffic classes that a transfer shows on its way there, and back.
fn classes(profile: &str) -> [BTreeSet<u8>; 2] {
    let options = MemoryOptions {
        bytes: BYTES,
        protect: Protect::Aead,
        cipher: Cipher::Aes128Gcm,
        secret: [7; 32],
        profile: Profile::wished(Some(profile), None, []).unwrap(),
        window: BYTES,
    };
    let (sending, receiving, near, far) = (bind(), bind(), bind(), bind());
    let (here, middle, there) = (sending.local_addr(), near.local_addr(), receiving.local_addr());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let relay = scope.spawn(|| {
            let mut seen = [const { BTreeSet::new() }; 2];
            while !over.load(Ordering::Relaxed) {
                pass(&near, &far, there, &mut seen[0]);
                pass(&far, &near, here, &mut seen[1]);
                thread::yield_now();
            }
            seen
        });
        let receiver = scope.spawn(|| receive(receiving, &options, Pool::new(BUFFERS)));
        let pool = Pool::new(BUFFERS);
        let groups = (0..BUFFERS).map_while(|_| pool.try_take().map(Arc::new)).collect();
        send(sending, middle, &options, groups).unwrap();
        receiver.join().unwrap().unwrap();
        over.store(true, Ordering::Relaxed);
        relay.join().unwrap()
    })
}

#[test]
fn a_scavengers_packets_ask_for_lower_effort_at_both_ends_beside_their_ecn_codepoint() {
    let behind = |ecn| Dscp::LowerEffort.traffic_class(ecn);
    let [there, back] = classes("scavenger");
    assert_eq!(there, BTreeSet::from([behind(Ecn::NotEct), behind(Ecn::Ect0)]));
    assert!(!back.is_empty());
    assert!(back.iter().all(|class| class >> 2 == Dscp::LowerEffort.bits()), "{back:?}");
    let [there, back] = classes("auto");
    assert_eq!(there, BTreeSet::from([Ecn::NotEct.bits(), Ecn::Ect0.bits()]));
    assert!(back.iter().all(|class| class >> 2 == 0), "{back:?}");
}
