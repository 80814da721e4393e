//! `millrace embed`: embeddings of the texts in a file, one text per line.

use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::model_arg::{ModelArgs, refuse_input, warn};
use crate::output::{Out, Ui};
use crate::progress::ProgressDisplay;
use crate::prompt::read_file;
use clap::ValueEnum;
use millrace::Device;
use millrace_format::{TensorSpec, safetensors};
use millrace_quant::DType;
use millrace_runtime::{Embedder, EmbeddingPrompts, EngineOptions, Pooling, cut_embedding};
use millrace_text::EncodeOptions;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  millrace embed demo texts.txt
  millrace embed bge-folder texts.txt --out vectors.safetensors
  millrace embed model.gguf texts.jsonl --dimensions 256 | jq .embedding

Each line of the file is a text, or a JSON string or an object with `text`; blank lines are skipped.
Each text gives a line of JSON, in the file's order: `index`, `n_tokens`, `embedding`. With --out the file
holds `embeddings` [texts, width] f32 instead.
Vectors have length 1, so that a dot product is a cosine.";

/// Pooling of a text's token rows into one.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PoolingArg {
    /// Mean of all tokens
    Mean,
    /// First token
    First,
    /// Last token
    Last,
}

/// Compute embeddings of texts
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EmbedArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Texts, one per line (`-`: standard input)
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// How to pool the tokens of a text [default: from the model's files, else mean]
    #[arg(long, value_name = "HOW")]
    pooling: Option<PoolingArg>,
    /// Elements to keep of each vector, for models trained to be truncated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    dimensions: Option<u32>,
    /// Prefix of every text, such as "query: " [default: the usual prompt of the model's files, if they have one]
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_name")]
    prefix: Option<String>,
    /// Prompt of the model's files to put before every text, such as query or document
    #[arg(long, value_name = "NAME")]
    prompt_name: Option<String>,
    /// File to write instead of printing lines
    #[arg(short, long, value_name = "FILE.safetensors", value_hint = clap::ValueHint::FilePath)]
    out: Option<PathBuf>,
    /// Maximum tokens of a text [default: the model's training context, at most 8192]
    #[arg(short, long, value_name = "TOKENS")]
    ctx: Option<usize>,
    /// Maximum texts computed together
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: u32,
    #[command(flatten)]
    cpu: CpuArgs,
}

pub(crate) fn run(args: &EmbedArgs, ui: Ui) -> CommandResult {
    let texts = texts(&read_file(&args.file)?)?;
    let model = args.model.load(ui)?;
    if let Some(out) = &args.out {
        refuse_input(out, model.checkpoint(), &[&args.file])?;
    }
    let tokenizer = model.tokenizer()?;
    warn(tokenizer.vocabulary_warnings(), ui);
    let pooling = match args.pooling {
        Some(PoolingArg::Mean) => Pooling::Mean,
        Some(PoolingArg::First) => Pooling::First,
        Some(PoolingArg::Last) => Pooling::Last,
        None => Pooling::of(&model)?.unwrap_or(Pooling::Mean),
    };
    let embedder = Embedder::new(&model)?;
    let width = width(args, embedder.width())?;
    let encode = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let prefix = prefix(args, &EmbeddingPrompts::of(&model)?)?;
    let tokens = texts.iter().map(|text| format!("{prefix}{text}"));
    let tokens: Vec<Vec<u32>> = tokens.map(|text| tokenizer.encode(&text, encode)).collect();
    if let Some(index) = tokens.iter().position(Vec::is_empty) {
        let message = format!("text {index} of {} has no tokens", args.file.display());
        return Err(CommandFailure::usage(message).hint("remove the empty line"));
    }
    let options = EngineOptions {
        n_ctx: args.ctx,
        max_sequences: args.batch as usize,
        keep_prefixes: false,
        ..args.cpu.options()
    };
    let device = Device::default().engine_options(options);
    let mut engine = device.engine(&model)?;
    let mut vectors = vec![Vec::new(); tokens.len()];
    let progress = ProgressDisplay::steps(ui, tokens.len() as u64);
    let mut n_done = 0;
    for part in parts(&tokens, args.batch as usize) {
        if interrupt::is_raised() {
            return Err(CommandFailure::interrupted());
        }
        let of_part: Vec<Vec<u32>> = part.iter().map(|index| tokens[*index].clone()).collect();
        embedder.embed_all(&mut *engine, &of_part, pooling, &mut |index, vector| {
            vectors[part[index]] = cut_embedding(vector, width);
            n_done += 1;
            progress.set(n_done);
            Ok(())
        })?;
    }
    drop(progress);
    write(args, &tokens, &vectors, width)
}

