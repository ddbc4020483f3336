//! POSIX access lists, as Linux keeps them in an extended attribute (`linux/posix_acl_xattr.h`).

use longhaul_sys::accounts::AccountKind;
use longhaul_wire::{AccessEntry, AccessList};

use super::Accounts;

/// Attribute that has the access list of a file or directory.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The one of what is made in a directory.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Reads the value of such an attribute.
pub(crate) fn read(value: &[u8], accounts: &Accounts) -> Option<AccessList> {
    let entries = value.strip_prefix(&VERSION)?;
    let (entries, rest) = entries.as_chunks::<8>();
    let read = |entry: &[u8; 8]| {
        let [tag, _, permissions, _, id @ ..] = *entry;
        let id = u32::from_le_bytes(id);
        let account = kind(tag).map(|kind| accounts.of(kind, id));
        AccessEntry { tag, permissions, account }
    };
    let is_list = rest.is_empty() && !entries.is_empty();
    is_list.then(|| AccessList(entries.iter().map(read).collect()))
}

/// The value of such an attribute here.
pub(crate) fn value(list: &AccessList, accounts: &Accounts) -> Vec<u8> {
    let mut entries: Vec<(u8, u32, u8)> = list
        .0
        .iter()
        .map(|entry| {
            let number = kind(entry.tag).zip(entry.account.as_ref());
            let number = number.map_or(u32::MAX, |(kind, account)| accounts.number(kind, account));
            (entry.tag, number, entry.permissions)
        })
        .collect();
    // In the order that the kernel wants; numbers may have another one here.
    entries.sort_unstable();
    let mut value = VERSION.to_vec();
    for (tag, number, permissions) in entries {
        value.extend([tag, 0, permissions, 0]);
        value.extend(number.to_le_bytes());
    }
    value
}

/// The kind of account that an entry with this tag has.
fn kind(tag: u8) -> Option<AccountKind> {
    match tag {
        2 => Some(AccountKind::User),
        8 => Some(AccountKind::Group),
        _ => None,
    }
}

const VERSION: [u8; 4] = 2u32.to_le_bytes();

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_wire::Account;

    #[test]
    fn a_list_is_read_and_written_as_the_kernel_has_it() {
        let accounts = Accounts::default();
        let bytes = [
            &[2, 0, 0, 0][..],
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[2, 0, 4, 0, 0, 0, 0, 0],
            &[4, 0, 4, 0, 255, 255, 255, 255],
            &[16, 0, 4, 0, 255, 255, 255, 255],
            &[32, 0, 0, 0, 255, 255, 255, 255],
        ]
        .concat();
        let list = read(&bytes, &accounts).unwrap();
        let root = Account { id: 0, name: b"root"[..].into() };
        assert_eq!(list.0[1], AccessEntry { tag: 2, permissions: 4, account: Some(root) });
        assert_eq!(value(&list, &accounts), bytes);
        assert!(
            read(&bytes[..13], &accounts).is_none() && read(&[1, 0, 0, 0], &accounts).is_none()
        );
    }
}
