use super::*;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use longhaul_units::Bottleneck;
use longhaul_units::{Bytes, EcnCounts, Rate};
use proptest::prelude::*;

fn encode(frame: &Frame<'_>) -> Vec<u8> {
    let mut buffer = vec![0xa5; frame.encoded_len() + 1];
    let mut writer = Writer::new(&mut buffer);
    frame.encode(&mut writer).unwrap();
    assert_eq!(writer.len(), frame.encoded_len());
    assert_eq!(buffer.pop(), Some(0xa5), "wrote past the end");
    buffer
}

fn decode(bytes: &[u8]) -> Result<Vec<Frame<'_>>, DecodeError> {
    Frames::new(bytes).collect()
}

/// Checks that `bytes` and `frame` are each other's form.
fn check(bytes: &[u8], frame: Frame<'_>) {
    assert_eq!(decode(bytes).unwrap(), [frame]);
    assert_eq!(encode(&frame), bytes, "{frame:?}");
}

#[test]
fn literal_bytes() {
    check(&[0, 0, 0], Frame::Padding(3));
    check(&[1, 0], Frame::Ping);
    let floor = PacketNumber::new(300);
    check(&[3, 3, 0x41, 0x2c, 0], Frame::State(State { floor, round_trip: None }));
    let round_trip = Some(Duration::from_micros(9));
    check(&[3, 3, 0x41, 0x2c, 9], Frame::State(State { floor, round_trip }));
    let stream = StreamId(4);
    check(
        &[7, 5, 4, 6, 1, b'h', b'i'],
        Frame::Stream { stream, offset: 6, fin: true, data: b"hi" },
    );
    check(&[7, 3, 4, 6, 0], Frame::Stream { stream, offset: 6, fin: false, data: b"" });
    check(&[9, 2, 4, 7], Frame::StreamLimit { stream, limit: 7 });
    check(&[11, 3, 4, 0, 9], Frame::StreamReset { stream, code: CloseCode::CANCELLED });
    check(b"\x0d\x08abcdefgh", Frame::Challenge(*b"abcdefgh"));
    check(b"\x0f\x08abcdefgh", Frame::Response(*b"abcdefgh"));
    check(&[17, 2, 1, 9], Frame::RoundEnd { round: 1, end: PacketNumber::new(9) });
    check(b"\x13\x06\x00\x0bstop", Frame::Close { code: CloseCode::SHUTDOWN, reason: "stop" });
    check(&[21, 3, 2, 0x43, 0xe8], Frame::Suspend { order: 2, duration: Duration::from_millis(1) });
    let (lane, beside) = (LaneId(3), LaneId(0x101));
    check(&[23, 4, 2, 3, 0x41, 1], Frame::Move { order: 2, lane, beside });
}

#[test]
fn literal_feedback() {
    let bytes = [
        5, 56, // FEEDBACK of 56 bytes
        20, 0, 0, 0, 1, 0, 0, 0, 2, // largest, its send time and arrival
        50, 11, 0x44, 0xb0, 7, 0, 1, 2, 3, 63, // delay to credit
        8, 21, 5, 0, 2, 1, 8, 2, // 8..21: 8..10 and 11..19 received
        2, 4, 0xbb, 0x9a, 0xca, 0, // 1 Gb/s
        4, 1, 9, // a socket buffer of 9 bytes
        6, 1, 3, 8, 1, 5, // held up by its CPU, and by its disk
        12, 1, 6, // nothing is known of packets below 6
        10, 9, 0x9d, 0xcd, 0x65, 0, 8, 0x80, 3, 0x0d,
        0x40, // 0.5 Gb/s by its socket buffer, for 0.2 s
    ];
    let mut buffer = [0xa5; 32];
    let ranges = Ranges::lowest(&mut buffer, 8..21, [8..10, 11..19]);
    let feedback = Feedback {
        largest: PacketNumber::new(20),
        largest_sent: 1,
        largest_received: 2,
        delay: Duration::from_micros(50),
        packets: 11,
        bytes: Bytes::new(1200),
        ecn: EcnCounts { ect0: 7, ect1: 0, ce: 1 },
        socket_drops: 2,
        host_drops: 3,
        credit: Bytes::new(63),
        ranges,
        receive_capacity: Some(Rate::from_bps(0x3b9a_ca00)),
        socket_buffer: Some(Bytes::new(9)),
        bounds: ReceiverBounds {
            intake: Bottleneck::ReceiverCpu,
            storage: Bottleneck::ReceiverDisk,
        },
        limit: Some(ReceiverLimit {
            rate: Rate::from_mbps(500),
            cause: Bottleneck::ReceiverBuffer,
            lasts: Duration::from_millis(200),
        }),
        forgotten: Some(PacketNumber::new(6)),
    };
    check(&bytes, Frame::Feedback(feedback));
    check(
        &[5, 22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 1, 0],
        Frame::Feedback(Feedback::credit_only(Bytes::new(7))),
    );
}

