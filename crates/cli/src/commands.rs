//! The subcommands, one file each. A command takes its arguments and the [`Ui`](crate::output::Ui),
//! prints its result on standard output and returns an [`CommandResult`](crate::exit::CommandResult).

pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod ceiling;
pub(crate) mod chat;
pub(crate) mod compile;
pub(crate) mod completions;
pub(crate) mod devices;
pub(crate) mod diagnose;
pub(crate) mod doctor;
pub(crate) mod embed;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod fidelity;
pub(crate) mod hwbench;
pub(crate) mod imatrix;
pub(crate) mod info;
pub(crate) mod kernel;
pub(crate) mod list;
pub(crate) mod logits;
pub(crate) mod man;
pub(crate) mod npu;
pub(crate) mod perplexity;
pub(crate) mod probe;
pub(crate) mod profile;
pub(crate) mod pull;
pub(crate) mod quantize;
pub(crate) mod rerank;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod snr;
pub(crate) mod sweep;
pub(crate) mod synth;
pub(crate) mod tokenize;
pub(crate) mod verify;
