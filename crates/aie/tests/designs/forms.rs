//! Forms of texts that IRON, mlir-air and mlir-aie's own tests have: each once, small.

use crate::{core_design, run_text, text, words};
use millrace_aie::{Design, HostNumber, ReadOptions, RunOptions, RunReport, Verdict, run};

/// Output of a core's body for 1 to 16, with declarations of the file before it.
fn body(file: &str, body: &str) -> Vec<i32> {
    words(&run_text(&format!("{file}\n{}", core_design("", body))))
}

fn map(of: impl Fn(i32) -> i32) -> Vec<i32> {
    (1..=16).map(of).collect()
}

/// A sequence on the passthrough design, in place of its own.
fn sequence(body: &str) -> String {
    let text = text("passthrough");
    let (head, _) = text.split_once("aie.runtime_sequence").unwrap();
    format!(
        "{head}aie.runtime_sequence(%from: memref<1024xi32>, %to: memref<1024xi32>) {{\n{body}\n}}\n}}\n}}"
    )
}

const COPY: &str = "aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 1024][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<1024xi32>
    aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 1024][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<1024xi32>
    aiex.npu.dma_wait {symbol = @out}";

/// Why a text cannot be judged.
fn refusal(text: &str) -> String {
    let design = Design::read(text).and_then(|design| {
        let arguments: Vec<Vec<u8>> = design
            .arguments()
            .map(|row| vec![0; row.2 as usize])
            .collect();
        run(&design, &arguments, RunOptions::default())
    });
    design.expect_err("it is refused").to_string()
}

fn counted(n: i32) -> Vec<i32> {
    (1..=n).collect()
}

#[test]
fn affine_loops_and_expressions() {
    let loops = "affine.for %i = 0 to 4 {
      affine.for %j = 0 to 8 step 2 {
        %x = affine.load %in[%i * 4 + %j floordiv 2] : memref<16xi32>
        %k = affine.apply affine_map<(d0)[s0] -> (d0 mod 3 + s0)>(%j)[%i]
        %w = arith.index_cast %k : index to i32
        %y = arith.addi %x, %w : i32
        affine.store %y, %out[%i * 4 + %j ceildiv 2] : memref<16xi32>
      }
    }";
    let expected = map(|x| {
        let (i, j) = ((x - 1) / 4, (x - 1) % 4 * 2);
        x + j % 3 + i
    });
    assert_eq!(body("", loops), expected);
    // Named maps as bounds, the smaller of two, and values that a loop carries.
    let file = "#first = affine_map<(d0) -> (d0 * 2)>\n#last = affine_map<(d0) -> (d0 + 20, 16)>";
    let carried = "%zero = arith.constant 0 : i32
    affine.for %i = 0 to 16 {
      %sum = affine.for %j = #first(%c0) to min #last(%i) iter_args(%s = %zero) -> (i32) {
        %x = affine.load %in[%j] : memref<16xi32>
        %t = arith.addi %s, %x : i32
        affine.yield %t : i32
      }
      affine.store %sum, %out[%i] : memref<16xi32>
    }";
    assert_eq!(body(file, carried), map(|_| 136));
    let missing = refusal(&core_design("", "%k = affine.apply #nothing(%c0)"));
    assert!(
        missing.contains("`affine.apply`: there is no map `#nothing`"),
        "{missing}"
    );
}

#[test]
fn ops_of_the_index_dialect() {
    let ops = "%two = index.constant 2
    scf.for %i = %c0 to %c16 step %c1 {
      %x = memref.load %in[%i] : memref<16xi32>
      %double = index.mul %i, %two
      %less = index.cmp slt(%double, %c16)
      %word = index.casts %double : index to i32
      %y = arith.select %less, %word, %x : i32
      memref.store %y, %out[%i] : memref<16xi32>
    }";
    assert_eq!(body("", ops), map(|x| if x <= 8 { 2 * (x - 1) } else { x }));
}

/// Unused results have no names in the text.
#[test]
fn results_without_names() {
    let unnamed = "scf.while (%i = %c0) : (index) -> index {
      %x = memref.load %in[%i] : memref<16xi32>
      memref.store %x, %out[%i] : memref<16xi32>
      %next = arith.addi %i, %c1 : index
      %more = arith.cmpi slt, %next, %c16 : index
      scf.condition(%more) %next : index
    } do {
    ^bb0(%next: index):
      scf.yield %next : index
    }
    scf.for %i = %c0 to %c1 step %c1 iter_args(%s = %c0) -> (index) {
      scf.yield %s : index
    }";
    assert_eq!(body("", unnamed), map(|x| x));
}

