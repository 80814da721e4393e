//! The probe's programs.

use super::*;
use millrace_xdna2_words::probe::designs;

#[test]
fn every_program_moves_what_it_says() {
    let all = designs().unwrap();
    assert!(all.len() >= 9);
    for design in &all {
        assert_ne!(
            design.expected,
            vec![0; design.expected.len()],
            "{}",
            design.name
        );
        for seed in 0..5 {
            let mut arguments = [design.input.clone(), vec![0; design.expected.len()]];
            let run = run(&design.stream, seed, &mut arguments);
            run.unwrap_or_else(|error| panic!("{}: {error}", design.name));
            assert_eq!(arguments[0], design.input, "{}", design.name);
            assert!(
                arguments[1] == design.expected,
                "{} with seed {seed}",
                design.name
            );
        }
    }
}
