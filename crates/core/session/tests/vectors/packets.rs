//! Key schedule and packets (docs/protocol.md sections 4 and 5).

use aws_lc_rs::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use longhaul_session::{EpochKeys, LaneKeys, Session};
use longhaul_units::{Bytes, Duration, EcnCounts, LaneId, ObjectId, PacketNumber, Rate, StreamId};
use longhaul_wire::{
    AEAD_TAG_LEN, Bottleneck, Cipher, CloseCode, Feedback, Frame, Frames, HEADER_LEN, Header, Kind,
    OBJECT_HEADER_LEN, ObjectHeader, Ranges, ReceiverBounds, ReceiverLimit, State, Writer,
};
use siphasher::sip::SipHasher24;

use crate::page::Page;

pub fn write(page: &mut Page, session: &Session) {
    key_schedule(page, session);
    control_packets(page, session);
    object_packets(page, session);
    frames(page);
    feedback(page);
}

fn key_schedule(page: &mut Page, session: &Session) {
    page.section(
        "Key schedule (4.2)",
        "The packet key of AES-128-GCM is the first half of the one given.",
    );
    for lane in [0, 1] {
        let lane = LaneId(lane);
        for (name, mut keys) in [
            ("client to server", session.send_keys(lane)),
            ("server to client", session.receive_keys(lane)),
        ] {
            for epoch in 0..2 {
                page.part(&format!("Lane {}, {name}, epoch {epoch}", lane.0), "");
                keys.advance_to(epoch);
                let keys = keys.epoch(epoch).unwrap();
                let number = number(epoch, 0);
                page.bytes("packet key", keys.packet_key(Cipher::ChaCha20Poly1305));
                page.bytes("iv", iv(keys));
                page.bytes("header key", keys.header_key());
                page.bytes("first number", number.get().to_be_bytes());
                page.bytes("its nonce", keys.nonce(number));
            }
        }
    }
}

fn control_packets(page: &mut Page, session: &Session) {
    page.section(
        "CONTROL packets (4.1, 4.3)",
        "From the client on lane 0, in either cipher: PING, STATE and two bytes of PADDING.",
    );
    let frames = [
        Frame::Ping,
        Frame::State(State {
            floor: number(1, 3),
            round_trip: Some(Duration::from_micros(100_000)),
        }),
        Frame::Padding(2),
    ];
    let body = encoded(&frames);
    let header = header(Kind::Control, 5);
    let mut packet = vec![0xa5; HEADER_LEN];
    header.emit(packet.first_chunk_mut().unwrap());
    let keys = keys_of_epoch_one(session);
    page.value("packet number", "epoch 1, sequence 5");
    page.bytes("header", &packet);
    page.bytes("frames", &body);
    for cipher in Cipher::ALL {
        let (sealed, tag) = seal(*cipher, epoch_one(&keys), header.number, &packet, &body);
        page.value("cipher", cipher);
        page.bytes("datagram", [&packet[..], &sealed, &tag].concat());
    }
}

fn object_packets(page: &mut Page, session: &Session) {
    page.section(
        "OBJECT packets (4.1, 4.3)",
        "From the client on lane 0: 20 bytes of object 7 from offset 4096 on, in the three modes,\n\
         AES-128-GCM.",
    );
    let payload = b"twenty bytes of data";
    let object =
        ObjectHeader { header: header(Kind::Object, 6), object: ObjectId(7), offset: 4096 };
    let mut header = vec![0xa5; OBJECT_HEADER_LEN];
    object.emit(header.first_chunk_mut().unwrap());
    let keys = keys_of_epoch_one(session);
    let keys = epoch_one(&keys);
    let number = object.header.number;
    page.value("packet number", "epoch 1, sequence 6");
    page.bytes("header", &header);
    page.bytes("payload", payload);
    let cipher = Cipher::Aes128Gcm;
    let (sealed, tag) = seal(cipher, keys, number, &header, payload);
    page.bytes("aead", [&header[..], &sealed, &tag].concat());
    let clear = [&header[..], payload].concat();
    let (nothing, tag) = seal(cipher, keys, number, &clear, &[]);
    assert!(nothing.is_empty());
    page.bytes("integrity", [&clear[..], &tag].concat());
    let tag = SipHasher24::new_with_key(keys.header_key()).hash(&header).to_le_bytes();
    page.bytes("clear", [&clear[..], &tag].concat());
}

