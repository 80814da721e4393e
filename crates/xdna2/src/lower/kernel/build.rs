//! Builds mappings in the first tiling that the verifier accepts; each problem once.

use super::{DIM_MAX, KernelBuild, Kernels, LoweredKernel, MAX_TRIES};
use crate::lower::tiling;
use crate::mapping::{self, Mapping, Shape, Tiling};
use millrace_xdna2_machine::program::{Op as CoreOp, Program};
use std::rc::Rc;

impl Kernels<'_> {
    /// A problem, built once.
    pub(in crate::lower) fn built(
        &mut self,
        mapping: &'static str,
        shape: &Shape,
        eps: Option<f32>,
    ) -> Result<Rc<KernelBuild>, String> {
        if let Some((name, size)) = shape.iter().find(|&(_, size)| size > DIM_MAX) {
            return Err(format!(
                "{name} = {size}: mappings take sizes up to {DIM_MAX}"
            ));
        }
        let key = format!("{mapping} {shape} {:?}", eps.map(f32::to_bits));
        if let Some(built) = self.built.get(&key) {
            return built.clone();
        }
        let built = self.build(mapping, shape, eps, &key);
        self.built.insert(key, built.clone());
        built
    }

    /// The first tiling that the mapping builds and the verifier accepts. If there is none, the fault of the mapping's
    /// own choice.
    fn build(
        &self,
        name: &'static str,
        shape: &Shape,
        eps: Option<f32>,
        key: &str,
    ) -> Result<Rc<KernelBuild>, String> {
        let mapping = mapping::find(name).ok_or_else(|| format!("no mapping `{name}`"))?;
        let attempt = |tiling: Tiling| -> Result<Rc<KernelBuild>, String> {
            let program = self.try_tiling(mapping, shape, &tiling, eps)?;
            Ok(Rc::new(KernelBuild {
                mapping: name,
                shape: shape.clone(),
                tiling,
                program,
                eps,
                key: key.to_owned(),
            }))
        };
        // Mappings that only fast tilings use estimate their times themselves.
        let ranked = match &self.profile {
            Some(profile) => mapping::ranked(name, shape, self.machine, profile),
            None => Vec::new(),
        };
        let mut best = ranked.into_iter().take(MAX_TRIES);
        if let Some(built) = best.find_map(|t| attempt(t).ok()) {
            return Ok(built);
        }
        let default = mapping.default_tiling(shape, self.machine);
        let preferred = tiling::preferred(
            self.options.features,
            self.phase,
            (name, shape),
            &default,
            (self.machine, self.profile.as_ref()),
        );
        if let Some(built) = preferred.into_iter().find_map(|t| attempt(t).ok()) {
            return Ok(built);
        }
        let problem = match attempt(default) {
            Ok(built) => return Ok(built),
            Err(problem) => problem,
        };
        let others = mapping
            .tilings(shape, self.machine)
            .into_iter()
            .take(MAX_TRIES);
        let found = others.map(attempt).find_map(Result::ok);
        found.ok_or_else(|| format!("{name} {shape} fits no tiling: {problem}"))
    }

    /// The same kernel in another tiling, if the mapping builds that and the verifier accepts it.
    pub(in crate::lower) fn with_tiling(
        &self,
        kernel: &LoweredKernel,
        tiling: Tiling,
    ) -> Option<LoweredKernel> {
        let built = &kernel.built;
        let mapping = mapping::find(built.mapping)?;
        let program = self.try_tiling(mapping, &built.shape, &tiling, built.eps);
        Some(LoweredKernel {
            built: Rc::new(KernelBuild {
                mapping: built.mapping,
                shape: built.shape.clone(),
                program: program.ok()?,
                eps: built.eps,
                key: format!("{} {tiling}", built.key),
                tiling,
            }),
            ..kernel.clone()
        })
    }

    fn try_tiling(
        &self,
        mapping: &dyn Mapping,
        shape: &Shape,
        tiling: &Tiling,
        eps: Option<f32>,
    ) -> Result<Program, String> {
        let built = mapping.build(shape, tiling, self.machine);
        let mut program = built.map_err(|e| e.to_string())?;
        if let Some(eps) = eps {
            let herds = program.launches.iter_mut().flat_map(|l| &mut l.herds);
            herds.for_each(|herd| set_epsilon(&mut herd.body, eps));
        }
        self.options.features.numerics().apply(&mut program);
        match self.verifier.verify(&program) {
            Ok(_) => Ok(program),
            Err(refusals) => Err(refusals
                .first()
                .map(ToString::to_string)
                .unwrap_or_default()),
        }
    }
}

/// Replaces the ε that the mapping compiled into its norms by the model's.
fn set_epsilon(body: &mut [CoreOp], eps: f32) {
    for op in body {
        match op {
            CoreOp::Loop { body, .. } => set_epsilon(body, eps),
            CoreOp::If {
                then, otherwise, ..
            } => {
                set_epsilon(then, eps);
                set_epsilon(otherwise, eps);
            }
            CoreOp::Call {
                kernel, constants, ..
            } if kernel.as_str() == "rmsnorm_bf16" => {
                constants.iter_mut().for_each(|c| *c = eps.to_bits());
            }
            _ => {}
        }
    }
}
