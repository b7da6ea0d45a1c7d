//! Kernels for OpenCL, as SPIR-V assembled here instruction by instruction.
//!
//! A device that does not take SPIR-V gets OpenCL C, through a program made by OpenCL itself.

use super::{ALL, IOTA_SPECIAL, KernelProvider, PAINT, SAMPLE, Source, TEXELS};
use rspirv::binary::Assemble as _;
use rspirv::dr::{Builder, Operand};
use rspirv::spirv::*;
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;
use ur::abi::ur_native_handle_t;

pub struct OpenCl;

impl KernelProvider for OpenCl {
    fn source(&self, accepts_il: bool) -> Source {
        if !accepts_il {
            return Source::Native { make: from_c };
        }
        let words = words();
        Source::Il {
            data: words.as_ptr().cast(),
            size: size_of_val(words),
        }
    }

    fn broken(&self) -> Option<Source> {
        let make = |context| from_text(context, c"kernel void broken(global nothing *out) {");
        Some(Source::Native { make })
    }
}

/// The kernels as SPIR-V.
pub fn words() -> &'static [u32] {
    static WORDS: OnceLock<Vec<u32>> = OnceLock::new();
    WORDS.get_or_init(|| Module::new().assemble())
}

/// The kernels that use images, as SPIR-V.
pub fn image_words() -> &'static [u32] {
    static WORDS: OnceLock<Vec<u32>> = OnceLock::new();
    WORDS.get_or_init(|| Module::new().assemble_images())
}

/// The name of the variable of [`variable`].
pub const VARIABLE: &CStr = c"ur_variable";

/// A module with a kernel, and with a variable of sixteen bytes.
pub fn variable() -> Vec<u32> {
    Module::new().with_variable()
}

/// The name of the function of [`halves`].
const FAR: &str = "seven_more";

/// Two modules: a kernel that calls a function, and the function, which adds seven.
pub fn halves() -> &'static [Vec<u32>; 2] {
    static HALVES: OnceLock<[Vec<u32>; 2]> = OnceLock::new();
    HALVES.get_or_init(|| [Module::new().importing(), Module::new().exporting()])
}

ur::dl::symbols! {
    /// Makes a program from OpenCL C.
    struct Library {
        required {
            clCreateProgramWithSource: unsafe extern "C" fn(
                context: usize,
                count: u32,
                texts: *const *const c_char,
                lengths: *const usize,
                code: *mut i32,
            ) -> usize,
        }
        optional {}
    }
}

fn from_c(context: ur_native_handle_t) -> Result<ur_native_handle_t, String> {
    from_text(context, C)
}

/// A program in an OpenCL context, with one reference for the caller.
fn from_text(context: ur_native_handle_t, text: &CStr) -> Result<ur_native_handle_t, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let load = || Library::load(&["libOpenCL.so.1"]).map_err(|error| error.to_string());
    let library = LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)?;
    let (text, mut code) = (text.as_ptr(), 0);
    // SAFETY: a live context of OpenCL and one C string.
    let program = unsafe {
        (library.clCreateProgramWithSource)(context, 1, &text, std::ptr::null(), &mut code)
    };
    match code {
        0 => Ok(program),
        code => Err(format!("clCreateProgramWithSource failed with {code}")),
    }
}

const C: &CStr = c"
size_t position(void) {
    size_t x = get_global_id(0) - get_global_offset(0);
    size_t y = get_global_id(1) - get_global_offset(1);
    size_t z = get_global_id(2) - get_global_offset(2);
    return (z * get_global_size(1) + y) * get_global_size(0) + x;
}
kernel void iota(global uint *out, uint base) {
    out[position()] = base + (uint)position();
}
kernel void add(global uint *data, uint amount) {
    data[position()] += amount;
}
kernel void sum(global uint *out, global const uint *a, global const uint *b) {
    out[position()] = a[position()] + b[position()];
}
kernel void verify(global const uint *data, uint base, global uint *wrong) {
    if (data[position()] != base + (uint)position()) atomic_inc(wrong);
}
kernel void ids(global uint *out) {
    out += position() * 21;
    for (uint d = 0; d < 3; ++d) {
        out[d] = get_global_id(d);
        out[3 + d] = get_local_id(d);
        out[6 + d] = get_group_id(d);
        out[9 + d] = get_global_size(d);
        out[12 + d] = get_local_size(d);
        out[15 + d] = get_num_groups(d);
        out[18 + d] = get_global_offset(d);
    }
}
kernel void through_local(global uint *out, local volatile uint *scratch) {
    scratch[get_local_id(0)] = get_local_id(0);
    out[position()] = scratch[get_local_id(0)];
}
typedef struct { uchar a; ulong b; ushort c; } triple;
kernel void mixed(global ulong *out, uchar a, ushort b, uint c, ulong d, triple e) {
    out[position()] = a + b + c + d + e.a + e.b + e.c;
}
kernel void reach(global const ulong *addresses, uint amount) {
    *(global uint *)addresses[position()] += amount;
}
";

