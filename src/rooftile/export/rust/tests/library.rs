//! The library on the bundle of the tests, with the stand-in driver.

mod bundle;

use bundle::{bundle, driver};
use rooftile_host::manifest::MOST_PARAMETERS;
use rooftile_host::{Bundle, Call, Gpu, Kind, Source, Stream};

#[test]
fn wrong_arguments_never_reach_the_driver() {
    let bundle = Bundle::open(bundle()).unwrap();
    let gpu = Gpu::open_with(&driver(), 0).unwrap();
    let spec = bundle.symbol("softmax_fwd_bf16_n4096_sm90").unwrap();
    let kernel = bundle.load(&gpu, spec, Source::Best).unwrap();
    let (x, y) = (gpu.alloc(4 * 8192 + 16).unwrap(), gpu.alloc(4 * 8192).unwrap());
    let mut good = kernel.call();
    good.size("rows", 4)
        .unwrap()
        .size("cols", 4096)
        .unwrap()
        .buffer("x", &x)
        .unwrap()
        .buffer("y", &y)
        .unwrap();
    kernel.launch(&good, Stream::DEFAULT).unwrap();
    let refused = |change: &dyn Fn(&mut rooftile_host::Call<'_>), said: &str| {
        let mut call = good.clone();
        change(&mut call);
        let error = kernel.launch(&call, Stream::DEFAULT).unwrap_err();
        assert_eq!(error.kind, Kind::BadArgument);
        assert!(error.message.contains(said), "{said}: {error}");
    };
    refused(
        &|c| {
            c.tensor("x", x.address + 4, 32768).unwrap();
        },
        "the address of x_ptr must be a multiple of 16",
    );
    refused(
        &|c| {
            c.tensor("y", y.address, 100).unwrap();
        },
        "tensor y must have 32768 bytes, got 100",
    );
    refused(
        &|c| {
            c.size("cols", 4000 + 8).unwrap();
        },
        "cols must be 2064 to 4096 by 16, got 4008",
    );
    refused(
        &|c| {
            c.size("rows", -1).unwrap();
        },
        "rows must be",
    );
    refused(
        &|c| {
            c.size("rows", 1 << 40).unwrap();
        },
        "the grid passes 32 bits",
    );
    refused(
        &|c| {
            c.stride("stride_xo", 4100).unwrap();
        },
        "stride_xo must be a multiple of 16, got 4100",
    );
    refused(
        &|c| {
            c.stride("stride_xo", 1 << 31).unwrap();
        },
        "stride_xo is an i32, 2147483648 does not fit",
    );
    assert!(good.clone().size("heads", 1).err().unwrap().message.contains("it has rows, cols"));
    assert!(good.clone().tensor("w", 0, 0).err().unwrap().message.contains("it has x, y"));
    assert!(kernel
        .launch(&kernel.call(), Stream::DEFAULT)
        .unwrap_err()
        .message
        .contains("size rows is not set"));
    good.size("rows", 0).unwrap();
    kernel.launch(&good, Stream::DEFAULT).unwrap();
}

#[test]
fn arguments_can_be_checked_and_packed_without_a_launch() {
    let bundle = Bundle::open(bundle()).unwrap();
    let spec = bundle.symbol("softmax_fwd_bf16_n4096_sm90").unwrap();
    let mut call = Call::new(spec);
    call.size("rows", 4).unwrap().size("cols", 4096).unwrap();
    call.tensor("x", 256, 32768).unwrap().tensor("y", 65536, 32768).unwrap();
    let mut values = [0u64; MOST_PARAMETERS];
    assert_eq!(call.pack(&mut values).unwrap(), Some([4, 1, 1]));
    // x, y, rows, cols, strides of x and y, and two addresses of scratch that there is none of
    assert_eq!(values[..10], [256, 65536, 4, 4096, 4096, 0, 4096, 0, 0, 0]);
    call.size("rows", 0).unwrap();
    assert_eq!(call.pack(&mut values).unwrap(), None);
    call.size("rows", i64::MAX).unwrap();
    assert_eq!(call.pack(&mut values).unwrap_err().kind, Kind::BadArgument);
}

#[test]
fn padded_rows_are_launched_by_their_stride() {
    let bundle = Bundle::open(bundle()).unwrap();
    let gpu = Gpu::open_with(&driver(), 0).unwrap();
    let kernel = bundle
        .load(&gpu, bundle.symbol("softmax_fwd_bf16_n4096_sm90").unwrap(), Source::Best)
        .unwrap();
    // bfloat16 ones, then padding of NaN: each row's softmax is 1 / 4096
    let mut data = Vec::new();
    for _ in 0..2 {
        data.extend([0x80u8, 0x3f].repeat(4096));
        data.extend([0xffu8; 64]);
    }
    let (x, y) = (gpu.upload(&data).unwrap(), gpu.alloc(2 * 8192).unwrap());
    let mut call = kernel.call();
    call.size("rows", 2)
        .unwrap()
        .size("cols", 4096)
        .unwrap()
        .buffer("x", &x)
        .unwrap()
        .buffer("y", &y)
        .unwrap();
    call.stride("stride_xo", 4096 + 32).unwrap();
    kernel.launch(&call, Stream::DEFAULT).unwrap();
    assert_eq!(y.download().unwrap(), [0x80u8, 0x39].repeat(8192));
}
