//! Kernel TCP across a testbed, as much as goes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::tcp::TcpOptions;
use longhaul_units::Rate;

use crate::testbed::Testbed;

/// Kernel TCP from the first host to the last.
#[derive(Clone, Debug)]
pub struct TcpPump {
    /// By the kernel's name, never the default of whatever host this is.
    pub congestion_control: String,
    /// Connections side by side, at least one.
    pub streams: u16,
    /// From the start until it is counted.
    pub settle: Duration,
    /// How long it is counted.
    pub length: Duration,
}

impl TcpPump {
    /// Goodput of all connections together, as the receiver gets it.
    ///
    /// # Errors
    /// A congestion control that the kernel does not have, a path on which nobody answers.
    pub fn run(&self, testbed: &Testbed) -> io::Result<Rate> {
        let (from, to) = testbed.ends();
        let listener = to.run(|| TcpListener::bind((to.ipv4(), 0)))??;
        let target = listener.local_addr()?;
        let mut options = TcpOptions::default();
        options.congestion_control = Some(self.congestion_control.clone());
        let mut pairs = Vec::new();
        for _ in 0..self.streams {
            let stream = from.run(|| TcpStream::connect_timeout(&target, PATIENCE))??;
            options.apply(&stream)?;
            // Nobody answers when a path loses everything.
            stream.set_write_timeout(Some(PATIENCE))?;
            pairs.push((stream, listener.accept()?.0));
        }
        let (received, done) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (stream, accepted) in &pairs {
                threads.push(scope.spawn(|| send(stream, &done)));
                threads.push(scope.spawn(|| receive(accepted, &received)));
            }
            std::thread::sleep(self.settle);
            let (start, before) = (clock::now(), received.load(Ordering::Relaxed));
            std::thread::sleep(self.length);
            let bytes = received.load(Ordering::Relaxed) - before;
            let goodput = Rate::from_bytes_over(bytes, clock::now() - start);
            done.store(true, Ordering::Relaxed);
            for (stream, accepted) in &pairs {
                // What is still under way is of no interest; some may have ended already.
                let _ = stream.shutdown(Shutdown::Both);
                let _ = accepted.shutdown(Shutdown::Read);
            }
            for thread in threads {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(goodput)
        })
    }
}

fn send(mut stream: &TcpStream, done: &AtomicBool) -> io::Result<()> {
    let block = vec![0x5a; BLOCK];
    while !done.load(Ordering::Relaxed) {
        if let Err(error) = stream.write_all(&block) {
            // Cut off at the end, or too slow for the last block.
            return if done.load(Ordering::Relaxed) { Ok(()) } else { Err(error) };
        }
    }
    Ok(())
}

fn receive(mut stream: &TcpStream, received: &AtomicU64) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        match stream.read(&mut block)? {
            0 => return Ok(()),
            length => received.fetch_add(length as u64, Ordering::Relaxed),
        };
    }
}

const BLOCK: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(30);
