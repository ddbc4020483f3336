//! The raw limit over a veth pair: batches and single datagrams, MTU 1500 and 9000.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_sys::blaster::{BlastLimit, BlastOptions, BlastReport, blast_receive, blast_send};
use longhaul_sys::host::{allowed_cpus, pin_thread};
use longhaul_sys::memory::Pages;
use longhaul_sys::netns::{NetnsPair, Side};
use longhaul_sys::udp::{Route, UdpOptions, UdpSocket};

use crate::{RUNS, median};

pub fn measure() -> Result<(), Box<dyn Error>> {
    println!("\nraw UDP over veth, 1 GiB of distinct data at both ends");
    println!(
        "{:<24} {:>8} {:>7} {:>14} {:>14}",
        "", "Gb/s", "loss %", "send CPU-s/GB", "recv CPU-s/GB"
    );
    let mut source = Pages::new(MEMORY)?;
    source.fill(1);
    let mut target = Pages::new(MEMORY)?;
    target.touch();
    for mtu in [1500u16, 9000] {
        for ipv6 in [false, true] {
            for batches in [true, false] {
                let mut runs = Vec::new();
                for _ in 0..RUNS {
                    runs.push(once(mtu, ipv6, batches, &source, &mut target)?);
                }
                let (sent, got) = median(&mut runs, |(_, got)| got.goodput().as_bps() as f64);
                let version = if ipv6 { "IPv6" } else { "IPv4" };
                println!(
                    "MTU {mtu} {version} {:<10} {:>8.2} {:>7.2} {:>14.3} {:>14.3}",
                    if batches { "GSO, GRO" } else { "plain" },
                    got.goodput().as_bps() as f64 / 1e9,
                    got.loss().unwrap_or(f64::NAN) * 100.0,
                    sent.cpu_per_gigabyte(),
                    got.cpu_per_gigabyte(),
                );
            }
        }
    }
    Ok(())
}

fn once(
    mtu: u16,
    ipv6: bool,
    batches: bool,
    source: &[u8],
    target: &mut [u8],
) -> Result<(BlastReport, BlastReport), Box<dyn Error>> {
    let pair = NetnsPair::new(mtu.into())?;
    let mut options = UdpOptions::default();
    (options.gso, options.gro) = (batches, batches);
    let address = |side: Side| if ipv6 { side.ipv6() } else { side.ipv4() };
    let bind = |side| {
        pair.run_in(side, || UdpSocket::bind(SocketAddr::new(address(side), 0), &options))?
    };
    let (sender, receiver) = (bind(Side::A)?, bind(Side::B)?);
    sender.connect(receiver.local_addr())?;
    let datagram = mtu - if ipv6 { 48 } else { 28 };
    let limit = BlastLimit::Time(Duration::from_millis(1500));
    let blast = if batches {
        BlastOptions::full_batches(&sender, datagram, limit)
    } else {
        BlastOptions { datagram, batch: 1, limit }
    };
    let cpus = allowed_cpus()?;
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            pin_thread(&cpus[cpus.len() - 1..])?;
            blast_receive(&receiver, target, Duration::from_secs(1))
        });
        let sent = scope.spawn(|| {
            pin_thread(&cpus[..1])?;
            blast_send(&sender, &Route::CONNECTED, source, &blast)
        });
        let sent = sent.join().map_err(|_| "the sender panicked")??;
        let got = receiving.join().map_err(|_| "the receiver panicked")??;
        Ok((sent, got))
    })
}

const MEMORY: usize = 1 << 30;