/// Built-in vectors of three 64-bit numbers, in the order of the fields of `Ids`.
const BUILT_INS: [BuiltIn; 7] = [
    BuiltIn::GlobalInvocationId,
    BuiltIn::LocalInvocationId,
    BuiltIn::WorkgroupId,
    BuiltIn::GlobalSize,
    BuiltIn::WorkgroupSize,
    BuiltIn::NumWorkgroups,
    BuiltIn::GlobalOffset,
];
const GLOBAL_ID: usize = 0;
const LOCAL_ID: usize = 1;
const RANGE: usize = 3;
const OFFSET: usize = 6;

/// An id of the module.
type Id = Word;

struct Module {
    to: Builder,
    void: Id,
    bool: Id,
    u8: Id,
    u16: Id,
    u32: Id,
    u64: Id,
    vector: Id,
    built_ins: Vec<Id>,
}

impl Module {
    fn new() -> Self {
        let mut to = Builder::new();
        to.set_version(1, 2);
        for capability in [
            Capability::Kernel,
            Capability::Addresses,
            Capability::Int64,
            Capability::Int16,
            Capability::Int8,
        ] {
            to.capability(capability);
        }
        to.memory_model(AddressingModel::Physical64, MemoryModel::OpenCL);
        let [u8, u16, u32, u64] = [8, 16, 32, 64].map(|bits| to.type_int(bits, 0));
        let (void, bool) = (to.type_void(), to.type_bool());
        let vector = to.type_vector(u64, 3);
        let input = to.type_pointer(None, StorageClass::Input, vector);
        let built_ins = BUILT_INS
            .iter()
            .map(|built_in| {
                let variable = to.variable(input, None, StorageClass::Input, None);
                let which = [Operand::BuiltIn(*built_in)];
                to.decorate(variable, Decoration::BuiltIn, which);
                to.decorate(variable, Decoration::Constant, []);
                variable
            })
            .collect();
        Self {
            to,
            void,
            bool,
            u8,
            u16,
            u32,
            u64,
            vector,
            built_ins,
        }
    }

    fn assemble(mut self) -> Vec<u32> {
        self.iota();
        self.add();
        self.sum();
        self.verify();
        self.ids();
        self.through_local();
        self.mixed();
        self.reach();
        self.to.module().assemble()
    }

    fn assemble_images(mut self) -> Vec<u32> {
        // Drivers for kernels refuse `Image1D`, which adds nothing to `Sampled1D` for them.
        self.to.capability(Capability::ImageBasic);
        self.to.capability(Capability::Sampled1D);
        self.texels();
        self.paint();
        self.sample();
        self.to.module().assemble()
    }

    /// Begins the function that one module brings to the other.
    fn far(&mut self, linkage: LinkageType) -> [Id; 2] {
        self.to.capability(Capability::Linkage);
        let kind = self.to.type_function(self.u32, [self.u32]);
        let function = self
            .to
            .begin_function(self.u32, None, FunctionControl::NONE, kind);
        let function = made(function);
        let how = [
            Operand::LiteralString(FAR.to_owned()),
            Operand::LinkageType(linkage),
        ];
        self.to
            .decorate(function, Decoration::LinkageAttributes, how);
        let argument = made(self.to.function_parameter(self.u32));
        [function, argument]
    }

    fn with_variable(mut self) -> Vec<u32> {
        self.to.capability(Capability::Linkage);
        let four = self.to.constant_bit32(self.u32, 4);
        let array = self.to.type_array(self.u32, four);
        let class = StorageClass::CrossWorkgroup;
        let (kind, zeros) = (self.pointer(class, array), self.to.constant_null(array));
        let variable = self.to.variable(kind, None, class, Some(zeros));
        let how = [
            Operand::LiteralString(VARIABLE.to_string_lossy().into_owned()),
            Operand::LinkageType(LinkageType::Export),
        ];
        self.to
            .decorate(variable, Decoration::LinkageAttributes, how);
        self.iota();
        self.to.module().assemble()
    }

