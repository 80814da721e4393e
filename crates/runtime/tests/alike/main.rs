//! A folder and the GGUF file made from it agree: tokens, special tokens around a text, end tokens,
//! template and sampling, for every family and every kind of tokenizer.
#![allow(clippy::unwrap_used)] // A test may panic.

mod files;

use files::{TEMPLATE, small_tokenizer, variants};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use millrace_format::safetensors::ShardedWriter;
use millrace_format::{Checkpoint, TensorSpec};
use millrace_model::convert::{Conversion, ConversionTarget, OutputContainer, Recipe};
use millrace_runtime::LoadedModel;
use millrace_testkit::golden::Golden;
use millrace_testkit::sample;
use millrace_text::{EncodeOptions, Message, RenderOptions, Tokenizer};
use serde_json::{Value, json};

/// Converts a folder to `model.gguf` beside it, or a file to `folder`. Returns the result and the
/// list of parts it lacks.
fn convert(from: &Path, container: OutputContainer) -> Result<(PathBuf, Vec<String>), String> {
    let out = from.parent().unwrap().join(match container {
        OutputContainer::Gguf => "model.gguf",
        OutputContainer::Safetensors | OutputContainer::Q4nx => "back",
    });
    let checkpoint = Checkpoint::open(from).unwrap();
    let recipe = Recipe::parse("F32").unwrap();
    let plan = Conversion::new(&checkpoint, ConversionTarget { container, recipe });
    let plan = plan.map_err(|error| error.to_string())?;
    plan.write(&out, 1, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    Ok((out, plan.notes().to_vec()))
}

/// A folder of a golden model with another number of tokens, whose weights repeat those of the model's tokens.
fn folder(golden: &Golden, n_vocab: usize, dir: &Path) -> PathBuf {
    let path = dir.join("model");
    std::fs::create_dir(&path).unwrap();
    let source = Checkpoint::open(golden.hf()).unwrap();
    let old = n_vocab_of(source.hf().unwrap().config.as_ref().unwrap());
    let mut tensors = Vec::new();
    for tensor in source.iter() {
        let mut spec = TensorSpec::from(tensor.info);
        let mut bytes = tensor.bytes.to_vec();
        let is_head = spec.shape.len() == 2 || spec.name == "lm_head.bias";
        // Gemma 3n's table of layers' embeddings may lack the last tokens.
        let is_by_layer = spec.name.ends_with("embed_tokens_per_layer.weight");
        if (spec.shape.first() == Some(&old) && is_head) || is_by_layer {
            let n_bytes = bytes.len() / spec.shape[0] * n_vocab;
            spec.shape[0] = n_vocab;
            bytes = bytes.into_iter().cycle().take(n_bytes).collect();
        }
        tensors.push((spec, bytes));
    }
    let specs: Vec<TensorSpec> = tensors.iter().map(|(spec, _)| spec.clone()).collect();
    let mut writer = ShardedWriter::create(&path, &BTreeMap::new(), &specs, 1 << 30).unwrap();
    for (spec, bytes) in &tensors {
        writer.write(&spec.name, bytes).unwrap();
    }
    writer.commit().unwrap();
    let mut config = source.hf().unwrap().config.clone().unwrap();
    let is_nested = config.get("text_config").is_some();
    let text = match is_nested {
        true => &mut config["text_config"],
        false => &mut config,
    };
    for key in ["vocab_size", "vocab_size_per_layer_input"] {
        if text.get(key).is_some() {
            text[key] = json!(n_vocab);
        }
    }
    // Tokens of the class's own vocabulary: here the tokenizer determines which end a text.
    for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
        text[key] = Value::Null;
    }
    put(&path, "config.json", &config);
    path
}

fn n_vocab_of(config: &Value) -> usize {
    let text = config.get("text_config").unwrap_or(config);
    text["vocab_size"].as_u64().unwrap() as usize
}

fn put(path: &Path, name: &str, value: &Value) {
    std::fs::write(path.join(name), value.to_string()).unwrap();
}

const ADDED: EncodeOptions = EncodeOptions {
    add_special: true,
    parse_special: true,
};

const TEXTS: [&str; 12] = [
    "",
    " ",
    "hi",
    "  two  spaces ",
    "Größe 你好 😀 e\u{301}",
    "it's 1234 and 5\n\n\n\tx\r\n",
    "<s>a</s> b",
    "a<|im_end|>b <|eot_id|>",
    " lead<s> mid </s>trail ",
    "▁▁ a▁b",
    "<0x41>\u{0}\u{7f}",
    "hhee hehe <x> <y>",
];