/// Prefix of every text.
fn prefix(args: &EmbedArgs, prompts: &EmbeddingPrompts) -> CommandResult<String> {
    let prefix = match (&args.prefix, &args.prompt_name) {
        (Some(prefix), _) => Ok(prefix.as_str()),
        (None, Some(name)) => prompts.named(name),
        (None, None) => Ok(prompts.usual()),
    };
    let prefix =
        prefix.map_err(|found| CommandFailure::usage(format!("--prompt-name: {found}")))?;
    Ok(prefix.to_owned())
}

/// Number of elements to keep.
fn width(args: &EmbedArgs, d_model: usize) -> CommandResult<usize> {
    match args.dimensions.map(|n| n as usize) {
        Some(n) if n > d_model => Err(CommandFailure::usage(format!(
            "--dimensions is {n}, and the model's vectors have {d_model} elements"
        ))),
        n => Ok(n.unwrap_or(d_model)),
    }
}

/// Indices of texts in batches, texts of similar length together; Ctrl-C is checked between batches.
fn parts(tokens: &[Vec<u32>], batch: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..tokens.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(tokens[*index].len()));
    order.chunks(batch * 4).map(<[usize]>::to_vec).collect()
}

/// Parses one text per line: plain, or in JSON.
pub(super) fn texts(file: &str) -> CommandResult<Vec<String>> {
    let lines = file.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| text_of(number + 1, line))
        .collect()
}

fn text_of(number: usize, line: &str) -> CommandResult<String> {
    if !line.starts_with(['{', '"']) {
        return Ok(line.to_owned());
    }
    let value: Value = match serde_json::from_str(line) {
        Ok(value) => value,
        // A line that only looks like a JSON string is a plain text.
        Err(_) if line.starts_with('"') => return Ok(line.to_owned()),
        Err(error) => {
            let message = format!("line {number} begins as JSON and is none: {error}");
            return Err(CommandFailure::usage(message));
        }
    };
    let text = value.as_str().or_else(|| value.get("text")?.as_str());
    text.map(str::to_owned).ok_or_else(|| {
        let message = format!("line {number} is an object without a string `text`");
        CommandFailure::usage(message)
    })
}

fn write(
    args: &EmbedArgs,
    tokens: &[Vec<u32>],
    vectors: &[Vec<f32>],
    width: usize,
) -> CommandResult {
    let Some(path) = &args.out else {
        let mut out = Out::new();
        for (index, (tokens, vector)) in tokens.iter().zip(vectors).enumerate() {
            let line = json!({
                "index": index, "n_tokens": tokens.len(), "embedding": vector,
            });
            out.line(line.to_string())?;
        }
        return Ok(());
    };
    let spec = TensorSpec::new("embeddings", DType::F32, &[vectors.len(), width]);
    let bytes: Vec<u8> = vectors
        .iter()
        .flatten()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let write = || {
        let mut writer = safetensors::Writer::create(path, &BTreeMap::new(), &[spec])?;
        writer.write("embeddings", &bytes)?;
        writer.commit()
    };
    write().map_err(|error: millrace_format::Error| CommandFailure::writing(&error))
}

#[cfg(test)]
mod tests {
    use super::texts;

    #[test]
    fn a_line_is_a_text_or_json() {
        let file =
            "plain \u{e9}\n\n\"in quotes\"\n{\"text\": \"an object\", \"id\": 3}\n\"He said\" so\n";
        let found = texts(file).unwrap();
        assert_eq!(
            found,
            ["plain \u{e9}", "in quotes", "an object", "\"He said\" so"]
        );
        for bad in ["{\"text\": 3}", "{oops", "{}"] {
            assert!(texts(bad).is_err(), "{bad}");
        }
    }
}