fn frames(page: &mut Page) {
    page.section("Frames (5)", "");
    let stream = StreamId(4);
    for (name, frame) in [
        ("PADDING", Frame::Padding(3)),
        ("PING", Frame::Ping),
        ("STATE", Frame::State(State { floor: PacketNumber::new(300), round_trip: None })),
        ("STREAM", Frame::Stream { stream, offset: 1 << 20, fin: true, data: b"end" }),
        ("STREAM_LIMIT", Frame::StreamLimit { stream, limit: 1 << 18 }),
        ("STREAM_RESET", Frame::StreamReset { stream, code: CloseCode::CANCELLED }),
        ("CHALLENGE", Frame::Challenge(*b"abcdefgh")),
        ("RESPONSE", Frame::Response(*b"abcdefgh")),
        ("ROUND_END", Frame::RoundEnd { round: 2, end: PacketNumber::new(70_000) }),
        ("CLOSE", Frame::Close { code: CloseCode::STORAGE, reason: "disk full" }),
        ("SUSPEND", Frame::Suspend { order: 3, duration: Duration::from_millis(20) }),
        ("MOVE", Frame::Move { order: 2, lane: LaneId(1), beside: LaneId(0) }),
    ] {
        page.bytes(name, encoded(&[frame]));
    }
}

fn feedback(page: &mut Page) {
    let flight = core::iter::once(1000..1044).collect::<Vec<_>>();
    page.section("FEEDBACK (5.4)", "Received numbers are given as first..one past the last.");
    let full = Feedback {
        largest: PacketNumber::new(1043),
        largest_sent: 5_000_000,
        largest_received: 4_294_967_290,
        delay: Duration::from_micros(120),
        packets: 1001,
        bytes: Bytes::new(1_453_452),
        ecn: EcnCounts { ect0: 990, ect1: 0, ce: 2 },
        socket_drops: 16,
        host_drops: 4,
        credit: Bytes::from_mib(64),
        ranges: Ranges::EMPTY,
        receive_capacity: None,
        socket_buffer: None,
        bounds: ReceiverBounds::NONE,
        limit: None,
        forgotten: None,
    };
    let extended = Feedback {
        receive_capacity: Some(Rate::from_gbps(10)),
        socket_buffer: Some(Bytes::from_mib(8)),
        bounds: ReceiverBounds {
            intake: Bottleneck::ReceiverCpu,
            storage: Bottleneck::ReceiverDisk,
        },
        limit: Some(ReceiverLimit {
            rate: Rate::from_gbps(2),
            cause: Bottleneck::ReceiverBuffer,
            lasts: Duration::from_millis(200),
        }),
        forgotten: Some(PacketNumber::new(1000)),
        ..full
    };
    for (name, span, received, feedback) in [
        ("Nothing is missing", 1000..1044, flight.clone(), full),
        ("Gaps", 1000..1044, vec![1003..1020, 1040..1044], full),
        ("The end of a blast round is missing", 1000..1100, flight, full),
        ("With extensions", 1000..1044, vec![1000..1040, 1041..1044], extended),
    ] {
        let mut buffer = [0xa5; 64];
        let ranges = Ranges::lowest(&mut buffer, span.clone(), received.iter().cloned());
        assert_eq!(ranges.to(), span.end);
        page.part(name, "");
        page.value("from, to", format_args!("{} {}", span.start, span.end));
        page.value("received", format_args!("{received:?}"));
        show_feedback(page, Feedback { ranges, ..feedback });
    }
    page.part(
        "A frame byte by byte",
        "The first of the above, which says that nothing is missing: every field that there is without\n\
         extensions.",
    );
    let mut buffer = [0xa5; 64];
    let ranges = Ranges::lowest(&mut buffer, 1000..1044, core::iter::once(1000..1044));
    cut_feedback(page, &encoded(&[Frame::Feedback(Feedback { ranges, ..full })]));
    page.part("Credit alone, as a TCP carrier sends it", "");
    show_feedback(page, Feedback::credit_only(Bytes::from_mib(64)));
}