#[test]
fn alignment_is_believed() {
    let core = "memref.assume_alignment %in, 64 : memref<16xi32>
    %other = memref.assume_alignment %in, 64 : memref<16xi32> -> memref<16xi32>
    memref.copy %other, %out : memref<16xi32> to memref<16xi32>";
    assert_eq!(body("", core), map(|x| x));
    let aligned = format!(
        "memref.assume_alignment %to, 64 : memref<1024xi32>
        %same = memref.assume_alignment %from, 64 : memref<1024xi32>
        {}",
        COPY.replace("%from", "%same")
    );
    assert_eq!(words(&run_text(&sequence(&aligned))), counted(1024));
}

/// Tiles may trace: nothing is recorded, and the design's results are the same.
#[test]
fn traces_change_nothing() {
    let traced = sequence(&format!(
        "aie.trace.host_config buffer_size = 8192
        aie.trace.start_config @memory
        aiex.npu.write32 {{address = 606416 : ui32, column = 0 : i32, row = 1 : i32, value = 10289152 : ui32}}
        aiex.npu.maskwrite32 {{address = 213000 : ui32, column = 0 : i32, row = 0 : i32, value = 127 : ui32, mask = 127 : ui32}}
        {COPY}"
    ));
    let config = "aie.trace @memory(%mem_0_1) {
      aie.trace.packet id=3 type=memtile
      aie.trace.event<\"PORT_RUNNING_0\">
      aie.trace.port<0> port=DMA channel=0 direction=MM2S
      aie.trace.start broadcast=15
    }
    aie.runtime_sequence";
    let report = run_text(&traced.replacen("aie.runtime_sequence", config, 1));
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("traces are not recorded"))
    );
    assert_eq!(words(&report), counted(1024));
}

/// A trace's buffer need not be full when the sequence ends; any other must.
#[test]
fn the_buffer_of_a_trace_may_stay_empty() {
    let start = |source: &str| {
        let task = "%trace = aiex.dma_configure_task(%shim_0_0, S2MM, 1) {
          aie.dma_bd(%more : memref<64xi32>, 0, 64) {bd_id = 9 : i32}
          aie.end
        }
        aiex.dma_start_task(%trace)";
        let text = sequence(&format!("{task}\n{COPY}"));
        let text = text.replace(
            "%to: memref<1024xi32>)",
            "%to: memref<1024xi32>, %more: memref<64xi32>)",
        );
        let flow = format!(
            "aie.packet_flow(5) {{
              aie.packet_source<%mem_0_1, {source}>
              aie.packet_dest<%shim_0_0, DMA : 1>
            }}
            aie.runtime_sequence"
        );
        run_text(&text.replacen("aie.runtime_sequence", &flow, 1))
    };
    assert!(start("Trace : 0").verdict.is_pass());
    assert_eq!(start("DMA : 3").verdict, Verdict::Hang);
}

/// A descriptor for traces whose address nobody patches, as designs of 2024 have it: no word comes, so none is written
/// there. A channel that takes other words writes to that address, and fails.
#[test]
fn the_address_of_a_trace_may_lie_in_no_argument() {
    let start = |source: &str| {
        let raw = "aiex.npu.writebd {bd_id = 9 : i32, buffer_length = 64 : i32, buffer_offset = 294912 : i32, column = 0 : i32, row = 0 : i32,
          d0_size = 0 : i32, d0_stride = 0 : i32, d1_size = 0 : i32, d1_stride = 0 : i32, d2_stride = 0 : i32, enable_packet = 0 : i32,
          iteration_current = 0 : i32, iteration_size = 0 : i32, iteration_stride = 0 : i32, lock_acq_enable = 0 : i32, lock_acq_id = 0 : i32,
          lock_acq_val = 0 : i32, lock_rel_id = 0 : i32, lock_rel_val = 0 : i32, next_bd = 0 : i32, out_of_order_id = 0 : i32,
          packet_id = 0 : i32, packet_type = 0 : i32, use_next_bd = 0 : i32, valid_bd = 1 : i32}
        aiex.npu.write32 {address = 0x1d20c : ui32, column = 0 : i32, row = 0 : i32, value = 9 : ui32}";
        let flow = format!(
            "aie.packet_flow(5) {{
              aie.packet_source<{source}>
              aie.packet_dest<%shim_0_0, DMA : 1>
            }}
            aie.runtime_sequence"
        );
        let text = sequence(&format!("{raw}\n{COPY}"));
        run_text(&text.replacen("aie.runtime_sequence", &flow, 1))
    };
    let report = start("%mem_0_1, Trace : 0");
    assert_eq!(words(&report), counted(1024));
    let note = "shim (0, 0) S2MM 1, descriptor 9: its address 0x48000 lies in no argument";
    assert!(
        report.notes.iter().any(|of| of.contains(note)),
        "{report:#?}"
    );
    // A read from such an address fails as before: the descriptor is pushed to a channel that sends.
    let raw = sequence(&format!(
        "aiex.npu.writebd {{bd_id = 9 : i32, buffer_length = 64 : i32, buffer_offset = 294912 : i32, column = 0 : i32, row = 0 : i32, valid_bd = 1 : i32}}
        aiex.npu.write32 {{address = 0x1d21c : ui32, column = 0 : i32, row = 0 : i32, value = 9 : ui32}}
        {COPY}"
    ));
    let flow = "aie.flow(%shim_0_0, DMA : 1, %mem_0_1, DMA : 3)
            aie.runtime_sequence";
    let report = run_text(&raw.replacen("aie.runtime_sequence", flow, 1));
    assert_eq!(report.verdict, Verdict::Fail, "{report:#?}");
    let problem = report.problem.unwrap_or_default();
    assert!(
        problem.contains("address 0x48000 lies in no argument"),
        "{problem}"
    );
}

