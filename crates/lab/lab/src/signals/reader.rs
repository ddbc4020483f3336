//! The reader: takes super-packets from its socket and works on them, and leaves its counts for the
//! sentinel.

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_sys::clock::{self, WallOffset};
use longhaul_sys::host::{SchedulingSampler, SwitchRecorder, pin_thread, take_short_turns};
use longhaul_sys::udp::{UdpSocket, Wait};

pub(super) struct Reader {
    pub seen: Arc<Seen>,
    pub thread: JoinHandle<io::Result<()>>,
}

/// The reader's account of itself; nobody waits for anybody.
pub(super) struct Seen {
    pub sampler: SchedulingSampler,
    pub switches: std::sync::Mutex<Option<SwitchRecorder>>,
    /// Nanoseconds of the monotonic clock at which it was last at work; 0 while it sleeps.
    pub beat: AtomicU64,
    /// The greatest age of a head datagram, in nanoseconds, since somebody asked.
    pub age: AtomicU64,
    /// The longest time, in nanoseconds, since somebody asked, that something waited and nothing was read: of that
    /// age what is not older than the read before. And when that ended, on the monotonic clock.
    pub left: AtomicU64,
    pub left_until: AtomicU64,
    /// Its own look at its run and wait, in nanoseconds.
    pub own: [AtomicU64; 2],
    pub bytes: AtomicU64,
}

impl Reader {
    pub(super) fn start(
        socket: Arc<UdpSocket>,
        core: usize,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("reader".into()).spawn(move || {
            pin_thread(&[core])?;
            // As lanes do.
            take_short_turns()?;
            let seen = Arc::new(Seen {
                sampler: SchedulingSampler::of_this_thread()?,
                switches: std::sync::Mutex::new(SwitchRecorder::of_this_thread().ok()),
                beat: AtomicU64::new(0),
                age: AtomicU64::new(0),
                left: AtomicU64::new(0),
                left_until: AtomicU64::new(0),
                own: [AtomicU64::new(0), AtomicU64::new(0)],
                bytes: AtomicU64::new(0),
            });
            // Who waits for it is there.
            let _ = send.send(seen.clone());
            read(&socket, &seen, &stop)
        })?;
        let seen = receive.recv().map_err(io::Error::other)?;
        Ok(Self { seen, thread })
    }
}

fn read(socket: &UdpSocket, seen: &Seen, stop: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    let (mut wall, mut wall_due) = (WallOffset::sample(), clock::now());
    let (mut own_due, mut last_read) = (clock::now(), clock::now());
    while !stop.load(Ordering::Relaxed) {
        let now = clock::now();
        seen.beat.store(now.as_nanos(), Ordering::Relaxed);
        if now >= wall_due {
            (wall, wall_due) = (WallOffset::sample(), now + Duration::from_secs(1));
        }
        let mut bytes = 0;
        for _ in 0..BURST {
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let Some(got) = socket.recv(&mut slices, Wait::No)? else { break };
            if bytes == 0
                && let Some(stamp) = got.kernel_time
            {
                let (read_at, stamped) = (clock::now(), wall.to_instant(stamp));
                let age = read_at - stamped;
                seen.age.fetch_max(age.as_nanos() as u64, Ordering::Relaxed);
                let left = age.min(read_at - std::mem::replace(&mut last_read, read_at));
                let left = left.as_nanos() as u64;
                if left > seen.left.fetch_max(left, Ordering::Relaxed) {
                    seen.left_until.store(read_at.as_nanos(), Ordering::Relaxed);
                }
            }
            bytes += got.len as u64;
        }
        if now >= own_due {
            own_due = now + OWN_INTERVAL;
            let scheduling = seen.sampler.sample()?;
            for (to, time) in seen.own.iter().zip([scheduling.run, scheduling.wait]) {
                to.store(time.as_nanos() as u64, Ordering::Relaxed);
            }
        }
        if bytes == 0 {
            seen.beat.store(0, Ordering::Relaxed);
            socket.wait_readable(None, Some(now + Duration::from_millis(100)))?;
            continue;
        }
        seen.bytes.fetch_add(bytes, Ordering::Relaxed);
        let done = clock::thread_cpu_time() + Duration::from_nanos(bytes * WORK_PICOS / 1_000);
        while clock::thread_cpu_time() < done {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// As lanes have it.
const BURST: usize = 8;
/// Decrypting, verifying and writing to memory take some 1 ns a byte on this project's machines.
const WORK_PICOS: u64 = 1_000;
const OWN_INTERVAL: Duration = Duration::from_millis(5);
