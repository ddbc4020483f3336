//! Powers of fractions, in integers.

/// `base` to the power of `exponent`, which is at most one: `base` and the result in 2^-32, the exponent in
/// 2^-24.
///
/// An exponent below one is a sum of negative powers of two, so the power is a product of repeated square roots:
/// exact to six digits, and the same on every machine. The base is below 2^60.
pub(super) fn power_of(base: u128, exponent: u32) -> u128 {
    let mut root = base;
    let mut power = 1u128 << 32;
    if exponent >> EXPONENT_BITS > 0 {
        power = base;
    }
    for bit in (0..EXPONENT_BITS).rev() {
        root = (root << 32).isqrt();
        if exponent >> bit & 1 == 1 {
            power = (power * root) >> 32;
        }
    }
    power
}

/// One as an exponent is 2 to the power of this.
pub(super) const EXPONENT_BITS: u32 = 24;
