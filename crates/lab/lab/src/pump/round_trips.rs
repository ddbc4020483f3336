use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_units::Instant;

use super::TURN;
use super::reach::{Reach, accept};
use crate::testbed::Host;

/// Times to connect, and of a byte there and back (Phoebus sections 5.6 and 5.7): single times, in
/// the order in which they were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// From the call until the connection stands.
    pub connects: Vec<Duration>,
    /// From the same call until a byte that was sent on the new connection has come back: what stands
    /// between may say that the connection stands before it has reached anybody.
    pub answers: Vec<Duration>,
    /// From sending a byte until it has come back, all on one connection.
    pub exchanges: Vec<Duration>,
}

impl RoundTrips {
    /// Makes `count` connections one after another, with a byte there and back on each, and sends as many
    /// bytes there and back on the last of them.
    ///
    /// # Errors
    /// `TimedOut` after `patience` and when the testbed is interrupted; those of connecting.
    pub fn measure(
        from: &Host,
        to: &Host,
        reach: &Reach<'_>,
        count: u32,
        patience: Duration,
    ) -> io::Result<Self> {
        let deadline = clock::now() + patience;
        let listener = reach.listen(to)?;
        let target = listener.local_addr()?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let echo = scope.spawn(|| -> io::Result<()> {
                let going = || !over.load(Ordering::Relaxed) && !to.is_interrupted();
                while going() {
                    match accept(&listener, deadline, &going) {
                        Ok(stream) => echo(stream, &going)?,
                        Err(_) if !going() => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            });
            let measured = from.run(|| -> io::Result<Self> {
                let mut measured = Self::default();
                let mut last = None;
                for _ in 0..count {
                    if from.is_interrupted() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    // One at a time.
                    drop(last.take());
                    let begun = clock::now();
                    let stream = reach.dial(target, deadline)?;
                    measured.connects.push(clock::now().since(begun));
                    stream.set_nodelay(true)?;
                    exchange(&stream, deadline)?;
                    measured.answers.push(clock::now().since(begun));
                    last = Some(stream);
                }
                if let Some(stream) = last {
                    let exchanges = (0..count).map(|_| exchange(&stream, deadline));
                    measured.exchanges = exchanges.collect::<io::Result<_>>()?;
                }
                Ok(measured)
            });
            over.store(true, Ordering::Relaxed);
            let echoed = echo.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let measured = measured??;
            echoed.map(|()| measured)
        })
    }
}

/// A byte there and back.
fn exchange(mut stream: &TcpStream, deadline: Instant) -> io::Result<Duration> {
    stream.set_read_timeout(Some(deadline.since(clock::now()).max(TURN)))?;
    let begun = clock::now();
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])?;
    Ok(clock::now().since(begun))
}

/// Sends back what comes, until the other end has gone, however, or all is over.
fn echo(mut stream: TcpStream, going: &dyn Fn() -> bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GLANCE))?;
    let mut bytes = [0; 64];
    while going() {
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => stream.write_all(&bytes[..length])?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    Ok(())
}

/// Between two looks whether all is over.
const GLANCE: Duration = Duration::from_millis(50);
