//! The reference for devices: the op graph by its definition, with the numerics of a device.

pub(crate) mod blocks;
mod device_weights;
mod forward;
pub(crate) mod narrow;
mod products;
pub(crate) mod rotation;

pub use device_weights::DeviceWeights;
pub use forward::{ExpertChoices, PassArithmetic, logits, logits_with_experts, visit_products};
pub use products::Products;
