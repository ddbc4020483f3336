//! Marching cubes (Lorensen and Cline, 1987). The table of cases is derived, not written down.

/// A plane of a volume.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    edge: usize,
    pub(super) values: Vec<f32>,
}

impl Slice {
    pub(super) fn new(edge: usize) -> Self {
        Self { edge, values: vec![0.0; edge * edge] }
    }
}

/// For each of the 256 ways in which the corners of a cube can lie inside or outside: triangles, as
/// edges of the cube that their corners lie on.
#[derive(Clone, Debug)]
pub(super) struct Cubes {
    cases: Vec<Vec<[u8; 3]>>,
}

impl Cubes {
    pub(super) fn new() -> Self {
        Self { cases: (0..=255).map(triangles).collect() }
    }

    /// Adds the triangles of the surface at `level` between two planes, the lower one at `z`.
    pub(super) fn extract(
        &self,
        lower: &Slice,
        upper: &Slice,
        z: f32,
        level: f32,
        out: &mut Vec<[[f32; 3]; 3]>,
    ) {
        let edge = lower.edge;
        for y in 0..edge - 1 {
            for x in 0..edge - 1 {
                let at = y * edge + x;
                let values: [f32; 8] = std::array::from_fn(|corner| {
                    let plane = if corner & 4 == 0 { lower } else { upper };
                    plane.values[at + (corner & 1) + (corner >> 1 & 1) * edge]
                });
                let inside = (0..8).filter(|&corner| values[corner] > level);
                let case = inside.fold(0, |case, corner| case | 1 << corner);
                for triangle in &self.cases[case] {
                    out.push(triangle.map(|edge| {
                        let [a, b] = EDGES[usize::from(edge)];
                        let part = (level - values[a]) / (values[b] - values[a]);
                        let axis = (a ^ b).trailing_zeros() as usize;
                        let mut point = [
                            x as f32 + (a & 1) as f32,
                            y as f32 + (a >> 1 & 1) as f32,
                            z + (a >> 2) as f32,
                        ];
                        point[axis] += part;
                        point
                    }));
                }
            }
        }
    }
}

/// The surface within a cube meets each face in segments. Around a face, counter-clockwise seen from
/// outside, one begins where the way enters a run of inside corners and ends where it leaves it; so
/// on faces where two ways are possible neighbours agree. An edge is entered on one of its faces and
/// left on the other, so segments join to loops, and loops are filled with triangles.
fn triangles(case: usize) -> Vec<[u8; 3]> {
    let is_inside = |corner: usize| case >> corner & 1 == 1;
    let mut next: [Option<u8>; 12] = [None; 12];
    for face in FACES {
        for start in 0..4 {
            if is_inside(face[start]) || !is_inside(face[(start + 1) % 4]) {
                continue;
            }
            let mut end = start + 1;
            while is_inside(face[(end + 1) % 4]) {
                end += 1;
            }
            let entered = edge_between(face[start], face[(start + 1) % 4]);
            let left = edge_between(face[end % 4], face[(end + 1) % 4]);
            next[usize::from(entered)] = Some(left);
        }
    }
    let mut triangles = Vec::new();
    for first in 0..12 {
        let mut corners = Vec::new();
        let mut at = first;
        while let Some(after) = next[at].take() {
            corners.push(at as u8);
            at = usize::from(after);
        }
        for index in 1..corners.len().saturating_sub(1) {
            triangles.push([corners[0], corners[index], corners[index + 1]]);
        }
    }
    triangles
}

fn edge_between(a: usize, b: usize) -> u8 {
    let ends = [a.min(b), a.max(b)];
    let edge = EDGES.iter().position(|edge| *edge == ends);
    edge.expect("neighbours around a face have an edge") as u8
}

