//! Receiving out of order: headers of packets name the descriptors that place them.

use crate::{run_text, text, words};
use millrace_aie::{Design, RunOptions, Verdict, run};

/// `testdata/aie/merge.mlir` with other numbers in the headers of its two packets.
fn merge(ids: [u32; 2]) -> String {
    let own = |id: u32| format!("out_of_order_id = {id} :");
    let mut parts = text("merge");
    for (from, to) in [(7, 100), (3, 101), (100, ids[0]), (101, ids[1])] {
        parts = parts.replace(&own(from), &own(to));
    }
    parts
}

#[test]
fn headers_say_where_packets_go() {
    let (a, b) = ([1, 2, 3, 4], [10, 20, 30, 40]);
    assert_eq!(words(&run_text(&merge([7, 3]))), [a, b].concat());
    assert_eq!(words(&run_text(&merge([3, 7]))), [b, a].concat());
}

/// Several packets for a descriptor step its iteration, and the task counts them all.
#[test]
fn a_task_counts_packets_of_all_descriptors() {
    let send = "aie.dma_start(MM2S, 0, ^one, ^end";
    let twice = merge([7, 3])
        .replace(
            &format!("%s = {send}"),
            &format!("%s = {send}, repeat_count = 1"),
        )
        .replace(
            ", 0, 4) {packet",
            ", 0, 2) {iteration = <size = 2, stride = 2>, packet",
        )
        .replace(
            "8xi32>, 0, 4) {bd_id",
            "8xi32>, 0, 2) {iteration = <size = 2, stride = 2>, bd_id",
        )
        .replace(
            "8xi32>, 4, 4) {bd_id",
            "8xi32>, 4, 2) {iteration = <size = 2, stride = 2>, bd_id",
        )
        .replace("AcquireGreaterEqual, 2", "AcquireGreaterEqual, 4");
    assert_eq!(words(&run_text(&twice)), [1, 2, 3, 4, 10, 20, 30, 40]);
}

fn failure(text: &str) -> String {
    let report = run_text(text);
    assert_eq!(report.verdict, Verdict::Fail, "{report:#?}");
    report.problem.unwrap_or_default()
}

#[test]
fn what_no_header_can_choose_fails_with_its_cause() {
    let dropped = merge([7, 3]).replace(" {keep_pkt_header = true}", "");
    let problem = failure(&dropped);
    assert!(problem.contains("no header comes there"), "{problem}");
    let long = merge([7, 3]).replace("memref<8xi32>, 4, 4)", "memref<8xi32>, 4, 3)");
    let problem = failure(&long);
    assert!(
        problem.contains(
            "a packet of 4 words names descriptor 3 of memory (0, 1) S2MM 0, which takes 3"
        ),
        "{problem}"
    );
    // The descriptor of a channel that sends, of the packet's length.
    let other = merge([7, 5]).replace(
        "%merged : memref<8xi32>, 0, 8)",
        "%merged : memref<8xi32>, 0, 4) {bd_id = 5 : i32}",
    );
    let problem = failure(&other);
    assert!(
        problem.contains("packet 2 names descriptor 5, which is not enabled for packets"),
        "{problem}"
    );
}

/// A wait for a packet that never comes names the channel.
#[test]
fn a_packet_that_never_comes_hangs() {
    let held = merge([7, 3])
        .replace(
            "%of_a = ",
            "%never = aie.lock(%a, 0) {init = 0 : i32, sym_name = \"never\"}\n    %of_a = ",
        )
        .replace(
            "aie.dma_bd(%of_a",
            "aie.use_lock(%never, AcquireGreaterEqual, 1)\n        aie.dma_bd(%of_a",
        );
    let report = run_text(&held);
    assert_eq!(report.verdict, Verdict::Hang, "{report:#?}");
    let all = report.ring.join("\n");
    assert!(all.contains("never"), "{all}");
}

