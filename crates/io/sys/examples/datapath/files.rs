//! Writing a file of 1 GiB in pieces of 1 MiB: `pwrite` from own threads against `io_uring`.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use io_uring::{IoUring, opcode, squeue, types};
use longhaul_sys::clock;
use longhaul_sys::files::preallocate;
use longhaul_sys::memory::Pages;

use crate::{RUNS, median};

#[derive(Clone, Copy)]
enum Method {
    /// Threads that call `pwrite`.
    Threads(usize),
    /// One thread with as many writes in flight, handed to kernel threads or not.
    Ring(usize, bool),
}

#[derive(Clone, Copy)]
struct Figures {
    seconds: f64,
    cpu: f64,
}

pub fn measure() -> Result<(), Box<dyn Error>> {
    let mut memory = Pages::new(LEN)?;
    memory.fill(5);
    let places = [(PathBuf::from("/dev/shm"), false), (std::env::temp_dir(), false)];
    let direct = (std::env::temp_dir(), true);
    for (directory, direct) in places.into_iter().chain([direct]) {
        println!(
            "\nfiles: 1 GiB in {} ({}), preallocated, pieces of 1 MiB, with sync at the end",
            directory.display(),
            if direct { "O_DIRECT" } else { "page cache" }
        );
        println!("{:<34} {:>7} {:>9}", "", "GB/s", "CPU-s/GB");
        let mut runs = vec![Vec::new(); ROWS.len()];
        for _ in 0..RUNS {
            for ((_, method), runs) in ROWS.iter().zip(&mut runs) {
                runs.push(once(&directory, direct, *method, &memory)?);
            }
        }
        for ((name, _), runs) in ROWS.iter().zip(&mut runs) {
            let Figures { seconds, cpu } = median(runs, |run| run.seconds);
            let gigabytes = LEN as f64 / 1e9;
            println!("{name:<34} {:>7.2} {:>9.3}", gigabytes / seconds, cpu / gigabytes);
        }
    }
    Ok(())
}

fn once(directory: &Path, direct: bool, method: Method, memory: &[u8]) -> io::Result<Figures> {
    let path = directory.join(format!("longhaul-datapath-{}", std::process::id()));
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let mut new = OpenOptions::new();
    let file = new.write(true).create_new(true).custom_flags(flags).open(&path)?;
    // The name goes first, so that nothing is left behind however this ends.
    std::fs::remove_file(&path)?;
    preallocate(&file, LEN as u64)?;
    let (start, cpu) = (Instant::now(), clock::process_cpu_time());
    match method {
        Method::Threads(count) => by_threads(&file, count, memory)?,
        Method::Ring(depth, handed) => by_ring(&file, depth, handed, memory)?,
    }
    file.sync_data()?;
    let cpu = (clock::process_cpu_time() - cpu).as_secs_f64();
    Ok(Figures { seconds: start.elapsed().as_secs_f64(), cpu })
}

fn by_threads(file: &File, count: usize, memory: &[u8]) -> io::Result<()> {
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..count)
            .map(|first| {
                scope.spawn(move || {
                    let mut pieces = memory.chunks(PIECE).enumerate().skip(first).step_by(count);
                    pieces.try_for_each(|(index, piece)| {
                        file.write_all_at(piece, (index * PIECE) as u64)
                    })
                })
            })
            .collect();
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().unwrap_or(Err(io::ErrorKind::Other.into())))
    })
}

fn by_ring(file: &File, depth: usize, handed: bool, memory: &[u8]) -> io::Result<()> {
    let mut ring = IoUring::new(depth as u32)?;
    let mut pieces = memory.chunks(PIECE).enumerate();
    let (mut in_flight, mut failure) = (0, None);
    loop {
        while in_flight < depth && failure.is_none() {
            let Some((index, piece)) = pieces.next() else { break };
            let fd = types::Fd(file.as_raw_fd());
            let flags = if handed { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
            let write = opcode::Write::new(fd, piece.as_ptr(), piece.len() as u32)
                .offset((index * PIECE) as u64)
                .build()
                .flags(flags);
            // SAFETY: the kernel reads from `piece` until the write completes, and this function
            // borrows `memory` until all writes have completed, also after a failure.
            match unsafe { ring.submission().push(&write) } {
                Ok(()) => in_flight += 1,
                Err(error) => failure = Some(io::Error::other(error)),
            }
        }
        if in_flight == 0 {
            return failure.map_or(Ok(()), Err);
        }
        while let Err(error) = ring.submit_and_wait(1) {
            // Nothing else can be meant by an error here, and leaving would free the memory.
            assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
        }
        for done in ring.completion() {
            in_flight -= 1;
            if done.result() != PIECE as i32 {
                failure = Some(io::Error::other(format!("short write: {}", done.result())));
            }
        }
    }
}

const ROWS: [(&str, Method); 5] = [
    ("pwrite, 1 thread", Method::Threads(1)),
    ("pwrite, 2 threads", Method::Threads(2)),
    ("pwrite, 4 threads", Method::Threads(4)),
    ("io_uring, 8 in flight", Method::Ring(8, false)),
    ("io_uring, 8 in flight, IOSQE_ASYNC", Method::Ring(8, true)),
];

const LEN: usize = 1 << 30;
const PIECE: usize = 1 << 20;
