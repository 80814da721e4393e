//! Products with matrices that each token chooses. Tokens are gathered by matrix, and one parallel region
//! computes all of them, so that threads share the work whatever the choices.

use super::activations::{ActivationView, Activations, row_bytes};
use super::driver::run_jobs;
use super::job::{JobOperands, MatmulJob};
use super::panel::{GROUP_ROWS, Input};
use super::{Precision, WeightMatrix};
use crate::cpu::Cpu;
use crate::pool::DisjointMut;
use crate::table::{self, MatmulKernel};
use std::ops::Range;

/// A row of x that a matrix multiplies, and the row of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowUse {
    /// Row of x.
    pub x_row: usize,
    /// Row of the result; no other use has the same.
    pub out_row: usize,
}

/// Products of chosen matrices, all `[n, k]`.
#[derive(Debug)]
pub struct ChosenProduct<'a> {
    /// By matrix that is used: the matrix, and its bias `[n]`, added once the sum is complete.
    pub matrices: Vec<(WeightMatrix<'a>, Option<&'a [f32]>)>,
    /// Rows of `n` f32; those of uses are overwritten.
    pub out: &'a mut [f32],
}

/// Rows gathered by matrix, in the forms that kernels multiply; reused from call to call.
#[derive(Default)]
pub struct GatherScratch {
    /// In the order of uses, by form.
    rows: [super::scratch::AlignedBytes; N_FORMS],
    jobs: JobMemory,
    /// By row of a result, whether a use writes it.
    is_taken: Vec<bool>,
}

