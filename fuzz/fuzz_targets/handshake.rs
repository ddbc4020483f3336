//! Both machines of the handshake, with a transcript that the input changes.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longhaul_fuzz::session::handshake(input));
