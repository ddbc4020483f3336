//! Application-limited phases: a rate that was measured while the application had too little to send
//! says nothing of the path.

#[derive(Debug)]
pub(super) struct AppLimited {
    is_short: bool,
    /// Packets below were sent before the application last ran out of bytes.
    limited_below: u64,
}

impl AppLimited {
    /// Until the first object byte everything is limited by the application.
    pub(super) const fn new() -> Self {
        Self { is_short: true, limited_below: 0 }
    }

    /// True if a packet with this number was sent before the application last ran out.
    pub(super) fn limits(&self, number: u64) -> bool {
        number < self.limited_below
    }

    /// True if the packet that is numbered `next` is the first after that.
    pub(super) fn resumes_at(&self, next: u64) -> bool {
        next == self.limited_below
    }

    /// There are object bytes to be sent.
    pub(super) fn on_bytes(&mut self) {
        self.is_short = false;
    }

    /// There are none, and the next packet is numbered `next`.
    pub(super) fn on_none(&mut self, next: u64) {
        if !self.is_short {
            self.is_short = true;
            self.limited_below = next;
        }
    }

    /// Something else was sent: the next packet is numbered `next`.
    pub(super) fn on_control(&mut self, next: u64) {
        if self.is_short {
            self.limited_below = next;
        }
    }

    /// The lane moves to another path: no packet below `next` shows that one's rate.
    pub(super) fn on_moved(&mut self, next: u64) {
        self.limited_below = next;
    }
}
