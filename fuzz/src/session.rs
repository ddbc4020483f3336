//! Checks of `longhaul-session`: an attacker without the token changes, cuts and repeats what the
//! two ends say, and never brings about a session that the ends did not mean.

use std::num::NonZeroU32;

use longhaul_session::{
    ClientConfig, ClientHandshake, ClientProgress, HandshakeError, Keyring, ServerConfig,
    ServerHandshake, ServerProgress, Session, SessionSecret, Token, VerifiedClient,
    parse_token_file,
};
use longhaul_units::Instant;
use longhaul_wire::{ControlMessage, Hello, Welcome};

/// Both machines of the handshake. The first byte chooses: raw bytes for both machines, or
/// changes of a good transcript, half of them to HELLO and half to WELCOME.
pub fn handshake(input: &[u8]) {
    let Some((&mode, input)) = input.split_first() else {
        return;
    };
    if mode & 1 == 0 {
        control(input);
        let _ = std::str::from_utf8(input).map(parse_token_file);
        let (client, _) = client();
        assert!(to_client(client, input, mode.into()).is_none(), "no proof, but a session");
        assert!(to_server(input, mode.into()).is_none(), "no proof, but a session");
        return;
    }
    let (first, second) = input.split_at(input.len() / 2);
    let (client, hello) = client();
    let sent = changed(&hello, first);
    let Some(verified) = to_server(&sent, mode.into()) else {
        assert!(!sent.starts_with(&hello), "a good HELLO was refused");
        return;
    };
    let (at_server, welcome) = verified.accept(NonZeroU32::MIN);
    let received = changed(&welcome, second);
    let whole = received.starts_with(&welcome);
    match to_client(client, &received, mode.into()) {
        Some(at_client) => {
            assert!(sent.starts_with(&hello), "a changed HELLO was not seen");
            assert_eq!(at_client.protect, at_server.protect);
            assert_eq!(at_client.carrier, at_server.carrier);
            assert!(at_client.lanes <= 3);
            assert!(!whole || at_client.lanes == at_server.lanes);
        }
        None => assert!(!whole || !sent.starts_with(&hello), "a good WELCOME was refused"),
    }
}

/// Messages of the control connection are written back as they were read.
fn control(input: &[u8]) {
    if let Ok(Some((message, len))) = ControlMessage::parse(input) {
        let mut out = Vec::new();
        message.encode(&mut out).expect("the body is not too long");
        assert_eq!(out, input[..len]);
        for short in 0..len {
            assert_eq!(ControlMessage::parse(&input[..short]), Ok(None));
        }
    }
    if let Ok(hello) = Hello::decode(input) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
    if let Ok(welcome) = Welcome::decode(input) {
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }
}

/// `message` changed as `script` says, four bytes a step.
fn changed(message: &[u8], script: &[u8]) -> Vec<u8> {
    let mut out = message.to_vec();
    for &[step, high, low, value] in script.as_chunks::<4>().0 {
        let at = usize::from(u16::from_be_bytes([high, low])) % (out.len() + 1);
        match step % 6 {
            0 if at < out.len() => out[at] ^= value,
            1 if at < out.len() => out[at] = value,
            2 => out.insert(at, value),
            3 if at < out.len() => drop(out.remove(at)),
            4 => out.truncate(at),
            _ => out.extend_from_slice(&message[..at.min(message.len())]),
        }
    }
    out
}

fn client() -> (ClientHandshake, Vec<u8>) {
    let config =
        ClientConfig { lanes: 3, implementation: Some("fuzz".into()), ..ClientConfig::default() };
    ClientHandshake::new(&config, &token().key(), secret(), Instant::ZERO)
}

fn to_client(mut client: ClientHandshake, bytes: &[u8], size: usize) -> Option<Session> {
    for piece in bytes.chunks(size.max(1)) {
        match client.handle(piece) {
            Ok(ClientProgress::NeedMore(more)) => client = more,
            Ok(ClientProgress::Done(session)) => return Some(session),
            Err(error) => return failed(&error),
        }
    }
    None
}

fn to_server(bytes: &[u8], size: usize) -> Option<Box<VerifiedClient>> {
    let config = ServerConfig { udp_port: Some(1), ..ServerConfig::default() };
    let keyring: Keyring = [&token()].into_iter().collect();
    let mut server = ServerHandshake::new(config, secret(), Instant::ZERO);
    for piece in bytes.chunks(size.max(1)) {
        match server.handle(piece, &keyring) {
            Ok(ServerProgress::NeedMore(more)) => server = more,
            Ok(ServerProgress::Verified(verified)) => return Some(verified),
            Err(error) => return failed(&error),
        }
    }
    None
}

fn failed<T>(error: &HandshakeError) -> Option<T> {
    assert_eq!(error.close_message().is_empty(), error.close_code().is_none());
    None
}

fn token() -> Token {
    Token::from_random([1; 16])
}

fn secret() -> SessionSecret {
    SessionSecret::new([2; 32])
}
