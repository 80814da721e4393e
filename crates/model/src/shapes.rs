//! Which weights a configuration calls for, and their shapes.

use crate::arch::{self, Layout};
use crate::config::ModelConfig;
use crate::names::{HfNorms, Part, Role, TensorName};

impl ModelConfig {
    /// The shape of a weight, slowest dimension first.
    pub fn shape_of(&self, name: TensorName) -> Vec<usize> {
        let (d_model, d_ff) = (self.d_model, self.d_ff);
        let matrix = match name.role {
            Role::TokenEmbedding | Role::Output => [self.vocab_size, d_model],
            Role::AttnQ => [self.q_width(), d_model],
            Role::AttnK | Role::AttnV => [self.kv_width(), d_model],
            Role::AttnOutput => [d_model, self.q_width()],
            Role::FfnGate | Role::FfnUp => [d_ff, d_model],
            Role::FfnDown => [d_model, d_ff],
            Role::AttnQNorm | Role::AttnKNorm => return vec![self.head_dim],
            Role::RopeFactors => return vec![self.head_dim / 2],
            Role::AttnNorm
            | Role::AttnPostNorm
            | Role::FfnNorm
            | Role::FfnPostNorm
            | Role::OutputNorm => return vec![d_model],
        };
        match name.part {
            Part::Weight => matrix.to_vec(),
            Part::Bias => vec![matrix[0]],
        }
    }

    /// Every weight of the model in the order llama.cpp's converter writes them: global ones first,
    /// then block by block.
    pub fn tensors(&self, layout: Layout) -> Vec<TensorName> {
        let family = arch::by_name(self.family);
        // A head that is the table is written once; a table that is stored scaled cannot be the head, so it is
        // the head that serves as both.
        let is_head = self.tied_head && family.conventions(layout).embed_prescaled;
        let mut names = vec![TensorName::global(match is_head {
            true => Role::Output,
            false => Role::TokenEmbedding,
        })];
        if layout == Layout::Gguf && self.rope.gguf_factors(self.head_dim).is_some() {
            names.push(TensorName::global(Role::RopeFactors));
        }
        names.push(TensorName::global(Role::OutputNorm));
        if !self.tied_head {
            names.push(TensorName::global(Role::Output));
        }
        let post_norms = family.hf_norms == HfNorms::PreAndPost;
        let mut roles = vec![
            (Role::AttnNorm, false),
            (Role::AttnQ, self.biases.qkv),
            (Role::AttnK, self.biases.qkv),
            (Role::AttnV, self.biases.qkv),
        ];
        if family.qk_norm {
            roles.extend([(Role::AttnQNorm, false), (Role::AttnKNorm, false)]);
        }
        roles.push((Role::AttnOutput, self.biases.attn_output));
        if post_norms {
            roles.push((Role::AttnPostNorm, false));
        }
        let ffn = self.biases.ffn;
        roles.extend([
            (Role::FfnNorm, false),
            (Role::FfnGate, ffn),
            (Role::FfnUp, ffn),
            (Role::FfnDown, ffn),
        ]);
        if post_norms {
            roles.push((Role::FfnPostNorm, false));
        }
        for layer in 0..self.n_layers {
            for &(role, biased) in &roles {
                let name = TensorName::block(layer, role);
                names.push(name);
                if biased {
                    names.push(name.bias());
                }
            }
        }
        names
    }
}
