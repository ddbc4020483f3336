use super::*;
use alloc::vec;
use proptest::prelude::*;

fn hello() -> Hello {
    Hello {
        versions: vec![1, 2],
        key_id: [2; 8],
        proof: [3; 32],
        protect: Protect::Aead,
        ciphers: vec![Cipher::ChaCha20Poly1305, Cipher::Aes128Gcm],
        carrier: Carrier::Udp,
        lanes: 4,
        implementation: Some("x".into()),
        receive_limits: Some(ReceiveLimits { socket_buffer: Bytes::new(5), credit: Bytes::new(6) }),
        profile: Some("auto".into()),
        rate: Some(Rate::from_bps(7)),
        parameters: Some("step=5".into()),
    }
}

fn welcome() -> Welcome {
    Welcome {
        proof: [3; 32],
        protect: Protect::Clear,
        cipher: Cipher::Aes128Gcm,
        carrier: Carrier::Udp,
        lanes: 2,
        connection: ConnectionId(0x0102_0304),
        udp_port: Some(7420),
        implementation: None,
        receive_limits: None,
    }
}

fn option(number: u16, value: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &(value.len() as u16).to_be_bytes(), value].concat()
}

fn hello_bytes() -> Vec<u8> {
    [
        option(0x8001, &[0, 1, 0, 2]),
        option(0x8002, &[2; 8]),
        option(0x8003, &[3; 32]),
        option(0x8004, &[1]),
        option(0x8005, &[2, 1]),
        option(0x8006, &[1]),
        option(0x8007, &[0, 4]),
        option(10, b"x"),
        option(11, &[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6]),
        option(0x800c, b"auto"),
        option(0x800d, &[0, 0, 0, 0, 0, 0, 0, 7]),
        option(0x800e, b"step=5"),
    ]
    .concat()
}

fn welcome_options() -> Vec<Vec<u8>> {
    vec![
        option(0x8001, &[0, 1]),
        option(0x8003, &[3; 32]),
        option(0x8004, &[3]),
        option(0x8005, &[1]),
        option(0x8006, &[1]),
        option(0x8007, &[0, 2]),
        option(0x8008, &[1, 2, 3, 4]),
        option(0x8009, &[0x1c, 0xfc]),
    ]
}

#[test]
fn literal_bytes() {
    assert_eq!(hello().encode(), hello_bytes());
    assert_eq!(Hello::decode(&hello_bytes()), Ok(hello()));
    assert_eq!(welcome().encode(), welcome_options().concat());
    assert_eq!(Welcome::decode(&welcome_options().concat()), Ok(welcome()));
}

#[test]
fn literal_control_messages() {
    for (bytes, message) in [
        (&b"\x01\x00\x00\x02ab"[..], ControlMessage::Hello(b"ab")),
        (b"\x02\x00\x00\x00", ControlMessage::Welcome(b"")),
        (
            b"\x03\x00\x00\x05\x00\x07now",
            ControlMessage::Close { code: CloseCode::BUSY, reason: "now" },
        ),
        (b"\x04\x00\x00\x0812345678", ControlMessage::Ping(*b"12345678")),
        (b"\x05\x00\x00\x0812345678", ControlMessage::Pong(*b"12345678")),
    ] {
        let mut out = vec![0xa5];
        message.encode(&mut out).unwrap();
        assert_eq!(out[1..], *bytes);
        out.extend(b"more");
        assert_eq!(ControlMessage::parse(&out[1..]), Ok(Some((message, bytes.len()))));
        for len in 0..bytes.len() {
            assert_eq!(ControlMessage::parse(&bytes[..len]), Ok(None));
        }
    }
}

#[test]
fn bad_control_messages_are_seen_early() {
    for bytes in [
        &b"\x00"[..],
        b"\x06",
        b"GET / HTTP/1.1",
        b"\x01\x00\x40\x01",
        b"\x02\xff\xff\xff",
        b"\x03\x00\x00\x01",
        b"\x03\x00\x04\x03",
        b"\x04\x00\x00\x07",
        b"\x05\x00\x00\x09",
        b"\x03\x00\x00\x03\x00\x00\xff",
    ] {
        assert!(ControlMessage::parse(bytes).is_err(), "{bytes:?}");
    }
    let mut out = Vec::new();
    assert_eq!(ControlMessage::Hello(&[0; MAX_HANDSHAKE_BODY + 1]).encode(&mut out), Err(Full));
    assert!(out.is_empty());
}

#[test]
fn the_version_is_looked_at_first() {
    let unknown = option(0x8070, b"?");
    let other = [option(0x8001, &[0, 2]), unknown.clone()].concat();
    assert_eq!(Hello::decode(&other), Err(DecodeError::UnsupportedVersion));
    assert_eq!(Welcome::decode(&other), Err(DecodeError::UnsupportedVersion));
    let ours = [hello_bytes(), unknown].concat();
    assert_eq!(Hello::decode(&ours), Err(DecodeError::Unsupported { what: "critical option" }));
}

#[test]
fn unknown_options() {
    let bytes = [hello_bytes(), option(0x70, b"?"), option(0x71, b"")].concat();
    assert_eq!(Hello::decode(&bytes), Ok(hello()), "not critical: ignored");
    let bytes = [hello_bytes(), option(0x70, b"?"), option(0x8070, b"")].concat();
    assert_eq!(Hello::decode(&bytes), Err(DecodeError::Invalid { what: "repeated option" }));
}

#[test]
fn unknown_ciphers_are_left_out() {
    let bytes = Hello { ciphers: vec![], ..hello() }.encode();
    assert!(Hello::decode(&bytes).is_err(), "no cipher at all");
    let mut bytes = hello_bytes();
    let at = bytes.windows(4).position(|w| w == [0x80, 5, 0, 2]).unwrap();
    bytes[at + 4] = 99;
    assert_eq!(Hello::decode(&bytes).unwrap().ciphers, [Cipher::Aes128Gcm]);
}

