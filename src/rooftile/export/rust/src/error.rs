//! What can go wrong, each kind with an exit code of its own.

use std::fmt;

/// The kind of an error; its number is the program's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The command line is not understood.
    Usage = 2,
    /// There is no NVIDIA driver on this machine.
    NoDriver = 3,
    /// The driver sees no GPU.
    NoGpu = 4,
    /// The bundle has no kernel for this GPU.
    WrongArchitecture = 5,
    /// The driver is older than the PTX or the binary.
    DriverTooOld = 6,
    /// Manifest or files are not what they should be.
    BadBundle = 7,
    /// A size, an address or a number does not fit the kernel.
    BadArgument = 8,
    /// The result differs from the reference.
    WrongResult = 9,
    /// The driver refused a call.
    Driver = 10,
}

/// An error in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    pub fn bundle(message: impl Into<String>) -> Error {
        Error::new(Kind::BadBundle, message)
    }

    pub fn argument(message: impl Into<String>) -> Error {
        Error::new(Kind::BadArgument, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
