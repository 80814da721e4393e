//! Builds a graph step by step, checking every weight against the checkpoint as it is named.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::Error;
use crate::arch::{self, Conventions, Family, WeightConvention, norm};
use crate::catalog::Catalog;
use crate::config::{HeadSizes, ModelConfig};
use crate::derive;
use crate::names::{ParameterKind, TensorName, WeightRole};
use crate::warnings;
use millrace_graph::{
    Add, Derivation, Embed, Graph, Linear, Node, Op, Rope, RopeId, RotateHeads, Scale,
    ScaleByWeight, Softcap, Value, ValueId, Weight, WeightId, WeightSource,
};
use millrace_quant::DType;

/// A graph under construction.
pub(crate) struct GraphBuilder<'a> {
    config: &'a ModelConfig,
    family: &'static Family,
    layout: WeightConvention,
    conventions: Conventions,
    tensors: Tensors<'a>,
    /// The blocks that are built.
    layers: Range<usize>,
    graph: Graph,
    weights: HashMap<TensorName, WeightId>,
    layer: Option<usize>,
    /// Weights that files may have though nothing reads them.
    unread: HashSet<String>,
    /// Recurrent states that nodes have so far.
    n_states: usize,
}

/// The weights that there are.
enum Tensors<'a> {
    /// Those of a checkpoint.
    Checkpoint(&'a Catalog<'a>),
    /// Whatever the family asks for, in the order of asking.
    Any(Vec<TensorLayout>),
}

/// A tensor of a layout, and the weights that graphs read from it.
#[derive(Clone, Debug)]
pub(crate) struct TensorLayout {
    pub(crate) name: TensorName,
    /// Slowest dimension first; where each expert has a tensor, of all of them together.
    pub(crate) shape: Vec<usize>,
    pub(crate) uses: Vec<TensorUse>,
}

/// A weight that is read from a tensor.
#[derive(Clone, Debug)]
pub(crate) struct TensorUse {
    pub(crate) weight: TensorName,
    /// The weight's own shape.
    pub(crate) shape: Vec<usize>,
    pub(crate) source: WeightSource,
}

/// The tensors that a configuration calls for in some blocks, in the order in which they are read.
pub(crate) fn layout(
    config: &ModelConfig,
    layout: WeightConvention,
    layers: Range<usize>,
) -> Vec<TensorLayout> {
    let family = arch::by_name(config.family);
    let tensors = Tensors::Any(Vec::new());
    let mut builder = GraphBuilder::of(config, family, (tensors, layout));
    builder.layers = layers;
    // Nothing is missing where there is whatever is asked for.
    let _ = (family.build)(&mut builder);
    match builder.tensors {
        Tensors::Any(tensors) => tensors,
        Tensors::Checkpoint(_) => Vec::new(),
    }
}

/// What the weights of a checkpoint are, by name.
pub(crate) fn weights_of(
    config: &ModelConfig,
    catalog: &Catalog<'_>,
) -> Result<HashMap<TensorName, Weight>, Error> {
    let family = arch::by_name(config.family);
    let mut builder = GraphBuilder::new(config, family, catalog);
    (family.build)(&mut builder)?;
    let weight = |id: WeightId| builder.graph.weights[id.0].clone();
    let weights = builder.weights.iter();
    Ok(weights.map(|(name, id)| (*name, weight(*id))).collect())
}