/// A sequence may set a descriptor that a packet has named already. The channel's behaviour until then is unknown.
#[test]
fn a_descriptor_that_is_not_set_yet_is_refused() {
    let design = Design::read(&merge([7, 5])).unwrap();
    let ran = run(&design, &[vec![0; 32]], RunOptions::default());
    let error = ran.map(|_| ()).expect_err("refused").to_string();
    assert!(
        error
            .contains("packet 2 names descriptor 5, which nothing has set by then: not documented"),
        "{error}"
    );
}

#[test]
fn what_is_not_known_of_it_is_refused() {
    let refused = |text: &str| {
        let read = Design::read(text).and_then(|design| design.check().map(|_| ()));
        read.expect_err("refused").to_string()
    };
    let unnumbered = merge([7, 3]).replace("bd_id = 3 : i32, ", "");
    assert!(refused(&unnumbered).contains("needs a `bd_id`"));
    let sender = merge([7, 3]).replacen(
        "MM2S, 0, ^one, ^end)",
        "MM2S, 0, ^one, ^end) {out_of_order}",
        1,
    );
    assert!(refused(&sender).contains("`out_of_order` is for S2MM"));
    let circuit = merge([7, 3]).replacen(
        "{packet = #aie.packet_info<pkt_type = 0, pkt_id = 1>, ",
        "{",
        1,
    );
    assert!(refused(&circuit).contains("`out_of_order_id` is for what sends packets"));
}

/// Six bits of a header are the descriptor's number; the receiver's channel 1 has those from 24 on.
#[test]
fn a_header_has_six_bits_of_a_number() {
    let high = merge([40, 24])
        .replace("packet_dest<%mem, DMA : 0>", "packet_dest<%mem, DMA : 1>")
        .replace("aie.dma_start(S2MM, 0,", "aie.dma_start(S2MM, 1,")
        .replace("bd_id = 7 :", "bd_id = 40 :")
        .replace("bd_id = 3 :", "bd_id = 24 :");
    assert_eq!(words(&run_text(&high)), [1, 2, 3, 4, 10, 20, 30, 40]);
}

/// A channel receives in order or out of order, from its start to its end.
#[test]
fn a_channel_that_receives_both_ways_is_refused() {
    let mixed = TASKS.replacen("} {out_of_order}", "}", 1);
    assert_ne!(mixed, TASKS);
    let read = Design::read(&two_senders([0, 1], &mixed)).and_then(|design| design.check());
    let error = read.map(|_| ()).expect_err("refused").to_string();
    assert!(
        error.contains("S2MM 0 receives in order here and out of order elsewhere"),
        "{error}"
    );
}

/// A channel that sends has the bit too; what it does there no source says.
#[test]
fn a_sender_out_of_order_is_refused() {
    let control = "aiex.npu.write32 {address = 122384 : ui32, column = 0 : i32, row = 2 : i32, value = 8 : ui32}";
    let text = merge([7, 3]).replace(
        "aiex.npu.dma_memcpy_nd",
        &format!("{control}\n      aiex.npu.dma_memcpy_nd"),
    );
    let design = Design::read(&text).unwrap();
    let ran = run(&design, &[vec![0; 32]], RunOptions::default());
    let error = ran.map(|report| report.verdict).expect_err("refused");
    let error = error.to_string();
    assert!(
        error.contains("out_of_order of a channel that sends: not documented"),
        "{error}"
    );
}

/// A core that sends its block in a packet of an id, for a descriptor, once the sequence gives its lock.
fn sender(tile: &str, id: u32, slot: u32) -> String {
    format!(
        "aie.mem(%{tile}) {{
        %s = aie.dma_start(MM2S, 0, ^one, ^end)
      ^one:
        aie.use_lock(%go_{tile}, AcquireGreaterEqual, 1)
        aie.dma_bd(%of_{tile} : memref<4xi32> offset = 0 len = 4) {{packet = #aie.packet_info<pkt_id = {id}, pkt_type = 0>, out_of_order_id = {slot} : i32}}
        aie.next_bd ^end
      ^end:
        aie.end
      }}
      aie.packet_flow({id}) {{
        aie.packet_source<%{tile}, DMA : 0>
        aie.packet_dest<%shim, DMA : 0>
      }} {{keep_pkt_header = true}}"
    )
}

