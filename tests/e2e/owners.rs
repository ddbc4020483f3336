//! Clients of one server that have tokens of their own.

use std::fs;

use crate::server::{Copying, Server, over, push, run, slowly};
use crate::test::{limited, token};
use crate::trees::{assert_same, noise};

/// Label and destination are no secret to a user that knows the command.
#[test]
fn a_push_is_gone_on_with_under_its_own_token_only() {
    limited(|test| {
        let server = Server::with(test, |options| options.access[0].tokens.push(token(2)));
        fs::write(test.here("f"), noise(7, 4 << 20)).unwrap();
        let mut own = push(&test.here("f"), server.address, b"f");
        // What the other one sends has the same size and time.
        own.ignore_times = true;
        let begun = Copying::start(test, slowly(own.clone()));
        begun.moved(3 << 20);
        begun.stop();
        let other = run(test, &over(own.clone(), |by| by.token = token(2))).unwrap();
        assert_eq!(other.resumed_bytes, 0, "what another token's push has left is not its own");
        let own = run(test, &own).unwrap();
        assert!(own.resumed_bytes > 0, "{own:?}");
        assert_same(&test.here("f"), &test.there("f"));
    });
}
