//! The CUDA driver API, opened at run time: the program starts, and explains itself, without one.

use crate::error::{Error, Kind, Result};
use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::ptr;

extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const RTLD_NOW: c_int = 2;
/// Where every Linux driver has it.
pub const LIBRARY: &str = "libcuda.so.1";

pub type Handle = *mut c_void;
pub type Address = u64;

/// `CUlaunchAttribute`, 72 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchAttribute {
    pub id: c_uint,
    pub padding: c_uint,
    pub value: [u32; 16],
}

/// `CUlaunchConfig`, 56 bytes.
#[repr(C)]
pub struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub stream: Handle,
    pub attributes: *const LaunchAttribute,
    pub attribute_count: c_uint,
}

macro_rules! driver {
    (always { $($name:ident = $symbol:literal($($kind:ty),*);)* } newer { $($maybe:ident = $other:literal($($type:ty),*);)* }) => {
        /// The driver's functions.
        pub struct Driver {
            $(pub $name: unsafe extern "C" fn($($kind),*) -> c_int,)*
            $(pub $maybe: Option<unsafe extern "C" fn($($type),*) -> c_int>,)*
        }

        impl Driver {
            /// Opens the driver's library.
            pub fn open(path: &str) -> Result<Driver> {
                let library = open_library(path)?;
                Ok(Driver {
                    $($name: {
                        let found = find(library, $symbol);
                        if found.is_null() {
                            return Err(Error::new(Kind::NoDriver, format!(
                                "{path} has no {}: it is too old, or no CUDA driver", $symbol)));
                        }
                        // SAFETY: the symbol is this function of the driver's C interface
                        unsafe { std::mem::transmute::<Handle, unsafe extern "C" fn($($kind),*) -> c_int>(found) }
                    },)*
                    $($maybe: {
                        let found = find(library, $other);
                        // SAFETY: as above, where it is there
                        (!found.is_null()).then(|| unsafe {
                            std::mem::transmute::<Handle, unsafe extern "C" fn($($type),*) -> c_int>(found)
                        })
                    },)*
                })
            }
        }
    };
}

driver! {
    always {
        init = "cuInit"(c_uint);
        version = "cuDriverGetVersion"(*mut c_int);
        error_name = "cuGetErrorName"(c_int, *mut *const c_char);
        error_text = "cuGetErrorString"(c_int, *mut *const c_char);
        device_count = "cuDeviceGetCount"(*mut c_int);
        device = "cuDeviceGet"(*mut c_int, c_int);
        device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
        device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
        context = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
        set_context = "cuCtxSetCurrent"(Handle);
        synchronize = "cuCtxSynchronize"();
        load = "cuModuleLoadDataEx"(*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
        unload = "cuModuleUnload"(Handle);
        function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
        function_attribute = "cuFuncGetAttribute"(*mut c_int, c_int, Handle);
        set_function_attribute = "cuFuncSetAttribute"(Handle, c_int, c_int);
        alloc = "cuMemAlloc_v2"(*mut Address, usize);
        free = "cuMemFree_v2"(Address);
        to_device = "cuMemcpyHtoD_v2"(Address, *const c_void, usize);
        to_host = "cuMemcpyDtoH_v2"(*mut c_void, Address, usize);
        event = "cuEventCreate"(*mut Handle, c_uint);
        record = "cuEventRecord"(Handle, Handle);
        wait = "cuEventSynchronize"(Handle);
        elapsed = "cuEventElapsedTime"(*mut f32, Handle, Handle);
        destroy_event = "cuEventDestroy_v2"(Handle);
        stream = "cuStreamCreate"(*mut Handle, c_uint);
        destroy_stream = "cuStreamDestroy_v2"(Handle);
        launch = "cuLaunchKernel"(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
    }
    newer {
        launch_extended = "cuLaunchKernelEx"(*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void); // from 11.8 on
        parameter_info = "cuFuncGetParamInfo"(Handle, usize, *mut usize, *mut usize); // from 12.4 on
    }
}

fn open_library(path: &str) -> Result<Handle> {
    let name = CString::new(path)
        .map_err(|_| Error::new(Kind::Usage, "the driver's path must hold no NUL"))?;
    // SAFETY: name ends in NUL; dlerror's text is copied before the next call
    unsafe {
        let library = dlopen(name.as_ptr(), RTLD_NOW);
        if library.is_null() {
            let why = text(dlerror());
            return Err(Error::new(
                Kind::NoDriver,
                format!(
                    "no NVIDIA driver on this machine: cannot open {path} ({why}); \
                 `rooftile-host inspect` checks a bundle without one"
                ),
            ));
        }
        Ok(library)
    }
}

fn find(library: Handle, symbol: &str) -> Handle {
    let name = CString::new(symbol).unwrap_or_default();
    // SAFETY: library is open, name ends in NUL
    unsafe { dlsym(library, name.as_ptr()) }
}

/// A C string, or "unknown".
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return "unknown".into();
    }
    CStr::from_ptr(pointer).to_string_lossy().into_owned()
}

impl Driver {
    /// Ok for 0, else the driver's words and what most often is the matter.
    #[inline]
    pub fn check(&self, what: &str, code: c_int) -> Result<()> {
        if code == 0 {
            Ok(())
        } else {
            Err(self.error(what, code))
        }
    }

    #[cold]
    fn error(&self, what: &str, code: c_int) -> Error {
        let (mut name, mut words) = (ptr::null(), ptr::null());
        // SAFETY: both are set to static strings, or left null
        let (name, words) = unsafe {
            (self.error_name)(code, &mut name);
            (self.error_text)(code, &mut words);
            (text(name), text(words))
        };
        let (kind, hint) = match code {
            100 | 3 | 802 | 803 | 804 | 999 => (Kind::NoGpu,
                ": the driver sees no GPU (CUDA_VISIBLE_DEVICES, a container without one)"),
            209 => (Kind::WrongArchitecture, ": the binary is for another architecture"),
            222 => (Kind::DriverTooOld,
                ": the PTX is newer than the driver; export with --ptx-version, or use the CUBIN"),
            200 => (Kind::DriverTooOld,
                ": the driver cannot read this binary; it may be older than the toolkit that made it"),
            218 => (Kind::BadBundle, ": the PTX is not valid"),
            500 => (Kind::BadBundle, ": the module has no kernel of that name"),
            _ => (Kind::Driver, ""),
        };
        Error::new(kind, format!("{what}: {name} ({code}), {words}{hint}"))
    }
}
