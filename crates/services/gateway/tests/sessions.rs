//! Gateways, clients and targets on loopback.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

#[path = "support/world.rs"]
mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use longhaul_gateway::entry::Passwords;
use longhaul_gateway::{Ending, Event, Gateway, GatewaySettings, StartError};
use longhaul_relay::{Addressed, Clock, Dialled, Dialler, Hop, Place, Status, Target};
use longhaul_session::Token;
use world::*;

#[test]
fn a_session_carries_both_directions_and_ends_each_for_itself() {
    for gateways in 1..=4 {
        let chain: Vec<Running> = (0..gateways).map(|_| start(settings())).collect();
        let hops: Vec<SocketAddr> = chain[1..].iter().map(|gateway| gateway.addresses[0]).collect();
        let mut stream = connect(chain[0].addresses[0], &hops, echo_twice());
        let sent = pattern(3_000_000);
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == [&sent[..], &sent].concat(), "{gateways} gateways");
        drop(stream);
        for gateway in &chain {
            assert_eq!(gateway.ending(), Ending::Clean);
        }
    }
}

#[test]
fn a_client_asks_for_a_segment_between_gateways_and_learns_what_it_cannot_have() {
    let chain: Vec<Running> = (0..2).map(|_| start(settings())).collect();
    let [first, second] = [0, 1].map(|at: usize| chain[at].addresses[0]);
    let target = echo_twice().to_string();
    let route = |options: &str| {
        let hop: Hop = format!("{second}?{options}").parse().unwrap();
        longhaul_relay::Route { hops: vec![hop], ..route(&[], &target) }
    };
    for options in ["!congestion=cubic&!rate=8Mbps", "congestion=none&colour=blue", ""] {
        let mut stream = try_connect(first, &route(options), now()).unwrap();
        let sent = pattern(300_000);
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == [&sent[..], &sent].concat(), "{options}");
    }
    let answer = try_connect(first, &route("!congestion=none"), now()).unwrap_err();
    assert_eq!((answer.status, answer.at), (Status::UNSUPPORTED_OPTION, first.to_string()));
    assert!(answer.reason.starts_with("\"congestion=none\": "), "{}", answer.reason);
}

