//! `millrace tokenize`: converts text to token ids and back.

use crate::exit::{CommandFailure, CommandResult};
use crate::model_arg::{ModelArgs, warn};
use crate::output::{Align, Out, TextTable, Ui};
use crate::prompt::TextArgs;
use crate::tokens::TokenList;
use millrace_text::{EncodeOptions, Tokenizer};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  millrace tokenize demo \"Once upon a time\"        ids with the text of each
  millrace tokenize demo -f story.txt --ids         ids only, for `logits --tokens`
  millrace tokenize demo --decode 1,15,8            the text of ids
  echo \"Hello\" | millrace tokenize demo --json

MODEL may also be a tokenizer.json, a folder with one, or a GGUF file of any architecture, with or
without weights.";

/// Show how a model splits text into tokens
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    text: TextArgs,
    /// Turn token ids (1,2,3) into text instead
    #[arg(long, value_name = "IDS", conflicts_with_all = ["text", "file"])]
    decode: Option<TokenList>,
    /// Leave out the tokens that the model adds around every text (such as the beginning-of-text token)
    #[arg(long)]
    no_special: bool,
    /// Take `<|special|>` tokens in the text as plain characters
    #[arg(long)]
    no_parse_special: bool,
    /// Print the ids only, separated by commas
    #[arg(long, conflicts_with = "json")]
    ids: bool,
    /// Print ids, pieces and count as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &TokenizeArgs, ui: Ui) -> CommandResult {
    let tokenizer = args.model.tokenizer(ui)?;
    warn(tokenizer.vocabulary_warnings(), ui);
    if let Some(ids) = &args.decode {
        ids.check(tokenizer.n_vocab(), None)?;
        return decode(args, &tokenizer, &ids.0);
    }
    if args.text.is_interactive() {
        return Err(CommandFailure::usage("no text to tokenize")
            .hint("give a text, a file with -f FILE, or pipe one into standard input"));
    }
    let text = args.text.read()?;
    let options = EncodeOptions {
        add_special: !args.no_special,
        parse_special: !args.no_parse_special,
    };
    let ids = tokenizer.encode(&text, options);
    let mut out = Out::new();
    if args.json {
        let pieces: Vec<String> = ids.iter().map(|id| piece(&tokenizer, *id)).collect();
        out.json(&json!({ "ids": ids, "pieces": pieces, "count": ids.len() }))?;
    } else if args.ids {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        out.line(ids.join(","))?;
    } else {
        let mut table = TextTable::new(&[("id", Align::Right), ("piece", Align::Left)]);
        for id in &ids {
            table.row(vec![
                id.to_string(),
                format!("{:?}", piece(&tokenizer, *id)),
            ]);
        }
        table.print(&mut out)?;
        out.flush()?;
        ui.note(format_args!("{} tokens", ids.len()));
    }
    out.flush()
}

fn decode(args: &TokenizeArgs, tokenizer: &Tokenizer, ids: &[u32]) -> CommandResult {
    let text = tokenizer.decode(ids, args.no_special);
    let mut out = Out::new();
    if args.json {
        out.json(&json!({ "ids": ids, "text": text }))?;
    } else {
        out.line(text)?;
    }
    out.flush()
}

/// A token's own bytes as text; bytes that are part of a character show as `\u{fffd}`.
fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    if tokenizer.is_special(id) {
        return tokenizer.token_text(id).to_string();
    }
    String::from_utf8_lossy(&tokenizer.token_bytes(id)).into_owned()
}
