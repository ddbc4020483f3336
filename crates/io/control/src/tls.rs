//! TLS as Longhaul uses it (docs/protocol.md section 2.1): version 1.3, a self-signed certificate
//! that nobody trusts, no resumption. The token authenticates, bound by the exporter.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use longhaul_session::SessionSecret;
use longhaul_wire::Cipher;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error,
    ServerConfig, ServerConnection, SignatureScheme, SupportedCipherSuite,
};

/// Purpose of a TLS connection: its ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The control connection.
    Control,
    /// A connection of the TCP carrier (docs/protocol.md section 8).
    Data,
}

impl Purpose {
    const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Control => b"longhaul/1",
            Self::Data => b"longhaul/1 data",
        }
    }

    /// Purpose that the handshake agreed on; `None` for a peer that named no protocol.
    pub fn of(tls: &Connection) -> Option<Self> {
        let alpn = tls.alpn_protocol()?;
        [Self::Control, Self::Data].into_iter().find(|purpose| purpose.alpn() == alpn)
    }
}

/// The certificate of the server that has proven on the control connection that it holds the
/// token. Its connections of the TCP carrier must show the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity(CertificateDer<'static>);

impl ServerIdentity {
    /// Of the server at the other end of `tls`, once its handshake is over.
    pub fn of(tls: &Connection) -> Option<Self> {
        Some(Self(tls.peer_certificates()?.first()?.clone()))
    }
}

/// The client's end of a TLS connection with the server at `address`, which has to be `expected`
/// if that is known already.
pub fn client(
    address: IpAddr,
    purpose: Purpose,
    expected: Option<ServerIdentity>,
) -> Result<Connection, Error> {
    client_with(address, vec![purpose.alpn().to_vec()], expected)
}

/// The client's end of a connection that carries data, sealed by `cipher`.
pub fn data_client(
    address: IpAddr,
    expected: &ServerIdentity,
    cipher: Cipher,
) -> Result<Connection, Error> {
    let alpn = vec![Purpose::Data.alpn().to_vec()];
    let suite = match cipher {
        Cipher::Aes128Gcm => TLS13_AES_128_GCM_SHA256,
        Cipher::ChaCha20Poly1305 => TLS13_CHACHA20_POLY1305_SHA256,
    };
    connection(address, alpn, Some(expected.clone()), vec![suite])
}

/// As [`client`], under any ALPN.
pub(super) fn client_with(
    address: IpAddr,
    alpn: Vec<Vec<u8>>,
    expected: Option<ServerIdentity>,
) -> Result<Connection, Error> {
    connection(address, alpn, expected, SUITES.to_vec())
}

fn connection(
    address: IpAddr,
    alpn: Vec<Vec<u8>>,
    expected: Option<ServerIdentity>,
    suites: Vec<SupportedCipherSuite>,
) -> Result<Connection, Error> {
    let provider = provider(suites);
    let verifier = Verifier { expected, provider: Arc::clone(&provider) };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = alpn;
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    let name = ServerName::IpAddress(address.into());
    Ok(ClientConnection::new(Arc::new(config), name)?.into())
}

/// The server's end of TLS connections, under one certificate made for it.
#[derive(Debug)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// With a key and a certificate of this process alone.
    ///
    /// # Errors
    /// The cryptographic library has none.
    pub fn new() -> io::Result<Self> {
        let key = rcgen::KeyPair::generate().map_err(io::Error::other)?;
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let certificate = params.self_signed(&key).map_err(io::Error::other)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider(SUITES.to_vec()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .map_err(io::Error::other)?;
        config.alpn_protocols =
            [Purpose::Control, Purpose::Data].map(|purpose| purpose.alpn().to_vec()).into();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// The state of one connection.
    ///
    /// # Errors
    /// That of the library.
    pub fn connection(&self) -> Result<Connection, Error> {
        Ok(ServerConnection::new(Arc::clone(&self.0))?.into())
    }
}

/// The session secret of an established connection.
pub fn session_secret(tls: &Connection) -> Result<SessionSecret, Error> {
    let secret = [0; 32];
    let exported = tls.export_keying_material(secret, SessionSecret::EXPORTER_LABEL, None)?;
    Ok(SessionSecret::new(exported))
}

fn provider(suites: Vec<SupportedCipherSuite>) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { cipher_suites: suites, ..aws_lc_rs::default_provider() })
}

/// Takes any certificate, or the expected one, whose key signed the handshake: who holds the key is
/// proven by the token.
#[derive(Debug)]
struct Verifier {
    expected: Option<ServerIdentity>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.expected {
            Some(expected) if expected.0 != *end_entity => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Those that Longhaul's own packets use.
const SUITES: [SupportedCipherSuite; 2] =
    [TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256];