/// Checks that texts and vocabulary are equal.
fn assert_texts_alike(what: &str, a: &LoadedModel, b: &LoadedModel, texts: &[&str]) {
    let (left, right) = (a.tokenizer().unwrap(), b.tokenizer().unwrap());
    for text in texts {
        for add_special in [false, true] {
            for parse_special in [false, true] {
                let options = EncodeOptions {
                    add_special,
                    parse_special,
                };
                let (l, r) = (left.encode(text, options), right.encode(text, options));
                assert_eq!(l, r, "{what}: {text:?} {options:?}");
                assert_eq!(
                    left.decode(&l, true),
                    right.decode(&l, true),
                    "{what}: {text:?}"
                );
            }
        }
        let (l, r) = (
            left.encode_continued(text, true),
            right.encode_continued(text, true),
        );
        assert_eq!(l, r, "{what}: {text:?}");
    }
    let ends = |tokenizer: &Tokenizer| tokenizer.end_of_generation().to_vec();
    assert_eq!(ends(&left), ends(&right), "{what}: end tokens");
    let around = |t: &Tokenizer| {
        (
            t.add_bos(),
            t.add_eos(),
            t.prefix().to_vec(),
            t.suffix().to_vec(),
        )
    };
    assert_eq!(around(&left), around(&right), "{what}: around a text");
}

/// As [`assert_texts_alike`], and their recommended sampling and rendered chats.
fn assert_alike(what: &str, a: &LoadedModel, b: &LoadedModel, texts: &[&str]) {
    assert_texts_alike(what, a, b, texts);
    let sampling = |model: &LoadedModel| model.recommended_sampling().unwrap();
    assert_eq!(sampling(a), sampling(b), "{what}: sampling");
    let chat = |model: &LoadedModel| {
        let template = model.chat_template().unwrap();
        let messages = [Message::system("Be <s> brief."), Message::user("hi </s>")];
        let tools = Some(json!([{"type": "function", "function": {"name": "f"}}]));
        let plain = RenderOptions::default();
        let with_tools = RenderOptions {
            tools,
            ..RenderOptions::default()
        };
        let tokenizer = model.tokenizer().unwrap();
        [plain, with_tools].map(|options| {
            let prompt = template
                .render_prompt(&tokenizer, &messages, &options)
                .unwrap();
            (tokenizer.encode_prompt(&prompt), prompt)
        })
    };
    assert_eq!(chat(a), chat(b), "{what}: chat");
}

#[test]
fn every_family_and_every_source_of_what_a_folder_says() {
    // Each family with one of the sources and each source with many families, unless all pairs are requested.
    for (i, golden) in Golden::all().into_iter().enumerate() {
        let variants = variants();
        let n_variants = variants.len();
        for (variant, files, ends) in sample::part(variants, n_variants, i) {
            let dir = tempfile::tempdir().unwrap();
            let path = folder(&golden, 24, dir.path());
            for (name, value) in &files {
                put(&path, name, value);
            }
            let what = format!("{} {variant}", golden.name);
            let (gguf, notes) = convert(&path, OutputContainer::Gguf).unwrap();
            assert_eq!(notes, Vec::<String>::new(), "{what}");
            let (a, b) = (
                LoadedModel::open(&path).unwrap(),
                LoadedModel::open(&gguf).unwrap(),
            );
            assert_eq!(a.tokenizer().unwrap().end_of_generation(), ends, "{what}");
            assert_alike(&what, &a, &b, &TEXTS);
        }
    }
}

/// Kinds of tokenizers that GGUF has no name for, and a word of the refusal.
const REFUSED: [(&str, &str); 7] = [
    ("xlm_roberta", "Unigram"),
    ("bert_cased", "WordPiece"),
    ("albert", "Unigram"),
    ("t5", "one token before a text"),
    ("deepseek", "pre-tokenizer"),
    ("gpt2", "NFKC"),
    ("partial_alphabet", "Punctuation"),
];

#[test]
fn every_kind_of_tokenizer_or_a_refusal() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/tests/fixtures/tokenizers");
    let golden = Golden::all()
        .into_iter()
        .find(|golden| golden.name.starts_with("llama-mha"));
    let golden = golden.unwrap();
    let mut n_checked = 0;
    for entry in std::fs::read_dir(&fixtures).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = file
            .strip_suffix(".json")
            .filter(|name| !name.contains('.'))
        else {
            continue;
        };
        let json: Value =
            serde_json::from_slice(&std::fs::read(fixtures.join(&file)).unwrap()).unwrap();
        // The SentencePiece models beside them are not a `tokenizer.json`.
        if !json.get("model").is_some_and(Value::is_object) {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = folder(&golden, 1024, dir.path());
        put(&path, "tokenizer.json", &json);
        let tokenizer = Tokenizer::from_hf(json.to_string().as_bytes(), None).unwrap();
        let known = |text: &'static str| tokenizer.id_of(text).map(|_| text);
        let config = json!({"chat_template": TEMPLATE, "bos_token": tokenizer.bos_text().or(known("<s>")),
                            "eos_token": known("</s>")});
        put(&path, "tokenizer_config.json", &config);
        let converted = convert(&path, OutputContainer::Gguf);
        if let Some((_, word)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            let error = converted.unwrap_err();
            assert!(error.contains(word), "{name}: {error}");
            continue;
        }
        let (gguf, notes) = converted.unwrap_or_else(|error| panic!("{name}: {error}"));
        // Two of Gemma's space tokens in this fixture are added tokens only.
        let has_lost_marks = name == "gemma";
        assert_eq!(
            notes.iter().any(|note| note.contains("`▁▁`")),
            has_lost_marks,
            "{name}: {notes:?}"
        );
        assert_eq!(
            notes.len(),
            usize::from(has_lost_marks),
            "{name}: {notes:?}"
        );
        let is_alike =
            |text: &&str| !has_lost_marks || !(text.contains("  ") || text.contains("▁▁"));
        let cases: Value = serde_json::from_slice(
            &std::fs::read(fixtures.join(format!("{name}.cases.json"))).unwrap(),
        )
        .unwrap();
        let texts: Vec<&str> = cases
            .as_array()
            .unwrap()
            .iter()
            .map(|case| case["text"].as_str().unwrap())
            .collect();
        let texts: Vec<&str> = texts.into_iter().chain(TEXTS).filter(is_alike).collect();
        let (a, b) = (
            LoadedModel::open(&path).unwrap(),
            LoadedModel::open(&gguf).unwrap(),
        );
        n_checked += 1;
        // An encoder's: it has no chats, and its folder cannot be converted to a GGUF file.
        if name == "bert_uncased" {
            assert_texts_alike(name, &a, &b, &texts);
            continue;
        }
        assert_alike(name, &a, &b, &texts);
        // And back: a folder again.
        let (back, notes) = convert(&gguf, OutputContainer::Safetensors).unwrap();
        assert_eq!(notes, Vec::<String>::new(), "{name}");
        assert_alike(
            &format!("{name} and back"),
            &b,
            &LoadedModel::open(&back).unwrap(),
            &texts,
        );
    }
    assert!(n_checked >= 7, "{n_checked} kinds");
}

