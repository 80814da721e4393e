//! Every example of every help must parse.

use super::Cli;
use clap::{CommandFactory, Parser};

/// The commands of a help's examples, without what they are said to do: that follows two spaces.
fn examples(help: &str) -> Vec<String> {
    let lines = help
        .lines()
        .filter_map(|line| line.strip_prefix("  millrace "));
    let command = |line: &str| line.split("  ").next().unwrap_or(line).trim().to_owned();
    lines.map(command).collect()
}

/// Words as a shell splits them, up to a pipe or a redirection.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    for c in command.chars().chain([' ']) {
        match c {
            '"' => (quoted, any) = (!quoted, true),
            ' ' if !quoted => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            c => {
                word.push(c);
                any = true;
            }
        }
    }
    // As `main` spells llama-bench's option.
    for word in words.iter_mut().filter(|word| *word == "-pg") {
        "--pg".clone_into(word);
    }
    let end = words.iter().position(|w| ["|", ">"].contains(&w.as_str()));
    words.truncate(end.unwrap_or(words.len()));
    words
}

#[test]
fn every_example_parses() {
    let mut cli = Cli::command();
    let mut helps = vec![cli.render_long_help().to_string()];
    for command in cli.get_subcommands_mut() {
        helps.push(command.render_long_help().to_string());
    }
    let mut n_examples = 0;
    for help in helps {
        for example in examples(&help) {
            let arguments = std::iter::once("millrace".to_owned()).chain(words(&example));
            if let Err(error) = Cli::try_parse_from(arguments) {
                panic!("millrace {example}\n{error}");
            }
            n_examples += 1;
        }
    }
    assert!(n_examples > 60, "{n_examples} examples");
}

#[test]
fn what_does_not_exist_does_not_parse() {
    for wrong in [
        "explain --geometry no-such-model",
        "profile demo --layers two",
        "compile demo every plan of a model",
    ] {
        let arguments = std::iter::once("millrace".to_owned()).chain(words(wrong));
        assert!(Cli::try_parse_from(arguments).is_err(), "{wrong}");
    }
    assert_eq!(
        words("run demo \"Once upon\" > out.txt"),
        ["run", "demo", "Once upon"]
    );
}
