//! Mipmaps and their levels. [`with_mipmaps`] belongs to the workload, so that each call of it fails once.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use scripted_level_zero::scripted_external_memory;
use ur::abi::*;

use super::bindless::{
    BETWEEN, INTO, INVALID_VALUE, NONE, ON_DEVICE, OPAQUE, OUT_OF, RGBA8, destroy, fill, has,
    import, nearest, number, owned,
};
use super::fake_driver::{FakeDriver, adapter, alone, devices, ur};
use super::faults::MEMORY;
use super::reported::{release as release_all, task};
use super::workload::{Null, Place, Steps, enqueue, make, read, release, step, wait};

const UNSUPPORTED: ur_result_t = UR_RESULT_ERROR_UNSUPPORTED_FEATURE;
const LEVELS: u32 = 4;

fn desc(kind: ur_mem_type_t, [width, height, third]: [usize; 3], levels: u32) -> ur_image_desc_t {
    let is_layered = [UR_MEM_TYPE_IMAGE1D_ARRAY, UR_MEM_TYPE_IMAGE2D_ARRAY].contains(&kind);
    ur_image_desc_t {
        r#type: kind,
        width,
        height,
        depth: if is_layered { 0 } else { third },
        arraySize: if is_layered { third } else { 0 },
        numMipLevel: levels,
        ..Default::default()
    }
}

fn flat(width: usize, height: usize, levels: u32) -> ur_image_desc_t {
    desc(UR_MEM_TYPE_IMAGE2D, [width, height, 0], levels)
}

/// Each kind with the sizes of its levels.
#[rustfmt::skip]
const KINDS: [(ur_mem_type_t, [[usize; 3]; LEVELS as usize]); 5] = [
    (UR_MEM_TYPE_IMAGE1D, [[11, 0, 0], [5, 0, 0], [2, 0, 0], [1, 0, 0]]),
    (UR_MEM_TYPE_IMAGE2D, [[11, 3, 0], [5, 1, 0], [2, 1, 0], [1, 1, 0]]),
    (UR_MEM_TYPE_IMAGE3D, [[3, 5, 8], [1, 2, 4], [1, 1, 2], [1, 1, 1]]),
    (UR_MEM_TYPE_IMAGE1D_ARRAY, [[11, 0, 3], [5, 0, 3], [2, 0, 3], [1, 0, 3]]),
    (UR_MEM_TYPE_IMAGE2D_ARRAY, [[11, 3, 2], [5, 1, 2], [2, 1, 2], [1, 1, 2]]),
];

/// Bytes of packed pixels.
fn bytes(desc: &ur_image_desc_t) -> usize {
    let third = desc.depth.max(desc.arraySize);
    4 * desc.width * desc.height.max(1) * third.max(1)
}

fn pixels(desc: &ur_image_desc_t, seed: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 7 + seed * 31 + 1) as u8;
    (0..bytes(desc)).map(byte).collect()
}

/// All pixels of an image.
fn whole(desc: &ur_image_desc_t) -> ur_exp_image_copy_region_t {
    let third = desc.depth.max(desc.arraySize);
    ur_exp_image_copy_region_t {
        copyExtent: ur_rect_region_t {
            width: 4 * desc.width as u64,
            height: desc.height.max(1) as u64,
            depth: third.max(1) as u64,
        },
        ..Default::default()
    }
}

/// A level copied to host memory or from there. The event is null if that failed.
fn copy(
    steps: &mut Steps,
    queue: ur_queue_handle_t,
    (src, dst): (*mut c_void, *mut c_void),
    (desc, types): (&ur_image_desc_t, ur_exp_image_copy_input_types_t),
    waits: &[ur_event_handle_t],
) -> ur_event_handle_t {
    let mut part = whole(desc);
    enqueue!(
        steps,
        waits,
        BindlessImagesExp.pfnImageCopyExp(
            queue, src, dst, desc, desc, &RGBA8, &RGBA8, &mut part, ON_DEVICE, types
        )
    )
}

