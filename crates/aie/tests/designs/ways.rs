//! Streams of several sources, control ports that a sequence reaches, tokens without a way, padding of FIFOs.

use crate::{run_text, words};
use millrace_aie::{Design, RunOptions, Verdict, run};

/// Two cores send 8 words each, by packets of one id, to one channel.
fn two_sources(first: i32, second: i32) -> String {
    let core = |name: &str, value: i32| {
        format!(
            "%{name}_block = aie.buffer(%{name}) {{sym_name = \"{name}_block\"}} : memref<8xi32>
      %{name}_full = aie.lock(%{name}, 1) {{init = 0 : i32, sym_name = \"{name}_full\"}}
      aie.core(%{name}) {{
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %c8 = arith.constant 8 : index
        %v = arith.constant {value} : i32
        scf.for %i = %c0 to %c8 step %c1 {{
          memref.store %v, %{name}_block[%i] : memref<8xi32>
        }}
        aie.use_lock(%{name}_full, Release, 1)
        aie.end
      }}
      aie.mem(%{name}) {{
        aie.dma(MM2S, 0) [{{
          aie.use_lock(%{name}_full, AcquireGreaterEqual, 1)
          aie.dma_bd(%{name}_block : memref<8xi32>) {{packet = #aie.packet_info<pkt_type = 0, pkt_id = 3>}}
        }}]
        aie.end
      }}"
        )
    };
    format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %a = aie.tile(0, 2)
      %b = aie.tile(0, 3)
      aie.packet_flow(3) {{
        aie.packet_source<%a, DMA : 0>
        aie.packet_source<%b, DMA : 0>
        aie.packet_dest<%shim, DMA : 0>
      }}
      {}
      {}
      aie.shim_dma_allocation @out(%shim, S2MM, 0)
      aie.runtime_sequence(%to: memref<16xi32>) {{
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 16][0, 0, 0, 1]) {{id = 0 : i64, metadata = @out}} : memref<16xi32>
        aiex.npu.dma_wait {{symbol = @out}}
      }}
    }}",
        core("a", first),
        core("b", second)
    )
}

/// All sources of a flow reach its sinks, in no fixed order.
#[test]
fn a_flow_has_several_sources() {
    let report = run_text(&two_sources(7, 7));
    assert_eq!(words(&report), [7; 16]);
    let report = run_text(&two_sources(7, 8));
    assert_eq!(report.verdict, Verdict::Fail, "{report:#?}");
    let problem = report.problem.unwrap();
    assert!(problem.contains("depends on the order"), "{problem}");
}

/// A core that waits for a lock, which a control packet from the host sets.
fn controlled(channel: u32, id: u32) -> String {
    format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      %go = aie.lock(%core, 3) {{init = 0 : i32, sym_name = \"go\"}}
      aie.objectfifo @out(%core, {{%shim}}, 1 : i32) : !aie.objectfifo<memref<1xi32>>
      aie.core(%core) {{
        %c0 = arith.constant 0 : index
        %v = arith.constant 9 : i32
        aie.use_lock(%go, AcquireGreaterEqual, 2)
        %x = aie.objectfifo.acquire @out(Produce, 1) : memref<1xi32>
        memref.store %v, %x[%c0] : memref<1xi32>
        aie.objectfifo.release @out(Produce, 1)
        aie.end
      }}
      aie.shim_dma_allocation @packets(%shim, MM2S, {channel})
      aie.runtime_sequence(%control: memref<2xi32>, %to: memref<1xi32>) {{
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 1][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<1xi32>
        aiex.npu.dma_memcpy_nd(%control[0, 0, 0, 0][1, 1, 1, 2][0, 0, 0, 1], packet = <pkt_id = {id}, pkt_type = 1>) {{id = 2 : i64, issue_token = true, metadata = @packets}} : memref<2xi32>
        aiex.npu.dma_wait {{symbol = @packets}}
        aiex.npu.dma_wait {{symbol = @out}}
      }}
    }}"
    )
}

