use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::Arc;

use longhaul_relay::ParseViaError;
use longhaul_relay_client::{Gateways, TokenError, read_token};

use crate::words::{TextError, Words, owned, text};

/// `longhaul_relay_route`.
pub(crate) struct Route {
    pub gateways: Arc<Gateways>,
    first: CString,
}

/// Why there is no route: the caller gave something wrong.
#[derive(Debug, thiserror::Error)]
enum RouteError {
    #[error("{0}")]
    Text(#[from] TextError),
    #[error("{0}")]
    Token(#[from] TokenError),
    #[error("{0}")]
    Via(#[from] ParseViaError),
}

fn route(via: Result<&str, TextError>, file: Result<&str, TextError>) -> Result<Route, RouteError> {
    let key = read_token(Path::new(file?))?;
    let gateways = Gateways::new(via?, key)?;
    let first = owned(&gateways.first().to_string());
    Ok(Route { gateways: Arc::new(gateways), first })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_route_new(
    via: *const c_char,
    token_file: *const c_char,
    error: *mut c_char,
    error_len: usize,
) -> *mut Route {
    // SAFETY: as the header demands.
    let (via, file, words) = unsafe { (text(via), text(token_file), Words::new(error, error_len)) };
    match route(via, file) {
        Ok(route) => Box::into_raw(Box::new(route)),
        Err(error) => {
            words.write(error);
            std::ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_route_free(route: *mut Route) {
    if !route.is_null() {
        // SAFETY: it comes from `longhaul_relay_route_new`, and is used no more.
        drop(unsafe { Box::from_raw(route) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_route_gateway(route: *const Route) -> *const c_char {
    // SAFETY: it comes from `longhaul_relay_route_new`.
    unsafe { (*route).first.as_ptr() }
}
