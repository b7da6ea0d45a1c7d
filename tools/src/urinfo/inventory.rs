//! The adapters, platforms and devices with their properties, as plain data.
//!
//! Owns the walk and the numbering of devices. The error of a failed call is stored in place of its
//! result, and the walk continues.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use ur::abi::*;
use ur::abi::property::Property;

use crate::api::{self, Answer};
use crate::value::{self, Missing, Value};

/// The properties of one object, by name.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Properties {
    /// Properties with a value.
    pub info: BTreeMap<&'static str, Value>,
    /// Properties without a value, with the reason: a result code, or a word and the size in bytes.
    #[schemars(with = "BTreeMap<&str, String>")]
    pub missing: BTreeMap<&'static str, Missing>,
    /// All names, in the order of the specification.
    #[serde(skip)]
    pub order: Vec<&'static str>,
}

/// A loader with its adapters.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "urinfo --json")]
pub struct Inventory {
    /// The path of the loader's library.
    pub loader: String,
    /// The value of ONEAPI_DEVICE_SELECTOR.
    pub selector: Option<String>,
    #[serde(flatten)]
    pub properties: Properties,
    pub adapters: Vec<Adapter>,
    /// Why the adapters could not be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An adapter with its platforms.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Adapter {
    /// The backend's name in ONEAPI_DEVICE_SELECTOR.
    pub backend: String,
    #[serde(flatten)]
    pub properties: Properties,
    pub platforms: Vec<Platform>,
    /// Why its platforms could not be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A platform with its devices.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Platform {
    /// The version of the interface that the adapter implements.
    pub api_version: Option<String>,
    #[serde(flatten)]
    pub properties: Properties,
    pub devices: Vec<Device>,
    /// The number of devices that the selector hides.
    pub hidden: usize,
    /// Why its devices could not be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A device.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Device {
    /// Terms of ONEAPI_DEVICE_SELECTOR that select the device. Only a root device has the second
    /// one, its number.
    pub selectors: Vec<String>,
    #[serde(flatten)]
    pub properties: Properties,
}

impl Properties {
    fn read(table: &[Property], query: impl Fn(u32) -> Answer<Vec<u8>>) -> Properties {
        let mut found = Properties::default();
        for property in table {
            let value = query(property.value)
                .map_err(missing)
                .and_then(|bytes| value::read(property.form, &bytes).ok_or(Missing::Malformed(bytes.len())));
            match value {
                Ok(value) => drop(found.info.insert(property.name, value)),
                Err(reason) => drop(found.missing.insert(property.name, reason)),
            }
            found.order.push(property.name);
        }
        found
    }

    /// A property as text; an empty one if it is missing.
    pub fn text(&self, name: &str) -> String {
        self.info
            .get(name)
            .map(Value::to_string)
            .unwrap_or_default()
    }

    /// An enumerator without its prefix, in lower case.
    fn word(&self, name: &str, prefix: &str) -> String {
        let text = self.text(name);
        let word = text.strip_prefix(prefix).unwrap_or("unknown");
        word.to_lowercase()
    }
}

/// Why a query has no value: an unsupported property, or a failure.
fn missing(result: ur_result_t) -> Missing {
    match result {
        UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION
        | UR_RESULT_ERROR_UNSUPPORTED_FEATURE
        | UR_RESULT_ERROR_INVALID_ENUMERATION => Missing::Unsupported(result),
        other => Missing::Failed(other),
    }
}

/// The elements of a list, or none and a sentence with the error.
fn listed<T>(what: &str, answer: Answer<Vec<T>>) -> (Vec<T>, Option<String>) {
    match answer {
        Ok(list) => (list, None),
        Err(result) => (Vec::new(), Some(format!("{what}: {result:?}"))),
    }
}

impl Inventory {
    /// Reads everything that `loader` lists.
    pub fn read(loader: &api::Loader, path: &Path, selector: Option<String>) -> Inventory {
        let (adapters, error) = listed("urAdapterGet", loader.adapters());
        Inventory {
            loader: path.display().to_string(),
            selector,
            properties: Properties::read(ur_loader_config_info_t::PROPERTIES, |property| loader.info(property)),
            adapters: adapters.iter().map(Adapter::read).collect(),
            error,
        }
    }

    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.platforms().flat_map(|platform| &platform.devices)
    }

    pub fn platforms(&self) -> impl Iterator<Item = &Platform> {
        self.adapters.iter().flat_map(|adapter| &adapter.platforms)
    }

    /// The errors of lists.
    pub fn errors(&self) -> impl Iterator<Item = &str> {
        let adapters = self.adapters.iter().filter_map(|one| one.error.as_deref());
        let platforms = self.platforms().filter_map(|one| one.error.as_deref());
        self.error
            .as_deref()
            .into_iter()
            .chain(adapters)
            .chain(platforms)
    }
}

impl Adapter {
    fn read(adapter: &api::Adapter<'_>) -> Adapter {
        let properties = Properties::read(ur_adapter_info_t::PROPERTIES, |property| adapter.info(property));
        let backend = properties.word("UR_ADAPTER_INFO_BACKEND", "UR_BACKEND_");
        let (platforms, error) = listed(&format!("{backend}: urPlatformGet"), adapter.platforms());
        // A selector's numbers count over all platforms of an adapter.
        let mut first = 0;
        let platforms = platforms.iter();
        let platforms = platforms.map(|platform| Platform::read(platform, &backend, &mut first));
        Adapter {
            platforms: platforms.collect(),
            backend,
            properties,
            error,
        }
    }
}

impl Platform {
    fn read(platform: &api::Platform<'_>, backend: &str, first: &mut usize) -> Platform {
        let (all, failed) = listed(&format!("{backend}: urDeviceGet"), platform.devices());
        let (selected, refused) = listed(
            &format!("{backend}: urDeviceGetSelected"),
            platform.selected(),
        );
        let number = |device: &api::Device<'_>| all.iter().position(|one| one.is_same(device));
        let devices: Vec<Device> = selected
            .iter()
            .map(|device| Device::read(device, backend, number(device).map(|at| *first + at)))
            .collect();
        let shown = |one: &&api::Device<'_>| selected.iter().any(|other| other.is_same(one));
        let hidden = match refused {
            None => all.len() - all.iter().filter(shown).count(),
            Some(_) => 0,
        };
        *first += all.len();
        let version = platform.api_version().ok();
        Platform {
            api_version: version
                .map(|version| format!("{}.{}", version.0 >> 16, version.0 & 0xffff)),
            properties: Properties::read(ur_platform_info_t::PROPERTIES, |property| platform.info(property)),
            devices,
            hidden,
            error: failed.or(refused),
        }
    }
}

impl Device {
    fn read(device: &api::Device<'_>, backend: &str, number: Option<usize>) -> Device {
        let properties = Properties::read(ur_device_info_t::PROPERTIES, |property| device.info(property));
        let kind = properties.word("UR_DEVICE_INFO_TYPE", "UR_DEVICE_TYPE_");
        let mut selectors = vec![format!("{backend}:{kind}")];
        selectors.extend(number.map(|number| format!("{backend}:{number}")));
        Device {
            selectors,
            properties,
        }
    }
}
