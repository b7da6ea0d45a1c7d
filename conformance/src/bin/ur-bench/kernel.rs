//! The kernel that is launched: `affine(u32 *out, const u32 *in, u32 scale, u32 shift)`.

use rspirv::binary::Assemble as _;
use rspirv::dr::{Builder, Error, Operand};
use rspirv::spirv::*;
use std::ffi::CStr;

pub const NAME: &CStr = c"affine";

/// `out[i] = in[i] * scale + shift`, as SPIR-V for OpenCL.
pub fn words() -> Result<Vec<u32>, Error> {
    let mut to = Builder::new();
    to.set_version(1, 2);
    for capability in [Capability::Kernel, Capability::Addresses, Capability::Int64] {
        to.capability(capability);
    }
    to.memory_model(AddressingModel::Physical64, MemoryModel::OpenCL);
    let (void, u32, u64) = (to.type_void(), to.type_int(32, 0), to.type_int(64, 0));
    let ids = to.type_vector(u64, 3);
    let input = to.type_pointer(None, StorageClass::Input, ids);
    let global = to.type_pointer(None, StorageClass::CrossWorkgroup, u32);
    let id = to.variable(input, None, StorageClass::Input, None);
    let which = Operand::BuiltIn(BuiltIn::GlobalInvocationId);
    to.decorate(id, Decoration::BuiltIn, [which]);
    to.decorate(id, Decoration::Constant, []);

    let kind = to.type_function(void, vec![global, global, u32, u32]);
    let function = to.begin_function(void, None, FunctionControl::NONE, kind)?;
    to.entry_point(
        ExecutionModel::Kernel,
        function,
        NAME.to_string_lossy(),
        vec![id],
    );
    let [target, source] = [
        to.function_parameter(global)?,
        to.function_parameter(global)?,
    ];
    let [scale, shift] = [to.function_parameter(u32)?, to.function_parameter(u32)?];
    to.begin_block(None)?;
    let all = to.load(ids, None, id, None, [])?;
    let at = to.composite_extract(u64, None, all, [0])?;
    let from = to.in_bounds_ptr_access_chain(global, None, source, at, [])?;
    let aligned = || (Some(MemoryAccess::ALIGNED), [Operand::LiteralBit32(4)]);
    let (access, by) = aligned();
    let value = to.load(u32, None, from, access, by)?;
    let scaled = to.i_mul(u32, None, value, scale)?;
    let shifted = to.i_add(u32, None, scaled, shift)?;
    let place = to.in_bounds_ptr_access_chain(global, None, target, at, [])?;
    let (access, by) = aligned();
    to.store(place, shifted, access, by)?;
    to.ret()?;
    to.end_function()?;
    Ok(to.module().assemble())
}
