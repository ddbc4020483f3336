//! What the emulated path of the demo takes: a paced flow through the relay, its CPU and lateness.
//! `cargo bench -p longhaul-cli --bench relay [-- RATE [SECONDS]]`.

use std::error::Error;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_cli::demo::relay::{EmulatedPath, Relay};
use longhaul_pathsim::Probability;
use longhaul_sys::clock;
use longhaul_sys::udp::{Route, UdpOptions, UdpSocket, Wait};
use longhaul_units::{Bytes, Rate};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
    let rate: Rate = words.next().map_or(Ok(Rate::from_mbps(990)), |word| word.parse())?;
    let seconds: u64 = words.next().map_or(Ok(3), |word| word.parse())?;
    let path = EmulatedPath {
        rate: Rate::from_gbps(1).max(rate),
        rtt: Duration::from_millis(100),
        loss: Probability::from_ppm(1_000),
        queue: Bytes::new(12_500_000),
        mtu: 1_500,
        seed: 1,
    };
    let server = UdpSocket::bind("127.0.0.2:0".parse()?, &UdpOptions::default())?;
    let at = SocketAddr::new("127.0.0.1".parse()?, server.local_addr().port());
    let relay = Relay::start(at, server.local_addr(), &path)?;
    let client = UdpSocket::bind("127.0.0.1:0".parse()?, &UdpOptions::default())?;
    client.connect(at)?;

    let received = std::thread::spawn(move || {
        let mut buffer = vec![0; 65_535];
        let (mut datagrams, mut calls) = (0, 0u64);
        let mut deadline = clock::now() + Duration::from_secs(seconds + 1);
        while server.wait_readable(None, Some(deadline)).is_ok_and(|ready| ready.socket) {
            let got = server.recv(&mut [IoSliceMut::new(&mut buffer)], Wait::No);
            if let Ok(Some(got)) = got {
                datagrams += got.datagrams() as u64;
                calls += 1;
                deadline = clock::now() + Duration::from_millis(300);
            }
        }
        (datagrams, calls)
    });
    let train = vec![0x5a; 1_472 * TRAIN];
    let gap = rate.time_for((1_500 * TRAIN) as u64);
    clock::use_precise_timers()?;
    let start = clock::now();
    let mut sent = 0u64;
    let mut next = start;
    while next < start + Duration::from_secs(seconds) {
        clock::sleep_until(next);
        client.send(&Route::CONNECTED, &[IoSlice::new(&train)], Some(1_472), Wait::UntilReady)?;
        sent += TRAIN as u64;
        next += gap;
    }
    let elapsed = clock::now() - start;
    let (datagrams, calls) = received.join().map_err(|_| "the receiver panicked")?;
    let report = relay.stop()?;
    println!(
        "offered    {sent} datagrams, {} at the IP layer",
        Rate::from_bytes_over(sent * 1_500, elapsed)
    );
    println!("path       {}", report.forward.path);
    println!("received   {datagrams} datagrams in {calls} calls");
    println!(
        "relay      {:.1} % of a core",
        report.forward.cpu.unwrap_or_default().as_secs_f64() / elapsed.as_secs_f64() * 100.0
    );
    println!(
        "lateness   mean {:?}, worst {:?}; {} super-packets dropped before the path",
        report.forward.lateness_typical, report.forward.lateness_max, report.forward.overflows
    );
    Ok(())
}

/// Datagrams sent at once.
const TRAIN: usize = 16;
