use alloc::rc::Rc;
use alloc::vec;
use core::cell::RefCell;
use core::ops::DerefMut;

use longhaul_engine::{Role, What};
use longhaul_rate_control::{Governor, Profile};
use longhaul_units::{Bottleneck, Duration, Ecn, Extent, ObjectId, PacketNumber};
use longhaul_wire::{AEAD_TAG_LEN, CloseCode, ConnectionId, HEADER_LEN, Header, ObjectHeader};
use longhaul_wire::{OBJECT_HEADER_LEN, ReceiverBounds};

use super::*;
use crate::half_messages::GivenUp;
use crate::incoming::{Begun, GroupPart, Unplaceable};
use crate::run::Forged;
use crate::run::Run;

/// A tag that only says that the packet is of one of the two ends.
struct Marked;

const TAG: [u8; AEAD_TAG_LEN] = [0xaa; AEAD_TAG_LEN];

impl Opener for Marked {
    fn object_tag(&self) -> usize {
        AEAD_TAG_LEN
    }
    fn look_over(&mut self, _: &[u8], _: usize) -> u128 {
        u128::MAX
    }
    fn open_control<'p>(
        &mut self,
        _: PacketNumber,
        packet: &'p mut [u8],
    ) -> Result<&'p [u8], Forged> {
        packet[HEADER_LEN..].strip_suffix(&TAG).ok_or(Forged)
    }
    fn open_run(&mut self, run: &Run, bytes: &[u8], into: &mut [u8]) -> usize {
        run.open_each(bytes, into, |_, packet, place, _| {
            place.copy_from_slice(run.payload(packet));
            if packet.ends_with(&TAG) { Ok(()) } else { Err(Forged) }
        })
    }
}

impl Sealer for Marked {
    fn object_tag(&self) -> usize {
        AEAD_TAG_LEN
    }
    fn seal_control(&mut self, header: &Header, frames: &[u8], out: &mut Vec<u8>) {
        let mut head = [0; HEADER_LEN];
        header.emit(&mut head);
        out.extend(head.iter().chain(frames).chain(&TAG));
    }
    fn seal_object(&mut self, header: &ObjectHeader, payload: &[u8], _: &[u8], out: &mut [u8]) {
        let mut head = [0; OBJECT_HEADER_LEN];
        header.emit(&mut head);
        out[..OBJECT_HEADER_LEN].copy_from_slice(&head);
        out[OBJECT_HEADER_LEN..][..payload.len()].copy_from_slice(payload);
        out[OBJECT_HEADER_LEN + payload.len()..].copy_from_slice(&TAG);
    }
    fn finish(&mut self, _: PacketNumber, _: &mut [u8], _: usize) {}
}

struct OnePath(RefCell<Path>);

impl SharedPath for OnePath {
    fn lock(&self) -> impl DerefMut<Target = Path> {
        self.0.borrow_mut()
    }
}

/// Takes groups of `len` bytes, as many as there are buffers.
struct Buffers {
    len: u32,
    left: usize,
}

impl Groups<Vec<u8>> for Buffers {
    fn begin(&mut self, part: &GroupPart) -> Result<Begun<Vec<u8>>, Unplaceable> {
        if part.start + part.len > self.len {
            return Err(Unplaceable::Unasked);
        }
        self.left = self.left.checked_sub(1).ok_or(Unplaceable::NoMemory)?;
        Ok(Begun::Memory { buffer: vec![0; self.len as usize], len: self.len })
    }
}

type Half = LaneHalf<Rc<Vec<u8>>, Vec<u8>>;

struct End {
    half: Half,
    path: OnePath,
    buffers: Buffers,
    news: Vec<News<Vec<u8>>>,
}

const OBJECT: ObjectId = ObjectId(0);
const LEN: u32 = 100_000;
const ADDRESSES: [&str; 2] = ["10.0.0.1:7420", "10.0.0.2:7420"];

