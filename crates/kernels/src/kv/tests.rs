//! Tests of page layout and appending.

use super::*;
use crate::cpu::{Cpu, CpuOptions};
use crate::oracle::attention::{element, row};

/// Relative error that a stored element may have: half a unit in the last place of each type, and half a step
/// of the largest element of its block in `Q8_0`. For types of fewer bits it is the error of a row's length.
fn tolerance(dtype: KvType) -> f32 {
    match dtype {
        KvType::F32 => 0.0,
        KvType::F16 => 1.0 / 2048.0,
        KvType::BF16 => 1.0 / 256.0,
        KvType::Q8_0 => 0.51 / 127.0,
        // Half a step of each of 32 dimensions, the largest of which may hold all of the row: the test's rows rise steadily, and a
        // rotation gathers them in few dimensions.
        KvType::Q6_0 => 5.66 / 64.0,
        KvType::Q5_0 => 5.66 / 32.0,
        KvType::Q4_0 => 5.66 / 16.0,
    }
}

#[test]
fn rows_are_found_where_the_layout_says() {
    for n_threads in [1, 2] {
        let cpu = Cpu::new(CpuOptions {
            n_threads: Some(n_threads),
            level: None,
        })
        .expect("cpu");
        for dtype in KvType::ALL {
            for (head_dim, n_kv_heads, page_tokens) in [
                (64, 3, 16),
                (72, 1, 32),
                (80, 4, 64),
                (8, 1, 16),
                (96, 2, 16),
            ] {
                if dtype.narrow_bits().is_some() && head_dim % Q8_DIMS != 0 {
                    continue;
                }
                let layout = KvLayout {
                    dtype,
                    n_kv_heads,
                    head_dim,
                    page_tokens,
                };
                let n_rows = 150;
                let row = n_kv_heads * head_dim;
                let value = |i: usize| ((i * 37 % 1009) as f32 - 504.0) / 100.0;
                let k: Vec<f32> = (0..n_rows * row).map(value).collect();
                let v: Vec<f32> = k.iter().map(|k| k * 0.5 + 0.25).collect();
                let n_pages = 2 * n_rows.div_ceil(page_tokens) + 2;
                let mut k_pages = KvBuffer::zeroed(n_pages * layout.page_bytes()).expect("memory");
                let mut v_pages = KvBuffer::zeroed(n_pages * layout.page_bytes()).expect("memory");
                let pages: Vec<u32> = (0..n_pages as u32 / 2).map(|i| 2 * i + 1).collect();
                let others: Vec<u32> = (0..n_pages as u32 / 2).map(|i| 2 * i).collect();
                let runs = [
                    KvRun {
                        rows: 0..100,
                        first_pos: page_tokens + 3,
                        pages: &pages,
                        pages_first_pos: page_tokens,
                    },
                    KvRun {
                        rows: 100..n_rows,
                        first_pos: 0,
                        pages: &others,
                        pages_first_pos: 0,
                    },
                ];
                kv_append(&cpu, &layout, &k, &v, &mut k_pages, &mut v_pages, &runs);
                for run in &runs {
                    for (i, pos) in run.rows.clone().zip(run.first_pos..) {
                        for (side, x, pages) in
                            [(KvSide::K, &k, &k_pages), (KvSide::V, &v, &v_pages)]
                        {
                            check_row(&layout, side, pages, (run, pos), &x[i * row..][..row]);
                        }
                    }
                }
            }
        }
    }
}

