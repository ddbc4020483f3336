//! Joins and records of the TCP carrier.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longhaul_fuzz::wire::records(input));
