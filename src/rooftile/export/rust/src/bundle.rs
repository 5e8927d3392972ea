//! A bundle on disk: its manifest, its files, and which kernel fits.

use crate::elf;
use crate::error::{Error, Kind, Result};
use crate::gpu::Gpu;
use crate::kernel::Kernel;
use crate::manifest::{File, KernelSpec, Manifest};
use crate::sha256;
use std::fs;
use std::path::{Path, PathBuf};

/// What is loaded of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The binary where it fits the GPU and its driver, else the PTX.
    Best,
    /// The PTX, which the driver compiles.
    Ptx,
}

/// A bundle that was opened.
pub struct Bundle {
    folder: PathBuf,
    pub manifest: Manifest,
}

impl Bundle {
    /// Reads a bundle's manifest; files are read when they are needed.
    pub fn open(folder: impl AsRef<Path>) -> Result<Bundle> {
        let folder = folder.as_ref().to_path_buf();
        let path = folder.join("manifest.json");
        let text = fs::read_to_string(&path)
            .map_err(|why| Error::bundle(format!("cannot read {}: {why}", path.display())))?;
        Ok(Bundle { folder, manifest: Manifest::parse(&text)? })
    }

    /// A file's content, if it is what the manifest says.
    pub fn read(&self, file: &File) -> Result<Vec<u8>> {
        let content = fs::read(self.folder.join(&file.path))
            .map_err(|why| Error::bundle(format!("cannot read {}: {why}", file.path)))?;
        if content.len() as u64 != file.bytes {
            return Err(Error::bundle(format!(
                "{} must have {} bytes, it has {}",
                file.path,
                file.bytes,
                content.len()
            )));
        }
        if sha256::hex(&content) != file.sha256 {
            return Err(Error::bundle(format!("{} is not the file that was exported", file.path)));
        }
        Ok(content)
    }

    /// Checks a kernel's files, and its parameters against its CUBIN's own table.
    pub fn verify(&self, spec: &KernelSpec) -> Result<()> {
        if let Some(file) = &spec.ptx {
            self.read(file)?;
        }
        let Some(file) = &spec.binary else { return Ok(()) };
        let content = self.read(file)?;
        if !spec.target.starts_with("sm_") {
            return Ok(());
        }
        let cubin = elf::read(&content, &spec.symbol)
            .map_err(|error| Error::bundle(format!("{}: {}", file.path, error.message)))?;
        let listed: Vec<_> = spec.parameters.iter().map(|p| (p.offset, p.bytes)).collect();
        if cubin.parameters != listed {
            return Err(Error::bundle(format!(
                "{}: the manifest lists the parameters {listed:?} (offset, bytes), the CUBIN has {:?}",
                file.path, cubin.parameters)));
        }
        if format!("sm_{}", cubin.capability) != spec.target {
            return Err(Error::bundle(format!(
                "{}: the manifest says {}, the CUBIN is for sm_{}",
                file.path, spec.target, cubin.capability
            )));
        }
        if cubin.threads.is_some_and(|threads| threads != spec.threads) {
            return Err(Error::bundle(format!(
                "{}: the manifest says {} threads, the CUBIN {:?}",
                file.path, spec.threads, cubin.threads
            )));
        }
        Ok(())
    }

    /// The kernel of that symbol.
    pub fn symbol(&self, symbol: &str) -> Option<&KernelSpec> {
        self.manifest.kernels.iter().find(|kernel| kernel.symbol == symbol)
    }

    /// The best kernel of an op for these sizes on this GPU.
    pub fn find(
        &self,
        op: &str,
        dtype: &str,
        sizes: &[(&str, i64)],
        gpu: &Gpu,
    ) -> Result<&KernelSpec> {
        let of_op: Vec<&KernelSpec> = self
            .manifest
            .kernels
            .iter()
            .filter(|k| k.op == op && (k.dtype == dtype || k.dtype.is_empty()))
            .collect();
        if of_op.is_empty() {
            let mut known: Vec<String> = self
                .manifest
                .kernels
                .iter()
                .map(|k| format!("{} {}", k.op, k.dtype).trim_end().to_string())
                .collect();
            known.dedup();
            return Err(Error::argument(format!(
                "the bundle has no {op} for {dtype}; it has {}",
                known.join(", ")
            )));
        }
        let on_gpu: Vec<&KernelSpec> =
            of_op.iter().copied().filter(|k| runs(k, gpu.capability)).collect();
        if on_gpu.is_empty() {
            let mut targets: Vec<&str> = of_op.iter().map(|k| k.target.as_str()).collect();
            targets.sort_unstable();
            targets.dedup();
            return Err(Error::new(
                Kind::WrongArchitecture,
                format!(
                    "the bundle has {op} for {}, this GPU is sm_{}; export it with --arch sm_{}",
                    targets.join(", "),
                    gpu.capability,
                    gpu.capability
                ),
            ));
        }
        let mut fitting: Vec<&KernelSpec> =
            on_gpu.iter().copied().filter(|k| misfit(k, sizes).is_none()).collect();
        fitting.sort_by_key(|k| (rank(k, gpu), form_rank(k)));
        fitting.first().copied().ok_or_else(|| {
            let why: Vec<String> = on_gpu.iter().filter_map(|k| misfit(k, sizes)).collect();
            Error::argument(format!("the bundle has no {op} for these sizes: {}", why.join("; ")))
        })
    }

