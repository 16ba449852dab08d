//! A file of hashed keys, read again when it changes.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::caller::Caller;
use super::digest::digest;
use super::limits::KeyLimits;
use super::new_key::KeyName;

/// A larger file is not taken.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A file with more keys is not taken.
const KEYS_MAX: usize = 4096;
/// A longer key is none.
const KEY_BYTES_MAX: usize = 512;
/// How often is looked whether the file has changed.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Why a file of keys, or a key, is not taken. Nothing of a line is shown but its number: it may be
/// a key that was written there by mistake.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file could not be read.
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    /// The file is too large.
    #[error("it has more than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// The file is not text.
    #[error("it is not UTF-8")]
    NotText,
    /// A line is not a name and a hash.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There are too many keys.
    #[error("it has more than {KEYS_MAX} keys")]
    TooManyKeys,
    /// There is no key.
    #[error("it has no keys")]
    NoKeys,
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
}

/// The keys of a file.
pub(super) struct KeyFile {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    keys: Vec<Key>,
    /// The file that the keys were read from, or that was not taken; `None` where it is gone.
    stamp: Option<Stamp>,
    checked: Instant,
}

struct Key {
    name: Arc<str>,
    digest: [u8; 32],
    limits: KeyLimits,
}

/// Tells a changed file: its inode, length, and modification time in seconds and nanoseconds.
#[derive(PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64);

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self(metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
    }
}

impl KeyFile {
    pub(super) fn open(path: &Path) -> Result<Self, KeyFileError> {
        // The stamp comes first: if the file changes meanwhile, it is read again.
        let stamp = Stamp::of(path);
        let keys = read(path)?;
        let state = Mutex::new(State { keys, stamp, checked: Instant::now() });
        Ok(Self { path: path.to_owned(), state })
    }

