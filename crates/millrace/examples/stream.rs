//! Text piece by piece, stopped from another thread, and by a callback.
//!
//! `cargo run -p millrace-llm --example stream`

use millrace::{Cancel, Event, Finish, Model, Options};
use std::sync::mpsc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = Model::open("demo")?.on("cpu")?;

    // An iterator.
    let options = Options::greedy().max_tokens(40);
    let mut stream = session.stream("Once upon a time", &options)?;
    let mut text = String::new();
    for piece in stream.by_ref() {
        text += &piece?;
    }
    println!("{text}");
    let whole = stream.finish()?;
    if whole.text != text {
        return Err("the pieces were expected to be the text".into());
    }

    // A callback, which also gets the prompt's progress, and a thread that stops the work after five pieces.
    let cancel = Cancel::new();
    let (sender, receiver) = mpsc::channel::<()>();
    let handle = cancel.clone();
    let stopper = std::thread::spawn(move || {
        if receiver.recv().is_ok() {
            handle.cancel();
        }
    });
    let mut n_pieces = 0;
    let endless = Options::greedy().ignore_end(true).cancel(&cancel);
    let stopped = session.generate_events("Once upon a time", &endless, &mut |event| {
        if let Event::Text(_) = event {
            n_pieces += 1;
            if n_pieces == 5 {
                // The other thread may have ended already.
                let _ = sender.send(());
            }
        }
    })?;
    drop(sender);
    stopper.join().map_err(|_| "the other thread failed")?;
    println!("stopped after {} tokens", stopped.tokens.len());
    if stopped.finish != Finish::Cancelled || !stopped.text.starts_with(&text[..10]) {
        return Err("a stopped text was expected to keep what it had".into());
    }
    Ok(())
}
