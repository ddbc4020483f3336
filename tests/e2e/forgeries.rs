//! Somebody without any key who invents packets of data, for groups that were never sent.

use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::process::Stdio;

use longhaul::{CarrierChoice, MEMORY_LEAST};
use longhaul_wire::Protect;

use crate::program::Program;
use crate::relay::{Relay, Tap, Way};
use crate::server::{Copying, Server, over, pull, push};
use crate::test::limited;
use crate::trees::{assert_same, noise};

#[test]
fn forged_groups_take_no_memory_of_a_copy() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, SIZE)).unwrap();
        for protect in [Protect::Aead, Protect::Integrity, Protect::Clear] {
            let to = protect.to_string();
            let memory = Some(MEMORY_LEAST);
            // For a client at a time no more than the least, beside the buffer of its socket.
            let server = Server::with(test, |options| options.memory = memory);
            for way in [Way::ToServer, Way::ToClient] {
                let relay = Relay::tapped(server.address, forging(way, server.address, None));
                let options = match way {
                    Way::ToServer => push(&test.here("f"), relay.address, to.as_bytes()),
                    Way::ToClient => pull(relay.address, to.as_bytes(), &test.here(&to)),
                };
                let options = over(options, |by| {
                    (by.protect, by.memory, by.carrier) = (protect, memory, CarrierChoice::Udp);
                });
                let report = Copying::start(test, options).end().unwrap();
                assert!(report.verified, "{report:?}");
            }
            assert_same(&test.here("f"), &test.there(&to));
            assert_same(&test.here("f"), &test.here(&to));
            fs::remove_file(test.there(&to)).unwrap();
            fs::remove_file(test.here(&to)).unwrap();
        }
    });
}

#[test]
fn forged_pieces_take_no_memory_of_a_pipe() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, SIZE)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &["--memory", "256MiB"]);
        for protect in ["aead", "integrity", "clear"] {
            let paths = [Way::ToServer, Way::ToClient]
                .map(|way| Relay::tapped(at, forging(way, at, Some(1 << 20))));
            let words = ["--carrier", "udp", "--protect", protect, "--memory", "64MiB"];
            let input = File::open(test.here("f")).unwrap();
            let output = File::create(test.here("g")).unwrap();
            let sender = Program::pipe(test, &words, paths[0].address, input, Stdio::piped());
            let words = [&words[..], &["--receive"]].concat();
            let receiver = Program::pipe(test, &words, paths[1].address, Stdio::null(), output);
            sender.end().assert_succeeded();
            receiver.end().assert_succeeded();
            assert!(fs::read(test.here("f")).unwrap() == fs::read(test.here("g")).unwrap());
        }
    });
}

/// Passes everything on, and with the first packets of data that go one `way` [`FORGED`] that nobody
/// sent, from the same address; those to the server from a stranger's too. They are of the same
/// connection, lane and object, or of `object`, for groups from the last on.
fn forging(way: Way, server: SocketAddr, object: Option<u32>) -> Tap {
    let stranger = UdpSocket::bind("127.88.0.1:0").unwrap();
    let mut forged = 0;
    Box::new(move |passing, datagram| {
        let mut out = Vec::new();
        // Kind 2 of version 1 (docs/protocol.md 4.1).
        let is_data = datagram.first() == Some(&0x42) && datagram.len() > 1000;
        if passing == way && is_data && forged < FORGED {
            for _ in 0..4 {
                let mut packet = datagram.to_vec();
                packet[15] = packet[15].wrapping_add(1 + (forged % 100) as u8);
                if let Some(object) = object {
                    packet[20..24].copy_from_slice(&object.to_be_bytes());
                }
                let group = GROUPS - 1 - forged % GROUPS;
                packet[24..32].copy_from_slice(&(group << 20).to_be_bytes());
                packet[32..].copy_from_slice(&noise(forged, datagram.len() - 32));
                forged += 1;
                if way == Way::ToServer {
                    // Its socket may be full of what it sent.
                    let _ = stranger.send_to(&packet, server);
                }
                out.push(packet);
            }
        }
        out.push(datagram.to_vec());
        out
    })
}

/// More than the memory of either end, [`MEMORY_LEAST`].
const GROUPS: u64 = 100;
const SIZE: usize = (GROUPS as usize) << 20;
const FORGED: u64 = 1_000;