fn show_feedback(page: &mut Page, feedback: Feedback<'_>) {
    page.value("largest", feedback.largest.get());
    page.value("largest sent", feedback.largest_sent);
    page.value("largest received", feedback.largest_received);
    page.value("delay", feedback.delay.as_micros());
    page.value("packets, bytes", format_args!("{} {}", feedback.packets, feedback.bytes.get()));
    let EcnCounts { ect0, ect1, ce } = feedback.ecn;
    page.value("ECT(0), ECT(1), CE", format_args!("{ect0} {ect1} {ce}"));
    page.value(
        "socket, host drops",
        format_args!("{} {}", feedback.socket_drops, feedback.host_drops),
    );
    page.value("credit", feedback.credit.get());
    if let Some(capacity) = feedback.receive_capacity {
        page.value("receive capacity", capacity.as_bps());
    }
    if let Some(size) = feedback.socket_buffer {
        page.value("socket buffer", size.get());
    }
    let ReceiverBounds { intake, storage } = feedback.bounds;
    if feedback.bounds != ReceiverBounds::NONE {
        page.value("intake, storage", format_args!("{intake}, {storage}"));
    }
    if let Some(ReceiverLimit { rate, cause, lasts }) = feedback.limit {
        let (rate, lasts) = (rate.as_bps(), lasts.as_micros());
        page.value("limit", format_args!("{rate} {cause} {lasts}"));
    }
    page.bytes("frame", encoded(&[Frame::Feedback(feedback)]));
}

/// Each field of the frame with its bytes, in the order of protocol.md 5.4.
fn cut_feedback(page: &mut Page, frame: &[u8]) {
    const FIELDS: [&str; 18] = [
        "type",
        "length",
        "largest",
        "largest sent",
        "largest received",
        "delay",
        "packets",
        "bytes",
        "ECT(0)",
        "ECT(1)",
        "CE",
        "socket drops",
        "host drops",
        "credit",
        "from",
        "to",
        "ranges length",
        "ranges",
    ];
    let mut rest = frame;
    for name in FIELDS {
        let len = match name {
            "largest sent" | "largest received" => 4,
            "ranges" => rest.len(),
            _ => 1 << (rest[0] >> 6),
        };
        let (field, behind) = rest.split_at(len);
        page.bytes(name, field);
        rest = behind;
    }
}

/// The frames as they stand in a packet; they must read back as the same.
fn encoded(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        frame.encode(&mut Writer::append(&mut bytes)).unwrap();
    }
    let again: Vec<_> = Frames::new(&bytes).map(Result::unwrap).collect();
    assert_eq!(again, frames);
    bytes
}

/// Ciphertext and tag; they must open again.
pub fn seal(
    cipher: Cipher,
    keys: &EpochKeys,
    number: PacketNumber,
    associated: &[u8],
    plain: &[u8],
) -> (Vec<u8>, Vec<u8>) {
    let algorithm = match cipher {
        Cipher::Aes128Gcm => &AES_128_GCM,
        Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    };
    let key = LessSafeKey::new(UnboundKey::new(algorithm, keys.packet_key(cipher)).unwrap());
    let nonce = || Nonce::assume_unique_for_key(keys.nonce(number));
    let mut sealed = plain.to_vec();
    key.seal_in_place_append_tag(nonce(), Aad::from(associated), &mut sealed).unwrap();
    let mut opened = sealed.clone();
    assert_eq!(key.open_in_place(nonce(), Aad::from(associated), &mut opened).unwrap(), plain);
    let tag = sealed.split_off(plain.len());
    assert_eq!(tag.len(), AEAD_TAG_LEN);
    (sealed, tag)
}

fn header(kind: Kind, sequence: u64) -> Header {
    Header {
        kind,
        lane: LaneId(0),
        connection: longhaul_wire::ConnectionId(0x0102_0304),
        number: number(1, sequence),
        send_time: 1_000_000,
    }
}

fn number(epoch: u16, sequence: u64) -> PacketNumber {
    PacketNumber::new(u64::from(epoch) << PacketNumber::SEQUENCE_BITS | sequence)
}

fn keys_of_epoch_one(session: &Session) -> LaneKeys {
    let mut keys = session.send_keys(LaneId(0));
    keys.advance_to(1);
    keys
}

fn epoch_one(keys: &LaneKeys) -> &EpochKeys {
    keys.epoch(1).unwrap()
}

/// The nonce of number 0 is the iv itself.
fn iv(keys: &EpochKeys) -> [u8; 12] {
    keys.nonce(PacketNumber::new(0))
}
