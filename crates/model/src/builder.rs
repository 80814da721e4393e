//! Builds a graph step by step, checking every weight against the checkpoint as it is named.

use std::collections::HashMap;
use std::ops::Range;

use crate::Error;
use crate::arch::{self, Conventions, Family, WeightConvention, norm};
use crate::catalog::Catalog;
use crate::config::ModelConfig;
use crate::names::{TensorName, WeightRole};
use crate::warnings;
use millrace_graph::{
    Add, Embed, Graph, Linear, Node, Op, Rope, RopeId, RotateHeads, Value, ValueId, Weight,
    WeightId,
};
use millrace_quant::DType;

/// A graph under construction.
pub(crate) struct GraphBuilder<'a> {
    config: &'a ModelConfig,
    family: &'static Family,
    conventions: Conventions,
    tensors: Tensors<'a>,
    /// The blocks that are built.
    layers: Range<usize>,
    graph: Graph,
    weights: HashMap<TensorName, WeightId>,
    layer: Option<usize>,
}

/// The weights that there are.
enum Tensors<'a> {
    /// Those of a checkpoint.
    Checkpoint(&'a Catalog<'a>),
    /// Whatever the family asks for: its names and shapes, in the order of asking.
    Any(Vec<(TensorName, Vec<usize>)>),
}

/// The weights that a configuration calls for in some blocks, with their shapes (slowest dimension first), in
/// the order in which they are read.
pub(crate) fn weights(
    config: &ModelConfig,
    layout: WeightConvention,
    layers: Range<usize>,
) -> Vec<(TensorName, Vec<usize>)> {
    let family = arch::by_name(config.family);
    let mut builder = GraphBuilder {
        config,
        family,
        conventions: family.conventions(layout),
        tensors: Tensors::Any(Vec::new()),
        layers,
        graph: Graph::default(),
        weights: HashMap::new(),
        layer: None,
    };
    // Nothing is missing where there is whatever is asked for.
    let _ = (family.build)(&mut builder);
    match builder.tensors {
        Tensors::Any(weights) => weights,
        Tensors::Checkpoint(_) => Vec::new(),
    }
}

