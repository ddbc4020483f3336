use crate::registry::registry;

registry! {
    /// Why an entry was not copied, with the codes of docs/protocol.md section 9.4, which says what
    /// each means.
    EntryCode
    #[default]
    0 Failed "failed"
    1 Skipped "skipped"
    2 Unchanged "unchanged"
    3 Refused "refused"
    4 NotFound "not-found"
    5 Permission "permission"
    6 Changed "changed"
    7 ReadError "read-error"
    8 WriteError "write-error"
    9 NoSpace "no-space"
    10 Name "name"
    11 InTheWay "in-the-way"
    12 TooLarge "too-large"
    13 OutOfResources "out-of-resources"
    14 Damaged "damaged"
    15 Newer "newer"
    16 New "new"
    17 Differs "differs"
    18 Mended "mended"
}

impl EntryCode {
    /// True if an entry that ends so counts as failed: a copy with such an entry is not complete.
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::Skipped) && !self.stays()
    }

    /// True of what the sink leaves as it is, so that nothing of it is sent.
    pub const fn stays(self) -> bool {
        matches!(self, Self::Unchanged | Self::Newer | Self::New | Self::Differs | Self::Mended)
    }

    /// True of what a copy that is not a dry run would change.
    pub const fn would_change(self) -> bool {
        matches!(self, Self::New | Self::Differs)
    }

    /// True if trying again can help although nobody mends anything.
    pub const fn may_pass(self) -> bool {
        matches!(
            self,
            Self::Changed
                | Self::ReadError
                | Self::WriteError
                | Self::OutOfResources
                | Self::Damaged
        )
    }

    /// The code as a source sends it: those of sinks mean nothing there.
    pub const fn of_source(self) -> Self {
        match self {
            Self::Unchanged
            | Self::Newer
            | Self::New
            | Self::Differs
            | Self::Mended
            | Self::WriteError
            | Self::NoSpace
            | Self::InTheWay
            | Self::TooLarge
            | Self::Damaged => Self::Failed,
            code => code,
        }
    }

    /// The code as a sink sends it: those of sources mean nothing there.
    pub const fn of_sink(self) -> Self {
        match self {
            Self::Skipped | Self::ReadError => Self::Failed,
            code => code,
        }
    }

    /// The code as a sink sends it of what it does not delete, where it may have left it on purpose.
    pub const fn of_deletion(self) -> Self {
        match self {
            Self::Skipped => self,
            code => code.of_sink(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EntryCode;

    #[test]
    fn either_end_sends_each_code_and_only_what_is_no_failure_leaves_a_copy_complete() {
        for code in EntryCode::ALL {
            assert!(code.of_source() == code || code.of_sink() == code, "{code}");
            assert!(code.is_failure() || !code.may_pass(), "{code}");
        }
        let complete = EntryCode::ALL.into_iter().filter(|code| !code.is_failure());
        assert!(complete.eq([1, 2, 15, 16, 17, 18].map(EntryCode::from_code)));
    }
}
