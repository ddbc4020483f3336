/// Why a packet was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A queue of the path was full.
    Congestion,
    /// By chance, on the path.
    Random,
    /// The receiving socket's buffer was full.
    Socket,
    /// Elsewhere in the receiving host.
    Host,
    /// The sending host's own network stack refused it.
    Sender,
    /// Nobody knows.
    Unknown,
}

impl Cause {
    /// All of them, in the order of the fields of [`Losses`].
    pub const ALL: [Self; 6] =
        [Self::Congestion, Self::Random, Self::Socket, Self::Host, Self::Sender, Self::Unknown];

    /// The word for it in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Congestion => "congestion",
            Self::Random => "random",
            Self::Socket => "socket",
            Self::Host => "host",
            Self::Sender => "sender",
            Self::Unknown => "unknown",
        }
    }
}

/// Packets lost, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// On the path, while a queue was full, as the sender judges.
    pub congestion: u64,
    /// On the path, by chance, as the sender judges.
    pub random: u64,
    /// At the receiving socket, because its buffer was full.
    pub socket: u64,
    /// Elsewhere in the receiving host.
    pub host: u64,
    /// Refused by the sending host's own network stack.
    pub sender: u64,
    /// Anywhere else, for reasons that nobody knows.
    pub unknown: u64,
}

impl Losses {
    /// So many for one cause.
    pub fn of(cause: Cause, packets: u64) -> Self {
        let mut losses = Self::default();
        *losses.count_mut(cause) = packets;
        losses
    }

    /// Each cause with its count.
    pub fn by_cause(mut self) -> [(Cause, u64); 6] {
        Cause::ALL.map(|cause| (cause, *self.count_mut(cause)))
    }

    /// Those for one cause.
    pub fn count_mut(&mut self, cause: Cause) -> &mut u64 {
        match cause {
            Cause::Congestion => &mut self.congestion,
            Cause::Random => &mut self.random,
            Cause::Socket => &mut self.socket,
            Cause::Host => &mut self.host,
            Cause::Sender => &mut self.sender,
            Cause::Unknown => &mut self.unknown,
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.all().iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Those that were lost on the path, as far as anybody knows: the only ones that tell of it.
    pub const fn network(&self) -> u64 {
        self.congestion.saturating_add(self.random).saturating_add(self.unknown)
    }

    /// These and those of `other`.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            congestion: self.congestion.saturating_add(other.congestion),
            random: self.random.saturating_add(other.random),
            socket: self.socket.saturating_add(other.socket),
            host: self.host.saturating_add(other.host),
            sender: self.sender.saturating_add(other.sender),
            unknown: self.unknown.saturating_add(other.unknown),
        }
    }

    /// Each count, in the order of the fields.
    pub const fn all(&self) -> [u64; 6] {
        let Self { congestion, random, socket, host, sender, unknown } = *self;
        [congestion, random, socket, host, sender, unknown]
    }
}