#[test]
fn payload_may_follow_the_header_at_once() {
    let gateway = start(settings());
    let address = gateway.addresses[0];
    let mut stream = TcpStream::connect(address).unwrap();
    let addressed = Addressed { written: address.into(), dialled: address.into() };
    let route = route(&[], &echo_twice().to_string());
    let (mut dialler, mut bytes) =
        Dialler::new(&route, addressed, &token().key(), now(), nonce()).unwrap();
    bytes.extend_from_slice(b"early");
    stream.write_all(&bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    let Ok(Dialled::Connected { length, .. }) = dialler.receive(&received) else { panic!() };
    assert_eq!(&received[length..], b"earlyearly");
}

#[test]
fn failures_at_any_hop_reach_the_client_in_words() {
    let chain: Vec<Running> = (0..3).map(|_| start(settings())).collect();
    let hops = [chain[1].addresses[0], chain[2].addresses[0]];
    let closed = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    let last = hops[1].to_string();
    for (target, status) in [
        (closed.to_string(), Status::REFUSED),
        ("192.0.2.1:80".to_owned(), Status::FORBIDDEN),
        ("no-such-name.invalid:80".to_owned(), Status::UNRESOLVED),
    ] {
        let answer = try_connect(chain[0].addresses[0], &route(&hops, &target), now()).unwrap_err();
        assert_eq!((answer.status, &answer.at, &answer.to), (status, &last, &target));
    }
    // A gateway that is not there: the one before it says so.
    let hops = [chain[1].addresses[0], closed];
    let answer =
        try_connect(chain[0].addresses[0], &route(&hops, "127.0.0.1:1"), now()).unwrap_err();
    let second = chain[1].addresses[0].to_string();
    assert_eq!((answer.status, answer.at), (Status::REFUSED, second));
    assert_eq!(answer.to, closed.to_string());
}

#[test]
fn names_that_resolve_to_forbidden_addresses_are_not_dialled() {
    let everything = ["0.0.0.0/0", "::/0"].map(|rule| rule.parse().unwrap()).to_vec();
    let gateway = start(GatewaySettings {
        destinations: longhaul_gateway::policy::Destinations::new(everything),
        ..settings()
    });
    let port = echo_twice().port();
    for target in [
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
    ] {
        let answer = try_connect(gateway.addresses[0], &route(&[], &target), now()).unwrap_err();
        assert_eq!(answer.status, Status::FORBIDDEN, "{target}");
    }
    // The next hop is judged as a target is.
    let hops = [gateway.addresses[0]];
    let answer =
        try_connect(gateway.addresses[0], &route(&hops, "127.0.0.1:1"), now()).unwrap_err();
    assert_eq!(answer.status, Status::FORBIDDEN);
}

#[test]
fn a_route_that_comes_back_is_a_loop() {
    let gateway = start(settings());
    let address = gateway.addresses[0];
    let answer = try_connect(address, &route(&[address], "127.0.0.1:1"), now()).unwrap_err();
    assert_eq!(answer.status, Status::LOOP);
}

#[test]
fn a_neighbour_with_another_token_is_named_as_the_fault() {
    let other = Token::from_random([9; 16]);
    let near = start(GatewaySettings { via_key: Some(other.key()), ..settings() });
    let far = start(settings());
    let hops = [far.addresses[0]];
    let answer = try_connect(near.addresses[0], &route(&hops, "127.0.0.1:1"), now()).unwrap_err();
    assert_eq!(answer.status, Status::UNAUTHORIZED);
    assert_eq!(answer.at, near.addresses[0].to_string());
    assert_eq!(answer.to, far.addresses[0].to_string());
}

#[test]
fn a_client_with_a_wrong_clock_is_given_the_right_one() {
    let gateway = start(settings());
    let target = echo_twice().to_string();
    let wrong = Clock::from_micros(now().as_micros() - 100_000_000);
    let answer = try_connect(gateway.addresses[0], &route(&[], &target), wrong).unwrap_err();
    assert_eq!(answer.status, Status::WRONG_CLOCK);
    let time = answer.time.unwrap();
    assert!(time.abs_diff(now()) < 20_000_000);
    try_connect(gateway.addresses[0], &route(&[], &target), time).unwrap();
}

#[test]
fn a_target_that_resets_is_seen_as_a_reset_and_not_as_an_end() {
    let gateway = start(settings());
    let address = target(|mut stream| {
        stream.write_all(b"some").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let mut stream = connect(gateway.addresses[0], &[], address);
    stream.read_exact(&mut [0; 4]).unwrap();
    stream.write_all(b"more").unwrap();
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(matches!(gateway.ending(), Ending::Reset(..)));
}

#[test]
fn a_client_that_resets_behind_its_end_is_noticed_while_the_target_is_silent() {
    let gateway = start(settings());
    let (sender, seen) = channel();
    let sender = Arc::new(Mutex::new(sender));
    let address = target(move |mut stream| {
        stream.read_to_end(&mut Vec::new()).unwrap();
        sender.lock().unwrap().send(()).unwrap();
        // It has nothing to send, and does not end.
        let outcome = until("a reset", || stream.take_error().unwrap());
        // So it is called where the peer has ended before.
        assert_eq!(outcome.kind(), ErrorKind::BrokenPipe);
        sender.lock().unwrap().send(()).unwrap();
    });
    let stream = connect(gateway.addresses[0], &[], address);
    stream.shutdown(Shutdown::Write).unwrap();
    seen.recv_timeout(Duration::from_secs(20)).unwrap();
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    assert!(matches!(gateway.ending(), Ending::Reset(longhaul_relay::Side::Near, _)));
    seen.recv_timeout(Duration::from_secs(20)).unwrap();
}

#[test]
fn a_client_that_closes_before_the_last_of_a_session_that_ended_both_ways_ended_it_well() {
    let gateway = start(settings());
    let (sender, go) = channel::<()>();
    let go = Arc::new(Mutex::new(go));
    let (outcome, seen) = channel();
    let outcome = Arc::new(Mutex::new(outcome));
    let address = target(move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"request");
        go.lock().unwrap().recv().unwrap();
        let wrote = stream.write_all(b"a last word");
        outcome.lock().unwrap().send(wrote.map_err(|error| error.kind())).unwrap();
    });
    let mut stream = connect(gateway.addresses[0], &[], address);
    stream.write_all(b"request").unwrap();
    // It closes, and the rest comes then.
    drop(stream);
    sender.send(()).unwrap();
    assert_eq!(gateway.ending(), Ending::Left(longhaul_relay::Side::Near));
    assert_eq!(seen.recv_timeout(Duration::from_secs(20)).unwrap(), Ok(()));
}

#[test]
fn a_client_that_resets_is_seen_as_a_reset_at_the_target() {
    let gateway = start(settings());
    let (sender, seen) = channel();
    let sender = Mutex::new(sender);
    let sender = Arc::new(sender);
    let address = target(move |mut stream| {
        let outcome = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        sender.lock().unwrap().send(outcome).unwrap();
    });
    let mut stream = connect(gateway.addresses[0], &[], address);
    stream.write_all(b"some").unwrap();
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    let outcome = seen.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(outcome, Err(ErrorKind::ConnectionReset));
}

/// A draining gateway carries `stream`, its last session, to a good end, and is done then.
fn ends_with_its_last_session(gateway: &mut Running, mut stream: TcpStream) {
    stream.write_all(b"ab").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"abab");
    gateway.gateway.join().unwrap();
    assert_eq!(gateway.ending(), Ending::Clean);
}

