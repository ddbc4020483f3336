//! `liblonghaul_preload.so`: TCP connections of a program that knows of no gateways go through them.
//!
//! `longhaul gateway run` sets LD_PRELOAD and the variables of `longhaul_relay_client::Settings`;
//! without them the library does nothing. It stands in front of these functions of the C library:
//!
//! - `connect` dials the first gateway and sends it the header. A blocking one waits for the answer. A
//!   non-blocking one waits for the first gateway only, a round trip of the campus network, since
//!   nobody could send the header later: a program that waits to be spoken to calls nothing.
//!   Payload may follow the header at once.
//! - What reads takes the answer off the stream first: exactly its bytes, so that payload behind it
//!   stays in the kernel. What writes, `getsockopt(SO_ERROR)` and `getpeername` look for it without
//!   waiting. The first of them that finds a refusal reports the far end's errno.
//! - What is written before the answer is kept, and an end by `shutdown` with it: where the gateway proves another
//!   clock, the set-up begins again and it is sent again. Behind 64 KiB, and before what cannot be kept (`sendfile`,
//!   `splice`, urgent data), even a non-blocking write waits for the answer.
//! - `fcntl` and `ioctl` that make a descriptor block wait for the answer: else a program that was
//!   woken by the answer would wait for payload that may never come.
//! - `getpeername` returns the destination, as without gateways.
//!
//! `poll`, `select` and `epoll` are the kernel's: the socket stays the program's own, so its options and
//! registrations hold. The destination, and that the answer was taken, are noted in the socket itself
//! (`mark`): they survive `dup`, `fork` and `exec` and need no hook of `close`. What the answer will be
//! checked with is in memory: a socket that is handed over by `exec` before its first read is not understood there.
//!
//! Not seen: static and set-user-id programs, system calls past the C library (Go, io_uring), UDP. MPTCP is
//! refused.
//!
//! It depends on nothing of Longhaul but the relay and its client side, and starts no thread.

// The tests of this crate do not put hooks in front of their own process.
#![cfg_attr(test, allow(dead_code))]

mod address;
#[cfg(not(test))]
mod at_load;
mod connect;
mod early;
mod first_gateway;
mod fork;
mod hooks;
mod mark;
mod next;
mod pending;
mod settings;
mod sys;
