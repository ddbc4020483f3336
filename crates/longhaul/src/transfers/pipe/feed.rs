//! The end of a pipe that sends what it reads from a file.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};

use longhaul_carriers::buffer::Buffer;
use longhaul_connection::{OutgoingPipe, PipeFull};
use longhaul_objects::hash;
use longhaul_sys::clock;
use longhaul_sys::wait::{Interest, wait};
use longhaul_units::Duration;

use crate::connection::shared::{Shared, ThreadError};

/// A piece that is not full goes when nothing more has come for so long.
const LINGER: Duration = Duration::from_millis(1);
/// The reader looks again after this long, whatever it missed.
const PATIENCE: Duration = Duration::from_millis(20);
/// How soon the reader sees that it is stopped while nothing comes.
const STOP_LATENCY: Duration = Duration::from_millis(100);

/// Reads, hashes and deals pieces until `input` or the pipe ends. Before the first it says that it `reads`;
/// where it was decided that it does not, it reads nothing.
///
/// # Errors
/// The file cannot be read, or there are no numbers left for another piece.
pub(super) fn feed(
    shared: &Shared,
    input: &File,
    reads: &OnceLock<bool>,
) -> Result<(), ThreadError> {
    while let Some(mut buffer) = next_buffer(shared)? {
        if !*reads.get_or_init(|| true) {
            break;
        }
        let (len, ended) = fill(shared, input, &mut buffer).map_err(ThreadError::Input)?;
        if shared.is_stopped() {
            break;
        }
        if len > 0 {
            if let Some(pipe) = shared.lock().outgoing_pipe() {
                pipe.begin_hashing(clock::now(), &shared.mailboxes);
            }
            let value = hash::group_chaining_value(&buffer[..len], 0, true);
            let (bytes, len) = (Arc::new(buffer), len as u32);
            shared.change(|half| half.outgoing_pipe().map(|pipe| pipe.push(bytes, len, value)));
        }
        if ended {
            shared.change(|half| half.outgoing_pipe().map(OutgoingPipe::finish));
            break;
        }
    }
    Ok(())
}

/// Memory for the next piece, as soon as one may be sent; `None` when the pipe is stopped.
fn next_buffer(shared: &Shared) -> Result<Option<Buffer>, PipeFull> {
    let mut half = shared.lock();
    while !shared.is_stopped() {
        let next = shared.update(&mut half, |half| {
            let memory = || shared.pool.try_take();
            let pipe = half.outgoing_pipe()?;
            Some(pipe.next_buffer(clock::now(), &shared.mailboxes, memory))
        });
        let Some(next) = next else { break };
        if let Some(buffer) = next? {
            return Ok(Some(buffer));
        }
        half = shared.rest(half, PATIENCE);
    }
    Ok(None)
}

/// Reads a piece: as much as fits, or as came without a pause. Whether the input ended behind it.
fn fill(shared: &Shared, mut input: &File, buffer: &mut Buffer) -> io::Result<(usize, bool)> {
    let mut len = 0;
    while len < buffer.len() && !shared.is_stopped() {
        let patience = if len > 0 { LINGER } else { STOP_LATENCY };
        let deadline = Some(clock::now() + patience);
        let source = [(input.as_fd(), Interest::Readable)];
        if shared.crew.rest(|| wait(&source, deadline))? == 0 {
            if len > 0 {
                break;
            }
            continue;
        }
        match input.read(&mut buffer[len..]) {
            Ok(0) => return Ok((len, true)),
            Ok(count) => len += count,
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((len, false))
}

/// A file that others made non-blocking, or a signal: nothing is wrong.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