#[test]
fn a_rate_is_8_bytes_critical_and_not_zero() {
    let bytes = Hello { rate: None, ..hello() }.encode();
    assert_eq!(Hello::decode(&bytes), Ok(Hello { rate: None, ..hello() }));
    for bad in [
        option(0x800d, &[0; 8]),
        option(0x800d, &[1; 7]),
        option(0x800d, &[1; 9]),
        option(13, &[1; 8]),
    ] {
        let bad = [&bytes[..], &bad].concat();
        assert_eq!(Hello::decode(&bad), Err(DecodeError::Invalid { what: "rate option" }));
    }
}

#[test]
fn every_option_matters() {
    let good = welcome_options();
    for (i, value) in good.iter().enumerate() {
        let mut missing = good.clone();
        missing.remove(i);
        assert!(Welcome::decode(&missing.concat()).is_err(), "option {i} missing");
        let mut twice = good.clone();
        twice.push(value.clone());
        assert!(Welcome::decode(&twice.concat()).is_err(), "option {i} twice");
        let mut uncritical = good.clone();
        uncritical[i][0] = 0;
        assert!(Welcome::decode(&uncritical.concat()).is_err(), "option {i} not critical");
        let mut longer = good.clone();
        longer[i].push(0);
        longer[i][3] += 1;
        assert!(Welcome::decode(&longer.concat()).is_err(), "option {i} too long");
    }
    for (i, value) in [
        (2, option(0x8004, &[4])),
        (3, option(0x8005, &[3])),
        (4, option(0x8006, &[2])), // TCP with a UDP port
        (4, option(0x8006, &[4])),
        (5, option(0x8007, &[0, 0])),
        (5, option(0x8007, &[0, 65])),
        (6, option(0x8008, &[0; 4])),
        (7, option(0x8009, &[0; 2])),
        (7, option(0x8002, &[0; 8])), // an option of HELLO
    ] {
        let mut bad = good.clone();
        bad[i] = value;
        assert!(Welcome::decode(&bad.concat()).is_err());
    }
    let tcp = Welcome { carrier: Carrier::Tcp, udp_port: None, ..welcome() };
    assert_eq!(Welcome::decode(&tcp.encode()), Ok(tcp));
    let mut either = good;
    either[4] = option(0x8006, &[3]);
    let expected = Welcome { carrier: Carrier::Either, ..welcome() };
    assert_eq!(Welcome::decode(&either.concat()), Ok(expected));
    either.remove(7);
    assert!(Welcome::decode(&either.concat()).is_err(), "lanes have a port");
}

#[test]
fn long_names_are_cut_when_written() {
    let long =
        Hello { implementation: Some("é".repeat(40)), profile: Some("p".repeat(40)), ..hello() };
    let read = Hello::decode(&long.encode()).unwrap();
    assert_eq!(read.implementation, Some("é".repeat(32)));
    assert_eq!(read.profile, Some("p".repeat(32)));
}

fn text(limit: usize) -> impl Strategy<Value = Option<String>> {
    prop::option::of(".{0,70}".prop_map(move |text| cut(&text, limit).into()))
}

fn limits() -> impl Strategy<Value = Option<ReceiveLimits>> {
    prop::option::of((any::<u64>(), any::<u64>()).prop_map(|(socket_buffer, credit)| {
        ReceiveLimits { socket_buffer: Bytes::new(socket_buffer), credit: Bytes::new(credit) }
    }))
}

proptest! {
    #[test]
    fn hello_round_trip(
        versions in prop::collection::vec(2u16.., 0..4),
        key_id: [u8; 8], proof: [u8; 32],
        protect in prop::sample::select(Protect::ALL),
        ciphers in prop::sample::subsequence(Cipher::ALL, 1..=2),
        carrier in prop::sample::select(Carrier::ALL),
        lanes in 1..=MAX_LANES,
        implementation in text(MAX_IMPLEMENTATION),
        receive_limits in limits(),
        profile in text(MAX_PROFILE),
        rate in prop::option::of((1u64..).prop_map(Rate::from_bps)),
        parameters in text(MAX_PARAMETERS),
    ) {
        let versions = [versions, vec![PROTOCOL_VERSION]].concat();
        let hello = Hello {
            versions, key_id, proof, protect, ciphers, carrier, lanes, implementation,
            receive_limits, profile, rate, parameters,
        };
        prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }

    #[test]
    fn welcome_round_trip(
        proof: [u8; 32],
        protect in prop::sample::select(Protect::ALL),
        cipher in prop::sample::select(Cipher::ALL),
        carrier in prop::sample::select(Carrier::ALL),
        port in 1u16..,
        lanes in 1..=MAX_LANES,
        connection in 1u32..,
        implementation in text(MAX_IMPLEMENTATION),
        receive_limits in limits(),
    ) {
        let port = (carrier != Carrier::Tcp).then_some(port);
        let welcome = Welcome {
            proof, protect, cipher, carrier, lanes, connection: ConnectionId(connection),
            udp_port: port, implementation, receive_limits,
        };
        prop_assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..120), at in 0usize..150) {
        let _ = ControlMessage::parse(&bytes);
        let _ = Hello::decode(&bytes);
        let _ = Welcome::decode(&bytes);
        let mut changed = hello_bytes();
        for (place, byte) in changed.iter_mut().skip(at).zip(&bytes) {
            *place = *byte;
        }
        if let Ok(hello) = Hello::decode(&changed) {
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }
}
