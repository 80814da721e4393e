//! Multiply-accumulate array and accumulator.
//!
//! From `registers.xml` of Mesa's rocket driver (MIT), `src/gallium/drivers/rocket`; offsets are those of the
//! register commands, fields are `NAME high low`. A register named `UNNAMED_…` is not
//! in that file; every known generator writes zero to it.

use super::registers;

registers! { Core
    0x3000 S_STATUS { STATUS_1 17 16, STATUS_0 1 0 }
    0x3004 S_POINTER {
        EXECUTER 16 16, EXECUTER_PP_CLEAR 5 5, POINTER_PP_CLEAR 4 4, POINTER_PP_MODE 3 3, EXECUTER_PP_EN 2 2,
        POINTER_PP_EN 1 1, POINTER 0 0,
    }
    0x3008 OPERATION_ENABLE { OP_EN 0 0 }
    0x300c MAC_GATING { SLCG_OP_EN 26 0 }
    0x3010 MISC_CFG { SOFT_GATING 19 14, PROC_PRECISION 10 8, DW_EN 1 1, QD_EN 0 0 }
    0x3014 DATAOUT_SIZE_0 { DATAOUT_HEIGHT 31 16, DATAOUT_WIDTH 15 0 }
    0x3018 DATAOUT_SIZE_1 { DATAOUT_CHANNEL 15 0 }
    0x301c CLIP_TRUNCATE { ROUND_TYPE 6 6, CLIP_TRUNCATE 4 0 }
    0x3030 UNNAMED_3030 {}
}
