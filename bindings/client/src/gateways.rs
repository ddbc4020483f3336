use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use longhaul_relay::{
    Clock, ClockOffset, Dialler, Hop, ParseViaError, Place, RouteError, parse_via,
};
use longhaul_session::{TokenFileError, TokenKey, parse_token_file};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::attempt::Attempt;

/// The gateways of a route, in order, and the token that proves this host to the first.
#[derive(Debug)]
pub struct Gateways {
    first: Hop,
    rest: Vec<Hop>,
    key: TokenKey,
    /// The first one's clock, as it has proven it.
    clock: Mutex<ClockOffset>,
}

/// There is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file {}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no token file.
    #[error("{}: {error}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Its mistake.
        error: TokenFileError,
    },
    /// It is empty.
    #[error("{} holds no token", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
}

/// A session cannot be asked for.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The header would be too long.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// A header needs random numbers.
    #[error("this host gives no random numbers: {0}")]
    Random(#[from] rustix::io::Errno),
}

impl Gateways {
    /// Those that `via` names, `[NAME@]HOST[:PORT]` with commas between, for the holder of `key`.
    ///
    /// # Errors
    /// See [`parse_via`].
    pub fn new(via: &str, key: TokenKey) -> Result<Self, ParseViaError> {
        let (first, rest) = parse_via(via.split(','))?;
        Ok(Self { first, rest, key, clock: Mutex::default() })
    }

    /// Where the first one listens: that is where the caller connects.
    pub const fn first(&self) -> &Place {
        &self.first.place
    }

    /// Begins a session to `target` on a connection to the first gateway's address `gateway`.
    ///
    /// # Errors
    /// The names are too long, or there are no random numbers.
    pub fn dial(&self, target: Place, gateway: SocketAddr) -> Result<Attempt, DialError> {
        let mut random = [0; 32];
        let mut drawn = 0;
        while drawn < random.len() {
            drawn += getrandom(&mut random[drawn..], GetRandomFlags::empty())?;
        }
        let clock = self.clock().at(now());
        let (first, rest) = (&self.first, &self.rest[..]);
        let (dialler, header) =
            Dialler::client(first, rest, target.clone(), gateway, &self.key, clock, random)?;
        Ok(Attempt::new(dialler, header, target, first.place.clone()))
    }

    /// Takes over the clock of the first gateway, which it has proven to be its own; `false` where it is
    /// not believed ([`ClockOffset::believe`]). Each session may ask once.
    pub fn believe(&self, clock: Clock) -> bool {
        self.clock().believe(clock, now())
    }

    fn clock(&self) -> MutexGuard<'_, ClockOffset> {
        // Nothing panics while it holds the lock.
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first token of `file`.
///
/// # Errors
/// It cannot be read, is no token file, or has none.
pub fn read_token(file: &Path) -> Result<TokenKey, TokenError> {
    let unreadable = |source| TokenError::Unreadable { file: file.into(), source };
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    io::Read::read_to_string(&mut io::Read::take(opened, MAX_FILE), &mut text)
        .map_err(unreadable)?;
    let tokens = parse_token_file(&text)
        .map_err(|error| TokenError::Malformed { file: file.into(), error })?;
    let first = tokens.first().ok_or_else(|| TokenError::Empty { file: file.into() })?;
    Ok(first.key())
}

/// The time by this host's clock.
fn now() -> Clock {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Clock::from_micros(since.map_or(0, |since| since.as_micros() as u64))
}

/// A thousand tokens, with comments.
const MAX_FILE: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_session::Token;

    fn key() -> TokenKey {
        Token::from_random([7; 16]).key()
    }

    #[test]
    fn gateways_are_named_with_commas_between() {
        let gateways = Gateways::new("near@192.0.2.1,far.example:80", key()).unwrap();
        assert_eq!(gateways.first().to_string(), "192.0.2.1:7421");
        for (via, words) in [
            ("", "expected a gateway"),
            ("gw,", "expected a gateway"),
            ("a,b,c,d,e,f,g,h,i", "at most 8"),
        ] {
            let error = Gateways::new(via, key()).unwrap_err().to_string();
            assert!(error.contains(words), "{via}: {error}");
        }
    }

    #[test]
    fn a_clock_that_drifts_is_believed_again_and_another_one_is_not() {
        let gateways = Gateways::new("gw", key()).unwrap();
        assert!(gateways.believe(Clock::from_micros(1_000_000)));
        assert!(gateways.believe(Clock::from_micros(3_000_000)));
        assert!(!gateways.believe(Clock::from_micros(900_000_000)));
        assert!(gateways.believe(now()), "ours was set right");
    }

    #[test]
    fn token_files_that_hold_none_are_named() {
        let error = read_token(Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
        let error = read_token(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.to_string(), "/dev/null holds no token");
    }
}
