//! A token of a gated delta net against its formula in f64.

use super::*;

/// A call's state after the token and the result of its query.
fn step(
    dims: [u32; 3],
    row: &[f32],
    state: &[f32],
    first: i64,
) -> Result<(Vec<f32>, Vec<f32>), String> {
    let kernel = find("delta_step_f32").expect("a kernel");
    let mut after = vec![0.0_f32; state.len()];
    let mut y = vec![bf16::ZERO; dims[0] as usize * 16];
    kernel.call(
        &[F32, F32, F32, Bf16],
        &mut TileCall {
            cpu: &cpu(),
            dims: &dims,
            inputs: vec![bytemuck::cast_slice(row), bytemuck::cast_slice(state)],
            outputs: vec![
                bytemuck::cast_slice_mut(&mut after),
                bytemuck::cast_slice_mut(&mut y),
            ],
            scalars: &[first],
            constants: &[],
        },
    )?;
    Ok((after, y.into_iter().map(bf16::to_f32).collect()))
}

#[test]
fn a_state_fades_is_corrected_and_read() {
    let (blocks, k, v) = (2_usize, 5_usize, 64_usize);
    let mut row = numbers(2 * k + v, 1);
    row.extend([0.75, 0.5]);
    row.extend([0.0; 14]);
    let state = numbers(blocks * k * 16, 2);
    for first in [0_usize, 2] {
        let dims = [blocks as u32, k as u32, v as u32];
        let (after, y) = step(dims, &row, &state, first as i64).expect("legal");
        let wide = |x: f32| f64::from(x);
        let (mut expected_after, mut expected_y) = (vec![0.0; after.len()], Vec::new());
        for column in 0..blocks * 16 {
            let at = |i: usize| (column / 16 * k + i) * 16 + column % 16;
            let seen: f64 = (0..k).map(|i| wide(state[at(i)]) * wide(row[k + i])).sum();
            let value = wide(row[2 * k + first * 16 + column]);
            let correction = 0.5 * (value - 0.75 * seen);
            for i in 0..k {
                expected_after[at(i)] = 0.75 * wide(state[at(i)]) + wide(row[k + i]) * correction;
            }
            expected_y.push((0..k).map(|i| expected_after[at(i)] * wide(row[i])).sum());
        }
        assert_close(&after, &expected_after, 1e-6, 1e-5);
        assert_close(&y, &expected_y, 1.0 / 256.0, 1e-5);
    }
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    let (row, state) = (numbers(2 * 4 + 32 + 16, 1), numbers(2 * 4 * 16, 2));
    assert!(step([2, 4, 32], &row, &state, 0).is_ok());
    for dims in [[2, 4, 24], [3, 4, 32], [2, 5, 32], [1, 4, 32], [2, 4, 0]] {
        assert!(step(dims, &row, &state, 0).is_err(), "{dims:?}");
    }
    // Values beyond the head are NaN: a wrong count shows.
    let (after, _) = step([2, 4, 32], &row, &state, 9).expect("legal");
    assert!(after.iter().all(|x| x.is_nan()));
}
