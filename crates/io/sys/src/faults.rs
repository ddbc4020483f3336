//! System calls that are decided about before the kernel carries them out: for tests of what a program
//! makes of errors that no test can bring about.
//!
//! A seccomp filter sends the chosen calls of a program, and of all that it starts, to a supervisor. Every
//! other call runs as if there were no filter.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use libc::{c_int, c_long, c_ulong};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use rustix::thread::set_no_new_privs;

/// A call that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its name, as in its manual page.
    pub name: &'static str,
    number: c_long,
}

impl Call {
    /// The call of that name; `None` for those that are not known here, or not to this architecture.
    pub fn named(name: &str) -> Option<Self> {
        let found = CALLS.iter().find(|(known, _)| *known == name)?;
        Some(Self { name: found.0, number: found.1 })
    }

    /// All that are known.
    pub fn all() -> impl Iterator<Item = Self> {
        CALLS.iter().map(|&(name, number)| Self { name, number })
    }
}

/// A call that somebody is about to make, and who waits for the decision.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// The call.
    pub call: Call,
    /// The thread, which is the process in a program with one.
    pub thread: u32,
    /// As in the manual page, as registers hold them.
    pub arguments: [u64; 6],
    id: u64,
}

impl Attempt {
    /// The text at an address of the caller's memory, without the zero at its end.
    ///
    /// # Errors
    /// There is no such memory.
    pub fn text(&self, address: u64) -> io::Result<Vec<u8>> {
        let memory = File::open(format!("/proc/{}/mem", self.thread))?;
        let mut text = vec![0; libc::PATH_MAX as usize];
        // What is mapped may end just behind the text.
        let read = memory.read_at(&mut text, address)?;
        text.truncate(text[..read].iter().position(|byte| *byte == 0).unwrap_or(read));
        Ok(text)
    }
}

/// Fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel carries it out.
    Proceed,
    /// It is not carried out, and the caller gets this error.
    Fail(i32),
}

/// Starts `command`, gives `started` what came of that, and asks `decide` about each of `calls` that the
/// program, or any that it starts, makes. Returns when all of them have ended, and somebody has waited for
/// the program.
///
/// # Errors
/// The kernel knows no such supervision (it does from Linux 5.6 on).
pub fn supervise(
    command: &mut Command,
    calls: &[Call],
    mut decide: impl FnMut(&Attempt) -> Verdict,
    started: impl FnOnce(io::Result<Child>) + Send,
) -> io::Result<()> {
    let filter = filter(calls)?;
    let meeting = Arc::new(Meeting::new()?);
    let of_child = Arc::clone(&meeting);
    let install = move || of_child.give(install(&filter)?);
    // SAFETY: between fork and exec it makes system calls and touches memory that is there already: it
    // allocates nothing and takes no lock, which another thread might have held.
    unsafe { command.pre_exec(install) };
    thread::scope(|scope| {
        // This ends when the program is loaded, so not before its listener was taken.
        let spawn = scope.spawn(move || started(command.spawn()));
        let listener = loop {
            if let Some(listener) = meeting.take()? {
                break listener;
            }
            if spawn.is_finished() {
                return Ok(());
            }
            thread::yield_now();
        };
        serve(&listener, calls, &mut decide)
    })
}

/// Memory of this process and of one that it forks, where the child says which descriptor of its own the
/// listener is. It waits here until that was taken: loading a program closes it, and any other means to
/// talk might be one of the calls that wait for an answer.
struct Meeting(NonNull<[AtomicI32; 3]>);

// SAFETY: nothing but atomics is reached through the pointer, and the memory is there as long as this.
unsafe impl Send for Meeting {}
// SAFETY: the same.
unsafe impl Sync for Meeting {}

impl Meeting {
    fn new() -> io::Result<Self> {
        let (len, access) = (size_of::<[AtomicI32; 3]>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: new memory, anywhere, which is zeros and aligned to a page.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::SHARED) }?;
        NonNull::new(at.cast()).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn words(&self) -> &[AtomicI32; 3] {
        // SAFETY: the memory holds them as long as this lives.
        unsafe { self.0.as_ref() }
    }

    /// In the child: gives the listener away.
    fn give(&self, listener: OwnedFd) -> io::Result<()> {
        let [pid, number, taken] = self.words();
        number.store(listener.as_raw_fd(), Ordering::Relaxed);
        pid.store(getpid().as_raw_nonzero().get(), Ordering::Release);
        while taken.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        // It goes with the program; closing it here might be a call that waits for an answer.
        std::mem::forget(listener);
        Ok(())
    }

