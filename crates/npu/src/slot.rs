//! Slots: a program's argument list.

use crate::Element;
use serde::{Deserialize, Serialize};

/// The host's transfers of a slot around a call (the static, intermediate and output index sets of MLIR-AIR's
/// Llama-3.2-1B example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Weights and tables: written once for a buffer set, then left alone.
    Static,
    /// Written by the host before each call.
    Input,
    /// Overwritten by the program: the host neither writes nor reads it.
    Intermediate,
    /// Overwritten by the program and read back by the host after the call.
    Output,
}

impl Role {
    /// The name used in text: `static`, `input`, `intermediate`, `output`.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Static => "static",
            Role::Input => "input",
            Role::Intermediate => "intermediate",
            Role::Output => "output",
        }
    }

    /// The role of that [`name`](Role::name).
    pub fn from_name(name: &str) -> Option<Role> {
        [Role::Static, Role::Input, Role::Intermediate, Role::Output]
            .into_iter()
            .find(|role| role.name() == name)
    }
}

/// One argument of a program: a dense row-major array in a buffer object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Name, unique in the program (`x`, `w_q`, `q_roped`).
    pub name: String,
    /// Type of one element.
    pub element: Element,
    /// Shape, the last dimension contiguous.
    pub shape: Vec<u64>,
    /// Its transfers by the host.
    pub role: Role,
}

impl Slot {
    /// Number of elements; `None` when it overflows.
    pub fn n_elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
    }

    /// Size in bytes; `None` when it overflows.
    pub fn size_bytes(&self) -> Option<u64> {
        let bits = self.n_elements()?.checked_mul(self.element.size_bits())?;
        Some(bits.div_ceil(8))
    }
}
