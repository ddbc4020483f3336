//! The functions that stand in front of the C library's.
//!
//! All are `C-unwind`: a thread may be cancelled in the function behind.

use std::ffi::{c_char, c_int, c_uint, c_ulong};

use libc::{
    c_void, iovec, mmsghdr, msghdr, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
};

use crate::address::Raw;
use crate::early;
use crate::mark::Mark;
use crate::next::next;
use crate::pending::{self, Progress};
use crate::{connect, first_gateway, sys};

/// Functions that read from `fd`: the answer is taken off first. Behind `if` stands what is asked
/// not to wait.
macro_rules! reads {
    ($(fn $name:ident($fd:ident: c_int $(, $arg:ident: $type:ty)*) -> $result:ty, if $dont:expr;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name($fd: c_int $(, $arg: $type)*) -> $result {
            if let Err(errno) = pending::before_read($fd, !$dont) {
                sys::set_errno(errno);
                return -1;
            }
            type Function = unsafe extern "C-unwind" fn(c_int $(, $type)*) -> $result;
            // SAFETY: what the program promises goes on unchanged.
            unsafe { next!($name as Function)($fd $(, $arg)*) }
        }
    )*};
}

/// Functions that write to `fd`: a refusal that has come is reported by them. Behind `if` stands what
/// is asked not to wait, behind it the bytes of a result, where they can be kept.
macro_rules! writes {
    ($(
        fn $name:ident($fd:ident: c_int $(, $arg:ident: $type:ty)*) -> $result:ty,
        if $dont:expr, $kept:expr;
    )*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name($fd: c_int $(, $arg: $type)*) -> $result {
            type Function = unsafe extern "C-unwind" fn(c_int $(, $type)*) -> $result;
            let function = next!($name as Function);
            // SAFETY: what the program promises goes on unchanged, and has the bytes of the result.
            unsafe {
                let call = || function($fd $(, $arg)*) as isize;
                pending::write($fd, $dont, $kept, call) as $result
            }
        }
    )*};
}

reads! {
    fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t, if false;
    fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t, if false;
    fn recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t, if dont_wait(flags);
    fn recvfrom(
        fd: c_int, to: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t
    ) -> ssize_t, if dont_wait(flags);
    fn recvmsg(fd: c_int, to: *mut msghdr, flags: c_int) -> ssize_t, if dont_wait(flags);
    fn recvmmsg(
        fd: c_int, to: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec
    ) -> c_int, if dont_wait(flags);
    fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t, if false;
    fn __recv_chk(
        fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int
    ) -> ssize_t, if dont_wait(flags);
    fn __recvfrom_chk(
        fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t
    ) -> ssize_t, if dont_wait(flags);
}

