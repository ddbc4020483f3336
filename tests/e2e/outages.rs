//! Gateways where hosts are gone and what they need is used up, between network namespaces.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use longhaul_needs::needs;
use longhaul_sys::netns::{DEVICE, NetnsPair, Side};
use rustix::process::Signal;

use crate::gateway::web;
use crate::preload::{begin, libraries};
use crate::program::Program;
use crate::test::{Test, limited, until};

/// Runs `ip` on a host.
fn ip(hosts: &NetnsPair, side: Side, words: &str) {
    let words = words.replace("DEVICE", DEVICE);
    let run = || Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(hosts.run_in(side, run).unwrap().success(), "{words}");
}

/// Listens at the address of a side, greets what comes, and hands it over.
fn target(hosts: &NetnsPair, side: Side) -> (SocketAddr, Receiver<TcpStream>) {
    let listener = hosts.run_in(side, || TcpListener::bind((side.ipv4(), 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, come) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(b"x").unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            if sender.send(stream).is_err() {
                return;
            }
        }
    });
    (address, come)
}

/// A gateway of the first host, and where it listens.
fn gateway<'t>(
    hosts: &NetnsPair,
    test: &'t Test,
    words: &[&str],
) -> (Program<'t>, Vec<SocketAddr>) {
    let fixed = ["gateway", "serve", "--allow", "198.51.100.2", "--from", "198.51.100.0/24"];
    let start = || Program::start(test, &[&fixed[..], words].concat());
    let mut program = hosts.run_in(Side::A, start).unwrap();
    let text = program.prints("listening on ");
    let at = text.lines().filter_map(|line| line.strip_prefix("listening on "));
    (program, at.map(|at| at.parse().unwrap()).collect())
}

