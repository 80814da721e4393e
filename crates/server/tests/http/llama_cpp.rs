//! Requests as clients of llama.cpp's server send them.

use serde_json::{Value, json};

use crate::{question, shared, with};

#[test]
fn a_completion_in_its_words() {
    let body = json!({"prompt": "Once upon a time", "n_predict": 12, "temperature": 0});
    let answer = shared().ask("/completion", &body);
    let ours =
        json!({"model": "demo", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0});
    let ours = shared().ask("/v1/completions", &ours);
    assert_eq!(answer["content"], ours["choices"][0]["text"]);
    assert_eq!(
        (&answer["stop"], &answer["stop_type"]),
        (&json!(true), &json!("limit"))
    );
    assert_eq!(answer["tokens_predicted"], 12);
    let stream = shared().post("/completion", &with(body.clone(), json!({"stream": true})));
    let events = stream.events().into_iter();
    let chunks: Vec<Value> = events
        .map(|(_, data)| serde_json::from_str(&data).unwrap())
        .collect();
    let text: String = chunks
        .iter()
        .map(|chunk| chunk["content"].as_str().unwrap())
        .collect();
    assert_eq!(text, answer["content"].as_str().unwrap());
    assert_eq!(chunks.last().unwrap()["stop"], true);
    let stopped = shared().ask("/completion", &with(body, json!({"stop": ["there"]})));
    assert_eq!(
        (&stopped["stop_type"], &stopped["stopping_word"]),
        (&json!("word"), &json!("there"))
    );
    let refused = shared().post(
        "/infill",
        &json!({"input_prefix": "a", "input_suffix": "b"}),
    );
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["param"], "input_suffix");
}

#[test]
fn grammars_of_its_kind_are_held() {
    let ask = |fields: Value| {
        let body = json!({"prompt": "Once", "n_predict": 20, "temperature": 0});
        shared().post("/completion", &with(body, fields))
    };
    let content = |fields: Value| ask(fields).json()["content"].as_str().unwrap().to_owned();
    let words = json!({"grammar": "root ::= (\"yes\" | \"no\") \"!\"{2}"});
    assert!(["yes!!", "no!!"].contains(&content(words).as_str()));
    let schema = json!({"json_schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                        "additionalProperties": false}});
    assert!(["{\"a\": true}", "{\"a\": false}"].contains(&content(schema).as_str()));
    let reply = ask(json!({"grammar": "root ::= \"a\" |\n b"}));
    assert_eq!(reply.status, 400);
    let message = reply.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        message,
        "grammar: line 2 of the grammar: there is no rule `b`"
    );
    // In the form of older clients of vLLM.
    for (fields, among) in [
        (
            json!({"guided_choice": ["blue", "red"]}),
            &["blue", "red"][..],
        ),
        (json!({"guided_regex": "[xy]{3}z"}), &[]),
        (json!({"guided_json": "{\"const\": 5}"}), &["5"]),
        (json!({"guided_grammar": "root ::= \"w\""}), &["w"]),
    ] {
        let body = with(
            question("hi"),
            with(fields.clone(), json!({"max_tokens": 20})),
        );
        let answer = shared().ask("/v1/chat/completions", &body);
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        let is_it = among.contains(&text) || (text.len() == 4 && text.ends_with('z'));
        assert!(is_it, "{fields}: {text}");
    }
}

#[test]
fn prompts_come_in_all_its_forms() {
    let body = json!({"n_predict": 8, "temperature": 0});
    let ask = |prompt: Value| {
        shared().ask(
            "/completion",
            &with(body.clone(), json!({"prompt": prompt})),
        )
    };
    let tokens = |text: &str, special: bool| {
        let body = json!({"content": text, "add_special": special});
        shared().ask("/tokenize", &body)["tokens"]
            .as_array()
            .unwrap()
            .clone()
    };
    let one = ask(json!("Once upon a time"));
    let other = ask(json!("The dog"));
    let (ids, more) = (tokens("Once upon", true), tokens(" a time", false));
    let mixed: Vec<Value> = ids.iter().cloned().chain([json!(" a time")]).collect();
    let behind: Vec<Value> = [json!("Once upon")].into_iter().chain(more).collect();
    for prompt in [mixed, behind] {
        assert_eq!(ask(json!(prompt))["content"], one["content"]);
    }
    let both = ask(json!(["Once upon a time", tokens("The dog", true)]));
    assert_eq!(both.as_array().unwrap().len(), 2);
    assert_eq!(
        (&both[0]["content"], &both[1]["content"]),
        (&one["content"], &other["content"])
    );
    assert_eq!(
        (&both[0]["index"], &both[1]["index"]),
        (&json!(0), &json!(1))
    );
    assert!(ask(json!(["Once upon a time"])).is_array());
    let fields = json!({"prompt": ["Once upon a time", "The dog"], "stream": true});
    let events = shared()
        .post("/completion", &with(body.clone(), fields))
        .events();
    let mut texts = [String::new(), String::new()];
    for (_, data) in events {
        let chunk: Value = serde_json::from_str(&data).unwrap();
        texts[chunk["index"].as_u64().unwrap() as usize] += chunk["content"].as_str().unwrap();
    }
    assert_eq!(json!(texts), json!([one["content"], other["content"]]));
    for (prompt, param) in [
        (json!([]), "prompt"),
        (json!({"prompt_string": "x"}), "prompt"),
        (json!(["a", {"b": 1}]), "prompt[1]"),
        (json!([[99_999_999]]), "prompt[0]"),
    ] {
        let reply = shared().post(
            "/completion",
            &with(body.clone(), json!({"prompt": prompt})),
        );
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(param)),
            "{prompt}"
        );
    }
}

