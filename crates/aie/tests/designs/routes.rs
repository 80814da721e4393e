//! Routes that a text gives, and results that depend on them.

use crate::{run_text, text, words};
use millrace_aie::{Design, ReadOptions, Verdict};

/// The design without its routes.
fn alone(text: &str) -> &str {
    text.split("// -----").next().unwrap()
}

/// The routes of `routed.mlir` with one arbiter for both streams at the core.
fn with_shared_arbiter(text: &str) -> String {
    let apart = "%of_b = aie.amsel<1> (0)";
    assert!(text.contains(apart));
    text.replace(apart, "%of_b = aie.amsel<0> (1)")
}

fn refused(text: &str) -> String {
    let read = Design::read(text).and_then(|design| design.check().map(|_| ()));
    read.expect_err("refused").to_string()
}

/// One text: with separate arbiters it passes, with shared ones it hangs, without routes it passes on ours alone.
#[test]
fn arbiters_decide() {
    let routed = text("routed");
    let report = run_text(&routed);
    let expected: Vec<i32> = (1..=64).chain(1..=64).collect();
    assert_eq!((report.verdict, words(&report)), (Verdict::Pass, expected));
    assert!(
        report.notes[0].contains("its routes are those of the device in line"),
        "{:?}",
        report.notes
    );
    let report = run_text(&with_shared_arbiter(&routed));
    assert_eq!(report.verdict, Verdict::Hang, "{report:#?}");
    let waits = report.waits.join("\n");
    assert!(waits.contains("waits for an arbiter that"), "{waits}");
    let report = run_text(alone(&routed));
    assert_eq!(report.verdict, Verdict::PassOnOwnRoutes);
    assert_eq!(report.verdict.name(), "PASS on routes of ours");
    // A circuit shares no arbiter.
    let circuit = "aie.packet_flow(2) {
      aie.packet_source<%shim, DMA : 1>
      aie.packet_dest<%core, DMA : 1>
    }";
    assert!(routed.contains(circuit));
    let one = alone(&routed)
        .replace(circuit, "aie.flow(%shim, DMA : 1, %core, DMA : 1)")
        .replace(", <pkt_id = 2>", "");
    assert_eq!(run_text(&one).verdict, Verdict::Pass);
}

/// Routes that no flow names contradict the text.
#[test]
fn routes_without_a_flow_are_refused() {
    let routed = text("routed");
    let flow = "    aie.flow(%core, DMA : 0, %shim, DMA : 0)\n";
    assert!(routed.contains(flow));
    let error = refused(&routed.replacen(flow, "", 1));
    assert!(error.contains("no flow of the design does"), "{error}");
}

/// `n` words of @a that the core does not take before @b has come; @b is sent after @a.
fn with_words_left(n: usize) -> String {
    let send = "aiex.npu.dma_memcpy_nd(%from_b";
    let awaited = format!("aiex.npu.dma_wait {{symbol = @a}}\n      {send}");
    text("routed")
        .replace("128", &(64 + n).to_string())
        .replace(send, &awaited)
}

/// Measured on an NPU2: a packet stream into a core holds 8 words that no one takes, and the ninth waits.
#[test]
fn eight_words_wait_in_a_packet_stream() {
    assert_eq!(run_text(&with_words_left(8)).verdict, Verdict::Pass);
    assert_eq!(run_text(&with_words_left(9)).verdict, Verdict::Hang);
}

/// Measured on an NPU2: 5 of them are past the arbiter at the core, and a sixth holds it.
#[test]
fn five_words_stand_behind_an_arbiter() {
    let shared = |n| run_text(&with_shared_arbiter(&with_words_left(n))).verdict;
    assert_eq!(shared(5), Verdict::Pass);
    assert_eq!(shared(6), Verdict::Hang);
    // Consecutive streams from one channel are held up in the same way.
    let one_channel = |n| {
        with_words_left(n)
            .replace("@b(%shim, MM2S, 1", "@b(%shim, MM2S, 0")
            .replace("<%shim, DMA : 1>", "<%shim, DMA : 0>")
    };
    assert_eq!(
        run_text(alone(&one_channel(8))).verdict,
        Verdict::PassOnOwnRoutes
    );
}

