//! The arguments of a call as text.
//!
//! Owns the rule that inputs are always shown, and outputs by their address until the call has
//! written them.

use ur::abi::print::{Call, Out, Print};

/// An argument's name and text.
pub type Member = (&'static str, String);

/// All arguments. Outputs are addresses, or the values of `written` if it is given.
///
/// # Safety
/// The arguments of `call` meet the specification's contract. `written` has the arguments of the
/// call after its success, with sizes of outputs that the call has written.
pub unsafe fn all(call: &dyn Call, written: Option<&dyn Call>) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    // SAFETY: the caller guarantees valid arguments; outputs are not read here.
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
    // SAFETY: the caller guarantees that the call has written the outputs.
    unsafe {
        written.each(&mut |passed| {
            if let (Some((_, text)), Some(_)) = (at.next(), passed.output) {
                *text = print(passed.value);
            }
        });
    }
    members
}

/// The outputs that the caller passed as not null.
///
/// # Safety
/// `written` has the arguments of a call after its success, with sizes of outputs that the call has
/// written.
pub unsafe fn outputs(written: &dyn Call) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    // SAFETY: the caller guarantees that the call has written the outputs.
    unsafe {
        written.each(&mut |passed| {
            if passed.output.is_some_and(|address| address != 0) {
                members.push((passed.name, print(passed.value)));
            }
        });
    }
    members
}

/// The arguments as text: `.name = text`, separated by commas.
pub fn joined(members: &[Member]) -> String {
    let texts = members
        .iter()
        .map(|(name, text)| format!(".{name} = {text}"));
    texts.collect::<Vec<_>>().join(", ")
}

/// A value as text.
///
/// # Safety
/// Pointers in the value that are to be read are null or readable.
unsafe fn print(value: &dyn Print) -> String {
    let mut out = Out::brief();
    // SAFETY: the caller guarantees that the value's pointers are null or readable.
    unsafe { value.print(&mut out) };
    out.into_text()
}

fn pointer(address: usize) -> String {
    match address {
        0 => "nullptr".to_owned(),
        address => format!("{address:#x}"),
    }
}
