//! `linalg` ops in programs of cores.

use crate::{core_design, run_text, typed_core_design, words};
use millrace_aie::Design;

#[test]
fn elements_are_filled_added_and_copied() {
    let body = "%seven = arith.constant 7 : i32
    %own = memref.alloc() : memref<16xi32>
    linalg.fill ins(%seven : i32) outs(%own : memref<16xi32>)
    linalg.add ins(%in, %own : memref<16xi32>, memref<16xi32>) outs(%own : memref<16xi32>)
    linalg.mul ins(%in, %own : memref<16xi32>, memref<16xi32>) outs(%own : memref<16xi32>)
    linalg.copy ins(%own : memref<16xi32>) outs(%out : memref<16xi32>)";
    let expected: Vec<i32> = (1..=16).map(|i| i * (i + 7)).collect();
    assert_eq!(words(&run_text(&core_design("", body))), expected);
}

/// A product of 4 x 4 matrices, by its own op and by a generic one whose maps have names.
#[test]
fn matrices_are_multiplied() {
    let shapes = "%a = memref.expand_shape %in [[0, 1]] output_shape [4, 4] : memref<16xi32> into memref<4x4xi32>
    %c = memref.expand_shape %out [[0, 1]] output_shape [4, 4] : memref<16xi32> into memref<4x4xi32>
    %zero = arith.constant 0 : i32
    linalg.fill ins(%zero : i32) outs(%c : memref<4x4xi32>)";
    let of = "ins(%a, %a : memref<4x4xi32>, memref<4x4xi32>) outs(%c : memref<4x4xi32>)";
    let expected: Vec<i32> = (0..16)
        .map(|i| {
            let at = |row: i32, col: i32| row * 4 + col + 1;
            (0..4).map(|k| at(i / 4, k) * at(k, i % 4)).sum()
        })
        .collect();
    let named = core_design("", &format!("{shapes}\n    linalg.matmul {of}"));
    assert_eq!(words(&run_text(&named)), expected);
    let generic = format!(
        "#of_a = affine_map<(m, n, k) -> (m, k)>
#of_b = affine_map<(m, n, k) -> (k, n)>
{}",
        core_design(
            "",
            &format!(
                "{shapes}
    linalg.generic {{indexing_maps = [#of_a, #of_b, affine_map<(m, n, k) -> (m, n)>], iterator_types = [\"parallel\", \"parallel\", \"reduction\"]}} {of} {{
    ^bb0(%x: i32, %y: i32, %sum: i32):
      %p = arith.muli %x, %y : i32
      %s = arith.addi %sum, %p : i32
      linalg.yield %s : i32
    }}"
            )
        )
    );
    assert_eq!(words(&run_text(&generic)), expected);
}

/// Windows, the loop's own number, a scalar among the inputs, and no input at all.
#[test]
fn generic_bodies_see_indices_and_scalars() {
    let body = "%ten = arith.constant 10 : i32
    %some = memref.subview %in[0] [13] [1] : memref<16xi32> to memref<13xi32, strided<[1]>>
    %short = memref.subview %out[0] [13] [1] : memref<16xi32> to memref<13xi32, strided<[1]>>
    %four = memref.alloc() : memref<4xi32>
    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = [\"parallel\"]} outs(%out : memref<16xi32>) {
    ^bb0(%o: i32):
      %i = linalg.index 0 : index
      %v = arith.index_cast %i : index to i32
      linalg.yield %v : i32
    }
    linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0 + d1)>, affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = [\"parallel\", \"reduction\"]} ins(%in, %ten, %four : memref<16xi32>, i32, memref<4xi32>) outs(%short : memref<13xi32, strided<[1]>>) {
    ^bb0(%x: i32, %t: i32, %w: i32, %o: i32):
      %p = arith.muli %x, %t : i32
      %s = arith.addi %o, %p : i32
      linalg.yield %s : i32
    }";
    let expected: Vec<i32> = (0..16)
        .map(|i| match i {
            0..13 => i + 10 * (4 * i + 10),
            _ => i,
        })
        .collect();
    assert_eq!(words(&run_text(&core_design("", body))), expected);
}

/// Why a body of a core is refused.
fn refused(element: &str, body: &str) -> String {
    let text = typed_core_design(element, "", body);
    let read = Design::read(&text).and_then(|design| design.check().map(|_| ()));
    read.expect_err("refused").to_string()
}

#[test]
fn bodies_and_maps_that_do_not_fit_are_refused() {
    let generic = |maps: &str, of: &str, body: &str| {
        format!(
            "linalg.generic {{indexing_maps = [{maps}], iterator_types = [\"parallel\"]}} {of} {{
    {body}
    }}"
        )
    };
    let (same, of) = (
        "affine_map<(i) -> (i)>, affine_map<(i) -> (i)>",
        "ins(%in : memref<16xi32>) outs(%out : memref<16xi32>)",
    );
    let square = "affine_map<(i) -> (i)>, affine_map<(i) -> (i, i)>";
    for (body, problem) in [
        (
            "linalg.add ins(%in : memref<16xi32>) outs(%out : memref<16xi32>)".to_owned(),
            "`linalg.add`: 2 operands, 3 are known of it",
        ),
        (
            "linalg.copy ins(%in : tensor<16xi32>) outs(%out : tensor<16xi32>)".to_owned(),
            "`linalg.copy`: on tensors it has no memory; bufferize it first",
        ),
        (
            generic(same, of, "^bb0(%x: i32):\n      linalg.yield %x : i32"),
            "`linalg.generic`: its body has not a value for each operand",
        ),
        (
            generic(
                same,
                of,
                "^bb0(%x: i32, %y: i32):\n      linalg.yield %x, %y : i32, i32",
            ),
            "`linalg.generic`: its body does not give a value for each output",
        ),
        (
            generic(
                square,
                of,
                "^bb0(%x: i32, %y: i32):\n      linalg.yield %x : i32",
            ),
            "`linalg.generic`: a map has not an index for each dimension",
        ),
        (
            generic(
                "affine_map<(i) -> (i + 1)>, affine_map<(i) -> (i + 1)>",
                of,
                "^bb0(%x: i32, %y: i32):\n      linalg.yield %x : i32",
            ),
            "`linalg.generic`: how far its loop 0 goes is not fixed by a memref's size",
        ),
    ] {
        let error = refused("i32", &body);
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn what_is_no_loop_over_memrefs_is_refused() {
    let short = "%own = memref.alloc() : memref<8xi32>
    linalg.add ins(%in, %in : memref<16xi32>, memref<16xi32>) outs(%own : memref<8xi32>)";
    let error = refused("i32", short);
    assert!(
        error.contains("`linalg.add`: its memrefs' sizes do not go together"),
        "{error}"
    );
    let unknown =
        "linalg.softmax dimension(0) ins(%in : memref<16xf32>) outs(%out : memref<16xf32>)";
    let error = refused("f32", unknown);
    assert!(error.contains("`linalg.softmax`"), "{error}");
}