    /// Who `key` belongs to. `warn` is told once of a changed file that cannot be taken.
    pub(super) fn find(&self, key: &str, warn: &dyn Fn(&str)) -> Option<Caller> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return None;
        }
        let digest = digest(key);
        // The keys are whole whenever somebody might have panicked.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.elapsed() >= CHECK_EVERY {
            state.checked = Instant::now();
            self.reload(&mut state, warn);
        }
        // All are compared to their end, so that the time says nothing of any.
        let mut found = None;
        for known in &state.keys {
            if is_equal(&known.digest, &digest) {
                let name = Some(Arc::clone(&known.name));
                found = Some(Caller { name, limits: known.limits });
            }
        }
        found
    }

    /// Whether a key has this name.
    pub(super) fn has_name(&self, name: &str) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.keys.iter().any(|key| *key.name == *name)
    }

    fn reload(&self, state: &mut State, warn: &dyn Fn(&str)) {
        let stamp = Stamp::of(&self.path);
        if stamp == state.stamp {
            return;
        }
        state.stamp = stamp;
        match read(&self.path) {
            Ok(keys) => state.keys = keys,
            Err(error) => {
                let path = self.path.display();
                warn(&format!("the API keys stay as they were: {path} has changed, and {error}"));
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<Key>, KeyFileError> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(KeyFileError::TooLarge);
    }
    parse(std::str::from_utf8(&bytes).map_err(|_| KeyFileError::NotText)?)
}

fn parse(text: &str) -> Result<Vec<Key>, KeyFileError> {
    let mut keys: Vec<Key> = Vec::new();
    let mut digests = HashSet::new();
    for (line, number) in text.lines().zip(1..) {
        let wrong = |problem| KeyFileError::Line { line: number, problem };
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let Some(name) = words.next() else { continue };
        let Some(hash) = words.next() else {
            return Err(wrong("must be a name and the SHA-256 of its key"));
        };
        let name: KeyName = name.parse().map_err(|_| wrong(KeyName::WANTED))?;
        let digest =
            bytes_of(hash).ok_or_else(|| wrong("the hash must have 64 hexadecimal digits"))?;
        let mut limits = KeyLimits::default();
        words.try_for_each(|word| limits.take(word)).map_err(wrong)?;
        if !digests.insert(digest) {
            return Err(wrong("another line has the same key"));
        }
        if keys.len() == KEYS_MAX {
            return Err(KeyFileError::TooManyKeys);
        }
        keys.push(Key { name: name.into(), digest, limits });
    }
    share_limits(&mut keys);
    if keys.is_empty() { Err(KeyFileError::NoKeys) } else { Ok(keys) }
}

/// The keys of one name have the limits of its last line: they are counted together.
fn share_limits(keys: &mut [Key]) {
    let last: HashMap<Arc<str>, KeyLimits> =
        keys.iter().map(|key| (Arc::clone(&key.name), key.limits)).collect();
    keys.iter_mut().for_each(|key| key.limits = last[&key.name]);
}

/// 32 bytes from 64 hexadecimal digits.
fn bytes_of(hash: &str) -> Option<[u8; 32]> {
    if hash.len() != 64 || !hash.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&hash[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// In a time that does not depend on where they differ.
fn is_equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(keys: &[Key]) -> Vec<&str> {
        keys.iter().map(|key| &*key.name).collect()
    }

    #[test]
    fn the_hash_is_sha_256() {
        // The first example of FIPS 180-2, appendix B.1.
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(bytes_of(known), Some(digest("abc")));
        assert_eq!(bytes_of(&known.to_uppercase()), Some(digest("abc")));
    }

    #[test]
    fn lines_are_names_and_hashes_with_comments() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let text = format!("# keys\n\n  alice {a}\n\tbob\t{b} # the new one\n");
        assert_eq!(names(&parse(&text).unwrap()), ["alice", "bob"]);
        // An old and a new key of one name, while it is rotated.
        assert_eq!(names(&parse(&format!("alice {a}\nalice {b}\n")).unwrap()), ["alice", "alice"]);
        let cases = [
            (String::new(), "it has no keys"),
            ("# none\n".to_owned(), "it has no keys"),
            ("alice".to_owned(), "line 1: must be a name and the SHA-256 of its key"),
            (
                format!("alice {a} more"),
                "line 1: a limit is requests=N or tokens=N (in a minute) or \
              running=N, each once and above 0",
            ),
            ("\nalice abc".to_owned(), "line 2: the hash must have 64 hexadecimal digits"),
            (format!("alice {}é", &a[2..]), "line 1: the hash must have 64 hexadecimal digits"),
            (format!("alice {a}\nbob {a}"), "line 2: another line has the same key"),
            (format!("al/ice {a}"), "line 1: a name has 1 to 64 of A-Z a-z 0-9 . _ -"),
            (format!("{} {a}", "n".repeat(65)), "line 1: a name has 1 to 64 of A-Z a-z 0-9 . _ -"),
        ];
        for (text, problem) in cases {
            assert_eq!(parse(&text).err().map(|error| error.to_string()).as_deref(), Some(problem));
        }
        let text =
            format!("alice {a} running=1\nbob {} \nalice {b} requests=6 tokens=7", "c".repeat(64));
        let limits = parse(&text).unwrap().iter().map(|key| key.limits).collect::<Vec<_>>();
        assert_eq!(limits[0], limits[2], "what is counted together has one limit");
        assert_eq!(
            (limits[0].requests, limits[0].tokens, limits[0].running),
            (Some(6), Some(7), None)
        );
        assert_eq!(limits[1], KeyLimits::default());
        let many = (0..=KEYS_MAX).map(|n| format!("n {n:064x}\n")).collect::<String>();
        assert!(matches!(parse(&many), Err(KeyFileError::TooManyKeys)));
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "(\\PC|[\n #a-f0-9]){0,200}") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn a_key_is_found_by_its_text_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        fs::write(&path, format!("alice {hash}\n")).unwrap();
        let file = KeyFile::open(&path).unwrap();
        let find = |key: &str| file.find(key, &|_| panic!("nothing is wrong"))?.name;
        assert_eq!(find("abc").as_deref(), Some("alice"));
        for other in ["", "ab", "abcd", "ABC", "alice", hash, &"a".repeat(600)] {
            assert_eq!(find(other), None, "{other}");
        }
    }

    #[test]
    fn a_large_or_missing_file_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        assert!(matches!(KeyFile::open(&path), Err(KeyFileError::Read(_))));
        fs::write(&path, "#".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
        assert!(matches!(KeyFile::open(&path), Err(KeyFileError::TooLarge)));
        fs::write(&path, b"alice \xff").unwrap();
        assert!(matches!(KeyFile::open(&path), Err(KeyFileError::NotText)));
    }
}
