//! LoRA adapters: as models, by `lora`, by `/lora-adapters`, several in one batch.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use millrace_format::{TensorSpec, gguf};
use millrace_runtime::{CpuEngine, Engine, LoadedModel, LoraAdapter};
use millrace_server::scheduler::EngineSetup;
use millrace_server::{AdapterSpec, ModelSpec, ServerOptions};
use serde_json::{Value, json};

use crate::client::Client;
use crate::engines::model;
use crate::{Running, engine_options, options, spec, with};

const COMPLETIONS: &str = "/v1/completions";
const ADAPTERS: &str = "/lora-adapters";
const RANK: usize = 2;

/// An adapter for the feed-forward layer of every block of the demo, which changes its output.
fn write(path: &Path, seed: usize, model: &LoadedModel) {
    let base = model.checkpoint();
    let down = |info: &&millrace_format::TensorInfo| info.name.ends_with("ffn_down.weight");
    let mut halves = Vec::new();
    for info in base.tensors().iter().filter(down) {
        for (half, shape) in [("a", [RANK, info.shape[1]]), ("b", [info.shape[0], RANK])] {
            halves.push((format!("{}.lora_{half}", info.name), shape));
        }
    }
    // Norms are stored as f32.
    let norm = base.tensor("output_norm.weight").unwrap().info;
    let spec = |(name, shape): &(String, [usize; 2])| TensorSpec {
        name: name.clone(),
        shape: shape.to_vec(),
        tensor_type: norm.tensor_type,
    };
    let specs: Vec<TensorSpec> = halves.iter().map(spec).collect();
    let arch = base
        .gguf()
        .unwrap()
        .get_str("general.architecture")
        .unwrap();
    let mut metadata = gguf::Metadata::new();
    metadata.insert("general.type", "adapter");
    metadata.insert("general.architecture", arch.unwrap());
    metadata.insert("adapter.type", "lora");
    metadata.insert("adapter.lora.alpha", 4.0_f32);
    let mut writer = gguf::Writer::create(path, &metadata, &specs).unwrap();
    for (name, [rows, columns]) in &halves {
        let number = |at: usize| ((at * 7 + at * at * seed) % 13) as f32 / 13.0 - 0.5;
        let bytes: Vec<u8> = (0..rows * columns)
            .flat_map(|at| number(at).to_le_bytes())
            .collect();
        writer.write(name, &bytes).unwrap();
    }
    writer.commit().unwrap();
}

fn serving() -> &'static Client {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let model = model();
        let adapters: Vec<Arc<LoraAdapter>> = [3, 5]
            .map(|seed| {
                let path = dir.path().join(format!("{seed}.gguf"));
                write(&path, seed, &model);
                Arc::new(LoraAdapter::open(&path, &model).unwrap())
            })
            .into();
        let adapter = |name: &str| AdapterSpec {
            name: name.to_owned(),
            source: format!("{name}.gguf"),
        };
        let open = move || {
            let engine = CpuEngine::new(Arc::clone(&model), engine_options());
            let engine: Box<dyn Engine> = Box::new(engine.map_err(|error| error.to_string())?);
            Ok(EngineSetup {
                adapters: adapters.clone(),
                ..EngineSetup::from(engine)
            })
        };
        Running::start(ServerOptions {
            models: vec![ModelSpec {
                adapters: vec![adapter("style"), adapter("other")],
                open: Arc::new(open),
                ..spec("demo", engine_options())
            }],
            ..options()
        })
    })
}

fn body(fields: Value) -> Value {
    let body = json!({"model": "demo", "prompt": "Once upon a time there was a cat, and", "temperature": 0,
                      "max_tokens": 12, "logprobs": 1, "ignore_eos": true});
    with(body, fields)
}

/// Text and log-probabilities, compared bit for bit.
fn said(answer: &Value) -> (String, String) {
    let choice = &answer["choices"][0];
    let text = choice["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"));
    (
        text.to_owned(),
        choice["logprobs"]["token_logprobs"].to_string(),
    )
}

fn ask(fields: Value) -> (String, String) {
    said(&serving().ask(COMPLETIONS, &body(fields)))
}