/// Packets of a tile's id reach its control port where the text has no flow, as with mlir-aie's control overlay.
#[test]
fn packets_reach_control_ports_by_the_ids_of_tiles() {
    let design = Design::read(&controlled(0, 27)).unwrap_or_else(|error| panic!("{error}"));
    // A write of one word to lock 3.
    let header: u32 = 0x1F030;
    let header = header | u32::from(header.count_ones().is_multiple_of(2)) << 31;
    let packet = [header, 2].map(u32::to_le_bytes).concat();
    let report = run(&design, &[packet, vec![0; 4]], RunOptions::default());
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.verdict.is_pass(), "{report:#?}");
    assert_eq!(report.outputs[0].bytes, [9, 0, 0, 0]);
    let note = "packets 27 of shim (0, 0) MM2S 0 go to the control port of core (0, 2)";
    assert!(
        report.notes.iter().any(|line| line.contains(note)),
        "{:?}",
        report.notes
    );
    // An id of no tile of the column, and that of a tile which the other channel serves.
    for (channel, id) in [(0, 28), (1, 27)] {
        let read = Design::read(&controlled(channel, id));
        let error = read.and_then(|design| design.check().map(|_| ()));
        let error = error.expect_err("no such tile").to_string();
        assert!(error.contains("no flow leads from shim (0, 0)"), "{error}");
    }
}

/// A token that has no way and is not awaited is lost, and a note says so. Of two, the second meets the first.
#[test]
fn a_token_without_a_way_is_lost() {
    let of = |executions: &str| {
        format!(
            "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      %block = aie.buffer(%core) {{sym_name = \"block\", initial_value = dense<[4, 5]> : tensor<2xi32>}} : memref<2xi32>
      aie.flow(%core, DMA : 0, %shim, DMA : 0)
      aie.runtime_sequence(%to: memref<2xi32>) {{
        %send = aiex.dma_configure_task(%core, MM2S, 0) {{
          aie.dma_bd(%block : memref<2xi32>, 0, 2) {{bd_id = 0 : i32}}
          aie.end
        }} {{issue_token = true}}
        %take = aiex.dma_configure_task(%shim, S2MM, 0) {{
          aie.dma_bd(%to : memref<2xi32>, 0, 2)
          aie.end
        }} {{issue_token = true}}
        {executions}
        aiex.dma_start_task(%take)
        aiex.dma_await_task(%take)
      }}
    }}"
        )
    };
    let start = "aiex.dma_start_task(%send)\n";
    let report = run_text(&of(start));
    assert_eq!(words(&report), [4, 5]);
    let note = "the token of core (0, 2) MM2S 0 is not sent";
    assert!(
        report.notes.iter().any(|line| line.contains(note)),
        "{:?}",
        report.notes
    );
    for text in [
        start.repeat(2),
        format!("{start}aiex.dma_await_task(%send)"),
    ] {
        let error = Design::read(&of(&text)).and_then(|design| design.check().map(|_| ()));
        let error = error.expect_err("no way").to_string();
        assert!(error.contains("have no way to the firmware"), "{error}");
    }
}

