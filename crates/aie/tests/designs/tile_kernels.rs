//! Calls of Millrace's own tile kernels by their symbols.

use crate::{core_design, run_text, typed_core_design};
use millrace_aie::{Design, Verdict};

const ZERO: &str = "func.func private @millrace_zero_f32__d16(memref<16xf32>)";

#[test]
fn a_symbol_names_kernel_and_dimensions() {
    let buffers = "memref<16xf32>, memref<16xf32>, memref<16xf32>";
    let add = format!("func.func private @millrace_add_f32__d16({buffers})");
    let body = format!(
        "func.call @millrace_zero_f32__d16(%out) : (memref<16xf32>) -> ()
    func.call @millrace_add_f32__d16(%in, %in, %out) : ({buffers}) -> ()"
    );
    let report = run_text(&typed_core_design("f32", &format!("{ZERO}\n{add}"), &body));
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    let notes = report.notes.join("\n");
    assert!(notes.contains("tile kernel `add_f32`"), "{notes}");
    assert!(report.unknown_kernels.is_empty());
    let expected: Vec<u8> = (1..=16u8)
        .flat_map(|x| (2.0 * f32::from(x)).to_le_bytes())
        .collect();
    assert_eq!(report.outputs[0].bytes, expected);
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    for (symbol, of) in [
        ("millrace_zero_f32__d8", "f32"),
        ("millrace_zero_f32__d16", "i32"),
        ("millrace_zero_f32", "f32"),
        ("millrace_add_f32__d16", "f32"),
        ("millrace_zero_bf16__d16", "f16"),
    ] {
        let device = format!("func.func private @{symbol}(memref<16x{of}>)");
        let body = format!("func.call @{symbol}(%out) : (memref<16x{of}>) -> ()");
        let design = Design::read(&typed_core_design(of, &device, &body)).expect("it is read");
        let error = design.check().expect_err(symbol).to_string();
        assert!(error.contains("`func.call`"), "{error}");
    }
}

#[test]
fn other_names_are_not_taken_for_one() {
    let device = "func.func private @millrace_nothing__d16(memref<16xi32>)";
    let body = "func.call @millrace_nothing__d16(%out) : (memref<16xi32>) -> ()";
    let report = run_text(&core_design(device, body));
    assert_eq!(report.unknown_kernels, ["millrace_nothing__d16"]);
}
