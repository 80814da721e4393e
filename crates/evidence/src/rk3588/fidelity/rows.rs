//! Published rows.

use millrace_rk3588::matmul::MatmulKind;
use millrace_rk3588::tiling::Matmul;
use serde::{Serialize, Serializer};

/// Subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowSubject {
    /// One product.
    Gemm,
    /// Jobs of several open files.
    Jobs,
    /// A tiny job.
    Submit,
    /// A model's prompt.
    Prefill,
    /// A model's prompt, weights unpacked before every product.
    PrefillUnpacking,
    /// A model's token.
    Decode,
    /// A converter's estimate of memory cycles.
    CyclesDdr,
    /// A converter's estimate of the array's cycles.
    CyclesNpu,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RknnFigure {
    /// Id in `data/rk3588/measured.csv`.
    pub id: String,
    /// The group it is reported in.
    pub group: String,
    /// Who published it.
    pub source: String,
    /// The profile of its stack; empty for estimates, which have none.
    pub profile: String,
    /// Its subject.
    pub what: RowSubject,
    /// The model's geometry; empty for products.
    pub geometry: String,
    /// Types of products.
    #[serde(serialize_with = "kind_name")]
    pub kind: Option<MatmulKind>,
    /// Rows: tokens of a pass.
    pub m: u32,
    /// The product.
    #[serde(skip)]
    pub shape: Option<Matmul>,
    /// Open files.
    pub workers: u32,
    /// Unit.
    pub metric: String,
    /// The value.
    pub value: f64,
    /// Remarks of the source.
    pub notes: String,
}

fn kind_name<S: Serializer>(kind: &Option<MatmulKind>, serializer: S) -> Result<S::Ok, S::Error> {
    match kind {
        Some(kind) => serializer.serialize_str(kind.name()),
        None => serializer.serialize_none(),
    }
}

/// The rows that come with the crate.
pub fn measurements() -> Vec<RknnFigure> {
    let text = include_str!("../../../data/rk3588/measured.csv");
    text.lines().skip(1).filter_map(read).collect()
}

/// One row; the last field may be quoted. `None` for any other line.
fn read(line: &str) -> Option<RknnFigure> {
    let fields: Vec<&str> = line.splitn(14, ',').collect();
    let [
        id,
        group,
        source,
        profile,
        what,
        geometry,
        kind,
        m,
        k,
        n,
        workers,
        metric,
        value,
        notes,
    ] = fields[..]
    else {
        return None;
    };
    let what = match what {
        "gemm" => RowSubject::Gemm,
        "jobs" => RowSubject::Jobs,
        "submit" => RowSubject::Submit,
        "prefill" => RowSubject::Prefill,
        "prefill_unpacking" => RowSubject::PrefillUnpacking,
        "decode" => RowSubject::Decode,
        "cycles_ddr" => RowSubject::CyclesDdr,
        "cycles_npu" => RowSubject::CyclesNpu,
        _ => return None,
    };
    let kind = MatmulKind::from_name(kind);
    let number = |text: &str| text.parse::<u32>().ok();
    let shape = match (kind, number(m), number(n), number(k)) {
        (Some(kind), Some(m), Some(n), Some(k)) => Some(Matmul { kind, m, n, k }),
        _ => None,
    };
    Some(RknnFigure {
        id: id.into(),
        group: group.into(),
        source: source.into(),
        profile: profile.into(),
        what,
        geometry: geometry.into(),
        kind,
        m: number(m).unwrap_or(0),
        shape,
        workers: number(workers)?,
        metric: metric.into(),
        value: value.parse().ok()?,
        notes: notes.trim_matches('"').into(),
    })
}

/// Remark on a row's prediction, for the reader.
pub(super) fn remark(id: &str) -> Option<&'static str> {
    Some(match id {
        "G01" => {
            "the host's part is fitted on one worker; five attain more of it than five times one"
        }
        "G02" | "G03" => {
            "that 512 of k are taken at once is inferred from rates that hardly differ by type"
        }
        "G04" | "G05" => "before the host's part was tuned; the constant is from after",
        "C01" => "known by its rate alone; the others follow from it",
        "C02" => {
            "more than twice one, which no model of cores and memory gives: part of one job is idle"
        }
        "S01" => "the constant itself",
        "S02" => "another kernel configuration; not modelled",
        "P03" | "P04" | "I03" | "I06" => "geometry assumed from the name's parameters",
        "P05" => "weights are unpacked to fp16 at every pass; the rate of that is this row's",
        "R01" => "the vendor's part for small layers is not known",
        _ => return None,
    })
}
