//! A header and its answer between a dialler and a gatekeeper.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use longhaul_relay::{
    Addressed, Answer, Clock, DialError, Dialled, Dialler, Gatekeeper, Hop, MAX_CLOCK_ERROR,
    MAX_CLOCK_LEAD, MAX_HOPS, MAX_MESSAGE, Place, Received, Refusal, Request, Route, RouteError,
    Status, Target,
};
use longhaul_session::{Token, TokenKey};

const NOW: Clock = Clock::from_micros(1_800_000_000_000_000);

fn token() -> Token {
    Token::from_random([7; 16])
}

fn key() -> TokenKey {
    token().key()
}

fn place(text: &str) -> Place {
    text.parse().unwrap()
}

fn address() -> Place {
    place("192.0.2.1:7421")
}

fn addressed() -> Addressed {
    Addressed { written: place("gw.example.org:7421"), dialled: address() }
}

fn route() -> Route {
    let target = Target { place: place("server.example.org:80"), aware: false };
    Route::new([1; 16], target)
}

fn gatekeeper(name: Option<&str>) -> Gatekeeper {
    Gatekeeper::new([&token()].into_iter().collect(), name.map(Into::into), NOW)
}

fn dial(route: &Route, nonce: u8) -> (Dialler, Vec<u8>) {
    Dialler::new(route, addressed(), &key(), NOW, [nonce; 16]).unwrap()
}

fn accepted(gatekeeper: &mut Gatekeeper, header: &[u8], now: Clock) -> Request {
    match gatekeeper.receive(header, &address(), now) {
        Received::Header(request) => *request,
        other => panic!("{other:?}"),
    }
}

