use super::*;
use crate::role::Role;
use crate::secret::SessionSecret;
use crate::session::Session;
use crate::token::{KeyId, Keyring, Token};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use longhaul_units::{Bytes, Instant, LaneId};
use longhaul_wire::{
    CONTROL_HEADER_LEN, Carrier, Cipher, CloseCode, ConnectionId, ControlMessage, DecodeError,
    Hello, MAX_HANDSHAKE_BODY, Protect, ReceiveLimits, Welcome,
};
use proptest::prelude::*;

const NOW: Instant = Instant::from_nanos(5);
const CONNECTION: NonZeroU32 = NonZeroU32::new(77).unwrap();

fn token() -> Token {
    Token::from_random([1; 16])
}

fn keyring() -> Keyring {
    [&token(), &Token::from_random([2; 16])].into_iter().collect()
}

fn secret() -> SessionSecret {
    SessionSecret::new([3; 32])
}

fn limits(n: u64) -> Option<ReceiveLimits> {
    Some(ReceiveLimits { socket_buffer: Bytes::new(n), credit: Bytes::new(n + 1) })
}

fn client_config() -> ClientConfig {
    ClientConfig {
        lanes: 4,
        implementation: Some("client 1".into()),
        receive_limits: limits(10),
        profile: Some("auto".into()),
        ..ClientConfig::default()
    }
}

fn server_config() -> ServerConfig {
    ServerConfig {
        udp_port: Some(7420),
        max_lanes: 2,
        implementation: Some("server 1".into()),
        receive_limits: limits(20),
        ..ServerConfig::default()
    }
}

fn client() -> (ClientHandshake, Vec<u8>) {
    ClientHandshake::new(&client_config(), &token().key(), secret(), NOW)
}

fn server() -> ServerHandshake {
    ServerHandshake::new(server_config(), secret(), NOW)
}

fn welcome_to(hello: &[u8]) -> Vec<u8> {
    verified(server().handle(hello, &keyring())).accept(CONNECTION).1
}

fn verified(progress: Result<ServerProgress, HandshakeError>) -> VerifiedClient {
    match progress.unwrap() {
        ServerProgress::Verified(client) => *client,
        ServerProgress::NeedMore(_) => panic!("HELLO is complete"),
    }
}

fn done(progress: Result<ClientProgress, HandshakeError>) -> Session {
    match progress.unwrap() {
        ClientProgress::Done(session) => session,
        ClientProgress::NeedMore(_) => panic!("WELCOME is complete"),
    }
}

/// The body of the one message in `bytes`.
fn body(bytes: &[u8]) -> &[u8] {
    &bytes[CONTROL_HEADER_LEN..]
}

fn message(message: ControlMessage<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out).unwrap();
    out
}

/// The server's answer to a HELLO with this body.
fn server_error(hello: &[u8]) -> HandshakeError {
    let bytes = message(ControlMessage::Hello(hello));
    server().handle(&bytes, &keyring()).unwrap_err()
}

/// A HELLO of the right client, changed, with the proof made good again.
fn changed_hello(change: impl FnOnce(&mut Hello)) -> Vec<u8> {
    let (_, hello) = client();
    let mut hello = Hello::decode(body(&hello)).unwrap();
    change(&mut hello);
    hello.encode()
}

#[test]
fn both_ends_agree() {
    let (client, hello) = client();
    let verified = verified(server().handle(&hello, &keyring()));
    assert_eq!(verified.key_id(), token().key().id());
    assert_eq!(verified.hello().lanes, 4);
    let (at_server, welcome) = verified.accept(CONNECTION);
    let at_client = done(client.handle(&welcome));
    for session in [&at_client, &at_server] {
        assert_eq!(session.key_id, token().key().id());
        assert_eq!(session.connection, ConnectionId(77));
        assert_eq!(session.protect, Protect::Aead);
        assert_eq!(session.cipher, Cipher::Aes128Gcm);
        assert_eq!(session.carrier, Carrier::Udp);
        assert_eq!(session.lanes, 2, "the smaller of both");
        assert_eq!(session.udp_port, Some(7420));
        assert!(session.rest.is_empty());
    }
    assert_eq!((at_client.role, at_server.role), (Role::Client, Role::Server));
    assert_eq!((at_client.peer_limits, at_server.peer_limits), (limits(20), limits(10)));
    assert_eq!(at_client.peer_implementation.as_deref(), Some("server 1"));
    assert_eq!(at_server.peer_implementation.as_deref(), Some("client 1"));
    assert_eq!(at_server.profile.as_deref(), Some("auto"));

    let lane = LaneId(1);
    let key = |keys: &crate::keys::LaneKeys| {
        keys.epoch(0).unwrap().packet_key(Cipher::ChaCha20Poly1305).to_vec()
    };
    let up = key(&at_client.send_keys(lane));
    assert_eq!(up, key(&at_server.receive_keys(lane)));
    let down = key(&at_server.send_keys(lane));
    assert_eq!(down, key(&at_client.receive_keys(lane)));
    assert_ne!(up, down);

    let join = at_client.join(lane);
    assert!(at_server.verify_join(&join));
    assert!(!at_server.verify_join(&at_client.join(LaneId(2))), "not a lane");
    for wrong in [
        longhaul_wire::Join { lane: LaneId(0), ..join },
        longhaul_wire::Join { connection: ConnectionId(78), ..join },
        longhaul_wire::Join { proof: [0; 32], ..join },
    ] {
        assert!(!at_server.verify_join(&wrong));
    }
}

