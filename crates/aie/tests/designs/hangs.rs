//! Hangs: none is called anything else, and the ring is named.

use crate::{run_text, text};
use millrace_aie::{RunReport, Verdict};

fn hang(text: &str) -> RunReport {
    let report = run_text(text);
    assert_eq!(report.verdict, Verdict::Hang, "{report:#?}");
    assert!(report.outputs.is_empty());
    report
}

#[test]
fn cores_that_wait_for_one_another_are_a_ring() {
    let report = hang(&text("deadlock"));
    let ring = report.ring.join("\n");
    for part in [
        "the sequence awaits the token of shim (0, 0) S2MM 0",
        "from here on it is a ring:",
        "the program of core (0, 2) (line 12, column 12) waits for 1 of back_cons_cons_lock",
        "the program of core (0, 4) (line 21, column 12) waits for 1 of there_cons_cons_lock",
        "and so back to",
    ] {
        assert!(ring.contains(part), "{part} is missing in\n{ring}");
    }
}

/// Each change of a good design makes it hang. The ring names the party that should bring the missing part.
#[test]
fn good_designs_hang_when_something_is_taken_away() {
    let rows = [
        // Nothing acquires the input.
        (
            "passthrough",
            "%from[0, 0, 0, 0][1, 1, 1, 1024]",
            "%from[0, 0, 0, 0][1, 1, 1, 960]",
            "shim (0, 0) MM2S 0 has no task",
        ),
        // The core releases nothing.
        (
            "vector_add",
            "        aie.objectfifo.release @sum(Produce, 1)\n",
            "",
            "which is 0 and nobody releases",
        ),
        // The last part of a join never comes.
        (
            "join",
            "        aie.objectfifo.release @out_right(Produce, 1)\n",
            "",
            "out_right_cons_lock",
        ),
        // A lock begins full.
        (
            "physical",
            "%empty = aie.lock(%mem, 0) {init = 1 : i32",
            "%empty = aie.lock(%mem, 0) {init = 0 : i32",
            "empty, lock 0 of memory (1, 1)",
        ),
        // Both inputs of a product are needed.
        (
            "matmul",
            "      aiex.npu.dma_memcpy_nd(%b[0, 0, 0, 0][1, 1, 1, 256][0, 0, 0, 1]) {id = 2 : i64, metadata = @b} : memref<16x16xi16>\n",
            "",
            "shim (0, 0) MM2S 1 has no task",
        ),
        // The second packet is never let go.
        (
            "packets",
            "      aiex.set_lock(%b_full, 1)\n",
            "",
            "waits for 1 of %b_full",
        ),
    ];
    for (name, from, to, part) in rows {
        let good = text(name);
        assert!(good.contains(from), "{name}: {from}");
        let report = hang(&good.replace(from, to));
        let told = report.ring.join("\n");
        assert!(
            told.contains(part),
            "{name}: {part} is missing in\n{told}\nall: {:#?}",
            report.waits
        );
    }
}

/// An output that is not awaited may be written too late; one that is never written hangs.
#[test]
fn an_output_that_nobody_awaits_must_be_complete() {
    let wait = "      aiex.npu.dma_wait {symbol = @out}\n";
    let unawaited = text("passthrough").replace(wait, "");
    assert_eq!(run_text(&unawaited).verdict, Verdict::Fail);
    let short = unawaited.replace(
        "%from[0, 0, 0, 0][1, 1, 1, 1024]",
        "%from[0, 0, 0, 0][1, 1, 1, 960]",
    );
    let ring = hang(&short).ring.join("\n");
    assert!(
        ring.starts_with("the sequence has ended, and shim (0, 0) S2MM 0 is to write on"),
        "{ring}"
    );
}

