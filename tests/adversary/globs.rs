//! Patterns that cost a server, and names that no pattern of a client matches.

use std::fs;

use crate::bytes::Bytes;
use crate::honest::{await_request, copy};
use crate::host::Host;
use crate::oracle::{BOUND, Victim, assert_nothing_beside, assert_only, end};
use crate::peer::{Peer, WAYS};
use crate::script::{Ending, Item, request, sink, source};
use crate::test::limited;

/// A pull of these paths into a directory.
fn pull(victim: &Victim<'_>, paths: &[&[u8]]) -> Ending {
    let mut peer = Peer::dial(victim.address, WAYS[5]).unwrap();
    peer.message(request(true, 1, paths));
    let ending = sink(&mut peer, BOUND);
    peer.hang_up();
    ending
}

#[test]
fn patterns_that_backtrack_elsewhere_cost_a_server_no_more_than_others() {
    limited(|test| {
        fs::write(test.there(&"a".repeat(250)), "x").unwrap();
        let victim = Victim::start(test);
        let stars = "a*".repeat(1_000) + "b";
        let sets = "[a-z]*".repeat(600) + "[!a-z]";
        let marks = "?*".repeat(1_500) + "b";
        for pattern in [&stars, &sets, &marks] {
            let ending = pull(&victim, &[pattern.as_bytes()]);
            assert!(ending.objects.is_empty(), "{ending:?}");
            // The same as rules of another pull, and as a listing.
            let rule = request(true, 1, &[b"a"]).u8(2).sized(pattern.as_bytes());
            let list = Bytes::new().varint(18).varint(1).raw(pattern.as_bytes());
            for message in [rule, list] {
                let mut peer = Peer::dial(victim.address, WAYS[5]).unwrap();
                peer.message(message);
                sink(&mut peer, BOUND);
                peer.hang_up();
            }
            victim.assert_serves();
        }
    });
}

#[test]
fn as_many_patterns_as_a_message_holds_take_no_memory_of_a_server() {
    limited(|test| {
        for number in 0..2_000 {
            fs::write(test.there(&format!("{number:0>200}")), "").unwrap();
        }
        let victim = Victim::start(test);
        victim.assert_serves();
        let before = victim.peak();
        let many = vec![&b"*"[..]; 300_000];
        let ending = pull(&victim, &many);
        assert!(ending.closed.is_some_and(|why| why.contains("at most 1000 patterns")));
        let fewer = vec![&b"*"[..]; 1_000];
        let ending = pull(&victim, &fewer);
        assert!(ending.closed.is_some(), "what they match together is bounded, or of one name");
        let grown = victim.peak() - before;
        assert!(grown < 192 << 20, "{} MiB", grown >> 20);
        // No request has more rules than that either.
        let rules = (0..1_001).fold(request(true, 1, &[b"x"]), |all, _| all.u8(2).sized(b"*.o"));
        let mut peer = Peer::dial(victim.address, WAYS[5]).unwrap();
        peer.message(rules);
        assert!(sink(&mut peer, BOUND).closed.is_some());
        victim.assert_serves();
    });
}

#[test]
fn a_server_that_expands_a_pattern_to_other_names_fails() {
    limited(|test| {
        let file = |path: &[u8]| Item::file(path, b"evil");
        let offers = [
            (vec![file(b"a1"), file(b"a2")], 0),
            (vec![file(b"a1"), file(b"b")], 1),
            (vec![file(b".bashrc")], 1),
            (vec![Item::link(b"a1", b".."), file(b"a1/x")], 1),
            (vec![file(b"a12")], 1),
            (vec![], 1),
        ];
        for (offer, status) in offers {
            let host = Host::new();
            let copying = copy(test, WAYS[0], &[&format!("lh://{}/d/a?", host.address), "here/"]);
            let mut peer = host.accept().unwrap();
            await_request(&mut peer);
            source(&mut peer, &offer, BOUND);
            peer.hang_up();
            let ended = end(copying);
            assert_eq!(ended.status, Some(status), "{offer:?}: {ended:?}");
            assert_only(&test.path("here"), &["a1", "a2"]);
            assert_nothing_beside(test.folder());
            for name in ["a1", "a2"] {
                let _ = fs::remove_file(test.here(name));
            }
        }
    });
}

#[test]
fn only_files_that_were_announced_can_be_unchanged() {
    limited(|test| {
        // By a client that pulls.
        fs::write(test.there("f"), "contents").unwrap();
        let victim = Victim::start(test);
        let refused = |entry: u64| Bytes::new().varint(10).varint(entry).u8(2).raw(b"as it was");
        for entry in [1, 7, 1 << 40] {
            let mut peer = Peer::dial(victim.address, WAYS[5]).unwrap();
            peer.message(request(true, 16, &[b"f"]));
            peer.message(refused(entry));
            let ending = sink(&mut peer, BOUND);
            assert!(ending.closed.is_some(), "{entry}: {ending:?}");
            victim.assert_serves();
        }
        // By a server that is pushed to: nothing counts as copied.
        for entry in [1, 1 << 40] {
            let host = Host::new();
            let copying = copy(test, WAYS[0], &["token", &format!("lh://{}/f", host.address)]);
            let mut peer = host.accept().unwrap();
            await_request(&mut peer);
            peer.message(refused(entry));
            sink(&mut peer, BOUND);
            peer.hang_up();
            let ended = end(copying);
            assert_eq!(ended.status, Some(1), "{entry}: {ended:?}");
        }
    });
}
