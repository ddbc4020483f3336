use alloc::string::ToString;
use alloc::vec;

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_units::ObjectId;

use super::*;
use crate::incoming::Begun;

/// TLS does it all.
#[derive(Debug)]
struct NoSeals;

impl RecordSeals for NoSeals {
    fn seal_frames(&mut self, _: &mut Vec<u8>, _: usize) -> Result<(), Forged> {
        Err(Forged)
    }

    fn open_frames<'r>(&mut self, _: &[u8], _: &'r mut [u8]) -> Result<&'r [u8], Forged> {
        Err(Forged)
    }

    fn object_tag(
        &mut self,
        _: &[u8; longhaul_wire::MAX_RECORD_HEAD],
    ) -> Result<[u8; longhaul_wire::CLEAR_TAG_LEN], Forged> {
        Err(Forged)
    }

    fn verify_object(
        &mut self,
        _: &[u8; longhaul_wire::MAX_RECORD_HEAD],
        _: [u8; longhaul_wire::CLEAR_TAG_LEN],
    ) -> Result<(), Forged> {
        Err(Forged)
    }
}

type Half = RecordHalf<alloc::sync::Arc<Vec<u8>>, Vec<u8>, NoSeals>;

/// Memory for so many groups of any object.
struct Room(usize);

impl Groups<Vec<u8>> for Room {
    fn begin(&mut self, part: &GroupPart) -> Result<Begun<Vec<u8>>, Unplaceable> {
        self.0 = self.0.checked_sub(1).ok_or(Unplaceable::NoMemory)?;
        let len = part.group_len(&longhaul_objects::ObjectTable::of_pieces())?;
        Ok(Begun::Memory { buffer: vec![0; len as usize], len })
    }
}

const NOW: Instant = Instant::ZERO;

fn half(lane: u16) -> Half {
    Half::new(NOW, LaneId(lane), None, None)
}

/// Of an object that failed nothing is needed.
struct Failed(ObjectId);

impl Groups<Vec<u8>> for Failed {
    fn begin(&mut self, part: &GroupPart) -> Result<Begun<Vec<u8>>, Unplaceable> {
        if part.object == self.0 { Ok(Begun::Unneeded) } else { Room(1).begin(part) }
    }
}

/// Passes what one has to write to the other, `step` bytes at a time; how many went.
fn pass(from: &mut Half, to: &mut Half, room: &mut impl Groups<Vec<u8>>, step: usize) -> usize {
    core::iter::from_fn(|| Some(pass_once(from, to, room, step)).filter(|count| *count > 0)).sum()
}

/// Passes one step, if there is anything and a place for it.
fn pass_once(
    from: &mut Half,
    to: &mut Half,
    room: &mut impl Groups<Vec<u8>>,
    step: usize,
) -> usize {
    let [head, body] = from.poll_write(NOW);
    let bytes: Vec<u8> = head.iter().chain(body).take(step).copied().collect();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let Place::Bytes(place) = to.place(room) else { return 0 };
        let count = place.len().min(rest.len());
        place[..count].copy_from_slice(&rest[..count]);
        to.handle_received(count);
        rest = &rest[count..];
    }
    from.handle_written(NOW, bytes.len());
    bytes.len()
}

/// A piece of a pipe, which is an object of its length.
fn piece(number: u64, len: usize) -> (Extent, Vec<u8>) {
    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + number as usize) as u8).collect();
    let object = ObjectId(len as u32);
    (Extent { object, offset: number * GROUP_SIZE, len: len as u64 }, bytes)
}

fn offer(half: &mut Half, number: u64, len: usize) -> Vec<u8> {
    let (extent, bytes) = piece(number, len);
    half.handle_order(Order::Offer { extent, bytes: bytes.clone().into() });
    bytes
}

fn arrived(half: &mut Half) -> Vec<Vec<u8>> {
    let mut groups = Vec::new();
    while let Some(news) = half.poll_news() {
        match news {
            News::Arrived(whole) => groups.push(whole.buffer),
            News::Validated | News::Delivered(_) => {}
            News::Withdrawn(_) | News::GivenUp(_) => {}
            News::Closed(closed) => panic!("{closed:?}"),
            News::MoveAsked(_) | News::Lost(..) | News::FitsNot(_) => panic!("{news:?}"),
        }
    }
    groups
}

