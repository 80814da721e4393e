//! Whole models: a pass is the sum of its products and of the host's work.

use super::product_ns;
use super::rows::{RknnFigure, RowSubject};
use millrace_rk3588::machine::Machine;
use millrace_rk3588::matmul::MatmulKind;
use millrace_rk3588::profile::Profile;
use millrace_rk3588::tiling::Matmul;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The sizes of a model, as far as its products need them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Geometry {
    /// Layers.
    pub n_layers: u32,
    /// Width of the residual stream.
    pub d_model: u32,
    /// Width of queries.
    pub q: u32,
    /// Width of keys, and of values.
    pub kv: u32,
    /// Width of the gated feed-forward block.
    pub d_ff: u32,
    /// Tokens of the vocabulary.
    pub vocab: u32,
    /// Weights of all layers, where the widths are not known.
    pub n_weights: f64,
    /// Whether the geometry is an assumption.
    pub assumed: bool,
}

impl Geometry {
    /// The geometry of that name.
    pub fn of(name: &str) -> Option<&'static Geometry> {
        static ALL: LazyLock<BTreeMap<String, Geometry>> = LazyLock::new(|| {
            let text = include_str!("../../../data/rk3588/geometries.toml");
            toml::from_str(text).expect("the file is a part of the crate and tested")
        });
        ALL.get(name)
    }

    /// (n, k) of the products of one layer, and how often each occurs.
    pub fn products(&self) -> Vec<(u32, u32, f64)> {
        let d = self.d_model;
        if self.assumed {
            let square = f64::from(d) * f64::from(d) * f64::from(self.n_layers);
            return vec![(d, d, self.n_weights / square)];
        }
        vec![
            (self.q, d, 1.0),
            (self.kv, d, 2.0),
            (d, self.q, 1.0),
            (self.d_ff, d, 2.0),
            (d, self.d_ff, 1.0),
        ]
    }
}

impl Geometry {
    /// Weights of all products, the head's included.
    fn n_multiplied(&self) -> f64 {
        let of = |(n, k, times): (u32, u32, f64)| f64::from(n) * f64::from(k) * times;
        let layer: f64 = self.products().into_iter().map(of).sum();
        layer * f64::from(self.n_layers) + f64::from(self.vocab) * f64::from(self.d_model)
    }
}

/// A row of a model in its unit.
pub(super) fn predict(row: &RknnFigure, machine: &Machine, profile: &Profile) -> Option<f64> {
    let geometry = Geometry::of(&row.geometry)?;
    let kind = row.kind?;
    let mut ns = pass_ns(geometry, kind, row.m, row.workers, machine, profile)?;
    if row.what == RowSubject::PrefillUnpacking {
        let packed_bytes = f64::from(kind.input().bits()) / 8.0;
        let thread_s =
            1.0 / profile.host_fill_elements_per_s + packed_bytes / profile.host_pack_bytes_per_s;
        ns += geometry.n_multiplied() * thread_s / profile.host_threads * 1e9;
    }
    Some(match (row.what, row.metric.as_str()) {
        (_, "ttft_ms") => ns / 1e6,
        (RowSubject::Decode, _) => 1e9 / ns,
        _ => f64::from(row.m) * 1e9 / ns,
    })
}

/// A pass of so many tokens: products of all layers, the head for the last, and the host's part.
fn pass_ns(
    geometry: &Geometry,
    kind: MatmulKind,
    m: u32,
    workers: u32,
    machine: &Machine,
    profile: &Profile,
) -> Option<f64> {
    let product = |m, n, k| product_ns(Matmul { kind, m, n, k }, workers, machine, profile);
    let mut layer_ns = profile.layer_ns + profile.layer_token_ns * f64::from(m);
    for (n, k, times) in geometry.products() {
        layer_ns += product(m, n, k)? * times;
    }
    let head_ns = product(1, geometry.vocab, geometry.d_model)?;
    Some(layer_ns * f64::from(geometry.n_layers) + head_ns)
}
