//! Softmax of a bundle through cudarc: module, stream and memory are cudarc's own, the arguments
//! are checked and packed by rooftile-host.

use cudarc::driver::sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
use cudarc::driver::{CudaContext, DevicePtr, DevicePtrMut, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use rooftile_host::manifest::MOST_PARAMETERS;
use rooftile_host::{Bundle, Call};
use std::error::Error;
use std::path::Path;

const ROWS: i64 = 1024;
const COLS: i64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "bundle".into());
    let bundle = Bundle::open(&folder)?;
    let spec = bundle.symbol("softmax_fwd_bf16_n4096_sm90").ok_or("export softmax for sm_90")?;
    bundle.verify(spec)?;
    let file = spec.binary.as_ref().ok_or("the bundle has no CUBIN")?;

    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let module = context.load_module(Ptx::from_file(Path::new(&folder).join(&file.path)))?;
    let kernel = module.load_function(&spec.symbol)?;
    let shared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    kernel.set_attribute(shared, spec.dynamic_shared_bytes as i32)?;

    let count = (ROWS * COLS) as usize;
    let bytes = 2 * count as u64;
    let x = stream.clone_htod(&vec![0x3f80u16; count])?; // bfloat16 ones
    let mut y = stream.alloc_zeros::<u16>(count)?;
    {
        // both guards live until the launch is under way: cudarc orders streams by them
        let (x, _reads) = x.device_ptr(&stream);
        let (y, _writes) = y.device_ptr_mut(&stream);
        let mut call = Call::new(spec);
        call.size("rows", ROWS)?.size("cols", COLS)?;
        call.tensor("x", x, bytes)?.tensor("y", y, bytes)?;
        let mut values = [0u64; MOST_PARAMETERS];
        let grid = call.pack(&mut values)?.ok_or("there are no rows")?;
        let mut launch = stream.launch_builder(&kernel);
        for value in &values[..spec.parameters.len()] {
            launch.arg(value); // little endian: the kernel takes of it the bytes of its type
        }
        let config = LaunchConfig {
            grid_dim: (grid[0], grid[1], grid[2]),
            block_dim: (spec.threads, 1, 1),
            shared_mem_bytes: spec.dynamic_shared_bytes,
        };
        // SAFETY: the arguments are those of the manifest, in its order
        unsafe { launch.launch(config)? };
    }
    let y: Vec<u16> = stream.clone_dtoh(&y)?;
    let first = f32::from_bits(u32::from(y[0]) << 16);
    println!("{}: y[0] = {first}, 1 / {COLS} is wanted", spec.symbol);
    Ok(())
}
