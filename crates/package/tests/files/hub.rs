//! Pulling from a hub on this machine: interrupted, resumed, damaged, refused.

use crate::tiny::{GPT2_JSON, gpt2_tensors, safetensors};
use package::{Progress, SourceError, Sources};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file that the hub offers.
#[derive(Clone)]
struct Offered {
    body: Vec<u8>,
    etag: String,
    /// Bytes after which each of the next downloads breaks off.
    breaks: Vec<usize>,
}

/// What the loopback hub has, and what it was asked.
#[derive(Default)]
struct Hub {
    files: HashMap<String, Offered>,
    /// Path, first byte asked for, and token.
    requests: Vec<(String, usize, Option<String>)>,
    token: Option<String>,
    /// Sends files from the start, whatever part was asked for.
    ignores_ranges: bool,
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn git_blob(body: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", body.len()));
    hash.update(body);
    hexadecimal(&hash.finalize())
}

impl Hub {
    /// The files of a tiny GPT-2; the weights carry a SHA-256 as large files do.
    fn with_gpt2() -> Hub {
        let mut hub = Hub::default();
        for (name, text) in [("config.json", GPT2_JSON), ("README.md", "---\nlicense: mit\n---\n")]
        {
            let (body, etag) = (text.as_bytes().to_vec(), git_blob(text.as_bytes()));
            hub.files.insert(name.to_owned(), Offered { body, etag, breaks: Vec::new() });
        }
        let body = safetensors(&gpt2_tensors("transformer."));
        let etag = hexadecimal(&Sha256::digest(&body));
        hub.files.insert("model.safetensors".to_owned(), Offered { body, etag, breaks: vec![] });
        hub
    }

    fn weights(&mut self) -> &mut Offered {
        self.files.get_mut("model.safetensors").expect("offered")
    }
}

/// Serves until the test ends; returns the address.
fn serve(hub: Hub) -> (String, Arc<Mutex<Hub>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let hub = Arc::new(Mutex::new(hub));
    let shared = Arc::clone(&hub);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away in the middle is part of the tests.
            let _ = answer(stream, &shared);
        }
    });
    (address, hub)
}

fn answer(mut stream: TcpStream, hub: &Mutex<Hub>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut range, mut token) = (None, None);
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => range = Some(value.to_owned()),
            "authorization" => token = Some(value.to_owned()),
            _ => {}
        }
    }
    let start = range.as_ref().and_then(|range| range.strip_prefix("bytes="));
    let (start, end) = start.and_then(|range| range.split_once('-')).unwrap_or(("0", ""));
    let start: usize = start.parse().unwrap_or(0);
    let mut hub = hub.lock().expect("no test panics while holding it");
    hub.requests.push((path.clone(), start, token.clone()));
    if hub.token.as_ref().is_some_and(|wanted| token != Some(format!("Bearer {wanted}"))) {
        return stream.write_all(head("401 Unauthorized", "", 0).as_bytes());
    }
    if path == "/api/models/org/name/revision/main" {
        let names: Vec<_> =
            hub.files.keys().map(|name| serde_json::json!({ "rfilename": name })).collect();
        let body = serde_json::json!({ "sha": COMMIT, "siblings": names }).to_string();
        let head = head("200 OK", "Content-Type: application/json\r\n", body.len());
        return stream.write_all((head + &body).as_bytes());
    }
    let name = path.strip_prefix("/org/name/resolve/main/").unwrap_or_default();
    let Some(file) = hub.files.get(name) else {
        return stream.write_all(head("404 Not Found", "", 0).as_bytes());
    };
    let size = file.body.len();
    if start >= size {
        return stream.write_all(head("416 Range Not Satisfiable", "", 0).as_bytes());
    }
    let end = end.parse().unwrap_or(size - 1);
    let start = if hub.ignores_ranges { 0 } else { start };
    let file = hub.files.get_mut(name).expect("found above");
    let fields = format!(
        "ETag: \"{}\"\r\nX-Repo-Commit: {COMMIT}\r\nContent-Range: bytes {start}-{end}/{size}\r\n",
        file.etag
    );
    let head = head("206 Partial Content", &fields, end + 1 - start);
    stream.write_all(head.as_bytes())?;
    // The client first asks for one byte to learn the size; only real downloads break.
    let stop = if end > 0 && !file.breaks.is_empty() { file.breaks.remove(0) } else { size };
    stream.write_all(&file.body[start..(end + 1).min(start + stop)])
}