/// A memory tile's FIFO pads with the word that it names.
#[test]
fn a_fifo_pads_with_its_value() {
    let text = "aie.device(npu2) {
      %shim = aie.tile(0, 0)
      %mem = aie.tile(0, 1)
      aie.objectfifo @in(%shim, {%mem}, 2 : i32) : !aie.objectfifo<memref<5xi32>>
      aie.objectfifo @out(%mem dimensionsToStream [<size = 5, stride = 1>], {%shim}, 2 : i32) {padDimensions = #aie<bd_pad_layout_array[<const_pad_before = 2, const_pad_after = 1>]>, padValue = 42 : i32} : !aie.objectfifo<memref<8xi32>>
      aie.objectfifo.link [@in] -> [@out] ([] [])
      aie.runtime_sequence(%a: memref<5xi32>, %b: memref<8xi32>) {
        aiex.npu.dma_memcpy_nd(%a[0, 0, 0, 0][1, 1, 1, 5][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<5xi32>
        aiex.npu.dma_memcpy_nd(%b[0, 0, 0, 0][1, 1, 1, 8][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<8xi32>
        aiex.npu.dma_wait {symbol = @out}
      }
    }";
    assert_eq!(words(&run_text(text)), [42, 42, 1, 2, 3, 4, 5, 42]);
    let zeros = text.replace(", padValue = 42 : i32", "");
    assert_eq!(words(&run_text(&zeros)), [0, 0, 1, 2, 3, 4, 5, 0]);
}

/// A memory tile keeps the headers of packets and sends them on: the first word of each block gives its target.
const FORWARDED: &str = "aie.device(npu2) {
      %shim = aie.tile(0, 0)
      %mem = aie.tile(0, 1)
      %core = aie.tile(0, 2)
      aie.packet_flow(5) {
        aie.packet_source<%shim, DMA : 0>
        aie.packet_dest<%mem, DMA : 0>
      } {keep_pkt_header = true}
      aie.packet_flow(6) {
        aie.packet_source<%shim, DMA : 0>
        aie.packet_dest<%mem, DMA : 0>
      } {keep_pkt_header = true}
      aie.packet_flow(5) {
        aie.packet_source<%mem, DMA : 0>
        aie.packet_dest<%core, DMA : 0>
      }
      aie.flow(%core, DMA : 0, %shim, DMA : 0)
      aie.memtile_dma(%mem) {
        %block = aie.buffer(%mem) : memref<5xi32>
        %empty = aie.lock(%mem, 0) {init = 1 : i32}
        %full = aie.lock(%mem, 1) {init = 0 : i32}
        aie.dma(S2MM, 0) [{
          aie.use_lock(%empty, AcquireGreaterEqual, 1)
          aie.dma_bd(%block : memref<5xi32>)
          aie.use_lock(%full, Release, 1)
        }]
        aie.dma(MM2S, 0) [{
          aie.use_lock(%full, AcquireGreaterEqual, 1)
          aie.dma_bd(%block : memref<5xi32>)
          aie.use_lock(%empty, Release, 1)
        }]
        aie.end
      }
      aie.mem(%core) {
        %core_block = aie.buffer(%core) : memref<4xi32>
        %core_empty = aie.lock(%core, 0) {init = 1 : i32}
        %core_full = aie.lock(%core, 1) {init = 0 : i32}
        aie.dma(S2MM, 0) [{
          aie.use_lock(%core_empty, AcquireGreaterEqual, 1)
          aie.dma_bd(%core_block : memref<4xi32>)
          aie.use_lock(%core_full, Release, 1)
        }]
        aie.dma(MM2S, 0) [{
          aie.use_lock(%core_full, AcquireGreaterEqual, 1)
          aie.dma_bd(%core_block : memref<4xi32>)
          aie.use_lock(%core_empty, Release, 1)
        }]
        aie.end
      }
      aie.shim_dma_allocation @in(%shim, MM2S, 0)
      aie.shim_dma_allocation @out(%shim, S2MM, 0)
      aie.runtime_sequence(%from: memref<4xi32>, %to: memref<4xi32>) {
        aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 4][0, 0, 0, 1], packet = <pkt_id = $id, pkt_type = 0>) {id = 0 : i64, metadata = @in} : memref<4xi32>
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 4][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<4xi32>
        aiex.npu.dma_wait {symbol = @out}
      }
    }";

fn forwarded(id: u32) -> String {
    FORWARDED.replace("$id", &id.to_string())
}

#[test]
fn a_header_that_was_kept_is_sent_on() {
    assert_eq!(words(&run_text(&forwarded(5))), [1, 2, 3, 4]);
    let report = run_text(&forwarded(6));
    assert_eq!(report.verdict, Verdict::Fail, "{report:#?}");
    let problem = report.problem.unwrap();
    assert!(problem.contains("takes packets of id 6"), "{problem}");
}

/// A patch may name a buffer that the host gives in addition to the arguments.
#[test]
fn the_host_has_more_buffers_than_arguments() {
    let text = crate::text("passthrough");
    let (head, _) = text.split_once("aie.runtime_sequence").unwrap();
    let zeros = "d0_size = 0 : i32, d0_stride = 0 : i32, d1_size = 0 : i32, d1_stride = 0 : i32, d2_size = 0 : i32, d2_stride = 0 : i32, enable_packet = 0 : i32, iteration_current = 0 : i32, iteration_size = 0 : i32, iteration_stride = 0 : i32, lock_acq_enable = 0 : i32, lock_acq_id = 0 : i32, lock_acq_val = 0 : i32, lock_rel_id = 0 : i32, lock_rel_val = 0 : i32, next_bd = 0 : i32, out_of_order_id = 0 : i32, packet_id = 0 : i32, packet_type = 0 : i32, use_next_bd = 0 : i32, valid_bd = 1 : i32";
    let text = format!(
        "{head}aie.runtime_sequence(%from: memref<1024xi32>, %to: memref<1024xi32>) {{
        aiex.npu.writebd {{bd_id = 15 : i32, buffer_length = 256 : i32, buffer_offset = 0 : i32, column = 0 : i32, row = 0 : i32, {zeros}}}
        aiex.npu.address_patch {{addr = {address} : ui32, arg_idx = 4 : i32, arg_plus = 0 : i32}}
      }}
    }}
  }}",
        address = 0x1D004 + 32 * 15
    );
    let design = Design::read(&text).unwrap_or_else(|error| panic!("{error}"));
    let sizes: Vec<u64> = design.arguments().map(|of| of.2).collect();
    assert_eq!(sizes, [4096, 4096, 4, 4, 1024]);
    let buffers: Vec<Vec<u8>> = sizes.iter().map(|&n| vec![0; n as usize]).collect();
    let report = run(&design, &buffers, RunOptions::default());
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    let note = "buffer 4 of the host is no argument: taken for 1024 bytes";
    assert!(
        report.notes.iter().any(|line| line.contains(note)),
        "{:?}",
        report.notes
    );
}

