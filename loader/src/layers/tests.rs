//! Tests of the chain, with layers that only count.

use std::ffi::c_void;
use std::sync::Mutex;

use ur::abi::*;

use super::*;

static EVENTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn record(event: String) {
    EVENTS.lock().expect("unpoisoned").push(event);
}

struct Counting {
    name: &'static str,
    fails: bool,
}

type Wait = unsafe extern "C" fn(ur_device_handle_t) -> ur_result_t;

unsafe extern "C" fn inner_wait(_: ur_device_handle_t) -> ur_result_t {
    UR_RESULT_ERROR_DEVICE_LOST
}

unsafe extern "C" fn outer_wait(_: ur_device_handle_t) -> ur_result_t {
    UR_RESULT_SUCCESS
}

impl Layer for Counting {
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        names: &[&'static str],
        context: &LayerContext,
    ) -> Result<(), ur_result_t> {
        let below = table.DeviceExp.pfnWaitExp.map(|wait| wait as usize);
        let below = if below == Some(inner_wait as Wait as usize) {
            "inner"
        } else {
            "layer"
        };
        let located = context.code_location.is_some();
        record(format!(
            "{} wraps {below} as {names:?}, located {located}",
            self.name
        ));
        table.DeviceExp.pfnWaitExp = Some(outer_wait);
        if self.fails {
            Err(UR_RESULT_ERROR_OUT_OF_RESOURCES)
        } else {
            Ok(())
        }
    }

    fn teardown(&mut self) {
        record(format!("{} ends", self.name));
    }
}

fn first() -> Box<dyn Layer> {
    Box::new(Counting {
        name: "first",
        fails: false,
    })
}

fn second() -> Box<dyn Layer> {
    Box::new(Counting {
        name: "second",
        fails: false,
    })
}

fn failing() -> Box<dyn Layer> {
    Box::new(Counting {
        name: "failing",
        fails: true,
    })
}

const LAYERS: &[Known] = &[
    Known {
        names: &["FIRST", "FIRST_MORE"],
        make: first,
    },
    Known {
        names: &["SECOND"],
        make: second,
    },
    Known {
        names: &["FAILING"],
        make: failing,
    },
];

unsafe extern "C" fn locate(_: *mut c_void) -> ur_code_location_t {
    ur_code_location_t::default()
}

#[test]
fn chains_are_ordered_inside_out_and_end_in_reverse() {
    let build = |names: &[&str]| {
        EVENTS.lock().expect("unpoisoned").clear();
        let mut table = ur_dditable_t::default();
        table.DeviceExp.pfnWaitExp = Some(inner_wait);
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let location = CodeLocation {
            callback: locate,
            user_data: std::ptr::null_mut(),
        };
        let context = LayerContext {
            code_location: Some(location),
        };
        let chain = Chain::build(LAYERS, &names, &mut table, &context);
        let wait = table.DeviceExp.pfnWaitExp.expect("still there");
        // SAFETY: both functions ignore their argument.
        (chain, unsafe { wait(std::ptr::null_mut()) })
    };
    let events = || EVENTS.lock().expect("unpoisoned").join("; ");

    let (chain, result) = build(&["NO_SUCH"]);
    assert!(chain.is_ok_and(|chain| chain.is_empty()));
    assert_eq!(result, UR_RESULT_ERROR_DEVICE_LOST, "nothing was wrapped");

    // The chain's order counts, not the order of the names.
    let (chain, result) = build(&["SECOND", "FIRST_MORE", "SECOND"]);
    let mut chain = chain.expect("both layers wrap");
    assert_eq!(result, UR_RESULT_SUCCESS);
    assert!(!chain.is_empty());
    chain.teardown();
    assert_eq!(
        events(),
        "first wraps inner as [\"FIRST_MORE\"], located true; \
         second wraps layer as [\"SECOND\"], located true; second ends; first ends"
    );

    let (chain, _) = build(&["FIRST", "FAILING"]);
    assert_eq!(chain.err(), Some(UR_RESULT_ERROR_OUT_OF_RESOURCES));
    assert!(events().ends_with("first ends"), "{}", events());
}

#[test]
fn known_names() {
    let names = names();
    assert_eq!(names.len(), 7);
    assert!((1..names.len()).all(|at| !names[at..].contains(&names[at - 1])));
    assert!(
        names
            .iter()
            .all(|name| is_known(name) && name.starts_with("UR_LAYER_"))
    );
    assert!(names.contains(&"UR_LAYER_TRACING"));
    // Parts of a name, and lists of names, are unknown.
    assert!(
        !is_known("UR_LAYER")
            && !is_known("")
            && !is_known("UR_LAYER_TRACING;UR_LAYER_LEAK_CHECKING")
    );
    // The sanitizers of the reference do not exist here.
    for sanitizer in ["UR_LAYER_ASAN", "UR_LAYER_MSAN", "UR_LAYER_TSAN"] {
        assert!(!is_known(sanitizer), "{sanitizer}");
    }
}
