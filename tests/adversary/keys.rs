//! Proofs and seals, written from protocol.md 2.3, 4.2, 4.3 and 8 a second time: an error
//! in the program's own key schedule shows as two ends that do not understand each other.

use std::hash::Hasher;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use longhaul_wire::Protect;
use siphasher::sip::SipHasher24;

use crate::bytes::Bytes;

/// The 16 random bytes of the token that everybody has.
pub const TOKEN_KEY: [u8; 16] = [1; 16];

pub fn key_id(token_key: &[u8; 16]) -> [u8; 8] {
    *blake3::derive_key("longhaul/1 token id", token_key).first_chunk().unwrap()
}

pub fn proof(token_key: &[u8; 16], role: &str, secret: &[u8; 32], transcript: &[u8]) -> [u8; 32] {
    let verifier = blake3::derive_key("longhaul/1 token verifier", token_key);
    let message = [b"longhaul/1 proof ", role.as_bytes(), &[0], secret, transcript].concat();
    *blake3::keyed_hash(&verifier, &message).as_bytes()
}

/// The first bytes of a connection that joins the TCP carrier.
pub fn join(secret: &[u8; 32], connection: u32, lane: u16) -> Vec<u8> {
    let key = blake3::derive_key("longhaul/1 join", secret);
    let whom = Bytes::new().u32(connection).u16(lane);
    let proof = *blake3::keyed_hash(&key, &whom.0).as_bytes();
    Bytes::new().raw(b"LHD1").u32(connection).u16(lane).u16(0).raw(&proof).0
}

/// Keys of one lane and direction at one epoch.
pub struct Keys {
    aead: LessSafeKey,
    iv: [u8; 12],
    header_key: [u8; 16],
}

/// Which secret a lane's keys grow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    Packets,
    /// Records of the TCP carrier in `clear`.
    Records,
}

impl Keys {
    pub fn new(secret: &[u8; 32], carried: Carried, to_client: bool, lane: u16) -> Self {
        let material = Bytes::new().raw(secret).u8(u8::from(to_client)).u16(lane);
        let context = match carried {
            Carried::Packets => "longhaul/1 lane secret",
            Carried::Records => "longhaul/1 record secret",
        };
        let lane_secret = blake3::derive_key(context, &material.0);
        let key = blake3::derive_key("longhaul/1 packet key", &lane_secret);
        let iv = blake3::derive_key("longhaul/1 packet iv", &lane_secret);
        let header = blake3::derive_key("longhaul/1 header key", &lane_secret);
        Self {
            aead: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key[..16]).unwrap()),
            iv: *iv.first_chunk().unwrap(),
            header_key: *header.first_chunk().unwrap(),
        }
    }

    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// `body` sealed, then its tag.
    pub fn seal(&self, number: u64, beside: &[u8], body: &[u8]) -> Vec<u8> {
        let mut sealed = body.to_vec();
        self.aead
            .seal_in_place_append_tag(self.nonce(number), Aad::from(beside), &mut sealed)
            .unwrap();
        sealed
    }

    /// The plaintext; nothing where it is not authentic.
    pub fn open(&self, number: u64, beside: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut body = sealed.to_vec();
        let aad = Aad::from(beside);
        let len = self.aead.open_in_place(self.nonce(number), aad, &mut body).ok()?.len();
        body.truncate(len);
        Some(body)
    }

    /// The bytes behind the header of an OBJECT packet.
    pub fn seal_object(&self, protect: Protect, number: u64, head: &[u8], body: &[u8]) -> Vec<u8> {
        match protect {
            Protect::Aead => self.seal(number, head, body),
            Protect::Integrity => {
                let signed = [head, body].concat();
                [body, &self.seal(number, &signed, &[])].concat()
            }
            Protect::Clear => [body, &self.header_tag(head)].concat(),
        }
    }

    /// The payload of an OBJECT packet; nothing where it is not authentic.
    pub fn open_object(
        &self,
        protect: Protect,
        number: u64,
        head: &[u8],
        behind: &[u8],
    ) -> Option<Vec<u8>> {
        match protect {
            Protect::Aead => self.open(number, head, behind),
            Protect::Integrity => {
                let (body, tag) = behind.split_last_chunk::<16>()?;
                self.open(number, &[head, body].concat(), tag)?;
                Some(body.to_vec())
            }
            Protect::Clear => {
                let (body, tag) = behind.split_last_chunk::<8>()?;
                (self.header_tag(head) == *tag).then(|| body.to_vec())
            }
        }
    }

    /// SipHash-2-4, as in 4.3.
    pub fn header_tag(&self, head: &[u8]) -> [u8; 8] {
        let mut hasher = SipHasher24::new_with_key(&self.header_key);
        hasher.write(head);
        hasher.finish().to_le_bytes()
    }
}
