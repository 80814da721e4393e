//! The order of stages.

use std::str::FromStr;

/// A kind, its name, its letter, and other names. Names and letters are llama.cpp's (`common/sampling.cpp`).
type StageRow = (StageKind, &'static str, char, &'static [&'static str]);

/// Makes the kinds of stages, their order and their names of the rows.
macro_rules! stages {
    ($($(#[$doc:meta])* $kind:ident: $name:literal, $letter:literal, [$($other:literal),*];)+) => {
        /// A stage between biases and the draw.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum StageKind {
            $($(#[$doc])* $kind,)+
        }

        const ROWS: &[StageRow] = &[$((StageKind::$kind, $name, $letter, &[$($other),*]),)+];

        impl StageKind {
            /// The usual order, that of llama.cpp: every stage.
            pub const USUAL: &'static [StageKind] = &[$(StageKind::$kind,)+];
        }
    };
}

// In the usual order.
stages! {
    /// Penalties of recent tokens.
    Penalties: "penalties", 'e', [];
    /// Penalties of repeated sequences.
    Dry: "dry", 'd', [];
    /// A bound by standard deviations.
    TopNSigma: "top_n_sigma", 's', ["topnsigma"];
    /// So many of the likeliest.
    TopK: "top_k", 'k', ["topk"];
    /// Locally typical sampling.
    Typical: "typ_p", 'y', ["typical_p", "typp", "typ", "typical"];
    /// Nucleus sampling.
    TopP: "top_p", 'p', ["topp", "nucleus"];
    /// A bound by the likeliest.
    MinP: "min_p", 'm', ["minp"];
    /// Exclusion of top choices.
    Xtc: "xtc", 'x', [];
    /// Temperature, dynamic or not.
    Temperature: "temperature", 't', ["temp"];
}

/// A name that no stage has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no sampler `{0}`; there are {names}", names = names())]
pub struct UnknownStage(String);

/// Names of all stages, comma-separated.
fn names() -> String {
    let names: Vec<&str> = ROWS.iter().map(|row| row.1).collect();
    names.join(", ")
}

impl StageKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        let row = ROWS.iter().find(|row| row.0 == self);
        row.map_or("", |row| row.1)
    }

    /// Whether it changes logits by earlier tokens, and drops nothing.
    pub(super) fn is_penalty(self) -> bool {
        matches!(self, StageKind::Penalties | StageKind::Dry)
    }

    /// The order in a text: names separated by `;` or `,`, or a letter for each stage.
    ///
    /// # Errors
    /// A name or letter that no stage has.
    pub fn order(text: &str) -> Result<Vec<StageKind>, UnknownStage> {
        let is_letters = !text.contains([';', ',']) && text.parse::<StageKind>().is_err();
        let by_letter = |letter: char| ROWS.iter().find(|row| row.2 == letter).map(|row| row.0);
        let letters: Option<Vec<StageKind>> = text.chars().map(by_letter).collect();
        if let Some(order) = letters.filter(|_| is_letters) {
            return Ok(order);
        }
        let names = text
            .split([';', ','])
            .filter(|name| !name.trim().is_empty());
        names.map(|name| name.trim().parse()).collect()
    }
}

impl FromStr for StageKind {
    type Err = UnknownStage;

    fn from_str(name: &str) -> Result<StageKind, UnknownStage> {
        let plain = name.replace('-', "_").to_ascii_lowercase();
        let is_it = |row: &&StageRow| row.1 == plain || row.3.contains(&plain.as_str());
        let row = ROWS.iter().find(is_it);
        row.map(|row| row.0)
            .ok_or_else(|| UnknownStage(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_letters_are_llama_cpps() {
        use StageKind::*;
        for (text, order) in [
            (
                "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
                StageKind::USUAL.to_vec(),
            ),
            ("edskypmxt", StageKind::USUAL.to_vec()),
            ("top-k;temp", vec![TopK, Temperature]),
            ("temperature, nucleus", vec![Temperature, TopP]),
            ("dry", vec![Dry]),
            ("kt", vec![TopK, Temperature]),
            ("xtc", vec![Xtc]),
            ("", vec![]),
        ] {
            assert_eq!(StageKind::order(text).unwrap(), order, "{text}");
        }
        for (text, named) in [("top_k;hot", "hot"), ("kz", "kz"), ("infill", "infill")] {
            let error = StageKind::order(text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("there is no sampler `{named}`")),
                "{error}"
            );
        }
        for kind in StageKind::USUAL {
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
        let error = StageKind::order("hot").unwrap_err().to_string();
        let all = "penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature";
        assert!(error.ends_with(all), "{error}");
    }
}
