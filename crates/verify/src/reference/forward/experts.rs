//! Products with matrices that are chosen by row: a token's experts, a head's own.

use super::{ForwardPass, PassArithmetic};
use millrace_graph::{
    ExpertLinear, ExpertUse, HeadLinear, Route, SequenceNode, WeightId, chosen_experts,
};
use millrace_runtime::Error;
use std::collections::{BTreeMap, HashMap};

/// The experts that the tokens of a pass take, and those that they would choose.
#[derive(Clone, Debug, Default)]
pub struct ExpertChoices {
    /// By node, the experts that tokens take instead of their own choice: `[n_tokens, n_used]`. A node without an entry
    /// has none.
    pub given: HashMap<usize, Vec<usize>>,
    /// By node, the tokens' own choices: `[n_tokens, n_used]`.
    pub own: HashMap<usize, Vec<usize>>,
}

impl ExpertChoices {
    /// Makes tokens take the choices of another pass.
    pub fn like(other: &ExpertChoices) -> ExpertChoices {
        ExpertChoices {
            given: other.own.clone(),
            own: HashMap::new(),
        }
    }

    /// By token, how many of its choices have other experts than those given.
    pub fn n_others(&self, n_tokens: usize) -> Vec<usize> {
        let mut n_others = vec![0; n_tokens];
        for (node, own) in &self.own {
            let Some(given) = self.given.get(node) else {
                continue;
            };
            let n_used = own.len() / n_tokens.max(1);
            let tokens = own.chunks_exact(n_used.max(1));
            let tokens = tokens.zip(given.chunks_exact(n_used.max(1)));
            for (n_others, (own, given)) in n_others.iter_mut().zip(tokens) {
                *n_others += usize::from(own.iter().any(|expert| !given.contains(expert)));
            }
        }
        n_others
    }

    /// Records the tokens' own choices, and replaces them by the given ones.
    pub(super) fn choose(
        &mut self,
        at: &SequenceNode<'_, f32>,
        route: &Route,
        numerics: PassArithmetic,
        out: &mut [f32],
    ) {
        let given = self.given.get(&at.number);
        let mut own = Vec::new();
        let rows = at.inputs[0].chunks_exact(route.n_experts);
        let choices = out.chunks_exact_mut(3 * route.n_used);
        for (token, (scores, choice)) in rows.zip(choices).enumerate() {
            own.extend(chosen_experts(choice));
            let experts = given.and_then(|given| given.chunks_exact(route.n_used).nth(token));
            if let Some(experts) = experts {
                route.weigh(scores, experts, numerics.rounding(), choice);
            }
        }
        self.own.insert(at.number, own);
    }
}

impl ForwardPass<'_> {
    /// Products of tokens with the matrices of their experts.
    pub(super) fn expert_linear(
        &self,
        node: usize,
        op: &ExpertLinear,
        x: &[f32],
        choices: &[f32],
    ) -> Result<Vec<f32>, Error> {
        let n = self.graph.weights[op.weight.0].n;
        let choices = choices.chunks_exact(3 * op.n_used).enumerate();
        let products: Vec<ExpertUse> = choices
            .flat_map(|(token, choice)| op.uses(token, choice))
            .collect();
        let mut out = vec![0.0; products.len() * n];
        self.by_matrix((node, op.weight), x, &products, &mut out)?;
        let vector = |id: Option<WeightId>| id.map(|id| &self.vectors[id.0]);
        let (scale, bias) = (vector(op.scale), vector(op.bias));
        for product in &products {
            let out = &mut out[product.to * n..][..n];
            let factor = scale.map_or(1.0, |scale| scale[product.expert]);
            let bias = bias.map(|bias| &bias[product.expert * n..][..n]);
            for (i, out) in out.iter_mut().enumerate() {
                *out = *out * factor + bias.map_or(0.0, |bias| bias[i]);
            }
        }
        Ok(out)
    }

    /// Products of heads, each with its own matrix, of the part of each head that is read.
    pub(super) fn head_linear(
        &self,
        node: usize,
        op: &HeadLinear,
        width: usize,
        x: &[f32],
    ) -> Result<Vec<f32>, Error> {
        let spec = &self.graph.weights[op.weight.0];
        let heads = x.chunks_exact(width / op.n_heads);
        let parts: Vec<f32> = heads
            .flat_map(|head| &head[op.first..][..spec.k])
            .copied()
            .collect();
        let rows = 0..parts.len() / spec.k;
        let product = |row| ExpertUse {
            expert: row % op.n_heads,
            token: row / op.n_heads,
            from: row,
            to: row,
        };
        let products: Vec<ExpertUse> = rows.map(product).collect();
        let mut out = vec![0.0; products.len() * spec.n];
        self.by_matrix((node, op.weight), &parts, &products, &mut out)?;
        Ok(out)
    }

    /// Matrix by matrix, all its rows together, in the order of tokens.
    fn by_matrix(
        &self,
        (node, weight): (usize, WeightId),
        x: &[f32],
        products: &[ExpertUse],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let spec = &self.graph.weights[weight.0];
        let (n, k) = (spec.n, spec.k);
        let mut of_matrix: BTreeMap<usize, Vec<&ExpertUse>> = BTreeMap::new();
        for product in products {
            of_matrix.entry(product.expert).or_default().push(product);
        }
        for (number, products) in of_matrix {
            let rows = products
                .iter()
                .flat_map(|product| &x[product.from * k..][..k]);
            let rows: Vec<f32> = rows.copied().collect();
            let prompts = products.iter();
            let n_prompt = prompts.filter(|p| p.token < self.products.n_tokens);
            let results = self.product(node, ((weight, number), None), &rows, n_prompt.count())?;
            for (product, result) in products.iter().zip(results.chunks_exact(n)) {
                out[product.to * n..][..n].copy_from_slice(result);
            }
        }
        Ok(())
    }
}
