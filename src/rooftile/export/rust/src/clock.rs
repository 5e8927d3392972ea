//! How long a kernel takes, and what its launch costs the host.

use rooftile_host::error::Result;
use rooftile_host::{Call, Gpu, Kernel, Stream};
use std::hint::black_box;
use std::time::Instant;

const WARM_UP: usize = 20;
const ROUNDS: usize = 20;
const CHECKS: usize = 1000;

/// Times launches in a row on warm buffers; `bytes` is what one of them moves.
pub fn time(gpu: &Gpu, kernel: &Kernel, call: &Call, bytes: usize, launches: usize) -> Result<()> {
    let own = gpu.stream()?; // a launch on the default stream costs the host more
    let stream = own.stream;
    for _ in 0..WARM_UP {
        kernel.launch(call, stream)?;
    }
    gpu.synchronize()?;
    let timer = gpu.timer()?;
    timer.start(stream)?;
    for _ in 0..launches {
        kernel.launch(call, stream)?;
    }
    let seconds = timer.stop(stream)? / launches as f64;
    println!(
        "time      {:.2} us a launch, {:.1} GB/s",
        seconds * 1e6,
        bytes as f64 / seconds / 1e9
    );
    host_time(gpu, kernel, call, stream, launches)
}

/// What a launch costs the host, and how much of it are the checks of the arguments.
fn host_time(
    gpu: &Gpu,
    kernel: &Kernel,
    call: &Call,
    stream: Stream,
    launches: usize,
) -> Result<()> {
    let few = launches.min(50); // a queue that is full would make the host wait
    let mut times = [0f64; ROUNDS];
    for time in &mut times {
        let begun = Instant::now();
        for _ in 0..few {
            kernel.launch(call, stream)?;
        }
        *time = begun.elapsed().as_secs_f64() / few as f64 * 1e6;
        gpu.synchronize()?;
    }
    let begun = Instant::now();
    for _ in 0..CHECKS {
        black_box(kernel.check(black_box(call))?);
    }
    let checks = begun.elapsed().as_secs_f64() / CHECKS as f64 * 1e6;
    let mean = times.iter().sum::<f64>() / ROUNDS as f64;
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    println!("host      {mean:.2} us a launch (the least {least:.2}), {checks:.2} of it checks");
    Ok(())
}
