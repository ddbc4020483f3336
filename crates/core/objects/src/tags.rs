//! Belief of a source in the record of an earlier run, and the tags by which it knows
//! a group that it named itself (docs/protocol.md section 7.4).

use core::fmt;

use crate::hash::ChainingValue;
use crate::layout::Part;

/// Proof that a source has sent a sink the chaining value of a group.
pub type Tag = [u8; 16];

/// Belief of a [`crate::source::Source`] in the groups that a sink says to have from an earlier run.
#[derive(Clone, Debug, Default)]
pub enum Belief {
    /// Everything: the sink is the client, whose record nobody else has written.
    Everything,
    /// Groups with a right tag. Others are read and compared, and get one.
    Tags(TagKey),
    /// Nothing: every group is read and compared. The source has no secret.
    #[default]
    Nothing,
    /// Nothing, and nothing can be compared: contents are not hashed.
    Unhashed,
}

/// Makes and checks tags for one server.
#[derive(Clone)]
pub struct TagKey([u8; 32]);

impl TagKey {
    /// The key of a user with this `secret`, which nobody else knows, for `server`.
    pub fn new(secret: &[u8; 32], server: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(KEY_CONTEXT);
        hasher.update(secret);
        hasher.update(server);
        Self(*hasher.finalize().as_bytes())
    }

    /// The tag of a group of these [`contents`] that has this value.
    pub(crate) fn tag(&self, contents: &[u8; 32], value: &ChainingValue) -> Tag {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(contents);
        hasher.update(value);
        crate::entry::first_16(&hasher)
    }

    /// True where the tag is that, in a time that says nothing of it.
    pub(crate) fn is_right(&self, contents: &[u8; 32], value: &ChainingValue, tag: &Tag) -> bool {
        let right = self.tag(contents, value);
        right.iter().zip(tag).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(..)")
    }
}

/// Contents of a group: the identity of each file with bytes in it, and which they are. `None` if
/// one is not known any more.
pub(crate) fn contents(
    parts: impl Iterator<Item = Part>,
    identity: impl Fn(Part) -> Option<[u8; 16]>,
) -> Option<[u8; 32]> {
    let mut hasher = blake3::Hasher::new_derive_key(CONTENTS_CONTEXT);
    for part in parts {
        hasher.update(&identity(part)?);
        hasher.update(&part.file_offset.to_be_bytes());
        hasher.update(&part.len.to_be_bytes());
    }
    Some(*hasher.finalize().as_bytes())
}

const KEY_CONTEXT: &str = "longhaul 2026 key of the tags for a server";
const CONTENTS_CONTEXT: &str = "longhaul 2026 contents of a group";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntryId;

    #[test]
    fn a_tag_is_right_for_one_server_group_and_value() {
        let part = |file_offset| Part { entry: EntryId(0), file_offset, group_offset: 0, len: 9 };
        let of = |identity, offset| {
            contents(core::iter::once(part(offset)), |_| Some([identity; 16])).unwrap()
        };
        let key = TagKey::new(&[1; 32], b"host:1");
        let tag = key.tag(&of(1, 0), &[7; 32]);
        assert!(key.is_right(&of(1, 0), &[7; 32], &tag));
        assert!(!key.is_right(&of(1, 0), &[8; 32], &tag), "altered under the same identity");
        assert!(!key.is_right(&of(2, 0), &[7; 32], &tag), "another file");
        assert!(!key.is_right(&of(1, 9), &[7; 32], &tag), "another group");
        for other in [TagKey::new(&[1; 32], b"host:2"), TagKey::new(&[2; 32], b"host:1")] {
            assert!(!other.is_right(&of(1, 0), &[7; 32], &tag));
        }
        assert_eq!(contents(core::iter::once(part(0)), |_| None), None);
    }
}
