//! Batches with packets among them that the peer did not send, under the real keys.

use longhaul_connection::{
    Begun, GroupPart, Groups, LaneHalf, News, ReadBatch, Sealer, Unplaceable, WholeGroup,
};
use longhaul_engine::Role;
use longhaul_objects::ObjectTable;
use longhaul_rate_control::{Governor, Profile};
use longhaul_session::{Direction, LaneKeys, SessionSecret};
use longhaul_units::{Ecn, LaneId, ObjectId, PacketNumber};
use longhaul_wire::{
    Cipher, CloseCode, ConnectionId, Header, Kind, OBJECT_HEADER_LEN, ObjectHeader, Protect,
};

use super::*;
use crate::buffer::Pool;

/// Groups received into memory.
struct Memory {
    table: ObjectTable,
    /// Count of calls.
    lookups: usize,
    pool: Pool,
    refusal: Option<Unplaceable>,
}

impl Groups<Buffer> for Memory {
    fn begin(&mut self, part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        self.lookups += 1;
        let len = part.group_len(&self.table)?;
        let buffer = match self.refusal {
            Some(refusal) => return Err(refusal),
            None => self.pool.try_take().ok_or(Unplaceable::NoMemory)?,
        };
        Ok(Begun::Memory { buffer, len })
    }
}

const FROM: &str = "10.0.0.1:1";
const PAYLOAD: usize = 1_000;
const OBJECT: ObjectId = ObjectId(0);
/// Past the first group, so that a batch may hold the end of one and the start of the next.
const SIZE: usize = END + 3_500;
/// Of the first group.
const END: usize = 1 << 20;
/// Groups of the next object, of which the peer sends none.
const NEVER_SENT: u32 = 1000;
const BUFFERS: usize = 2;

struct Receiver {
    sealing: Protection,
    opening: Protection,
    half: LaneHalf<Arc<Buffer>, Buffer>,
    path: Mutex<Path>,
    memory: Memory,
    arrived: Vec<(u32, Vec<u8>)>,
    closed: Option<(CloseCode, String)>,
    object: Vec<u8>,
    next_number: u64,
}

impl Receiver {
    fn new(protect: Protect) -> Self {
        let now = clock::now();
        let protection = || {
            let secret = SessionSecret::new([1; 32]);
            let keys = LaneKeys::new(&secret, Direction::ClientToServer, LaneId(0));
            Protection::new(keys, Cipher::Aes128Gcm, protect)
        };
        let config = LaneConfig::new(ConnectionId(1), LaneId(0), Role::Server, 1);
        let auto = Profile::wished(Some("auto"), None, []).unwrap();
        let controller = auto.controller(now, 1500, None);
        let mut table = ObjectTable::default();
        table.push(SIZE as u64);
        table.push(u64::from(NEVER_SENT) * END as u64);
        Self {
            sealing: protection(),
            opening: protection(),
            half: LaneHalf::new(now, config),
            path: Mutex::new(Path::new(
                now,
                controller,
                Governor::new(now, false),
                Duration::from_millis(1),
                1,
            )),
            memory: Memory { table, lookups: 0, pool: Pool::new(BUFFERS), refusal: None },
            arrived: Vec::new(),
            closed: None,
            object: (0..SIZE).map(|i| (i / 7 + i / 300) as u8).collect(),
            next_number: 0,
        }
    }

    /// A packet of what is at `offset`, as the peer would make it, or of something behind the end.
    fn packet(&mut self, offset: usize) -> Vec<u8> {
        let end = (offset + PAYLOAD).min(if offset < END { END } else { SIZE });
        let payload = if offset < SIZE { &self.object[offset..end] } else { &[7; PAYLOAD] };
        let number = PacketNumber::new(self.next_number);
        self.next_number += 1;
        let header = Header {
            kind: Kind::Object,
            lane: LaneId(0),
            connection: ConnectionId(1),
            number,
            send_time: 5,
        };
        let header = ObjectHeader { header, object: OBJECT, offset: offset as u64 };
        let tag = Sealer::object_tag(&self.sealing);
        let mut packet = vec![0; OBJECT_HEADER_LEN + payload.len() + tag];
        let len = packet.len();
        self.sealing.seal_object(&header, payload, &[], &mut packet);
        self.sealing.finish(number, &mut packet, len);
        packet
    }

