//! Spellings of mlir-aie's tests and programming examples, by year: each runs, or is refused with line and op.

use crate::{run_text, words};
use millrace_aie::{Design, Verdict};

/// A copy of 64 words through a core: a device, ops that move the words at the core, and a sequence.
fn design(device: &str, sequence: &str) -> String {
    format!(
        r#"module {{
  aie.device({device}) {{
    %tile_0_0 = aie.tile(0, 0)
    %tile_0_2 = aie.tile(0, 2)
    aie.objectfifo @in(%tile_0_0, {{%tile_0_2}}, 2 : i32) : !aie.objectfifo<memref<16xi32>>
    aie.objectfifo @out(%tile_0_2, {{%tile_0_0}}, 2 : i32) : !aie.objectfifo<memref<16xi32>>
    aie.objectfifo.link [@in] -> [@out] ([] [])
    {sequence}
  }}
}}"#
    )
}

const MEMCPY: &str = "aie.runtime_sequence(%a: memref<64xi32>, %b: memref<64xi32>) {
      aiex.npu.dma_memcpy_nd(%b[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<64xi32>
      aiex.npu.dma_memcpy_nd(%a[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<64xi32>
      aiex.npu.dma_wait {symbol = @out}
    }";

/// Column and row before the operand, three strides, `func.func` in place of a sequence, an explicit wait.
const OF_2024: &str = "func.func @sequence(%a: memref<64xi32>, %b: memref<64xi32>) {
      aiex.npu.dma_memcpy_nd(0, 0, %b[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0]) {id = 1 : i64, metadata = @out} : memref<64xi32>
      aiex.npu.dma_memcpy_nd(0, 0, %a[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0]) {id = 0 : i64, metadata = @in} : memref<64xi32>
      aiex.npu.sync {channel = 0 : i32, column = 0 : i32, column_num = 1 : i32, direction = 0 : i32, row = 0 : i32, row_num = 1 : i32}
      return
    }";

/// Tasks that are configured by the name of a FIFO, started and awaited.
const OF_2025: &str = "aie.runtime_sequence @sequence(%a: memref<64xi32>, %b: memref<64xi32>) {
      %0 = aiex.dma_configure_task_for @in {
        aie.dma_bd(%a : memref<64xi32>, 0, 64, [<size = 1, stride = 0>, <size = 1, stride = 0>, <size = 1, stride = 0>, <size = 64, stride = 1>]) {burst_length = 0 : i32}
        aie.end
      }
      aiex.dma_start_task(%0)
      %1 = aiex.dma_configure_task_for @out {
        aie.dma_bd(%b : memref<64xi32>, 0, 64, [<size = 1, stride = 0>, <size = 1, stride = 0>, <size = 1, stride = 0>, <size = 64, stride = 1>]) {burst_length = 0 : i32}
        aie.end
      } {issue_token = true}
      aiex.dma_start_task(%1)
      aiex.dma_await_task(%1)
      aiex.dma_free_task(%0)
    }";

fn counted() -> Vec<i32> {
    (1..=64).collect()
}

#[test]
fn sequences_of_every_year_run() {
    for (year, sequence) in [("now", MEMCPY), ("2024", OF_2024), ("2025", OF_2025)] {
        let report = run_text(&design("npu2", sequence));
        assert_eq!(words(&report), counted(), "{year}");
    }
}

/// Devices of both generations, and parts of an array.
#[test]
fn devices_by_generation_and_columns() {
    for device in [
        "npu2",
        "npu2_1col",
        "npu2_4col",
        "npu1",
        "npu1_1col",
        "npu1_4col",
    ] {
        assert_eq!(
            words(&run_text(&design(device, MEMCPY))),
            counted(),
            "{device}"
        );
    }
    let second = |device: &str| {
        let text = design(device, MEMCPY).replace("aie.tile(0, ", "aie.tile(1, ");
        match Design::read(&text) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(second("npu2_2col"), "");
    assert_eq!(second("npu1_2col"), "");
    let refused = second("npu2_1col");
    let expected = "line 3, column 17: `aie.tile`: npu2_1col has 1 column, and no tile (1, 0)";
    assert_eq!(refused, expected);
    for device in ["npu2_9col", "npu1_5col", "npu2_0col", "npu2_xcol", "npu25"] {
        let refused = second(device);
        assert!(
            refused.contains("is no NPU1 or NPU2"),
            "{device}: {refused}"
        );
    }
}

/// Physical text in the words of `aie-opt --mlir-print-op-generic`: names of enumerations are numbers there.
#[test]
fn the_generic_form_of_ops_runs() {
    let text = r#""aie.device"() <{device = npu2}> ({
  %shim = "aie.tile"() <{col = 0 : i32, row = 0 : i32}> : () -> index
  %mem = "aie.tile"() <{col = 0 : i32, row = 1 : i32}> : () -> index
  %block = "aie.buffer"(%mem) <{address = 0 : i32, sym_name = "block"}> : (index) -> memref<16xi32>
  %empty = "aie.lock"(%mem) <{init = 1 : i32, lockID = 0 : i32}> : (index) -> index
  %full = "aie.lock"(%mem) <{init = 0 : i32, lockID = 1 : i32}> : (index) -> index
  "aie.flow"(%shim, %mem) <{dest_bundle = DMA, dest_channel = 0 : i32, source_bundle = DMA, source_channel = 0 : i32}> : (index, index) -> ()
  "aie.flow"(%mem, %shim) <{dest_bundle = DMA, dest_channel = 0 : i32, source_bundle = DMA, source_channel = 0 : i32}> : (index, index) -> ()
  %dma = "aie.memtile_dma"(%mem) ({
    %0 = "aie.dma_start"()[^bb1, ^bb2] <{channel_dir = S2MM, channel_index = 0 : i32}> : () -> i1
  ^bb1:
    "aie.use_lock"(%empty) <{action = AcquireGreaterEqual, value = 1 : i32}> : (index) -> ()
    "aie.dma_bd"(%block) <{len = 16 : i32, offset = 0 : i32}> : (memref<16xi32>) -> ()
    "aie.use_lock"(%full) <{action = Release, value = 1 : i32}> : (index) -> ()
    "aie.next_bd"()[^bb1] : () -> ()
  ^bb2:
    %1 = "aie.dma_start"()[^bb3, ^bb4] <{channel_dir = MM2S, channel_index = 0 : i32}> : () -> i1
  ^bb3:
    "aie.use_lock"(%full) <{action = AcquireGreaterEqual, value = 1 : i32}> : (index) -> ()
    "aie.dma_bd"(%block) <{len = 16 : i32, offset = 0 : i32}> : (memref<16xi32>) -> ()
    "aie.use_lock"(%empty) <{action = Release, value = 1 : i32}> : (index) -> ()
    "aie.next_bd"()[^bb3] : () -> ()
  ^bb4:
    "aie.end"() : () -> ()
  }) : (index) -> index
  "aie.shim_dma_allocation"(%shim) <{channel_dir = MM2S, channel_index = 0 : i64, sym_name = "in"}> : (index) -> ()
  "aie.shim_dma_allocation"(%shim) <{channel_dir = S2MM, channel_index = 0 : i64, sym_name = "out"}> : (index) -> ()
  aie.runtime_sequence(%a: memref<64xi32>, %b: memref<64xi32>) {
    aiex.npu.dma_memcpy_nd(%b[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<64xi32>
    aiex.npu.dma_memcpy_nd(%a[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<64xi32>
    aiex.npu.dma_wait {symbol = @out}
  }
  "aie.end"() : () -> ()
}) : () -> ()"#;
    assert_eq!(words(&run_text(text)), counted());
    // An enumeration given as its number cannot be identified.
    let numbered = Design::read(&text.replace("device = npu2", "device = 8 : i32"));
    let error = numbered.expect_err("a number").to_string();
    assert!(
        error.contains("`aie.device`: `device` is no name"),
        "{error}"
    );
}

/// An op without a meaning here is refused with its line and its name, at the top level or within another.
#[test]
fn what_is_not_known_is_refused_with_line_and_op() {
    let rows = [
        (
            "%t = aie.logical_tile<PLTile>(?, ?)",
            "line 8, column 10: `aie.logical_tile`: an NPU2 has no PLTile",
        ),
        (
            "aie.trace.config @t(%tile_0_2) {\n}",
            "line 8, column 5: `aie.trace.config`",
        ),
        (
            "aie.objectfifo.register_external_buffers @in (%tile_0_0, {%b}) : (memref<16xi32>)",
            "line 8, column 5: `aie.objectfifo.register_external_buffers`",
        ),
        (
            "aie.runtime_sequence(%a: memref<64xi32>) {\naiex.control_packet {address = 0 : ui32, opcode = 3 : i32, stream_id = 0 : i32, data = array<i32: 2>}\n}",
            "line 9, column 1: `aiex.control_packet`",
        ),
        (
            "aie.runtime_sequence(%a: memref<64xi32>) {\naiex.npu.dma_memcpy_nd(%a[0, 0, 0, 0][1, 1, 1, 64][0, 0]) {id = 1 : i64, metadata = @in} : memref<64xi32>\n}",
            "line 9, column 1: `aiex.npu.dma_memcpy_nd`: `strides` has not four numbers",
        ),
        (
            "aie.runtime_sequence(%a: memref<64xi32>) {\naiex.configure @other {\n}\n}",
            "line 9, column 1: `aiex.configure`",
        ),
    ];
    for (op, expected) in rows {
        let read = Design::read(&design("npu2", op));
        let checked = read.and_then(|design| design.check().map(|_| ()));
        let error = checked.expect_err(op).to_string();
        assert!(
            error.contains(expected),
            "{op}\nexpected {expected}\nfound    {error}"
        );
    }
}

/// The behaviour of a core whose program is an ELF file is unknown: it does not count as a core that has ended.
#[test]
fn a_program_in_an_elf_file_is_refused() {
    let core = |body: &str| {
        format!(
            "%core_0_2 = aie.core(%tile_0_2) {{\n{body}\naie.end\n}} {{elf_file = \"core_0_2.elf\"}}"
        )
    };
    let read = |body: &str| Design::read(&design("npu2", &format!("{}\n{MEMCPY}", core(body))));
    let error = read("").expect_err("no program").to_string();
    let expected = "`aie.core`: its program is in core_0_2.elf, which is not read here";
    assert!(error.contains(expected), "{error}");
    // With ops, the core is read from them.
    let body = "%c0 = arith.constant 0 : index";
    assert!(read(body).is_ok(), "{:?}", read(body).err());
}

/// A FIFO's dimensions, spelt on both ends: rows of 4 x 4 go out as columns.
#[test]
fn dimensions_to_the_stream_transpose() {
    let text = design("npu2", MEMCPY)
        .replace("%tile_0_2 = aie.tile(0, 2)", "%tile_0_2 = aie.tile(0, 1)")
        .replace(
            "@out(%tile_0_2, {",
            "@out(%tile_0_2 dimensionsToStream [<size = 4, stride = 1>, <size = 4, stride = 4>], {",
        );
    let expected: Vec<i32> = (0..64)
        .map(|i| i / 16 * 16 + i % 4 * 4 + i % 16 / 4 + 1)
        .collect();
    assert_eq!(words(&run_text(&text)), expected);
}

/// Packets of two ids over one way, and a sequence that waits for both.
#[test]
fn packet_flows_of_two_ids_share_a_channel() {
    let text = r#"aie.device(npu2_1col) {
  %shim = aie.tile(0, 0)
  %mem = aie.tile(0, 1)
  aie.packet_flow(0x1) {
    aie.packet_source<%shim, DMA : 0>
    aie.packet_dest<%mem, DMA : 0>
  }
  aie.packet_flow(0x2) {
    aie.packet_source<%shim, DMA : 0>
    aie.packet_dest<%mem, DMA : 1>
  }
  aie.flow(%mem, DMA : 0, %shim, DMA : 0)
  %one = aie.buffer(%mem) {sym_name = "one"} : memref<8xi32>
  %two = aie.buffer(%mem) {sym_name = "two"} : memref<8xi32>
  %e1 = aie.lock(%mem) {init = 1 : i32}
  %f1 = aie.lock(%mem) {init = 0 : i32}
  %e2 = aie.lock(%mem) {init = 1 : i32}
  %f2 = aie.lock(%mem) {init = 0 : i32}
  %dma = aie.memtile_dma(%mem) {
    %0 = aie.dma(S2MM, 0) [{
      aie.use_lock(%e1, AcquireGreaterEqual, 1)
      aie.dma_bd(%one : memref<8xi32>)
      aie.use_lock(%f1, Release, 1)
    }]
    %1 = aie.dma(S2MM, 1) [{
      aie.use_lock(%e2, AcquireGreaterEqual, 1)
      aie.dma_bd(%two : memref<8xi32>)
      aie.use_lock(%f2, Release, 1)
    }]
    %2 = aie.dma(MM2S, 0) [{
      aie.use_lock(%f2, AcquireGreaterEqual, 1)
      aie.dma_bd(%two : memref<8xi32>)
      aie.use_lock(%e2, Release, 1)
    }, {
      aie.use_lock(%f1, AcquireGreaterEqual, 1)
      aie.dma_bd(%one : memref<8xi32>)
      aie.use_lock(%e1, Release, 1)
    }]
    aie.end
  }
  aie.runtime_sequence(%a: memref<16xi32>, %b: memref<16xi32>) {
    %to = aiex.dma_configure_task(%shim, S2MM, 0) {
      aie.dma_bd(%b : memref<16xi32>, 0, 16)
      aie.end
    } {issue_token = true}
    aiex.dma_start_task(%to)
    %first = aiex.dma_configure_task(%shim, MM2S, 0) {
      aie.dma_bd(%a : memref<16xi32>, 0, 8) {packet = #aie.packet_info<pkt_type = 0, pkt_id = 1>}
      aie.end
    }
    aiex.dma_start_task(%first)
    %second = aiex.dma_configure_task(%shim, MM2S, 0) {
      aie.dma_bd(%a : memref<16xi32>, 8, 8) {packet = #aie.packet_info<pkt_type = 0, pkt_id = 2>}
      aie.end
    }
    aiex.dma_start_task(%second)
    aiex.dma_await_task(%to)
  }
}"#;
    let expected: Vec<i32> = (9..=16).chain(1..=8).collect();
    assert_eq!(words(&run_text(text)), expected);
    // Without its second packet it waits, and names the sender.
    let report = run_text(&text.replace("    aiex.dma_start_task(%second)\n", ""));
    assert_eq!(report.verdict, Verdict::Hang);
    let ring = report.ring.join("\n");
    assert!(
        ring.contains("memory (0, 1) S2MM 1") || ring.contains("nobody releases"),
        "{ring}"
    );
}