/// A design with its routes, in one device.
#[test]
fn one_device_may_have_design_and_routes() {
    let routed = text("routed");
    let (design, routes) = routed.split_once("// -----").unwrap();
    let body = routes.split_once("aie.device(npu2) {").unwrap().1;
    let body = body
        .trim_end()
        .trim_end_matches('}')
        .trim_end()
        .trim_end_matches('}');
    let flows = design.find("aie.packet_flow(1)").unwrap()
        ..design.find("aie.shim_dma_allocation @a").unwrap();
    let mut without = design.to_owned();
    without.replace_range(flows, "");
    let end = without
        .trim_end()
        .trim_end_matches('}')
        .trim_end()
        .trim_end_matches('}')
        .to_owned();
    let whole = format!("{end}{body}}}\n}}");
    let report = run_text(&whole);
    assert_eq!(words(&report).len(), 128);
    let report = run_text(&with_shared_arbiter(&whole));
    assert_eq!(report.verdict, Verdict::Hang);
    let told = report.waits.join("\n");
    assert!(
        told.contains("waits for words from shim (0, 0) MM2S 1"),
        "{told}"
    );
}

#[test]
fn routes_that_do_not_fit_are_refused() {
    let routed = text("routed");
    let rows = [
        // They lead elsewhere than the flow does.
        (
            "aie.masterset(DMA : 1, %of_b)",
            "aie.masterset(DMA : 0, %of_b)",
            "the routes of the text lead to Dma 0 of core (0, 2)",
        ),
        // They end midway.
        (
            "      aie.connect<North : 0, South : 0>\n",
            "",
            "the routes of the text lead nowhere from North 0 of memory (0, 1)",
        ),
        // An id that no rule takes.
        (
            "aie.rule(31, 2, %of_b)",
            "aie.rule(31, 3, %of_b)",
            "lead nowhere from South 2 of core (0, 2)",
        ),
        // The shim's channel is not joined to the switch.
        (
            "      aie.connect<DMA : 1, North : 7>\n",
            "",
            "no `aie.shim_mux` joins it to MM2S 1",
        ),
        (
            "aie.connect<DMA : 1, North : 7>",
            "aie.connect<DMA : 1, North : 3>",
            "MM2S 1 is at port 7",
        ),
        // Hardware.
        (
            "%of_b = aie.amsel<1> (0)",
            "%of_b = aie.amsel<8> (0)",
            "arbiters 0 to 7 of selections 0 to 3",
        ),
        (
            "aie.masterset(DMA : 0, %of_a)",
            "aie.masterset(DMA : 0, %of_a, %of_b)",
            "packets of one arbiter",
        ),
        (
            "aie.masterset(DMA : 1, %of_b)",
            "aie.masterset(DMA : 2, %of_b)",
            "has no port `DMA : 2`",
        ),
        (
            "aie.rule(31, 2, %of_b)",
            "aie.rule(31, 2, %of_c)",
            "%of_c is no `aie.amsel` of this switch",
        ),
        (
            "aie.connect<DMA : 0, South : 0>",
            "aie.connect<DMA : 0, South : 0> {priority = 1 : i32}",
            "the attribute `priority` is not known",
        ),
    ];
    for (from, to, expected) in rows {
        assert!(routed.contains(from), "{from}");
        let found = refused(&routed.replacen(from, to, 1));
        assert!(
            found.contains(expected),
            "{to}\nexpected {expected}\nfound    {found}"
        );
        assert!(found.starts_with("line "), "{found}");
    }
}

/// A ring of switches ends as an error.
#[test]
fn a_ring_of_routes_is_refused() {
    let ring = "aie.device(npu2) {
  %t = aie.tile(0, 2)
  %u = aie.tile(0, 3)
  aie.flow(%t, DMA : 0, %t, DMA : 1)
  aie.switchbox(%t) {
    aie.connect<DMA : 0, North : 0>
    aie.connect<North : 0, North : 0>
  }
  aie.switchbox(%u) {
    aie.connect<South : 0, South : 0>
  }
}";
    assert!(refused(ring).contains("are a ring"), "{}", refused(ring));
}