    /// A packet of another's, for a group that the peer has not sent.
    fn forged(&mut self, group: u32) -> Vec<u8> {
        let mut packet = self.packet(0);
        // The object, and the offset in it (docs/protocol.md 4.1).
        packet[20..24].copy_from_slice(&1u32.to_be_bytes());
        let offset = u64::from(group) * END as u64 + 100;
        packet[24..32].copy_from_slice(&offset.to_be_bytes());
        packet
    }

    /// Takes in packets, all but the last as long as the first, as one batch; returns how many
    /// reached the engine.
    fn take(&mut self, packets: &[Vec<u8>]) -> u64 {
        let before = self.half.engine().stats().packets_received;
        let (now, mut bytes) = (clock::now(), packets.concat());
        let segment = packets[0].len();
        let batch = ReadBatch::single(FROM.parse().unwrap(), now, segment, Ecn::Ect0);
        let (opening, memory) = (&mut self.opening, &mut self.memory);
        let path = &PathLock(&self.path);
        self.half.handle_datagrams(now, &batch, &mut bytes, opening, memory, path);
        while let Some(news) = self.half.poll_news() {
            match news {
                News::Arrived(WholeGroup { group, len, buffer, .. }) => {
                    self.arrived.push((group, buffer[..len as usize].to_vec()));
                }
                News::Closed(closed) => self.closed = Some((closed.code, closed.reason)),
                _ => {}
            }
        }
        self.half.engine().stats().packets_received - before
    }
}

/// Every mode.
fn each(test: impl Fn(Receiver)) {
    for protect in [Protect::Clear, Protect::Integrity, Protect::Aead] {
        test(Receiver::new(protect));
    }
}

#[test]
fn a_batch_goes_on_in_the_next_group() {
    each(|mut receiver| {
        let first = receiver.packet(0);
        assert_eq!(receiver.take(&[first]), 1);
        let offsets: Vec<_> = (END % PAYLOAD..SIZE).step_by(PAYLOAD).collect();
        assert!(offsets.chunks(50).any(|batch| batch[1..].contains(&END)));
        for batch in offsets.chunks(50) {
            let packets: Vec<_> = batch.iter().map(|offset| receiver.packet(*offset)).collect();
            assert_eq!(receiver.take(&packets), packets.len() as u64);
        }
        let (first, second) = receiver.object.split_at(END);
        assert_eq!(receiver.arrived, [(0, first.to_vec()), (1, second.to_vec())]);
    });
}

#[test]
fn a_forged_packet_costs_no_other_its_place() {
    for forged in 0..4 {
        each(|mut receiver| {
            let genuine: Vec<_> = (0..4).map(|i| receiver.packet(END + i * PAYLOAD)).collect();
            let mut packets = genuine.clone();
            *packets[forged].last_mut().unwrap() ^= 1;
            assert_eq!(receiver.take(&packets), 3);
            assert_eq!(receiver.arrived, []);
            assert_eq!(receiver.take(&genuine[forged..=forged]), 1);
            assert_eq!(receiver.arrived, [(1, receiver.object[END..].to_vec())]);
        });
    }
}

#[test]
fn a_packet_without_a_place_costs_no_other_its_own() {
    each(|mut receiver| {
        // Side by side; the third is behind the end of the object, and not the peer's.
        let mut packets = [1_500, 2_500, 3_500].map(|offset| receiver.packet(END + offset));
        *packets[2].last_mut().unwrap() ^= 1;
        assert_eq!(receiver.take(&packets), 2);
        assert_eq!(receiver.closed, None);
        let packets = [0, 1_000].map(|offset| receiver.packet(END + offset));
        assert_eq!(receiver.take(&packets), 2);
        assert_eq!(receiver.arrived, [(1, receiver.object[END..].to_vec())]);
    });
}

#[test]
fn bytes_that_are_there_already_stay_and_the_rest_is_filled_in() {
    each(|mut receiver| {
        let at = |i: usize| END + i * PAYLOAD;
        let second = receiver.packet(at(1));
        assert_eq!(receiver.take(&[second]), 1);
        assert_eq!(receiver.half.placed(), PAYLOAD as u64);
        let all: Vec<_> = (0..4).map(|i| receiver.packet(at(i))).collect();
        assert_eq!(receiver.take(&all), 4);
        assert_eq!(receiver.arrived, [(1, receiver.object[END..].to_vec())]);
        // All of it once more: a group is handed on once.
        let all: Vec<_> = (0..4).map(|i| receiver.packet(at(i))).collect();
        assert_eq!(receiver.take(&all), 4);
        assert_eq!(receiver.arrived.len(), 1);
        let whole = receiver.object[END..].len();
        assert_eq!(receiver.half.placed(), whole as u64, "each byte once");
    });
}

