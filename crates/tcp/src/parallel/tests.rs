use super::*;
use crate::lower::Weights;
use crate::walk::llama_3_1_70b;
use millrace_model::synth::ModelGeometry;

struct Setup {
    machine: Machine,
    profile: Profile,
    config: ModelConfig,
}

fn setup(config: ModelConfig) -> Setup {
    Setup {
        machine: Machine::rngd(),
        profile: Profile::furiosa_llm(),
        config,
    }
}

fn llama_8b() -> ModelConfig {
    ModelGeometry::named("llama-3.1-8b").unwrap().config(None)
}

impl Setup {
    fn model(&self, options: TcpLowerOptions) -> ParallelModel<'_> {
        ParallelModel {
            config: &self.config,
            options,
            machine: &self.machine,
            profile: &self.profile,
        }
    }
}

fn plan(split: Split, n_chips: u64) -> Plan {
    Plan { split, n_chips }
}

#[test]
fn what_fits_is_what_the_sizes_say() {
    let large = setup(llama_3_1_70b());
    let fit = |weights, split, n| {
        large
            .model(TcpLowerOptions::plain(weights))
            .fit(plan(split, n))
            .unwrap()
    };
    for split in [Split::Pipeline, Split::Tensor] {
        // 70B needs at least two chips in fp8, and four in bf16.
        assert_eq!(fit(Weights::Fp8, split, 1).n_tokens, None);
        assert!(fit(Weights::Fp8, split, 2).n_tokens.is_some());
        assert_eq!(fit(Weights::Bf16, split, 2).n_tokens, None);
        assert!(fit(Weights::Bf16, split, 4).n_tokens.is_some());
    }
    // 141 GB of bf16 and 327,680 bytes of keys and values a token, on four chips.
    let shared = fit(Weights::Bf16, Split::Tensor, 4);
    assert!((shared.weight_bytes as f64 / 35.3e9 - 1.0).abs() < 0.01);
    assert_eq!(shared.token_bytes, 327_680 / 4);
    let small = setup(llama_8b());
    let one = small
        .model(TcpLowerOptions::plain(Weights::Bf16))
        .fit(plan(Split::Tensor, 1))
        .unwrap();
    assert!((one.weight_bytes as f64 / 16.06e9 - 1.0).abs() < 0.01);
    assert_eq!(one.token_bytes, 131_072);
}

#[test]
fn plans_that_cannot_be_are_refused_with_the_numbers() {
    let large = setup(llama_3_1_70b());
    let model = large.model(TcpLowerOptions::plain(Weights::Bf16));
    let error = |split, n| model.token(plan(split, n), 1, 64).unwrap_err().to_string();
    assert!(
        error(Split::Tensor, 3).contains("key and value heads is 8; expected a multiple of the 3")
    );
    assert!(error(Split::Pipeline, 9).contains("9 chips; a device has 1 to 8"));
    let memory = error(Split::Pipeline, 2);
    assert!(
        memory.contains("of each of 2 chips, which have 51002736640"),
        "{memory}"
    );
    let short = setup(
        ModelGeometry::named("llama-3.1-8b")
            .unwrap()
            .config(Some(2)),
    );
    let model = short.model(TcpLowerOptions::plain(Weights::Bf16));
    let error = model.token(plan(Split::Pipeline, 4), 1, 64).unwrap_err();
    assert_eq!(
        error.to_string(),
        "4 stages for 2 layers: a stage needs a layer"
    );
}

#[test]
fn decoding_is_bound_by_memory_and_reading_ahead_helps() {
    let setup = setup(llama_8b());
    let one = plan(Split::Pipeline, 1);
    let time = |options| setup.model(options).token(one, 1, 1024).unwrap();
    let plain = time(TcpLowerOptions::plain(Weights::Bf16));
    let ahead = time(TcpLowerOptions::plain(Weights::Bf16).read_ahead());
    let roof = plain.hbm_bytes / (setup.machine.hbm_gb_per_s * setup.profile.hbm_efficiency);
    // Every byte is read once; the time above the roof is the part that nothing hides.
    assert!(roof < ahead.total_ns && ahead.total_ns < plain.total_ns);
    assert!(ahead.total_ns < 1.06 * roof, "{} of {roof}", ahead.total_ns);
    assert!(plain.total_ns < 1.15 * roof, "{} of {roof}", plain.total_ns);
}

#[test]
fn tensor_parallel_shortens_tokens_and_not_prompts_over_this_link() {
    let setup = setup(llama_3_1_70b());
    let model = setup.model(TcpLowerOptions::plain(Weights::Fp8).read_ahead());
    let token = |split, n| model.token(plan(split, n), 1, 1024).unwrap().total_ns;
    let (pipeline, tensor) = (token(Split::Pipeline, 4), token(Split::Tensor, 4));
    assert!(tensor < 0.4 * pipeline, "{tensor} {pipeline}");
    assert!(token(Split::Tensor, 8) < tensor);
    // Sixteen layers show it as well as eighty.
    let short = Setup {
        config: ModelConfig {
            n_layers: 16,
            layer_windowed: vec![false; 16],
            ..llama_3_1_70b()
        },
        ..setup
    };
    let model = short.model(TcpLowerOptions::plain(Weights::Fp8).read_ahead());
    let prompt = |split| model.prompt(plan(split, 4), 512).unwrap().total_ns;
    assert!(prompt(Split::Tensor) > 0.8 * prompt(Split::Pipeline));
}

#[test]
fn layers_add_what_layers_add() {
    let setup = setup(llama_8b());
    let call = |n_tokens| PassSizes {
        batch: 1,
        n_tokens,
        n_keys: 128,
        n_cache: 128,
    };
    for options in [
        TcpLowerOptions::plain(Weights::Bf16),
        TcpLowerOptions::plain(Weights::Fp8).read_ahead(),
    ] {
        let model = setup.model(options);
        for n_tokens in [1, 128] {
            let programs = model
                .programs(plan(Split::Pipeline, 1), call(n_tokens))
                .unwrap();
            let (short, n_short) = model.stage(&programs, 17, (true, true));
            let (whole, n_whole) = model.whole_stage(&programs, 17, (true, true));
            assert_eq!(n_short, n_whole);
            assert!((short.total_ns / whole.total_ns - 1.0).abs() < 1e-3);
            assert!((short.hbm_bytes / whole.hbm_bytes - 1.0).abs() < 1e-9);
        }
    }
}
