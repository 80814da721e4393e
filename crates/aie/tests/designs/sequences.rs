//! Sequences: loops, numbers, descriptors field by field; and FIFOs that send an object again.

use crate::{core_design, run_text, typed_core_design, words};
use millrace_aie::{Design, Verdict};

/// A copy of 64 words through a memory tile, whose sequence is given.
fn copy(sequence: &str) -> String {
    format!(
        "aie.device(npu2) {{
  %shim = aie.tile(0, 0)
  %mem = aie.tile(0, 1)
  aie.objectfifo @in(%shim, {{%mem}}, 2 : i32) : !aie.objectfifo<memref<16xi32>>
  aie.objectfifo @out(%mem, {{%shim}}, 2 : i32) : !aie.objectfifo<memref<16xi32>>
  aie.objectfifo.link [@in] -> [@out]([] [])
  aie.runtime_sequence(%from: memref<64xi32>, %to: memref<64xi32>) {{
    {sequence}
  }}
}}"
    )
}

fn counted(n: i32) -> Vec<i32> {
    (1..=n).collect()
}

#[test]
fn loops_are_unrolled() {
    let looped = "%c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : i64
    scf.for %i = %c0 to %c4 step %c1 {
      %i64 = arith.index_cast %i : index to i64
      %at = arith.muli %i64, %c16 : i64
      aiex.npu.dma_memcpy_nd(%to[0, 0, 0, %at][1, 1, 1, 16][0, 0, 0, 1]) {id = 1 : i64, metadata = @out, issue_token = true} : memref<64xi32>
      aiex.npu.dma_memcpy_nd(%from[0, 0, 0, %at][1, 1, 1, 16][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<64xi32>
      aiex.npu.dma_wait {symbol = @out}
    }";
    assert_eq!(words(&run_text(&copy(looped))), counted(64));
    // Tasks pass from one turn to the next: each awaits the one before.
    let carried = "%c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c16 = arith.constant 16 : index
    %all = aiex.dma_configure_task_for @in {
      aie.dma_bd(%from : memref<64xi32>, 0, 64)
      aie.end
    }
    aiex.dma_start_task(%all)
    %first = aiex.dma_configure_task_for @out {
      aie.dma_bd(%to : memref<64xi32>, 0, 16)
      aie.end
    } {issue_token = true}
    aiex.dma_start_task(%first)
    %last = scf.for %i = %c0 to %c3 step %c1 iter_args(%before = %first) -> (index) {
      %n = arith.addi %i, %c1 : index
      %at = arith.muli %n, %c16 : index
      %next = aiex.dma_configure_task_for @out {
        aie.dma_bd(%to : memref<64xi32> offset = %at len = 16)
        aie.end
      } {issue_token = true}
      aiex.dma_start_task(%next)
      aiex.dma_await_task(%before)
      scf.yield %next : index
    }
    aiex.dma_await_task(%last)";
    assert_eq!(words(&run_text(&copy(carried))), counted(64));
    let short = carried.replace(
        "    aiex.dma_await_task(%last)",
        "    aiex.dma_await_task(%none)",
    );
    let error = Design::read(&copy(&short)).and_then(|d| d.check().map(|_| ()));
    assert!(
        error
            .expect_err("no task")
            .to_string()
            .contains("%none is no task")
    );
}

#[test]
fn conditions_that_are_known_are_taken() {
    let text = |predicate: &str| {
        copy(&format!(
            "%a = arith.constant 3 : i32
    %b = arith.constant 5 : i32
    %less = arith.cmpi {predicate}, %a, %b : i32
    scf.if %less {{
      aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {{id = 0 : i64, metadata = @in}} : memref<64xi32>
    }}
    aiex.npu.preempt {{level = 1 : ui8}}
    aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<64xi32>
    aiex.npu.dma_wait {{symbol = @out}}"
        ))
    };
    assert_eq!(words(&run_text(&text("slt"))), counted(64));
    assert_eq!(run_text(&text("sgt")).verdict, Verdict::Hang);
}

#[test]
fn what_a_loop_may_not_be_is_refused() {
    let rows = [
        ("%n = arith.constant 100000 : index", "more than 65536 ops"),
        ("%n = arith.addi %x, %c1 : index", "%x is not constant here"),
    ];
    for (n, expected) in rows {
        let looped = format!(
            "%c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    {n}
    scf.for %i = %c0 to %n step %c1 {{
      aiex.npu.dma_wait {{symbol = @out}}
    }}"
        );
        let read = Design::read(&copy(&looped)).and_then(|design| design.check().map(|_| ()));
        let error = read.expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// A descriptor field by field, its address patched and its task pushed: the parts of `dma_memcpy_nd`.
#[test]
fn descriptors_are_written_field_by_field() {
    let zeros = "d0_size = 0 : i32, d0_stride = 0 : i32, d0_zero_after = 0 : i32, d0_zero_before = 0 : i32, d1_size = 0 : i32, d1_stride = 0 : i32, d1_zero_after = 0 : i32, d1_zero_before = 0 : i32, d2_size = 0 : i32, d2_stride = 0 : i32, d2_zero_after = 0 : i32, d2_zero_before = 0 : i32, enable_packet = 0 : i32, iteration_current = 0 : i32, iteration_size = 0 : i32, iteration_stride = 0 : i32, lock_acq_enable = 0 : i32, lock_acq_id = 0 : i32, lock_acq_val = 0 : i32, lock_rel_id = 0 : i32, lock_rel_val = 0 : i32, next_bd = 0 : i32, out_of_order_id = 0 : i32, packet_id = 0 : i32, packet_type = 0 : i32, use_next_bd = 0 : i32, valid_bd = 1 : i32";
    let text = |at: u32| {
        let fields = |bd: u32, length: u32| {
            format!(
                "aiex.npu.writebd {{bd_id = {bd} : i32, buffer_length = {length} : i32, buffer_offset = 0 : i32, burst_length = 64 : i32, column = 0 : i32, row = 0 : i32, {zeros}}}"
            )
        };
        copy(&format!(
            "{}
    aiex.npu.address_patch {{addr = {at} : ui32, arg_idx = 0 : i32, arg_plus = 64 : i32}}
    aiex.npu.push_queue(0, 0, MM2S : 0) {{bd_id = 0 : i32, issue_token = false, repeat_count = 0 : i32}}
    {}
    %ap = arith.constant 0 : i32
    aiex.npu.address_patch(%ap : i32) {{addr = {} : ui32, arg_idx = 1 : i32}}
    aiex.npu.push_queue(0, 0, S2MM : 0) {{bd_id = 1 : i32, issue_token = true, repeat_count = 0 : i32}}
    aiex.npu.sync {{channel = 0 : i32, column = 0 : i32, column_num = 1 : i32, direction = 0 : i32, row = 0 : i32, row_num = 1 : i32}}",
            fields(0, 32),
            fields(1, 32),
            at + 32
        ))
    };
    let report = run_text(&text(0x1D004));
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    let to = report
        .outputs
        .iter()
        .find(|output| output.argument == 1)
        .unwrap();
    let shown: Vec<i32> = to
        .bytes
        .chunks_exact(4)
        .take(32)
        .map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    assert_eq!(shown, (17..=48).collect::<Vec<i32>>());
    // Texts of early 2024 have two names for a stride; one of them is to be zero.
    let former = |stride: u32| {
        text(0x1D004).replace(
            "valid_bd = 1 : i32",
            &format!("d0_stepsize = {stride} : i32, valid_bd = 1 : i32"),
        )
    };
    assert_eq!(run_text(&former(0)).verdict, Verdict::Pass);
    let read = Design::read(&former(4)).and_then(|design| design.check());
    let error = read.map(|_| ()).expect_err("refused").to_string();
    assert!(error.contains("`d0_stepsize` of early 2024"), "{error}");
    let rows = [
        (
            "d0_zero_before = 0",
            "d0_zero_before = 1",
            "a descriptor of shim (0, 0) has no such field",
        ),
        ("packet_id = 0", "packet_id = 32", "32"),
        (
            "bd_id = 0 : i32, buffer",
            "bd_id = 16 : i32, buffer",
            "has no descriptor 16",
        ),
        (
            "burst_length = 64",
            "burst_length = 65",
            "bursts of 65 bytes",
        ),
    ];
    for (from, to, expected) in rows {
        let read =
            Design::read(&text(0x1D004).replace(from, to)).and_then(|d| d.check().map(|_| ()));
        let error = read.expect_err(to).to_string();
        assert!(
            error.contains(expected) && error.contains("aiex.npu.writebd"),
            "{error}"
        );
    }
}

/// A descriptor's iteration begins in the midst: four blocks of 16 words land from the third place on.
#[test]
fn an_iteration_may_begin_later() {
    let text = |current: u32| {
        format!(
            "aie.device(npu2) {{
  %shim = aie.tile(0, 0)
  %mem = aie.tile(0, 1)
  aie.flow(%shim, DMA : 0, %mem, DMA : 0)
  aie.flow(%mem, DMA : 0, %shim, DMA : 0)
  %dma = aie.memtile_dma(%mem) {{
    %empty = aie.lock(%mem) {{init = 4 : i32, sym_name = \"empty\"}}
    %full = aie.lock(%mem) {{init = 0 : i32, sym_name = \"full\"}}
    %all = aie.buffer(%mem) {{sym_name = \"all\"}} : memref<64xi32>
    %one = arith.constant 1 : i32
    %0 = aie.dma_start(S2MM, 0, ^in, ^next, repeat_count = 3)
  ^in:
    aie.use_lock(%empty, AcquireGreaterEqual, %one)
    aie.dma_bd(%all : memref<64xi32>, 0, 16) {{iteration = #aie.bd_iteration<size = 4, stride = 16, current = {current}>}}
    aie.use_lock(%full, Release, 1)
    aie.next_bd ^end
  ^next:
    %1 = aie.dma_start(MM2S, 0, ^out, ^end)
  ^out:
    aie.use_lock(%full, AcquireGreaterEqual, 4)
    aie.dma_bd(%all : memref<64xi32>)
    aie.use_lock(%empty, Release, 4)
    aie.next_bd ^end
  ^end:
    aie.end
  }}
  aie.shim_dma_allocation @in(%shim, MM2S, 0)
  aie.shim_dma_allocation @out(%shim, S2MM, 0)
  aie.runtime_sequence(%from: memref<64xi32>, %to: memref<64xi32>) {{
    aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<64xi32>
    aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {{id = 0 : i64, metadata = @in}} : memref<64xi32>
    aiex.npu.dma_wait {{symbol = @out}}
  }}
}}"
        )
    };
    assert_eq!(words(&run_text(&text(0))), counted(64));
    let turned: Vec<i32> = (33..=64).chain(1..=32).collect();
    assert_eq!(words(&run_text(&text(2))), turned);
    let error = Design::read(&text(4)).expect_err("beyond").to_string();
    assert!(error.contains("a current one below the size"), "{error}");
}

/// Each object of a FIFO leaves three times; its sender's locks count that.
#[test]
fn objects_are_sent_again() {
    let text = |more: &str, n: u32| {
        format!(
            "aie.device(npu2) {{
  %shim = aie.tile(0, 0)
  %mem = aie.tile(0, 1)
  aie.objectfifo @in(%shim, {{%mem}}, 2 : i32) : !aie.objectfifo<memref<16xi32>>
  aie.objectfifo @out(%mem, {{%shim}}, 2 : i32) {more} : !aie.objectfifo<memref<16xi32>>
  aie.objectfifo.link [@in] -> [@out]([] [])
  aie.runtime_sequence(%from: memref<64xi32>, %to: memref<{n}xi32>) {{
    aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, {n}][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<{n}xi32>
    aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {{id = 0 : i64, metadata = @in}} : memref<64xi32>
    aiex.npu.dma_wait {{symbol = @out}}
  }}
}}"
        )
    };
    let thrice: Vec<i32> = (0..192).map(|i| i / 48 * 16 + i % 16 + 1).collect();
    assert_eq!(
        words(&run_text(&text("{repeat_count = 3 : i32}", 192))),
        thrice
    );
    // Two objects at a time, twice: the chain ends, and later objects are never sent.
    let report = run_text(&text("{iter_count = 2 : i32}", 64));
    assert_eq!(words(&report), counted(64));
    assert_eq!(
        run_text(&text("{iter_count = 1 : i32}", 64)).verdict,
        Verdict::Hang
    );
    for (more, expected) in [
        ("{repeat_count = 257 : i32}", "`repeat_count` is 1 to 256"),
        ("{iter_count = 0 : i32}", "`iter_count` is 1 to 256"),
        (
            "{repeat_count = 40 : i32}",
            "2 objects, each sent 40 times: a lock counts to 63",
        ),
    ] {
        let error = Design::read(&text(more, 64)).expect_err(more).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// A core forwards an object that leaves twice: it takes and gives two units of the locks.
#[test]
fn a_core_gives_on_what_is_sent_again() {
    let body = "scf.for %i = %c0 to %c16 step %c1 {
      %x = memref.load %in[%i] : memref<16xi32>
      memref.store %x, %out[%i] : memref<16xi32>
    }";
    let text = core_design("", body)
        .replace(
            "@out(%core, {%shim}, 2 : i32)",
            "@out(%core, {%shim}, 2 : i32) {repeat_count = 2 : i32}",
        )
        .replace("%to: memref<16xi32>", "%to: memref<32xi32>")
        .replace("%to[0, 0, 0, 0][1, 1, 1, 16][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<16xi32>", "%to[0, 0, 0, 0][1, 1, 1, 32][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<32xi32>");
    let twice: Vec<i32> = (1..=16).chain(1..=16).collect();
    assert_eq!(words(&run_text(&text)), twice);
}

#[test]
fn vectors_are_taken_apart_and_put_together() {
    let body = "%v = vector.load %in[%c0] : memref<16xi32>, vector<16xi32>
    %w = vector.shuffle %v, %v [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 16] : vector<16xi32>, vector<16xi32>
    %s = vector.shape_cast %w : vector<16xi32> to vector<4x4xi32>
    %t = vector.shape_cast %s : vector<4x4xi32> to vector<16xi32>
    %b = vector.bitcast %t : vector<16xi32> to vector<32xi16>
    %d = vector.bitcast %b : vector<32xi16> to vector<16xi32>
    %seven = arith.constant 7 : i32
    %e = vector.insert %seven, %d[2] : i32 into vector<16xi32>
    vector.store %e, %out[%c0] : memref<16xi32>, vector<16xi32>";
    let mut expected: Vec<i32> = (2..=16).rev().chain([1]).collect();
    expected[2] = 7;
    assert_eq!(words(&run_text(&core_design("", body))), expected);
    let rows = [
        (
            "vector<16xi32> to vector<4x4xi32>",
            "vector<16xi32> to vector<4x5xi32>",
            "have not the same elements",
        ),
        (
            "to vector<32xi16>",
            "to vector<31xi16>",
            "have not the same bits",
        ),
        ("2, 1, 16]", "2, 1, -1]", "a negative number of an element"),
    ];
    for (from, to, expected) in rows {
        let read = Design::read(&core_design("", &body.replace(from, to)));
        let error = read
            .and_then(|design| design.check().map(|_| ()))
            .expect_err(to)
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn norms_and_activations_are_computed() {
    let run = |kernel: &str| -> Vec<f32> {
        let body =
            format!("func.call @{kernel}(%in, %out) : (memref<16xf32>, memref<16xf32>) -> ()");
        let report = run_text(&typed_core_design("f32", "", &body));
        assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
        assert!(report.unknown_kernels.is_empty(), "{kernel}");
        let bytes = report.outputs[0].bytes.chunks_exact(4);
        bytes
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect()
    };
    let near = |found: f32, expected: f64| (f64::from(found) - expected).abs() < 1e-5;
    let norm = run("layer_norm");
    // 1 to 16: a mean of 8.5, a variance of 21.25.
    assert!(near(norm[0], -7.5 / 21.25001f64.sqrt()), "{norm:?}");
    assert!(near(norm.iter().sum(), 0.0), "{norm:?}");
    let silu = run("silu_f32");
    assert!(
        near(silu[0], 0.731_058_6) && near(silu[1], 1.761_594_2),
        "{silu:?}"
    );
    let gelu = run("gelu_f32");
    assert!(
        near(gelu[0], 0.841_192) && near(gelu[1], 1.954_597_7),
        "{gelu:?}"
    );
}
