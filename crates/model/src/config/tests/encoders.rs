//! Encoders as their files describe them.

use super::*;
use crate::config::{ClassifierConfig, EncoderPooling};
use millrace_graph::Activation;

fn modern_bert(more: &Value) -> Result<ModelConfig, Error> {
    let mut config = json!({
        "architectures": ["ModernBertModel"], "model_type": "modernbert", "vocab_size": 64, "hidden_size": 32,
        "intermediate_size": 48, "num_hidden_layers": 5, "num_attention_heads": 4, "max_position_embeddings": 128,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    hf::read("config.json", &config)
}

#[test]
fn modern_bert_slides_but_in_the_first_of_three() {
    let usual = modern_bert(&json!({})).unwrap();
    assert_eq!(usual.layer_windowed, [false, true, true, false, true]);
    assert_eq!(usual.window, Some(128));
    assert_eq!(usual.rope.theta, 160_000.0);
    assert_eq!(usual.rope_of(1).theta, 10_000.0);
    // As published before transformers 5.
    let older = modern_bert(&json!({
        "global_attn_every_n_layers": 2, "local_attention": 12, "global_rope_theta": 500.0, "local_rope_theta": 20.0,
        "norm_eps": 1e-3, "hidden_activation": "silu", "classifier_pooling": "mean",
    }));
    let older = older.unwrap();
    assert_eq!(older.layer_windowed, [false, true, false, true, false]);
    assert_eq!((older.window, older.norm_eps), (Some(12), 1e-3));
    assert_eq!(
        (older.rope_of(0).theta, older.rope_of(1).theta),
        (500.0, 20.0)
    );
    assert_eq!(older.activation, Activation::Silu);
    let classifier = ClassifierConfig {
        pooling: Some(EncoderPooling::Mean),
        activation: Activation::Gelu,
    };
    assert_eq!(older.encoder.as_ref().unwrap().classifier, Some(classifier));
    for config in [usual, older] {
        let written = hf::write(&config).unwrap();
        assert_eq!(hf::read("config.json", &written).unwrap(), config);
    }
}

#[test]
fn what_modern_bert_lacks_is_refused() {
    let wrong = [
        (json!({"norm_bias": true}), "norm_bias"),
        (
            json!({"global_attn_every_n_layers": 0}),
            "global_attn_every_n_layers",
        ),
        (json!({"classifier_pooling": "max"}), "classifier_pooling"),
        (
            json!({"rope_scaling": {"type": "linear", "factor": 2.0}}),
            "rope_scaling",
        ),
    ];
    for (more, name) in wrong {
        let error = modern_bert(&more).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn the_class_tells_families_of_one_type_apart() {
    let of = |class: &str| {
        hf::read(
            "config.json",
            &json!({
                "architectures": [class], "model_type": "bert", "vocab_size": 64, "hidden_size": 32,
                "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                "position_embedding_type": if class == "BertModel" { "absolute" } else { "alibi" },
                "feed_forward_type": "geglu",
            }),
        )
    };
    assert_eq!(of("BertModel").unwrap().family, "bert");
    let jina = of("JinaBertModel").unwrap();
    assert_eq!(jina.family, "jina-bert-v2");
    assert_eq!(jina.max_distance_bias, Some(8.0));
    let error = of("BertForPreTraining").unwrap_err().to_string();
    assert!(error.contains("BertForPreTraining"), "{error}");
}