#[test]
fn a_gateway_that_is_stopped_resets_its_sessions_and_a_drained_one_lets_them_end() {
    let mut gateway = start(settings());
    let address = echo_twice();
    let stream = connect(gateway.addresses[0], &[], address);
    gateway.gateway.drain();
    ends_with_its_last_session(&mut gateway, stream);

    let gateway = start(settings());
    let mut stream = connect(gateway.addresses[0], &[], address);
    stream.write_all(b"ab").unwrap();
    drop(gateway);
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_draining_gateway_answers_new_clients_that_it_stops_and_ends_with_its_last_session() {
    let mut gateway = start(GatewaySettings { socks: vec![loopback()], ..settings() });
    let address = echo_twice();
    let stream = connect(gateway.addresses[0], &[], address);
    // One that says nothing holds nothing up.
    let _silent = TcpStream::connect(gateway.addresses[0]).unwrap();
    gateway.gateway.drain();
    let answer = try_connect(gateway.addresses[0], &route(&[], &address.to_string()), now());
    assert_eq!(answer.unwrap_err().status, Status::SHUTDOWN);
    assert!(matches!(gateway.ending(), Ending::NotEntered(why) if why.ends_with("is stopping")));
    let mut socks = TcpStream::connect(gateway.addresses[1]).unwrap();
    socks.write_all(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x01").unwrap();
    let mut reply = [0; 12];
    socks.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], [5, 0, 5, 1]);
    drop(socks);
    gateway.ending();
    ends_with_its_last_session(&mut gateway, stream);
}

#[test]
fn clients_that_came_before_a_drain_and_ask_behind_it_are_answered_by_every_thread() {
    let mut gateway = start(settings());
    let target = echo_twice();
    let stream = connect(gateway.addresses[0], &[], target);
    let clients: Vec<_> =
        (0..12).map(|_| TcpStream::connect(gateway.addresses[0]).unwrap()).collect();
    // Served behind those that came before it, by one of two threads; the other has no session then.
    drop(connect(gateway.addresses[0], &[], target));
    gateway.ending();
    gateway.gateway.drain();
    std::thread::sleep(Duration::from_millis(50));
    for client in clients {
        let route = route(&[], &target.to_string());
        let answer = ask(client, gateway.addresses[0], &route, now());
        assert_eq!(answer.unwrap_err().status, Status::SHUTDOWN);
        gateway.ending();
    }
    ends_with_its_last_session(&mut gateway, stream);
}

#[test]
fn a_slow_reader_gets_everything_and_holds_up_nobody() {
    let gateway = start(settings());
    let sent = pattern(20_000_000);
    let bulk = sent.clone();
    let source = target(move |mut stream| {
        let _ = stream.write_all(&bulk);
    });
    let mut slow = connect(gateway.addresses[0], &[], source);
    // The gateway's and the sockets' buffers are full by now; others pass.
    for _ in 0..4 {
        let mut received = Vec::new();
        connect(gateway.addresses[0], &[], source).read_to_end(&mut received).unwrap();
        assert!(received == sent);
    }
    let mut received = Vec::new();
    slow.read_to_end(&mut received).unwrap();
    assert!(received == sent);
}