#[test]
fn a_device_is_found_or_asked_for() {
    let passthrough = text("passthrough");
    let named = |name: &str| {
        passthrough.replacen(
            "aie.device(npu2_1col)",
            &format!("aie.device(npu2_1col) @{name}"),
            1,
        )
    };
    let both = format!("{}\n{}", named("first"), named("second"));
    let error = refused(&both);
    assert!(
        error.contains(
            "2 of 2 devices have a sequence: say which is meant by --device-name (1 @first in line"
        ),
        "{error}"
    );
    let read = |device: &str| {
        Design::read_with(
            &both,
            &ReadOptions {
                device: Some(device.to_owned()),
                sequence: None,
                ..ReadOptions::default()
            },
        )
    };
    assert_eq!(read("second").unwrap().name, "second");
    assert_eq!(read("@first").unwrap().name, "first");
    assert_eq!(read("2").unwrap().name, "second");
    let error = read("third").expect_err("no such device").to_string();
    assert!(
        error.contains("there is no device @third; there are 1 @first"),
        "{error}"
    );
    // One without a sequence is not ambiguous.
    let plain = "aie.device(npu2) @other {\n  %t = aie.tile(0, 0)\n}\n";
    let report = run_text(&format!("{plain}{}", named("first")));
    assert_eq!(report.verdict, Verdict::Pass);
    assert!(
        report.notes[0].contains("of 2 devices of the text @first"),
        "{:?}",
        report.notes
    );
}

#[test]
fn a_sequence_is_found_or_asked_for() {
    let one = text("passthrough");
    let at = one.find("aie.runtime_sequence").unwrap();
    let rest = &one[at..];
    let end = at + rest.find("\n    }").unwrap() + "\n    }".len();
    let sequence = &one[at..end];
    let (open, body) = sequence.split_once('(').unwrap();
    let named = |name: &str| format!("{} @{name}({body}", open.split(' ').next().unwrap());
    let two = format!(
        "{}{}\n    {}{}",
        &one[..at],
        named("whole"),
        named("again"),
        &one[end..]
    );
    let error = refused(&two);
    assert!(
        error.contains("2 sequences: say which is to run by --sequence (@whole, @again)"),
        "{error}"
    );
    let options = |name: &str| ReadOptions {
        device: None,
        sequence: Some(name.to_owned()),
        ..ReadOptions::default()
    };
    assert!(Design::read_with(&two, &options("again")).is_ok());
    let error = Design::read_with(&two, &options("@none"))
        .expect_err("none")
        .to_string();
    assert!(
        error.contains("there is no sequence @none; there are @whole, @again"),
        "{error}"
    );
}

/// A shim's name may define the packets that its tasks send; a task may define others.
#[test]
fn packets_of_an_allocation_are_sent() {
    let routed = text("routed");
    let design = alone(&routed);
    // Without them words go without a header into a port that takes packets.
    let without = run_text(&design.replace(", <pkt_id = 1>", ""));
    assert_eq!(without.verdict, Verdict::Fail, "{without:#?}");
    let other = "metadata = @a} : memref<128xi32>";
    assert!(design.contains(other));
    let told = design.replace(", <pkt_id = 1>", ", <pkt_id = 2>").replace(
        "[0, 0, 0, 1]) {id = 1",
        "[0, 0, 0, 1], packet = <pkt_type = 0, pkt_id = 1>) {id = 1",
    );
    assert_eq!(run_text(&told).verdict, Verdict::PassOnOwnRoutes);
    let rows = [
        (", <pkt_id = 1>", ", <pkt_id = 32>", "an id to 31"),
        (
            ", <pkt_id = 1>",
            ", 7",
            "behind the channel stands a packet",
        ),
        (
            "@out(%shim, S2MM, 0)",
            "@out(%shim, S2MM, 0, <pkt_id = 1>)",
            "a packet is of what a channel sends",
        ),
    ];
    for (from, to, expected) in rows {
        let found = refused(&design.replace(from, to));
        assert!(found.contains(expected), "{found}");
    }
}