impl<'a> GraphBuilder<'a> {
    pub(crate) fn new(
        config: &'a ModelConfig,
        family: &'static Family,
        catalog: &'a Catalog<'a>,
    ) -> GraphBuilder<'a> {
        GraphBuilder {
            config,
            family,
            conventions: family.conventions(catalog.layout()),
            tensors: Tensors::Checkpoint(catalog),
            layers: 0..config.n_layers,
            graph: Graph::default(),
            weights: HashMap::new(),
            layer: None,
        }
    }

    /// The blocks to build, by number.
    pub(crate) fn layers(&self) -> Range<usize> {
        self.layers.clone()
    }

    pub(crate) fn config(&self) -> &'a ModelConfig {
        self.config
    }

    /// What is added to every norm's weight.
    pub(crate) fn norm_offset(&self) -> f32 {
        self.conventions.norm_offset
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

    /// Elements a token of a value.
    pub(crate) fn width(&self, value: ValueId) -> usize {
        self.graph.values[value.0].width
    }

    fn name(&self, role: WeightRole) -> TensorName {
        match self.layer.filter(|_| role.is_per_layer()) {
            Some(layer) => TensorName::block(layer, role),
            None => TensorName::global(role),
        }
    }

    fn weight(&mut self, name: TensorName, shape: &[usize]) -> Result<WeightId, Error> {
        if let Some(&id) = self.weights.get(&name) {
            return Ok(id);
        }
        let spelled = self.spell(name);
        let dtype = match &mut self.tensors {
            Tensors::Checkpoint(catalog) => catalog.check(&spelled, shape)?,
            Tensors::Any(asked) => {
                asked.push((name, shape.to_vec()));
                DType::F32
            }
        };
        let (n, k) = match *shape {
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

    /// The weight of this role as a vector of so many elements.
    pub(crate) fn vector(&mut self, role: WeightRole, n_elems: usize) -> Result<WeightId, Error> {
        self.weight(self.name(role), &[n_elems])
    }

    fn spell(&self, name: TensorName) -> String {
        match self.tensors {
            Tensors::Checkpoint(catalog) if catalog.layout() != WeightConvention::Gguf => {
                let hf = name.hf(catalog.hf_prefix(), self.family.hf_norms);
                hf.expect("families use only roles that their own naming table has")
            }
            _ => name.gguf(),
        }
    }

    fn has(&self, role: WeightRole) -> bool {
        match &self.tensors {
            Tensors::Checkpoint(catalog) => catalog.has(&self.spell(self.name(role))),
            // A head that is the table is written once; a table that is stored scaled cannot be the head, so
            // it is the head that serves as both.
            Tensors::Any(..) => {
                let is_head = self.config.tied_head && self.conventions.embed_prescaled;
                match role {
                    WeightRole::Output => is_head || !self.config.tied_head,
                    _ => !is_head,
                }
            }
        }
    }

    /// The embeddings as they enter the first block.
    pub(crate) fn embed(&mut self) -> Result<ValueId, Error> {
        let prescaled = self.conventions.embed_prescaled;
        // Without a table the head is it; where tables are stored scaled, the head is not.
        let alone = self.has(WeightRole::Output) && !self.has(WeightRole::TokenEmbedding);
        let is_head = alone && (prescaled || self.config.tied_head);
        let table = match is_head {
            true => WeightRole::Output,
            false => WeightRole::TokenEmbedding,
        };
        let shape = [self.config.vocab_size, self.config.d_model];
        let table = self.weight(self.name(table), &shape)?;
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
        let normed = norm::stream(self, "output_norm", WeightRole::OutputNorm, x)?;
        let (has_table, has_head) = (
            self.has(WeightRole::TokenEmbedding),
            self.has(WeightRole::Output),
        );
        let role = match self.config.tied_head && (has_table || !has_head) {
            true => WeightRole::TokenEmbedding,
            false => WeightRole::Output,
        };
        let vocab_size = self.config.vocab_size;
        let logits = self.linear("lm_head", role, (vocab_size, false), normed)?;
        self.graph.head_input = Some(normed);
        self.graph.logits = Some(logits);
        Ok(())
    }

    /// The finished graph.
    ///
    /// # Errors
    /// [`Error::UnknownTensor`] if a block of the checkpoint holds a weight the graph has no use for.
    pub(crate) fn finish(self) -> Result<Graph, Error> {
        let Tensors::Checkpoint(catalog) = self.tensors else {
            return Ok(self.graph);
        };
        let used: std::collections::HashSet<&str> = self
            .graph
            .weights
            .iter()
            .map(|weight| weight.name.as_str())
            .collect();
        let mut unknown: Vec<&str> = catalog
            .names()
            .filter(|name| !used.contains(name) && is_of_a_block(catalog, name))
            .collect();
        unknown.sort_unstable();
        match unknown.first() {
            None => Ok(self.graph),
            Some(name) => Err(Error::UnknownTensor {
                file: catalog.file().into(),
                tensor: (*name).into(),
                family: self.family.name,
            }),
        }
    }
}

/// Whether a tensor is a parameter of one of the text model's blocks. Tensors elsewhere do not
/// take part in the text model; [`crate::warnings()`] names them.
fn is_of_a_block(catalog: &Catalog<'_>, name: &str) -> bool {
    let blocks = match catalog.layout() {
        WeightConvention::Gguf => "blk.".to_owned(),
        WeightConvention::HuggingFace | WeightConvention::Q4nx => {
            format!("{}layers.", catalog.hf_prefix())
        }
    };
    name.starts_with(&blocks) && !warnings::is_derived(name)
}
