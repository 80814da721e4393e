//! The part of `quantization_config` that describes how a folder's matrices are packed.

use serde_json::Value;

/// The layout of a folder's packed matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// FP8 with `weight_scale_inv` or `weight_scale`: one number, one a row, or one a block of this many rows and columns.
    Float8 {
        /// Rows and columns of a block.
        block: [usize; 2],
    },
    /// The layouts of compressed-tensors: integers of 4 or 8 bits, NVFP4, MXFP4, and FP8 as above.
    CompressedTensors {
        /// Rows and columns of a block of FP8.
        block: [usize; 2],
    },
    /// GPTQ.
    Gptq {
        /// Bits of a code in modules whose shapes do not determine them.
        bits: usize,
        /// Whether zero points are stored one too small, as in the first version of the format.
        zero_minus_one: bool,
    },
    /// AWQ in the order of its GEMM kernels, 4 bits.
    Awq,
    /// ModelOpt's FP8 and NVFP4.
    ModelOpt,
    /// BitNet's ternary matrices.
    BitNet {
        /// Whether the number of a matrix divides it.
        divides: bool,
    },
}

/// Why packed matrices are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedPacking {
    /// The feature that the configuration asks for, with its key.
    pub feature: String,
    /// The features that would be accepted instead.
    pub supported: &'static str,
}

const METHODS: &str = "fp8, fbgemm_fp8, compressed-tensors (float-quantized, mxfp8-quantized, int-quantized, pack-quantized of 4 or \
    8 bits, nvfp4-pack-quantized, mxfp4-pack-quantized), modelopt (FP8, NVFP4), bitnet (offline), gptq and awq (4 bits; gptq also 8), unquantised safetensors, GGUF, Q4NX";

const KEY: &str = "quantization_config";

/// Default rows and columns of a block of FP8.
pub(super) const DEFAULT_BLOCK: [usize; 2] = [128, 128];

impl Packing {
    /// Reads a `quantization_config`.
    ///
    /// # Errors
    /// [`UnsupportedPacking`] for another method, and for parts of a method that are not read.
    pub fn read(config: &Value) -> Result<Packing, UnsupportedPacking> {
        match text(config, "quant_method").unwrap_or("unknown") {
            "fp8" => float8(config),
            "fbgemm_fp8" => Ok(Packing::Float8 {
                block: DEFAULT_BLOCK,
            }),
            "modelopt" | "modelopt_fp4" => model_opt(config),
            "compressed-tensors" => compressed(config),
            "bitnet" => bit_net(config),
            "gptq" => gptq(config),
            "awq" => awq(config),
            other => Err(UnsupportedPacking {
                feature: format!("`quantization_config` with method `{other}`"),
                supported: METHODS,
            }),
        }
    }

    /// The `quantization_config` of a `config.json`, or of the language model in it.
    pub fn find(config: &Value) -> Option<&Value> {
        fn of(object: &Value) -> Option<&Value> {
            object.get(KEY).filter(|found| !found.is_null())
        }
        of(config).or_else(|| of(config.get("text_config")?))
    }
}

fn text<'a>(config: &'a Value, key: &str) -> Option<&'a str> {
    config.get(key).and_then(Value::as_str)
}

fn unsupported<T>(
    key: &str,
    value: impl std::fmt::Display,
    supported: &'static str,
) -> Result<T, UnsupportedPacking> {
    Err(UnsupportedPacking {
        feature: format!("`quantization_config.{key}` = {value}"),
        supported,
    })
}

/// Refuses a text other than the known ones; an absent text means the first.
fn one_of<'a>(
    config: &'a Value,
    key: &str,
    known: &'static [&'static str],
    supported: &'static str,
) -> Result<&'a str, UnsupportedPacking> {
    match config.get(key) {
        None | Some(Value::Null) => Ok(known[0]),
        Some(Value::String(found)) if known.contains(&found.as_str()) => Ok(found),
        Some(other) => unsupported(key, other, supported),
    }
}

fn block_of(value: Option<&Value>, key: &str) -> Result<[usize; 2], UnsupportedPacking> {
    let size = |value: &Value| value.as_u64().filter(|size| (1..=65_536).contains(size));
    match value {
        None | Some(Value::Null) => Ok(DEFAULT_BLOCK),
        Some(Value::Array(sizes)) => match &sizes[..] {
            [rows, columns] if size(rows).is_some() && size(columns).is_some() => {
                Ok([rows, columns].map(|value| size(value).unwrap_or(1) as usize))
            }
            _ => unsupported(
                key,
                Value::from(sizes.clone()),
                "two sizes, such as [128, 128]",
            ),
        },
        Some(other) => unsupported(key, other, "two sizes, such as [128, 128]"),
    }
}

