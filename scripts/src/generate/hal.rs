//! `src/hal/generated`: one trait an object, info enums, and the C shims that check, decode, call
//! one trait method and encode.

use super::{File, expr, rust};
use crate::model::{CType, Dir, Enum, Function, Own, Param, Spec};
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::fmt::Write as _;

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    let plans = spec
        .functions()
        .filter(|function| function.table.is_some())
        .map(|function| Plan::new(spec, function))
        .collect::<Result<Vec<_>>>()?;
    Ok(vec![
        File::rust(
            "src/hal/generated/mod.rs",
            "Generated parts of the hal.",
            "pub mod info;\npub mod shims;\npub mod traits;\n",
        )?,
        File::rust("src/hal/generated/info.rs", INFO_DOC, &infos(spec))?,
        File::rust(
            "src/hal/generated/traits.rs",
            TRAITS_DOC,
            &traits(spec, &plans),
        )?,
        File::rust(
            "src/hal/generated/shims.rs",
            SHIMS_DOC,
            &shims(spec, &plans)?,
        )?,
    ])
}

/// A table function and the trait method that answers it, `(trait, method)`; none where the hal does.
pub struct Entry {
    pub function: String,
    pub method: Option<(String, String)>,
}

pub fn entries(spec: &Spec) -> Result<Vec<Entry>> {
    spec.functions()
        .filter(|function| function.table.is_some())
        .map(|function| {
            let plan = Plan::new(spec, function)?;
            let method = matches!(plan.kind, Shape::Method { .. })
                .then(|| (associated(&plan.object), plan.method.clone()));
            Ok(Entry {
                function: function.name.clone(),
                method,
            })
        })
        .collect()
}

const INFO_DOC: &str = "Properties as Rust enums, so that a query is a match without a wildcard.";

const TRAITS_DOC: &str = "One trait an object: what a backend may implement. Each method stands for the C function that\n\
its documentation names; a method that a backend leaves out answers `UNSUPPORTED_FEATURE`.";

const SHIMS_DOC: &str = "The C functions of an adapter, generic over its backend: check, decode, call, encode.\n\n\
Unsafe blocks rest on what the specification asks of a caller: pointers that are not null are\n\
readable or writable for what their parameter says, and handles are null or live.";

/// A function whose object is only counted: `urQueueRetain`.
fn counts(function: &Function) -> Option<Own> {
    let stem = function.stem().trim_end_matches("Exp");
    let own = function.params.first()?.own?;
    match own {
        Own::Retain if stem.ends_with("Retain") => Some(own),
        Own::Release if stem.ends_with("Release") && function.params.len() == 1 => Some(own),
        _ => None,
    }
}

/// How one function becomes a method and a shim.
struct Plan<'a> {
    function: &'a Function,
    /// Handle type whose trait has the method.
    object: String,
    method: String,
    kind: Shape,
    args: Vec<Arg<'a>>,
    /// Required outputs, which the method returns.
    returns: Vec<Return<'a>>,
}

enum Shape {
    /// `urAdapterGet`: answered by the hal itself.
    AdapterGet,
    Retain,
    Release,
    Method {
        this: Option<String>,
    },
}

/// An argument of the trait method.
struct Arg<'a> {
    name: String,
    ty: String,
    /// Expression in the shim that makes it; may use `?`.
    decode: String,
    param: &'a Param,
}

struct Return<'a> {
    param: &'a Param,
    ty: String,
    is_handle: bool,
}

/// Prefix that a function shares with the name of its object.
fn class(handle: &str) -> &'static str {
    match handle {
        "ur_adapter_handle_t" => "Adapter",
        "ur_platform_handle_t" => "Platform",
        "ur_device_handle_t" => "Device",
        "ur_context_handle_t" => "Context",
        "ur_event_handle_t" => "Event",
        "ur_program_handle_t" => "Program",
        "ur_kernel_handle_t" => "Kernel",
        "ur_queue_handle_t" => "Queue",
        "ur_sampler_handle_t" => "Sampler",
        "ur_mem_handle_t" => "Mem",
        "ur_physical_mem_handle_t" => "PhysicalMem",
        "ur_usm_pool_handle_t" => "USMPool",
        "ur_exp_command_buffer_handle_t" | "ur_exp_command_buffer_command_handle_t" => {
            "CommandBuffer"
        }
        "ur_exp_executable_graph_handle_t" => "GraphExecutableGraph",
        "ur_exp_graph_handle_t" => "Graph",
        _ => "",
    }
}

