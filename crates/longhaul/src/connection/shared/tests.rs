use longhaul_carriers::upper_layer::UpperLayer;
use longhaul_connection::{Begun, GivenUp, GroupPart, News, Unplaceable};
use longhaul_units::ObjectId;
use longhaul_wire::{Message, MessageReader, PipeRequest, PipeRole};

use super::*;
use crate::memory::budget::MEMORY_LEAST;

/// A server whose client sends into a pipe that nobody receives from yet.
fn piped() -> Arc<Shared> {
    let budget = Budget::new(Some(MEMORY_LEAST));
    let opener: Opener = Box::new(move |shared, _| {
        let pipe = IncomingPipe::new(buffers(budget.of_sink()) as u64);
        let transfer = Transfer::IncomingPipe(Box::new(pipe));
        shared.begin(transfer, Memory::OF_DRAIN, budget, Duration::ZERO);
        Ok(())
    });
    let server = Shared::server(opener, Mailboxes::new(Vec::new()));
    let mut request = Vec::new();
    PipeRequest { role: PipeRole::Send, name: b"pipe".to_vec() }.encode(&mut request).unwrap();
    server.on_stream_bytes(&request).unwrap();
    opened(&server);
    server
}

/// Waits until the request of its client is answered.
fn opened(server: &Shared) {
    while !server.wants_stream() {
        std::thread::yield_now();
    }
}

fn piece(group: u32) -> GroupPart {
    GroupPart { object: ObjectId(7), group, start: 0, len: 7 }
}

/// Memory for that piece.
fn memory(server: &Shared, number: u32) -> Buffer {
    let Begun::Memory { buffer, .. } = server.begin_group(&piece(number)).unwrap() else {
        panic!("it is needed");
    };
    buffer
}

#[test]
fn a_piece_beyond_the_credit_takes_no_memory() {
    let server = piped();
    let promised = (server.standing().credit >> 20) as u32;
    let free = server.pool.free();
    for number in [promised, promised + 1, u32::MAX] {
        let refused = server.begin_group(&piece(number)).map(drop);
        assert_eq!(refused, Err(Unplaceable::BeyondCredit));
    }
    assert_eq!(server.pool.free(), free);
    let taken: Vec<_> = (0..promised).map(|n| server.begin_group(&piece(n)).unwrap()).collect();
    assert_eq!(server.pool.free(), free - taken.len());
}

#[test]
fn memory_that_comes_free_is_promised_again() {
    let server = piped();
    let before = server.standing().credit;
    let buffer = memory(&server, 0);
    assert_eq!(server.standing().credit, before);
    // Whoever gets the piece has it for a while, and nobody tells when it is given back.
    drop(buffer);
    assert_eq!(server.standing().credit, before + (1 << 20));
    // A lane that gives memory up has had it for a piece that was counted on another one.
    let buffer = memory(&server, 1);
    server.on_news(News::GivenUp(GivenUp { object: ObjectId(7), group: 1, buffer }));
    assert_eq!(server.standing().credit, before + (1 << 20));
}

#[test]
fn a_refused_client_hears_why_and_nothing_behind_it() {
    let opener: Opener = Box::new(|_, _| Err(refuse(CloseCode::REFUSED, "no")));
    let server = Shared::server(opener, Mailboxes::new(Vec::new()));
    let mut request = Vec::new();
    PipeRequest { role: PipeRole::Send, name: b"pipe".to_vec() }.encode(&mut request).unwrap();
    server.on_stream_bytes(&request).unwrap();
    opened(&server);
    assert!(!server.is_finished(), "the refusal is to be sent");
    let mut sent = Vec::new();
    assert!(server.next_message(&mut sent) && !server.next_message(&mut sent));
    assert!(server.is_finished());
    let mut reader = MessageReader::new();
    reader.push(&sent);
    let refused = Refused { code: CloseCode::REFUSED, reason: "no".into(), part: None };
    assert_eq!(reader.next_message(), Ok(Some(Message::Refused(refused))));
}

#[test]
fn a_lane_goes_on_while_a_request_is_opened_and_keeps_what_follows() {
    let (open, opens) = std::sync::mpsc::channel::<()>();
    let opener: Opener = Box::new(move |_, _| {
        opens.recv().unwrap();
        Err(refuse(CloseCode::BUSY, "another has it"))
    });
    let server = Shared::server(opener, Mailboxes::new(Vec::new()));
    let mut request = Vec::new();
    PipeRequest { role: PipeRole::Send, name: b"pipe".to_vec() }.encode(&mut request).unwrap();
    server.on_stream_bytes(&request).unwrap();
    assert!(!server.wants_stream(), "messages behind it stay in the lane");
    let mut sent = Vec::new();
    assert!(!server.next_message(&mut sent), "there is no answer yet");
    open.send(()).unwrap();
    opened(&server);
    assert!(server.next_message(&mut sent));
    server.join();
}