fn head(status: &str, fields: &str, length: usize) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{fields}\r\n")
}

struct Place {
    directory: tempfile::TempDir,
    sources: Sources,
}

fn place(endpoint: &str) -> Place {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cache_directory = directory.path().to_owned();
    let hub_endpoint = endpoint.to_owned();
    Place { directory, sources: Sources { cache_directory, hub_endpoint, hub_token: None } }
}

/// Remembers what was reported.
#[derive(Default)]
struct Seen(Mutex<(Vec<String>, u64)>);

impl Progress for Seen {
    fn stage(&self, text: &str) {
        self.0.lock().expect("no panic").0.push(text.to_owned());
    }
    fn bytes(&self, done: u64, total: Option<u64>) {
        assert!(total.is_some_and(|total| done <= total), "{done} of {total:?}");
        self.0.lock().expect("no panic").1 += 1;
    }
}

#[test]
fn a_repository_becomes_a_model_directory() {
    let (endpoint, hub) = serve(Hub::with_gpt2());
    let place = place(&endpoint);
    let seen = Seen::default();
    let path = place.sources.resolve("hub:org/name", &seen).expect("pulled");
    assert_eq!(path, place.directory.path().join("models/hub--org--name"));
    let weights = std::fs::read(path.join("model.safetensors")).expect("there");
    assert_eq!(weights, safetensors(&gpt2_tensors("transformer.")));
    let (stages, reports) = &*seen.0.lock().expect("no panic");
    assert!(stages.contains(&"downloading model.safetensors".to_owned()), "{stages:?}");
    assert!(*reports > 0);
    // Nothing is asked a second time, and nothing is left beside the model.
    let asked = hub.lock().expect("no panic").requests.len();
    assert_eq!(place.sources.resolve("hub:org/name", &()).expect("kept"), path);
    assert_eq!(hub.lock().expect("no panic").requests.len(), asked);
    let staging = std::fs::read_dir(place.directory.path().join("staging")).expect("there");
    assert_eq!(staging.count(), 0);
    let models = place.sources.models().expect("readable");
    assert_eq!((models.len(), models[0].name.as_str()), (1, "hub--org--name"));
}

#[test]
fn a_broken_download_goes_on_where_it_stopped() {
    let mut gpt2 = Hub::with_gpt2();
    gpt2.weights().breaks = vec![1000, 500];
    let (endpoint, hub) = serve(gpt2);
    let place = place(&endpoint);
    let path = place.sources.resolve("hub:org/name", &()).expect("pulled");
    let weights = std::fs::read(path.join("model.safetensors")).expect("there");
    assert_eq!(weights, safetensors(&gpt2_tensors("transformer.")));
    let hub = hub.lock().expect("no panic");
    let starts: Vec<usize> = hub
        .requests
        .iter()
        .filter(|(path, start, _)| path.ends_with("model.safetensors") && *start > 0)
        .map(|(_, start, _)| *start)
        .collect();
    assert_eq!(starts, [1000, 1500]);
}

