//! Isosurface extraction, the visualisation load of the RAPID paper (section 3.2): reading, computing
//! and writing take turns.

mod cubes;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use self::cubes::{Cubes, Slice};
use super::{Going, Load};

/// Extracts surfaces at changing levels from a volume in a file, slice by slice, and writes the
/// triangles to another, until it is stopped. Both files have no name and end with the thread.
pub(super) fn run(load: &Load, going: &mut Going<'_>) -> io::Result<u64> {
    let edge = ((load.bytes() / 4) as f64).cbrt() as usize;
    let edge = edge.clamp(EDGE_MIN, EDGE_MAX);
    let folder = load.folder();
    let scratch = || {
        tempfile::tempfile_in(&folder)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))
    };
    let (volume, mut surface) = (scratch()?, scratch()?);
    generate(&volume, edge, going)?;
    let cubes = Cubes::new();
    let (mut lower, mut upper) = (Slice::new(edge), Slice::new(edge));
    let mut triangles = Vec::new();
    let mut rounds = 0;
    while going.on() {
        let level = LEVELS[rounds as usize % LEVELS.len()];
        surface.set_len(0)?;
        io::Seek::rewind(&mut surface)?;
        read(&volume, &mut lower, 0)?;
        for z in 1..edge {
            if !going.on() {
                return Ok(rounds);
            }
            read(&volume, &mut upper, z)?;
            cubes.extract(&lower, &upper, z as f32 - 1.0, level, &mut triangles);
            std::mem::swap(&mut lower, &mut upper);
            if triangles.len() > BATCH {
                write(&mut surface, &mut triangles)?;
            }
        }
        write(&mut surface, &mut triangles)?;
        surface.sync_data()?;
        rounds += 1;
    }
    Ok(rounds)
}

/// A gyroid, whose surfaces fill the volume: sin x cos y + sin y cos z + sin z cos x.
fn generate(file: &File, edge: usize, going: &mut Going<'_>) -> io::Result<()> {
    let angle = |index: usize| index as f32 * (WAVES * std::f32::consts::TAU / edge as f32);
    let sin: Vec<f32> = (0..edge).map(|index| angle(index).sin()).collect();
    let cos: Vec<f32> = (0..edge).map(|index| angle(index).cos()).collect();
    let mut bytes = Vec::with_capacity(edge * edge * 4);
    for z in 0..edge {
        if !going.on() {
            break;
        }
        bytes.clear();
        for y in 0..edge {
            for x in 0..edge {
                let value = sin[x] * cos[y] + sin[y] * cos[z] + sin[z] * cos[x];
                bytes.extend(value.to_ne_bytes());
            }
        }
        file.write_all_at(&bytes, (z * edge * edge * 4) as u64)?;
    }
    Ok(())
}

fn read(file: &File, slice: &mut Slice, z: usize) -> io::Result<()> {
    let size = slice.values.len() * 4;
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, (z * size) as u64)?;
    for (value, bytes) in slice.values.iter_mut().zip(bytes.chunks_exact(4)) {
        *value = f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    Ok(())
}

fn write(file: &mut File, triangles: &mut Vec<[[f32; 3]; 3]>) -> io::Result<()> {
    let numbers = triangles.drain(..).flatten().flatten();
    let bytes: Vec<u8> = numbers.flat_map(f32::to_ne_bytes).collect();
    file.write_all(&bytes)
}

const EDGE_MIN: usize = 16;
/// 4 GiB.
const EDGE_MAX: usize = 1024;
const WAVES: f32 = 4.0;
const LEVELS: [f32; 4] = [0.0, 0.4, -0.4, 0.8];
/// Triangles held before they are written, some megabytes.
const BATCH: usize = 100_000;
