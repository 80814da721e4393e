//! The sampling that a model's files recommend.

use millrace_format::gguf;
use serde_json::Value;

use crate::{Error, LoadedModel, SamplingParams};

/// A number of the settings, the key of GGUF metadata, and the field of `generation_config.json`.
struct SettingNumber {
    gguf: &'static str,
    field: &'static str,
    place: fn(&mut SamplingParams) -> &mut f32,
}

/// llama.cpp defines the first four keys (`gguf-py`'s `SAMPLING_*`), Ollama the rest. The last two
/// fields are vLLM's; transformers has no such penalties.
const NUMBERS: [SettingNumber; 7] = [
    SettingNumber {
        gguf: "general.sampling.temp",
        field: "temperature",
        place: |params| &mut params.temperature,
    },
    SettingNumber {
        gguf: "general.sampling.top_p",
        field: "top_p",
        place: |params| &mut params.top_p,
    },
    SettingNumber {
        gguf: "general.sampling.min_p",
        field: "min_p",
        place: |params| &mut params.min_p,
    },
    SettingNumber {
        gguf: "general.sampling.penalty_repeat",
        field: "repetition_penalty",
        place: |params| &mut params.repetition_penalty,
    },
    SettingNumber {
        gguf: "general.sampling.typ_p",
        field: "typical_p",
        place: |params| &mut params.typical_p,
    },
    SettingNumber {
        gguf: "general.sampling.penalty_present",
        field: "presence_penalty",
        place: |params| &mut params.presence_penalty,
    },
    SettingNumber {
        gguf: "general.sampling.penalty_freq",
        field: "frequency_penalty",
        place: |params| &mut params.frequency_penalty,
    },
];

impl LoadedModel {
    /// The sampling that the model's authors recommend, if the files say: `general.sampling.*` of a GGUF
    /// file, `generation_config.json` of a folder. `do_sample: false` is a temperature of 0. Parameters
    /// not in the files have no effect, except for a temperature of 1.
    ///
    /// # Errors
    /// [`Error::Format`] if a value of GGUF metadata has the wrong type.
    pub fn recommended_sampling(&self) -> Result<Option<SamplingParams>, Error> {
        if let Some(metadata) = self.checkpoint().gguf() {
            return of_gguf(metadata);
        }
        let files = self.checkpoint().hf();
        let config = files.and_then(|files| files.generation_config.as_ref());
        Ok(config.and_then(of_generation_config))
    }
}

/// Defaults for parameters that the files leave out.
fn unsaid() -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        ..SamplingParams::default()
    }
}

fn of_gguf(metadata: &gguf::Metadata) -> Result<Option<SamplingParams>, Error> {
    let mut said = FileSettings::default();
    for number in &NUMBERS {
        said.number(number, metadata.get_f32(number.gguf)?);
    }
    // llama.cpp: 0 and less keep every token; -1 looks at the whole context, 0 at nothing.
    let top_k = metadata.get_i32("general.sampling.top_k")?;
    said.top_k(top_k.map(i64::from));
    if let Some(last_n) = metadata.get_i32("general.sampling.penalty_last_n")? {
        said.any = true;
        said.params.penalty_last_n = usize::try_from(last_n).unwrap_or(usize::MAX);
    }
    Ok(said.finish())
}

fn of_generation_config(config: &Value) -> Option<SamplingParams> {
    let mut said = FileSettings::default();
    for number in &NUMBERS {
        let value = config.get(number.field).and_then(Value::as_f64);
        said.number(number, value.map(|value| value as f32));
    }
    said.top_k(config.get("top_k").and_then(Value::as_i64));
    if config.get("do_sample") == Some(&Value::Bool(false)) {
        // The likeliest token; penalties still count.
        said.any = true;
        said.params.temperature = 0.0;
    }
    said.finish()
}

/// Settings read from the files so far.
struct FileSettings {
    params: SamplingParams,
    any: bool,
}

