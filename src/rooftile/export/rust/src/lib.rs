//! Launches kernels that `rooftile export` has compiled: no Python, no CUDA toolkit, no other crate.
//!
//! ```no_run
//! use rooftile_host::{Bundle, Gpu, Source, Stream};
//!
//! # fn main() -> rooftile_host::Result<()> {
//! let bundle = Bundle::open("bundle")?;
//! let gpu = Gpu::open(0)?;
//! let spec = bundle.find("softmax", "bfloat16", &[("rows", 4096), ("cols", 4096)], &gpu)?;
//! let kernel = bundle.load(&gpu, spec, Source::Best)?;
//! let (x, y) = (gpu.alloc(4096 * 4096 * 2)?, gpu.alloc(4096 * 4096 * 2)?);
//! let mut call = kernel.call();
//! call.size("rows", 4096)?.size("cols", 4096)?.buffer("x", &x)?.buffer("y", &y)?;
//! kernel.launch(&call, Stream::DEFAULT)?;
//! gpu.synchronize()
//! # }
//! ```

pub mod bundle;
pub mod call;
pub mod cuda;
pub mod elf;
pub mod error;
pub mod float;
pub mod formula;
pub mod gpu;
pub mod json;
pub mod kernel;
pub mod manifest;
mod read;
pub mod sha256;

pub use bundle::{Bundle, Source};
pub use call::Call;
pub use error::{Error, Kind, Result};
pub use gpu::{Buffer, Gpu, OwnStream, Stream};
pub use kernel::Kernel;
pub use manifest::{KernelSpec, Manifest};
