//! To a server through gateways (docs/relay.md), for control and data connections alike.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_relay::{
    ANSWER_TIMEOUT_SECS, Answer, Clock, ClockOffset, Dialled, Dialler, Hop, Host, MAX_MESSAGE,
    Place, Status,
};
use longhaul_session::TokenKey;
use longhaul_sys::clock::{self, WallTime};
use longhaul_sys::random;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_sys::wait::Interest;

use super::error::ConnectError;
use super::resolve::{Connected, connect, resolve};
use super::tls_stream::{TlsStreamError, Until};

/// Gateways between this host and a server.
#[derive(Clone, Debug)]
pub struct Via {
    /// The first one, which this host dials.
    pub first: Hop,
    /// Those beyond it, in order.
    pub rest: Vec<Hop>,
    /// Proves this host to the first.
    pub key: TokenKey,
    /// The first one's clock, as it has proven it to any connection.
    clock: Arc<Mutex<ClockOffset>>,
}

impl fmt::Display for Via {
    /// The gateways, with commas between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        self.rest.iter().try_for_each(|hop| write!(f, ",{hop}"))
    }
}

impl Via {
    /// Through `first` and then `rest`, by the token of `key`.
    pub fn new(first: Hop, rest: Vec<Hop>, key: TokenKey) -> Self {
        Self { first, rest, key, clock: Arc::default() }
    }

    /// The gateways, in order.
    pub fn hops(&self) -> impl Iterator<Item = &Hop> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Connects to `target`, whose name the last gateway resolves.
    pub fn connect(
        &self,
        target: &Place,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<Connected, ConnectError> {
        let answer = Duration::from_secs(ANSWER_TIMEOUT_SECS);
        self.connect_within(target, [timeout, answer], stop)
    }

    /// Why `port` of `host` cannot be connected to now, with the gateway that is at fault; `None` where
    /// it can be.
    pub fn fault(&self, host: &str, port: u16, stop: &Stop) -> Option<String> {
        let target = Place { host: Host::parse(host)?, port };
        let error = self.connect_within(&target, [FAULT_PATIENCE; 2], stop).err()?;
        Some(match error {
            ConnectError::GatewaySilent { .. } => {
                format!("gateway {} gives no answer now", self.first)
            }
            error => error.to_string(),
        })
    }

    /// The same, with the times for the first gateway to accept and to answer.
    fn connect_within(
        &self,
        target: &Place,
        times: [Duration; 2],
        stop: &Stop,
    ) -> Result<Connected, ConnectError> {
        let mut is_second = false;
        loop {
            match self.attempt(target, times, stop)? {
                Ok(connected) => return Ok(connected),
                Err(answer) => match answer.time {
                    Some(time)
                        if answer.status == Status::WRONG_CLOCK
                            && !is_second
                            && lock(&self.clock).believe(time, now()) =>
                    {
                        is_second = true;
                    }
                    _ => return Err(ConnectError::Gateway { words: answer.to_string() }),
                },
            }
        }
    }

    /// One try.
    fn attempt(
        &self,
        target: &Place,
        [timeout, answer]: [Duration; 2],
        stop: &Stop,
    ) -> Result<Result<Connected, Box<Answer>>, ConnectError> {
        let place = &self.first.place;
        let addresses = match place.address() {
            Some(address) => vec![address],
            None => resolve(&place.host.to_string(), place.port, stop)?,
        };
        let connected = connect(&addresses, timeout, stop).map_err(|error| match error {
            ConnectError::Unreachable { .. } => {
                ConnectError::Gateway { words: format!("gateway {}: {error}", self.first) }
            }
            error => error,
        });
        let Connected { stream, server: gateway, .. } = connected?;
        let clock = lock(&self.clock).at(now());
        let (dialler, header) = self.header(target, gateway, clock)?;
        // The gateways dial onward meanwhile, and say what they could not reach.
        let sent = clock::now();
        let until = Until { deadline: sent + answer, stop };
        exchange(&stream, dialler, &header, until)
            .map_err(|error| match error {
                Exchange::Waiting(TlsStreamError::Stopped) => ConnectError::Stopped,
                Exchange::Waiting(TlsStreamError::TimedOut) => {
                    ConnectError::GatewaySilent { gateway }
                }
                Exchange::Waiting(TlsStreamError::Io(error)) | Exchange::Io(error) => {
                    ConnectError::Lost { server: gateway, reason: error.to_string() }
                }
                Exchange::Waiting(error) => {
                    ConnectError::Lost { server: gateway, reason: error.to_string() }
                }
                Exchange::NotGateway(reason) => ConnectError::NotGateway { gateway, reason },
                Exchange::Stranger => ConnectError::GatewayUnauthorized { gateway },
            })
            .map(|outcome| {
                // The whole path's: the connection's is that of the first segment.
                let rtt = clock::now().since(sent);
                outcome.map(|server| Connected { stream, server, rtt })
            })
    }

    fn header(
        &self,
        target: &Place,
        gateway: SocketAddr,
        clock: Clock,
    ) -> Result<(Dialler, Vec<u8>), ConnectError> {
        let random = random::bytes().map_err(ConnectError::System)?;
        let (first, rest) = (&self.first, &self.rest[..]);
        Dialler::client(first, rest, target.clone(), gateway, &self.key, clock, random)
            .map_err(|error| ConnectError::System(io::Error::other(error)))
    }
}

/// Why header and answer were not exchanged.
enum Exchange {
    Waiting(TlsStreamError),
    Io(io::Error),
    NotGateway(String),
    /// It does not know the token.
    Stranger,
}

impl From<TlsStreamError> for Exchange {
    fn from(error: TlsStreamError) -> Self {
        Self::Waiting(error)
    }
}

/// Sends the header and reads the answer, and nothing beyond it.
fn exchange(
    mut stream: &TcpStream,
    mut dialler: Dialler,
    mut header: &[u8],
    until: Until<'_>,
) -> Result<Result<SocketAddr, Box<Answer>>, Exchange> {
    while !header.is_empty() {
        match stream.write(header) {
            Ok(written) => header = &header[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                until.wait(stream, Interest::Writable)?;
            }
            Err(error) => return Err(Exchange::Io(error)),
        }
    }
    let mut buffer = [0; MAX_MESSAGE];
    loop {
        let wanted = dialler.wanted().min(buffer.len());
        let len = match stream.read(&mut buffer[..wanted]) {
            Ok(0) => return Err(Exchange::Io(io::ErrorKind::UnexpectedEof.into())),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                until.wait(stream, Interest::Readable)?;
                continue;
            }
            Err(error) => return Err(Exchange::Io(error)),
        };
        let outcome = dialler.receive(&buffer[..len]);
        match outcome.map_err(|error| Exchange::NotGateway(error.to_string()))? {
            Dialled::Incomplete => {}
            Dialled::Connected { peer: Some(peer), .. } => return Ok(Ok(peer)),
            Dialled::Connected { peer: None, .. } => {
                let reason = "it does not say which address it reached".into();
                return Err(Exchange::NotGateway(reason));
            }
            Dialled::Refused(answer) => return Ok(Err(Box::new(answer))),
            Dialled::Unproven(answer) if answer.status == Status::UNAUTHORIZED => {
                return Err(Exchange::Stranger);
            }
            Dialled::Unproven(answer) => {
                let reason = format!("it proves no token, and answers {}", answer.status);
                return Err(Exchange::NotGateway(reason));
            }
        }
    }
}

