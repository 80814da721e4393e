//! `kernel --program FILE`: a tile program of the user's own, with data of their own.

use super::{Args, check, compute, finish, predict, report::Report};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Ui;
use crate::progress::Progress;
use crate::prompt::read_file;
use millrace_format::output;
use millrace_npu::{Element, Role, Slot};
use millrace_xdna2::functional;
use millrace_xdna2::program::text;
use millrace_xdna2::{Machine, Profile, Program};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A slot and the file with its bytes, as `--input x=x.bin`.
#[derive(Clone, Debug)]
pub(super) struct SlotFile {
    slot: String,
    path: PathBuf,
}

impl std::str::FromStr for SlotFile {
    type Err = String;

    fn from_str(text: &str) -> Result<SlotFile, String> {
        match text.split_once('=') {
            Some((slot, path)) if !slot.is_empty() && !path.is_empty() => Ok(SlotFile {
                slot: slot.to_owned(),
                path: path.into(),
            }),
            _ => Err("write SLOT=FILE, as x=x.bin".to_owned()),
        }
    }
}

/// What a program without a reference computed.
#[derive(Serialize)]
pub(super) struct Produced {
    /// Time on this computer, which says nothing about the NPU.
    pub(super) host_s: f64,
    /// Where the inputs that no file gave come from.
    pub(super) seed: u64,
    pub(super) outputs: Vec<Output>,
}

/// An output slot.
#[derive(Serialize)]
pub(super) struct Output {
    pub(super) slot: String,
    pub(super) element: &'static str,
    pub(super) shape: Vec<u64>,
    pub(super) least: f64,
    pub(super) greatest: f64,
    pub(super) mean: f64,
    /// Elements that are NaN or infinite; they are left out of the figures above.
    pub(super) n_not_finite: u64,
    /// Where the bytes were written.
    pub(super) file: Option<PathBuf>,
}

/// Verifies, computes and times a program from a file.
pub(super) fn run(
    args: &Args,
    path: &Path,
    machine: &Machine,
    profile: &Profile,
    ui: Ui,
) -> Outcome {
    let program = text::parse(&read_file(path)?)
        .map_err(|error| Failure::bad_input(format!("{}: {error}", path.display())))?;
    // Before any work: a wrong name or size should cost nothing.
    for file in args.input.iter().chain(&args.output) {
        find(&program, &file.slot)?;
    }
    let resources = check(&program, machine)?;
    let timing = predict(args, &program, machine, profile)?;
    let produced = match args.time_only {
        true => None,
        false => Some(compute(args, &program, ui)?),
    };
    finish(
        args,
        &Report {
            kernel: None,
            program: &program,
            machine,
            profile,
            resources: &resources,
            computed: None,
            produced: produced.as_ref(),
            timing: &timing,
        },
    )
}

fn find(program: &Program, name: &str) -> Outcome<usize> {
    let found = program.slots.iter().position(|slot| slot.name == name);
    found.ok_or_else(|| {
        let known: Vec<String> = program.slots.iter().map(described).collect();
        Failure::usage(format!("`{}` has no slot `{name}`", program.name))
            .hint(format!("its slots: {}", known.join("; ")))
    })
}

/// `x: input, bf16 [64, 32], 4096 bytes`
fn described(slot: &Slot) -> String {
    format!(
        "{}: {}, {} {:?}, {} bytes",
        slot.name,
        slot.role.name(),
        slot.element,
        slot.shape,
        slot.size_bytes().unwrap_or(u64::MAX)
    )
}

fn compute(args: &Args, program: &Program, ui: Ui) -> Outcome<Produced> {
    let cpu = compute::cpu(&args.cpu)?;
    let mut buffers = buffers(args, program)?;
    let start = Instant::now();
    {
        let _progress = Progress::spinner(ui, "computing");
        functional::run(program, &mut buffers, &functional::Options::new(&cpu))
            .map_err(|fault| Failure::new(Exit::Failed, fault.to_string()))?;
    }
    let host_s = start.elapsed().as_secs_f64();
    let mut outputs = Vec::new();
    for (slot, bytes) in program.slots.iter().zip(&buffers) {
        let file = args.output.iter().find(|file| file.slot == slot.name);
        if let Some(file) = file {
            output::write(&file.path, bytes).map_err(|error| Failure::writing(&error))?;
        }
        if file.is_some() || slot.role == Role::Output {
            outputs.push(summary(slot, bytes, file.map(|file| file.path.clone())));
        }
    }
    Ok(Produced {
        host_s,
        seed: args.seed,
        outputs,
    })
}

