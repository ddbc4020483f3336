//! Checks of `longhaul-wire`: nothing panics, and what is accepted is written back as it was, up
//! to longer forms of integers and unknown parts, which the second round has no more.

use longhaul_units::RangeSet;
use longhaul_wire::{
    DecodeError, Feedback, Frame, Frames, HEADER_LEN, Header, JOIN_LEN, Join, MAX_RECORD_HEAD,
    Message, MessageReader, OBJECT_HEADER_LEN, ObjectHeader, Ranges, RecordHead, Writer,
};

/// Packet headers.
pub fn header(input: &[u8]) {
    if let Ok(header) = Header::parse(input) {
        let mut out = [0xa5; HEADER_LEN];
        header.emit(&mut out);
        assert_eq!(out, input[..HEADER_LEN]);
    }
    if let Ok(header) = ObjectHeader::parse(input) {
        let mut out = [0xa5; OBJECT_HEADER_LEN];
        header.emit(&mut out);
        assert_eq!(out, input[..OBJECT_HEADER_LEN]);
    }
}

/// Frames of a CONTROL packet.
pub fn frames(input: &[u8]) {
    let good: Vec<Frame<'_>> = Frames::new(input).map_while(Result::ok).collect();
    let mut bytes = Vec::new();
    for frame in &good {
        let before = bytes.len();
        frame.encode(&mut Writer::append(&mut bytes)).expect("a vector grows");
        assert_eq!(bytes.len() - before, frame.encoded_len());
        let mut small = vec![0xa5; frame.encoded_len() - 1];
        assert!(frame.encode(&mut Writer::new(&mut small)).is_err());
        assert!(small.iter().all(|byte| *byte == 0xa5), "a part was written");
    }
    let again: Result<Vec<Frame<'_>>, DecodeError> = Frames::new(&bytes).collect();
    let padding = |frames: &[Frame<'_>]| -> usize {
        frames.iter().map(|frame| if let Frame::Padding(len) = frame { *len } else { 0 }).sum()
    };
    let others = |frames: &[Frame<'_>]| -> Vec<String> {
        let others = frames.iter().filter(|frame| !matches!(frame, Frame::Padding(_)));
        others.map(|frame| format!("{frame:?}")).collect()
    };
    let again = again.expect("what was written can be read");
    assert_eq!(padding(&again), padding(&good));
    assert_eq!(others(&again), others(&good));
}

/// Ranges of FEEDBACK: the input once as a frame's body, once as a set of received numbers.
pub fn feedback(input: &[u8]) {
    let mut frame = vec![5];
    Writer::append(&mut frame).sized(input).expect("a vector grows");
    if let Some(Ok(Frame::Feedback(feedback))) = Frames::new(&frame).next() {
        let mut end = feedback.ranges.from();
        for range in feedback.ranges {
            assert!(end <= range.start && range.start < range.end);
            end = range.end;
        }
        assert!(end <= feedback.ranges.to());
    }

    let Some((&[from, len, room], pairs)) = input.split_first_chunk::<3>() else {
        return;
    };
    let mut received = RangeSet::new();
    for &[start, len] in pairs.as_chunks::<2>().0 {
        let start = u64::from(start) << (len >> 4);
        received.insert(start..start + u64::from(len & 0xf) * 9);
    }
    let from = u64::from(from) << 2;
    let span = from..from + (u64::from(len) << 4);
    let (mut one, mut other) = ([0xa5; 255], [0xa5; 255]);
    let room = usize::from(room);
    let lowest =
        Ranges::lowest(&mut one[..room.min(255)], span.clone(), received.iter_from(span.start));
    let highest = Ranges::highest(&mut other[..room.min(255)], span.clone(), received.iter().rev());
    assert_eq!(lowest.from(), span.start);
    assert_eq!(highest.to(), span.end);
    for ranges in [lowest, highest] {
        assert!(span.start <= ranges.from() && ranges.from() <= ranges.to());
        assert!(ranges.to() <= span.end);
        assert!(room < 17 || span.is_empty() || ranges.from() < ranges.to(), "no progress");
        let covered = ranges.from()..ranges.to();
        let mut reported = RangeSet::new();
        for range in ranges {
            reported.insert(range);
        }
        assert!(reported.gaps(covered.clone()).eq(received.gaps(covered)));
        let feedback = Feedback { ranges, ..Feedback::credit_only(Default::default()) };
        let mut bytes = Vec::new();
        let frame = Frame::Feedback(feedback);
        frame.encode(&mut Writer::append(&mut bytes)).expect("a vector grows");
        assert!(Frames::new(&bytes).eq([Ok(frame)]));
    }
}

/// Messages of stream 0, in pieces: the first byte is the size of the pieces.
pub fn messages(input: &[u8]) {
    let Some((&size, stream)) = input.split_first() else {
        return;
    };
    let whole = read(stream, stream.len().max(1));
    let pieces = read(stream, usize::from(size).max(1));
    assert_eq!(whole, pieces, "the pieces do not matter");
    for message in whole.0 {
        let mut bytes = Vec::new();
        if message.encode(&mut bytes).is_ok() {
            assert_eq!(read(&bytes, bytes.len()), (vec![message], None));
        }
    }
}

fn read(stream: &[u8], size: usize) -> (Vec<Message>, Option<DecodeError>) {
    let mut reader = MessageReader::new();
    let mut messages = Vec::new();
    for piece in stream.chunks(size) {
        reader.push(piece);
        loop {
            match reader.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

/// Joins and records of the TCP carrier.
pub fn records(input: &[u8]) {
    if let Some(bytes) = input.first_chunk::<JOIN_LEN>()
        && let Ok(join) = Join::parse(bytes)
    {
        let mut out = [0xa5; JOIN_LEN];
        join.emit(&mut out);
        assert_eq!(out, *bytes);
    }
    let mut rest = input;
    while let Ok(Some((head, len))) = RecordHead::parse(rest) {
        let mut out = [0xa5; MAX_RECORD_HEAD];
        head.encode(&mut Writer::new(&mut out)).expect("a head is at most that long");
        assert_eq!(out[..len], rest[..len]);
        for short in 0..len {
            assert_eq!(RecordHead::parse(&rest[..short]), Ok(None));
        }
        let (RecordHead::Frames { len: body } | RecordHead::Object { len: body, .. }) = head;
        rest = rest.get(len + body..).unwrap_or_default();
    }
}
