use super::*;
use std::path::Path;

fn model() -> LoadedModel {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    LoadedModel::open(&models.join("demo-draft/demo-draft.gguf")).unwrap()
}

fn encode(model: &LoadedModel, text: &str) -> Vec<u32> {
    let options = millrace_text::EncodeOptions {
        add_special: false,
        parse_special: false,
    };
    model.tokenizer().unwrap().encode(text, options)
}

const PROMPT: [u32; 5] = [5, 6, 7, 8, 9];

fn turn(model: &LoadedModel, params: GenerateParams) -> Turn {
    Turn::new(model, &PROMPT, &params, 40).unwrap()
}

/// Feeds the requested tokens, and returns the request.
fn feed(turn: &mut Turn, most: usize) -> Option<(Vec<u32>, LogitsFor)> {
    let feed = turn.feed(most)?;
    let (tokens, logits) = (feed.tokens.to_vec(), feed.logits);
    turn.fed(tokens.len());
    Some((tokens, logits))
}

/// Pushes tokens one after another; the text, until the turn ends.
fn write(turn: &mut Turn, tokens: &[u32]) -> String {
    let mut text = String::new();
    for token in tokens {
        feed(turn, usize::MAX);
        turn.push_token(*token);
        text += turn.next_text();
        if turn.finish().is_some() {
            break;
        }
    }
    text
}

#[test]
fn it_asks_for_the_prompt_in_pieces_and_then_for_what_was_drawn() {
    let model = model();
    let mut turn = turn(&model, GenerateParams::default());
    assert!(turn.reads_prompt());
    turn.resume(2);
    assert_eq!(feed(&mut turn, 2), Some((vec![7, 8], LogitsFor::None)));
    assert_eq!(turn.prefill(), (2, 3));
    assert_eq!(feed(&mut turn, 2), Some((vec![9], LogitsFor::Last)));
    assert_eq!((turn.prefill(), turn.reads_prompt()), ((3, 3), false));
    assert_eq!(turn.feed(2), None, "it waits for logits");
    turn.push_token(11);
    assert_eq!(feed(&mut turn, 9), Some((vec![11], LogitsFor::Last)));
    let vocab_size = model.model().config.vocab_size;
    let mut row = vec![0.0; vocab_size];
    row[12] = 1.0;
    assert_eq!(turn.push_logits(&row).unwrap(), Some(12));
    row[13] = f32::NAN;
    let error = turn.push_logits(&row).unwrap_err();
    assert!(matches!(error, Error::NotFinite { position: 6 }), "{error}");
    // Weights of zeros give every token the same logit.
    for same in [0.0, -3.5] {
        let error = turn.push_logits(&vec![same; vocab_size]).unwrap_err();
        assert!(matches!(error, Error::AllEqual { position: 6 }), "{error}");
        assert!(error.to_string().contains("unfinished download"), "{error}");
    }
    assert_eq!((turn.drawn(), turn.finish()), (&[11, 12][..], None));
    assert_eq!(turn.timings().n_cached, 2);
    // A driver that keeps nothing reports 0, and one that claims all still feeds the last.
    turn = self::turn(&model, GenerateParams::default());
    turn.resume(99);
    assert_eq!(feed(&mut turn, 9), Some((vec![9], LogitsFor::Last)));
}

/// Several rows of one step, as for tokens that another model drafted: tokens that agree are fed already.
#[test]
fn drafted_tokens_that_agree_are_not_fed_again() {
    let model = model();
    let mut turn = turn(&model, GenerateParams::default());
    feed(&mut turn, 99);
    turn.push_token(20);
    // Fed with two drafts after the token; the first is right, the second is not.
    let n_fed = 1 + 1;
    turn.push_token(21);
    turn.push_token(22);
    turn.fed(n_fed);
    assert_eq!(feed(&mut turn, 99), Some((vec![22], LogitsFor::Last)));
}

