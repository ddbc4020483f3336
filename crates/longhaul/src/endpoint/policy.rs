//! The rules of a server that may change while it runs: who may do what, and how much of it.
//!
//! A client keeps the rules under which it came in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_files::{at_directory, is_hidden_name};
use longhaul_session::Keyring;
use longhaul_sys::files::ConfinedDir;
use longhaul_units::{Bytes, Rate};

use crate::endpoint::guests::Guest;
use crate::error::Error;
use crate::options::{Access, ServeOptions};

/// The rules in force.
pub(crate) struct Policy {
    /// Of the tokens that are let in.
    pub keyring: Keyring,
    /// By key id.
    rights: BTreeMap<[u8; 8], Arc<Rights>>,
    /// Clients at a time.
    pub clients_max: usize,
    /// Names of the profiles that clients may choose.
    pub profiles: Option<Vec<String>>,
}

/// The rights of who holds one token.
pub(crate) struct Rights {
    /// The directory below which all is.
    pub root: Arc<ConfinedDir>,
    /// Its name: pipes meet where that is the same.
    pub place: PathBuf,
    pub read: bool,
    pub write: bool,
    pub delete: bool,
    /// Owners, set-id bits, and attributes that are not the user's.
    pub owners: bool,
    /// Clients at a time.
    pub clients_max: Option<usize>,
    /// Bytes that copies leave free on a file system.
    pub free_least: Bytes,
    /// The most that the clients of this token, and all clients, move in one direction together.
    rate: Option<Rate>,
    rate_of_all: Option<Rate>,
}

impl Policy {
    /// The rules that `options` state.
    ///
    /// # Errors
    /// A directory cannot be used, or a token has two rights.
    pub fn new(options: &ServeOptions) -> Result<Self, Error> {
        let (mut keyring, mut rights) = (Keyring::default(), BTreeMap::new());
        for access in &options.access {
            let root = Arc::new(open(access)?);
            for token in &access.tokens {
                let own = Rights::new(access, root.clone(), options);
                if rights.insert(token.key().id().0, Arc::new(own)).is_some() {
                    let id = token.key().id();
                    return Err(Error::usage(format!("the token with the id {id} has two rights")));
                }
                keyring.insert(token);
            }
        }
        let (clients_max, profiles) = (options.connections_max, options.profiles.clone());
        Ok(Self { keyring, rights, clients_max, profiles })
    }

    /// The rights of who has proven the token of that id.
    pub fn rights(&self, key_id: [u8; 8]) -> Option<&Arc<Rights>> {
        self.rights.get(&key_id)
    }

    /// The directories that somebody may write to, each once.
    pub fn writable_roots(&self) -> Vec<Arc<ConfinedDir>> {
        let mut roots: Vec<Arc<ConfinedDir>> = Vec::new();
        for rights in self.rights.values().filter(|rights| rights.write) {
            if !roots.iter().any(|root| Arc::ptr_eq(root, &rights.root)) {
                roots.push(rights.root.clone());
            }
        }
        roots
    }

    /// True where several parties are served, each with a token of its own.
    pub fn serves_several(&self) -> bool {
        self.rights.len() > 1
    }
}

impl Rights {
    fn new(access: &Access, root: Arc<ConfinedDir>, options: &ServeOptions) -> Self {
        let free_least = access.limits.min_free.max(options.limits.min_free).unwrap_or(Bytes::ZERO);
        Self {
            root,
            place: access.root.clone(),
            read: access.allow_read,
            write: access.allow_write,
            delete: access.allow_delete,
            owners: access.allow_owners,
            clients_max: access.transfers,
            free_least,
            rate: access.limits.rate,
            rate_of_all: options.limits.rate,
        }
    }

    /// The most that `guest` may send, or get, now: as much as each other that shares the limit.
    pub fn share(&self, guest: &Guest<'_>) -> Option<Rate> {
        if self.rate.is_none() && self.rate_of_all.is_none() {
            return None;
        }
        let (of_token, all) = guest.counts();
        let part = |rate: Rate, parts: usize| Rate::from_bps(rate.as_bps() / parts.max(1) as u64);
        let own = self.rate.map(|rate| part(rate, of_token));
        own.into_iter().chain(self.rate_of_all.map(|rate| part(rate, all))).min()
    }
}

/// The directory that it names.
fn open(access: &Access) -> Result<ConfinedDir, Error> {
    let root = ConfinedDir::open_root(&access.root);
    // What transfers keep for themselves is nobody else's.
    root.map(|root| root.without(is_hidden_name)).map_err(|error| {
        let root = access.root.display().to_string();
        let message = format!("cannot serve {root}: {}", at_directory(&error.into()).reason);
        Error::path(root, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::guests::{Guests, Places};
    use longhaul_session::Token;
    use longhaul_units::Duration;

    fn token(byte: u8) -> Token {
        Token::from_random([byte; 16])
    }

    fn access(bytes: &[u8]) -> Access {
        Access::new(std::env::temp_dir(), bytes.iter().map(|byte| token(*byte)).collect())
    }

    #[test]
    fn clients_of_a_token_share_its_rate_and_all_clients_that_of_the_server() {
        let mut limited = access(&[1]);
        limited.limits.rate = Some(Rate::from_mbps(90));
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut options = ServeOptions::new(listen, vec![limited, access(&[2])]);
        let id = |byte| token(byte).key().id().0;
        let share = |options: &ServeOptions, guest: &Guest<'_>, byte| {
            Policy::new(options).ok().unwrap().rights(id(byte)).unwrap().share(guest)
        };
        let guests = Guests::new(Duration::ZERO);
        let places = Places { all: 8, own: None };
        let admit = |byte| guests.admit(places, id(byte), [192, 0, 2, 1].into()).unwrap();
        let (first, other) = (admit(1), admit(2));
        assert_eq!(share(&options, &first, 1), Some(Rate::from_mbps(90)));
        assert_eq!(share(&options, &other, 2), None);
        let second = admit(1);
        assert_eq!(share(&options, &first, 1), Some(Rate::from_mbps(45)));
        options.limits.rate = Some(Rate::from_mbps(60));
        assert_eq!(share(&options, &first, 1), Some(Rate::from_mbps(20)));
        assert_eq!(share(&options, &other, 2), Some(Rate::from_mbps(20)));
        drop(second);
        assert_eq!(share(&options, &other, 2), Some(Rate::from_mbps(30)));
    }

    #[test]
    fn a_token_has_one_right() {
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut options = ServeOptions::new(listen, vec![access(&[1]), access(&[2, 3])]);
        let policy = Policy::new(&options).ok().unwrap();
        assert!(policy.rights(token(3).key().id().0).is_some() && policy.serves_several());
        assert!(policy.rights(token(4).key().id().0).is_none());
        options.access.push(access(&[3]));
        let error = Policy::new(&options).err().unwrap().to_string();
        assert!(error.contains("has two rights"), "{error}");
    }
}