fn method_name(function: &Function, object: &str) -> String {
    let stem = function.stem();
    let short = match stem.strip_prefix("Enqueue") {
        Some(rest) if object == "ur_queue_handle_t" => rest,
        _ => stem
            .strip_prefix(class(object))
            .filter(|rest| !rest.is_empty())
            .unwrap_or(stem),
    };
    rust::snake(short)
}

impl<'a> Plan<'a> {
    fn new(spec: &'a Spec, function: &'a Function) -> Result<Self> {
        if function.name == "urAdapterGet" {
            return Ok(Self {
                function,
                object: "ur_adapter_handle_t".into(),
                method: "get".into(),
                kind: Shape::AdapterGet,
                args: Vec::new(),
                returns: Vec::new(),
            });
        }
        let dispatch = function
            .dispatch(spec)
            .with_context(|| format!("{}: no dispatch handle", function.name))?;
        let object = dispatch.c_type().base;
        let kind = match counts(function) {
            Some(Own::Retain) => Shape::Retain,
            Some(Own::Release) => Shape::Release,
            _ => Shape::Method {
                this: (!dispatch.c_type().is_pointer()).then(|| dispatch.name.clone()),
            },
        };
        let mut plan = Self {
            function,
            method: method_name(function, &object),
            object,
            kind,
            args: Vec::new(),
            returns: Vec::new(),
        };
        if let Shape::Method { this } = &plan.kind {
            let this = this.clone();
            plan.classify(spec, this.as_deref())?;
        }
        Ok(plan)
    }

    fn classify(&mut self, spec: &'a Spec, this: Option<&str>) -> Result<()> {
        let function = self.function;
        let absorbed = absorbed(spec, function);
        for param in &function.params {
            if this == Some(param.name.as_str()) || absorbed.contains(param.name.as_str()) {
                continue;
            }
            match argument(spec, function, param)? {
                Decoded::Arg(arg) => self.args.push(arg),
                Decoded::Return(back) => self.returns.push(back),
            }
        }
        Ok(())
    }

    fn return_type(&self) -> String {
        let types: Vec<_> = self.returns.iter().map(|back| back.ty.as_str()).collect();
        match types.as_slice() {
            [] => "()".into(),
            [one] => (*one).into(),
            many => format!("({})", many.join(", ")),
        }
    }
}

enum Decoded<'a> {
    Arg(Arg<'a>),
    Return(Return<'a>),
}

/// Parameters that another one takes in: counts of lists, and the companions of info buffers.
fn absorbed<'a>(spec: &Spec, function: &'a Function) -> BTreeSet<&'a str> {
    let mut out = BTreeSet::new();
    for param in &function.params {
        if let Some(count) = &param.count
            && !keeps_count(function, count)
        {
            out.insert(count.as_str());
        }
        if let Some(info) = &param.info {
            out.extend(info.iter().skip(1).map(String::as_str));
            out.extend(
                function
                    .params
                    .iter()
                    .filter(|other| other.name == "pPropSizeRet")
                    .map(|other| other.name.as_str()),
            );
        }
        if is_list_out(spec, param)
            && let Some(total) = total_of(function, param)
        {
            out.insert(total.name.as_str());
        }
    }
    out
}

/// Counts that mean something of their own stay parameters.
fn keeps_count(_function: &Function, count: &str) -> bool {
    matches!(count, "workDim")
}

fn is_list_out(spec: &Spec, param: &Param) -> bool {
    let ty = param.c_type();
    param.dir == Dir::Out && param.count.is_some() && ty.pointers == 1 && spec.is_handle(&ty.base)
}

/// The parameter after a handle list that receives how many there are.
fn total_of<'a>(function: &'a Function, list: &Param) -> Option<&'a Param> {
    let at = function
        .params
        .iter()
        .position(|param| param.name == list.name)?;
    function
        .params
        .get(at + 1)
        .filter(|next| next.dir == Dir::Out && next.ty == "uint32_t *")
}

fn object_ty(handle: &str) -> String {
    format!("B::{}", associated(handle))
}

/// The associated type of `Backend` for a handle type.
fn associated(handle: &str) -> String {
    rust::object_name(handle)
}