/// A mipmap, and handles and copies of its levels.
pub fn with_mipmaps(steps: &mut Steps, place: &Place) {
    let &Place {
        device,
        context,
        one,
        two,
        ..
    } = place;
    let all = flat(8, 4, 3);
    let mut none = 0;
    let attempt =
        || ur!(BindlessImagesExp.pfnImageAllocateExp(context, device, &RGBA8, &all, &mut none));
    let property = UR_DEVICE_INFO_MIPMAP_LEVEL_REFERENCE_SUPPORT_EXP;
    if !has(steps, place, property, attempt) {
        return;
    }
    let mipmap = make!(
        steps,
        BindlessImagesExp.pfnImageAllocateExp(context, device, &RGBA8, &all)
    );
    if mipmap == 0 {
        return;
    }
    let [large, small] = [0, 2].map(|level| {
        make!(
            steps,
            BindlessImagesExp.pfnMipmapGetLevelExp(context, device, mipmap, level)
        )
    });
    if large != 0 && small != 0 {
        let (desc, how) = (flat(2, 1, 1), nearest());
        let plain = make!(
            steps,
            BindlessImagesExp.pfnUnsampledImageCreateExp(context, device, small, &RGBA8, &desc)
        );
        let sampled = make!(
            steps,
            BindlessImagesExp.pfnSampledImageCreateExp(context, device, small, &RGBA8, &desc, &how)
        );
        let data = pixels(&desc, 3);
        let (from, to) = (fill(28, &data), fill(29, &[0; 128]));
        let ends = (from, number(small));
        let written = copy(steps, one, ends, (&desc, INTO), &[]);
        // The first pixels of the largest level.
        let ends = (number(small), number(large));
        let moved = copy(steps, two, ends, (&desc, BETWEEN), &[written]);
        let ends = (number(large), to);
        let back = copy(steps, one, ends, (&desc, OUT_OF), &[moved]);
        if wait(steps, back) {
            steps.expect("pixels through two levels", || read(to, data.len()) == data);
        }
        release(steps, &[written, moved, back]);
        destroy(steps, (context, device), (plain, sampled));
    }
    for queue in [one, two] {
        // A failed wait leaves copies behind.
        let _ = ur!(Queue.pfnFinish(queue));
    }
    step!(
        steps,
        BindlessImagesExp.pfnMipmapFreeExp(context, device, mipmap)
    );
}

/// A context of two devices with a queue on the first.
struct Own {
    driver: FakeDriver,
    adapter: ur_adapter_handle_t,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    other: ur_device_handle_t,
    queue: ur_queue_handle_t,
}

impl Own {
    fn new() -> Self {
        let driver = FakeDriver::open();
        let adapter = adapter();
        let both = devices(adapter);
        let (mut context, mut queue) = (null_mut(), null_mut());
        let made = ur!(Context.pfnCreate(2, both.as_ptr(), null(), &mut context));
        assert_eq!(made, NONE);
        let made = ur!(Queue.pfnCreate(context, both[0], null(), &mut queue));
        assert_eq!(made, NONE);
        Self {
            driver,
            adapter,
            context,
            device: both[0],
            other: both[1],
            queue,
        }
    }

    fn allocate(&self, desc: &ur_image_desc_t) -> Result<usize, ur_result_t> {
        let (context, device, mut made) = (self.context, self.device, 0);
        let code =
            ur!(BindlessImagesExp.pfnImageAllocateExp(context, device, &RGBA8, desc, &mut made));
        result(code, made)
    }

    fn level_of(
        &self,
        device: ur_device_handle_t,
        of: usize,
        level: u32,
    ) -> Result<usize, ur_result_t> {
        let (context, mut made) = (self.context, 0);
        let code =
            ur!(BindlessImagesExp.pfnMipmapGetLevelExp(context, device, of, level, &mut made));
        result(code, made)
    }

    fn level(&self, of: usize, level: u32) -> Result<usize, ur_result_t> {
        self.level_of(self.device, of, level)
    }

    fn free(&self, memory: usize) -> ur_result_t {
        ur!(BindlessImagesExp.pfnImageFreeExp(self.context, self.device, memory))
    }

    fn free_mipmap(&self, memory: usize) -> ur_result_t {
        ur!(BindlessImagesExp.pfnMipmapFreeExp(self.context, self.device, memory))
    }

    fn sampled(&self, memory: usize, desc: &ur_image_desc_t) -> Result<u64, ur_result_t> {
        let (context, device, how, mut made) = (self.context, self.device, nearest(), 0);
        let code = ur!(BindlessImagesExp
            .pfnSampledImageCreateExp(context, device, memory, &RGBA8, desc, &how, &mut made));
        result(code, made as u64)
    }

    fn unsampled(&self, memory: usize, desc: &ur_image_desc_t) -> Result<u64, ur_result_t> {
        let (context, device, mut made) = (self.context, self.device, 0);
        let code = ur!(BindlessImagesExp
            .pfnUnsampledImageCreateExp(context, device, memory, &RGBA8, desc, &mut made));
        result(code, made as u64)
    }

    fn info<T: Default>(&self, memory: usize, what: ur_image_info_t) -> T {
        let (mut value, mut size) = (T::default(), 0);
        let to = (&raw mut value).cast();
        let code =
            ur!(BindlessImagesExp.pfnImageGetInfoExp(self.context, memory, what, to, &mut size));
        assert_eq!((code, size), (NONE, size_of::<T>()), "{what:?}");
        value
    }

