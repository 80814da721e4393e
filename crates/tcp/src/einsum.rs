//! Contractions over named axes. Which axes are broadcast and which contracted follows from their places alone.
//! [`Einsum::compute`] is the scalar oracle.

use crate::axes::{Axes, AxesError, is_name};
use std::fmt;

/// `[B, s, D] × [D, F] → [B, s, F]`: the sum over all axes that the output lacks, of the product of the
/// operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Einsum {
    inputs: Vec<Vec<String>>,
    output: Vec<String>,
}

/// Why an expression is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EinsumError {
    /// Text that does not parse.
    #[error("`{0}`: expected operands as in `[T, K] × [N, K] → [T, N]`")]
    Text(String),
    /// An axis twice in one operand.
    #[error("`{expression}`: axis `{axis}` appears twice in one operand")]
    Twice {
        /// The expression.
        expression: String,
        /// The axis.
        axis: String,
    },
    /// An axis of the output that no operand has.
    #[error("`{expression}`: the output has axis `{axis}`, no operand has it")]
    Unbound {
        /// The expression.
        expression: String,
        /// The axis.
        axis: String,
    },
    /// An axis that is not declared.
    #[error(transparent)]
    Axes(#[from] AxesError),
    /// Data of another size than its axes say.
    #[error("operand {operand} has {found} values, its axes {expected}")]
    Data {
        /// The operand.
        operand: usize,
        /// Values that its axes require.
        expected: u64,
        /// Values given.
        found: u64,
    },
}

impl Einsum {
    /// Makes an expression from names of axes.
    ///
    /// # Errors
    /// Where an operand names an axis twice, or the output one that no operand has.
    pub fn new(inputs: &[&[&str]], output: &[&str]) -> Result<Einsum, EinsumError> {
        let own = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let einsum = Einsum {
            inputs: inputs.iter().map(|names| own(names)).collect(),
            output: own(output),
        };
        einsum.check()?;
        Ok(einsum)
    }

    /// Parses `[T, K] × [N, K] → [T, N]`; `x` and `->` serve too.
    ///
    /// # Errors
    /// As [`new`](Einsum::new), and where the text is something else.
    pub fn parse(text: &str) -> Result<Einsum, EinsumError> {
        let bad = || EinsumError::Text(text.chars().take(120).collect());
        let (inputs, output) = text
            .split_once('→')
            .or_else(|| text.split_once("->"))
            .ok_or_else(bad)?;
        let operand = |text: &str| -> Result<Vec<String>, EinsumError> {
            let text = text.trim().strip_prefix('[').ok_or_else(bad)?;
            let text = text.strip_suffix(']').ok_or_else(bad)?;
            let names = text.split(',').map(str::trim);
            let names = names.map(|name| is_name(name).then(|| name.to_owned()));
            names.collect::<Option<_>>().ok_or_else(bad)
        };
        let inputs = inputs.replace("] x [", "] × [");
        let inputs = inputs.split('×').map(operand);
        let einsum = Einsum {
            inputs: inputs.collect::<Result<_, _>>()?,
            output: operand(output)?,
        };
        einsum.check()?;
        Ok(einsum)
    }

    fn check(&self) -> Result<(), EinsumError> {
        for names in self.inputs.iter().chain([&self.output]) {
            let twice = (1..names.len()).find(|&i| names[..i].contains(&names[i]));
            if let Some(i) = twice {
                return Err(EinsumError::Twice {
                    expression: self.to_string(),
                    axis: names[i].clone(),
                });
            }
        }
        let bound = |axis: &&String| self.inputs.iter().any(|names| names.contains(axis));
        match self.output.iter().find(|axis| !bound(axis)) {
            None => Ok(()),
            Some(axis) => Err(EinsumError::Unbound {
                expression: self.to_string(),
                axis: axis.clone(),
            }),
        }
    }

    /// The operands' axes.
    pub fn inputs(&self) -> &[Vec<String>] {
        &self.inputs
    }

    /// The output's axes.
    pub fn output(&self) -> &[String] {
        &self.output
    }

    /// Axes that are summed over, in the order in which operands name them.
    pub(crate) fn contracted(&self) -> Vec<&str> {
        let mut axes: Vec<&str> = Vec::new();
        for axis in self.inputs.iter().flatten() {
            if !self.output.contains(axis) && !axes.contains(&axis.as_str()) {
                axes.push(axis);
            }
        }
        axes
    }

    /// Axes of the output over which an operand is broadcast.
    ///
    /// # Panics
    /// Where there is no such operand.
    pub fn broadcast(&self, operand: usize) -> Vec<&str> {
        let lacks = |axis: &&String| !self.inputs[operand].contains(axis);
        let axes = self.output.iter().filter(lacks);
        axes.map(String::as_str).collect()
    }