/// `hQueue` is `queue`, `pGlobalWorkSize` is `global_work_size`, `phEvent` is `event`.
fn arg_name(name: &str) -> String {
    let mut rest = name;
    for prefix in ["pph", "ph", "ppfn", "pfn", "pp", "p", "h"] {
        if let Some(tail) = name.strip_prefix(prefix)
            && tail.starts_with(|letter: char| letter.is_uppercase())
        {
            rest = tail;
            break;
        }
    }
    let snake = rust::snake(rest);
    match snake.as_str() {
        "type" | "match" | "ref" | "move" => format!("{snake}_"),
        _ => snake,
    }
}

fn argument<'a>(spec: &'a Spec, function: &'a Function, param: &'a Param) -> Result<Decoded<'a>> {
    let ty = param.c_type();
    let raw = rust::ident(&param.name);
    let name = arg_name(&param.name);
    let is_handle = spec.is_handle(&ty.base);
    let done = |ty: String, decode: String| {
        Ok(Decoded::Arg(Arg {
            name: name.clone(),
            ty,
            decode,
            param,
        }))
    };
    if let Some(info) = &param.info {
        return done_info(spec, function, param, info);
    }
    if is_handle {
        let object = object_ty(&ty.base);
        return match (ty.pointers, &param.count, param.dir) {
            (0, None, _) if param.optional => done(
                format!("Option<&Object<{object}>>"),
                format!(
                    "if {raw}.is_null() {{ None }} else {{ Some(unsafe {{ Object::<{object}>::borrow({raw}.cast(), B::table()) }}?) }}"
                ),
            ),
            (0, None, _) => done(
                format!("&Object<{object}>"),
                format!("unsafe {{ Object::<{object}>::borrow({raw}.cast(), B::table()) }}?"),
            ),
            (1, Some(count), Dir::Out) => {
                let total = total_of(function, param)
                    .map_or("std::ptr::null_mut()".to_owned(), |total| {
                        total.name.clone()
                    });
                done(
                    format!("ListOut<'_, {object}>"),
                    format!("unsafe {{ ListOut::new({count}, {raw}.cast(), {total}) }}"),
                )
            }
            (1, Some(count), _) => {
                let null = if param.name == "phEventWaitList" {
                    "UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST"
                } else {
                    "UR_RESULT_ERROR_INVALID_NULL_HANDLE"
                };
                done(
                    format!("Handles<'_, {object}>"),
                    format!(
                        "unsafe {{ Handles::<{object}>::borrow({raw}.cast(), {count} as usize, B::table(), {null}) }}?"
                    ),
                )
            }
            (1, None, Dir::Out) if !param.optional => Ok(Decoded::Return(Return {
                param,
                ty: format!("Arc<Object<{object}>>"),
                is_handle: true,
            })),
            (1, None, _) => done(
                format!("OutHandle<'_, {object}>"),
                format!("unsafe {{ OutHandle::<{object}>::new({raw}.cast()) }}"),
            ),
            _ => anyhow::bail!(
                "{}: {} is a handle in no known role",
                function.name,
                param.name
            ),
        };
    }
    if let Some(count) = &param.count {
        return done_slice(param, &ty, &raw, &name, count);
    }
    if spec.is_callback(&ty.base) && ty.pointers == 0 {
        return match param.optional {
            true => done(ty.base.clone(), raw),
            false => {
                let bare = format!("<{} as Unwrapped>::Fn", ty.base);
                done(
                    bare,
                    format!("{raw}.ok_or(Error::new(UR_RESULT_ERROR_INVALID_NULL_POINTER))?"),
                )
            }
        };
    }
    if ty.base == "char" && ty.is_const && ty.pointers == 1 && param.dir == Dir::In {
        return match param.optional {
            true => done(
                "Option<&CStr>".into(),
                format!(
                    "if {raw}.is_null() {{ None }} else {{ Some(unsafe {{ CStr::from_ptr({raw}) }}) }}"
                ),
            ),
            false => done(
                "&CStr".into(),
                format!("unsafe {{ CStr::from_ptr({raw}) }}"),
            ),
        };
    }
    if ty.pointers == 1 && param.dir == Dir::In && spec.struct_of(&ty.base).is_some() {
        return match param.optional {
            true => done(
                format!("Option<&{}>", ty.base),
                format!("unsafe {{ {raw}.as_ref() }}"),
            ),
            false => done(format!("&{}", ty.base), format!("unsafe {{ &*{raw} }}")),
        };
    }
    let is_value_out =
        param.dir == Dir::Out && (ty.pointers == 2 || ty.pointers == 1 && ty.base != "void");
    if is_value_out {
        let inner = CType {
            pointers: ty.pointers - 1,
            ..ty.clone()
        };
        let inner = rust::ctype(&inner);
        return match param.optional {
            true => done(
                format!("Out<'_, {inner}>"),
                format!("unsafe {{ Out::new({raw}) }}"),
            ),
            false => Ok(Decoded::Return(Return {
                param,
                ty: inner,
                is_handle: false,
            })),
        };
    }
    if ty.is_plain() && matches!(ty.base.as_str(), "bool" | "ur_bool_t") {
        return done("bool".into(), format!("{raw} != 0"));
    }
    done(rust::ctype(&ty), raw)
}

