//! One in the middle who cuts the connection, or changes bits of it.

use super::*;

#[test]
fn an_end_at_any_byte_is_an_error_at_both_ends() {
    // What a whole handshake takes, each way.
    let server = Server::start(server_config());
    let relay = Relay::start(server.address, Tap::None);
    let dialed = dial_at(relay.address, &token(), &client_config()).unwrap();
    let _welcomed = server.welcomed();
    let [up, down] = relay.passed();
    assert!(up > 300 && down > 300, "{up} {down}");
    drop(dialed);

    // The last bytes up are a HELLO, down a WELCOME. Signatures vary by a few bytes in length.
    let (up, down) = (up - 16, down - 16);
    let cuts = (0..up).step_by(67).map(|cut| (cut, usize::MAX));
    let cuts = cuts.chain((0..down).step_by(83).map(|cut| (usize::MAX, cut)));
    for (up, down) in cuts.chain([(up, usize::MAX), (usize::MAX, down)]) {
        let server = Server::start(server_config());
        let relay = Relay::start(server.address, Tap::Cut([up, down]));
        let error = dial_at(relay.address, &token(), &client_config()).unwrap_err();
        assert!(
            matches!(
                error,
                ConnectError::NotLonghaul { .. }
                    | ConnectError::HungUp { .. }
                    | ConnectError::Lost { .. }
            ),
            "{up} {down} {error:?}"
        );
        match server.outcome() {
            Outcome::Failed(AcceptError::Ended | AcceptError::Io(_)) => {}
            Outcome::Welcomed(_, control) if up == usize::MAX => {
                assert!(matches!(wait_end(&control), ControlEnd::Lost(_)));
            }
            other => panic!("{up} {down} {other:?}"),
        }
    }
}

#[test]
fn a_bit_changed_in_the_middle_makes_no_session() {
    let server = Server::start(server_config());
    let whole = Relay::start(server.address, Tap::None);
    let dialed = dial_at(whole.address, &token(), &client_config()).unwrap();
    let _welcomed = server.welcomed();
    // Bytes so far, less what signatures may vary in length.
    let lengths = whole.passed().map(|passed| passed - 16);
    drop(dialed);

    // A changed length leaves both ends waiting for bytes that do not come.
    let config = ClientConfig { timeout: Duration::from_secs(3), ..client_config() };
    let mut unseen = 0;
    for (way, length) in lengths.into_iter().enumerate() {
        for place in (0..length).step_by(37) {
            let relay = Relay::start(server.address, Tap::Change(way, place));
            match dial_at(relay.address, &token(), &config) {
                Err(ConnectError::System(error)) => panic!("{way} {place}: {error}"),
                Err(_) => {}
                // What may change without being seen are the versions in the heads of records,
                // which TLS 1.3 tells receivers to ignore.
                Ok(dialed) => {
                    // The server may have welcomed clients before that did not receive it.
                    let outcomes =
                        std::iter::from_fn(|| server.outcomes.recv_timeout(PATIENCE).ok());
                    let same = outcomes
                        .filter_map(Outcome::welcomed)
                        .any(|(session, _)| session.verify_join(&dialed.session.join(LaneId(0))));
                    assert!(same, "{way} {place}: two secrets");
                    unseen += 1;
                }
            }
        }
    }
    assert!(unseen < 5, "{unseen}");
}

/// Passes on the bytes of a connection, up (0) and down (1).
struct Relay {
    address: SocketAddr,
    passed: Arc<[AtomicUsize; 2]>,
}

/// Treatment of the bytes.
#[derive(Clone, Copy)]
enum Tap {
    None,
    /// So many pass each way, then it hangs up.
    Cut([usize; 2]),
    /// One way a bit changes, at this place.
    Change(usize, usize),
}

impl Relay {
    fn start(server: SocketAddr, tap: Tap) -> Self {
        let (listener, address) = listen();
        let passed = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let counts = passed.clone();
        thread::spawn(move || {
            let (near, _) = listener.accept().unwrap();
            let far = TcpStream::connect(server).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| tap.pass(&near, &far, 0, &counts[0]));
                scope.spawn(|| tap.pass(&far, &near, 1, &counts[1]));
            });
        });
        Self { address, passed }
    }

    fn passed(&self) -> [usize; 2] {
        self.passed.each_ref().map(|passed| passed.load(Ordering::SeqCst))
    }
}

impl Tap {
    fn pass(self, mut from: &TcpStream, mut to: &TcpStream, way: usize, count: &AtomicUsize) {
        let mut chunk = [0; 4096];
        while let Ok(len @ 1..) = from.read(&mut chunk) {
            let before = count.load(Ordering::SeqCst);
            let room = match self {
                Self::Cut(most) => most[way] - before,
                _ => usize::MAX,
            };
            let passed = len.min(room);
            // Counted before it can have an effect.
            count.fetch_add(passed, Ordering::SeqCst);
            match self {
                Self::Change(changed, place)
                    if changed == way && (before..before + len).contains(&place) =>
                {
                    chunk[place - before] ^= 1;
                }
                _ => {}
            }
            if to.write_all(&chunk[..passed]).is_err() || len >= room {
                break;
            }
        }
        for stream in [from, to] {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
