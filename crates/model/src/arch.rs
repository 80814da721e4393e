//! The table of families: their names, the defaults that their files leave out, how their blocks are built.
//!
//! A family is one file in `arch/` and one row of the table. The file has the function that builds its graph
//! from the parts in `arch/block/`, and the names and defaults that its files leave out.

mod afmoe;
mod apertus;
mod arcee;
mod baichuan;
mod bailingmoe;
mod bailingmoe2;
mod bamba;
mod bert;
mod biogpt;
mod bitnet;
mod block;
mod bloom;
mod codeshell;
mod cohere;
mod cohere2;
mod cohere2moe;
mod dbrx;
mod deci;
mod deepseek;
mod deepseek2;
mod deepseek3;
mod distilbert;
mod dots1;
mod ernie4_5;
mod ernie4_5_moe;
mod eurobert;
mod exaone;
mod exaone4;
mod exaone_moe;
mod falcon;
mod falcon_h1;
mod family;
mod flex_olmo;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma3n;
mod gemma4;
mod gemma_embedding;
mod glm;
mod glm4;
mod glm4moe;
mod gpt2;
mod gptj;
mod gptneo;
mod gptneox;
mod gptoss;
mod granite;
mod granite_moe_swa;
mod granite_swa;
mod granitehybrid;
mod granitemoe;
mod helium;
mod hunyuan;
mod hunyuan_moe;
mod hy_v3;
mod hyperclovax;
mod internlm2;
mod internlm3;
mod iquestcoder;
mod jais;
mod jais2;
mod jamba;
mod jetmoe;
mod jina_bert_v2;
mod jina_bert_v3;
mod kimi_linear;
mod laguna;
mod lfm2;
mod lfm2moe;
mod lfm3;
mod llama;
mod llama4;
mod llama_embed;
mod maincoder;
mod mamba;
mod mamba2;
mod mellum;
mod mimo2;
mod minicpm;
mod minicpm3;
mod minimax_m2;
mod ministral;
mod mistral;
mod mistral3;
mod mistral4;
mod mixtral;
mod modern_bert;
mod mpt;
mod muse_glimmer;
mod nanochat;
mod nemotron;
mod nemotron_h;
mod neo_bert;
mod nomic_bert;
mod olmo;
mod olmo2;
mod olmo3;
mod olmo_hybrid;
mod olmoe;
mod openelm;
mod opt;
mod orion;
mod pangu;
mod persimmon;
mod phi2;
mod phi3;
mod phimoe;
mod plm;
mod qwen;
mod qwen2;
mod qwen2moe;
mod qwen2vl;
mod qwen3;
mod qwen35;
mod qwen35moe;
mod qwen3moe;
mod qwen3next;
mod qwen3vl;
mod qwen3vlmoe;
mod refact;
mod refused;
mod rwkv7;
mod sarvam;
mod sarvam_mla;
mod seed_oss;
mod smallthinker;
mod smollm3;
mod solar_open;
mod spark2_5;
mod stablelm;
mod starcoder;
mod starcoder2;
mod step35;
#[cfg(test)]
mod tests;
mod vaultgemma;
mod xglm;
mod xverse;
mod youtu;

pub(crate) use block::{draft, norm};
pub use family::{Conventions, Family, WeightConvention};
pub(crate) use family::{ExpertDefaults, GateOrder, SetKey, StoredForm};
pub use refused::{RefusedFamilies, refused};

static GEMMA3: Family = gemma3::FAMILY;

