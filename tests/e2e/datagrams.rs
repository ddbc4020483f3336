//! A network that damages, repeats and invents datagrams.

use std::collections::VecDeque;
use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use longhaul::{CarrierChoice, CopyOptions, LossLog};
use longhaul_units::Rate;
use longhaul_wire::Protect;

use crate::relay::{Relay, Way};
use crate::server::{Copying, Server, over, pull, push, slowly};
use crate::test::{Test, limited};
use crate::trees::{assert_same, noise};

#[test]
fn damaged_repeated_and_invented_datagrams_change_nothing() {
    limited(|test| {
        for (i, protect) in [Protect::Aead, Protect::Integrity].into_iter().enumerate() {
            fs::write(test.here("f"), noise(i as u64, 6_000_000)).unwrap();
            let to = protect.to_string();
            let server = Server::start(test);
            let relay = Relay::tapped(server.address, Box::new(tampering(None)));
            let options = push(&test.here("f"), relay.address, to.as_bytes());
            tampered(test, over(options, |by| by.protect = protect));
            assert_same(&test.here("f"), &test.there(&to));

            let options = pull(relay.address, to.as_bytes(), &test.here(&to));
            tampered(test, over(options, |by| by.protect = protect));
            assert_same(&test.here("f"), &test.here(&to));
        }
    });
}

#[test]
fn hashes_find_what_was_changed_without_protection() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 6_000_000)).unwrap();
        let server = Server::start(test);
        let relay = Relay::tapped(server.address, Box::new(tampering(Some(20))));
        let options = push(&test.here("f"), relay.address, b"f");
        tampered(test, over(options, |by| by.protect = Protect::Clear));
        assert_same(&test.here("f"), &test.there("f"));
    });
}

#[test]
fn a_stranger_receives_nothing() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 3_000_000)).unwrap();
        let server = Server::start(test);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let copied = seen.clone();
        let tap = move |way, datagram: &[u8]| {
            let mut copied = copied.lock().unwrap();
            if way == Way::ToServer && copied.len() < 500 {
                copied.push(datagram.to_vec());
            }
            vec![datagram.to_vec()]
        };
        let relay = Relay::tapped(server.address, Box::new(tap));
        let copying = Copying::start(test, slowly(push(&test.here("f"), relay.address, b"f")));
        copying.moved(1_000_000);
        // An address that saw datagrams of others sends them again, whole, cut and changed; and
        // headers of connections that there are, and are not, with nothing true behind them.
        let stranger = UdpSocket::bind("127.88.0.1:0").unwrap();
        let datagrams = seen.lock().unwrap().clone();
        assert!(!datagrams.is_empty());
        for (i, datagram) in datagrams.iter().enumerate() {
            let mut changed = datagram.clone();
            let place = i * 7 % changed.len();
            changed[place] ^= 1;
            let mut later = datagram.clone();
            later[12] = later[12].wrapping_add(1);
            let invented = [&datagram[..20], &noise(i as u64, 200)].concat();
            for sent in
                [&datagram[..], &datagram[..i % datagram.len()], &changed, &later, &invented]
            {
                stranger.send_to(sent, server.address).unwrap();
            }
        }
        let report = copying.end().unwrap();
        assert!(report.verified);
        assert_same(&test.here("f"), &test.there("f"));
        stranger.set_nonblocking(true).unwrap();
        let answer = stranger.recv_from(&mut [0; 2000]);
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn an_outage_shorter_than_patience_is_survived() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 8_000_000)).unwrap();
        let server = Server::start(test);
        let relay = Relay::start(server.address);
        let losses = Arc::new(LossLog::default());
        let options = slowly(push(&test.here("f"), relay.address, b"f"));
        let options = over(options, |by| by.losses = Some(losses.clone()));
        let copying = Copying::start(test, options);
        for moved in [1_000_000, 3_000_000] {
            copying.moved(moved);
            relay.block_udp();
            thread::sleep(OUTAGE);
            relay.pass_udp();
        }
        let report = copying.end().unwrap();
        assert!(report.verified, "{report:?}");
        assert_eq!(report.link.carrier, "udp");
        assert!(report.link.lost.total() > 0, "{report:?}");
        // The log has each loss once; packets that came after all are in it, too, and not counted.
        let (logged, left_out) = losses.take();
        let mut numbers: Vec<_> = logged.iter().map(|loss| (loss.lane, loss.number)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((numbers.len(), left_out), (logged.len(), 0));
        assert!(logged.len() as u64 >= report.link.lost.total(), "{report:?}");
        assert_same(&test.here("f"), &test.there("f"));
    });
}

