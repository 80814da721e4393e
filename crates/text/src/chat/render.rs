//! Execution of a job: parses templates, and renders one of them.

use super::adapt::{self, Adapt};
use super::jinja::{FaultKind, STEPS, Template, TemplateFault};
use super::job::{Reply, TemplateJob};

/// Reads the templates of a job and renders the chosen one.
pub(super) fn run(job: &TemplateJob) -> Reply {
    let mut chosen = None;
    for (name, source) in &job.templates {
        match Template::parse(source) {
            Ok(template) if job.render.as_ref() == Some(name) => chosen = Some((name, template)),
            Ok(_) => {}
            Err((line, reason)) => {
                return Reply::Parse {
                    name: name.clone(),
                    line,
                    reason,
                };
            }
        }
    }
    let (name, template) = match (&job.render, chosen) {
        (None, _) => return Reply::Text(String::new()),
        (Some(_), Some(chosen)) => chosen,
        (Some(name), None) => {
            return Reply::Render {
                name: name.clone(),
                line: 0,
                reason: "there is no template of this name".to_owned(),
            };
        }
    };
    let render = |variables| {
        let text = template.render(variables, job.moment(), STEPS);
        text.map_or_else(|fault| explain(name, fault), Reply::Text)
    };
    let Some(adapt) = &job.adapt else {
        return render(&job.variables);
    };
    let habits = match adapt {
        Adapt::Known(habits) => *habits,
        Adapt::Probe => adapt::probe(&template, &job.variables, job.moment()),
    };
    let mut variables = job.variables.clone();
    if let Some(messages) = variables.get_mut("messages") {
        habits.adapt(messages);
    }
    Reply::Adapted {
        habits,
        reply: Box::new(render(&variables)),
    }
}

/// The reply for a failed rendering.
fn explain(name: &str, fault: TemplateFault) -> Reply {
    match fault.kind {
        FaultKind::Refused => Reply::Refused(fault.message),
        FaultKind::Limit => Reply::Limit(fault.message),
        _ => Reply::Render {
            name: name.to_owned(),
            line: fault.line as usize,
            reason: fault.message,
        },
    }
}
