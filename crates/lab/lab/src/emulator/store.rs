use std::io;

use longhaul_sys::memory::Pages;
use longhaul_sys::tun::PACKET_MAX;

use crate::packet::Shape;

/// Memory for packets under way: each is read to its place and written from there.
///
/// Chunks are filled one after another and used again when all in them has left, the latest first:
/// a path with little under way stays in the processor's cache, and memory beyond [`TAKEN`] grows
/// only with need.
#[derive(Debug)]
pub(super) struct Store {
    memory: Pages,
    /// Packets that live in each chunk.
    live: Vec<u32>,
    free: Vec<u32>,
    chunks_max: usize,
    /// The chunk that is being filled, and how far.
    chunk: usize,
    filled: usize,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
}

/// A packet in the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) shape: Shape,
    at: usize,
    len: usize,
    /// Deliveries that are still to come.
    waiting: u32,
}

impl Store {
    /// Room for about `bytes`.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let chunks_max = bytes.div_ceil(CHUNK).max(CHUNKS_MIN);
        let mut memory = Pages::new(chunks_max * CHUNK)?;
        memory.touch_first(TAKEN);
        Ok(Self {
            memory,
            live: vec![0],
            free: Vec::new(),
            chunks_max,
            chunk: 0,
            filled: 0,
            slots: Vec::new(),
            free_slots: Vec::new(),
        })
    }

    /// Where the next packet may be read to; `None` when everything is full.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        if self.live[self.chunk] == 0 {
            self.filled = 0;
        }
        if self.filled + PACKET_MAX > CHUNK {
            self.chunk = match self.free.pop() {
                Some(chunk) => chunk as usize,
                None if self.live.len() < self.chunks_max => {
                    self.live.push(0);
                    self.live.len() - 1
                }
                None => return None,
            };
            self.filled = 0;
        }
        let start = self.chunk * CHUNK + self.filled;
        Some(&mut self.memory[start..start + PACKET_MAX])
    }

    /// The packet of `len` bytes that was read to [`Store::room`].
    pub(super) fn fresh(&self, len: usize) -> &[u8] {
        let start = self.chunk * CHUNK + self.filled;
        &self.memory[start..start + len]
    }

    /// Keeps that packet for `waiting` deliveries, at least one.
    pub(super) fn keep(&mut self, len: usize, shape: Shape, waiting: u32) -> u32 {
        let slot = Slot { shape, at: self.chunk * CHUNK + self.filled, len, waiting };
        self.filled += len.next_multiple_of(ALIGNMENT);
        self.live[self.chunk] += 1;
        if let Some(free) = self.free_slots.pop() {
            self.slots[free as usize] = slot;
            return free;
        }
        self.slots.push(slot);
        (self.slots.len() - 1) as u32
    }

    pub(super) fn get(&self, slot: u32) -> (&Shape, &[u8]) {
        let slot = &self.slots[slot as usize];
        (&slot.shape, &self.memory[slot.at..slot.at + slot.len])
    }

    /// One delivery is done.
    pub(super) fn release(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        entry.waiting -= 1;
        if entry.waiting > 0 {
            return;
        }
        let chunk = entry.at / CHUNK;
        self.free_slots.push(slot);
        self.live[chunk] -= 1;
        if self.live[chunk] == 0 && chunk != self.chunk {
            self.free.push(chunk as u32);
        }
    }
}

/// Bytes taken from the system beforehand. When packets come fast for the first time, getting pages
/// for them made the emulator late by tens of milliseconds.
const TAKEN: usize = 128 << 20;
/// A huge page.
const CHUNK: usize = 2 << 20;
/// One to fill while others empty.
const CHUNKS_MIN: usize = 4;
/// A cache line.
const ALIGNMENT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_sys::tun::VNET_LEN;

    fn shape() -> Shape {
        let mut packet = vec![0; VNET_LEN + 20];
        packet[VNET_LEN] = 0x45;
        Shape::parse(&packet).unwrap()
    }

    fn put(store: &mut Store, fill: u8, len: usize) -> Option<u32> {
        store.room()?[..len].fill(fill);
        Some(store.keep(len, shape(), 1))
    }

    #[test]
    fn packets_stay_what_they_are_until_released() {
        let mut store = Store::new(8 * CHUNK).unwrap();
        let mut kept = std::collections::VecDeque::new();
        for round in 0..5_000u32 {
            let len = 1 + (round as usize * 7919) % PACKET_MAX;
            kept.push_back((put(&mut store, round as u8, len).unwrap(), round as u8, len));
            if kept.len() > 60 {
                // Every other time out of order.
                let at = if round % 2 == 0 { 0 } else { 30 };
                let (slot, fill, len) = kept.remove(at).unwrap();
                let packet = store.get(slot).1;
                assert!(packet.len() == len && packet.iter().all(|&byte| byte == fill));
                store.release(slot);
            }
        }
        assert!(store.slots.len() <= 62);
    }

    #[test]
    fn memory_is_bounded_and_used_again() {
        let mut store = Store::new(1).unwrap();
        let mut kept = Vec::new();
        while let Some(slot) = put(&mut store, 1, PACKET_MAX) {
            kept.push(slot);
        }
        assert_eq!(kept.len(), CHUNKS_MIN * (CHUNK / PACKET_MAX.next_multiple_of(ALIGNMENT)));
        kept.drain(..).for_each(|slot| store.release(slot));
        // With nothing else under way the same chunk serves for ever.
        for _ in 0..1_000 {
            let slot = put(&mut store, 2, PACKET_MAX).unwrap();
            store.release(slot);
        }
        assert!(store.live.iter().all(|&live| live == 0));
        assert!(put(&mut store, 3, PACKET_MAX).is_some());
    }
}
