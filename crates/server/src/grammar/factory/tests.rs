use std::path::Path;
use std::sync::{Mutex, OnceLock};

use super::super::trial::{self, GrammarTrial, TrialReply, try_grammars_with};
use super::*;

/// Grammars tried by any test of this process.
static TRIED: Mutex<Vec<Grammar>> = Mutex::new(Vec::new());
/// Number of trials that wait to be given up.
static ENDLESS: Mutex<usize> = Mutex::new(0);

/// A trial in place of the program's separate process: with `endless` in the grammar, it lasts until it is given up.
fn attempt(trial: &GrammarTrial, is_given_up: &dyn Fn() -> bool) -> TrialReply {
    TRIED.lock().unwrap().push(trial.grammar.clone());
    if !format!("{:?}", trial.grammar).contains("endless") {
        // A long limit, so that a busy machine still finishes.
        return trial::attempt(&trial.grammar, Duration::from_secs(60));
    }
    *ENDLESS.lock().unwrap() += 1;
    while !is_given_up() {
        std::thread::sleep(Duration::from_millis(2));
    }
    *ENDLESS.lock().unwrap() -= 1;
    TrialReply::GivenUp
}

fn n_tried(grammar: &Grammar) -> usize {
    let tried = TRIED.lock().unwrap();
    tried.iter().filter(|one| *one == grammar).count()
}

fn factory() -> GrammarFactory {
    try_grammars_with(attempt);
    static MODEL: OnceLock<(Arc<Tokenizer>, usize)> = OnceLock::new();
    let (tokenizer, vocab_size) = MODEL.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/demo.gguf");
        let model = millrace_runtime::LoadedModel::open(&path).unwrap();
        (model.tokenizer().unwrap(), model.model().config.vocab_size)
    });
    GrammarFactory::new(Arc::clone(tokenizer), *vocab_size)
}

fn wish(client: &str, time: Option<Duration>) -> Requester {
    Requester {
        client: Arc::from(client),
        scope: 0,
        deadline: time.map(|time| Instant::now() + time),
    }
}

fn regex(text: &str) -> Grammar {
    Grammar::Regex(text.to_owned())
}

fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work)
}

#[test]
fn what_was_compiled_is_not_tried_again_in_its_scope() {
    let factory = factory();
    let grammar = regex("once [0-9]+");
    on_runtime(async {
        for client in ["a", "a", "b"] {
            factory
                .prepare(&grammar, &wish(client, None))
                .await
                .unwrap();
        }
        assert_eq!(n_tried(&grammar), 1);
        let other = Requester {
            scope: 7,
            ..wish("a", None)
        };
        factory.prepare(&grammar, &other).await.unwrap();
        assert_eq!(n_tried(&grammar), 2, "another scope's is not found");
        // Refusals are cached as well.
        let bad = regex("once(");
        for _ in 0..2 {
            let refused = factory.prepare(&bad, &wish("a", None)).await;
            assert!(matches!(
                refused,
                Err(SubmitError::Grammar(GrammarError::Bad { .. }))
            ));
        }
        assert_eq!(n_tried(&bad), 1);
    });
}

#[test]
fn many_with_one_grammar_at_once_have_it_tried_once() {
    let factory = factory();
    let grammar = regex("together [0-9]+");
    on_runtime(async {
        let wish = wish("a", None);
        let (a, b, c) = tokio::join!(
            factory.prepare(&grammar, &wish),
            factory.prepare(&grammar, &wish),
            factory.prepare(&grammar, &wish),
        );
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
    });
    assert_eq!(n_tried(&grammar), 1);
}

#[test]
fn each_answer_begins_at_the_beginning() {
    let factory = factory();
    let grammar = regex("ab");
    let mut first = factory.compile(&grammar).unwrap();
    let allowed = |constraint: &mut Constraint| {
        let mut row = vec![1.0; factory_vocabulary()];
        constraint.mask(&mut row).unwrap();
        row.iter().position(|logit| *logit == 1.0).unwrap() as u32
    };
    let a = allowed(&mut first);
    first.accept(a).unwrap();
    let mut second = factory.compile(&grammar).unwrap();
    assert_eq!(allowed(&mut second), a);
}

fn factory_vocabulary() -> usize {
    factory().compiler.vocab_size()
}

