//! Reads a manifest, and refuses what is not one.

use crate::error::{Error, Result};
use crate::formula::Formula;
use crate::json::Json;
use crate::manifest::*;

const MOST_THREADS: u32 = 1024;
const MOST_CLUSTER: u32 = 16;

impl Manifest {
    /// Reads a manifest; one of another kind or schema version is refused.
    pub fn parse(text: &str) -> Result<Manifest> {
        let json = Json::parse(text)?;
        let kind = json.text("kind")?;
        if kind != KIND {
            return Err(Error::bundle(format!("manifest's kind must be {KIND}, it is {kind:?}")));
        }
        let version = json.whole("schema_version")?;
        if version != SCHEMA_VERSION {
            return Err(Error::bundle(format!(
                "manifest's schema_version must be {SCHEMA_VERSION}, it is {version}: \
                 this host and the rooftile that wrote the bundle are of different versions"
            )));
        }
        let tools = json.object("tools")?.keys();
        Ok(Manifest {
            tools: tools
                .map(|name| Ok((name.clone(), json.field("tools")?.text(name)?.to_string())))
                .collect::<Result<_>>()?,
            kernels: json.list("kernels")?.iter().map(kernel).collect::<Result<_>>()?,
            golden: json.list("golden")?.iter().map(golden).collect::<Result<_>>()?,
        })
    }
}

fn kernel(json: &Json) -> Result<KernelSpec> {
    let symbol = json.text("symbol")?.to_string();
    let sizes: Vec<Size> = json.list("sizes")?.iter().map(size).collect::<Result<_>>()?;
    let names: Vec<String> = sizes.iter().map(|size| size.name.clone()).collect();
    let mut tensors: Vec<Tensor> =
        json.list("tensors")?.iter().map(|t| tensor(t, &names)).collect::<Result<_>>()?;
    let parameters: Vec<Parameter> = json
        .list("parameters")?
        .iter()
        .map(|p| parameter(p, &names, &mut tensors))
        .collect::<Result<_>>()?;
    if parameters.len() > MOST_PARAMETERS {
        return Err(Error::bundle(format!("{symbol} has over {MOST_PARAMETERS} parameters")));
    }
    let grid = json.texts("grid")?;
    let formulas: Vec<Formula> =
        grid.iter().map(|text| Formula::parse(text, &names)).collect::<Result<_>>()?;
    let grid = match <[Formula; 3]>::try_from(formulas) {
        Ok(grid) => Some(grid),
        Err(none) if none.is_empty() => None,
        Err(_) => return Err(Error::bundle(format!("{symbol}: grid must have 3 extents"))),
    };
    Ok(KernelSpec {
        op: json.text("op")?.to_string(),
        dtype: json.text("dtype")?.to_string(),
        form: json.text("form")?.to_string(),
        target: json.text("target")?.to_string(),
        threads: within(json, "threads", MOST_THREADS)?,
        cluster: within(json, "cluster", MOST_CLUSTER)?,
        dynamic_shared_bytes: small(json, "dynamic_shared_bytes")?,
        static_shared_bytes: small(json, "static_shared_bytes")?,
        registers: json.whole("registers")?,
        scratch: scratch(json.field("scratch")?)?,
        profile_scratch: scratch(json.field("profile_scratch")?)?,
        cooperative: json.truth("cooperative")?,
        dependent_launch: json.truth("dependent_launch")?,
        ptx_version: json.text("ptx_version")?.to_string(),
        ptx_target: json.text("ptx_target")?.to_string(),
        ptx_driver: json.text("ptx_driver")?.to_string(),
        binary_driver: json.text("binary_driver")?.to_string(),
        binary: optional_file(json.field("binary")?)?,
        ptx: optional_file(json.field("ptx")?)?,
        absolute_tolerance: json.number("absolute_tolerance")?,
        relative_tolerance: json.number("relative_tolerance")?,
        symbol,
        parameters,
        sizes,
        tensors,
        grid,
    })
}

/// A count from 1 on.
fn within(json: &Json, name: &str, most: u32) -> Result<u32> {
    let value = small(json, name)?;
    if value == 0 || value > most {
        return Err(Error::bundle(format!(
            "manifest: {name:?} must be 1 to {most}, it is {value}"
        )));
    }
    Ok(value)
}

/// A count that the driver takes as 32 bits.
fn small(json: &Json, name: &str) -> Result<u32> {
    let value = json.whole(name)?;
    value.try_into().map_err(|_| Error::bundle(format!("manifest: {name:?} cannot be {value}")))
}

fn size(json: &Json) -> Result<Size> {
    let most = json.number("most")?;
    Ok(Size {
        name: json.text("name")?.to_string(),
        least: json.whole("least")?,
        most: if most.is_some() { Some(json.whole("most")?) } else { None },
        multiple_of: json.whole("multiple_of")?.max(1),
    })
}

