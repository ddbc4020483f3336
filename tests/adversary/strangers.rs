//! Strangers that hold no token and see nothing.

use std::fs;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::bytes::Bytes;
use crate::honest::copy;
use crate::oracle::{Victim, assert_only, end};
use crate::peer::WAYS;
use crate::test::limited;
use crate::trees::{assert_same, noise};

#[test]
fn datagrams_of_strangers_disturb_no_copy() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 3_000_000)).unwrap();
        let victim = Victim::start(test);
        for way in &WAYS[..3] {
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                    let mut count = 0u64;
                    while !over.load(Ordering::Relaxed) {
                        // Guessed connections and lanes, groups and kinds that there may be.
                        let head = Bytes::new().u8(0x41 + u8::from(!count.is_multiple_of(5))).u8(0);
                        let head = head.u16((count % 3) as u16).u32((count % 7) as u32);
                        let head = head.u64(count * 31).u32(0).u32((count % 11) as u32);
                        let packet = head.u64((count % 40) << 20).raw(&noise(count, 600)).0;
                        let _ = socket.send_to(&packet, victim.address);
                        count += 1;
                    }
                });
                let to = format!("lh://{}/", victim.address);
                let ended = end(copy(test, *way, &["here/f", &to]));
                over.store(true, Ordering::Relaxed);
                ended.assert_succeeded();
            });
            assert_same(&test.here("f"), &test.there("f"));
            fs::remove_file(test.there("f")).unwrap();
        }
        victim.assert_serves();
    });
}

#[test]
fn connections_that_say_nothing_true_get_nothing() {
    limited(|test| {
        let victim = Victim::start(test);
        let join = Bytes::new().raw(b"LHD1").u32(1).u16(0).u16(0).raw(&[9; 32]).0;
        let tls = Bytes::new().raw(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).raw(&noise(1, 505)).0;
        let openings = [join.clone(), join[..20].to_vec(), tls, b"GET / HTTP/1.1\r\n\r\n".to_vec()];
        let open: Vec<_> = (0..24)
            .map(|i| {
                let mut stranger = TcpStream::connect(victim.address).unwrap();
                let _ = stranger.write_all(&openings[i % openings.len()]);
                stranger
            })
            .collect();
        victim.assert_serves();
        drop(open);
        assert_only(&test.path("there"), &[]);
    });
}