    /// The result of a copy, which is awaited.
    fn copy(
        &self,
        ends: (*mut c_void, *mut c_void),
        what: (&ur_image_desc_t, ur_exp_image_copy_input_types_t),
    ) -> ur_result_t {
        let mut steps = Steps::default();
        let event = copy(&mut steps, self.queue, ends, what, &[]);
        if wait(&mut steps, event) {
            release(&mut steps, &[event]);
        }
        steps.failed().first().map_or(NONE, |(.., code)| *code)
    }

    fn end(self) {
        assert_eq!(ur!(Queue.pfnRelease(self.queue)), NONE);
        assert_eq!(ur!(Context.pfnRelease(self.context)), NONE);
        assert_eq!(ur!(Adapter.pfnRelease(self.adapter)), NONE);
        self.driver.check_end("mipmaps");
    }
}

fn result<T>(code: ur_result_t, made: T) -> Result<T, ur_result_t> {
    if code == NONE { Ok(made) } else { Err(code) }
}

#[test]
fn levels_are_images_of_their_own() {
    alone("tests::mipmaps::levels_are_images_of_their_own", || {
        let own = Own::new();
        for (kind, sizes) in KINDS {
            let all = desc(kind, sizes[0], LEVELS);
            let mipmap = own.allocate(&all).expect("a mipmap");
            let count: u32 = own.info(mipmap, UR_IMAGE_INFO_NUM_MIP_LEVELS);
            assert_eq!(count, LEVELS);
            let level = |at| own.level(mipmap, at).expect("a level");
            let levels: Vec<usize> = (0..LEVELS).map(level).collect();
            let descs = sizes.map(|sizes| desc(kind, sizes, 1));
            for (at, (memory, desc)) in levels.iter().zip(&descs).enumerate() {
                let found: [usize; 4] = [
                    UR_IMAGE_INFO_WIDTH,
                    UR_IMAGE_INFO_HEIGHT,
                    UR_IMAGE_INFO_DEPTH,
                    UR_IMAGE_INFO_ARRAY_SIZE,
                ]
                .map(|what| own.info(*memory, what));
                let sizes = [desc.width, desc.height, desc.depth, desc.arraySize];
                assert_eq!(found, sizes, "{kind:?}, level {at}");
                let count: u32 = own.info(*memory, UR_IMAGE_INFO_NUM_MIP_LEVELS);
                assert_eq!(count, 0);
                let from = fill(28, &pixels(desc, at));
                assert_eq!(own.copy((from, number(*memory)), (desc, INTO)), NONE);
            }
            for (at, (memory, desc)) in levels.iter().zip(&descs).enumerate() {
                let to = fill(29, &vec![0; bytes(desc)]);
                assert_eq!(own.copy((number(*memory), to), (desc, OUT_OF)), NONE);
                let found = read(to, bytes(desc));
                assert_eq!(found, pixels(desc, at), "{kind:?}, level {at}");
            }
            // Both kinds of handles, which outlive the mipmap.
            let (smallest, last) = (levels[3], &descs[3]);
            let read = own.sampled(smallest, last).expect("a sampled image");
            let written = own.unsampled(smallest, last).expect("an unsampled image");
            assert_eq!(own.free_mipmap(mipmap), NONE);
            let (context, device) = (own.context, own.device);
            let code = ur!(BindlessImagesExp.pfnSampledImageHandleDestroyExp(
                context,
                device,
                read as usize as _
            ));
            assert_eq!(code, NONE);
            let code = ur!(BindlessImagesExp.pfnUnsampledImageHandleDestroyExp(
                context,
                device,
                written as usize as _
            ));
            assert_eq!(code, NONE);
        }
        own.end();
    });
}

