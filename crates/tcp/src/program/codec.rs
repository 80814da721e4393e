//! Programs in [`Container`]s: the payload is the text form.

use super::{Program, TextError, parse, print};
use crate::axes::AxesError;
use millrace_npu::{Container, ContainerError};

/// The target's name in containers.
pub const TARGET: &str = "tcp";

/// Why a container does not hold a program of this target, or a program goes into none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// For another target.
    #[error("the program is for `{0}`, not `{TARGET}`")]
    Target(String),
    /// The payload is not text.
    #[error("the payload is not UTF-8 at byte {0}")]
    NotText(usize),
    /// The payload is not a program.
    #[error("the payload, {0}")]
    Text(#[from] TextError),
    /// A mapping of a slot makes no sense.
    #[error(transparent)]
    Axes(#[from] AxesError),
    /// The container refuses it.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// Container and payload contradict each other.
    #[error("the container's {0} is not that of the program in it")]
    Mismatch(&'static str),
}

impl Program {
    /// The program in a container. The same program gives the same bytes.
    ///
    /// # Errors
    /// Where slots make no sense, have one name, or exceed the container's limits.
    pub fn to_container(&self) -> Result<Container, CodecError> {
        let payload = print(self).into_bytes();
        Ok(Container::new(TARGET, &self.name, self.slots()?, payload)?)
    }

    /// The program in a container. References resolve; whether the program makes sense is the
    /// verifier's question.
    ///
    /// # Errors
    /// [`CodecError`].
    pub fn from_container(container: &Container) -> Result<Program, CodecError> {
        if container.target() != TARGET {
            return Err(CodecError::Target(container.target().to_owned()));
        }
        let text = std::str::from_utf8(container.payload())
            .map_err(|error| CodecError::NotText(error.valid_up_to()))?;
        let program = parse(text)?;
        if program.name != container.name() {
            return Err(CodecError::Mismatch("name"));
        }
        if program.slots()? != container.slots() {
            return Err(CodecError::Mismatch("slot list"));
        }
        Ok(program)
    }
}