    fn importing(mut self) -> Vec<u32> {
        let [far, _] = self.far(LinkageType::Import);
        made(self.to.end_function());
        let global = self.global();
        let args = self.begin(0, &[global, self.u32]);
        let at = self.position();
        let low = self.narrow(at);
        let value = made(self.to.i_add(self.u32, None, args[1], low));
        let value = made(self.to.function_call(self.u32, None, far, [value]));
        let to = self.element(global, args[0], at);
        self.store(to, value, 4);
        self.end();
        self.to.module().assemble()
    }

    fn exporting(mut self) -> Vec<u32> {
        let seven = self.to.constant_bit32(self.u32, 7);
        let [_, argument] = self.far(LinkageType::Export);
        made(self.to.begin_block(None));
        let value = made(self.to.i_add(self.u32, None, argument, seven));
        made(self.to.ret_value(value));
        made(self.to.end_function());
        self.to.module().assemble()
    }

    fn pointer(&mut self, class: StorageClass, to: Id) -> Id {
        self.to.type_pointer(None, class, to)
    }

    fn global(&mut self) -> Id {
        let of = self.u32;
        self.pointer(StorageClass::CrossWorkgroup, of)
    }

    /// Begins a kernel with these parameters.
    fn begin(&mut self, index: usize, parameters: &[Id]) -> Vec<Id> {
        self.begin_named(ALL[index], parameters)
    }

    fn begin_named(&mut self, name: &CStr, parameters: &[Id]) -> Vec<Id> {
        let kind = self.to.type_function(self.void, parameters.to_vec());
        let function = made(
            self.to
                .begin_function(self.void, None, FunctionControl::NONE, kind),
        );
        let name = name.to_string_lossy();
        let uses = self.built_ins.clone();
        self.to
            .entry_point(ExecutionModel::Kernel, function, name, uses);
        let ids = parameters
            .iter()
            .map(|kind| made(self.to.function_parameter(*kind)))
            .collect();
        made(self.to.begin_block(None));
        ids
    }

    fn end(&mut self) {
        made(self.to.ret());
        made(self.to.end_function());
    }

    /// One dimension of a built-in, 64 bits wide.
    fn built_in(&mut self, which: usize, dimension: u32) -> Id {
        let (variable, vector) = (self.built_ins[which], self.vector);
        let all = made(self.to.load(vector, None, variable, None, []));
        made(self.to.composite_extract(self.u64, None, all, [dimension]))
    }

    /// The linear position of the work-item, without its offset.
    fn position(&mut self) -> Id {
        let [x, y, z] = [0, 1, 2].map(|dimension| {
            let id = self.built_in(GLOBAL_ID, dimension);
            let offset = self.built_in(OFFSET, dimension);
            made(self.to.i_sub(self.u64, None, id, offset))
        });
        let (width, height) = (self.built_in(RANGE, 0), self.built_in(RANGE, 1));
        let rows = made(self.to.i_mul(self.u64, None, z, height));
        let row = made(self.to.i_add(self.u64, None, rows, y));
        let start = made(self.to.i_mul(self.u64, None, row, width));
        made(self.to.i_add(self.u64, None, start, x))
    }

    /// The address of an element.
    fn element(&mut self, kind: Id, base: Id, at: Id) -> Id {
        made(self.to.in_bounds_ptr_access_chain(kind, None, base, at, []))
    }

    fn load(&mut self, kind: Id, from: Id, bytes: u32) -> Id {
        let aligned = Some(MemoryAccess::ALIGNED);
        let by = [Operand::LiteralBit32(bytes)];
        made(self.to.load(kind, None, from, aligned, by))
    }

    fn store(&mut self, to: Id, value: Id, bytes: u32) {
        let aligned = Some(MemoryAccess::ALIGNED);
        let by = [Operand::LiteralBit32(bytes)];
        made(self.to.store(to, value, aligned, by));
    }

    fn narrow(&mut self, wide: Id) -> Id {
        made(self.to.u_convert(self.u32, None, wide))
    }

    fn iota(&mut self) {
        let global = self.global();
        let args = self.begin(0, &[global, self.u32]);
        let at = self.position();
        let low = self.narrow(at);
        let value = made(self.to.i_add(self.u32, None, args[1], low));
        let special = self.to.spec_constant_bit32(self.u32, 0);
        let id = [Operand::LiteralBit32(IOTA_SPECIAL)];
        self.to.decorate(special, Decoration::SpecId, id);
        let value = made(self.to.i_add(self.u32, None, value, special));
        let to = self.element(global, args[0], at);
        self.store(to, value, 4);
        self.end();
    }

