//! The text form of each member, argument and property, for every language of printers.
//!
//! Owns the interpretation of C types, counts and tags, and the exceptions that the reference's text makes.
//! Knows no language.

use crate::model::{CType, Item, Param, Spec};

/// The form of one value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A number of this C type. A `bool` is 0 or 1.
    Number(String),
    /// A byte, as `true` or `false`.
    Truth,
    /// An enum, a flag set or a struct, by the printer of its type.
    Named(String),
    /// A flag set, by the enum of its bits.
    Flags { set: String, bit: String },
    /// An address, or `nullptr`.
    Address,
    /// An integer that is an address.
    Native,
    /// An address, or `0`.
    Bare,
    /// A function's address, or `0`.
    Callback,
    /// The address of a string, then the string.
    Text,
    /// The address of a value, then the value.
    Pointer(Box<Form>),
    /// The address of a list, then its values. The name is that of the count.
    List(Box<Form>, String),
    /// Values in place.
    Array(Box<Form>),
    /// The next structure of a chain.
    Chain,
    /// A union, and the member that selects among its members.
    Union { name: String, tag: String },
    /// A property's value: the arguments with its name and its size.
    Info { name: String, size: String },
}

/// The form of a property's bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    Text,
    One(Form),
    List(Form),
}

/// Pointers that the reference prints without their target, and as `0` for null.
const BARE: [(&str, &str); 16] = [
    ("urIPCGetMemHandleExp", "pMem"),
    ("urIPCOpenMemHandleExp", "pIPCMemHandleData"),
    ("urIPCOpenMemHandleExp", "ppMem"),
    ("urIPCCloseMemHandleExp", "pMem"),
    ("urIPCOpenPhysMemHandleExp", "pIPCPhysMemHandleData"),
    ("urIPCOpenEventHandleExp", "pIPCEventHandleData"),
    ("urBindlessImagesFreeMappedLinearMemoryExp", "pMem"),
    ("urMemoryExportAllocExportableMemoryExp", "ppMem"),
    ("urMemoryExportFreeExportableMemoryExp", "pMem"),
    ("urMemoryExportExportMemoryHandleExp", "pMem"),
    ("urMemoryExportExportMemoryHandleExp", "pMemHandleRet"),
    (
        "ur_exp_command_buffer_update_memobj_arg_desc_t",
        "pProperties",
    ),
    (
        "ur_exp_command_buffer_update_pointer_arg_desc_t",
        "pProperties",
    ),
    (
        "ur_exp_command_buffer_update_pointer_arg_desc_t",
        "pNewPointerArg",
    ),
    (
        "ur_exp_command_buffer_update_value_arg_desc_t",
        "pProperties",
    ),
    (
        "ur_exp_command_buffer_update_value_arg_desc_t",
        "pNewValueArg",
    ),
];

/// Lists in calls of which the reference prints the first value only.
const FIRST_ONLY: [&str; 4] = [
    "pGlobalWorkOffset",
    "pGlobalWorkSize",
    "pLocalWorkSize",
    "pBinaries",
];

/// A list with that exception in one function only.
const FIRST_ONLY_IN: (&str, &str) = ("urKernelSetSpecializationConstants", "pSpecConstants");

/// A property whose value the reference does not print.
const UNREAD: (&str, &str) = ("urUSMPoolSetInfoExp", "pPropValue");

/// The member of a union that each tag selects.
const UNIONS: [(&str, &[(&str, &str)]); 3] = [
    (
        "ur_device_partition_value_t",
        &[
            ("UR_DEVICE_PARTITION_EQUALLY", "equally"),
            ("UR_DEVICE_PARTITION_BY_COUNTS", "count"),
            ("UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN", "affinity_domain"),
        ],
    ),
    (
        "ur_exp_kernel_arg_value_t",
        &[
            ("UR_EXP_KERNEL_ARG_TYPE_VALUE", "value"),
            ("UR_EXP_KERNEL_ARG_TYPE_POINTER", "pointer"),
            ("UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ", "memObjTuple"),
            ("UR_EXP_KERNEL_ARG_TYPE_SAMPLER", "sampler"),
        ],
    ),
    (
        "ur_program_metadata_value_t",
        &[
            ("UR_PROGRAM_METADATA_TYPE_UINT32", "data32"),
            ("UR_PROGRAM_METADATA_TYPE_UINT64", "data64"),
            ("UR_PROGRAM_METADATA_TYPE_BYTE_ARRAY", "pData"),
            ("UR_PROGRAM_METADATA_TYPE_STRING", "pString"),
        ],
    ),
];

