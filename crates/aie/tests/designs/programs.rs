//! Programs of cores: ops, loops, blocks, calls, kernels.

use crate::{core_design, run_text, typed_core_design, words};
use millrace_aie::Verdict;

/// Output of a body for 1 to 16.
fn body(body: &str) -> Vec<i32> {
    words(&run_text(&core_design("", body)))
}

/// A body that computes `%y` of `%x` for every element.
fn each(compute: &str) -> Vec<i32> {
    body(&format!(
        "scf.for %i = %c0 to %c16 step %c1 {{
      %x = memref.load %in[%i] : memref<16xi32>
      {compute}
      memref.store %y, %out[%i] : memref<16xi32>
    }}"
    ))
}

fn map(of: impl Fn(i32) -> i32) -> Vec<i32> {
    (1..=16).map(of).collect()
}

#[test]
fn ops_of_whole_numbers() {
    let two = |op: &str| {
        each(&format!(
            "%k = arith.constant -3 : i32\n%y = arith.{op} %x, %k : i32"
        ))
    };
    assert_eq!(two("addi"), map(|x| x - 3));
    assert_eq!(two("subi"), map(|x| x + 3));
    assert_eq!(two("muli"), map(|x| -3 * x));
    assert_eq!(two("divsi"), map(|x| x / -3));
    assert_eq!(two("remsi"), map(|x| x % -3));
    assert_eq!(
        two("floordivsi"),
        map(|x| (f64::from(x) / -3.0).floor() as i32)
    );
    assert_eq!(
        two("ceildivsi"),
        map(|x| (f64::from(x) / -3.0).ceil() as i32)
    );
    assert_eq!(two("divui"), map(|x| (x as u32 / -3i32 as u32) as i32));
    assert_eq!(two("andi"), map(|x| x & -3));
    assert_eq!(two("xori"), map(|x| x ^ -3));
    assert_eq!(two("maxsi"), map(|x| x));
    assert_eq!(two("maxui"), map(|_| -3));
    let shifted = "%k = arith.constant 30 : i32\n%s = arith.shli %x, %k : i32\n";
    assert_eq!(
        each(&format!("{shifted}%y = arith.shrsi %s, %k : i32")),
        map(|x| x << 30 >> 30)
    );
    assert_eq!(
        each(&format!("{shifted}%y = arith.shrui %s, %k : i32")),
        map(|x| ((x << 30) as u32 >> 30) as i32)
    );
    let narrow = "%s = arith.muli %x, %x : i32\n%n = arith.trunci %s : i32 to i8\n";
    assert_eq!(
        each(&format!("{narrow}%y = arith.extsi %n : i8 to i32")),
        map(|x| i32::from((x * x) as i8))
    );
    assert_eq!(
        each(&format!("{narrow}%y = arith.extui %n : i8 to i32")),
        map(|x| i32::from((x * x) as u8))
    );
    let compared = |of: &str| {
        each(&format!(
            "%k = arith.constant 9 : i32\n%b = arith.cmpi {of}, %x, %k : i32\n%y = arith.select %b, %k, %x : i32"
        ))
    };
    assert_eq!(compared("slt"), map(|x| if x < 9 { 9 } else { x }));
    assert_eq!(compared("uge"), map(|x| if x >= 9 { 9 } else { x }));
    let generic = "%k = \"arith.constant\"() <{value = 9 : i32}> : () -> i32\n%b = \"arith.cmpi\"(%x, %k) <{predicate = 4 : i64}> : (i32, i32) -> i1\n%y = arith.extui %b : i1 to i32";
    assert_eq!(each(generic), map(|x| i32::from(x > 9)));
}

#[test]
fn ops_with_a_point() {
    let float = |op: &str| {
        each(&format!(
            "%f = arith.sitofp %x : i32 to f32\n%k = arith.constant 2.500000e+00 : f32\n%g = {op} : f32\n%y = arith.fptosi %g : f32 to i32"
        ))
    };
    assert_eq!(float("arith.mulf %f, %k"), map(|x| (x as f32 * 2.5) as i32));
    assert_eq!(
        float("arith.divf %f, %k fastmath<fast>"),
        map(|x| (x as f32 / 2.5) as i32)
    );
    assert_eq!(
        float("arith.maximumf %f, %k"),
        map(|x| (x as f32).max(2.5) as i32)
    );
    assert_eq!(float("math.sqrt %f"), map(|x| (x as f32).sqrt() as i32));
    // Eight bits of digits: 257 is 256 in bf16.
    let rounded = "%k = arith.constant 256 : i32\n%s = arith.addi %x, %k : i32\n%b = arith.sitofp %s : i32 to bf16\n%y = arith.fptosi %b : bf16 to i32";
    assert_eq!(
        each(rounded),
        map(|x| 256 + (x + i32::from(x % 4 == 3) - i32::from(x % 4 == 1)) / 2 * 2)
    );
}

