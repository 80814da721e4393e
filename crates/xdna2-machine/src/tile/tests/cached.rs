//! Attention over a cache by parts, and taking a tile of queries out of a block.

use super::*;

/// A call on bytes, for f32 buffers together with bf16 ones.
pub(super) fn call_bytes(
    name: &str,
    dims: &[u32],
    operands: &mut [(millrace_npu::Element, Vec<u8>)],
    scalars: &[i64],
    constants: &[f32],
) -> Result<(), String> {
    let kernel = find(name).expect("a kernel");
    let elements: Vec<_> = operands.iter().map(|o| o.0).collect();
    // Separate buffers, aligned for f32.
    let words = |bytes: &[u8]| -> Vec<u32> {
        let padded = bytes.chunks(4).map(|c| {
            let mut word = [0; 4];
            word[..c.len()].copy_from_slice(c);
            u32::from_ne_bytes(word)
        });
        padded.collect()
    };
    let mut buffers: Vec<Vec<u32>> = operands.iter().map(|o| words(&o.1)).collect();
    let lengths: Vec<usize> = operands.iter().map(|o| o.1.len()).collect();
    let mut slices: Vec<&mut [u8]> = (buffers.iter_mut().zip(&lengths))
        .map(|(b, &n)| &mut bytemuck::cast_slice_mut::<u32, u8>(b)[..n])
        .collect();
    let outputs = slices.split_off(kernel.inputs);
    let constants: Vec<u32> = constants.iter().map(|c| c.to_bits()).collect();
    kernel.call(
        &elements,
        &mut TileCall {
            cpu: &cpu(),
            dims,
            inputs: slices.into_iter().map(|s| &*s).collect(),
            outputs,
            scalars,
            constants: &constants,
        },
    )?;
    for ((operand, buffer), &n) in operands.iter_mut().zip(&buffers).zip(&lengths) {
        operand.1 = bytemuck::cast_slice::<u32, u8>(buffer)[..n].to_vec();
    }
    Ok(())
}

pub(super) fn narrow(values: &[f32]) -> (millrace_npu::Element, Vec<u8>) {
    let bytes = values.iter().flat_map(|&v| bf16::from_f32(v).to_ne_bytes());
    (Bf16, bytes.collect())
}

fn state(tq: usize, d: usize) -> (millrace_npu::Element, Vec<u8>) {
    (F32, vec![0; 4 * tq * (d + 2)])
}

#[test]
fn a_tile_of_queries_leaves_its_block() {
    const D: usize = 16;
    let rows = numbers(32 * D, 3);
    let block = blocked(&rows, 32, D);
    for first in [0, 8, 24] {
        let empty = [vec![0.0; 8 * D]];
        let dims = [8, 32, D as u32];
        let taken = call("fa_take_bf16", &dims, &[&block], &empty, &[first], &[]);
        let first = first as usize;
        let expected = blocked(&rows[first * D..(first + 8) * D], 8, D);
        assert_eq!(taken.expect("legal")[0], expected);
    }
    let dims = [40, 32, D as u32];
    let empty = [vec![0.0; 40 * D]];
    assert!(call("fa_take_bf16", &dims, &[&block], &empty, &[0], &[]).is_err());
}

/// Two heads of a group, five tokens at positions 300 …, over two tiles of keys in one state and a
/// third in another, with a window: compared with the formula in f64.
#[test]
fn attention_over_a_cache_by_parts_is_attention() {
    const TQ: usize = 16;
    const TK: usize = 16;
    const D: usize = 8;
    const FIRST_KEY: usize = 280;
    const POSITION: usize = 300;
    const WINDOW: usize = 22;
    let scale = 0.3_f32;
    let (queries, keys, values) = (numbers(TQ * D, 1), numbers(48 * D, 2), numbers(48 * D, 3));
    let dims = [TQ as u32, TK as u32, D as u32];
    // Queries and position come in the places of keys and values.
    let mut places = vec![0.0; TK * D];
    (places[0], places[1]) = ((POSITION % 256) as f32, (POSITION / 256) as f32);
    let block =
        |keys: &[f32], values: &[f32]| narrow(&[blocked(keys, TK, D), values.to_vec()].concat());
    let mut taken = [
        block(&queries, &places),
        narrow(&[0.0; TQ * D]),
        narrow(&[0.0; 16]),
    ];
    call_bytes("ca_take_bf16", &dims, &mut taken, &[0], &[]).expect("legal");
    let [_, q, at] = taken;
    let state_dims = [TQ as u32, D as u32];
    let mut states = Vec::new();
    for tiles in [&[0, 1][..], &[2]] {
        let mut own = [state(TQ, D)];
        call_bytes("ca_init_f32", &state_dims, &mut own, &[], &[]).expect("legal");
        let [mut own] = own;
        for &tile in tiles {
            let rows = tile * TK * D..(tile + 1) * TK * D;
            let block = block(&keys[rows.clone()], &blocked(&values[rows], TK, D));
            let p = narrow(&[0.0; TQ * TK]);
            let mut operands = [q.clone(), block, at.clone(), p, own];
            let dims = [TQ as u32, TK as u32, D as u32, 2, 1000];
            // The tile's place is given in two parts, one of them modulo 1000.
            let key = (FIRST_KEY + tile * TK - 100) as i64;
            let scalars = [key, 3100, 0, WINDOW as i64];
            let name = "ca_attend_bf16.chunk";
            call_bytes(name, &dims, &mut operands, &scalars, &[scale]).expect("legal");
            let [.., after] = operands;
            own = after;
        }
        states.push(own);
    }
    let [mut joined, other] = <[_; 2]>::try_from(states).expect("two");
    for slice in 0..TQ / 8 {
        let mut sent = [other.clone(), (F32, vec![0; 4 * 8 * (D + 2)])];
        call_bytes("ca_send_f32", &state_dims, &mut sent, &[slice as i64], &[]).expect("legal");
        let [_, sent] = sent;
        let mut operands = [sent, joined];
        let scalars = [slice as i64];
        call_bytes(
            "ca_join_f32",
            &state_dims,
            &mut operands,
            &scalars,
            &[scale],
        )
        .expect("legal");
        let [_, after] = operands;
        joined = after;
    }
    const ROWS: usize = 10;
    let mut finished = [joined, narrow(&[0.0; ROWS * D])];
    let dims = [ROWS as u32, TQ as u32, D as u32];
    call_bytes("ca_finish_bf16", &dims, &mut finished, &[], &[]).expect("legal");
    let found: Vec<f32> = (finished[1].1.chunks_exact(2))
        .map(|b| bf16::from_ne_bytes([b[0], b[1]]).to_f32())
        .collect();
    let mut expected = Vec::new();
    for row in 0..ROWS {
        let position = POSITION + row / 2;
        let weight = |key: usize| {
            let place = FIRST_KEY + key;
            let dot: f64 = (0..D)
                .map(|i| f64::from(queries[row * D + i]) * f64::from(keys[key * D + i]))
                .sum();
            match place <= position && place + WINDOW > position {
                true => (f64::from(scale) * dot).exp(),
                false => 0.0,
            }
        };
        let sum: f64 = (0..48).map(weight).sum();
        assert!(sum > 0.0);
        for i in 0..D {
            let o: f64 = (0..48)
                .map(|key| weight(key) * f64::from(values[key * D + i]))
                .sum();
            expected.push(o / sum);
        }
    }
    assert_close(&found, &expected, 0.02, 0.02);
}
