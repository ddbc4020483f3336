//! The PROXY protocol, version 2, by which a proxy says for whom it connects (HAProxy,
//! proxy-protocol.txt section 2.2), over TCP.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use longhaul_wire::{DecodeError, Reader};

/// Most bytes of a header that are read: extensions follow the addresses, and are passed over.
pub const MAX_PROXY_HEADER: usize = 1024;

/// A header that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client for whom the proxy connects; `None` where it connects for itself.
    pub client: Option<SocketAddr>,
    /// Its length: payload follows.
    pub length: usize,
}

/// The header of a connection for `client`, which has reached the proxy to go to `target`.
pub fn encode(client: SocketAddr, target: SocketAddr) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.push(VERSION | COMMAND_PROXY);
    match (client.ip().to_canonical(), target.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(target)) => {
            header.extend_from_slice(&[TCP_IPV4, 0, 12]);
            header.extend_from_slice(&client.octets());
            header.extend_from_slice(&target.octets());
        }
        (client, target) => {
            header.extend_from_slice(&[TCP_IPV6, 0, 36]);
            header.extend_from_slice(&mapped(client).octets());
            header.extend_from_slice(&mapped(target).octets());
        }
    }
    header.extend_from_slice(&client.port().to_be_bytes());
    header.extend_from_slice(&target.port().to_be_bytes());
    header
}

/// Reads the header at the beginning of `bytes`; `None` where more are needed.
///
/// # Errors
/// There is none, or it is not for TCP.
pub fn decode(bytes: &[u8]) -> Result<Option<ProxyHeader>, DecodeError> {
    let shared = bytes.len().min(SIGNATURE.len());
    if bytes[..shared] != SIGNATURE[..shared] {
        return Err(DecodeError::Invalid { what: WHAT });
    }
    let Some((fixed, rest)) = bytes.split_at_checked(FIXED_LEN) else { return Ok(None) };
    let mut r = Reader::new(&fixed[SIGNATURE.len()..], WHAT);
    let (command, family, length) = (r.u8()?, r.u8()?, usize::from(r.u16()?));
    if command & 0xf0 != VERSION || command & 0x0f > COMMAND_PROXY {
        return Err(DecodeError::Unsupported { what: WHAT });
    }
    if FIXED_LEN + length > MAX_PROXY_HEADER {
        return Err(DecodeError::Invalid { what: WHAT });
    }
    let Some(addresses) = rest.get(..length) else { return Ok(None) };
    let length = FIXED_LEN + length;
    if command & 0x0f == COMMAND_LOCAL {
        return Ok(Some(ProxyHeader { client: None, length }));
    }
    let mut r = Reader::new(addresses, WHAT);
    let client: IpAddr = match family {
        TCP_IPV4 => {
            let client = Ipv4Addr::from(r.array::<4>()?);
            r.array::<4>()?;
            client.into()
        }
        TCP_IPV6 => {
            let client = Ipv6Addr::from(r.array::<16>()?).to_canonical();
            r.array::<16>()?;
            client
        }
        _ => return Err(DecodeError::Unsupported { what: WHAT }),
    };
    let port = r.u16()?;
    r.u16()?;
    Ok(Some(ProxyHeader { client: Some(SocketAddr::new(client, port)), length }))
}

const fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

const WHAT: &str = "PROXY header";
/// The first byte is that of nothing else which a server of ours expects.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const FIXED_LEN: usize = SIGNATURE.len() + 4;
const VERSION: u8 = 0x20;
const COMMAND_LOCAL: u8 = 0;
const COMMAND_PROXY: u8 = 1;
const TCP_IPV4: u8 = 0x11;
const TCP_IPV6: u8 = 0x21;