    /// In the parent: the listener, once the child has given it.
    fn take(&self) -> io::Result<Option<OwnedFd>> {
        let [pid, number, taken] = self.words();
        let Some(pid) = Pid::from_raw(pid.load(Ordering::Acquire)) else { return Ok(None) };
        let child = pidfd_open(pid, PidfdFlags::empty());
        let number = number.load(Ordering::Relaxed);
        let listener = child.and_then(|pid| pidfd_getfd(pid, number, PidfdGetfdFlags::empty()));
        taken.store(1, Ordering::Release);
        Ok(Some(listener?))
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<[AtomicI32; 3]>()) };
    }
}

/// Answers until nobody is left who could ask.
fn serve(
    listener: &OwnedFd,
    calls: &[Call],
    decide: &mut impl FnMut(&Attempt) -> Verdict,
) -> io::Result<()> {
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            ended => ended?,
        };
        if ready[0].revents().contains(PollFlags::IN) {
            if let Some(attempt) = receive(listener, calls)? {
                answer(listener, attempt.id, decide(&attempt))?;
            }
        } else if ready[0].revents().contains(PollFlags::HUP) {
            return Ok(());
        }
    }
}

/// The next attempt; none where its thread was killed before it was looked at.
fn receive(listener: impl AsFd, calls: &[Call]) -> io::Result<Option<Attempt>> {
    let listener = listener.as_fd().as_raw_fd();
    // SAFETY: the structure holds numbers only, for which zeros are valid, and the kernel asks for them.
    let mut seen: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one such structure to the address.
    if unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut seen) } != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOENT | libc::EINTR) => Ok(None),
            _ => Err(error),
        };
    }
    let number = c_long::from(seen.data.nr);
    let call = calls.iter().find(|call| call.number == number).copied();
    let call = call.ok_or_else(|| io::Error::other("a call that was not asked for"))?;
    let (thread, arguments) = (seen.pid, seen.data.args);
    Ok(Some(Attempt { call, thread, arguments, id: seen.id }))
}

fn answer(listener: impl AsFd, id: u64, verdict: Verdict) -> io::Result<()> {
    let (error, flags) = match verdict {
        Verdict::Proceed => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Verdict::Fail(error) => (-error, 0),
    };
    let mut reply = libc::seccomp_notif_resp { id, val: 0, error, flags };
    let listener = listener.as_fd().as_raw_fd();
    // SAFETY: the kernel reads one such structure from the address.
    if unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut reply) } != 0 {
        let error = io::Error::last_os_error();
        // The caller was killed meanwhile, or a signal made it ask again.
        if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINPROGRESS)) {
            return Err(error);
        }
    }
    Ok(())
}

/// A filter for the calling thread; gives what its calls are received at.
fn install(filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    set_no_new_privs(true)?;
    let len = filter.len().try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    let flags: c_ulong = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the kernel copies the program, whose length is that of the slice, and keeps no address.
    let listener = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as c_int) })
}