/// The memory of a list of jobs, which is empty between calls.
#[derive(Default)]
struct JobMemory(Vec<Option<MatmulJob<'static>>>);

// SAFETY: only `matmul_chosen` puts jobs in, and takes them out before it returns: nothing that jobs point to is sent.
unsafe impl Send for JobMemory {}

/// Forms that rows are converted to.
const N_FORMS: usize = 4;

/// Multiplies rows of `x: [m, k]` with the matrices that use them. Use `i` of `uses` belongs to the matrix whose
/// range of `by_matrix` holds `i`. Every product has a matrix for each range, in the same order.
///
/// A row's result depends only on that row and its matrix: it has the same bits as from [`matmul`](super::matmul).
///
/// # Panics
/// If ranges do not cover `uses` in order, a row is outside x or a result, x is not rows of `k`, or a format is stored in
/// tiles of several rows.
pub fn matmul_chosen(
    cpu: &Cpu,
    x: &[f32],
    scratch: &mut Activations,
    gathered: &mut GatherScratch,
    (uses, by_matrix): (&[RowUse], &[Range<usize>]),
    products: &mut [ChosenProduct<'_>],
) {
    let Some(k) = check(x, (uses, by_matrix), products, &mut gathered.is_taken) else {
        return;
    };
    let exact = scratch.precision() == Precision::Exact;
    let pick = |weight: &WeightMatrix<'_>, m| table::pick(weight.dtype, cpu.level(), m, exact);
    let mut forms = [None; N_FORMS];
    for product in products.iter() {
        for ((weight, _), uses) in product.matrices.iter().zip(by_matrix) {
            let form = pick(weight, uses.len()).layout.input();
            forms[form as usize] = Some(form);
        }
    }
    let single = by_matrix.iter().all(|uses| uses.len() == 1);
    for form in forms.into_iter().flatten() {
        scratch.prepare(cpu, x, k, form);
        if !single {
            gathered.gather(cpu, scratch.view(x, k, form), (k, form), uses);
        }
    }
    let mut jobs = recycle(std::mem::take(&mut gathered.jobs.0));
    let mut n_groups = 0;
    for product in products {
        let out = DisjointMut::new(&mut *product.out);
        for ((weight, bias), range) in product.matrices.iter().zip(by_matrix) {
            let kernel: &'static MatmulKernel = pick(weight, range.len());
            let form = kernel.layout.input();
            let x = match single {
                true => scratch.view(x, k, form).row(uses[range.start].x_row),
                false => gathered.view(k, form).row(range.start),
            };
            let operands = JobOperands {
                weight: *weight,
                bias: *bias,
                out: out.share(),
                out_rows: Some(&uses[range.clone()]),
                x,
                m: range.len(),
            };
            jobs.push(Some(MatmulJob::new(kernel, operands, n_groups)));
            n_groups += weight.n.div_ceil(GROUP_ROWS);
        }
    }
    run_jobs(cpu, &jobs, n_groups, uses.len() / by_matrix.len());
    gathered.jobs.0 = recycle(jobs);
}

/// Reuses the memory of a list for elements of another lifetime (`To` is `From` except for that). Collecting from a vector's
/// own iterator reuses its memory, though the library does not promise it; the runtime's `tests/allocation.rs` watches.
fn recycle<From, To>(mut list: Vec<From>) -> Vec<To> {
    list.clear();
    list.into_iter()
        .map(|_| unreachable!("the list is empty"))
        .collect()
}

/// Checks the conditions that the unsafe code below relies on. Returns the columns, or nothing if there is nothing to do.
fn check(
    x: &[f32],
    (uses, by_matrix): (&[RowUse], &[Range<usize>]),
    products: &[ChosenProduct<'_>],
    is_taken: &mut Vec<bool>,
) -> Option<usize> {
    let mut end = 0;
    for range in by_matrix {
        assert!(range.start == end && range.end > end, "uses in order");
        end = range.end;
    }
    assert_eq!(end, uses.len(), "every use is of a matrix");
    let (first, _) = products.first()?.matrices.first()?;
    let k = first.k;
    assert!(k > 0 && x.len().is_multiple_of(k), "x is rows of {k}");
    for product in products {
        assert_eq!(product.matrices.len(), by_matrix.len(), "a matrix a range");
        let n = product.matrices[0].0.n;
        for (weight, bias) in &product.matrices {
            assert_eq!((weight.n, weight.k), (n, k), "matrices of one shape");
            assert!(weight.dtype.block_rows() == 1, "a format of tiles");
            assert!(bias.is_none_or(|bias| bias.len() == n), "bias is [{n}]");
        }
        let n_rows = product.out.len() / n.max(1);
        is_taken.clear();
        is_taken.resize(n_rows, false);
        for row in uses {
            assert!(row.x_row < x.len() / k, "row {} of x", row.x_row);
            let taken = is_taken.get_mut(row.out_row);
            let taken = taken.unwrap_or_else(|| panic!("row {} of {n_rows}", row.out_row));
            assert!(!std::mem::replace(taken, true), "row {} twice", row.out_row);
        }
    }
    Some(k)
}

impl GatherScratch {
    /// Copies converted rows in the order of uses.
    fn gather(
        &mut self,
        cpu: &Cpu,
        from: ActivationView,
        (k, form): (usize, Input),
        uses: &[RowUse],
    ) {
        let stride = row_stride(k, form);
        // The last of f32 rows has no padding after it.
        let len = match form {
            Input::F32 => k * size_of::<f32>(),
            _ => stride,
        };
        let rows = self.rows[form as usize].at_least(uses.len() * stride);
        let from = SharedView(from);
        cpu.pool()
            .run_pieces(&mut rows[..uses.len() * stride], stride, &|index, row| {
                // SAFETY: `check` saw that x has the row, and its view has a converted row for it.
                let source =
                    unsafe { std::slice::from_raw_parts(from.row(uses[index].x_row), len) };
                row[..len].copy_from_slice(source);
            });
    }

    fn view(&self, k: usize, form: Input) -> ActivationView {
        ActivationView {
            start: self.rows[form as usize].as_ptr(),
            stride: row_stride(k, form),
        }
    }
}

/// A view that threads read together.
struct SharedView(ActivationView);

// SAFETY: the data it points to is only read while it lives.
unsafe impl Sync for SharedView {}

impl SharedView {
    fn row(&self, index: usize) -> *const u8 {
        self.0.row(index).start
    }
}

/// Bytes from a gathered row to the next.
fn row_stride(k: usize, form: Input) -> usize {
    match form {
        Input::F32 => k * size_of::<f32>(),
        _ => row_bytes(form, k),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuOptions;
    use crate::level::Level;
    use crate::matmul::{Multiplication, matmul};
    use millrace_quant::{DType, encode_matrix};

    fn numbers(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    /// Every format and level, tokens alone and together: the bits of a plain product of that row.
    #[test]
    fn chosen_rows_have_the_bits_of_plain_products() {
        let (n, k, n_experts) = (70, 512, 5);
        let cpus = Level::supported().into_iter().map(|level| {
            let options = CpuOptions {
                n_threads: Some(2),
                level: Some(level),
            };
            Cpu::new(options).expect("a level of this processor")
        });
        let cpus: Vec<Cpu> = cpus.collect();
        for dtype in DType::all().filter(|d| d.block_rows() == 1 && !d.is_for_activations()) {
            let matrix = |expert: u32| {
                let numbers = numbers(n * k, 7 + expert);
                let mut bytes = vec![0; dtype.size_bytes(n, k).expect("whole blocks")];
                // A format that cannot be written: any bytes are numbers in it.
                if encode_matrix(dtype, &numbers, n, k, &mut bytes).is_err() {
                    bytes.fill(0x11);
                }
                bytes
            };
            let matrices: Vec<Vec<u8>> = (0..n_experts).map(matrix).collect();
            for cpu in &cpus {
                for m in [1, 3, 40] {
                    same_bits(cpu, (dtype, n, k), &matrices, m);
                }
            }
        }
    }

    fn same_bits(cpu: &Cpu, (dtype, n, k): (DType, usize, usize), matrices: &[Vec<u8>], m: usize) {
        let x = numbers(m * k, 99);
        let bias = numbers(n, 5);
        let matrix =
            |expert: usize| WeightMatrix::new(dtype, n, k, &matrices[expert]).expect("a matrix");
        // Two experts a row; no row uses the last expert.
        let chosen = |row: usize| [row % 3, 3 - row % 2 * 3 + row % 2 * ((row + 1) % 3)];
        let mut uses: Vec<(usize, RowUse)> = Vec::new();
        for row in 0..m {
            for (rank, expert) in chosen(row).into_iter().enumerate() {
                let out_row = row * 2 + rank;
                uses.push((
                    expert,
                    RowUse {
                        x_row: row,
                        out_row,
                    },
                ));
            }
        }
        uses.sort_by_key(|(expert, _)| *expert);
        let mut by_matrix: Vec<Range<usize>> = Vec::new();
        let mut used = Vec::new();
        for (i, (expert, _)) in uses.iter().enumerate() {
            match by_matrix.last_mut() {
                Some(range) if used.last() == Some(expert) => range.end = i + 1,
                _ => {
                    used.push(*expert);
                    by_matrix.push(i..i + 1);
                }
            }
        }
        let rows: Vec<RowUse> = uses.iter().map(|(_, row)| *row).collect();
        let (mut first, mut second) = (vec![f32::NAN; 2 * m * n], vec![f32::NAN; 2 * m * n]);
        let product = |bias| used.iter().map(|expert| (matrix(*expert), bias)).collect();
        let mut products = [
            ChosenProduct {
                matrices: product(None),
                out: &mut first,
            },
            ChosenProduct {
                matrices: product(Some(&bias[..])),
                out: &mut second,
            },
        ];
        let mut scratch = Activations::default();
        let mut gathered = GatherScratch::default();
        matmul_chosen(
            cpu,
            &x,
            &mut scratch,
            &mut gathered,
            (&rows, &by_matrix),
            &mut products,
        );
        for (expert, row) in uses {
            let mut expected = vec![0.0; n];
            let x = &x[row.x_row * k..][..k];
            for (bias, found) in [(None, &first), (Some(&bias[..]), &second)] {
                let product = Multiplication {
                    weight: matrix(expert),
                    bias,
                    out: &mut expected,
                };
                matmul(cpu, x, 1, &mut scratch, &mut [product]);
                let found = &found[row.out_row * n..][..n];
                assert_eq!(
                    found,
                    expected,
                    "{} at {}, {m} tokens",
                    dtype.name(),
                    cpu.level()
                );
            }
        }
    }
}
