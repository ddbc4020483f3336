//! The end of a pipe that receives: verifies pieces and passes them on in order.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_carriers::buffer::Buffer;
use longhaul_connection::{IncomingPipe, OutgoingPipe, PipeStep};
use longhaul_objects::{PipeError, hash};
use longhaul_sys::clock;
use longhaul_sys::wait::{Interest, wait};
use longhaul_units::Duration;

use crate::connection::shared::{Half, Shared, ThreadError};

const PATIENCE: Duration = Duration::from_millis(100);

/// Where a client puts what comes.
pub(super) struct Output {
    pub file: File,
    /// Bytes of it so far.
    pub written: Arc<AtomicU64>,
}

/// Passes pieces on until the pipe ends or is stopped: to `output`, or else to the client that
/// receives ([`Shared::downstream`]).
///
/// # Errors
/// The output takes no more, or pieces are damaged too often.
pub(super) fn drain(shared: &Shared, output: Option<&Output>) -> Result<(), ThreadError> {
    while let Some(step) = next_step(shared)? {
        match step {
            PipeStep::Hash(piece, buffer) => {
                let value = hash::group_chaining_value(&buffer[..piece.len as usize], 0, true);
                let hashed = shared.change(|half| {
                    half.incoming_pipe().map(|pipe| pipe.handle_hashed(piece, value, buffer))
                });
                drop(hashed.transpose()?);
            }
            PipeStep::Pass(piece, value, buffer) => match (output, shared.downstream()) {
                (Some(output), _) => {
                    output.write_all(&buffer[..piece.len as usize]).map_err(ThreadError::Output)?
                }
                (None, Some(to)) => {
                    let bytes = Arc::new(buffer);
                    to.change(|half| {
                        half.outgoing_pipe().map(|pipe| pipe.push(bytes, piece.len, value))
                    });
                }
                (None, None) => {}
            },
            PipeStep::Waste(buffer) => drop(buffer),
            PipeStep::End if output.is_some() => finish(shared, &mut shared.lock()),
            // The client that receives says when it has everything.
            PipeStep::End => {}
        }
        shared.mailboxes.wake_messages();
    }
    Ok(())
}

/// Waits for something to do; `None` once the pipe is stopped.
fn next_step(shared: &Shared) -> Result<Option<PipeStep<Buffer>>, PipeError> {
    let mut half = shared.lock();
    while !shared.is_stopped() {
        let step = shared.update(&mut half, |half| half.incoming_pipe()?.poll_step().transpose());
        if let Some(step) = step {
            return step.map(Some);
        }
        let passed_on = |pipe: &mut IncomingPipe<_>| pipe.is_at_end() && !pipe.is_done();
        if half.incoming_pipe().is_some_and(passed_on)
            && let Some(to) = shared.downstream()
        {
            // Locks are taken downstream only.
            let done = to.change(|half| {
                half.outgoing_pipe().map(OutgoingPipe::finish);
                half.is_done()
            });
            if done {
                finish(shared, &mut half);
            }
        }
        half = shared.rest(half, PATIENCE);
    }
    Ok(None)
}

/// Everything is where it should be: the source learns it.
fn finish(shared: &Shared, half: &mut Half) {
    let host = shared.host_account();
    shared.update(half, |half| half.incoming_pipe().map(|pipe| pipe.finish(host)));
    shared.mailboxes.wake_messages();
}

impl Output {
    /// Writes all of `bytes`, also where others made the file non-blocking.
    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.written.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&[(file.as_fd(), Interest::Writable)], Some(clock::now() + PATIENCE))?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
