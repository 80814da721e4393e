//! The fit of `w ≈ d·q` with levels −1, 0 and 1 (TQ1_0, TQ2_0).

use super::f16_nearest;

/// The scale of least squared error, as f16 stores it, and the levels.
///
/// The n largest magnitudes get a level other than zero, for the n that lowers the error most. With their mean magnitude
/// as scale they lower it by `(Σ w·|x|)² / Σ w`. Numbers that are ternary already are kept exactly.
pub(crate) fn fit<const N: usize>(x: &[f32; N], importance: Option<&[f32; N]>) -> (f32, [i8; N]) {
    let mut order: [usize; N] = std::array::from_fn(|i| i);
    order.sort_by(|a, b| x[*b].abs().total_cmp(&x[*a].abs()));
    let (mut sum, mut weights, mut gain, mut d) = (0.0, 0.0, 0.0, 0.0);
    for i in order {
        let weight = importance.map_or(1.0, |of| f64::from(of[i]));
        sum += weight * f64::from(x[i].abs());
        weights += weight;
        if weights > 0.0 && sum * sum > gain * weights {
            gain = sum * sum / weights;
            d = sum / weights;
        }
    }
    let d = f16_nearest(d as f32);
    let q = x.map(|v| i8::from(v > 0.5 * d) - i8::from(v < -0.5 * d));
    (d, if d == 0.0 { [0; N] } else { q })
}
