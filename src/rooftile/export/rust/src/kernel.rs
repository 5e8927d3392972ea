//! A loaded kernel, and launches whose arguments are checked.

use crate::call::Call;
use crate::cuda::{Driver, Handle, LaunchAttribute, LaunchConfig};
use crate::error::{Error, Kind, Result};
use crate::gpu::{Buffer, Gpu, Stream};
use crate::manifest::{KernelSpec, Role, Scratch, MOST_PARAMETERS};
use std::cell::RefCell;
use std::ffi::{c_int, c_void, CString};
use std::ptr;
use std::rc::Rc;

const DYNAMIC_SHARED: c_int = 8; // function attributes
const STATIC_SHARED: c_int = 1;
const WIDE_CLUSTER: c_int = 14;
const ERROR_LOG: c_int = 5; // options of a load
const ERROR_LOG_BYTES: c_int = 6;
const COOPERATIVE: u32 = 2; // launch attributes
const CLUSTER: u32 = 4;
const CLUSTER_SPREAD: u32 = 5;
const DEPENDENT: u32 = 6;
const PORTABLE_CLUSTER: u32 = 8;

/// A kernel in a GPU's context.
pub struct Kernel {
    driver: Rc<Driver>,
    module: Handle,
    function: Handle,
    spec: KernelSpec,
    gpu: Gpu,
    attributes: Vec<LaunchAttribute>,
    scratch: RefCell<[Option<Buffer>; 2]>,
}

impl Kernel {
    pub(crate) fn load(gpu: &Gpu, spec: &KernelSpec, image: Vec<u8>, path: &str) -> Result<Kernel> {
        let driver = Rc::clone(&gpu.driver);
        let module = load_module(&driver, &image, path)?;
        let mut function = ptr::null_mut();
        let name = CString::new(spec.symbol.as_str())
            .map_err(|_| Error::bundle(format!("no kernel can be called {:?}", spec.symbol)))?;
        // SAFETY: the module is loaded, the name ends in NUL, one handle is written
        let code = unsafe { (driver.function)(&mut function, module, name.as_ptr()) };
        driver.check(&format!("kernel {} of {path}", spec.symbol), code)?;
        let kernel = Kernel {
            attributes: attributes(spec),
            driver,
            module,
            function,
            spec: spec.clone(),
            gpu: gpu.clone(),
            scratch: RefCell::new([None, None]),
        };
        kernel.check_parameters()?;
        kernel.ask_for_shared_memory(gpu.shared_bytes)?;
        Ok(kernel)
    }

    /// What the manifest says of it.
    pub fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    /// The driver's handle, for launches by other means; it lives as long as the kernel.
    pub fn function(&self) -> Handle {
        self.function
    }

