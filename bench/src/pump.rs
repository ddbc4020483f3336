//! Kernel TCP from memory to memory, plain or with TLS 1.3 and a hash at both ends.
//!
//! `longhaul_lab::pump` divides bytes among connections across a testbed. Here it is one connection,
//! over loopback too, with or without TLS in the same code, and out of as much memory as all rows.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use longhaul_sys::clock::{self, CpuTime};
use longhaul_sys::memory::Pages;
use longhaul_sys::netns::Side;
use longhaul_sys::tcp::{self, TcpOptions};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use crate::link::Link;
use crate::samples::Sample;

/// One connection under `congestion_control`; `secure`: TLS 1.3 with AES-128-GCM, and BLAKE3 of
/// all data on both ends, compared.
pub(crate) fn pump(
    link: &Link,
    quick: bool,
    congestion_control: &str,
    secure: bool,
) -> io::Result<Sample> {
    let bytes: u64 = if quick { 1 << 30 } else { 4 << 30 };
    let mut options = TcpOptions::default();
    options.congestion_control = Some(congestion_control.to_owned());
    let tls = if secure { Some(Tls::new()?) } else { None };
    let (sent, received) = link.both(
        |to| {
            let memory = filled()?;
            let stream = TcpStream::connect(to)?;
            options.apply(&stream)?;
            let used = tcp::congestion_control(&stream)?;
            if used != congestion_control {
                return Err(io::Error::other(format!("the kernel used {used}")));
            }
            let (start, cpu) = (clock::now(), CpuTime::of_thread());
            let hash = match &tls {
                None => send(stream, &memory, bytes, false)?,
                Some(tls) => {
                    let connection = tls.client()?;
                    send(rustls::StreamOwned::new(connection, stream), &memory, bytes, true)?
                }
            };
            Ok((start, CpuTime::of_thread().since(cpu).total(), hash))
        },
        |ready| {
            let mut memory = Pages::new(MEMORY)?;
            memory.touch();
            let listener = TcpListener::bind(SocketAddr::new(link.address(Side::B), 0))?;
            ready(listener.local_addr()?);
            let (stream, _) = listener.accept()?;
            let cpu = CpuTime::of_thread();
            let hash = match &tls {
                None => receive(stream, &mut memory, bytes, false)?,
                Some(tls) => {
                    let connection = tls.server()?;
                    let stream = rustls::StreamOwned::new(connection, stream);
                    receive(stream, &mut memory, bytes, true)?
                }
            };
            Ok((clock::now(), CpuTime::of_thread().since(cpu).total(), hash))
        },
    )?;
    if sent.2 != received.2 {
        return Err(io::Error::other("the hashes differ"));
    }
    Ok(Sample {
        bytes,
        seconds: (received.0 - sent.0).as_secs_f64(),
        cpu_send: Some(sent.1.as_secs_f64()),
        cpu_receive: Some(received.1.as_secs_f64()),
        cpu_relay: None,
        note: None,
    })
}

fn filled() -> io::Result<Pages> {
    let mut memory = Pages::new(MEMORY)?;
    for (index, page) in memory.chunks_mut(4096).enumerate() {
        page[..8].copy_from_slice(&(index as u64).to_be_bytes());
    }
    Ok(memory)
}

/// Writes `bytes` bytes, then hears that the other end has them.
fn send(
    mut stream: impl Read + Write,
    memory: &[u8],
    bytes: u64,
    hashed: bool,
) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut left = bytes;
    for block in memory.chunks(BLOCK).cycle() {
        if left == 0 {
            break;
        }
        let block = &block[..block.len().min(left as usize)];
        if hashed {
            hasher.update(block);
        }
        stream.write_all(block)?;
        left -= block.len() as u64;
    }
    stream.flush()?;
    stream.read_exact(&mut [0])?;
    Ok(hasher.finalize())
}

fn receive(
    mut stream: impl Read + Write,
    memory: &mut [u8],
    bytes: u64,
    hashed: bool,
) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let (mut at, mut left) = (0, bytes);
    while left > 0 {
        let len = BLOCK.min(left as usize);
        let block = &mut memory[at..at + len];
        stream.read_exact(block)?;
        if hashed {
            hasher.update(block);
        }
        left -= len as u64;
        at = (at + len) % MEMORY;
    }
    stream.write_all(&[1])?;
    stream.flush()?;
    Ok(hasher.finalize())
}

/// Both ends of TLS 1.3 with a certificate made for the occasion.
struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    fn new() -> io::Result<Self> {
        let made =
            rcgen::generate_simple_self_signed(vec![NAME.into()]).map_err(io::Error::other)?;
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).map_err(io::Error::other)?;
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        // The cipher that Longhaul takes on this machine.
        provider
            .cipher_suites
            .retain(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
        let provider = Arc::new(provider);
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .map_err(io::Error::other)?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    fn client(&self) -> io::Result<ClientConnection> {
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let mut connection =
            ClientConnection::new(self.client.clone(), name).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(2 * BLOCK));
        Ok(connection)
    }

    fn server(&self) -> io::Result<ServerConnection> {
        ServerConnection::new(self.server.clone()).map_err(io::Error::other)
    }
}

const NAME: &str = "bench.invalid";
const MEMORY: usize = 1 << 30;
/// A call; what both BLAKE3 and TCP like.
const BLOCK: usize = 256 << 10;