#[test]
fn what_gguf_cannot_hold_is_told() {
    let golden = &Golden::all()[0];
    type Edit = fn(&mut Value);
    let cases: [(Edit, &[&str]); 3] = [
        (
            |json| json["added_tokens"][3]["rstrip"] = json!(true),
            &["<x>", "rstrip"],
        ),
        (
            |json| {
                json["post_processor"]["single"]
                    .as_array_mut()
                    .unwrap()
                    .push(json!({"SpecialToken": {"id": "<stop>"}}))
            },
            &["<stop>", "behind"],
        ),
        (
            |json| {
                json["post_processor"]["single"]
                    .as_array_mut()
                    .unwrap()
                    .insert(0, json!({"SpecialToken": {"id": "<stop>"}}))
            },
            &["<stop>", "in front of"],
        ),
    ];
    for (edit, words) in cases {
        let dir = tempfile::tempdir().unwrap();
        let path = folder(golden, 24, dir.path());
        let mut json = small_tokenizer(true, true);
        edit(&mut json);
        put(&path, "tokenizer.json", &json);
        put(
            &path,
            "tokenizer_config.json",
            &json!({"bos_token": "<s>", "eos_token": "</s>"}),
        );
        let (_, notes) = convert(&path, OutputContainer::Gguf).unwrap();
        assert!(
            notes.len() == 1 && words.iter().all(|word| notes[0].contains(word)),
            "{notes:?}"
        );
    }
}

#[test]
fn a_folder_is_read_as_transformers_reads_it() {
    let golden = &Golden::all()[0];
    let base = json!({"bos_token": "<s>", "eos_token": "</s>"});
    let cases = [
        // The sources of end tokens: the file, its value, and the tokens.
        (
            "generation_config.json",
            json!({"eos_token_id": [12, 14]}),
            vec![11, 12, 14],
        ),
        (
            "generation_config.json",
            json!({"eos_token_id": 12}),
            vec![11, 12],
        ),
        (
            "config.json",
            json!({"eos_token_id": [12, 14]}),
            vec![11, 12, 14],
        ),
        ("config.json", json!({"eos_token_id": 14}), vec![11, 14]),
        (
            "special_tokens_map.json",
            json!({"eos_token": "<stop>"}),
            vec![11, 12],
        ),
        (
            "special_tokens_map.json",
            json!({"eos_token": {"content": "<halt>"}}),
            vec![11, 14],
        ),
        ("added_tokens.json", json!({"<new>": 16}), vec![11]),
    ];
    for (file, value, want) in cases {
        let dir = tempfile::tempdir().unwrap();
        let path = folder(golden, 24, dir.path());
        put(&path, "tokenizer.json", &small_tokenizer(true, true));
        put(&path, "tokenizer_config.json", &base);
        match file {
            "config.json" => {
                let mut config: Value =
                    serde_json::from_slice(&std::fs::read(path.join(file)).unwrap()).unwrap();
                config
                    .as_object_mut()
                    .unwrap()
                    .extend(value.as_object().unwrap().clone());
                put(&path, file, &config);
            }
            _ => put(&path, file, &value),
        }
        let tokenizer = LoadedModel::open(&path).unwrap().tokenizer().unwrap();
        // `</s>` ends by its text, whichever file names it.
        assert_eq!(tokenizer.end_of_generation(), want, "{file} {value}");
        if file == "added_tokens.json" {
            assert_eq!(tokenizer.encode("<new>h", ADDED), [10, 16, 0]);
        }
    }
}
