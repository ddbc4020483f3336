//! Names of users and groups, by the system's own sources (`nsswitch.conf`).

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;

/// Kind of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccountKind {
    /// A user.
    User,
    /// A group.
    Group,
}

/// Name of the account with this number, if it has one.
pub fn name_of(kind: AccountKind, id: u32) -> Option<Vec<u8>> {
    match kind {
        AccountKind::User => {
            // SAFETY: the call fills the record, whose strings lie in the buffer, or finds nothing.
            let user = find(|record, buffer, len, found| unsafe {
                libc::getpwuid_r(id, record, buffer, len, found)
            });
            user.map(|(_, name)| name)
        }
        AccountKind::Group => {
            // SAFETY: as above.
            let group = find(|record, buffer, len, found| unsafe {
                libc::getgrgid_r(id, record, buffer, len, found)
            });
            group.map(|(_, name)| name)
        }
    }
}

/// Number of the account with this name, if there is one.
pub fn id_of(kind: AccountKind, name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    match kind {
        AccountKind::User => {
            // SAFETY: the name ends with a zero and outlives the call; else as in `name_of`.
            let user = find(|record, buffer, len, found| unsafe {
                libc::getpwnam_r(name.as_ptr(), record, buffer, len, found)
            });
            user.map(|(id, _)| id)
        }
        AccountKind::Group => {
            // SAFETY: as above.
            let group = find(|record, buffer, len, found| unsafe {
                libc::getgrnam_r(name.as_ptr(), record, buffer, len, found)
            });
            group.map(|(id, _)| id)
        }
    }
}

/// A record of an account, as the C library has it.
trait Record {
    fn id(&self) -> u32;
    fn name(&self) -> *const libc::c_char;
}

impl Record for libc::passwd {
    fn id(&self) -> u32 {
        self.pw_uid
    }

    fn name(&self) -> *const libc::c_char {
        self.pw_name
    }
}

impl Record for libc::group {
    fn id(&self) -> u32 {
        self.gr_gid
    }

    fn name(&self) -> *const libc::c_char {
        self.gr_name
    }
}

/// Number and name of what `call` finds, with as large a buffer as it asks for.
fn find<R: Record>(
    call: impl Fn(*mut R, *mut libc::c_char, usize, *mut *mut R) -> libc::c_int,
) -> Option<(u32, Vec<u8>)> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let (mut record, mut found) = (MaybeUninit::<R>::uninit(), ptr::null_mut());
        let error = call(record.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found);
        if error == libc::ERANGE && buffer.len() < BUFFER_MAX {
            buffer.resize(2 * buffer.len(), 0);
        } else if error == libc::EINTR {
        } else if error != 0 || found.is_null() {
            return None;
        } else {
            // SAFETY: it was found, so the call has filled the record, and the name, which ends with a
            // zero, lies in the buffer.
            let (record, name) = unsafe {
                let record = record.assume_init();
                let name = CStr::from_ptr(record.name()).to_bytes().to_vec();
                (record, name)
            };
            return Some((record.id(), name));
        }
    }
}

const BUFFER: usize = 1 << 10;
const BUFFER_MAX: usize = 1 << 20;

/// Numbers of the user and the group by which this process reaches files.
pub fn own() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_belong_together() {
        for kind in [AccountKind::User, AccountKind::Group] {
            assert_eq!(name_of(kind, 0).as_deref(), Some(&b"root"[..]));
            assert_eq!(id_of(kind, b"root"), Some(0));
            assert_eq!(id_of(kind, b"nobody of that name"), None);
            assert_eq!(id_of(kind, b"ro\0t"), None);
            assert_eq!(name_of(kind, 0xffff_fff0), None);
        }
    }
}
