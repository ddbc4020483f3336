//! One core at what a copy is made of: cryptography, hashing, reading and writing files, out of a
//! memory larger than the caches.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use aws_lc_rs::aead::{
    AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use longhaul_sys::siphash::{HEADER, HeaderMac, TAG};

use crate::copies::{self, Files};
use crate::samples::Speed;

/// Adds one sample to each speed.
pub(crate) fn measure(quick: bool, files: &Files, speeds: &mut Vec<Speed>) -> io::Result<()> {
    let rounds = if quick { 1 } else { 4 };
    let source = vec![0x5a; MEMORY];
    let mut target = vec![1; MEMORY + MEMORY / PACKET * AEAD_TAG + AEAD_TAG];
    for (algorithm, seal, open) in [
        (&AES_128_GCM, SEAL, OPEN),
        (&CHACHA20_POLY1305, "ChaCha20-Poly1305 seal", "ChaCha20-Poly1305 open"),
    ] {
        if let Some([sealed, opened]) = aead(algorithm, &source, &mut target, rounds) {
            add(speeds, seal, "GB/s", sealed / 1e9);
            add(speeds, open, "GB/s", opened / 1e9);
        }
    }
    let hashed = per_second(rounds * MEMORY, || {
        for _ in 0..rounds {
            for piece in source.chunks(PIECE) {
                black_box(blake3::hash(piece));
            }
        }
    });
    add(speeds, HASH, "GB/s", hashed / 1e9);
    files.read(MEMORY)?;
    let mut outcome = Ok(());
    let read = per_second(MEMORY, || outcome = files.read(MEMORY));
    outcome?;
    add(speeds, READ, "GB/s", read / 1e9);
    let target = files.target()?;
    let mut outcome = Ok(());
    let written = per_second(MEMORY, || outcome = copies::write(target.path(), &source));
    outcome?;
    add(speeds, WRITE, "GB/s", written / 1e9);
    let mac = HeaderMac::new([3; 16]);
    let headers = vec![[7; HEADER]; HEADERS];
    let mut tags = vec![[0; TAG]; HEADERS];
    let count = 2000 * rounds;
    let tagged = per_second(count * HEADERS, || {
        for _ in 0..count {
            mac.tags(black_box(&headers), &mut tags);
            black_box(&tags);
        }
    });
    add(speeds, "header tags (SipHash-2-4)", "million/s", tagged / 1e6);
    Ok(())
}

/// CPU-seconds per 10^9 bytes that the parts of `cp aead` take alone, both ends together, beside
/// the network's: encrypting and decrypting, hashing twice, reading and writing files. `None`
/// where one was not measured.
pub(crate) fn parts_of_copy(speeds: &[Speed]) -> Option<f64> {
    [SEAL, OPEN, HASH, HASH, READ, WRITE]
        .iter()
        .map(|name| Some(1.0 / speeds.iter().find(|speed| speed.name == *name)?.median()))
        .sum()
}

/// Bytes a second that are sealed, and opened again. `None`: not on this machine.
fn aead(
    algorithm: &'static Algorithm,
    source: &[u8],
    target: &mut [u8],
    rounds: usize,
) -> Option<[f64; 2]> {
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &[9; 32][..algorithm.key_len()]).ok()?);
    let nonce = |number: usize| {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&(number as u64).to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    };
    let bytes = rounds * (source.len() / PACKET) * PACKET;
    let mut fine = true;
    let sealed = per_second(bytes, || {
        for round in 0..rounds {
            let packets =
                source.chunks_exact(PACKET).zip(target.chunks_exact_mut(PACKET + AEAD_TAG));
            for (number, (from, to)) in packets.enumerate() {
                let (body, tag) = to.split_at_mut(PACKET);
                let nonce = nonce(round << 32 | number);
                fine &= key
                    .seal_out_of_place_scatter(nonce, Aad::from([0; HEADER]), from, body, &[], tag)
                    .is_ok();
            }
        }
    });
    let mut opened = vec![1; source.len()];
    let open = per_second(bytes, || {
        for _ in 0..rounds {
            let packets =
                target.chunks_exact(PACKET + AEAD_TAG).zip(opened.chunks_exact_mut(PACKET));
            for (number, (from, to)) in packets.enumerate() {
                let (body, tag) = from.split_at(PACKET);
                // The last round's packets are those that are left.
                let nonce = nonce((rounds - 1) << 32 | number);
                fine &=
                    key.open_separate_gather(nonce, Aad::from([0; HEADER]), body, tag, to).is_ok();
            }
        }
    });
    fine.then_some([sealed, open])
}

fn per_second(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    count as f64 / start.elapsed().as_secs_f64()
}

fn add(speeds: &mut Vec<Speed>, name: &'static str, unit: &'static str, value: f64) {
    match speeds.iter_mut().find(|speed| speed.name == name) {
        Some(speed) => speed.samples.push(value),
        None => speeds.push(Speed { name, unit, samples: vec![value] }),
    }
}

const SEAL: &str = "AES-128-GCM seal, 1408-byte packets";
const OPEN: &str = "AES-128-GCM open";
const HASH: &str = "BLAKE3, 64 KiB pieces";
const READ: &str = "reading a file in memory, 1 MiB pieces";
const WRITE: &str = "writing one";
const MEMORY: usize = 128 << 20;
const PACKET: usize = 1408;
const AEAD_TAG: usize = 16;
const PIECE: usize = 64 << 10;
/// A batch of one receive call.
const HEADERS: usize = 44;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_copy_is_measured() {
        let files = Files::new(true).unwrap();
        let mut speeds = Vec::new();
        measure(true, &files, &mut speeds).unwrap();
        let mut names: Vec<_> = speeds.iter().map(|speed| speed.name).collect();
        assert!(parts_of_copy(&speeds).is_some_and(|parts| parts > 0.0), "{names:?}");
        names.dedup();
        assert_eq!(names.len(), speeds.len());
        speeds.retain(|speed| speed.name != WRITE);
        assert_eq!(parts_of_copy(&speeds), None);
    }
}
