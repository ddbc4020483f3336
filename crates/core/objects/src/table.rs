use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::ObjectId;

use crate::hash::{group_count, group_len};
use crate::limits::GROUP_SIZE;

/// Sizes of the accepted objects, for the threads that receive: a snapshot that is cheap to
/// take and to share.
///
/// Objects are only ever added, so an older snapshot is right for what it knows; an object that
/// it does not know may be in a newer one.
#[derive(Clone, Debug, Default)]
pub struct ObjectTable {
    /// Objects are pieces of a pipe.
    pieces: bool,
    full: Vec<Arc<Vec<u64>>>,
    last: Arc<Vec<u64>>,
}

/// Where the payload of a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The group.
    pub group: u32,
    /// Offset of the payload within the group.
    pub offset: u32,
    /// Bytes of the whole group.
    pub group_len: u32,
    /// True if the object has no other group.
    pub only: bool,
}

/// Why a payload belongs nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The object is not accepted, or this snapshot is older than it.
    #[error("the object is not accepted")]
    UnknownObject,
    /// No bytes, bytes beyond the object's end, or bytes of two groups.
    #[error("the bytes do not lie within one group of the object")]
    Outside,
}

impl ObjectTable {
    /// That of a pipe: objects are lengths of pieces, which are groups of their own
    /// (docs/protocol.md section 7.6).
    pub fn of_pieces() -> Self {
        Self { pieces: true, ..Self::default() }
    }

    /// Number of objects; all with lower numbers are known.
    pub fn objects(&self) -> u32 {
        (self.full.len() * CHUNK + self.last.len()) as u32
    }

    /// Bytes of `object`, if it is known.
    pub fn size(&self, object: ObjectId) -> Option<u64> {
        let number = object.0 as usize;
        let chunk = self
            .full
            .get(number / CHUNK)
            .or_else(|| (number / CHUNK == self.full.len()).then_some(&self.last))?;
        chunk.get(number % CHUNK).copied()
    }

    /// Where `len` bytes at `offset` of `object` belong. A packet holds bytes of one group only.
    pub fn place(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
    ) -> Result<Placement, PlaceError> {
        if self.pieces {
            return place_in_piece(object, offset, len);
        }
        let size = self.size(object).ok_or(PlaceError::UnknownObject)?;
        if offset >= size || len == 0 {
            return Err(PlaceError::Outside);
        }
        let group = (offset / GROUP_SIZE) as u32;
        let within = (offset % GROUP_SIZE) as u32;
        let group_len = group_len(size, group);
        if len > (group_len - within) as usize {
            return Err(PlaceError::Outside);
        }
        Ok(Placement { group, offset: within, group_len, only: group_count(size) == 1 })
    }

    /// Adds the object with the next number.
    pub fn push(&mut self, size: u64) {
        Arc::make_mut(&mut self.last).push(size);
        if self.last.len() == CHUNK {
            self.full.push(core::mem::take(&mut self.last));
        }
    }
}

fn place_in_piece(object: ObjectId, offset: u64, len: usize) -> Result<Placement, PlaceError> {
    let group_len = object.0;
    if u64::from(group_len) > GROUP_SIZE {
        return Err(PlaceError::UnknownObject);
    }
    let group = u32::try_from(offset / GROUP_SIZE).map_err(|_| PlaceError::Outside)?;
    let within = (offset % GROUP_SIZE) as u32;
    if len == 0 || len > group_len.saturating_sub(within) as usize {
        return Err(PlaceError::Outside);
    }
    Ok(Placement { group, offset: within, group_len, only: true })
}

/// Objects in one shared part of the table: what a snapshot may have to copy.
const CHUNK: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_stay_as_they_were() {
        let mut table = ObjectTable::default();
        let mut snapshots = Vec::new();
        for size in 0..2000u64 {
            snapshots.push(table.clone());
            table.push(size * 1000 + 1);
        }
        for (count, snapshot) in snapshots.iter().enumerate() {
            assert_eq!(snapshot.objects() as usize, count);
            assert_eq!(snapshot.size(ObjectId(count as u32)), None);
            if count > 0 {
                let last = count as u64 - 1;
                assert_eq!(snapshot.size(ObjectId(last as u32)), Some(last * 1000 + 1));
            }
        }
    }

    #[test]
    fn what_is_no_piece_has_no_place() {
        let table = ObjectTable::of_pieces();
        let place = |object, offset, len| table.place(ObjectId(object), offset, len);
        assert_eq!(place(5, 0, 6), Err(PlaceError::Outside));
        assert_eq!(place(5, 5, 1), Err(PlaceError::Outside));
        assert_eq!(place(5, 0, 0), Err(PlaceError::Outside));
        assert_eq!(place(0, 0, 1), Err(PlaceError::Outside));
        assert_eq!(place(1 << 20, GROUP_SIZE << 32, 1), Err(PlaceError::Outside));
        assert_eq!(place((1 << 20) + 1, 0, 1), Err(PlaceError::UnknownObject));
    }

    #[test]
    fn bytes_lie_within_one_group() {
        let mut table = ObjectTable::default();
        table.push(GROUP_SIZE + 100);
        table.push(5);
        let place = |object, offset, len| table.place(ObjectId(object), offset, len);
        let group_len = 1 << 20;
        assert_eq!(place(0, 7, 93), Ok(Placement { group: 0, offset: 7, group_len, only: false }));
        assert_eq!(
            place(0, GROUP_SIZE, 100),
            Ok(Placement { group: 1, offset: 0, group_len: 100, only: false })
        );
        assert_eq!(place(1, 0, 5), Ok(Placement { group: 0, offset: 0, group_len: 5, only: true }));
        assert_eq!(place(0, GROUP_SIZE - 1, 2), Err(PlaceError::Outside));
        assert_eq!(place(0, GROUP_SIZE, 101), Err(PlaceError::Outside));
        assert_eq!(place(0, u64::MAX, 1), Err(PlaceError::Outside));
        assert_eq!(place(0, 0, 0), Err(PlaceError::Outside));
        assert_eq!(place(1, 5, 1), Err(PlaceError::Outside));
        assert_eq!(place(2, 0, 1), Err(PlaceError::UnknownObject));
        assert_eq!(place(u32::MAX, 0, 1), Err(PlaceError::UnknownObject));
    }
}
