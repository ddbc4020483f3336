use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use longhaul_objects::testing::MemoryStorage;
use longhaul_objects::{Belief, ResumeState, SinkConfig};
use longhaul_rate_control::{MemoryBudget, Repair};
use longhaul_units::{Bytes, Duration};
use longhaul_wire::{Direction, PipeRequest, PipeRole, Request, SinkMessage, SourceMessage};

use super::*;
use crate::gate::tests::Backlogs;

type Half = SharedHalf<Vec<u8>, Vec<u8>>;

const NOW: Instant = Instant::ZERO;

fn wish(direction: Direction) -> Wish {
    Wish::Copy(Request::new(direction, vec![b"tree".to_vec()]))
}

fn watch(patience: Duration) -> Watch {
    let memory =
        MemoryBudget::new(NOW, Bytes::from_mib(8), Bytes::from_mib(64), Repair::Continuous);
    Watch::new(NOW, memory, patience)
}

fn source() -> Transfer<Vec<u8>, Vec<u8>> {
    Transfer::OutgoingCopy(Box::new(OutgoingCopy::new(NOW, 1, Belief::default())))
}

fn sink() -> Transfer<Vec<u8>, Vec<u8>> {
    let config = SinkConfig { capacity: 8 << 20, ..SinkConfig::default() };
    Transfer::IncomingCopy(Box::new(IncomingCopy::new(config, ResumeState::default())))
}

fn client(direction: Direction) -> Half {
    let mut client = Half::client(&wish(direction));
    let transfer = if direction == Direction::Push { source() } else { sink() };
    client.begin(transfer, watch(Duration::from_secs(1)));
    client
}

/// Brings all messages of one end to the other; returns the first error.
fn pass(from: &mut Half, to: &mut Half) -> Result<Option<Wish>, Violation> {
    let mut wish = None;
    while let Some(message) = from.poll_message() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        to.handle_bytes(&bytes);
        while let Some(received) = to.poll_received()? {
            wish = wish.or(to.handle_received(received)?);
        }
    }
    Ok(wish)
}

fn closed(code: CloseCode) -> Closed {
    Closed { code, reason: "over".into(), by_peer: true }
}

#[test]
fn a_refused_client_may_close_and_its_server_waits_for_that() {
    let (mut client, mut server) = (client(Direction::Push), Half::server());
    assert_eq!(pass(&mut client, &mut server), Ok(Some(wish(Direction::Push))));
    let refused = Refused { code: CloseCode::REFUSED, reason: "no".into(), part: None };
    server.refuse(refused.clone());
    assert_eq!(server.end(), None, "the client has to hear it");
    pass(&mut server, &mut client).unwrap();
    assert_eq!(client.end(), Some(End::Refused(refused.clone())));
    server.handle_closed(closed(CloseCode::CANCELLED));
    assert_eq!(server.end(), Some(End::Refused(refused)));
}

#[test]
fn an_empty_copy_is_done_at_both_ends_once_the_client_closes() {
    let (mut client, mut server) = (client(Direction::Push), Half::server());
    pass(&mut client, &mut server).unwrap();
    server.begin(sink(), watch(Duration::from_secs(1)));
    client.outgoing_copy().unwrap().finish_entries();
    pass(&mut client, &mut server).unwrap();
    let copy = server.incoming_copy().unwrap();
    while let Some(action) = copy.poll_action(NOW) {
        let Ok(answer) = longhaul_objects::storage::perform(&mut MemoryStorage::default(), action);
        copy.handle_answer(answer);
    }
    pass(&mut server, &mut client).unwrap();
    assert!(server.is_done() && client.is_done());
    assert_eq!(client.end(), Some(End::Done));
    assert_eq!(server.end(), None);
    server.handle_closed(closed(CloseCode::DONE));
    assert_eq!(server.end(), Some(End::Done));
}

