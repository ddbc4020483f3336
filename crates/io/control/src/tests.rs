//! Both ends on loopback, and everything that may stand between them or in their place.

mod middle;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use longhaul_session::{ClientConfig, HandshakeError, ServerConfig, Session, Token};
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_units::LaneId;
use longhaul_wire::{
    Carrier, Cipher, CloseCode, ConnectionId, ControlMessage, Hello, Protect, Welcome,
};
use socket2::{Domain, Socket, Type};

use super::tls::{self, Purpose, ServerTls};
use super::tls_stream::{TlsStream, TlsStreamError, Until};
use super::tunnel::{Arrival, Tunnel};
use super::*;

#[test]
fn both_ends_agree_and_a_close_arrives() {
    let server = Server::start(server_config());
    let dialed = server.dial(&token()).unwrap();
    let (at_server, control) = server.welcomed();
    assert_eq!(dialed.session.connection, at_server.connection);
    assert_eq!((dialed.session.lanes, dialed.session.udp_port), (1, Some(7)));
    assert!(at_server.verify_join(&dialed.session.join(LaneId(0))), "the secrets are equal");
    assert_eq!(dialed.server, server.address);
    assert_eq!(dialed.local, server.address.ip());
    assert!(dialed.rtt > Duration::ZERO);
    assert_eq!((dialed.control.ended(), control.ended()), (None, None));

    dialed.control.close(CloseCode::DONE, "all done");
    dialed.control.close(CloseCode::INTERNAL, "too late");
    let end =
        |by_peer| ControlEnd::Closed { code: CloseCode::DONE, reason: "all done".into(), by_peer };
    assert_eq!(wait_end(&control), end(true));
    assert_eq!(wait_end(&dialed.control), end(false));
}

#[test]
fn a_dropped_end_says_so() {
    let server = Server::start(server_config());
    let dialed = server.dial(&token()).unwrap();
    let (_, control) = server.welcomed();
    drop(control);
    let ControlEnd::Closed { code, by_peer, .. } = wait_end(&dialed.control) else { panic!() };
    assert_eq!((code, by_peer), (CloseCode::INTERNAL, true));
}

#[test]
fn strangers_do_not_keep_an_honest_client_out() {
    let server = Server::start(server_config());
    let mut strangers = Vec::new();
    for i in 0..60usize {
        let mut stranger = TcpStream::connect(server.address).unwrap();
        let sent: &[u8] = match i % 5 {
            0 => b"",
            1 => b"\x16\x03\x01\x02\x00\x01",
            2 => b"LHD1",
            3 => b"GET / HTTP/1.0\r\n\r\n",
            _ => &[0xff; 4000],
        };
        stranger.write_all(sent).unwrap();
        strangers.push(stranger);
    }
    let dialed = server.dial(&token()).unwrap();
    let (session, control) = server.outcomes.iter().find_map(Outcome::welcomed).unwrap();
    assert!(session.verify_join(&dialed.session.join(LaneId(0))));
    drop(strangers);
    assert_eq!((dialed.control.ended(), control.ended()), (None, None));
}

#[test]
fn many_clients_at_once() {
    let server = Server::start(ServerConfig::default());
    let address = server.address;
    thread::scope(|scope| {
        let dial = || dial_at(address, &token(), &client_config());
        let dials: Vec<_> = (0..12).map(|_| scope.spawn(dial)).collect();
        let mut seen: Vec<_> = dials
            .into_iter()
            .map(|dial| dial.join().unwrap().unwrap().session.connection)
            .collect();
        seen.sort_by_key(|connection| connection.0);
        seen.dedup();
        assert_eq!(seen.len(), 12);
    });
}

#[test]
fn a_wrong_token_is_refused() {
    let server = Server::start(server_config());
    let error = server.dial(&Token::from_random([9; 16])).unwrap_err();
    assert!(matches!(error, ConnectError::Unauthorized { .. }), "{error:?}");
    let error = server.error();
    assert!(matches!(error, AcceptError::Handshake(HandshakeError::Unauthorized)), "{error:?}");
}

