//! The service's name to its addresses: as ureq does it, whose thread may not fail.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};

use longhaul_sys::threads;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::unversioned::transport::time::Duration;
use ureq::{Error, Timeout};

/// Waits for the system's resolver no longer than a request may take.
#[derive(Debug)]
pub(super) struct Names;

impl Resolver for Names {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let (answer, answered) = channel();
        let (uri, config) = (uri.clone(), config.clone());
        threads::spawn("resolve", move || {
            let (after, reason) = (Duration::NotHappening, Timeout::Resolve);
            let forever = NextTimeout { after, reason, ..NextTimeout::default() };
            // Nobody takes it after the timeout.
            let _ = answer.send(DefaultResolver::default().resolve(&uri, &config, forever));
        })
        .map_err(Error::Io)?;
        match answered.recv_timeout(*timeout.after) {
            Ok(found) => found,
            Err(RecvTimeoutError::Timeout) => Err(Error::Timeout(timeout.reason)),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::Io(io::Error::other("the resolver failed")))
            }
        }
    }
}