/// Every slot's bytes: from its file, else random if the host writes it, else zeros.
fn buffers(args: &Args, program: &Program) -> Outcome<Vec<Vec<u8>>> {
    let mut random = Random(args.seed);
    let buffer = |slot: &Slot| {
        let n_bytes = slot.size_bytes().and_then(|n| usize::try_from(n).ok());
        let too_large = || Failure::usage(format!("slot {} is too large", described(slot)));
        let n_bytes = n_bytes.ok_or_else(too_large)?;
        if let Some(file) = args.input.iter().find(|file| file.slot == slot.name) {
            return read(file, slot, n_bytes);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(n_bytes).map_err(|_| too_large())?;
        match slot.role {
            Role::Static | Role::Input => {
                while bytes.len() < n_bytes {
                    random.push(slot.element, &mut bytes);
                }
            }
            Role::Intermediate | Role::Output => bytes.resize(n_bytes, 0),
        }
        Ok(bytes)
    };
    program.slots.iter().map(buffer).collect()
}

fn read(file: &SlotFile, slot: &Slot, n_bytes: usize) -> Outcome<Vec<u8>> {
    let cannot = |error| Failure::reading_file(&file.path, &error);
    let found = std::fs::metadata(&file.path).map_err(cannot)?.len();
    if found != n_bytes as u64 {
        let message = format!(
            "{} has {found} bytes; slot {} is wanted, row by row, little-endian, without a header",
            file.path.display(),
            described(slot)
        );
        return Err(Failure::bad_input(message));
    }
    std::fs::read(&file.path).map_err(cannot)
}

fn summary(slot: &Slot, bytes: &[u8], file: Option<PathBuf>) -> Output {
    let (mut least, mut greatest, mut sum, mut n) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0u64);
    let mut n_not_finite = 0;
    for element in bytes.chunks_exact(slot.element.size_bytes() as usize) {
        let value = value(slot.element, element);
        if value.is_finite() {
            (least, greatest) = (least.min(value), greatest.max(value));
            (sum, n) = (sum + value, n + 1);
        } else {
            n_not_finite += 1;
        }
    }
    Output {
        slot: slot.name.clone(),
        element: slot.element.name(),
        shape: slot.shape.clone(),
        least,
        greatest,
        mean: sum / n as f64,
        n_not_finite,
        file,
    }
}

/// An element as a number.
fn value(element: Element, bytes: &[u8]) -> f64 {
    match (element, bytes) {
        (Element::U8, [a]) => f64::from(*a),
        (Element::I8, [a]) => f64::from(*a as i8),
        (Element::I16, [a, b]) => f64::from(i16::from_le_bytes([*a, *b])),
        (Element::Bf16, [a, b]) => f64::from(f32::from_le_bytes([0, 0, *a, *b])),
        (Element::I32, [a, b, c, d]) => f64::from(i32::from_le_bytes([*a, *b, *c, *d])),
        (Element::F32, [a, b, c, d]) => f64::from(f32::from_le_bytes([*a, *b, *c, *d])),
        _ => unreachable!("a chunk is as long as its element"),
    }
}

/// Steele, Lea and Flood's SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Appends an element: numbers in −1 … 1, bytes of any value, small counts for wider integers,
    /// which are lengths and positions as a rule.
    fn push(&mut self, element: Element, bytes: &mut Vec<u8>) {
        let bits = self.next() >> 40;
        let uniform = bits as f32 * (1.0 / (1 << 23) as f32) - 1.0;
        match element {
            Element::U8 | Element::I8 => bytes.push(bits as u8),
            Element::I16 => bytes.extend_from_slice(&((bits & 0x7f) as i16).to_le_bytes()),
            Element::I32 => bytes.extend_from_slice(&((bits & 0x7f) as i32).to_le_bytes()),
            // Truncated to its upper half: a number all the same.
            Element::Bf16 => bytes.extend_from_slice(&uniform.to_le_bytes()[2..]),
            Element::F32 => bytes.extend_from_slice(&uniform.to_le_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_they_are_written() {
        let mut random = Random(1);
        for element in Element::ALL {
            let mut bytes = Vec::new();
            (0..100).for_each(|_| random.push(element, &mut bytes));
            let size = element.size_bytes() as usize;
            assert_eq!(bytes.len(), 100 * size, "{element}");
            let all: Vec<f64> = bytes.chunks(size).map(|b| value(element, b)).collect();
            let wide = matches!(element, Element::Bf16 | Element::F32);
            assert!(!wide || all.iter().all(|v| v.abs() <= 1.0), "{element}");
            assert!(all.iter().any(|v| *v != all[0]), "{element}");
        }
        assert_eq!(value(Element::Bf16, &[0x40, 0x40]), 3.0);
        assert_eq!(value(Element::I8, &[0xff]), -1.0);
    }

    #[test]
    fn slots_and_files_are_joined_by_an_equals_sign() {
        let file: SlotFile = "x=a=b.bin".parse().expect("a slot and a file");
        assert_eq!((file.slot.as_str(), file.path), ("x", "a=b.bin".into()));
        for bad in ["x", "=x", "x="] {
            assert!(bad.parse::<SlotFile>().is_err(), "{bad}");
        }
    }
}