#[test]
fn socks_clients_are_led_through_the_gateways_before_the_target() {
    let far = start(settings());
    let near = start(GatewaySettings {
        listen: Vec::new(),
        socks: vec![loopback()],
        via: vec![Hop::from(Place::from(far.addresses[0]))],
        ..settings()
    });
    let target = echo_twice();
    let mut stream = TcpStream::connect(near.addresses[0]).unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut reply = [0; 2];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply, [5, 0]);
    let mut request = b"\x05\x01\x00\x03\x09localhost".to_vec();
    request.extend_from_slice(&target.port().to_be_bytes());
    stream.write_all(&request).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..2], [5, 0]);
    stream.write_all(b"x").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"xx");
    assert_eq!((near.ending(), far.ending()), (Ending::Clean, Ending::Clean));
}

#[test]
fn a_route_of_the_gateway_leads_sessions_whose_clients_name_none() {
    let far = start(settings());
    let led = longhaul_gateway::routes::Route {
        to: vec!["127.0.0.0/8".parse().unwrap(), "*.test".parse().unwrap()],
        via: vec![Hop::from(Place::from(far.addresses[0]))],
        proxy_protocol: false,
    };
    let near = start(GatewaySettings { routes: vec![led], ..settings() });
    let target = echo_twice();
    // The second one is a name, of which addresses are known only here.
    for target in [target.to_string(), format!("localhost:{}", target.port())] {
        let mut stream = try_connect(near.addresses[0], &route(&[], &target), now()).unwrap();
        stream.write_all(b"x").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"xx");
        assert_eq!((near.ending(), far.ending()), (Ending::Clean, Ending::Clean), "{target}");
    }
    // The far gateway does not find that name.
    let answer = try_connect(near.addresses[0], &route(&[], "no.test:1"), now()).unwrap_err();
    assert_eq!((answer.status, answer.at), (Status::UNRESOLVED, far.addresses[0].to_string()));
}

#[test]
fn a_target_learns_the_client_that_the_first_gateway_saw_and_none_that_the_client_makes_up() {
    let (sender, seen) = channel();
    let sender = Arc::new(Mutex::new(sender));
    let address = target(move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        sender.lock().unwrap().send(all).unwrap();
    });
    let to_target = longhaul_gateway::routes::Route {
        to: vec!["127.0.0.1".parse().unwrap()],
        via: vec![],
        proxy_protocol: true,
    };
    let neighbours = [token().key().id()].into();
    let far = start(GatewaySettings { routes: vec![to_target], neighbours, ..settings() });
    let near = start(settings());
    let to = longhaul_relay::Route {
        origin: Some("192.0.2.66:6".parse().unwrap()),
        ..route(&[far.addresses[0]], &address.to_string())
    };
    let mut stream = try_connect(near.addresses[0], &to, now()).unwrap();
    stream.write_all(b"payload").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut expected = longhaul_relay::proxy::encode(stream.local_addr().unwrap(), address);
    expected.extend_from_slice(b"payload");
    assert_eq!(seen.recv_timeout(Duration::from_secs(20)).unwrap(), expected);
}

#[test]
fn other_settings_hold_from_a_reload_on_and_sessions_go_on() {
    let gateway = start(settings());
    let address = echo_twice();
    let mut before = connect(gateway.addresses[0], &[], address);
    let elsewhere = longhaul_gateway::policy::Destinations::new(vec!["127.0.0.9".parse().unwrap()]);
    let new = GatewaySettings {
        destinations: elsewhere,
        forwards: vec![(loopback(), Target { place: address.into(), aware: false })],
        ..settings()
    };
    gateway.gateway.reload(new).unwrap();
    let addresses = gateway.gateway.addresses().unwrap();
    assert_eq!(
        (addresses[0], addresses.len()),
        (gateway.addresses[0], 2),
        "the old listener stays open"
    );
    let to = || route(&[], &address.to_string());
    let answer = try_connect(addresses[0], &to(), now()).unwrap_err();
    assert_eq!(answer.status, Status::FORBIDDEN);

    // Settings that cannot be had change nothing.
    let taken = TcpListener::bind(loopback()).unwrap();
    let bad = GatewaySettings { listen: vec![taken.local_addr().unwrap()], ..settings() };
    let error = gateway.gateway.reload(bad).unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }), "{error}");
    let nobody = GatewaySettings { keys: Default::default(), ..settings() };
    assert!(matches!(gateway.gateway.reload(nobody).unwrap_err(), StartError::NoToken));
    let answer = try_connect(addresses[0], &to(), now()).unwrap_err();
    assert_eq!(answer.status, Status::FORBIDDEN);

    gateway.gateway.reload(settings()).unwrap();
    try_connect(addresses[0], &to(), now()).unwrap();
    // Its threads close the other listener when they come to it.
    while TcpStream::connect(addresses[1]).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }

    before.write_all(b"x").unwrap();
    before.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    before.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"xx");
}