#[test]
fn an_adapter_is_chosen_by_name_or_by_number_and_shares_batches() {
    let style = ask(json!({"model": "style"}));
    let other = ask(json!({"model": "other"}));
    let base = ask(json!({"lora": []}));
    assert!(style != other && style != base && other != base);
    // The base equals the output of a server without adapters.
    assert_eq!(
        base,
        said(&crate::shared().ask(COMPLETIONS, &body(json!({}))))
    );
    let both = ask(json!({"lora": [{"id": 0, "scale": 1}, {"id": 1, "scale": 0.5}]}));
    let ways = [
        (json!({"model": "demo:style"}), &style),
        (json!({"model": "style:latest"}), &style),
        (json!({"lora": [{"id": 0, "scale": 1.0}]}), &style),
        (json!({"lora": [{"id": 1, "scale": 1.0}]}), &other),
        (
            json!({"lora": [{"id": 0, "scale": 1}, {"id": 1, "scale": 0.5}]}),
            &both,
        ),
        (json!({"lora": [{"id": 0, "scale": 0}]}), &base),
    ];
    // All at once: rows with different adapters and with none share passes.
    std::thread::scope(|scope| {
        let asked = ways.iter().map(|(fields, expected)| {
            let asked = scope.spawn(move || ask(fields.clone()));
            (fields, expected, asked)
        });
        for (fields, expected, asked) in asked.collect::<Vec<_>>() {
            assert_eq!(asked.join().unwrap(), **expected, "{fields}");
        }
    });
    let named = serving().ask(COMPLETIONS, &body(json!({"model": "style"})));
    assert_eq!(named["model"], "style");
}

#[test]
fn adapters_are_listed_and_what_is_none_is_refused() {
    let models = serving().get("/v1/models").json();
    let adapter = |model: &&Value| model["parent"] == "demo";
    let ids: Vec<&Value> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(adapter)
        .map(|model| &model["id"])
        .collect();
    assert_eq!(ids, ["style", "other"]);
    let one = serving().get("/v1/models/style").json();
    assert_eq!(
        (&one["root"], &one["id"]),
        (&json!("style.gguf"), &json!("style"))
    );
    for (fields, word) in [
        (json!({"lora": [{"id": 2, "scale": 1}]}), "lora[0].id"),
        (json!({"lora": [{"id": 0}]}), "lora[0].scale"),
        (
            json!({"lora": [{"id": 0, "scale": 1}, {"id": 0, "scale": 2}]}),
            "lora[1].id",
        ),
        (json!({"lora": [{"id": 0, "scale": "x"}]}), "lora[0].scale"),
        (json!({"lora": {"id": 0}}), "lora"),
        (json!({"model": "style", "lora": []}), "base model"),
    ] {
        let reply = serving().post(COMPLETIONS, &body(fields));
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(reply.body.contains(word), "{word}: {}", reply.body);
    }
    let reply = serving().post(COMPLETIONS, &body(json!({"model": "demo:none"})));
    assert_eq!(reply.status, 404, "{}", reply.body);
    assert!(reply.body.contains("style"), "{}", reply.body);
    let metrics = serving().get("/metrics").body;
    let line = metrics
        .lines()
        .find(|line| line.starts_with("vllm:lora_requests_info{"));
    let labels = "model_name=\"demo\",max_lora=\"2\",running_lora_adapters=\"style,other\",waiting_lora_adapters=\"\"} ";
    let (_, seconds) = line.unwrap().split_once(labels).expect("the adapters");
    assert!(seconds.parse::<u64>().unwrap() > 1_700_000_000);
    for wrong in [json!({"id": 0}), json!([{"id": 9, "scale": 1}])] {
        assert_eq!(serving().post(ADAPTERS, &wrong).status, 400);
    }
}

