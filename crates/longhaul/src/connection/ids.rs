//! Connection ids: random, so that nobody who does not see a connection can name it.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroU32;
use std::sync::Mutex;

use longhaul_sys::sync::lock;

/// The ids of a server's living connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectionIds {
    living: Mutex<BTreeSet<NonZeroU32>>,
}

/// An id that no other living connection has; free again when dropped.
#[derive(Debug)]
pub(crate) struct OwnId<'s> {
    ids: &'s ConnectionIds,
    id: NonZeroU32,
}

impl ConnectionIds {
    /// A new id out of `random` numbers.
    pub fn take(&self, mut random: impl FnMut() -> io::Result<u32>) -> io::Result<OwnId<'_>> {
        let mut living = lock(&self.living);
        for _ in 0..DRAWS_MAX {
            if let Some(id) = NonZeroU32::new(random()?)
                && living.insert(id)
            {
                return Ok(OwnId { ids: self, id });
            }
        }
        Err(io::Error::other("no connection id is free"))
    }
}

impl OwnId<'_> {
    pub fn get(&self) -> NonZeroU32 {
        self.id
    }
}

impl Drop for OwnId<'_> {
    fn drop(&mut self) {
        lock(&self.ids.living).remove(&self.id);
    }
}

/// With a thousand connections one draw in four million meets a taken id: so many in a row are no
/// accident.
const DRAWS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use longhaul_sys::random;

    use super::*;

    #[test]
    fn an_id_is_not_zero_and_has_one_owner_while_it_lives() {
        let ids = ConnectionIds::default();
        let draws = |numbers: &'static [u32]| {
            let mut numbers = numbers.iter().copied();
            move || numbers.next().ok_or(io::ErrorKind::UnexpectedEof.into())
        };
        let first = ids.take(draws(&[0, 7])).unwrap();
        let second = ids.take(draws(&[7, 0, 9])).unwrap();
        assert_eq!((first.get().get(), second.get().get()), (7, 9));
        drop(first);
        assert_eq!(ids.take(draws(&[9, 7])).unwrap().get().get(), 7);
        assert!(ids.take(draws(&[9])).is_err());
        assert!(ids.take(|| Ok(9)).is_err(), "it does not draw for ever");
    }

    #[test]
    fn ids_do_not_count() {
        let ids = ConnectionIds::default();
        let taken: Vec<_> = (0..64).map(|_| ids.take(random::number).unwrap()).collect();
        assert!(taken.iter().any(|own| own.get().get() > 1 << 24));
        assert!(taken.windows(2).any(|pair| pair[0].get().get() + 1 != pair[1].get().get()));
    }
}
