//! Numbers that nobody can foretell.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Some bytes.
///
/// # Errors
/// This host gives none.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// A number.
///
/// # Errors
/// As [`bytes`].
pub fn number() -> io::Result<u32> {
    bytes().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ() {
        let drawn: Vec<[u8; 32]> = (0..8).map(|_| bytes().unwrap()).collect();
        assert!(drawn.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