/// Two streams of 16 packets each pass the same two switches, one upwards and one downwards. `upper` and `lower` are the
/// arbiter and selection of the second one there: those of the first stream have arbiter 0.
fn crossing(upper: &str, lower: &str) -> String {
    format!(
        "aie.device(npu2) {{
  %shim = aie.tile(0, 0)
  %mem = aie.tile(0, 1)
  %low = aie.tile(0, 2)
  %high = aie.tile(0, 3)
  %top = aie.tile(0, 4)
  %x = aie.buffer(%high) {{sym_name = \"x\"}} : memref<64xi32>
  %y = aie.buffer(%low) {{sym_name = \"y\"}} : memref<64xi32>
  %z = aie.buffer(%top) {{sym_name = \"z\"}} : memref<64xi32>
  aie.shim_mux(%shim) {{
    aie.connect<DMA : 0, North : 3>
  }}
  aie.switchbox(%shim) {{
    %0 = aie.amsel<0> (0)
    aie.masterset(North : 0, %0)
    aie.packet_rules(South : 3) {{
      aie.rule(31, 1, %0)
    }}
  }}
  aie.switchbox(%mem) {{
    %0 = aie.amsel<0> (0)
    aie.masterset(North : 0, %0)
    aie.packet_rules(South : 0) {{
      aie.rule(31, 1, %0)
    }}
  }}
  aie.switchbox(%low) {{
    %0 = aie.amsel<0> (0)
    %1 = aie.amsel{lower}
    aie.masterset(North : 0, %0)
    aie.masterset(DMA : 0, %1)
    aie.packet_rules(South : 0) {{
      aie.rule(31, 1, %0)
    }}
    aie.packet_rules(North : 0) {{
      aie.rule(31, 2, %1)
    }}
  }}
  aie.switchbox(%high) {{
    %0 = aie.amsel<0> (0)
    %1 = aie.amsel{upper}
    aie.masterset(DMA : 0, %0)
    aie.masterset(South : 0, %1)
    aie.packet_rules(South : 0) {{
      aie.rule(31, 1, %0)
    }}
    aie.packet_rules(North : 0) {{
      aie.rule(31, 2, %1)
    }}
  }}
  aie.switchbox(%top) {{
    %0 = aie.amsel<0> (0)
    aie.masterset(South : 0, %0)
    aie.packet_rules(DMA : 0) {{
      aie.rule(31, 2, %0)
    }}
  }}
  aie.mem(%high) {{
    aie.dma(S2MM, 0) [{{
      aie.dma_bd(%x : memref<64xi32>)
    }}]
    aie.end
  }}
  aie.mem(%low) {{
    aie.dma(S2MM, 0) [{{
      aie.dma_bd(%y : memref<64xi32>)
    }}]
    aie.end
  }}
  aie.mem(%top) {{
    aie.dma(MM2S, 0) {{loop = false, repeat_count = 15 : i32}} [{{
      aie.dma_bd(%z : memref<64xi32>) {{packet = #aie.packet_info<pkt_type = 0, pkt_id = 2>}}
    }}]
    aie.end
  }}
  aie.shim_dma_allocation @in(%shim, MM2S, 0, <pkt_id = 1>)
  aie.runtime_sequence(%from: memref<1024xi32>) {{
    aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][16, 1, 1, 64][64, 0, 0, 1]) {{id = 0 : i64, issue_token = true, metadata = @in}} : memref<1024xi32>
    aiex.npu.dma_wait {{symbol = @in}}
  }}
}}"
    )
}

/// Each of two streams has one arbiter of both and waits for the other: neither moves. It takes both to be shared.
#[test]
fn streams_that_cross_meet_midway() {
    let ring = run_text(&crossing("<0> (1)", "<0> (1)"));
    assert_eq!(ring.verdict, Verdict::Hang, "{ring:#?}");
    let told = ring.ring.join("\n");
    assert!(
        told.contains(
            "shim (0, 0) MM2S 0 (descriptor 0) waits for an arbiter that core (0, 4) MM2S 0 holds"
        ),
        "{told}"
    );
    assert!(told.contains("and so back to"), "{told}");
    for (upper, lower) in [
        ("<1> (0)", "<0> (1)"),
        ("<0> (1)", "<1> (0)"),
        ("<1> (0)", "<1> (0)"),
    ] {
        let report = run_text(&crossing(upper, lower));
        assert_eq!(
            report.verdict,
            Verdict::Pass,
            "{upper} {lower}: {report:#?}"
        );
    }
}
