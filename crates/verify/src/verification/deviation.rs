//! Comparison of two rows of logits.

use super::continuation::Choice;

/// Number of likeliest tokens that are compared.
pub const TOP: usize = 5;

/// How far a row of logits is from the reference's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// Kullback-Leibler divergence of the two distributions, from the reference, in nats.
    pub kl: f64,
    /// One less the cosine of the rows, each with its mean taken off.
    pub cosine_gap: f64,
    /// Number of the reference's five likeliest tokens that are not among this row's.
    pub n_lost: usize,
    /// Place of the reference's choice in this row, 1 for the likeliest.
    pub rank: usize,
    /// The likeliest token of this row.
    pub token: u32,
}

impl Deviation {
    /// Deviation of a row `found` from `reference`; `choice` is the reference's choice.
    pub fn of(reference: &[f32], found: &[f32], choice: &Choice) -> Deviation {
        let likeliest = top(found, TOP);
        let expected = choice.top.iter().take(TOP);
        Deviation {
            kl: kl(reference, found),
            cosine_gap: cosine_gap(reference, found),
            n_lost: expected.filter(|t| !likeliest.contains(t)).count(),
            rank: rank(found, choice.token),
            token: likeliest.first().copied().unwrap_or(0),
        }
    }
}

fn log_sum_exp(row: &[f32]) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| f64::from(x - max).exp()).sum();
    f64::from(max) + sum.ln()
}

/// Σ p·(ln p − ln q).
fn kl(p: &[f32], q: &[f32]) -> f64 {
    let (p_total, q_total) = (log_sum_exp(p), log_sum_exp(q));
    let term = |(p, q): (&f32, &f32)| {
        let (p, q) = (f64::from(*p) - p_total, f64::from(*q) - q_total);
        p.exp() * (p - q)
    };
    let kl: f64 = p.iter().zip(q).map(term).sum();
    // Rounding of the sum may leave less than nothing.
    if kl < 0.0 { 0.0 } else { kl }
}

fn cosine_gap(a: &[f32], b: &[f32]) -> f64 {
    let mean = |row: &[f32]| row.iter().map(|x| f64::from(*x)).sum::<f64>() / row.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (f64::from(*a) - mean_a, f64::from(*b) - mean_b);
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    // Constant rows have no direction: the distance is the largest, unless both are constant.
    match (aa > 0.0, bb > 0.0) {
        (true, true) => 1.0 - ab / (aa * bb).sqrt(),
        (false, false) => 0.0,
        _ => 1.0,
    }
}

/// The likeliest tokens, best first, equal ones by number.
pub fn top(row: &[f32], n: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..row.len() as u32).collect();
    let by_logit = |a: &u32, b: &u32| {
        let (x, y) = (row[*a as usize], row[*b as usize]);
        y.total_cmp(&x).then(a.cmp(b))
    };
    if n < ids.len() {
        ids.select_nth_unstable_by(n, by_logit);
        ids.truncate(n);
    }
    ids.sort_unstable_by(by_logit);
    ids
}

fn rank(row: &[f32], token: u32) -> usize {
    let Some(&logit) = row.get(token as usize) else {
        return row.len() + 1;
    };
    let before = |(i, x): (usize, &f32)| *x > logit || (*x == logit && i < token as usize);
    1 + row
        .iter()
        .enumerate()
        .filter(|&(i, x)| before((i, x)))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_by_hand() {
        // Probabilities 1/2, 1/2 and 3/4, 1/4.
        let (p, q) = ([0.0, 0.0], [3.0_f32.ln(), 0.0]);
        let expected = 0.5 * (0.5_f64 / 0.75).ln() + 0.5 * (0.5_f64 / 0.25).ln();
        assert!((kl(&p, &q) - expected).abs() < 1e-7);
        assert_eq!(kl(&p, &p), 0.0);
        // A constant added to all logits keeps the distribution; doubling them changes it.
        assert!(kl(&q, &[3.0_f32.ln() + 5.0, 5.0]) < 1e-12);
        assert!(kl(&q, &[2.0 * 3.0_f32.ln(), 0.0]) > 0.01);
        assert!(kl(&p, &[f32::NAN, 0.0]).is_nan());
    }

    #[test]
    fn cosines_see_direction_only() {
        let a = [1.0, 2.0, 4.0];
        assert!(cosine_gap(&a, &[3.0, 5.0, 9.0]) < 1e-12, "2a + 1");
        assert!((cosine_gap(&a, &[-1.0, -2.0, -4.0]) - 2.0).abs() < 1e-12);
        assert_eq!(cosine_gap(&a, &[1.0; 3]), 1.0);
        assert_eq!(cosine_gap(&[0.0; 3], &[1.0; 3]), 0.0);
    }

    #[test]
    fn ranks_and_lost_places() {
        let choice = Choice::of(&[9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0]);
        assert_eq!(choice.top, [0, 1, 2, 3, 4, 5, 6]);
        let found = [4.0, 8.0, 7.0, 6.0, 5.0, 9.0, 3.0];
        let deviation = Deviation::of(&found, &found, &choice);
        assert_eq!((deviation.rank, deviation.token), (6, 5));
        assert_eq!(deviation.n_lost, 1, "token 0 gave its place to 5");
        // Equal logits are ordered by token.
        assert_eq!(rank(&[1.0, 1.0, 1.0], 1), 2);
        assert_eq!(top(&[1.0, 1.0, 2.0], 2), [2, 0]);
    }
}
