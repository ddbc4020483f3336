//! Pipes with one end, or the server, hostile: what comes out is what went in, as far as it goes,
//! and no end of a pipe is reported that was none.

use std::fs::{self, File};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_wire::{Carrier as Carried, Message, SinkMessage};

use crate::bytes::Bytes;
use crate::honest::await_request;
use crate::host::Host;
use crate::oracle::{BOUND, Victim, end};
use crate::peer::{Action, Peer, Received, Tamper, WAYS, Way};
use crate::program::{Ended, Program};
use crate::script::{GROUP, note_end, result};
use crate::test::{Test, limited};
use crate::trees::noise;

const SEND: u8 = 1;
const RECEIVE: u8 = 2;
/// A second length of a piece, which is dropped: the pieces are right all the same.
const HARMLESS: &str = "two-lengths";

fn pipe(role: u8) -> Bytes {
    Bytes::new().varint(14).u8(role).raw(b"a pipe")
}

/// Three pieces, of different lengths.
fn pieces() -> Vec<Vec<u8>> {
    (0..3).map(|i| noise(i, 30_000 + 7_000 * i as usize)).collect()
}

fn hash(piece: usize, bytes: &[u8]) -> Bytes {
    let head = Bytes::new().varint(4).varint(0).varint(piece as u64);
    head.raw(blake3::hash(bytes).as_bytes())
}

/// The end of a pipe: so many pieces, so many bytes.
fn pipe_end(pieces: u64, bytes: u64) -> Bytes {
    Bytes::new().varint(3).varint(0).varint(pieces).varint(bytes)
}

fn say_piece(peer: &mut Peer, number: usize, bytes: &[u8]) {
    peer.object(bytes.len() as u32, (number * GROUP) as u64, bytes);
}

/// The source of a pipe: sends the pieces, the newest first, once they may be sent; whether RESULT
/// came.
fn feed(peer: &mut Peer, patience: Duration) -> bool {
    let deadline = std::time::Instant::now() + patience;
    let pieces = pieces();
    while let Some(received) = peer.receive(deadline) {
        match received {
            Received::Message(Message::Sink(SinkMessage::Accept { .. })) => {
                for (number, bytes) in pieces.iter().enumerate().rev() {
                    say_piece(peer, number, bytes);
                }
                for (number, bytes) in pieces.iter().enumerate() {
                    peer.message(hash(number, bytes));
                }
                let bytes = pieces.iter().map(Vec::len).sum::<usize>();
                peer.message(pipe_end(pieces.len() as u64, bytes as u64));
            }
            Received::Message(Message::Sink(SinkMessage::Repair { group, .. })) => {
                if let Some(bytes) = pieces.get(group as usize) {
                    say_piece(peer, group as usize, bytes);
                }
            }
            Received::Message(Message::Sink(SinkMessage::Result(_))) => {
                peer.done();
                if peer.dialled {
                    peer.close(0, b"");
                }
                return true;
            }
            other => {
                if note_end(&mut crate::script::Ending::default(), other) {
                    break;
                }
            }
        }
    }
    false
}

fn receiver<'t>(
    test: &'t Test,
    at: std::net::SocketAddr,
    output: &str,
    words: &[&str],
) -> Program<'t> {
    let output = File::create(test.here(output)).unwrap();
    Program::pipe(test, &[&["--receive"], words].concat(), at, Stdio::null(), output)
}

/// The output is the beginning of the input, and all of it where the status is 0.
fn assert_beginning(test: &Test, output: &str, ended: &Ended) {
    let (sent, out) = (pieces().concat(), fs::read(test.here(output)).unwrap());
    assert!(sent.starts_with(&out), "{output}: other bytes");
    assert!(
        ended.status != Some(0) || sent == out,
        "{output}: {} bytes are missing",
        sent.len() - out.len()
    );
}