impl End {
    fn new(role: Role, now: Instant) -> Self {
        let mut config = LaneConfig::new(ConnectionId(7), LaneId(0), role, 1);
        config.remote = (role == Role::Client).then(|| ADDRESSES[1].parse().unwrap());
        let unlimited = Profile::wished(Some("unlimited"), None, []).unwrap();
        let controller = unlimited.controller(now, 1500, None);
        let governor = Governor::new(now, false);
        let path = Path::new(now, controller, governor, Duration::from_millis(1), 1);
        Self {
            half: Half::new(now, config),
            path: OnePath(RefCell::new(path)),
            buffers: Buffers { len: LEN, left: 8 },
            news: Vec::new(),
        }
    }

    /// Everything that is to be sent now, a batch of datagrams each.
    fn send(&mut self, now: Instant) -> Vec<(Vec<u8>, usize)> {
        self.half.handle_timeout(now, &mut self.path.lock());
        let mut batches = Vec::new();
        loop {
            let planned = self.half.poll_transmit(now, &mut self.path.lock(), 44);
            let Some(transmit) = planned else { return batches };
            let made = self.half.seal(&transmit, &mut Marked);
            let segment = made.segment.map_or(made.bytes.len(), usize::from);
            batches.push((made.bytes.to_vec(), segment));
        }
    }

    fn receive(&mut self, now: Instant, from: &str, bytes: &mut [u8], segment: usize) {
        let batch = ReadBatch::single(from.parse().unwrap(), now, segment, Ecn::Ect0);
        let (path, buffers) = (&self.path, &mut self.buffers);
        self.half.handle_datagrams(now, &batch, bytes, &mut Marked, buffers, path);
        self.news.extend(core::iter::from_fn(|| self.half.poll_news()));
    }

    fn count(&self, test: impl Fn(&News<Vec<u8>>) -> bool) -> usize {
        self.news.iter().filter(|news| test(news)).count()
    }

    fn arrived(&self) -> usize {
        self.count(|news| matches!(news, News::Arrived(_)))
    }

    fn delivered(&self) -> usize {
        self.count(|news| matches!(news, News::Delivered(_)))
    }
}

struct Pair {
    now: Instant,
    ends: [End; 2],
}

impl Pair {
    fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self { now, ends: [End::new(Role::Client, now), End::new(Role::Server, now)] }
    }

    /// Lets both speak for so many milliseconds; `lose` says which batches of object bytes are lost.
    fn run(&mut self, milliseconds: u64, mut lose: impl FnMut() -> bool) {
        for _ in 0..milliseconds {
            self.now += Duration::from_millis(1);
            for (i, address) in ADDRESSES.iter().enumerate() {
                let sent = self.ends[i].send(self.now);
                for (mut bytes, segment) in sent {
                    let objects = bytes[0] & 0xf == 2;
                    if !objects || !lose() {
                        self.ends[1 - i].receive(self.now, address, &mut bytes, segment);
                    }
                }
            }
        }
    }

    fn grant(&mut self, credit: u64) {
        let standing = Standing { credit, credit_step: 1, ..Standing::default() };
        self.ends[1].half.handle_standing(&standing);
    }

    fn offer(&mut self, group: u64, byte: u8) {
        let extent = Extent { object: OBJECT, offset: group << 20, len: LEN.into() };
        let bytes = Rc::new(vec![byte; LEN as usize]);
        self.ends[0].half.handle_order(self.now, Order::Offer { extent, bytes });
    }
}

