//! Metadata of files as the system has it: owners by name or number, extended attributes, access lists.

pub(crate) mod access;
pub(crate) mod node;
pub(crate) mod rights;

use std::collections::BTreeMap;
use std::sync::Mutex;

use longhaul_sys::accounts::{self, AccountKind};
use longhaul_sys::sync::lock;
use longhaul_wire::{Account, KeptAttributes};
use rustix::io::Errno;

type Names = BTreeMap<(AccountKind, u32), Box<[u8]>>;
type Numbers = BTreeMap<(AccountKind, Box<[u8]>), Option<u32>>;

/// Names of this host's accounts, which are asked for once.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    /// Numbers mean the same at both ends: there are no names.
    pub(crate) by_number: bool,
    names: Mutex<Names>,
    numbers: Mutex<Numbers>,
}

impl Accounts {
    pub(crate) fn new(by_number: bool) -> Self {
        Self { by_number, ..Self::default() }
    }

    /// The account with this number here, for the other end.
    pub(crate) fn of(&self, kind: AccountKind, id: u32) -> Account {
        if self.by_number {
            return Account { id, name: Box::default() };
        }
        let mut names = lock(&self.names);
        if names.len() >= KNOWN_MOST {
            names.clear();
        }
        let name = names.entry((kind, id)).or_insert_with(|| {
            let name = accounts::name_of(kind, id).filter(|name| name.len() <= NAME_MOST);
            name.unwrap_or_default().into()
        });
        Account { id, name: name.clone() }
    }

    /// The number here of an account of the other end: of its name, or its own where nobody has that here.
    pub(crate) fn number(&self, kind: AccountKind, account: &Account) -> u32 {
        if self.by_number || account.name.is_empty() {
            return account.id;
        }
        let mut numbers = lock(&self.numbers);
        if numbers.len() >= KNOWN_MOST {
            numbers.clear();
        }
        let number = numbers
            .entry((kind, account.name.clone()))
            .or_insert_with(|| accounts::id_of(kind, &account.name));
        number.unwrap_or(account.id)
    }
}

/// True where the file system does not let it be set, or does not know it, and nothing else is wrong: as CIFS
/// and FUSE do for who is not the owner that they show, and sandboxes.
pub(crate) fn is_refusal(error: Errno) -> bool {
    let refusals =
        [Errno::PERM, Errno::ACCESS, Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL, Errno::OVERFLOW];
    refusals.contains(&error)
}

/// Attributes that a list of names has.
pub(crate) const LISTED: KeptAttributes =
    KeptAttributes::XATTRS.with(KeptAttributes::ACCESS_LISTS, true);
/// Names of those that every user may set begin so.
pub(crate) const USER: &[u8] = b"user.";
/// Accounts that are remembered of each kind: a peer may name any number.
const KNOWN_MOST: usize = 1 << 12;
/// Longest name that an entry can have.
const NAME_MOST: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_known_by_name_where_both_ends_have_it() {
        let accounts = Accounts::default();
        let root = accounts.of(AccountKind::User, 0);
        assert_eq!((root.id, &*root.name), (0, &b"root"[..]));
        let number = |id, name: &[u8]| {
            accounts.number(AccountKind::User, &Account { id, name: name.into() })
        };
        assert_eq!((number(7, b"root"), number(7, b"")), (0, 7));
        assert_eq!(number(7_000_000, b"nobody has that name"), 7_000_000);
        let by_number = Accounts::new(true);
        assert!(by_number.of(AccountKind::Group, 0).name.is_empty());
        assert_eq!(by_number.number(AccountKind::User, &Account { id: 7, ..root }), 7);
    }
}