#[test]
fn each_limit_ends_it_with_its_name() {
    let model = model();
    let words = encode(&model, "Once upon a time there was a big red ball");
    let all = GenerateParams::default();
    let with = |max_tokens| GenerateParams {
        max_tokens,
        ..all.clone()
    };
    let mut none = turn(&model, with(Some(0)));
    assert_eq!((none.finish(), none.feed(9)), (Some(Finish::Length), None));
    none.push_token(3);
    assert!(none.into_generation().tokens.is_empty());

    let mut three = turn(&model, with(Some(3)));
    let text = write(&mut three, &words);
    assert_eq!(three.finish(), Some(Finish::Length));
    assert_eq!(three.drawn(), &words[..3]);
    assert_eq!(three.push_logits(&[]).unwrap(), None, "it is over");
    assert_eq!(three.into_generation().text, text);

    // The context holds 40: 5 of the prompt, 35 drawn, and one more that need not be held.
    for max_tokens in [None, Some(37), Some(usize::MAX)] {
        let mut full = turn(&model, with(max_tokens));
        write(&mut full, &[words[0]; 60]);
        assert_eq!(full.finish(), Some(Finish::ContextFull));
        assert_eq!(full.drawn().len(), 36);
    }

    let end = model.tokenizer().unwrap().eos().unwrap();
    let mut stopped = turn(&model, all.clone());
    write(&mut stopped, &[words[0], end, words[1]]);
    assert_eq!(stopped.finish(), Some(Finish::Stop));
    let generation = stopped.into_generation();
    assert_eq!(generation.tokens, &words[..1]);
    assert_eq!(generation.timings.n_decode, 2);

    let params = GenerateParams {
        stop_tokens: vec![words[1]],
        ..all.clone()
    };
    let mut stopped = turn(&model, params);
    write(&mut stopped, &words);
    assert_eq!(
        (stopped.finish(), stopped.drawn().len()),
        (Some(Finish::Stop), 1)
    );
    assert!(turn(&model, all).into_generation().finish == Finish::Cancelled);
}

#[test]
fn control_tokens_are_shown_when_asked_for() {
    let model = model();
    let tokenizer = model.tokenizer().unwrap();
    let word = encode(&model, "ball")[0];
    let (bos, eos) = (tokenizer.bos().unwrap(), tokenizer.eos().unwrap());
    let [bos_text, eos_text] = [bos, eos].map(|id| tokenizer.token_text(id).to_string());
    let plain = write(&mut turn(&model, GenerateParams::default()), &[word]);
    for (show_special, text) in [
        (false, plain.clone()),
        (true, format!("{bos_text}{plain}{eos_text}")),
    ] {
        let params = GenerateParams {
            show_special,
            ..GenerateParams::default()
        };
        let mut shown = turn(&model, params);
        assert_eq!(write(&mut shown, &[bos, word, eos]), text);
        assert_eq!(shown.finish(), Some(Finish::Stop));
        assert_eq!(
            shown.drawn(),
            [bos, word],
            "the ending one is no part of them"
        );
    }
}

#[test]
fn the_beginning_of_a_stop_text_is_held_back_until_it_is_known() {
    let model = model();
    let words = encode(&model, "Once upon a time there was a big red ball");
    let with_stop = |stop: &str| GenerateParams {
        stop: vec![stop.to_owned()],
        ..GenerateParams::default()
    };
    let mut stopped = turn(&model, with_stop("time there"));
    let text = write(&mut stopped, &words);
    assert_eq!(stopped.finish(), Some(Finish::StopText));
    assert!(text.ends_with("upon a "), "{text:?}");

    // Cancelled in the middle of a possible stop text: then it is text.
    let mut cancelled = turn(&model, with_stop("time machine"));
    let upto = encode(&model, "Once upon a time").len();
    let mut text = write(&mut cancelled, &words[..upto]);
    assert!(!text.contains("time"), "{text:?}");
    cancelled.cancel();
    cancelled.end(Finish::Length);
    text += cancelled.next_text();
    assert_eq!(cancelled.next_text(), "");
    assert_eq!(
        cancelled.finish(),
        Some(Finish::Cancelled),
        "the first end counts"
    );
    assert!(text.ends_with("a time"), "{text:?}");
    assert_eq!(cancelled.into_generation().text, text);
}