writes! {
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t,
        if false, Some(|sent| early::flat(from, sent));
    fn writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t,
        if false, Some(|sent| early::gathered(from, count as usize, sent));
    fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t,
        if dont_wait(flags), is_plain(flags).then_some(|sent| early::flat(from, sent));
    fn sendmmsg(fd: c_int, from: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int,
        if dont_wait(flags), is_plain(flags).then_some(|sent| early::messages(from, sent));
    fn sendfile(fd: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t,
        if false, NOT_KEPT;
    fn sendfile64(fd: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t,
        if false, NOT_KEPT;
}

/// For calls whose bytes cannot be read back.
const NOT_KEPT: Option<fn(isize) -> Vec<u8>> = None;

fn dont_wait(flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT != 0
}

/// The bytes are part of the stream like others.
fn is_plain(flags: c_int) -> bool {
    flags & libc::MSG_OOB == 0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as the program promises.
    unsafe { connect::connect(fd, address, len) }
}

/// With `MSG_FASTOPEN` a destination is connected to, which is done first; data follows.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    mut flags: c_int,
    mut to: *const sockaddr,
    mut to_len: socklen_t,
) -> ssize_t {
    type Function = unsafe extern "C-unwind" fn(
        c_int,
        *const c_void,
        size_t,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t;
    let sendto = next!(sendto as Function);
    // SAFETY: what the program promises goes on, without what was done already.
    unsafe {
        if flags & libc::MSG_FASTOPEN != 0 && !to.is_null() {
            if connect::connect(fd, to, to_len) != 0 && sys::errno() != libc::EINPROGRESS {
                return -1;
            }
            (flags, to, to_len) = (flags & !libc::MSG_FASTOPEN, std::ptr::null(), 0);
        }
        let kept = is_plain(flags).then_some(|sent| early::flat(from, sent));
        pending::write(fd, dont_wait(flags), kept, || sendto(fd, from, len, flags, to, to_len))
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, from: *const msghdr, flags: c_int) -> ssize_t {
    type Function = unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> ssize_t;
    let sendmsg = next!(sendmsg as Function);
    // SAFETY: what the program promises goes on, without what was done already.
    unsafe {
        let mut message;
        let (mut from, mut flags) = (from, flags);
        if flags & libc::MSG_FASTOPEN != 0 && !from.is_null() && !(*from).msg_name.is_null() {
            message = *from;
            let to = message.msg_name.cast();
            if connect::connect(fd, to, message.msg_namelen) != 0
                && sys::errno() != libc::EINPROGRESS
            {
                return -1;
            }
            message.msg_name = std::ptr::null_mut();
            message.msg_namelen = 0;
            (from, flags) = (&raw const message, flags & !libc::MSG_FASTOPEN);
        }
        let kept = is_plain(flags).then_some(|sent| early::message(from, sent));
        pending::write(fd, dont_wait(flags), kept, || sendmsg(fd, from, flags))
    }
}

/// Where it ends what is sent, that belongs to the payload.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    type Function = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;
    let shutdown = next!(shutdown as Function);
    // SAFETY: two numbers.
    let call = || unsafe { shutdown(fd, how) };
    if how == libc::SHUT_RD { call() } else { pending::end(fd, call) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    type Function = unsafe extern "C-unwind" fn(
        c_int,
        *mut off64_t,
        c_int,
        *mut off64_t,
        size_t,
        c_uint,
    ) -> ssize_t;
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0;
    if let Err(errno) = pending::before_read(from, waits) {
        sys::set_errno(errno);
        return -1;
    }
    let splice = next!(splice as Function);
    // SAFETY: what the program promises goes on unchanged.
    let call = || unsafe { splice(from, from_at, to, to_at, len, flags) };
    pending::write(to, !waits, NOT_KEPT, call)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if level == libc::SOL_SOCKET
        && name == libc::SO_ERROR
        && let Some(session) = pending::find(fd)
        && let Progress::Failed(errno) = session.look(fd)
    {
        session.report(fd);
        // SAFETY: no more is written than the program has room for.
        unsafe {
            let room = (*len as usize).min(size_of::<c_int>());
            std::ptr::copy_nonoverlapping(errno.to_ne_bytes().as_ptr(), value.cast(), room);
            *len = room as socklen_t;
        }
        return 0;
    }
    // SAFETY: what the program promises goes on unchanged.
    unsafe { sys::get_option(fd, level, name, value, len) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    type Function = unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    let getpeername = next!(getpeername as Function);
    if let Some(session) = pending::find(fd)
        && let Progress::Failed(_) = session.look(fd)
    {
        sys::set_errno(libc::ENOTCONN);
        return -1;
    }
    let errno = sys::errno();
    let peer = Mark::read(fd).and_then(|mark| Raw::new(mark.peer, first_gateway::domain(fd)));
    sys::set_errno(errno);
    let Some(peer) = peer else {
        // SAFETY: what the program promises goes on unchanged.
        return unsafe { getpeername(fd, address, len) };
    };
    let mut gateway = [0 as c_char; size_of::<libc::sockaddr_storage>()];
    let mut gateway_len = gateway.len() as socklen_t;
    // SAFETY: there is room for every address; that of the program is as long as it says.
    unsafe {
        let result = getpeername(fd, gateway.as_mut_ptr().cast(), &raw mut gateway_len);
        if result == 0 {
            peer.write(address, len);
        }
        result
    }
}

/// Its third argument, if any, is a number or an address: on Linux it is passed as a fixed one would be.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let result = sys::control(fd, command, argument);
    after_control(fd, command, argument, result);
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    type Function = unsafe extern "C-unwind" fn(c_int, c_int, ...) -> c_int;
    // SAFETY: what the program promises goes on unchanged.
    let result = unsafe { next!(fcntl64 as Function)(fd, command, argument) };
    after_control(fd, command, argument, result);
    result
}

fn after_control(fd: c_int, command: c_int, argument: usize, result: c_int) {
    if command == libc::F_SETFL && result == 0 && argument & libc::O_NONBLOCK as usize == 0 {
        pending::before_blocking(fd);
    }
}

/// Its third argument is an address or a number, as that of [`fcntl`].
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    type Function = unsafe extern "C-unwind" fn(c_int, c_ulong, ...) -> c_int;
    if request == libc::FIONREAD
        && let Some(session) = pending::find(fd)
    {
        // The answer is not counted among what can be read.
        session.look(fd);
    }
    // SAFETY: what the program promises goes on unchanged.
    let result = unsafe { next!(ioctl as Function)(fd, request, argument) };
    // SAFETY: the kernel has read the number there.
    if request == libc::FIONBIO && result == 0 && unsafe { *(argument as *const c_int) } == 0 {
        pending::before_blocking(fd);
    }
    result
}
