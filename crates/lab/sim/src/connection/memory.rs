//! Memory for the groups that lanes bring.

use longhaul_connection::{Begun, GroupPart, Groups, Unplaceable};

use crate::driver::Driver;
use crate::environment::Env;
use crate::staging::{Half, Staged};

/// Memory for groups: that of what this end does, while it is open.
pub(crate) struct Memory<'m, 'e> {
    pub is_open: bool,
    pub half: &'m mut Half,
    pub driver: &'m mut Driver,
    pub env: &'m mut Env<'e>,
}

impl Groups<Staged> for Memory<'_, '_> {
    fn begin(&mut self, part: &GroupPart) -> Result<Begun<Staged>, Unplaceable> {
        if !self.is_open {
            return Err(Unplaceable::NoMemory);
        }
        self.driver.refresh(self.half);
        self.driver.begin_group(part, self.half, self.env)
    }
}
