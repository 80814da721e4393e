//! Compares the megatiles that are estimated to be fast with the simulation.

use super::*;
use millrace_xdna2_machine::{Profile, timing, verify};

/// The launches of a tiling simulated, their cores loaded; `None` where the verifier refuses.
fn simulated_ns(shape: &Shape, tiling: &Tiling, profile: &Profile) -> Option<f64> {
    let machine = Machine::npu2();
    let program = Megatile.build(shape, tiling, &machine).ok()?;
    verify(&program, &machine).ok()?;
    let timing = timing::predict(&program, &machine, profile).ok()?;
    let work_ns: f64 = timing.launches.iter().map(|l| l.ns).sum();
    // Loads as in a program of several launches.
    let mut launches = program.launches.clone();
    launches.extend_from_slice(&program.launches);
    let loads_ns = timing::loads_ns(&launches, (&machine, profile)).ok()?;
    let n_launches = program.launches.len();
    Some(work_ns + loads_ns[..n_launches].iter().sum::<f64>())
}

fn ranking(text: &str, profile: &Profile) -> (Shape, Vec<Tiling>) {
    let shape = Megatile.parse_shape(text).expect("a shape");
    let tilings = ranked(Layout::Rows, &shape, &Machine::npu2(), profile);
    (shape, tilings)
}

#[test]
fn the_first_of_the_ranking_is_hardly_slower_than_any() {
    let profile = Profile::builtin(Profile::DEFAULT).expect("built in");
    for text in ["64x1152x512+256", "320x640x1152", "1024x1024x2048+512+512"] {
        let (shape, tilings) = ranking(text, &profile);
        let ns = |t: &Tiling| simulated_ns(&shape, t, &profile);
        let first = ns(&tilings[0]).expect("verified");
        let sample = tilings.iter().step_by(1 + tilings.len() / 60);
        let times: Vec<f64> = sample.filter_map(ns).collect();
        let [best, worst] = [f64::min, f64::max].map(|of| times.iter().copied().fold(first, of));
        assert!(first < 1.05 * best, "{text}: {first} ns of {best}");
        assert!(worst > 1.5 * best, "{text}: all take as long");
    }
}

/// Megatiles of the paper's size for long prompts; fewer rows, or columns of the array, for short ones.
#[test]
fn a_prompts_length_chooses_its_megatile() {
    let profile = Profile::builtin(Profile::DEFAULT).expect("built in");
    let size = |m: u64| {
        let (_, tilings) = ranking(&format!("{m}x2560x10240"), &profile);
        let rows = tilings[0]["cols"] * tilings[0]["e_y"] * tilings[0]["tile_m"];
        (rows, tilings[0]["cols"])
    };
    assert_eq!(size(2048), (512, 8));
    let (rows, cols) = size(64);
    assert!(rows <= 64 && cols < 8, "{rows} rows on {cols} columns");
}