/// Time for each step of [`Via::fault`]: where nothing listens any more the answer is there at once.
const FAULT_PATIENCE: Duration = Duration::from_secs(3);

fn now() -> Clock {
    Clock::from_micros(WallTime::now().as_nanos() / 1000)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use longhaul_relay::{Gatekeeper, Received};
    use longhaul_session::Token;

    use super::*;

    /// Answers the next client by this clock, and says whether it lets it in, when it has waited.
    fn answer(
        listener: &TcpListener,
        keeper: &mut Gatekeeper,
        clock: Clock,
        wait: impl Fn(),
    ) -> bool {
        let (mut stream, _) = listener.accept().unwrap();
        let place = Place::from(listener.local_addr().unwrap());
        let mut header = Vec::new();
        loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            header.push(byte[0]);
            match keeper.receive(&header, &place, clock) {
                Received::Incomplete => {}
                Received::Header(request) => {
                    wait();
                    let peer = Some("192.0.2.80:80".parse().unwrap());
                    let answer = Answer { peer, ..Answer::new(Status::CONNECTED, "gw") };
                    stream.write_all(&request.sign(&answer)).unwrap();
                    return true;
                }
                Received::Refused(refusal) => {
                    stream.write_all(&refusal.bytes).unwrap();
                    return false;
                }
            }
        }
    }

    #[test]
    fn a_clock_that_differs_costs_one_attempt_in_all_and_one_more_when_it_drifts() {
        let token = Token::from_random([7; 16]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::from(listener.local_addr().unwrap());
        let via = Via::new(place.into(), vec![], token.key());
        // Its clock is an hour behind, then half a minute less.
        let gateway = thread::spawn(move || {
            let keys = [&token].into_iter().collect();
            let mut keeper = Gatekeeper::new(keys, None, Clock::from_micros(0));
            let behind = [3_600, 3_600, 3_600, 3_630, 3_630, 60_000, 60_000];
            behind.map(|seconds| {
                answer(&listener, &mut keeper, now().moved_by(-seconds * 1_000_000), || {})
            })
        });
        let target = "server:80".parse().unwrap();
        let connect = || via.clone().connect(&target, Duration::from_secs(20), &Stop::default());
        // By copies of it, as each data connection has one.
        for _ in 0..3 {
            connect().unwrap();
        }
        for _ in 0..2 {
            let error = connect().unwrap_err().to_string();
            assert!(error.contains("clock"), "{error}");
        }
        let expected = [false, true, true, false, true, false, false];
        assert_eq!(gateway.join().unwrap(), expected);
    }

    #[test]
    fn the_round_trip_is_that_of_the_session_and_not_of_its_first_segment() {
        const BEYOND: Duration = Duration::from_millis(300);
        let token = Token::from_random([7; 16]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::from(listener.local_addr().unwrap());
        let via = Via::new(place.clone().into(), vec![], token.key());
        let gateway = thread::spawn(move || {
            let keys = [&token].into_iter().collect();
            let mut keeper = Gatekeeper::new(keys, None, Clock::from_micros(0));
            assert!(answer(&listener, &mut keeper, now(), || thread::sleep(BEYOND)));
        });
        let target = "server:80".parse().unwrap();
        let connected = via.connect(&target, Duration::from_secs(20), &Stop::default()).unwrap();
        assert!(connected.rtt >= BEYOND);
        gateway.join().unwrap();
    }
}
