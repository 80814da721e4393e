//! Values between neighbouring cores by the cascade.

use crate::{run_text, words};
use millrace_aie::{Design, Verdict};

/// A core sends 16 numbers to the next one, `n` times; the next takes them `taken` times and adds them up.
fn design(flow: &str, sent: usize, taken: usize) -> String {
    format!(
        r#"aie.device(npu2) {{
  %shim = aie.tile(0, 0)
  %low = aie.tile(0, 2)
  %high = aie.tile(0, 3)
  {flow}
  aie.objectfifo @out(%low, {{%shim}}, 1 : i32) : !aie.objectfifo<memref<16xi32>>
  aie.core(%high) {{
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %n = arith.constant {sent} : index
    scf.for %i = %c0 to %n step %c1 {{
      %x = arith.index_cast %i : index to i32
      %v = vector.broadcast %x : i32 to vector<16xi32>
      aie.put_cascade(%v : vector<16xi32>)
    }}
    aie.end
  }}
  aie.core(%low) {{
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %n = arith.constant {taken} : index
    %new = aie.objectfifo.acquire @out(Produce, 1) : !aie.objectfifosubview<memref<16xi32>>
    %out = aie.objectfifo.subview.access %new[0] : !aie.objectfifosubview<memref<16xi32>> -> memref<16xi32>
    %zero = arith.constant dense<0> : vector<16xi32>
    vector.store %zero, %out[%c0] : memref<16xi32>, vector<16xi32>
    scf.for %i = %c0 to %n step %c1 {{
      %v = aie.get_cascade() : vector<16xi32>
      %old = vector.load %out[%c0] : memref<16xi32>, vector<16xi32>
      %sum = arith.addi %old, %v : vector<16xi32>
      vector.store %sum, %out[%c0] : memref<16xi32>, vector<16xi32>
    }}
    aie.objectfifo.release @out(Produce, 1)
    aie.end
  }}
  aie.runtime_sequence(%to: memref<16xi32>) {{
    aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 16][0, 0, 0, 1]) {{id = 0 : i64, metadata = @out}} : memref<16xi32>
    aiex.npu.dma_wait {{symbol = @out}}
  }}
}}"#
    )
}

const FLOW: &str = "aie.cascade_flow(%high, %low)";

#[test]
fn a_core_takes_what_its_neighbour_sends() {
    assert_eq!(words(&run_text(&design(FLOW, 10, 10))), [45; 16]);
}

/// A missing value blocks the receiver, and its ring leads to the sender.
#[test]
fn a_missing_value_is_a_hang() {
    let report = run_text(&design(FLOW, 9, 10));
    assert_eq!(report.verdict, Verdict::Hang);
    let ring = report.ring.join("\n");
    for part in [
        "the program of core (0, 2) (line 27, column 12) waits for a value of the cascade",
        "the program of core (0, 3) has ended",
    ] {
        assert!(ring.contains(part), "{part} is missing in\n{ring}");
    }
}

#[test]
fn cascades_that_lead_nowhere_are_refused() {
    for (flow, problem) in [
        ("", "no `aie.cascade_flow` leads from core (0, 3)"),
        (
            "aie.cascade_flow(%low, %high)",
            "`aie.cascade_flow`: no cascade leads from core (0, 2) to core (0, 3)",
        ),
        (
            "aie.cascade_flow(%low, %shim)",
            "no cascade leads from core (0, 2) to shim (0, 0)",
        ),
        (
            "aie.cascade_flow(%high, %low) aie.cascade_flow(%high, %low)",
            "a core's cascade leads to one core",
        ),
    ] {
        let design = Design::read(&design(flow, 1, 1));
        let checked = design.and_then(|design| design.check().map(|_| ()));
        let error = checked.expect_err(flow).to_string();
        assert!(error.contains(problem), "{error}");
    }
}