/// The first name that the first generation had.
#[test]
fn the_oldest_name_of_a_device() {
    let old = text("passthrough").replace("aie.device(npu2_1col)", "aie.device(npu)");
    assert_eq!(words(&run_text(&old)), counted(1024));
}

/// A channel's control may be written while it works: with the present id of tokens, or one that no task needs.
#[test]
fn the_id_of_tokens_may_be_written() {
    let with = |tile: &str, id: u32| {
        let write = format!(
            "aiex.npu.maskwrite32 {{address = 0x1d200 : ui32, column = 0 : i32, row = 0 : i32, mask = 0xF00 : ui32, value = {} : ui32}}",
            id << 8
        );
        let lines: Vec<&str> = COPY.lines().collect();
        let text = sequence(&format!(
            "{}\n{}\n{write}\n{}",
            lines[0], lines[1], lines[2]
        ));
        run_text(&text.replace("%shim_0_0 = aie.tile(0, 0)", tile))
    };
    let tile =
        "%shim_0_0 = aie.tile(0, 0) {controller_id = #aie.packet_info<pkt_type = 0, pkt_id = 3>}";
    assert_eq!(with(tile, 3).verdict, Verdict::Pass);
    // A token under way could have either id.
    let other = with(tile, 4);
    assert_eq!(other.verdict, Verdict::Fail);
    assert!(
        other
            .problem
            .unwrap()
            .contains("the control of a channel at work is written")
    );
}

/// Undocumented behaviour is refused with its line, and gives no verdict.
#[test]
fn what_is_not_documented_is_refused() {
    let text = sequence(&format!(
        "aiex.npu.write32 {{address = 0x60000 : ui32, column = 0 : i32, row = 2 : i32, value = 1 : ui32}}\n{COPY}"
    ));
    let found = refusal(&text);
    assert!(
        found.starts_with(
            "line 10, column 1: `aie.runtime_sequence`: what writing it does: not documented"
        ),
        "{found}"
    );
}

/// A kernel with a known name and other memrefs moves data only.
#[test]
fn kernels_of_other_memrefs_are_not_known() {
    let call = "func.call @scale_int32(%in, %out) : (memref<16xi32>, memref<16xi32>) -> ()";
    let device = "func.func private @scale_int32(memref<16xi32>, memref<16xi32>)";
    let report = run_text(&core_design(device, call));
    assert_eq!(report.verdict, Verdict::Pass);
    assert_eq!(report.unknown_kernels, ["scale_int32"]);
}

/// A design in place writes over words that it read before. A read behind a write that is still at work is a race.
#[test]
fn a_design_may_compute_in_place() {
    let in_place = COPY.replace("%to", "%from");
    let report = run_text(&sequence(&in_place));
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    let second = "aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 64][1, 1, 1, 960][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<1024xi32>
        aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 1024][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<1024xi32>
        aiex.npu.dma_wait {symbol = @out}";
    let report = run_text(&sequence(second));
    assert_eq!(report.verdict, Verdict::Fail, "{report:#?}");
    assert!(report.problem.unwrap().contains("race"));
}

