//! Assistants beside the models that they draft for: whether they fit, and which of a model's caches they read.

use millrace_graph::{Attention, Graph, KvShape, Node, Op, Rope, SequenceMemory, TargetAttention};

use crate::{Error, Model, TargetDifference, arch};

/// Relative difference of RoPE frequencies that comes of the formats of files.
const FREQUENCY_TOLERANCE: f32 = 1e-5;

type Difference = Box<TargetDifference>;

fn difference(
    key: impl Into<String>,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> Difference {
    Box::new(TargetDifference {
        key: key.into(),
        found: found.into(),
        expected: expected.into(),
    })
}

impl Model {
    /// Whether it drafts for another model with that model's keys and values, and runs with it alone.
    pub fn is_assistant(&self) -> bool {
        arch::by_name(self.config.family).is_assistant()
    }

    /// This assistant for a target: its layers read the target's last cache of their kind, with a window or without.
    /// `file` and `of` are the names of the two for messages.
    ///
    /// # Errors
    /// [`Error::OtherTarget`] with the first value that does not fit: widths, vocabularies, kinds of layers, windows, heads,
    /// RoPE frequencies.
    pub fn for_target(&self, file: &str, (target, of): (&Model, &str)) -> Result<Model, Error> {
        let graph = self.bound_to(target);
        let graph = graph.map_err(|difference| Error::OtherTarget {
            file: file.into(),
            target: of.into(),
            difference,
        })?;
        Ok(Model {
            config: self.config.clone(),
            graph,
        })
    }

    fn bound_to(&self, target: &Model) -> Result<Graph, Difference> {
        let (own, whole) = (&self.config, &target.config);
        same("width of the target", own.layers.target_dim, whole.d_model)?;
        same("vocabulary", own.vocab_size, whole.vocab_size)?;
        let mut graph = self.graph.clone();
        let ropes = graph.ropes.clone();
        let mut q_rope = None;
        for node in &mut graph.nodes {
            q_rope = rotation(&node.op, &ropes).or(q_rope);
            if let Op::TargetAttention(TargetAttention { attention }) = &mut node.op {
                bind(attention, (node.layer, q_rope.take()), target)?;
            }
        }
        Ok(graph)
    }
}

/// Makes the attention of a layer read the target's cache, whose queries rotate so.
fn bind(
    attention: &mut Attention,
    (layer, q_rope): (Option<usize>, Option<&Rope>),
    target: &Model,
) -> Result<(), Difference> {
    let layer = layer.unwrap_or(0);
    let (kind, slides) = match attention.window {
        Some(_) => ("with a window", true),
        None => ("without a window", false),
    };
    let nodes = target.graph.nodes.iter().rev();
    let mut caches = nodes.filter_map(|node| Some((node, cache_of(node)?)));
    let found = caches.find(|(_, kv)| kv.window.is_some() == slides);
    let (node, kv) = found.ok_or_else(|| {
        let key = format!("kind of layer {layer}");
        difference(key, kind, "in no layer")
    })?;
    // The last of them is the last cached token, which a target's window counts from the token behind it.
    let own_window = attention.window.map(|window| window - 1);
    let of = |name: &str| format!("{name} of layer {layer}");
    if let (Some(own), Some(window)) = (own_window, kv.window) {
        same(&of("window"), own, window)?;
    }
    same(&of("key/value heads"), attention.n_kv_heads, kv.n_kv_heads)?;
    same(&of("head size"), attention.head_dim, kv.head_dim)?;
    let pairs = |rope: Option<&Rope>| rope.map_or_else(Vec::new, |rope| rope.inv_freq.clone());
    let (own, whole) = (pairs(q_rope), pairs(rope_of(&target.graph, node)));
    let differs = |(own, whole): (&f32, &f32)| {
        (own - whole).abs() > FREQUENCY_TOLERANCE * own.abs().max(whole.abs())
    };
    same(&of("rotated pairs"), own.len(), whole.len())?;
    if let Some(pair) = own.iter().zip(&whole).position(differs) {
        let key = of(&format!("RoPE frequency {pair}"));
        return Err(difference(
            key,
            own[pair].to_string(),
            whole[pair].to_string(),
        ));
    }
    attention.layer = kv.layer;
    Ok(())
}

/// The cache that a node fills.
fn cache_of(node: &Node) -> Option<KvShape> {
    match node.op.memory() {
        SequenceMemory::KvCache(kv) => Some(kv),
        _ => None,
    }
}

/// The rotation of the queries of an attention.
fn rope_of<'g>(graph: &'g Graph, attention: &Node) -> Option<&'g Rope> {
    let q = attention.inputs.first()?;
    let node = graph.nodes.iter().find(|node| node.output == *q)?;
    rotation(&node.op, &graph.ropes)
}

/// The table of an op that rotates.
fn rotation<'g>(op: &Op, ropes: &'g [Rope]) -> Option<&'g Rope> {
    match op {
        Op::Rope(rope) => ropes.get(rope.rope.0),
        _ => None,
    }
}

fn same(key: &str, found: usize, expected: usize) -> Result<(), Difference> {
    match found == expected {
        true => Ok(()),
        false => Err(difference(key, found.to_string(), expected.to_string())),
    }
}
