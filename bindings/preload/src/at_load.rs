//! Work of the moment in which the library is loaded.

use crate::pending::survive_forks;
use crate::settings::loaded;

extern "C" fn load() {
    if loaded().is_some() {
        survive_forks();
    }
}

#[used]
// SAFETY: the loader calls it once, before `main`, when the C library works.
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = load;
