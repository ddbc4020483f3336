//! Headers and answers of sessions over segments.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longhaul_fuzz::relay::relay(input));