#[test]
fn loops_carry_values_and_conditions_give_them() {
    let sum = "%z = arith.constant 0 : i32
    %s = scf.for %i = %c0 to %c16 step %c1 iter_args(%a = %z) -> (i32) {
      %x = memref.load %in[%i] : memref<16xi32>
      %b = arith.addi %a, %x : i32
      scf.yield %b : i32
    }
    scf.for %i = %c0 to %c16 step %c1 {
      %k = arith.constant 8 : index
      %t = arith.cmpi ult, %i, %k : index
      %y = scf.if %t -> (i32) {
        scf.yield %s : i32
      } else {
        %j = arith.index_cast %i : index to i32
        scf.yield %j : i32
      }
      memref.store %y, %out[%i] : memref<16xi32>
    }";
    assert_eq!(
        body(sum),
        (0..16)
            .map(|i| if i < 8 { 136 } else { i })
            .collect::<Vec<i32>>()
    );
    // Powers of two below 1000, by `while`.
    let powers = "%one = arith.constant 1 : i32
    %most = arith.constant 1000 : i32
    %p, %n = scf.while (%a = %one, %i = %c0) : (i32, index) -> (i32, index) {
      %t = arith.cmpi slt, %a, %most : i32
      scf.condition(%t) %a, %i : i32, index
    } do {
    ^bb0(%a: i32, %i: index):
      memref.store %a, %out[%i] : memref<16xi32>
      %b = arith.addi %a, %a : i32
      %j = arith.addi %i, %c1 : index
      scf.yield %b, %j : i32, index
    }
    scf.for %i = %n to %c16 step %c1 {
      memref.store %p, %out[%i] : memref<16xi32>
    }";
    assert_eq!(
        body(powers),
        (0..16)
            .map(|i| if i < 10 { 1 << i } else { 1024 })
            .collect::<Vec<i32>>()
    );
}

#[test]
fn blocks_and_functions() {
    let doubled = "func.func @double(%x: i32) -> i32 {
    %y = arith.addi %x, %x : i32
    return %y : i32
  }";
    let body = "cf.br ^head(%c0 : index)
  ^head(%i: index):
    %t = arith.cmpi slt, %i, %c16 : index
    cf.cond_br %t, ^body, ^end
  ^body:
    %x = memref.load %in[%i] : memref<16xi32>
    %y = func.call @double(%x) : (i32) -> i32
    memref.store %y, %out[%i] : memref<16xi32>
    %j = arith.addi %i, %c1 : index
    cf.br ^head(%j : index)
  ^end:";
    assert_eq!(
        words(&run_text(&core_design(doubled, body))),
        map(|x| 2 * x)
    );
}

#[test]
fn memrefs_are_seen_in_other_ways() {
    let reversed_quarters = "%m = memref.expand_shape %in [[0, 1]] output_shape [4, 4] : memref<16xi32> into memref<4x4xi32>
    %row = memref.subview %m[1, 0] [1, 4] [1, 1] : memref<4x4xi32> to memref<1x4xi32, strided<[4, 1], offset: 4>>
    %all = memref.alloc() : memref<16xi32>
    memref.copy %in, %all : memref<16xi32> to memref<16xi32>
    %c4 = arith.constant 4 : index
    scf.for %i = %c0 to %c16 step %c1 {
      %j = arith.remui %i, %c4 : index
      %x = memref.load %row[%c0, %j] : memref<1x4xi32, strided<[4, 1], offset: 4>>
      memref.store %x, %all[%i] : memref<16xi32>
    }
    memref.copy %all, %out : memref<16xi32> to memref<16xi32>
    memref.dealloc %all : memref<16xi32>";
    assert_eq!(
        body(reversed_quarters),
        (0..16).map(|i| 5 + i % 4).collect::<Vec<i32>>()
    );
    let global = "memref.global \"private\" constant @table : memref<16xi32> = dense<[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]>";
    let read = "%t = memref.get_global @table : memref<16xi32>\n    memref.copy %t, %out : memref<16xi32> to memref<16xi32>";
    assert_eq!(
        words(&run_text(&core_design(global, read)))[..5],
        [3, 1, 4, 1, 5]
    );
}

