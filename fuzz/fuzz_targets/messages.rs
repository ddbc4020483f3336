//! Messages of stream 0, in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longhaul_fuzz::wire::messages(input));
