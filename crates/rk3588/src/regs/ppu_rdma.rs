//! Pooling's reader.
//!
//! From `registers.xml` of Mesa's rocket driver (MIT), `src/gallium/drivers/rocket`; offsets are those of the
//! register commands, fields are `NAME high low`.

use super::registers;

registers! { PpuRdma
    0x7000 RDMA_S_STATUS { STATUS_1 17 16, STATUS_0 1 0 }
    0x7004 RDMA_S_POINTER {
        EXECUTER 16 16, EXECUTER_PP_CLEAR 5 5, POINTER_PP_CLEAR 4 4, POINTER_PP_MODE 3 3, EXECUTER_PP_EN 2 2,
        POINTER_PP_EN 1 1, POINTER 0 0,
    }
    0x7008 RDMA_OPERATION_ENABLE { OP_EN 0 0 }
    0x700c RDMA_CUBE_IN_WIDTH { CUBE_IN_WIDTH 12 0 }
    0x7010 RDMA_CUBE_IN_HEIGHT { CUBE_IN_HEIGHT 12 0 }
    0x7014 RDMA_CUBE_IN_CHANNEL { CUBE_IN_CHANNEL 12 0 }
    0x701c RDMA_SRC_BASE_ADDR { SRC_BASE_ADDR 31 0 }
    0x7024 RDMA_SRC_LINE_STRIDE { SRC_LINE_STRIDE 31 4 }
    0x7028 RDMA_SRC_SURF_STRIDE { SRC_SURF_STRIDE 31 4 }
    0x7030 RDMA_DATA_FORMAT { IN_PRECISION 1 0 }
}
