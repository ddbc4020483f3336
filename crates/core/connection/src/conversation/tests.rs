use alloc::vec;
use alloc::vec::Vec;

use longhaul_units::Bytes;
use longhaul_wire::CloseCode;

use super::*;

fn request(direction: Direction) -> Request {
    Request::new(direction, vec![b"tree".to_vec()])
}

fn bytes(message: impl Into<Message>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.into().encode(&mut bytes).unwrap();
    bytes
}

/// A client and a server that has received its request.
fn asked(direction: Direction) -> (Conversation, Conversation) {
    let mut client = Conversation::client(&Wish::Copy(request(direction)));
    let mut server = Conversation::server();
    server.handle_bytes(&bytes(client.poll_first().unwrap()));
    assert_eq!(client.poll_first(), None);
    assert_eq!(server.poll_received(), Ok(Some(Received::Wish(Wish::Copy(request(direction))))));
    (client, server)
}

fn refused() -> Refused {
    Refused { code: CloseCode::REFUSED, reason: "no".into(), part: None }
}

fn accept() -> SinkMessage {
    SinkMessage::Accept { objects: 3 }
}

fn manifest_end() -> SourceMessage {
    SourceMessage::ManifestEnd { entries: 0, objects: 0, bytes: Bytes::new(0) }
}

#[test]
fn the_request_decides_who_has_the_data() {
    for (direction, part) in [(Direction::Push, Part::Source), (Direction::Pull, Part::Sink)] {
        let (client, mut server) = asked(direction);
        assert_eq!((client.part(), server.part()), (Some(part), None));
        server.grant();
        assert_eq!(server.part(), Some(part.other()));
    }
}

#[test]
fn each_end_hears_only_what_is_for_its_part() {
    let (mut client, mut server) = asked(Direction::Push);
    server.grant();
    server.handle_bytes(&bytes(manifest_end()));
    assert_eq!(server.poll_received(), Ok(Some(Received::Source(manifest_end()))));
    client.handle_bytes(&bytes(accept()));
    assert_eq!(client.poll_received(), Ok(Some(Received::Sink(accept()))));
    client.handle_bytes(&bytes(manifest_end()));
    assert_eq!(client.poll_received(), Err(Misspoken::OutOfTurn));
    server.handle_bytes(&bytes(accept()));
    assert_eq!(server.poll_received(), Err(Misspoken::OutOfTurn));
}

#[test]
fn a_server_hears_one_request_and_nothing_before_it() {
    let mut server = Conversation::server();
    server.handle_bytes(&bytes(manifest_end()));
    assert_eq!(server.poll_received(), Err(Misspoken::OutOfTurn));
    for answer in [Conversation::grant, |server: &mut Conversation| server.refuse(refused())] {
        let (_, mut server) = asked(Direction::Push);
        answer(&mut server);
        server.handle_bytes(&bytes(request(Direction::Push)));
        assert_eq!(server.poll_received(), Err(Misspoken::OutOfTurn));
    }
}

#[test]
fn a_refusal_is_the_last_word_and_what_crosses_it_is_passed_over() {
    let (mut client, mut server) = asked(Direction::Push);
    server.refuse(refused());
    assert!(!server.has_sent_all() && !server.may_close());
    server.handle_bytes(&bytes(manifest_end()));
    assert_eq!(server.poll_received(), Ok(None));
    assert!(!server.has_sent_all(), "the refusal is not sent yet");
    client.handle_bytes(&bytes(server.poll_first().unwrap()));
    assert!(server.has_sent_all());
    assert_eq!(client.poll_received(), Ok(Some(Received::Refused(refused()))));
    assert_eq!((client.part(), client.may_close()), (None, false));
    client.handle_bytes(&bytes(accept()));
    assert_eq!(client.poll_received(), Err(Misspoken::OutOfTurn));
}

#[test]
fn a_client_refuses_nothing_and_answers_without_a_request_are_of_no_effect() {
    let (mut client, mut server) = asked(Direction::Pull);
    server.grant();
    server.refuse(refused());
    assert_eq!((server.part(), server.has_sent_all()), (Some(Part::Source), false));
    client.refuse(refused());
    client.grant();
    assert_eq!((client.part(), client.has_sent_all()), (Some(Part::Sink), false));
    server.handle_bytes(&bytes(refused()));
    assert_eq!(server.poll_received(), Err(Misspoken::OutOfTurn));
}

#[test]
fn a_sink_waits_until_its_result_was_read() {
    let (mut client, _) = asked(Direction::Pull);
    client.finish();
    assert!(client.has_sent_all() && !client.may_close());
    assert_eq!(client.handle_end(), Ok(()));
    assert!(client.may_close());
    assert!(asked(Direction::Push).0.may_close(), "a source has received it");
}

#[test]
fn messages_come_in_pieces_and_may_end_between_two_only() {
    let (mut client, _) = asked(Direction::Push);
    let sent = bytes(accept());
    let (head, tail) = sent.split_at(sent.len() - 1);
    client.handle_bytes(head);
    assert_eq!(client.poll_received(), Ok(None));
    assert_eq!(client.handle_end(), Err(Misspoken::CutShort));
    client.handle_bytes(tail);
    assert_eq!(client.poll_received(), Ok(Some(Received::Sink(accept()))));
    assert_eq!(client.handle_end(), Ok(()));
}