/// Which calls are sent to the supervisor. The number lies first in what a filter is shown; programs of
/// another architecture, with numbers of their own, are not what this is for.
fn filter(calls: &[Call]) -> io::Result<Vec<libc::sock_filter>> {
    let word =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let ends = |k| word(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    let mut filter = vec![word(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        let number = u32::try_from(call.number).map_err(io::Error::other)?;
        filter.push(word(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number));
        filter.push(ends(libc::SECCOMP_RET_USER_NOTIF));
    }
    filter.push(ends(libc::SECCOMP_RET_ALLOW));
    Ok(filter)
}

/// Calls for files and sockets.
const CALLS: &[(&str, c_long)] = &[
    ("accept4", libc::SYS_accept4),
    ("bind", libc::SYS_bind),
    ("connect", libc::SYS_connect),
    ("copy_file_range", libc::SYS_copy_file_range),
    ("eventfd2", libc::SYS_eventfd2),
    ("faccessat2", libc::SYS_faccessat2),
    ("fallocate", libc::SYS_fallocate),
    ("fchmod", libc::SYS_fchmod),
    ("fchmodat", libc::SYS_fchmodat),
    ("fchown", libc::SYS_fchown),
    ("fchownat", libc::SYS_fchownat),
    ("fcntl", libc::SYS_fcntl),
    ("fdatasync", libc::SYS_fdatasync),
    ("flock", libc::SYS_flock),
    ("fstat", libc::SYS_fstat),
    ("fstatfs", libc::SYS_fstatfs),
    ("fsync", libc::SYS_fsync),
    ("ftruncate", libc::SYS_ftruncate),
    ("getdents64", libc::SYS_getdents64),
    ("getpeername", libc::SYS_getpeername),
    ("getsockname", libc::SYS_getsockname),
    ("getsockopt", libc::SYS_getsockopt),
    ("ioctl", libc::SYS_ioctl),
    ("listen", libc::SYS_listen),
    ("lseek", libc::SYS_lseek),
    ("mkdirat", libc::SYS_mkdirat),
    ("newfstatat", libc::SYS_newfstatat),
    ("openat", libc::SYS_openat),
    ("openat2", libc::SYS_openat2),
    ("ppoll", libc::SYS_ppoll),
    ("pread64", libc::SYS_pread64),
    ("pwrite64", libc::SYS_pwrite64),
    ("read", libc::SYS_read),
    ("readlinkat", libc::SYS_readlinkat),
    ("recvfrom", libc::SYS_recvfrom),
    ("recvmsg", libc::SYS_recvmsg),
    ("renameat", libc::SYS_renameat),
    ("renameat2", libc::SYS_renameat2),
    ("sendmmsg", libc::SYS_sendmmsg),
    ("sendmsg", libc::SYS_sendmsg),
    ("sendto", libc::SYS_sendto),
    ("setsockopt", libc::SYS_setsockopt),
    ("shutdown", libc::SYS_shutdown),
    ("socket", libc::SYS_socket),
    ("statfs", libc::SYS_statfs),
    ("statx", libc::SYS_statx),
    ("symlinkat", libc::SYS_symlinkat),
    ("syncfs", libc::SYS_syncfs),
    ("unlinkat", libc::SYS_unlinkat),
    ("utimensat", libc::SYS_utimensat),
    ("write", libc::SYS_write),
    ("writev", libc::SYS_writev),
    // Those that newer architectures do without.
    #[cfg(target_arch = "x86_64")]
    ("mkdir", libc::SYS_mkdir),
    #[cfg(target_arch = "x86_64")]
    ("open", libc::SYS_open),
    #[cfg(target_arch = "x86_64")]
    ("poll", libc::SYS_poll),
    #[cfg(target_arch = "x86_64")]
    ("readlink", libc::SYS_readlink),
    #[cfg(target_arch = "x86_64")]
    ("rename", libc::SYS_rename),
    #[cfg(target_arch = "x86_64")]
    ("rmdir", libc::SYS_rmdir),
    #[cfg(target_arch = "x86_64")]
    ("unlink", libc::SYS_unlink),
];

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;
    use std::{io, thread};

    use longhaul_needs::needs;

    use super::{Attempt, Call, Verdict, supervise};

    /// Runs `cat` on three readings of a file, where `decide` decides.
    fn cat(calls: &[Call], decide: impl FnMut(&Attempt) -> Verdict) -> (Option<i32>, String) {
        let mut command = Command::new("cat");
        command.args([FILE; 3]).stdout(Stdio::null()).stderr(Stdio::piped()).env("LC_ALL", "C");
        let (give, given) = mpsc::channel::<io::Result<Child>>();
        thread::scope(|scope| {
            let end =
                scope.spawn(move || given.recv().unwrap().unwrap().wait_with_output().unwrap());
            supervise(&mut command, calls, decide, |child| give.send(child).unwrap()).unwrap();
            let end = end.join().unwrap();
            (end.status.code(), String::from_utf8(end.stderr).unwrap())
        })
    }

    #[needs(supervision)]
    #[test]
    fn the_second_opening_of_a_file_fails_and_the_others_do_not() {
        let call = Call::named("openat").unwrap();
        let mut seen = 0;
        let decide = |attempt: &Attempt| {
            assert_eq!(attempt.call, call);
            if attempt.text(attempt.arguments[1]).unwrap() != FILE.as_bytes() {
                return Verdict::Proceed;
            }
            seen += 1;
            if seen == 2 { Verdict::Fail(libc::ENOTRECOVERABLE) } else { Verdict::Proceed }
        };
        let (status, words) = cat(&[call], decide);
        assert_eq!((status, words.lines().count()), (Some(1), 1), "{words}");
        assert!(words.contains("State not recoverable"), "{words}");
        assert_eq!(seen, 3);
    }

    #[needs(supervision)]
    #[test]
    fn passed_calls_behave_as_always() {
        let calls: Vec<_> = Call::all().collect();
        let mut seen = 0;
        let decide = |_: &Attempt| {
            seen += 1;
            Verdict::Proceed
        };
        assert_eq!(cat(&calls, decide), (Some(0), String::new()));
        assert!(seen > 6);
    }

    #[needs(supervision)]
    #[test]
    fn a_program_that_is_not_there_is_an_error_of_its_start() {
        let calls: Vec<_> = Call::all().collect();
        let mut command = Command::new("/nowhere/at/all");
        let mut kind = None;
        let started = |child: io::Result<Child>| kind = child.err().map(|error| error.kind());
        supervise(&mut command, &calls, |_| Verdict::Proceed, started).unwrap();
        assert_eq!(kind, Some(io::ErrorKind::NotFound));
    }

    const FILE: &str = "/proc/self/limits";
}