#[test]
fn an_interrupted_pull_looks_like_nothing_and_is_resumed() {
    let mut gpt2 = Hub::with_gpt2();
    gpt2.weights().breaks = vec![700, 0, 0, 0];
    let (endpoint, hub) = serve(gpt2);
    let place = place(&endpoint);
    let error = place.sources.resolve("hub:org/name", &()).expect_err("broken for good");
    assert!(error.to_string().contains("goes on where it stopped"), "{error}");
    assert!(!place.directory.path().join("models").exists());
    assert!(place.sources.models().expect("readable").is_empty());
    hub.lock().expect("no panic").requests.clear();
    place.sources.resolve("hub:org/name", &()).expect("pulled");
    let hub = hub.lock().expect("no panic");
    let weights: Vec<usize> = hub
        .requests
        .iter()
        .filter(|(path, ..)| path.ends_with("model.safetensors"))
        .map(|(_, start, _)| *start)
        .collect();
    assert_eq!(weights, [0, 700], "the size, then the rest");
    assert!(!hub.requests.iter().any(|(path, ..)| path.ends_with("config.json")), "kept");
}

#[test]
fn a_wrong_checksum_is_refused_and_removed() {
    for name in ["model.safetensors", "config.json"] {
        let mut gpt2 = Hub::with_gpt2();
        let file = gpt2.files.get_mut(name).expect("offered");
        let last = file.body.len() - 1;
        file.body[last] ^= 1;
        let (endpoint, hub) = serve(gpt2);
        let place = place(&endpoint);
        let error = place.sources.resolve("hub:org/name", &()).expect_err("damaged");
        assert!(matches!(error, SourceError::Checksum { .. }), "{error}");
        assert!(!place.directory.path().join("models").exists());
        let mut repaired = hub.lock().expect("no panic");
        *repaired = Hub::with_gpt2();
        drop(repaired);
        place.sources.resolve("hub:org/name", &()).expect("pulled again from the start");
    }
}

#[test]
fn a_hub_that_ignores_ranges_gives_no_damaged_model() {
    let mut gpt2 = Hub::with_gpt2();
    gpt2.weights().breaks = vec![700];
    gpt2.ignores_ranges = true;
    let (endpoint, _hub) = serve(gpt2);
    let place = place(&endpoint);
    let error = place.sources.resolve("hub:org/name", &()).expect_err("too long").to_string();
    assert!(error.contains("instead of") && error.contains("pull again"), "{error}");
    assert!(!place.directory.path().join("models").exists());
    place.sources.resolve("hub:org/name", &()).expect("from the start, in one go");
}

#[test]
fn what_the_hub_lacks_or_refuses_is_said() {
    let mut gpt2 = Hub::with_gpt2();
    gpt2.token = Some("secret".to_owned());
    let (endpoint, hub) = serve(gpt2);
    let mut place = place(&endpoint);
    let error = place.sources.resolve("hub:org/name", &()).expect_err("no token").to_string();
    assert!(error.contains("HF_TOKEN"), "{error}");
    place.sources.hub_token = Some("secret".to_owned());
    let error = place.sources.resolve("hub:org/other", &()).expect_err("not there").to_string();
    assert!(error.contains("check the name"), "{error}");
    let error =
        place.sources.resolve("hub:org/name/x.gguf", &()).expect_err("not there").to_string();
    assert!(error.contains("no file x.gguf"), "{error}");
    hub.lock().expect("no panic").files.remove("model.safetensors");
    let error = place.sources.resolve("hub:org/name", &()).expect_err("no weights").to_string();
    assert!(error.contains("safetensors"), "{error}");
    hub.lock().expect("no panic").files.remove("config.json");
    let error = place.sources.resolve("hub:org/name", &()).expect_err("no config").to_string();
    assert!(error.contains("config.json"), "{error}");
}

#[test]
fn a_single_gguf_file_keeps_its_name() {
    let mut hub = Hub::with_gpt2();
    let body = crate::tiny::llama_gguf().build();
    let etag = hexadecimal(&Sha256::digest(&body));
    let offered = Offered { body: body.clone(), etag, breaks: Vec::new() };
    hub.files.insert("quantized/tiny.Q8_0.gguf".to_owned(), offered);
    let (endpoint, _hub) = serve(hub);
    let place = place(&endpoint);
    let model = "hub:org/name/quantized/tiny.Q8_0.gguf";
    let path = place.sources.resolve(model, &()).expect("pulled");
    assert!(path.ends_with("hub--org--name--quantized--tiny.Q8_0.gguf/tiny.Q8_0.gguf"));
    assert_eq!(std::fs::read(path).expect("there"), body);
}