fn done_info<'a>(
    spec: &'a Spec,
    function: &'a Function,
    param: &'a Param,
    info: &[String],
) -> Result<Decoded<'a>> {
    let _ = spec;
    let raw = rust::ident(&param.name);
    let size = info.get(1);
    if param.dir == Dir::In {
        let size = size.with_context(|| format!("{}: no size", function.name))?;
        return Ok(Decoded::Arg(Arg {
            name: "value".into(),
            ty: "InfoIn<'_>".into(),
            decode: format!("unsafe {{ InfoIn::new({size}, {raw}.cast()) }}"),
            param,
        }));
    }
    let room = size.map_or("None".to_owned(), |size| format!("Some({size})"));
    Ok(Decoded::Arg(Arg {
        name: "out".into(),
        ty: "InfoOut<'_>".into(),
        decode: format!("unsafe {{ InfoOut::new({room}, {raw}.cast(), pPropSizeRet) }}"),
        param,
    }))
}

fn done_slice<'a>(
    param: &'a Param,
    ty: &CType,
    raw: &str,
    name: &str,
    count: &str,
) -> Result<Decoded<'a>> {
    let element = match (ty.base.as_str(), ty.pointers) {
        ("void", 1) => "u8".to_owned(),
        _ => rust::ctype(&CType {
            pointers: ty.pointers - 1,
            ..ty.clone()
        }),
    };
    if param.dir == Dir::Out {
        return Ok(Decoded::Arg(Arg {
            name: name.to_owned(),
            ty: format!("&mut [{element}]"),
            decode: format!("unsafe {{ slice_mut({raw}.cast::<{element}>(), {count} as usize) }}?"),
            param,
        }));
    }
    let slice = format!("unsafe {{ slice({raw}.cast::<{element}>(), {count} as usize) }}");
    let (ty, decode) = match (param.optional, ty.base.as_str()) {
        (true, "size_t") => (
            format!("Option<&[{element}]>"),
            format!("if {raw}.is_null() {{ None }} else {{ Some({slice}?) }}"),
        ),
        (true, _) => (
            format!("&[{element}]"),
            format!("if {raw}.is_null() {{ &[] }} else {{ {slice}? }}"),
        ),
        (false, _) => (format!("&[{element}]"), format!("{slice}?")),
    };
    Ok(Decoded::Arg(Arg {
        name: name.to_owned(),
        ty,
        decode,
        param,
    }))
}

/// The info enums: those that some function takes as `propName`.
fn info_enums(spec: &Spec) -> Vec<&Enum> {
    let mut seen = BTreeSet::new();
    spec.functions()
        .flat_map(|function| &function.params)
        .filter(|param| param.name == "propName")
        .filter_map(|param| spec.enum_of(&param.c_type().base))
        .filter(|found| seen.insert(found.name.clone()))
        .collect()
}

/// `QueueInfo` of `ur_queue_info_t`.
fn info_name(found: &str) -> String {
    let stem = found
        .trim_start_matches("ur_")
        .trim_start_matches("exp_")
        .trim_end_matches("_t");
    heck::AsUpperCamelCase(stem).to_string()
}

fn variant_name(found: &Enum, value: &str) -> String {
    let prefix = format!("{}_", found.name.trim_end_matches("_t").to_uppercase());
    let stem = value.strip_prefix(&prefix).unwrap_or(value);
    let camel = heck::AsUpperCamelCase(stem).to_string();
    if camel.starts_with(|letter: char| letter.is_ascii_digit()) {
        format!("Is{camel}")
    } else {
        camel
    }
}

