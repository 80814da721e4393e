//! Adapters in folders of PEFT.

use std::collections::BTreeMap;
use std::path::Path;

use millrace_format::Checkpoint;
use serde_json::{Map, Value};

use super::{AdapterFile, Halves, PEFT_CONFIG};
use crate::Error;
use crate::arch::WeightConvention;

/// The weights of a folder.
pub(super) const WEIGHTS: &str = "adapter_model.safetensors";

/// Far more than any configuration needs.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// Keys that change an adapter's arithmetic and are not implemented: they may be absent, null, false or empty.
const REFUSED: [(&str, &str); 13] = [
    ("use_dora", "DoRA"),
    ("lora_bias", "biases of adapters"),
    ("modules_to_save", "modules that were trained whole"),
    ("layer_replication", "layers that are repeated"),
    ("trainable_token_indices", "tokens that were trained"),
    ("target_parameters", "parameters that are no modules"),
    (
        "alora_invocation_tokens",
        "adapters that take hold amid a text",
    ),
    ("use_qalora", "QALoRA"),
    ("use_bdlora", "BD-LoRA"),
    ("kasa_config", "KaSA"),
    ("monteclora_config", "MonteCLoRA"),
    ("velora_config", "VeLoRA"),
    ("arrow_config", "Arrow"),
];

/// Initialisations that leave the base model unchanged. Others take a part out of it, which would be missing here.
const PLAIN_BEGINNINGS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

/// Contents of `adapter_config.json`.
struct PeftConfig<'a> {
    file: &'a str,
    fields: Map<String, Value>,
}

/// The halves of a folder's weights.
pub(super) fn read<'f>(checkpoint: &'f Checkpoint, dir: &Path) -> Result<AdapterFile<'f>, Error> {
    let name = checkpoint.name();
    let config = PeftConfig::read(name, &dir.join(PEFT_CONFIG))?;
    config.check()?;
    let mut file = AdapterFile {
        name,
        convention: WeightConvention::HuggingFace,
        halves: BTreeMap::new(),
    };
    for a in checkpoint.iter() {
        let full = a.info.name.as_str();
        let named = full.strip_prefix("base_model.model.").unwrap_or(full);
        let is_b = |mark: &str| {
            named.contains(mark)
                && checkpoint
                    .tensor(&full.replacen(".lora_B.", ".lora_A.", 1))
                    .is_some()
        };
        let (module, suffix) = match named.split_once(".lora_A.") {
            Some(parts) => parts,
            None if is_b(".lora_B.") => continue,
            None => {
                let problem = format!(
                    "`{full}` is no `lora_A` or `lora_B` of a matrix, or lacks its other half; adapters of embeddings are not supported"
                );
                return Err(file.error(problem));
            }
        };
        if !suffix.ends_with("weight") {
            return Err(file.error(format!("`{full}` is no weight")));
        }
        let b = checkpoint.require(&full.replacen(".lora_A.", ".lora_B.", 1))?;
        let rank = a.info.shape.first().copied().unwrap_or(0);
        config.check_rank(module, full, rank)?;
        let scale = config.scale(module, rank)?;
        let halves = Halves { a, b, scale };
        file.halves.insert(format!("{module}.weight"), halves);
    }
    Ok(file)
}

impl<'a> PeftConfig<'a> {
    fn read(file: &'a str, path: &Path) -> Result<PeftConfig<'a>, Error> {
        let problem = |problem: String| Error::Adapter {
            file: file.to_owned(),
            problem: format!("{} beside it: {problem}", path.display()),
        };
        let n_bytes = std::fs::metadata(path)
            .map_err(|error| problem(error.to_string()))?
            .len();
        if n_bytes > MAX_CONFIG_BYTES {
            return Err(problem(format!(
                "{n_bytes} bytes are more than {MAX_CONFIG_BYTES}"
            )));
        }
        let bytes = std::fs::read(path).map_err(|error| problem(error.to_string()))?;
        let fields = serde_json::from_slice(&bytes).map_err(|error| problem(error.to_string()))?;
        Ok(PeftConfig { file, fields })
    }

    fn get(&self, key: &str) -> &Value {
        self.fields.get(key).unwrap_or(&Value::Null)
    }

    fn bad(&self, key: &str, expected: &str) -> Error {
        Error::BadValue {
            file: self.file.to_owned(),
            key: key.to_owned(),
            found: self.get(key).to_string(),
            expected: expected.to_owned(),
        }
    }

    /// Refuses features that are not implemented.
    fn check(&self) -> Result<(), Error> {
        if self.get("peft_type") != "LORA" {
            return Err(self.bad("peft_type", "\"LORA\""));
        }
        let is_off = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        for (key, what) in REFUSED {
            if !is_off(self.get(key)) {
                return Err(Error::Unsupported {
                    file: self.file.to_owned(),
                    feature: format!("{what} (`{key}`: {})", self.get(key)),
                    supported: "plain LoRA".to_owned(),
                });
            }
        }
        if !matches!(self.get("bias"), Value::Null) && self.get("bias") != "none" {
            return Err(self.bad("bias", "\"none\": trained biases are not supported"));
        }
        match self.get("init_lora_weights") {
            Value::Null | Value::Bool(_) => Ok(()),
            Value::String(kind) if PLAIN_BEGINNINGS.contains(&kind.as_str()) => Ok(()),
            _ => Err(self.bad(
                "init_lora_weights",
                "a boolean, gaussian, eva or orthogonal: other ways change the base model; save the adapter with \
                 `path_initial_model_for_weight_conversion`",
            )),
        }
    }

    /// A number of a module: from the first pattern that names it, else the default.
    fn of_module(&self, (usual, patterns): (&str, &str), module: &str) -> Result<f64, Error> {
        let expected = "numbers by names of modules, without regular expressions";
        let mut found = None;
        if let Value::Object(list) = self.get(patterns) {
            for (pattern, value) in list {
                let plain = pattern.trim_start_matches('^').replace("\\.", ".");
                if !plain
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
                {
                    return Err(self.bad(patterns, expected));
                }
                let is_it = module == plain
                    || module
                        .strip_suffix(&plain)
                        .is_some_and(|rest| rest.ends_with('.'));
                if is_it && found.is_none() {
                    found = Some(value.as_f64().ok_or_else(|| self.bad(patterns, expected))?);
                }
            }
        }
        let usual_number = || self.get(usual).as_f64().filter(|number| *number > 0.0);
        let number = found.or_else(usual_number);
        number.ok_or_else(|| self.bad(usual, "a number above 0"))
    }

    fn check_rank(&self, module: &str, tensor: &str, found: usize) -> Result<(), Error> {
        let rank = self.of_module(("r", "rank_pattern"), module)?;
        match rank == found as f64 {
            true => Ok(()),
            false => Err(Error::Adapter {
                file: self.file.to_owned(),
                problem: format!("`{tensor}` has rank {found}, and {PEFT_CONFIG} says {rank}"),
            }),
        }
    }

    fn scale(&self, module: &str, rank: usize) -> Result<f32, Error> {
        let alpha = self.of_module(("lora_alpha", "alpha_pattern"), module)?;
        let rank = rank.max(1) as f64;
        let is_stabilised = match self.get("use_rslora") {
            Value::Null => false,
            Value::Bool(is_stabilised) => *is_stabilised,
            _ => return Err(self.bad("use_rslora", "true or false")),
        };
        let divisor = if is_stabilised { rank.sqrt() } else { rank };
        Ok((alpha / divisor) as f32)
    }
}
