use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::Arc;

use longhaul_relay_client::{Gateways, read_token};

use crate::words::{Words, owned, text};

/// `longhaul_relay_route`.
pub(crate) struct Route {
    pub gateways: Arc<Gateways>,
    first: CString,
}

fn route(via: Result<&str, &str>, file: Result<&str, &str>) -> Result<Route, String> {
    let key = read_token(Path::new(file?)).map_err(|error| error.to_string())?;
    let gateways = Gateways::new(via?, key).map_err(|error| error.to_string())?;
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
