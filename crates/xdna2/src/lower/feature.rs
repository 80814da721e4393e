//! Improvements of [`Mode::Fast`](super::Mode::Fast) over the published stack, one by one.

use super::Mode;
use millrace_xdna2_machine::numerics::Numerics;
use std::fmt;
use std::str::FromStr;

/// An improvement that can be left out, to measure its effect. It is over the behaviour of MLIR-AIR's Llama-3.2-1B
/// example, except [`Feature::SingleRowHead`], which the published stack has adopted itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Feature {
    /// Prefill GEMMs keep f32 sums to the end instead of rounding partial ones to bf16.
    FloatSums,
    /// Tilings that the timing model finds fastest, where that example has fixed ones, and weights that
    /// stream without a pause: projections of one input, and the head's parts, are one launch.
    FastTilings,
    /// Prompts are padded to a bucket instead of 2,048 tokens.
    Buckets,
    /// The end of a block and the start of the next share a dispatch.
    MergedBlocks,
    /// Prefill and decode read the same copy of a weight.
    OneCopy,
    /// A value stays in one buffer from the program that writes it to those that read it. The host moves only values
    /// that it computes with itself.
    Alias,
    /// Element-wise and row-wise launches of a prefill on all cores, where the profile finds that
    /// faster than the eight that shims feed straight: memory tiles deal out the blocks.
    AllCores,
    /// Attention of a prefill with a causal mask's work shared evenly: heads of a group side by side,
    /// and no pause between iterations.
    BalancedAttention,
    /// Attention over cached keys on the array, in decode and in later chunks of a prompt, where
    /// the timing model finds it faster than the host.
    CachedAttention,
    /// Only the last token's row of a prompt goes through the last norm and the head. The published stack's first head
    /// was a product of all rows (150 ms saved, by its guide). In both modes.
    SingleRowHead,
    /// Attention of layers with a window on the array, in a prompt's first pass.
    Windows,
    /// In decode with packed weights, all launches of a program are one configuration of the array, which stays loaded.
    Resident,
    /// Weights stay in blocks of 4 bits (Q4NX) in buffer objects; cores dequantise them, in products with
    /// a vector and with a prompt. It changes numbers, so it belongs to [`Mode::Int4`] and [`Mode::FastFlowLm`] alone.
    PackedWeights,
    /// With packed weights, a prompt's projections expand them to bf16 in DDR by a launch before the product, as in the
    /// Gemma 3 paper. Otherwise the product's own cores expand them. In [`Mode::FastFlowLm`] alone.
    ExpandedWeights,
    /// With packed weights, each projection uses the one of these two ways that the timing model finds faster. Numbers
    /// are the same. [`Feature::ExpandedWeights`] takes precedence.
    FasterExpansion,
    /// A token's attention as in the Gemma 3 paper (§3.2.2), on the array even if that is slower. It has a pair of
    /// cores for each key-value head, one with the keys and one with the values. A layer with a window has a ring of
    /// few more rows than the window. In [`Mode::FastFlowLm`] alone.
    FlowKv,
    /// A prompt's attention as in the Gemma 3 paper (§3.1.3): chunks of queries side by side, each with separate keys.
    /// In [`Mode::FastFlowLm`] alone.
    FlowQkv,
    /// A token's attention on the cores of its projections, which stay loaded ([`Feature::Resident`]): all blocks of
    /// the model, the last norm and the head are one dispatch. Its numbers are not the host's, so it belongs to
    /// [`Mode::Int4`] alone.
    ResidentAttention,
    /// A token's gated delta nets on the array even if that is slower. Without the feature they are there if the timing
    /// model finds it faster than the host. In [`Mode::FastFlowLm`] alone.
    DeltaNets,
}

