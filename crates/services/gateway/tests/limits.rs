//! Limits of a gateway on loopback: places, clients, memory, rates.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

#[path = "support/world.rs"]
mod world;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use longhaul_gateway::status::Status as State;
use longhaul_gateway::{Ending, GatewaySettings};
use longhaul_relay::{Route, Status};
use longhaul_units::{Bytes, Rate};
use world::*;

#[test]
fn a_full_gateway_says_that_it_is_busy_and_takes_clients_again() {
    let gateway = start(GatewaySettings { max_sessions: 2, ..settings() });
    let address = echo_twice();
    let first = connect(gateway.addresses[0], &[], address);
    let _second = connect(gateway.addresses[0], &[], address);
    let to = || route(&[], &address.to_string());
    let answer = try_connect(gateway.addresses[0], &to(), now()).unwrap_err();
    assert_eq!(answer.status, Status::BUSY);
    assert_eq!(answer.reason, "all its 2 places are taken");
    assert!(matches!(gateway.ending(), Ending::NotEntered(_)));
    drop(first);
    gateway.ending();
    // Its place is free a moment after its end was reported.
    until("a place", || try_connect(gateway.addresses[0], &to(), now()).ok().map(drop));
}

#[test]
fn one_client_does_not_take_the_places_of_others() {
    let neighbours = [token().key().id()].into();
    let gateway = start(GatewaySettings { max_sessions_per_client: 2, neighbours, ..settings() });
    let address = echo_twice();
    let come = |client: &str| {
        let to = Route { client: client.into(), ..route(&[], &address.to_string()) };
        try_connect(gateway.addresses[0], &to, now())
    };
    let held = [come("alice").unwrap(), come("alice").unwrap(), come("").unwrap()];
    let answer = come("alice").unwrap_err();
    assert_eq!(
        (answer.status, &*answer.reason),
        (Status::BUSY, "this client has 2 sessions there")
    );
    gateway.ending();
    let _bob = come("bob").unwrap();
    drop(held);
    (0..3).for_each(|_| drop(gateway.ending()));
    come("alice").unwrap();
}

#[test]
fn a_thousand_that_say_nothing_or_little_keep_nobody_out() {
    let gateway = start(settings());
    let address = echo_twice();
    let silent = |byte: &[u8]| {
        let mut stream = TcpStream::connect(gateway.addresses[0]).unwrap();
        stream.write_all(byte).unwrap();
        stream
    };
    let mut crowd = Vec::new();
    for _ in 0..1_000 {
        crowd.push(silent(b""));
        crowd.push(silent(b"L"));
    }
    for _ in 0..10 {
        connect(gateway.addresses[0], &[], address);
        crowd.push(silent(b"L"));
    }
    assert!(gateway.gateway.status().at_door <= 1_024);
}

/// Sends so many bytes as soon as the first one comes.
fn source(bytes: usize) -> std::net::SocketAddr {
    let all = pattern(bytes);
    target(move |mut stream| {
        if stream.read_exact(&mut [0]).is_ok() {
            let _ = stream.write_all(&all);
        }
    })
}

/// Sends without end as soon as a byte comes.
fn endless() -> std::net::SocketAddr {
    target(move |mut stream| {
        if stream.read_exact(&mut [0]).is_ok() {
            while stream.write_all(&[7; 100_000]).is_ok() {}
        }
    })
}

#[test]
fn a_thousand_sessions_hold_no_more_memory_than_there_is() {
    const CAP: u64 = 64 << 20;
    let memory = Some(Bytes::new(CAP));
    let gateway = start(GatewaySettings { memory, max_sessions: 2_000, ..settings() });
    let from = source(150_000);
    let mut streams: Vec<TcpStream> =
        (0..1_000).map(|_| connect(gateway.addresses[0], &[], from)).collect();
    // There is memory for so many at 64 KiB.
    let places = gateway.gateway.max_sessions();
    assert_eq!(places, 1_024);
    let idle = gateway.gateway.status();
    assert_eq!(idle.sessions.len(), 1_000);
    for session in &idle.sessions {
        let held: u64 = session.segments.iter().map(|segment| segment.memory).sum();
        assert!(held <= 64 << 10, "{held} bytes while nothing moves");
    }
    until("limits of all buffers", || {
        let sessions = gateway.gateway.status().sessions;
        let segments = sessions.iter().flat_map(|session| &session.segments);
        let buffers = segments.map(|segment| segment.receive_buffer + segment.send_buffer);
        (buffers.sum::<u64>() <= CAP).then_some(())
    });
    for stream in &mut streams {
        stream.write_all(b"x").unwrap();
    }
    // Until nothing moves: the clients read nothing.
    let mut before = 0;
    until("standstill", || {
        let State { memory, sessions, .. } = gateway.gateway.status();
        assert!(memory <= CAP, "{memory}");
        let moved: u64 = sessions.iter().map(|session| session.bytes_back).sum();
        let stands = moved > 0 && moved == before;
        before = moved;
        stands.then_some(())
    });
    let sent = pattern(150_000);
    for stream in &mut streams {
        let mut received = Vec::new();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == sent);
    }
}