/// The form of a struct's member or a call's argument. `owner` is the struct or the function.
pub fn member(spec: &Spec, owner: &str, param: &Param) -> Form {
    let ty = param.c_type();
    if BARE.contains(&(owner, param.name.as_str())) {
        return Form::Bare;
    }
    if let Some(tag) = &param.tag {
        return Form::Union {
            name: ty.base,
            tag: tag.clone(),
        };
    }
    if let Some([name, size]) = param.info.as_deref()
        && (owner, param.name.as_str()) != UNREAD
    {
        return Form::Info {
            name: name.clone(),
            size: size.clone(),
        };
    }
    if param.name == "pNext" {
        return Form::Chain;
    }
    if ty.array.is_some() {
        return Form::Array(Box::new(value(spec, &ty.base, 0)));
    }
    match &param.count {
        Some(count) if !is_address(&ty) && !first_only(owner, param) => Form::List(
            Box::new(value(spec, &ty.base, ty.pointers - 1)),
            count.clone(),
        ),
        _ => value(spec, &ty.base, ty.pointers),
    }
}

/// The form of a property from its type: `uint32_t`, `size_t[`, `size_t[3`, `char[`.
pub fn property(spec: &Spec, text: &str) -> Property {
    let ty = CType::parse(text);
    if ty.array.is_none() {
        return Property::One(value(spec, &ty.base, ty.pointers));
    }
    match (ty.base.as_str(), ty.pointers) {
        ("char", 0) => Property::Text,
        ("void", 1) => Property::List(Form::Bare),
        ("uint8_t", 0) => Property::List(Form::Number(ty.base)),
        // The reference prints only the first binary of a program.
        ("unsigned char", 1) => Property::One(Form::Pointer(Box::new(Form::Truth))),
        (base, pointers) => Property::List(value(spec, base, pointers)),
    }
}

/// The tags of a union in order, each with its member.
pub fn union_members<'a>(spec: &'a Spec, name: &str) -> Vec<(&'static str, &'a Param)> {
    let tags = UNIONS
        .iter()
        .find(|(union, _)| *union == name)
        .map_or(&[][..], |(_, tags)| tags);
    let members = spec.items().find_map(|item| match item {
        Item::Union(found) if found.name == name => Some(&found.members),
        _ => None,
    });
    let member = |wanted: &str| members?.iter().find(|member| member.name == wanted);
    tags.iter()
        .filter_map(|(tag, wanted)| Some((*tag, member(wanted)?)))
        .collect()
}

/// The enum that selects among a union's members.
pub fn tag_type(spec: &Spec, union: &str) -> Option<String> {
    spec.structs().find_map(|found| {
        let member = found.members.iter().find(|member| member.ty == union)?;
        let tag = member.tag.as_ref()?;
        let mut members = found.members.iter();
        Some(members.find(|member| member.name == *tag)?.ty.clone())
    })
}

fn first_only(owner: &str, param: &Param) -> bool {
    FIRST_ONLY.contains(&param.name.as_str()) || (owner, param.name.as_str()) == FIRST_ONLY_IN
}

fn is_address(ty: &CType) -> bool {
    ty.base == "void" && ty.pointers == 1
}

/// The form of a type behind this many pointers.
pub fn value(spec: &Spec, base: &str, pointers: usize) -> Form {
    match (base, pointers) {
        ("void", 1) => Form::Address,
        ("char", 1) => Form::Text,
        (_, 0) => plain(spec, base),
        // Behind a pointer a native handle is a plain number.
        (_, 1) if plain(spec, base) == Form::Native => {
            Form::Pointer(Box::new(Form::Number("uintptr_t".to_owned())))
        }
        _ => Form::Pointer(Box::new(value(spec, base, pointers - 1))),
    }
}

fn plain(spec: &Spec, base: &str) -> Form {
    let found = spec.items().find_map(|item| match item {
        Item::Handle(handle) if handle.name == base => Some(Form::Address),
        Item::Callback(callback) if callback.name == base => Some(Form::Callback),
        Item::Enum(found) if found.name == base => Some(Form::Named(base.to_owned())),
        Item::Struct(found) if found.name == base => Some(Form::Named(base.to_owned())),
        Item::Flags(found) if found.name == base => Some(Form::Flags {
            set: found.name.clone(),
            bit: found.bit.clone(),
        }),
        Item::Typedef(typedef) if typedef.name == base => Some(plain(spec, &typedef.ty)),
        _ => None,
    });
    found.unwrap_or_else(|| match base {
        "uintptr_t" => Form::Native,
        "uint8_t" | "unsigned char" => Form::Truth,
        other => Form::Number(other.to_owned()),
    })
}
