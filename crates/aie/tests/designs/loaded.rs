//! Sequences that load configurations, texts of several designs, tiles that are placed here.

use crate::{run_text, words};
use millrace_aie::{Design, ReadOptions, RunOptions, Verdict, run};

/// A device that adds a number to four words.
fn adder(name: &str, number: i32) -> String {
    format!(
        "aie.device(npu2) @{name} {{
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      aie.objectfifo @in(%shim, {{%core}}, 1 : i32) : !aie.objectfifo<memref<4xi32>>
      aie.objectfifo @out(%core, {{%shim}}, 1 : i32) : !aie.objectfifo<memref<4xi32>>
      aie.core(%core) {{
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %c4 = arith.constant 4 : index
        %many = arith.constant 1000 : index
        %k = arith.constant {number} : i32
        scf.for %n = %c0 to %many step %c1 {{
          %x = aie.objectfifo.acquire @in(Consume, 1) : memref<4xi32>
          %y = aie.objectfifo.acquire @out(Produce, 1) : memref<4xi32>
          scf.for %i = %c0 to %c4 step %c1 {{
            %a = memref.load %x[%i] : memref<4xi32>
            %b = arith.addi %a, %k : i32
            memref.store %b, %y[%i] : memref<4xi32>
          }}
          aie.objectfifo.release @in(Consume, 1)
          aie.objectfifo.release @out(Produce, 1)
        }}
        aie.end
      }}
      aie.runtime_sequence @add(%a: memref<4xi32>) {{
        %i = aiex.dma_configure_task_for @in {{
          aie.dma_bd(%a : memref<4xi32>, 0, 4)
          aie.end
        }}
        %o = aiex.dma_configure_task_for @out {{
          aie.dma_bd(%a : memref<4xi32>, 0, 4)
          aie.end
        }} {{issue_token = true}}
        aiex.dma_start_task(%i)
        aiex.dma_start_task(%o)
        aiex.dma_await_task(%o)
      }}
    }}"
    )
}

fn part(name: &str, at: u32) -> String {
    format!(
        "%{name}s = memref.subview %all[{at}] [4] [1] : memref<16xi32> to memref<4xi32, strided<[1], offset: {at}>>
        %{name} = memref.reinterpret_cast %{name}s to offset: [0], sizes: [4], strides: [1] : memref<4xi32, strided<[1], offset: {at}>> to memref<4xi32>"
    )
}

fn main_device(body: &str) -> String {
    format!(
        "aie.device(npu2) @main {{\naie.runtime_sequence @all(%all: memref<16xi32>) {{\n{body}\n}}\n}}"
    )
}

#[test]
fn configurations_are_loaded_one_after_the_other() {
    let body = format!(
        "aiex.configure @two {{
        {}
        aiex.run @add(%a) : (memref<4xi32>)
        {}
        aiex.run @add(%b) : (memref<4xi32>)
      }}
      aiex.configure @three {{
        {}
        aiex.run @add(%c) : (memref<4xi32>)
      }}",
        part("a", 0),
        part("b", 12),
        part("c", 12)
    );
    let text = format!(
        "module {{\n{}\n{}\n{}\n}}",
        main_device(&body),
        adder("two", 2),
        adder("three", 3)
    );
    let report = run_text(&text);
    assert_eq!(
        words(&report),
        [3, 4, 5, 6, 5, 6, 7, 8, 9, 10, 11, 12, 18, 19, 20, 21]
    );
    let design = Design::read(&text).unwrap();
    assert_eq!(
        design.summary(),
        "device npu2: its sequence loads 2 configurations: @two, @three"
    );
    let error = millrace_aie::words(&design)
        .expect_err("no stream")
        .to_string();
    assert!(error.contains("as --device-name two gives it"), "{error}");
    let nothing = text.replace("aiex.run @add(%c) : (memref<4xi32>)", "");
    let error = Design::read(&nothing).expect_err("refused").to_string();
    assert!(
        error.contains("`aiex.configure`: it runs nothing"),
        "{error}"
    );
    let cast = text.replace("sizes: [4]", "sizes: [5]");
    let error = Design::read(&cast).expect_err("refused").to_string();
    assert!(
        error.contains("`memref.reinterpret_cast`: bytes 0 and 20 more of 16"),
        "{error}"
    );
}

/// A device's own configuration is there already.
#[test]
fn a_sequence_may_load_its_own_device() {
    let text = adder("main", 7)
        .replace(
            "%i = aiex.dma_conf",
            "aiex.configure @main {\n%i = aiex.dma_conf",
        )
        .replace("aiex.dma_await_task(%o)", "aiex.dma_await_task(%o)\n}");
    assert_eq!(words(&run_text(&text)), [8, 9, 10, 11]);
}

