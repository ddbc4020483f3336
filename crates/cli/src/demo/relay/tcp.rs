//! The control connection: the same bytes, later.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::threads;
use longhaul_sys::wait::{self, Interest};
use longhaul_units::Instant;

use super::{CONTROL, Shared};

/// Connects each client to `server`, `delay` away, until the relay is stopped.
pub(super) fn run(shared: &Shared, listener: &TcpListener, server: SocketAddr, delay: Duration) {
    let waker = &shared.wakers[CONTROL];
    let mut open: Vec<TcpStream> = Vec::new();
    std::thread::scope(|scope| {
        loop {
            let sources =
                [(listener.as_fd(), Interest::Readable), (waker.as_fd(), Interest::Readable)];
            if wait::wait(&sources, None).is_err() || shared.stopped() {
                break;
            }
            let Ok((client, _)) = listener.accept() else { continue };
            // A client that finds nobody sees its connection closed.
            let Ok(upstream) = TcpStream::connect(server) else { continue };
            let Ok(handles) = clones(&client, &upstream) else { continue };
            // The kernel has answered at once what would have taken a round trip to the server.
            let answered = clock::now() + delay * 2;
            let [client_in, client_out, upstream_in, upstream_out, client, upstream] = handles;
            open.extend([client, upstream]);
            for (from, to) in [(client_in, upstream_out), (upstream_in, client_out)] {
                let (queue, due) = sync_channel(QUEUE);
                let take = move || take(from, &queue, answered, delay);
                let taking = threads::spawn_scoped(scope, "relay-take", take);
                let give = move || give(to, &due);
                if taking.and(threads::spawn_scoped(scope, "relay-give", give)).is_err() {
                    open.iter().rev().take(2).for_each(close);
                }
            }
        }
        // Wakes the threads that read and those that write.
        open.iter().for_each(close);
    });
}

fn close(stream: &TcpStream) {
    // It may be closed already.
    let _ = stream.shutdown(Shutdown::Both);
}

/// A handle for each thread, and one each to close by.
fn clones(client: &TcpStream, upstream: &TcpStream) -> std::io::Result<[TcpStream; 6]> {
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    Ok([
        client.try_clone()?,
        client.try_clone()?,
        upstream.try_clone()?,
        upstream.try_clone()?,
        client.try_clone()?,
        upstream.try_clone()?,
    ])
}

/// Reads, and notes when the bytes are due at the other end.
fn take(
    mut from: TcpStream,
    queue: &SyncSender<(Instant, Vec<u8>)>,
    not_before: Instant,
    delay: Duration,
) {
    let mut buffer = vec![0; READ];
    loop {
        // An error ends the connection like its end does: the other side sees it closed.
        let len = from.read(&mut buffer).unwrap_or(0);
        let due = clock::now().max(not_before) + delay;
        let sent = queue.send((due, buffer[..len].to_vec()));
        if len == 0 || sent.is_err() {
            return;
        }
    }
}

/// Writes what is due; no bytes mean the end.
fn give(mut to: TcpStream, queue: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, bytes)) = queue.recv() {
        clock::sleep_until(due);
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Reads under way; with [`READ`] that is 16 MiB, and the control connection carries little.
const QUEUE: usize = 256;
const READ: usize = 64 << 10;