/// The sequence waits for a token that no task sends.
#[test]
fn a_missing_token_is_told() {
    let sync = "      aiex.npu.sync {channel = 0 : i32, column = 0 : i32, column_num = 1 : i32, direction = 1 : i32, row = 0 : i32, row_num = 1 : i32}\n";
    let wait = "      aiex.npu.dma_wait {symbol = @out}\n";
    let also = text("passthrough").replace(wait, &format!("{wait}{sync}"));
    let ring = hang(&also).ring.join("\n");
    assert!(
        ring.contains("awaits the token of shim (0, 0) MM2S 0\nshim (0, 0) MM2S 0 has no task"),
        "{ring}"
    );
    let with_token = also.replace(
        "{id = 0 : i64, metadata",
        "{id = 0 : i64, issue_token = true, metadata",
    );
    assert_eq!(run_text(&with_token).verdict, Verdict::Pass);
}

/// A fifth task for a channel is lost where the queue is full.
#[test]
fn a_full_queue_is_no_pass() {
    let line = "      aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 1024][0, 0, 0, 1]) {id = 1 : i64, issue_token = true, metadata = @out} : memref<1024xi32>\n";
    let mut five = String::new();
    for i in 0..5 {
        five += &format!(
            "      aiex.npu.dma_memcpy_nd(%to[0, 0, 0, {}][1, 1, 1, 200][0, 0, 0, 1]) {{id = {} : i64, metadata = @out}} : memref<1024xi32>\n",
            i * 200,
            i + 1
        );
    }
    let report = run_text(&text("passthrough").replace(line, &five));
    assert_eq!(report.verdict, Verdict::Fail);
    let problem = report.problem.unwrap();
    assert!(
        problem.contains("the queue holds 4 tasks, a further one is lost"),
        "{problem}"
    );
    assert!(problem.starts_with("line "), "{problem}");
}

/// A descriptor is rewritten while its task is under way.
#[test]
fn a_descriptor_in_use_is_no_pass() {
    let second = "      aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 512][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<1024xi32>\n";
    let wait = "      aiex.npu.dma_wait {symbol = @out}\n";
    let report = run_text(&text("passthrough").replace(wait, &format!("{second}{wait}")));
    assert_eq!(report.verdict, Verdict::Fail);
    assert!(
        report
            .problem
            .unwrap()
            .contains("while a channel is to execute it")
    );
}

/// Two cores that touch a buffer without a lock are a race, not a result.
#[test]
fn a_race_is_no_pass() {
    let raced = text("physical").replace(
        "        aie.use_lock(%tile_full, AcquireGreaterEqual, 1)\n",
        "",
    );
    assert_ne!(run_text(&raced).verdict, Verdict::Pass);
}

/// A core that computes for ever is stopped by its budget: the run neither passes nor hangs the program.
#[test]
fn a_core_that_never_waits_is_stopped() {
    let body = "%forever = arith.constant 9223372036854775807 : index
    scf.for %i = %c0 to %forever step %c1 {
    }";
    let design = millrace_aie::Design::read(&crate::core_design("", body)).unwrap();
    let options = millrace_aie::RunOptions {
        max_instructions: 100_000,
        ..Default::default()
    };
    let report = millrace_aie::run(&design, &[design.counting(0), vec![0; 64]], options).unwrap();
    assert_eq!(report.verdict, Verdict::Fail);
    assert!(
        report
            .problem
            .unwrap()
            .contains("stopped after 100000 instructions")
    );
}

/// A channel that no flow ends at waits for nobody, and that is said.
#[test]
fn a_channel_without_a_stream_says_so() {
    let text = "aie.device(npu2) {
      %shim = aie.tile(0, 0)
      aie.shim_dma_allocation @out(%shim, S2MM, 0)
      aie.runtime_sequence(%to: memref<8xi32>) {
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 8][0, 0, 0, 1]) {id = 0 : i64, metadata = @out} : memref<8xi32>
        aiex.npu.dma_wait {symbol = @out}
      }
    }";
    let report = run_text(text);
    assert_eq!(report.verdict, Verdict::Hang, "{report:#?}");
    let ring = report.ring.join("\n");
    assert!(
        ring.ends_with("waits for words, and no stream leads there"),
        "{ring}"
    );
}