/// Two tasks of a shim's channel take one packet each, by numbers of the pool.
const TASKS: &str = "aie.runtime_sequence(%to: memref<8xi32>) {
        %x = aiex.dma_bd_pool_pop(0, 0, 0) : i32
        %t = aiex.dma_configure_task(%shim, S2MM, 0, <pkt_type = 0, pkt_id = 0>) {
          aie.dma_bd(%to : memref<8xi32> offset = 4 len = 4) bd_id_val %x : i32
          aie.end
        } {out_of_order}
        %y = aiex.dma_bd_pool_pop(0, 0) : i32
        %u = aiex.dma_configure_task(%shim, S2MM, 0, <pkt_type = 0, pkt_id = 0>) {
          aie.dma_bd(%to : memref<8xi32> offset = 0 len = 4) bd_id_val %y : i32
          aie.end
        } {out_of_order, issue_token = true}
        aiex.set_lock(%go_a, 1)
        aiex.set_lock(%go_b, 1)
        aiex.dma_start_task(%t)
        aiex.dma_start_task(%u)
        aiex.dma_await_task(%u)
        aiex.dma_bd_pool_push(0, 0) bd_id %y : i32
        aiex.dma_bd_pool_push(0, 0, 0) bd_id %x : i32
      }";

#[test]
fn tasks_of_a_sequence_receive_out_of_order() {
    let text = two_senders([0, 1], TASKS);
    assert_eq!(words(&run_text(&text)), [10, 20, 30, 40, 1, 2, 3, 4]);
}

/// Headers choose the descriptors, and a chain would choose too: which of both does, no source says.
#[test]
fn a_chain_out_of_order_is_refused() {
    let chained = |uses_next: u32| {
        let sequence = format!(
            "aie.runtime_sequence(%to: memref<8xi32>) {{
        aiex.npu.write32 {{address = 119296 : ui32, column = 0 : i32, row = 0 : i32, value = 8 : ui32}}
        aiex.npu.writebd {{bd_id = 0 : i32, buffer_length = 4 : i32, buffer_offset = 0 : i32, column = 0 : i32, row = 0 : i32, enable_packet = 1 : i32, use_next_bd = {uses_next} : i32, next_bd = 1 : i32, valid_bd = 1 : i32}}
        aiex.npu.address_patch {{addr = 118788 : ui32, arg_idx = 0 : i32, arg_plus = 0 : i32}}
        aiex.npu.push_queue(0, 0, S2MM : 0) {{bd_id = 0 : i32, issue_token = true, repeat_count = 0 : i32}}
        aiex.set_lock(%go_a, 1)
        aiex.npu.sync {{channel = 0 : i32, column = 0 : i32, column_num = 1 : i32, direction = 0 : i32, row = 0 : i32, row_num = 1 : i32}}
      }}"
        );
        let design = Design::read(&two_senders([0, 1], &sequence)).unwrap();
        run(&design, &[vec![0; 32]], RunOptions::default())
    };
    assert_eq!(words(&chained(0).unwrap())[..4], [1, 2, 3, 4]);
    let error = chained(1).map(|report| report.verdict);
    let error = error.expect_err("refused").to_string();
    assert!(
        error.contains(
            "names descriptor 0, which names descriptor 1 as the next one: not documented"
        ),
        "{error}"
    );
}

/// Two cores that send to a shim's channel, each in packets for a descriptor, and a sequence.
fn two_senders(slots: [u32; 2], sequence: &str) -> String {
    format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %a = aie.tile(0, 2)
      %b = aie.tile(0, 3)
      %of_a = aie.buffer(%a) : memref<4xi32> = dense<[1, 2, 3, 4]>
      %of_b = aie.buffer(%b) : memref<4xi32> = dense<[10, 20, 30, 40]>
      %go_a = aie.lock(%a, 0) {{init = 0 : i32}}
      %go_b = aie.lock(%b, 0) {{init = 0 : i32}}
      {}
      {}
      {sequence}
    }}",
        sender("a", 1, slots[0]),
        sender("b", 2, slots[1])
    )
}

