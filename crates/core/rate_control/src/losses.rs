use longhaul_units::Losses;

/// The losses of a path by cause.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LossAccount(Losses);

impl LossAccount {
    /// Some more.
    pub(crate) fn book(&mut self, lost: &Losses) {
        self.0 = self.0.plus(lost);
    }

    /// So many that had been taken as lost on the path arrived after all: late, as nothing is that
    /// a queue dropped.
    pub(crate) fn take_back(&mut self, packets: u64) {
        let mut left = packets;
        for count in [&mut self.0.random, &mut self.0.unknown, &mut self.0.congestion] {
            let taken = left.min(*count);
            *count -= taken;
            left -= taken;
        }
    }

    /// All losses.
    pub(crate) fn losses(&self) -> Losses {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrived_late_was_not_lost() {
        let mut account = LossAccount::default();
        account.book(&Losses { random: 3, congestion: 30, sender: 64, ..Losses::default() });
        account.take_back(10);
        assert_eq!(account.losses(), Losses { congestion: 23, sender: 64, ..Losses::default() });
        account.take_back(1_000);
        let sender = Losses { sender: 64, ..Losses::default() };
        assert_eq!(account.losses(), sender, "the report names more than was lost");
    }
}
