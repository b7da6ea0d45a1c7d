//! Arrays, mipmapped arrays, textures and surfaces, and copies between them and the host.

use std::sync::Arc;

use ur::abi::*;
use ur::object::Result;
use ur::stream::{Pitched, Work};

use super::fake_driver::{FakeDriver, alone, ur};
use super::test_context::TestContext;
use crate::adapter::roots;
use crate::cu::sys::*;
use crate::exec::{BoxEnd, Boxes, Gpu, Native, enqueue};
use crate::image::{Array, Mipmap, Resource, Shape, Surface, Texel, Texture};

const RGBA8: ur_image_format_t = ur_image_format_t {
    channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
    channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
};

fn desc(kind: ur_mem_type_t) -> ur_image_desc_t {
    ur_image_desc_t {
        r#type: kind,
        width: 8,
        height: 8,
        depth: 4,
        arraySize: 6,
        ..Default::default()
    }
}

fn texture() -> CUDA_TEXTURE_DESC {
    CUDA_TEXTURE_DESC {
        addressMode: [CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP; 3],
        filterMode: CUfilter_mode::CU_TR_FILTER_MODE_POINT,
        flags: 0,
        maxAnisotropy: 0,
        mipmapFilterMode: CUfilter_mode::CU_TR_FILTER_MODE_POINT,
        mipmapLevelBias: 0.0,
        minMipmapLevelClamp: 0.0,
        maxMipmapLevelClamp: 0.0,
        borderColor: [0.0; 4],
        reserved: [0; 12],
    }
}

fn gpu() -> Result<Arc<Gpu>> {
    roots().expect("an adapter").platform.devices()[0].gpu()
}

/// Bytes of the box that is copied in and out.
const REGION: [usize; 3] = [12, 3, 2];

/// Uses each function of the driver once. Returns what came back.
fn use_all() -> Result<Vec<u8>> {
    let gpu = gpu()?;
    let texel = Texel::of(&RGBA8)?;
    let shape = Shape::of(&desc(UR_MEM_TYPE_IMAGE3D))?;
    let array = Arc::new(Array::create(&gpu, &shape, texel, Surface::ARRAY_FLAGS)?);
    let what = array.description()?;
    assert_eq!((what.Width, what.Height, what.Depth), (8, 8, 4));
    assert_eq!((what.NumChannels, what.Flags), (4, 2));
    let surface = Surface::create(&array)?;
    let read = Texture::create(&gpu, Resource::Array(&array), &texture(), None)?;
    assert_ne!(surface.raw(), read.raw());
    let flat = Shape::of(&desc(UR_MEM_TYPE_IMAGE2D))?;
    let mipmap = Arc::new(Mipmap::create(&gpu, &flat, texel, 0, 3)?);
    let level = mipmap.level(2)?;
    assert_eq!(level.description()?.Width, 2);
    let whole = Texture::create(&gpu, Resource::Mipmap(&mipmap), &texture(), None)?;
    drop(whole);
    let from: Vec<u8> = (0..72).collect();
    let mut to = vec![0_u8; 72];
    let at = |addr: usize| {
        BoxEnd::Memory(Pitched {
            addr,
            row_pitch: 12,
            slice_pitch: 36,
        })
    };
    let place = BoxEnd::Array {
        raw: array.raw(),
        origin: [4, 2, 1],
    };
    gpu.at_once(|stream| {
        let keeps = || vec![Arc::clone(&array) as _];
        let (source, target) = (
            from.as_ptr().expose_provenance(),
            to.as_mut_ptr().expose_provenance(),
        );
        for (dst, src) in [(place, at(source)), (at(target), place)] {
            let boxes = Arc::new(Boxes::new(dst, src, REGION, keeps()));
            enqueue(&gpu, stream, Work::Native(Native::Boxes(boxes)))?;
        }
        Ok(())
    })?;
    drop((surface, read));
    Ok(to)
}

#[test]
fn each_call_may_fail() {
    alone("tests::arrays::each_call_may_fail", || {
        let driver = FakeDriver::open();
        let play = || {
            let test_context = TestContext::new(4);
            let done = use_all();
            test_context.release();
            done
        };
        driver.reset();
        let want: Vec<u8> = (0..72).collect();
        assert_eq!(play().expect("no call fails"), want);
        driver.check_end("without a failure");
        let calls = [
            "cuArray3DCreate",
            "cuArray3DGetDescriptor",
            "cuMipmappedArrayCreate",
            "cuMipmappedArrayGetLevel",
            "cuTexObjectCreate",
            "cuSurfObjectCreate",
            "cuMemcpy3DAsync",
        ];
        for call in calls {
            for nth in 1..=2 {
                driver.reset();
                let test_context = TestContext::new(4);
                driver.fail_nth(call, nth, 2);
                let done = use_all();
                let met = driver.query().met;
                driver.reset();
                test_context.end(&driver);
                let code = done.map(drop).map_err(ur::object::Error::code);
                let want = match met {
                    true => Err(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY),
                    false => Ok(()),
                };
                assert_eq!(code, want, "{call} {nth}");
                assert!(met || nth == 2, "{call}");
            }
        }
    });
}

/// Wrong sizes and boxes are the driver's to refuse.
#[test]
fn what_the_driver_refuses_is_an_error() {
    alone("tests::arrays::what_the_driver_refuses_is_an_error", || {
        let driver = FakeDriver::open();
        let test_context = TestContext::new(4);
        let queue = test_context.queue(ur_queue_flags_t(0));
        let gpu = gpu().expect("a device");
        let texel = Texel::of(&RGBA8).expect("a format");
        let shape = Shape::of(&desc(UR_MEM_TYPE_IMAGE2D)).expect("a shape");
        let large = Shape {
            height: 1 << 20,
            ..shape
        };
        let code = |done: Result<Array>| done.map(drop).map_err(ur::object::Error::code);
        let refused = Err(UR_RESULT_ERROR_INVALID_IMAGE_SIZE);
        assert_eq!(code(Array::create(&gpu, &large, texel, 0)), refused);
        let plain = Array::create(&gpu, &shape, texel, 0).expect("an array");
        let surface = Surface::create(&plain).map(drop);
        let invalid = Err(UR_RESULT_ERROR_INVALID_VALUE);
        assert_eq!(surface.map_err(ur::object::Error::code), invalid);
        let raw = plain.raw();
        let place = BoxEnd::Array {
            raw,
            origin: [8, 7, 0],
        };
        let bytes = [0_u8; 64];
        let memory = BoxEnd::Memory(Pitched {
            addr: bytes.as_ptr().expose_provenance(),
            row_pitch: 32,
            slice_pitch: 32,
        });
        let whole = Arc::new(plain);
        for (region, accepted) in [([24, 1, 1], true), ([28, 1, 1], false), ([24, 2, 1], false)] {
            let boxes = Boxes::new(place, memory, region, vec![Arc::clone(&whole) as _]);
            let done = gpu.at_once(|stream| boxes.enqueue(&gpu, stream));
            assert_eq!(done.is_ok(), accepted, "{region:?}");
        }
        drop(whole);
        assert_eq!(ur!(Queue.pfnRelease(queue)), UR_RESULT_SUCCESS);
        drop(gpu);
        test_context.end(&driver);
    });
}
