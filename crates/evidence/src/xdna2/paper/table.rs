//! The report as text (Markdown).

use super::rows::PaperMetric;
use super::{BesideTable, PaperReport, PaperRow, Power, Summary, Table};
use millrace_plan::predict::cells::{count, ms};
use std::fmt;

impl fmt::Display for PaperReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heading(f)?;
        self.summary(f)?;
        for table in &self.tables {
            rows(f, table)?;
        }
        self.images(f)?;
        self.what_was_fitted(f)?;
        power(f, &self.power)?;
        where_it_goes(f, &self.tables)?;
        self.beside(f)
    }
}

/// A time or a rate with three digits.
fn value(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// A percentage with a sign; zero is `+0.0 %`.
fn percent(percent: f64) -> String {
    let rounded = (percent * 10.0).round() / 10.0 + 0.0;
    format!("{rounded:+.1} %")
}

fn marked(id: &str, fitted: bool) -> String {
    format!("{id}{}", if fitted { " \\*" } else { "" })
}

fn unit(what: PaperMetric) -> &'static str {
    match what {
        PaperMetric::Prompt => "s",
        PaperMetric::Token => "tokens/s",
    }
}

/// `median 9.1 %, max 20.3 %`.
fn errors(summary: &Summary) -> String {
    match summary.n_rows == summary.n_fitted {
        true => "–".to_owned(),
        false => format!(
            "median {:.1} %, max {:.1} %",
            summary.median_percent, summary.max_percent
        ),
    }
}

impl PaperReport {
    fn heading(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (paper, mode, profile) = (&self.paper, self.mode, self.profile);
        writeln!(
            f,
            "*{paper}*: what it measured on a Ryzen AI 7 350 beside what is modelled({profile}) for the programs that \
             mode {mode} lowers the same models to, launch by launch, with this project's host around them, and with what the \
             profile says that the paper's software takes beside launches. None of it was \
             measured on an NPU here. Errors are predicted / published − 1. Rows marked \\* are those that a constant of the \
             profile was fitted on. *Launches alone* is the error without what stands beside them. Mode fastflowlm expands a prompt's \
             weights to bf16 in DDR before its products and attends by FlowQKV and FlowKV, as the paper does; mode \
             fast has bf16 weights, is modelled({}), and is shown for comparison.",
            self.own_profile
        )?;
        if self.longest_tokens < u64::MAX {
            let longest = count(self.longest_tokens);
            writeln!(f, "\nRows of more than {longest} tokens are left out.")?;
        }
        writeln!(f)
    }

    fn summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = &self.summary;
        let missed = all.missed.len();
        writeln!(
            f,
            "Over the {} rows of {} that nothing was fitted on: {}.\n",
            all.n_rows - all.n_fitted,
            all.n_rows,
            errors(all)
        )?;
        writeln!(
            f,
            "- target, every row within {} %: {}",
            self.row_target_percent,
            match missed {
                0 => "met".to_owned(),
                n => format!("MISSED by {n} of {} rows", all.n_rows),
            }
        )?;
        writeln!(
            f,
            "- target, median at most {} %: {}\n",
            self.median_target_percent,
            match all.median_is_missed {
                true => "MISSED",
                false => "met",
            }
        )?;
        writeln!(
            f,
            "| table | rows | fitted on | over the others | outside {} % |",
            self.row_target_percent
        )?;
        writeln!(f, "|---|---:|---:|---|---:|")?;
        for table in &self.tables {
            let s = &table.summary;
            writeln!(
                f,
                "| {} | {} | {} | {} | {} |",
                table.title,
                s.n_rows,
                s.n_fitted,
                errors(s),
                s.missed.len()
            )?;
        }
        Ok(())
    }

    fn what_was_fitted(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n### What was fitted\n\nConstants of `{}` that these predictions read and that were fitted on rows above. Those that begin \
             with `stack` are times beside a prompt's launches, of a layer or of a token in a layer.\n\n\
             | constant | value | on rows | |\n|---|---:|---|---|",
            self.profile
        )?;
        for constant in &self.fitted {
            let rows = constant.rows.join(", ");
            let (key, value, note) = (&constant.key, constant.value, &constant.note);
            writeln!(f, "| `{key}` | {value} | {rows} | {note} |")?;
        }
        Ok(())
    }

    fn images(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n### An image\n\nThe vision encoder's programs, then the prompt's pass. Target: within \
             {} %. Mode int4 is modelled({}).\n\n\
             | row | what | tokens | published, s | predicted | error | | launches alone | mode int4, s |\n\
             |---|---|---:|---:|---:|---:|---|---:|---:|",
            super::IMAGE_PERCENT,
            self.own_profile
        )?;
        for row in &self.images {
            writeln!(
                f,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.id,
                row.what,
                row.tokens,
                value(row.published),
                value(row.predicted),
                percent(row.error_percent),
                if row.missed { "MISSED" } else { "" },
                percent(row.launches_percent),
                value(row.packed.launches_ns() / 1e9),
            )?;
        }
        writeln!(
            f,
            "\n| row | encoder, ms: products | attention | the rest at work | loading | calls | host | dispatches | prompt, ms \
             | stack beside |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
        )?;
        for row in &self.images {
            let encoder = &row.cost.encoder;
            let rest_ns = encoder.work_ns - encoder.products_ns - encoder.attention_ns;
            let parts = [
                encoder.products_ns,
                encoder.attention_ns,
                rest_ns,
                encoder.load_ns,
                encoder.call_ns,
                encoder.host_ns,
            ];
            let cells = parts.map(|ns| ms(ns / 1e6)).join(" | ");
            let (n, prompt) = (encoder.n_dispatches, ms(row.cost.prompt.ns / 1e6));
            let stack = ms(row.cost.stack_ns() / 1e6);
            writeln!(f, "| {} | {cells} | {n} | {prompt} | {stack} |", row.id)?;
        }
        Ok(())
    }

    fn beside(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n### Others' figures beside modes int4 and fast\n\nTheir programs are others than those that are predicted, \
             so these are no errors: × is how much faster the prediction is. Four-bit rows stand beside mode int4, bf16 rows \
             beside mode fast."
        )?;
        for table in &self.beside {
            beside_rows(f, table)?;
        }
        Ok(())
    }
}