#[test]
fn a_sink_that_closes_waits_until_its_source_has_read_the_result() {
    let mut client =
        Half::client(&Wish::Pipe(PipeRequest { role: PipeRole::Receive, name: b"pipe".to_vec() }));
    let mut pipe = IncomingPipe::new(4);
    pipe.accept();
    let end = SourceMessage::ManifestEnd { entries: 0, objects: 0, bytes: Bytes::ZERO };
    pipe.handle_message(end).unwrap();
    assert_eq!(pipe.poll_step(), Ok(Some(crate::incoming_pipe::PipeStep::End)));
    pipe.finish(longhaul_wire::HostAccount::default());
    client.begin(Transfer::IncomingPipe(Box::new(pipe)), watch(Duration::ZERO));
    while client.poll_message().is_some() {}
    assert!(client.is_done());
    assert_eq!(client.end(), None);
    client.handle_end().unwrap();
    assert_eq!(client.end(), Some(End::Done));
}

#[test]
fn what_is_not_for_this_end_is_a_violation_before_and_after_it_has_begun() {
    let mut server = Half::server();
    let mut bytes = Vec::new();
    Message::from(SinkMessage::Accept { objects: 1 }).encode(&mut bytes).unwrap();
    server.handle_bytes(&bytes);
    assert_eq!(server.poll_received(), Err(Misspoken::OutOfTurn.into()));
    let mut sink = client(Direction::Pull);
    let wrong = Received::Sink(SinkMessage::Accept { objects: 1 });
    assert_eq!(sink.handle_received(wrong), Err(Misspoken::OutOfTurn.into()));
}

#[test]
fn lanes_of_a_server_that_has_granted_nothing_get_no_memory() {
    let mut server = Half::server();
    let part = GroupPart::new(longhaul_units::ObjectId(0), 0, 7).unwrap();
    let mut asked = false;
    let begun = server.begin_group(&part, || {
        asked = true;
        Some(Vec::new())
    });
    assert_eq!(begun.map(drop), Err(Unplaceable::Unasked));
    assert!(!asked);
    assert_eq!(server.standing(), Standing::default());
    // What comes of lanes before, late or twice changes nothing.
    let (object, group) = (ObjectId(0), 0);
    server.handle_news(NOW, News::GivenUp(GivenUp { object, group, buffer: Vec::new() }));
    server.handle_credit(7);
    assert_eq!(server.end(), None);
}

/// A lane brings the promise, another one the request.
#[test]
fn credit_that_comes_before_the_request_counts() {
    let (mut client, mut server) = (client(Direction::Pull), Half::server());
    server.handle_credit(7 << 20);
    server.handle_credit(3 << 20);
    pass(&mut client, &mut server).unwrap();
    server.begin(source(), watch(Duration::from_secs(1)));
    assert_eq!(server.transfer_mut().unwrap().gate().unwrap().credit(), 7 << 20);
}

#[test]
fn news_that_come_late_or_twice_change_nothing() {
    let mut client = client(Direction::Push);
    let later = NOW + Duration::from_secs(1);
    client.handle_news(NOW, News::Validated);
    client.handle_news(later, News::Validated);
    assert_eq!(client.validated(), Some(NOW));
    client.handle_news(later, News::Closed(closed(CloseCode::TIMEOUT)));
    client.handle_news(later, News::Closed(closed(CloseCode::DONE)));
    assert_eq!(client.end(), Some(End::Closed(closed(CloseCode::TIMEOUT))));
}

#[test]
fn a_source_that_stands_still_ends_and_says_why() {
    let mut client = client(Direction::Push);
    let lanes = Backlogs(vec![0]);
    for ms in (0..3_000).step_by(100) {
        let now = NOW + Duration::from_millis(ms);
        if client.is_look_due(now) {
            client.look(now, &CarrierSeen::default(), Work::default(), &lanes);
        }
    }
    assert!(matches!(client.end(), Some(End::Stalled(_))));
    // A pipe that waits for its other end does not stand still.
    let mut pipe = Half::client(&wish(Direction::Push));
    let transfer = Transfer::OutgoingPipe(Box::new(OutgoingPipe::new(NOW, 1)));
    pipe.begin(transfer, watch(Duration::from_secs(1)));
    for ms in (0..3_000).step_by(100) {
        let now = NOW + Duration::from_millis(ms);
        pipe.look(now, &CarrierSeen::default(), Work::default(), &lanes);
    }
    assert_eq!(pipe.end(), None);
}