#[test]
fn tcp_without_udp() {
    let config = ClientConfig { carrier: Carrier::Tcp, ..client_config() };
    let (client, hello) = ClientHandshake::new(&config, &token().key(), secret(), NOW);
    let config = ServerConfig { udp_port: None, ..server_config() };
    let server = ServerHandshake::new(config, secret(), NOW);
    let (_, welcome) = verified(server.handle(&hello, &keyring())).accept(CONNECTION);
    let session = done(client.handle(&welcome));
    assert_eq!((session.carrier, session.udp_port), (Carrier::Tcp, None));
}

#[test]
fn the_clients_preference_of_ciphers_decides() {
    let preferences = [
        (vec![Cipher::ChaCha20Poly1305, Cipher::Aes128Gcm], Cipher::ALL.to_vec()),
        (vec![Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305], vec![Cipher::ChaCha20Poly1305]),
    ];
    for (ciphers, has) in preferences {
        let config = ClientConfig { ciphers, ..client_config() };
        let (_, hello) = ClientHandshake::new(&config, &token().key(), secret(), NOW);
        let config = ServerConfig { ciphers: has, ..server_config() };
        let server = ServerHandshake::new(config, secret(), NOW);
        let (session, _) = verified(server.handle(&hello, &keyring())).accept(CONNECTION);
        assert_eq!(session.cipher, Cipher::ChaCha20Poly1305);
    }
}

#[test]
fn every_prefix_needs_more() {
    let (_, hello) = client();
    let welcome = welcome_to(&hello);
    for len in 0..hello.len() {
        let ServerProgress::NeedMore(server) = server().handle(&hello[..len], &keyring()).unwrap()
        else {
            panic!("{len}");
        };
        verified(server.handle(&hello[len..], &keyring()));
    }
    for len in 0..welcome.len() {
        let (client, _) = client();
        let ClientProgress::NeedMore(client) = client.handle(&welcome[..len]).unwrap() else {
            panic!("{len}");
        };
        done(client.handle(&welcome[len..]));
    }
}

#[test]
fn what_comes_behind_is_kept() {
    let (client, mut hello) = client();
    hello.extend(b"more");
    let (at_server, mut welcome) = verified(server().handle(&hello, &keyring())).accept(CONNECTION);
    assert_eq!(at_server.rest, b"more");
    welcome.extend(b"and more");
    assert_eq!(done(client.handle(&welcome)).rest, b"and more");
}

#[test]
fn wrong_or_unknown_token() {
    for config_token in [Token::from_random([9; 16]), Token::from_random([2; 16])] {
        let (_, hello) = ClientHandshake::new(&client_config(), &config_token.key(), secret(), NOW);
        let mut hello = Hello::decode(body(&hello)).unwrap();
        // An unknown key id, then a known one with the proof of another token.
        let unknown = hello.key_id == Token::from_random([9; 16]).key().id().0;
        if !unknown {
            hello.key_id = token().key().id().0;
        }
        let error = server_error(&hello.encode());
        assert_eq!(error, HandshakeError::Unauthorized);
        assert_eq!(error.close_code(), Some(CloseCode::UNAUTHORIZED));
    }
}

#[test]
fn the_two_kinds_of_unauthorized_look_the_same() {
    let unknown = changed_hello(|hello| hello.key_id = [0; 8]);
    let wrong = changed_hello(|hello| hello.proof[31] ^= 1);
    assert_eq!(server_error(&unknown).close_message(), server_error(&wrong).close_message());
}

