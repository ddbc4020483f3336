use alloc::collections::VecDeque;

use longhaul_units::Instant;

/// A UDP socket's receive buffer as Linux keeps it: what is charged is the memory that a packet
/// occupies, and what was read is given back in lumps.
#[derive(Clone, Debug)]
pub struct SocketBuffer {
    limit: u64,
    queue: VecDeque<Packet>,
    /// Charged, what was read and not yet given back included (`SK_MEMINFO_RMEM_ALLOC`).
    charged: u64,
    /// Read, but not given back.
    deficit: u64,
}

/// Unit that the kernel hands to a socket at once: a datagram, or with UDP_GRO a super-packet of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The kernel's stamp.
    pub stamp: Instant,
    /// Datagrams in it.
    pub datagrams: u32,
    /// Bytes of each at the IP layer.
    pub size: u32,
}

impl Packet {
    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        u64::from(self.datagrams) * u64::from(self.size)
    }

    /// Charge of the buffer for it. Measured on Linux 6.18: 1280, 2304, 2304 and 16640 bytes for
    /// datagrams of 200, 1400, 1472 and 8972, and 56,832 for a super-packet of 56,000.
    pub fn charge(&self) -> u64 {
        match self.datagrams {
            0 | 1 => 256 + (u64::from(self.size) + 384).next_power_of_two(),
            _ => self.bytes() + 832,
        }
    }
}

impl SocketBuffer {
    /// One of `limit` bytes: `SK_MEMINFO_RCVBUF`, twice what SO_RCVBUF asked for.
    pub fn new(limit: u64) -> Self {
        Self { limit, queue: VecDeque::new(), charged: 0, deficit: 0 }
    }

    /// Takes a packet in, or says that there is no room: it may exceed the limit by one packet, as in the
    /// kernel.
    #[must_use]
    pub fn push(&mut self, packet: Packet) -> bool {
        let has_room = self.charged <= self.limit;
        if has_room {
            self.charged += packet.charge();
            self.queue.push_back(packet);
        }
        has_room
    }

    /// Reads whole packets of `most` bytes together, at least one.
    pub fn read(&mut self, most: u64, mut each: impl FnMut(&Packet)) {
        let mut read = 0;
        while let Some(packet) = self.queue.front()
            && (read == 0 || read + packet.bytes() <= most)
        {
            read += packet.bytes();
            self.deficit += packet.charge();
            each(packet);
            self.queue.pop_front();
        }
        // udp_rmem_release: in lumps of a quarter, or all where nothing is left.
        if self.deficit >= self.limit / 4 || self.queue.is_empty() {
            self.charged -= self.deficit;
            self.deficit = 0;
        }
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes charged: an upper bound of what waits.
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// Its size.
    pub fn limit(&self) -> u64 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(datagrams: u32, size: u32) -> Packet {
        Packet { stamp: Instant::ZERO, datagrams, size }
    }

    #[test]
    fn packets_cost_what_was_measured() {
        for (size, charge) in [(200, 1_280), (1_400, 2_304), (1_472, 2_304), (8_972, 16_640)] {
            assert_eq!(packet(1, size).charge(), charge);
        }
        assert_eq!(packet(40, 1_400).charge(), 56_832);
    }

    #[test]
    fn memory_is_given_back_in_quarters() {
        let mut socket = SocketBuffer::new(2 << 20);
        let mut pushed = 0;
        while socket.push(packet(1, 1_400)) {
            pushed += 1;
        }
        assert_eq!(pushed, (2 << 20) / 2_304 + 1, "one more than fits");
        let mut read = 0;
        while socket.charged() > 2 << 20 {
            socket.read(1, |_| read += 1);
        }
        assert_eq!(read, 228, "524,288 / 2304: measured are 227");
        socket.read(u64::MAX, |_| {});
        assert!(socket.is_empty() && socket.charged() == 0);
    }
}
