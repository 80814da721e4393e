//! An image at the beginning of the prompt.

use super::subject::ProfileSubject;
use super::{ProfileArgs, failed};
use crate::exit::{CommandFailure, CommandResult};
use crate::output::{Out, Paint, duration};
use millrace_model::VisionConfig;
use millrace_plan::predict::{self, Prediction, cells};
use millrace_plan::{Lowering, Pricer, VisionCost};
use millrace_runtime::vision::VisionEncoder;
use serde::Serialize;

/// Cost of a prompt with an image, in nanoseconds.
#[derive(Serialize)]
pub(super) struct Image {
    /// Number of the prompt's tokens that belong to the image.
    n_tokens: usize,
    encoder: VisionCost,
    vision_ns: f64,
    /// All passes of the prompt; the first includes the image.
    prompt_ns: f64,
    /// Time to the first token.
    ttft_ns: f64,
}

impl Image {
    /// Predicts the cost, if it is asked for.
    pub(super) fn of(
        args: &ProfileArgs,
        subject: &ProfileSubject,
        planner: &dyn Lowering,
        pricer: &mut dyn Pricer,
        prediction: &Prediction,
    ) -> CommandResult<Option<Image>> {
        if !args.with_image {
            return Ok(None);
        }
        let vision = vision(args, subject)?;
        let (graph, n_tokens) = (subject.graph(), prediction.prompt_tokens);
        let found = predict::image(graph, &vision, planner, pricer, n_tokens).map_err(failed)?;
        let later = prediction.prefill.iter().skip(1);
        let later_ns: f64 = later.map(|pass| pass.totals.total_ns).sum();
        let vision_ns = found.encoder.total_ns();
        let prompt_ns = found.pass.totals.total_ns + later_ns;
        Ok(Some(Image {
            n_tokens: vision.n_tokens,
            encoder: found.encoder,
            vision_ns,
            prompt_ns,
            ttft_ns: vision_ns + prompt_ns,
        }))
    }

    pub(super) fn print(&self, out: &mut Out) -> CommandResult {
        let VisionCost {
            work_ns,
            products_ns,
            attention_ns,
            load_ns,
            call_ns,
            host_ns,
            n_dispatches,
        } = self.encoder;
        let rest_ns = work_ns - products_ns - attention_ns;
        let title = format!(
            "With an image, {} of the prompt's tokens",
            cells::count(self.n_tokens as u64)
        );
        out.line("")?;
        out.line(Paint::Bold.stdout(&title))?;
        out.line(format!(
            "  encoder        {}: products {}, attention {}, the rest at work {}, loading {}, {n_dispatches} calls {}, the \
             host's norms and sums {}",
            duration(self.vision_ns),
            duration(products_ns),
            duration(attention_ns),
            duration(rest_ns),
            duration(load_ns),
            duration(call_ns),
            duration(host_ns)
        ))?;
        out.line(format!("  prompt       {}", duration(self.prompt_ns)))?;
        out.line(format!("  first token  after {}", duration(self.ttft_ns)))
    }
}

/// The vision encoder of the shape or of the files.
fn vision(args: &ProfileArgs, subject: &ProfileSubject) -> CommandResult<VisionConfig> {
    if let ProfileSubject::Files(model) = subject {
        let encoder = VisionEncoder::open(model, args.mmproj.as_deref())?;
        let config = encoder.config();
        return match &config.grid {
            None => Ok(config.clone()),
            Some(_) => Err(CommandFailure::usage(format!(
                "{} takes images of any size, which no device does: there is nothing to predict",
                encoder.name()
            ))),
        };
    }
    let vision = args.geometry.and_then(|geometry| geometry.vision());
    vision.ok_or_else(|| CommandFailure::usage(format!("{} sees no images", subject.name())))
}
