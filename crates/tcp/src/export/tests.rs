use super::*;
use crate::lower::ops::{KERNELS, Op, OpKind, Role};
use crate::lower::{TcpLowerOptions, Weights};
use crate::{Machine, verify};
use std::collections::BTreeSet;

/// Every kernel at a small shape, tokens held and streamed, in bf16 and fp8.
fn programs() -> Vec<Program> {
    let machine = Machine::rngd();
    let mut all = Vec::new();
    for s_q in [1, 64] {
        for kernel in &KERNELS {
            let size = |axis: &&str| match *axis {
                "s_q" => s_q,
                "s_in" | "d_k" => 64,
                "F" | "V" | "N" => 512,
                "h_kv" | "G" => 2,
                "d_k_prime" => 32,
                "s_k" => 128,
                _ => 256,
            };
            let is_narrowed = matches!(kernel.kind, OpKind::Product(role) if role != Role::Head);
            for weights in [Weights::Bf16, Weights::Fp8] {
                if weights == Weights::Fp8 && !is_narrowed {
                    continue;
                }
                let op = Op {
                    kind: kernel.kind,
                    sizes: kernel.axes.iter().map(size).collect(),
                    norm_eps: 1e-5,
                    attention_scale: 0.125,
                    weights,
                };
                let name = format!("{}_{s_q}", kernel.name);
                let lowered = op
                    .lower(&name, &machine, TcpLowerOptions::plain(weights))
                    .unwrap();
                verify(&lowered.lowered.program, &machine).unwrap();
                all.push(lowered.lowered.program);
            }
        }
    }
    all
}

/// Axes with their sizes, as `name = size`, of `axes![…]`.
fn declared(text: &str) -> BTreeSet<String> {
    let list = text.split("axes![").nth(1).unwrap();
    let list = list.split(']').next().unwrap();
    list.split(", ").map(str::to_owned).collect()
}

/// The arguments of a call in a chain: `m![…], m![…]` of `.fetch::<…>(`.
fn arguments<'t>(text: &'t str, call: &str) -> Vec<&'t str> {
    let begin = format!(".{call}::<");
    let parts: Vec<&str> = text.split(&*begin).skip(1).collect();
    let parts = parts.into_iter();
    parts.map(|part| part.split(">(").next().unwrap()).collect()
}

#[test]
fn every_kernel_is_printed() {
    for program in programs() {
        let text = function(&program, &[]).unwrap();
        let n_fetches = text.matches(".fetch::<").count();
        let kernels = program.commands.iter();
        let kernels = kernels.filter(|c| matches!(c, crate::program::Command::Kernel(_)));
        // The gate takes a second pass for each of its kernels.
        let passes = if text.contains("// Two passes") { 2 } else { 1 };
        assert_eq!(n_fetches, passes * kernels.count(), "{}", program.name);
        assert!(!text.contains('@'), "{text}");
    }
}

/// Axes are the program's. So are tensors in the chip's memory, orders of fetches, contractions and committed results.
#[test]
fn what_is_printed_is_in_the_verified_program() {
    for program in programs() {
        let text = function(&program, &[]).unwrap();
        let mut axes: BTreeSet<String> = program
            .axes
            .iter()
            .map(|(name, n)| format!("{name} = {n}"))
            .collect();
        if text.contains("begin_interleaved") {
            axes.insert("I = 2".to_owned());
        }
        assert_eq!(declared(&text), axes, "{}", program.name);
        let verified = crate::program::print(&program);
        // Types of tensors: the last mapping is the order of elements.
        let types = text
            .split("Tensor<")
            .skip(1)
            .map(|part| part.split('>').next().unwrap());
        for layout in types.filter_map(|ty| ty.rsplit_once("Chip, ").map(|(_, mappings)| mappings))
        {
            let layout = format!("m![{}", layout.rsplit("m![").next().unwrap());
            assert!(verified.contains(&layout), "{layout} of {}", program.name);
        }
        for (call, word) in [("contract_outer", "outer"), ("contract_time", "time")] {
            for given in arguments(&text, call) {
                let given = given
                    .trim_end_matches(", _, _, _")
                    .replace(", m![", " packet m![");
                let words = verified
                    .lines()
                    .filter(|line| line.trim().starts_with(word));
                let ends = |line: &str| line.ends_with(&format!("time {given}"));
                assert!(
                    words.clone().any(ends),
                    "{call} {given} of {}",
                    program.name
                );
            }
        }
    }
}

/// The text of one function, so that a change of it is noticed.
#[test]
fn the_text_is_golden() {
    let programs = programs();
    let gate = programs.iter().find(|p| p.name == "gated-silu_1").unwrap();
    let text = function(gate, &["SiLU × up".to_owned()]).unwrap();
    assert_eq!(text, include_str!("../../testdata/gated_silu.rs.golden"));
}

#[test]
fn what_the_vendor_has_no_words_for_is_refused() {
    let mut program = programs().swap_remove(0);
    for command in &mut program.commands {
        if let crate::program::Command::Dma(dma) = command {
            dma.engine = crate::program::Engine::Pdma;
        }
    }
    let error = function(&program, &[]).unwrap_err();
    assert!(error.to_string().contains("moves between chips"), "{error}");
    // A widening of four-bit weights.
    let op = Op {
        kind: OpKind::Product(Role::Other),
        sizes: vec![1, 256, 512],
        norm_eps: 1e-5,
        attention_scale: 1.0,
        weights: Weights::Int4,
    };
    let machine = Machine::rngd();
    let lowered = op
        .lower("narrow", &machine, TcpLowerOptions::plain(Weights::Int4))
        .unwrap();
    let error = function(&lowered.lowered.program, &[]).unwrap_err();
    assert!(
        error.to_string().contains("does not turn i4 into f8e4m3"),
        "{error}"
    );
}