#[test]
fn times_are_told() {
    let body =
        json!({"prompt": "Once upon a time", "n_predict": 6, "temperature": 0, "ignore_eos": true});
    let timings = shared().ask("/completion", &body)["timings"].clone();
    let number = |name: &str| {
        timings[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {timings}"))
    };
    assert_eq!(number("predicted_n"), 6.0);
    let n_prompt = number("prompt_n") + number("cache_n");
    assert!(n_prompt >= 4.0 && number("predicted_ms") > 0.0, "{timings}");
    let rate = number("predicted_n") / number("predicted_ms") * 1e3;
    assert!((number("predicted_per_second") - rate).abs() < 1e-6 * rate);
    assert!(number("prompt_per_token_ms") >= 0.0 && number("predicted_per_token_ms") > 0.0);
}

#[test]
fn its_other_addresses_are_served() {
    let get = |path: &str| shared().get(path).json();
    assert_eq!(get("/v1/health"), get("/health"));
    assert_eq!(get("/models"), get("/v1/models"));
    let body = json!({"prompt": "Once upon a time", "n_predict": 3, "temperature": 0});
    let content = |path: &str| shared().ask(path, &body)["content"].clone();
    assert_eq!(content("/completions"), content("/completion"));
    let choice = |path: &str| shared().ask(path, &question("hi"))["choices"].clone();
    assert_eq!(choice("/chat/completions"), choice("/v1/chat/completions"));
    let ask = json!({"query": "a", "documents": ["b"]});
    let refusal = |path: &str| shared().post(path, &ask).json();
    assert_eq!(refusal("/v1/reranking"), refusal("/v1/rerank"));
    let ours = json!({"model": "demo", "input": ["a cat", "a dog"]});
    let ours = shared().ask("/v1/embeddings", &ours);
    for (path, name) in [("/embedding", "content"), ("/embeddings", "input")] {
        let rows = shared().ask(path, &json!({name: ["a cat", "a dog"]}));
        for i in 0..2 {
            assert_eq!(rows[i]["index"], i);
            assert_eq!(rows[i]["embedding"], json!([ours["data"][i]["embedding"]]));
        }
    }
    let raw = shared().ask(
        "/embedding",
        &json!({"content": "a cat", "embd_normalize": -1}),
    );
    assert_ne!(raw[0]["embedding"], json!([ours["data"][0]["embedding"]]));
    let reply = shared().post(
        "/embedding",
        &json!({"content": "a cat", "embd_normalize": 0}),
    );
    assert_eq!(
        (reply.status, &reply.json()["error"]["param"]),
        (400, &json!("embd_normalize"))
    );
}

#[test]
fn what_it_says_of_itself() {
    let props = shared().get("/props").json();
    assert_eq!(props["total_slots"], 4);
    assert_eq!(props["default_generation_settings"]["n_ctx"], 1024);
    assert_eq!(props["model_alias"], "demo");
    let template = props["chat_template"].as_str().unwrap();
    assert!(template.contains("add_generation_prompt"), "{template}");
    assert_eq!(shared().get("/slots").json().as_array().unwrap().len(), 4);
    assert_eq!(shared().get("/props?model=nobody").status, 404);
}

#[test]
fn tokens_of_a_prompt_are_counted_before_it_is_asked() {
    for (path, count) in [
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "hi there"}]}),
        ),
        ("/v1/responses", json!({"input": "hi there"})),
    ] {
        let body = with(json!({"model": "demo"}), count);
        let counted = shared().ask(&format!("{path}/input_tokens"), &body);
        let answer = shared().ask(
            path,
            &with(body, json!({"max_tokens": 1, "max_output_tokens": 1})),
        );
        let usage = &answer["usage"];
        let found = usage
            .get("prompt_tokens")
            .or(usage.get("input_tokens"))
            .unwrap();
        assert_eq!(&counted["input_tokens"], found, "{path}");
    }
}