#[test]
fn a_forwarded_port_leads_to_its_target() {
    let target = Target { place: echo_twice().into(), aware: false };
    let gateway = start(GatewaySettings {
        listen: Vec::new(),
        forwards: vec![(loopback(), target)],
        ..settings()
    });
    let mut stream = TcpStream::connect(gateway.addresses[0]).unwrap();
    stream.write_all(b"x").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"xx");
}

#[test]
fn settings_that_would_open_a_gateway_to_everybody_are_refused() {
    let start = |settings| Gateway::start(settings, Arc::new(|_| {})).map(|_| ()).unwrap_err();
    let anywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let target = Target { place: "127.0.0.1:1".parse().unwrap(), aware: false };
    let socks = GatewaySettings { socks: vec![anywhere], ..settings() };
    assert!(matches!(start(socks), StartError::Open { passwords: true, .. }));
    let forward = GatewaySettings { forwards: vec![(anywhere, target)], ..settings() };
    assert!(matches!(start(forward), StartError::Open { passwords: false, .. }));
    let nobody = GatewaySettings { keys: Default::default(), ..settings() };
    assert!(matches!(start(nobody), StartError::NoToken));
    let nowhere = GatewaySettings { destinations: Default::default(), ..settings() };
    assert!(matches!(start(nowhere), StartError::NoDestination));
    let nothing = GatewaySettings { listen: Vec::new(), ..settings() };
    assert!(matches!(start(nothing), StartError::NoListener));

    let passwords = Some(Passwords::parse("a:b").unwrap());
    let closed = GatewaySettings { socks: vec![anywhere], passwords, ..settings() };
    Gateway::start(closed, Arc::new(|_| {})).unwrap();
}

#[test]
fn sessions_that_a_stop_cuts_are_reported_and_clients_that_never_asked_are_not() {
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    let report = Arc::new(move |event| sender.lock().unwrap().send(event).unwrap());
    let gateway = Gateway::start(settings(), report).unwrap();
    let address = gateway.addresses().unwrap()[0];
    let silent = TcpStream::connect(address).unwrap();
    let mut stream = connect(
        address,
        &[],
        target(|mut stream| {
            let _ = stream.read_to_end(&mut Vec::new());
        }),
    );
    stream.write_all(&pattern(5_000)).unwrap();
    until("the bytes", || {
        gateway.status().sessions.first().filter(|seen| seen.bytes_there == 5_000).map(drop)
    });
    let gone = TcpStream::connect(address).unwrap();
    socket2::SockRef::from(&gone).set_linger(Some(Duration::ZERO)).unwrap();
    drop(gone);
    until("one client less", || (gateway.status().at_door == 1).then_some(()));
    drop(gateway);
    let mut seen = [0; 3];
    for event in events {
        match event {
            Event::Entered => seen[0] += 1,
            Event::Ended { ending: Ending::Stopped, summary } => {
                assert_eq!(summary.bytes, [5_000, 0]);
                seen[1] += 1;
            }
            Event::Ended { ending: Ending::NotEntered(_), .. } => seen[2] += 1,
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(seen, [1; 3]);
    drop((silent, stream));
}

#[test]
fn three_hundred_sessions_at_once_all_end_well() {
    let gateway = start(settings());
    let address = echo_twice();
    let mut streams: Vec<TcpStream> =
        (0..300).map(|_| connect(gateway.addresses[0], &[], address)).collect();
    assert_eq!(gateway.gateway.sessions(), 300);
    let sent = pattern(100_000);
    for stream in &mut streams {
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    }
    for stream in &mut streams {
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == [&sent[..], &sent].concat());
    }
    for _ in 0..300 {
        assert_eq!(gateway.ending(), Ending::Clean);
    }
}
