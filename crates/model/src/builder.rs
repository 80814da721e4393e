//! Builds a graph step by step, checking every weight against the checkpoint as it is named.

mod draft;
mod layout;
mod locate;
mod ops;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

pub(crate) use layout::{TensorLayout, TensorUse, draft_layout, layout, weights_of};

use crate::Error;
use crate::arch::draft::DraftLayer;
use crate::arch::{Conventions, Family, WeightConvention};
use crate::catalog::Catalog;
use crate::config::{HeadSizes, ModelConfig};
use crate::names::{ParameterKind, TensorName, WeightRole};
use millrace_graph::{Graph, Node, Op, Value, ValueId, Weight, WeightId, WeightSource};
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
    /// Slopes by which scores of heads fall with the distance of the key, for all layers.
    slopes: Option<Arc<[f32]>>,
    /// Where the weights of the blocks are, if they are those of a draft layer.
    draft: Option<DraftPlace>,
}

/// Where a checkpoint has its draft layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftPlace {
    pub(crate) layer: DraftLayer,
    /// The number of its block.
    pub(crate) block: usize,
    /// Prefix of Hugging Face names of a layer that is stored separately; `None` where it is a block behind the last.
    pub(crate) hf_prefix: Option<&'static str>,
}

/// The available weights.
enum Tensors<'a> {
    /// The weights of a checkpoint.
    Checkpoint(&'a Catalog<'a>),
    /// Records every tensor that the family asks for, in the order of asking.
    Any(Vec<TensorLayout>),
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
            slopes: config.distance_slopes(),
            unread: HashSet::new(),
            draft: None,
        }
    }

    /// For the draft layer of a checkpoint, whose configuration is that of [a model of one block](crate::arch::draft::config_of).
    pub(crate) fn of_draft(self, place: DraftPlace) -> GraphBuilder<'a> {
        GraphBuilder {
            draft: Some(place),
            ..self
        }
    }

    /// Sizes of the heads of the layer that is built.
    pub(crate) fn heads(&self) -> HeadSizes {
        self.config.heads_of(self.layer.unwrap_or(0))
    }

    /// Query heads of the layer that is built.
    pub(crate) fn n_heads(&self) -> usize {
        self.config.n_heads_of(self.layer.unwrap_or(0))
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

    /// Slopes by which scores of heads fall with the distance of the key.
    pub(crate) fn slopes(&self) -> Option<Arc<[f32]>> {
        self.slopes.clone()
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
            Some(layer) => {
                let first = self.draft.map_or(0, |draft| draft.block);
                TensorName::block(first + layer, role)
            }
            None => TensorName::global(role),
        }
    }

    fn weight(&mut self, name: TensorName, shape: &[usize]) -> Result<WeightId, Error> {
        self.weight_from(name, name, shape, WeightSource::Whole)
    }

    /// The weight known as `name`, of this shape: some rows of the matrices of another weight.
    pub(crate) fn rows_of(
        &mut self,
        (name, shape): (TensorName, &[usize]),
        fused: (TensorName, usize),
        first: usize,
    ) -> Result<WeightId, Error> {
        let (fused, n_rows) = fused;
        self.weight_from(name, fused, shape, WeightSource::Rows { first, n_rows })
    }

    /// The weight known as `name`, from a tensor.
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
        let spelled = self.spell(tensor);
        let (source, dtype) = match &mut self.tensors {
            Tensors::Checkpoint(catalog) => locate::locate(catalog, &spelled, shape, source)?,
            Tensors::Any(asked) => {
                layout::ask(asked, (name, tensor), shape, &source);
                (source, DType::F32)
            }
        };
        let (n_experts, n, k) = match (shape, &source) {
            (&[n_experts, n, k], _) => (n_experts, n, k),
            (&[_, k], WeightSource::Experts(names)) => (names.len(), 1, k),
            (&[n, k], _) => (1, n, k),
            // Vectors and convolutions of files that have dimensions of one before or between theirs.
            (&[a, b, n, k], _) => (a * b, n, k),
            (_, WeightSource::Experts(names)) => (names.len(), 1, 1),
            _ => (1, 1, shape[0]),
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

    /// The weight of this role as a vector of the given length.
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

    /// Whether the weights have the layout of GGUF files.
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
        let is_left_out = role == WeightRole::AttnSinks
            && self
                .layer
                .is_some_and(|layer| self.config.layers.without_sinks.contains(&layer));
        !is_left_out && (family.own_roles.contains(&role) || of_layout.contains(&role))
    }

    /// Whether the checkpoint has a tensor whose name is that of this role plus these letters.
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

    /// Whether the tensor of this name has this shape.
    pub(crate) fn has_shape(&self, name: TensorName, shape: &[usize]) -> bool {
        match &self.tensors {
            Tensors::Checkpoint(catalog) => catalog.shape(&self.spell(name)) == Some(shape),
            Tensors::Any(_) => true,
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
                ParameterKind::Scale => self.family.hf_names().scale_of(name.role).is_some(),
                ParameterKind::Bias if name.role == WeightRole::Output => {
                    self.config.layers.head_bias || self.has_role(name.role)
                }
                _ => self.has_role(name.role),
            },
        }
    }

    fn spell(&self, name: TensorName) -> String {
        match self.tensors {
            Tensors::Checkpoint(catalog) if catalog.layout() != WeightConvention::Gguf => {
                if let Some(draft) = &self.draft
                    && let Some(spelled) = draft.hf(name, self.family)
                {
                    return spelled;
                }
                let hf = catalog.hf_name(self.family, name);
                // A role without a name in these files is one that they lack.
                hf.unwrap_or_else(|| name.gguf())
            }
            _ => name.gguf(),
        }
    }

    /// Whether there is a weight of this role here; where nothing is missing, whether it is called for.
    pub(crate) fn has(&self, role: WeightRole) -> bool {
        match &self.tensors {
            Tensors::Checkpoint(catalog) => catalog.has(&self.spell(self.name(role))),
            // A head that is the table is written once. A table that is stored scaled cannot be the head, so
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
        let without_factor = catalog
            .factors()
            .filter(|(matrix, factor)| used.contains(matrix.as_str()) && !used.contains(*factor));
        let without_factor = without_factor.map(|(_, factor)| factor);
        let mut unknown: Vec<&str> = catalog
            .names()
            .filter(|name| {
                let is_known = used.contains(*name)
                    || self.unread.contains(*name)
                    || catalog.is_zero_bias(name)
                    // Of a network without elements.
                    || catalog.shape(name).is_some_and(|shape| shape.contains(&0));
                !is_known
                    && match &self.draft {
                        Some(draft) => draft.holds(catalog, name, self.family),
                        None => {
                            let blocks = 0..self.config.n_layers;
                            locate::is_of_a_block(catalog, name, (self.family, blocks))
                        }
                    }
            })
            .chain(without_factor)
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