#[test]
fn levels_belong_to_their_mipmap() {
    alone("tests::mipmaps::levels_belong_to_their_mipmap", || {
        let own = Own::new();
        let all = flat(8, 4, LEVELS);
        let mipmap = own.allocate(&all).expect("a mipmap");
        let half = own.level(mipmap, 1).expect("a level");
        assert_eq!(own.level(mipmap, 1), Ok(half), "one handle");
        assert_ne!(own.level(mipmap, 2), Ok(half));
        assert_eq!(own.level(mipmap, LEVELS), Err(INVALID_VALUE));
        assert_eq!(own.level(mipmap, u32::MAX), Err(INVALID_VALUE));
        assert_eq!(own.level(half, 0), Err(INVALID_VALUE), "a level");
        let other = own.level_of(own.other, mipmap, 1);
        assert_eq!(other, Err(UR_RESULT_ERROR_INVALID_DEVICE));
        assert_eq!(own.free(mipmap), INVALID_VALUE, "a mipmap");
        assert_eq!(own.free(half), INVALID_VALUE, "a level");
        assert_eq!(own.free_mipmap(half), INVALID_VALUE, "a level");
        let free = ur!(BindlessImagesExp.pfnMipmapFreeExp(own.context, own.other, mipmap));
        assert_eq!(free, UR_RESULT_ERROR_INVALID_DEVICE);
        // A level has its own sizes, and a description's levels say nothing of a handle.
        let small = flat(4, 2, 1);
        let wrong = Err(UR_RESULT_ERROR_INVALID_IMAGE_SIZE);
        assert_eq!(own.sampled(half, &all), wrong);
        assert!(own.sampled(half, &small).is_ok());
        assert!(own.sampled(half, &flat(4, 2, 2)).is_ok());
        assert_eq!(own.free_mipmap(mipmap), NONE);
        assert_eq!(own.free_mipmap(mipmap), INVALID_VALUE, "freed");
        assert_eq!(own.level(mipmap, 1), Err(INVALID_VALUE), "freed");
        assert_eq!(own.sampled(half, &small), Err(INVALID_VALUE), "freed");
        let plain = own.allocate(&flat(8, 4, 1)).expect("an image");
        assert_eq!(own.level(plain, 0), Err(INVALID_VALUE), "no mipmap");
        assert_eq!(own.free_mipmap(plain), INVALID_VALUE, "no mipmap");
        assert_eq!(own.free(plain), NONE);
        // Mipmaps and handles that are left end with the context.
        own.allocate(&all).expect("a mipmap");
        own.end();
    });
}

#[test]
fn a_mipmap_is_no_image_itself() {
    alone("tests::mipmaps::a_mipmap_is_no_image_itself", || {
        let own = Own::new();
        let (all, one) = (flat(8, 4, LEVELS), flat(8, 4, 1));
        let mipmap = own.allocate(&all).expect("a mipmap");
        let plain = own.allocate(&one).expect("an image");
        assert_eq!(own.sampled(mipmap, &all), Err(UNSUPPORTED));
        assert_eq!(own.unsampled(mipmap, &all), Err(INVALID_VALUE));
        let memory = fill(28, &pixels(&one, 0));
        for (ends, types) in [
            ((memory, number(mipmap)), INTO),
            ((number(mipmap), memory), OUT_OF),
            ((number(plain), number(mipmap)), BETWEEN),
            ((number(mipmap), number(plain)), BETWEEN),
        ] {
            assert_eq!(own.copy(ends, (&one, types)), INVALID_VALUE, "{types:?}");
        }
        let (opaque, linear) = (
            UR_EXP_IMAGE_MEM_TYPE_OPAQUE_HANDLE,
            UR_EXP_IMAGE_MEM_TYPE_USM_POINTER,
        );
        let (context, device) = (own.context, own.device);
        for (desc, kind, want) in [
            (&one, opaque, [1, 1, 1]),
            (&all, opaque, [1, 0, 0]),
            (&all, linear, [0, 0, 0]),
            (&flat(8, 4, 5), opaque, [0, 0, 0]),
        ] {
            let mut found = [7; 3];
            let [memory, read, written] = &mut found;
            let codes = [
                ur!(BindlessImagesExp.pfnGetImageMemoryHandleTypeSupportExp(
                    context, device, desc, &RGBA8, kind, memory
                )),
                ur!(BindlessImagesExp
                    .pfnGetImageSampledHandleSupportExp(context, device, desc, &RGBA8, kind, read)),
                ur!(BindlessImagesExp.pfnGetImageUnsampledHandleSupportExp(
                    context, device, desc, &RGBA8, kind, written
                )),
            ];
            assert_eq!(
                (codes, found),
                ([NONE; 3], want),
                "{} levels, {kind:?}",
                desc.numMipLevel
            );
        }
        // Neither linear memory nor an import has levels. Layers are no pixels to halve.
        let mut usm = null_mut();
        let code = ur!(USM.pfnDeviceAlloc(context, device, null(), null_mut(), 4096, &mut usm));
        assert_eq!(code, NONE);
        let rows = ur_image_desc_t {
            rowPitch: 64,
            ..all
        };
        let address = usm.expose_provenance();
        assert_eq!(own.sampled(address, &rows), Err(INVALID_VALUE));
        assert_eq!(ur!(USM.pfnFree(context, usm)), NONE);
        let file = owned(scripted_external_memory(4096));
        let (code, import) = import((context, device), file, 4096, OPAQUE);
        assert_eq!(code, NONE);
        for (levels, want) in [(1, NONE), (LEVELS, UNSUPPORTED), (5, INVALID_VALUE)] {
            let (desc, mut image) = (flat(8, 4, levels), 0);
            let code = ur!(BindlessImagesExp
                .pfnMapExternalArrayExp(context, device, &RGBA8, &desc, import, &mut image));
            assert_eq!(code, want, "{levels} levels of an import");
            if code == NONE {
                assert_eq!(own.level(image, 0), Err(INVALID_VALUE));
                assert_eq!(own.free(image), NONE);
            }
        }
        let code = ur!(BindlessImagesExp.pfnReleaseExternalMemoryExp(context, device, import));
        assert_eq!(code, NONE);
        let lines = |levels| own.allocate(&desc(UR_MEM_TYPE_IMAGE1D_ARRAY, [2, 0, 64], levels));
        assert!(lines(2).is_ok());
        assert_eq!(lines(3), Err(INVALID_VALUE));
        own.end();
    });
}