/// Attacks of a source, by name; each is another way not to send the pieces.
fn attacks() -> Vec<(&'static str, Tamper)> {
    fn each(spoil: impl FnMut(Action) -> Vec<Action> + Send + 'static) -> Tamper {
        Box::new(spoil)
    }
    let message = |bytes: &[u8], kind: u8| bytes.first() == Some(&kind);
    let moved = |to: fn(u32, u64) -> (u32, u64)| {
        each(move |action| match action {
            Action::Object { object, offset, payload } => {
                let (object, offset) = to(object, offset);
                vec![Action::Object { object, offset, payload }]
            }
            other => vec![other],
        })
    };
    let ending = |bytes: Bytes| {
        each(move |action| match action {
            Action::Message(body) if message(&body, 3) => vec![Action::Message(bytes.0.clone())],
            other => vec![other],
        })
    };
    let last = (1 << 32) - 1;
    vec![
        (
            "other-bytes",
            each(|action| match action {
                Action::Object { object, offset, mut payload } => {
                    payload[0] ^= 1;
                    vec![Action::Object { object, offset, payload }]
                }
                other => vec![other],
            }),
        ),
        (
            "other-hashes",
            each(move |action| match action {
                Action::Message(mut body) if message(&body, 4) => {
                    *body.last_mut().unwrap() ^= 1;
                    vec![Action::Message(body)]
                }
                other => vec![other],
            }),
        ),
        ("beyond-credit", moved(|object, offset| (object, offset + (100_000 << 20)))),
        ("last-number", moved(|object, offset| (object, offset + (((1 << 32) - 3) << 20)))),
        ("past-all-numbers", moved(|object, offset| (object, offset + (1 << 61)))),
        ("longer-than-any", moved(|_, offset| (0xffff_ffff, offset))),
        ("longer-than-it-is", moved(|object, offset| (object + 1, offset))),
        ("of-no-length", moved(|_, offset| (0, offset))),
        (
            HARMLESS,
            each(|action| match action {
                Action::Object { object, offset, payload } => {
                    let longer =
                        Action::Object { object: object + 9, offset, payload: payload.clone() };
                    vec![longer, Action::Object { object, offset, payload }]
                }
                other => vec![other],
            }),
        ),
        ("end-too-early", ending(pipe_end(2, 67_000))),
        ("end-too-late", ending(pipe_end(4, 111_001))),
        ("end-of-other-bytes", ending(pipe_end(3, 7))),
        ("end-of-all-pieces", ending(pipe_end(last, last << 20))),
        (
            "hashes-twice",
            each(move |action| match action {
                Action::Message(body) if message(&body, 4) => {
                    vec![Action::Message(body.clone()), Action::Message(body)]
                }
                other => vec![other],
            }),
        ),
        (
            "gone-before-the-end",
            each(move |action| match action {
                Action::Message(body) if message(&body, 3) => vec![Action::HangUp],
                other => vec![other],
            }),
        ),
    ]
}

#[test]
fn pieces_that_come_in_any_order_leave_in_theirs() {
    limited(|test| {
        let victim = Victim::start(test);
        for way in WAYS {
            let receiving = receiver(test, victim.address, "out", &[]);
            let mut peer = Peer::dial(victim.address, way).unwrap();
            peer.message(pipe(SEND));
            assert!(feed(&mut peer, BOUND), "{way:?}");
            let ended = end(receiving);
            ended.assert_succeeded();
            assert_beginning(test, "out", &ended);
            peer.hang_up();
        }
        victim.assert_serves();
    });
}

#[test]
fn a_hostile_sender_has_nothing_false_come_out_of_a_pipe() {
    limited(|test| {
        thread::scope(|scope| {
            for (i, (what, tamper)) in attacks().into_iter().enumerate() {
                scope.spawn(move || {
                    let victim = Victim::start(test);
                    let receiving = receiver(test, victim.address, what, &[]);
                    let mut peer = Peer::dial(victim.address, WAYS[i % WAYS.len()]).unwrap();
                    peer.tamper = Some(tamper);
                    peer.message(pipe(SEND));
                    feed(&mut peer, Duration::from_secs(3));
                    peer.hang_up();
                    let ended = end(receiving);
                    assert!(ended.status == Some(1) || what == HARMLESS, "{what}: {ended:?}");
                    assert_beginning(test, what, &ended);
                    victim.assert_serves();
                });
            }
        });
    });
}

#[test]
fn a_hostile_server_has_nothing_false_come_out_of_a_pipe() {
    limited(|test| {
        thread::scope(|scope| {
            for (i, (what, tamper)) in attacks().into_iter().enumerate() {
                scope.spawn(move || {
                    let host = Host::new();
                    let carrier = if i % 2 == 0 { "udp" } else { "tcp" };
                    let words = ["--carrier", carrier];
                    let receiving = receiver(test, host.address, what, &words);
                    let mut peer = host.accept().unwrap();
                    peer.tamper = Some(tamper);
                    await_request(&mut peer);
                    feed(&mut peer, Duration::from_secs(3));
                    peer.hang_up();
                    let ended = end(receiving);
                    assert!(ended.status == Some(1) || what == HARMLESS, "{what}: {ended:?}");
                    assert_beginning(test, what, &ended);
                });
            }
        });
    });
}