#[test]
fn a_hub_that_cannot_be_reached_is_a_plain_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let place = place(&format!("http://{address}"));
    let error = place.sources.resolve("hub:org/name", &()).expect_err("nobody listens").to_string();
    assert!(error.contains("HF_ENDPOINT") && error.lines().count() == 2, "{error}");
}

/// Truncation is found out whenever the model is asked for, a changed byte by `pull`.
#[test]
fn a_damaged_model_is_pulled_again() {
    let (endpoint, hub) = serve(Hub::with_gpt2());
    let place = place(&endpoint);
    let path = place.sources.resolve("hub:org/name", &()).expect("pulled");
    let weights = path.join("model.safetensors");
    let whole = std::fs::read(&weights).expect("there");
    let mut changed = whole.clone();
    changed[whole.len() - 1] ^= 1;
    let asked = || std::mem::take(&mut hub.lock().expect("no panic").requests).len();
    assert!(asked() > 0);
    for (damaged, sizes_tell) in [(&whole[..whole.len() / 2], true), (&changed[..], false)] {
        std::fs::write(&weights, damaged).expect("writable");
        let resolved = place.sources.resolve("hub:org/name", &()).expect("resolved");
        assert_eq!(resolved, path);
        assert_eq!(asked() > 0, sizes_tell);
        std::fs::write(&weights, damaged).expect("writable");
        assert_eq!(place.sources.pull("hub:org/name", &()).expect("pulled"), path);
        assert!(asked() > 0);
        assert_eq!(std::fs::read(&weights).expect("there"), whole);
    }
    std::fs::remove_file(path.join("config.json")).expect("there");
    assert_eq!(place.sources.resolve("hub:org/name", &()).expect("pulled"), path);
    assert!(asked() > 0 && path.join("config.json").exists());
    assert_eq!(place.sources.pull("hub:org/name", &()).expect("whole"), path);
    assert_eq!(asked(), 0, "what is whole is not pulled again");
    let staging = std::fs::read_dir(place.directory.path().join("staging")).expect("there");
    assert_eq!(staging.count(), 0);
}

#[test]
fn what_a_killed_pull_left_is_removed_and_a_running_one_let_be() {
    let (endpoint, _hub) = serve(Hub::with_gpt2());
    let place = place(&endpoint);
    let staging = place.directory.path().join("staging");
    for name in ["pull-killed", "pull-killed-at-once", "pull-running"] {
        std::fs::create_dir_all(staging.join(name)).expect("made");
    }
    std::fs::write(staging.join("pull-killed/lock"), "").expect("written");
    std::fs::write(staging.join("pull-killed/model.part"), "half").expect("written");
    let running = std::fs::File::create(staging.join("pull-running/lock")).expect("made");
    running.lock().expect("locked");
    place.sources.resolve("hub:org/name", &()).expect("pulled");
    let left: Vec<_> = std::fs::read_dir(&staging).expect("there").flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].file_name(), "pull-running");
}

/// The other process's part; it does nothing where no path is given.
#[test]
fn resolve_in_this_process() {
    let Ok(model) = std::env::var("REFRAIN_TEST_PATH") else { return };
    println!("resolved {:?}", package::resolve(&model, &()).map_err(|error| error.to_string()));
}

#[test]
fn a_path_needs_no_place_to_keep_models() {
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().expect("a file");
    let path = file.path().display().to_string();
    for (model, expected) in [(path.as_str(), "Ok"), ("hub:org/name", "set REFRAIN_CACHE or HOME")]
    {
        let output = std::process::Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "hub::resolve_in_this_process", "--nocapture"])
            .env_clear()
            .env("REFRAIN_TEST_PATH", model)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("resolved") && said.contains(expected), "{said}");
    }
}