/// Programs learn that levels work as images, and that no kernel samples between them.
#[test]
fn properties_promise_levels_alone() {
    alone("tests::mipmaps::properties_promise_levels_alone", || {
        let own = Own::new();
        for (what, want) in [
            (UR_DEVICE_INFO_MIPMAP_SUPPORT_EXP, 0),
            (UR_DEVICE_INFO_MIPMAP_ANISOTROPY_SUPPORT_EXP, 0),
            (UR_DEVICE_INFO_MIPMAP_LEVEL_REFERENCE_SUPPORT_EXP, 1),
        ] {
            let (mut found, size): (ur_bool_t, _) = (7, size_of::<ur_bool_t>());
            let to = (&raw mut found).cast();
            let code = ur!(Device.pfnGetInfo(own.device, what, size, to, null_mut()));
            assert_eq!((code, found), (NONE, want), "{what:?}");
        }
        own.end();
    });
}

/// All levels are made, or none stays.
#[test]
fn a_level_that_fails_leaves_none() {
    alone("tests::mipmaps::a_level_that_fails_leaves_none", || {
        let own = Own::new();
        let all = flat(8, 4, LEVELS);
        let before = own.driver.query().live;
        let (native, code) = MEMORY;
        for name in ["zeImageCreate", "zeContextMakeImageResident"] {
            for nth in 1..=u64::from(LEVELS) {
                own.driver.fail_nth(name, nth, native);
                assert_eq!(own.allocate(&all), Err(code), "call {nth} of {name}");
                let seen = own.driver.query();
                assert!(seen.met, "call {nth} of {name} did not come");
                assert_eq!(seen.live, before, "call {nth} of {name}");
            }
        }
        own.driver.reset();
        let mipmap = own.allocate(&all).expect("a mipmap");
        assert_eq!(own.driver.query().live, before + LEVELS as usize);
        assert_eq!(own.free_mipmap(mipmap), NONE);
        assert_eq!(own.driver.query().live, before);
        own.end();
    });
}

/// A copy that still waits keeps its level, and no more.
#[test]
fn a_freed_mipmap_serves_what_was_enqueued() {
    let name = "tests::mipmaps::a_freed_mipmap_serves_what_was_enqueued";
    alone(name, || {
        let own = Own::new();
        let (all, small) = (flat(8, 4, LEVELS), flat(4, 2, 1));
        let mut host = null_mut();
        let made = ur!(Queue.pfnCreate(own.context, own.other, null(), &mut host));
        assert_eq!(made, NONE);
        let mipmap = own.allocate(&all).expect("a mipmap");
        let half = own.level(mipmap, 1).expect("a level");
        let data = pixels(&small, 5);
        let (from, to) = (fill(28, &data), fill(29, &vec![0; data.len()]));
        let mut steps = Steps::default();
        let gate = task(host, 100);
        let ends = (from, number(half));
        let written = copy(&mut steps, own.queue, ends, (&small, INTO), &[gate]);
        let ends = (number(half), to);
        let back = copy(&mut steps, own.queue, ends, (&small, OUT_OF), &[written]);
        assert_eq!(own.free_mipmap(mipmap), NONE);
        assert!(wait(&mut steps, back));
        assert_eq!(read(to, data.len()), data);
        assert_eq!(steps.failed(), []);
        release_all(&[gate, written, back]);
        assert_eq!(ur!(Queue.pfnFinish(own.queue)), NONE);
        assert_eq!(ur!(Queue.pfnRelease(host)), NONE);
        own.end();
    });
}
