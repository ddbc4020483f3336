//! Bytes over a non-blocking TCP connection, inside TLS or bare.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;

use longhaul_control::tls_stream::{LINGER, Until, drain, is_transient};
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use rustls::Connection;

/// One connection of the carrier.
#[derive(Debug)]
pub struct Link {
    pub stream: TcpStream,
    tls: Option<Box<Tls>>,
    /// A write failed: it is unknown how much of it went, so nothing can follow.
    is_torn: bool,
}

#[derive(Debug)]
struct Tls {
    connection: Connection,
    /// Sealed bytes that were received, from `start` to `end`. TLS alone would read them in small
    /// pieces.
    sealed: Vec<u8>,
    start: usize,
    end: usize,
}

/// Outcome of an attempt to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The peer will send no more.
    End,
}

impl Link {
    /// Takes over a connection whose handshake, if it has one, is over.
    pub fn new(stream: TcpStream, tls: Option<Connection>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let tls = tls.map(|mut connection| {
            connection.set_buffer_limit(Some(TLS_OUTGOING));
            Box::new(Tls { connection, sealed: vec![0; TLS_INCOMING], start: 0, end: 0 })
        });
        Ok(Self { stream, tls, is_torn: false })
    }

    /// Sends as much of `head` and then `body` as goes; returns how much.
    pub fn write(&mut self, head: &[u8], body: &[u8]) -> io::Result<usize> {
        self.unless_torn(|link| {
            let Some(tls) = &mut link.tls else {
                let parts = [IoSlice::new(head), IoSlice::new(body)];
                return match link.stream.write_vectored(&parts) {
                    Err(error) if is_transient(&error) => Ok(0),
                    Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                    written => written,
                };
            };
            if !tls.flush(&mut link.stream)? {
                return Ok(0);
            }
            let mut taken = tls.connection.writer().write(head)?;
            if taken == head.len() {
                taken += tls.connection.writer().write(body)?;
            }
            tls.flush(&mut link.stream)?;
            Ok(taken)
        })
    }

    /// Sends what TLS holds; true if all of it went.
    pub fn flush(&mut self) -> io::Result<bool> {
        self.unless_torn(|link| {
            link.tls.as_mut().map_or(Ok(true), |tls| tls.flush(&mut link.stream))
        })
    }

    fn unless_torn<T>(&mut self, write: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        if self.is_torn {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let written = write(self);
        self.is_torn = written.is_err();
        written
    }

    /// True if TLS holds bytes that wait for room in the socket.
    pub fn is_holding(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.connection.wants_write())
    }

    /// Receives into `into`, which must not be empty.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Got> {
        match &mut self.tls {
            None => receive(&mut self.stream, into),
            Some(tls) => tls.read(&mut self.stream, into),
        }
    }

    /// Ends the connection so that the peer can read what was sent, if it does so soon.
    pub fn finish(mut self) {
        let until = Until { deadline: clock::now() + LINGER, stop: &Stop::default() };
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
        }
        loop {
            match self.flush() {
                Ok(true) => break,
                Ok(false) => {
                    let interest = longhaul_sys::wait::Interest::Writable;
                    if until.wait(&self.stream, interest).is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
        drain(&self.stream, until);
    }
}

impl Tls {
    fn flush(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(stream) {
                Ok(_) => {}
                Err(error) if is_transient(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn read(&mut self, stream: &mut TcpStream, into: &mut [u8]) -> io::Result<Got> {
        loop {
            match self.connection.reader().read(into) {
                Ok(0) => return Ok(Got::End),
                Ok(count) => return Ok(Got::Bytes(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.start == self.end {
                match receive(stream, &mut self.sealed)? {
                    Got::Bytes(count) => (self.start, self.end) = (0, count),
                    nothing => return Ok(nothing),
                }
            }
            let mut sealed = &self.sealed[self.start..self.end];
            self.start += self.connection.read_tls(&mut sealed)?;
            self.connection.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

fn receive(stream: &mut TcpStream, into: &mut [u8]) -> io::Result<Got> {
    match stream.read(into) {
        Ok(0) => Ok(Got::End),
        Ok(count) => Ok(Got::Bytes(count)),
        Err(error) if is_transient(&error) => Ok(Got::Nothing),
        Err(error) => Err(error),
    }
}

/// Sealed bytes that wait for room in the socket: enough for one large write.
const TLS_OUTGOING: usize = 256 << 10;
/// Sealed bytes received at a time; stays in the second-level cache.
const TLS_INCOMING: usize = 256 << 10;
