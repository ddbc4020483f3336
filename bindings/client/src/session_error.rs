use std::fmt;

use longhaul_relay::{ANSWER_TIMEOUT_SECS, Answer, DialError, Place, Status};

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionError {
    /// The nearest number of `errno`.
    pub errno: i32,
    /// For people: what failed, at which gateway.
    pub words: String,
    /// The target itself did not let the session in: what a direct connection would have shown too.
    pub by_target: bool,
    /// A gateway could not be reached, or takes no more sessions; the target was not asked.
    pub no_gateway: bool,
}

impl SessionError {
    /// A gateway's proven answer to a session to `target`.
    pub(crate) fn refused(answer: &Answer, target: &Place) -> Self {
        let from_target = answer.to == target.to_string();
        let network = match answer.status {
            Status::REFUSED => Some(libc::ECONNREFUSED),
            Status::TIMEOUT => Some(libc::ETIMEDOUT),
            Status::UNREACHABLE | Status::UNRESOLVED => Some(libc::EHOSTUNREACH),
            Status::RESET => Some(libc::ECONNRESET),
            _ => None,
        };
        let errno = match answer.status {
            Status::FORBIDDEN | Status::UNAUTHORIZED => libc::EACCES,
            _ => network.filter(|_| from_target).unwrap_or(libc::ENETUNREACH),
        };
        let between = !from_target && !answer.to.is_empty();
        Self {
            errno,
            words: answer.to_string(),
            by_target: from_target && network.is_some(),
            no_gateway: between && network.is_some() || answer.status == Status::SHUTDOWN,
        }
    }

    /// An answer of `gateway` that nobody proved.
    pub(crate) fn unproven(answer: &Answer, gateway: &Place) -> Self {
        let words = match answer.status {
            Status::UNAUTHORIZED => format!("gateway {gateway} does not know this token"),
            status => {
                format!("no gateway answers at {gateway}: it proves no token, and says {status}")
            }
        };
        Self::own(libc::EACCES, words)
    }

    /// No answer of a gateway.
    pub(crate) fn no_answer(error: DialError, gateway: &Place) -> Self {
        Self::own(libc::EPROTO, format!("gateway {gateway}: {error}"))
    }

    /// The first gateway took the header and gave no answer in [`ANSWER_TIMEOUT_SECS`].
    pub(crate) fn silent(gateway: &Place) -> Self {
        Self {
            errno: libc::ETIMEDOUT,
            words: format!("gateway {gateway} gave no answer in {ANSWER_TIMEOUT_SECS} s"),
            by_target: false,
            no_gateway: true,
        }
    }

    /// A fault that neither a gateway nor the target reported.
    pub fn own(errno: i32, words: impl fmt::Display) -> Self {
        Self { errno, words: words.to_string(), by_target: false, no_gateway: false }
    }

    /// The connection to the first gateway broke before its answer had come.
    pub fn lost(errno: i32, words: impl fmt::Display) -> Self {
        Self::own(errno, format!("the gateway was lost before it had answered: {words}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_know_the_token_is_named() {
        let gateway: Place = "gw:7421".parse().unwrap();
        let failure = SessionError::unproven(&Answer::new(Status::UNAUTHORIZED, ""), &gateway);
        assert_eq!(failure.words, "gateway gw:7421 does not know this token");
    }

    #[test]
    fn the_targets_own_failures_keep_their_errno_and_others_blame_the_route() {
        let target: Place = "192.0.2.9:80".parse().unwrap();
        let failure = |status, to: &str| {
            let answer = Answer { to: to.into(), ..Answer::new(status, "gw") };
            let failure = SessionError::refused(&answer, &target);
            (failure.errno, failure.by_target, failure.no_gateway)
        };
        for (status, errno) in [
            (Status::REFUSED, libc::ECONNREFUSED),
            (Status::TIMEOUT, libc::ETIMEDOUT),
            (Status::UNREACHABLE, libc::EHOSTUNREACH),
            (Status::RESET, libc::ECONNRESET),
        ] {
            assert_eq!(failure(status, "192.0.2.9:80"), (errno, true, false));
            assert_eq!(failure(status, "far:7421"), (libc::ENETUNREACH, false, true));
        }
        assert_eq!(failure(Status::FORBIDDEN, "192.0.2.9:80"), (libc::EACCES, false, false));
        assert_eq!(failure(Status::FORBIDDEN, "far:7421"), (libc::EACCES, false, false));
        assert_eq!(failure(Status::BUSY, "192.0.2.9:80"), (libc::ENETUNREACH, false, false));
        assert_eq!(failure(Status::SHUTDOWN, ""), (libc::ENETUNREACH, false, true));
    }
}
