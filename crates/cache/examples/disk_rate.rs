//! How fast pages are written to disk and read back, and how long a full directory takes to open.
//!
//! `cargo run --release -p cache --example disk_rate -- DIRECTORY [MIB [PAGE_BYTES]]`
//!
//! The directory is to be empty, and keeps the files. Started again on it, the example finds the
//! pages, writes nothing, and shows how fast they are read after a restart.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use cache::disk::{DiskEvent, DiskOptions, DiskStore, NewPage, OpenError, SequencePage, Wanted};
use cache::{PAGE_TOKENS, Timestamp};

const NOW: Timestamp = Timestamp(1);
/// The default model's: 16 tokens of 23,040 bytes.
const DEFAULT_PAGE_BYTES: usize = 368_640;
/// Pages of one prompt; each begins with another token.
const PROMPT_PAGES: u32 = 240;

/// Opens the store, and returns with it what it holds, ready to be read.
fn open(
    directory: &Path,
    mib: u64,
    page_bytes: usize,
) -> Result<(DiskStore, Vec<Wanted>), OpenError> {
    let options = DiskOptions {
        directory: directory.to_path_buf(),
        // A little more than is written, so that nothing is evicted.
        budget_bytes: (mib << 20) / 10 * 12,
        model: [7; 32],
        page_bytes,
        queue_bytes: 64 << 20,
    };
    let mut runs = Vec::new();
    let start = Instant::now();
    let opened = DiskStore::open(&options, NOW, |run| runs.push(run))?;
    println!(
        "opened in {:.1} ms: {} pages in {} runs, {} findings",
        start.elapsed().as_secs_f64() * 1e3,
        opened.store.stats().pages,
        runs.len(),
        opened.damage.len()
    );
    let mut wanted = Vec::new();
    for run in runs {
        let places: Vec<_> = run.pages.iter().map(|&(place, _)| place).collect();
        wanted.extend(Wanted::run(&run.namespace, &run.tokens, run.first(), &places));
    }
    Ok((opened.store, wanted))
}

/// Offers `count` pages until they are taken, and says how fast they were written.
fn write(store: &mut DiskStore, count: u32, page_bytes: usize) {
    let (mut stored, mut longest) = (0, 0.0_f64);
    let mut tokens: Arc<[u32]> = Arc::default();
    let start = Instant::now();
    for number in 0..count {
        let depth = number % PROMPT_PAGES;
        if depth == 0 {
            let ids = number..number + PROMPT_PAGES;
            tokens = ids.flat_map(|id| [id; PAGE_TOKENS]).collect();
        }
        let (namespace, tokens) = ([0; 32], Arc::clone(&tokens));
        let page = SequencePage { namespace, tokens, depth: depth as usize, expires_at: None };
        let mut page = NewPage { page, bytes: vec![number as u8; page_bytes] };
        let mut offered = Instant::now();
        while let Err(refused) = store.append(page, NOW) {
            page = refused;
            // Until there is room in the queue; on a full disk, for ever.
            stored += count_stored(&store.poll(NOW));
            std::thread::yield_now();
            offered = Instant::now();
        }
        longest = longest.max(offered.elapsed().as_secs_f64());
        stored += count_stored(&store.poll(NOW));
    }
    store.flush();
    stored += count_stored(&store.poll(NOW));
    let seconds = start.elapsed().as_secs_f64();
    let stats = store.stats();
    println!(
        "wrote {stored} pages in {seconds:.2} s: {:.2} GB/s; {:.0} µs a page without fdatasync; \
         longest call {:.0} µs",
        stored as f64 * page_bytes as f64 / seconds / 1e9,
        stats.write_time.as_secs_f64() * 1e6 / stats.written_pages.max(1) as f64,
        longest * 1e6,
    );
}

fn count_stored(events: &[DiskEvent]) -> usize {
    for event in events {
        if let DiskEvent::Paused { message, .. } = event {
            println!("writing rests: {message}");
        }
    }
    events.iter().filter(|event| matches!(event, DiskEvent::Stored(..))).count()
}

/// Reads pages in order, on this thread and then on one that reads ahead.
fn read(store: &DiskStore, run: Vec<Wanted>, page_bytes: usize) -> std::io::Result<()> {
    let reader = store.reader();
    let rate = |read: usize, start: Instant| {
        (read * page_bytes) as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    let mut page = Vec::new();
    let start = Instant::now();
    let read = run.iter().filter(|wanted| reader.read(wanted, &mut page).is_ok()).count();
    println!("read {read} pages one after the other: {:.2} GB/s", rate(read, start));
    let start = Instant::now();
    let mut pages = reader.read_run(run, 8, || {})?;
    let mut read = 0;
    while let Some(Ok(page)) = pages.wait_next() {
        read += 1;
        pages.give_back(page);
    }
    println!("read {read} pages ahead on a thread: {:.2} GB/s", rate(read, start));
    println!("measured by the store: {:.2} GB/s", reader.read_rate().unwrap_or(0.0) / 1e9);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("a directory is missing")?;
    let mib: u64 = arguments.next().map_or(Ok(1024), |mib| mib.parse())?;
    let page_bytes: usize =
        arguments.next().map_or(Ok(DEFAULT_PAGE_BYTES), |bytes| bytes.parse())?;
    let directory = Path::new(&directory);
    let (mut store, mut wanted) = open(directory, mib, page_bytes)?;
    if wanted.is_empty() {
        let count = (mib << 20) / page_bytes as u64;
        write(&mut store, u32::try_from(count)?, page_bytes);
        drop(store);
        (store, wanted) = open(directory, mib, page_bytes)?;
    }
    read(&store, wanted, page_bytes)?;
    let start = Instant::now();
    for second in 1..=100 {
        store.poll(Timestamp(NOW.0 + second * 1000));
        store.flush();
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / 100.0;
    println!("looked at the directory in {each:.0} µs, on the writing thread, once a second");
    Ok(())
}
