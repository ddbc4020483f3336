use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_units::Instant;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A thread gets a CPU, or loses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// On the monotonic clock.
    pub at: Instant,
    /// Its process; 0 for the idle one.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// True if it runs from now on.
    pub on: bool,
    /// It lost the CPU although it had more to do.
    pub preempted: bool,
}

/// The kernel's own record of context switches (perf_event_open(2) with `context_switch`): every
/// turn, as it happened, unlike figures that are sampled. The kernel writes to shared memory, so that
/// [`SwitchRecorder::drain`] is no system call.
#[derive(Debug)]
pub struct SwitchRecorder {
    start: NonNull<c_void>,
    /// Bytes of the page that is shared with the kernel, before the ring.
    page: usize,
    /// Bytes of the ring, a power of two.
    ring: usize,
    // Keeps the event alive behind the mapping.
    _event: OwnedFd,
    record: Vec<u8>,
}

impl SwitchRecorder {
    /// Begins to record the turns of all threads on `cpu`.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_PERFMON` where `kernel.perf_event_paranoid` is above 0,
    /// `NotFound` and the like on kernels without performance events.
    pub fn new(cpu: usize) -> io::Result<Self> {
        let cpu = i32::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
        Self::open((-1, cpu), 0, RING_OF_CPU)
    }

    /// Begins to record the turns of the calling thread, on whichever CPU, for any other thread to
    /// see: that it was preempted, and since when.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_PERFMON` where `kernel.perf_event_paranoid` is above 2, or
    /// where a sandbox forbids it; `NotFound` and the like on kernels without performance events.
    pub fn of_this_thread() -> io::Result<Self> {
        Self::open((0, -1), EXCLUDE_KERNEL, RING_OF_THREAD)
    }

    fn open((thread, cpu): (i32, i32), flags: u64, ring: usize) -> io::Result<Self> {
        let attributes = Attributes {
            kind: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: DUMMY,
            sample_type: SAMPLE_TID | SAMPLE_TIME,
            flags: SAMPLE_ID_ALL | USE_CLOCKID | CONTEXT_SWITCH | flags,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads `size` bytes of `attributes`, which is as long, and nothing else.
        let fd = unsafe {
            let attributes = &raw const attributes;
            libc::syscall(libc::SYS_perf_event_open, attributes, thread, cpu, -1, CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to us alone.
        let event = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let (access, page) = (ProtFlags::READ | ProtFlags::WRITE, rustix::param::page_size());
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            mmap(std::ptr::null_mut(), page + ring, access, MapFlags::SHARED, event.as_fd(), 0)?
        };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, page, ring, _event: event, record: Vec::new() })
    }

    /// Shows what was recorded since the last call, in order; gives the number of switches that the
    /// kernel had no room for: some ten thousand fit in between, of one thread a thousand.
    pub fn drain(&mut self, seen: &mut dyn FnMut(Switch)) -> u64 {
        let (head, mut tail) = (
            self.position(HEAD).load(Ordering::Acquire),
            self.position(TAIL).load(Ordering::Relaxed),
        );
        let mut left_out = 0;
        while tail < head {
            let mut header = [0; HEADER];
            self.copy(tail, &mut header);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let misc = u16::from_ne_bytes([header[4], header[5]]);
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < HEADER {
                // The kernel writes no such record; going on would never end.
                tail = head;
                break;
            }
            let mut record = std::mem::take(&mut self.record);
            record.resize(size, 0);
            self.copy(tail, &mut record);
            match kind {
                RECORD_LOST => left_out += word64(&record, HEADER + 8).unwrap_or(0),
                RECORD_SWITCH => seen_switch(&record, HEADER, misc, seen),
                RECORD_SWITCH_CPU_WIDE => seen_switch(&record, HEADER + 8, misc, seen),
                _ => {}
            }
            self.record = record;
            tail += size as u64;
        }
        self.position(TAIL).store(tail, Ordering::Release);
        left_out
    }

    /// One of the positions that the first page shares with the kernel.
    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the mapping is larger than `offset` (a constant within its first page) and page
        // aligned, so the place is valid and aligned for eight bytes as long as `self` lives; the
        // kernel accesses it atomically too.
        unsafe { &*self.start.as_ptr().cast::<u8>().add(offset).cast::<AtomicU64>() }
    }

    /// Copies what lies at a position of the ring.
    fn copy(&self, position: u64, to: &mut [u8]) {
        for (index, byte) in to.iter_mut().enumerate() {
            let offset = self.page + (position as usize + index) % self.ring;
            // SAFETY: `offset` lies within the mapping. The kernel does not write to what lies
            // between tail and head until the tail is moved, and only such places are asked for.
            *byte = unsafe { self.start.as_ptr().cast::<u8>().add(offset).read() };
        }
    }
}

