//! A family that nobody published, of the tests: attention and feed-forward side by side behind one norm. What it took to add
//! it, this file and its row in `arch.rs`, is what any dense family takes.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::names::WeightRole;
use millrace_graph::Activation;

pub(super) static FAMILY: Family = Family {
    name: "dummy",
    gguf_arch: "dummy",
    hf_model_types: &["dummy"],
    hf_classes: &["DummyForCausalLM"],
    activation: Activation::GeluTanh,
    build,
    ..Family::PLAIN
};

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project(b, normed)?;
        let attended = attention::attend(b, layer, heads)?;
        let out = feed_forward::network(b, layer, normed)?;
        let both = b.add("attn_ffn", attended, out);
        Ok(b.residual("residual", x, both))
    })
}