#[test]
fn completions_repeat_the_prompt() {
    let body = json!({"model": "demo", "prompt": ["Once upon a time", "The dog"], "max_tokens": 6, "temperature": 0, "n": 2});
    let plain = shared().ask("/v1/completions", &body);
    let echoed = shared().ask(
        "/v1/completions",
        &with(body.clone(), json!({"echo": true})),
    );
    for (i, prompt) in ["Once upon a time", "Once upon a time", "The dog", "The dog"]
        .iter()
        .enumerate()
    {
        let text = plain["choices"][i]["text"].as_str().unwrap();
        assert_eq!(echoed["choices"][i]["text"], format!("{prompt}{text}"));
    }
    let chunks = shared()
        .post(
            "/v1/completions",
            &with(body, json!({"echo": true, "stream": true})),
        )
        .chunks();
    let mut texts = vec![String::new(); 4];
    for choice in chunks
        .iter()
        .flat_map(|chunk| chunk["choices"].as_array().unwrap())
    {
        texts[choice["index"].as_u64().unwrap() as usize] += choice["text"].as_str().unwrap();
    }
    let whole = |i: usize| echoed["choices"][i]["text"].as_str().unwrap();
    assert!((0..4).all(|i| texts[i] == whole(i)), "{texts:?}");
}

#[test]
fn completions_choose_the_best() {
    let body = json!({"model": "demo", "prompt": "Once upon a time", "max_tokens": 6, "temperature": 3, "seed": 4, "top_k": 0,
                      "top_p": 1, "min_p": 0});
    let all = shared().ask(
        "/v1/completions",
        &with(body.clone(), json!({"n": 6, "logprobs": 0})),
    );
    let mean = |choice: &Value| {
        let logprobs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        logprobs
            .iter()
            .map(|one| one.as_f64().unwrap())
            .sum::<f64>()
            / logprobs.len() as f64
    };
    let choices = all["choices"].as_array().unwrap();
    let best = choices
        .iter()
        .max_by(|a, b| mean(a).total_cmp(&mean(b)))
        .unwrap();
    let chosen = shared().ask(
        "/v1/completions",
        &with(body, json!({"n": 1, "best_of": 6})),
    );
    assert_eq!(chosen["choices"].as_array().unwrap().len(), 1);
    assert_eq!(chosen["choices"][0]["text"], best["text"]);
    assert_eq!(chosen["choices"][0]["logprobs"], Value::Null);
    assert_eq!(
        chosen["usage"]["completion_tokens"],
        all["usage"]["completion_tokens"]
    );
}

/// By the mean of an answer's tokens, not by their sum, which short answers win.
#[test]
fn the_best_is_not_the_shortest() {
    let mut n_longer = 0;
    for seed in 1..8 {
        let body = json!({"model": "demo", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 1.5, "seed": seed,
                          "top_k": 0, "top_p": 1, "min_p": 0, "stop": "a"});
        let all = shared().ask(
            "/v1/completions",
            &with(body.clone(), json!({"n": 6, "logprobs": 0})),
        );
        let logprobs = |choice: &Value| -> Vec<f64> {
            serde_json::from_value(choice["logprobs"]["token_logprobs"].clone()).unwrap()
        };
        let sum = |choice: &Value| logprobs(choice).iter().sum::<f64>();
        let mean = |choice: &Value| sum(choice) / logprobs(choice).len() as f64;
        let choices = all["choices"].as_array().unwrap();
        let by = |score: &dyn Fn(&Value) -> f64| {
            let best = choices.iter().max_by(|a, b| score(a).total_cmp(&score(b)));
            best.unwrap()["text"].clone()
        };
        let chosen = shared().ask("/v1/completions", &with(body, json!({"best_of": 6})));
        assert_eq!(chosen["choices"][0]["text"], by(&mean), "{seed}");
        n_longer += usize::from(by(&mean) != by(&sum));
    }
    assert!(n_longer > 0, "every best answer has the largest sum too");
}
