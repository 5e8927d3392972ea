//! The program: `inspect` a bundle without a driver, `run` a kernel of it.

mod clock;
mod reference;
mod run;
mod shapes;

use rooftile_host::cuda::LIBRARY;
use rooftile_host::{Bundle, Error, Kind, Result, Source};
use std::process::ExitCode;

const USAGE: &str = "\
usage: rooftile-host inspect [BUNDLE]
       rooftile-host run KERNEL [--bundle DIR] [--rows N] [--cols N] [--SIZE N] [--dtype NAME]
                     [--ptx] [--launches N] [--device N] [--driver FILE]

BUNDLE is ./bundle where it is not given. KERNEL is an op or a symbol of the bundle.
exit codes: 0; 2 usage; 3 no driver; 4 no GPU; 5 wrong architecture; 6 driver too old;
7 bad bundle; 8 bad argument; 9 wrong result; 10 the driver refused a call";

/// Faults that an error names one by one.
const MOST_FAULTS: usize = 4;

/// Lets a reader that stops early (`| head`) end the program quietly, as other commands do.
#[cfg(unix)]
fn end_with_the_reader() {
    extern "C" {
        fn signal(number: i32, handler: usize) -> usize;
    }
    const SIGPIPE: i32 = 13;
    const DEFAULT: usize = 0;
    // SAFETY: nothing else runs yet, and the default action needs no handler.
    unsafe { signal(SIGPIPE, DEFAULT) };
}

fn main() -> ExitCode {
    #[cfg(unix)]
    end_with_the_reader();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match command(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rooftile-host: {error}");
            ExitCode::from(error.kind as u8)
        }
    }
}

fn command(arguments: &[String]) -> Result<()> {
    match arguments.first().map(String::as_str) {
        Some("inspect") if arguments.len() <= 2 => {
            inspect(arguments.get(1).map_or("bundle", String::as_str))
        }
        Some("run") if arguments.len() > 1 => run::run(&request(&arguments[1..])?),
        Some("--help" | "-h") => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(Error::new(Kind::Usage, USAGE)),
    }
}

/// Checks every file and says what there is.
fn inspect(folder: &str) -> Result<()> {
    let bundle = Bundle::open(folder)?;
    let tools: Vec<String> =
        bundle.manifest.tools.iter().map(|(name, version)| format!("{name} {version}")).collect();
    println!("{folder}: {} kernels, made by {}", bundle.manifest.kernels.len(), tools.join(", "));
    let mut bad = Vec::new();
    for spec in &bundle.manifest.kernels {
        if let Err(error) = bundle.verify(spec) {
            println!("BAD  {}", spec.symbol);
            bad.push(error.message);
            continue;
        }
        let kinds = [spec.binary.as_ref(), spec.ptx.as_ref()];
        let bytes: u64 = kinds.iter().flatten().map(|file| file.bytes).sum();
        println!(
            "ok   {:<40} {:<7} {bytes:>7} B  {:>3} registers  {} threads x {}  {} + {} B shared  {} parameters{}",
            spec.symbol, spec.target, spec.registers, spec.threads, spec.cluster, spec.dynamic_shared_bytes,
            spec.static_shared_bytes, spec.parameters.len(), needs(spec),
        );
    }
    for golden in &bundle.manifest.golden {
        for (_, file) in golden.inputs.iter().chain(&golden.outputs) {
            if let Err(error) = bundle.read(file) {
                bad.push(error.message);
            }
        }
    }
    if bad.is_empty() {
        return Ok(());
    }
    let shown = bad.len().min(MOST_FAULTS);
    let more = match bad.len() - shown {
        0 => String::new(),
        n => format!("; and {n} more"),
    };
    Err(Error::bundle(format!("{}{more}", bad[..shown].join("; "))))
}

/// Which drivers load it.
fn needs(spec: &rooftile_host::KernelSpec) -> String {
    let binary = spec.binary.as_ref().map(|_| format!("CUBIN from CUDA {} on", spec.binary_driver));
    let ptx =
        spec.ptx.as_ref().map(|_| format!("PTX {} from {} on", spec.ptx_version, spec.ptx_driver));
    if spec.ptx.is_none() {
        return String::new();
    }
    format!("  driver: {}", [binary, ptx].into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn request(arguments: &[String]) -> Result<run::Request> {
    let mut request = run::Request {
        bundle: "bundle".into(),
        kernel: arguments[0].clone(),
        sizes: Vec::new(),
        dtype: "bfloat16".into(),
        source: Source::Best,
        driver: LIBRARY.into(),
        device: 0,
        launches: 200,
    };
    let mut rest = arguments[1..].iter();
    while let Some(flag) = rest.next() {
        if flag == "--ptx" {
            request.source = Source::Ptx;
            continue;
        }
        let name = flag.strip_prefix("--").filter(|name| !name.is_empty());
        let (Some(name), Some(value)) = (name, rest.next()) else {
            return Err(Error::new(
                Kind::Usage,
                format!("{flag:?} must be an option with a value; {USAGE}"),
            ));
        };
        match name {
            "bundle" => request.bundle.clone_from(value),
            "dtype" => request.dtype.clone_from(value),
            "driver" => request.driver.clone_from(value),
            "device" => request.device = i32::try_from(whole(name, value)?).unwrap_or(-1),
            "launches" => request.launches = whole(name, value)?.max(1) as usize,
            size => {
                request.sizes.retain(|(known, _)| known != size); // the last of two counts
                request.sizes.push((size.to_string(), whole(name, value)?));
            }
        }
    }
    Ok(request)
}

fn whole(name: &str, value: &str) -> Result<i64> {
    value.parse().ok().filter(|number| *number >= 0).ok_or_else(|| {
        Error::new(Kind::Usage, format!("--{name} must be a whole number, got {value:?}"))
    })
}
