use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use longhaul_relay::{ANSWER_TIMEOUT_SECS, Clock, Dialled, Dialler, MAX_MESSAGE, Place, Status};

use crate::session_error::SessionError;

/// One set-up of a session, on a connection of the caller's.
///
/// Order of calls: [`Self::unsent`] is sent, then what comes goes to [`Self::receive`], never more
/// than [`Self::wanted`] bytes at a time, so that payload stays with the caller;
/// [`Self::advance`] does both. At [`Self::until`] they are called once more, with nothing where nothing
/// came: the answer is given up then.
#[derive(Debug)]
pub struct Attempt {
    dialler: Dialler,
    header: Vec<u8>,
    sent: usize,
    target: Place,
    gateway: Place,
    until: Instant,
}

/// Progress of an [`Attempt`].
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The answer is not there whole.
    Waiting,
    /// The session stands; payload follows.
    Connected(Option<SocketAddr>),
    /// The gateway has proven that its clock differs. Where [`crate::gateways::Gateways::believe`] takes it, the
    /// set-up begins again with a new connection; else the failure stands.
    WrongClock(Clock, SessionError),
    /// There is no session.
    Failed(SessionError),
}

impl Attempt {
    pub(crate) fn new(dialler: Dialler, header: Vec<u8>, target: Place, gateway: Place) -> Self {
        let until = Instant::now() + Duration::from_secs(ANSWER_TIMEOUT_SECS);
        Self { dialler, header, sent: 0, target, gateway, until }
    }

    /// When the answer is given up: [`ANSWER_TIMEOUT_SECS`] after the beginning.
    pub const fn until(&self) -> Instant {
        self.until
    }

    /// The answer is not there whole.
    fn waiting(&self) -> Step {
        match Instant::now() < self.until {
            true => Step::Waiting,
            false => Step::Failed(SessionError::silent(&self.gateway)),
        }
    }

    /// The rest of the header.
    pub fn unsent(&self) -> &[u8] {
        &self.header[self.sent..]
    }

    /// So many bytes of it were sent.
    pub fn sent(&mut self, len: usize) {
        self.sent = self.header.len().min(self.sent + len);
    }

    /// So many bytes of the answer are certainly missing; zero once it is there.
    pub fn wanted(&self) -> usize {
        self.dialler.wanted()
    }

    /// Takes bytes of the answer.
    pub fn receive(&mut self, bytes: &[u8]) -> Step {
        match self.dialler.receive(bytes) {
            Ok(Dialled::Incomplete) => self.waiting(),
            Ok(Dialled::Connected { peer, .. }) => Step::Connected(peer),
            Ok(Dialled::Refused(answer)) => {
                let failure = SessionError::refused(&answer, &self.target);
                match answer.time {
                    Some(time) if answer.status == Status::WRONG_CLOCK => {
                        Step::WrongClock(time, failure)
                    }
                    _ => Step::Failed(failure),
                }
            }
            Ok(Dialled::Unproven(answer)) => {
                Step::Failed(SessionError::unproven(&answer, &self.gateway))
            }
            Err(error) => Step::Failed(SessionError::no_answer(error, &self.gateway)),
        }
    }

