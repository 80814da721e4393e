//! Conversion of each format, against its own decoder.

use super::*;
use millrace_kernels::CpuOptions;
use millrace_npu::{Element, Role};

const N: usize = 96;
const K: usize = 512;

/// Values like those of weights.
fn weights(n: usize) -> Vec<f32> {
    let mut state = 5_u64;
    let mut uniform = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..n)
        .map(|_| 0.05 * ((0..6).map(|_| uniform()).sum::<f32>() - 3.0))
        .collect()
}

fn packed(source: &WeightSource<'_>, unit: u64) -> Result<Vec<u8>, String> {
    let rows = source.n.next_multiple_of(unit as usize * N_ROWS);
    let blocks = rows / N_ROWS * source.k.div_ceil(N_COLS);
    let slot = Slot {
        name: "w".to_owned(),
        element: Element::U8,
        shape: vec![blocks as u64, BYTES],
        role: Role::Static,
    };
    let cpu = Cpu::new(CpuOptions::default()).expect("a CPU");
    let mut out = vec![0xaa; blocks * BLOCK];
    fill(&cpu, unit, source, &slot, &mut out).map(|()| out)
}

/// The matrix in a slot, with its padding.
fn unpacked(slot: &[u8], k: usize, unit: usize) -> Vec<Vec<f32>> {
    let across = k.div_ceil(N_COLS);
    let n_rows = slot.len() / BLOCK / across * N_ROWS;
    let row = |row: usize| {
        let block = |col: usize| {
            let (group, side) = (row / N_ROWS / unit, row / N_ROWS % unit);
            let at = (group * across + col) * unit + side;
            let (mut tile, r) = (vec![0.0; N_COLS], row % N_ROWS);
            let bytes = &slot[at * BLOCK..][..BLOCK];
            decode_rows(DType::Q4nx, bytes, N_ROWS, N_COLS, r..r + 1, &mut tile).expect("a block");
            tile
        };
        (0..across).flat_map(block).collect()
    };
    (0..n_rows).map(row).collect()
}

/// Relative error of the slot against the checkpoint's own numbers.
fn loss(dtype: DType, n: usize, k: usize, half_split: Option<usize>) -> f64 {
    let values = weights(n * k);
    let mut bytes = vec![0; dtype.size_bytes(n, k).expect("whole blocks")];
    encode_matrix(dtype, &values, n, k, &mut bytes).expect("encodes");
    let mut decoded = vec![0.0; n * k];
    decode_rows(dtype, &bytes, n, k, 0..n, &mut decoded).expect("decodes");
    let source = WeightSource {
        dtype,
        bytes: &bytes,
        n,
        k,
        half_split,
    };
    let mut worst = 0.0_f64;
    for unit in [1, 2] {
        let slot = packed(&source, unit).expect("fills");
        let found = unpacked(&slot, k, unit as usize);
        let layout = WeightLayout::Own {
            id: WeightArrangement(0),
            half_split,
        };
        let (mut off, mut all) = (0.0, 0.0);
        for (row, found) in found.iter().enumerate() {
            let expected =
                (row < n).then(|| &decoded[layout.source_row(row).expect("a row") * k..][..k]);
            for (col, found) in found.iter().enumerate() {
                let expected = expected
                    .and_then(|row| row.get(col))
                    .copied()
                    .unwrap_or(0.0);
                off += f64::from(found - expected).powi(2);
                all += f64::from(expected).powi(2);
            }
        }
        worst = worst.max((off / all).sqrt());
    }
    worst
}

#[test]
fn formats_lose_what_is_said() {
    // Exact; a rounding of scale and offset; a search.
    assert_eq!(loss(DType::Q4nx, N, K, None), 0.0);
    for (dtype, limit) in [
        (DType::Q4nxSub, 0.005),
        (DType::Q4_0, 0.002),
        (DType::Q4_1, 0.006),
        (DType::Q4K, 0.006),
        (DType::Q8_0, 1.1 * DType::Q4nx.error_budget()),
        (DType::BF16, 1.1 * DType::Q4nx.error_budget()),
        (DType::Mxfp4, 0.12),
        (DType::Q6K, 1.1 * DType::Q4nx.error_budget()),
    ] {
        let loss = loss(dtype, N, K, None);
        println!("{dtype}: {:.3} %", 100.0 * loss);
        assert!(loss < limit, "{dtype}: {loss}");
        assert!(loss > 0.0, "{dtype} is not rounded");
    }
}

#[test]
fn heads_are_put_in_half_split_order_and_widths_are_padded() {
    assert_eq!(loss(DType::Q4nx, 128, 256, Some(64)), 0.0);
    assert!(loss(DType::Q4_0, 96, 160, Some(32)) < 0.002);
    assert!(loss(DType::BF16, 32, 96, None) < 1.2 * DType::Q4nx.error_budget());
}

#[test]
fn what_does_not_fit_is_refused() {
    let bytes = vec![0; DType::Q4nx.size_bytes(32, 256).expect("a block")];
    let source = WeightSource {
        dtype: DType::Q4nx,
        bytes: &bytes,
        n: 32,
        k: 256,
        half_split: None,
    };
    assert!(packed(&source, 1).is_ok());
    let longer = WeightSource { n: 64, ..source };
    assert!(packed(&longer, 1).is_err_and(|e| e.contains("no q4nx matrix")));
    let slot = Slot {
        name: "w".to_owned(),
        element: Element::U8,
        shape: vec![BYTES],
        role: Role::Static,
    };
    let cpu = Cpu::new(CpuOptions::default()).expect("a CPU");
    assert!(fill(&cpu, 1, &source, &slot, &mut bytes.clone()[..100]).is_err());
}

#[test]
fn what_was_filled_is_read_back() {
    let (n, k) = (64, 288);
    let values = weights(n * k);
    let bytes: Vec<u8> = values.iter().flat_map(|w| w.to_le_bytes()).collect();
    let source = WeightSource {
        dtype: DType::F32,
        bytes: &bytes,
        n,
        k,
        half_split: None,
    };
    for unit in [1, 2] {
        let slot = packed(&source, unit).expect("fills");
        let expected = unpacked(&slot, k, unit as usize);
        let found = read(unit, &slot, k, true).expect("reads");
        let expected: Vec<f32> = expected.iter().flat_map(|row| &row[..k]).copied().collect();
        assert_eq!(found.values, expected);
        let (group, offsets) = found.offsets.expect("offsets");
        assert_eq!((group, offsets.len()), (32, n * k / 32));
        // A group's least level is at its offset or above.
        assert!((0..n * k).all(|at| expected[at] >= offsets[at / 32]));
    }
    assert!(read(1, &[0; 100], 32, true).is_some_and(|w| w.values.is_empty()));
}