#[test]
fn sessions_share_the_rate_of_their_segment_and_a_reload_changes_it() {
    let with_rate = |rate: u64| {
        let segment = longhaul_gateway::transport::SegmentSettings {
            rate: Some(Rate::from_mbps(rate)),
            ..Default::default()
        };
        GatewaySettings { segment, ..settings() }
    };
    let gateway = start(with_rate(80));
    let from = endless();
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(gateway.addresses[0], &[], from);
        stream.write_all(b"x").unwrap();
        streams.push(stream);
    }
    let limits = || -> Vec<u64> {
        let sessions = gateway.gateway.status().sessions;
        let near = sessions.iter().filter_map(|session| session.segments.first());
        near.filter_map(|segment| segment.limit_bps).collect()
    };
    for mut stream in streams {
        thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
    }
    // Both directions of both sessions share it; those onward need next to nothing.
    let settle = |rate: u64| {
        until("a fair share", || {
            let limits = limits();
            // Those that come get a sixteenth before the others have looked.
            assert!(limits.iter().sum::<u64>() <= 86_000_000, "{limits:?}");
            let is_fair = |limit: &u64| (rate / 8 * 3..=rate / 2).contains(limit);
            (limits.len() == 2 && limits.iter().all(is_fair)).then_some(())
        });
    };
    settle(80_000_000);
    gateway.gateway.reload(with_rate(40)).unwrap();
    settle(40_000_000);
}

#[test]
fn sessions_that_come_one_after_the_other_and_are_not_read_stay_below_the_cap() {
    const CAP: u64 = 16 << 20;
    let memory = Some(Bytes::new(CAP));
    let gateway = start(GatewaySettings { memory, max_sessions: 64, ..settings() });
    let from = endless();
    let mut streams: Vec<TcpStream> = Vec::new();
    for count in 1..=60 {
        let mut stream = connect(gateway.addresses[0], &[], from);
        stream.write_all(b"x").unwrap();
        // The last ones come faster than the first can be limited.
        if count <= 20 {
            let mut before = 0;
            until("standstill", || {
                let moved =
                    gateway.gateway.status().sessions.iter().map(|one| one.bytes_back).sum();
                std::mem::replace(&mut before, moved).eq(&moved).then_some(())
            });
        }
        streams.push(stream);
        let held = gateway.gateway.status().memory;
        assert!(held <= CAP, "{count} sessions hold {held} bytes");
    }
    // Each of them is served, also the last.
    for stream in streams.iter_mut().rev() {
        stream.read_exact(&mut [0; 20_000]).unwrap();
    }
}

#[test]
fn those_who_connect_and_ask_for_nothing_do_not_keep_the_state_from_others() {
    let gateway = start(GatewaySettings { metrics: Some(loopback()), ..settings() });
    let at = gateway.gateway.metrics().unwrap();
    let mut crowd: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(at).unwrap()).collect();
    longhaul_gateway::status::ask(at).unwrap();
    crowd.iter_mut().for_each(|stream| stream.write_all(b"GET /").unwrap_or_default());
    longhaul_gateway::status::ask(at).unwrap();
}

#[test]
fn the_state_of_a_session_names_the_segment_that_holds_it_up() {
    let gateway = start(GatewaySettings { metrics: Some(loopback()), ..settings() });
    let at = gateway.gateway.metrics().unwrap();
    let mut stream = connect(gateway.addresses[0], &[], source(100_000_000));
    stream.write_all(b"x").unwrap();
    // The client reads just enough to show that something moves, and bytes wait for it.
    let state = until("a bottleneck", || {
        stream.read_exact(&mut [0; 10_000]).unwrap();
        let state = longhaul_gateway::status::ask(at).unwrap();
        (state.sessions[0].bottleneck.as_deref() == Some("client")).then_some(state)
    });
    let session = &state.sessions[0];
    assert_eq!((&*session.stage, session.segments.len()), ("relaying", 2));
    let [near, onward] = [&session.segments[0], &session.segments[1]];
    assert_eq!((&*near.side, &*onward.side), ("client", "onward"));
    assert!(near.waited_for > 0.5 && onward.waited_for < 0.5);
    assert_eq!(near.peer, stream.local_addr().unwrap());
    assert!(near.rtt_us > 0 && near.memory > 0 && near.send_buffer > 0);
    drop(stream);
    gateway.ending();
    let state = longhaul_gateway::status::ask(at).unwrap();
    assert_eq!((state.sessions.len(), state.totals.broken), (0, 1));

    let mut http = TcpStream::connect(at).unwrap();
    http.write_all(b"GET /metrics HTTP/1.1\r\nHost: gw\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    http.read_to_string(&mut text).unwrap();
    for line in ["longhaul_gateway_sessions 0\n", "longhaul_gateway_broken_total 1\n"] {
        assert!(text.contains(line), "{text}");
    }
}