fn check_row(
    layout: &KvLayout,
    side: KvSide,
    pages: &[u8],
    (run, pos): (&KvRun<'_>, usize),
    rows: &[f32],
) {
    for (head, values) in rows.chunks(layout.head_dim).enumerate() {
        let mut read = vec![0.0; layout.head_dim];
        let table = (run.pages, run.pages_first_pos);
        kv_read(layout, side, pages, table, (head, pos), &mut read);
        if layout.dtype.narrow_bits().is_some() {
            let expected = row(layout, side, pages, run, (head, pos));
            check_rotated(layout, values, &read, &expected);
            continue;
        }
        for (dim, read) in read.into_iter().enumerate() {
            let found = element(layout, side, pages, run, (head, pos, dim));
            assert_eq!(read, found, "{layout:?}: dimension {dim}");
        }
        for (block, values) in values.chunks(Q8_DIMS).enumerate() {
            let largest = values
                .iter()
                .fold(0.0f32, |max, value| max.max(value.abs()));
            for (i, value) in values.iter().enumerate() {
                let dim = block * Q8_DIMS + i;
                let found = element(layout, side, pages, run, (head, pos, dim));
                let error = (found - value).abs();
                let unit = if layout.dtype == KvType::Q8_0 {
                    largest
                } else {
                    value.abs()
                };
                assert!(
                    error <= tolerance(layout.dtype) * unit,
                    "{layout:?}: {found} for {value}"
                );
            }
        }
    }
}

/// A row that was rotated and back must be near the stored row, and near the stored elements by definition.
fn check_rotated(layout: &KvLayout, values: &[f32], read: &[f32], expected: &[f64]) {
    let length = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let whole = length(&mut values.iter().map(|x| f64::from(*x)));
    let lost = values.iter().zip(read).map(|(x, y)| f64::from(x - y));
    let lost = length(&mut lost.into_iter());
    assert!(
        lost <= f64::from(tolerance(layout.dtype)) * whole,
        "{layout:?}: {lost} of {whole}"
    );
    for (read, expected) in read.iter().zip(expected) {
        let error = (f64::from(*read) - expected).abs();
        assert!(error <= 1e-6 * whole, "{layout:?}: {read} for {expected}");
    }
}

#[test]
fn unusable_layouts_are_named() {
    let good = KvLayout {
        dtype: KvType::F16,
        n_kv_heads: 1,
        head_dim: 64,
        page_tokens: 32,
    };
    assert!(good.check().is_ok());
    for (bad, what) in [
        (
            KvLayout {
                n_kv_heads: 0,
                ..good
            },
            "n_kv_heads",
        ),
        (
            KvLayout {
                head_dim: 62,
                ..good
            },
            "head_dim",
        ),
        (
            KvLayout {
                head_dim: 2048,
                ..good
            },
            "head_dim",
        ),
        (
            KvLayout {
                dtype: KvType::Q4_0,
                head_dim: 80,
                ..good
            },
            "head_dim",
        ),
        (
            KvLayout {
                page_tokens: 24,
                ..good
            },
            "page_tokens",
        ),
        (
            KvLayout {
                page_tokens: 0,
                ..good
            },
            "page_tokens",
        ),
    ] {
        assert!(
            bad.check()
                .expect_err("unusable")
                .to_string()
                .contains(what)
        );
    }
}

#[test]
#[should_panic(expected = "outside the pages")]
fn positions_without_a_page_are_a_bug() {
    let layout = KvLayout {
        dtype: KvType::F32,
        n_kv_heads: 1,
        head_dim: 8,
        page_tokens: 16,
    };
    let cpu = Cpu::new(CpuOptions {
        n_threads: Some(1),
        level: None,
    })
    .expect("cpu");
    let mut pages = KvBuffer::zeroed(layout.page_bytes()).expect("memory");
    let mut others = KvBuffer::zeroed(layout.page_bytes()).expect("memory");
    let run = KvRun {
        rows: 0..1,
        first_pos: 16,
        pages: &[0],
        pages_first_pos: 0,
    };
    kv_append(
        &cpu,
        &layout,
        &[0.0; 8],
        &[0.0; 8],
        &mut pages,
        &mut others,
        &[run],
    );
}

#[test]
fn zeros_and_infinities_survive_eight_bits() {
    let layout = KvLayout {
        dtype: KvType::Q8_0,
        n_kv_heads: 1,
        head_dim: 32,
        page_tokens: 16,
    };
    let cpu = Cpu::new(CpuOptions {
        n_threads: Some(1),
        level: None,
    })
    .expect("cpu");
    for value in [0.0, 1e-12, 1e30] {
        let mut pages = KvBuffer::zeroed(layout.page_bytes()).expect("memory");
        let mut others = KvBuffer::zeroed(layout.page_bytes()).expect("memory");
        let run = KvRun {
            rows: 0..1,
            first_pos: 0,
            pages: &[0],
            pages_first_pos: 0,
        };
        let runs = std::slice::from_ref(&run);
        kv_append(
            &cpu,
            &layout,
            &[value; 32],
            &[value; 32],
            &mut pages,
            &mut others,
            runs,
        );
        assert!(element(&layout, KvSide::K, &pages, &run, (0, 0, 5)).is_finite());
    }
}