static FAMILIES: &[&Family] = &[
    &llama::FAMILY,
    &mistral::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &qwen3moe::FAMILY,
    &qwen2moe::FAMILY,
    &mixtral::FAMILY,
    &olmoe::FAMILY,
    &gptoss::FAMILY,
    &granitemoe::FAMILY,
    &glm4moe::FAMILY,
    &deepseek2::FAMILY,
    &deepseek3::FAMILY,
    &youtu::FAMILY,
    &dots1::FAMILY,
    &GEMMA3,
    &gemma3n::FAMILY,
    &gemma4::FAMILY,
    &arcee::FAMILY,
    &ernie4_5::FAMILY,
    &ernie4_5_moe::FAMILY,
    &exaone::FAMILY,
    &falcon::FAMILY,
    &gemma::FAMILY,
    &gemma2::FAMILY,
    &glm::FAMILY,
    &glm4::FAMILY,
    &gpt2::FAMILY,
    &gptneox::FAMILY,
    &bloom::FAMILY,
    &mpt::FAMILY,
    &granite::FAMILY,
    &hunyuan::FAMILY,
    &hunyuan_moe::FAMILY,
    &internlm2::FAMILY,
    &minicpm::FAMILY,
    &minicpm3::FAMILY,
    &minimax_m2::FAMILY,
    &nemotron::FAMILY,
    &olmo::FAMILY,
    &phi2::FAMILY,
    &phi3::FAMILY,
    &phimoe::FAMILY,
    &seed_oss::FAMILY,
    &smollm3::FAMILY,
    &stablelm::FAMILY,
    &starcoder2::FAMILY,
    &bitnet::FAMILY,
    &cohere::FAMILY,
    &cohere2::FAMILY,
    &exaone4::FAMILY,
    &mistral3::FAMILY,
    &olmo2::FAMILY,
    &olmo3::FAMILY,
    &qwen2vl::FAMILY,
    &qwen3vl::FAMILY,
    &qwen3vlmoe::FAMILY,
    &lfm2::FAMILY,
    &lfm2moe::FAMILY,
    &qwen35::FAMILY,
    &qwen35moe::FAMILY,
    &qwen3next::FAMILY,
    &granitehybrid::FAMILY,
    &nemotron_h::FAMILY,
    &nemotron_h::WITH_EXPERTS,
    &falcon_h1::FAMILY,
    &mamba::FAMILY,
    &mamba::FALCON,
    &mamba2::FAMILY,
    &bamba::FAMILY,
    &jamba::FAMILY,
    &muse_glimmer::FAMILY,
    &mellum::FAMILY,
    &afmoe::FAMILY,
    &exaone_moe::FAMILY,
    &hy_v3::FAMILY,
    &cohere2moe::FAMILY,
    &granite_swa::FAMILY,
    &bailingmoe::FAMILY,
    &bailingmoe2::FAMILY,
    &deepseek::FAMILY,
    &internlm3::FAMILY,
    &baichuan::FAMILY,
    &orion::FAMILY,
    &pangu::FAMILY,
    &xverse::FAMILY,
    &jais2::FAMILY,
    &qwen::FAMILY,
    &plm::FAMILY,
    &apertus::FAMILY,
    &mistral4::FAMILY,
    &llama4::FAMILY,
    &smallthinker::FAMILY,
    &kimi_linear::FAMILY,
    &openelm::FAMILY,
    &deci::FAMILY,
    &starcoder::FAMILY,
    &gptj::FAMILY,
    &gptj::CODEGEN,
    &maincoder::FAMILY,
    &rwkv7::FAMILY,
    &opt::FAMILY,
    &gptneo::FAMILY,
    &vaultgemma::FAMILY,
    &helium::FAMILY,
    &hyperclovax::FAMILY,
    &iquestcoder::FAMILY,
    &ministral::FAMILY,
    &ministral::CWM,
    &solar_open::FAMILY,
    &sarvam::FAMILY,
    &sarvam_mla::FAMILY,
    &granite_moe_swa::FAMILY,
    &codeshell::FAMILY,
    &mimo2::FAMILY,
    &step35::FAMILY,
    &laguna::FAMILY,
    &lfm3::FAMILY,
    &nanochat::FAMILY,
    &dbrx::FAMILY,
    &falcon::RW,
    &flex_olmo::FAMILY,
    &persimmon::FAMILY,
    &biogpt::FAMILY,
    &xglm::FAMILY,
    &olmo_hybrid::FAMILY,
    &jais::FAMILY,
    &refact::FAMILY,
    &jetmoe::FAMILY,
    &spark2_5::FAMILY,
];

/// Encoders, which make vectors of texts.
static ENCODERS: &[&Family] = &[
    &bert::FAMILY,
    &nomic_bert::FAMILY,
    &nomic_bert::WITH_EXPERTS,
    &gemma_embedding::FAMILY,
    &modern_bert::FAMILY,
    &eurobert::FAMILY,
    &jina_bert_v2::FAMILY,
    &jina_bert_v3::FAMILY,
    &distilbert::FAMILY,
    &neo_bert::FAMILY,
    &llama_embed::FAMILY,
];

/// Families of encoders: they make vectors of texts, and write no text.
pub fn encoders() -> impl Iterator<Item = &'static Family> {
    ENCODERS.iter().copied()
}

/// Assistants, which draft for another model.
static ASSISTANTS: &[&Family] = &[&gemma4::ASSISTANT];

/// Families of assistants: they draft with the keys and values of another model, and write no text without it.
pub fn assistants() -> impl Iterator<Item = &'static Family> {
    ASSISTANTS.iter().copied()
}

pub(crate) fn all() -> impl Iterator<Item = &'static Family> {
    families().chain(encoders()).chain(assistants())
}

/// All families of models that write texts.
pub fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().copied()
}

/// Names of the families whose files may have a draft layer, comma-separated.
pub(crate) fn with_draft_layers() -> String {
    let with = families().filter(|family| family.draft.is_some());
    let names: Vec<&str> = with.map(|family| family.name).collect();
    names.join(", ")
}

/// The family of a [`ModelConfig::family`](crate::config::ModelConfig::family).
///
/// # Panics
/// If the name is not one of the table; configurations hold only names of it.
pub fn by_name(name: &str) -> &'static Family {
    let found = all().find(|family| family.name == name);
    found.expect("ModelConfig::family is set from this table only")
}

pub(crate) fn by_gguf_arch(name: &str) -> Option<&'static Family> {
    all().find(|family| family.gguf_arch == name)
}

pub(crate) fn by_hf_model_type(name: &str) -> Option<&'static Family> {
    all().find(|family| family.hf_model_types.contains(&name))
}

/// The encoder that shares a model type with a family.
pub(crate) fn encoder_of(family: &Family) -> Option<&'static Family> {
    let types = family.hf_model_types;
    let shares = |encoder: &&Family| {
        encoder
            .hf_model_types
            .iter()
            .any(|name| types.contains(name))
    };
    encoders().find(shares)
}

/// The family of a model type that has this class, where several share the type.
pub(crate) fn by_hf_type_and_class(model_type: &str, class: &str) -> Option<&'static Family> {
    all().find(|family| {
        family.hf_model_types.contains(&model_type) && family.hf_classes.contains(&class)
    })
}

pub(crate) fn by_hf_class(name: &str) -> Option<&'static Family> {
    all().find(|family| family.hf_classes.contains(&name))
}

/// Why an architecture without a row is refused, in words behind its name.
pub(crate) fn reason(name: &str) -> String {
    let why = refused::why(name);
    why.map_or_else(String::new, |why| format!(": it {why}"))
}

pub(crate) fn supported_gguf() -> String {
    let mut names: Vec<&str> = all().map(|family| family.gguf_arch).collect();
    names.dedup();
    names.join(", ")
}

pub(crate) fn supported_hf() -> String {
    let classes: Vec<&str> = all()
        .flat_map(|family| family.hf_classes)
        .copied()
        .collect();
    classes.join(", ")
}