fn infos(spec: &Spec) -> String {
    let mut out = String::from("use crate::abi::*;\nuse crate::object::Error;\n");
    for found in info_enums(spec) {
        let name = info_name(&found.name);
        let mut seen = BTreeSet::new();
        let values: Vec<_> = found
            .values
            .iter()
            .filter(|value| seen.insert(value.value))
            .collect();
        let variants: String = values
            .iter()
            .map(|value| {
                format!(
                    "{}{},",
                    rust::doc(&value.desc),
                    variant_name(found, &value.name)
                )
            })
            .collect();
        let arms: String = values
            .iter()
            .map(|value| {
                format!(
                    "{} => Ok(Self::{}),",
                    value.name,
                    variant_name(found, &value.name)
                )
            })
            .collect();
        let _ = write!(
            out,
            "{doc}#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)] pub enum {name} {{ {variants} }}
            impl TryFrom<{c}> for {name} {{
                type Error = Error;
                fn try_from(value: {c}) -> Result<Self, Error> {{
                    match value {{ {arms} _ => Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)) }}
                }}
            }}\n",
            doc = rust::doc(&found.desc),
            c = found.name,
        );
    }
    out
}

fn traits(spec: &Spec, plans: &[Plan<'_>]) -> String {
    let mut out = String::from(
        "#![allow(unused_variables, clippy::too_many_arguments)]
        use super::info::*;
        use crate::abi::*;
        use crate::hal::{Absent, Unwrapped};
        use crate::object::{Body, Error, Handles, InfoIn, InfoOut, Kind, ListOut, Object, Out, OutHandle, Result};
        use std::ffi::{CStr, c_char, c_void};
        use std::sync::Arc;\n",
    );
    let handles: Vec<_> = spec
        .handles()
        .filter(|handle| handle.name != "ur_loader_config_handle_t")
        .collect();
    let mut types = String::new();
    for handle in &handles {
        let name = associated(&handle.name);
        let _ = writeln!(
            types,
            "{}type {name}: {name}<Self>;",
            rust::doc(&handle.desc)
        );
    }
    let _ = write!(
        out,
        "/// A backend: its table, its adapter, and the types that stand behind its handles.
        pub trait Backend: crate::hal::Exported + Sized + Send + Sync + 'static {{
            {types}
            /// The adapter that `urAdapterGet` hands out, made ready; none where the backend finds
            /// no driver, which is no error.
            fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>>;
        }}\n"
    );
    for handle in &handles {
        let name = associated(&handle.name);
        let mut methods = String::new();
        for plan in plans.iter().filter(|plan| plan.object == handle.name) {
            let Shape::Method { this } = &plan.kind else {
                continue;
            };
            let mut params: Vec<String> = Vec::new();
            if this.is_some() {
                params.push("this: &Object<Self>".into());
            }
            params.extend(
                plan.args
                    .iter()
                    .map(|arg| format!("{}: {}", arg.name, method_ty(spec, arg))),
            );
            let _ = write!(
                methods,
                "{}#[doc = \"\"]\n#[doc = {:?}]\nfn {}({}) -> Result<{}> {{ Err(Error::unsupported()) }}\n",
                rust::doc(&plan.function.desc),
                format!(" `{}`", plan.function.name),
                plan.method,
                params.join(", "),
                plan.return_type(),
            );
        }
        let _ = writeln!(
            out,
            "{}pub trait {name}<B: Backend>: Body {{ {methods} }}",
            rust::doc(&format!("Behind `{}`. {}", handle.name, handle.desc))
        );
        let _ = write!(
            out,
            "/// Stands for the `{0}` of a backend that has none.
            pub type No{name} = Absent<{{ Kind::{name} as u32 }}>;
            impl Body for No{name} {{ const KIND: Kind = Kind::{name}; }}
            impl<B: Backend> {name}<B> for No{name} {{}}\n",
            handle.name
        );
    }
    out
}

fn method_ty(spec: &Spec, arg: &Arg<'_>) -> String {
    if arg.param.name == "propName"
        && let Some(found) = spec.enum_of(&arg.param.c_type().base)
    {
        return info_name(&found.name);
    }
    arg.ty.clone()
}

