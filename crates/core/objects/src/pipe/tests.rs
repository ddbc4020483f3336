use super::*;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::{Bytes, Duration};
use longhaul_wire::{SinkMessage, SourceMessage};
use proptest::prelude::*;

use crate::hash::ChainingValue;
use crate::hash::group_chaining_value;
use crate::table::ObjectTable;

fn value(byte: u8) -> ChainingValue {
    group_chaining_value(&[byte], 0, true)
}

fn messages(source: &mut PipeSource, sink: &mut PipeSink) -> Result<(), PipeError> {
    loop {
        let (forth, back) = (source.poll_message(), sink.poll_message());
        if forth.is_none() && back.is_none() {
            return Ok(());
        }
        forth.map_or(Ok(()), |message| sink.handle(message))?;
        back.map_or(Ok(()), |message| source.handle(message))?;
    }
}

fn confirm(pieces: Range<u64>) -> SinkMessage {
    SinkMessage::Confirm { entries: core::iter::once(pieces).collect() }
}

#[test]
fn nothing_goes_before_the_other_end_is_there() {
    let (mut source, mut sink) = (PipeSource::new(), PipeSink::new(2));
    assert!(!source.may_send(sink.credit()));
    sink.accept();
    messages(&mut source, &mut sink).unwrap();
    assert!(source.is_accepted() && source.may_send(sink.credit()));
}

#[test]
fn an_empty_pipe_ends_as_whole() {
    let (mut source, mut sink) = (PipeSource::new(), PipeSink::new(2));
    sink.accept();
    source.finish();
    messages(&mut source, &mut sink).unwrap();
    assert_eq!(sink.is_at_end(), Ok(true));
    assert!(source.result().is_none());
    sink.finish(longhaul_wire::HostAccount::default());
    messages(&mut source, &mut sink).unwrap();
    assert_eq!(source.result().unwrap().bytes, Bytes::new(0));
}

#[test]
fn a_piece_takes_its_place_whatever_its_length() {
    let (mut source, mut sink) = (PipeSource::new(), PipeSink::new(2));
    sink.accept();
    messages(&mut source, &mut sink).unwrap();
    let first = source.push(1, value(0));
    source.push(1, value(1));
    assert!(!source.may_send(sink.credit()));
    messages(&mut source, &mut sink).unwrap();
    assert_eq!(sink.piece_received(first, value(0)), Ok(true));
    assert_eq!(sink.poll_event(), Some(PipeSinkEvent::Take(first, value(0))));
    // Its bytes are still under way to whom they are for.
    assert!(!source.may_send(sink.credit()));
    sink.set_freed(1);
    assert!(source.may_send(sink.credit()));
}

#[test]
fn a_damaged_piece_goes_again_three_times() {
    let (mut source, mut sink) = (PipeSource::new(), PipeSink::new(2));
    let piece = source.push(7, value(0));
    messages(&mut source, &mut sink).unwrap();
    for _ in 0..3 {
        assert_eq!(sink.piece_received(piece, value(1)), Ok(true));
        assert_eq!(sink.poll_message(), None, "the lanes do not know yet");
        assert_eq!(sink.poll_event(), Some(PipeSinkEvent::Drop(piece)));
        assert_eq!(sink.poll_event(), None);
        messages(&mut source, &mut sink).unwrap();
        assert_eq!(source.poll_event(), Some(PipeSourceEvent::Resend(piece)));
    }
    assert_eq!(sink.piece_received(piece, value(1)), Err(PipeError::Damaged(0)));
}