#[test]
fn copies_in_one_batch_count_once() {
    let mut pair = Pair::new();
    pair.grant(1 << 30);
    pair.run(20, || false);
    pair.offer(0, 1);
    pair.now += Duration::from_millis(1);
    let sent = pair.ends[0].send(pair.now);
    let (batch, segment) = sent.into_iter().find(|(bytes, _)| bytes[0] & 0xf == 2).unwrap();
    let packets: Vec<_> = batch.chunks(segment).take(3).collect();
    let before = pair.ends[1].half.engine().stats();
    // One twice, two twice, and one that came before both.
    let mut bytes = [1, 1, 2, 1, 2, 0].map(|index: usize| packets[index]).concat();
    pair.ends[1].receive(pair.now, ADDRESSES[0], &mut bytes, segment);
    let after = pair.ends[1].half.engine().stats();
    assert_eq!(after.packets_received - before.packets_received, 3);
    assert_eq!(after.bytes_received - before.bytes_received, 3 * (segment as u64 + 28));
}

#[test]
fn groups_cross_whole_whatever_is_lost() {
    let mut pair = Pair::new();
    pair.grant(1 << 30);
    for group in 0..4 {
        pair.offer(group, group as u8);
    }
    let mut batches = 0;
    pair.run(500, || {
        batches += 1;
        batches % 3 == 0
    });
    assert_eq!((pair.ends[0].delivered(), pair.ends[1].arrived()), (4, 4));
    for news in &pair.ends[1].news {
        if let News::Arrived(whole) = news {
            assert!(whole.buffer.iter().all(|byte| u32::from(*byte) == whole.group));
        }
    }
    assert_eq!(pair.ends[1].half.placed(), 4 * u64::from(LEN));
}

#[test]
fn a_repair_waits_for_the_first_try_and_is_received_again() {
    let mut pair = Pair::new();
    pair.grant(1 << 30);
    pair.run(20, || false);
    pair.offer(0, 1);
    // The order to repair overtakes the report that the group has arrived.
    pair.offer(0, 2);
    pair.run(100, || false);
    assert_eq!((pair.ends[0].delivered(), pair.ends[1].arrived()), (2, 1), "a repetition");
    pair.offer(0, 3);
    pair.ends[1].half.handle_repair(Repair::ReceiveAgain(OBJECT, 0));
    pair.run(100, || false);
    let Some(News::Arrived(whole)) = pair.ends[1].news.last() else { panic!("nothing came") };
    assert_eq!(whole.buffer, vec![3; LEN as usize]);
    // Given once more than needed, it does no harm.
    pair.ends[1].half.handle_repair(Repair::ReceiveAgain(OBJECT, 7));
}

#[test]
fn what_another_lane_has_brought_is_given_up_with_its_memory() {
    let mut pair = Pair::new();
    pair.grant(1 << 30);
    pair.run(20, || false);
    let mut repairs = crate::half_messages::Repairs::default();
    pair.offer(0, 1);
    // Only the first batches come; then it has come elsewhere.
    let mut batches = 0;
    pair.run(1, || {
        batches += 1;
        batches > 1
    });
    let placed = pair.ends[1].half.placed();
    assert!(placed > 0 && placed < LEN.into());
    assert!(repairs.take(OBJECT, 0).is_none(), "nobody asked for it");
    pair.ends[1].half.handle_repair(repairs.ask(OBJECT, 0));
    pair.ends[1].half.handle_repair(repairs.take(OBJECT, 0).unwrap());
    pair.run(500, || false);
    assert_eq!((pair.ends[0].delivered(), pair.ends[1].arrived()), (1, 0));
    assert_eq!(pair.ends[1].half.placed(), placed);
}

