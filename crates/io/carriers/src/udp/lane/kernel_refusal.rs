//! Refusals of this host's kernel to take packets of a lane.

use std::io;
use std::net::SocketAddr;

use longhaul_engine::Role;
use longhaul_sys::udp::SendError;
use longhaul_units::{Duration, Instant};
use rustix::io::Errno;

/// The kernel has taken none since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRefusal {
    since: Instant,
    to: SocketAddr,
    /// Error of the last attempt.
    errno: i32,
}

impl KernelRefusal {
    /// Takes in the outcome of sending a batch to `to`.
    pub fn note(
        refusal: &mut Option<Self>,
        now: Instant,
        to: SocketAddr,
        error: Option<&SendError>,
    ) {
        let errno = error.map(|error| match error {
            SendError::TooLarge => Errno::MSGSIZE.raw_os_error(),
            SendError::NoBuffers => Errno::NOBUFS.raw_os_error(),
            SendError::Io(error) => error.raw_os_error().unwrap_or_default(),
            _ => Errno::INVAL.raw_os_error(),
        });
        let since = refusal.map_or(now, |refusal| refusal.since);
        *refusal = errno.map(|errno| Self { since, to, errno });
    }

    /// True where it has lasted, and is none that comes and goes with an interface, an address or a queue.
    pub fn is_lasting(&self, now: Instant) -> bool {
        let passes = is_one_of(&GONE, self.errno) || is_one_of(&PASSING, self.errno);
        !passes && now - self.since >= PATIENCE
    }

    /// The reason for people, at either end.
    pub fn in_words(&self, role: Role) -> String {
        let host = match role {
            Role::Client => "client",
            Role::Server => "server",
        };
        let error = io::Error::from_raw_os_error(self.errno);
        format!("the kernel of the {host}'s host refuses UDP packets to {}: {error}", self.to)
    }

    /// The same of a copy that ends, with what helps.
    pub fn with_advice(&self, role: Role) -> String {
        let words = self.in_words(role);
        match self.errno {
            errno if is_one_of(&GONE, errno) => {
                format!("{words}; an interface, address or route of that host is gone")
            }
            errno if is_one_of(&PASSING, errno) => words,
            _ => format!("{words}; --carrier tcp does without them"),
        }
    }
}

/// Time that a firewall, say, may take to be loaded.
const PATIENCE: Duration = Duration::from_secs(5);
/// Errors of a host whose network changes: TCP fares no better.
const GONE: [Errno; 5] =
    [Errno::NETUNREACH, Errno::NETDOWN, Errno::HOSTUNREACH, Errno::HOSTDOWN, Errno::ADDRNOTAVAIL];
/// Others that pass, as of one that is short of memory.
const PASSING: [Errno; 4] = [Errno::NOBUFS, Errno::NOMEM, Errno::INVAL, Errno::AGAIN];

fn is_one_of(known: &[Errno], errno: i32) -> bool {
    known.iter().any(|known| known.raw_os_error() == errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_refusal_lasts_from_the_first_batch_until_one_is_taken() {
        let to = "192.0.2.7:7100".parse().unwrap();
        let error = |errno: Errno| SendError::Io(errno.into());
        let mut refusal = None;
        for second in 1..=6 {
            KernelRefusal::note(&mut refusal, at(second), to, Some(&error(Errno::PERM)));
            assert_eq!(refusal.unwrap().is_lasting(at(second)), second == 6);
        }
        let words = refusal.unwrap().in_words(Role::Server);
        assert!(words.contains("server's host") && words.contains("os error 1"), "{words}");
        assert!(words.contains("192.0.2.7:7100"), "{words}");
        // An interface may come back.
        KernelRefusal::note(&mut refusal, at(7), to, Some(&error(Errno::NETUNREACH)));
        assert!(!refusal.unwrap().is_lasting(at(60)));
        // Then TCP would help no more than UDP.
        for (errno, advice) in [
            (Errno::PERM, "--carrier tcp does without them"),
            (Errno::NETUNREACH, "of that host is gone"),
            (Errno::NETDOWN, "of that host is gone"),
            (Errno::NOBUFS, &*format!("(os error {})", Errno::NOBUFS.raw_os_error())),
        ] {
            KernelRefusal::note(&mut refusal, at(7), to, Some(&error(errno)));
            let words = refusal.unwrap().with_advice(Role::Client);
            assert!(words.ends_with(advice), "{words}");
        }
        KernelRefusal::note(&mut refusal, at(8), to, None);
        assert_eq!(refusal, None);
    }
}
