//! The table of elementwise kernels, a row a level.

use super::Activation;
use super::body::{self, Norm, Rotation};
use crate::level::Level;

/// The kernels of a level. Calling one is sound where the CPU has the level.
pub(crate) struct ElementwiseKernels {
    pub(crate) norm: unsafe fn(&Norm<'_>, &[f32], &mut [f32]),
    pub(crate) glu: unsafe fn(Activation, &mut [f32], &[f32]),
    pub(crate) add: unsafe fn(&mut [f32], &[f32]),
    pub(crate) scale: unsafe fn(&mut [f32], f32),
    pub(crate) softcap: unsafe fn(&mut [f32], f32),
    pub(crate) glu_clamped: unsafe fn((f32, f32), &mut [f32], &[f32]),
    pub(crate) xielu: unsafe fn([f32; 4], &mut [f32]),
    pub(crate) sum_exp: unsafe fn(&[f32], f32) -> f64,
    pub(crate) rotate_halves: unsafe fn(&mut [f32], usize, Rotation<'_>),
    pub(crate) rotate_pairs: unsafe fn(&mut [f32], usize, Rotation<'_>),
}

/// A level's row of the table, `ROWS`: the loops compiled with some CPU features. Its functions need these, no more.
#[cfg(target_arch = "x86_64")]
macro_rules! elementwise_rows {
    ($features:literal) => {
        use $crate::elementwise::{
            Activation, ElementwiseKernels, Norm, Rotation, add_body, glu_body, glu_clamped_body,
            norm_body, rotate_halves_body, rotate_pairs_body, scale_body, softcap_body,
            sum_exp_body, xielu_body,
        };

        /// This level's row of the table. Its functions need the features named, no more.
        pub(crate) static ROWS: ElementwiseKernels = ElementwiseKernels {
            norm,
            glu,
            add,
            scale,
            softcap,
            glu_clamped,
            xielu,
            sum_exp,
            rotate_halves,
            rotate_pairs,
        };

        #[target_feature(enable = $features)]
        fn norm(norm: &Norm<'_>, x: &[f32], out: &mut [f32]) {
            norm_body::<true>(norm, x, out)
        }

        #[target_feature(enable = $features)]
        fn glu(activation: Activation, gate: &mut [f32], up: &[f32]) {
            glu_body::<true>(activation, gate, up)
        }

        #[target_feature(enable = $features)]
        fn add(acc: &mut [f32], x: &[f32]) {
            add_body(acc, x)
        }

        #[target_feature(enable = $features)]
        fn scale(x: &mut [f32], factor: f32) {
            scale_body(x, factor)
        }

        #[target_feature(enable = $features)]
        fn softcap(x: &mut [f32], cap: f32) {
            softcap_body::<true>(x, cap)
        }

        #[target_feature(enable = $features)]
        fn glu_clamped(clamp: (f32, f32), gate: &mut [f32], up: &[f32]) {
            glu_clamped_body::<true>(clamp, gate, up)
        }

        #[target_feature(enable = $features)]
        fn xielu(factors: [f32; 4], x: &mut [f32]) {
            xielu_body::<true>(factors, x)
        }

        #[target_feature(enable = $features)]
        fn sum_exp(x: &[f32], max: f32) -> f64 {
            sum_exp_body::<true>(x, max)
        }

        #[target_feature(enable = $features)]
        fn rotate_halves(x: &mut [f32], head_dim: usize, rotation: Rotation<'_>) {
            rotate_halves_body(x, head_dim, rotation)
        }

        #[target_feature(enable = $features)]
        fn rotate_pairs(x: &mut [f32], head_dim: usize, rotation: Rotation<'_>) {
            rotate_pairs_body(x, head_dim, rotation)
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(crate) use elementwise_rows;

static SCALAR: ElementwiseKernels = ElementwiseKernels {
    norm: body::norm_body::<false>,
    glu: body::glu_body::<false>,
    add: body::add_body,
    scale: body::scale_body,
    softcap: body::softcap_body::<false>,
    glu_clamped: body::glu_clamped_body::<false>,
    xielu: body::xielu_body::<false>,
    sum_exp: body::sum_exp_body::<false>,
    rotate_halves: body::rotate_halves_body,
    rotate_pairs: body::rotate_pairs_body,
};

impl ElementwiseKernels {
    /// The kernels of `level`. Only for a level this CPU has: [`crate::Cpu`] is the proof.
    pub(crate) fn for_level(level: Level) -> &'static ElementwiseKernels {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => &crate::x86::avx2::elementwise::ROWS,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Bf16 | Level::Amx => {
                &crate::x86::avx512::elementwise::ROWS
            }
            #[cfg(target_arch = "aarch64")]
            Level::Neon | Level::DotProd | Level::I8mm => &crate::aarch64::elementwise::ROWS,
            _ => &SCALAR,
        }
    }

    pub(crate) fn norm(&self, norm: &Norm<'_>, x: &[f32], out: &mut [f32]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.norm)(norm, x, out) }
    }

    pub(crate) fn glu(&self, activation: Activation, gate: &mut [f32], up: &[f32]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.glu)(activation, gate, up) }
    }

    pub(crate) fn add(&self, acc: &mut [f32], x: &[f32]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.add)(acc, x) }
    }

    pub(crate) fn scale(&self, x: &mut [f32], factor: f32) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.scale)(x, factor) }
    }

    pub(crate) fn glu_clamped(&self, clamp: (f32, f32), gate: &mut [f32], up: &[f32]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.glu_clamped)(clamp, gate, up) }
    }

    pub(crate) fn softcap(&self, x: &mut [f32], cap: f32) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.softcap)(x, cap) }
    }

    pub(crate) fn xielu(&self, factors: [f32; 4], x: &mut [f32]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.xielu)(factors, x) }
    }

    pub(crate) fn sum_exp(&self, x: &[f32], max: f32) -> f64 {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.sum_exp)(x, max) }
    }

    /// Rotates every head of `x`; pairs are halves or neighbours.
    pub(crate) fn rotate(
        &self,
        interleaved: bool,
        x: &mut [f32],
        head_dim: usize,
        rotation: Rotation<'_>,
    ) {
        let rotate = if interleaved {
            self.rotate_pairs
        } else {
            self.rotate_halves
        };
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { rotate(x, head_dim, rotation) }
    }
}
