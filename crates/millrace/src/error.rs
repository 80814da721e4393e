//! The crate's error type.

use millrace_plan::{LowerError, SettingError};
use millrace_runtime::npu::NpuError;
use millrace_runtime::vision::image;
use std::io;
use std::path::PathBuf;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate. The text names the file, tensor, setting or value, with expected and found.
/// [`advice`](Error::advice) gives the remedy where it does not follow from the text.
///
/// ```
/// use millrace::{Error, Model};
///
/// let error = Model::open("dmeo").unwrap_err();
/// assert!(matches!(&error, Error::NoModel { name, .. } if name == "dmeo"));
/// assert_eq!(error.advice().as_deref(), Some("did you mean `demo`?"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No model has the given name.
    #[error("no model `{name}`: not built in, no such file or folder")]
    NoModel {
        /// The name.
        name: String,
        /// Similar names that exist, best first.
        similar: Vec<String>,
        /// The hub reference that it could be.
        reference: Option<String>,
    },
    /// A model of the hub, for a build without the feature `hub`.
    #[error("{name} is a model of the hub, and this build has none")]
    NoHub {
        /// The given name.
        name: String,
    },
    /// A file that describes a model and has no weights.
    #[error("{model} holds no weights, only their description")]
    NoWeights {
        /// The model.
        model: String,
    },
    /// No device has that name.
    #[error("no device `{name}`: there is {}", known.join(", "))]
    NoDevice {
        /// The name.
        name: String,
        /// The devices that this build knows.
        known: Vec<&'static str>,
    },
    /// A machine or profile that is neither built in nor a file.
    #[error("no {what} `{name}`")]
    NoFacts {
        /// `machine` or `profile`.
        what: &'static str,
        /// The name.
        name: String,
        /// The names of built-in ones.
        known: Vec<String>,
    },
    /// The file of a machine or profile cannot be read.
    #[error("cannot read {what} {name}: {source}")]
    Facts {
        /// `machine` or `profile`.
        what: &'static str,
        /// The file.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A setting of an NPU, for a model on the CPU, where it would change nothing.
    #[error("`{setting}` is a setting of an NPU, and the device is the CPU")]
    NpuSetting {
        /// The setting, by its name in [`TargetSettings`](crate::TargetSettings).
        setting: &'static str,
    },
    /// A format of keys and values that the device does not have.
    #[error("{asked} is the CPU's: {device} keeps keys and values in bf16")]
    KvType {
        /// The requested format.
        asked: &'static str,
        /// The device.
        device: &'static str,
    },
    /// A bias for a token that the model does not have.
    #[error("logit bias: token {token} is not in the vocabulary of {vocab_size}")]
    BiasBeyond {
        /// The token.
        token: u32,
        /// Tokens of the vocabulary.
        vocab_size: usize,
    },
    /// A stop text of no characters.
    #[error("a stop text is empty, so it would stop at once")]
    EmptyStop,
    /// The number of placeholder tokens does not match the images.
    #[error("the tokens have {n_found} placeholders ({placeholder}) for {n_images} images")]
    Placeholders {
        /// Placeholders among the tokens.
        n_found: usize,
        /// The token that stands for an image.
        placeholder: u32,
        /// Images, crops included.
        n_images: usize,
        /// Rows of an image.
        n_rows: usize,
    },
    /// An image under a name that another image of the same conversation has.
    #[error("{name} is another image than the one shown under that name")]
    OtherImage {
        /// The name.
        name: String,
    },
    /// A draft model cannot read images.
    #[error("the draft model {draft} cannot see images")]
    DraftImages {
        /// Its name.
        draft: String,
    },
    /// A file that the caller named cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The work was stopped before it had a result.
    #[error("stopped")]
    Cancelled,
    /// A stream that failed before, and returned the reason then.
    #[error("this generation failed at an earlier step")]
    Failed,
    /// A model's file that is damaged or of another kind.
    #[error(transparent)]
    File(#[from] millrace_format::Error),
    /// A model that this build cannot run.
    #[error(transparent)]
    Model(#[from] millrace_model::Error),
    /// An error of a tokenizer or chat template.
    #[error(transparent)]
    Text(#[from] millrace_text::Error),
    /// An image that cannot be decoded.
    #[error(transparent)]
    Image(#[from] image::Error),
    /// An error of the engine: context, cache, options, logits that are not numbers.
    #[error(transparent)]
    Engine(millrace_runtime::Error),
    /// An error of a device or of its plan.
    #[error(transparent)]
    Device(NpuError),
    /// A setting that a device does not accept.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A model that cannot be lowered to a device.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// An error of the hub, its cache, or the network.
    #[cfg(feature = "hub")]
    #[error(transparent)]
    Hub(#[from] millrace_hub::Error),
}

impl From<millrace_runtime::Error> for Error {
    fn from(error: millrace_runtime::Error) -> Error {
        use millrace_runtime::Error as Inner;
        // Unwraps to the error's origin.
        match error {
            Inner::Format(error) => Error::File(error),
            Inner::Model(error) => Error::Model(error),
            Inner::Text(error) => Error::Text(error),
            Inner::Device(error) => Error::Device(*error),
            error => Error::Engine(error),
        }
    }
}

impl From<NpuError> for Error {
    fn from(error: NpuError) -> Error {
        match error {
            NpuError::Runtime(error) => error.into(),
            error => Error::Device(error),
        }
    }
}

impl Error {
    /// How to fix it, as a phrase without a full stop; `None` where the text of the error already says so.
    pub fn advice(&self) -> Option<String> {
        use millrace_runtime::Error as Inner;
        Some(match self {
            Error::NoModel { similar, .. } if !similar.is_empty() => {
                format!("did you mean {}?", similar.join(" or "))
            }
            Error::NoModel {
                reference: Some(reference),
                ..
            } => format!("if it is on the Hugging Face Hub, open `hf:{reference}`"),
            Error::NoModel { .. } => "open `demo`, a path, or `hf:OWNER/REPO`".to_owned(),
            Error::NoHub { .. } => "build with the feature `hub`, or give a path".to_owned(),
            Error::NoWeights { .. } => "open the model's own file".to_owned(),
            Error::NoFacts { known, .. } => {
                let known = known.join(", ");
                format!("built in are {known}; anything else is a file")
            }
            Error::NpuSetting { .. } => "leave it out, or name the NPU as the device".to_owned(),
            Error::KvType { .. } => {
                "leave `Device::kv_type` out, or run on the CPU".to_owned()
            }
            Error::Placeholders { n_rows, .. } => format!("give one for each image, or {n_rows}"),
            Error::OtherImage { .. } => "give the new one a name of its own".to_owned(),
            Error::DraftImages { .. } => {
                "draft with n-grams, or leave the draft model out".to_owned()
            }
            Error::Engine(Inner::ContextOverflow { .. }) => {
                "shorten the prompt, or set a longer `Device::context`".to_owned()
            }
            Error::Engine(Inner::CacheTooLarge { .. }) => {
                "lower `Device::context` or `Device::sequences`, or take a smaller `Device::kv_type`"
                    .to_owned()
            }
            Error::Engine(Inner::TooManySequences { .. }) => {
                "drop a chat or stream, or raise `Device::sequences`".to_owned()
            }
            Error::Engine(Inner::NoVision { .. }) => {
                "open a model with vision, or name its vision encoder with `OpenOptions::mmproj`".to_owned()
            }
            Error::Engine(Inner::NoImages { .. }) => "read images on the CPU".to_owned(),
            #[cfg(feature = "hub")]
            Error::Hub(error) => return error.advice(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results are returned by value, so rare and large errors are boxed.
    #[test]
    fn an_error_is_small() {
        use std::mem::size_of;
        let sizes = [
            size_of::<millrace_format::Error>(),
            size_of::<millrace_model::Error>(),
            size_of::<millrace_text::Error>(),
            size_of::<image::Error>(),
            size_of::<millrace_runtime::Error>(),
            size_of::<NpuError>(),
            size_of::<SettingError>(),
            size_of::<LowerError>(),
        ];
        assert!(size_of::<Error>() < 128, "{} {sizes:?}", size_of::<Error>());
    }
}
