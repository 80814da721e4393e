//! Language models from a file to text, on the CPU and on NPUs, in one crate.
//!
//! A [`Model`] is an open model file. [`Model::on`] places it on a [`Device`] and returns a [`Session`], which
//! generates text, chats, embeds and scores. The examples here run on `demo`, a model of five million parameters that
//! is built in and writes stories for children.
//!
//! # Hello
//!
//! ```
//! use millrace::Model;
//!
//! # fn main() -> Result<(), millrace::Error> {
//! let session = Model::open("demo")?.on("cpu")?;
//! let story = session.generate("Once upon a time")?;
//! println!("{story}");
//! # assert!(!story.text.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! [`Model::open`] takes a GGUF or safetensors file, a folder as transformers writes it, and with the feature `hub` a
//! model of the Hugging Face Hub, as in `hf:Qwen/Qwen3-0.6B` or `hf:OWNER/REPO:Q4_K_M`. [`Options`], a builder, says
//! how text is sampled and when it ends. The model's files decide anything left unset:
//!
//! ```
//! # use millrace::{Finish, Model, Options};
//! # fn main() -> Result<(), millrace::Error> {
//! # let session = Model::open("demo")?.on("cpu")?;
//! let options = Options::new().temperature(0.7).seed(7).max_tokens(20).stop("\n");
//! let generation = session.generate_with("Once upon a time", &options)?;
//! assert!(generation.tokens.len() <= 20);
//! assert!(matches!(generation.finish, Finish::Length | Finish::StopText | Finish::Stop));
//! println!("{:.0} tokens a second", generation.timings.decode_per_s());
//! # Ok(())
//! # }
//! ```
//!
//! # Chat
//!
//! A [`Chat`] puts messages into the model's chat template and keeps the computed state, so an answer costs only the
//! new message. Control tokens spelled out in a message are plain text to the model.
//!
//! ```
//! # use millrace::{Model, Options};
//! # fn main() -> Result<(), millrace::Error> {
//! # let session = Model::open("demo")?.on("cpu")?;
//! let mut chat = session.chat()?.options(&Options::greedy().max_tokens(30));
//! let answer = chat.say("What is 7 plus 5?")?;
//! println!("{answer}");
//! let answer = chat.say_with("And 3 plus 4?", |piece| print!("{piece}"))?;
//! assert!(answer.timings.n_cached > 0);
//! # Ok(())
//! # }
//! ```
//!
//! One question without a conversation is a [`Prompt::user`]; a `&str` is a text to continue.
//!
//! # Streaming
//!
//! [`Session::stream`] is an iterator over pieces of text. [`Session::generate_events`] calls back, and reports the
//! prompt's progress too. A [`Cancel`] stops either from any thread, and the text written so far is kept.
//!
//! ```
//! # use millrace::{Cancel, Finish, Model, Options};
//! # fn main() -> Result<(), millrace::Error> {
//! # let session = Model::open("demo")?.on("cpu")?;
//! let cancel = Cancel::new();
//! let options = Options::greedy().cancel(&cancel);
//! let mut stream = session.stream("Once upon a time", &options)?;
//! for piece in stream.by_ref().take(5) {
//!     print!("{}", piece?);
//! }
//! cancel.cancel();
//! assert_eq!(stream.finish()?.finish, Finish::Cancelled);
//! # Ok(())
//! # }
//! ```
//!
//! # Batches
//!
//! [`Session::batch`] computes many prompts together: every pass over the weights serves as many as the session has
//! sequences. The other prompts of a batch change no text, to the bit.
//!
//! ```
//! # use millrace::{Device, Model, Options};
//! # fn main() -> Result<(), millrace::Error> {
//! let session = Model::open("demo")?.on(Device::named("cpu").sequences(8))?;
//! let options = Options::greedy().max_tokens(8);
//! let texts = session.batch(["Once upon a time", "The dog", "Tom"], &options)?;
//! assert_eq!(texts[1].text, session.generate_with("The dog", &options)?.text);
//! # Ok(())
//! # }
//! ```
//!
//! # Embeddings, logits and images
//!
//! ```
//! # use millrace::Model;
//! # fn main() -> Result<(), millrace::Error> {
//! # let session = Model::open("demo")?.on("cpu")?;
//! let embedding = session.embed("The dog saw a ball.")?;
//! assert_eq!(embedding.len(), session.model().d_model());
//! let logits = session.logits("Once upon a time")?;
//! assert_eq!(logits.rows().next().map(|row| row.len()), Some(session.model().vocab_size()));
//! # Ok(())
//! # }
//! ```
//!
//! Models with vision take images in a prompt or a chat:
//!
//! ```no_run
//! # use millrace::{Model, Prompt};
//! # fn main() -> Result<(), millrace::Error> {
//! let session = Model::open("hf:google/gemma-3-4b-it")?.on("cpu")?;
//! let question = Prompt::user("What is this?").image_file("photo.jpg")?;
//! println!("{}", session.generate(question)?);
//! # Ok(())
//! # }
//! ```
//!
//! # Devices
//!
//! A name is enough, and [`Device`] sets the rest: context, sequences, threads, drafts, and how an NPU's plans are
//! made. [`Device::names`] lists what a build knows. An NPU that this computer does not have is simulated. The
//! simulation computes the NPU's results, in far more time, and reports the modelled time.
//!
//! ```
//! # #[cfg(feature = "targets")]
//! # fn main() -> Result<(), millrace::Error> {
//! # use millrace::{Device, Model, Options};
//! let npu = Model::open("demo")?.on(Device::named("xdna2").context(128))?;
//! let text = npu.generate_with("Once upon a time", &Options::greedy().max_tokens(2))?;
//! assert_eq!(text.tokens.len(), 2);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "targets"))]
//! # fn main() {}
//! ```
//!
//! # Errors
//!
//! Every function returns the one [`Error`]. Its text names the file, tensor, setting or value, with expected and
//! found; [`Error::advice`] gives the remedy. Checks are made before any work where possible, and a failed call
//! leaves session and chat as they were.
//!
//! ```
//! use millrace::{Device, Error, Model, engine};
//!
//! # fn main() -> Result<(), Error> {
//! let session = Model::open("demo")?.on(Device::named("cpu").context(16))?;
//! match session.generate("a text that is longer than sixteen tokens ".repeat(9)) {
//!     Err(error @ Error::Engine(engine::Error::ContextOverflow { .. })) => {
//!         eprintln!("{error}; {}", error.advice().unwrap_or_default());
//!     }
//!     other => panic!("expected a refusal, found {other:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | gives | without it |
//! |---|---|---|
//! | `demo` | the built-in models, 13 MB in the program | models from files |
//! | `hub` | models of the Hugging Face Hub, with TLS | models from files |
//! | `targets` | the NPUs | the CPU alone; the crates of NPUs are not built |
//!
//! All three are on by default.
//!
//! # Untrusted templates
//!
//! A chat template is a program in the model's file. Its engine bounds source, steps, depth and memory of each text.
//! The command line also renders templates in a separate process. Programs that open untrusted files can do the same
//! with [`engine::render_templates_with`].
#![forbid(unsafe_code)]

