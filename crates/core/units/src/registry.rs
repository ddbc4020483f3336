/// An enum of a registry of docs/protocol.md section 9: codes from 0 on, a name for each, and its first
/// for codes that are not defined.
macro_rules! registry {
    (
        $(#[$about:meta])*
        $registry:ident
        $($(#[$attribute:meta])? $code:literal $variant:ident $name:literal)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $registry {
            $(
                #[doc = concat!("\"", $name, "\".")]
                $(#[$attribute])?
                $variant = $code,
            )*
        }

        impl $registry {
            /// Every one; its place is its code.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The value of a code; the first for those that are not defined.
            pub const fn from_code(code: u8) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    _ => Self::ALL[0],
                }
            }

            /// The name, for people and JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl core::fmt::Display for $registry {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

pub(crate) use registry;

#[cfg(test)]
mod tests {
    use crate::{Bottleneck, EntryCode, MemoryUse};

    #[test]
    fn a_code_is_a_place() {
        for (code, bottleneck) in (0..).zip(Bottleneck::ALL) {
            assert_eq!(bottleneck as u8, code);
            assert_eq!(Bottleneck::from_code(code), bottleneck);
        }
        for (code, memory) in (0..).zip(MemoryUse::ALL) {
            assert_eq!(memory as u8, code);
            assert_eq!(MemoryUse::from_code(code), memory);
        }
        for (number, code) in (0..).zip(EntryCode::ALL) {
            assert_eq!(code as u8, number);
            assert_eq!(EntryCode::from_code(number), code);
        }
        assert_eq!(EntryCode::from_code(200), EntryCode::Failed);
        assert_eq!(Bottleneck::from_code(5), Bottleneck::ReceiverDisk);
        assert_eq!(Bottleneck::from_code(200), Bottleneck::Unknown);
        assert_eq!(MemoryUse::from_code(200), MemoryUse::None);
    }
}
