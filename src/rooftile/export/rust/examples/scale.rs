//! Launches a kernel of one's own, `y = x * factor`, exported with the signature
//! `*bf16:16, *bf16:16, i32:16, fp32` and the grid `ceil(n / BLOCK)`:
//! `cargo run --example scale -- BUNDLE [DRIVER]`.

use rooftile_host::cuda::LIBRARY;
use rooftile_host::float::DType;
use rooftile_host::{Bundle, Error, Gpu, Kind, Result, Source, Stream};
use std::process::ExitCode;

const N: usize = 1 << 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let folder = words.first().map_or("scale", String::as_str);
    match scale(folder, words.get(1).map_or(LIBRARY, String::as_str)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.kind as u8)
        }
    }
}

fn scale(folder: &str, driver: &str) -> Result<()> {
    let bundle = Bundle::open(folder)?;
    let gpu = Gpu::open_with(driver, 0)?;
    let spec = bundle.find("scale", "", &[("n", N as i64)], &gpu)?;
    let kernel = bundle.load(&gpu, spec, Source::Best)?;

    let x: Vec<f32> = (0..N).map(|i| (i % 251) as f32).collect();
    let (input, output) = (gpu.upload(&DType::BFloat16.encode(&x))?, gpu.alloc(2 * N)?);
    let mut call = kernel.call();
    call.size("n", N as i64)?.scalar("factor", 0.5)?;
    call.buffer("x_ptr", &input)?.buffer("y_ptr", &output)?;
    kernel.launch(&call, Stream::DEFAULT)?;
    gpu.synchronize()?;

    let y = DType::BFloat16.decode(&output.download()?);
    // whole numbers below 256 and their halves are exact in bfloat16
    let wrong = y.iter().zip(&x).filter(|(y, x)| **y != **x * 0.5).count();
    println!("{}: {wrong} of {N} elements are wrong", spec.symbol);
    if wrong > 0 {
        return Err(Error::new(Kind::WrongResult, "y must be x / 2"));
    }
    Ok(())
}
