//! Builds a graph step by step, checking every weight against the checkpoint as it is named.

use std::collections::HashMap;

use crate::Error;
use crate::arch::{Conventions, Family, Layout};
use crate::catalog::Catalog;
use crate::config::ModelConfig;
use crate::graph::{
    Add, Embed, Graph, Linear, Node, Op, RmsNorm, Rope, RopeId, RotateHeads, Value, ValueId,
    Weight, WeightId,
};
use crate::names::{HfNorms, Role, TensorName};
use crate::warnings;

/// A graph under construction.
pub(crate) struct Builder<'a> {
    config: &'a ModelConfig,
    family: &'static Family,
    conventions: Conventions,
    catalog: &'a Catalog<'a>,
    graph: Graph,
    weights: HashMap<TensorName, WeightId>,
    layer: Option<usize>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(
        config: &'a ModelConfig,
        family: &'static Family,
        catalog: &'a Catalog<'a>,
    ) -> Builder<'a> {
        Builder {
            config,
            family,
            conventions: family.conventions(catalog.layout()),
            catalog,
            graph: Graph::default(),
            weights: HashMap::new(),
            layer: None,
        }
    }

    pub(crate) fn config(&self) -> &'a ModelConfig {
        self.config
    }

    pub(crate) fn family(&self) -> &'static Family {
        self.family
    }

    pub(crate) fn has_post_norms(&self) -> bool {
        self.family.hf_norms == HfNorms::PreAndPost
    }

    /// Nodes from here on belong to block `layer`.
    pub(crate) fn enter_layer(&mut self, layer: usize) {
        self.layer = Some(layer);
    }

    /// Nodes from here on belong to no block.
    pub(crate) fn leave_layers(&mut self) {
        self.layer = None;
    }

    /// Records `x` as the next hidden state.
    pub(crate) fn hidden(&mut self, x: ValueId) {
        self.graph.hidden.push(x);
    }

    /// Appends a node and returns the value it writes, `width` elements a token.
    pub(crate) fn push(
        &mut self,
        label: &'static str,
        op: Op,
        inputs: Vec<ValueId>,
        width: usize,
    ) -> ValueId {
        let output = ValueId(self.graph.values.len());
        self.graph.values.push(Value { width });
        self.graph.nodes.push(Node {
            op,
            inputs,
            output,
            layer: self.layer,
            label,
        });
        output
    }

    fn width(&self, value: ValueId) -> usize {
        self.graph.values[value.0].width
    }

    fn name(&self, role: Role) -> TensorName {
        match self.layer.filter(|_| role.is_per_layer()) {
            Some(layer) => TensorName::block(layer, role),
            None => TensorName::global(role),
        }
    }

    fn weight(&mut self, name: TensorName) -> Result<WeightId, Error> {
        if let Some(&id) = self.weights.get(&name) {
            return Ok(id);
        }
        let spelled = self.spell(name);
        let shape = self.config.shape_of(name);
        let dtype = self.catalog.check(&spelled, &shape)?;
        let (n, k) = match shape[..] {
            [n, k] => (n, k),
            _ => (1, shape[0]),
        };
        let id = WeightId(self.graph.weights.len());
        self.graph.weights.push(Weight {
            n_experts: 1,
            name: spelled,
            n,
            k,
            dtype,
        });
        self.weights.insert(name, id);
        Ok(id)
    }

    fn spell(&self, name: TensorName) -> String {
        match self.catalog.layout() {
            Layout::Gguf => name.gguf(),
            Layout::HuggingFace | Layout::Q4nx => {
                let hf = name.hf(self.catalog.hf_prefix(), self.family.hf_norms);
                hf.expect("families use only roles that their own naming table has")
            }
        }
    }

    /// The embeddings as they enter the first block.
    pub(crate) fn embed(&mut self) -> Result<ValueId, Error> {
        let has = |role| self.catalog.has(&self.spell(self.name(role)));
        let prescaled = self.conventions.embed_prescaled;
        // Without a table the head is it; where tables are stored scaled, the head is not.
        let alone = has(Role::Output) && !has(Role::TokenEmbedding);
        let is_head = alone && (prescaled || self.config.tied_head);
        let table = match is_head {
            true => Role::Output,
            false => Role::TokenEmbedding,
        };
        let table = self.weight(self.name(table))?;
        let scale = match prescaled && !is_head {
            true => 1.0,
            false => self.config.embed_scale,
        };
        Ok(self.push(
            "embed",
            Op::Embed(Embed { table, scale }),
            vec![],
            self.config.d_model,
        ))
    }

    /// RMSNorm of x over groups as long as the weight.
    pub(crate) fn norm(
        &mut self,
        label: &'static str,
        role: Role,
        x: ValueId,
    ) -> Result<ValueId, Error> {
        let weight = self.weight(self.name(role))?;
        let group = self.graph.weights[weight.0].k;
        let (eps, offset) = (self.config.norm_eps, self.conventions.norm_offset);
        let op = Op::RmsNorm(RmsNorm {
            weight,
            eps,
            offset,
            group,
        });
        Ok(self.push(label, op, vec![x], self.width(x)))
    }

    /// `weight · x (+ bias)`.
    pub(crate) fn linear(
        &mut self,
        label: &'static str,
        role: Role,
        biased: bool,
        x: ValueId,
    ) -> Result<ValueId, Error> {
        let name = self.name(role);
        let weight = self.weight(name)?;
        let bias = if biased {
            Some(self.weight(name.bias())?)
        } else {
            None
        };
        let n = self.graph.weights[weight.0].n;
        Ok(self.push(label, Op::Linear(Linear { weight, bias }), vec![x], n))
    }

    /// Rotates the heads of x as layer `layer` does.
    pub(crate) fn rope(&mut self, label: &'static str, layer: usize, x: ValueId) -> ValueId {
        let head_dim = self.config.head_dim;
        let rope = Rope {
            style: self.conventions.rope_style,
            n_rot: head_dim,
            inv_freq: self.config.rope_of(layer).inv_freq(head_dim),
            attention_factor: 1.0,
        };
        let known = self.graph.ropes.iter().position(|other| *other == rope);
        let id = RopeId(known.unwrap_or_else(|| {
            self.graph.ropes.push(rope);
            self.graph.ropes.len() - 1
        }));
        self.push(
            label,
            Op::Rope(RotateHeads { rope: id, head_dim }),
            vec![x],
            self.width(x),
        )
    }

    /// `a + b`.
    pub(crate) fn add(&mut self, label: &'static str, a: ValueId, b: ValueId) -> ValueId {
        self.push(label, Op::Add(Add), vec![a, b], self.width(a))
    }

    /// The last norm and the logits.
    pub(crate) fn head(&mut self, x: ValueId) -> Result<(), Error> {
        let normed = self.norm("output_norm", Role::OutputNorm, x)?;
        let has_table = self
            .catalog
            .has(&self.spell(self.name(Role::TokenEmbedding)));
        let has_head = self.catalog.has(&self.spell(self.name(Role::Output)));
        let role = match self.config.tied_head && (has_table || !has_head) {
            true => Role::TokenEmbedding,
            false => Role::Output,
        };
        let logits = self.linear("lm_head", role, false, normed)?;
        self.graph.head_input = Some(normed);
        self.graph.logits = Some(logits);
        Ok(())
    }

    /// The finished graph.
    ///
    /// # Errors
    /// [`Error::UnknownTensor`] if a block of the checkpoint holds a weight the graph has no use for.
    pub(crate) fn finish(self) -> Result<Graph, Error> {
        let used: std::collections::HashSet<&str> = self
            .graph
            .weights
            .iter()
            .map(|weight| weight.name.as_str())
            .collect();
        let mut unknown: Vec<&str> = self
            .catalog
            .names()
            .filter(|name| !used.contains(name) && self.is_of_a_block(name))
            .collect();
        unknown.sort_unstable();
        match unknown.first() {
            None => Ok(self.graph),
            Some(name) => Err(Error::UnknownTensor {
                file: self.catalog.file().into(),
                tensor: (*name).into(),
                family: self.family.name,
            }),
        }
    }

    /// Whether a tensor is a parameter of one of the text model's blocks. Tensors elsewhere do not
    /// take part in the text model; [`crate::warnings()`] names them.
    fn is_of_a_block(&self, name: &str) -> bool {
        let blocks = match self.catalog.layout() {
            Layout::Gguf => "blk.".to_owned(),
            Layout::HuggingFace | Layout::Q4nx => format!("{}layers.", self.catalog.hf_prefix()),
        };
        name.starts_with(&blocks) && !warnings::is_derived(name)
    }
}
