//! Ranges of FEEDBACK, written and read.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longhaul_fuzz::wire::feedback(input));