fn connect(hosts: &NetnsPair, side: Side, at: SocketAddr) -> TcpStream {
    let stream = hosts.run_in(side, || TcpStream::connect(at)).unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[needs(namespaces, curl)]
#[test]
fn curl_goes_directly_where_the_host_of_a_gateway_is_gone() {
    limited(|test| {
        libraries();
        let hosts = NetnsPair::new(1500).unwrap();
        let contents: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        let server = || web(&Side::B.ipv4().to_string(), contents.clone());
        let at = hosts.run_in(Side::B, server).unwrap();
        // Nobody there; somebody who says nothing; no network.
        ip(&hosts, Side::A, "neigh add 198.51.100.8 lladdr 02:00:00:00:00:99 dev DEVICE");
        let urls = [format!("http://{at}/"), format!("http://{at}/2")];
        let curl = ["curl", "-sS", "--parallel", "-o", "1", "-o", "2", &urls[0], &urls[1]];
        for via in ["198.51.100.9", "198.51.100.8", "192.0.2.1"] {
            let options = ["--via", via, "--via-token-file", "token", "--direct-if-unreachable"];
            for words in [&curl[..], &["curl", "-sS", "-o", "2", &urls[0]]] {
                let ended = hosts.run_in(Side::A, || begin(test, &options, words)).unwrap().end();
                ended.assert_succeeded();
                let expected = format!("gateway {via}:7421 does not answer: ");
                assert!(ended.stderr.contains(&expected), "{ended:?}");
                assert_eq!(ended.stderr.matches("connecting directly").count(), 1, "{ended:?}");
                assert!(fs::read(test.path("2")).unwrap() == contents);
                fs::remove_file(test.path("2")).unwrap();
            }
        }
    });
}

#[needs(namespaces)]
#[test]
fn a_gateway_without_a_free_port_says_so_and_takes_sessions_again_when_there_are_some() {
    limited(|test| {
        let hosts = NetnsPair::new(1500).unwrap();
        let few = || fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40003");
        hosts.run_in(Side::A, few).unwrap().unwrap();
        let (address, come) = target(&hosts, Side::B);
        let forward = format!("198.51.100.1:7000={address}");
        let listen = ["--listen", "198.51.100.1:7421", "--token-file", "token"];
        let (mut gateway, at) =
            gateway(&hosts, test, &[&listen[..], &["--forward", &forward]].concat());
        let session = || {
            let mut stream = connect(&hosts, Side::B, at[1]);
            let greeted = stream.read_exact(&mut [0]);
            greeted.map(|()| (stream, come.recv_timeout(PATIENCE).unwrap()))
        };
        let mut sessions = Vec::new();
        let refused = loop {
            match session() {
                Ok(session) => sessions.push(session),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::ConnectionReset);
        assert!((1..=4).contains(&sessions.len()), "{}", sessions.len());
        fs::write(test.here("file"), "x").unwrap();
        let there = format!("lh://{address}/copy");
        let copy = ["--via", "198.51.100.1", "here/file", &there];
        let copying = hosts.run_in(Side::B, || Program::cp(test, &copy)).unwrap();
        copying.end().assert_failed(&format!(
            "gateway 198.51.100.1:7421: could not reach {address}: the gateway is at a limit (no \
             local port is free"
        ));
        gateway.prints("no local port is free");
        // Those that stand go on, and with one place others come again.
        for (stream, target) in &mut sessions {
            stream.write_all(b"y").unwrap();
            target.read_exact(&mut [0]).unwrap();
        }
        let (stream, _target) = sessions.pop().unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
        until("a session once more", || session().ok());
        gateway.signal(Signal::TERM);
        drop(sessions);
        gateway.end().assert_succeeded();
    });
}

#[needs(namespaces)]
#[test]
fn both_ends_of_a_session_learn_of_a_host_that_vanished_whether_bytes_wait_or_not() {
    limited(|test| {
        let hosts = NetnsPair::new(1500).unwrap();
        let (address, come) = target(&hosts, Side::B);
        let forward = format!("198.51.100.1:7000={address}");
        let (gateway, at) = gateway(&hosts, test, &["--forward", &forward]);
        let mut sessions = Vec::new();
        for _ in 0..2 {
            let mut stream = connect(&hosts, Side::A, at[0]);
            stream.read_exact(&mut [0]).unwrap();
            sessions.push((stream, come.recv_timeout(PATIENCE).unwrap()));
        }
        ip(&hosts, Side::B, "link set DEVICE down");
        sessions[0].0.write_all(b"that nobody reads").unwrap();
        for (stream, _) in &mut sessions {
            assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        until("both in the log", || {
            let ended =
                gateway.stderr_so_far().matches(&format!("{address}: the other end")).count();
            (ended == 2).then_some(())
        });
        // Once there is a path again, the other host learns of it at its first word.
        ip(&hosts, Side::B, "link set DEVICE up");
        for (_, target) in &mut sessions {
            target.write_all(b"y").unwrap();
            assert_eq!(target.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    });
}

#[needs(namespaces)]
#[test]
fn a_target_learns_of_a_client_whose_host_vanished_whether_bytes_wait_or_not_and_nothing_stays() {
    limited(|test| {
        let hosts = NetnsPair::new(1500).unwrap();
        let (address, come) = target(&hosts, Side::A);
        let forward = format!("198.51.100.1:7000={address}");
        let (gateway, at) =
            gateway(&hosts, test, &["--allow", "198.51.100.1", "--forward", &forward]);
        let descriptors = format!("/proc/{}/fd", gateway.id());
        // Pipes are pooled.
        let is_socket = |link: &PathBuf| link.display().to_string().starts_with("socket:");
        let sockets = || {
            let links = fs::read_dir(&descriptors).unwrap().map(|entry| entry.unwrap().path());
            links.filter_map(|path| fs::read_link(path).ok()).filter(is_socket).count()
        };
        let before = sockets();
        let mut sessions = Vec::new();
        for _ in 0..3 {
            let mut stream = connect(&hosts, Side::B, at[0]);
            stream.read_exact(&mut [0]).unwrap();
            sessions.push((stream, come.recv_timeout(PATIENCE).unwrap()));
        }
        // Nothing under way; bytes on the way to the client; its own direction at an end.
        sessions[2].0.shutdown(Shutdown::Write).unwrap();
        assert_eq!(sessions[2].1.read(&mut [0]).unwrap(), 0);
        // Nobody has the address any more: no FIN, no reset.
        ip(&hosts, Side::B, "addr del 198.51.100.2/24 dev DEVICE");
        sessions[1].1.write_all(b"that nobody reads").unwrap();
        for (_, target) in &mut sessions[..2] {
            assert_eq!(target.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        until("all in the log", || {
            let ended = gateway.stderr_so_far().matches(&format!("{address}: the client")).count();
            (ended == 3).then_some(())
        });
        assert!(sessions[2].1.write_all(b"y").is_err());
        until("their sockets to be closed", || (sockets() == before).then_some(()));
        // Once there is a path again, the other host learns of it at its first word.
        ip(&hosts, Side::B, "addr add 198.51.100.2/24 dev DEVICE");
        for (stream, _) in &mut sessions[..2] {
            stream.write_all(b"y").unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    });
}

/// Longer than a gateway waits for a silent host.
const PATIENCE: Duration = Duration::from_secs(150);
