//! A sampler stage from outside.

use millrace_runtime::sampling::{
    BuiltinStage, OwnStage, Sampler, SamplerStage, SamplingParams, TokenCandidate,
};

/// Leaves tokens that differ from the last one, if there are some.
#[derive(Debug)]
struct NeverTwice;

impl SamplerStage for NeverTwice {
    fn apply(&self, candidates: &mut Vec<TokenCandidate>, history: &[u32]) {
        let last = history.last().copied();
        if candidates.iter().any(|c| Some(c.token) != last) {
            candidates.retain(|c| Some(c.token) != last);
        }
    }
}

#[test]
fn a_stage_of_ones_own_takes_part_in_the_chain() {
    let params = SamplingParams {
        temperature: 0.8,
        seed: 3,
        ..SamplingParams::default()
    };
    let own = BuiltinStage::Own(OwnStage::new(NeverTwice));
    let stages = [own].into_iter().chain(params.chain(None)).collect();
    let mut sampler = Sampler::with_stages(stages, params.seed);
    let mut plain = Sampler::new(&params, None).unwrap();
    let logits = [2.0, 1.0, 0.5];
    let draw = |sampler: &mut Sampler| {
        let mut drawn = Vec::new();
        for _ in 0..100 {
            drawn.push(sampler.sample(&logits));
            sampler.accept(drawn[drawn.len() - 1]);
        }
        drawn
    };
    let repeats = |drawn: &[u32]| drawn.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(repeats(&draw(&mut sampler)), 0);
    assert!(repeats(&draw(&mut plain)) > 10);
}