#[test]
fn a_busy_server_says_why() {
    let server = Server::start_with(server_config(), |client| {
        client.refuse(CloseCode::BUSY, "as many as\nI can take");
        Outcome::Refused
    });
    let error = server.dial(&token()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ConnectError::Refused { code: CloseCode::BUSY, .. }), "{error:?}");
    assert!(text.ends_with("turned us away: busy (as many as\\nI can take)"), "{text}");
}

#[test]
fn a_man_in_the_middle_fails_at_both_ends() {
    let server = Server::start(server_config());
    let (middle, address) = listen();
    let behind = server.address;
    let relay = thread::spawn(move || {
        let mut near = tls_server(&middle);
        let stream = TcpStream::connect(behind).unwrap();
        let tls = tls::client(behind.ip(), Purpose::Control, None).unwrap();
        let mut far = TlsStream::new(tls, stream).unwrap();
        far.handshake(soon(&Stop::default())).unwrap();
        // HELLO one way, whatever comes back the other.
        let hello = read_message(&mut near).unwrap();
        far.write_all(&hello, soon(&Stop::default())).unwrap();
        let answer = read_message(&mut far).unwrap();
        near.finish(&answer);
    });
    let error = dial_at(address, &token(), &client_config()).unwrap_err();
    assert!(matches!(error, ConnectError::Unauthorized { .. }), "{error:?}");
    let error = server.error();
    assert!(matches!(error, AcceptError::Handshake(HandshakeError::Unauthorized)), "{error:?}");
    relay.join().unwrap();
}

#[test]
fn a_server_without_the_token_cannot_welcome() {
    let error = dial_answered(|near| {
        read_message(near).unwrap();
        let welcome = Welcome {
            proof: [7; 32],
            protect: Protect::Aead,
            cipher: Cipher::Aes128Gcm,
            carrier: Carrier::Udp,
            lanes: 1,
            connection: ConnectionId(1),
            udp_port: Some(7420),
            implementation: None,
            receive_limits: None,
        };
        message(ControlMessage::Welcome(&welcome.encode()))
    });
    assert!(matches!(error, ConnectError::Impostor { .. }), "{error:?}");
}