fn shims(spec: &Spec, plans: &[Plan<'_>]) -> Result<String> {
    let mut out = String::from(
        "#![allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, clippy::too_many_arguments)]
        #![allow(clippy::nonminimal_bool, clippy::unnecessary_cast, clippy::cmp_null, unused_unsafe, unused_parens)]
        #![allow(clippy::double_parens, clippy::if_same_then_else, clippy::suspicious_else_formatting, non_snake_case)]
        use super::info::*;
        use super::traits::*;
        use crate::abi::*;
        use crate::hal::checks::*;
        use crate::object::{Error, Handles, InfoIn, InfoOut, ListOut, Object, Out, OutHandle, boundary, ensure};
        use std::ffi::{CStr, c_char, c_void};\n",
    );
    for plan in plans {
        let body = match &plan.kind {
            Shape::AdapterGet => {
                let names: Vec<_> = plan
                    .function
                    .params
                    .iter()
                    .map(|param| param.name.as_str())
                    .collect();
                format!(
                    "unsafe {{ crate::hal::adapter_get::<B>({}) }}",
                    names.join(", ")
                )
            }
            Shape::Retain => format!("{}.retain(); Ok(())", borrow_first(plan)),
            Shape::Release => format!("{}.release()", borrow_first(plan)),
            Shape::Method { this } => shim_body(spec, plan, this.as_deref())?,
        };
        let _ = writeln!(
            out,
            "pub unsafe extern \"C\" fn {}<B: Backend>({}) -> ur_result_t {{ boundary(|| {{ {body} }}) }}",
            plan.function.name,
            rust::params(&plan.function.params)
        );
    }
    out.push_str(&ddi(spec));
    Ok(out)
}

fn borrow_first(plan: &Plan<'_>) -> String {
    let first = plan
        .function
        .params
        .first()
        .map_or("", |param| param.name.as_str());
    format!(
        "unsafe {{ Object::<{}>::borrow({first}.cast(), B::table()) }}?",
        object_ty(&plan.object)
    )
}

fn shim_body(spec: &Spec, plan: &Plan<'_>, this: Option<&str>) -> Result<String> {
    let mut body = String::new();
    for param in &plan.function.params {
        let ty = param.c_type();
        let is_callback = spec.is_callback(&ty.base) && ty.pointers == 0;
        if ty.is_pointer() && !param.optional && !param.nocheck && !is_callback {
            let _ = writeln!(body, "pointer({})?;", rust::ident(&param.name));
        }
    }
    if let Some(this) = this {
        let _ = writeln!(
            body,
            "let this = unsafe {{ Object::<{}>::borrow({this}.cast(), B::table()) }}?;",
            object_ty(&plan.object)
        );
    }
    for arg in plan.args.iter().filter(|arg| arg.ty.contains("&Object<")) {
        let _ = writeln!(body, "let {} = {};", arg.name, arg.decode);
    }
    for param in &plan.function.params {
        body.push_str(&range_check(spec, param));
    }
    for case in &plan.function.errors {
        let Some(when) = &case.when else { continue };
        let condition =
            expr::rust(spec, plan.function, when).with_context(|| plan.function.name.clone())?;
        let _ = writeln!(
            body,
            "ensure(!(unsafe {{ {condition} }}), UR_RESULT_ERROR_{})?;",
            case.code
        );
    }
    for param in plan
        .function
        .params
        .iter()
        .filter(|param| param.name == "phEventWaitList" && param.optional)
    {
        if let Some(count) = &param.count {
            let _ = writeln!(
                body,
                "ensure(phEventWaitList.is_null() == ({count} == 0), UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST)?;"
            );
        }
    }
    for arg in plan.args.iter().filter(|arg| !arg.ty.contains("&Object<")) {
        let decode = match arg.param.name.as_str() {
            "propName" if spec.enum_of(&arg.param.c_type().base).is_some() => {
                format!("{}.try_into()?", arg.decode)
            }
            _ => arg.decode.clone(),
        };
        let annotation = match arg.param.name.as_str() {
            "propName" => format!(": {}", method_ty(spec, arg)),
            _ => String::new(),
        };
        if arg.name != decode {
            let _ = writeln!(body, "let {}{annotation} = {decode};", arg.name);
        }
        body.push_str(&element_check(spec, arg));
    }
    let mut call: Vec<&str> = this.map(|_| "this").into_iter().collect();
    call.extend(plan.args.iter().map(|arg| arg.name.as_str()));
    let call = format!(
        "<{} as {}<B>>::{}({})",
        object_ty(&plan.object),
        associated(&plan.object),
        plan.method,
        call.join(", ")
    );
    body.push_str(&encode(plan, &call));
    Ok(body)
}

fn encode(plan: &Plan<'_>, call: &str) -> String {
    let mut out = String::new();
    match plan.returns.as_slice() {
        [] => return call.to_owned(),
        [one] => {
            let _ = writeln!(out, "let {} = {call}?;", back_name(one));
        }
        many => {
            let names: Vec<_> = many.iter().map(back_name).collect();
            let _ = writeln!(out, "let ({}) = {call}?;", names.join(", "));
        }
    }
    for back in &plan.returns {
        let to = rust::ident(&back.param.name);
        let _ = match back.is_handle {
            true => {
                // A lent handle comes without a reference of the caller's own.
                let hand_out = match back.param.own {
                    Some(Own::Lend) => "handle",
                    _ => "into_handle",
                };
                writeln!(
                    out,
                    "unsafe {{ {to}.write({}.{hand_out}().cast()) }};",
                    back_name(back)
                )
            }
            false => writeln!(out, "unsafe {{ {to}.write({}) }};", back_name(back)),
        };
    }
    out.push_str("Ok(())");
    out
}

fn back_name(back: &Return<'_>) -> String {
    format!("{}_out", arg_name(&back.param.name))
}

/// Enum ranges and flag masks of a parameter, or of the members of a struct it points to.
fn range_check(spec: &Spec, param: &Param) -> String {
    let ty = param.c_type();
    let raw = rust::ident(&param.name);
    if ty.is_plain() {
        if param.name == "propName" {
            return String::new();
        }
        return value_check(spec, &ty.base, &raw);
    }
    if ty.pointers == 1
        && param.dir == Dir::In
        && param.count.is_none()
        && spec.struct_of(&ty.base).is_some()
    {
        let inner = members_check(spec, &ty.base, "inner");
        if !inner.is_empty() {
            return format!("if let Some(inner) = unsafe {{ {raw}.as_ref() }} {{ {inner} }}\n");
        }
    }
    String::new()
}

fn element_check(spec: &Spec, arg: &Arg<'_>) -> String {
    let ty = arg.param.c_type();
    if arg.param.count.is_none() || arg.param.dir != Dir::In || spec.is_handle(&ty.base) {
        return String::new();
    }
    if ty.pointers == 2 {
        return format!("for element in {} {{ pointer(*element)?; }}\n", arg.name);
    }
    let inner = members_check(spec, &ty.base, "inner");
    match inner.is_empty() {
        true => String::new(),
        false => format!("for inner in {} {{ {inner} }}\n", arg.name),
    }
}

fn members_check(spec: &Spec, base: &str, holder: &str) -> String {
    let Some(found) = spec.struct_of(base) else {
        return String::new();
    };
    found
        .members
        .iter()
        .filter(|member| member.name != "stype" && member.c_type().is_plain())
        .map(|member| {
            value_check(
                spec,
                &member.c_type().base,
                &format!("{holder}.{}", rust::ident(&member.name)),
            )
        })
        .collect()
}

fn value_check(spec: &Spec, base: &str, text: &str) -> String {
    if let Some(flags) = spec.flags_of(base).filter(|flags| flags.name == base) {
        return format!(
            "ensure({text}.0 & {} == 0, UR_RESULT_ERROR_INVALID_ENUMERATION)?;\n",
            flags.mask
        );
    }
    match spec.enum_of(base) {
        Some(_) if base != "ur_structure_type_t" => {
            format!("ensure({text}.name().is_some(), UR_RESULT_ERROR_INVALID_ENUMERATION)?;\n")
        }
        _ => String::new(),
    }
}

/// The table of all shims.
fn ddi(spec: &Spec) -> String {
    let mut members = String::new();
    for table in &spec.tables {
        let mut slots = String::new();
        for function in spec
            .functions()
            .filter(|function| table.slots.contains(&function.name))
        {
            let slot = function.slot.as_deref().unwrap_or_default();
            let _ = write!(slots, "{slot}: Some({}::<B>),", function.name);
        }
        let _ = write!(
            members,
            "{}: {} {{ {slots} }},",
            table.name, table.struct_name
        );
    }
    format!(
        "/// Every slot filled with a backend's shims.\npub const fn ddi<B: Backend>() -> ur_dditable_t {{ ur_dditable_t {{ {members} }} }}\n"
    )
}
