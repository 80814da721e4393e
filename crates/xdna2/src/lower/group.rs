//! Grouping: which nodes share a dispatch.

use super::kernel::{Kernels, LoweredKernel};
use super::{
    ATTENTION_ALONE, Feature, HEAD_ALONE, HEAD_OF_ALL_ROWS, HostStep, LowerOptions, WITHIN_BLOCK,
};
use crate::mapping::q4nx::token;
use millrace_graph::{Node, Op, ValueId};
use millrace_plan::offload;

/// Nodes that become one program.
#[derive(Debug)]
pub(super) struct NodeGroup {
    /// Nodes and their kernels, in order.
    pub(super) members: Vec<(usize, Vec<LoweredKernel>)>,
    /// Block of the first node.
    pub(super) block: Option<usize>,
    /// Block of the last.
    pub(super) last_block: Option<usize>,
    /// Why it begins where it does.
    pub(super) reason: String,
}

/// Result of grouping a stretch of the graph.
#[derive(Debug)]
pub(super) enum GroupItem {
    Group(NodeGroup),
    Host {
        node: usize,
        steps: Vec<HostStep>,
        reason: String,
    },
    /// A host step without a node.
    Also(HostStep),
}

/// Kernels that share their program with nothing.
enum Alone {
    Attention,
    Experts,
    DeltaNet,
    Head,
}

/// Cuts the graph, in its order, into groups and host steps.
pub(super) fn items(kernels: &mut Kernels<'_>, options: &LowerOptions) -> Vec<GroupItem> {
    let mut cutter = Cutter {
        across_blocks: options.features.has(Feature::MergedBlocks),
        items: Vec::new(),
        open: None,
        appended: Vec::new(),
        cause: "the first op on the array".to_owned(),
    };
    for number in 0..kernels.graph.nodes.len() {
        match kernels.offer(number) {
            Err(reason) => cutter.host(kernels, number, reason),
            Ok(members) => cutter.device(kernels, number, members),
        }
    }
    cutter.close();
    cutter.items
}

/// The cut so far.
struct Cutter {
    across_blocks: bool,
    items: Vec<GroupItem>,
    open: Option<NodeGroup>,
    /// Rows that the host appends to the cache after the open group.
    appended: Vec<HostStep>,
    /// Why the next group begins.
    cause: String,
}

/// Blocks of a model that are one program of a token at most, where attention is among them: the stream of instructions
/// grows with them.
const BLOCKS_OF_A_TOKEN: usize = 64;

/// Why a program of so many blocks ends there.
const FULL: &str = "begins a program: the one before it has as many blocks as one may have, 64";

impl Cutter {
    /// Whether the open group has its full number of blocks, and the node begins another.
    fn is_full(&self, node: &Node) -> bool {
        let Some(open) = self.open.as_ref().filter(|open| open.attends()) else {
            return false;
        };
        let begins = node.layer.is_some() && node.layer != open.last_block;
        begins && open.n_blocks() >= BLOCKS_OF_A_TOKEN
    }

    /// Whether the node is the head and the open group has a token's layers, the last norm among them.
    fn takes_head(&self, kernels: &Kernels<'_>, node: &Node) -> bool {
        let open = self.open.as_ref().filter(|open| open.attends());
        let norm = open.and_then(|open| open.members.last());
        let feeds = |&(number, _): &(usize, _)| {
            let before: &Node = &kernels.graph.nodes[number];
            node.inputs.contains(&before.output)
        };
        kernels.has_head_among_layers() && kernels.is_head(node) && norm.is_some_and(feeds)
    }

    fn close(&mut self) {
        self.items.extend(self.open.take().map(GroupItem::Group));
        self.items
            .extend(self.appended.drain(..).map(GroupItem::Also));
    }

    fn host(&mut self, kernels: &Kernels<'_>, node: usize, reason: String) {
        self.close();
        let label = kernels.graph.nodes[node].label;
        self.cause = format!("begins a program: {label} before it is the host's");
        self.items.push(GroupItem::Host {
            node,
            steps: host_steps(kernels, node),
            reason,
        });
    }

