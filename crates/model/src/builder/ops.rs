//! The nodes that blocks are made of: embeddings, products, rotations, sums, the head; the form of their weights in files.

use super::GraphBuilder;
use crate::Error;
use crate::arch::{StoredForm, norm};
use crate::names::{TensorName, WeightRole};
use millrace_graph::{
    Add, Derivation, Embed, Linear, Op, Rope, RopeId, RotateHeads, Scale, ScaleByWeight, Softcap,
    TableRow, ValueId, Weight, WeightId, WeightSource,
};
use millrace_quant::DType;

impl GraphBuilder<'_> {
    /// The form in which files of this layout hold a tensor.
    pub(crate) fn stored(&self, name: TensorName) -> StoredForm {
        (self.family.stored)(self.config, (name, self.layout))
    }

    /// The number to add to the weight of a norm of this role.
    pub(crate) fn norm_offset(&self, role: WeightRole) -> f32 {
        let name = self.name_of(role);
        self.family.norm_offset(self.config, (name, self.layout))
    }

    /// A matrix of this role for each expert, `[n_experts, n, k]`, which lie below each other in one.
    pub(crate) fn stacked_experts(
        &mut self,
        role: WeightRole,
        shape: [usize; 3],
    ) -> Result<WeightId, Error> {
        let name = self.name(role);
        self.rows_of((name, &shape), (name, shape[1]), 0)
    }

    /// A vector of ones, for a norm without a weight. It is in no file.
    pub(crate) fn ones(&mut self, n_elems: usize) -> WeightId {
        self.without_tensor(format!("{n_elems} ones"), (1, n_elems), Derivation::Ones)
    }

    /// A weight of `n` rows of `k` numbers that is in no file.
    pub(crate) fn without_tensor(
        &mut self,
        name: String,
        (n, k): (usize, usize),
        derivation: Derivation,
    ) -> WeightId {
        let weights = &self.graph.weights;
        let known = weights.iter().position(|weight| weight.name == name);
        WeightId(known.unwrap_or_else(|| {
            self.graph.weights.push(Weight {
                name,
                source: WeightSource::Derived(derivation),
                n_experts: 1,
                n,
                k,
                dtype: DType::F32,
            });
            self.graph.weights.len() - 1
        }))
    }

    /// The embeddings as they enter the first block.
    pub(crate) fn embed(&mut self) -> Result<ValueId, Error> {
        let prescaled = self.conventions.embed_prescaled;
        // Without a table the head is the table; where tables are stored scaled, the head is not.
        let alone = self.has(WeightRole::Output) && !self.has(WeightRole::TokenEmbedding);
        let is_head = alone && (prescaled || self.config.tied_head);
        let table = match is_head {
            true => WeightRole::Output,
            false => WeightRole::TokenEmbedding,
        };
        let scale = match prescaled && !is_head {
            true => 1.0,
            false => self.config.embed_scale,
        };
        self.embed_scaled(table, scale)
    }

    /// The embeddings of a table of this role.
    pub(crate) fn embed_of(&mut self, table: WeightRole) -> Result<ValueId, Error> {
        self.embed_scaled(table, self.config.embed_scale)
    }

    fn embed_scaled(&mut self, table: WeightRole, scale: f32) -> Result<ValueId, Error> {
        let width = self.config.layers.table_dim.unwrap_or(self.config.d_model);
        let table = self.weight(self.name(table), &[self.config.vocab_size, width])?;
        let op = Op::Embed(Embed { table, scale });
        Ok(self.push("embed", op, vec![], width))
    }

    /// `weight · x (+ bias)`, of `n` elements.
    pub(crate) fn linear(
        &mut self,
        label: &'static str,
        role: WeightRole,
        (n, biased): (usize, bool),
        x: ValueId,
    ) -> Result<ValueId, Error> {
        let name = self.name(role);
        let weight = self.weight(name, &[n, self.width(x)])?;
        let bias = match biased {
            true => Some(self.weight(name.bias(), &[n])?),
            false => None,
        };
        self.scaled_product(label, name, (weight, bias), x)
    }

    /// As [`linear`](GraphBuilder::linear), for weights of the tensor `name` that the graph already has, times the factor
    /// that its file has beside it, if any.
    pub(crate) fn scaled_product(
        &mut self,
        label: &'static str,
        name: TensorName,
        (weight, bias): (WeightId, Option<WeightId>),
        x: ValueId,
    ) -> Result<ValueId, Error> {
        if !self.has_own(name.scale()) {
            return Ok(self.product(label, (weight, bias), x));
        }
        // The factor comes before the bias.
        let out = self.product(label, (weight, None), x);
        let out = self.scaled(name, out)?;
        let Some(table) = bias else {
            return Ok(out);
        };
        let width = self.width(out);
        let row = TableRow { table, step: 0 };
        let bias = self.push("bias", row.into(), vec![], width);
        Ok(self.add("bias_add", out, bias))
    }

    /// Products with a weight, times the factor that its file has beside it, if any.
    pub(crate) fn scaled(&mut self, name: TensorName, x: ValueId) -> Result<ValueId, Error> {
        if !self.has_own(name.scale()) {
            return Ok(x);
        }
        let weight = self.weight(name.scale(), &[1])?;
        let width = self.width(x);
        Ok(self.push(
            "weight_scale",
            ScaleByWeight { weight }.into(),
            vec![x],
            width,
        ))
    }

    /// As [`linear`](GraphBuilder::linear), for weights without a factor that the graph already has.
    pub(crate) fn product(
        &mut self,
        label: &'static str,
        (weight, bias): (WeightId, Option<WeightId>),
        x: ValueId,
    ) -> ValueId {
        let n = self.graph.weights[weight.0].n;
        self.push(label, Op::Linear(Linear { weight, bias }), vec![x], n)
    }

    /// Rotates the heads of x as layer `layer` does; leaves them where it does not.
    pub(crate) fn rope(&mut self, label: &'static str, layer: usize, x: ValueId) -> ValueId {
        if !self.config.rotates(layer) {
            return x;
        }
        let head_dim = self.config.heads_of(layer).head_dim;
        self.rotate(label, layer, (head_dim, 0), x)
    }

    /// Rotates heads of `head_dim` elements from the element `first` on, as layer `layer` does.
    pub(crate) fn rotate(
        &mut self,
        label: &'static str,
        layer: usize,
        (head_dim, first): (usize, usize),
        x: ValueId,
    ) -> ValueId {
        let n_rot = self.config.heads_of(layer).n_rot;
        let config = self.config.rope_of(layer);
        let direction = match self.family.rotates_back {
            true => -1.0,
            false => 1.0,
        };
        let frequencies = config.inv_freq(n_rot).into_iter();
        let rope = Rope {
            style: self.conventions.rope_style,
            n_rot,
            inv_freq: frequencies.map(|freq| direction * freq).collect(),
            attention_factor: config.attention_factor(),
        };
        let known = self.graph.ropes.iter().position(|other| *other == rope);
        let rope = RopeId(known.unwrap_or_else(|| {
            self.graph.ropes.push(rope);
            self.graph.ropes.len() - 1
        }));
        let op = RotateHeads {
            rope,
            head_dim,
            first,
        };
        self.push(label, op.into(), vec![x], self.width(x))
    }

    /// The stream `x` plus the output of a half of a block.
    pub(crate) fn residual(&mut self, label: &'static str, x: ValueId, out: ValueId) -> ValueId {
        let out = self.scale("residual_scale", self.config.residual_scale, out);
        self.add(label, x, out)
    }

    /// `factor · x`; x itself where the factor is 1.
    pub(crate) fn scale(&mut self, label: &'static str, factor: f32, x: ValueId) -> ValueId {
        match factor == 1.0 {
            true => x,
            false => self.push(label, Scale { factor }.into(), vec![x], self.width(x)),
        }
    }

    /// `a + b`.
    pub(crate) fn add(&mut self, label: &'static str, a: ValueId, b: ValueId) -> ValueId {
        self.push(label, Op::Add(Add), vec![a, b], self.width(a))
    }

    /// The last norm and the logits.
    pub(crate) fn head(&mut self, x: ValueId) -> Result<(), Error> {
        let normed = norm::stream(self, "output_norm", WeightRole::OutputNorm, x)?;
        self.head_of(normed, None)
    }

    /// A copy of the stream, for heads of several products: passes drop unwanted rows before it.
    ///
    /// A norm would do the same, and a device's product would not: it takes as many rows as it gives.
    pub(crate) fn head_rows(&mut self, x: ValueId) -> ValueId {
        let width = self.width(x);
        let rows = self.push("head_rows", Scale { factor: 1.0 }.into(), vec![x], width);
        self.graph.head_input = Some(rows);
        rows
    }

    /// The logits from the last norm's output, by a head of this role, which may differ from the model's.
    pub(crate) fn head_of(
        &mut self,
        normed: ValueId,
        own: Option<WeightRole>,
    ) -> Result<(), Error> {
        let (has_table, has_head) = (
            self.has(WeightRole::TokenEmbedding),
            self.has(WeightRole::Output),
        );
        let shared = match self.config.tied_head && (has_table || !has_head) {
            true => WeightRole::TokenEmbedding,
            false => WeightRole::Output,
        };
        let role = own.unwrap_or(shared);
        let vocab_size = self.config.vocab_size;
        let scaled = self.scale("logit_scale", self.config.logit_scale, normed);
        let (name, shape) = (self.name(role), [vocab_size, self.width(scaled)]);
        let source = match self.config.layers.unit_head && !self.is_gguf() {
            true => WeightSource::Derived(Derivation::UnitRows),
            false => WeightSource::Whole,
        };
        let weight = self.weight_from(name, name, &shape, source)?;
        // A head that is the table has a separate bias.
        let bias = TensorName::global(WeightRole::Output).bias();
        let bias = match self.has_own(bias) {
            true => Some(self.weight(bias, &[vocab_size])?),
            false => None,
        };
        let mut logits = self.scaled_product("lm_head", name, (weight, bias), scaled)?;
        if let Some(cap) = self.config.logit_softcap {
            logits = self.push(
                "logit_softcap",
                Softcap { cap }.into(),
                vec![logits],
                vocab_size,
            );
        }
        self.graph.head_input.get_or_insert(normed);
        self.graph.logits = Some(logits);
        Ok(())
    }
}