    /// Sends and receives until the outcome is there or one of them would block. Behind the answer
    /// nothing is received.
    pub fn advance(
        &mut self,
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Step {
        while !self.unsent().is_empty() {
            match send(self.unsent()) {
                Ok(len) => self.sent(len),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.waiting(),
                // An answer may have come before the connection broke.
                Err(_) => self.sent = self.header.len(),
            }
        }
        let mut buffer = [0; MAX_MESSAGE];
        loop {
            let wanted = self.wanted().min(buffer.len());
            let step = match receive(&mut buffer[..wanted]) {
                Ok(0) => {
                    Step::Failed(SessionError::lost(libc::ECONNRESET, "it ended the connection"))
                }
                Ok(len) => self.receive(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.waiting(),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::ECONNRESET);
                    let words = error.to_string();
                    let words = words.split(" (os error").next().unwrap_or_default();
                    Step::Failed(SessionError::lost(errno, words))
                }
            };
            if step != Step::Waiting {
                return step;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_relay::{Answer, Gatekeeper, Received};
    use longhaul_session::Token;

    use crate::Gateways;

    fn token() -> Token {
        Token::from_random([7; 16])
    }

    fn attempt() -> Attempt {
        let gateways = Gateways::new("192.0.2.1", token().key()).unwrap();
        gateways.dial("server:80".parse().unwrap(), "192.0.2.1:7421".parse().unwrap()).unwrap()
    }

    /// The answer of a gateway with this status to the header of `attempt`.
    fn answer(attempt: &Attempt, status: Status) -> Vec<u8> {
        let mut keeper =
            Gatekeeper::new([&token()].into_iter().collect(), None, Clock::from_micros(0));
        let local = "192.0.2.1:7421".parse().unwrap();
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let now = Clock::from_micros(since.as_micros() as u64);
        let Received::Header(request) = keeper.receive(attempt.unsent(), &local, now) else {
            panic!()
        };
        request.sign(&Answer { to: "server:80".into(), ..Answer::new(status, "gw") })
    }

    #[test]
    fn an_answer_in_pieces_is_taken_and_payload_behind_it_is_left() {
        let mut attempt = attempt();
        let mut stream = answer(&attempt, Status::CONNECTED);
        let whole = stream.len();
        stream.extend_from_slice(b"payload");
        let mut header = Vec::new();
        // Three bytes at a time, and none in between.
        let (mut at, mut turn) = (0, 0);
        let mut steps = 0;
        let outcome = loop {
            let step = attempt.advance(
                |bytes| {
                    header.extend_from_slice(bytes);
                    Ok(bytes.len())
                },
                |buffer| {
                    turn += 1;
                    if turn % 2 == 0 {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    let len = buffer.len().min(3);
                    buffer[..len].copy_from_slice(&stream[at..at + len]);
                    at += len;
                    Ok(len)
                },
            );
            steps += 1;
            if step != Step::Waiting {
                break step;
            }
        };
        assert_eq!((outcome, at), (Step::Connected(None), whole));
        assert!(steps > 10 && header.starts_with(b"LHGW"));
    }

    #[test]
    fn a_refusal_that_came_before_the_connection_broke_is_read() {
        let mut attempt = attempt();
        let bytes = answer(&attempt, Status::REFUSED);
        let mut rest = &bytes[..];
        let step = attempt.advance(
            |_| Err(io::ErrorKind::BrokenPipe.into()),
            |buffer| io::Read::read(&mut rest, buffer),
        );
        let Step::Failed(failure) = step else { panic!("{step:?}") };
        assert_eq!((failure.errno, failure.by_target), (libc::ECONNREFUSED, true));
        assert!(failure.words.contains("could not reach server:80: connection refused"));
    }

    #[test]
    fn a_gateway_that_sends_half_an_answer_is_given_up_when_its_time_is_over() {
        let would_block = || io::Error::from(io::ErrorKind::WouldBlock);
        let mut attempt = attempt();
        let half = &answer(&attempt, Status::CONNECTED)[..20];
        assert_eq!(attempt.receive(half), Step::Waiting);
        attempt.until = Instant::now();
        let failure = SessionError::silent(&"192.0.2.1:7421".parse().unwrap());
        assert_eq!(failure.words, "gateway 192.0.2.1:7421 gave no answer in 30 s");
        let failed = Step::Failed(failure);
        assert_eq!(attempt.advance(|_| Err(would_block()), |_| panic!()), failed);
        assert_eq!(attempt.advance(|bytes| Ok(bytes.len()), |_| Err(would_block())), failed);
        assert_eq!(attempt.receive(&[]), failed);
    }

    #[test]
    fn an_end_before_the_answer_is_a_reset() {
        let mut attempt = attempt();
        let step = attempt.advance(|bytes| Ok(bytes.len()), |_| Ok(0));
        let Step::Failed(failure) = step else { panic!("{step:?}") };
        assert_eq!(failure.errno, libc::ECONNRESET);
    }
}