#[test]
fn other_versions_are_named() {
    let error = dial_answered(|near| {
        read_message(near).unwrap();
        message(ControlMessage::Close { code: CloseCode::UNSUPPORTED_VERSION, reason: "" })
    });
    assert!(matches!(error, ConnectError::Version { .. }), "{error:?}");

    let server = Server::start(server_config());
    let mut pipe = server.tls_client();
    let hello = Hello {
        versions: vec![9],
        key_id: [0; 8],
        proof: [0; 32],
        protect: Protect::Aead,
        ciphers: vec![Cipher::Aes128Gcm],
        carrier: Carrier::Udp,
        lanes: 1,
        implementation: None,
        receive_limits: None,
        profile: None,
        rate: None,
        parameters: None,
    };
    let stop = Stop::default();
    pipe.write_all(&message(ControlMessage::Hello(&hello.encode())), soon(&stop)).unwrap();
    let answer = read_message(&mut pipe).unwrap();
    let (answer, _) = ControlMessage::parse(&answer).unwrap().unwrap();
    let ControlMessage::Close { code, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(code, CloseCode::UNSUPPORTED_VERSION);
}

#[test]
fn a_server_that_talks_nonsense_is_no_longhaul() {
    for talk in [&b"SSH-2.0-OpenSSH_9.9\r\n"[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", &[0; 99]] {
        let (listener, address) = listen();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(talk).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let error = dial_at(address, &token(), &client_config()).unwrap_err();
        assert!(matches!(error, ConnectError::NotLonghaul { .. }), "{error:?}");
        server.join().unwrap();
    }
    let error = dial_answered(|_| b"\xff nonsense behind TLS".to_vec());
    assert!(
        matches!(error, ConnectError::Handshake { error: HandshakeError::Misbehaved(_), .. }),
        "{error:?}"
    );
}

#[test]
fn a_client_that_talks_nonsense_is_turned_away() {
    for talk in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"SSH-2.0-PuTTY\r\n",
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\x16\x03\x01\xff\xff\x01\xff\xff\xff",
        b"LHD2000000000000000000000000000000000000000000000000",
        b"LHD1\x00\x00\x00\x01\x00\x00\x00\x01joinwithunknownflagsnnnnnnnnnnnnnnnnnnnn",
        &[0; 100],
    ] {
        let server = Server::start(server_config());
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(talk).unwrap();
        // It may have been cut off already.
        let _ = stream.shutdown(Shutdown::Write);
        let error = server.error();
        assert!(matches!(error, AcceptError::NotLonghaul(_)), "{talk:?}: {error:?}");
    }
}

#[test]
fn tls_without_our_protocol_is_turned_away() {
    for alpn in [vec![], vec![b"h2".to_vec()]] {
        let server = Server::start(server_config());
        let stream = TcpStream::connect(server.address).unwrap();
        let tls = tls::client_with(server.address.ip(), alpn, None).unwrap();
        let mut pipe = TlsStream::new(tls, stream).unwrap();
        let stop = Stop::default();
        let _ = pipe.handshake(soon(&stop)).and_then(|()| pipe.read(&mut [0], soon(&stop)));
        let error = server.error();
        assert!(matches!(error, AcceptError::NotLonghaul(_)), "{error:?}");
    }
}

#[test]
fn silence_is_cut_off_at_every_step() {
    let impatient = |ms| ServerConfig { timeout: Duration::from_millis(ms), ..server_config() };
    for sent in [&b""[..], b"\x16\x03\x01\x02\x00", b"LHD1\x00"] {
        let server = Server::start(impatient(150));
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(sent).unwrap();
        let error = server.error();
        assert!(matches!(error, AcceptError::TimedOut), "{sent:?}: {error:?}");
    }
    // Time enough for the part of the handshake that is not kept from it.
    let server = Server::start(impatient(5000));
    let mut pipe = server.tls_client();
    pipe.write_all(&[1, 0, 0x40], soon(&Stop::default())).unwrap();
    let answer = read_message(&mut pipe).unwrap();
    let (answer, _) = ControlMessage::parse(&answer).unwrap().unwrap();
    assert!(matches!(answer, ControlMessage::Close { code: CloseCode::TIMEOUT, .. }), "{answer:?}");
    let error = server.error();
    assert!(matches!(error, AcceptError::Handshake(HandshakeError::TimedOut)), "{error:?}");
}

#[test]
fn a_byte_now_and_then_buys_no_time() {
    let server =
        Server::start(ServerConfig { timeout: Duration::from_millis(150), ..server_config() });
    let mut stream = TcpStream::connect(server.address).unwrap();
    // A record that would take minutes to arrive.
    stream.write_all(b"\x16\x03\x01\x40\x00").unwrap();
    while stream.write_all(&[1]).is_ok() {
        thread::sleep(Duration::from_millis(5));
    }
    let error = server.error();
    assert!(matches!(error, AcceptError::TimedOut), "{error:?}");
}

#[test]
fn a_silent_server_is_given_up() {
    let (_listener, address) = listen();
    let config = ClientConfig { timeout: Duration::from_millis(150), ..client_config() };
    let error = dial_at(address, &token(), &config).unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error:?}");
}

#[test]
fn a_stop_ends_every_wait() {
    let stop = Stop::default();
    stop.request();
    let (_listener, address) = listen();
    let host = address.ip().to_string();
    let remote = remote(&host, address);
    let dialed = dial(&remote, &token(), &client_config(), IDLE, &stop);
    assert!(matches!(dialed.unwrap_err(), ConnectError::Stopped));

    let acceptor = Acceptor::new(server_config(), stop).unwrap();
    let (listener, address) = listen();
    let _client = TcpStream::connect(address).unwrap();
    let (stream, from) = listener.accept().unwrap();
    let error =
        acceptor.accept(stream, from, &[&token()].into_iter().collect(), |_| {}).unwrap_err();
    assert!(matches!(error, AcceptError::Stopped), "{error:?}");
}

