//! Listening sockets of a network namespace, from the kernel's tables of sockets.

use std::fs;

/// True if a socket of the calling thread's namespace listens at `port`, or at any.
pub(super) fn any(port: Option<u16>) -> bool {
    ["tcp", "tcp6", "udp", "udp6"].iter().any(|protocol| {
        let table = fs::read_to_string(format!("/proc/thread-self/net/{protocol}"));
        table.is_ok_and(|table| table.lines().skip(1).any(|line| listens(line, port)))
    })
}

/// Number, local address, remote address, state, as net/ipv4/tcp_ipv4.c writes them. State 0A is
/// LISTEN, 07 is a UDP socket without a peer.
fn listens(line: &str, port: Option<u16>) -> bool {
    let mut fields = line.split_whitespace().skip(1);
    let (local, state) = (fields.next(), fields.nth(1));
    let own = local.and_then(|local| u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok());
    matches!(state, Some("0A" | "07")) && (port.is_none() || port == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_read() {
        let line = "0: 0100007F:1CFC 00000000:0000 0A 00000000:00000000 00:00000000 0";
        assert!(listens(line, Some(7420)) && listens(line, None) && !listens(line, Some(7421)));
        assert!(!listens(&line.replace(" 0A ", " 01 "), None));
        let six =
            "1: 00000000000000000000000000000000:1CFC 00000000000000000000000000000000:0000 07";
        assert!(listens(six, Some(7420)));
        assert!(!listens("", None));
    }

    #[test]
    fn an_own_listener_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(any(Some(listener.local_addr().unwrap().port())));
    }
}
