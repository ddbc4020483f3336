use core::fmt;

macro_rules! bottlenecks {
    ($($(#[$attribute:meta])? $code:literal $variant:ident $name:literal)*) => {
        /// What bounds the rate of a transfer, with the codes of docs/protocol.md section 9.1.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Bottleneck {
            $(
                #[doc = concat!("\"", $name, "\".")]
                $(#[$attribute])?
                $variant = $code,
            )*
        }

        impl Bottleneck {
            /// Every one; its place is its code.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The value of a code; [`Self::Unknown`] for those that are not defined.
            pub const fn from_code(code: u8) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    _ => Self::Unknown,
                }
            }

            /// The name, for people and JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

bottlenecks! {
    #[default]
    0 Unknown "unknown"
    1 Network "network"
    2 SenderCpu "sender CPU"
    3 ReceiverCpu "receiver CPU"
    4 SenderDisk "sender disk"
    5 ReceiverDisk "receiver disk"
    6 Reservation "reservation"
    7 UserLimit "user limit"
    8 ReceiverBuffer "receiver buffer"
    9 StartUp "start-up"
    10 SenderBuffer "sender buffer"
    11 Input "input"
    12 Output "output"
}

impl Bottleneck {
    /// How many there are; codes are below.
    pub const COUNT: usize = Self::ALL.len();
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_a_place() {
        for (code, bottleneck) in (0..).zip(Bottleneck::ALL) {
            assert_eq!(bottleneck as u8, code);
            assert_eq!(Bottleneck::from_code(code), bottleneck);
        }
        assert_eq!(Bottleneck::from_code(5), Bottleneck::ReceiverDisk);
        assert_eq!(Bottleneck::from_code(200), Bottleneck::Unknown);
    }
}