    fn add(&mut self) {
        let global = self.global();
        let args = self.begin(1, &[global, self.u32]);
        let at = self.position();
        let element_address = self.element(global, args[0], at);
        let previous = self.load(self.u32, element_address, 4);
        let new = made(self.to.i_add(self.u32, None, previous, args[1]));
        self.store(element_address, new, 4);
        self.end();
    }

    fn sum(&mut self) {
        let global = self.global();
        let args = self.begin(2, &[global; 3]);
        let at = self.position();
        let [a, b] = [args[1], args[2]].map(|base| {
            let element_address = self.element(global, base, at);
            self.load(self.u32, element_address, 4)
        });
        let total = made(self.to.i_add(self.u32, None, a, b));
        let to = self.element(global, args[0], at);
        self.store(to, total, 4);
        self.end();
    }

    fn verify(&mut self) {
        let global = self.global();
        // `Device` scope and relaxed order.
        let scope = self.to.constant_bit32(self.u32, 1);
        let order = self.to.constant_bit32(self.u32, 0);
        let args = self.begin(3, &[global, self.u32, global]);
        let at = self.position();
        let low = self.narrow(at);
        let wanted = made(self.to.i_add(self.u32, None, args[1], low));
        let element_address = self.element(global, args[0], at);
        let found = self.load(self.u32, element_address, 4);
        let differs = made(self.to.i_not_equal(self.bool, None, wanted, found));
        let (wrong, done) = (self.to.id(), self.to.id());
        made(self.to.branch_conditional(differs, wrong, done, []));
        made(self.to.begin_block(Some(wrong)));
        made(
            self.to
                .atomic_i_increment(self.u32, None, args[2], scope, order),
        );
        made(self.to.branch(done));
        made(self.to.begin_block(Some(done)));
        self.end();
    }

    fn ids(&mut self) {
        let global = self.global();
        let fields = 3 * BUILT_INS.len() as u64;
        let size = self.to.constant_bit64(self.u64, fields);
        let places: Vec<Id> = (0..fields)
            .map(|element_address| self.to.constant_bit64(self.u64, element_address))
            .collect();
        let args = self.begin(4, &[global]);
        let at = self.position();
        let first = made(self.to.i_mul(self.u64, None, at, size));
        for (element_address, number) in places.into_iter().enumerate() {
            let wide = self.built_in(element_address / 3, element_address as u32 % 3);
            let value = self.narrow(wide);
            let index = made(self.to.i_add(self.u64, None, first, number));
            let to = self.element(global, args[0], index);
            self.store(to, value, 4);
        }
        self.end();
    }

    fn through_local(&mut self) {
        let global = self.global();
        let scratch = self.pointer(StorageClass::Workgroup, self.u32);
        let args = self.begin(5, &[global, scratch]);
        let local = self.built_in(LOCAL_ID, 0);
        let low = self.narrow(local);
        let element_address = self.element(scratch, args[1], local);
        let volatile = Some(MemoryAccess::VOLATILE);
        made(self.to.store(element_address, low, volatile, []));
        let back = made(self.to.load(self.u32, None, element_address, volatile, []));
        let at = self.position();
        let to = self.element(global, args[0], at);
        self.store(to, back, 4);
        self.end();
    }

    fn mixed(&mut self) {
        let global = self.pointer(StorageClass::CrossWorkgroup, self.u64);
        let triple = self.to.type_struct([self.u8, self.u64, self.u16]);
        let by_value = self.pointer(StorageClass::Function, triple);
        let kinds = [self.u8, self.u64, self.u16];
        let fields = kinds.map(|kind| self.pointer(StorageClass::Function, kind));
        let indices = [0, 1, 2].map(|index| self.to.constant_bit32(self.u32, index));
        let parameters = [global, self.u8, self.u16, self.u32, self.u64, by_value];
        let args = self.begin(6, &parameters);
        let attribute = FunctionParameterAttribute::ByVal;
        self.to.decorate(
            args[5],
            Decoration::FuncParamAttr,
            [Operand::FunctionParameterAttribute(attribute)],
        );
        let mut values = vec![args[4]];
        for narrow in &args[1..4] {
            values.push(made(self.to.u_convert(self.u64, None, *narrow)));
        }
        for at in 0..3 {
            let element_address =
                made(
                    self.to
                        .in_bounds_access_chain(fields[at], None, args[5], [indices[at]]),
                );
            let value = self.load(kinds[at], element_address, [1, 8, 2][at]);
            values.push(match kinds[at] == self.u64 {
                true => value,
                false => made(self.to.u_convert(self.u64, None, value)),
            });
        }
        let mut total = values[0];
        for value in &values[1..] {
            total = made(self.to.i_add(self.u64, None, total, *value));
        }
        let at = self.position();
        let to = self.element(global, args[0], at);
        self.store(to, total, 8);
        self.end();
    }

