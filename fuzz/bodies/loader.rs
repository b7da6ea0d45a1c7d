//! Fuzz bodies for the loader's texts: the device selector, lists in the environment, log and trace
//! settings.

use ur::object::env::{self, Env};
use ur_loader::layers::tracing;
use ur_loader::selector::{Backend, Duplicates, Kind, Selector};

/// `ONEAPI_DEVICE_SELECTOR`: parses to a selector or to an error inside of the text. A device of an
/// adapter that the filter drops is never selected.
pub fn selector(text: &str) {
    for duplicates in [Duplicates::Reject, Duplicates::Merge] {
        match Selector::parse(text, duplicates) {
            Ok(selector) => {
                for backend in Backend::ALL {
                    let selection = selector.for_backend(Some(backend));
                    let kept = selector.keeps_adapter(backend, &[Kind::Cpu, Kind::Gpu]);
                    for path in [&[0][..], &[1], &[0, 1], &[2, 0, 1]] {
                        assert!(kept || !selection.selects(path, Kind::Gpu), "{text:?}");
                    }
                }
            }
            Err(error) => {
                assert!(text.is_char_boundary(error.at), "{text:?}: {error}");
                assert_eq!(error.to_string().lines().count(), 3, "{text:?}");
            }
        }
    }
}

/// The lists of `UR_ADAPTERS_*`, `UR_LOG_*`, and the variables of the tracing layer.
pub fn settings(text: &str) {
    match env::list(text) {
        Ok(items) => assert!(items.iter().all(|item| !item.is_empty()), "{text:?}"),
        Err(error) => assert!(text.is_char_boundary(error.at), "{text:?}: {error}"),
    }
    if let Some(fault) = ur::object::log::fault(text) {
        assert!(!fault.is_empty(), "{text:?}");
    }
    let get = |_: &str| Some(text.to_owned());
    tracing::check(&Env::new(&get, &|fault| {
        assert!(fault.starts_with("UR_TRACE_"), "{text:?}: {fault}");
    }));
    ur_loader::discovery::plan(&Env::new(&get, &|_| ()), || None);
}
