//! Designs of `testdata/aie`, whole and broken.
#![allow(clippy::unwrap_used)] // A test may panic.

mod broken;
mod cascade;
mod causes;
mod controls;
mod descriptors;
mod examples;
mod fifos;
mod forms;
mod hangs;
mod hostile;
mod linalg;
mod loaded;
mod locks;
mod order;
mod packets;
mod programs;
mod resets;
mod routes;
mod scratchpads;
mod sequences;
mod slow;
mod spellings;
mod tile_kernels;
mod time;
mod values;
mod views;
mod ways;

use millrace_aie::{Design, RunOptions, RunReport, run};
use std::path::Path;

/// The text of a design.
pub fn text(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/aie");
    std::fs::read_to_string(folder.join(format!("{name}.mlir"))).unwrap()
}

/// Runs a text on numbers from 1 on; arguments that are only written begin as zeros.
pub fn run_text(text: &str) -> RunReport {
    let design = Design::read(text).unwrap_or_else(|error| panic!("{error}"));
    let footprint = design.check().unwrap_or_else(|error| panic!("{error}"));
    let n = design.arguments().count();
    let sizes: Vec<u64> = design.arguments().map(|argument| argument.2).collect();
    let bytes = |i: usize| match footprint.reads.contains(&i) {
        true => design.counting(i),
        false => vec![0; sizes[i] as usize],
    };
    let arguments: Vec<Vec<u8>> = (0..n).map(bytes).collect();
    run(&design, &arguments, RunOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The 32-bit numbers of the one argument that a run wrote.
pub fn words(report: &RunReport) -> Vec<i32> {
    assert!(report.verdict.is_pass(), "{report:#?}");
    let [output] = &report.outputs[..] else {
        panic!("{} outputs", report.outputs.len());
    };
    let chunks = output.bytes.chunks_exact(4);
    chunks
        .map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect()
}

/// A design of a core that takes one block of 16 words from argument 0 and sends one to argument 1. Its body is between
/// the two, on `%in` and `%out`, after declarations at the device.
pub fn core_design(device: &str, body: &str) -> String {
    typed_core_design("i32", device, body)
}

/// The same with elements of another type.
pub fn typed_core_design(element: &str, device: &str, body: &str) -> String {
    format!(
        r#"aie.device(npu2) {{
  %shim = aie.tile(0, 0)
  %core = aie.tile(0, 2)
  {device}
  aie.objectfifo @in(%shim, {{%core}}, 2 : i32) : !aie.objectfifo<memref<16x{element}>>
  aie.objectfifo @out(%core, {{%shim}}, 2 : i32) : !aie.objectfifo<memref<16x{element}>>
  aie.core(%core) {{
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    %taken = aie.objectfifo.acquire @in(Consume, 1) : !aie.objectfifosubview<memref<16x{element}>>
    %in = aie.objectfifo.subview.access %taken[0] : !aie.objectfifosubview<memref<16x{element}>> -> memref<16x{element}>
    %new = aie.objectfifo.acquire @out(Produce, 1) : !aie.objectfifosubview<memref<16x{element}>>
    %out = aie.objectfifo.subview.access %new[0] : !aie.objectfifosubview<memref<16x{element}>> -> memref<16x{element}>
    {body}
    aie.objectfifo.release @in(Consume, 1)
    aie.objectfifo.release @out(Produce, 1)
    aie.end
  }}
  aie.runtime_sequence(%from: memref<16x{element}>, %to: memref<16x{element}>) {{
    aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 16][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<16x{element}>
    aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 16][0, 0, 0, 1]) {{id = 0 : i64, metadata = @in}} : memref<16x{element}>
    aiex.npu.dma_wait {{symbol = @out}}
  }}
}}"#
    )
}
