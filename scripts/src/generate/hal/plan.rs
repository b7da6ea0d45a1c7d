//! The plan of a function's trait method: its object, its arguments and results in Rust, and the expressions
//! that decode the C arguments.

use crate::generate::rust;
use crate::model::{CType, Dir, Function, Own, Param, Spec};
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;

/// Whether a function only counts references, as `urQueueRetain` does.
fn counts(function: &Function) -> Option<Own> {
    let stem = function.stem().trim_end_matches("Exp");
    let own = function.params.first()?.own?;
    match own {
        Own::Retain if stem.ends_with("Retain") => Some(own),
        Own::Release if stem.ends_with("Release") && function.params.len() == 1 => Some(own),
        _ => None,
    }
}

/// The method and the shim of one function.
pub(super) struct Plan<'a> {
    pub function: &'a Function,
    /// The handle type whose trait has the method.
    pub object: String,
    pub method: String,
    pub kind: Shape,
    pub args: Vec<Arg<'a>>,
    /// Required outputs, as results of the method.
    pub returns: Vec<Return<'a>>,
}

pub(super) enum Shape {
    /// `urAdapterGet`, which the hal answers.
    AdapterGet,
    Retain,
    Release,
    Method {
        this: Option<String>,
    },
}

/// An argument of the trait method.
pub(super) struct Arg<'a> {
    pub name: String,
    pub ty: String,
    /// The decoding expression in the shim. It may use `?`.
    pub decode: String,
    pub param: &'a Param,
}

pub(super) struct Return<'a> {
    pub param: &'a Param,
    pub ty: String,
    pub is_handle: bool,
}

/// The prefix that an object's functions share.
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
    pub fn new(spec: &'a Spec, function: &'a Function) -> Result<Self> {
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

    pub fn return_type(&self) -> String {
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

/// Parameters without an argument of their own: counts of lists, and the sizes beside info buffers.
fn absorbed<'a>(spec: &Spec, function: &'a Function) -> BTreeSet<&'a str> {
    let mut out = BTreeSet::new();
    for param in &function.params {
        if let Some(count) = &param.count
            && !keeps_count(count)
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

/// Whether a count stays an argument, since it has a meaning of its own.
fn keeps_count(count: &str) -> bool {
    matches!(count, "workDim")
}

fn is_list_out(spec: &Spec, param: &Param) -> bool {
    let ty = param.c_type();
    param.dir == Dir::Out && param.count.is_some() && ty.pointers == 1 && spec.is_handle(&ty.base)
}

/// The parameter after a list of handles that receives their number.
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

pub(super) fn object_ty(handle: &str) -> String {
    format!("B::{}", associated(handle))
}

/// The associated type of `Backend` for a handle type.
pub(super) fn associated(handle: &str) -> String {
    rust::object_name(handle)
}

/// `hQueue` is `queue`, `pGlobalWorkSize` is `global_work_size`, `phEvent` is `event`.
pub(super) fn arg_name(name: &str) -> String {
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
    if let Some(info) = &param.info {
        return done_info(function, param, info);
    }
    if spec.is_handle(&ty.base) {
        return done_handle(function, param, &ty);
    }
    if let Some(count) = &param.count {
        return done_slice(function, param, &ty, &raw, count);
    }
    if spec.is_callback(&ty.base) && ty.pointers == 0 {
        return match param.optional {
            true => done(param, ty.base.clone(), raw),
            false => done(
                param,
                format!("<{} as Unwrapped>::Fn", ty.base),
                format!("function({raw})?"),
            ),
        };
    }
    if ty.base == "char" && ty.is_const && ty.pointers == 1 && param.dir == Dir::In {
        return match param.optional {
            true => done(
                param,
                "Option<&CStr>".into(),
                format!("optional_text({raw})"),
            ),
            false => done(param, "&CStr".into(), format!("CStr::from_ptr({raw})")),
        };
    }
    if ty.pointers == 1 && param.dir == Dir::In && spec.struct_of(&ty.base).is_some() {
        return match param.optional {
            true => done(
                param,
                format!("Option<&{}>", ty.base),
                format!("{raw}.as_ref()"),
            ),
            false => done(param, format!("&{}", ty.base), format!("&*{raw}")),
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
                param,
                format!("Out<'_, {inner}>"),
                format!("Out::new({raw})"),
            ),
            false => Ok(Decoded::Return(Return {
                param,
                ty: inner,
                is_handle: false,
            })),
        };
    }
    if ty.is_plain() && matches!(ty.base.as_str(), "bool" | "ur_bool_t") {
        return done(param, "bool".into(), format!("{raw} != 0"));
    }
    done(param, rust::ctype(&ty), raw)
}

/// An argument of this Rust type, made by this expression.
fn done(param: &Param, ty: String, decode: String) -> Result<Decoded<'_>> {
    let name = arg_name(&param.name);
    Ok(Decoded::Arg(Arg {
        name,
        ty,
        decode,
        param,
    }))
}

