//! The PROXY protocol, version 2, against its specification.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use std::net::SocketAddr;

use longhaul_relay::proxy::{MAX_PROXY_HEADER, ProxyHeader, decode, encode};
use proptest::prelude::*;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_header_is_as_the_specification_has_it() {
    let header = encode(at("192.0.2.1:1234"), at("198.51.100.2:443"));
    let expected =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc6\x33\x64\x02\x04\xd2\x01\xbb";
    assert_eq!(header, expected);
    let client = Some(at("192.0.2.1:1234"));
    assert_eq!(decode(&header), Ok(Some(ProxyHeader { client, length: 28 })));
    // Two families are written as one.
    let header = encode(at("192.0.2.1:1234"), at("[2001:db8::1]:443"));
    assert_eq!((header.len(), header[13]), (52, 0x21));
    assert_eq!(decode(&header), Ok(Some(ProxyHeader { client, length: 52 })));
}

#[test]
fn extensions_are_passed_over_and_a_check_of_the_proxys_own_has_no_client() {
    let mut header = encode(at("[2001:db8::7]:1"), at("[2001:db8::1]:443"));
    header[15] += 5;
    header.extend_from_slice(b"\x04\0\x02xy");
    let client = Some(at("[2001:db8::7]:1"));
    assert_eq!(decode(&header), Ok(Some(ProxyHeader { client, length: 57 })));
    header[12] = 0x20;
    assert_eq!(decode(&header), Ok(Some(ProxyHeader { client: None, length: 57 })));
}

#[test]
fn what_is_no_header_of_tcp_is_refused() {
    let header = encode(at("192.0.2.1:1234"), at("198.51.100.2:443"));
    for (index, value) in
        [(0, b'G'), (11, 0), (12, 0x11), (12, 0x22), (13, 0x12), (13, 0), (14, 4), (15, 11)]
    {
        let mut bad = header.clone();
        bad[index] = value;
        assert!(decode(&bad).is_err(), "byte {index} is {value}");
    }
    for len in 0..header.len() {
        assert_eq!(decode(&header[..len]), Ok(None));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_wait_for_ever(tail in any::<Vec<u8>>(), len in any::<u16>()) {
        let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend_from_slice(&tail);
        if let Ok(Some(header)) = decode(&bytes) {
            prop_assert!(header.length <= bytes.len());
        }
        bytes.resize(MAX_PROXY_HEADER, 0);
        prop_assert!(decode(&bytes) != Ok(None));
        let _ = decode(&tail);
    }
}
