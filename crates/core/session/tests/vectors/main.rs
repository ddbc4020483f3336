//! Makes protocol-vectors.md, beside this file, and compares it with the page that is committed.
//!
//! `LONGHAUL_UPDATE_VECTORS=1 cargo test -p longhaul-session vectors` writes it again. A change of
//! the page is a change of the protocol.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

mod handshake;
mod messages;
mod packets;
mod page;

use longhaul_session::{SessionSecret, Token};
use page::Page;

const INTRODUCTION: &str = "\
# Test vectors of the Longhaul protocol, version 1

Inputs and the bytes that follow from them, for [`protocol.md`](../../../../../docs/protocol.md), whose sections the
headings name. Bytes are hexadecimal, 32 to the line. The page is made by a test of
`longhaul-session` (`cargo test -p longhaul-session vectors`), which fails when the code makes other
bytes.

Throughout, the token is made of the bytes 00 to 0f and the session secret is the bytes 20 to 3f.";

fn token() -> Token {
    Token::from_random(std::array::from_fn(|i| i as u8))
}

fn secret() -> SessionSecret {
    SessionSecret::new(std::array::from_fn(|i| 0x20 + i as u8))
}

#[test]
fn vectors_page_is_current() {
    let mut page = Page::new(INTRODUCTION);
    let session = handshake::write(&mut page);
    packets::write(&mut page, &session);
    messages::write(&mut page, &session);
    let made = page.finish();

    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/protocol-vectors.md");
    if std::env::var_os("LONGHAUL_UPDATE_VECTORS").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    for (i, (line, expected)) in made.lines().zip(committed.lines()).enumerate() {
        assert_eq!(line, expected, "line {} of protocol-vectors.md", i + 1);
    }
    assert_eq!(made, committed, "length of protocol-vectors.md");
}
