use core::fmt;

use longhaul_units::LaneId;
use longhaul_wire::ConnectionId;
use zeroize::Zeroizing;

/// 32 bytes that nobody but the two ends of a connection knows: the TLS exporter output, or what
/// another way to agree on a secret yields (docs/protocol.md section 2.1).
///
/// Never printed; erased when dropped.
#[derive(Clone)]
pub struct SessionSecret(Zeroizing<[u8; 32]>);

impl SessionSecret {
    /// Label of the TLS exporter whose output, with an empty context, is the secret.
    pub const EXPORTER_LABEL: &'static [u8] = b"EXPORTER-longhaul-1";

    /// The secret with these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The proof with which a TCP connection joins a carrier (docs/protocol.md section 8).
    pub(crate) fn join_proof(&self, connection: ConnectionId, lane: LaneId) -> [u8; 32] {
        let key = Zeroizing::new(blake3::derive_key("longhaul/1 join", self.bytes()));
        let mut hasher = blake3::Hasher::new_keyed(&key);
        hasher.update(&connection.0.to_be_bytes()).update(&lane.0.to_be_bytes());
        *hasher.finalize().as_bytes()
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(..)")
    }
}

/// True if two proofs are equal, in a time that does not depend on where they differ.
pub(crate) fn equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    // `blake3::Hash` promises comparison in constant time.
    blake3::Hash::from_bytes(*one) == blake3::Hash::from_bytes(*other)
}