/// Groups of a failed file wait behind a path that has carried a part of the first.
#[test]
fn what_is_withdrawn_is_not_sent_and_what_has_come_of_it_is_given_up() {
    let mut pair = Pair::new();
    pair.grant(1 << 30);
    pair.run(20, || false);
    for group in 0..4 {
        pair.offer(group, 1);
    }
    let now = pair.now;
    // One batch of the first group leaves.
    let End { half, path, .. } = &mut pair.ends[0];
    let transmit = half.poll_transmit(now, &mut path.lock(), 8).unwrap();
    let made = half.seal(&transmit, &mut Marked);
    let (mut bytes, segment) = (made.bytes.to_vec(), made.segment.map_or(0, usize::from));
    half.handle_order(now, Order::Withdraw(OBJECT));
    assert_eq!(half.engine().backlog(), 0);
    let extent = Extent { object: ObjectId(1), offset: 0, len: LEN.into() };
    half.handle_order(now, Order::Offer { extent, bytes: Rc::new(vec![2; LEN as usize]) });
    pair.ends[1].receive(now, ADDRESSES[0], &mut bytes, segment);
    let placed = pair.ends[1].half.placed();
    assert!(placed > 0 && placed < LEN.into());
    pair.ends[1].half.handle_repair(Repair::Unneeded(OBJECT));
    pair.run(500, || false);
    let [source, sink] = &pair.ends;
    let is_withdrawn = |news: &News<_>| matches!(news, News::Withdrawn(_));
    assert_eq!((source.count(is_withdrawn), source.delivered()), (3, 2));
    assert_eq!(source.half.engine().undelivered(), 0);
    let stats = source.half.engine().stats();
    assert_eq!(stats.fresh_bytes_sent, placed + u64::from(LEN), "nothing else of it was sent");
    let is_given_up = |news: &News<_>| match news {
        News::GivenUp(GivenUp { object, group, .. }) => (*object, *group) == (OBJECT, 0),
        _ => false,
    };
    assert_eq!(sink.count(is_given_up), 1);
    assert_eq!(sink.arrived(), 1);
}

#[test]
fn what_there_is_no_memory_for_comes_again_later() {
    let mut pair = Pair::new();
    pair.grant(1 << 30);
    pair.ends[1].buffers.left = 0;
    pair.offer(0, 1);
    pair.run(200, || false);
    assert_eq!((pair.ends[1].arrived(), pair.ends[1].half.placed()), (0, 0));
    pair.ends[1].buffers.left = 1;
    pair.run(3_000, || false);
    assert_eq!((pair.ends[0].delivered(), pair.ends[1].arrived()), (1, 1));
}

#[test]
fn stale_credit_takes_nothing_back() {
    let mut pair = Pair::new();
    pair.grant(2 * u64::from(LEN));
    pair.run(20, || false);
    pair.grant(0);
    pair.run(20, || false);
    assert_eq!(pair.ends[0].half.engine().credit(), 2 * u64::from(LEN));
    // Less than a step goes with the next report only; a step is reported to a peer that waits.
    let more = 2 * u64::from(LEN) + 9;
    let step = |credit| Standing { credit, credit_step: 10, ..Standing::default() };
    pair.ends[1].half.handle_standing(&step(more + 1));
    pair.run(20, || false);
    assert_eq!(pair.ends[0].half.engine().credit(), more + 1);
}

#[test]
fn messages_come_in_order_and_their_end_is_reported_once() {
    let mut pair = Pair::new();
    let text: Vec<u8> = (0..3_000_000u32).map(|i| (i / 3) as u8).collect();
    assert!(pair.ends[0].half.wants_messages() && !pair.ends[1].half.poll_messages_end());
    pair.ends[0].half.push_messages(&text);
    assert!(!pair.ends[0].half.wants_messages(), "the stream has no room for all of it");
    assert!(!pair.ends[0].half.finish_messages(), "it would overtake the last of it");
    let (mut got, mut buffer, mut ends) = (Vec::new(), [0; 4096], 0);
    for _ in 0..1_000 {
        pair.ends[0].half.write_messages();
        pair.ends[0].half.finish_messages();
        pair.run(1, || false);
        while let count @ 1.. = pair.ends[1].half.read_messages(&mut buffer) {
            got.extend_from_slice(&buffer[..count]);
        }
        ends += u32::from(pair.ends[1].half.poll_messages_end());
    }
    assert!(got == text && ends == 1 && pair.ends[0].half.has_finished_messages());
}