fn sender<'t>(test: &'t Test, at: std::net::SocketAddr, words: &[&str]) -> Program<'t> {
    let input = File::open(test.here("in")).unwrap();
    Program::pipe(test, words, at, input, Stdio::piped())
}

/// Messages of a sink that took nothing.
fn lies() -> Vec<Vec<Bytes>> {
    let repairs = (0..40).map(|_| Bytes::new().varint(8).varint(1 << 20).varint(0));
    vec![
        vec![Bytes::new().varint(9).varint(0).varint(1_000)],
        vec![Bytes::new().varint(9).varint((1 << 32) - 2).varint(1)],
        vec![result(0, 0, 0)],
        vec![Bytes::new().varint(8).varint(0xffff_ffff).varint(1 << 31)],
        repairs.collect(),
    ]
}

#[test]
fn a_receiver_that_confirms_what_it_never_got_of_a_pipe_is_not_believed() {
    limited(|test| {
        // More than one end holds, so that the end cannot be true yet.
        File::create(test.here("in")).unwrap().set_len(1 << 30).unwrap();
        thread::scope(|scope| {
            for (i, lie) in lies().into_iter().enumerate() {
                let (way, client_lie) = (WAYS[i], lie.clone());
                scope.spawn(move || {
                    let victim = Victim::start(test);
                    let sending = sender(test, victim.address, &[]);
                    let mut peer = Peer::dial(victim.address, way).unwrap();
                    peer.message(pipe(RECEIVE));
                    lie_of(peer, client_lie);
                    let ended = end(sending);
                    assert_eq!(ended.status, Some(1), "lie {i} of a client: {ended:?}");
                    victim.assert_serves();
                });
                scope.spawn(move || {
                    let host = Host::new();
                    let carrier = if i % 2 == 0 { "udp" } else { "tcp" };
                    let sending = sender(test, host.address, &["--carrier", carrier]);
                    let mut peer = host.accept().unwrap();
                    await_request(&mut peer);
                    lie_of(peer, lie);
                    let ended = end(sending);
                    assert_eq!(ended.status, Some(1), "lie {i} of a server: {ended:?}");
                });
            }
        });
    });
}

/// Lets the source send, sends `lie`, and leaves.
fn lie_of(mut peer: Peer, lie: Vec<Bytes>) {
    peer.message(Bytes::new().varint(6).varint(1 << 32));
    peer.carrier.credit(8 << 20);
    let receive = |peer: &mut Peer| {
        let deadline = std::time::Instant::now() + Duration::from_millis(700);
        while peer.receive(deadline).is_some() {}
    };
    receive(&mut peer);
    lie.into_iter().for_each(|message| peer.message(message));
    receive(&mut peer);
    peer.hang_up();
}

#[test]
fn a_pipe_with_a_silent_end_ends() {
    limited(|test| {
        File::create(test.here("in")).unwrap().set_len(1 << 30).unwrap();
        thread::scope(|scope| {
            for (i, way) in WAYS.into_iter().enumerate() {
                // It sends no end, or takes the most credit that there is and reads nothing.
                scope.spawn(move || {
                    let victim = Victim::start(test);
                    let out = format!("out{i}");
                    let receiving = receiver(test, victim.address, &out, &[]);
                    let mut peer = Peer::dial(victim.address, way).unwrap();
                    peer.tamper = Some(Box::new(|action| match action {
                        Action::Message(body) if body.first() == Some(&3) => Vec::new(),
                        other => vec![other],
                    }));
                    peer.message(pipe(SEND));
                    feed(&mut peer, Duration::from_secs(1));
                    assert!(peer.falls_silent(false), "{way:?}: the sender keeps its place");
                    let ended = end(receiving);
                    assert_eq!(ended.status, Some(1), "{way:?}: {ended:?}");
                    assert_beginning(test, &out, &ended);
                    victim.assert_serves();
                });
                scope.spawn(move || {
                    let victim = Victim::start(test);
                    let sending = sender(test, victim.address, &[]);
                    let mut peer = Peer::dial(victim.address, way).unwrap();
                    peer.message(pipe(RECEIVE));
                    peer.message(Bytes::new().varint(6).varint(1 << 32));
                    peer.carrier.credit((1 << 62) - 1);
                    // A program that is silent before that is no end of a pipe: a datagram may have been lost.
                    assert!(
                        peer.receive(Instant::now() + BOUND).is_some(),
                        "{way:?}: never an end"
                    );
                    assert!(peer.falls_silent(false), "{way:?}: the receiver keeps its place");
                    let ended = end(sending);
                    assert_eq!(ended.status, Some(1), "{way:?}: {ended:?}");
                    victim.assert_serves();
                });
            }
        });
    });
}

