//! A linear layer on the NPU, from the host's side: weights packed once, activations packed at every
//! call, results unpacked and rescaled.
//!
//! ```text
//! f32 weights [n, k] ─ rotate ─ quantise per row ─ pack ─► b (static)
//! f32 rows    [m, k] ─ rotate ─ quantise per row ─ pack ─► a (input)   ─ NPU ─► c ─ add parts ─ rescale ─► f32 [m, n]
//! ```
//!
//! The weights' place depends on (n, k) and the [`WeightSplit`] alone; [`LayerLinear::program`] gives the
//! program for any number of rows over the same `b`.

use crate::layout::SizeError;
use crate::machine::Machine;
use crate::matmul::{MatmulKind, Precision};
use crate::profile::Profile;
use crate::program::{BuildError, Program};
use crate::quantise::{Rotation, quantise_row, rescale};
use crate::tiling::{Grid, Matmul, TilingChoice, TilingError, WeightSplit, choose, choose_weights};
use half::{bf16, f16};
use millrace_kernels::Pool;

/// A scale.
const SCALE_BYTES: usize = size_of::<f32>();

/// Split of a layer's weights, and how operands are prepared.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerLinear {
    kind: MatmulKind,
    n: u32,
    k: u32,
    split: WeightSplit,
    rotation: Rotation,
}

/// Scales of packed activations of one call, for rescaling `c`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowScales(pub Vec<f32>);

/// Scales of weights, one a row; 1 for types that need none.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightScales(pub Vec<f32>);

impl LayerLinear {
    /// A layer of n × k weights, in the cheapest cut for passes of `m` rows, over so many workers.
    ///
    /// # Errors
    /// Where no way to cut it fits.
    pub fn new(
        kind: MatmulKind,
        [m, n, k]: [u32; 3],
        workers: u32,
        rotation: Rotation,
        machine: &Machine,
        profile: &Profile,
    ) -> Result<LayerLinear, TilingError> {
        let (split, _) = choose_weights(Matmul { kind, m, n, k }, workers, machine, profile)?;
        Ok(LayerLinear {
            kind,
            n,
            k,
            split,
            rotation,
        })
    }

    /// The layer with that split of its weights.
    pub(crate) fn with_split(
        kind: MatmulKind,
        [n, k]: [u32; 2],
        split: WeightSplit,
        rotation: Rotation,
    ) -> LayerLinear {
        LayerLinear {
            kind,
            n,
            k,
            split,
            rotation,
        }
    }

    /// Operand and result types.
    pub fn kind(&self) -> MatmulKind {
        self.kind
    }

    /// How the weights are cut.
    pub fn split(&self) -> WeightSplit {
        self.split
    }

    /// Bytes that the packed weights take, padding included.
    ///
    /// # Errors
    /// Where they do not fit the NPU's addresses.
    pub fn weight_bytes(&self, machine: &Machine, profile: &Profile) -> Result<u64, TilingError> {
        let chosen = self.choose(1, machine, profile)?;
        Ok(Grid::new(self.shape(1), chosen.tiling, machine)?.b_bytes())
    }

    /// The best way to cut a pass of m rows over these weights.
    ///
    /// # Errors
    /// Where none fits.
    pub fn choose(
        &self,
        m: u32,
        machine: &Machine,
        profile: &Profile,
    ) -> Result<TilingChoice, TilingError> {
        choose(self.shape(m), self.split, machine, profile)
    }

    /// The program of a pass of m rows.
    ///
    /// # Errors
    /// Where no way to cut it fits.
    pub fn program(
        &self,
        name: &str,
        m: u32,
        machine: &Machine,
        profile: &Profile,
    ) -> Result<Program, BuildError> {
        let chosen = self.choose(m, machine, profile)?;
        Program::build(name, self.shape(m), chosen.tiling, machine)
    }

    fn shape(&self, m: u32) -> Matmul {
        Matmul {
            kind: self.kind,
            m,
            n: self.n,
            k: self.k,
        }
    }

    /// Packs weights into the whole buffer `b` of any program of this layer. `rows(n, row)` fills row n of the weights,
    /// k elements, as f32: from a file's blocks, say. A thread packs each worker's rows and holds one row at a time.
    ///
    /// # Errors
    /// Where the buffer has another size.
    pub fn pack_weights(
        &self,
        grid: &Grid,
        rows: impl Fn(u32, &mut [f32]) + Sync,
        b: &mut [u8],
    ) -> Result<WeightScales, SizeError> {
        if b.len() as u64 != grid.b_bytes() {
            return Err(SizeError {
                what: "b, packed",
                expected: grid.b_bytes(),
                found: b.len() as u64,
            });
        }
        let mut scales = vec![0.0; self.n as usize];
        std::thread::scope(|scope| {
            let (mut b, mut scales) = (b, scales.as_mut_slice());
            for (worker, cols) in grid.workers.iter().enumerate() {
                let n_rows: u32 = cols.iter().map(|span| span.len).sum();
                let bytes = grid.b_worker(worker);
                let (part, rest) = b.split_at_mut((bytes.end - bytes.start) as usize);
                let (own, others) = scales.split_at_mut(n_rows as usize);
                (b, scales) = (rest, others);
                let first = cols.first().map_or(0, |span| span.start);
                let rows = &rows;
                scope.spawn(move || {
                    part.fill(0);
                    let mut row = vec![0.0; self.k as usize];
                    let mut packed = Vec::new();
                    for (n, scale) in (first..).zip(own) {
                        rows(n, &mut row);
                        *scale = self.encode(&mut row, &mut packed);
                        grid.put_b_row(worker, n, &packed, part);
                    }
                });
            }
        });
        Ok(WeightScales(scales))
    }