/// `{ header, pid, tid, time }`, of a CPU `{ header, next_prev_pid, next_prev_tid, pid, tid, time }`:
/// who and when is at `at`.
fn seen_switch(record: &[u8], at: usize, misc: u16, seen: &mut dyn FnMut(Switch)) {
    let ids = word64(record, at).zip(word64(record, at + 8));
    let Some((ids, time)) = ids else { return };
    let ids = ids.to_ne_bytes();
    let id = |at: usize| u32::from_ne_bytes([ids[at], ids[at + 1], ids[at + 2], ids[at + 3]]);
    let (on, preempted) = (misc & SWITCH_OUT == 0, misc & SWITCH_PREEMPTED != 0);
    let at = Instant::from_nanos(time);
    seen(Switch { at, process: id(0), thread: id(4), on, preempted });
}

fn word64(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?))
}

impl Drop for SwitchRecorder {
    fn drop(&mut self) {
        // SAFETY: the mapping is the one made in `new`, and no reference into it outlives `self`.
        // Unmapping a whole mapping does not fail.
        let _ = unsafe { munmap(self.start.as_ptr(), self.page + self.ring) };
    }
}

// SAFETY: the mapping has one owner and no tie to the thread that made it.
unsafe impl Send for SwitchRecorder {}

/// `struct perf_event_attr` of include/uapi/linux/perf_event.h, version 5.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
    branches: u64,
    registers_user: u64,
    stack_user: u32,
    clockid: i32,
    registers_interrupt: u64,
    auxiliary: u32,
    stack_max: u16,
    reserved: u16,
}

const SOFTWARE: u32 = 1;
/// PERF_COUNT_SW_DUMMY: counts nothing.
const DUMMY: u64 = 9;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;
/// Flag that the kernel asks of those without privilege: nothing of its own is counted.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const CLOEXEC: libc::c_ulong = 1 << 3;
const RECORD_LOST: u32 = 2;
const RECORD_SWITCH: u32 = 14;
const RECORD_SWITCH_CPU_WIDE: u32 = 15;
const SWITCH_OUT: u16 = 1 << 13;
/// PERF_RECORD_MISC_SWITCH_OUT_PREEMPT, since Linux 4.17.
const SWITCH_PREEMPTED: u16 = 1 << 14;
/// Of `struct perf_event_header`.
const HEADER: usize = 8;
/// Places of `data_head` and `data_tail` in `struct perf_event_mmap_page`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// Bytes of rings: some 13,000 switches of a CPU, and 1,300 of a thread. What a user may lock by
/// `kernel.perf_event_mlock_kb`, 516 KiB by default and for each CPU, holds a dozen of the latter.
const RING_OF_CPU: usize = 512 << 10;
const RING_OF_THREAD: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_needs::needs;

    use super::*;
    use crate::clock;
    use crate::host::{allowed_cpus, pin_thread};

    #[needs(own_switch_records)]
    #[test]
    fn another_thread_sees_the_turns_of_one() {
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (done, wait) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                let before = clock::now();
                let recorder = SwitchRecorder::of_this_thread().unwrap();
                std::thread::sleep(Duration::from_millis(1));
                send.send((recorder, own, before)).unwrap();
                let _ = wait.recv();
            });
            let (mut recorder, own, before) = receive.recv().unwrap();
            let mut seen = Vec::new();
            assert_eq!(recorder.drain(&mut |switch| seen.push(switch)), 0);
            let is_own = |switch: &Switch| switch.thread == own && switch.at >= before;
            assert!(seen.iter().all(is_own), "{seen:?}");
            let slept = seen.iter().find(|switch| !switch.on && !switch.preempted);
            let woke = seen.iter().find(|switch| switch.on);
            let (slept, woke) = (slept.expect("it slept"), woke.expect("it woke up"));
            assert!(woke.at > slept.at, "{seen:?}");
            drop(done);
        });
    }

    #[needs(switch_records)]
    #[test]
    fn turns_of_this_thread_are_recorded() {
        std::thread::spawn(|| {
            let cpu = allowed_cpus().unwrap()[0];
            let mut recorder = SwitchRecorder::new(cpu).unwrap();
            pin_thread(&[cpu]).unwrap();
            let (before, own) = (clock::now(), rustix::thread::gettid().as_raw_nonzero().get());
            let mut own_switches = Vec::new();
            let mut left_out = 0;
            for _ in 0..4 {
                std::thread::sleep(Duration::from_millis(1));
                let now = clock::now();
                left_out += recorder.drain(&mut |switch| {
                    if switch.thread == own as u32 && switch.at >= before && switch.at <= now {
                        own_switches.push(switch);
                    }
                });
            }
            assert_eq!(left_out, 0);
            let count = |on| own_switches.iter().filter(|switch| switch.on == on).count();
            assert!(count(false) >= 3 && count(true) >= 2, "{own_switches:?}");
            assert!(own_switches.iter().all(|switch| switch.process == std::process::id()));
            assert!(own_switches.windows(2).all(|pair| pair[0].at <= pair[1].at));
            let mut again = 0;
            recorder.drain(&mut |switch| again += u64::from(switch.at <= before));
            assert_eq!(again, 0, "what was shown is not shown again");
        })
        .join()
        .unwrap();
    }
}