    /// A launch with nothing set.
    pub fn call(&self) -> Call<'_> {
        Call::new(&self.spec)
    }

    /// The driver's own list of parameters, where it tells, must be the manifest's.
    fn check_parameters(&self) -> Result<()> {
        let Some(info) = self.driver.parameter_info else { return Ok(()) };
        let parameters = &self.spec.parameters;
        let (mut offset, mut size) = (0usize, 0usize);
        for (i, parameter) in parameters.iter().enumerate() {
            // SAFETY: two numbers are written
            let code = unsafe { info(self.function, i, &mut offset, &mut size) };
            if code != 0 || (offset, size) != (parameter.offset, parameter.bytes) {
                return Err(Error::bundle(format!(
                    "{}: parameter {i} ({}) is {} bytes at {} in the manifest, {size} at {offset} in the binary",
                    self.spec.symbol, parameter.name, parameter.bytes, parameter.offset)));
            }
        }
        // SAFETY: as above; it fails behind the last parameter
        if unsafe { info(self.function, parameters.len(), &mut offset, &mut size) } == 0 {
            return Err(Error::bundle(format!(
                "{} has more parameters than the manifest's {}",
                self.spec.symbol,
                parameters.len()
            )));
        }
        Ok(())
    }

    /// A block gets more than 48 KiB only where it asks for it; asking for less does no harm.
    fn ask_for_shared_memory(&self, most: u32) -> Result<()> {
        let wanted = self.spec.dynamic_shared_bytes;
        let mut fixed = 0;
        // SAFETY: one number is written
        let code =
            unsafe { (self.driver.function_attribute)(&mut fixed, STATIC_SHARED, self.function) };
        self.driver.check("cuFuncGetAttribute", code)?;
        if u64::from(wanted) + fixed.max(0) as u64 > u64::from(most) {
            return Err(Error::new(Kind::WrongArchitecture, format!(
                "{} takes {wanted} + {fixed} bytes of shared memory a block, this GPU has {most}", self.spec.symbol)));
        }
        if wanted > 0 {
            // SAFETY: the function is loaded
            let code = unsafe {
                (self.driver.set_function_attribute)(self.function, DYNAMIC_SHARED, wanted as c_int)
            };
            self.driver.check("cuFuncSetAttribute(shared memory)", code)?;
        }
        if self.spec.cluster > PORTABLE_CLUSTER {
            // SAFETY: as above
            let code =
                unsafe { (self.driver.set_function_attribute)(self.function, WIDE_CLUSTER, 1) };
            self.driver.check("cuFuncSetAttribute(cluster)", code)?;
        }
        Ok(())
    }

    /// Checks the arguments and launches; with a size of 0 there is nothing to do.
    pub fn launch(&self, call: &Call<'_>, stream: Stream) -> Result<()> {
        let mut values = [0u64; MOST_PARAMETERS];
        let Some(grid) = self.prepare(call, &mut values)? else { return Ok(()) };
        let mut pointers = [ptr::null_mut::<c_void>(); MOST_PARAMETERS];
        for (pointer, value) in pointers.iter_mut().zip(&mut values[..self.spec.parameters.len()]) {
            *pointer = ptr::addr_of_mut!(*value).cast();
        }
        self.submit(grid, stream, &mut pointers)
    }

    /// Checks the arguments as `launch` does, and gives the grid; None where there is nothing to
    /// do.
    pub fn check(&self, call: &Call<'_>) -> Result<Option<[u32; 3]>> {
        self.prepare(call, &mut [0u64; MOST_PARAMETERS])
    }

    /// The value of every parameter, and the grid.
    fn prepare(
        &self,
        call: &Call<'_>,
        values: &mut [u64; MOST_PARAMETERS],
    ) -> Result<Option<[u32; 3]>> {
        if !ptr::eq(call.spec(), &self.spec) {
            return Err(Error::argument(format!(
                "the call was made for another kernel than {}",
                self.spec.symbol
            )));
        }
        let Some(grid) = call.pack(values)? else { return Ok(None) };
        for (value, parameter) in values.iter_mut().zip(&self.spec.parameters) {
            match parameter.role {
                Role::Scratch => *value = self.memory(0, self.spec.scratch, grid)?,
                Role::ProfileScratch => *value = self.memory(1, self.spec.profile_scratch, grid)?,
                _ => {}
            }
        }
        Ok(Some(grid))
    }

    /// Device memory for every block of the grid; its address, null for none.
    fn memory(&self, which: usize, scratch: Scratch, grid: [u32; 3]) -> Result<u64> {
        if scratch.bytes_per_block == 0 {
            return Ok(0);
        }
        let factors = [grid[0], grid[1], grid[2], self.spec.cluster].map(u64::from);
        let bytes = factors
            .iter()
            .try_fold(scratch.bytes_per_block, |product, factor| product.checked_mul(*factor))
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| {
                let blocks = format!("{grid:?} blocks of {} bytes", scratch.bytes_per_block);
                Error::argument(format!("{}: scratch of {blocks} is too large", self.spec.symbol))
            })?;
        let mut held = self.scratch.borrow_mut();
        if held[which].as_ref().map_or(true, |buffer| buffer.bytes < bytes) {
            self.gpu.synchronize()?; // launches under way may use what is freed here
            held[which] = Some(self.gpu.alloc(bytes)?);
        }
        Ok(held[which].as_ref().map_or(0, |buffer| buffer.address))
    }

    fn submit(&self, grid: [u32; 3], stream: Stream, pointers: &mut [*mut c_void]) -> Result<()> {
        let (threads, shared) = (self.spec.threads, self.spec.dynamic_shared_bytes);
        let arguments = pointers.as_mut_ptr();
        if self.attributes.is_empty() {
            // SAFETY: as many pointers as the kernel has parameters, each to at least its size
            let code = unsafe {
                (self.driver.launch)(
                    self.function,
                    grid[0],
                    grid[1],
                    grid[2],
                    threads,
                    1,
                    1,
                    shared,
                    stream.0,
                    arguments,
                    ptr::null_mut(),
                )
            };
            return self.driver.check("cuLaunchKernel", code);
        }
        let launch = self.driver.launch_extended.ok_or_else(|| {
            Error::new(
                Kind::DriverTooOld,
                format!("{} needs a driver for CUDA 11.8 or later", self.spec.symbol),
            )
        })?;
        let config = LaunchConfig {
            grid: [grid[0] * self.spec.cluster, grid[1], grid[2]],
            block: [threads, 1, 1],
            shared_bytes: shared,
            stream: stream.0,
            attributes: self.attributes.as_ptr(),
            attribute_count: self.attributes.len() as u32,
        };
        // SAFETY: as above; the attributes live as long as the kernel
        let code = unsafe { launch(&config, self.function, arguments, ptr::null_mut()) };
        self.driver.check("cuLaunchKernelEx", code)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once
        unsafe { (self.driver.unload)(self.module) };
    }
}

fn load_module(driver: &Driver, image: &[u8], path: &str) -> Result<Handle> {
    let mut log = [0u8; 4096];
    let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
    let mut module = ptr::null_mut();
    // SAFETY: the image is whole, PTX ends in NUL; the log has as many bytes as is said
    let code = unsafe {
        (driver.load)(
            &mut module,
            image.as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let said = String::from_utf8_lossy(&log[..end]).trim().replace('\n', "; ");
    let what = if said.is_empty() { path.to_string() } else { format!("{path} [{said}]") };
    driver.check(&what, code).map(|()| module)
}

fn attributes(spec: &KernelSpec) -> Vec<LaunchAttribute> {
    let mut list = Vec::new();
    let mut add = |id, given: [u32; 3]| {
        let mut value = [0u32; 16];
        value[..3].copy_from_slice(&given);
        list.push(LaunchAttribute { id, padding: 0, value });
    };
    if spec.dependent_launch {
        add(DEPENDENT, [1, 0, 0]);
    }
    if spec.cooperative {
        add(COOPERATIVE, [1, 0, 0]);
    }
    if spec.cluster > 1 {
        add(CLUSTER, [spec.cluster, 1, 1]);
        add(CLUSTER_SPREAD, [1, 0, 0]);
    }
    list
}