/// A copy that has to succeed, over UDP.
fn tampered(test: &Test, options: CopyOptions) {
    let rate = Some(Rate::from_mbps(60));
    let options = over(options, |by| (by.carrier, by.rate) = (CarrierChoice::Udp, rate));
    let report = Copying::start(test, options).end().unwrap();
    assert!(report.verified, "{report:?}");
    assert_eq!(report.link.carrier, "udp");
}

/// Changes, cuts, repeats and invents. What it changes goes through as it was too; of `forged`
/// datagrams only what was made of them.
fn tampering(forged: Option<usize>) -> impl FnMut(Way, &[u8]) -> Vec<Vec<u8>> + Send {
    let mut count = 0usize;
    let mut old: VecDeque<Vec<u8>> = VecDeque::new();
    move |_, datagram| {
        count += 1;
        old.push_back(datagram.to_vec());
        if old.len() > 300 {
            old.pop_front();
        }
        let mut changed = datagram.to_vec();
        let place = count * 31 % changed.len();
        changed[place] ^= 1 << (count % 8);
        let mut out = match count % 12 {
            0 if forged.is_none_or(|forged| count / 12 <= forged) => vec![changed],
            2 => vec![datagram[..count * 17 % datagram.len()].to_vec()],
            4 => vec![old[count % old.len()].clone()],
            6 => vec![noise(count as u64, count % 1500)],
            8 => vec![Vec::new()],
            10 => vec![datagram.to_vec(), datagram.to_vec()],
            _ => Vec::new(),
        };
        let forge = count.is_multiple_of(12) && forged.is_some_and(|forged| count / 12 <= forged);
        if !forge {
            out.push(datagram.to_vec());
        }
        out
    }
}

#[test]
fn lost_datagrams_are_sent_again() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 6_000_000)).unwrap();
        let server = Server::start(test);
        let mut count = 0;
        let tap = move |_, datagram: &[u8]| {
            count += 1;
            if count % 20 == 0 { Vec::new() } else { vec![datagram.to_vec()] }
        };
        let relay = Relay::tapped(server.address, Box::new(tap));
        let minute = Duration::from_secs(60);
        let options = push(&test.here("f"), relay.address, b"f");
        tampered(test, over(options, |by| (by.idle_timeout, by.stall_timeout) = (minute, minute)));
        assert_same(&test.here("f"), &test.there("f"));
    });
}

#[test]
fn a_stranger_with_a_stolen_datagram_gets_no_data() {
    limited(|test| {
        fs::write(test.there("f"), noise(1, 10_000_000)).unwrap();
        let server = Server::start(test);
        let stranger = UdpSocket::bind("127.88.0.1:0").unwrap();
        stranger.set_nonblocking(true).unwrap();
        let (thief, at) = (stranger.try_clone().unwrap(), server.address);
        let stolen = Arc::new(Mutex::new(0));
        let (mut count, taken) = (0usize, stolen.clone());
        let tap = move |way, datagram: &[u8]| {
            count += usize::from(way == Way::ToServer);
            // True and fresh, but from elsewhere: as after a change of a NAT's mapping.
            if way == Way::ToServer && (10..20).contains(&count) {
                *taken.lock().unwrap() += datagram.len();
                thief.send_to(datagram, at).unwrap();
                return Vec::new();
            }
            vec![datagram.to_vec()]
        };
        let relay = Relay::tapped(server.address, Box::new(tap));
        let options = pull(relay.address, b"f", &test.here("f"));
        let report = Copying::start(test, options).end().unwrap();
        assert!(report.verified);
        assert_same(&test.there("f"), &test.here("f"));
        let (mut received, mut bytes) = (0, [0; 65_536]);
        while let Ok((len, _)) = stranger.recv_from(&mut bytes) {
            received += len;
        }
        let stolen = *stolen.lock().unwrap();
        assert!(stolen > 0 && received <= 3 * stolen, "{received} for {stolen}");
    });
}

/// Long enough for everything in flight to be lost, far shorter than the idle timeout.
const OUTAGE: Duration = Duration::from_millis(1_500);