#[test]
fn names_and_ports_that_lead_nowhere() {
    let remote = Remote {
        host: "no such host",
        others: &[],
        port: 7420,
        via: None,
        tunnel: None,
        only_tunnel: false,
    };
    let nowhere = dial(&remote, &token(), &client_config(), IDLE, &Stop::default());
    let error = nowhere.unwrap_err();
    assert!(matches!(error, ConnectError::Unresolvable { .. }), "{error:?}");
    assert!(error.to_string().starts_with("cannot find the host no such host"), "{error}");

    let (_held, closed) = closed_port();
    let error = dial_at(closed, &token(), &client_config()).unwrap_err();
    let text = format!("cannot connect to {closed}: nothing listens there");
    assert_eq!(error.to_string(), text);
}

#[test]
fn the_next_address_is_tried() {
    let (_listener, good) = listen();
    let (_held, closed) = closed_port();
    let addresses = [closed, good];
    let connected = resolve::connect(&addresses, Duration::from_secs(5), &Stop::default()).unwrap();
    assert_eq!(connected.server, good);
}

#[test]
fn ping_is_asked_and_answered() {
    let server = Server::start_with(server_config(), |client| {
        let (session, control) = client.welcome(NonZeroU32::MIN, Duration::from_secs(4)).unwrap();
        Outcome::Welcomed(session, control)
    });
    let mut pipe = server.tls_client();
    let stop = Stop::default();
    hello_and_welcome(&mut pipe);
    let (_, control) = server.welcomed();
    pipe.write_all(&message(ControlMessage::Ping(*b"liveness")), soon(&stop)).unwrap();
    assert_eq!(read_message(&mut pipe).unwrap(), message(ControlMessage::Pong(*b"liveness")));
    // And in silence the server asks.
    let ping = read_message(&mut pipe).unwrap();
    let (ping, _) = ControlMessage::parse(&ping).unwrap().unwrap();
    let ControlMessage::Ping(bytes) = ping else { panic!("{ping:?}") };
    pipe.write_all(&message(ControlMessage::Pong(bytes)), soon(&stop)).unwrap();
    assert_eq!(control.ended(), None);
}

#[test]
fn a_vanished_peer_is_given_up_unless_its_packets_arrive_elsewhere() {
    let server = Server::start_with(server_config(), |client| {
        let (session, control) = client.welcome(NonZeroU32::MIN, Duration::from_secs(3)).unwrap();
        control.note_received(clock::now() + Duration::from_secs(3600));
        Outcome::Welcomed(session, control)
    });
    let mut pipe = server.tls_client();
    let session = hello_and_welcome(&mut pipe);
    let (_, kept) = server.welcomed();
    assert_eq!(session.lanes, 1);

    // The other end of the pipe says nothing any more.
    let lone = Server::start_with(server_config(), |client| {
        let (session, control) = client.welcome(NonZeroU32::MIN, Duration::from_secs(3)).unwrap();
        Outcome::Welcomed(session, control)
    });
    let mut silent = lone.tls_client();
    hello_and_welcome(&mut silent);
    let (_, control) = lone.welcomed();
    let reason = "nothing was heard from the peer for 3 s";
    assert_eq!(wait_end(&control), ControlEnd::Lost(reason.into()));
    assert_eq!(kept.ended(), None);
}

#[test]
fn a_lost_connection_is_reported() {
    let server = Server::start(server_config());
    let mut pipe = server.tls_client();
    hello_and_welcome(&mut pipe);
    let (_, control) = server.welcomed();
    drop(pipe);
    assert!(matches!(wait_end(&control), ControlEnd::Lost(_)));
    // A late request is answered at once.
    let (tell, reports) = mpsc::channel();
    control.on_end(move |end| tell.send(end.clone()).unwrap());
    assert!(matches!(reports.try_recv().unwrap(), ControlEnd::Lost(_)));
}

