//! TLS as protocol.md 2.1 has it, of either end, for one thread that both reads and writes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};

pub const CONTROL: &[u8] = b"longhaul/1";
pub const DATA: &[u8] = b"longhaul/1 data";

/// A client's end that shakes hands step by step.
#[derive(Debug)]
pub struct Shaking(StreamOwned<ClientConnection, TcpStream>);

impl Shaking {
    /// Under `alpn`, with nothing sent yet.
    pub fn new(stream: TcpStream, alpn: &[u8]) -> io::Result<Self> {
        let provider = provider();
        let mut config = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        config.enable_sni = false;
        let IpAddr::V4(at) = stream.peer_addr()?.ip() else { unreachable!("loopback") };
        let name = ServerName::IpAddress(IpAddr::V4(at).into());
        let tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        stream.set_read_timeout(Some(HANDSHAKE))?;
        Ok(Self(StreamOwned::new(tls, stream)))
    }

    /// Sends the ClientHello.
    pub fn greet(&mut self) -> io::Result<()> {
        while self.0.conn.wants_write() {
            self.0.conn.write_tls(&mut self.0.sock)?;
        }
        Ok(())
    }

    /// Does what is left, up to the Finished.
    pub fn secure(mut self) -> io::Result<Link> {
        while self.0.conn.is_handshaking() {
            self.0.conn.complete_io(&mut self.0.sock)?;
        }
        Ok(Link::Client(Box::new(self.0)))
    }
}

/// A connection, in TLS or bare.
#[derive(Debug)]
pub enum Link {
    Bare(TcpStream),
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    Server(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Link {
    /// The client's end under `alpn`, its handshake done.
    pub fn client(stream: TcpStream, alpn: &[u8]) -> io::Result<Self> {
        Shaking::new(stream, alpn)?.secure()
    }

    /// The server's end, its handshake done.
    pub fn server(stream: TcpStream, identity: &Identity) -> io::Result<Self> {
        stream.set_read_timeout(Some(HANDSHAKE))?;
        let tls = ServerConnection::new(identity.0.clone()).map_err(io::Error::other)?;
        let mut tls = StreamOwned::new(tls, stream);
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        Ok(Self::Server(Box::new(tls)))
    }

    /// The session secret.
    pub fn secret(&self) -> [u8; 32] {
        let label = b"EXPORTER-longhaul-1";
        match self {
            Self::Bare(_) => [0; 32],
            Self::Client(tls) => tls.conn.export_keying_material([0; 32], label, None).unwrap(),
            Self::Server(tls) => tls.conn.export_keying_material([0; 32], label, None).unwrap(),
        }
    }

    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Bare(socket) => socket,
            Self::Client(tls) => &tls.sock,
            Self::Server(tls) => &tls.sock,
        }
    }

    /// Bytes that have come within `patience`, perhaps none; `None` at the end.
    pub fn receive(&mut self, patience: Duration) -> Option<Vec<u8>> {
        self.socket().set_read_timeout(Some(patience)).ok()?;
        let mut bytes = vec![0; 70_000];
        match self.read(&mut bytes) {
            Ok(0) => None,
            Ok(len) => Some(bytes[..len].to_vec()),
            Err(error) if is_early(&error) => Some(Vec::new()),
            Err(_) => None,
        }
    }
}

impl Read for Link {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Bare(socket) => socket.read(into),
            Self::Client(tls) => tls.read(into),
            Self::Server(tls) => tls.read(into),
        }
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Bare(socket) => socket.write(bytes),
            Self::Client(tls) => tls.write(bytes),
            Self::Server(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Bare(socket) => socket.flush(),
            Self::Client(tls) => tls.flush(),
            Self::Server(tls) => tls.flush(),
        }
    }
}

pub fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// A server's certificate and key.
#[derive(Clone)]
pub struct Identity(Arc<ServerConfig>);

impl Identity {
    pub fn new() -> Self {
        Self::of(rcgen::CertificateParams::default()).0
    }

    /// One that vouches for itself at 127.0.0.1, and its certificate in PEM.
    pub fn of_loopback() -> (Self, String) {
        Self::of(rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).unwrap())
    }

    fn of(params: rcgen::CertificateParams) -> (Self, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![CONTROL.to_vec(), DATA.to_vec()];
        (Self(Arc::new(config)), pem(certificate.der()))
    }
}

/// A certificate as text (RFC 7468).
fn pem(der: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----");
    for (i, three) in der.chunks(3).enumerate() {
        let bits =
            three.iter().chain([&0; 2]).take(3).fold(0, |bits, byte| bits << 8 | u32::from(*byte));
        if i % 16 == 0 {
            text.push('\n');
        }
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize % 64];
            text.push(if place <= three.len() { letter.into() } else { '=' });
        }
    }
    text + "\n-----END CERTIFICATE-----\n"
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Believes every certificate.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

const HANDSHAKE: Duration = Duration::from_secs(10);