/// A core is at work long before the first command of a sequence, which may reach into its memory.
#[test]
fn a_sequence_reaches_into_memory() {
    let design = "aie.device(npu2) {
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      %go = aie.lock(%core, 0) {init = 0 : i32, sym_name = \"go\"}
      %buffer = aie.buffer(%core) {sym_name = \"buffer\"} : memref<4xi32>
      aie.objectfifo @out(%core, {%shim}, 1 : i32) : !aie.objectfifo<memref<4xi32>>
      aie.core(%core) {
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %c4 = arith.constant 4 : index
        %ones = arith.constant -1 : i32
        scf.for %i = %c0 to %c4 step %c1 {
          memref.store %ones, %buffer[%i] : memref<4xi32>
        }
        aie.use_lock(%go, AcquireGreaterEqual, 1)
        %new = aie.objectfifo.acquire @out(Produce, 1) : !aie.objectfifosubview<memref<4xi32>>
        %to = aie.objectfifo.subview.access %new[0] : !aie.objectfifosubview<memref<4xi32>> -> memref<4xi32>
        memref.copy %buffer, %to : memref<4xi32> to memref<4xi32>
        aie.objectfifo.release @out(Produce, 1)
        aie.end
      }
      aie.runtime_sequence(%to: memref<4xi32>) {
        aiex.npu.maskwrite32 {buffer = @buffer, address = 1 : ui32, value = 0x12345678 : ui32, mask = 0xF0F0F0F0 : ui32}
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 4][0, 0, 0, 1]) {id = 0 : i64, metadata = @out} : memref<4xi32>
        aiex.set_lock(%go, 1)
        aiex.npu.dma_wait {symbol = @out}
      }
    }";
    let mixed = (0x1234_5678u32 & 0xF0F0_F0F0 | 0x0F0F_0F0F) as i32;
    assert_eq!(words(&run_text(design)), [-1, mixed, -1, -1]);
}

/// Arguments may have more bytes than their type.
#[test]
fn arguments_are_as_long_as_transfers_reach() {
    let short = text("passthrough").replace("memref<1024xi32>", "memref<16xi32>");
    let report = run_text(&short);
    assert_eq!(words(&report), counted(1024));
    let note =
        "argument 0 (%from: memref<16xi32>) is taken for 4096 bytes, as far as transfers reach";
    assert!(
        report.notes.iter().any(|found| found == note),
        "{:#?}",
        report.notes
    );
}

/// A fifth task finds the queue full where nothing waits for a place before it.
#[test]
fn a_sequence_may_wait_for_places() {
    let mut six = String::new();
    for i in 0..6 {
        six += &format!(
            "aiex.npu.dma_memcpy_nd(%from[0, 0, 0, {}][1, 1, 1, 160][0, 0, 0, 1]) {{id = {} : i64, metadata = @in}} : memref<1024xi32>\n",
            i * 160,
            i + 2
        );
    }
    let text = sequence(&format!(
        "aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 960][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<1024xi32>
        {six}aiex.npu.dma_wait {{symbol = @out}}"
    ));
    let tried = |queue_waits: bool| -> RunReport {
        let options = ReadOptions {
            queue_waits,
            ..ReadOptions::default()
        };
        let design = Design::read_with(&text, &options).unwrap();
        let arguments = [design.counting(0), vec![0; 4096]];
        run(&design, &arguments, RunOptions::default()).unwrap()
    };
    let lost = tried(false);
    assert_eq!(lost.verdict, Verdict::Fail);
    let problem = lost.problem.unwrap();
    assert!(
        problem.contains("a further one is lost; mlir-aie inserts a wait for a place"),
        "{problem}"
    );
    let waited = tried(true);
    assert_eq!(waited.verdict, Verdict::Pass, "{waited:#?}");
    assert_eq!(words(&waited)[..960], counted(960));
}

/// Cores of designs that only move data may loop for ever.
#[test]
fn a_core_may_turn_for_ever() {
    let core = "%idle = aie.tile(0, 2)
    aie.core(%idle) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %forever = arith.constant 9223372036854775807 : index
      scf.for %i = %c0 to %forever step %c1 {
      }
      aie.end
    }
    aie.runtime_sequence";
    let report = run_text(&text("passthrough").replacen("aie.runtime_sequence", core, 1));
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    assert!(report.orders.iter().any(|order| order == "all DMA slowest"));
    assert_eq!(words(&report), counted(1024));
}

/// A sequence that takes numbers is run with those that are given.
#[test]
fn sequences_take_numbers() {
    let text = text("passthrough")
        .replace("%to: memref<1024xi32>)", "%to: memref<1024xi32>, %n: i64)")
        .replace("[1, 1, 1, 1024]", "[1, 1, %n, 64]")
        .replace("[0, 0, 0, 1])", "[0, 0, 64, 1])");
    let error = Design::read(&text).expect_err("no number").to_string();
    assert!(
        error.contains("`aie.runtime_sequence`: %n is a number: give it by --number n=VALUE"),
        "{error}"
    );
    let options = ReadOptions {
        numbers: [("n".to_owned(), HostNumber::Whole(3))].into(),
        ..ReadOptions::default()
    };
    let design = Design::read_with(&text, &options).unwrap();
    let arguments = [design.counting(0), vec![0; 4096]];
    let report = run(&design, &arguments, RunOptions::default()).unwrap();
    assert_eq!(words(&report)[..193], [counted(192), vec![0]].concat());
}
