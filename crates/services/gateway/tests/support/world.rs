//! Gateways, clients and targets on loopback.

#![allow(dead_code, reason = "each file of tests uses some of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_gateway::{Ending, Event, Gateway, GatewaySettings};
use longhaul_relay::{Addressed, Answer, Clock, Dialled, Dialler, Place, Route, Target};
use longhaul_session::Token;

pub fn token() -> Token {
    Token::from_random([7; 16])
}

pub fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub fn settings() -> GatewaySettings {
    GatewaySettings {
        listen: vec![loopback()],
        keys: [&token()].into_iter().collect(),
        via_key: Some(token().key()),
        destinations: longhaul_gateway::policy::Destinations::new(vec![
            "127.0.0.0/8".parse().unwrap(),
        ]),
        threads: 2,
        ..GatewaySettings::default()
    }
}

pub struct Running {
    pub gateway: Gateway,
    pub addresses: Vec<SocketAddr>,
    pub endings: Receiver<Ending>,
}

pub fn start(settings: GatewaySettings) -> Running {
    let (sender, endings) = channel();
    let sender = Mutex::new(sender);
    let report = Arc::new(move |event| {
        if let Event::Ended { ending, .. } = event {
            let _ = sender.lock().unwrap().send(ending);
        }
    });
    let gateway = Gateway::start(settings, report).unwrap();
    let addresses = gateway.addresses().unwrap();
    Running { gateway, addresses, endings }
}

impl Running {
    pub fn ending(&self) -> Ending {
        self.endings.recv_timeout(Duration::from_secs(20)).unwrap()
    }
}

pub fn now() -> Clock {
    Clock::from_micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64)
}

pub fn nonce() -> [u8; 16] {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    bytes
}

pub fn route(hops: &[SocketAddr], target: &str) -> Route {
    let target = Target { place: target.parse().unwrap(), aware: false };
    let hops = hops.iter().map(|hop| Place::from(*hop).into()).collect();
    Route { hops, ..Route::new(nonce(), target) }
}

pub fn try_connect(
    gateway: SocketAddr,
    route: &Route,
    time: Clock,
) -> Result<TcpStream, Box<Answer>> {
    ask(TcpStream::connect(gateway).unwrap(), gateway, route, time)
}

/// Asks `gateway` for `route` on a connection to it.
pub fn ask(
    mut stream: TcpStream,
    gateway: SocketAddr,
    route: &Route,
    time: Clock,
) -> Result<TcpStream, Box<Answer>> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let addressed = Addressed { written: gateway.into(), dialled: gateway.into() };
    let (mut dialler, header) =
        Dialler::new(route, addressed, &token().key(), time, nonce()).unwrap();
    stream.write_all(&header).unwrap();
    let mut byte = [0];
    loop {
        // One by one, so that no payload is taken.
        stream.read_exact(&mut byte).unwrap();
        match dialler.receive(&byte).unwrap() {
            Dialled::Incomplete => {}
            Dialled::Connected { .. } => return Ok(stream),
            Dialled::Refused(answer) | Dialled::Unproven(answer) => return Err(Box::new(answer)),
        }
    }
}

pub fn connect(gateway: SocketAddr, hops: &[SocketAddr], target: SocketAddr) -> TcpStream {
    try_connect(gateway, &route(hops, &target.to_string()), now()).unwrap()
}

/// Runs `serve` for each connection that comes.
pub fn target(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Reads all, then sends it back twice and ends.
pub fn echo_twice() -> SocketAddr {
    target(|mut stream| {
        let mut all = Vec::new();
        if stream.read_to_end(&mut all).is_ok() {
            stream.write_all(&all).unwrap();
            stream.write_all(&all).unwrap();
        }
    })
}

/// Looks until there is what is looked for.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..2_000 {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("no {what} in 20 s");
}
