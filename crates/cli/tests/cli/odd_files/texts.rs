//! Table of texts: one row per quirk in how texts begin, end, are split and arranged.

use super::build::{Gguf, Safetensors, bool_value, str_value};
use super::rows::Expect::{Like, LikeBut};
use super::rows::Make::{Folder, Gguf as File};
use super::rows::Row;
use serde_json::json;
use std::fs;
use std::path::Path;

pub(super) const TEXTS: &[Row] = &[
    (
        "template-cr-lf",
        File(|g| {
            template(
                g,
                "{% for m in messages %}\r\n[{{ m.content }}]{% endfor %}\r\n",
            )
        }),
        Like("gguf", &[]),
    ),
    (
        "template-cr",
        File(|g| template(g, "{% for m in messages %}\r[{{ m.content }}]{% endfor %}")),
        Like("gguf", &[]),
    ),
    // The beginning token appears once, whether the template writes it or not.
    (
        "begin",
        File(|g| g.set("tokenizer.ggml.add_bos_token", bool_value(true))),
        Like("begin", &[]),
    ),
    (
        "begin-by-template",
        File(|g| {
            g.set("tokenizer.ggml.add_bos_token", bool_value(true));
            template(
                g,
                "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}",
            );
        }),
        Like("begin", &[]),
    ),
    (
        "end-behind-a-text",
        File(|g| g.set("tokenizer.ggml.add_eos_token", bool_value(true))),
        LikeBut("gguf", &["left out"], &["tokenize"]),
    ),
    (
        "no-pre",
        File(|g| drop_key(g, "tokenizer.ggml.pre")),
        Like("gguf", &["tokenizer.ggml.pre"]),
    ),
    (
        "numbers-of-python",
        Folder(|w, dir| {
            file(
                dir,
                "generation_config.json",
                "{\"temperature\": NaN, \"top_k\": 50, \"top_p\": Infinity}",
            );
            save(w, dir);
        }),
        Like("folder", &[]),
    ),
    (
        "ends-listed",
        Folder(|w, dir| {
            file(
                dir,
                "generation_config.json",
                &json!({"eos_token_id": [256, 300]}).to_string(),
            );
            save(w, dir);
        }),
        Like("folder", &[]),
    ),
    (
        "names-in-a-map",
        Folder(|w, dir| {
            let map = json!({"bos_token": {"content": "<|end|>"}, "eos_token": "<|end|>"});
            file(dir, "special_tokens_map.json", &map.to_string());
            save(w, dir);
        }),
        Like("folder", &[]),
    ),
    (
        "template-in-configuration",
        Folder(|w, dir| {
            let source = fs::read_to_string(dir.join("chat_template.jinja")).expect("a template");
            fs::remove_file(dir.join("chat_template.jinja")).expect("removed");
            let config = json!({"chat_template": source, "model_max_length": 1e30});
            file(dir, "tokenizer_config.json", &config.to_string());
            save(w, dir);
        }),
        Like("folder", &[]),
    ),
    (
        "template-file-cr-lf",
        Folder(|w, dir| {
            file(
                dir,
                "chat_template.jinja",
                "{% for m in messages %}\r\n[{{ m.content }}]{% endfor %}\r\n",
            );
            save(w, dir);
        }),
        Like("folder", &[]),
    ),
];

fn template(gguf: &mut Gguf, source: &str) {
    gguf.set("tokenizer.chat_template", str_value(source.as_bytes()));
}

fn drop_key(gguf: &mut Gguf, key: &str) {
    gguf.entries.retain(|(old, _)| old != key.as_bytes());
}

fn file(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).expect("written");
}

fn save(weights: &mut Safetensors, dir: &Path) {
    weights.write(&dir.join("model.safetensors"));
}
