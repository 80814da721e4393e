//! Parts of a sequence's arguments, as mlir-aie follows them to the argument.

use crate::{run_text, words};
use millrace_aie::Design;

/// A design that brings eight words from what a name means to the other argument.
fn from(argument: &str, views: &str, taken: &str) -> String {
    format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %mem = aie.tile(0, 1)
      aie.objectfifo @in(%shim, {{%mem}}, 1 : i32) : !aie.objectfifo<memref<8xi32>>
      aie.objectfifo @out(%mem, {{%shim}}, 1 : i32) : !aie.objectfifo<memref<8xi32>>
      aie.objectfifo.link [@in] -> [@out] ([] [])
      aie.runtime_sequence(%a: {argument}, %b: memref<8xi32>) {{
        {views}
        {taken}
        aiex.npu.dma_memcpy_nd(%b[0, 0, 0, 0][1, 1, 1, 8][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<8xi32>
        aiex.npu.dma_wait {{symbol = @out}}
      }}
    }}"
    )
}

const COPY: &str = "aiex.npu.dma_memcpy_nd(%v[0, 0, 0, 0][1, 1, 1, 8][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<8xi32>";

/// Eight numbers from one on, for an argument that counts from 1.
fn counted(first: i32) -> Vec<i32> {
    (first..first + 8).collect()
}

#[test]
fn parts_begin_where_their_argument_has_them() {
    for (argument, views, first) in [
        (
            "memref<64xi32>",
            "%s = memref.subview %a[16] [8] [1] : memref<64xi32> to memref<8xi32, strided<[1], offset: 16>>
        %v = memref.reinterpret_cast %s to offset: [0], sizes: [8], strides: [1] : memref<8xi32, strided<[1], offset: 16>> to memref<8xi32>",
            17,
        ),
        // A part of a part, by a constant.
        (
            "memref<64xi32>",
            "%c4 = arith.constant 4 : index
        %s = memref.subview %a[16] [32] [1] : memref<64xi32> to memref<32xi32, strided<[1], offset: 16>>
        %v = memref.subview %s[%c4] [8] [1] : memref<32xi32, strided<[1], offset: 16>> to memref<8xi32, strided<[1], offset: 20>>",
            21,
        ),
        // A row of a matrix, and a row of one of its planes.
        (
            "memref<4x8xi32>",
            "%v = memref.subview %a[2, 0] [1, 8] [1, 1] : memref<4x8xi32> to memref<8xi32, strided<[1], offset: 16>>",
            17,
        ),
        (
            "memref<2x4x8xi32>",
            "%p = memref.subview %a[1, 0, 0] [1, 4, 8] [1, 1, 1] : memref<2x4x8xi32> to memref<4x8xi32, strided<[8, 1], offset: 32>>
        %v = memref.subview %p[3, 0] [1, 8] [1, 1] : memref<4x8xi32, strided<[8, 1], offset: 32>> to memref<8xi32, strided<[1], offset: 56>>",
            57,
        ),
        (
            "memref<4x8xi32>",
            "%flat = memref.collapse_shape %a [[0, 1]] : memref<4x8xi32> into memref<32xi32>
        %v = memref.subview %flat[9] [8] [1] : memref<32xi32> to memref<8xi32, strided<[1], offset: 9>>",
            10,
        ),
    ] {
        let found = words(&run_text(&from(argument, views, COPY)));
        assert_eq!(found, counted(first), "{views}");
    }
}

/// The distance of a view is in bytes, whatever its elements are; tasks follow it as transfers do.
#[test]
fn a_view_has_another_type() {
    let view = "%c32 = arith.constant 32 : index
        %v = memref.view %a[%c32][] : memref<256xi8> to memref<8xi32>";
    let task = "%t = aiex.dma_configure_task_for @in {
          aie.dma_bd(%v : memref<8xi32>, 0, 8)
          aie.end
        }
        aiex.dma_start_task(%t)";
    let expected: Vec<i32> = (33..65u8)
        .collect::<Vec<u8>>()
        .chunks(4)
        .map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    for taken in [COPY, task] {
        let found = words(&run_text(&from("memref<256xi8>", view, taken)));
        assert_eq!(found, expected, "{taken}");
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    for (views, problem) in [
        (
            "%v = memref.subview %a[64] [8] [1] : memref<64xi32> to memref<8xi32, strided<[1], offset: 64>>",
            "begins beyond the 256 bytes of its argument",
        ),
        (
            "%v = memref.subview %a[1, 0] [8, 1] [1, 1] : memref<64xi32> to memref<8xi32>",
            "of 1 dimensions",
        ),
        (
            "%v = memref.subview %z[0] [8] [1] : memref<64xi32> to memref<8xi32>",
            "%z is no argument",
        ),
    ] {
        let read = Design::read(&from("memref<64xi32>", views, COPY)).and_then(|d| d.check());
        let error = read.map(|_| ()).expect_err(views).to_string();
        assert!(error.contains(problem), "{error}");
    }
    let outside = "aie.device(npu2) {
      %host = aie.external_buffer {sym_name = \"host\"} : memref<8xi32>
    }";
    let error = Design::read(outside).map(|_| ()).expect_err("refused");
    let error = error.to_string();
    assert!(
        error.contains("`aie.external_buffer`: memory of the host that no argument names"),
        "{error}"
    );
}
