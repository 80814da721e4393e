//! A deterministic search for the constants that make a loss small.

/// Constants by key.
pub(super) type Point = Vec<(String, f64)>;

/// Relative steps of the rounds; later ones use the last.
const STEPS: [f64; 4] = [0.12, 0.05, 0.02, 0.01];

/// Steps in one direction at most, a round and constant.
const MOST_STEPS: usize = 8;

/// Coordinate search: each constant in turn is scaled up, then down, by the round's step for as long
/// as the loss falls. Constants without effect on the loss stay as they are.
pub(super) fn refit(start: &Point, rounds: usize, loss: &dyn Fn(&Point) -> f64) -> Point {
    let mut point = start.clone();
    let mut best = loss(&point);
    for round in 0..rounds {
        let step = 1.0 + STEPS[round.min(STEPS.len() - 1)];
        for at in 0..point.len() {
            for factor in [step, 1.0 / step] {
                for _ in 0..MOST_STEPS {
                    let before = point[at].1;
                    point[at].1 = before * factor;
                    let found = loss(&point);
                    if found >= best - 1e-9 {
                        point[at].1 = before;
                        break;
                    }
                    best = found;
                }
            }
        }
    }
    point
}