    fn device(&mut self, kernels: &Kernels<'_>, number: usize, members: Vec<LoweredKernel>) {
        let node = &kernels.graph.nodes[number];
        let attends = members.iter().any(|k| k.built.mapping == token::NAME);
        let is_among = attends || self.takes_head(kernels, node);
        let alone = alone(kernels, node).filter(|_| !is_among);
        if self.is_full(node) {
            self.close();
            self.cause = FULL.to_owned();
        }
        if attends {
            self.appended.extend(offload::append_kv(node));
        } else if alone.is_some() {
            self.close();
            self.items
                .extend(offload::append_kv(node).map(GroupItem::Also));
            if let Some(Alone::DeltaNet) = alone {
                let rows = HostStep::DeltaRows { node: number };
                self.items.push(GroupItem::Also(rows));
            }
        } else if !self.across_blocks && self.open.as_ref().is_some_and(|g| g.block != node.layer) {
            self.close();
            self.cause = WITHIN_BLOCK.to_owned();
        }
        let reason = match alone {
            Some(Alone::Attention) => kernels
                .reasons
                .get(&number)
                .map_or(ATTENTION_ALONE, String::as_str),
            Some(Alone::Experts | Alone::DeltaNet) => {
                kernels.reasons.get(&number).map_or("", String::as_str)
            }
            Some(Alone::Head) if kernels.is_single_row() => {
                kernels.head_apart.as_deref().unwrap_or(HEAD_ALONE)
            }
            Some(Alone::Head) => HEAD_OF_ALL_ROWS,
            None => &self.cause,
        };
        let group = self.open.get_or_insert_with(|| NodeGroup {
            members: Vec::new(),
            block: node.layer,
            last_block: node.layer,
            reason: reason.to_owned(),
        });
        group.last_block = node.layer.or(group.last_block);
        group.members.push((number, members));
        if alone.is_some() {
            self.close();
            let label = node.label;
            self.cause = format!("begins a program: {label} before it has one of its own");
        }
    }
}

fn alone(kernels: &Kernels<'_>, node: &Node) -> Option<Alone> {
    match node.op {
        Op::Attention(_) => Some(Alone::Attention),
        Op::ExpertLinear(_) => Some(Alone::Experts),
        Op::DeltaNet(_) => Some(Alone::DeltaNet),
        _ if kernels.is_head(node) => Some(Alone::Head),
        _ => None,
    }
}

fn host_steps(kernels: &Kernels<'_>, number: usize) -> Vec<HostStep> {
    let node = &kernels.graph.nodes[number];
    let is_last_norm = kernels.is_single_row() && kernels.graph.head_input == Some(node.output);
    let half_split = kernels.orders.half_split.get(&number).copied();
    offload::host_steps(node, number, is_last_norm, half_split)
}

impl NodeGroup {
    /// Whether a token's attention is in it, together with the layers' other kernels.
    pub(super) fn attends(&self) -> bool {
        let mut all = self.members.iter().flat_map(|(_, kernels)| kernels);
        all.any(|kernel| kernel.built.mapping == token::NAME)
    }

    /// Whether the head is in it, after layers of a token.
    pub(super) fn has_head(&self, kernels: &Kernels<'_>) -> bool {
        let is_head = |&(node, _): &(usize, _)| kernels.is_head(&kernels.graph.nodes[node]);
        self.members.iter().any(is_head)
    }

    /// The blocks' nodes alone, as a group.
    pub(super) fn of_blocks(&self, kernels: &Kernels<'_>) -> NodeGroup {
        let of_block = |(node, _): &&(usize, _)| kernels.graph.nodes[*node].layer.is_some();
        NodeGroup {
            members: self.members.iter().filter(of_block).cloned().collect(),
            reason: self.reason.clone(),
            ..*self
        }
    }

    fn n_blocks(&self) -> usize {
        match (self.block, self.last_block) {
            (Some(first), Some(last)) => last + 1 - first,
            _ => 0,
        }
    }

    /// Whether the host appends the value to a cache after the group.
    fn appends(&self, kernels: &Kernels<'_>, value: ValueId) -> bool {
        let resident = |(_, members): &&(usize, Vec<LoweredKernel>)| {
            members.iter().any(|k| k.built.mapping == token::NAME)
        };
        let mut attending = self.members.iter().filter(resident);
        attending.any(|&(number, _)| kernels.graph.nodes[number].inputs[1..].contains(&value))
    }

    /// Whether a value that the group writes is used outside of it.
    pub(super) fn gives_out(&self, kernels: &Kernels<'_>, value: ValueId) -> bool {
        let graph = kernels.graph;
        let mine = |node: usize| self.members.iter().any(|&(number, _)| number == node);
        let mut readers = graph
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, n)| n.inputs.contains(&value));
        let outside = readers.clone().any(|(number, _)| !mine(number));
        outside
            || self.appends(kernels, value)
            || readers.next().is_none()
            || graph.logits == Some(value)
    }

    /// The group's node that writes a value.
    pub(super) fn producer<'k>(&self, kernels: &Kernels<'k>, value: ValueId) -> Option<&'k Node> {
        let nodes = self
            .members
            .iter()
            .map(|&(number, _)| &kernels.graph.nodes[number]);
        nodes.into_iter().find(|n| n.output == value)
    }
}
