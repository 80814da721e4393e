//! Folders that packers do not write: each fault is reported.

use super::*;

/// A fault of a folder: the layout, the change to it, and words of the message.
pub(super) type Fault = (
    (Value, Vec<StoredTensor>),
    fn(&mut Vec<StoredTensor>),
    &'static [&'static str],
);

/// Each fault is reported with these words and the file.
pub(super) fn check(faults: Vec<Fault>) {
    let dir = tempfile::tempdir().unwrap();
    for ((config, mut tensors), change, words) in faults {
        change(&mut tensors);
        let error = open(dir.path(), &config, &tensors).unwrap_err().to_string();
        for word in words.iter().chain(&["model.safetensors"]) {
            assert!(error.contains(word), "`{word}` is not in: {error}");
        }
    }
}

#[test]
fn parts_that_do_not_fit_are_named() {
    let faults: Vec<Fault> = vec![
        (
            gptq(),
            |t| drop(t.remove(1)),
            &["a.qzeros", "expected zero points", "no such tensor"],
        ),
        (
            gptq(),
            |t| drop(t.remove(2)),
            &["a.scales", "expected scales", "no such tensor"],
        ),
        (
            gptq(),
            |t| t[0].dtype = "F32",
            &["a.qweight", "I32", "found type f32"],
        ),
        (
            gptq(),
            |t| t[1] = words("a.qzeros", &[2, 3], 0),
            &["a.qzeros", "[2, 4]", "found [2, 3]"],
        ),
        (
            gptq(),
            |t| {
                t[1] = words("a.qzeros", &[3, 4], 0);
                t[2] = scales("a.scales", &[3, 32], 1.0);
            },
            &["a.scales", "divisor", "found 3"],
        ),
        (
            gptq(),
            |t| t[2] = scales("a.scales", &[2, 32], f32::NAN),
            &["a.scales", "finite", "NaN"],
        ),
        (
            gptq(),
            |t| t[2] = scales("a.scales", &[2, 31], 1.0),
            &["a.qweight", "[8, 31]", "[8, 32]"],
        ),
        (
            gptq(),
            |t| t[2] = scales("a.scales", &[64], 1.0),
            &["a.scales", "a matrix", "[64]"],
        ),
        (
            gptq(),
            |t| t.push(words("a.g_idx", &[64], 2)),
            &["a.g_idx", "2 groups", "found 2"],
        ),
        (
            gptq(),
            |t| t.push(words("a.g_idx", &[60], 0)),
            &["a.qweight", "60 columns", "8 rows"],
        ),
        (
            gptq(),
            |t| t.push(scales("a.weight", &[32, 64], 0.0)),
            &["a.weight", "twice"],
        ),
        (
            awq(),
            |t| t[0] = words("a.qweight", &[64, 5], 0),
            &["a.qweight", "[64, 4]", "[64, 5]"],
        ),
        (
            awq(),
            |t| t[2] = scales("a.scales", &[2, 30], 1.0),
            &["a.scales", "multiple of 8", "30"],
        ),
        (
            compressed(),
            |t| drop(t.remove(1)),
            &["a.weight_scale", "no such tensor"],
        ),
        (
            compressed(),
            |t| drop(t.remove(2)),
            &["a.weight_shape", "no such tensor"],
        ),
        (
            compressed(),
            |t| t[0] = words("a.weight_packed", &[32, 9], 0),
            &["a.weight_packed", "[32, 8]", "[32, 9]"],
        ),
        (
            compressed(),
            |t| t[2].bytes[0] = 31,
            &["a.weight_shape", "32 rows", "[31, 64]"],
        ),
        (
            compressed(),
            |t| t[1] = scales("a.weight_scale", &[31, 2], 1.0),
            &["a.weight_scale", "[32, 2]", "[31, 2]"],
        ),
        (
            compressed(),
            |t| t.push(words("a.weight_zero_point", &[4, 1], 0)),
            &["a.weight_zero_point", "[4, 2]", "[4, 1]"],
        ),
        (
            fp8(),
            |t| drop(t.remove(1)),
            &["a.weight_scale_inv", "its scales", "no such tensor"],
        ),
        (
            fp8(),
            |t| t[1] = scales("a.weight_scale_inv", &[2, 2], 1.0),
            &["a.weight_scale_inv", "128 x 128", "[2, 2]"],
        ),
        (
            fp8(),
            |t| t[1].dtype = "I32",
            &["a.weight_scale_inv", "F32", "found type i32"],
        ),
    ];
    check(faults);
}

#[test]
fn other_layouts_are_refused_by_name() {
    for (config, word) in [
        (json!({}), "unknown"),
        (json!({"quant_method": "bitsandbytes"}), "bitsandbytes"),
        (
            json!({"quant_method": "bitnet", "quantization_mode": "online"}),
            "online",
        ),
        (
            json!({"quant_method": "bitnet", "use_rms_norm": true}),
            "use_rms_norm",
        ),
        (json!({"quant_method": "gptq", "bits": 3}), "bits` = 3"),
        (
            json!({"quant_method": "gptq", "checkpoint_format": "marlin"}),
            "marlin",
        ),
        (
            json!({"quant_method": "gptq", "pack_dtype": "int16"}),
            "int16",
        ),
        (json!({"quant_method": "awq", "version": "gemv"}), "gemv"),
        (json!({"quant_method": "awq", "bits": 8}), "bits` = 8"),
        (
            json!({"quant_method": "awq", "zero_point": false}),
            "zero_point",
        ),
        (json!({"quant_method": "fp8", "fmt": "e5m2"}), "e5m2"),
        (
            json!({"quant_method": "fp8", "weight_block_size": [128]}),
            "weight_block_size",
        ),
        (
            json!({"quant_method": "fp8", "weight_block_size": [0, 128]}),
            "weight_block_size",
        ),
        (
            json!({"quant_method": "compressed-tensors", "format": "mxfp6-pack-quantized"}),
            "mxfp6",
        ),
        (
            json!({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}),
            "W4A8_AWQ",
        ),
        (
            json!({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24"}}),
            "sparse-24",
        ),
        (
            json!({"quant_method": "compressed-tensors", "transform_config": {"config_groups": {"u": {}}}}),
            "transform_config",
        ),
        (
            json!({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 6, "type": "float"}}}}),
            "num_bits",
        ),
    ] {
        let refused = Packing::read(&config).unwrap_err();
        assert!(refused.feature.contains(word), "{config}: {refused:?}");
    }
    // The language model's own configuration may have it.
    let nested = json!({"text_config": {"quantization_config": {"quant_method": "awq"}}});
    let found = Packing::find(&nested).map(Packing::read);
    assert_eq!(found, Some(Ok(Packing::Awq)));
}