/// A write that is not awaited may come after the host has read; a wait for another's token does not count.
#[test]
fn a_write_that_nobody_awaits_fails() {
    let text = crate::text("passthrough");
    let wait = "aiex.npu.dma_wait {symbol = @out}";
    assert!(text.contains(wait));
    let report = run_text(&text.replace(wait, ""));
    assert_eq!(report.verdict, Verdict::Fail, "{report:#?}");
    let problem = report.problem.unwrap();
    assert!(
        problem.contains("the sequence ends before shim (0, 0) S2MM 0 has written all"),
        "{problem}"
    );
}

/// Tokens carry the id of their tile; a flow of another id carries none of them.
#[test]
fn tokens_have_the_ids_of_their_tiles() {
    let of = |id: u32| {
        format!(
            "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2) {{controller_id = #aie.packet_info<pkt_type = 0, pkt_id = {id}>}}
      %block = aie.buffer(%core) {{sym_name = \"block\", initial_value = dense<[4, 5]> : tensor<2xi32>}} : memref<2xi32>
      aie.flow(%core, DMA : 0, %shim, DMA : 0)
      aie.packet_flow(9) {{
        aie.packet_source<%core, TileControl : 0>
        aie.packet_dest<%shim, South : 0>
      }}
      aie.runtime_sequence(%to: memref<2xi32>) {{
        %take = aiex.dma_configure_task(%shim, S2MM, 0) {{
          aie.dma_bd(%to : memref<2xi32>, 0, 2)
          aie.end
        }} {{issue_token = true}}
        %send = aiex.dma_configure_task(%core, MM2S, 0) {{
          aie.dma_bd(%block : memref<2xi32>, 0, 2) {{bd_id = 0 : i32}}
          aie.end
        }} {{issue_token = true}}
        aiex.dma_start_task(%take)
        aiex.dma_start_task(%send)
        aiex.dma_await_task(%send)
        aiex.dma_await_task(%take)
      }}
    }}"
        )
    };
    assert_eq!(words(&run_text(&of(9))), [4, 5]);
    let error = Design::read(&of(8)).and_then(|design| design.check().map(|_| ()));
    let error = error.expect_err("no way").to_string();
    assert!(error.contains("tokens of core (0, 2) have id 8"), "{error}");
}
