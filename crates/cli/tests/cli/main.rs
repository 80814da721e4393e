//! Runs the binary as a user does, and checks its output, files and exit code.

mod adapters;
mod aie;
mod bad_input;
mod basics;
#[cfg(unix)]
mod batch;
mod embed;
mod families;
#[cfg(target_os = "linux")]
mod hostile_requests;
#[cfg(unix)]
mod hostile_templates;
mod hub;
mod hwbench;
#[cfg(unix)]
mod image_grids;
mod images;
#[cfg(unix)]
mod interrupt;
mod limits;
mod messages;
mod mixtures;
mod models;
mod npu;
mod numbers;
#[cfg(unix)]
mod odd_files;
mod options;
#[cfg(unix)]
mod pasted;
mod plans;
mod profile;
mod pull;
mod ranks;
mod reports;
mod rk3588;
mod run;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod sessions;
mod speculation;
mod states;
mod tcp;
mod text;
mod transcripts;
mod verify;
