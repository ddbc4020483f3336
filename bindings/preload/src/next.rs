//! The functions behind the hooks: the C library's, or those of the next preloaded library.

use std::ffi::{CStr, c_void};

/// The function `$name` behind ours, as `$type`.
macro_rules! next {
    ($name:ident as $type:ty) => {{
        use std::sync::atomic::{AtomicPtr, Ordering};
        static FOUND: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(std::ptr::null_mut());
        let mut found = FOUND.load(Ordering::Relaxed);
        if found.is_null() {
            let name = concat!(stringify!($name), "\0").as_bytes();
            found = $crate::next::find(name);
            FOUND.store(found, Ordering::Relaxed);
        }
        $crate::next::typed::<$type>(found)
    }};
}

pub(crate) use next;

/// The function at an address. `T` is its declaration in the C library's headers.
pub(crate) fn typed<T: Copy>(found: *mut c_void) -> T {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    // SAFETY: a pointer to a function is as an address is, and `found` is that of this one.
    unsafe { std::mem::transmute_copy(&found) }
}

/// The address of the function with this name, which ends in a zero byte.
pub(crate) fn find(name: &[u8]) -> *mut c_void {
    let Ok(name) = CStr::from_bytes_with_nul(name) else { std::process::abort() };
    // SAFETY: the name ends in a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // Only who calls a function that the C library lacks gets here: it could not have started.
        std::process::abort();
    }
    found
}
