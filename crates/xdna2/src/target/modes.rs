//! The modes: their names in `--mode`, and the features of their plans.

use crate::lower::{Features, Mode};
use millrace_plan::Choice;

/// The default.
pub const FAST: &str = "fast";
/// Weights in blocks of 4 bits.
pub const INT4: &str = "int4";
/// Products of 8-bit integers.
pub const INT8: &str = "int8";
/// The stack of the paper *Mapping Gemma3 onto an Edge Dataflow Architecture*.
pub const FASTFLOWLM: &str = "fastflowlm";
/// The stack of MLIR-AIR's programming example of Llama-3.2-1B.
pub const MLIR_AIR: &str = "mlir-air";
/// That stack before its head took a single row.
pub const MLIR_AIR_FIRST: &str = "mlir-air-first";

/// A value of `--mode`.
pub(super) struct ModeRow {
    /// Its name.
    pub(super) name: &'static str,
    /// Its name in an earlier release. It is accepted, and the user is told the new name.
    pub(super) former_name: Option<&'static str>,
    /// Its meaning, in a line.
    summary: &'static str,
    /// Features of its plans. Mode int8 has none; its row has those of the planner beneath it.
    pub(super) features: fn() -> Features,
}

/// Every mode, the default first.
pub(super) static TABLE: [ModeRow; 6] = [
    ModeRow {
        name: FAST,
        former_name: Some("best"),
        summary: "prompt lengths in buckets, the widest herds, f32 sums",
        features: || Features::of(Mode::Fast),
    },
    ModeRow {
        name: INT4,
        former_name: Some("q4nx"),
        summary: "as fast, with weights in 4-bit blocks (Q4NX) that the cores dequantise; taken for files of mostly 4-bit weights",
        features: || Features::of(Mode::Int4),
    },
    ModeRow {
        name: INT8,
        former_name: None,
        summary: "products of 8-bit integers, each a program of its own; the rest on the host",
        features: || Features::of(Mode::Fast),
    },
    ModeRow {
        name: FASTFLOWLM,
        former_name: Some("paper"),
        summary: "4-bit blocks as FastFlowLM's Gemma 3 paper lays them out: weights expanded to bf16 in DDR first, FlowQKV, FlowKV",
        features: || Features::of(Mode::FastFlowLm),
    },
    ModeRow {
        name: MLIR_AIR,
        former_name: Some("reference"),
        summary: "as MLIR-AIR's Llama-3.2-1B example does it: every prompt padded to 2,048 tokens",
        features: || Features::of(Mode::MlirAir),
    },
    ModeRow {
        name: MLIR_AIR_FIRST,
        former_name: Some("first"),
        summary: "as that example did at first: all rows of a prompt go through the head",
        features: || Features::NONE,
    },
];

/// The mode of a name, this release's or an earlier one's; of none the default.
pub(super) fn find(name: Option<&str>) -> Option<&'static ModeRow> {
    match name {
        None => TABLE.first(),
        Some(name) => TABLE
            .iter()
            .find(|row| row.name == name || row.former_name == Some(name)),
    }
}

/// Choices that the command line lists.
pub(super) fn choices() -> Vec<Choice> {
    let choice = |row: &ModeRow| Choice::new(row.name, row.summary);
    TABLE.iter().map(choice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target;
    use millrace_plan::{Settings, Target};

    fn settings(mode: &str) -> Settings {
        Settings {
            mode: Some(mode.to_owned()),
            ..Settings::default()
        }
    }

    #[test]
    fn former_names_make_the_same_plans() {
        let former = [
            ("best", "fast"),
            ("q4nx", "int4"),
            ("paper", "fastflowlm"),
            ("reference", "mlir-air"),
            ("first", "mlir-air-first"),
        ];
        for (former, name) in former {
            let [old, new] =
                [former, name].map(|mode| target::Xdna2Target.planner(&settings(mode)));
            let (old, new) = (old.expect(former), new.expect(name));
            assert_eq!(old.identity(), new.identity(), "{former}");
            assert_eq!(old.mode(), new.mode(), "{former}");
            assert_eq!(target::Xdna2Target.renamed_mode(former), Some(name));
            assert_eq!(target::Xdna2Target.renamed_mode(name), None);
        }
        let n_renamed = TABLE.iter().filter(|row| row.former_name.is_some()).count();
        assert_eq!(n_renamed, former.len());
    }

    #[test]
    fn a_name_means_one_mode() {
        let former = TABLE.iter().filter_map(|row| row.former_name);
        let mut names: Vec<&str> = TABLE.iter().map(|row| row.name).chain(former).collect();
        let n_names = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n_names);
        // All but int8, which has the features of the planner beneath it, differ.
        let plans = TABLE.iter().filter(|row| row.name != INT8);
        let mut features: Vec<Features> = plans.map(|row| (row.features)()).collect();
        for (at, set) in std::mem::take(&mut features).into_iter().enumerate() {
            assert!(!features.contains(&set), "row {at}");
            features.push(set);
        }
    }

    #[test]
    fn an_unknown_mode_lists_this_releases_names() {
        let error = target::Xdna2Target.planner(&settings("bset")).err();
        let text = error.expect("no such mode").to_string();
        assert_eq!(
            text,
            "no mode `bset` for xdna2: there is fast, int4, int8, fastflowlm, mlir-air, mlir-air-first"
        );
    }
}