    /// Loads a kernel into the GPU's context, after `verify`.
    pub fn load(&self, gpu: &Gpu, spec: &KernelSpec, source: Source) -> Result<Kernel> {
        self.verify(spec)?;
        let binary = spec.binary.as_ref().filter(|_| {
            source == Source::Best
                && binary_runs(spec, gpu.capability)
                && old_enough(&spec.binary_driver, gpu)
        });
        if let Some(file) = binary {
            return Kernel::load(gpu, spec, self.read(file)?, &file.path);
        }
        let Some(file) = spec.ptx.as_ref().filter(|_| ptx_runs(spec, gpu.capability)) else {
            return Err(Error::new(
                Kind::WrongArchitecture,
                format!(
                    "{} is for {}, this GPU is sm_{}",
                    spec.symbol, spec.target, gpu.capability
                ),
            ));
        };
        if !old_enough(&spec.ptx_driver, gpu) {
            let (major, minor) = gpu.driver_version;
            return Err(Error::new(
                Kind::DriverTooOld,
                format!(
                "{} is PTX {}, which a driver for CUDA {} reads; this one is for {major}.{minor}: \
                 export with --ptx-version, or update the driver",
                file.path, spec.ptx_version, spec.ptx_driver),
            ));
        }
        let mut text = self.read(file)?;
        text.push(0);
        Kernel::load(gpu, spec, text, &file.path)
    }
}

/// Why a kernel does not take these sizes; None where it does.
fn misfit(spec: &KernelSpec, sizes: &[(&str, i64)]) -> Option<String> {
    spec.sizes.iter().find_map(|size| {
        let (_, value) = sizes.iter().find(|(name, _)| *name == size.name)?;
        let past = size.most.is_some_and(|most| *value > most);
        if *value != 0 && (*value < size.least || past || value % size.multiple_of != 0) {
            let most = size.most.map_or("any".into(), |most| most.to_string());
            return Some(format!(
                "{} takes {} {} to {most} by {}",
                spec.symbol, size.name, size.least, size.multiple_of
            ));
        }
        None
    })
}

fn runs(spec: &KernelSpec, capability: u32) -> bool {
    binary_runs(spec, capability) || ptx_runs(spec, capability)
}

/// A binary runs on its architecture and on later ones of the same major number.
fn binary_runs(spec: &KernelSpec, capability: u32) -> bool {
    let Some(own) = spec.target.strip_prefix("sm_").and_then(|n| n.parse::<u32>().ok()) else {
        return false;
    };
    let later = own / 10 == capability / 10 && own < capability && !spec.ptx_target.ends_with('a');
    spec.binary.is_some() && (own == capability || later)
}

/// PTX runs on its architecture and on all later ones, unless it asks for that one alone.
fn ptx_runs(spec: &KernelSpec, capability: u32) -> bool {
    let name = spec.ptx_target.strip_prefix("sm_").unwrap_or("");
    let alone = name.ends_with('a');
    let Ok(own) = name.trim_end_matches('a').parse::<u32>() else { return false };
    spec.ptx.is_some() && (own == capability || (own < capability && !alone))
}

/// Lower is better: the own binary, one of the family, then the nearest PTX; what the driver is
/// too old for comes last.
fn rank(spec: &KernelSpec, gpu: &Gpu) -> (u32, u32) {
    let own = spec.target.strip_prefix("sm_").and_then(|n| n.parse().ok()).unwrap_or(0u32);
    let far = gpu.capability.abs_diff(own);
    if binary_runs(spec, gpu.capability) && old_enough(&spec.binary_driver, gpu) {
        return (u32::from(far > 0), far);
    }
    (if ptx_runs(spec, gpu.capability) && old_enough(&spec.ptx_driver, gpu) { 2 } else { 3 }, far)
}

/// Lower is better: the more a form takes for granted, the faster it is.
fn form_rank(spec: &KernelSpec) -> usize {
    ["aligned", "uneven"].iter().position(|form| *form == spec.form).unwrap_or(2)
}

/// Whether the driver is at least of that CUDA version.
fn old_enough(wanted: &str, gpu: &Gpu) -> bool {
    let mut parts = wanted.split('.').map(|part| part.parse().unwrap_or(0u32));
    gpu.driver_version >= (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
