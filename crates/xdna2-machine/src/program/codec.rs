//! Programs in [`Container`]s: the payload is the [text form](super::text).

use super::Program;
use super::text::{self, ParseError};
use millrace_npu::{Container, ContainerError};

/// The target's name in containers.
pub const TARGET: &str = "xdna2";

/// Why a container does not hold a program of this target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The container is for another target.
    #[error("the program is for `{0}`, not `{TARGET}`")]
    Target(String),
    /// The payload is not text.
    #[error("the payload is not UTF-8 at byte {0}")]
    NotText(usize),
    /// The payload is not a program.
    #[error("the payload, {0}")]
    Text(#[from] ParseError),
    /// Container and payload contradict each other.
    #[error("the container's {0} is not that of the program in it")]
    Mismatch(&'static str),
}

impl Program {
    /// The program in a container. The same program gives the same bytes.
    ///
    /// # Errors
    /// Two slots have one name, or something is beyond the container's limits.
    pub fn to_container(&self) -> Result<Container, ContainerError> {
        let payload = text::print(self).into_bytes();
        Container::new(TARGET, &self.name, self.slots.clone(), payload)
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
        let program = text::parse(text)?;
        if program.name != container.name() {
            return Err(CodecError::Mismatch("name"));
        }
        if program.slots != container.slots() {
            return Err(CodecError::Mismatch("slot list"));
        }
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::arbitrary;
    use proptest::prelude::*;

    fn program() -> Program {
        text::parse("xdna2 1 program p { slot a: u8[4] input }").unwrap()
    }

    fn error(target: &str, name: &str, program: &Program, payload: &[u8]) -> String {
        let slots = program.slots.clone();
        let container = Container::new(target, name, slots, payload.to_vec()).unwrap();
        Program::from_container(&container).unwrap_err().to_string()
    }

    #[test]
    fn contradictions_are_named() {
        let p = program();
        let payload = text::print(&p).into_bytes();
        assert_eq!(
            error("tcp", "p", &p, &payload),
            "the program is for `tcp`, not `xdna2`"
        );
        assert_eq!(
            error("xdna2", "q", &p, &payload),
            "the container's name is not that of the program in it"
        );
        let mut other = p.clone();
        other.slots[0].shape = vec![5];
        assert_eq!(
            error("xdna2", "p", &other, &payload),
            "the container's slot list is not that of the program in it"
        );
        assert_eq!(
            error("xdna2", "p", &p, b"xdna2 \xff"),
            "the payload is not UTF-8 at byte 6"
        );
        assert_eq!(
            error("xdna2", "p", &p, b"xdna2 1 launch"),
            "the payload, line 1, column 9: expected `program`, found `launch`"
        );
    }

    proptest! {
        #[test]
        fn what_is_stored_comes_back(program in arbitrary::program()) {
            let Ok(container) = program.to_container() else {
                // Slots with one name or of no size have no container.
                let twice = program.slots.iter().enumerate().any(|(at, slot)| {
                    program.slots[..at].iter().any(|s| s.name == slot.name)
                });
                let endless = program.slots.iter().any(|s| s.size_bytes().is_none());
                prop_assert!(twice || endless);
                return Ok(());
            };
            let bytes = container.encode();
            let back = Container::decode(&bytes).unwrap();
            prop_assert_eq!(Program::from_container(&back).unwrap(), program);
        }
    }
}