#[test]
fn who_sends_what_does_not_end_holds_nobody_but_himself() {
    let factory = Arc::new(factory());
    on_runtime(async {
        let mut hostile = Vec::new();
        for i in 0..6 {
            let factory = Arc::clone(&factory);
            hostile.push(tokio::spawn(async move {
                let grammar = regex(&format!("endless {i} of one"));
                factory
                    .prepare(&grammar, &wish("hostile", None))
                    .await
                    .is_ok()
            }));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let grammar = regex("of another");
        let other = wish("other", None);
        let prepared = factory.prepare(&grammar, &other);
        let prepared = tokio::time::timeout(Duration::from_secs(10), prepared).await;
        assert!(prepared.expect("its own place").is_ok());
        // The model is unloaded: all waiting clients are refused, including the one with a permit.
        factory.close();
        for one in hostile {
            assert!(!one.await.unwrap());
        }
    });
}

#[test]
fn a_deadline_and_leaving_end_the_trial() {
    let factory = Arc::new(factory());
    on_runtime(async {
        let late = wish("late", Some(Duration::from_millis(100)));
        let start = Instant::now();
        let refused = factory.prepare(&regex("endless late"), &late).await;
        assert!(matches!(refused, Err(SubmitError::Deadline)));
        assert!(start.elapsed() < Duration::from_secs(5));
        let leaving = wish("leaving", None);
        let grammar = regex("endless leaving");
        let work = factory.prepare(&grammar, &leaving);
        assert!(
            tokio::time::timeout(Duration::from_millis(100), work)
                .await
                .is_err()
        );
        // Both permits were returned.
        for client in ["late", "leaving"] {
            let next = regex(&format!("after {client}"));
            let next_wish = wish(client, Some(Duration::from_secs(10)));
            assert!(factory.prepare(&next, &next_wish).await.is_ok(), "{client}");
        }
    });
}

#[test]
fn a_compilation_that_does_not_end_gives_its_place_back() {
    let factory = factory();
    on_runtime(async {
        let grammar = regex("stuck");
        let key = key(0, &grammar);
        let (sender, messages) = unbounded_channel();
        sender.send(Message::Compiling).ok().unwrap();
        let (answer, answered) = oneshot::channel();
        let watch = Watch {
            compiler: Arc::clone(&factory.compiler),
            key,
            what: grammar.what(),
            compile_time: Duration::from_millis(50),
            _place: factory.semaphore.place(&Arc::from("a")).await.ok().unwrap(),
        };
        assert_eq!(factory.semaphore.n_working(), 1);
        // The sender is alive: its thread has not ended.
        watch.over(messages, answer).await;
        assert_eq!(factory.semaphore.n_working(), 0);
        let told = answered.await.unwrap();
        assert!(matches!(told, Err(GrammarError::TooHard { .. })));
        let again = factory.prepare(&grammar, &wish("a", None)).await;
        assert!(matches!(
            again,
            Err(SubmitError::Grammar(GrammarError::TooHard { .. }))
        ));
        assert_eq!(n_tried(&grammar), 0, "once was enough");
        drop(sender);
    });
}

/// Grammars that are inherently hard. Each is refused or accepted within a bounded time, in a process with limits.
/// The ones here are ended by llguidance's own limits or by the trial.
#[test]
fn what_is_too_hard_is_refused_in_words() {
    let factory = factory();
    for (grammar, words) in [
        (
            regex("((a{1,1000}){1,1000}){1,1000}"),
            "the regular expression is too hard: ",
        ),
        (
            Grammar::JsonSchema(
                json!({"type": "string", "minLength": 1000, "maxLength": 60_000, "pattern": "^(ab|cd|.)*$"}),
            ),
            "the JSON schema is too hard: ",
        ),
        (
            Grammar::Lark(format!(
                "start: ({})*\n{}",
                (0..2100)
                    .map(|i| format!("T{i}"))
                    .collect::<Vec<_>>()
                    .join("|"),
                (0..2100)
                    .map(|i| format!("T{i}: /[a-z]*{i}x/\n"))
                    .collect::<String>(),
            )),
            "grammar",
        ),
    ] {
        let start = Instant::now();
        let compiled = factory.compile(&grammar);
        let compiled = compiled.map(|_| format!("{grammar:.60?}"));
        let error = compiled.expect_err("it is hard").to_string();
        assert!(error.contains(words), "{error}");
        assert!(!error.contains("backtrace"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30), "{error}");
    }
}

/// A schema that contradicts itself is reported as such, even after other text. Functions with such a schema may be
/// called with any object, while a schema that is too hard is refused.
#[test]
fn what_contradicts_itself_is_not_too_hard() {
    let calls =
        |schema: &str| Grammar::Calls(format!("start: \"f\" arguments\narguments: %json {schema}"));
    for schema in [
        "{\"$ref\": \"#\"}",
        "{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#/properties/a\"}}, \"required\": [\"a\"]}",
    ] {
        let tried = GrammarTrial::of(calls(schema)).run();
        assert!(
            matches!(&tried, TrialReply::Bad(reason) if reason.contains("refers to itself")),
            "{schema}: {tried:?}"
        );
    }
    let tried = GrammarTrial::of(calls("{\"type\": \"object\"}")).run();
    assert!(matches!(tried, TrialReply::Passed), "{tried:?}");
}