/// Corners are numbered by their coordinates: x + 2 y + 4 z.
const EDGES: [[usize; 2]; 12] = [
    [0, 1],
    [2, 3],
    [4, 5],
    [6, 7],
    [0, 2],
    [1, 3],
    [4, 6],
    [5, 7],
    [0, 4],
    [1, 5],
    [2, 6],
    [3, 7],
];
/// Counter-clockwise, seen from outside.
const FACES: [[usize; 4]; 6] =
    [[0, 2, 3, 1], [4, 5, 7, 6], [0, 1, 5, 4], [2, 6, 7, 3], [0, 4, 6, 2], [1, 3, 7, 5]];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// All triangles of a volume given as a function.
    fn surface(
        edge: usize,
        level: f32,
        value: impl Fn(usize, usize, usize) -> f32,
    ) -> Vec<[[f32; 3]; 3]> {
        let slice = |z| {
            let mut slice = Slice::new(edge);
            for y in 0..edge {
                for x in 0..edge {
                    slice.values[y * edge + x] = value(x, y, z);
                }
            }
            slice
        };
        let mut out = Vec::new();
        let cubes = Cubes::new();
        for z in 0..edge - 1 {
            cubes.extract(&slice(z), &slice(z + 1), z as f32, level, &mut out);
        }
        out
    }

    /// Each edge of each triangle is that of exactly one other, in the other direction.
    fn is_closed(triangles: &[[[f32; 3]; 3]]) -> bool {
        let key = |point: [f32; 3]| point.map(f32::to_bits);
        let mut balance = BTreeMap::new();
        for triangle in triangles {
            for side in 0..3 {
                let (a, b) = (key(triangle[side]), key(triangle[(side + 1) % 3]));
                let (ends, sign) = if a < b { ((a, b), 1) } else { ((b, a), -1) };
                *balance.entry(ends).or_insert(0) += sign;
            }
        }
        balance.values().all(|count| *count == 0)
    }

    #[test]
    fn a_sphere_has_its_area() {
        let (edge, centre, radius) = (41, 20.0, 15.3);
        let triangles = surface(edge, 0.0, |x, y, z| {
            let square = |at: usize| (at as f32 - centre) * (at as f32 - centre);
            radius - (square(x) + square(y) + square(z)).sqrt()
        });
        let area: f32 = triangles
            .iter()
            .map(|[a, b, c]| {
                let u: [f32; 3] = std::array::from_fn(|axis| b[axis] - a[axis]);
                let v: [f32; 3] = std::array::from_fn(|axis| c[axis] - a[axis]);
                let cross = [
                    u[1] * v[2] - u[2] * v[1],
                    u[2] * v[0] - u[0] * v[2],
                    u[0] * v[1] - u[1] * v[0],
                ];
                cross.iter().map(|part| part * part).sum::<f32>().sqrt() / 2.0
            })
            .sum();
        let expected = 4.0 * std::f32::consts::PI * radius * radius;
        assert!((area / expected - 1.0).abs() < 0.01, "{area} {expected}");
        assert!(is_closed(&triangles));
    }

    #[test]
    fn surfaces_of_noise_are_closed() {
        // Noise meets every case; the outermost layer is outside.
        let mut state = 7u64;
        let edge = 24;
        let noise: Vec<f32> = (0..edge * edge * edge)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 40) as f32 / (1u64 << 24) as f32
            })
            .collect();
        let triangles = surface(edge, 0.5, |x, y, z| {
            let border = [x, y, z].iter().any(|at| *at == 0 || *at == edge - 1);
            if border { 0.0 } else { noise[(z * edge + y) * edge + x] }
        });
        assert!(triangles.len() > 10_000 && is_closed(&triangles));
    }

    #[test]
    fn known_cases() {
        let count = |case: usize| triangles(case).len();
        assert_eq!((count(0), count(255)), (0, 0));
        for corner in 0..8 {
            assert_eq!((count(1 << corner), count(255 ^ (1 << corner))), (1, 1));
        }
        // A face is a square.
        assert_eq!(count(0b0000_1111), 2);
    }
}
