use longhaul_objects::hash::group_chaining_value;
use longhaul_units::ObjectId;

use super::*;

fn part(number: u32, len: u32) -> GroupPart {
    GroupPart { object: ObjectId(len), group: number, start: 0, len: 1 }
}

fn whole(number: u32, buffer: &'static str) -> WholeGroup<&'static str> {
    let len = buffer.len() as u32;
    WholeGroup { object: ObjectId(len), group: number, len, buffer }
}

fn value(bytes: &str) -> ChainingValue {
    group_chaining_value(bytes.as_bytes(), 0, true)
}

fn hashes(values: &[&str]) -> SourceMessage {
    let values = values.iter().map(|bytes| value(bytes)).collect();
    SourceMessage::Hashes { object: ObjectId(0), first_group: 0, values }
}

/// Does what comes next, and hashes right.
fn step(pipe: &mut IncomingPipe<&'static str>) -> Option<PipeStep<&'static str>> {
    let step = pipe.poll_step().unwrap()?;
    if let PipeStep::Hash(piece, buffer) = &step {
        assert_eq!(pipe.handle_hashed(*piece, value(buffer), buffer), Ok(None));
    }
    Some(step)
}

#[test]
fn pieces_are_let_in_within_the_credit_and_memory() {
    let mut pipe = IncomingPipe::new(2);
    let begin =
        |pipe: &IncomingPipe<u8>, number| pipe.begin(&part(number, 7), || Some(0)).map(drop);
    assert_eq!(begin(&pipe, 1), Ok(()));
    assert_eq!(begin(&pipe, 2), Err(Unplaceable::BeyondCredit));
    assert_eq!(pipe.begin(&part(0, 7), || None).map(drop), Err(Unplaceable::NoMemory));
    pipe.set_given_back(1);
    assert_eq!(begin(&pipe, 2), Ok(()));
    assert_eq!(begin(&pipe, 3), Err(Unplaceable::BeyondCredit));
}

#[test]
fn pieces_are_passed_on_in_order() {
    let mut pipe = IncomingPipe::new(4);
    pipe.handle_message(hashes(&["one", "two"])).unwrap();
    pipe.handle_piece(whole(1, "two"));
    assert!(matches!(step(&mut pipe), Some(PipeStep::Hash(..))));
    assert_eq!(step(&mut pipe), None);
    pipe.handle_piece(whole(0, "one"));
    assert!(matches!(step(&mut pipe), Some(PipeStep::Hash(..))));
    for (number, bytes) in [(0, "one"), (1, "two")] {
        let piece = Piece { number, len: 3 };
        assert_eq!(step(&mut pipe), Some(PipeStep::Pass(piece, value(bytes), bytes)));
    }
    assert_eq!((pipe.over().groups, pipe.bytes(), pipe.is_at_end()), (2, 6, false));
}

#[test]
fn of_a_damaged_piece_the_lanes_hear_first_and_its_memory_is_not_promised_twice() {
    let mut pipe = IncomingPipe::new(1);
    let credit = pipe.credit();
    pipe.handle_message(hashes(&["one"])).unwrap();
    pipe.handle_piece(whole(0, "oNe"));
    assert!(matches!(pipe.poll_step(), Ok(Some(PipeStep::Hash(..)))));
    let piece = Piece { number: 0, len: 3 };
    assert_eq!(pipe.handle_hashed(piece, value("oNe"), "oNe"), Ok(None));
    assert_eq!(pipe.poll_message(), None, "the lanes do not know");
    assert_eq!(pipe.poll_step(), Ok(Some(PipeStep::Waste("oNe"))));
    assert_eq!(pipe.poll_repair(), Some(Repair::ReceiveAgain(ObjectId(3), 0)));
    let repair = SinkMessage::Repair { object: ObjectId(3), group: 0 };
    assert_eq!(pipe.poll_message(), Some(repair));
    pipe.set_given_back(1);
    assert_eq!(pipe.credit(), credit, "it comes again");
    pipe.handle_piece(whole(0, "one"));
    assert!(matches!(step(&mut pipe), Some(PipeStep::Hash(..))));
    assert_eq!(pipe.poll_repair(), Some(Repair::Taken(ObjectId(3), 0)));
    assert!(matches!(step(&mut pipe), Some(PipeStep::Pass(..))));
    pipe.set_given_back(2);
    assert_eq!(pipe.credit(), credit + GROUP_SIZE);
}

/// It came whole on another lane: nothing of the pipe was freed by that.
#[test]
fn memory_that_a_lane_gave_up_is_not_promised_again() {
    let mut pipe = IncomingPipe::<&str>::new(2);
    pipe.handle_given_up();
    pipe.set_given_back(1);
    assert_eq!(pipe.credit(), 2 * GROUP_SIZE);
}

#[test]
fn a_repetition_is_wasted() {
    let mut pipe = IncomingPipe::new(2);
    for _ in 0..2 {
        pipe.handle_piece(whole(0, "one"));
    }
    assert!(matches!(step(&mut pipe), Some(PipeStep::Hash(..))));
    let Ok(Some(PipeStep::Hash(piece, buffer))) = pipe.poll_step() else { panic!("no step") };
    assert_eq!(pipe.handle_hashed(piece, value(buffer), buffer), Ok(Some("one")));
    pipe.set_given_back(1);
    assert_eq!(pipe.credit(), 2 * GROUP_SIZE);
}

#[test]
fn its_end_comes_once_behind_the_last_piece() {
    let mut pipe = IncomingPipe::<&str>::new(2);
    let bytes = longhaul_units::Bytes::new(0);
    pipe.handle_message(SourceMessage::ManifestEnd { entries: 0, objects: 0, bytes }).unwrap();
    assert_eq!(pipe.poll_step(), Ok(Some(PipeStep::End)));
    assert_eq!(pipe.poll_step(), Ok(None));
    assert!(pipe.is_at_end() && !pipe.is_done());
    pipe.finish(longhaul_wire::HostAccount::default());
    assert!(pipe.poll_message().is_some() && pipe.is_done());
}