fn done_handle<'a>(function: &'a Function, param: &'a Param, ty: &CType) -> Result<Decoded<'a>> {
    let raw = rust::ident(&param.name);
    let object = object_ty(&ty.base);
    match (ty.pointers, &param.count, param.dir) {
        (0, None, _) if param.optional => done(
            param,
            format!("Option<&Object<{object}>>"),
            format!("optional_object::<B, {object}>({raw})?"),
        ),
        (0, None, _) => done(
            param,
            format!("&Object<{object}>"),
            format!("object::<B, {object}>({raw})?"),
        ),
        (1, Some(count), Dir::Out) => {
            let total = total_of(function, param)
                .map_or("null_mut()".to_owned(), |total| total.name.clone());
            done(
                param,
                format!("ListOut<'_, {object}>"),
                format!("ListOut::new({count}, {raw}.cast(), {total})"),
            )
        }
        (1, Some(count), _) => {
            let decode = match param.name.as_str() {
                "phEventWaitList" => format!("waits::<B>({raw}, {count})?"),
                _ => format!("handles::<B, {object}>({raw}, {count})?"),
            };
            done(param, format!("Handles<'_, {object}>"), decode)
        }
        (1, None, Dir::Out) if !param.optional => Ok(Decoded::Return(Return {
            param,
            ty: format!("Arc<Object<{object}>>"),
            is_handle: true,
        })),
        (1, None, _) => done(
            param,
            format!("OutHandle<'_, {object}>"),
            format!("OutHandle::new({raw}.cast())"),
        ),
        _ => anyhow::bail!(
            "{}: {} is a handle in no known role",
            function.name,
            param.name
        ),
    }
}

fn done_info<'a>(function: &'a Function, param: &'a Param, info: &[String]) -> Result<Decoded<'a>> {
    let raw = rust::ident(&param.name);
    let size = info.get(1);
    if param.dir == Dir::In {
        let size = size.with_context(|| format!("{}: no size", function.name))?;
        return Ok(Decoded::Arg(Arg {
            name: "value".into(),
            ty: "InfoIn<'_>".into(),
            decode: format!("InfoIn::new({size}, {raw}.cast())?"),
            param,
        }));
    }
    let room = size.map_or("None".to_owned(), |size| format!("Some({size})"));
    Ok(Decoded::Arg(Arg {
        name: "out".into(),
        ty: "InfoOut<'_>".into(),
        decode: format!("InfoOut::new({room}, {raw}.cast(), pPropSizeRet)"),
        param,
    }))
}

fn done_slice<'a>(
    function: &Function,
    param: &'a Param,
    ty: &CType,
    raw: &str,
    count: &str,
) -> Result<Decoded<'a>> {
    let element = match (ty.base.as_str(), ty.pointers) {
        ("void", 1) => "u8".to_owned(),
        _ => rust::ctype(&CType {
            pointers: ty.pointers - 1,
            ..ty.clone()
        }),
    };
    let first = match element.as_str() {
        "u8" => format!("{raw}.cast()"),
        _ => raw.to_owned(),
    };
    let counter = function.params.iter().find(|other| other.name == count);
    let count = match counter.is_some_and(|counter| counter.ty == "size_t") {
        true => count.to_owned(),
        false => format!("{count} as usize"),
    };
    if param.dir == Dir::Out {
        return done(
            param,
            format!("&mut [{element}]"),
            format!("slice_mut({first}, {count})?"),
        );
    }
    let (ty, decode) = match (param.optional, ty.base.as_str()) {
        (true, "size_t") => (
            format!("Option<&[{element}]>"),
            format!("optional_slice({first}, {count})?"),
        ),
        (true, _) => (
            format!("&[{element}]"),
            format!("optional_slice({first}, {count})?.unwrap_or_default()"),
        ),
        (false, _) => (format!("&[{element}]"), format!("slice({first}, {count})?")),
    };
    done(param, ty, decode)
}