impl<'a> GraphBuilder<'a> {
    pub(crate) fn new(
        config: &'a ModelConfig,
        family: &'static Family,
        catalog: &'a Catalog<'a>,
    ) -> GraphBuilder<'a> {
        let tensors = (Tensors::Checkpoint(catalog), catalog.layout());
        GraphBuilder::of(config, family, tensors)
    }

    fn of(
        config: &'a ModelConfig,
        family: &'static Family,
        (tensors, layout): (Tensors<'a>, WeightConvention),
    ) -> GraphBuilder<'a> {
        GraphBuilder {
            config,
            family,
            layout,
            conventions: family.conventions(layout),
            tensors,
            layers: 0..config.n_layers,
            graph: Graph::default(),
            weights: HashMap::new(),
            layer: None,
            n_states: 0,
            unread: HashSet::new(),
        }
    }

    /// Sizes of the heads of the layer that is built.
    pub(crate) fn heads(&self) -> HeadSizes {
        self.config.heads_of(self.layer.unwrap_or(0))
    }

    /// Width of the feed-forward of the layer that is built.
    pub(crate) fn d_ff(&self) -> usize {
        self.config.d_ff_of(self.layer.unwrap_or(0))
    }

    /// Files may have this weight, which nothing reads.
    pub(crate) fn unread(&mut self, role: WeightRole) {
        let name = self.spell(self.name(role));
        self.unread.insert(name);
    }

    /// A vector of ones, for a norm without a weight. No file has it.
    pub(crate) fn ones(&mut self, n_elems: usize) -> WeightId {
        let source = WeightSource::Derived(Derivation::Ones);
        let is_it = |weight: &Weight| weight.source == source && weight.k == n_elems;
        let known = self.graph.weights.iter().position(is_it);
        WeightId(known.unwrap_or_else(|| {
            self.graph.weights.push(Weight {
                name: format!("{n_elems} ones"),
                source: source.clone(),
                n_experts: 1,
                n: 1,
                k: n_elems,
                dtype: DType::F32,
            });
            self.graph.weights.len() - 1
        }))
    }

    /// The number of a state for the next node that has one.
    pub(crate) fn next_state(&mut self) -> usize {
        self.n_states += 1;
        self.n_states - 1
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
        self.weight_from(name, name, shape, WeightSource::Whole)
    }

    /// The weight that is known as `name` and of this shape, some rows of the matrices of another one.
    pub(crate) fn rows_of(
        &mut self,
        (name, shape): (TensorName, &[usize]),
        fused: (TensorName, usize),
        first: usize,
    ) -> Result<WeightId, Error> {
        let (fused, n_rows) = fused;
        self.weight_from(name, fused, shape, WeightSource::Rows { first, n_rows })
    }

    /// The weight that is known as `name`, from a tensor.
    pub(crate) fn weight_from(
        &mut self,
        name: TensorName,
        tensor: TensorName,
        shape: &[usize],
        source: WeightSource,
    ) -> Result<WeightId, Error> {
        if let Some(&id) = self.weights.get(&name) {
            return Ok(id);
        }
        let (n_experts, n, k) = match *shape {
            [n_experts, n, k] => (n_experts, n, k),
            [n, k] => (1, n, k),
            _ => (1, 1, shape[0]),
        };
        let spelled = self.spell(tensor);
        let (source, dtype) = match &mut self.tensors {
            Tensors::Checkpoint(catalog) => locate(catalog, &spelled, shape, source)?,
            Tensors::Any(asked) => {
                ask(asked, (name, tensor), shape, &source);
                (source, DType::F32)
            }
        };
        let id = WeightId(self.graph.weights.len());
        self.graph.weights.push(Weight {
            n_experts,
            name: spelled,
            source,
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

    /// The bias beside the weight of this role, of this shape.
    pub(crate) fn bias(&mut self, role: WeightRole, shape: &[usize]) -> Result<WeightId, Error> {
        self.weight(self.name(role).bias(), shape)
    }

    /// A matrix of this role for each expert: `[n_experts, n, k]`.
    pub(crate) fn experts(
        &mut self,
        role: WeightRole,
        shape: [usize; 3],
    ) -> Result<WeightId, Error> {
        self.weight(self.name(role), &shape)
    }

    /// The name of this role here.
    pub(crate) fn name_of(&self, role: WeightRole) -> TensorName {
        self.name(role)
    }

    /// Whether the weights lie as in GGUF files.
    pub(crate) fn is_gguf(&self) -> bool {
        self.layout == WeightConvention::Gguf
    }

    /// Whether the family's files of this layout have a weight of this role, which not all families have.
    pub(crate) fn has_role(&self, role: WeightRole) -> bool {
        let family = self.family;
        let of_layout = match self.layout {
            WeightConvention::Gguf => family.gguf_roles,
            WeightConvention::HuggingFace | WeightConvention::Q4nx => family.hf_roles,
        };
        family.own_roles.contains(&role) || of_layout.contains(&role)
    }

    /// Whether the checkpoint has a tensor whose name is that of this role with these letters behind it.
    pub(crate) fn has_part(&self, role: WeightRole, part: &str) -> bool {
        match &self.tensors {
            Tensors::Checkpoint(catalog) => {
                catalog.has(&format!("{}{part}", self.spell(self.name(role))))
            }
            Tensors::Any(_) => false,
        }
    }

    /// The family whose graph this is.
    pub(crate) fn family(&self) -> &'static Family {
        self.family
    }

    /// Dimensions of the tensor of this name; `None` where there is none.
    pub(crate) fn rank_of(&self, name: TensorName) -> Option<usize> {
        match &self.tensors {
            Tensors::Checkpoint(catalog) => catalog.shape(&self.spell(name)).map(<[usize]>::len),
            Tensors::Any(_) => None,
        }
    }

    /// Whether the checkpoint has this weight, which not all of its family have.
    pub(crate) fn has_own(&self, name: TensorName) -> bool {
        match &self.tensors {
            Tensors::Checkpoint(catalog) => {
                let spelled = self.spell(name);
                catalog.has(&spelled) || catalog.has(&spelled.replacen("{}", "0", 1))
            }
            Tensors::Any(_) => match name.part {
                ParameterKind::Scale => self.family.has_scale(name.role),
                _ => self.has_role(name.role),
            },
        }
    }

    fn spell(&self, name: TensorName) -> String {
        match self.tensors {
            Tensors::Checkpoint(catalog) if catalog.layout() != WeightConvention::Gguf => {
                let hf = name.hf(catalog.hf_prefix(), self.family.hf_names());
                // A role that these files have no name for is one that they lack.
                hf.unwrap_or_else(|| name.gguf())
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
        // A factor comes before the bias.
        if !self.has_own(name.scale()) {
            return Ok(self.push(label, Op::Linear(Linear { weight, bias }), vec![x], n));
        }
        let out = self.product(label, (weight, None), x);
        let scaled = self.scaled(name, out)?;
        match bias {
            None => Ok(scaled),
            Some(_) => Err(self.unsupported_bias(name)),
        }
    }

    /// Products with a weight, times the factor that its file has beside it, if it has one.
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

    fn unsupported_bias(&self, name: TensorName) -> Error {
        Error::Unsupported {
            file: match &self.tensors {
                Tensors::Checkpoint(catalog) => catalog.file().into(),
                Tensors::Any(_) => String::new(),
            },
            feature: format!("`{}` beside `{}`", name.bias(), name.scale()),
            supported: "a bias or a scale beside a matrix".into(),
        }
    }

    /// As [`linear`](GraphBuilder::linear), of weights that stand in the graph already.
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
        let rope = Rope {
            style: self.conventions.rope_style,
            n_rot,
            inv_freq: config.inv_freq(n_rot),
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

    /// What a half of a block adds to the stream `x`.
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
        self.head_of(normed)
    }

    /// The logits, of the last norm's output.
    pub(crate) fn head_of(&mut self, normed: ValueId) -> Result<(), Error> {
        let (has_table, has_head) = (
            self.has(WeightRole::TokenEmbedding),
            self.has(WeightRole::Output),
        );
        let role = match self.config.tied_head && (has_table || !has_head) {
            true => WeightRole::TokenEmbedding,
            false => WeightRole::Output,
        };
        let vocab_size = self.config.vocab_size;
        let scaled = self.scale("logit_scale", self.config.logit_scale, normed);
        let weight = self.weight(self.name(role), &[vocab_size, self.width(scaled)])?;
        // A head that is the table has a bias of its own.
        let bias = TensorName::global(WeightRole::Output).bias();
        let bias = match self.has_own(bias) {
            true => Some(self.weight(bias, &[vocab_size])?),
            false => None,
        };
        let mut logits = self.product("lm_head", (weight, bias), scaled);
        if let Some(cap) = self.config.logit_softcap {
            logits = self.push(
                "logit_softcap",
                Softcap { cap }.into(),
                vec![logits],
                vocab_size,
            );
        }
        self.graph.head_input = Some(normed);
        self.graph.logits = Some(logits);
        Ok(())
    }

    /// The graph ends with this hidden state, and has no head.
    pub(crate) fn encoded(&mut self, x: ValueId) {
        self.graph.head_input = Some(x);
    }

    /// The finished graph.
    ///
    /// # Errors
    /// [`Error::UnknownTensor`] if a block of the checkpoint holds a weight the graph has no use for.
    pub(crate) fn finish(self) -> Result<Graph, Error> {
        let Tensors::Checkpoint(catalog) = self.tensors else {
            return Ok(self.graph);
        };
        let used: HashSet<Cow<'_, str>> = self
            .graph
            .weights
            .iter()
            .flat_map(Weight::tensors)
            .collect();
        let mut unknown: Vec<&str> = catalog
            .names()
            .filter(|name| {
                let is_known = used.contains(*name) || self.unread.contains(*name);
                !is_known && is_of_a_block(catalog, name, (self.family, self.config.n_layers))
            })
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

/// What the tensor as a whole is that a weight of this shape is read from.
fn stored_shape(shape: &[usize], source: &WeightSource) -> Vec<usize> {
    let mut stored = shape.to_vec();
    match source {
        WeightSource::Rows { n_rows, .. } => {
            let rows = stored.len().saturating_sub(2);
            stored[rows] = *n_rows;
            stored
        }
        WeightSource::Derived(derivation) => derive::stored_shape(derivation, shape),
        WeightSource::Whole | WeightSource::Experts(_) => stored,
    }
}

fn ask(
    asked: &mut Vec<TensorLayout>,
    (weight, name): (TensorName, TensorName),
    shape: &[usize],
    source: &WeightSource,
) {
    let known = asked.iter().position(|tensor| tensor.name == name);
    let known = known.unwrap_or_else(|| {
        asked.push(TensorLayout {
            name,
            shape: stored_shape(shape, source),
            uses: Vec::new(),
        });
        asked.len() - 1
    });
    asked[known].uses.push(TensorUse {
        weight,
        shape: shape.to_vec(),
        source: source.clone(),
    });
}

/// A weight's format, and where it is: where each expert has a tensor of its own, their names.
fn locate(
    catalog: &Catalog<'_>,
    name: &str,
    shape: &[usize],
    source: WeightSource,
) -> Result<(WeightSource, DType), Error> {
    if let WeightSource::Derived(derivation) = &source {
        let dtype = derive::check(catalog, name, derivation, shape)?;
        return Ok((source, dtype));
    }
    let mut shape = stored_shape(shape, &source);
    if let (&[n_heads, n_rows, k], WeightSource::Rows { .. }) = (&shape[..], &source)
        && catalog.shape(name).is_some_and(|found| found.len() == 2)
    {
        // Matrices of heads may stand one below the other in one matrix.
        shape = vec![n_heads * n_rows, k];
    }
    let shape = shape.as_slice();
    let (&[n_experts, n, k], true) = (shape, name.contains("{}")) else {
        return Ok((source, catalog.check(name, shape)?));
    };
    let names = (0..n_experts).map(|expert| name.replacen("{}", &expert.to_string(), 1));
    let names: Vec<String> = names.collect();
    let mut dtype = DType::F32;
    for (expert, name) in names.iter().enumerate() {
        let found = catalog.check(name, &[n, k])?;
        if expert > 0 && found != dtype {
            return Err(Error::TensorType {
                file: catalog.file().into(),
                tensor: name.clone(),
                found: found.name().into(),
                expected: format!("{}, as of the experts before", dtype.name()),
            });
        }
        dtype = found;
    }
    Ok((WeightSource::Experts(names), dtype))
}

/// Whether a tensor is a parameter of one of the text model's blocks. Tensors elsewhere do not
/// take part in the text model, nor do blocks behind its last, which predict further tokens; [`crate::warnings()`]
/// names both.
fn is_of_a_block(catalog: &Catalog<'_>, name: &str, (family, n_layers): (&Family, usize)) -> bool {
    let blocks = match catalog.layout() {
        WeightConvention::Gguf => "blk.".to_owned(),
        WeightConvention::HuggingFace | WeightConvention::Q4nx => {
            format!("{}{}.", catalog.hf_prefix(), family.hf_layers)
        }
    };
    let Some(rest) = name.strip_prefix(&blocks) else {
        return false;
    };
    let number = rest.split('.').next().and_then(|layer| layer.parse().ok());
    let is_behind = number.is_some_and(|layer: usize| layer >= n_layers);
    !is_behind && !warnings::is_derived(name)
}