#[test]
fn forged_packets_take_no_memory_and_ask_for_none() {
    each(|mut receiver| {
        let first = receiver.packet(0);
        assert_eq!(receiver.take(&[first]), 1);
        let lookups = receiver.memory.lookups;
        let groups: Vec<_> = (0..NEVER_SENT + 50).collect();
        for groups in groups.chunks(50) {
            let packets: Vec<_> = groups.iter().map(|group| receiver.forged(*group)).collect();
            assert_eq!(receiver.take(&packets), 0);
        }
        assert_eq!(receiver.memory.pool.free(), BUFFERS - 1);
        assert_eq!(receiver.memory.lookups, lookups);
        let rest: Vec<_> = (PAYLOAD..END).step_by(PAYLOAD).collect();
        for batch in rest.chunks(50) {
            let mut packets: Vec<_> = batch.iter().map(|offset| receiver.packet(*offset)).collect();
            // Among those of the peer.
            packets.insert(0, receiver.forged(3));
            assert_eq!(receiver.take(&packets), batch.len() as u64);
        }
        assert_eq!(receiver.arrived, [(0, receiver.object[..END].to_vec())]);
        assert_eq!(receiver.memory.pool.free(), BUFFERS);
    });
}

#[test]
fn a_peer_that_sends_what_was_not_asked_for_gets_a_close_that_names_it() {
    each(|mut receiver| {
        let packets = [1_500, 2_500, 3_500].map(|offset| receiver.packet(END + offset));
        assert_eq!(receiver.take(&packets), 2);
        let reason = "bytes that were not asked for".to_owned();
        assert_eq!(receiver.closed, Some((CloseCode::PROTOCOL_VIOLATION, reason)));
    });
}

#[test]
fn a_peer_that_breaks_its_credit_gets_a_close_that_names_it_and_takes_no_memory() {
    each(|mut receiver| {
        receiver.memory.refusal = Some(Unplaceable::BeyondCredit);
        let packets = [0, 1_000].map(|offset| receiver.packet(offset));
        assert_eq!(receiver.take(&packets), 0);
        let reason = "bytes beyond the credit".to_owned();
        assert_eq!(receiver.closed, Some((CloseCode::PROTOCOL_VIOLATION, reason)));
        assert_eq!(receiver.memory.pool.free(), BUFFERS);
    });
}

#[test]
fn packets_without_memory_for_them_may_come_again() {
    each(|mut receiver| {
        let taken: Vec<_> = std::iter::from_fn(|| receiver.memory.pool.try_take()).collect();
        let packets: Vec<_> = (0..4).map(|i| receiver.packet(END + i * PAYLOAD)).collect();
        assert_eq!(receiver.take(&packets), 0);
        assert_eq!(receiver.closed, None);
        drop(taken);
        assert_eq!(receiver.take(&packets), 4);
        assert_eq!(receiver.arrived, [(1, receiver.object[END..].to_vec())]);
    });
}

#[test]
fn a_forged_packet_of_another_epoch_costs_no_other_its_place() {
    for epoch in [1, 2, (1 << 14) - 1] {
        for place in [0, 2] {
            each(|mut receiver| {
                let genuine: Vec<_> = (0..4).map(|i| receiver.packet(END + i * PAYLOAD)).collect();
                let mut packets = genuine.clone();
                let mut forged = genuine[0].clone();
                // As docs/protocol.md 4.1 has it.
                forged[8..10].copy_from_slice(&u16::to_be_bytes(epoch));
                packets.insert(place, forged);
                assert_eq!(receiver.take(&packets), 4);
                assert_eq!(receiver.arrived, [(1, receiver.object[END..].to_vec())]);
            });
        }
    }
}

#[test]
fn packets_of_two_epochs_come_in_one_batch() {
    each(|mut receiver| {
        let mut packets: Vec<_> = (0..2).map(|i| receiver.packet(END + i * PAYLOAD)).collect();
        receiver.next_number = 1 << 48;
        packets.extend((2..4).map(|i| receiver.packet(END + i * PAYLOAD)));
        assert_eq!(receiver.take(&packets), 4);
        assert_eq!(receiver.arrived, [(1, receiver.object[END..].to_vec())]);
    });
}
