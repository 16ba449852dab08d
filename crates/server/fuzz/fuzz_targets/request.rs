//! No body makes the parser of requests panic.

#![no_main]

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    server::parse_request(body);
});
