//! Control packets as ops of a sequence, and names of DMA programs.

use crate::{run_text, words};
use millrace_aie::Design;

/// One op writes six words into a core's memory, and another reads four of them; its answer goes to the host.
fn by_ops(ops: &str) -> String {
    format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      aie.packet_flow(2) {{
        aie.packet_source<%core, TileControl : 0>
        aie.packet_dest<%shim, DMA : 0>
      }}
      aie.runtime_sequence(%to: memref<4xi32>) {{
        %take = aiex.dma_configure_task(%shim, S2MM, 0) {{
          aie.dma_bd(%to : memref<4xi32>, 0, 4)
          aie.end
        }} {{issue_token = true}}
        aiex.dma_start_task(%take)
        {ops}
        aiex.dma_await_task(%take)
      }}
    }}"
    )
}

const WRITE: &str = "aiex.control_packet {address = 2101248 : ui32, data = array<i32: 1, 2, 3, 4, 5, -6>, opcode = 0 : i32, stream_id = 0 : i32}";
const READ: &str = "aiex.control_packet {address = 2101256 : ui32, length = 4 : i32, opcode = 1 : i32, stream_id = 2 : i32}";

#[test]
fn control_packets_are_ops_of_a_sequence() {
    let report = run_text(&by_ops(&format!("{WRITE}\n{READ}")));
    assert_eq!(words(&report), [3, 4, 5, -6]);
    assert!(report.reads.is_empty(), "{:?}", report.reads);
    let notes = report.notes.join("\n");
    assert!(
        notes.contains("3 control packets of the sequence are sent one by one"),
        "{notes}"
    );
}

#[test]
fn control_packets_that_are_not_known_are_refused() {
    for (from, to, problem) in [
        (
            "opcode = 0",
            "opcode = 2",
            "no source says what the others do",
        ),
        ("2101248", "2101249", "begins no word"),
        (
            "data = array<i32: 1, 2, 3, 4, 5, -6>, ",
            "",
            "it writes, and has no `data`",
        ),
        (
            "stream_id = 0",
            "stream_id = 32",
            "ids of packets are 0 to 31",
        ),
        (
            "address = 2101248",
            "address = 3145720",
            "6 words reach beyond core (0, 2)",
        ),
        (
            "address = 2101248",
            "address = 4294967040",
            "no such address",
        ),
    ] {
        let text = by_ops(&WRITE.replace(from, to));
        let error = Design::read(&text)
            .map(|_| ())
            .expect_err("refused")
            .to_string();
        assert!(
            error.contains("`aiex.control_packet`") && error.contains(problem),
            "{error}"
        );
    }
    for n in [0, 5] {
        let text = by_ops(&READ.replace("length = 4", &format!("length = {n}")));
        let error = Design::read(&text).map(|_| ()).expect_err("refused");
        let error = error.to_string();
        let problem = format!("a packet reads 1 to 4 words, not {n}");
        assert!(error.contains(&problem), "{error}");
    }
}

/// Two DMA programs use the same name for a buffer and a lock: each means its own.
#[test]
fn names_of_a_dma_program_are_its_own() {
    let program = |tile: &str, first: u32| {
        format!(
            "aie.mem(%{tile}) {{
        %own = aie.buffer(%{tile}) {{sym_name = \"own_{tile}\"}} : memref<4xi32> = dense<{first}>
        %free = aie.lock(%{tile}, 0) {{init = 1 : i32}}
        %s = aie.dma_start(MM2S, 0, ^one, ^end)
      ^one:
        aie.use_lock(%free, AcquireGreaterEqual, 1)
        aie.dma_bd(%own : memref<4xi32>, 0, 4)
        aie.next_bd ^one
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
      aie.flow(%a, DMA : 0, %shim, DMA : 0)
      aie.flow(%b, DMA : 0, %shim, DMA : 1)
      aie.shim_dma_allocation @of_a(%shim, S2MM, 0)
      aie.shim_dma_allocation @of_b(%shim, S2MM, 1)
      {}
      {}
      aie.runtime_sequence(%to: memref<8xi32>) {{
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 4][0, 0, 0, 1]) {{id = 0 : i64, metadata = @of_a}} : memref<8xi32>
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 4][1, 1, 1, 4][0, 0, 0, 1]) {{id = 1 : i64, metadata = @of_b}} : memref<8xi32>
        aiex.npu.dma_wait {{symbol = @of_a}}
        aiex.npu.dma_wait {{symbol = @of_b}}
      }}
    }}",
        program("a", 5),
        program("b", 9)
    );
    assert_eq!(words(&run_text(&text)), [5, 5, 5, 5, 9, 9, 9, 9]);
}
