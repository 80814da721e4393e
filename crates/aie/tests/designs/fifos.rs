//! Object FIFOs: how many buffers, locks and descriptors they become.

use crate::{run_text, words};
use millrace_aie::Design;

/// Buffers' bytes, locks and descriptors of a tile.
fn tile(design: &Design, name: &str) -> (u32, usize, usize) {
    let footprint = design.check().unwrap_or_else(|error| panic!("{error}"));
    let tile = footprint.tiles.iter().find(|tile| tile.tile == name);
    tile.map_or((0, 0, 0), |tile| {
        (tile.memory_bytes, tile.n_locks, tile.n_descriptors)
    })
}

fn device(body: &str) -> Design {
    let tiles = "%shim = aie.tile(0, 0)\n%mem = aie.tile(0, 1)\n%a = aie.tile(0, 2)\n%b = aie.tile(0, 3)\n%c = aie.tile(0, 5)";
    Design::read(&format!("aie.device(npu2) {{\n{tiles}\n{body}\n}}"))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Three blocks of 16, 20 and 12 words become one of 48. There are three pairs of locks, six descriptors that fill and
/// six that empty, as in mlir-aie's test of joins with offsets.
#[test]
fn a_join_has_a_pair_of_locks_for_each_part() {
    let design = device(
        "aie.objectfifo @p(%a, {%mem}, 2 : i32) : !aie.objectfifo<memref<16xi32>>
        aie.objectfifo @q(%b, {%mem}, 2 : i32) : !aie.objectfifo<memref<20xi32>>
        aie.objectfifo @r(%c, {%mem}, 2 : i32) : !aie.objectfifo<memref<12xi32>>
        aie.objectfifo @all(%mem, {%shim}, 2 : i32) : !aie.objectfifo<memref<48xi32>>
        aie.objectfifo.link [@p, @q, @r] -> [@all]([0, 16, 36] [])",
    );
    assert_eq!(tile(&design, "memory (0, 1)"), (2 * 48 * 4, 6, 12));
    assert_eq!(tile(&design, "core (0, 2)"), (2 * 16 * 4, 2, 2));
}

/// Neighbours share a pool; others have one each, with DMA between them.
#[test]
fn neighbours_share_memory() {
    let fifo = |rest: &str| {
        device(&format!(
            "aie.objectfifo @f{rest} : !aie.objectfifo<memref<8xi32>>"
        ))
    };
    let near = fifo("(%a, {%b}, 3 : i32)");
    // The upper core reaches the lower one's memory.
    assert_eq!(
        (tile(&near, "core (0, 2)"), tile(&near, "core (0, 3)")),
        ((96, 2, 0), (0, 0, 0))
    );
    let near = fifo("(%b, {%a}, 3 : i32)");
    assert_eq!(
        (tile(&near, "core (0, 2)"), tile(&near, "core (0, 3)")),
        ((0, 0, 0), (96, 2, 0))
    );
    let far = fifo("(%a, {%c}, 3 : i32)");
    assert_eq!(
        (tile(&far, "core (0, 2)"), tile(&far, "core (0, 5)")),
        ((96, 2, 3), (96, 2, 3))
    );
    let by_dma = fifo("(%a, {%b}, 3 : i32) {via_DMA = true}");
    assert_eq!(
        (tile(&by_dma, "core (0, 2)"), tile(&by_dma, "core (0, 3)")),
        ((96, 2, 3), (96, 2, 3))
    );
    let two = fifo("(%a, {%b, %c}, [1, 2, 3])");
    assert_eq!(
        (
            tile(&two, "core (0, 2)"),
            tile(&two, "core (0, 3)"),
            tile(&two, "core (0, 5)")
        ),
        ((32, 2, 1), (64, 2, 2), (96, 2, 3))
    );
}

/// A core's pool holds one object more than it acquires at once, for any depth.
#[test]
fn a_cores_depth_is_what_it_acquires_and_one() {
    let core = |n: u32| {
        device(&format!(
            "aie.objectfifo @f(%shim, {{%a}}, 5 : i32) : !aie.objectfifo<memref<8xi32>>
            aie.core(%a) {{
              %0 = aie.objectfifo.acquire @f(Consume, {n}) : !aie.objectfifosubview<memref<8xi32>>
              aie.objectfifo.release @f(Consume, {n})
              aie.end
            }} {{stack_size = 64 : i32}}"
        ))
    };
    assert_eq!(tile(&core(1), "core (0, 2)"), (64 + 2 * 32, 2, 2));
    assert_eq!(tile(&core(3), "core (0, 2)"), (64 + 4 * 32, 2, 4));
}

/// A window of two objects moves by one: held objects stay.
#[test]
fn a_window_slides() {
    let text = "aie.device(npu2) {
      %shim = aie.tile(0, 0)
      %core = aie.tile(0, 2)
      aie.objectfifo @in(%shim, {%core}, 3 : i32) : !aie.objectfifo<memref<1xi32>>
      aie.objectfifo @out(%core, {%shim}, 2 : i32) : !aie.objectfifo<memref<1xi32>>
      aie.core(%core) {
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %c7 = arith.constant 7 : index
        scf.for %i = %c0 to %c7 step %c1 {
          %w = aie.objectfifo.acquire @in(Consume, 2) : !aie.objectfifosubview<memref<1xi32>>
          %a = aie.objectfifo.subview.access %w[0] : !aie.objectfifosubview<memref<1xi32>> -> memref<1xi32>
          %b = aie.objectfifo.subview.access %w[1] : !aie.objectfifosubview<memref<1xi32>> -> memref<1xi32>
          %o = aie.objectfifo.acquire @out(Produce, 1) : !aie.objectfifosubview<memref<1xi32>>
          %c = aie.objectfifo.subview.access %o[0] : !aie.objectfifosubview<memref<1xi32>> -> memref<1xi32>
          %x = memref.load %a[%c0] : memref<1xi32>
          %y = memref.load %b[%c0] : memref<1xi32>
          %z = arith.addi %x, %y : i32
          memref.store %z, %c[%c0] : memref<1xi32>
          aie.objectfifo.release @in(Consume, 1)
          aie.objectfifo.release @out(Produce, 1)
        }
        aie.end
      }
      aie.runtime_sequence(%from: memref<8xi32>, %to: memref<7xi32>) {
        aiex.npu.dma_memcpy_nd(%to[0, 0, 0, 0][1, 1, 1, 7][0, 0, 0, 1]) {id = 1 : i64, metadata = @out} : memref<7xi32>
        aiex.npu.dma_memcpy_nd(%from[0, 0, 0, 0][1, 1, 1, 8][0, 0, 0, 1]) {id = 0 : i64, metadata = @in} : memref<8xi32>
        aiex.npu.dma_wait {symbol = @out}
      }
    }";
    assert_eq!(
        words(&run_text(text)),
        (1..=7).map(|i| 2 * i + 1).collect::<Vec<i32>>()
    );
}
