//! Words of a host's scratchpad: for cores, and for addresses of descriptors.

use crate::{text, words};
use millrace_aie::HostNumber::{Point, Whole};
use millrace_aie::{
    Design, HostNumber, ReadOptions, RunOptions, RunReport, UnsetMemory, Verdict, run,
};

fn read(text: &str, numbers: &[(&str, HostNumber)]) -> Result<Design, String> {
    let numbers = numbers.iter().map(|(name, of)| ((*name).to_owned(), *of));
    let options = ReadOptions {
        numbers: numbers.collect(),
        ..ReadOptions::default()
    };
    let design = Design::read_with(text, &options).map_err(|error| error.to_string())?;
    let checked = design.check().map_err(|error| error.to_string());
    checked.map(|_| design)
}

fn ran(text: &str, numbers: &[(&str, HostNumber)], options: RunOptions) -> RunReport {
    let design = read(text, numbers).unwrap();
    let n = design.arguments().count();
    let arguments: Vec<Vec<u8>> = (0..n).map(|i| design.counting(i)).collect();
    run(&design, &arguments, options).unwrap()
}

fn outputs(text: &str, numbers: &[(&str, HostNumber)]) -> Vec<i32> {
    words(&ran(text, numbers, RunOptions::default()))
}

#[test]
fn a_core_multiplies_by_a_word_and_a_descriptor_begins_at_one() {
    let expected = |start: i32, factor: i32| {
        let all = (1..=16).map(|i| (start + i) * factor);
        all.collect::<Vec<i32>>()
    };
    let text = text("scratchpad");
    for (start, factor) in [(0, 1), (16, 3), (48, 0x3FFF_FFFF)] {
        let numbers = [("start", Whole(start)), ("factor", Whole(factor))];
        let wanted = (1..=16).map(|i| (start as i32 + i).wrapping_mul(factor as i32));
        let found = outputs(&text, &numbers);
        assert_eq!(found, wanted.collect::<Vec<i32>>(), "{start} {factor}");
    }
    // Where a host gives more than the argument's type says, as far as the word reaches.
    let far = [("start", Whole(100)), ("factor", Whole(1))];
    assert_eq!(outputs(&text, &far), expected(100, 1));
    // mlir-aie adds the marker if no configuration is loaded in the sequence.
    let begun = text
        .replace("      aiex.sync_scratchpad_parameters_from_host\n", "")
        .replace("      aiex.npu.load_pdi {device_ref = @empty}\n", "")
        .replace("      aiex.npu.load_pdi {device_ref = @main}\n", "");
    let numbers = [("start", Whole(4)), ("factor", Whole(2))];
    assert_eq!(outputs(&begun, &numbers), expected(4, 2));
}

/// A parameter of a type narrower than a word.
#[test]
fn narrow_parameters_keep_their_sign_and_their_point() {
    let narrow = |of: &str, op: &str, extended: &str| {
        text("scratchpad")
            .replace("@factor : i32", &format!("@factor : {of}"))
            .replace(
                "%w = arith.muli %v, %factor : i32",
                &format!("{extended}\n        {op}"),
            )
    };
    let whole = narrow(
        "i16",
        "%w = arith.muli %v, %wide : i32",
        "%wide = arith.extsi %factor : i16 to i32",
    );
    let numbers = [("start", Whole(0)), ("factor", Whole(-2))];
    let expected: Vec<i32> = (1..=16).map(|i| -2 * i).collect();
    assert_eq!(outputs(&whole, &numbers), expected);
    let point = narrow(
        "bf16",
        "%w = arith.fptosi %product : f32 to i32",
        "%value = arith.sitofp %v : i32 to f32
        %wide = arith.extf %factor : bf16 to f32
        %product = arith.mulf %value, %wide : f32",
    );
    let numbers = [("start", Whole(0)), ("factor", Point(-2.5))];
    let expected: Vec<i32> = (1..=16).map(|i| i * -5 / 2).collect();
    assert_eq!(outputs(&point, &numbers), expected);
}

/// A core waits for its parameters; a sequence that never sets them hangs there.
#[test]
fn a_core_whose_parameters_never_come_hangs() {
    let never = text("scratchpad")
        .replace("      aiex.sync_scratchpad_parameters_from_host\n", "")
        .replace(
            ", %result: memref<16xi32>) {",
            ", %result: memref<16xi32>) attributes {emit_parameter_sync_preamble = false} {",
        )
        .replace(" {offset_parameter = @start}", "");
    let report = ran(&never, &[], RunOptions::default());
    assert_eq!(report.verdict, Verdict::Hang, "{report:#?}");
    let ring = report.ring.join("\n");
    assert!(ring.contains("parameters of %core"), "{ring}");
}

#[test]
fn what_a_host_did_not_say_or_no_word_holds_is_refused() {
    let text = text("scratchpad");
    let start = ("start", Whole(0));
    let both = [start, ("factor", Whole(1))];
    for (numbers, problem) in [
        (&[start][..], "give it by --number factor=VALUE"),
        (&[both[1]], "give it by --number start=VALUE"),
        (
            &[start, ("factor", Whole(1 << 30))],
            "@factor is a whole number of 0 to 1073741823",
        ),
        (
            &[start, ("factor", Point(1.5))],
            "@factor is a whole number",
        ),
        (&[("start", Whole(-1)), both[1]], "@start is a whole number"),
    ] {
        let error = read(&text, numbers).unwrap_err();
        assert!(error.contains(problem), "{numbers:?}: {error}");
    }
}