#[test]
fn groups_and_messages_cross_in_steps_of_any_size() {
    for step in [1, 3, 19, 1000, usize::MAX] {
        let (mut here, mut there) = (half(0), half(0));
        here.push_messages(b"hello");
        here.finish_messages();
        here.handle_standing(&Standing { credit: 77, ..Standing::default() });
        let sent = [offer(&mut here, 0, 5000), offer(&mut here, 1, 1)];
        assert_eq!(here.backlog(), 5001);
        pass(&mut here, &mut there, &mut Room(2), step);
        assert_eq!(arrived(&mut there), sent);
        assert_eq!((there.credit(), there.placed(), here.backlog()), (77, 5001, 0));
        let mut read = [0; 9];
        assert!(!there.poll_messages_end(), "they were not read");
        assert_eq!(there.read_messages(&mut read), 5);
        assert!(read.starts_with(b"hello") && there.poll_messages_end());
        assert!(!there.poll_messages_end(), "once");
    }
}

#[test]
fn a_group_without_memory_waits_and_loses_nothing() {
    let (mut here, mut there) = (half(1), half(1));
    let sent = offer(&mut here, 0, 100);
    pass(&mut here, &mut there, &mut Room(0), 16);
    assert!(matches!(there.place(&mut Room(0)), Place::NoMemory));
    assert!(here.is_writing());
    pass(&mut here, &mut there, &mut Room(1), 7);
    assert_eq!(arrived(&mut there), [sent]);
}

#[test]
fn a_repetition_goes_elsewhere() {
    let (mut here, mut there) = (half(1), half(1));
    let room = &mut Room(1);
    let sent = offer(&mut here, 0, 300);
    pass(&mut here, &mut there, room, 100);
    assert_eq!(arrived(&mut there), [sent]);
    offer(&mut here, 0, 300);
    pass(&mut here, &mut there, room, 100);
    assert!(arrived(&mut there).is_empty() && there.is_open());
    // To be received again it takes memory again.
    there.handle_repair(Repair::ReceiveAgain(ObjectId(300), 0));
    let again = offer(&mut here, 0, 300);
    pass(&mut here, &mut there, &mut Room(1), 100);
    assert_eq!(arrived(&mut there), [again]);
}

/// Of three groups the first is being sent: its record ends, and nothing else of them follows.
#[test]
fn what_is_withdrawn_goes_no_further_than_the_record_under_way() {
    for (passed, records) in [(0, 0), (100_000, 1), (PIECE + 100_000, 2)] {
        let (mut here, mut there) = (half(1), half(1));
        let len = 3 * PIECE as usize;
        let failed = ObjectId(len as u32);
        for number in 0..3 {
            offer(&mut here, number, len);
        }
        let mut before = 0;
        while before < passed {
            before += pass_once(&mut here, &mut there, &mut Room(1), 50_000) as u64;
        }
        here.handle_order(Order::Withdraw(failed));
        assert_eq!(here.backlog(), records * PIECE - here.sent_in_all());
        there.handle_repair(Repair::Unneeded(failed));
        let other = offer(&mut here, 0, 77);
        // The memory of the group is gone, and there is none for it.
        pass(&mut here, &mut there, &mut Failed(failed), 50_000);
        assert_eq!(here.sent_in_all(), records * PIECE + 77, "after {passed} bytes");
        let sent: Vec<_> = core::iter::from_fn(|| here.poll_news()).collect();
        let withdrawn = sent.iter().filter(|news| matches!(news, News::Withdrawn(_))).count();
        assert_eq!((withdrawn, sent.len()), (3 - usize::from(records > 0), 4));
        let received: Vec<_> = core::iter::from_fn(|| there.poll_news()).collect();
        let given_up =
            |news: &News<_>| matches!(news, News::GivenUp(part) if part.object == failed);
        assert_eq!(received.iter().any(given_up), records > 0);
        assert!(matches!(received.last(), Some(News::Arrived(whole)) if whole.buffer == other));
    }
}

#[test]
fn what_is_not_read_holds_the_peer_back() {
    let (mut here, mut there) = (half(0), half(0));
    let mut pushed = 0;
    while here.wants_messages() {
        here.push_messages(&[7; 10_000]);
        pushed += 10_000;
    }
    let mut passed = pass(&mut here, &mut there, &mut Room(0), usize::MAX);
    assert!(passed < pushed);
    let (mut buffer, mut read) = ([0; 4096], 0);
    while read < pushed {
        let count = there.read_messages(&mut buffer);
        read += count;
        if count == 0 {
            // The limit goes back, and more comes.
            assert!(pass(&mut there, &mut here, &mut Room(0), usize::MAX) > 0);
            passed += pass(&mut here, &mut there, &mut Room(0), usize::MAX);
        }
    }
    assert!(passed > pushed);
}

