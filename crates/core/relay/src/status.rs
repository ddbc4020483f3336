use core::fmt;

/// Outcome of a set-up, as an answer carries it (docs/relay.md section 3). The set is open: a code
/// that this version does not know is kept and shown as its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($code:literal $constant:ident $name:literal $meaning:literal)*) => {
        impl Status {
            $(
                #[doc = concat!("`", $name, "`: ", $meaning, ".")]
                pub const $constant: Self = Self($code);
            )*

            /// Every status that is defined.
            pub const ALL: &'static [Self] = &[$(Self::$constant),*];

            /// The name in docs/relay.md, if the status is defined.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($name),)*
                    _ => None,
                }
            }

            /// The meaning, for people, if the status is defined.
            pub const fn meaning(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($meaning),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    0 CONNECTED "connected" "connected"
    1 INTERNAL "internal" "the gateway failed"
    2 MALFORMED "malformed" "the header is not one of this protocol"
    3 UNAUTHORIZED "unauthorized" "the gateway does not know this token"
    4 UNSUPPORTED_VERSION "unsupported-version" "the gateway speaks another version"
    5 UNSUPPORTED_OPTION "unsupported-option" "the gateway does not know an option that matters"
    6 FORBIDDEN "forbidden" "the gateway may not go there"
    7 BUSY "busy" "the gateway is at a limit"
    8 TIMEOUT "timeout" "no answer in time"
    9 REFUSED "refused" "connection refused"
    10 UNREACHABLE "unreachable" "no route"
    11 UNRESOLVED "unresolved" "no such name"
    12 RESET "reset" "connection reset"
    13 WRONG_CLOCK "wrong-clock" "the clocks differ by more than a minute"
    14 REPLAYED "replayed" "this header was used before"
    15 MISADDRESSED "misaddressed" "the gateway has another name"
    16 LOOP "loop" "the session passes here already"
    17 SHUTDOWN "shutdown" "the gateway is stopping"
    18 UNSUPPORTED_TRANSPORT "unsupported-transport" "the gateway has no such transport"
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "status {}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
