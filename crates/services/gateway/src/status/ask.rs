use std::net::SocketAddr;
use std::time::Duration;

use super::Status;

/// A gateway did not tell its state.
#[derive(Debug, thiserror::Error)]
#[error(
    "no gateway tells its state at {address}: {source}. It does so to its own host, where it was started with --metrics"
)]
pub struct AskError {
    address: SocketAddr,
    #[source]
    source: ureq::Error,
}

/// Asks the gateway whose metrics are at `address`.
///
/// # Errors
/// None answers there.
pub fn ask(address: SocketAddr) -> Result<Status, AskError> {
    let agent = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build();
    let asked = ureq::Agent::from(agent).get(format!("http://{address}/status")).call();
    let read = asked.and_then(|mut answer| {
        answer.body_mut().with_config().limit(ANSWER_MAX).read_json::<Status>()
    });
    read.map_err(|source| AskError { address, source })
}

const TIMEOUT: Duration = Duration::from_secs(10);
/// A session takes about a kilobyte.
const ANSWER_MAX: u64 = 256 << 20;
