//! Acquires by equality, and the party that takes a lock that several wait for.

use crate::{run_text, words};
use millrace_aie::{Design, RunOptions, Verdict, run};

/// A copy through a core's memory. `takes` are the descriptors that send the received words, with `executions` of 16
/// words each.
fn by_equality(takes: &str, executions: u32) -> String {
    let n = 16 * executions;
    format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      %buffer = aie.buffer(%core) {{sym_name = \"buffer\"}} : memref<16xi32>
      %empty = aie.lock(%core, 0) {{init = 1 : i32, sym_name = \"empty\"}}
      %full = aie.lock(%core, 1) {{init = 0 : i32, sym_name = \"full\"}}
      aie.flow(%shim, DMA : 0, %core, DMA : 0)
      aie.flow(%core, DMA : 0, %shim, DMA : 0)
      aie.mem(%core) {{
        aie.dma(S2MM, 0) {{loop = false}} [{{
          aie.use_lock(%empty, Acquire, 1)
          aie.dma_bd(%buffer : memref<16xi32>)
          aie.use_lock(%full, Release, 1)
        }}]
        aie.dma(MM2S, 0) {{loop = false}} [{takes}]
        aie.end
      }}
      aie.shim_dma_allocation @in(%shim, MM2S, 0)
      aie.shim_dma_allocation @out(%shim, S2MM, 0)
      aie.runtime_sequence(%from: memref<16xi32>, %to: memref<{n}xi32>) {{
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, {n}][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<{n}xi32>
        aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 16][0, 0, 0, 1]) {{id = 0 : i64, metadata = @in}} : memref<16xi32>
        aiex.npu.dma_wait {{symbol = @out}}
      }}
    }}"
    )
}

const TAKE: &str = "{\naie.use_lock(%full, Acquire, 1)\naie.dma_bd(%buffer : memref<16xi32>)\n}";

/// The value that an acquire by equality leaves is not documented. Results that are alike with either reading are
/// reported.
#[test]
fn equality_counts_where_either_reading_ends_alike() {
    let report = run_text(&by_equality(TAKE, 1));
    assert_eq!(words(&report), (1..=16).collect::<Vec<i32>>());
    // Whether the second descriptor finds its lock depends on it.
    let twice = by_equality(&format!("{TAKE}, {TAKE}"), 2);
    let design = Design::read(&twice).unwrap_or_else(|error| panic!("{error}"));
    let arguments = [design.counting(0), vec![0; 128]];
    let error = run(&design, &arguments, RunOptions::default());
    let error = error.expect_err("refused").to_string();
    assert!(
        error.contains("HANG if the value is subtracted, PASS if the lock stays"),
        "{error}"
    );
    assert!(error.contains("`aie.use_lock`"), "{error}");
    // More than there ever is: nothing moves with either reading, and the report names the cause.
    let never = by_equality(&TAKE.replace("Acquire, 1", "Acquire, 2"), 1);
    let report = run_text(&never);
    assert_eq!(report.verdict, Verdict::Hang, "{report:#?}");
    assert!(
        report
            .ring
            .iter()
            .any(|line| line.contains("waits for just 2 of full")),
        "{:#?}",
        report.ring
    );
}

/// A core that waits until a lock has just the value that the sequence sets.
#[test]
fn cores_wait_for_equality() {
    let of = |set: u32| {
        format!(
            "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      %go = aie.lock(%core, 0) {{init = 0 : i32, sym_name = \"go\"}}
      aie.objectfifo @out(%core, {{%shim}}, 1 : i32) : !aie.objectfifo<memref<1xi32>>
      aie.core(%core) {{
        %c0 = arith.constant 0 : index
        %seven = arith.constant 7 : i32
        aie.use_lock(%go, Acquire, 2)
        %x = aie.objectfifo.acquire @out(Produce, 1) : memref<1xi32>
        memref.store %seven, %x[%c0] : memref<1xi32>
        aie.objectfifo.release @out(Produce, 1)
        aie.end
      }}
      aie.runtime_sequence(%to: memref<1xi32>) {{
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 1][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<1xi32>
        aiex.set_lock(%go, {set})
        aiex.npu.dma_wait {{symbol = @out}}
      }}
    }}"
        )
    };
    assert_eq!(words(&run_text(&of(2))), [7]);
    let report = run_text(&of(3));
    assert_eq!(report.verdict, Verdict::Hang);
    let lines = report.ring.join("\n");
    assert!(lines.contains("waits for just 2 of go"), "{lines}");
}

/// Two channels take one unit of a lock of two for each block, a third gives two back. A slow channel has requested its
/// unit by then: another does not take it twice.
#[test]
fn a_slow_channel_has_its_lock() {
    let text = "aie.device(npu2) {
      %shim = aie.tile(0, 0)
      %mem = aie.tile(0, 1)
      aie.flow(%shim, DMA : 0, %mem, DMA : 0)
      aie.flow(%shim, DMA : 1, %mem, DMA : 1)
      aie.flow(%mem, DMA : 0, %shim, DMA : 0)
      %block = aie.buffer(%mem) {sym_name = \"block\"} : memref<32xi32>
      %empty = aie.lock(%mem, 0) {init = 2 : i32, sym_name = \"empty\"}
      %full = aie.lock(%mem, 1) {init = 0 : i32, sym_name = \"full\"}
      aie.memtile_dma(%mem) {
        aie.dma(S2MM, 0) [{
          aie.use_lock(%empty, AcquireGreaterEqual, 1)
          aie.dma_bd(%block : memref<32xi32>, 0, 16)
          aie.use_lock(%full, Release, 1)
        }]
        aie.dma(S2MM, 1) [{
          aie.use_lock(%empty, AcquireGreaterEqual, 1)
          aie.dma_bd(%block : memref<32xi32>, 16, 16)
          aie.use_lock(%full, Release, 1)
        }]
        aie.dma(MM2S, 0) [{
          aie.use_lock(%full, AcquireGreaterEqual, 2)
          aie.dma_bd(%block : memref<32xi32>, 0, 32)
          aie.use_lock(%empty, Release, 2)
        }]
        aie.end
      }
      aie.shim_dma_allocation @a(%shim, MM2S, 0)
      aie.shim_dma_allocation @b(%shim, MM2S, 1)
      aie.shim_dma_allocation @out(%shim, S2MM, 0)
      aie.runtime_sequence(%x: memref<64xi32>, %to: memref<128xi32>) {
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 128][0, 0, 0, 1]) {id = 2 : i64, metadata = @out} : memref<128xi32>
        aiex.npu.dma_memcpy_nd(%x[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {id = 0 : i64, metadata = @a} : memref<64xi32>
        aiex.npu.dma_memcpy_nd(%x[0, 0, 0, 0][1, 1, 1, 64][0, 0, 0, 1]) {id = 1 : i64, metadata = @b} : memref<64xi32>
        aiex.npu.dma_wait {symbol = @out}
      }
    }";
    let report = run_text(text);
    let expected = (0..4).flat_map(|i| {
        let block = move || (1..=16).map(move |j| 16 * i + j);
        block().chain(block())
    });
    assert_eq!(words(&report), expected.collect::<Vec<i32>>());
    let slow = "memory (0, 1) S2MM 0 slowest".to_owned();
    assert!(report.orders.contains(&slow), "{:?}", report.orders);
    // One lock less is one block less at a time, and both are needed.
    let report = run_text(&text.replace("init = 2", "init = 1"));
    assert_eq!(report.verdict, Verdict::Hang, "{report:#?}");
}
