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

/// The program of a core on tensors: its input as a tensor `%t`, and `%r` to its output.
fn on_tensors(body: &str) -> Vec<i32> {
    let body = format!(
        "%t = bufferization.to_tensor %in restrict : memref<16xi32> to tensor<16xi32>
    {body}
    bufferization.materialize_in_destination %r in restrict writable %out : (tensor<16xi32>, memref<16xi32>) -> ()"
    );
    words(&run_text(&core_design("", &body)))
}

/// A tensor is a value: what is computed from it later leaves it, and so does a write to the memory that it came from.
#[test]
fn tensors_are_values() {
    let expected: Vec<i32> = (1..=16).map(|i| (2 * i) * i + 7 + i).collect();
    let body = "%seven = arith.constant 7 : i32
    %empty = tensor.empty() : tensor<16xi32>
    %sevens = linalg.fill ins(%seven : i32) outs(%empty : tensor<16xi32>) -> tensor<16xi32>
    %twice = linalg.add ins(%t, %t : tensor<16xi32>, tensor<16xi32>) outs(%t : tensor<16xi32>) -> tensor<16xi32>
    %square = linalg.mul ins(%twice, %t : tensor<16xi32>, tensor<16xi32>) outs(%sevens : tensor<16xi32>) -> tensor<16xi32>
    linalg.fill ins(%seven : i32) outs(%in : memref<16xi32>)
    %sum = linalg.add ins(%square, %sevens : tensor<16xi32>, tensor<16xi32>) outs(%empty : tensor<16xi32>) -> tensor<16xi32>
    %r = linalg.add ins(%sum, %t : tensor<16xi32>, tensor<16xi32>) outs(%empty : tensor<16xi32>) -> tensor<16xi32>";
    assert_eq!(on_tensors(body), expected);
}

/// Powers of a matrix in a loop, whose value goes from one round to the next. Each product reads its own former result.
#[test]
fn tensors_go_round_loops() {
    let body = "%zero = arith.constant 0 : i32
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %m = tensor.expand_shape %t [[0, 1]] output_shape [4, 4] : tensor<16xi32> into tensor<4x4xi32>
    %p = scf.for %i = %c0 to %c2 step %c1 iter_args(%a = %m) -> (tensor<4x4xi32>) {
      %none = linalg.fill ins(%zero : i32) outs(%a : tensor<4x4xi32>) -> tensor<4x4xi32>
      %next = linalg.matmul ins(%a, %m : tensor<4x4xi32>, tensor<4x4xi32>) outs(%none : tensor<4x4xi32>) -> tensor<4x4xi32>
      scf.yield %next : tensor<4x4xi32>
    }
    %first = tensor.extract %p[%c0, %c0] : tensor<4x4xi32>
    %more = arith.addi %first, %first : i32
    %q = tensor.insert %more into %p[%c0, %c0] : tensor<4x4xi32>
    %r = tensor.collapse_shape %q [[0, 1]] : tensor<4x4xi32> into tensor<16xi32>";
    let m: Vec<i32> = (1..=16).collect();
    let product = |a: &[i32]| -> Vec<i32> {
        let at = |i: usize| (0..4).map(|k| a[i / 4 * 4 + k] * m[k * 4 + i % 4]).sum();
        (0..16).map(at).collect()
    };
    let mut expected = product(&product(&m));
    expected[0] *= 2;
    assert_eq!(on_tensors(body), expected);
}

/// A generic op on tensors with two outputs, and a tensor that becomes a memref.
#[test]
fn generic_ops_on_tensors_give_each_output() {
    let maps = "indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (15 - i)>]";
    let body = format!(
        "%empty = bufferization.alloc_tensor() : tensor<16xi32>
    %both:2 = linalg.generic {{{maps}, iterator_types = [\"parallel\"]}} ins(%t : tensor<16xi32>) outs(%empty, %empty : tensor<16xi32>, tensor<16xi32>) {{
    ^bb0(%x: i32, %a: i32, %b: i32):
      %y = arith.muli %x, %x : i32
      linalg.yield %y, %x : i32, i32
    }} -> (tensor<16xi32>, tensor<16xi32>)
    %other = bufferization.to_buffer %both#1 : tensor<16xi32> to memref<16xi32>
    %back = bufferization.to_tensor %other : memref<16xi32>
    %r = linalg.add ins(%both#0, %back : tensor<16xi32>, tensor<16xi32>) outs(%empty : tensor<16xi32>) -> tensor<16xi32>"
    );
    let expected: Vec<i32> = (1..=16).map(|i| i * i + 17 - i).collect();
    assert_eq!(on_tensors(&body), expected);
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
            "`linalg.copy`: 0 results; on tensors it gives one for each output, on memrefs none",
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
            "`linalg.generic`: how far its loop 0 goes is not fixed by an operand's size",
        ),
    ] {
        let error = refused("i32", &body);
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused() {
    for (body, problem) in [
        (
            "%new = linalg.copy ins(%in : memref<16xi32>) outs(%out : memref<16xi32>)",
            "`linalg.copy`: 1 results; on tensors it gives one for each output, on memrefs none",
        ),
        (
            "%t = bufferization.to_tensor %in : memref<16xi32> to tensor<16xi32>
    %new = linalg.copy ins(%t : tensor<16xi32>) outs(%out : memref<16xi32>)",
            "`linalg.copy`: its operands are tensors and memrefs; one kind is known",
        ),
        (
            "%t = tensor.empty() : tensor<?xi32>",
            "`tensor.empty`: tensor<?xi32> has no fixed size",
        ),
        (
            "%t = tensor.empty() : tensor<16xi32>
    %u = tensor.collapse_shape %t [[0]] : tensor<16xi32> into tensor<8xi32>",
            "`tensor.collapse_shape`: its types have not the same elements",
        ),
    ] {
        let error = refused("i32", body);
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn what_is_no_loop_over_memrefs_is_refused() {
    let short = "%own = memref.alloc() : memref<8xi32>
    linalg.add ins(%in, %in : memref<16xi32>, memref<16xi32>) outs(%own : memref<8xi32>)";
    let error = refused("i32", short);
    assert!(
        error.contains("`linalg.add`: its operands' sizes do not go together"),
        "{error}"
    );
    let unknown =
        "linalg.softmax dimension(0) ins(%in : memref<16xf32>) outs(%out : memref<16xf32>)";
    let error = refused("f32", unknown);
    assert!(error.contains("`linalg.softmax`"), "{error}");
}