    fn reach(&mut self) {
        let global = self.global();
        let wide = self.u64;
        let addresses = self.pointer(StorageClass::CrossWorkgroup, wide);
        let args = self.begin(7, &[addresses, self.u32]);
        let at = self.position();
        let from = self.element(addresses, args[0], at);
        let address = self.load(wide, from, 8);
        let word = made(self.to.convert_u_to_ptr(global, None, address));
        let previous = self.load(self.u32, word, 4);
        let new = made(self.to.i_add(self.u32, None, previous, args[1]));
        self.store(word, new, 4);
        self.end();
    }
}

impl Module {
    fn image(&mut self, access: AccessQualifier) -> Id {
        let (any, format) = (self.void, ImageFormat::Unknown);
        self.to
            .type_image(any, Dim::Dim1D, 0, 0, 0, 0, format, Some(access))
    }

    /// The pixel of four words that a work-item's word is in: its number as 32 bits.
    fn pixel(&mut self, at: Id) -> Id {
        let four = self.to.constant_bit64(self.u64, 4);
        let pixel = made(self.to.u_div(self.u64, None, at, four));
        self.narrow(pixel)
    }

    fn texels(&mut self) {
        let global = self.global();
        let image = self.image(AccessQualifier::ReadOnly);
        let four = self.to.constant_bit64(self.u64, 4);
        let words = self.to.type_vector(self.u32, 4);
        let args = self.begin_named(TEXELS, &[global, image]);
        let at = self.position();
        let pixel = self.pixel(at);
        let all = made(self.to.image_read(words, None, args[1], pixel, None, []));
        let channel = made(self.to.u_mod(self.u64, None, at, four));
        let word = made(self.to.vector_extract_dynamic(self.u32, None, all, channel));
        let to = self.element(global, args[0], at);
        self.store(to, word, 4);
        self.end();
    }

    /// The work-items of a pixel all write it, with the same words.
    fn paint(&mut self) {
        let image = self.image(AccessQualifier::WriteOnly);
        let words = self.to.type_vector(self.u32, 4);
        let four = self.to.constant_bit32(self.u32, 4);
        let channels = [0, 1, 2, 3].map(|channel| self.to.constant_bit32(self.u32, channel));
        let args = self.begin_named(PAINT, &[image, self.u32]);
        let at = self.position();
        let pixel = self.pixel(at);
        let first = made(self.to.i_mul(self.u32, None, pixel, four));
        let first = made(self.to.i_add(self.u32, None, first, args[1]));
        let each = channels.map(|channel| made(self.to.i_add(self.u32, None, first, channel)));
        let all = made(self.to.composite_construct(words, None, each));
        made(self.to.image_write(args[0], pixel, all, None, []));
        self.end();
    }

    fn sample(&mut self) {
        let global = self.global();
        let image = self.image(AccessQualifier::ReadOnly);
        let sampler = self.to.type_sampler();
        let both = self.to.type_sampled_image(image);
        let words = self.to.type_vector(self.u32, 4);
        let float = self.to.type_float(32, None);
        let [middle, no_level] =
            [0.5_f32, 0.0].map(|value| self.to.constant_bit32(float, value.to_bits()));
        let args = self.begin_named(SAMPLE, &[global, image, sampler, self.u32]);
        let at = self.position();
        let low = self.narrow(at);
        let place = made(self.to.i_sub(self.u32, None, low, args[3]));
        let place = made(self.to.convert_s_to_f(float, None, place));
        let place = made(self.to.f_add(float, None, place, middle));
        let both = made(self.to.sampled_image(both, None, args[1], args[2]));
        let level = [Operand::IdRef(no_level)];
        let all = made(self.to.image_sample_explicit_lod(
            words,
            None,
            both,
            place,
            ImageOperands::LOD,
            level,
        ));
        let word = made(self.to.composite_extract(self.u32, None, all, [0]));
        let to = self.element(global, args[0], at);
        self.store(to, word, 4);
        self.end();
    }
}

/// The builder refuses only mistakes of this file.
fn made<T>(built: Result<T, rspirv::dr::Error>) -> T {
    built.expect("instructions in an order that SPIR-V allows")
}
