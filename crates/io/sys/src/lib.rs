//! Operating system interfaces of Longhaul below the standard library: batched datagrams,
//! clocks, confined files, scheduler and host samplers, TCP options, network namespaces, TUN devices,
//! traffic control, children, standard streams, processes of others, accounts, descriptors, threads, random numbers, locks,
//! reasons of errors in words, and system calls that fail at will.
//!
//! The only crate with `unsafe` code. It holds no protocol and no policy, starts no thread of its
//! own that outlives a call, and its data path ([`udp`]) allocates nothing. Every facility that a
//! kernel may lack is found by trying it, reported (see [`udp::Capabilities`]) and, where possible,
//! replaced by a slower way behind the same face. Linux only.
//!
//! ```
//! use std::io::{IoSlice, IoSliceMut};
//!
//! use longhaul_sys::udp::{Route, UdpOptions, UdpSocket, Wait};
//!
//! let receiver = UdpSocket::bind("127.0.0.1:0".parse()?, &UdpOptions::default())?;
//! let sender = UdpSocket::bind("127.0.0.1:0".parse()?, &UdpOptions::default())?;
//! let route = Route::to(receiver.local_addr());
//! // One call, two datagrams of at most five bytes each.
//! sender.send(&route, &[IoSlice::new(b"first"), IoSlice::new(b"last")], Some(5), Wait::No)?;
//!
//! let mut buffer = [0; 65535];
//! let got = receiver.recv(&mut [IoSliceMut::new(&mut buffer)], Wait::UntilReady)?;
//! let got = got.expect("a blocking receive returns a datagram");
//! assert_eq!(&buffer[..got.segment as usize], b"first");
//! assert_eq!(got.from, sender.local_addr());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(target_os = "linux"))]
compile_error!("longhaul-sys supports Linux only");

pub mod accounts;
pub mod activation;
pub mod blaster;
pub mod clock;
pub mod descriptors;
pub mod faults;
pub mod files;
pub mod host;
pub mod memory;
mod netlink;
pub mod netns;
pub mod process;
pub mod processes;
pub mod random;
pub mod reasons;
pub mod route;
pub mod siphash;
mod sockopt;
pub mod standard;
pub mod stop;
pub mod sync;
pub mod tcp;
pub mod threads;
pub mod traffic_control;
pub mod tun;
pub mod udp;
pub mod wait;
