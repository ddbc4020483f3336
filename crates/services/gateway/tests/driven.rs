//! Sessions over TCP that the test drives itself: it decides when the gateway runs, and what time
//! it is.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use longhaul_gateway::Ending;
use longhaul_gateway::entry::Forward;
use longhaul_gateway::policy::{Destinations, Policy};
use longhaul_gateway::pump::Pool;
use longhaul_gateway::session::{Context, Session, Turn};
use longhaul_gateway::shared::Shared;
use longhaul_gateway::transport::tcp::Tcp;
use longhaul_gateway::transport::{SegmentSettings, Transport};
use longhaul_relay::{Clock, Gatekeeper, Side, Target};
use longhaul_sys::tcp::{TcpState, info};
use longhaul_units::{Duration, Instant};

/// A client and a target with a session between them, which runs when it is asked to.
struct Driven {
    session: Session,
    client: TcpStream,
    target: TcpStream,
    pool: Pool,
    now: Instant,
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn shared(policy: Policy) -> Arc<Shared> {
    let policy = Policy {
        destinations: Destinations::new(vec!["127.0.0.0/8".parse().unwrap()]),
        max_sessions: 10,
        max_sessions_per_client: 10,
        ..policy
    };
    let gatekeeper = Gatekeeper::new(Default::default(), None, Clock::from_micros(0));
    Arc::new(Shared::new(policy, gatekeeper, vec![Arc::new(Tcp)], 1_000))
}

impl Driven {
    fn new(shared: &Arc<Shared>) -> Self {
        let target = TcpListener::bind(loopback()).unwrap();
        let listener = Tcp.listen(loopback(), &SegmentSettings::default()).unwrap();
        let client = TcpStream::connect(listener.local_address().unwrap()).unwrap();
        let (segment, peer) = loop {
            match listener.accept().unwrap() {
                Some(accepted) => break accepted,
                None => std::thread::yield_now(),
            }
        };
        let to = Target { place: target.local_addr().unwrap().into(), aware: false };
        let entry = Box::new(Forward::new(to));
        let admission = shared.arrive(peer.ip());
        let session = Session::new(admission, entry, segment, peer, Instant::ZERO).unwrap();
        let (mut pool, now) = (Pool::default(), Instant::ZERO);
        let mut session = session;
        assert!(matches!(session.run(&mut context(now, &mut pool)), Turn::Dialled));
        let (target, _) = target.accept().unwrap();
        let mut driven = Self { session, client, target, pool, now };
        driven.run();
        driven
    }

    /// Gives the session turns until it has nothing to do.
    fn run(&mut self) -> Option<Ending> {
        for side in Side::BOTH {
            if let Some(link) = self.session.link(side) {
                (link.readable, link.writable) = (true, true);
            }
        }
        loop {
            match self.session.run(&mut context(self.now, &mut self.pool)) {
                Turn::More => {}
                Turn::Waiting => return None,
                Turn::Over(ending) => return Some(ending),
                turn => panic!("{turn:?}"),
            }
        }
    }

    fn look(&mut self) -> Option<Ending> {
        match self.session.look(&mut context(self.now, &mut self.pool)) {
            Turn::Waiting | Turn::More => None,
            Turn::Over(ending) => Some(ending),
            turn => panic!("{turn:?}"),
        }
    }

    /// Gives it turns until it is over.
    fn end(&mut self) -> Ending {
        loop {
            if let Some(ending) = self.run() {
                return ending;
            }
            std::thread::yield_now();
        }
    }

    /// Passes on what the client sends until the target has its end.
    fn end_of_client(&mut self) {
        self.client.shutdown(Shutdown::Write).unwrap();
        self.target.set_nonblocking(true).unwrap();
        while !matches!(self.target.read(&mut [0; 4096]), Ok(0)) {
            assert_eq!(self.run(), None);
        }
        self.target.set_nonblocking(false).unwrap();
    }
}

fn context(now: Instant, pool: &mut Pool) -> Context<'_> {
    Context { now, clock: Clock::from_micros(0), random: || Ok([7; 16]), pool }
}

#[test]
fn data_and_an_end_that_came_while_the_gateway_did_not_run_reach_the_client() {
    let shared = shared(Policy { memory: u64::MAX, ..Policy::default() });
    let mut driven = Driven::new(&shared);
    driven.client.write_all(&[1; 1_000]).unwrap();
    driven.end_of_client();
    driven.target.write_all(&[2; 50_000]).unwrap();
    driven.target.shutdown(Shutdown::Write).unwrap();
    // The gateway's kernel has all of it, and nothing more to do with this connection.
    while info(&driven.target).unwrap().state != TcpState::CLOSE {
        std::thread::yield_now();
    }
    driven.now += Duration::from_secs(5);
    assert_eq!(driven.look(), None);
    // The state can be shown without taking anything from it.
    driven.session.status(driven.now);
    assert_eq!(driven.end(), Ending::Clean);
    let mut received = Vec::new();
    driven.client.read_to_end(&mut received).unwrap();
    assert_eq!(received, [2; 50_000]);
}

#[test]
fn a_reset_is_a_reset_also_when_the_state_was_shown_before() {
    let shared = shared(Policy { memory: u64::MAX, ..Policy::default() });
    let mut driven = Driven::new(&shared);
    driven.end_of_client();
    socket2::SockRef::from(&driven.target).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    let Driven { mut session, client, target, mut pool, now } = driven;
    drop(target);
    // The reset has come once there is no account of the segment.
    while session.status(now).is_some_and(|state| state.segments.len() == 2) {
        std::thread::yield_now();
    }
    if let Some(link) = session.link(Side::Far) {
        link.readable = true;
    }
    let turn = session.run(&mut context(now, &mut pool));
    assert!(matches!(&turn, Turn::Over(Ending::Reset(Side::Far, _))), "{turn:?}");
    drop(client);
}

#[test]
fn the_rate_that_is_shown_is_bytes_over_time() {
    let shared = shared(Policy { memory: u64::MAX, ..Policy::default() });
    let mut driven = Driven::new(&shared);
    for _ in 0..20 {
        driven.client.write_all(b"xx").unwrap();
        let mut received = [0; 2];
        driven.target.set_nonblocking(true).unwrap();
        while driven.target.read(&mut received).is_err() {
            assert_eq!(driven.run(), None);
        }
        driven.now += Duration::from_millis(200);
        assert_eq!(driven.look(), None);
    }
    let state = driven.session.status(driven.now).unwrap();
    let rates: Vec<u64> = state.segments.iter().map(|segment| segment.rate_bps).collect();
    assert_eq!((rates[0], rates[1].abs_diff(80) < 10), (0, true), "{rates:?}");
}
