//! Clients of one server that have tokens of their own.

use std::fs;

use longhaul::{CopyOptions, ServeOptions};

use crate::server::{Copying, Server, push, run, serve_options, slowly};
use crate::test::{limited, token};
use crate::trees::{assert_same, noise};

/// Label and destination are no secret to whoever knows the command.
#[test]
fn a_push_is_gone_on_with_under_its_own_token_only() {
    limited(|test| {
        let options = serve_options(&test.path("there"));
        let tokens = vec![token(1), token(2)];
        let server = Server::with(test, ServeOptions { tokens, ..options });
        fs::write(test.here("f"), noise(7, 4 << 20)).unwrap();
        let own = push(&test.here("f"), server.address, b"f");
        let begun = Copying::start(test, slowly(own.clone()));
        begun.moved(3 << 20);
        begun.stop();
        let other = run(test, &CopyOptions { token: token(2), ..own.clone() }).unwrap();
        assert_eq!(other.resumed_bytes, 0, "what another token's push has left is not its own");
        let own = run(test, &own).unwrap();
        assert!(own.resumed_bytes > 0, "{own:?}");
        assert_same(&test.here("f"), &test.there("f"));
    });
}