mod cancel;
mod chat;
mod device;
mod embedded;
mod error;
mod event;
mod find;
mod images;
mod kept;
mod model;
mod options;
mod programs;
mod prompt;
mod session;
mod stream;

pub use cancel::Cancel;
pub use chat::Chat;
pub use device::{CPU, Device, TargetSettings};
pub use embedded::EmbeddedModel;
pub use error::{Error, Result};
pub use event::Event;
pub use find::{ModelFiles, OpenOptions};
pub use kept::KeptSequence;
pub use model::Model;
pub use options::Options;
pub use programs::{PROGRAMS_VARIABLE, programs_folder};
pub use prompt::{ImageReading, Prompt, PromptTokens, read_image};
pub use session::{Logits, Session};
pub use stream::Stream;

pub use millrace_runtime::vision::ImageStyle;
pub use millrace_runtime::vision::image::RgbImage;
pub use millrace_runtime::{
    Finish, GenerateParams, Generation, KvType, Level, Pooling, SpeculationStats, Timings,
};
pub use millrace_text::{Message, Warning};

/// The parts of [`Options`] that say how tokens are drawn.
pub mod sampling {
    pub use millrace_runtime::sampling::{
        Dry, DynamicTemperature, Mirostat, StageKind, UnknownStage, Xtc,
    };
}

/// The Hugging Face Hub: references, the cache that other tools share, downloads.
#[cfg(feature = "hub")]
pub use millrace_hub as hub;

/// The layers below a [`Session`]: for callers who drive an engine themselves, or run a model on their own kind of
/// NPU.
pub mod engine {
    pub use millrace_format::{Checkpoint, Error as FileError};
    pub use millrace_graph::Graph;
    pub use millrace_model::Error as ModelError;
    pub use millrace_plan::{LowerError, Planner, SettingError, Settings, Target};
    pub use millrace_runtime::disk::{DiskError, PageFolder};
    pub use millrace_runtime::npu::{NpuError, NpuModel, PlannedEngine};
    pub use millrace_runtime::vision::image::Error as ImageError;
    pub use millrace_runtime::vision::{ImageReader, Pixels, VisionRun};
    pub use millrace_runtime::{
        AdapterSet, BatchItem, Cpu, Engine, EngineCounters, EngineLimits, EngineOptions, Error,
        Image, ItemRows, KvUsage, LoadedModel, LogitsFor, LoraAdapter, SamplingParams, SeqId,
        Speculator, StepOutput, StepShape, StepSink,
    };
    pub use millrace_text::{
        EncodeOptions, Error as TextError, TemplateJob, TemplateReply, Tokenizer,
        render_templates_with,
    };
}