#[test]
fn strangers_do_not_learn_what_is_offered() {
    let config = ClientConfig { protect: Protect::Clear, ..client_config() };
    let stranger = Token::from_random([9; 16]).key();
    let (_, hello) = ClientHandshake::new(&config, &stranger, secret(), NOW);
    let config = ServerConfig { protects: vec![Protect::Aead], ..server_config() };
    let server = ServerHandshake::new(config, secret(), NOW);
    assert_eq!(server.handle(&hello, &keyring()).unwrap_err(), HandshakeError::Unauthorized);
}

#[test]
fn a_man_in_the_middle_has_two_secrets() {
    let (client, hello) = client();
    // He ends TLS on both sides, so the server's side of it has another secret.
    let server = ServerHandshake::new(server_config(), SessionSecret::new([4; 32]), NOW);
    let error = server.handle(&hello, &keyring()).unwrap_err();
    assert_eq!(error, HandshakeError::Unauthorized);
    // A server that he runs himself knows its secret with the client but no token.
    let his: Keyring = [&Token::from_random([66; 16])].into_iter().collect();
    let server = ServerHandshake::new(server_config(), secret(), NOW);
    assert_eq!(server.handle(&hello, &his).unwrap_err(), HandshakeError::Unauthorized);
    // He may answer all the same, with any proof that he can make or has seen.
    let hello = Hello::decode(body(&hello)).unwrap();
    let guess = Token::from_random([66; 16]).key();
    for proof in [[0; 32], hello.proof, guess.proof(Role::Server, &secret(), &hello.encode())] {
        let welcome = Welcome {
            proof,
            protect: hello.protect,
            cipher: Cipher::Aes128Gcm,
            carrier: Carrier::Udp,
            lanes: 1,
            connection: ConnectionId(1),
            udp_port: Some(1),
            implementation: None,
            receive_limits: None,
        };
        let welcome = message(ControlMessage::Welcome(&welcome.encode()));
        let (again, _) = self::client();
        assert_eq!(again.handle(&welcome).unwrap_err(), HandshakeError::Unauthorized);
    }
    drop(client);
}

#[test]
fn a_replayed_hello_is_worthless_under_another_secret() {
    let (_, hello) = client();
    verified(server().handle(&hello, &keyring()));
    let later = ServerHandshake::new(server_config(), SessionSecret::new([5; 32]), NOW);
    assert_eq!(later.handle(&hello, &keyring()).unwrap_err(), HandshakeError::Unauthorized);
}

#[test]
fn a_replayed_welcome_is_worthless_under_another_secret() {
    let (_, hello) = client();
    let welcome = welcome_to(&hello);
    let other = SessionSecret::new([5; 32]);
    let (client, _) = ClientHandshake::new(&client_config(), &token().key(), other, NOW);
    assert_eq!(client.handle(&welcome).unwrap_err(), HandshakeError::Unauthorized);
}

#[test]
fn altered_wishes_are_seen_by_the_client() {
    // The client's proof does not cover its wishes, but the server's does.
    let weaker = changed_hello(|hello| hello.protect = Protect::Clear);
    let welcome = welcome_to(&message(ControlMessage::Hello(&weaker)));
    let (client, _) = client();
    assert_eq!(client.handle(&welcome).unwrap_err(), HandshakeError::Unauthorized);
}

#[test]
fn choices_that_were_not_offered() {
    let (_, hello) = client();
    let proof = token().key().proof(Role::Server, &secret(), body(&hello));
    let good = Welcome::decode(body(&welcome_to(&hello))).unwrap();
    assert_eq!(good.proof, proof);
    let config = ClientConfig { ciphers: vec![Cipher::Aes128Gcm], ..client_config() };
    let tcp = Welcome { carrier: Carrier::Tcp, udp_port: None, ..good.clone() };
    for (what, welcome) in [
        ("protection", Welcome { protect: Protect::Integrity, ..good.clone() }),
        ("cipher", Welcome { cipher: Cipher::ChaCha20Poly1305, ..good.clone() }),
        ("carrier", tcp),
        ("number of lanes", Welcome { lanes: 5, ..good.clone() }),
    ] {
        let (client, hello) = ClientHandshake::new(&config, &token().key(), secret(), NOW);
        let proof = token().key().proof(Role::Server, &secret(), body(&hello));
        let bytes = message(ControlMessage::Welcome(&Welcome { proof, ..welcome }.encode()));
        let error = client.handle(&bytes).unwrap_err();
        assert_eq!(error, HandshakeError::NotOffered { what });
        assert_eq!(error.close_code(), Some(CloseCode::PROTOCOL_VIOLATION));
    }
}

