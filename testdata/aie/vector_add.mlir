// Two vectors are added by a core that never ends; tasks in place of transfers.
module {
  aie.device(npu2) {
    %shim = aie.tile(0, 0)
    %core = aie.tile(0, 2)
    aie.objectfifo @a(%shim, {%core}, 2 : i32) : !aie.objectfifo<memref<32xi32>>
    aie.objectfifo @b(%shim, {%core}, 2 : i32) : !aie.objectfifo<memref<32xi32>>
    aie.objectfifo @sum(%core, {%shim}, 2 : i32) : !aie.objectfifo<memref<32xi32>>
    %core_0_2 = aie.core(%core) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c32 = arith.constant 32 : index
      %forever = arith.constant 9223372036854775807 : index
      scf.for %block = %c0 to %forever step %c1 {
        %0 = aie.objectfifo.acquire @a(Consume, 1) : !aie.objectfifosubview<memref<32xi32>>
        %1 = aie.objectfifo.subview.access %0[0] : !aie.objectfifosubview<memref<32xi32>> -> memref<32xi32>
        %2 = aie.objectfifo.acquire @b(Consume, 1) : !aie.objectfifosubview<memref<32xi32>>
        %3 = aie.objectfifo.subview.access %2[0] : !aie.objectfifosubview<memref<32xi32>> -> memref<32xi32>
        %4 = aie.objectfifo.acquire @sum(Produce, 1) : !aie.objectfifosubview<memref<32xi32>>
        %5 = aie.objectfifo.subview.access %4[0] : !aie.objectfifosubview<memref<32xi32>> -> memref<32xi32>
        scf.for %i = %c0 to %c32 step %c1 {
          %x = memref.load %1[%i] : memref<32xi32>
          %y = memref.load %3[%i] : memref<32xi32>
          %z = arith.addi %x, %y : i32
          memref.store %z, %5[%i] : memref<32xi32>
        }
        aie.objectfifo.release @a(Consume, 1)
        aie.objectfifo.release @b(Consume, 1)
        aie.objectfifo.release @sum(Produce, 1)
      }
      aie.end
    }
    aie.runtime_sequence @add(%x: memref<256xi32>, %y: memref<256xi32>, %z: memref<256xi32>) {
      %0 = aiex.dma_configure_task_for @a {
        aie.dma_bd(%x : memref<256xi32>, 0, 256, [<size = 1, stride = 0>, <size = 1, stride = 0>, <size = 1, stride = 0>, <size = 256, stride = 1>]) {burst_length = 0 : i32}
        aie.end
      }
      aiex.dma_start_task(%0)
      %1 = aiex.dma_configure_task_for @b {
        aie.dma_bd(%y : memref<256xi32> offset = 0 len = 256 sizes = [1, 1, 1, 256] strides = [0, 0, 0, 1])
        aie.end
      }
      aiex.dma_start_task(%1)
      %2 = aiex.dma_configure_task_for @sum {
        aie.dma_bd(%z : memref<256xi32>, 0, 256)
        aie.end
      } {issue_token = true}
      aiex.dma_start_task(%2)
      aiex.dma_await_task(%2)
      aiex.dma_free_task(%0)
      aiex.dma_free_task(%1)
    }
  }
}
