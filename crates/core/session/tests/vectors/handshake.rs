//! Token, proofs and transcripts (docs/protocol.md section 2).

use std::num::NonZeroU32;

use longhaul_session::{
    ClientConfig, ClientHandshake, ClientProgress, HandshakeError, Keyring, ServerConfig,
    ServerHandshake, ServerProgress, Session, Token,
};
use longhaul_units::{Bytes, Instant, Rate};
use longhaul_wire::{CONTROL_HEADER_LEN, ControlMessage, Hello, ReceiveLimits, Welcome};

use crate::page::Page;
use crate::{secret, token};

/// Writes the section; returns the client's session.
pub fn write(page: &mut Page) -> Session {
    page.section("Token (2.3)", "");
    let random: [u8; 16] = std::array::from_fn(|i| i as u8);
    page.bytes("random bytes", random);
    page.bytes("checksum", &blake3::derive_key("longhaul/1 token checksum", &random)[..4]);
    page.value("token", token());
    page.bytes("key id", token().key().id().0);
    page.bytes("verifier", blake3::derive_key("longhaul/1 token verifier", &random));

    let limits = |socket_buffer, credit| {
        let (socket_buffer, credit) = (Bytes::from_mib(socket_buffer), Bytes::from_mib(credit));
        Some(ReceiveLimits { socket_buffer, credit })
    };
    let config = ClientConfig {
        lanes: 4,
        implementation: Some("longhaul 0.1.0".into()),
        receive_limits: limits(8, 64),
        profile: Some("auto".into()),
        rate: Some(Rate::from_mbps(1600)),
        ..ClientConfig::default()
    };
    let (client, hello) = ClientHandshake::new(&config, &token().key(), secret(), Instant::ZERO);
    let config = ServerConfig {
        udp_port: Some(7420),
        max_lanes: 2,
        implementation: Some("longhaul 0.1.0".into()),
        receive_limits: limits(4, 128),
        ..ServerConfig::default()
    };
    let keyring: Keyring = [&token()].into_iter().collect();
    let server = ServerHandshake::new(config.clone(), secret(), Instant::ZERO);
    let Ok(ServerProgress::Verified(verified)) = server.handle(&hello, &keyring) else {
        panic!("HELLO is good");
    };
    let (_, welcome) = verified.accept(NonZeroU32::new(0x0102_0304).unwrap());
    let Ok(ClientProgress::Done(session)) = client.handle(&welcome) else {
        panic!("WELCOME is good");
    };

    page.section(
        "Handshake (2.2 to 2.4)",
        "A transcript of the control connection, inside TLS. The client wishes 4 lanes, AES-128-GCM\n\
         before ChaCha20-Poly1305, `aead`, and no more than 1.6 Gb/s; the server grants 2 lanes and AES-128-GCM.",
    );
    page.bytes("session secret", exported());
    let decoded = Hello::decode(&hello[CONTROL_HEADER_LEN..]).unwrap();
    page.bytes("client's proof", decoded.proof);
    page.bytes("HELLO", &hello);
    let decoded = Welcome::decode(&welcome[CONTROL_HEADER_LEN..]).unwrap();
    page.bytes("server's proof", decoded.proof);
    page.bytes("WELCOME", &welcome);
    let mut ping = Vec::new();
    ControlMessage::Ping(*b"12345678").encode(&mut ping).unwrap();
    page.bytes("PING", ping);
    let mut pong = Vec::new();
    ControlMessage::Pong(*b"12345678").encode(&mut pong).unwrap();
    page.bytes("PONG", pong);

    page.part(
        "Refused handshakes",
        "A server that does not know the token, one that is asked for no version it speaks, and\n\
         one that meets an unknown critical option (type 16383, one byte) answer these HELLOs.",
    );
    let (_, stranger) = ClientHandshake::new(
        &ClientConfig::default(),
        &Token::from_random([0xff; 16]).key(),
        secret(),
        Instant::ZERO,
    );
    let newer = Hello { versions: vec![2], ..hello_of(&hello) }.encode();
    let unknown = [&hello[CONTROL_HEADER_LEN..], &[0xbf, 0xff, 0, 1, 7]].concat();
    let refused = [
        ("unknown token", stranger),
        ("version 2", framed(&newer)),
        ("critical option", framed(&unknown)),
    ];
    for (name, hello) in refused {
        let server = ServerHandshake::new(config.clone(), secret(), Instant::ZERO);
        let error: HandshakeError = server.handle(&hello, &keyring).unwrap_err();
        page.value("case", name);
        page.bytes("HELLO", &hello);
        page.bytes("CLOSE", error.close_message());
    }
    session
}

fn exported() -> [u8; 32] {
    std::array::from_fn(|i| 0x20 + i as u8)
}

fn hello_of(message: &[u8]) -> Hello {
    Hello::decode(&message[CONTROL_HEADER_LEN..]).unwrap()
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    ControlMessage::Hello(body).encode(&mut out).unwrap();
    out
}
