//! Causes that a failure names.

use crate::{core_design, run_text, text};
use millrace_aie::{Design, RunOptions, Verdict, run};

fn problem(text: &str) -> String {
    let report = run_text(text);
    assert_eq!(report.verdict, Verdict::Fail, "{report:#?}");
    report.problem.unwrap_or_default()
}

/// A write that is not awaited is named with its argument and its line.
#[test]
fn a_late_write_is_named() {
    let text = text("vector_add");
    let unawaited = text.replace("aiex.dma_await_task(%2)", "");
    assert_ne!(text, unawaited);
    let problem = problem(&unawaited);
    assert!(
        problem.contains(
            "shim (0, 0) S2MM 0 has written all of argument 2 (%z), by its task of line "
        ),
        "{problem}"
    );
}

/// A core that reads a block while the DMA fills it: the word is named as the buffer's element.
#[test]
fn a_race_names_the_element() {
    let raced = text("physical").replace(
        "        aie.use_lock(%tile_full, AcquireGreaterEqual, 1)
",
        "",
    );
    let problem = problem(&raced);
    assert!(
        problem.contains("touches word 0x")
            && problem.contains(", that is ")
            && problem.contains('['),
        "{problem}"
    );
}

/// Memory that nothing has set has other noise in each order: the first element that differs is named.
#[test]
fn differing_bytes_name_the_first_element() {
    let body = "%own = memref.alloc() : memref<16xi32>
    scf.for %i = %c0 to %c16 step %c1 {
      %v = memref.load %in[%i] : memref<16xi32>
      memref.store %v, %out[%i] : memref<16xi32>
    }
    %c3 = arith.constant 3 : index
    %x = memref.load %unset[%c3] : memref<4x4xi32>
    memref.store %x, %out[%c3] : memref<16xi32>"
        .replace("memref.load %unset[%c3]", "memref.load %unset[%c1, %c3]");
    let device = "%unset = aie.buffer(%core) {sym_name = \"unset\"} : memref<4x4xi32>";
    let report = run_text(&core_design(device, &body));
    assert_eq!(report.verdict, Verdict::CannotTell, "{report:#?}");
    assert!(report.outputs.is_empty() && report.orders.len() > 3);
    let problem = report.problem.unwrap_or_default();
    assert!(
        problem.contains(
            "1 of 16 elements of argument 1 (%to) differ, the first is to[3], which was "
        ),
        "{problem}"
    );
    assert!(
        problem.contains("in the order at random, seed 0"),
        "{problem}"
    );
    assert!(
        problem.starts_with("what is written depends on memory that nothing has set: "),
        "{problem}"
    );
}

/// Two senders of one packet flow: the order of their blocks depends on speed, and an option allows that.
#[test]
fn blocks_of_merged_streams_may_come_in_any_order() {
    let sender = |tile: &str, value: u32| {
        format!(
            "%of_{tile} = aie.buffer(%{tile}) : memref<4xi32> = dense<{value}>
      aie.mem(%{tile}) {{
        %s = aie.dma_start(MM2S, 0, ^one, ^end)
      ^one:
        aie.dma_bd(%of_{tile} : memref<4xi32>, 0, 4) {{packet = #aie.packet_info<pkt_type = 0, pkt_id = 1>}}
        aie.next_bd ^end
      ^end:
        aie.end
      }}"
        )
    };
    let text = format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %a = aie.tile(0, 2)
      %b = aie.tile(0, 3)
      {}
      {}
      aie.packet_flow(1) {{
        aie.packet_source<%a, DMA : 0>
        aie.packet_source<%b, DMA : 0>
        aie.packet_dest<%shim, DMA : 0>
      }}
      aie.shim_dma_allocation @out(%shim, S2MM, 0)
      aie.runtime_sequence(%to: memref<8xi32>) {{
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 8][0, 0, 0, 1]) {{id = 0 : i64, metadata = @out}} : memref<8xi32>
        aiex.npu.dma_wait {{symbol = @out}}
      }}
    }}",
        sender("a", 5),
        sender("b", 9)
    );
    let problem = problem(&text);
    assert!(
        problem.starts_with("what is written depends on the order of actors: ")
            && problem.contains("the elements are the same in another order"),
        "{problem}"
    );
    let design = Design::read(&text).unwrap();
    let options = RunOptions {
        any_order: true,
        ..RunOptions::default()
    };
    let report = run(&design, &[vec![0; 32]], options).unwrap();
    assert!(report.verdict.is_pass(), "{report:#?}");
}