#[test]
fn what_does_not_fit_is_refused() {
    let hashes = |object, first_group, count| SourceMessage::Hashes {
        object: ObjectId(object),
        first_group,
        values: vec![[0; 32]; count],
    };
    let end = |objects, bytes| SourceMessage::ManifestEnd {
        entries: 0,
        objects,
        bytes: Bytes::new(bytes),
    };
    let mut sink = PipeSink::new(2);
    for wrong in [hashes(1, 0, 1), hashes(0, 1, 1), hashes(0, 0, 3), end(1, 1)] {
        assert!(sink.handle(wrong).is_err());
    }
    sink.handle(hashes(0, 0, 1)).unwrap();
    assert!(sink.handle(end(0, 0)).is_err());
    sink.handle(end(1, 9)).unwrap();
    assert!(sink.handle(hashes(0, 1, 1)).is_err() && sink.handle(end(1, 9)).is_err());
    assert_eq!(sink.piece_received(Piece { number: 2, len: 5 }, [0; 32]), Ok(false));
    assert_eq!(sink.piece_received(Piece { number: 0, len: 5 }, [0; 32]), Ok(true));
    assert_eq!(sink.piece_received(Piece { number: 0, len: 6 }, [0; 32]), Ok(false));
    assert!(sink.poll_event().is_some());
    assert!(sink.is_at_end().is_err(), "five bytes are not nine");

    let mut source = PipeSource::new();
    let piece = source.push(5, [0; 32]);
    let summary = longhaul_wire::Summary {
        confirmed: 1,
        failed: 0,
        skipped: 0,
        unchanged: 0,
        bytes: Bytes::new(5),
        resumed: Bytes::new(0),
        notes: 0,
        not_kept: 0,
        host: longhaul_wire::HostAccount { cpu_time: Duration::ZERO, ..Default::default() },
    };
    for wrong in [
        SinkMessage::Repair { object: ObjectId(6), group: 0 },
        SinkMessage::Repair { object: ObjectId(5), group: 1 },
        SinkMessage::Repair { object: ObjectId(5), group: 1 << 32 },
        confirm(1..2),
        confirm(1 << 40..1 << 50),
        SinkMessage::Result(summary.into()),
        SinkMessage::Have { object: ObjectId(5), groups: vec![] },
    ] {
        assert!(source.handle(wrong).is_err());
    }
    source.handle(confirm(0..1)).unwrap();
    assert_eq!(source.poll_event(), Some(PipeSourceEvent::Forget(piece)));
    assert!(
        source.handle(SinkMessage::Result(summary.into())).is_err(),
        "before the end is announced"
    );
}

proptest! {
    /// However pieces arrive, they are given out once, in order, and both ends agree on the end.
    #[test]
    fn pieces_come_out_in_order(
        lens in prop::collection::vec(1u32..=1 << 20, 0..40),
        capacity in 1u64..9,
        steps in prop::collection::vec((0u8..6, 0usize..8), 0..200),
    ) {
        let (mut source, mut sink) = (PipeSource::new(), PipeSink::new(capacity));
        sink.accept();
        let (mut pushed, mut freed) = (0, 0);
        let (mut flight, mut taken) = (Vec::<Piece>::new(), Vec::new());
        // A piece whose hash finds it damaged takes a round more: the lanes are notified first.
        let endless = core::iter::repeat_n([(0, 0), (2, 0), (4, 0), (5, 0)], 5 * lens.len() + 5);
        for (what, n) in steps.into_iter().chain(endless.flatten()) {
            match what {
                0 if pushed < lens.len() && source.may_send(sink.credit()) => {
                    flight.push(source.push(lens[pushed], value(pushed as u8)));
                    pushed += 1;
                }
                // Whole, twice, or damaged.
                1..=3 if !flight.is_empty() => {
                    let piece = flight[n % flight.len()];
                    let good = what != 3 || n > 1;
                    let was = if good { value(piece.number as u8) } else { value(255) };
                    match sink.piece_received(piece, was) {
                        Err(PipeError::Damaged(_)) => return Ok(()),
                        other => { other.unwrap(); }
                    }
                    if what == 2 {
                        flight.swap_remove(n % flight.len());
                    }
                }
                4 => {
                    while let Some(event) = sink.poll_event() {
                        if let PipeSinkEvent::Take(piece, hash) = event {
                            prop_assert_eq!(hash, value(piece.number as u8));
                            taken.push(piece);
                            freed += 1;
                        }
                    }
                    sink.set_freed(freed);
                }
                _ => match messages(&mut source, &mut sink) {
                    Err(PipeError::Damaged(_)) => return Ok(()),
                    other => {
                        other.unwrap();
                        while let Some(event) = source.poll_event() {
                            if let PipeSourceEvent::Resend(piece) = event {
                                flight.push(piece);
                            }
                        }
                    }
                },
            }
        }
        source.finish();
        messages(&mut source, &mut sink).unwrap();
        prop_assert_eq!(sink.is_at_end(), Ok(true));
        sink.finish(longhaul_wire::HostAccount::default());
        messages(&mut source, &mut sink).unwrap();
        prop_assert_eq!(source.result().unwrap().bytes.get(), sink.bytes());
        prop_assert_eq!(source.unconfirmed(), 0);
        let got: Vec<u32> = taken.iter().map(|piece| piece.len).collect();
        prop_assert_eq!(got, lens);
    }

    /// Every packet of a piece says which piece it belongs to, and how long that is.
    #[test]
    fn packets_find_their_piece(number in any::<u32>(), len in 1u32..=1 << 20, at in any::<u32>()) {
        let table = ObjectTable::of_pieces();
        let piece = Piece { number, len };
        let within = at % len;
        let placed = table.place(piece.object(), piece.extent().offset + u64::from(within), 1);
        let placed = placed.unwrap();
        prop_assert_eq!((placed.group, placed.offset, placed.group_len), (number, within, len));
        let behind = piece.extent().end();
        prop_assert!(table.place(piece.object(), behind - 1, 2).is_err());
    }
}
