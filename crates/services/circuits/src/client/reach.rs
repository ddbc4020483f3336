//! The address of a service, and the conditions to reach it: the token goes to nobody else.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_sys::route;
use rustls::crypto::aws_lc_rs;
use ureq::http::uri::Scheme;
use ureq::http::{Request, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, AsSendBody};

use super::names::Names;
use super::{Client, ClientError, authorities};

/// Ways to reach a service, beside its address.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// File in PEM with the authorities that may vouch for the service, in place of those that this
    /// host knows.
    pub authorities: Option<PathBuf>,
    /// The token may cross a network in the clear. To this host it may without.
    pub plain_http: bool,
}

/// The address without what is of no account, and what connects to it.
pub(super) fn agent(url: &str, access: &Access) -> Result<(String, Agent), ClientError> {
    let wrong = || ClientError::Url(url.into());
    let base = url.trim_end_matches('/');
    // A name before an `@` is no host, though it may look like one; the rest behind the others is
    // cut from a request.
    if base.contains(['@', '?', '#']) {
        return Err(wrong());
    }
    let uri: Uri = base.parse().map_err(|_| wrong())?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
    let config = Agent::config_builder()
        .http_status_as_error(false)
        // The token would go to any place that the service names.
        .max_redirects(0);
    let config = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => {
            config.tls_config(tls(access.authorities.as_deref())?)
        }
        // A proxy that the environment names is elsewhere.
        Some(scheme) if *scheme == Scheme::HTTP && is_here(host) => config.proxy(None),
        Some(scheme) if *scheme == Scheme::HTTP && access.plain_http => config,
        Some(scheme) if *scheme == Scheme::HTTP => return Err(ClientError::Plain(url.into())),
        _ => return Err(wrong()),
    };
    let agent = Agent::with_parts(config.build(), DefaultConnector::default(), Names);
    Ok((base.to_owned(), agent))
}

/// A request that is over after `patience`, the whole answer included.
pub(super) fn within<S: AsSendBody>(
    agent: &Agent,
    request: Request<S>,
    patience: Duration,
) -> Request<S> {
    agent.configure_request(request).timeout_global(Some(patience)).build()
}

/// A request whose answer has no end.
pub(super) fn watching<S: AsSendBody>(agent: &Agent, request: Request<S>) -> Request<S> {
    let patience = Some(Client::PATIENCE);
    let config = agent.configure_request(request);
    let config = config.timeout_resolve(patience).timeout_connect(patience);
    config.timeout_recv_response(patience).timeout_per_read(Some(SILENCE)).build()
}

fn tls(file: Option<&Path>) -> Result<TlsConfig, ClientError> {
    let (found, place) = match file {
        Some(file) => (authorities::read(file), file.display().to_string()),
        None => (authorities::known(), "this host's authorities".into()),
    };
    let authorities = found.map_err(|why| ClientError::Authorities { place, why })?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    Ok(tls.root_certs(RootCerts::Specific(Arc::new(authorities))).build())
}

/// True if requests to `host` do not leave this host.
fn is_here(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    // The one name that is not looked up elsewhere (RFC 6761 section 6.3).
    bare.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(is_own)
}

/// True if this host has the address: then packets to it would come from it, too.
fn is_own(ip: IpAddr) -> bool {
    let from = route::source_towards((ip, 9).into());
    ip.to_canonical().is_loopback() || from.is_ok_and(|from| from == ip)
}

/// A service that is watched and has nothing to say shows that it lives every 15 s.
const SILENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_in_the_clear_to_this_host_only_by_default() {
        let new = |url: &str, plain_http| {
            let access = Access { plain_http, ..Access::default() };
            agent(url, &access).map(|(base, _)| base)
        };
        for here in [
            "http://127.0.0.1:7430",
            "http://127.8.9.10",
            "http://[::1]:7430/",
            "http://localhost:7430",
            "HTTP://LOCALHOST",
            "http://127.0.0.1/behind/a/proxy",
        ] {
            assert_eq!(new(here, false).unwrap(), here.trim_end_matches('/'), "{here}");
        }
        for elsewhere in [
            "http://192.0.2.1:7430",
            "http://[2001:db8::1]",
            "http://book.example",
            "http://localhost.example",
            "http://127.0.0.1.example",
            "http://2130706433",
        ] {
            let refused = new(elsewhere, false).unwrap_err();
            assert!(matches!(refused, ClientError::Plain(_)), "{elsewhere}: {refused}");
            assert_eq!(new(elsewhere, true).unwrap(), elsewhere);
        }
        for wrong in [
            "http://localhost@book.example",
            "http://127.0.0.1:7430@book.example",
            "https://user:password@book.example",
            "http://127.0.0.1#book.example",
            "http://127.0.0.1?x",
            "http://",
            "https:///a",
            "ftp://127.0.0.1",
            "127.0.0.1:7430",
            "//127.0.0.1",
            "",
        ] {
            for plain_http in [false, true] {
                let refused = new(wrong, plain_http).unwrap_err();
                assert!(matches!(refused, ClientError::Url(_)), "{wrong}: {refused}");
            }
        }
    }

    #[test]
    fn a_file_without_authorities_is_refused_by_its_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for path in [file.path(), Path::new("/no/such/file")] {
            let access = Access { authorities: Some(path.to_owned()), plain_http: false };
            let refused = agent("https://book.example", &access).unwrap_err().to_string();
            assert!(refused.starts_with(&path.display().to_string()), "{refused}");
        }
    }
}
