// A host says by two words beside the arguments where a block begins, and by what a core multiplies it.
//   millrace aie run scratchpad.mlir --number start=16 --number factor=3
module {
  aiex.scratchpad_parameter @factor : i32
  aiex.scratchpad_parameter @start : i32

  aie.device(npu2) @empty {
  }

  aie.device(npu2) @main {
    %shim = aie.tile(0, 0)
    %core = aie.tile(0, 2)
    aie.objectfifo @in(%shim, {%core}, 1 : i32) : !aie.objectfifo<memref<16xi32>>
    aie.objectfifo @out(%core, {%shim}, 1 : i32) : !aie.objectfifo<memref<16xi32>>

    aie.core(%core) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c16 = arith.constant 16 : index
      %factor = aiex.read_scratchpad_parameter @factor : i32
      %taken = aie.objectfifo.acquire @in(Consume, 1) : !aie.objectfifosubview<memref<16xi32>>
      %from = aie.objectfifo.subview.access %taken[0] : !aie.objectfifosubview<memref<16xi32>> -> memref<16xi32>
      %new = aie.objectfifo.acquire @out(Produce, 1) : !aie.objectfifosubview<memref<16xi32>>
      %to = aie.objectfifo.subview.access %new[0] : !aie.objectfifosubview<memref<16xi32>> -> memref<16xi32>
      scf.for %i = %c0 to %c16 step %c1 {
        %v = memref.load %from[%i] : memref<16xi32>
        %w = arith.muli %v, %factor : i32
        memref.store %w, %to[%i] : memref<16xi32>
      }
      aie.objectfifo.release @in(Consume, 1)
      aie.objectfifo.release @out(Produce, 1)
      aie.end
    }

    aie.runtime_sequence @run(%data: memref<64xi32>, %result: memref<16xi32>) {
      aiex.npu.load_pdi {device_ref = @empty}
      aiex.npu.load_pdi {device_ref = @main}
      aiex.sync_scratchpad_parameters_from_host
      %give = aiex.dma_configure_task_for @in {
        aie.dma_bd(%data : memref<64xi32> offset = 0 len = 16) {offset_parameter = @start}
        aie.end
      }
      %take = aiex.dma_configure_task_for @out {
        aie.dma_bd(%result : memref<16xi32> offset = 0 len = 16)
        aie.end
      } {issue_token = true}
      aiex.dma_start_task(%give)
      aiex.dma_start_task(%take)
      aiex.dma_await_task(%take)
    }
  }
}