fn float8(config: &Value) -> Result<Packing, UnsupportedPacking> {
    one_of(config, "fmt", &["e4m3"], "e4m3")?;
    one_of(config, "expert_dtype", &["fp8"], "fp8")?;
    let block = block_of(config.get("weight_block_size"), "weight_block_size")?;
    Ok(Packing::Float8 { block })
}

fn compressed(config: &Value) -> Result<Packing, UnsupportedPacking> {
    const FORMATS: &[&str] = &[
        "pack-quantized",
        "float-quantized",
        "int-quantized",
        "naive-quantized",
        "nvfp4-pack-quantized",
        "mxfp4-pack-quantized",
        "mxfp8-quantized",
        "mixed-precision",
        "dense",
    ];
    const SUPPORTED: &str = "pack-quantized, int-quantized, float-quantized, naive-quantized, mxfp8-quantized, \
        nvfp4-pack-quantized, mxfp4-pack-quantized, mixed-precision of these";
    one_of(config, "format", FORMATS, SUPPORTED)?;
    let sparsity = config.get("sparsity_config");
    if let Some(format) = sparsity.and_then(|sparsity| text(sparsity, "format"))
        && format != "dense"
    {
        return unsupported("sparsity_config.format", format, "dense");
    }
    let transforms = config.get("transform_config");
    let transforms = transforms.and_then(|transforms| transforms.get("config_groups"));
    if transforms.is_some_and(|groups| groups.as_object().is_none_or(|map| !map.is_empty())) {
        return unsupported("transform_config.config_groups", "a transform", "none");
    }
    let groups = config.get("config_groups").and_then(Value::as_object);
    let mut block = DEFAULT_BLOCK;
    for group in groups.into_iter().flat_map(|groups| groups.values()) {
        one_of(group, "format", FORMATS, SUPPORTED)?;
        let Some(weights) = group.get("weights").filter(|weights| weights.is_object()) else {
            continue;
        };
        let kind = one_of(weights, "type", &["int", "float"], "int, float")?;
        let bits = weights.get("num_bits").and_then(Value::as_u64).unwrap_or(8);
        if ![4, 8].contains(&bits) {
            let key = format!("config_groups.weights.num_bits` of type `{kind}");
            return unsupported(&key, bits, "4, 8");
        }
        if weights.get("block_structure").is_some_and(Value::is_array) {
            block = block_of(weights.get("block_structure"), "block_structure")?;
        }
    }
    Ok(Packing::CompressedTensors { block })
}

fn model_opt(config: &Value) -> Result<Packing, UnsupportedPacking> {
    const ALGORITHMS: &[&str] = &["FP8", "NVFP4"];
    one_of(config, "quant_algo", ALGORITHMS, "FP8, NVFP4")?;
    Ok(Packing::ModelOpt)
}

fn bit_net(config: &Value) -> Result<Packing, UnsupportedPacking> {
    const CLASSES: &[&str] = &["bitlinear", "autobitlinear"];
    let class = one_of(config, "linear_class", CLASSES, "bitlinear, autobitlinear")?;
    // Otherwise matrices are floats that each pass would round to three values.
    one_of(config, "quantization_mode", &["offline"], "offline")?;
    match config.get("use_rms_norm") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(other) => return unsupported("use_rms_norm", other, "false"),
    }
    Ok(Packing::BitNet {
        divides: class == CLASSES[0],
    })
}

fn gptq(config: &Value) -> Result<Packing, UnsupportedPacking> {
    const FORMATS: &[&str] = &["gptq", "gptq_v2"];
    let key = match config.get("checkpoint_format") {
        Some(Value::String(_)) => "checkpoint_format",
        _ => "format",
    };
    let format = one_of(config, key, FORMATS, "gptq, gptq_v2")?;
    one_of(config, "pack_dtype", &["int32"], "int32")?;
    let bits = config.get("bits").and_then(Value::as_u64).unwrap_or(4);
    if bits != 4 && bits != 8 {
        return unsupported("bits", bits, "4, 8");
    }
    Ok(Packing::Gptq {
        bits: bits as usize,
        zero_minus_one: format == "gptq",
    })
}

fn awq(config: &Value) -> Result<Packing, UnsupportedPacking> {
    let key = match config.get("version") {
        Some(Value::String(_)) => "version",
        _ => "format",
    };
    one_of(config, key, &["gemm", "GEMM"], "gemm")?;
    let bits = config.get("bits").or(config.get("w_bit"));
    match bits.and_then(Value::as_u64).unwrap_or(4) {
        4 => {}
        other => return unsupported("bits", other, "4"),
    }
    match config.get("zero_point").and_then(Value::as_bool) {
        Some(false) => unsupported("zero_point", false, "true"),
        _ => Ok(Packing::Awq),
    }
}
