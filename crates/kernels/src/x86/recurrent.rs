//! The loops of recurrent ops, once for vectors of both lengths: each level names its features and intrinsics.

/// Passes `step` every number below `n`, in order, with the first, second, third and fourth sum in turns.
///
/// It is always inlined, so that it has the features of its caller, as `step` does.
#[inline(always)]
pub(in crate::x86) fn in_turns<V>(
    n: usize,
    sums: &mut [V; 4],
    mut step: impl FnMut(usize, &mut V),
) {
    let mut i = 0;
    while i + 4 <= n {
        for (p, sum) in sums.iter_mut().enumerate() {
            step(i + p, sum);
        }
        i += 4;
    }
    for (p, sum) in sums.iter_mut().enumerate().take(n - i) {
        step(i + p, sum);
    }
}

/// Makes the functions and `ROWS` of a level: its features, a vector's type and elements, its intrinsics.
macro_rules! recurrent_loops {
    (
        $features:literal, $Vector:ident of $width:literal:
        $zero:ident $set1:ident $load:ident $store:ident $add:ident $mul:ident $fmadd:ident $fnmadd:ident
    ) => {
        use crate::recurrent::{
            ChannelToken, ConvTaps, FadeToken, LANES, MAX_TAPS, RecurrentKernels, RuleToken,
            conv_body, exp_body, fade_body, silu_body, softplus_body, unit_body,
        };
        use crate::x86::recurrent::in_turns;
        use std::arch::x86_64::*;

        /// This level's row of the table. Its functions need the features named on them, no more.
        pub(crate) static ROWS: RecurrentKernels = RecurrentKernels {
            conv,
            silu,
            unit,
            correct,
            absorb,
            exp,
            softplus,
            fade,
            revise,
        };

        #[target_feature(enable = $features)]
        fn conv(taps: &ConvTaps, window: &mut [[f32; LANES]; MAX_TAPS], out: &mut [f32; LANES]) {
            conv_body::<true>(taps, window, out)
        }

        #[target_feature(enable = $features)]
        fn silu(x: &mut [f32]) {
            silu_body::<true>(x)
        }

        #[target_feature(enable = $features)]
        fn unit(x: &[f32], by: (f32, f32), out: &mut [f32]) {
            unit_body::<true>(x, by, out)
        }

        #[target_feature(enable = $features)]
        fn exp(x: &mut [f32]) {
            exp_body::<true>(x)
        }

        #[target_feature(enable = $features)]
        fn softplus(x: &mut [f32]) {
            softplus_body::<true>(x)
        }

        #[target_feature(enable = $features)]
        fn fade(tile: &mut [f32], token: &ChannelToken<'_>, out: &mut [f32; LANES]) {
            fade_body::<true>(tile, token, out)
        }

        /// # Safety
        /// The tile has [`LANES`] elements for each of a key and of as long a query.
        #[target_feature(enable = $features)]
        unsafe fn correct(
            tile: &mut [f32],
            token: &FadeToken<'_>,
            strength: f32,
            out: &mut [f32; LANES],
        ) {
            // The vectors of a row share only the token.
            for first in (0..LANES).step_by($width) {
                // SAFETY: by this function's contract; a vector is a part of the `LANES` elements of a row.
                unsafe {
                    let tile = tile.as_mut_ptr().add(first);
                    let seen = seen(tile, token.k);
                    let v = $load(token.v.as_ptr().add(first));
                    let error = $fnmadd($set1(token.decay), seen, v);
                    let correction = $mul($set1(strength), error);
                    let read = absorb_vectors(tile, token, correction);
                    $store(out.as_mut_ptr().add(first), read);
                }
            }
        }

        /// # Safety
        /// As [`correct`].
        #[target_feature(enable = $features)]
        unsafe fn absorb(tile: &mut [f32], token: &FadeToken<'_>, out: &mut [f32; LANES]) {
            for first in (0..LANES).step_by($width) {
                // SAFETY: by this function's contract; a vector is a part of the `LANES` elements of a row.
                unsafe {
                    let v = $load(token.v.as_ptr().add(first));
                    let read = absorb_vectors(tile.as_mut_ptr().add(first), token, v);
                    $store(out.as_mut_ptr().add(first), read);
                }
            }
        }

        /// The contents of a block's vectors, one of each row, at a token's key.
        ///
        /// # Safety
        /// As [`correct`]; `tile` points to the first row's vector.
        #[target_feature(enable = $features)]
        unsafe fn seen(tile: *const f32, k: &[f32]) -> $Vector {
            let (n, k) = (k.len(), k.as_ptr());
            let mut sums = [$zero(); 4];
            // SAFETY: rows and elements below `n` are there, by this function's contract.
            in_turns(n, &mut sums, |i, sum| unsafe {
                let row = $load(tile.add(i * LANES));
                *sum = $fmadd(row, $set1(*k.add(i)), *sum);
            });
            add_up(sums)
        }

        /// Decays a block's vectors, adds `v` at a token's key, and reads them at its query.
        ///
        /// # Safety
        /// As [`seen`].
        #[target_feature(enable = $features)]
        unsafe fn absorb_vectors(tile: *mut f32, token: &FadeToken<'_>, v: $Vector) -> $Vector {
            let n = token.k.len();
            let (k, q) = (token.k.as_ptr(), token.q.as_ptr());
            let decay = $set1(token.decay);
            let mut sums = [$zero(); 4];
            // SAFETY: rows and elements below `n` are there, by this function's contract.
            in_turns(n, &mut sums, |i, sum| unsafe {
                let at = tile.add(i * LANES);
                let faded = $mul(decay, $load(at));
                let row = $fmadd($set1(*k.add(i)), v, faded);
                $store(at, row);
                *sum = $fmadd(row, $set1(*q.add(i)), *sum);
            });
            add_up(sums)
        }

        /// # Safety
        /// The tile has [`LANES`] elements for each of a query, and the token's other vectors are as long.
        #[target_feature(enable = $features)]
        unsafe fn revise(tile: &mut [f32], token: &RuleToken<'_>, out: &mut [f32; LANES]) {
            for first in (0..LANES).step_by($width) {
                // SAFETY: by this function's contract; a vector is a part of the `LANES` elements of a row.
                unsafe {
                    let tile = tile.as_mut_ptr().add(first);
                    let seen = seen(tile, token.read);
                    let v = $load(token.v.as_ptr().add(first));
                    let read = revise_vectors(tile, token, [seen, v]);
                    $store(out.as_mut_ptr().add(first), read);
                }
            }
        }

        /// Decays a block's vectors row by row, adds the values read from them and the token's values, and reads them at
        /// the query.
        ///
        /// # Safety
        /// As [`revise`]; `tile` points to the first row's vector.
        #[target_feature(enable = $features)]
        unsafe fn revise_vectors(
            tile: *mut f32,
            token: &RuleToken<'_>,
            [seen, v]: [$Vector; 2],
        ) -> $Vector {
            let n = token.q.len();
            let vectors = [token.decay, token.k, token.write, token.q];
            let [decay, k, write, q] = vectors.map(<[f32]>::as_ptr);
            let mut sums = [$zero(); 4];
            // SAFETY: rows and elements below `n` are there, by this function's contract.
            in_turns(n, &mut sums, |i, sum| unsafe {
                let at = tile.add(i * LANES);
                let faded = $mul($set1(*decay.add(i)), $load(at));
                let row = $fmadd($set1(*k.add(i)), v, faded);
                let row = $fmadd($set1(*write.add(i)), seen, row);
                $store(at, row);
                *sum = $fmadd(row, $set1(*q.add(i)), *sum);
            });
            add_up(sums)
        }

        #[target_feature(enable = $features)]
        fn add_up(sums: [$Vector; 4]) -> $Vector {
            let [a, b, c, d] = sums;
            $add($add(a, b), $add(c, d))
        }
    };
}
pub(in crate::x86) use recurrent_loops;