fn refused(gatekeeper: &mut Gatekeeper, header: &[u8], now: Clock) -> Refusal {
    match gatekeeper.receive(header, &address(), now) {
        Received::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

fn later(seconds: u64) -> Clock {
    Clock::from_micros(NOW.as_micros() + seconds * 1_000_000)
}

#[test]
fn a_route_arrives_as_it_was_sent_and_each_gateway_takes_its_own_hop() {
    let hop = Hop {
        place: place("[2001:db8::2]:7421"),
        name: "far".into(),
        transport: "tcp".into(),
        options: "congestion=bbr rate=1Gbps".into(),
    };
    let mut sent = route();
    sent.hops = vec![hop.clone(), place("third:7421").into()];
    sent.client = "alice@192.0.2.9".into();
    sent.origin = Some("192.0.2.9:50000".parse().unwrap());
    sent.properties = "job=17".into();
    let (_, header) = dial(&sent, 1);
    let request = accepted(&mut gatekeeper(None), &header, NOW);
    assert_eq!(request.header.route, sent);
    assert_eq!(request.header.addressed, addressed());
    assert_eq!((request.length, request.key_id), (header.len(), key().id()));

    let (next, onward) = request.header.onward().unwrap();
    assert_eq!(next, hop);
    let (next, last) = onward.onward().unwrap();
    assert_eq!(next, place("third:7421").into());
    assert_eq!(last.onward(), None);
    assert_eq!((last.session, last.target), (sent.session, sent.target));
}

#[test]
fn a_header_that_comes_in_pieces_is_judged_once_it_is_whole() {
    let (_, mut header) = dial(&route(), 1);
    let whole = header.len();
    header.extend_from_slice(b"payload");
    let mut gatekeeper = gatekeeper(None);
    for len in 0..whole {
        let received = gatekeeper.receive(&header[..len], &address(), NOW);
        assert!(matches!(received, Received::Incomplete), "{len}");
    }
    assert_eq!(accepted(&mut gatekeeper, &header, NOW).length, whole);
}

#[test]
fn no_byte_of_a_header_can_be_changed() {
    let (_, header) = dial(&route(), 1);
    let mut gatekeeper = gatekeeper(None);
    for i in 0..header.len() {
        let mut changed = header.clone();
        changed[i] ^= 1;
        let received = gatekeeper.receive(&changed, &address(), NOW);
        assert!(!matches!(received, Received::Header(_)), "byte {i}");
    }
    accepted(&mut gatekeeper, &header, NOW);
}

#[test]
fn a_header_is_accepted_once_and_only_within_a_minute() {
    let (_, header) = dial(&route(), 1);
    let mut keeper = gatekeeper(None);
    accepted(&mut keeper, &header, NOW);
    assert_eq!(refused(&mut keeper, &header, NOW).answer.status, Status::REPLAYED);
    assert_eq!(refused(&mut keeper, &header, later(60)).answer.status, Status::REPLAYED);
    // Beyond the minute its time is wrong; the nonce may be forgotten then.
    for seconds in [61, 119, 121, 1000] {
        let refusal = refused(&mut keeper, &header, later(seconds));
        assert_eq!(refusal.answer.status, Status::WRONG_CLOCK);
        assert_eq!(refusal.answer.time, Some(later(seconds)));
    }
}

#[test]
fn a_header_older_than_the_gateway_is_refused() {
    let (_, header) = dial(&route(), 1);
    let token = token();
    let mut keeper = Gatekeeper::new([&token].into_iter().collect(), None, later(1));
    assert_eq!(refused(&mut keeper, &header, later(1)).answer.status, Status::WRONG_CLOCK);
}

#[test]
fn a_header_that_was_refused_for_a_time_to_come_is_not_accepted_when_it_comes() {
    let (_, header) = dial(&route(), 1);
    let mut keeper = Gatekeeper::new([&token()].into_iter().collect(), None, Clock::from_micros(0));
    for seconds in [1_000_000, 100, 2] {
        let before = Clock::from_micros(NOW.as_micros() - seconds * 1_000_000);
        let refusal = refused(&mut keeper, &header, before);
        assert_eq!(refusal.answer.status, Status::WRONG_CLOCK);
        assert_eq!(refusal.answer.time, Some(before));
    }
    for seconds in [0, 1, 60] {
        let refusal = refused(&mut keeper, &header, later(seconds));
        assert_eq!(refusal.answer.status, Status::REPLAYED, "{seconds}");
    }
    let (_, other) = dial(&route(), 2);
    accepted(&mut keeper, &other, Clock::from_micros(NOW.as_micros() - MAX_CLOCK_LEAD));
}

#[test]
fn what_a_gateway_accepted_is_not_accepted_after_it_started_again() {
    // Since the start the time has passed by which a header may be ahead.
    let stopped = Clock::from_micros(NOW.as_micros() - MAX_CLOCK_LEAD);
    let since = Clock::from_micros(stopped.as_micros() + MAX_CLOCK_LEAD + 1);
    let (_, header) = dial(&route(), 1);
    accepted(
        &mut Gatekeeper::new([&token()].into_iter().collect(), None, Clock::from_micros(0)),
        &header,
        stopped,
    );
    let mut again = Gatekeeper::new([&token()].into_iter().collect(), None, since);
    for seconds in [1, 30, 60] {
        let refusal = refused(&mut again, &header, later(seconds));
        assert_eq!(refusal.answer.status, Status::WRONG_CLOCK);
    }
}

#[test]
fn a_gateway_says_no_time_but_its_own() {
    let (mut dialler, header) = dial(&route(), 1);
    let request = accepted(&mut gatekeeper(None), &header, NOW);
    let of_next = Answer { time: Some(later(100)), ..Answer::new(Status::WRONG_CLOCK, "next") };
    let Ok(Dialled::Refused(answer)) = dialler.receive(&request.sign(&of_next)) else { panic!() };
    assert_eq!((answer.status, answer.time), (Status::WRONG_CLOCK, None));
}

#[test]
fn an_unknown_option_that_matters_is_refused_with_a_proof() {
    let (_, header) = dial(&route(), 1);
    let credential = header.len() - 4 - 64;
    let with = |option: &[u8]| {
        let mut message = [&header[..credential], option, &header[credential..]].concat();
        let len = message.len() - 8;
        message[6..8].copy_from_slice(&(len as u16).to_be_bytes());
        let signed = message.len() - 32;
        let proof = key().prove("longhaul/1 relay header ", &[&message[..signed]]);
        message[signed..].copy_from_slice(&proof);
        message
    };
    let refusal = refused(&mut gatekeeper(None), &with(b"\x80\x63\0\0"), NOW);
    assert_eq!(refusal.answer.status, Status::UNSUPPORTED_OPTION);
    // The proof stands last, as an option of 36 bytes.
    assert_eq!(refusal.bytes[refusal.bytes.len() - 36..][..4], *b"\x80\x08\0\x20");
    accepted(&mut gatekeeper(None), &with(b"\0\x63\0\0\0\x63\0\0"), NOW);
}

#[test]
fn a_header_for_another_gateway_is_refused() {
    let (_, header) = dial(&route(), 1);
    // By its name, where it has one, and by the address that was dialled elsewhere.
    accepted(&mut gatekeeper(Some("GW.example.org")), &header, NOW);
    let refusal = refused(&mut gatekeeper(Some("other")), &header, NOW);
    assert_eq!((refusal.answer.status, &*refusal.answer.at), (Status::MISADDRESSED, "other"));
    let elsewhere = place("192.0.2.2:7421");
    let received = gatekeeper(None).receive(&header, &elsewhere, NOW);
    let Received::Refused(refusal) = received else { panic!("{received:?}") };
    assert_eq!(refusal.answer.status, Status::MISADDRESSED);
}

#[test]
fn the_dialler_believes_proven_answers_only() {
    let (mut dialler, header) = dial(&route(), 1);
    let request = accepted(&mut gatekeeper(None), &header, NOW);
    let peer = "192.0.2.80:80".parse().unwrap();
    let connected = Answer { peer: Some(peer), ..Answer::new(Status::CONNECTED, "gw") };
    let mut answer = request.sign(&connected);
    let length = answer.len();
    answer.extend_from_slice(b"payload");
    assert_eq!(dialler.wanted(), 8);
    // In two pieces: the second one's part of the answer is counted, and payload is left.
    assert_eq!(dialler.receive(&answer[..10]), Ok(Dialled::Incomplete));
    assert_eq!(dialler.wanted(), length - 10);
    let connected = Dialled::Connected { length: length - 10, peer: Some(peer) };
    assert_eq!(dialler.receive(&answer[10..]), Ok(connected));

    for i in 0..length {
        let mut changed = answer.clone();
        changed[i] ^= 1;
        let (mut dialler, _) = dial(&route(), 1);
        let outcome = dialler.receive(&changed);
        assert!(!matches!(outcome, Ok(Dialled::Connected { .. })), "byte {i}");
    }
    // An answer to another header of the same client.
    let (mut other, _) = dial(&route(), 2);
    assert_eq!(other.receive(&answer), Err(DialError::Impostor));
}

#[test]
fn a_refusal_without_the_token_is_known_as_unproven() {
    let stranger = Token::from_random([8; 16]).key();
    let (mut dialler, header) =
        Dialler::new(&route(), addressed(), &stranger, NOW, [1; 16]).unwrap();
    let refusal = refused(&mut gatekeeper(None), &header, NOW);
    assert_eq!(refusal.answer.status, Status::UNAUTHORIZED);
    assert_eq!(dialler.receive(&refusal.bytes), Ok(Dialled::Unproven(refusal.answer)));
}

#[test]
fn a_proven_refusal_brings_the_gateways_clock() {
    let (mut dialler, header) = dial(&route(), 1);
    let now = Clock::from_micros(NOW.as_micros() + MAX_CLOCK_ERROR + 1);
    let refusal = refused(&mut gatekeeper(None), &header, now);
    let Ok(Dialled::Refused(answer)) = dialler.receive(&refusal.bytes) else { panic!() };
    assert_eq!((answer.status, answer.time), (Status::WRONG_CLOCK, Some(now)));
}

#[test]
fn routes_that_do_not_fit_are_refused_before_they_are_sent() {
    let new = |route: &Route| {
        Dialler::new(route, addressed(), &key(), NOW, [1; 16]).map(|(_, header)| header)
    };
    let mut long = route();
    let hop = Hop { options: "x".repeat(700), ..place("gw:1").into() };
    long.hops = vec![hop; MAX_HOPS];
    assert_eq!(new(&long), Err(RouteError::TooLong));
    long.hops.truncate(4);
    assert!(new(&long).unwrap().len() < MAX_MESSAGE);
    let mut many = route();
    many.hops = vec![place("gw:1").into(); MAX_HOPS + 1];
    assert_eq!(new(&many), Err(RouteError::TooManyHops));
}

#[test]
fn other_protocols_are_seen_at_their_first_byte() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01", b"L\0"] {
        let refusal = refused(&mut gatekeeper(None), bytes, NOW);
        assert_eq!(refusal.answer.status, Status::MALFORMED);
        let (mut dialler, _) = dial(&route(), 1);
        assert!(matches!(dialler.receive(bytes), Err(DialError::Malformed(_))));
    }
    let refusal = refused(&mut gatekeeper(None), b"LHGW\x02\x01\0\0", NOW);
    assert_eq!(refusal.answer.status, Status::UNSUPPORTED_VERSION);
    let refusal = refused(&mut gatekeeper(None), b"LHGW\x01\x01\x10\0", NOW);
    assert_eq!(refusal.answer.status, Status::MALFORMED, "longer than a header may be");
}

#[test]
fn texts_that_are_gateways() {
    for (text, name, at) in [
        ("gw.example.org", "", "gw.example.org:7421"),
        ("gw:80", "", "gw:80"),
        ("far@192.0.2.1:80", "far", "192.0.2.1:80"),
        ("[2001:db8::1]", "", "[2001:db8::1]:7421"),
    ] {
        let hop: Hop = text.parse().unwrap();
        assert_eq!((&*hop.name, hop.place), (name, place(at)), "{text}");
    }
    let hop: Hop = "far@gw:80?!congestion=bbr&rate=1Gbps".parse().unwrap();
    assert_eq!((hop.place, &*hop.options), (place("gw:80"), "!congestion=bbr rate=1Gbps"));
    for text in ["", "@gw", "a@", "gw:0", "gw:x", "2001:db8::1", "a b", "gw?a b"] {
        assert!(text.parse::<Hop>().is_err(), "{text}");
    }
}