/// A device whose memory tile sends four numbers, which `initial` may set.
fn memory(name: &str, initial: &str) -> String {
    format!(
        "aie.device(npu2) @{name} {{
        %shim = aie.tile(0, 0)
        %mem = aie.tile(0, 1)
        %buffer = aie.buffer(%mem) {{address = 4096 : i32 {initial}}} : memref<4xi32>
        %dma = aie.memtile_dma(%mem) {{
          %0 = aie.dma_start(MM2S, 0, ^send, ^end)
        ^send:
          aie.dma_bd(%buffer : memref<4xi32>, 0, 4, [])
          aie.next_bd ^send
        ^end:
          aie.end
        }}
        aie.flow(%mem, DMA : 0, %shim, DMA : 0)
        aie.runtime_sequence @read(%a: memref<4xi32>) {{
          %o = aiex.dma_configure_task(%shim, S2MM, 0) {{
            aie.dma_bd(%a : memref<4xi32>, 0, 4)
            aie.end
          }} {{issue_token = true}}
          aiex.dma_start_task(%o)
          aiex.dma_await_task(%o)
        }}
      }}"
    )
}

/// The next configuration finds the memory as the last one left it.
#[test]
fn memories_stay_between_configurations() {
    let body = format!(
        "aiex.configure @first {{
        {}
        aiex.run @read(%a) : (memref<4xi32>)
      }}
      aiex.configure @second {{
        {}
        aiex.run @read(%b) : (memref<4xi32>)
      }}",
        part("a", 0),
        part("b", 4)
    );
    let text = format!(
        "module {{\n{}\n{}\n{}\n}}",
        main_device(&body),
        memory(
            "first",
            ", initial_value = dense<[11, 22, 33, 44]> : tensor<4xi32>"
        ),
        memory("second", "")
    );
    assert_eq!(
        words(&run_text(&text))[..8],
        [11, 22, 33, 44, 11, 22, 33, 44]
    );
    // Alone, the second sends noise, which differs between orders.
    let alone = ReadOptions {
        device: Some("second".to_owned()),
        ..ReadOptions::default()
    };
    let design = Design::read_with(&text, &alone).unwrap();
    let report = run(&design, &[vec![0; 16]], RunOptions::default()).unwrap();
    assert_eq!(report.verdict, Verdict::CannotTell);
}

#[test]
fn all_designs_of_a_text_are_found() {
    let two = format!("module {{\n{}\n{}\n}}", adder("one", 1), adder("two", 2));
    let all = Design::read_all(&two, &ReadOptions::default()).unwrap();
    let names: Vec<&str> = all.iter().map(|row| row.1.name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    let again = "aie.runtime_sequence @again(%a: memref<4xi32>) {\n}\n aie.runtime_sequence @add";
    let sequences = adder("one", 1).replace("aie.runtime_sequence @add", again);
    let all = Design::read_all(&sequences, &ReadOptions::default()).unwrap();
    let names: Vec<&str> = all
        .iter()
        .filter_map(|row| row.0.sequence.as_deref())
        .collect();
    assert_eq!(names, ["again", "add"]);
}

/// Tiles that a text leaves to a placer, more shims than a part of the array has.
#[test]
fn logical_tiles_are_placed() {
    let text = |device: &str| {
        format!(
            "aie.device({device}) {{
      %core = aie.logical_tile<CoreTile>(?, ?)
      %mem = aie.logical_tile<MemTile>(?, ?)
      %from = aie.logical_tile<ShimNOCTile>(?, ?)
      %to = aie.logical_tile<ShimNOCTile>(?, ?)
      aie.objectfifo @in(%from, {{%mem}}, 2 : i32) : !aie.objectfifo<memref<4xi32>>
      aie.objectfifo @fwd(%mem, {{%core}}, 2 : i32) : !aie.objectfifo<memref<4xi32>>
      aie.objectfifo.link [@in] -> [@fwd]([] [])
      aie.objectfifo @out(%core, {{%to}}, 2 : i32) : !aie.objectfifo<memref<4xi32>>
      aie.core(%core) {{
        %x = aie.objectfifo.acquire @fwd(Consume, 1) : memref<4xi32>
        %y = aie.objectfifo.acquire @out(Produce, 1) : memref<4xi32>
        memref.copy %x, %y : memref<4xi32> to memref<4xi32>
        aie.objectfifo.release @fwd(Consume, 1)
        aie.objectfifo.release @out(Produce, 1)
        aie.end
      }}
      aie.runtime_sequence(%a: memref<4xi32>, %b: memref<4xi32>) {{
        aiex.npu.dma_memcpy_nd(%b[0, 0, 0, 0][1, 1, 1, 4][0, 0, 0, 1]) {{id = 1 : i64, metadata = @out}} : memref<4xi32>
        aiex.npu.dma_memcpy_nd(%a[0, 0, 0, 0][1, 1, 1, 4][0, 0, 0, 1]) {{id = 0 : i64, metadata = @in}} : memref<4xi32>
        aiex.npu.dma_wait {{symbol = @out}}
      }}
    }}"
        )
    };
    for (device, shim) in [
        ("npu2", "%to shim (1, 0)"),
        ("npu2_1col", "%to shim (0, 0)"),
    ] {
        let report = run_text(&text(device));
        assert_eq!(words(&report), [1, 2, 3, 4]);
        assert!(
            report.notes.iter().any(|note| note.contains(shim)),
            "{:#?}",
            report.notes
        );
    }
    let full = text("npu2_1col").replace("(?, ?)\n      %mem", "(1, ?)\n      %mem");
    let error = Design::read(&full).expect_err("no such column").to_string();
    assert!(
        error.contains("`aie.logical_tile`: npu2_1col has no place left for it"),
        "{error}"
    );
}