#[test]
fn unknown_frames() {
    assert_eq!(decode(&[2, 1, 9, 1, 0]), Ok(vec![Frame::Ping]), "even: skipped");
    let unsupported = DecodeError::Unsupported { what: "frame type" };
    assert_eq!(decode(&[25, 0]), Err(unsupported), "odd: an error");
    assert_eq!(decode(&[0x40, 0, 0]), Err(DecodeError::Invalid { what: "PADDING frame" }));
    let mut frames = Frames::new(&[25, 0, 1, 0]);
    assert_eq!(frames.next(), Some(Err(unsupported)));
    assert_eq!(frames.next(), None, "nothing behind an error");
}

#[test]
fn forbidden_values() {
    for bytes in [
        &[1, 1, 0][..],                            // PING with a body
        &[3, 2, 0x41, 0x2c],                       // STATE without RTT
        &[7, 3, 4, 6, 2],                          // unknown flag
        &[7, 10, 0xc0, 0, 0, 1, 0, 0, 0, 0, 0, 0], // stream 2^32
        &[7, 11, 4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, b'x'], // past 2^62
        &[11, 2, 4, 0],
        &[13, 7, 0, 0, 0, 0, 0, 0, 0],
        &[15, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[19, 1, 0],
        &[19, 3, 0, 0, 0xff],                // not UTF-8
        &[21, 5, 1, 0x80, 0x98, 0x96, 0x81], // 10 s and 1 us
        &LIMIT_OF_TOO_LONG,
        &[23, 3, 1, 2, 2],             // beside itself
        &[23, 6, 1, 0x80, 1, 0, 0, 2], // no lane has such a number
        &[23, 2, 1, 2],
        &[1],
        &[1, 0x40],
        &[7, 9, 1],
    ] {
        assert!(decode(bytes).is_err(), "{bytes:?}");
    }
}

/// A report of nothing, and a limit that holds for 10 s and 1 us.
const LIMIT_OF_TOO_LONG: [u8; 32] = [
    5, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 1, 0, // see above
    10, 6, 7, 3, 0x80, 0x98, 0x96, 0x81,
];

#[test]
fn a_limit_holds_for_ten_seconds_at_most_and_has_three_fields() {
    let mut bytes = LIMIT_OF_TOO_LONG;
    assert_eq!(decode(&bytes), Err(DecodeError::Invalid { what: "FEEDBACK extension" }));
    bytes[31] = 0x80;
    let limit =
        ReceiverLimit { rate: Rate::from_bps(7), cause: Bottleneck::ReceiverCpu, lasts: MAX_LIMIT };
    let feedback = Feedback { limit: Some(limit), ..Feedback::credit_only(Bytes::new(7)) };
    check(&bytes, Frame::Feedback(feedback));
    for (len, missing) in [(5, 1), (7, 0)] {
        let mut cut = bytes[..32 - missing].to_vec();
        (cut[1], cut[25]) = (30 - missing as u8, len);
        assert!(decode(&cut).is_err(), "{len}");
    }
}

#[test]
fn long_values_are_cut_when_written() {
    let reason = "x".repeat(2_000);
    let bytes = encode(&Frame::Close { code: CloseCode::DONE, reason: &reason });
    let expected = Frame::Close { code: CloseCode::DONE, reason: &reason[..MAX_REASON] };
    assert_eq!(decode(&bytes), Ok(vec![expected]));
    let bytes = encode(&Frame::Suspend { order: 1, duration: Duration::from_secs(60) });
    assert_eq!(decode(&bytes), Ok(vec![Frame::Suspend { order: 1, duration: MAX_SUSPEND }]));
    let round_trip = Some(Duration::from_nanos(1));
    let bytes = encode(&Frame::State(State { floor: PacketNumber::new(0), round_trip }));
    assert_eq!(bytes, [3, 2, 0, 1], "a known RTT is never written as unknown");
}

#[test]
fn stream_frames_fill_the_room() {
    for room in 0..20_000 {
        let (stream, offset) = (StreamId(70), 1 << 20);
        let data = vec![7; stream_room(room, stream, offset)];
        let frame = Frame::Stream { stream, offset, fin: false, data: &data };
        if !data.is_empty() {
            assert!(frame.encoded_len() <= room && frame.encoded_len() + 2 >= room, "{room}");
        }
    }
}

/// A frame with the bytes that it borrows.
#[derive(Clone, Debug)]
enum Owned {
    Plain(Frame<'static>),
    Stream(u32, u64, bool, Vec<u8>),
    Close(u16, String),
    Feedback(Counts, Vec<(u64, u64)>, Extensions),
}

/// Capacity, socket buffer, what holds up intake and storage, a limit (rate, cause, time), and below which
/// number all is forgotten.
type Extensions = (Option<u64>, Option<u64>, u8, u8, Option<(u64, u8, u64)>, Option<u64>);

/// Largest, both times, delay, packets, from, credit.
type Counts = (u64, u64, u64, u64, u64, u64);

impl Owned {
    fn with<T>(&self, f: impl FnOnce(Frame<'_>) -> T) -> T {
        match self {
            Self::Plain(frame) => f(*frame),
            Self::Stream(stream, offset, fin, data) => {
                f(Frame::Stream { stream: StreamId(*stream), offset: *offset, fin: *fin, data })
            }
            Self::Close(code, reason) => f(Frame::Close { code: CloseCode(*code), reason }),
            Self::Feedback((largest, times, delay, count, from, credit), pairs, extensions) => {
                let (rate, size, intake, storage, limit, forgotten) = extensions;
                let mut buffer = [0xa5; 300];
                let mut at = *from;
                let received = pairs.iter().map(|(missing, count)| {
                    let start = at + missing;
                    at = start + count;
                    start..at
                });
                let ranges = Ranges::lowest(&mut buffer, *from..from + (1 << 40), received);
                f(Frame::Feedback(Feedback {
                    largest: PacketNumber::new(*largest),
                    largest_sent: *times as u32,
                    largest_received: (*times >> 32) as u32,
                    delay: Duration::from_micros(*delay),
                    packets: *count,
                    bytes: Bytes::new(count * 3),
                    ecn: EcnCounts { ect0: count / 2, ect1: count / 5, ce: count / 6 },
                    socket_drops: count / 3,
                    host_drops: count / 4,
                    credit: Bytes::new(*credit),
                    ranges,
                    receive_capacity: rate.map(Rate::from_bps),
                    socket_buffer: size.map(Bytes::new),
                    bounds: ReceiverBounds {
                        intake: Bottleneck::from_code(*intake),
                        storage: Bottleneck::from_code(*storage),
                    },
                    limit: limit.map(|(rate, cause, lasts)| ReceiverLimit {
                        rate: Rate::from_bps(rate),
                        cause: Bottleneck::from_code(cause),
                        lasts: Duration::from_micros(lasts),
                    }),
                    forgotten: forgotten.map(PacketNumber::new),
                }))
            }
        }
    }
}

fn any_varint() -> impl Strategy<Value = u64> {
    (0u32..62, any::<u64>()).prop_map(|(bits, low)| low & ((1 << (bits + 1)) - 1) & varint::MAX)
}

fn any_frame() -> impl Strategy<Value = Owned> {
    let number = || any_varint().prop_map(PacketNumber::new);
    let stream = || any::<u32>().prop_map(StreamId);
    let micros = |limit: u64| (0..=limit).prop_map(Duration::from_micros);
    let plain = prop_oneof![
        (1usize..2_000).prop_map(Frame::Padding),
        Just(Frame::Ping),
        (number(), prop::option::of((1..varint::MAX).prop_map(Duration::from_micros)))
            .prop_map(|(floor, round_trip)| Frame::State(State { floor, round_trip })),
        (stream(), any_varint()).prop_map(|(stream, limit)| Frame::StreamLimit { stream, limit }),
        (stream(), any::<u16>())
            .prop_map(|(stream, code)| Frame::StreamReset { stream, code: CloseCode(code) }),
        any::<[u8; 8]>().prop_map(Frame::Challenge),
        any::<[u8; 8]>().prop_map(Frame::Response),
        (any_varint(), number()).prop_map(|(round, end)| Frame::RoundEnd { round, end }),
        (any_varint(), micros(10_000_000))
            .prop_map(|(order, duration)| Frame::Suspend { order, duration }),
        (any_varint(), any::<u16>(), 1..=u16::MAX).prop_map(|(order, lane, apart)| {
            let beside = LaneId(lane.wrapping_add(apart));
            Frame::Move { order, lane: LaneId(lane), beside }
        }),
    ];
    let small = || prop::option::of(any_varint());
    prop_oneof![
        4 => plain.prop_map(Owned::Plain),
        1 => (any::<u32>(), 0..varint::MAX / 2, any::<bool>(),
            prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(stream, offset, fin, data)| Owned::Stream(stream, offset, fin, data)),
        1 => (any::<u16>(), ".{0,200}").prop_map(|(code, reason)| Owned::Close(code, reason)),
        2 => (
            (any_varint(), any::<u64>(), any_varint(), 0u64..1 << 50, 0u64..1 << 50, any_varint()),
            prop::collection::vec((1u64..100_000, 1u64..100_000), 0..60),
            (
                small(),
                small(),
                0u8..12,
                0u8..12,
                prop::option::of((any_varint(), 0u8..12, 0..=10_000_000u64)),
                small(),
            ),
        )
            .prop_map(|(fields, pairs, extensions)| Owned::Feedback(fields, pairs, extensions)),
    ]
}

proptest! {
    #[test]
    fn round_trip(frames in prop::collection::vec(any_frame(), 1..6)) {
        let mut bytes = Vec::new();
        for owned in &frames {
            owned.with(|frame| bytes.extend(encode(&frame)));
        }
        let decoded = decode(&bytes).unwrap();
        let mut again = Vec::new();
        for frame in &decoded {
            again.extend(encode(frame));
        }
        prop_assert_eq!(&again, &bytes);
        // Padding runs together; everything else comes back as it was.
        let mut others = decoded.iter().filter(|frame| !matches!(frame, Frame::Padding(_)));
        for owned in &frames {
            owned.with(|frame| if !matches!(frame, Frame::Padding(_)) {
                assert_eq!(others.next(), Some(&frame));
            });
        }
    }

    #[test]
    fn truncated_frames_are_errors(owned in any_frame()) {
        owned.with(|frame| {
            if matches!(frame, Frame::Padding(_)) {
                return;
            }
            let bytes = encode(&frame);
            for len in 1..bytes.len() {
                assert!(decode(&bytes[..len]).is_err());
            }
            let mut small = vec![0xa5; bytes.len() - 1];
            let mut writer = Writer::new(&mut small);
            assert_eq!(frame.encode(&mut writer), Err(Full));
            assert!(small.iter().all(|byte| *byte == 0xa5), "wrote a part");
        });
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for frame in Frames::new(&bytes).flatten() {
            encode(&frame);
            if let Frame::Feedback(feedback) = frame {
                feedback.ranges.iter().for_each(drop);
            }
        }
    }
}
