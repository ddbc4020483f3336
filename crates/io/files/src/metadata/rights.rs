//! Rights of this process to files, by which a dry run knows what the system would refuse, but for modules like SELinux.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Stat, StatxAttributes, StatxFlags, statx};
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{CapabilitySet, capabilities};

/// True if this process may do all that this capability stands for.
fn has(capability: CapabilitySet) -> bool {
    let sets = capabilities(None);
    sets.map_or_else(|_| geteuid().is_root(), |sets| sets.effective.contains(capability))
}

/// True if it may do with a file of this status what its owner may.
pub(crate) fn is_as_owner(stat: &Stat) -> bool {
    geteuid().as_raw() == stat.st_uid || has(CapabilitySet::FOWNER)
}

/// True if it may give such a file to others.
pub(crate) fn may_give(stat: &Stat, user: Option<u32>, group: Option<u32>) -> bool {
    let is_in = |group: u32| {
        let groups = getgroups().unwrap_or_default();
        getegid().as_raw() == group || groups.iter().any(|own| own.as_raw() == group)
    };
    let to_own = || geteuid().as_raw() == stat.st_uid && user.is_none() && group.is_none_or(is_in);
    has(CapabilitySet::CHOWN) || to_own()
}

/// True if it may set attributes that no user may, of this name.
pub(crate) fn may_set_xattr(name: &[u8]) -> bool {
    has(match name {
        b"security.capability" => CapabilitySet::SETFCAP,
        _ => CapabilitySet::SYS_ADMIN,
    })
}

/// True of what nobody may change, rename or delete (`chattr +i` or `+a`): a name in a directory, or that itself where it
/// is empty.
pub(crate) fn is_fixed(directory: impl AsFd, name: &[u8]) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    let found = statx(directory, name, flags, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.intersects(fixed))
}
