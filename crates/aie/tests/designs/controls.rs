//! Tokens, control packets and resets; further parts of DMA programs and object FIFOs.

use crate::{run_text, text, words};
use millrace_aie::{Design, RunOptions, Verdict, run};

/// A copy into a core's memory and out again by tasks of the sequence, whose tokens it waits for.
fn by_tasks(ways: &str) -> String {
    format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0) {{controller_id = #aie.packet_info<pkt_type = 0, pkt_id = 2>}}
      %core = aie.tile(0, 2) {{controller_id = #aie.packet_info<pkt_type = 0, pkt_id = 1>}}
      %buffer = aie.buffer(%core) {{sym_name = \"buffer\"}} : memref<16xi32>
      aie.flow(%shim, DMA : 0, %core, DMA : 0)
      aie.flow(%core, DMA : 0, %shim, DMA : 0)
      {ways}
      aie.runtime_sequence(%from: memref<16xi32>, %to: memref<16xi32>) {{
        %give = aiex.dma_configure_task(%shim, MM2S, 0) {{
          aie.dma_bd(%from : memref<16xi32>, 0, 16)
          aie.end
        }}
        %take = aiex.dma_configure_task(%core, S2MM, 0) {{
          aie.dma_bd(%buffer : memref<16xi32>, 0, 16) {{bd_id = 0 : i32}}
          aie.end
        }} {{issue_token = true}}
        aiex.npu.maskwrite32 {{address = 0x1de00 : ui32, column = 0 : i32, row = 2 : i32, mask = 0xF00 : ui32, value = 0x100 : ui32}}
        aiex.dma_start_task(%give)
        aiex.dma_start_task(%take)
        aiex.dma_await_task(%take)
        %send = aiex.dma_configure_task(%core, MM2S, 0) {{
          aie.dma_bd(%buffer : memref<16xi32>, 0, 16) {{bd_id = 1 : i32}}
          aie.end
        }}
        %end = aiex.dma_configure_task(%shim, S2MM, 0) {{
          aie.dma_bd(%to : memref<16xi32>, 0, 16)
          aie.end
        }} {{issue_token = true}}
        aiex.dma_start_task(%send)
        aiex.dma_start_task(%end)
        aiex.dma_await_task(%end)
      }}
    }}"
    )
}

/// Tokens of a core need a way from the design; then they have the tile's id.
#[test]
fn tokens_of_cores_go_where_the_design_says() {
    let way = |id: u32, tile: &str| {
        format!(
            "aie.packet_flow({id}) {{
        aie.packet_source<{tile}, TileControl : 0>
        aie.packet_dest<%shim, South : 0>
      }}"
        )
    };
    let both = format!("{}\n{}", way(1, "%core"), way(2, "%shim"));
    assert_eq!(
        words(&run_text(&by_tasks(&both))),
        (1..=16).collect::<Vec<i32>>()
    );
    let error = Design::read(&by_tasks("")).and_then(|design| design.check().map(|_| ()));
    let error = error.expect_err("no way").to_string();
    assert!(
        error.contains(
            "`aiex.dma_start_task`: the tokens of core (0, 2) have no way to the firmware"
        ),
        "{error}"
    );
}