impl Feature {
    /// Every feature.
    pub const ALL: [Feature; 19] = [
        Feature::FloatSums,
        Feature::FastTilings,
        Feature::Buckets,
        Feature::MergedBlocks,
        Feature::OneCopy,
        Feature::Alias,
        Feature::AllCores,
        Feature::BalancedAttention,
        Feature::CachedAttention,
        Feature::SingleRowHead,
        Feature::Windows,
        Feature::Resident,
        Feature::PackedWeights,
        Feature::ExpandedWeights,
        Feature::FasterExpansion,
        Feature::FlowKv,
        Feature::FlowQkv,
        Feature::ResidentAttention,
        Feature::DeltaNets,
    ];

    /// Its name, as options spell it.
    pub fn name(self) -> &'static str {
        match self {
            Feature::FloatSums => "float-sums",
            Feature::FastTilings => "fast-tilings",
            Feature::Buckets => "buckets",
            Feature::MergedBlocks => "merged-blocks",
            Feature::OneCopy => "one-copy",
            Feature::Alias => "alias",
            Feature::AllCores => "all-cores",
            Feature::BalancedAttention => "balanced-attention",
            Feature::CachedAttention => "cached-attention",
            Feature::SingleRowHead => "single-row-head",
            Feature::Windows => "windows",
            Feature::Resident => "resident",
            Feature::PackedWeights => "packed-weights",
            Feature::ExpandedWeights => "expanded-weights",
            Feature::FasterExpansion => "faster-expansion",
            Feature::FlowKv => "flow-kv",
            Feature::FlowQkv => "flow-qkv",
            Feature::ResidentAttention => "resident-attention",
            Feature::DeltaNets => "delta-nets",
        }
    }
}

impl Feature {
    /// Its effect, in a line.
    pub fn summary(self) -> &'static str {
        match self {
            Feature::FloatSums => "GEMMs keep f32 sums to the end",
            Feature::FastTilings => "tilings that the timing model finds fastest",
            Feature::Buckets => "prompts are padded to a bucket, not to 2,048",
            Feature::MergedBlocks => "a block's end and the next one's start share a dispatch",
            Feature::OneCopy => "prefill and decode read one copy of a weight",
            Feature::Alias => "values stay on the device between programs",
            Feature::AllCores => {
                "element-wise and row-wise launches on all cores where that is faster"
            }
            Feature::BalancedAttention => {
                "attention's causal work shared evenly, no pause between steps"
            }
            Feature::CachedAttention => {
                "attention over cached keys on the array where it is faster"
            }
            Feature::SingleRowHead => "only the last row of a prompt goes through the head",
            Feature::Windows => "attention of layers with a window on the array",
            Feature::Resident => "a token's kernels stand side by side on the array and stay",
            Feature::PackedWeights => "weights stay in 4-bit blocks, dequantised by the cores",
            Feature::ExpandedWeights => {
                "a prompt's weights are expanded to bf16 in DDR before they are multiplied"
            }
            Feature::FasterExpansion => {
                "a prompt's weights are expanded in DDR or within the product, whichever is faster"
            }
            Feature::FlowKv => {
                "a token's attention on pairs of cores, one with the keys, one with the values, as the paper lays it out"
            }
            Feature::FlowQkv => {
                "a prompt's attention in chunks of queries that have keys of their own, as the paper lays it out"
            }
            Feature::ResidentAttention => {
                "a token's attention on the cores of its projections, a token one dispatch"
            }
            Feature::DeltaNets => "a token's gated delta nets on the array, faster or not",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Feature {
    type Err = String;

    fn from_str(name: &str) -> Result<Feature, String> {
        let found = Feature::ALL.into_iter().find(|f| f.name() == name);
        found.ok_or_else(|| {
            let known = Feature::ALL.map(Feature::name).join(", ");
            format!("no feature `{name}`; there are {known}")
        })
    }
}

/// A set of features, and how the matrix units multiply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    set: u32,
    numerics: Numerics,
}

impl Features {
    /// None: the published stack before its head took a single row.
    pub const NONE: Features = Features {
        set: 0,
        numerics: Numerics::Bf16,
    };