#[test]
fn parameters_that_firmware_cannot_give_are_refused() {
    let text = text("scratchpad");
    for (from, to, problem) in [
        (
            "@start}",
            "@begin}",
            "there is no `aiex.scratchpad_parameter` @begin",
        ),
        (
            "@start}",
            "@factor}",
            "cores read @factor, and descriptors are moved by it",
        ),
        (
            "@start : i32",
            "@start : i16",
            "a parameter that moves descriptors is i32, not i16",
        ),
        (
            "@factor : i32",
            "@factor : f32",
            "a core's parameter is bf16 or up to i32, not f32",
        ),
        (
            "@start : i32",
            "@factor : i32",
            "a second parameter @factor",
        ),
    ] {
        let changed = text.replacen(from, to, 1);
        let error = read(&changed, &[("start", Whole(0)), ("factor", Whole(1))]).unwrap_err();
        assert!(error.contains(problem), "{to}: {error}");
    }
}

#[test]
fn a_scratchpad_has_32_words() {
    let of_33: String = (0..33)
        .map(|i| format!("aiex.scratchpad_parameter @p{i} : i32\n"))
        .collect();
    let error = read(&format!("{of_33}aie.device(npu2) {{\n}}"), &[]).unwrap_err();
    assert!(
        error.contains("33 parameters; a scratchpad has 32 words"),
        "{error}"
    );
}

/// Firmware's operations alone. A word is added to the present content of memory, so a design that relies on zeros has to write them.
fn raw(clear: &str, size: u32) -> String {
    format!(
        "aie.device(npu2) {{
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      %own = aie.buffer(%core) {{sym_name = \"own\"}} : memref<2xi32>
      %go = aie.lock(%core, 0) {{init = 0 : i32}}
      %full = aie.lock(%core, 1) {{init = 0 : i32}}
      aie.flow(%core, DMA : 0, %shim, DMA : 0)
      aie.core(%core) {{
        aie.use_lock(%go, AcquireGreaterEqual, 1)
        aie.use_lock(%full, Release, 1)
        aie.end
      }}
      aie.mem(%core) {{
        %s = aie.dma_start(MM2S, 0, ^one, ^end)
      ^one:
        aie.use_lock(%full, AcquireGreaterEqual, 1)
        aie.dma_bd(%own : memref<2xi32>, 0, 2)
        aie.next_bd ^end
      ^end:
        aie.end
      }}
      aie.shim_dma_allocation @out(%shim, S2MM, 0)
      aie.runtime_sequence(%to: memref<2xi32>) {{
        aiex.npu.create_scratchpad {{size = {size} : ui32}}
        {clear}
        aiex.npu.update_from_scratchpad <mul> {{state_table_idx = 1 : ui8, func_arg = 6 : ui32, address = 0 : ui32, buffer = @own}}
        aiex.set_lock(%go, 1)
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 2][0, 0, 0, 1]) {{id = 0 : i64, metadata = @out}} : memref<2xi32>
        aiex.npu.dma_wait {{symbol = @out}}
      }}
    }}"
    )
}

#[test]
fn words_are_added_to_what_memory_holds() {
    let numbers = [("scratchpad1", Whole(10))];
    let cleared = raw("aiex.buffer_clear(%core, 0, 16384)", 8);
    assert_eq!(outputs(&cleared, &numbers), [60, 0]);
    let uncleared = raw("", 8);
    let report = ran(&uncleared, &numbers, RunOptions::default());
    assert_eq!(report.verdict, Verdict::CannotTell, "{report:#?}");
    let problem = report.problem.unwrap_or_default();
    assert!(
        problem.contains("depends on memory that nothing has set")
            && problem.contains("`--zero-memory` runs it with zeros"),
        "{problem}"
    );
    let zeroed = RunOptions {
        unset: UnsetMemory::Zeros,
        ..RunOptions::default()
    };
    assert_eq!(words(&ran(&uncleared, &numbers, zeroed)), [60, 0]);
    for (text, numbers, problem) in [
        (raw("", 8), &[][..], "give it by --number scratchpad1=VALUE"),
        (
            raw("", 132),
            &numbers,
            "132 bytes of usage 0: 4 to 128 bytes",
        ),
        (
            raw("", 8).replace("idx = 1", "idx = 32"),
            &numbers,
            "word 32 of a scratchpad",
        ),
        (
            raw("", 8).replace("<mul>", "<div>"),
            &numbers,
            "`div` is no function",
        ),
    ] {
        let error = read(&text, numbers).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    // A word beyond the scratchpad that was made.
    let report = ran(&raw("", 4), &numbers, RunOptions::default());
    let problem = report.problem.unwrap_or_default();
    assert!(
        problem.contains("word 1 of a scratchpad of 1 words"),
        "{problem}"
    );
}

/// A number that nobody takes is a slip, not a wish: the names that there are stand beside it.
#[test]
fn a_misspelt_number_is_refused_with_the_names() {
    let given = |name: &'static str| [("start", Whole(4)), ("factor", Whole(2)), (name, Whole(1))];
    let error = read(&text("scratchpad"), &given("strat")).unwrap_err();
    assert!(
        error.contains("--number strat: no number has that name; the design takes factor, start,"),
        "{error}"
    );
    // A word that a parameter has goes by the parameter's name; another by its number.
    let error = read(&text("scratchpad"), &given("scratchpad0")).unwrap_err();
    assert!(error.contains("--number scratchpad0: no number"), "{error}");
    assert!(read(&text("scratchpad"), &given("scratchpad9")).is_ok());
    let error = read(&text("passthrough"), &[("n", Whole(4))]).unwrap_err();
    assert!(error.contains("the design takes none by name"), "{error}");
    let options = ReadOptions {
        numbers: [("n".to_owned(), Whole(4))].into(),
        ..ReadOptions::default()
    };
    assert!(Design::read_all(&text("passthrough"), &options).is_err());
}
