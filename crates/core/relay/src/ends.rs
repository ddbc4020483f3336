/// A neighbour of a gateway on a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Towards the client.
    Near,
    /// Towards the target.
    Far,
}

impl Side {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Near, Self::Far];

    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Near => 0,
            Self::Far => 1,
        }
    }
}

/// Ends of the two directions of a session at a gateway (docs/relay.md section 4).
///
/// Order of calls: [`Self::drained`] once all bytes of a side were passed on and its end was read;
/// then the driver ends the writing to the other side and calls [`Self::shut`]; then
/// [`Self::acknowledged`] once that side's kernel, or its peer, has taken the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends([End; 2]);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct End {
    drained: bool,
    shut: bool,
    acknowledged: bool,
}

impl Ends {
    /// The end of what `side` sends was read, and everything before it was passed on.
    pub fn drained(&mut self, side: Side) {
        self.0[side.index()].drained = true;
    }

    /// All that `side` sends was read and passed on.
    pub const fn is_drained(&self, side: Side) -> bool {
        self.0[side.index()].drained
    }

    /// The writing to `side` has to be ended now.
    pub const fn must_shut(&self, side: Side) -> bool {
        self.0[side.other().index()].drained && !self.0[side.index()].shut
    }

    /// The writing to `side` was ended.
    pub fn shut(&mut self, side: Side) {
        self.0[side.index()].shut = true;
    }

    /// The peer on `side` acknowledged the end of what was written to it.
    pub fn acknowledged(&mut self, side: Side) {
        self.0[side.index()].acknowledged = true;
    }

    /// Both directions of `side` have ended, and its end is to be waited for.
    pub const fn is_closing(&self, side: Side) -> bool {
        let end = self.0[side.index()];
        end.drained && end.shut && !end.acknowledged
    }

    /// The connection to `side` may be closed without cutting anything off.
    pub const fn may_close(&self, side: Side) -> bool {
        let end = self.0[side.index()];
        end.drained && end.shut && end.acknowledged
    }

    /// The session has ended cleanly.
    pub const fn is_clean(&self) -> bool {
        self.may_close(Side::Near) && self.may_close(Side::Far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_ends_for_itself() {
        let mut ends = Ends::default();
        assert!(!ends.must_shut(Side::Far) && !ends.must_shut(Side::Near));
        ends.drained(Side::Near);
        assert!(ends.must_shut(Side::Far) && !ends.must_shut(Side::Near));
        ends.shut(Side::Far);
        assert!(!ends.must_shut(Side::Far) && !ends.is_closing(Side::Far));
        ends.acknowledged(Side::Far);
        assert!(!ends.may_close(Side::Far), "the target still sends");
        ends.drained(Side::Far);
        assert!(ends.may_close(Side::Far) && ends.must_shut(Side::Near));
        ends.shut(Side::Near);
        assert!(ends.is_closing(Side::Near) && !ends.is_clean());
        ends.acknowledged(Side::Near);
        assert!(ends.is_clean());
    }
}