#[test]
fn vectors_go_by_rows() {
    let vectors = "%c8 = arith.constant 8 : index
    %k = arith.constant dense<10> : vector<8xi32>
    scf.for %i = %c0 to %c16 step %c8 {
      %v = vector.load %in[%i] : memref<16xi32>, vector<8xi32>
      %w = arith.muli %v, %k : vector<8xi32>
      %s = vector.reduction <add>, %v : vector<8xi32> into i32
      %b = vector.broadcast %s : i32 to vector<8xi32>
      %u = arith.addi %w, %b : vector<8xi32>
      vector.store %u, %out[%i] : memref<16xi32>, vector<8xi32>
    }";
    assert_eq!(
        body(vectors),
        map(|x| 10 * x + if x <= 8 { 36 } else { 100 })
    );
}

#[test]
fn kernels_are_known_by_their_names() {
    let call = |name: &str, of: &str, types: &str| {
        let report = run_text(&core_design(
            "",
            &format!("func.call @{name}({of}) : ({types}) -> ()"),
        ));
        assert!(report.unknown_kernels.is_empty(), "{name}");
        words(&report)
    };
    let two = "memref<16xi32>, memref<16xi32>";
    assert_eq!(call("passThroughLine", "%in, %out", two), map(|x| x));
    assert_eq!(
        call(
            "eltwise_add_vector",
            "%in, %in, %out",
            "memref<16xi32>, memref<16xi32>, memref<16xi32>"
        ),
        map(|x| 2 * x)
    );
    assert_eq!(
        call(
            "mul_i32",
            "%in, %in, %out",
            "memref<16xi32>, memref<16xi32>, memref<16xi32>"
        ),
        map(|x| x * x)
    );
    assert_eq!(call("zero_i32", "%out", "memref<16xi32>"), map(|_| 0));
    let softmax = run_text(&typed_core_design(
        "f32",
        "",
        "func.call @softmax(%in, %out) : (memref<16xf32>, memref<16xf32>) -> ()",
    ));
    let bytes = &softmax.outputs[0].bytes;
    let values: Vec<f32> = bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    let sum: f64 = (1..=16).map(|i| f64::from(i - 16).exp()).sum();
    for (i, value) in (1..=16).zip(values) {
        assert!(
            (f64::from(value) - f64::from(i - 16).exp() / sum).abs() < 1e-7,
            "{i}: {value}"
        );
    }
}

/// The blocks of a vector kernel's matrices: of i8 on an NPU2, 8 x 8 x 8, so 16 x 16 ones are four.
#[test]
fn blocked_matrices_are_multiplied_in_their_blocks() {
    let sized = |of: String| {
        of.replace("16xi8", "256xi8")
            .replace("1, 1, 1, 16]", "1, 1, 1, 256]")
    };
    let body = "func.call @zero_i8(%out) : (memref<256xi8>) -> ()\n    func.call @matmul_i8_i8(%in, %in, %out) : (memref<256xi8>, memref<256xi8>, memref<256xi8>) -> ()";
    let report = run_text(&sized(typed_core_design("i8", "", body)));
    assert_eq!(report.verdict, Verdict::Pass, "{report:?}");
    let at = |row: usize, col: usize| (row / 8 * 2 + col / 8) * 64 + row % 8 * 8 + col % 8;
    let number = |row, col| (at(row, col) as i64 + 1) as i8;
    for (row, col) in [(0, 0), (3, 9), (15, 15), (8, 1)] {
        let sum: i64 = (0..16)
            .map(|k| i64::from(number(row, k)) * i64::from(number(k, col)))
            .sum();
        assert_eq!(
            report.outputs[0].bytes[at(row, col)] as i8,
            sum as i8,
            "{row} {col}"
        );
    }
}