/// The target that the program's end of a pipe dials: the hostile end itself, or a server of the program's
/// that stands between them.
enum Between<'t> {
    Nothing(Box<Host>),
    Server(Victim<'t>),
}

impl<'t> Between<'t> {
    fn new(test: &'t Test, server: bool) -> Self {
        if server {
            Self::Server(Victim::start_with(test, &SOON))
        } else {
            Self::Nothing(Box::new(Host::new()))
        }
    }

    fn address(&self) -> std::net::SocketAddr {
        match self {
            Self::Nothing(host) => host.address,
            Self::Server(victim) => victim.address,
        }
    }

    /// The hostile end, which has `role` where it is a client.
    fn meet(&self, way: Way, role: u8) -> Peer {
        match self {
            Self::Nothing(host) => {
                let mut peer = host.accept().unwrap();
                await_request(&mut peer);
                peer
            }
            Self::Server(victim) => {
                let mut peer = Peer::dial(victim.address, way).unwrap();
                peer.message(pipe(role));
                peer
            }
        }
    }

    fn assert_serves(&self) {
        if let Self::Server(victim) = self {
            victim.assert_serves();
        }
    }
}

/// Sends nothing more but that it lives: answers PING, and confirms packets where it is `hearing`. Then CLOSE
/// has to come: the program that ended did not wait for it to fall silent.
fn lives_on(peer: &mut Peer, hearing: bool) {
    if !hearing {
        peer.falls_silent(true);
        return;
    }
    let deadline = Instant::now() + BOUND;
    while let Some(received) = peer.receive(deadline) {
        if matches!(received, Received::Close(..)) {
            return;
        }
    }
    panic!("no CLOSE came");
}

/// It ended for the reason that nothing moved for the stall timeout.
fn assert_gave_up(what: &str, ended: &Ended) {
    assert_eq!(ended.status, Some(1), "{what}: {ended:?}");
    assert!(ended.stderr.contains("nothing has moved for 2 s"), "{what}: {ended:?}");
}

#[test]
fn a_pipe_whose_other_end_lives_and_does_nothing_ends_after_the_stall_timeout() {
    limited(|test| {
        File::create(test.here("in")).unwrap().set_len(1 << 30).unwrap();
        thread::scope(|scope| {
            for (i, way) in WAYS.into_iter().enumerate() {
                let (server, hearing) = (i % 2 == 0, i % 3 != 0);
                let carrier = if way.carried == Carried::Tcp { "tcp" } else { "udp" };
                let words = [&["--carrier", carrier], &SOON[..]].concat();
                let what = format!("{way:?}, server {server}, hearing {hearing}");
                let (receiving_words, receiving_what) = (words.clone(), what.clone());
                // All pieces, and never the end.
                scope.spawn(move || {
                    let between = Between::new(test, server);
                    let out = format!("lives{i}");
                    let receiving = receiver(test, between.address(), &out, &receiving_words);
                    let mut peer = between.meet(way, SEND);
                    peer.tamper = Some(Box::new(|action| match action {
                        Action::Message(body) if body.first() == Some(&3) => Vec::new(),
                        other => vec![other],
                    }));
                    feed(&mut peer, Duration::from_secs(1));
                    let ended = thread::scope(|scope| {
                        scope.spawn(|| lives_on(&mut peer, hearing));
                        end(receiving)
                    });
                    assert_gave_up(&format!("receiving: {receiving_what}"), &ended);
                    assert_beginning(test, &out, &ended);
                    between.assert_serves();
                });
                // Takes what it gave credit for, and confirms nothing.
                scope.spawn(move || {
                    let between = Between::new(test, server);
                    let sending = sender(test, between.address(), &words);
                    let mut peer = between.meet(way, RECEIVE);
                    peer.message(Bytes::new().varint(6).varint(1 << 32));
                    peer.carrier.credit(2 << 20);
                    assert!(peer.receive(Instant::now() + BOUND).is_some(), "{what}: never an end");
                    let ended = thread::scope(|scope| {
                        scope.spawn(|| lives_on(&mut peer, hearing));
                        end(sending)
                    });
                    assert_gave_up(&format!("sending: {what}"), &ended);
                    between.assert_serves();
                });
            }
        });
    });
}

/// Much sooner than the idle timeout.
const SOON: [&str; 2] = ["--stall-timeout", "2"];
