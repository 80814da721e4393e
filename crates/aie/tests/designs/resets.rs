//! Cores that a sequence resets and begins anew.

use crate::{run_text, words};
use millrace_aie::{Design, RunOptions, Verdict, run};

/// A core that gives a count of its memory and ends; a sequence that takes the count, does something, and takes it again.
fn counted(between: &str) -> String {
    format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      %free = aie.lock(%core, 0) {{init = 1 : i32, sym_name = \"free\"}}
      %full = aie.lock(%core, 1) {{init = 0 : i32, sym_name = \"full\"}}
      %count = aie.buffer(%core) {{sym_name = \"count\"}} : memref<1xi32> = dense<5>
      %given = aie.buffer(%core) {{sym_name = \"given\"}} : memref<1xi32>
      aie.flow(%core, DMA : 0, %shim, DMA : 0)
      aie.core(%core) {{
        %c0 = arith.constant 0 : index
        %one = arith.constant 1 : i32
        aie.use_lock(%free, AcquireGreaterEqual, 1)
        %n = memref.load %count[%c0] : memref<1xi32>
        memref.store %n, %given[%c0] : memref<1xi32>
        %m = arith.addi %n, %one : i32
        memref.store %m, %count[%c0] : memref<1xi32>
        aie.use_lock(%full, Release, 1)
        aie.end
      }}
      aie.mem(%core) {{
        %s = aie.dma_start(MM2S, 0, ^one, ^end)
      ^one:
        aie.use_lock(%full, AcquireGreaterEqual, 1)
        aie.dma_bd(%given : memref<1xi32>, 0, 1)
        aie.use_lock(%free, Release, 1)
        aie.next_bd ^one
      ^end:
        aie.end
      }}
      aie.shim_dma_allocation @out(%shim, S2MM, 0)
      aie.runtime_sequence(%to: memref<2xi32>) {{
        %control = arith.constant 204800 : i32
        %status = arith.constant 204804 : i32
        %ended = arith.constant 1048576 : i32
        %none = arith.constant 0 : i32
        %enable = arith.constant 1 : i32
        %reset = arith.constant 2 : i32
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 1][0, 0, 0, 1]) {{id = 0 : i64, metadata = @out, issue_token = true}} : memref<2xi32>
        aiex.npu.dma_wait {{symbol = @out}}
        {between}
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 1][1, 1, 1, 1][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out, issue_token = true}} : memref<2xi32>
        aiex.npu.dma_wait {{symbol = @out}}
      }}
    }}"
    )
}

const AT: &str = "{column = 0 : i32, row = 2 : i32} : i32, i32, i32";

fn masked(value: &str, mask: &str) -> String {
    format!("aiex.npu.maskwrite32(%control, %{value}, %{mask}) {AT}")
}

fn again() -> String {
    [
        masked("reset", "reset"),
        masked("none", "reset"),
        masked("enable", "enable"),
    ]
    .join("\n")
}

/// The DMA has sent before the core came to its end, or behind it: it begins anew either way.
#[test]
fn a_core_begins_anew_at_its_end_or_before_it() {
    let report = run_text(&counted(&again()));
    assert_eq!(words(&report), [5, 6]);
    let slow = |order: &String| order == "core (0, 2) slowest";
    assert!(report.orders.iter().any(slow), "{:?}", report.orders);
}

/// No source documents a core that is enabled behind its end without a reset: it is refused, without a verdict.
#[test]
fn a_core_that_ended_is_enabled_by_a_reset_alone() {
    let awaited = format!("aiex.npu.maskpoll(%status, %ended, %ended) {AT}");
    let text = counted(&format!("{awaited}\n{}", masked("enable", "enable")));
    let design = Design::read(&text).unwrap();
    let ran = run(&design, &[vec![0; 8]], RunOptions::default());
    let error = ran.map(|report| report.verdict).expect_err("refused");
    let error = error.to_string();
    assert!(
        error.contains("enabled and was not reset: not documented"),
        "{error}"
    );
    // Reset behind it, the core is begun.
    let text = counted(&format!("{awaited}\n{}", again()));
    assert_eq!(words(&run_text(&text)), [5, 6]);
}

/// A count that nothing has set: no order hangs, and whether 6 stands behind 5 cannot be told of noise.
#[test]
fn a_count_of_unset_memory_cannot_be_told() {
    let unset = |between: &str| counted(between).replace(" = dense<5>", "");
    let report = run_text(&unset(&again()));
    assert_eq!(report.verdict, Verdict::CannotTell, "{report:#?}");
    assert!(report.orders.len() > 3 && report.outputs.is_empty());
    // A hang is one all the same: nothing begins the core anew.
    let report = run_text(&unset(""));
    assert_eq!(report.verdict, Verdict::Hang, "{report:#?}");
}