impl Default for FileSettings {
    fn default() -> FileSettings {
        FileSettings {
            params: unsaid(),
            any: false,
        }
    }
}

impl FileSettings {
    /// Takes a number. A file may say anything: a number that makes no sense is left out.
    fn number(&mut self, number: &SettingNumber, value: Option<f32>) {
        let Some(value) = value else { return };
        let mut params = self.params.clone();
        *(number.place)(&mut params) = value;
        if params.check().is_ok() {
            (self.params, self.any) = (params, true);
        }
    }

    fn top_k(&mut self, value: Option<i64>) {
        if let Some(value) = value {
            self.any = true;
            self.params.top_k = usize::try_from(value).unwrap_or(0);
        }
    }

    fn finish(self) -> Option<SamplingParams> {
        self.any.then_some(self.params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn params(edit: impl Fn(&mut SamplingParams)) -> Option<SamplingParams> {
        let mut params = unsaid();
        edit(&mut params);
        Some(params)
    }

    #[test]
    fn every_field_of_a_generation_config() {
        let cases = [
            (json!({}), None),
            (json!({"max_new_tokens": 7, "do_sample": true}), None),
            (json!({"temperature": 0.5}), params(|p| p.temperature = 0.5)),
            (json!({"top_k": 20}), params(|p| p.top_k = 20)),
            (json!({"top_k": -1}), params(|p| p.top_k = 0)),
            (json!({"top_p": 0.5}), params(|p| p.top_p = 0.5)),
            (json!({"min_p": 0.25}), params(|p| p.min_p = 0.25)),
            (json!({"typical_p": 0.5}), params(|p| p.typical_p = 0.5)),
            (
                json!({"repetition_penalty": 1.25}),
                params(|p| p.repetition_penalty = 1.25),
            ),
            (
                json!({"presence_penalty": 1.5, "frequency_penalty": 0.5}),
                params(|p| (p.presence_penalty, p.frequency_penalty) = (1.5, 0.5)),
            ),
            (json!({"do_sample": false}), params(|p| p.temperature = 0.0)),
            (
                json!({"do_sample": false, "temperature": 0.5, "repetition_penalty": 1.25}),
                params(|p| (p.temperature, p.repetition_penalty) = (0.0, 1.25)),
            ),
            // Invalid values are left out individually.
            (
                json!({"temperature": -1.0, "top_p": "NaN", "min_p": null, "repetition_penalty": 1.25}),
                params(|p| p.repetition_penalty = 1.25),
            ),
        ];
        for (config, want) in cases {
            assert_eq!(of_generation_config(&config), want, "{config}");
        }
    }

    #[test]
    fn every_key_of_gguf_metadata() {
        let float = |key: &str, value: f32| {
            let mut metadata = gguf::Metadata::new();
            metadata.insert(key, value);
            of_gguf(&metadata).unwrap()
        };
        for number in &NUMBERS {
            let want = params(|p| *(number.place)(p) = 0.5);
            assert_eq!(float(number.gguf, 0.5), want, "{}", number.gguf);
            assert_eq!(float(number.gguf, f32::NAN), None, "{}", number.gguf);
        }
        assert_eq!(float("general.name", 0.5), None);
        for (key, value, want) in [
            ("top_k", 20, params(|p| p.top_k = 20)),
            ("top_k", -1, params(|p| p.top_k = 0)),
            ("penalty_last_n", 128, params(|p| p.penalty_last_n = 128)),
            (
                "penalty_last_n",
                -1,
                params(|p| p.penalty_last_n = usize::MAX),
            ),
        ] {
            let mut metadata = gguf::Metadata::new();
            metadata.insert(format!("general.sampling.{key}"), value);
            assert_eq!(of_gguf(&metadata).unwrap(), want, "{key} {value}");
        }
        let mut wrong = gguf::Metadata::new();
        wrong.insert("general.sampling.temp", "hot");
        assert!(of_gguf(&wrong).is_err());
    }
}
