use core::fmt;

/// Why a connection is closed, as CLOSE carries it (docs/protocol.md section 3).
///
/// The set is open: a code that this version does not know is kept and shown as its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(pub u16);

macro_rules! close_codes {
    ($($code:literal $constant:ident $name:literal $meaning:literal)*) => {
        impl CloseCode {
            $(
                #[doc = concat!("`", $name, "`: ", $meaning, ".")]
                pub const $constant: Self = Self($code);
            )*

            /// Every code that is defined.
            pub const ALL: &'static [Self] = &[$(Self::$constant),*];

            /// The name in docs/protocol.md, if the code is defined.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($name),)*
                    _ => None,
                }
            }

            /// Meaning of the code, for people, if it is defined.
            pub const fn meaning(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($meaning),)*
                    _ => None,
                }
            }
        }
    };
}

close_codes! {
    0 DONE "done" "everything asked was done"
    1 INTERNAL "internal" "a fault of the sender of CLOSE"
    2 PROTOCOL_VIOLATION "protocol-violation" "the peer broke the protocol"
    3 UNAUTHORIZED "unauthorized" "unknown key id or wrong proof"
    4 UNSUPPORTED_VERSION "unsupported-version" "no version in common"
    5 UNSUPPORTED_OPTION "unsupported-option"
        "a critical option is unknown, or no choice is common"
    6 REFUSED "refused" "understood, but not permitted"
    7 BUSY "busy" "the server is at its limit of connections"
    8 TIMEOUT "timeout" "idle timeout or handshake timeout"
    9 CANCELLED "cancelled" "the user stopped it; partial work is kept"
    10 STORAGE "storage" "disk full, read-only or failing"
    11 SHUTDOWN "shutdown" "the server is stopping; try again later"
    12 PATH_MTU "path-mtu" "packets of the base size do not pass"
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "code {}", self.0),
        }
    }
}

impl fmt::Debug for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Longest reason for people, in bytes of UTF-8.
pub const MAX_REASON: usize = 1024;

/// The longest start of `reason` that [`MAX_REASON`] allows.
pub(crate) fn cut_reason(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(MAX_REASON)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names() {
        assert_eq!(CloseCode(3), CloseCode::UNAUTHORIZED);
        assert_eq!(CloseCode::STORAGE.to_string(), "storage");
        assert_eq!(CloseCode(900).to_string(), "code 900");
        assert!(CloseCode::ALL.iter().enumerate().all(|(i, code)| usize::from(code.0) == i));
    }

    #[test]
    fn reasons_are_cut_between_characters() {
        let long = "é".repeat(600);
        assert_eq!(cut_reason(&long).len(), 1024);
        let odd = alloc::format!("x{long}");
        assert_eq!(cut_reason(&odd).len(), 1023);
        assert_eq!(cut_reason("short"), "short");
    }
}
