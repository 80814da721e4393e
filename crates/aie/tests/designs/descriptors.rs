//! Dimensions, iterations, repetitions and padding, checked by their output.

use crate::{run_text, text, words};

/// Output of a link's two ends for 64 words in blocks of 16, with more on the way out or in.
fn link(to_stream: &str, from_stream: &str, more: &str, n_out: u32) -> Vec<i32> {
    let block = n_out / 4;
    words(&run_text(&format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %mem = aie.tile(0, 1)
      aie.objectfifo @in(%shim, {{%mem {from_stream}}}, 2 : i32) : !aie.objectfifo<memref<16xi32>>
      aie.objectfifo @out(%mem {to_stream}, {{%shim}}, 2 : i32) {more} : !aie.objectfifo<memref<16xi32>>
      aie.objectfifo.link [@in] -> [@out]([] [])
      aie.runtime_sequence(%from: memref<64xi32>, %to: memref<{n_out}xi32>) {{
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 4, {block}][0, 0, {block}, 1]) {{id = 1 : i64, metadata = @out}} : memref<{n_out}xi32>
        aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {{id = 0 : i64, metadata = @in}} : memref<64xi32>
        aiex.npu.dma_wait {{symbol = @out}}
      }}
    }}"
    )))
}

fn blocks(at: impl Fn(i32) -> i32) -> Vec<i32> {
    (0..64).map(|i| i / 16 * 16 + at(i % 16) + 1).collect()
}

#[test]
fn dimensions_of_fifos_reorder() {
    let by_columns = "[<size = 4, stride = 1>, <size = 4, stride = 4>]";
    assert_eq!(
        link(&format!("dimensionsToStream {by_columns}"), "", "", 64),
        blocks(|i| i % 4 * 4 + i / 4)
    );
    assert_eq!(
        link("", &format!("dimensionsFromStream {by_columns}"), "", 64),
        blocks(|i| i % 4 * 4 + i / 4)
    );
    // Reordering twice restores the order.
    let twice = link(
        &format!("dimensionsToStream {by_columns}"),
        &format!("dimensionsFromStream {by_columns}"),
        "",
        64,
    );
    assert_eq!(twice, blocks(|i| i));
    let four = "dimensionsToStream [<size = 2, stride = 1>, <size = 2, stride = 8>, <size = 2, stride = 4>, <size = 2, stride = 2>]";
    assert_eq!(
        link(four, "", "", 64),
        blocks(|i| (i & 1) * 2 + (i >> 1 & 1) * 4 + (i >> 2 & 1) * 8 + (i >> 3))
    );
}

#[test]
fn memory_tiles_pad_with_zeros() {
    let to_stream = "dimensionsToStream [<size = 4, stride = 4>, <size = 4, stride = 1>]";
    let pads = "{padDimensions = [<const_pad_before = 0, const_pad_after = 0>, <const_pad_before = 1, const_pad_after = 1>]}";
    let expected: Vec<i32> = (0..96)
        .map(|i| (i / 24, i % 24 / 6, i % 6))
        .map(|(block, row, col)| {
            if (1..5).contains(&col) {
                block * 16 + row * 4 + col
            } else {
                0
            }
        })
        .collect();
    assert_eq!(link(to_stream, "", pads, 96), expected);
}

/// The outermost of four sizes repeats a task, and its stride moves it on.
#[test]
fn transfers_repeat_and_move_on() {
    let with = |read: &str| {
        let text =
            text("passthrough").replace("%from[0, 0, 0, 0][1, 1, 1, 1024][0, 0, 0, 1]", read);
        words(&run_text(&text))
    };
    let again = with("%from[0, 0, 0, 0][4, 1, 1, 256][0, 0, 0, 1]");
    assert_eq!(again, (0..1024).map(|i| i % 256 + 1).collect::<Vec<i32>>());
    let apart = with("%from[0, 0, 0, 0][8, 2, 8, 8][128, 8, 16, 1]");
    let at = |i: i32| i / 128 * 128 + i % 128 / 64 * 8 + i % 64 / 8 * 16 + i % 8;
    assert_eq!(apart, (0..1024).map(|i| at(i) + 1).collect::<Vec<i32>>());
}

/// The outermost of a task's four dimensions is an iteration, which `repeat_count` steps through.
#[test]
fn tasks_iterate() {
    let whole = "aie.dma_bd(%x : memref<256xi32>, 0, 256, [<size = 1, stride = 0>, <size = 1, stride = 0>, <size = 1, stride = 0>, <size = 256, stride = 1>]) {burst_length = 0 : i32}\n        aie.end\n      }";
    let rows = "aie.dma_bd(%x : memref<256xi32>, 0, 64, [<size = 4, stride = 64>, <size = 1, stride = 0>, <size = 8, stride = 1>, <size = 8, stride = 8>])\n        aie.end\n      } {repeat_count = 3 : i32}";
    let design = text("vector_add");
    assert!(design.contains(whole));
    let at = |i: i32| i / 64 * 64 + i % 8 * 8 + i % 64 / 8;
    let expected: Vec<i32> = (0..256).map(|i| i + 1 + at(i) + 1).collect();
    assert_eq!(words(&run_text(&design.replace(whole, rows))), expected);
}

/// Chains of a task's descriptors go from block to block.
#[test]
fn tasks_have_chains() {
    let whole = "aie.dma_bd(%z : memref<256xi32>, 0, 256)\n        aie.end";
    let halves = "aie.dma_bd(%z : memref<256xi32>, 128, 128)\n        aie.next_bd ^second\n      ^second:\n        aie.dma_bd(%z : memref<256xi32>, 0, 128)\n        aie.end";
    let design = text("vector_add");
    assert!(design.contains(whole));
    let expected: Vec<i32> = (0..256).map(|i| 2 * ((i + 128) % 256 + 1)).collect();
    assert_eq!(words(&run_text(&design.replace(whole, halves))), expected);
}