#[test]
fn what_the_local_stack_refuses_comes_again_and_is_no_loss_of_the_path() {
    let mut pair = Pair::new();
    pair.grant(1 << 30);
    pair.run(50, || false);
    pair.offer(0, 1);
    let (half, now) = (&mut pair.ends[0].half, pair.now);
    let path = &pair.ends[0].path;
    let sender = || path.lock().losses().sender;
    let next = |half: &mut Half| loop {
        let transmit = half.poll_transmit(now, &mut path.lock(), 3).unwrap();
        let segment = half.seal(&transmit, &mut Marked).segment;
        match segment {
            Some(segment) => break (transmit, usize::from(segment)),
            None => half.not_sent(now, &mut path.lock(), &transmit, Err(NotSent::TooLarge)),
        }
    };
    let (transmit, segment) = next(half);
    assert_eq!((transmit.packets, sender()), (3, 0), "an answered size probe is not lost");
    let rate = path.lock().allowed().0;
    half.not_sent(now, &mut path.lock(), &transmit, Ok(2 * segment + 1));
    assert_eq!(sender(), 0, "a part of the third is the third");
    for (i, sent) in [Ok(2 * segment), Err(NotSent::Refused)].into_iter().enumerate() {
        let (transmit, _) = next(half);
        let before = path.lock().in_flight();
        half.not_sent(now, &mut path.lock(), &transmit, sent);
        assert_eq!(sender(), [1, 4][i]);
        assert!(path.lock().in_flight() < before);
    }
    assert!(path.lock().allowed().0 < rate, "the sender is the bound now");
    assert_eq!(path.lock().allowed().1, Bottleneck::SenderBuffer);
    pair.run(500, || false);
    assert_eq!((pair.ends[0].delivered(), pair.ends[1].arrived()), (1, 1));
    let lost = pair.ends[0].path.lock().losses();
    assert_eq!(
        (lost.sender, lost.network()),
        (4, 5),
        "those that nobody took on are lost: {lost:?}"
    );
}

/// They are paced by nothing: a lane whose link is down would spin.
#[test]
fn control_messages_that_the_local_stack_refuses_wait_a_moment() {
    let mut pair = Pair::new();
    pair.run(50, || false);
    let (half, path) = (&mut pair.ends[0].half, &pair.ends[0].path);
    let now = pair.now;
    half.push_messages(b"something to say");
    let transmit = half.poll_transmit(now, &mut path.lock(), 1).unwrap();
    assert_eq!(transmit.what, What::Control);
    half.seal(&transmit, &mut Marked);
    half.not_sent(now, &mut path.lock(), &transmit, Err(NotSent::Refused));
    assert!(half.poll_transmit(now, &mut path.lock(), 1).is_none());
    let due = half.next_timeout(now, &path.lock()).unwrap();
    assert!(due > now && due <= now + Duration::from_millis(1), "{:?}", due - now);
    assert!(half.poll_transmit(due, &mut path.lock(), 1).is_some());
}

#[test]
fn an_end_that_closes_reports_it_to_both() {
    let mut pair = Pair::new();
    pair.run(20, || false);
    let bounds = ReceiverBounds::NONE;
    pair.ends[0].half.handle_standing(&Standing { bounds, ..Standing::default() });
    let order = Order::Close(CloseCode::CANCELLED, "enough".into());
    pair.ends[0].half.handle_order(pair.now, order);
    pair.run(100, || false);
    for (i, end) in pair.ends.iter_mut().enumerate() {
        end.news.extend(core::iter::from_fn(|| end.half.poll_news()));
        let Some(News::Closed(closed)) = end.news.last() else { panic!("end {i} is open") };
        assert_eq!((closed.code, closed.by_peer), (CloseCode::CANCELLED, i == 1));
        assert!(end.half.engine().is_closed());
    }
}
