use crate::machine::Machine;
use crate::matmul::MatmulKind;
use crate::tiling::{Grid, Matmul, Order, Tiling};
use proptest::prelude::*;

/// A product with a tiling that is likely to fit.
pub(crate) fn any_grid() -> impl Strategy<Value = Grid> {
    let kind = (0..MatmulKind::ALL.len()).prop_map(|kind| MatmulKind::ALL[kind]);
    let dims = (1u32..70, 1u32..300, 1u32..300);
    let cut = (0u32..6, 1u32..6, 1u32..12, 1u32..5, any::<bool>());
    (kind, dims, cut).prop_filter_map("does not fit", |(kind, dims, cut)| {
        let (m, n, k) = dims;
        let (rows, cols, depth, workers, inner_rows) = cut;
        let whole = !kind.adds_parts(depth * 32);
        let tiling = Tiling {
            rows: if rows == 0 && m == 1 {
                1
            } else {
                (rows + 1) * 4
            },
            cols: cols * kind.n_group(),
            depth: if whole {
                k.next_multiple_of(32)
            } else {
                depth * 32
            },
            workers,
            order: if inner_rows {
                Order::Rows
            } else {
                Order::Columns
            },
            job_tasks: 3,
        };
        let shape = Matmul { kind, m, n, k };
        Grid::new(shape, tiling, &Machine::rk3588()).ok()
    })
}

proptest! {
    #[test]
    fn every_element_has_one_place(grid in any_grid()) {
        let shape = grid.shape;
        if shape.kind.input().bits() != 8 {
            return Ok(());
        }
        // Each element is its number: a packing that loses or doubles one gives other bytes.
        let byte = |i: usize| (i % 255 + 1) as u8;
        let (m, n, k) = (shape.m as usize, shape.n as usize, shape.k as usize);
        let a: Vec<u8> = (0..m * k).map(byte).collect();
        let mut packed = vec![7; grid.a_bytes() as usize];
        grid.pack_a(&a, &mut packed).unwrap();
        prop_assert_eq!(packed.iter().filter(|&&b| b != 0).count(), m * k);
        let b: Vec<u8> = (0..n * k).map(byte).collect();
        let mut packed_b = vec![7; grid.b_bytes() as usize];
        grid.pack_b(&b, &mut packed_b).unwrap();
        prop_assert_eq!(packed_b.iter().filter(|&&b| b != 0).count(), n * k);
        prop_assert_eq!(grid.read_a(&packed).unwrap(), &a[..]);
        prop_assert_eq!(grid.read_b(&packed_b).unwrap(), &b[..]);
        // The formulas of the open drivers, within one part.
        for (row_tile, rows) in grid.rows.iter().enumerate() {
            for (part, depth) in grid.parts.iter().enumerate() {
                let base = grid.a_range(row_tile, part).start as usize;
                for m in 0..rows.len as usize {
                    for k0 in 0..depth.len as usize {
                        let offset = (k0 / 16) * rows.padded as usize * 16 + m * 16 + k0 % 16;
                        let plain = (rows.start as usize + m) * k + depth.start as usize + k0;
                        prop_assert_eq!(packed[base + offset], a[plain]);
                    }
                }
            }
        }
        for (worker, cols) in grid.workers.iter().enumerate() {
            let first = cols.first().map_or(0, |c| c.start) as usize;
            for (part, depth) in grid.parts.iter().enumerate() {
                let base = grid.b_part(worker, part).start as usize;
                let k_part = depth.padded as usize;
                for n in cols.iter().flat_map(|c| c.start..c.start + c.len) {
                    let n0 = n as usize - first;
                    for k0 in 0..depth.len as usize {
                        let offset = (n0 / 32) * 32 * k_part + (k0 / 32) * 1024 + (n0 % 32) * 32 + k0 % 32;
                        let plain = n as usize * k + depth.start as usize + k0;
                        prop_assert_eq!(packed_b[base + offset], b[plain]);
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_cover_c_once_and_results_come_back(grid in any_grid()) {
        let mut seen = vec![0u8; grid.c_bytes() as usize];
        for worker in 0..grid.workers.len() {
            for tile in grid.tiles(worker) {
                let range = grid.c_range(tile);
                for byte in &mut seen[range.start as usize..range.end as usize] {
                    *byte += 1;
                }
            }
        }
        prop_assert!(seen.iter().all(|&times| times == 1));
        if grid.shape.kind != MatmulKind::Int8Int32 {
            return Ok(());
        }
        // C holds m * n + column at (row, column), in every part.
        let n = grid.shape.n as usize;
        let mut c = vec![0u8; grid.c_bytes() as usize];
        for worker in 0..grid.workers.len() {
            for tile in grid.tiles(worker) {
                let (rows, cols) = (&grid.rows[tile.row], &grid.workers[worker][tile.col]);
                let base = grid.c_range(tile).start as usize;
                for m in 0..rows.len as usize {
                    for col in 0..cols.len as usize {
                        let at = base + ((col / 4) * rows.padded as usize * 4 + m * 4 + col % 4) * 4;
                        let value = (rows.start as usize + m) * n + cols.start as usize + col;
                        c[at..at + 4].copy_from_slice(&(value as i32).to_le_bytes());
                    }
                }
            }
        }
        let mut out = vec![-1; grid.shape.m as usize * n];
        grid.sum_i32(&c, &mut out).unwrap();
        let parts = grid.parts.len();
        prop_assert!(out.iter().enumerate().all(|(i, &v)| v as usize == i * parts));
        let mut floats = vec![-1.0; out.len()];
        grid.sum_f32(&c, &mut floats).unwrap();
        prop_assert!(out.iter().zip(&floats).all(|(&i, &f)| i as f32 == f));
    }
}

/// Offsets that mtx512's index functions print, where the file is beside the workspace.
#[test]
fn offsets_are_those_of_the_samples() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/research/rk3588_golden/layout_index_samples.txt"
    );
    let Ok(text) = std::fs::read_to_string(path) else {
        eprintln!("skipped: the samples are not beside the workspace");
        return;
    };
    let mut n_checked = 0;
    for line in text.lines().filter(|l| l.starts_with("feature")) {
        let value = |key: &str| {
            let word = line.split_whitespace().find_map(|w| w.strip_prefix(key));
            word.unwrap().parse::<usize>().unwrap()
        };
        let (rows, atom) = (value("H="), value("C2="));
        let (k, m) = (value("c="), value("h="));
        // An atom has 16 bytes in every type, and `pack_a` moves atoms.
        assert_eq!(
            (k / atom) * rows * atom + m * atom + k % atom,
            value("off=")
        );
        n_checked += 1;
    }
    assert!(n_checked > 100);
}

#[test]
fn wrong_sizes_are_refused() {
    let shape = Matmul {
        kind: MatmulKind::Int8Int32,
        m: 4,
        n: 32,
        k: 64,
    };
    let tiling = Tiling {
        rows: 4,
        cols: 32,
        depth: 64,
        workers: 1,
        order: Order::Columns,
        job_tasks: 1,
    };
    let grid = Grid::new(shape, tiling, &Machine::rk3588()).unwrap();
    assert!(grid.pack_a(&[0; 255], &mut [0; 256]).is_err());
    assert!(grid.pack_a(&[0; 256], &mut [0; 255]).is_err());
    assert!(grid.pack_b_row(32, &[0; 64], &mut [0; 2048]).is_err());
    assert!(grid.sum_i32(&[0; 512], &mut [0; 127]).is_err());
    assert!(grid.sum_i32(&[0; 511], &mut [0; 128]).is_err());
}