/// A packet writes a lock. Another reads memory, whose words come back in a packet of the requested id.
fn by_control(words: &[u32]) -> String {
    let list: Vec<String> = words.iter().map(u32::to_string).collect();
    let list = list.join(", ");
    format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      %mem = aie.tile(0, 1)
      %go = aie.lock(%core, 3) {{init = 0 : i32, sym_name = \"go\"}}
      %buffer = aie.buffer(%core) {{address = 4096 : i32, sym_name = \"buffer\"}} : memref<4xi32>
      %packets = aie.buffer(%mem) {{initial_value = dense<[{list}]> : tensor<{n}xi32>}} : memref<{n}xi32>
      %ready = aie.lock(%mem, 0) {{init = 0 : i32}}
      aie.packet_flow(1) {{
        aie.packet_source<%mem, DMA : 0>
        aie.packet_dest<%core, TileControl : 0>
      }}
      aie.packet_flow(2) {{
        aie.packet_source<%core, TileControl : 0>
        aie.packet_dest<%shim, DMA : 0>
      }}
      aie.core(%core) {{
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %c4 = arith.constant 4 : index
        aie.use_lock(%go, AcquireGreaterEqual, 2)
        scf.for %i = %c0 to %c4 step %c1 {{
          %v = arith.index_cast %i : index to i32
          memref.store %v, %buffer[%i] : memref<4xi32>
        }}
        aie.use_lock(%go, Release, 5)
        aie.end
      }}
      aie.runtime_sequence(%to: memref<4xi32>) {{
        %send = aiex.dma_configure_task(%mem, MM2S, 0) {{
          aie.dma_bd(%packets : memref<{n}xi32>, 0, {n}) {{bd_id = 0 : i32, packet = #aie.packet_info<pkt_type = 0, pkt_id = 1>}}
          aie.end
        }}
        %take = aiex.dma_configure_task(%shim, S2MM, 0) {{
          aie.dma_bd(%to : memref<4xi32>, 0, 4)
          aie.end
        }} {{issue_token = true}}
        aiex.dma_start_task(%take)
        aiex.dma_start_task(%send)
        aiex.dma_await_task(%take)
      }}
    }}",
        n = words.len()
    )
}

fn control_header(address: u32, operation: u32, n_words: u32, id: u32) -> u32 {
    let word = address | (n_words - 1) << 20 | operation << 22 | id << 24;
    word | u32::from(word.count_ones().is_multiple_of(2)) << 31
}

#[test]
fn control_packets_write_and_read() {
    let (write, read) = (control_header(4096, 0, 4, 0), control_header(4096, 1, 4, 2));
    let report = run_text(&by_control(&[write, 10, 20, 30, 40, read]));
    assert!(report.verdict.is_pass(), "{report:#?}");
    assert_eq!(words(&report), [10, 20, 30, 40]);
    // Its parity tells a header from any other word.
    let report = run_text(&by_control(&[write ^ 1 << 31, 10, 20, 30, 40, read]));
    assert_eq!(report.verdict, Verdict::Fail);
    assert!(report.problem.unwrap().contains("has even parity"));
    let design = Design::read(&by_control(&[control_header(4096, 2, 1, 0), 10])).unwrap();
    let refused = run(&design, &[vec![0; 16]], RunOptions::default());
    let error = refused.expect_err("no such operation").to_string();
    assert!(
        error.contains("operation 2 of a control packet for core (0, 2): not documented"),
        "{error}"
    );
}

/// Ops of the sequence as texts of 2026 have them.
#[test]
fn ops_of_new_sequences() {
    let zeros = "d0_size = 0 : i32, d0_stride = 0 : i32, d0_zero_after = 0 : i32, d0_zero_before = 0 : i32, d1_size = 0 : i32, d1_stride = 0 : i32, d1_zero_after = 0 : i32, d1_zero_before = 0 : i32, d2_size = 0 : i32, d2_stride = 0 : i32, d2_zero_after = 0 : i32, d2_zero_before = 0 : i32, enable_packet = 0 : i32, iteration_current = 0 : i32, iteration_size = 0 : i32, iteration_stride = 0 : i32, lock_acq_enable = 0 : i32, lock_acq_id = 0 : i32, lock_acq_val = 0 : i32, lock_rel_id = 0 : i32, lock_rel_val = 0 : i32, next_bd = 0 : i32, out_of_order_id = 0 : i32, packet_id = 0 : i32, packet_type = 0 : i32, use_next_bd = 0 : i32, valid_bd = 1 : i32";
    let pushed = |bd: u32, argument: u32, way: &str, token: bool| {
        format!(
            "aiex.npu.writebd {{bd_id = {bd} : i32, buffer_length = 1024 : i32, buffer_offset = 0 : i32, column = 0 : i32, row = 0 : i32, {zeros}}}
        aiex.npu.address_patch(%zero : i32) {{addr = {} : ui32, arg_idx = {argument} : i32}}
        %bd{bd} = arith.constant {bd} : i32
        aiex.npu.push_queue (0, 0, {way}:0) bd_id %bd{bd} repeat %zero {{issue_token = {token}}} : i32, i32\n",
            0x1D004 + 32 * bd
        )
    };
    let text = text("passthrough");
    let (head, _) = text.split_once("aie.runtime_sequence").unwrap();
    let text = format!(
        "{head}aie.runtime_sequence(%from: memref<1024xi32>, %to: memref<1024xi32>) {{
        %zero = arith.constant 0 : i32
        %one = arith.constant 1 : i32
        {}{}
        aiex.npu.sync(%zero, %zero, %zero, %zero, %one, %one) : i32, i32, i32, i32, i32, i32
        %status = arith.constant 119336 : i32
        %full = arith.constant 4194304 : i32
        aiex.npu.maskpoll(%status, %zero, %full) {{column = 0 : i32, row = 0 : i32}} : i32, i32, i32
      }}
    }}
  }}",
        pushed(0, 0, "MM2S", false),
        pushed(1, 1, "S2MM", true)
    );
    let report = run_text(&text);
    let to = report
        .outputs
        .iter()
        .find(|output| output.argument == 1)
        .unwrap();
    assert_eq!(to.bytes[..8], [1, 0, 0, 0, 2, 0, 0, 0]);
}

