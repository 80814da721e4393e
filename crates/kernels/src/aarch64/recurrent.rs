//! The loops of recurrent ops with fused multiply-add, which every AArch64 has.

use crate::recurrent::{
    RecurrentKernels, absorb_body, conv_body, correct_body, exp_body, fade_body, revise_body,
    silu_body, softplus_body, unit_body,
};

/// The row of the table of all the levels here.
pub(crate) static ROWS: RecurrentKernels = RecurrentKernels {
    conv: conv_body::<true>,
    silu: silu_body::<true>,
    unit: unit_body::<true>,
    correct: correct_body::<true>,
    absorb: absorb_body::<true>,
    exp: exp_body::<true>,
    softplus: softplus_body::<true>,
    fade: fade_body::<true>,
    revise: revise_body::<true>,
};
