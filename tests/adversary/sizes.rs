//! Servers that lie about the sizes that pass.

use std::fs;
use std::thread;
use std::time::Duration;

use longhaul_wire::{CloseCode, Frame, Writer};

use crate::honest::await_request;
use crate::host::Host;
use crate::oracle::{BOUND, STALL, assert_only, end};
use crate::peer::Peer;
use crate::program::Program;
use crate::script::{Item, source};
use crate::test::{Test, limited};
use crate::trees::noise;

/// CLOSE with `path-mtu` and sizes that no packet has.
fn too_narrow() -> Vec<u8> {
    let mut frame = Vec::new();
    let reason =
        "IP packets of 18446744073709551616 bytes do not come through, only those of up to -1";
    Frame::Close { code: CloseCode::PATH_MTU, reason }
        .encode(&mut Writer::append(&mut frame))
        .unwrap();
    frame
}

fn pull<'t>(test: &'t Test, carrier: &str, host: &Host) -> Program<'t> {
    let from = format!("lh://{}/f", host.address);
    Program::cp(test, &[&["--carrier", carrier][..], &STALL, &[&from, "here/f"]].concat())
}

/// Over what carries now it says that nothing fits.
fn lie(peer: &mut Peer) {
    await_request(peer);
    for _ in 0..3 {
        peer.carrier.frames(&too_narrow());
    }
}

#[test]
fn a_server_that_says_again_and_again_that_nothing_fits_ends_the_copy_by_name() {
    limited(|test| {
        for carrier in ["udp", "tcp", "auto"] {
            let host = Host::new();
            let copying = pull(test, carrier, &host);
            let attack = thread::spawn(move || {
                let mut peer = host.accept().unwrap();
                lie(&mut peer);
                if carrier == "auto" {
                    // Under TLS, and with the proof of its token.
                    let tcp = host.accept_join(&peer).unwrap();
                    peer.take_up(tcp);
                    lie(&mut peer);
                }
                if carrier != "udp" {
                    // Once more, with small segments.
                    peer = host.accept().unwrap();
                    lie(&mut peer);
                }
                (peer.falls_silent(true), host.is_left_alone(Duration::from_secs(1)))
            });
            let ended = end(copying);
            assert_eq!(ended.status, Some(1), "{carrier}: {ended:?}");
            assert!(ended.stderr.contains("18446744073709551616"), "{carrier}: {ended:?}");
            assert_eq!(attack.join().unwrap(), (true, true), "{carrier}");
            assert_only(&test.path("here"), &[]);
        }
    });
}

#[test]
fn a_copy_goes_on_over_tcp_where_a_server_says_that_nothing_fits_udp() {
    limited(|test| {
        let host = Host::new();
        let copying = pull(test, "auto", &host);
        let mut peer = host.accept().unwrap();
        lie(&mut peer);
        let tcp = host.accept_join(&peer).unwrap();
        peer.take_up(tcp);
        await_request(&mut peer);
        let contents = noise(1, 200_000);
        source(&mut peer, &[Item::file(b"f", &contents)], BOUND);
        let ended = end(copying);
        ended.assert_succeeded();
        assert_eq!(ended.json()["carrier"], "tcp", "{ended:?}");
        assert!(fs::read(test.here("f")).unwrap() == contents);
    });
}