/// A core that has ended runs again, a task that waits is dropped, memory is cleared.
#[test]
fn what_a_sequence_resets() {
    let text = "aie.device(npu2) {
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      %go = aie.lock(%core, 0) {init = 0 : i32, sym_name = \"go\"}
      %out_lock = aie.lock(%core, 1) {init = 0 : i32, sym_name = \"out_lock\"}
      %back = aie.lock(%core, 2) {init = 1 : i32, sym_name = \"back\"}
      %count = aie.buffer(%core) {address = 4096 : i32, sym_name = \"count\", initial_value = dense<[5, 6]> : tensor<2xi32>} : memref<2xi32>
      %bad = aie.buffer(%core) {sym_name = \"bad\", initial_value = dense<[90, 91]> : tensor<2xi32>} : memref<2xi32>
      aie.flow(%core, DMA : 0, %shim, DMA : 0)
      aie.core(%core) {
        %c0 = arith.constant 0 : index
        %one = arith.constant 1 : i32
        aie.use_lock(%back, AcquireGreaterEqual, 1)
        %n = memref.load %count[%c0] : memref<2xi32>
        %m = arith.addi %n, %one : i32
        memref.store %m, %count[%c0] : memref<2xi32>
        aie.use_lock(%out_lock, Release, 1)
        aie.end
      }
      aie.runtime_sequence(%to: memref<6xi32>) {
        %drop = aiex.dma_configure_task(%core, MM2S, 0) {
          aie.use_lock(%go, AcquireGreaterEqual, 1)
          aie.dma_bd(%bad : memref<2xi32>, 0, 2) {bd_id = 1 : i32}
          aie.end
        }
        %send = aiex.dma_configure_task(%core, MM2S, 0) {
          aie.use_lock(%out_lock, AcquireGreaterEqual, 1)
          aie.dma_bd(%count : memref<2xi32>, 0, 2) {bd_id = 0 : i32}
          aie.use_lock(%back, Release, 1)
          aie.end
        } {repeat_count = 2 : i32}
        %take = aiex.dma_configure_task(%shim, S2MM, 0) {
          aie.dma_bd(%to : memref<6xi32>, 0, 2) {iteration = #aie.bd_iteration<size = 3, stride = 2, current = 0>}
          aie.end
        } {issue_token = true}
        aiex.dma_start_task(%drop)
        aiex.dma_channel_reset(%core, MM2S, 0)
        aiex.set_lock(%go, 1)
        aiex.dma_start_task(%send)
        aiex.dma_start_task(%take)
        aiex.dma_await_task(%take)
        aiex.core_reset(%core)
        aiex.npu.maskwrite32 {address = 204800 : ui32, value = 1 : ui32, mask = 1 : ui32, column = 0 : i32, row = 2 : i32}
        aiex.dma_start_task(%take)
        aiex.dma_await_task(%take)
        aiex.buffer_clear(%core, 4096, 2)
        aiex.set_lock(%out_lock, 1)
        aiex.dma_start_task(%take)
        aiex.dma_await_task(%take)
      }
    }";
    // Awaiting frees a task; its words are in the register all the same.
    let text = text.replacen("aiex.dma_await_task(%take)", "aiex.npu.sync {channel = 0 : i32, column = 0 : i32, column_num = 1 : i32, direction = 0 : i32, row = 0 : i32, row_num = 1 : i32}", 2);
    assert_eq!(words(&run_text(&text)), [6, 6, 7, 6, 0, 0]);
}

/// Memory tiles pad with the word that a channel has.
#[test]
fn padding_has_a_value() {
    let text = "aie.device(npu2) {
      %shim = aie.tile(0, 0)
      %mem = aie.tile(0, 1)
      aie.flow(%shim, DMA : 0, %mem, DMA : 0)
      aie.flow(%mem, DMA : 0, %shim, DMA : 0)
      aie.shim_dma_allocation @in(%shim, MM2S, 0)
      aie.shim_dma_allocation @out(%shim, S2MM, 0)
      %dma = aie.memtile_dma(%mem) {
        %buffer = aie.buffer(%mem) : memref<8xi32>
        %empty = aie.lock(%mem, 0) {init = 1 : i32}
        %full = aie.lock(%mem, 1) {init = 0 : i32}
        %0 = aie.dma(S2MM, 0) [{
          aie.use_lock(%empty, AcquireGreaterEqual, 1)
          aie.dma_bd(%buffer : memref<8xi32> offset = 0 len = 5)
          aie.use_lock(%full, Release, 1)
        }]
        %1 = aie.dma(MM2S, 0) {pad_value = 42 : i32} [{
          aie.use_lock(%full, AcquireGreaterEqual, 1)
          aie.dma_bd(%buffer : memref<8xi32> offset = 0 len = 8 sizes = [5] strides = [1] pad [<const_pad_before = 2, const_pad_after = 1>])
          aie.use_lock(%empty, Release, 1)
        }]
        aie.end
      }
      aie.runtime_sequence(%a: memref<5xi32>, %b: memref<8xi32>) {
        aiex.npu.dma_memcpy_nd(%a[0, 0, 0, 0][1, 1, 1, 5][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<5xi32>
        aiex.npu.dma_memcpy_nd(%b[0, 0, 0, 0][1, 1, 1, 8][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<8xi32>
        aiex.npu.dma_wait {symbol = @out}
      }
    }";
    assert_eq!(words(&run_text(text)), [42, 42, 1, 2, 3, 4, 5, 42]);
}

/// A shared pool is in the memory that the design names, and may lack locks that count.
#[test]
fn shared_pools_are_told() {
    let two = |more: &str| {
        format!(
            "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %a = aie.tile(0, 2)
      %b = aie.tile(0, 3)
      %c = aie.tile(0, 5)
      %done = aie.lock(%b, 9) {{init = 0 : i32, sym_name = \"done\"}}
      aie.objectfifo @f(%a, {{%b}}, 1 : i32) {more}
      aie.objectfifo @out(%b, {{%shim}}, 1 : i32) : !aie.objectfifo<memref<4xi32>>
      aie.core(%a) {{
        %c0 = arith.constant 0 : index
        %v = arith.constant 77 : i32
        %x = aie.objectfifo.acquire @f(Produce, 1) : memref<4xi32>
        memref.store %v, %x[%c0] : memref<4xi32>
        memref.store %v, %x[%c0] : memref<4xi32>
        aie.objectfifo.release @f(Produce, 1)
        aie.use_lock(%done, Release, 1)
        aie.end
      }}
      aie.core(%b) {{
        %c0 = arith.constant 0 : index
        aie.use_lock(%done, AcquireGreaterEqual, 1)
        %x = aie.objectfifo.acquire @f(Consume, 1) : memref<4xi32>
        %y = aie.objectfifo.acquire @out(Produce, 1) : memref<4xi32>
        %v = memref.load %x[%c0] : memref<4xi32>
        memref.store %v, %y[%c0] : memref<4xi32>
        aie.objectfifo.release @f(Consume, 1)
        aie.objectfifo.release @out(Produce, 1)
        aie.end
      }}
      aie.runtime_sequence(%b: memref<1xi32>) {{
        aiex.npu.dma_memcpy_nd(%b[0, 0, 0, 0][1, 1, 1, 1][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<1xi32>
        aiex.npu.dma_wait {{symbol = @out}}
      }}
    }}"
        )
    };
    let plain = ": !aie.objectfifo<memref<4xi32>>";
    let bytes = |text: &str, tile: &str| {
        let footprint = Design::read(text).unwrap().check().unwrap();
        let found = footprint.tiles.iter().find(|of| of.tile == tile);
        found.map_or(0, |of| of.memory_bytes)
    };
    let near = two(plain);
    let far = two(&format!("{plain}\naie.objectfifo.allocate @f(%b)"));
    assert_eq!(bytes(&near, "core (0, 2)") - bytes(&far, "core (0, 2)"), 16);
    assert_eq!(bytes(&far, "core (0, 3)") - bytes(&near, "core (0, 3)"), 16);
    let unlocked = two(&format!("{{disable_synchronization = true}} {plain}"));
    for text in [near, far, unlocked] {
        assert!(run_text(&text).verdict.is_pass());
    }
    let wrong = two(&format!("{plain}\naie.objectfifo.allocate @f(%c)"));
    let error = Design::read(&wrong).expect_err("too far").to_string();
    assert!(
        error.contains("the cores of @f do not share the memory of core (0, 5)"),
        "{error}"
    );
    let by_dma =
        text("passthrough").replacen("2 : i32)", "2 : i32) {disable_synchronization = true}", 1);
    let error = Design::read(&by_dma).expect_err("by DMA").to_string();
    assert!(
        error.contains("known between cores that share a memory"),
        "{error}"
    );
}

/// Designs that ask for something the hardware does not do fail, one by one.
#[test]
fn what_hardware_refuses() {
    let copy = text("passthrough");
    let refused = |text: &str| {
        let read = Design::read(text).and_then(|design| design.check().map(|_| ()));
        read.expect_err("it is refused").to_string()
    };
    // Ports of a switch: a shim has two channels a direction, a core's DMA two.
    let flow = "aie.flow(%shim_0_0, DMA : 2, %mem_0_1, DMA : 0)\naie.runtime_sequence";
    let found = refused(&copy.replacen("aie.runtime_sequence", flow, 1));
    assert!(
        found.contains("`aie.flow`: shim (0, 0) has no port `DMA : 2` there"),
        "{found}"
    );
    let switch =
        "aie.switchbox(%mem_0_1) {\naie.connect<South : 6, DMA : 0>\n}\naie.runtime_sequence";
    let found = refused(&copy.replacen("aie.runtime_sequence", switch, 1));
    assert!(
        found.contains("`aie.connect`: the switch of memory (0, 1) has no port `South : 6` there"),
        "{found}"
    );
    // Words of 32 bits: bytes move in fours.
    let bytes = copy.replace("xi32", "xi8").replace("1024]", "1022]");
    let found = refused(&bytes);
    assert!(found.contains("1022 bytes are no whole words"), "{found}");
    // Five tasks, and a descriptor that its task has not left.
    let tasks = |n: usize, id: fn(usize) -> usize| {
        let task = |i: usize| {
            format!(
                "aiex.npu.dma_memcpy_nd(%from[0, 0, 0, {}][1, 1, 1, 64][0, 0, 0, 1]) {{id = {} : i64, metadata = @in}} : memref<1024xi32>\n",
                i * 64,
                id(i)
            )
        };
        let all: String = (0..n).map(task).collect();
        let before = "aiex.npu.dma_memcpy_nd(%from[0";
        run_text(&copy.replacen(before, &format!("{all}{before}"), 1))
    };
    for (report, part) in [
        (
            tasks(8, |i| i + 2),
            "the queue holds 4 tasks, a further one is lost",
        ),
        (
            tasks(3, |_| 2),
            "it is written while a channel is to execute it: MM2S 0 has its task",
        ),
    ] {
        assert_eq!(report.verdict, Verdict::Fail, "{report:#?}");
        assert!(
            report.problem.as_ref().unwrap().contains(part),
            "{report:#?}"
        );
    }
}

/// Chains of the device that tasks execute, with other memory each time.
#[test]
fn chains_have_names() {
    let text = text("passthrough");
    let (head, _) = text.split_once("aie.runtime_sequence").unwrap();
    let text = format!(
        "{head}aie.bd_chain @halves(%a: memref<1024xi32>) {{
      aie.dma_bd(%a : memref<1024xi32>, 512, 512)
      aie.next_bd ^second
    ^second:
      aie.dma_bd(%a : memref<1024xi32>, 0, 512)
      aie.end
    }}
    aie.runtime_sequence(%from: memref<1024xi32>, %to: memref<1024xi32>) {{
      %out = aiex.dma_start_bd_chain_for @halves(%to) : (memref<1024xi32>) for @out {{issue_token = true}}
      %in = aiex.dma_start_bd_chain @halves(%from) : (memref<1024xi32>) on (%shim_0_0, MM2S, 0)
      aiex.dma_await_task(%out)
    }}
  }}
}}"
    );
    assert_eq!(words(&run_text(&text)), (1..=1024).collect::<Vec<i32>>());
    let wrong = text.replace("@halves(%from)", "@quarters(%from)");
    let error = Design::read(&wrong).and_then(|design| design.check().map(|_| ()));
    let error = error.expect_err("no chain").to_string();
    assert!(
        error.contains("`aiex.dma_start_bd_chain`: there is no `aie.bd_chain` @quarters"),
        "{error}"
    );
}
