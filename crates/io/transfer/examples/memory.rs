//! Engine memory to memory between two namespaces, beside the raw blaster.
//! `cargo run --release -p longhaul-transfer --example memory [MTU] [GiB]`
use longhaul_rate_control::Profile;
use longhaul_sys::blaster::{BlastLimit, BlastOptions, blast_receive, blast_send};
use longhaul_sys::memory::Pages;
use longhaul_sys::netns::{NetnsPair, Side};
use longhaul_sys::udp::{Route, UdpOptions, UdpSocket};
use longhaul_transfer::buffer::{Pool, Reuse};
use longhaul_transfer::memory::{MemoryOptions, receive, send};
use longhaul_units::Rate;
use longhaul_wire::{Cipher, Protect};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arg = |i: usize, d: u64| std::env::args().nth(i).map_or(d, |a| a.parse().unwrap_or(d));
    let (mtu, gib, only) = (arg(1, 1500), arg(2, 4), std::env::args().nth(3));
    let pair = NetnsPair::new(mtu as u32)?;
    let (a, b) = (Side::A, Side::B);
    let to = SocketAddr::new(b.ipv4(), 7420);
    let from = SocketAddr::new(a.ipv4(), 0);
    let profile = Profile::by_name("auto").ok_or("profile")?;
    for (name, protect) in
        [("clear", Protect::Clear), ("integrity", Protect::Integrity), ("aead", Protect::Aead)]
    {
        if only.as_deref().is_some_and(|o| o != name) {
            continue;
        }
        let options = MemoryOptions {
            bytes: gib << 30,
            protect,
            cipher: Cipher::Aes128Gcm,
            secret: [7; 32],
            profile,
            rate: None,
            window: 64 << 20,
        };
        let (sent, received) = std::thread::scope(|scope| {
            let r = scope.spawn(|| {
                pair.run_in(b, || {
                    let socket = UdpSocket::bind(to, &UdpOptions::default()).unwrap();
                    let pool = Pool::new(1024, Reuse::Cold);
                    pool.fill();
                    receive(socket, &options, pool).unwrap()
                })
                .unwrap()
            });
            std::thread::sleep(Duration::from_millis(700));
            let s = scope.spawn(|| {
                pair.run_in(a, || {
                    let socket = UdpSocket::bind(from, &UdpOptions::default()).unwrap();
                    let pool = Pool::new(1024, Reuse::Cold);
                    pool.fill();
                    let groups = (0..1024).map(|_| Arc::new(pool.take().unwrap())).collect();
                    send(socket, to, &options, groups).unwrap()
                })
                .unwrap()
            });
            (s.join().unwrap(), r.join().unwrap())
        });
        println!(
            "{name}: {} | cpu/GB send {:.3} recv {:.3} | {:?}",
            Rate::from_bytes_over(options.bytes, sent.elapsed),
            sent.cpu.as_secs_f64() / (gib as f64 * 1.0737),
            received.cpu.as_secs_f64() / (gib as f64 * 1.0737),
            sent.stats
        );
    }
    if only.is_none() {
        let report = std::thread::scope(|scope| {
            let r = scope.spawn(|| {
                pair.run_in(b, || {
                    let socket = UdpSocket::bind(to, &UdpOptions::default()).unwrap();
                    let mut m = Pages::new(1 << 30).unwrap();
                    m.touch();
                    blast_receive(&socket, &mut m, Duration::from_secs(1)).unwrap()
                })
            });
            std::thread::sleep(Duration::from_millis(700));
            scope.spawn(|| {
                pair.run_in(a, || {
                    let socket = UdpSocket::bind(from, &UdpOptions::default()).unwrap();
                    let mut m = Pages::new(1 << 30).unwrap();
                    m.touch();
                    blast_send(
                        &socket,
                        &Route::to(to),
                        &m,
                        &BlastOptions::full_batches(
                            &socket,
                            mtu as u16 - 28,
                            BlastLimit::Time(Duration::from_secs(2)),
                        ),
                    )
                })
            });
            r.join().unwrap()
        });
        let report = report.unwrap();
        println!("blaster {} cpu/GB {:.3}", report.goodput(), report.cpu_per_gigabyte());
    }
    Ok(())
}
