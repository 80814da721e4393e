//! The files that name and add tokens beside `tokenizer_config.json`.

use serde_json::{Map, Value, json};

/// Names of special tokens in configurations.
const NAMES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// `tokenizer_config.json` with `special_tokens_map.json` and `added_tokens.json` merged into it
/// (transformers 5.24, `PreTrainedTokenizerBase._from_pretrained`).
pub(super) fn merged(
    config: Option<Value>,
    names: Option<Value>,
    added: Option<Value>,
) -> Option<Value> {
    let mut merged = match config {
        Some(Value::Object(config)) => config,
        None if names.is_some() || added.is_some() => Map::new(),
        other => return other,
    };
    if merged.contains_key("added_tokens_decoder") {
        return Some(Value::Object(merged));
    }
    if let Some(Value::Object(names)) = names {
        merged.extend(names);
    }
    if let Some(Value::Object(added)) = added {
        let decoder = decoder(&merged, &added);
        merged.insert("added_tokens_decoder".to_owned(), decoder);
    }
    Some(Value::Object(merged))
}

/// `added_tokens.json`, which maps texts to numbers, as an `added_tokens_decoder`. A token that has a
/// name is special.
fn decoder(config: &Map<String, Value>, added: &Map<String, Value>) -> Value {
    let named = NAMES.iter().filter_map(|name| text(config.get(*name)?));
    let listed = ["extra_special_tokens", "additional_special_tokens"];
    let listed = listed
        .iter()
        .filter_map(|name| config.get(*name)?.as_array());
    let special: Vec<&str> = named.chain(listed.flatten().filter_map(text)).collect();
    let tokens = added.iter().map(|(content, id)| {
        let is_special = special.contains(&content.as_str());
        let token = json!({ "content": content, "lstrip": false, "rstrip": false,
            "single_word": false, "normalized": !is_special, "special": is_special });
        (id.to_string(), token)
    });
    Value::Object(tokens.collect())
}

/// The text of a token: a string, or an object with a `content`.
fn text(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_of_the_files_counts() {
        let names = json!({"eos_token": {"content": "<b>"}, "pad_token": "<c>"});
        let added = json!({"<b>": 400, "<d>": 399});
        let token = |content: &str, special: bool| {
            json!({"content": content, "lstrip": false, "rstrip": false, "single_word": false,
                   "normalized": !special, "special": special})
        };
        let decoder = json!({"added_tokens_decoder": {}, "eos_token": "<a>"});
        let cases = [
            (None, None, None, None),
            (None, Some(&names), None, Some(names.clone())),
            (
                Some(json!({"eos_token": "<a>", "bos_token": "<s>"})),
                Some(&names),
                None,
                Some(
                    json!({"eos_token": {"content": "<b>"}, "pad_token": "<c>", "bos_token": "<s>"}),
                ),
            ),
            (
                Some(decoder.clone()),
                Some(&names),
                Some(&added),
                Some(decoder),
            ),
            (
                Some(json!({})),
                Some(&names),
                Some(&added),
                Some(json!({"eos_token": {"content": "<b>"}, "pad_token": "<c>",
                    "added_tokens_decoder": {"400": token("<b>", true), "399": token("<d>", false)}})),
            ),
            (Some(json!(7)), Some(&names), None, Some(json!(7))),
        ];
        for (config, names, added, want) in cases {
            let found = merged(config, names.cloned(), added.cloned());
            assert_eq!(found, want);
        }
    }
}