#[test]
fn nothing_in_common() {
    for (what, config) in [
        ("protection", ServerConfig { protects: vec![Protect::Clear], ..server_config() }),
        ("carrier", ServerConfig { udp_port: None, ..server_config() }),
        ("cipher", ServerConfig { ciphers: vec![], ..server_config() }),
    ] {
        let (_, hello) = client();
        let server = ServerHandshake::new(config, secret(), NOW);
        let error = server.handle(&hello, &keyring()).unwrap_err();
        assert_eq!(error, HandshakeError::NoCommon { what });
        assert_eq!(error.close_code(), Some(CloseCode::UNSUPPORTED_OPTION));
    }
}

#[test]
fn unknown_version_and_options() {
    let newer = changed_hello(|hello| hello.versions = vec![2, 3]);
    let error = server_error(&newer);
    assert_eq!(error, HandshakeError::Incompatible(DecodeError::UnsupportedVersion));
    assert_eq!(error.close_code(), Some(CloseCode::UNSUPPORTED_VERSION));

    let (client, hello) = client();
    let critical = [body(&hello), &[0xff, 0, 0, 1, 9]].concat();
    let error = server_error(&critical);
    assert!(matches!(error, HandshakeError::Incompatible(DecodeError::Unsupported { .. })));
    assert_eq!(error.close_code(), Some(CloseCode::UNSUPPORTED_OPTION));

    let ignored = [body(&hello), &[0x7f, 0, 0, 1, 9]].concat();
    let hello = message(ControlMessage::Hello(&ignored));
    let (_, welcome) = verified(server().handle(&hello, &keyring())).accept(CONNECTION);
    // The option was added on the way, which the server's proof shows.
    assert_eq!(client.handle(&welcome).unwrap_err(), HandshakeError::Unauthorized);
}

#[test]
fn oversized_messages_are_refused_at_their_length() {
    let len = (MAX_HANDSHAKE_BODY + 1).to_be_bytes();
    let claim = [1, len[5], len[6], len[7]];
    let error = server().handle(&claim, &keyring()).unwrap_err();
    assert_eq!(error.close_code(), Some(CloseCode::PROTOCOL_VIOLATION));
    let claim = [2, len[5], len[6], len[7]];
    let error = client().0.handle(&claim).unwrap_err();
    assert_eq!(error.close_code(), Some(CloseCode::PROTOCOL_VIOLATION));
    // Another protocol is recognised by its first byte.
    assert!(server().handle(b"G", &keyring()).is_err());
}

#[test]
fn messages_out_of_place() {
    let (_, hello) = client();
    let welcome = welcome_to(&hello);
    let ping = message(ControlMessage::Ping([0; 8]));
    let pong = message(ControlMessage::Pong([0; 8]));
    for (name, bytes) in [("WELCOME", &welcome), ("PING", &ping), ("PONG", &pong)] {
        let error = server().handle(bytes, &keyring()).unwrap_err();
        assert_eq!(error, HandshakeError::Unexpected { message: name });
        assert_eq!(error.close_code(), Some(CloseCode::PROTOCOL_VIOLATION));
    }
    for (name, bytes) in [("HELLO", &hello), ("PING", &ping), ("PONG", &pong)] {
        let error = client().0.handle(bytes).unwrap_err();
        assert_eq!(error, HandshakeError::Unexpected { message: name });
    }
}

#[test]
fn close_from_the_peer() {
    let close = ControlMessage::Close { code: CloseCode::BUSY, reason: "later \u{1b}[2J" };
    let close = message(close);
    let reason = String::from("later \\u{1b}[2J");
    let expected = HandshakeError::Closed { code: CloseCode::BUSY, reason };
    let errors =
        [client().0.handle(&close).unwrap_err(), server().handle(&close, &keyring()).unwrap_err()];
    for error in errors {
        assert_eq!(error, expected);
        assert_eq!(error.close_code(), None);
        assert!(error.close_message().is_empty());
        assert!(!error.to_string().contains('\u{1b}'), "text of the peer is escaped");
    }
}

#[test]
fn refused_after_verification() {
    let (client, hello) = client();
    let verified = verified(server().handle(&hello, &keyring()));
    let close = verified.refuse(CloseCode::SHUTDOWN, "stopping");
    let expected = HandshakeError::Closed { code: CloseCode::SHUTDOWN, reason: "stopping".into() };
    assert_eq!(client.handle(&close).unwrap_err(), expected);
}

