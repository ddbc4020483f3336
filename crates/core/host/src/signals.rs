use longhaul_units::Duration;

/// A reader thread of this end of the connection, by a number that the driver chooses; of more than
/// [`crate::monitor::Monitor::MOST_THREADS`] the later ones are not watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ThreadId(pub u16);

/// Run time and waits of a thread since its last sample (schedstat).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// It ran.
    pub run: Duration,
    /// It could have run, and waited for a processor.
    pub wait: Duration,
    /// Turns on a processor.
    pub turns: u64,
}

/// A read batch: what one turn of reading took from the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Bytes at the IP layer.
    pub bytes: u64,
    /// Datagrams.
    pub packets: u64,
    /// From the kernel's stamp on its first datagram to the read: how long that one waited.
    pub age: Option<Duration>,
    /// Processor time that the thread has used since its last batch, this one's processing not
    /// included.
    pub cpu: Option<Duration>,
    /// True if it filled what there was to fill: more is waiting.
    pub full: bool,
}

/// A look at a thread's socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Socket {
    /// Bytes charged to its receive buffer (`SK_MEMINFO_RMEM_ALLOC`), an upper bound.
    pub queued: u64,
    /// Size of that buffer (`SK_MEMINFO_RCVBUF`).
    pub limit: u64,
    /// Drops since the last look, in whatever the kernel counts.
    pub drops: u64,
}

/// A look at what waits for storage, of the whole connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disk {
    /// Bytes received and not yet written.
    pub backlog: u64,
    /// Bytes that may wait so.
    pub memory: u64,
    /// Bytes written since the last look.
    pub written: u64,
}