#[test]
fn goodbye_follows_the_record_that_has_begun() {
    let (mut here, mut there) = (half(0), half(0));
    let sent = offer(&mut here, 0, 300);
    let [head, _] = here.poll_write(NOW);
    let head = head.to_vec();
    here.handle_written(NOW, 0);
    offer(&mut here, 1, 300);
    here.handle_order(Order::Close(CloseCode::CANCELLED, "enough".to_string()));
    assert!(!here.is_open() && !here.is_closed() && here.backlog() == 0);
    pass(&mut here, &mut there, &mut Room(2), 50);
    assert!(here.is_closed() && !head.is_empty());
    let mut news: Vec<_> = core::iter::from_fn(|| there.poll_news()).collect();
    let closed = Closed { code: CloseCode::CANCELLED, reason: "enough".into(), by_peer: true };
    assert_eq!(news.pop(), Some(News::Closed(closed)));
    assert!(matches!(news.pop(), Some(News::Arrived(whole)) if whole.buffer == sent));
    assert!(there.is_closed() && matches!(there.place(&mut Room(1)), Place::Closed));
}

#[test]
fn a_rate_holds_objects_from_the_first_byte_on_and_no_messages() {
    for kbps in [500, 8_000, 40_000] {
        let rate = Rate::from_bps(kbps * 1_000);
        let mut here = Half::new(NOW, LaneId(0), Some(rate), None);
        for number in 0..12 {
            offer(&mut here, number, 250_000);
        }
        let (mut now, mut written) = (NOW, 0);
        let end = NOW + Duration::from_millis(500);
        while now < end {
            loop {
                let count = here.poll_write(now).iter().map(|part| part.len()).sum();
                if count == 0 {
                    break;
                }
                written += count as u64;
                here.handle_written(now, count);
            }
            let most = rate.bytes_in(now - NOW + Duration::from_millis(20)) + 100;
            assert!(written <= most, "{kbps}: {written} after {:?}", now - NOW);
            assert!(here.next_timeout().is_some_and(|at| at > now));
            now = here.next_timeout().unwrap_or(end);
        }
        let all = rate.bytes_in(now - NOW);
        assert!(written * 100 >= all * 88, "{kbps}: {written} of {all}");
        assert!(here.held(now) > Duration::from_millis(400));
        here.push_messages(b"now");
        assert!(!here.poll_write(now.before(Duration::from_millis(1)))[0].is_empty());
    }
}

#[test]
fn a_rate_waits_for_nothing_that_was_withdrawn() {
    let mut here = Half::new(NOW, LaneId(1), Some(Rate::from_mbps(8)), None);
    offer(&mut here, 0, 250_000);
    offer(&mut here, 1, 250_000);
    loop {
        let count = here.poll_write(NOW).iter().map(|part| part.len()).sum();
        if count == 0 {
            break;
        }
        here.handle_written(NOW, count);
    }
    assert!(here.next_timeout().is_some());
    here.handle_order(Order::Withdraw(ObjectId(250_000)));
    assert_eq!((here.next_timeout(), here.backlog()), (None, 0));
    let later = NOW + Duration::from_secs(1);
    offer(&mut here, 0, 77);
    assert!(here.poll_write(later).iter().any(|part| !part.is_empty()));
}

#[test]
fn bytes_that_are_no_record_end_it() {
    let mut there = half(0);
    let Place::Bytes(place) = there.place(&mut Room(0)) else { panic!("no place") };
    place.fill(0xff);
    let count = place.len();
    there.handle_received(count);
    let closed = core::iter::from_fn(|| there.poll_news()).last();
    let Some(News::Closed(Closed { code, by_peer, .. })) = closed else { panic!("{closed:?}") };
    assert_eq!((code, by_peer), (CloseCode::PROTOCOL_VIOLATION, false));
}

#[test]
fn a_stream_is_held_to_its_limit_and_order() {
    let mut stream = Stream::default();
    let data = vec![1; 60_000];
    for i in 0..4 {
        stream.handle(i * 60_000, false, &data).unwrap();
    }
    assert!(stream.handle(240_000, false, &data).is_err(), "beyond the limit");
    assert!(stream.handle(180_000, false, &data).is_err(), "again");
    let mut out = Vec::new();
    stream.write(&mut Writer::append(&mut out), 1000).unwrap();
    assert!(out.is_empty(), "nothing was read");
    let mut buffer = vec![0; 240_000];
    assert_eq!(stream.read(&mut buffer), 240_000);
    stream.write(&mut Writer::append(&mut out), 1000).unwrap();
    let limit = Frames::new(&out).next().unwrap().unwrap();
    assert_eq!(limit, Frame::StreamLimit { stream: STREAM, limit: 240_000 + (256 << 10) });
    stream.handle(240_000, true, &data).unwrap();
    assert!(stream.handle(300_000, false, b"").is_err(), "behind the end");
}
