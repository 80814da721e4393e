//! Programs of the toy: `y[m, n] = x[m, k] · W[n, k]ᵀ`, each number in f32 but W, which is in f16.

use crate::NAME;
use millrace_npu::{Container, ContainerError, Element, Role, Slot};

/// A product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Rows of x.
    pub m: u64,
    /// Elements of a row of x.
    pub k: u64,
    /// Rows of W.
    pub n: u64,
}

/// Most rows of x at once: the capacity of the toy's one buffer.
pub const MAX_ROWS: u64 = 256;

/// Slot of x.
pub const X: usize = 0;
/// Slot of W.
pub const W: usize = 1;
/// Slot of y.
pub const Y: usize = 2;

const DIMENSIONS: usize = 3;

impl Program {
    /// The slots x, W and y.
    pub fn slots(&self) -> Vec<Slot> {
        let slot = |name: &str, element, shape: [u64; 2], role| Slot {
            name: name.to_owned(),
            element,
            shape: shape.to_vec(),
            role,
        };
        vec![
            slot("x", Element::F32, [self.m, self.k], Role::Input),
            slot("w", Element::F16, [self.n, self.k], Role::Static),
            slot("y", Element::F32, [self.m, self.n], Role::Output),
        ]
    }

    /// Packs the program into a container whose payload is the three dimensions.
    ///
    /// # Errors
    /// Dimensions whose buffers no container has room for.
    pub fn to_container(&self) -> Result<Container, ContainerError> {
        let name = format!("matmul_{}x{}x{}", self.m, self.k, self.n);
        let dims = [self.m, self.k, self.n].into_iter();
        let payload = dims.flat_map(u64::to_le_bytes).collect();
        Container::new(NAME, &name, self.slots(), payload)
    }

    /// Reads the program of a container.
    ///
    /// # Errors
    /// Description of the fault: bytes that are no program, slots of another one, a product that the device does not
    /// take.
    pub fn from_container(container: &Container) -> Result<Program, String> {
        let payload = container.payload();
        let dims: &[[u8; 8]] = match bytemuck::try_cast_slice(payload) {
            Ok(dims) => dims,
            Err(_) => return Err(format!("{} bytes are no program", payload.len())),
        };
        let &[m, k, n] = dims else {
            return Err(format!("{} dimensions, not {DIMENSIONS}", dims.len()));
        };
        let [m, k, n] = [m, k, n].map(u64::from_le_bytes);
        let program = Program { m, k, n };
        program.check()?;
        match container.slots() == program.slots() {
            true => Ok(program),
            false => Err("slots of another program".to_owned()),
        }
    }

    /// Whether the device takes it.
    ///
    /// # Errors
    /// The limit, in words.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=MAX_ROWS).contains(&self.m) {
            return Err(format!("{} rows: the toy takes 1 to {MAX_ROWS}", self.m));
        }
        let dims = 1..=1 << 24;
        match dims.contains(&self.k) && dims.contains(&self.n) {
            true => Ok(()),
            false => Err(format!("a matrix of {} × {}", self.n, self.k)),
        }
    }
}
