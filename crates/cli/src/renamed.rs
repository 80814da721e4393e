//! Option values that had another name in an earlier release. They are accepted, with a warning that gives the new name.

use crate::target_args::targets;
use clap::ArgMatches;

/// The warning about `--mode` for a parsed command line.
pub(crate) fn warning(matches: &ArgMatches) -> Option<String> {
    let (_, command) = matches.subcommand()?;
    let mode = command.try_get_one::<String>("mode").ok()??;
    let device = command.try_get_raw("device").ok()??.next()?.to_str()?;
    let target = targets().iter().find(|target| target.name() == device)?;
    let name = target.renamed_mode(mode)?;
    Some(format!(
        "mode {mode} of {device} is called {name}: `--mode {name}`; the next release does not take the former name"
    ))
}

#[cfg(test)]
mod tests {
    use super::warning;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn only_the_targets_own_former_names_are_told() {
        for (line, told) in [
            ("run demo x --device xdna2 --mode q4nx", Some("int4")),
            ("explain demo --mode reference", Some("mlir-air")),
            ("verify demo --mode paper", Some("fastflowlm")),
            (
                "serve demo --device xdna2 --mode first",
                Some("mlir-air-first"),
            ),
            ("explain demo --mode fast", None),
            ("explain demo", None),
            ("explain demo --device tcp --mode best", None),
            ("explain demo --mode bset", None),
            ("run demo x", None),
            ("run demo x --mode best", None),
            ("devices", None),
        ] {
            let words = std::iter::once("millrace").chain(line.split(' '));
            let matches = Cli::command().try_get_matches_from(words).expect(line);
            let warning = warning(&matches);
            let names = told.map(|name| {
                warning
                    .as_deref()
                    .unwrap_or_default()
                    .contains(&format!("is called {name}:"))
            });
            assert_eq!(names, told.map(|_| true), "{line}: {warning:?}");
            assert_eq!(warning.is_some(), told.is_some(), "{line}: {warning:?}");
        }
    }
}