#[test]
fn messages_out_of_place_close_the_connection() {
    for talk in [message(ControlMessage::Hello(b"")), vec![99], vec![4, 0, 0, 9]] {
        let server = Server::start(server_config());
        let mut pipe = server.tls_client();
        hello_and_welcome(&mut pipe);
        let (_, control) = server.welcomed();
        pipe.write_all(&talk, soon(&Stop::default())).unwrap();
        let answer = read_message(&mut pipe).unwrap();
        let (answer, _) = ControlMessage::parse(&answer).unwrap().unwrap();
        let ControlMessage::Close { code, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(code, CloseCode::PROTOCOL_VIOLATION);
        assert!(matches!(wait_end(&control), ControlEnd::Closed { by_peer: false, .. }));
    }
}

#[test]
fn only_the_server_of_the_control_connection_may_carry_data() {
    let (one, other) = (Server::start(server_config()), Server::start(server_config()));
    let identity = one.dial(&token()).unwrap().identity;
    for (server, good) in [(&one, true), (&other, false)] {
        let tls = tls::client(server.address.ip(), Purpose::Data, Some(identity.clone())).unwrap();
        let mut pipe = TlsStream::new(tls, TcpStream::connect(server.address).unwrap()).unwrap();
        let shaken = pipe.handshake(soon(&Stop::default()));
        assert_eq!(shaken.is_ok(), good, "{shaken:?}");
    }
}

/// End of a connection that a [`Server`] accepted.
#[derive(Debug)]
enum Outcome {
    Welcomed(Session, Control),
    Refused,
    Failed(AcceptError),
}

impl Outcome {
    fn welcomed(self) -> Option<(Session, Control)> {
        match self {
            Self::Welcomed(session, control) => Some((session, control)),
            _ => None,
        }
    }
}

/// Accepts connections for ever, each on a thread.
struct Server {
    address: SocketAddr,
    outcomes: mpsc::Receiver<Outcome>,
}

impl Server {
    fn start(config: ServerConfig) -> Self {
        let next = AtomicUsize::new(1);
        Self::start_with(config, move |client| {
            let number = NonZeroU32::new(next.fetch_add(1, Ordering::SeqCst) as u32).unwrap();
            let (session, control) = client.welcome(number, IDLE).unwrap();
            Outcome::Welcomed(session, control)
        })
    }

    fn start_with(
        config: ServerConfig,
        serve: impl Fn(PendingClient) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        let config = ServerConfig { udp_port: Some(7), ..config };
        let acceptor = Acceptor::new(config, Stop::default()).unwrap();
        let shared = Arc::new((acceptor, serve));
        let (listener, address) = listen();
        let (tell, outcomes) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, tell) = (Arc::clone(&shared), tell.clone());
                thread::spawn(move || {
                    let (acceptor, serve) = &*shared;
                    let stream = stream.unwrap();
                    let from = stream.peer_addr().unwrap();
                    let outcome = match acceptor.accept(
                        stream,
                        from,
                        &[&token()].into_iter().collect(),
                        |_| {},
                    ) {
                        Ok(Accepted::Client(client)) => serve(*client),
                        Ok(Accepted::Data(_)) => Outcome::Refused,
                        Err(error) => Outcome::Failed(error),
                    };
                    let _ = tell.send(outcome);
                });
            }
        });
        Self { address, outcomes }
    }

    fn outcome(&self) -> Outcome {
        self.outcomes.recv_timeout(PATIENCE).unwrap()
    }

    fn welcomed(&self) -> (Session, Control) {
        match self.outcome() {
            Outcome::Welcomed(session, control) => (session, control),
            other => panic!("{other:?}"),
        }
    }

    fn error(&self) -> AcceptError {
        match self.outcome() {
            Outcome::Failed(error) => error,
            other => panic!("{other:?}"),
        }
    }

    fn dial(&self, token: &Token) -> Result<Dialed, ConnectError> {
        dial_at(self.address, token, &client_config())
    }

    /// A client that is TLS and nothing more.
    fn tls_client(&self) -> TlsStream {
        let tls = tls::client(self.address.ip(), Purpose::Control, None).unwrap();
        let mut pipe = TlsStream::new(tls, TcpStream::connect(self.address).unwrap()).unwrap();
        pipe.handshake(soon(&Stop::default())).unwrap();
        pipe
    }
}

/// Dials a server that answers with `answer` and hangs up.
fn dial_answered(answer: impl FnOnce(&mut TlsStream) -> Vec<u8> + Send + 'static) -> ConnectError {
    let (listener, address) = listen();
    let server = thread::spawn(move || {
        let mut near = tls_server(&listener);
        let bytes = answer(&mut near);
        near.finish(&bytes);
    });
    let error = dial_at(address, &token(), &client_config()).unwrap_err();
    server.join().unwrap();
    error
}