/// Locks and DMA of the core: channel 0 receives `n` words out of order, behind what channel 1 received.
fn receiving_program(n: u32) -> String {
    format!(
        "%b_sent = aie.lock(%core, 4) {{init = 0 : i32, sym_name = \"b_sent\"}}
    aie.mem(%core) {{
      %0 = aie.dma_start(S2MM, 0, ^take, ^other) {{out_of_order}}
    ^take:
      aie.use_lock(%b_sent, AcquireGreaterEqual, 1)
      aie.dma_bd(%a : memref<64xi32>, 0, {n}) {{bd_id = 0 : i32, packet = #aie.packet_info<pkt_type = 0, pkt_id = 0>}}
      aie.use_lock(%a_full, Release, 1)
      aie.next_bd ^end
    ^other:
      %1 = aie.dma_start(S2MM, 1, ^in, ^out)
    ^in:
      aie.dma_bd(%b : memref<64xi32>, 0, 64) {{bd_id = 1 : i32}}
      aie.use_lock(%b_full, Release, 1)
      aie.next_bd ^end
    ^out:
      %2 = aie.dma_start(MM2S, 0, ^first, ^end)
    ^first:
      aie.use_lock(%b_full, AcquireGreaterEqual, 1)
      aie.dma_bd(%b : memref<64xi32>, 0, 64) {{bd_id = 2 : i32}}
      aie.use_lock(%b_sent, Release, 1)
      aie.next_bd ^second
    ^second:
      aie.use_lock(%a_full, AcquireGreaterEqual, 1)
      aie.dma_bd(%a : memref<64xi32>, 0, {n}) {{bd_id = 3 : i32}}
      aie.next_bd ^end
    ^end:
      aie.end
    }}
    aie.runtime_sequence"
    )
}

/// The routes of `routed.mlir` with one arbiter at the core, where channel 0 receives out of order. So many words of a
/// packet wait there for the other stream, behind a header that the channel has taken.
fn behind_a_header(n: u32) -> String {
    let routed = text("routed");
    let (design, routes) = routed.split_once("// -----").unwrap();
    let routes = routes
        .replace("%of_b = aie.amsel<1> (0)", "%of_b = aie.amsel<0> (1)")
        .replace(
            "aie.masterset(DMA : 0, %of_a)",
            "aie.masterset(DMA : 0, %of_a) {keep_pkt_header = true}",
        );
    let first = "aie.packet_dest<%core, DMA : 0>\n    }";
    let send = "aiex.npu.dma_memcpy_nd(%from_b";
    assert!(design.contains(first));
    let design = design
        .replace(first, &format!("{first} {{keep_pkt_header = true}}"))
        .replace("memref<128xi32>", &format!("memref<{n}xi32>"))
        .replace(
            "%from_a[0, 0, 0, 0][1, 1, 1, 128]",
            &format!("%from_a[0, 0, 0, 0][1, 1, 1, {n}]"),
        )
        .replace("memref<2x64xi32>", "memref<128xi32>")
        .replace(
            "%to[0, 0, 0, 0][1, 1, 2, 64][0, 0, 64, 1]",
            &format!("%to[0, 0, 0, 0][1, 1, 1, {}][0, 0, 0, 1]", 64 + n),
        )
        .replace(
            send,
            &format!("aiex.npu.dma_wait {{symbol = @a}}\n      {send}"),
        );
    let (begin, rest) = design.split_once("%dma = aie.mem(%core) {").unwrap();
    let (_, sequence) = rest.split_once("    aie.runtime_sequence").unwrap();
    let program = receiving_program(n);
    format!("{begin}{program}{sequence}// -----{routes}")
}

/// Five words stand behind an arbiter; a header that the channel has taken is none of them, and lets the arbiter go.
#[test]
fn a_header_that_is_taken_frees_the_arbiter() {
    let verdict = |n| run_text(&behind_a_header(n)).verdict;
    assert_eq!(verdict(5), Verdict::Pass);
    assert_eq!(verdict(6), Verdict::Hang);
}
