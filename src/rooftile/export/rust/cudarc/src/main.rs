//! Softmax of a bundle through cudarc: module, stream and memory are cudarc's own.

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use rooftile_host::manifest::Role;
use rooftile_host::Bundle;
use std::error::Error;
use std::path::Path;

const ROWS: i64 = 1024;
const COLS: i64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "bundle".into());
    let bundle = Bundle::open(&folder)?;
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let spec = bundle.symbol("softmax_fwd_bf16_n4096_sm90").ok_or("export softmax for sm_90")?;
    bundle.verify(spec)?;
    let file = spec.binary.as_ref().ok_or("the bundle has no CUBIN")?;
    let module = context.load_module(Ptx::from_file(Path::new(&folder).join(&file.path)))?;
    let kernel = module.load_function(&spec.symbol)?;

    let count = (ROWS * COLS) as usize;
    let x = stream.memcpy_stod(&vec![0x3f80u16; count])?; // bfloat16 ones
    let mut y = stream.alloc_zeros::<u16>(count)?;
    let sizes = [ROWS, COLS];
    let wholes: Vec<i32> = spec
        .parameters
        .iter()
        .filter_map(|parameter| match &parameter.role {
            Role::Whole { formula, .. } => formula.value(&sizes).map(|value| value as i32),
            _ => None,
        })
        .collect();
    let grid = spec.grid.as_ref().ok_or("the bundle has no grid")?;
    let extent = |axis: usize| grid[axis].value(&sizes).unwrap_or(1) as u32;
    let scratch = 0u64; // both hidden addresses, null: softmax has no scratch
    let mut launch = stream.launch_builder(&kernel);
    launch.arg(&x).arg(&mut y);
    for whole in &wholes {
        launch.arg(whole);
    }
    launch.arg(&scratch).arg(&scratch);
    // SAFETY: the arguments are those of the manifest, in its order
    unsafe {
        launch.launch(LaunchConfig {
            grid_dim: (extent(0), extent(1), extent(2)),
            block_dim: (spec.threads, 1, 1),
            shared_mem_bytes: spec.dynamic_shared_bytes,
        })?;
    }
    let first = f32::from_bits(u32::from(stream.memcpy_dtov(&y)?[0]) << 16);
    println!("{}: y[0] = {first}, 1 / {COLS} is wanted", spec.symbol);
    Ok(())
}
