use alloc::vec;
use alloc::vec::Vec;

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_units::{Bytes, Duration};
use longhaul_wire::ReceiverBounds;

use super::*;
use crate::diagnosis::{Diagnosis, SendingSide, Times};
use crate::gate::tests::Backlogs;
use crate::thread_time::Spent;

const NOW: Instant = Instant::ZERO;

/// The end of a pipe whose other end is there, with credit for so many pieces.
fn joined(credit: u64) -> OutgoingPipe<&'static str> {
    let mut pipe = OutgoingPipe::new(NOW, 2);
    pipe.handle_message(SinkMessage::Accept { objects: 1 << 32 }).unwrap();
    pipe.gate.handle_credit(credit * GROUP_SIZE);
    pipe
}

/// Lanes that have had nothing to send for so long.
struct Idle(Duration);

impl Lanes for Idle {
    fn backlog(&self, _: usize) -> u64 {
        0
    }

    fn idle_time(&self, _: usize) -> Duration {
        self.0
    }
}

fn idle() -> Backlogs {
    Backlogs(vec![0, 0])
}

fn offers(pipe: &mut OutgoingPipe<&'static str>, lanes: &Backlogs) -> Vec<&'static str> {
    core::iter::from_fn(|| pipe.poll_offer(NOW, lanes)).map(|offer| offer.bytes).collect()
}

#[test]
fn pieces_wait_for_the_other_end_credit_and_room() {
    let mut pipe = OutgoingPipe::new(NOW, 2);
    pipe.push("a", 1, [0; 32]);
    pipe.push("b", 1, [0; 32]);
    pipe.gate.handle_credit(GROUP_SIZE);
    assert!(offers(&mut pipe, &idle()).is_empty());
    pipe.handle_message(SinkMessage::Accept { objects: 1 << 32 }).unwrap();
    let full = Backlogs(vec![100 * GROUP_SIZE, 0]);
    assert!(offers(&mut pipe, &full).is_empty() && pipe.gate.wants_room());
    assert_eq!(offers(&mut pipe, &idle()), ["a"], "a short piece takes the credit of a whole one");
    pipe.gate.handle_credit(2 * GROUP_SIZE);
    assert_eq!(offers(&mut pipe, &idle()), ["b"]);
    assert!(!pipe.gate.wants_room());
}

#[test]
fn nothing_is_read_while_a_piece_waits() {
    let mut pipe = joined(1);
    assert_eq!(pipe.next_buffer(NOW, &idle(), || Some(7)), Ok(Some(7)));
    assert_eq!(pipe.next_buffer(NOW, &idle(), || None::<u8>), Ok(None));
    pipe.push("a", 1, [0; 32]);
    assert_eq!(pipe.next_buffer(NOW, &idle(), || Some(7)), Ok(None));
    assert_eq!(offers(&mut pipe, &idle()), ["a"]);
    assert_eq!(pipe.next_buffer(NOW, &idle(), || Some(7)), Ok(None), "no credit");
}

#[test]
fn a_damaged_piece_goes_again_until_it_is_confirmed() {
    let mut pipe = joined(2);
    pipe.push("a", 5, [0; 32]);
    pipe.finish();
    assert_eq!(offers(&mut pipe, &idle()), ["a"]);
    let piece = Piece { number: 0, len: 5 };
    let repair = SinkMessage::Repair { object: piece.object(), group: 0 };
    pipe.handle_message(repair.clone()).unwrap();
    assert_eq!(offers(&mut pipe, &idle()), ["a"]);
    assert!(pipe.is_under_way() && pipe.confirmed() == 0);
    // Asked for again by a report that a confirmation overtook.
    pipe.handle_message(repair).unwrap();
    let entries = core::iter::once(0..1).collect();
    pipe.handle_message(SinkMessage::Confirm { entries }).unwrap();
    assert!(offers(&mut pipe, &idle()).is_empty());
    assert_eq!(pipe.confirmed(), 5);
    while pipe.poll_message().is_some() {}
    let summary = Summary {
        confirmed: 1,
        failed: 0,
        skipped: 0,
        unchanged: 0,
        bytes: Bytes::new(5),
        resumed: Bytes::new(0),
        notes: 0,
        not_kept: 0,
        host: longhaul_wire::HostAccount {
            cpu_time: longhaul_units::Duration::ZERO,
            ..Default::default()
        },
    };
    pipe.handle_message(SinkMessage::Result(summary.into())).unwrap();
    assert_eq!(pipe.result(), Some(&summary));
}

#[test]
fn behind_the_last_piece_it_waits_for_the_program_that_takes_the_output() {
    let mut pipe = joined(2);
    let mut diagnosis = Diagnosis::new(NOW);
    assert_eq!(pipe.next_buffer(NOW, &idle(), || Some(7)), Ok(Some(7)));
    pipe.push("a", 5, [0; 32]);
    assert_eq!(offers(&mut pipe, &idle()), ["a"]);
    pipe.finish();
    assert!(offers(&mut pipe, &idle()).is_empty());
    let second = Duration::from_secs(1);
    diagnosis.observe(SendingSide {
        stages: pipe.gate.stages(NOW + second, &Idle(second)),
        readers: Spent::default(),
        carrier: Times::default(),
        lanes: Spent::default(),
        receiver: ReceiverBounds { intake: Bottleneck::Unknown, storage: Bottleneck::Output },
    });
    assert_eq!(diagnosis.now(), Bottleneck::Output);
}

#[test]
fn a_sink_that_closes_as_one_that_has_everything_is_believed_once_everything_was_sent() {
    let mut pipe = joined(2);
    pipe.push("a", 1, [0; 32]);
    pipe.conclude();
    assert_eq!(pipe.done(), None, "there may be more");
    pipe.finish();
    pipe.conclude();
    assert_eq!(pipe.done(), None, "a piece waits");
    assert_eq!(offers(&mut pipe, &idle()), ["a"]);
    pipe.conclude();
    assert_eq!(pipe.done(), Some(1));
}