    /// Multiply-accumulates.
    ///
    /// # Errors
    /// Where an axis is not declared.
    pub fn n_macs(&self, axes: &Axes) -> Result<u64, EinsumError> {
        let all = self.output.iter().map(String::as_str);
        let mut all = all.chain(self.contracted());
        all.try_fold(1u64, |n, axis| Ok(n.saturating_mul(axes.size(axis)?)))
    }

    /// The scalar oracle: operands row-major in the order of their axes; sums in f64, in the order of
    /// the contracted axes.
    ///
    /// # Errors
    /// Where an axis is not declared, or data have another size.
    pub fn compute(&self, axes: &Axes, data: &[&[f32]]) -> Result<Vec<f64>, EinsumError> {
        let sizes = |names: &[String]| -> Result<Vec<u64>, AxesError> {
            names.iter().map(|name| axes.size(name)).collect()
        };
        for (operand, names) in self.inputs.iter().enumerate() {
            let expected = sizes(names)?.iter().product();
            let found = data.get(operand).map_or(0, |data| data.len() as u64);
            if found != expected {
                return Err(EinsumError::Data {
                    operand,
                    expected,
                    found,
                });
            }
        }
        let mut names = self.output.clone();
        names.extend(self.contracted().into_iter().map(str::to_owned));
        let all = sizes(&names)?;
        let inner: u64 = all[self.output.len()..].iter().product();
        let steps: Vec<Vec<u64>> = self
            .inputs
            .iter()
            .map(|own| steps(own, &names, axes))
            .collect();
        let at = |flat: u64, steps: &[u64]| {
            let mut rest = flat;
            let mut offset = 0;
            for (size, step) in all.iter().zip(steps).rev() {
                offset += rest % size * step;
                rest /= size;
            }
            offset as usize
        };
        let outer: u64 = all[..self.output.len()].iter().product();
        let mut out = Vec::new();
        for o in 0..outer {
            let terms = (o * inner..(o + 1) * inner).map(|flat| {
                let factors = data.iter().zip(&steps);
                let values = factors.map(|(data, steps)| f64::from(data[at(flat, steps)]));
                values.product::<f64>()
            });
            out.push(terms.sum());
        }
        Ok(out)
    }
}

/// For each axis of `all`, the distance of its neighbours in a row-major array of `own`.
fn steps(own: &[String], all: &[String], axes: &Axes) -> Vec<u64> {
    let step = |axis: &String| {
        let at = own.iter().position(|name| name == axis)?;
        let behind = own[at + 1..]
            .iter()
            .map(|name| axes.size(name).unwrap_or(1));
        Some(behind.product())
    };
    all.iter().map(|axis| step(axis).unwrap_or(0)).collect()
}

impl fmt::Display for Einsum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operands: Vec<String> = (self.inputs.iter())
            .map(|names| format!("[{}]", names.join(", ")))
            .collect();
        write!(f, "{} → [{}]", operands.join(" × "), self.output.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_derives_what_is_broadcast_and_contracted() {
        let text = "[B, G, h_kv, s_q, d_k] × [B, h_kv, s_k, d_k] → [B, G, h_kv, s_q, s_k]";
        let scores = Einsum::parse(text).unwrap();
        assert_eq!(scores.to_string(), text);
        assert_eq!(scores.contracted(), ["d_k"]);
        assert_eq!(scores.broadcast(0), ["s_k"]);
        assert_eq!(scores.broadcast(1), ["G", "s_q"]);
    }

    #[test]
    fn the_oracle_multiplies_matrices() {
        let axes = Axes::of(&[("M", 2), ("K", 3), ("N", 2)]).unwrap();
        let einsum = Einsum::parse("[M, K] x [N, K] -> [N, M]").unwrap();
        let (a, b) = (
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            [1.0, 0.0, 2.0, 0.0, 1.0, 0.0],
        );
        let out = einsum.compute(&axes, &[&a, &b]).unwrap();
        assert_eq!(out, [7.0, 16.0, 2.0, 5.0]);
        assert_eq!(einsum.n_macs(&axes), Ok(12));
        let short = einsum.compute(&axes, &[&a, &b[..5]]).unwrap_err();
        assert_eq!(short.to_string(), "operand 1 has 5 values, its axes 6");
    }

    #[test]
    fn what_is_no_contraction_is_refused() {
        let error = |text: &str| Einsum::parse(text).unwrap_err().to_string();
        assert!(error("[A, A] × [A] → [A]").contains("axis `A` appears twice"));
        assert!(error("[A] × [B] → [C]").contains("the output has axis `C`"));
        assert!(error("A × B → C").contains("expected operands"));
        assert!(error("[A]").contains("expected operands"));
    }
}