#[test]
fn factors_of_requests_that_name_none_can_be_set() {
    // A separate server: other requests must not see the change.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    write(&path, 3, &model());
    let adapter = Arc::new(LoraAdapter::open(&path, &model()).unwrap());
    let open = move || {
        let engine =
            CpuEngine::new(model(), engine_options()).map_err(|error| error.to_string())?;
        Ok(EngineSetup {
            adapters: vec![Arc::clone(&adapter)],
            ..EngineSetup::from(Box::new(engine) as Box<dyn Engine>)
        })
    };
    let server = Running::start(ServerOptions {
        models: vec![ModelSpec {
            adapters: vec![AdapterSpec {
                name: "style".to_owned(),
                source: "a.gguf".to_owned(),
            }],
            open: Arc::new(open),
            ..spec("demo", engine_options())
        }],
        ..options()
    });
    let ask = |fields: Value| said(&server.ask(COMPLETIONS, &body(fields)));
    let (base, style) = (ask(json!({})), ask(json!({"model": "style"})));
    assert!(base != style);
    let listed = server.get(ADAPTERS).json();
    assert_eq!(listed[0]["scale"], 0.0);
    assert_eq!(
        (&listed[0]["id"], &listed[0]["path"]),
        (&json!(0), &json!("a.gguf"))
    );
    assert_eq!(
        server
            .post(ADAPTERS, &json!([{"id": 0, "scale": 1.0}]))
            .status,
        200
    );
    assert_eq!(server.get(ADAPTERS).json()[0]["scale"], 1.0);
    assert_eq!(ask(json!({})), style);
    // The field of a request takes precedence.
    assert_eq!(ask(json!({"lora": []})), base);
    assert_eq!(server.post(ADAPTERS, &json!([])).status, 200);
    assert_eq!(ask(json!({})), base);
}

#[test]
fn adapters_of_a_folder_are_loaded_by_who_shows_a_key() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("3.gguf"), 3, &model());
    let mut options = options();
    options.http.lora_dir = Some(dir.path().to_owned());
    options.http.api_keys = vec!["key".to_owned()];
    let server = Running::start(options);
    let ask = |path: &str, key: &str, body: &Value| {
        let key = format!("Bearer {key}");
        let headers = [
            ("authorization", key.as_str()),
            ("content-type", "application/json"),
        ];
        server.request("POST", path, &headers, body.to_string().as_bytes())
    };
    const LOAD: &str = "/v1/load_lora_adapter";
    const UNLOAD: &str = "/v1/unload_lora_adapter";
    let named = json!({"lora_name": "late", "lora_path": "3.gguf"});
    assert_eq!(ask(LOAD, "other", &named).status, 401);
    let told = ask(LOAD, "key", &named);
    assert_eq!(
        (told.status, told.body.as_str()),
        (200, "Success: LoRA adapter 'late' added successfully.")
    );
    // It equals the adapter that another server was started with.
    for name in ["late", "demo:late"] {
        let answer = ask(COMPLETIONS, "key", &body(json!({"model": name}))).json();
        assert_eq!(
            said(&answer),
            self::ask(json!({"model": "style"})),
            "{name}"
        );
    }
    let key = [("authorization", "Bearer key")];
    let models = server.request("GET", "/v1/models", &key, b"").json();
    let ids = models["data"].as_array().unwrap().iter();
    let ids: Vec<&str> = ids.map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["demo", "late"]);
    for (fields, param) in [
        (json!({}), "lora_name"),
        (json!({"lora_name": "demo"}), "lora_name"),
        (json!({"lora_name": "a b"}), "lora_name"),
        (
            json!({"lora_name": "x", "lora_path": "4.gguf"}),
            "lora_path",
        ),
        (
            json!({"lora_name": "x", "lora_path": "../3.gguf"}),
            "lora_path",
        ),
        (
            json!({"lora_name": "x", "base_model_name": "nobody"}),
            "model",
        ),
    ] {
        let reply = ask(LOAD, "key", &with(named.clone(), fields.clone()));
        assert_eq!(
            reply.json()["error"]["param"],
            param,
            "{fields}: {}",
            reply.body
        );
    }
    let again = with(named.clone(), json!({"load_inplace": true}));
    assert_eq!(ask(LOAD, "key", &again).status, 200);
    assert_eq!(ask(UNLOAD, "key", &named).status, 200);
    assert_eq!(ask(UNLOAD, "key", &named).status, 404);
    let gone = ask(COMPLETIONS, "key", &body(json!({"model": "late"})));
    assert_eq!(gone.status, 404);
}

#[test]
fn adapters_are_loaded_from_nowhere_without_a_folder_and_a_key() {
    let named = json!({"lora_name": "late", "lora_path": "3.gguf"});
    let path = "/v1/load_lora_adapter";
    assert_eq!(crate::shared().post(path, &named).status, 501);
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    options.http.lora_dir = Some(dir.path().to_owned());
    let server = Running::start(options);
    let reply = server.post(path, &named);
    assert_eq!(reply.status, 403, "{}", reply.body);
}
