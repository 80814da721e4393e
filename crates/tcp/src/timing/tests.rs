use super::*;
use crate::Element;
use crate::program::{Command, parse};

const GEMV: &str = include_str!("../../testdata/gemv.tcp");

fn timed(program: &Program) -> TimedProgram {
    TimedProgram::new(program, &Machine::rngd(), &Profile::furiosa_llm()).unwrap()
}

fn close(found: f64, expected: f64, share: f64) {
    assert!(
        (found - expected).abs() <= share * expected,
        "{found} is not {expected}"
    );
}

/// A program with one command of [`GEMV`] repeated, on separate tensors where `apart`.
fn repeated(name: &str, times: usize) -> Program {
    let mut program = parse(GEMV).unwrap();
    let command = program
        .commands
        .iter()
        .find(|c| c.name() == name)
        .unwrap()
        .clone();
    program.commands = vec![command; times];
    program
}

#[test]
fn commands_take_what_the_closed_forms_say() {
    let (machine, profile) = (Machine::rngd(), Profile::furiosa_llm());
    let total = |name: &str| predict(&timed(&repeated(name, 1)), &machine, &profile).total_ns;
    // 512 rows of 256 weights: one lane of eight, packets of two flits.
    let macs = 512.0 * 256.0 * 8.0;
    let expected = closed::contraction_ns(&machine, &profile, macs, Element::Bf16, 512.0 * 512.0);
    close(total("gemv"), expected, 1e-9);
    // A register file is filled by the sub context.
    let cycles = profile.sub_start_cycles + 512.0 / machine.sub_fetch_bytes as f64;
    close(total("hold_x"), cycles * machine.cycle_ns(), 1e-9);
    close(
        total("load_w"),
        closed::move_ns(&machine, &profile, 512.0 * 512.0, 6.0),
        1e-9,
    );
}

#[test]
fn a_steady_state_is_that_of_its_slowest_part() {
    let (machine, profile) = (Machine::rngd(), Profile::furiosa_llm());
    // Loads of one tensor one after the other wait only for themselves.
    let total = |n| predict(&timed(&repeated("load_w", n)), &machine, &profile).total_ns;
    let one = closed::move_ns(&machine, &profile, 512.0 * 512.0, 6.0);
    close(total(50) - total(10), 40.0 * one, 1e-6);
}

/// Weights of `n` tiles through two buffers or one, each tile multiplied.
fn streamed(n_buffers: usize) -> f64 {
    let mut text = String::from("tcp 1\nprogram s {\n axis N = 4096\n axis K = 4096\n");
    text += " hbm w: bf16 static m![N, K]\n hbm x: bf16 input m![K]\n";
    text += " dm x_dm: bf16 at 0 cluster m![2] slice m![256] element m![K]\n";
    text += " trf x_trf: bf16 at 0 cluster m![2] slice m![256] lane m![1] element m![K]\n";
    text +=
        " dm y: f32 at 8192 cluster m![N / 2048] slice m![N / 8 % 256] element m![N % 8, 1 # 8]\n";
    for b in 0..n_buffers {
        text += &format!(
            " dm w{b}: bf16 at {} cluster m![N / 2048] slice m![N / 8 % 256] element m![N % 8, K]\n",
            16384 + b * 65536
        );
    }
    text += " tdma 6 2 lx: x -> x_dm\n sub hx {\n fetch x_dm time m![K / 16] packet m![K % 16]
      collect time m![K / 16] packet m![K % 16]\n registers x_trf\n }\n";
    for tile in 0..16 {
        let b = tile % n_buffers;
        text += &format!(
            " tdma 0 6 l{tile}: w -> w{b}\n main g{tile} {{\n
          fetch w{b} time m![N % 8, K / 16] packet m![K % 16]
          collect time m![N % 8, K / 16] packet m![K % 16]
          outer x_trf time m![N % 8, K / 32] packet m![K % 32]\n packet m![1]\n time m![N % 8]
          lane interleaved time m![N % 8] packet m![1 # 8]\n commit y\n }}\n"
        );
    }
    let program = parse(&(text + "}\n")).unwrap();
    crate::verify::verify(&program, &Machine::rngd()).unwrap();
    predict(&timed(&program), &Machine::rngd(), &Profile::furiosa_llm()).total_ns
}

#[test]
fn two_buffers_hide_what_one_does_not() {
    let (machine, profile) = (Machine::rngd(), Profile::furiosa_llm());
    let bytes = 4096.0 * 4096.0 * 2.0;
    let load = closed::move_ns(&machine, &profile, bytes, 6.0);
    let product = closed::contraction_ns(&machine, &profile, 4096.0 * 4096.0, Element::Bf16, bytes);
    close(streamed(2), 16.0 * load + product, 0.01);
    close(streamed(1), 16.0 * (load + product), 0.01);
}

#[test]
fn moves_share_hbm() {
    let (machine, profile) = (Machine::rngd(), Profile::furiosa_llm());
    let mut program = repeated("load_w", 1);
    let Command::Dma(mut other) = program.commands[0].clone() else {
        panic!("a move")
    };
    // The other engines fill another tensor meanwhile.
    let mut tensor = program.tensors[other.to.tensor].clone();
    tensor.name = "w_too".into();
    if let Place::Dm { address, .. } = &mut tensor.place {
        *address = 8192;
    }
    program.tensors.push(tensor);
    other.to.tensor = program.tensors.len() - 1;
    other.engine = crate::program::Engine::Tdma { first: 6, count: 2 };
    program.commands.push(Command::Dma(other));
    let both = predict(&timed(&program), &machine, &profile);
    let rate = machine.hbm_gb_per_s * profile.hbm_efficiency;
    let (slow, fast) = (
        2.0 * profile.dma_engine_bytes,
        6.0 * profile.dma_engine_bytes,
    );
    assert!(slow < rate / 2.0 && rate - slow < fast);
    // Two engines carry less than half of HBM's rate; six get the rest, and all of it in the end.
    close(both.ends_ns[0], 500.0 + 262_144.0 / slow, 1e-6);
    assert_eq!(both.hbm_bytes, 2.0 * 262_144.0);
}
