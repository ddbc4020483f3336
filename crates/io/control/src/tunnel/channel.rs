//! One connection in a tunnel.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

use longhaul_wire::SSH_WINDOW;

use crate::tls_stream::is_transient;

/// The connection, as the thread of the tunnel has it.
pub(super) struct Channel {
    /// The other end is used as the connection.
    pub socket: TcpStream,
    /// Bytes that came through, and that the socket has not taken.
    waiting: VecDeque<u8>,
    /// Bytes that may still be sent, and that may still come.
    credit: u64,
    promised: u64,
    /// Bytes that the socket took since credit was given.
    taken: u32,
    /// No more come from the socket, or through the tunnel.
    ended_here: bool,
    ended_there: bool,
    /// The socket knows the latter.
    shut: bool,
}

/// Outcome of reading.
pub(super) enum Got {
    Bytes(usize),
    Nothing,
    End,
}

impl Channel {
    pub fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let (credit, promised) = (SSH_WINDOW.into(), SSH_WINDOW.into());
        let waiting = VecDeque::new();
        let (ended_here, ended_there, shut) = (false, false, false);
        Ok(Self { socket, waiting, credit, promised, taken: 0, ended_here, ended_there, shut })
    }

    /// More may be read of the socket.
    pub const fn may_read(&self) -> bool {
        self.credit > 0 && !self.ended_here
    }

    /// The socket is to take more.
    pub fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// All that the socket had has been read.
    pub const fn has_ended_here(&self) -> bool {
        self.ended_here
    }

    /// Nothing more goes in either direction.
    pub const fn is_over(&self) -> bool {
        self.ended_here && self.shut
    }

    /// Reads what may be sent.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Got> {
        if !self.may_read() {
            return Ok(Got::Nothing);
        }
        let most = into.len().min(usize::try_from(self.credit).unwrap_or(usize::MAX));
        match self.socket.read(&mut into[..most]) {
            Ok(0) => {
                self.ended_here = true;
                Ok(Got::End)
            }
            Ok(len) => {
                self.credit -= len as u64;
                Ok(Got::Bytes(len))
            }
            Err(error) if is_transient(&error) => Ok(Got::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Takes what came through; false where it was not promised.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let promised = self.promised.checked_sub(bytes.len() as u64).filter(|_| !self.ended_there);
        let Some(promised) = promised else { return false };
        self.promised = promised;
        self.waiting.extend(bytes);
        true
    }

    /// The peer takes so many more.
    pub const fn add_credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes as u64);
    }

    /// Nothing more comes through.
    pub const fn end_there(&mut self) {
        self.ended_there = true;
    }

    /// Gives the socket what it takes; true if it took something. Its end comes behind the last byte.
    pub fn deliver(&mut self) -> io::Result<bool> {
        let mut moved = false;
        while !self.waiting.is_empty() {
            match self.socket.write(self.waiting.as_slices().0) {
                Ok(len) => {
                    self.waiting.drain(..len);
                    self.taken += len as u32;
                    moved = true;
                }
                Err(error) if is_transient(&error) => return Ok(moved),
                Err(error) => return Err(error),
            }
        }
        if self.ended_there && !self.shut {
            self.shut = true;
            self.socket.shutdown(Shutdown::Write)?;
        }
        Ok(moved)
    }

    /// The credit that is to be given now.
    pub fn credit_due(&mut self) -> Option<u32> {
        if self.taken < SSH_WINDOW / 4 || self.ended_there {
            return None;
        }
        self.promised += u64::from(self.taken);
        Some(std::mem::take(&mut self.taken))
    }
}
