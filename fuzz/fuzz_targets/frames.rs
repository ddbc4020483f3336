//! Frames of a CONTROL packet.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longhaul_fuzz::wire::frames(input));