#[test]
fn what_cannot_begin_is_refused() {
    let model = model();
    let new = |prompt: &[u32], max_tokens| {
        let params = GenerateParams {
            max_tokens,
            ..GenerateParams::default()
        };
        Turn::new(&model, prompt, &params, 40)
    };
    assert!(matches!(new(&[], None), Err(Error::EmptyPrompt)));
    let outside = model.model().config.vocab_size as u32;
    assert!(matches!(
        new(&[1, outside], None),
        Err(Error::BadToken { .. })
    ));
    assert!(matches!(
        new(&[1; 40], None),
        Err(Error::ContextOverflow {
            n_prompt: 40,
            n_new: 1,
            n_ctx: 40,
            ..
        })
    ));
    assert!(new(&[1; 40], Some(0)).is_ok());
    assert!(matches!(
        new(&[1; 41], Some(0)),
        Err(Error::ContextOverflow { .. })
    ));
    let params = GenerateParams {
        sampling: crate::SamplingParams {
            temperature: -1.0,
            ..crate::SamplingParams::default()
        },
        ..GenerateParams::default()
    };
    assert!(matches!(
        Turn::new(&model, &[1], &params, 40),
        Err(Error::BadOption { .. })
    ));
}

/// Thoughts in brackets one after the other, then the answer.
fn thought_and_text(turn: &mut Turn, tokens: &[u32]) -> (String, String) {
    let (mut thought, mut text) = (String::new(), String::new());
    for token in tokens {
        if turn.finish().is_some() {
            break;
        }
        turn.push_token(*token);
        for piece in turn.next_pieces() {
            match piece {
                TurnPiece::Answer(more) => text += &more,
                TurnPiece::Thought(more) => thought += &more,
            }
        }
    }
    (thought, text)
}

fn thinking(budget: Option<usize>, closing: Vec<u32>) -> Thinking {
    Thinking {
        open: "(".to_owned(),
        close: ")".to_owned(),
        budget,
        closing,
        ..Thinking::default()
    }
}

#[test]
fn stop_texts_are_the_answers() {
    let model = model();
    let params = GenerateParams {
        stop: vec!["dog".to_owned()],
        ..GenerateParams::default()
    };
    let tokens = encode(&model, "(the dog) a cat and a dog ran");
    let mut turn = turn(&model, params).with_thinking(&thinking(None, Vec::new()));
    let found = thought_and_text(&mut turn, &tokens);
    assert_eq!(found, ("the dog".to_owned(), "a cat and a ".to_owned()));
    assert_eq!(turn.finish(), Some(Finish::StopText));
    assert_eq!(turn.stop_text(), Some("dog"));
    assert_eq!(turn.phase(), Phase::Answer);
    assert!(turn.n_thought_tokens() >= 4, "{}", turn.n_thought_tokens());
    assert!(turn.n_thought_tokens() < turn.drawn().len());
}

#[test]
fn a_budget_ends_the_thought_and_not_the_answer() {
    let model = model();
    let closing = encode(&model, ")");
    let word = encode(&model, " dog")[0];
    let row = |token: u32| {
        let mut row = vec![0.0; model.model().config.vocab_size];
        row[token as usize] = 1.0;
        row
    };
    for (budget, is_open, n_thought) in [(Some(3), true, 4), (Some(0), true, 1), (None, true, 9)] {
        let options = Thinking {
            start: match is_open {
                true => Phase::Thought,
                false => Phase::Begin,
            },
            ..thinking(budget, closing.clone())
        };
        let mut turn = turn(&model, GenerateParams::default()).with_thinking(&options);
        for _ in 0..9 {
            feed(&mut turn, usize::MAX);
            turn.push_logits(&row(word)).unwrap();
        }
        assert_eq!(turn.n_thought_tokens(), n_thought, "{budget:?}");
        assert_eq!(turn.drawn().len(), 9);
        let ended = turn.drawn().iter().filter(|token| **token == closing[0]);
        assert_eq!(ended.count(), usize::from(budget.is_some()));
    }
}