fn rows(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    let unit = unit(table.what);
    writeln!(f, "\n### {}\n", table.title)?;
    writeln!(
        f,
        "| row | tokens | published, {unit} | predicted | error | | launches alone | tokens/s/W, published | predicted \
         | mode fast, {unit} |\n|---|---:|---:|---:|---:|---|---:|---:|---:|---:|"
    )?;
    for row in &table.rows {
        let per_w = |x: Option<f64>| x.map_or_else(|| "–".to_owned(), value);
        writeln!(
            f,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            marked(&row.id, row.fitted),
            count(row.tokens),
            value(row.published),
            value(row.predicted),
            percent(row.error_percent),
            if row.missed { "MISSED" } else { "" },
            percent(row.launches_percent),
            per_w(row.published_per_w),
            per_w(row.predicted_per_w),
            value(row.fast),
        )?;
    }
    Ok(())
}

fn power(f: &mut fmt::Formatter<'_>, power: &[Power]) -> fmt::Result {
    writeln!(
        f,
        "\n### Table 5: power\n\nAs published, averages of HWiNFO without memory and board; no power is predicted. \
         Tokens/s/W above are rates over these totals, predicted ones over the same published totals.\n\n\
         | row | model | while | CPU, W | GPU, W | NPU, W | total, W |\n|---|---|---|---:|---:|---:|---:|"
    )?;
    for row in power {
        let while_ = match row.what {
            PaperMetric::Prompt => "a prompt is read",
            PaperMetric::Token => "tokens are written",
        };
        writeln!(
            f,
            "| {} | {} | {while_} | {:.1} | {:.1} | {:.1} | {:.1} |",
            row.id, row.model, row.cpu_w, row.gpu_w, row.npu_w, row.total_w
        )?;
    }
    Ok(())
}

/// Writes the parts of the predicted times of the paper's rows.
fn where_it_goes(f: &mut fmt::Formatter<'_>, tables: &[Table]) -> fmt::Result {
    writeln!(
        f,
        "\n### Where the predicted time goes, milliseconds\n\n\
         Products, attention and the rest are launches at work; loading is configuring cores; calls are dispatches and \
         buffers written and read; the last column is what the stack takes beside.\n\n\
         | row | model | tokens | all | products | attention, array | norms, rotation, activation, sums | loading | calls \
         | attention, host | host, rest | dispatches | stack beside |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )?;
    for table in tables {
        for row in &table.rows {
            parts(f, table, row)?;
        }
    }
    Ok(())
}

fn parts(f: &mut fmt::Formatter<'_>, table: &Table, row: &PaperRow) -> fmt::Result {
    let cost = &row.cost;
    let what = match table.what {
        PaperMetric::Prompt => "prompt",
        PaperMetric::Token => "token",
    };
    let parts = [
        cost.whole_ns(),
        cost.products_ns,
        cost.attention_ns,
        cost.elementwise_ns,
        cost.loading_ns,
        cost.calls_ns,
        cost.host_attention_ns,
        cost.host_ns,
    ];
    let cells = parts.map(|ns| ms(ns / 1e6)).join(" | ");
    writeln!(
        f,
        "| {} | {}, {what} | {} | {cells} | {} | {} |",
        marked(&row.id, row.fitted),
        table.model,
        count(row.tokens),
        count(cost.n_dispatches),
        ms(cost.stack_ns / 1e6)
    )
}

fn beside_rows(f: &mut fmt::Formatter<'_>, table: &BesideTable) -> fmt::Result {
    let unit = unit(table.what);
    if table.rows.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "\n#### {}\n\nmodelled({})\n\n| row | tokens | published, {unit} | mode int4 | × | mode fast | × |\n\
         |---|---:|---:|---:|---:|---:|---:|",
        table.title, table.profile
    )?;
    for row in &table.rows {
        let times = |predicted: f64| match table.what {
            PaperMetric::Prompt => row.published / predicted,
            PaperMetric::Token => predicted / row.published,
        };
        writeln!(
            f,
            "| {} | {} | {} | {} | {:.2} | {} | {:.2} |",
            marked(&row.id, row.fitted),
            count(row.tokens),
            value(row.published),
            value(row.int4),
            times(row.int4),
            value(row.fast),
            times(row.fast),
        )?;
    }
    Ok(())
}