fn tensor(json: &Json, names: &[String]) -> Result<Tensor> {
    let shape = json.texts("shape")?;
    Ok(Tensor {
        name: json.text("name")?.to_string(),
        input: json.text("direction")? == "input",
        dtype: json.text("dtype")?.to_string(),
        shape: shape.iter().map(|text| Formula::parse(text, names)).collect::<Result<_>>()?,
        below: json.text("below")?.to_string(),
    })
}

fn parameter(json: &Json, names: &[String], tensors: &mut Vec<Tensor>) -> Result<Parameter> {
    let name = json.text("name")?.to_string();
    let bytes = small(json, "bytes")? as usize;
    let kind = json.text("type")?.to_string();
    if bytes != type_bytes(&kind)? {
        return Err(Error::bundle(format!("parameter {name}: a {kind} has not {bytes} bytes")));
    }
    let role = match json.text("role")? {
        "tensor" => Role::Tensor(position(json.text("tensor")?, tensors)),
        "scalar" => Role::Scalar(json.number("default")?),
        "scratch" => Role::Scratch,
        "profile_scratch" => Role::ProfileScratch,
        "fixed" if json.text("formula")?.is_empty() => {
            Role::Number(json.number("default")?.ok_or_else(|| {
                Error::bundle(format!("parameter {name}: it is fixed to nothing"))
            })?)
        }
        role @ ("size" | "stride" | "fixed") => Role::Whole {
            formula: Formula::parse(json.text("formula")?, names)?,
            stride: role == "stride",
        },
        other => return Err(Error::bundle(format!("parameter {name}: no role is {other:?}"))),
    };
    Ok(Parameter {
        divisible_by: u64::from(small(json, "divisible_by")?.max(1)),
        offset: small(json, "offset")? as usize,
        range: range(&kind),
        name,
        kind,
        bytes,
        role,
    })
}

/// Where a tensor stands; a user's own kernel names them by its parameters alone.
fn position(name: &str, tensors: &mut Vec<Tensor>) -> usize {
    tensors.iter().position(|tensor| tensor.name == name).unwrap_or_else(|| {
        let name = name.to_string();
        tensors.push(Tensor {
            name,
            input: true,
            dtype: String::new(),
            shape: Vec::new(),
            below: String::new(),
        });
        tensors.len() - 1
    })
}

/// Bytes of a parameter of a type.
pub fn type_bytes(kind: &str) -> Result<usize> {
    match kind {
        _ if kind.starts_with('*') => Ok(8),
        "i1" | "u1" | "i8" | "u8" => Ok(1),
        "i16" | "u16" | "fp16" | "bf16" => Ok(2),
        "i32" | "u32" | "fp32" => Ok(4),
        "i64" | "u64" | "fp64" => Ok(8),
        _ => Err(Error::bundle(format!("no parameter can be of type {kind:?}"))),
    }
}

/// The whole numbers of a type, as far as 64 signed bits reach; none of a type that has none.
fn range(kind: &str) -> (i64, i64) {
    let Ok(bits) = kind[1.min(kind.len())..].parse::<u32>() else { return (0, -1) };
    match (kind.as_bytes()[0], bits) {
        (_, 1) => (0, 1),
        (b'i', 64) => (i64::MIN, i64::MAX),
        (b'u', 64) => (0, i64::MAX),
        (b'i', bits) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        (b'u', bits) => (0, (1 << bits) - 1),
        _ => (0, -1),
    }
}

fn scratch(json: &Json) -> Result<Scratch> {
    Ok(Scratch {
        bytes_per_block: u64::from(small(json, "bytes_per_block")?),
        alignment: u64::from(small(json, "alignment")?),
    })
}

fn optional_file(json: &Json) -> Result<Option<File>> {
    if *json == Json::Null {
        Ok(None)
    } else {
        file(json).map(Some)
    }
}

fn file(json: &Json) -> Result<File> {
    let path = json.text("path")?.to_string();
    let inside = std::path::Path::new(&path)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)));
    if path.is_empty() || !inside {
        return Err(Error::bundle(format!(
            "manifest: a file must lie in the bundle, {path:?} does not"
        )));
    }
    let bytes = json.whole("bytes")?;
    Ok(File { path, bytes: bytes.max(0) as u64, sha256: json.text("sha256")?.to_string() })
}

fn golden(json: &Json) -> Result<Golden> {
    let files = |name: &str| -> Result<Vec<(String, File)>> {
        json.object(name)?.iter().map(|(key, value)| Ok((key.clone(), file(value)?))).collect()
    };
    let sizes = json.field("sizes")?;
    Ok(Golden {
        op: json.text("op")?.to_string(),
        dtype: json.text("dtype")?.to_string(),
        sizes: json
            .object("sizes")?
            .keys()
            .map(|name| Ok((name.clone(), sizes.whole(name)?)))
            .collect::<Result<_>>()?,
        inputs: files("inputs")?,
        outputs: files("outputs")?,
    })
}
