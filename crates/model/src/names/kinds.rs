//! What is common to purposes of weights of one kind.

use super::WeightRole;
use super::table::row;

impl WeightRole {
    /// Whether every block has one.
    pub fn is_per_layer(self) -> bool {
        row(self).per_layer
    }

    /// Whether it is the weight of an RMSNorm.
    pub fn is_norm(self) -> bool {
        use WeightRole::*;
        matches!(
            self,
            AttnNorm
                | AttnNorm2
                | FfnNormBeside
                | AttnQNorm
                | AttnKNorm
                | AttnPostNorm
                | AttnSubNorm
                | AttnQANorm
                | AttnKvANorm
                | FfnNorm
                | FfnPreNorm
                | FfnPostNorm
                | FfnSubNorm
                | LayerEmbeddingNorm
                | LayerEmbeddingPostNorm
                | AltUpRouterNorm
                | LaurelPostNorm
                | ExpertsNorm
                | ExpertsPostNorm
                | DensePostNorm
                | EmbeddingNorm
                | AttnOutNorm
                | LayerOutNorm
                | OutputNorm
                | EncoderNorm
                | SsmDtNorm
                | SsmBNorm
                | SsmCNorm
                | TimeMixNorm
                | DraftEmbedNorm
                | DraftStateNorm
                | DraftHeadNorm
        )
    }

    /// Whether it is a table of RoPE divisors, which belongs to the configuration.
    pub fn is_rope_table(self) -> bool {
        use WeightRole::*;
        matches!(self, RopeFactors | RopeFactorsLong | RopeFactorsShort)
    }

    /// Whether files keep it in floating point, though it has two dimensions.
    pub fn is_never_quantised(self) -> bool {
        use WeightRole::*;
        matches!(
            self,
            // Norms may have separate factors for each head.
            AttnQNorm
                | AttnKNorm
                | Router
                | AttnRouter
                | SharedRouter
                | AltUpProj
                | AltUpUnembed
                | AltUpRouter
                | AltUpPredict
                | AltUpCorrect
                | LaurelDown
                | LaurelUp
                | ShortConv
                | SsmConv
                | SsmConvQ
                | SsmConvK
                | SsmConvV
                | SsmRate
                | SsmSkip
                | SsmNorm
                | SsmPreNorm
                | TimeMixLerp
                | TimeMixLerpR
                | TimeMixLerpW
                | TimeMixLerpK
                | TimeMixLerpV
                | TimeMixLerpA
                | TimeMixLerpG
                | TimeMixDecayOffset
                | TimeMixDecayA
                | TimeMixDecayB
                | TimeMixRateOffset
                | TimeMixRateA
                | TimeMixRateB
                | TimeMixValueOffset
                | TimeMixValueA
                | TimeMixValueB
                | TimeMixGateA
                | TimeMixGateB
                | TimeMixRemoval
                | TimeMixWeakening
                | TimeMixBonus
                | ChannelMixLerp
        )
    }

    /// Whether it is a number without dimensions in folders.
    pub fn is_scalar(self) -> bool {
        matches!(self, WeightRole::XieluBeta | WeightRole::XieluEps)
    }

    /// Whether it is a matrix for each of a layer's experts.
    pub fn is_of_experts(self) -> bool {
        use WeightRole::*;
        matches!(
            self,
            ExpertsGate
                | ExpertsUp
                | ExpertsGateUp
                | ExpertsDown
                | AttnQExperts
                | AttnOutputExperts
        )
    }
}