    /// The published stack: MLIR-AIR's Llama-3.2-1B example.
    pub const PUBLISHED: Features = Features {
        set: 1 << Feature::SingleRowHead as u8,
        numerics: Numerics::Bf16,
    };

    /// Features of a mode: all of them, those from before weights were packed, or those of the published stack.
    pub fn of(mode: Mode) -> Features {
        let all = Feature::ALL.into_iter();
        match mode {
            Mode::MlirAir => Features::PUBLISHED,
            Mode::Fast => all
                .fold(Features::NONE, Features::with)
                .without(Feature::ExpandedWeights)
                .without(Feature::FasterExpansion)
                .without(Feature::FlowKv)
                .without(Feature::FlowQkv)
                .without(Feature::DeltaNets)
                .without(Feature::ResidentAttention)
                .without(Feature::PackedWeights)
                .without(Feature::Resident),
            Mode::Int4 => all
                .fold(Features::NONE, Features::with)
                .without(Feature::FlowKv)
                .without(Feature::FlowQkv)
                .without(Feature::DeltaNets)
                .without(Feature::ExpandedWeights),
            Mode::FastFlowLm => all
                .fold(Features::NONE, Features::with)
                .without(Feature::AllCores)
                .without(Feature::ResidentAttention),
        }
    }

    /// These features and one more.
    #[must_use]
    pub fn with(self, feature: Feature) -> Features {
        Features {
            set: self.set | 1 << feature as u8,
            ..self
        }
    }

    /// These features without one.
    #[must_use]
    pub fn without(self, feature: Feature) -> Features {
        Features {
            set: self.set & !(1 << feature as u8),
            ..self
        }
    }

    /// Whether all are in that the other has.
    pub fn include(self, other: Features) -> bool {
        self.set & other.set == other.set
    }

    /// Whether a feature is in the set.
    pub fn has(self, feature: Feature) -> bool {
        self.set & (1 << feature as u8) != 0
    }

    /// How products are computed; exactly unless [`with_numerics`](Features::with_numerics) set another way.
    pub fn numerics(self) -> Numerics {
        self.numerics
    }

    /// The same with other numerics. They are not an improvement, so they belong to no mode.
    #[must_use]
    pub fn with_numerics(self, numerics: Numerics) -> Features {
        Features { numerics, ..self }
    }

    /// Its members, in the order of [`Feature::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.into_iter().filter(move |f| self.has(*f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_sets_hold_what_was_put_in() {
        for feature in Feature::ALL {
            assert_eq!(feature.name().parse(), Ok(feature));
            let all = Features::of(Mode::FastFlowLm)
                .with(Feature::AllCores)
                .with(Feature::ResidentAttention);
            assert!(all.has(feature));
            let others = all.without(feature);
            assert!(!others.has(feature) && others.iter().count() == Feature::ALL.len() - 1);
            assert_eq!(others.with(feature), all);
        }
        let fused = Features::of(Mode::FastFlowLm)
            .with(Feature::AllCores)
            .without(Feature::FlowKv)
            .without(Feature::FlowQkv)
            .without(Feature::DeltaNets)
            .without(Feature::ExpandedWeights)
            .with(Feature::ResidentAttention);
        assert_eq!(fused, Features::of(Mode::Int4));
        let packed = Features::of(Mode::Fast)
            .with(Feature::PackedWeights)
            .with(Feature::FasterExpansion)
            .with(Feature::Resident)
            .with(Feature::ResidentAttention);
        assert_eq!(packed, Features::of(Mode::Int4));
        assert!("nonsense".parse::<Feature>().is_err());
        let published: Vec<Feature> = Features::of(Mode::MlirAir).iter().collect();
        assert_eq!(published, [Feature::SingleRowHead]);
        assert!(Features::of(Mode::Fast).include(Features::PUBLISHED));
        assert!(!Features::NONE.include(Features::PUBLISHED));
    }
}
