//! Samplers that read texts: repetitions and banned strings.

use super::*;

/// The penalty, computed by trying every earlier position.
fn dry_penalty(tokens: &[u32], next: u32, dry: &Dry, is_breaker: &dyn Fn(u32) -> bool) -> f64 {
    let recent = &tokens[tokens.len().saturating_sub(dry.last_n)..];
    let mut longest = 0;
    for end in 0..recent.len() {
        if recent[end] != next || is_breaker(next) {
            continue;
        }
        let (before, behind) = (recent[..end].iter().rev(), recent.iter().rev());
        let same = before
            .zip(behind)
            .take_while(|(a, b)| a == b && !is_breaker(**a));
        longest = longest.max(same.count());
    }
    match longest >= dry.allowed_length && longest > 0 {
        false => 0.0,
        true => {
            let power = (longest - dry.allowed_length) as i32;
            f64::from(dry.multiplier) * f64::from(dry.base).powi(power)
        }
    }
}

#[test]
fn dry_penalises_what_goes_on_with_a_repetition() {
    let dry = Dry {
        multiplier: 0.3,
        base: 1.5,
        allowed_length: 2,
        last_n: 40,
        breakers: vec!["\n".to_owned()],
    };
    let vocabulary: &[&str] = &["a", "b", "c", "d\n"];
    let mut rng = Rng::new(3);
    let mut n_penalised = 0;
    for case in 0..16 {
        let n = 5 + 2 * case;
        let tokens: Vec<u32> = (0..n).map(|_| (rng.unit() * 3.2) as u32).collect();
        let row = [0.1_f32, 0.0, -0.1, 0.05];
        let weight = |token: u32| {
            let penalty = dry_penalty(&tokens, token, &dry, &|token| token == 3);
            n_penalised += u32::from(penalty > 0.0);
            (f64::from(row[token as usize]) - penalty).exp()
        };
        let expected = normal(&(0..4).map(weight).collect::<Vec<f64>>());
        let params = SamplingParams {
            dry: dry.clone(),
            ..warm()
        };
        let found = drawn(
            &params,
            words(vocabulary),
            [&tokens[..3], &tokens[3..]],
            &row,
        );
        agree(&found, &expected, &format!("{tokens:?}"));
    }
    assert!(n_penalised > 10, "{n_penalised}");
}

#[test]
fn a_breaker_may_reach_over_several_tokens() {
    let params = SamplingParams {
        dry: Dry {
            multiplier: 100.0,
            breakers: vec!["xyz".to_owned()],
            ..Dry::default()
        },
        ..SamplingParams::default()
    };
    let texts = words(&["a", "b", "x", "yz", "y", "c"]);
    // `a b c` occurred before; after `a b` a further `c` continues with two tokens.
    for (history, drawn) in [
        (&[0, 1, 5, 4, 0, 1][..], 4),
        // x yz ends in the middle of the repetition.
        (&[2, 3, 0, 5, 4, 2, 3, 0], 5),
        // x y is not a breaker.
        (&[2, 4, 0, 5, 4, 2, 4, 0], 4),
    ] {
        let mut sampler = Sampler::new(&params, texts.as_ref()).unwrap();
        sampler.read(history.iter().copied());
        assert_eq!(
            sampler.sample(&[0.0, 0.0, 0.0, 0.0, 1.0, 2.0]),
            drawn,
            "{history:?}"
        );
    }
    // Numbers stay finite, however long the repetition.
    let mut sampler = Sampler::new(&params, texts.as_ref()).unwrap();
    sampler.read(std::iter::repeat_n(0, 5000));
    assert_eq!(sampler.sample(&[9.0, 0.0, 0.0, 0.0, 1.0, 0.5]), 4);
}

#[test]
fn banned_texts_do_not_appear_however_they_are_cut() {
    let vocabulary: &[&str] = &["a", "b", "ab", "ba", "bb", "c", "xabc"];
    let texts = words(vocabulary);
    let banned = ["abb", "bc"];
    let params = SamplingParams {
        banned_texts: banned.map(str::to_owned).to_vec(),
        ..warm()
    };
    let mut sampler = Sampler::new(&params, texts.as_ref()).unwrap();
    // The end of the prompt does not count as part of the answer.
    sampler.read([0, 1]);
    let row = [0.3_f32, 0.2, 0.1, 0.0, 0.4, -0.3, 0.1];
    let (mut text, mut counts) = (String::new(), [0; 7]);
    for _ in 0..4000 {
        let token = sampler.sample(&row);
        sampler.accept(token);
        text += vocabulary[token as usize];
        counts[token as usize] += 1;
    }
    assert!(banned.iter().all(|banned| !text.contains(banned)), "{text}");
    assert!(
        text.contains("abab") && text.contains("bbb"),
        "nothing else is left out"
    );
    assert!(
        counts[..6].iter().all(|n| *n > 100) && counts[6] == 0,
        "{counts:?}"
    );
    // After `a` the others keep their shares.
    let found = drawn(&params, words(vocabulary), [&[], &[0]], &row);
    let weight = |i: usize| {
        if [4, 6].contains(&i) {
            0.0
        } else {
            f64::from(row[i]).exp()
        }
    };
    agree(
        &found,
        &normal(&(0..7).map(weight).collect::<Vec<f64>>()),
        "behind a",
    );
    // A grammar that allows nothing else wins.
    let mut masked = [f32::MIN; 7];
    masked[6] = 1.0;
    assert!(drawn(&params, words(vocabulary), [&[], &[]], &masked)[6] > 0.999);
    assert!(Sampler::new(&params, None).is_err());
}
