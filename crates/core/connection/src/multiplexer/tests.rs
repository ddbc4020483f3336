//! Both ends against each other, over streams that carry any number of bytes at a time.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use longhaul_wire::SSH_WINDOW;
use proptest::prelude::*;

use super::*;

/// A connection at one end: bytes that it has to send, and those that it took.
#[derive(Default)]
struct Socket {
    to_send: VecDeque<u8>,
    got: Vec<u8>,
    finished: bool,
    ended: bool,
    /// Nobody reads it.
    is_stuck: bool,
}

/// Two ends, the bytes between them, and their connections by channel.
struct Pair {
    ends: [Multiplexer; 2],
    streams: [VecDeque<u8>; 2],
    sockets: [BTreeMap<u16, Socket>; 2],
    opened: Vec<u16>,
}

fn noise(seed: u64, len: usize) -> VecDeque<u8> {
    (0..len as u64)
        .map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed) >> 23) as u8)
        .collect()
}

impl Pair {
    fn new() -> Self {
        Self {
            ends: [Multiplexer::client(), Multiplexer::server()],
            streams: Default::default(),
            sockets: Default::default(),
            opened: Vec::new(),
        }
    }

    /// One end does what it can, where the stream takes, and connections read, at most so many bytes at a time.
    fn step(&mut self, at: usize, most: usize) -> bool {
        let (end, sockets) = (&mut self.ends[at], &mut self.sockets[at]);
        let mut moved = false;
        if end.wants_input() && !self.streams[1 - at].is_empty() {
            let len = most.min(self.streams[1 - at].len());
            let bytes: Vec<u8> = self.streams[1 - at].drain(..len).collect();
            end.handle_input(&bytes);
            moved = true;
        }
        while let Some(event) = end.poll_event() {
            match event {
                MultiplexerEvent::Opened(channel) => self.opened.push(channel),
                other => panic!("{other:?}"),
            }
        }
        for (channel, socket) in sockets.iter_mut().filter(|(_, socket)| !socket.is_stuck) {
            let bytes = end.waiting(*channel);
            let len = bytes.len().min(most);
            socket.got.extend(&bytes[..len]);
            end.handle_taken(*channel, len);
            socket.ended |= end.poll_end(*channel);
            moved |= len > 0;
        }
        'sending: loop {
            for channel in end.senders() {
                let Some(socket) = sockets.get_mut(&channel) else { continue };
                let len = end.room(channel).min(most).min(socket.to_send.len());
                if len > 0 {
                    let bytes: Vec<u8> = socket.to_send.drain(..len).collect();
                    end.push(channel, &bytes);
                } else if socket.to_send.is_empty() && !socket.finished {
                    socket.finished = true;
                    end.finish(channel);
                } else {
                    continue;
                }
                moved = true;
                continue 'sending;
            }
            break;
        }
        let len = end.output().len().min(most);
        self.streams[at].extend(&end.output()[..len]);
        end.handle_written(len);
        moved | (len > 0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_come_whole_and_in_order_however_they_are_cut_and_whatever_is_not_read(
        seed in any::<u64>(),
        sizes in prop::collection::vec((0_usize..200_000, 0_usize..200_000), 1..6),
        cuts in prop::collection::vec(1_usize..40_000, 1..50),
        stuck in any::<bool>(),
    ) {
        let mut pair = Pair::new();
        let mut expected = Vec::new();
        for (number, (up, down)) in sizes.iter().enumerate() {
            let channel = pair.ends[0].open().unwrap();
            let bytes = [noise(seed ^ number as u64, *up), noise(!seed ^ number as u64, *down)];
            expected.push((channel, bytes.clone()));
            for (at, to_send) in bytes.into_iter().enumerate() {
                pair.sockets[at].insert(channel, Socket { to_send, ..Socket::default() });
            }
        }
        // One more has a window and some to send, and nobody reads it.
        let held = stuck.then(|| pair.ends[0].open().unwrap());
        if let Some(channel) = held {
            let to_send = noise(seed, SSH_WINDOW as usize + 100_000);
            pair.sockets[0].insert(channel, Socket { to_send, finished: true, ..Socket::default() });
            pair.sockets[1].insert(channel, Socket { is_stuck: true, finished: true, ..Socket::default() });
        }
        let mut idle = 0;
        for cut in cuts.iter().cycle() {
            let moved = pair.step(0, *cut) | pair.step(1, cut / 2 + 1);
            idle = if moved { 0 } else { idle + 1 };
            if idle > 2 {
                break;
            }
        }
        for (channel, bytes) in &expected {
            for (at, bytes) in bytes.iter().enumerate() {
                let socket = &pair.sockets[1 - at][channel];
                prop_assert!(socket.got.iter().eq(bytes), "{channel}");
                prop_assert!(socket.ended);
            }
        }
        prop_assert_eq!(pair.opened.len(), expected.len() + usize::from(stuck));
        // A channel that is over is forgotten; of what is not read a window has come, and no more.
        for end in &pair.ends {
            prop_assert!(end.channels().eq(held));
        }
        if let Some(channel) = held {
            prop_assert_eq!(pair.sockets[0][&channel].to_send.len(), 100_000);
            prop_assert_eq!(pair.ends[1].channels[&channel].waiting().len(), SSH_WINDOW as usize);
        }
    }

    #[test]
    fn whatever_comes_memory_is_bounded_and_nothing_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        kinds in prop::collection::vec((1_u8..8, 0_u16..8), 0..40),
    ) {
        for mut end in [Multiplexer::client(), Multiplexer::server()] {
            for (kind, channel) in &kinds {
                let head = [*kind, 0, *channel as u8, 0, if *kind == 3 { 4 } else { 0 }];
                end.handle_input(&head);
                end.handle_input(if *kind == 3 { &[0, 0, 0, 1] } else { &[] });
            }
            end.handle_input(&bytes);
            prop_assert!(end.channels().count() <= CHANNELS_MAX);
        }
    }
}

#[test]
fn channels_send_in_turn() {
    let mut end = Multiplexer::client();
    let all = [end.open().unwrap(), end.open().unwrap(), end.open().unwrap()];
    for turn in 0..6 {
        let next = end.senders().next().unwrap();
        assert_eq!(next, all[turn % 3]);
        end.push(next, b"x");
    }
    let full = vec![0; CHUNK];
    while let Some(next) = end.senders().next() {
        end.push(next, &full);
    }
    assert!((OUT_MAX..OUT_MAX + CHUNK + 100).contains(&end.output().len()));
}