#[test]
fn an_unknown_kernel_moves_data_and_is_named() {
    let report = run_text(&core_design(
        "",
        "func.call @somebodys_kernel(%in, %out) : (memref<16xi32>, memref<16xi32>) -> ()",
    ));
    assert_eq!(
        (report.verdict, &report.unknown_kernels[..]),
        (Verdict::Pass, &["somebodys_kernel".to_owned()][..])
    );
}

#[test]
fn what_goes_wrong_in_a_program_is_told_with_its_place() {
    let rows = [
        (
            "%x = memref.load %in[%c16] : memref<16xi32>",
            "line 15, column 10: index 16 of a dimension of 16",
        ),
        (
            "%z = arith.constant 0 : i32\n    %x = arith.divsi %z, %z : i32",
            "line 16, column 10: a division by 0",
        ),
        (
            "aie.objectfifo.release @in(Consume, 2)",
            "gives back 2 objects and holds 1",
        ),
        (
            "%m = memref.alloc() : memref<1048577xi8>",
            "it allocates more than 1048576 bytes",
        ),
    ];
    for (body, expected) in rows {
        let report = run_text(&core_design("", body));
        assert_eq!(report.verdict, Verdict::Fail);
        let problem = report.problem.unwrap();
        assert!(problem.contains(expected), "{body}: {problem}");
    }
}

/// Views out of bounds or with endless repetition, and the largest numbers.
#[test]
fn views_and_numbers_are_bounded() {
    let most = i64::MAX;
    for (offset, size, stride) in [
        (0, most, 0),
        (most, 4, 1),
        (0, 4, most),
        (-most, 4, 1),
        (0, -1, 1),
    ] {
        let body = format!(
            "%v = memref.reinterpret_cast %in to offset: [{offset}], sizes: [{size}], strides: [{stride}] : memref<16xi32> to memref<?xi32>
    memref.copy %v, %v : memref<?xi32> to memref<?xi32>
    func.call @zero_i32(%v) : (memref<?xi32>) -> ()"
        );
        assert_eq!(
            run_text(&core_design("", &body)).verdict,
            Verdict::Fail,
            "{body}"
        );
    }
    let indices = "memref.global @g : memref<4xindex> = dense<7>";
    let read = "%g = memref.get_global @g : memref<4xindex>
    %n = memref.load %g[%c1] : memref<4xindex>
    %k = arith.index_cast %n : index to i32
    scf.for %i = %c0 to %c16 step %c1 {
      memref.store %k, %out[%i] : memref<16xi32>
    }";
    assert_eq!(words(&run_text(&core_design(indices, read))), map(|_| 7));
}

/// Memory that nothing has set is noise, which differs from run to run.
#[test]
fn an_output_that_nothing_computes_is_no_pass() {
    let report = run_text(&core_design("", ""));
    assert_eq!(report.verdict, Verdict::CannotTell);
    assert!(!report.verdict.is_pass());
}

#[test]
fn a_switch_takes_one_of_several_regions() {
    let switch = "%r = arith.remui %x, %three : i32
      %at = arith.index_cast %r : i32 to index
      %y = scf.index_switch %at -> i32
      case 0 { %k = arith.constant 100 : i32
        scf.yield %k : i32 }
      case 2 { scf.yield %x : i32 }
      default { %k = arith.muli %x, %three : i32
        scf.yield %k : i32 }";
    let found = each(&format!("%three = arith.constant 3 : i32\n{switch}"));
    let expected = map(|x| match x % 3 {
        0 => 100,
        2 => x,
        _ => 3 * x,
    });
    assert_eq!(found, expected);
}

/// A core uses its buffers in turn, as exported programs and mlir-aie's dynamic FIFOs choose them.
#[test]
fn a_switch_chooses_a_buffer() {
    let found = body(
        "scf.for %i = %c0 to %c16 step %c1 {
      %two = arith.constant 2 : index
      %turn = arith.remui %i, %two : index
      %b = scf.index_switch %turn -> memref<16xi32>
      case 1 { scf.yield %out : memref<16xi32> }
      default { scf.yield %in : memref<16xi32> }
      %x = memref.load %b[%c0] : memref<16xi32>
      memref.store %x, %out[%i] : memref<16xi32>
    }",
    );
    // Turns of the output read the value written at 0 before.
    assert_eq!(found, [1; 16]);
}
