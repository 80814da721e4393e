//! The elementwise loops with fused multiply-add, which every AArch64 has.

use crate::elementwise::{
    ElementwiseKernels, add_body, glu_body, glu_clamped_body, norm_body, rotate_halves_body,
    rotate_pairs_body, scale_body, softcap_body, sum_exp_body, xielu_body,
};

/// The row of the table of all the levels here.
pub(crate) static ROWS: ElementwiseKernels = ElementwiseKernels {
    norm: norm_body::<true>,
    glu: glu_body::<true>,
    add: add_body,
    scale: scale_body,
    softcap: softcap_body::<true>,
    glu_clamped: glu_clamped_body::<true>,
    xielu: xielu_body::<true>,
    sum_exp: sum_exp_body::<true>,
    rotate_halves: rotate_halves_body,
    rotate_pairs: rotate_pairs_body,
};
