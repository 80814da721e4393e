//! Modelled time: its causes and its bounds.

use crate::{core_design, text};
use millrace_aie::{Design, DesignTime, RunOptions, TimeModel, Verdict, time};

/// The default profile with some constants changed.
fn model(changes: &[(&str, f64)]) -> TimeModel {
    let mut text =
        String::from("name = \"changed\"\nsummary = \"a test\"\nbase = \"air-strix-2026\"\n");
    text.push_str("kernel_error_percent = 0\nprompt_error_percent = 0\ntoken_error_percent = 0\n");
    for (key, value) in changes {
        text.push_str(&format!(
            "[{key}]\nvalue = {value}\norigin = \"derived\"\nsource = \"a test\"\n"
        ));
    }
    TimeModel::from_toml(&text, "changed.toml").unwrap_or_else(|problem| panic!("{problem}"))
}

fn timed(text: &str, model: &TimeModel) -> DesignTime {
    let design = Design::read(text).unwrap_or_else(|error| panic!("{error}"));
    let arguments: Vec<Vec<u8>> = (design.arguments().enumerate())
        .map(|(i, _)| design.counting(i))
        .collect();
    let (report, found) = time(&design, &arguments, RunOptions::default(), model).unwrap();
    assert!(report.verdict.is_pass(), "{report:#?}");
    found.unwrap()
}

/// So many words from DDR through a memory tile to DDR.
fn copy(n_words: usize) -> String {
    format!(
        r#"aie.device(npu2) {{
  %shim = aie.tile(0, 0)
  %mem = aie.tile(0, 1)
  aie.objectfifo @in(%shim, {{%mem}}, 2 : i32) : !aie.objectfifo<memref<1024xi32>>
  aie.objectfifo @out(%mem, {{%shim}}, 2 : i32) : !aie.objectfifo<memref<1024xi32>>
  aie.objectfifo.link [@in] -> [@out]([] [])
  aie.runtime_sequence(%from: memref<{n_words}xi32>, %to: memref<{n_words}xi32>) {{
    aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, {n_words}][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<{n_words}xi32>
    aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, {n_words}][0, 0, 0, 1]) {{id = 0 : i64, metadata = @in}} : memref<{n_words}xi32>
    aiex.npu.dma_wait {{symbol = @out}}
  }}
}}"#
    )
}

/// A constant of the profile, and nothing else, decides a long copy: the shim's port, or DDR.
#[test]
fn a_long_copy_is_bound_by_the_shims_port_or_by_ddr() {
    let n_words = 1 << 17;
    let bytes = (4 * n_words) as f64;
    let text = copy(n_words);
    let ports = timed(&text, &model(&[]));
    let ratio = ports.total_ns / (bytes / 10.2);
    assert!((1.0..1.1).contains(&ratio), "{ratio}");
    let first = &ports.actors[0].name;
    assert!(first.starts_with("shim (0, 0)"), "{first}");
    assert_eq!(ports.ddr_bytes, [4 * n_words as u64; 2]);
    let ddr = timed(&text, &model(&[("ddr.total_gb_per_s", 5.0)]));
    assert_eq!(ddr.actors[0].name, "DDR");
    // From the first word on; the sequence and the first task come before.
    let before_ns = ddr.total_ns - 2.0 * bytes / 5.0;
    assert!((0.0..3000.0).contains(&before_ns), "{before_ns}");
}

/// A core's instructions take a cycle each: a longer program takes longer by that much.
#[test]
fn a_cores_program_takes_its_cycles() {
    let rounds = |n: usize| {
        let body = format!(
            "%n = arith.constant {n} : index
    scf.for %i = %c0 to %n step %c1 {{
      %x = memref.load %in[%c0] : memref<16xi32>
      memref.store %x, %out[%c0] : memref<16xi32>
    }}
    memref.copy %in, %out : memref<16xi32> to memref<16xi32>"
        );
        timed(&core_design("", &body), &model(&[])).total_ns
    };
    // A round has a test, a load, a store, a step and a jump, at 1.8 GHz.
    let expected = 5.0 * 90_000.0 / 1.8;
    let found = rounds(100_000) - rounds(10_000);
    assert!(
        (found / expected - 1.0).abs() < 0.01,
        "{found} of {expected}"
    );
}

/// The sequence's operations take the time of a task; tile kernels take the cycles of their object code.
#[test]
fn constants_of_the_profile_count() {
    let text = text("vector_add");
    let base = timed(&text, &model(&[]));
    let slow = timed(&text, &model(&[("dispatch.issue_ns", 7500.0)]));
    let of = |time: &DesignTime| {
        let found = time
            .actors
            .iter()
            .find(|actor| actor.name == "the sequence");
        found.unwrap().busy_ns
    };
    assert!((of(&slow) / of(&base) - 10.0).abs() < 1e-9);
    assert!(slow.total_ns > base.total_ns);
    let device = "func.func private @millrace_zero_i32__d16(memref<16xi32>)";
    let call = "func.call @millrace_zero_i32__d16(%out) : (memref<16xi32>) -> ()";
    let with =
        |changes: &[(&str, f64)]| timed(&core_design(device, call), &model(changes)).total_ns;
    // 16 elements of 112,500 cycles are a millisecond.
    let more = with(&[("kernel.zero_i32.cycles_per_element", 112_500.0)]) - with(&[]);
    assert!((990_000.0..1_000_001.0).contains(&more), "{more}");
}

#[test]
fn nobody_works_longer_than_the_whole_and_traces_are_traces() {
    for name in ["vector_add", "join", "matmul", "packets", "physical"] {
        let found = timed(&text(name), &model(&[]));
        assert!(found.total_ns > 0.0, "{name}");
        for actor in &found.actors {
            let total = found.total_ns;
            assert!(actor.busy_ns <= total + 1.0, "{name}: {actor:?} of {total}");
        }
        let chrome = found.trace.to_chrome().unwrap();
        let summary = millrace_npu::trace::check_chrome(&chrome);
        assert!(summary.is_ok(), "{name}: {summary:?}");
        let mut tracks = found.trace.tracks.iter();
        assert!(tracks.any(|track| track.group == "shims"), "{name}");
        // The same events in the same order have the same times.
        assert_eq!(found, timed(&text(name), &model(&[])), "{name}");
    }
}

#[test]
fn a_hang_has_no_time() {
    let design = Design::read(&text("deadlock")).unwrap();
    let arguments: Vec<Vec<u8>> = (design.arguments().enumerate())
        .map(|(i, _)| design.counting(i))
        .collect();
    let (report, found) = time(&design, &arguments, RunOptions::default(), &model(&[])).unwrap();
    assert_eq!((report.verdict, found), (Verdict::Hang, None));
}