    /// Packs rows of activations [m, k] into the whole buffer `a`, on the threads of the pool.
    ///
    /// # Errors
    /// Where a size is wrong.
    pub fn pack_rows(
        &self,
        pool: &Pool,
        grid: &Grid,
        rows: &[f32],
        a: &mut [u8],
    ) -> Result<RowScales, SizeError> {
        let expected = grid.shape.m as usize * self.k as usize;
        if rows.len() != expected {
            return Err(SizeError {
                what: "activations",
                expected: expected as u64,
                found: rows.len() as u64,
            });
        }
        let (m, k) = (grid.shape.m as usize, self.k as usize);
        // Each row with its scale behind it.
        let row_bytes = grid.input_row_bytes();
        let mut encoded = vec![0; m * (row_bytes + SCALE_BYTES)];
        pool.run_pieces(&mut encoded, row_bytes + SCALE_BYTES, &|row, out| {
            let mut scratch = rows[row * k..(row + 1) * k].to_vec();
            let mut packed = Vec::with_capacity(row_bytes);
            let scale = self.encode(&mut scratch, &mut packed);
            let (bytes, end) = out.split_at_mut(row_bytes);
            bytes.copy_from_slice(&packed);
            end.copy_from_slice(&scale.to_le_bytes());
        });
        let mut bytes = Vec::with_capacity(m * row_bytes);
        let mut scales = Vec::with_capacity(m);
        for row in encoded.chunks_exact(row_bytes + SCALE_BYTES) {
            bytes.extend_from_slice(&row[..row_bytes]);
            let scale = row[row_bytes..].first_chunk().copied().unwrap_or_default();
            scales.push(f32::from_le_bytes(scale));
        }
        grid.pack_a(&bytes, a)?;
        Ok(RowScales(scales))
    }

    /// Rotates a row in place and writes it in the operands' type; gives its scale.
    fn encode(&self, row: &mut [f32], out: &mut Vec<u8>) -> f32 {
        self.rotation.apply(row);
        out.clear();
        match self.kind.input() {
            Precision::Int8 => {
                let mut values = vec![0i8; row.len()];
                let scale = quantise_row(row, &mut values);
                out.extend(values.iter().map(|value| *value as u8));
                scale
            }
            Precision::Int4 => {
                // An eighth of the 8-bit range: -7 to 7, whose sums stay within the results' 16 bits.
                let largest = row.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
                let scale = if largest > 0.0 { largest / 7.0 } else { 1.0 };
                let value =
                    |x: &f32| (x / scale).round_ties_even().clamp(-7.0, 7.0) as i8 as u8 & 15;
                out.extend(
                    row.chunks(2)
                        .map(|pair| value(&pair[0]) | pair.get(1).map_or(0, value) << 4),
                );
                scale
            }
            Precision::Bf16 => {
                out.extend(row.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()));
                1.0
            }
            _ => {
                out.extend(row.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()));
                1.0
            }
        }
    }

    /// Results [m, n] from the whole buffer `c`: parts added (exactly where they are integers), then
    /// rescaled.
    ///
    /// # Errors
    /// Where a size is wrong.
    pub fn unpack(
        &self,
        grid: &Grid,
        c: &[u8],
        rows: &[f32],
        weights: &[f32],
        out: &mut [f32],
    ) -> Result<(), SizeError> {
        if rows.len() * weights.len() != out.len() {
            return Err(SizeError {
                what: "scales of rows and weights",
                expected: out.len() as u64,
                found: (rows.len() * weights.len()) as u64,
            });
        }
        if self.kind.output() == Precision::Int32 {
            let mut sums = vec![0; out.len()];
            grid.sum_i32(c, &mut sums)?;
            rescale(&sums, rows, weights, out);
            return Ok(());
        }
        grid.sum_f32(c, out)?;
        let n = weights.len().max(1);
        for (out, a_scale) in out.chunks_exact_mut(n).zip(rows) {
            for (out, w_scale) in out.iter_mut().zip(weights) {
                *out *= a_scale * w_scale;
            }
        }
        Ok(())
    }
}
