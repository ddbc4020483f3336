//! TLS over a non-blocking socket, waited for up to a deadline or until a stop is asked for.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_sys::wait::{Interest, wait};
use longhaul_units::Instant;
use rustls::Connection;

/// When to give up.
#[derive(Clone, Copy)]
pub struct Until<'a> {
    /// At this time,
    pub deadline: Instant,
    /// or when this is requested.
    pub stop: &'a Stop,
}

impl Until<'_> {
    /// Waits for `socket`.
    pub fn wait(&self, socket: impl AsFd, interest: Interest) -> Result<(), TlsStreamError> {
        loop {
            let now = clock::now();
            if self.stop.is_requested() {
                return Err(TlsStreamError::Stopped);
            }
            if now >= self.deadline {
                return Err(TlsStreamError::TimedOut);
            }
            let until = self.deadline.min(now + STOP_LATENCY);
            if wait(&[(socket.as_fd(), interest)], Some(until))? != 0 {
                return Ok(());
            }
        }
    }
}

/// Why bytes did not get through.
#[derive(Debug, thiserror::Error)]
pub enum TlsStreamError {
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer does not speak TLS as it should.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Ended,
    /// The deadline has passed.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

/// A TLS connection and its socket.
#[derive(Debug)]
pub struct TlsStream {
    /// The state of TLS.
    pub tls: Connection,
    /// The socket.
    pub stream: TcpStream,
}

impl TlsStream {
    /// Takes over `stream`, from now on non-blocking.
    pub fn new(tls: Connection, stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { tls, stream })
    }

    /// Runs the TLS handshake.
    pub fn handshake(&mut self, until: Until<'_>) -> Result<(), TlsStreamError> {
        self.handshake_telling(until, || {})
    }

    /// The same, and calls `greeted` once the peer's ClientHello or ServerHello has come whole.
    pub fn handshake_telling(
        &mut self,
        until: Until<'_>,
        greeted: impl FnOnce(),
    ) -> Result<(), TlsStreamError> {
        let mut greeted = Some(greeted);
        while self.tls.is_handshaking() {
            if self.tls.protocol_version().is_some()
                && let Some(greeted) = greeted.take()
            {
                greeted();
            }
            self.flush(until)?;
            if self.tls.is_handshaking() {
                self.receive(until)?;
            }
        }
        self.flush(until)
    }

    /// Reads what is there, at least one byte.
    pub fn read(&mut self, into: &mut [u8], until: Until<'_>) -> Result<usize, TlsStreamError> {
        loop {
            match self.tls.reader().read(into) {
                Ok(0) => return Err(TlsStreamError::Ended),
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(TlsStreamError::Ended);
                }
                Err(error) => return Err(error.into()),
            }
            self.flush(until)?;
            self.receive(until)?;
        }
    }

    /// Sends all of `bytes`.
    pub fn write_all(&mut self, mut bytes: &[u8], until: Until<'_>) -> Result<(), TlsStreamError> {
        while !bytes.is_empty() {
            let written = self.tls.writer().write(bytes)?;
            bytes = &bytes[written..];
            self.flush(until)?;
        }
        Ok(())
    }

    /// Sends `last` and ends the connection so that the peer can read it: a socket closed with
    /// unread bytes in it would be reset, and the reset would overtake `last`.
    pub fn finish(mut self, last: &[u8]) {
        let until = Until { deadline: clock::now() + LINGER, stop: &Stop::default() };
        if self.say_last(last, until).is_ok() {
            drain(&self.stream, until);
        }
    }

    /// Sends `last` and ends the connection without waiting for the peer, a round trip away, to
    /// read it: it knows already.
    pub fn leave(mut self, last: &[u8]) {
        let until = Until { deadline: clock::now() + LINGER, stop: &Stop::default() };
        // There is nobody left to tell.
        let _ = self.say_last(last, until);
    }

    /// Ends the connection to a peer that has closed it, without another byte: it may not be
    /// there to read it, and the reset would cut off its own end on the path.
    pub fn part(self) {
        let until = Until { deadline: clock::now() + LINGER, stop: &Stop::default() };
        drain(&self.stream, until);
    }

    fn say_last(&mut self, last: &[u8], until: Until<'_>) -> Result<(), TlsStreamError> {
        let written = self.write_all(last, until);
        self.tls.send_close_notify();
        written.and_then(|()| self.flush(until))
    }

    /// Sends what TLS has to send.
    fn flush(&mut self, until: Until<'_>) -> Result<(), TlsStreamError> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    until.wait(&self.stream, Interest::Writable)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes in bytes from the socket, waiting for them.
    fn receive(&mut self, until: Until<'_>) -> Result<(), TlsStreamError> {
        loop {
            // Also when bytes are there: they may come one by one for ever.
            until.wait(&self.stream, Interest::Readable)?;
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => return Err(TlsStreamError::Ended),
                Ok(_) => break,
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Err(error) = self.tls.process_new_packets() {
            // Tells the peer what was wrong, if there is room to.
            let _ = self.tls.write_tls(&mut self.stream);
            return Err(error.into());
        }
        Ok(())
    }
}

/// True if an operation on a non-blocking socket is simply to be tried again.
pub fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Ends the sending direction of `stream` and discards what still comes, for a short while.
pub fn drain(mut stream: &TcpStream, until: Until<'_>) {
    if stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let mut discarded = [0; 4096];
    for _ in 0..DRAINED_READS_MAX {
        if until.wait(stream, Interest::Readable).is_err() {
            return;
        }
        match stream.read(&mut discarded) {
            Ok(1..) => {}
            Err(error) if is_transient(&error) => {}
            _ => return,
        }
    }
}

/// Time that the peer may take to read our last message.
pub const LINGER: Duration = Duration::from_secs(1);

/// Time until a stop is seen.
pub const STOP_LATENCY: Duration = Duration::from_millis(100);

/// A peer that keeps talking behind our last words is cut off.
const DRAINED_READS_MAX: usize = 64;