#[test]
fn close_messages_can_be_read() {
    let error = HandshakeError::NoCommon { what: "cipher" };
    let bytes = error.close_message();
    let (read, len) = ControlMessage::parse(&bytes).unwrap().unwrap();
    let reason = "this server does not offer the cipher wished";
    assert_eq!(read, ControlMessage::Close { code: CloseCode::UNSUPPORTED_OPTION, reason });
    assert_eq!(len, bytes.len());
}

#[test]
fn given_up_in_time() {
    let (client, _) = client();
    let server = server();
    for (deadline, early, late) in [
        (
            client.next_timeout(),
            client.handle_timeout(NOW),
            client.handle_timeout(client.next_timeout()),
        ),
        (
            server.next_timeout(),
            server.handle_timeout(NOW),
            server.handle_timeout(server.next_timeout()),
        ),
    ] {
        assert_eq!(deadline, NOW + TIMEOUT);
        assert_eq!(early, Ok(()));
        assert_eq!(late, Err(HandshakeError::TimedOut));
    }
    assert_eq!(HandshakeError::TimedOut.close_code(), Some(CloseCode::TIMEOUT));
}

#[test]
fn every_changed_bit_is_seen() {
    let (_, hello) = client();
    let welcome = welcome_to(&hello);
    for bit in 0..welcome.len() * 8 {
        let mut changed = welcome.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (client, _) = client();
        // TLS protects WELCOME; here only proof and form are at stake: nothing but the wishes of
        // the client may come out, and the proof must be whole.
        if let Ok(ClientProgress::Done(session)) = client.handle(&changed) {
            assert_eq!(session.protect, Protect::Aead);
            assert!(session.lanes <= 4);
            let proof = Welcome::decode(body(&changed)).unwrap().proof;
            assert_eq!(proof, Welcome::decode(body(&welcome)).unwrap().proof);
        }
    }
    for bit in 0..hello.len() * 8 {
        let mut changed = hello.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        if let Ok(ServerProgress::Verified(verified)) = server().handle(&changed, &keyring()) {
            let (_, welcome) = verified.accept(CONNECTION);
            let (client, _) = client();
            assert_eq!(client.handle(&welcome).unwrap_err(), HandshakeError::Unauthorized);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..6)) {
        let mut server = server();
        for piece in &pieces {
            match server.handle(piece, &keyring()) {
                Ok(ServerProgress::NeedMore(more)) => server = more,
                Ok(ServerProgress::Verified(_)) => panic!("no proof"),
                Err(error) => {
                    error.close_message();
                    break;
                }
            }
        }
        let (mut client, _) = client();
        for piece in &pieces {
            match client.handle(piece) {
                Ok(ClientProgress::NeedMore(more)) => client = more,
                Ok(ClientProgress::Done(_)) => panic!("no proof"),
                Err(_) => break,
            }
        }
    }

    #[test]
    fn any_wishes_and_offers(
        protect in prop::sample::select(Protect::ALL),
        ciphers in prop::sample::subsequence(Cipher::ALL, 1..=2),
        carrier in prop::sample::select(Carrier::ALL),
        lanes in 1u16..=64, max_lanes in 1u16..=64,
        protects in prop::sample::subsequence(Protect::ALL, 0..=3),
        has in prop::sample::subsequence(Cipher::ALL, 0..=2),
        udp_port in prop::option::of(1u16..),
        tcp: bool,
        secret: [u8; 32],
    ) {
        let config = ClientConfig { protect, ciphers, carrier, lanes, ..client_config() };
        let secret = SessionSecret::new(secret);
        let (client, hello) = ClientHandshake::new(&config, &token().key(), secret.clone(), NOW);
        let offer = ServerConfig {
            protects, ciphers: has, udp_port, tcp, max_lanes, ..server_config()
        };
        let server = ServerHandshake::new(offer.clone(), secret, NOW);
        match server.handle(&hello, &keyring()) {
            Ok(progress) => {
                let (at_server, welcome) = verified(Ok(progress)).accept(CONNECTION);
                let at_client = done(client.handle(&welcome));
                prop_assert!(offer.protects.contains(&at_client.protect));
                prop_assert!(offer.ciphers.contains(&at_client.cipher));
                prop_assert_eq!(at_client.lanes, lanes.min(max_lanes));
                prop_assert_eq!(at_client.lanes, at_server.lanes);
                prop_assert_eq!(at_client.udp_port.is_some(), carrier != Carrier::Tcp);
            }
            Err(error) => {
                let expected = matches!(error, HandshakeError::NoCommon { .. });
                prop_assert!(expected, "{}", error);
            }
        }
    }
}

#[test]
fn key_ids_name_tokens() {
    assert_eq!(KeyId([0xab; 8]).to_string(), "abababababababab");
}