#[test]
fn the_tunnel_is_taken_where_another_answers_or_nobody_does() {
    let (_held, closed) = closed_port();
    let (silent, silent_address) = listen();
    let (deaf, deaf_address) = listen();
    // It accepts, and hangs up.
    thread::spawn(move || deaf.incoming().for_each(drop));
    for address in [closed, silent_address, deaf_address] {
        let server = Server::start(server_config());
        let behind = server.address;
        let ((there, to_there), (here, to_here)) =
            (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let arrived = move |arrival| {
            let Arrival::Connection(stream) = arrival else { return };
            let on = TcpStream::connect(behind).unwrap();
            for (mut from, mut to) in
                [(stream.try_clone().unwrap(), on.try_clone().unwrap()), (on, stream)]
            {
                thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        };
        let _far = Tunnel::server(there.into(), to_here.into(), arrived, || {}).unwrap();
        let near = Arc::new(Tunnel::client(here.into(), to_there.into()).unwrap());
        let host = address.ip().to_string();
        let (port, tunnel) = (address.port(), Some(&near));
        let remote =
            Remote { host: &host, others: &[], port, via: None, tunnel, only_tunnel: false };
        let config = ClientConfig { lanes: 9, ..client_config() };
        let dialed = dial(&remote, &token(), &config, IDLE, &Stop::default()).unwrap();
        assert!(dialed.tunnel.is_some());
        assert_eq!((dialed.server, dialed.session.lanes), (address, 4));
        assert_eq!(dialed.local, address.ip());
    }
    drop(silent);
}

fn remote(host: &str, address: SocketAddr) -> Remote<'_> {
    let port = address.port();
    Remote { host, others: &[], port, via: None, tunnel: None, only_tunnel: false }
}

fn dial_at(
    address: SocketAddr,
    token: &Token,
    config: &ClientConfig,
) -> Result<Dialed, ConnectError> {
    let host = address.ip().to_string();
    let remote = remote(&host, address);
    dial(&remote, token, config, IDLE, &Stop::default())
}

/// The server's end of TLS on the next connection.
fn tls_server(listener: &TcpListener) -> TlsStream {
    let (stream, _) = listener.accept().unwrap();
    let mut pipe = TlsStream::new(ServerTls::new().unwrap().connection().unwrap(), stream).unwrap();
    pipe.handshake(soon(&Stop::default())).unwrap();
    pipe
}

/// Handshakes as a client, with nobody behind that would answer PING.
fn hello_and_welcome(pipe: &mut TlsStream) -> Session {
    let secret = tls::session_secret(&pipe.tls).unwrap();
    let stop = Stop::default();
    let session = dial::shake_hands(pipe, &token(), &client_config(), secret, soon(&stop));
    session.unwrap().unwrap()
}

fn read_message(pipe: &mut TlsStream) -> Result<Vec<u8>, TlsStreamError> {
    let stop = Stop::default();
    let mut bytes = Vec::new();
    loop {
        if let Ok(Some((_, len))) = ControlMessage::parse(&bytes) {
            assert_eq!(len, bytes.len());
            return Ok(bytes);
        }
        let mut byte = [0];
        pipe.read(&mut byte, soon(&stop))?;
        bytes.push(byte[0]);
    }
}

fn message(message: ControlMessage<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    bytes
}

fn wait_end(control: &Control) -> ControlEnd {
    let (tell, reports) = mpsc::channel();
    control.on_end(move |end| tell.send(end.clone()).unwrap());
    reports.recv_timeout(PATIENCE).unwrap()
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A port at which nothing listens, and which nobody else gets while the socket is held.
fn closed_port() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

fn token() -> Token {
    Token::from_random([1; 16])
}

fn client_config() -> ClientConfig {
    ClientConfig { timeout: PATIENCE, ..ClientConfig::default() }
}

fn server_config() -> ServerConfig {
    ServerConfig { timeout: PATIENCE, ..ServerConfig::default() }
}

fn soon(stop: &Stop) -> Until<'_> {
    Until { deadline: clock::now() + PATIENCE, stop }
}

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(60);
