//! Names of errors.

use rustix::io::Errno;

/// The number of an error by its name.
pub fn number(name: &str) -> i32 {
    // These two have other names here.
    let others = [("EACCES", Errno::ACCESS), ("E2BIG", Errno::TOOBIG)];
    let found = NAMES.iter().chain(&others).find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name}: not a known error")).1.raw_os_error()
}

macro_rules! names {
    ($($error:ident)*) => { &[$((concat!("E", stringify!($error)), Errno::$error)),*] };
}

const NAMES: &[(&str, Errno)] = names!(
    ADDRINUSE ADDRNOTAVAIL AFNOSUPPORT AGAIN ALREADY BUSY CONNABORTED CONNREFUSED CONNRESET DEADLK DESTADDRREQ
    DQUOT EXIST FBIG INTR INVAL IO ISCONN ISDIR LOOP MFILE MLINK MSGSIZE NAMETOOLONG NETUNREACH NFILE NOBUFS NODEV
    NOENT NOLCK NOMEM NOPROTOOPT NOSPC NOSYS NOTCONN NOTDIR NOTEMPTY NOTTY NXIO OPNOTSUPP OVERFLOW PERM PIPE PROTO
    PROTONOSUPPORT PROTOTYPE ROFS SPIPE SRCH TIMEDOUT TXTBSY WOULDBLOCK XDEV
);
