//! A GPU: its context, memory and clock.

use crate::cuda::{Address, Driver, Handle, LIBRARY};
use crate::error::{Error, Kind, Result};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::rc::Rc;

const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;
const SHARED_OPT_IN: c_int = 97;
const NON_BLOCKING: c_uint = 1;

/// A stream; the default one is null. Any `CUstream` of the primary context can be given.
#[derive(Debug, Clone, Copy)]
pub struct Stream(pub Handle);

impl Stream {
    pub const DEFAULT: Stream = Stream(ptr::null_mut());
}

/// A GPU whose primary context, the one PyTorch uses too, is current on this thread.
#[derive(Clone)]
pub struct Gpu {
    pub(crate) driver: Rc<Driver>,
    /// Name as the driver has it.
    pub name: String,
    /// Compute capability times ten.
    pub capability: u32,
    /// The CUDA version that the driver reports: (13, 0).
    pub driver_version: (u32, u32),
    /// Most shared memory of a block [bytes].
    pub shared_bytes: u32,
}

impl Gpu {
    /// Opens the GPU of that number.
    pub fn open(index: i32) -> Result<Gpu> {
        Gpu::open_with(LIBRARY, index)
    }

    /// The same with another library in the driver's place.
    pub fn open_with(library: &str, index: i32) -> Result<Gpu> {
        let driver = Driver::open(library)?;
        let (mut count, mut device, mut version) = (0, 0, 0);
        let mut context = ptr::null_mut();
        let mut letters = [0u8; 128];
        // SAFETY: the driver writes one value through each pointer, 128 bytes of name at most
        unsafe {
            driver.check("cuInit", (driver.init)(0))?;
            driver.check("cuDriverGetVersion", (driver.version)(&mut version))?;
            driver.check("cuDeviceGetCount", (driver.device_count)(&mut count))?;
            if index < 0 || index >= count {
                return Err(Error::new(
                    Kind::NoGpu,
                    format!("the driver sees {count} GPUs, no number {index}"),
                ));
            }
            driver.check("cuDeviceGet", (driver.device)(&mut device, index))?;
            let name = letters.as_mut_ptr().cast();
            driver.check("cuDeviceGetName", (driver.device_name)(name, 128, device))?;
            driver.check("cuDevicePrimaryCtxRetain", (driver.context)(&mut context, device))?;
            driver.check("cuCtxSetCurrent", (driver.set_context)(context))?;
        }
        let attribute = |which: c_int| -> Result<u32> {
            let mut value = 0;
            // SAFETY: one value is written
            let code = unsafe { (driver.device_attribute)(&mut value, which, device) };
            driver.check("cuDeviceGetAttribute", code)?;
            Ok(value.max(0) as u32)
        };
        let end = letters.iter().position(|b| *b == 0).unwrap_or(letters.len());
        Ok(Gpu {
            name: String::from_utf8_lossy(&letters[..end]).into_owned(),
            capability: attribute(CAPABILITY_MAJOR)? * 10 + attribute(CAPABILITY_MINOR)?,
            driver_version: (version as u32 / 1000, version as u32 % 1000 / 10),
            shared_bytes: attribute(SHARED_OPT_IN)?,
            driver: Rc::new(driver),
        })
    }

    /// Memory of so many bytes, freed when it is dropped.
    pub fn alloc(&self, bytes: usize) -> Result<Buffer> {
        let mut address = 0;
        // SAFETY: one address is written
        let code = unsafe { (self.driver.alloc)(&mut address, bytes.max(1)) };
        self.driver.check("cuMemAlloc", code)?;
        Ok(Buffer { driver: Rc::clone(&self.driver), address, bytes })
    }

    /// Memory that holds these bytes.
    pub fn upload(&self, data: &[u8]) -> Result<Buffer> {
        let buffer = self.alloc(data.len())?;
        // SAFETY: the buffer has as many bytes as data
        let code = unsafe {
            (self.driver.to_device)(buffer.address, data.as_ptr().cast::<c_void>(), data.len())
        };
        self.driver.check("cuMemcpyHtoD", code)?;
        Ok(buffer)
    }

    /// Waits for all that was launched.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: no argument
        self.driver.check("cuCtxSynchronize", unsafe { (self.driver.synchronize)() })
    }

    /// A stream of its own, which does not wait for the default one.
    pub fn stream(&self) -> Result<OwnStream> {
        let mut handle = ptr::null_mut();
        // SAFETY: one handle is written
        let code = unsafe { (self.driver.stream)(&mut handle, NON_BLOCKING) };
        self.driver.check("cuStreamCreate", code)?;
        Ok(OwnStream { driver: Rc::clone(&self.driver), stream: Stream(handle) })
    }

    /// Time between two points of a stream.
    pub fn timer(&self) -> Result<Timer> {
        let mut events = [ptr::null_mut(); 2];
        for event in &mut events {
            // SAFETY: one handle is written
            self.driver.check("cuEventCreate", unsafe { (self.driver.event)(event, 0) })?;
        }
        Ok(Timer { driver: Rc::clone(&self.driver), events })
    }
}

/// Device memory.
pub struct Buffer {
    driver: Rc<Driver>,
    pub address: Address,
    pub bytes: usize,
}

impl Buffer {
    /// A copy of its bytes.
    pub fn download(&self) -> Result<Vec<u8>> {
        let mut data = vec![0u8; self.bytes];
        // SAFETY: data has as many bytes as the buffer
        let code = unsafe {
            (self.driver.to_host)(data.as_mut_ptr().cast::<c_void>(), self.address, self.bytes)
        };
        self.driver.check("cuMemcpyDtoH", code)?;
        Ok(data)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the address came from cuMemAlloc and is freed once
        unsafe { (self.driver.free)(self.address) };
    }
}

/// A stream, destroyed when it is dropped.
pub struct OwnStream {
    driver: Rc<Driver>,
    pub stream: Stream,
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // SAFETY: made by cuStreamCreate, destroyed once
        unsafe { (self.driver.destroy_stream)(self.stream.0) };
    }
}

/// Two events.
pub struct Timer {
    driver: Rc<Driver>,
    events: [Handle; 2],
}

impl Timer {
    /// Marks the beginning.
    pub fn start(&self, stream: Stream) -> Result<()> {
        // SAFETY: the event is alive
        self.driver
            .check("cuEventRecord", unsafe { (self.driver.record)(self.events[0], stream.0) })
    }

    /// Marks the end, waits for it, and gives the time [s].
    pub fn stop(&self, stream: Stream) -> Result<f64> {
        let mut milliseconds = 0f32;
        // SAFETY: both events are alive, one number is written
        unsafe {
            self.driver.check("cuEventRecord", (self.driver.record)(self.events[1], stream.0))?;
            self.driver.check("cuEventSynchronize", (self.driver.wait)(self.events[1]))?;
            let code = (self.driver.elapsed)(&mut milliseconds, self.events[0], self.events[1]);
            self.driver.check("cuEventElapsedTime", code)?;
        }
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        for event in self.events {
            // SAFETY: made by cuEventCreate, destroyed once
            unsafe { (self.driver.destroy_event)(event) };
        }
    }
}
