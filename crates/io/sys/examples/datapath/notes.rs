//! Cost of the kernel's control messages (time stamp, drop count, traffic class, destination) in a
//! receive.

use std::error::Error;
use std::io::{IoSlice, IoSliceMut};
use std::time::Instant;

use longhaul_sys::udp::{Route, UdpOptions, UdpSocket, Wait};

use crate::{RUNS, median};

pub fn measure() -> Result<(), Box<dyn Error>> {
    println!("\nnotes: one byte over loopback, a receive call that finds it queued");
    println!("{:<34} {:>9}", "", "recv ns");
    let mut runs = vec![Vec::new(); ROWS.len()];
    for _ in 0..RUNS {
        for (row, runs) in ROWS.iter().zip(&mut runs) {
            runs.push(once(row)?);
        }
    }
    for ((name, _), runs) in ROWS.iter().zip(&mut runs) {
        println!("{name:<34} {:>9.0}", median(runs, |ns| *ns));
    }
    Ok(())
}

fn once((_, [timestamps, overflow, class, destination, gro]): &Row) -> Result<f64, Box<dyn Error>> {
    let mut options = UdpOptions::default();
    options.timestamps = *timestamps;
    options.overflow_counts = *overflow;
    options.receive_traffic_class = *class;
    options.destination = *destination;
    options.gro = *gro;
    let receiver = UdpSocket::bind("0.0.0.0:0".parse()?, &options)?;
    let sender = UdpSocket::bind("127.0.0.1:0".parse()?, &options)?;
    sender.connect(([127, 0, 0, 1], receiver.local_addr().port()).into())?;
    let (mut nanos, mut calls) = (0, 0);
    let mut byte = [0];
    for _ in 0..ROUNDS {
        for _ in 0..QUEUED {
            sender.send(&Route::CONNECTED, &[IoSlice::new(&[1])], None, Wait::UntilReady)?;
        }
        let start = Instant::now();
        while receiver.recv(&mut [IoSliceMut::new(&mut byte)], Wait::No)?.is_some() {
            calls += 1;
        }
        nanos += start.elapsed().as_nanos();
    }
    Ok(nanos as f64 / f64::from(calls))
}

/// Name; time stamps, drop counts, traffic class, destination, GRO.
type Row = (&'static str, [bool; 5]);

const ROWS: [Row; 7] = [
    ("none", [false, false, false, false, false]),
    ("time stamp", [true, false, false, false, false]),
    ("drop count (nothing dropped)", [false, true, false, false, false]),
    ("traffic class", [false, false, true, false, false]),
    ("destination address", [false, false, false, true, false]),
    ("all four", [true, true, true, true, false]),
    ("all four, socket with UDP_GRO", [true, true, true, true, true]),
];

const QUEUED: u32 = 500;
const ROUNDS: u32 = 400;
