//! The arguments of a call as text.
//!
//! Owns the rule of what is shown when: inputs always, outputs by their addresses until they were
//! written.

use ur::abi::print::{Call, Out, Print};

/// An argument's name and text.
pub type Member = (&'static str, String);

/// All arguments; outputs by their addresses, or as `written` has them.
///
/// # Safety
/// The arguments are as the specification asks of the caller; `written` is the same call after its
/// success, in which room is no larger than what was filled.
pub unsafe fn all(call: &dyn Call, written: Option<&dyn Call>) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    // SAFETY: the caller's promise; only inputs are printed here.
    unsafe {
        call.each(&mut |passed| {
            let text = match passed.output {
                Some(address) => pointer(address),
                None => print(passed.value),
            };
            members.push((passed.name, text));
        });
    }
    let Some(written) = written else {
        return members;
    };
    let mut at = members.iter_mut();
    // SAFETY: the caller's promise: the outputs were written.
    unsafe {
        written.each(&mut |passed| {
            if let (Some((_, text)), Some(_)) = (at.next(), passed.output) {
                *text = print(passed.value);
            }
        });
    }
    members
}

/// The outputs that were asked for.
///
/// # Safety
/// As for `written` of [`all`].
pub unsafe fn outputs(written: &dyn Call) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        written.each(&mut |passed| {
            if passed.output.is_some_and(|address| address != 0) {
                members.push((passed.name, print(passed.value)));
            }
        });
    }
    members
}

/// As a call is written: `.name = text`, apart by commas.
pub fn joined(members: &[Member]) -> String {
    let texts = members
        .iter()
        .map(|(name, text)| format!(".{name} = {text}"));
    texts.collect::<Vec<_>>().join(", ")
}

/// # Safety
/// Pointers in the value that are to be read are null or readable.
unsafe fn print(value: &dyn Print) -> String {
    let mut out = Out::brief();
    // SAFETY: the caller's promise.
    unsafe { value.print(&mut out) };
    out.into_text()
}

fn pointer(address: usize) -> String {
    match address {
        0 => "nullptr".to_owned(),
        address => format!("{address:#x}"),
    }
}
